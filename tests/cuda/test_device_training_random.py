"""Random programs of training steps, reads and writes: the device updates as the host does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.subject import IS_REFERENCE

TESTS = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="the devices are ours")

PROGRAM = r"""
import json, os, random, sys, tempfile
import numpy as np
import dynet_compat as dy

FOLDER = tempfile.mkdtemp()

class Script:
    # One random program; what it sees goes into self.seen.
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.seen = []
        dy.reset_random_seed(seed + 1)
        dy.renew_cg()
        self.m = dy.ParameterCollection()
        if self.random.random() < 0.3:
            self.m.set_weight_decay_lambda(0.15)
        self.parameters = [self.m.add_parameters((3, 4)), self.m.add_parameters(3)]
        self.tables = [self.m.add_lookup_parameters((6, 4)), self.m.add_lookup_parameters((5, 3))]
        make = [lambda: dy.SimpleSGDTrainer(self.m, 0.1), lambda: dy.MomentumSGDTrainer(self.m, 0.1)]
        self.trainers = [self.random.choice(make)() for _ in range(2)]
        for t in self.trainers:
            t.set_clip_threshold(0)
        self.loss = None
        self.views = []

    def all(self):
        return self.parameters + self.tables

    def see(self, array):
        self.seen.append(np.asarray(array).ravel().tolist())

    def record(self):
        r = self.random
        W, b = self.parameters[0], self.parameters[1]
        parts = []
        for _ in range(r.randrange(1, 4)):
            x = self.tables[0][r.randrange(6)]
            if r.random() < 0.3:
                x = x + dy.lookup(self.tables[0], r.randrange(6), update=False)
            parts.append(dy.squared_norm(dy.tanh(W * x + b + self.tables[1][r.randrange(5)])))
        for p in self.parameters[2:]:
            if r.random() < 0.7:
                parts.append(dy.squared_norm(p))
        if r.random() < 0.2:
            parts.append(dy.squared_norm(self.tables[r.randrange(2)]))
        return dy.esum(parts)

    def new_graph(self):
        dy.renew_cg()
        self.loss = self.record()
        self.seen.append(self.loss.value())

    def more(self):
        if self.loss is None:
            return self.new_graph()
        self.loss = self.loss + self.record()
        self.seen.append(self.loss.value())

    def backward(self):
        if self.loss is None:
            self.new_graph()
        self.loss.backward()

    def update(self):
        self.random.choice(self.trainers).update()

    def step(self):
        self.new_graph(); self.backward(); self.trainers[0].update()

    def read(self):
        self.see(self.random.choice(self.all()).as_array())

    def read_row(self):
        self.see(self.tables[0].row_as_array(self.random.randrange(6)))

    def read_grad(self):
        p = self.random.choice(self.all())
        self.see(p.grad_as_array())

    def read_rows_grad(self):
        rows = self.random.sample(range(5), 3)
        self.see(self.random.choice(self.tables).rows_grad_as_array(rows))

    def read_in_graph(self):
        if self.loss is not None:
            self.see(self.random.choice(self.parameters).value())

    def recalculate(self):
        if self.loss is not None:
            self.seen.append(self.loss.value(recalculate=True))

    def view(self):
        self.views.append((dy._core._parameter_values(self.random.choice(self.all())), None))
        view = self.views[-1][0]
        self.views[-1] = (view, np.array(view))

    def drop_view(self):
        if self.views:
            view, copy = self.views.pop(self.random.randrange(len(self.views)))
            self.seen.append(bool((view == copy).all()))

    def checkpoint(self):
        dy.cg_checkpoint()
        self.seen.append(self.record().value())
        if self.random.random() < 0.5:
            self.trainers[1].update()
        dy.cg_revert()
        if self.loss is not None:
            self.seen.append((self.loss + self.record()).value())

    def set_value(self):
        p = self.random.choice(self.parameters)
        p.set_value(np.arange(p.as_array().size).reshape(p.shape()) / 10)

    def scale(self):
        self.random.choice(self.all()).scale(0.7)

    def scale_gradient(self):
        self.random.choice(self.all()).scale_gradient(0.5)

    def clip(self):
        self.random.choice(self.parameters).clip_inplace(-0.4, 0.4)

    def init_row(self):
        self.tables[0].init_row(self.random.randrange(6), [0.1, 0.2, 0.3, 0.4])

    def zero(self):
        self.random.choice(self.all()).zero()

    def freeze(self):
        self.random.choice(self.all()).set_updated(self.random.random() < 0.7)

    def sparse(self):
        for t in self.trainers:
            t.set_sparse_updates(self.random.random() < 0.5)

    def restart(self):
        self.random.choice(self.trainers).restart()

    def add(self):
        if len(self.parameters) < 5:
            self.parameters.append(self.m.add_parameters((2, 3)))

    def save(self):
        self.m.save(FOLDER + "/model")
        self.saved = len(self.parameters)
        self.seen.append(open(FOLDER + "/model").read())

    def load(self):
        if getattr(self, "saved", 0) == len(self.parameters):
            self.m.populate(FOLDER + "/model")

    def save_trainer(self):
        self.trainers[0].save(FOLDER + "/trainer")
        self.seen.append(open(FOLDER + "/trainer").read())
        self.trainers[0].populate(FOLDER + "/trainer")

    def run(self, n):
        actions = [getattr(self, name) for name in ACTIONS]
        for _ in range(n):
            action = self.random.choices(actions, WEIGHTS)[0]
            self.seen.append(action.__name__)
            action()
        for p in self.all():
            self.see(p.as_array())
            self.see(p.grad_as_array())
        return self.seen

ACTIONS = ("step new_graph more backward update read read_row read_grad read_rows_grad read_in_graph "
           "recalculate view drop_view checkpoint set_value scale scale_gradient clip init_row zero freeze "
           "sparse restart add save load save_trainer").split()
WEIGHTS = [12, 4, 2, 6, 6] + [1] * (len(ACTIONS) - 5)

first, count = int(sys.argv[1]), int(sys.argv[2])
wrong, seen = [], []
for seed in range(first, first + count):
    told = []
    for on_device in (True, False):
        if os.environ["DYNET_COMPAT_DEVICE"] != "cpu":
            dy._core._device_options(update=on_device)
        told.append(Script(seed).run(60))
    if told[0] != told[1]:
        at = next(i for i, (a, b) in enumerate(zip(*told)) if a != b)
        before = [w for w in told[0][:at] if isinstance(w, str) and w in ACTIONS]
        wrong.append([seed, before[-12:], told[0][at], told[1][at]])
    seen.append([value for value in told[0] if not isinstance(value, str) or value in ACTIONS])
print(json.dumps([wrong, seen]))
"""


def told(first: int, device: str) -> Any:
    environment = {**os.environ, "DYNET_COMPAT_DEVICE": device, "DYNET_COMPAT_SNAPSHOT": "3"}
    command = [sys.executable, "-c", PROGRAM, str(first), "20"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=900, cwd=TESTS.parent
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("first", [0, 20, 40])
def test_random_programs(first: int) -> None:
    """Bit for bit what updates of the host give; and what the CPU computes, but for roundings."""
    wrong, seen = told(first, "emulation")
    assert not wrong, "seed, the last actions, what the device and what the host saw: " + str(wrong[0])
    for seed, (there, here) in enumerate(zip(seen, told(first, "cpu")[1]), first):
        assert len(there) == len(here)
        for at, (a, b) in enumerate(zip(there, here)):
            near = a == b if isinstance(a, str) else a == pytest.approx(b, rel=1e-3, abs=1e-4)
            actions = [value for value in there[:at] if isinstance(value, str)]
            assert near, f"seed {seed}, after {actions[-12:]}: {a} on the device, {b} on the CPU"
