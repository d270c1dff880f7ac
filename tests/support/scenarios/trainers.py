# ruff: noqa: UP031
"""Trajectories of the trainers: values of all parameters after every update."""

from __future__ import annotations

import functools
from typing import Any, Callable

import numpy as np

STEPS = 6
TRAINERS: dict[str, Callable[[Any, Any], Any]] = {
    "sgd": lambda dy, pc: dy.SimpleSGDTrainer(pc),
    "sgd-rate": lambda dy, pc: dy.SimpleSGDTrainer(pc, learning_rate=0.03),
    "momentum": lambda dy, pc: dy.MomentumSGDTrainer(pc),
    "momentum-rate": lambda dy, pc: dy.MomentumSGDTrainer(pc, 0.05, 0.7),
    "adagrad": lambda dy, pc: dy.AdagradTrainer(pc),
    "adagrad-eps": lambda dy, pc: dy.AdagradTrainer(pc, learning_rate=0.05, eps=1e-3),
    "adam": lambda dy, pc: dy.AdamTrainer(pc),
    "adam-rate": lambda dy, pc: dy.AdamTrainer(pc, 0.02, 0.8, 0.95, 1e-4),
}
# name of the setting -> what is done to (trainer, pc)
SETTINGS: dict[str, Callable[[Any, Any], Any]] = {
    "plain": lambda trainer, pc: None,
    "dense": lambda trainer, pc: trainer.set_sparse_updates(False),
    "clip": lambda trainer, pc: trainer.set_clip_threshold(0.5),
    "no-clip": lambda trainer, pc: trainer.set_clip_threshold(0),
    "decay": lambda trainer, pc: None,  # lambda is set before the trainer is made
    "decay-dense": lambda trainer, pc: trainer.set_sparse_updates(False),
}


class Model:
    """A small model with a matrix, a bias, a lookup table and a frozen vector."""

    def __init__(self, dy: Any, decay: float) -> None:
        self.dy = dy
        rng = np.random.RandomState(4)
        self.pc = dy.ParameterCollection()
        if decay:
            self.pc.set_weight_decay_lambda(decay)
        self.W = self.pc.parameters_from_numpy(rng.randn(4, 3))
        self.b = self.pc.parameters_from_numpy(rng.randn(4))
        self.E = self.pc.lookup_parameters_from_numpy(rng.randn(6, 3))
        self.frozen = self.pc.parameters_from_numpy(rng.randn(4))
        self.frozen.set_updated(False)

    def loss(self, step: int) -> Any:
        """A loss that touches two or three rows of the table."""
        dy = self.dy
        losses = []
        for word in {step % 6, (3 * step + 1) % 6, 2}:
            h = dy.tanh(self.W * self.E[word] + self.b)
            losses.append(dy.pickneglogsoftmax(dy.cmult(h, self.frozen) * 3, (word + step) % 4))
        return dy.esum(losses)

    def state(self) -> dict[str, np.ndarray]:
        """Stored values of all parameters."""
        arrays = {"W": self.W, "b": self.b, "E": self.E, "frozen": self.frozen}
        return {name: p.as_array().astype(np.float32) for name, p in arrays.items()}


def trajectory(trainer_name: str, setting: str, dy: Any) -> dict[str, np.ndarray]:
    """STEPS updates; also what the graph sees (with weight decay it differs from the stored values)."""
    model = Model(dy, 0.1 if setting.startswith("decay") else 0.0)
    trainer = TRAINERS[trainer_name](dy, model.pc)
    SETTINGS[setting](trainer, model.pc)
    arrays: dict[str, np.ndarray] = {}
    for step in range(STEPS):
        dy.renew_cg(autobatching=False)
        loss = model.loss(step)
        arrays["%d|loss" % step] = np.float32(loss.value())
        loss.backward()
        arrays["%d|grad E" % step] = model.E.grad_as_array().astype(np.float32)
        trainer.update()
        for name, array in model.state().items():
            arrays["%d|%s" % (step, name)] = array
    dy.renew_cg(autobatching=False)
    arrays["seen W"] = model.W.npvalue().astype(np.float32)
    arrays["seen E2"] = model.E[2].npvalue().astype(np.float32)
    arrays["grad b"] = model.b.grad_as_array().astype(np.float32)
    return arrays


def accumulate(dy: Any) -> dict[str, np.ndarray]:
    """Two backward calls before one update, a change of the learning rate, and restart."""
    arrays: dict[str, np.ndarray] = {}
    for name in ("sgd", "momentum", "adagrad", "adam"):
        model = Model(dy, 0.0)
        trainer = TRAINERS[name](dy, model.pc)
        for step in range(STEPS):
            for part in (0, 1):
                dy.renew_cg(autobatching=False)
                model.loss(step + part).backward()
            trainer.update()
            if step == 2:
                trainer.learning_rate = 0.02
            if step == 3:
                trainer.restart()
            if step == 4:
                trainer.restart(0.07)
            arrays["%s|%d|W" % (name, step)] = model.W.as_array().astype(np.float32)
            arrays["%s|%d|E" % (name, step)] = model.E.as_array().astype(np.float32)
        arrays[name + "|rate"] = np.float32(trainer.learning_rate)
    return arrays


def whole_table(dy: Any) -> dict[str, np.ndarray]:
    """The table used as one expression makes the next update dense."""
    arrays: dict[str, np.ndarray] = {}
    for name in ("momentum", "adam"):
        model = Model(dy, 0.0)
        trainer = TRAINERS[name](dy, model.pc)
        for step in range(4):
            dy.renew_cg(autobatching=False)
            loss = model.loss(step)
            if step % 2:
                loss = loss + dy.squared_norm(model.E) * 0.1
            loss.backward()
            trainer.update()
            arrays["%s|%d|E" % (name, step)] = model.E.as_array().astype(np.float32)
    return arrays


def long_decay(dy: Any) -> dict[str, np.ndarray]:
    """Enough updates for the decay factor to be folded into the values."""
    arrays: dict[str, np.ndarray] = {}
    for name in ("sgd", "adam"):
        model = Model(dy, 0.15)
        trainer = TRAINERS[name](dy, model.pc)
        for step in range(20):
            dy.renew_cg(autobatching=False)
            model.loss(step).backward()
            trainer.update()
            arrays["%s|%d|W" % (name, step)] = model.W.as_array().astype(np.float32)
        dy.renew_cg(autobatching=False)
        arrays[name + "|seen"] = model.W.npvalue().astype(np.float32)
        arrays[name + "|frozen"] = model.frozen.as_array().astype(np.float32)
    return arrays


SCENARIOS: dict[str, Callable[[Any], dict[str, np.ndarray]]] = {
    f"trainer {trainer} {setting}": functools.partial(trajectory, trainer, setting)
    for trainer in TRAINERS
    for setting in SETTINGS
}
SCENARIOS.update(
    {"trainer accumulate": accumulate, "trainer whole-table": whole_table, "trainer long-decay": long_decay}
)
