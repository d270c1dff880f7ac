# ruff: noqa: UP031
"""What the small training programs of traces.py are made of. Runs on Python 3.8, too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, NamedTuple

import numpy as np

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:
    sys.path.insert(0, str(HERE.parent))


STEPS = 20
SEED = 5
WORDS, CLASSES, LENGTH, SIZE, HIDDEN = 12, 5, 4, 6, 8
Step = Callable[[int], Any]  # number of the step -> loss


class Program(NamedTuple):
    """make(dy, pc) -> the function that gives the loss of a step; trainer(dy, pc) -> trainer."""

    make: Callable[[Any, Any], Step]
    trainer: Callable[[Any, Any], Any]
    needs: tuple[str, ...] = ()  # names of the library
    between: Any = None  # between(dy, trainer, step) after each update
    collection: Any = None  # collection(dy) -> the root collection


PROGRAMS: dict = {}


def sgd(dy: Any, pc: Any) -> Any:
    """The trainer of programs that are about something else."""
    return dy.SimpleSGDTrainer(pc, 0.1)


def program(name: str, trainer: Any = sgd, needs: tuple[str, ...] = (), between: Any = None,
            collection: Any = None) -> Any:  # fmt: skip
    """Decorator: adds a program."""

    def add(make: Any) -> Any:
        assert name not in PROGRAMS, name
        PROGRAMS[name] = Program(make, trainer, needs, between, collection)
        return make

    return add


def run(dy: Any, name: str, seed: int = SEED) -> np.ndarray:
    """The trace of one program."""
    p = PROGRAMS[name]
    dy.reset_random_seed(seed)
    pc = p.collection(dy) if p.collection else dy.ParameterCollection()
    dy.renew_cg(autobatching=False)
    step_loss = p.make(dy, pc)
    trainer = p.trainer(dy, pc)
    trace = []
    for step in range(STEPS):
        dy.renew_cg(autobatching=False)
        loss = step_loss(step)
        trace.append(loss.value())
        loss.backward()
        trainer.update()
        if p.between:
            p.between(dy, trainer, step)
    dy.renew_cg(autobatching=False)
    trace.append(dy.random_uniform(1, 0, 1).value())
    return np.array(trace, dtype=np.float32)


def sentences(seed: int = 1) -> Iterator[Any]:
    """Endless (words, class) pairs."""
    rng = np.random.RandomState(seed)
    while True:
        words = rng.randint(0, WORDS, LENGTH + rng.randint(0, 3))
        yield [int(w) for w in words], int(words.sum() % CLASSES)


def vectors(seed: int, rows: int = SIZE, batch: int = 0) -> Iterator[np.ndarray]:
    """Endless random vectors {rows} or matrices {rows,batch}."""
    rng = np.random.RandomState(seed)
    while True:
        yield rng.randn(rows, batch) if batch else rng.randn(rows)


def layer(dy: Any, pc: Any) -> Callable[[Any], Any]:
    """{SIZE}xB -> {CLASSES}xB, one hidden layer."""
    V, c = pc.add_parameters((HIDDEN, SIZE)), pc.add_parameters(HIDDEN, init=0)
    W, b = pc.add_parameters((CLASSES, HIDDEN)), pc.add_parameters(CLASSES, init=0)
    return lambda x: dy.affine_transform([b, W, dy.tanh(dy.affine_transform([c, V, x]))])
