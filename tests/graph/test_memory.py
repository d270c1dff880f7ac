# ruff: noqa: UP031
"""Resident memory stays flat over many graphs. DYNET_COMPAT_FUZZ raises their number (2,000 by default)."""

from __future__ import annotations

import gc
import random
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
from support.programs import PATTERNS, Program, model_of, run, train


def resident() -> int:
    """Resident memory of this process in KiB."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmRSS"):
                return int(line.split()[1])
    raise RuntimeError("no VmRSS in /proc/self/status")


def flat(work: Callable[[int], None], rounds: int, allowed: int) -> None:
    """Run work(0..rounds-1) after a warm-up; the second half may not grow by more than `allowed` KiB."""
    for n in range(rounds // 4):
        work(n)
    gc.collect()
    before = resident()
    for n in range(rounds):
        work(n)
    gc.collect()
    grown = resident() - before
    assert grown <= allowed, "%d graphs: resident memory grew by %d KiB (from %d)" % (rounds, grown, before)


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc"),
]


@pytest.mark.parametrize("autobatching", [False, True])
def test_training_loop(dy: Any, fuzz_count: int, autobatching: bool) -> None:
    """The same small network in one graph after the other, with updates."""
    pc = dy.ParameterCollection()
    w, b = pc.add_parameters((20, 20)), pc.add_parameters(20)
    table = pc.add_lookup_parameters((50, 20))
    builder = dy.LSTMBuilder(1, 20, 20, pc)
    trainer = dy.AdamTrainer(pc)

    def work(n: int) -> None:
        dy.renew_cg(autobatching=autobatching)
        outs = builder.initial_state().transduce([table[(n + i) % 50] for i in range(6)])
        losses = [dy.pickneglogsoftmax(w * out + b, i) for i, out in enumerate(outs)]
        loss = dy.esum(losses)
        loss.value()
        loss.backward()
        trainer.update()

    flat(work, max(2000, fuzz_count), 2048)


def test_random_graphs(dy: Any, fuzz_count: int) -> None:
    """Graphs of ever new shapes: caches of plans and shapes are bounded too."""
    programs = [Program(seed, 20 + seed % 60, PATTERNS[seed % len(PATTERNS)]) for seed in range(60)]
    models = [model_of(dy, program) for program in programs]

    def work(n: int) -> None:
        train(dy, programs[n % len(programs)], models[n % len(programs)][1])

    flat(work, max(2000, fuzz_count), 4096)


def test_new_models(dy: Any, fuzz_count: int) -> None:
    """A new model for every graph: what is kept for a parameter goes when the parameter goes."""
    programs = [Program(seed, 20 + seed % 60, PATTERNS[seed % len(PATTERNS)]) for seed in range(20)]

    def work(n: int) -> None:
        run(dy, programs[n % len(programs)], True, every_value=False)

    flat(work, max(600, fuzz_count // 8), 4096)


def test_errors_do_not_leak(dy: Any) -> None:
    """Bad calls and graphs that are dropped half-way."""

    def work(n: int) -> None:
        dy.renew_cg()
        x = dy.inputTensor(np.ones((30, 30)))
        y = dy.inputVector([1.0] * 7)
        for call in (
            lambda: x * y,
            lambda: dy.esum([x, y]),
            lambda: dy.pick(y, 9).value(),
            lambda: dy.tanh(None or "x"),
        ):
            with pytest.raises((ValueError, TypeError)):
                call()

    flat(work, 1200, 2048)


def test_objects_are_freed(dy: Any) -> None:
    """Collections, builders, trainers and expressions come and go."""

    def work(n: int) -> None:
        dy.renew_cg()
        pc = dy.ParameterCollection()
        builder = dy.LSTMBuilder(1, 16, 16, pc)
        trainer = dy.AdamTrainer(pc)
        out = builder.initial_state().transduce([dy.inputVector([0.1] * 16)])[-1]
        dy.squared_norm(out).backward()
        trainer.update()

    flat(work, 600, 4096)


def test_one_large_graph_is_given_back_or_reused(dy: Any) -> None:
    """A graph of many nodes, again and again, needs no more memory than the first time."""

    def work(n: int) -> None:
        dy.renew_cg()
        x = dy.inputVector([0.5] * 64)
        for _ in range(3000):
            x = dy.tanh(x + 0.125)
        dy.squared_norm(x).backward(full=True)

    flat(work, 24, 4096)


def test_other_values_of_parameters_in_each_graph(dy: Any) -> None:
    """Trees that a script grows from parameters alone: equal values are computed once, and looked for, but
    only within the graph."""
    model = dy.ParameterCollection()
    W, children = model.add_parameters((4, 4)), [model.add_parameters(4) for _ in range(10)]
    draw = random.Random(1)

    def work(n: int) -> None:
        dy.renew_cg()
        last = []
        for _ in range(16):
            h = children[0]
            for _ in range(60):
                h = dy.tanh(dy.affine_transform([draw.choice(children), W, h]))
            last.append(h)
        dy.sum_elems(dy.esum(last)).value()

    flat(work, 1600, 4096)
