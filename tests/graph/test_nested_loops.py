"""Loops in loops: few launches although instances meet nowhere, the same values and gradients.

An outer recurrence whose every step runs an inner one, from the outer state and back into it, over data of
ragged length.
"""

from __future__ import annotations

import random
from typing import Any, Callable

import numpy as np
import pytest
from support.subject import IS_REFERENCE, subject

if IS_REFERENCE:
    pytest.skip("launches are ours to count", allow_module_level=True)
dy = subject()

HIDDEN = 6
Cell = Callable[[Any, Any], Any]


def gru(pc: Any) -> Cell:
    z, r, u = ([pc.add_parameters(d) for d in (HIDDEN, (HIDDEN, HIDDEN), (HIDDEN, HIDDEN))] for _ in "zru")

    def gate(weights: list, x: Any, h: Any) -> Any:
        return dy.affine_transform([weights[0], weights[1], x, weights[2], h])

    def step(x: Any, h: Any) -> Any:
        keep, reset = dy.logistic(gate(z, x, h)), dy.logistic(gate(r, x, h))
        new = dy.tanh(gate(u, x, dy.cmult(reset, h)))
        return dy.cmult(1 - keep, new) + dy.cmult(keep, h)

    return step


def simple(pc: Any) -> Cell:
    W, U = pc.add_parameters((HIDDEN, HIDDEN)), pc.add_parameters((HIDDEN, HIDDEN))
    return lambda x, h: dy.tanh(W * x + U * h)


def built(pc: Any) -> Cell:
    builder = dy.GRUBuilder(1, HIDDEN, HIDDEN, pc)
    return lambda x, h: builder.initial_state([h]).add_input(x).output()


class Model:
    """`depth` loops, each inside the one before."""

    def __init__(self, cell: Callable[[Any], Cell], depth: int = 2) -> None:
        self.pc = pc = dy.ParameterCollection()
        self.embed = pc.add_lookup_parameters((9, HIDDEN))
        self.cells = [cell(pc) for _ in range(depth)]
        self.down = [pc.add_parameters((HIDDEN, HIDDEN)) for _ in range(depth)]
        self.first = pc.add_parameters(HIDDEN)
        self.out = pc.add_parameters((3, HIDDEN))

    def state(self, data: Any, level: int, state: Any, losses: list) -> Any:
        for item in data:
            x = self.embed[item] if isinstance(item, int) else None
            if x is None:
                x = self.state(item, level + 1, dy.tanh(self.down[level] * state), losses)
            state = self.cells[level](x, state)
            if level == 0:
                losses.append(dy.pickneglogsoftmax(self.out * state, len(losses) % 3))
        return state

    def loss(self, data: Any) -> Any:
        losses: list = []
        self.state(data, 0, self.first, losses)
        return dy.esum(losses)


def nested(rng: random.Random, lengths: range, depth: int = 2) -> Any:
    n = rng.choice(lengths)
    return [nested(rng, lengths, depth - 1) if depth > 1 else rng.randrange(9) for _ in range(n)]


CELLS = {"primitive": gru, "simple": simple, "builder": built}


@pytest.mark.parametrize("lengths", [range(2, 9), range(1, 13), range(3, 8)], ids=str)
@pytest.mark.parametrize("cell", ["primitive", "builder"])
def test_few_launches(cell: str, lengths: range) -> None:
    """At most 1.3 times the sum over signatures of their longest chains, from the first graph on."""
    model = Model(CELLS[cell])
    launches = bound = 0
    for seed in range(4):
        rng = random.Random(seed)
        data = [nested(rng, lengths) for _ in range(64)]
        counts = []
        for _ in range(2):
            dy.renew_cg()
            loss = dy.esum([model.loss(instance) for instance in data])
            counts.append(dy._core.launch_counts(loss))
            loss.value()
        assert counts[0] == counts[1], "the first graph of its kind and the next differ"
        launches += counts[0]["bucket"]
        bound += counts[0]["lower_bound"]
    assert launches <= 1.3 * bound, launches / bound


def test_counting_changes_nothing() -> None:
    """What is counted beforehand is what runs then."""
    model, rng = Model(gru), random.Random(5)
    data = [nested(rng, range(2, 9)) for _ in range(32)]
    for _ in range(40):  # past the demands for which the first choice is kept
        dy.renew_cg()
        loss = dy.esum([model.loss(instance) for instance in data])
        counted = dy._core.launch_counts(loss)["bucket"]
        assert dy._core.launch_counts(loss)["bucket"] == counted
        loss.value()
        rows = [row for row in dy._core.plan_table() if row["op"] != "parameter"]
        assert len(rows) == counted


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("cell", list(CELLS))
def test_same_results(cell: str, depth: int) -> None:
    model = Model(CELLS[cell], depth)
    rng = random.Random(depth)
    data = [nested(rng, range(0, 5) if depth == 3 else range(0, 9), depth) or [[1]] for _ in range(24)]
    data = [[item or [0] for item in instance] if depth == 2 else instance for instance in data]

    def run(batching: bool) -> tuple:
        dy._core.set_batching(batching)
        try:
            dy.renew_cg()
            for p in model.pc.parameters_list():
                p.scale_gradient(0)
            losses = [model.loss(d) for d in data if any(d)]
            value = dy.esum(losses)
            value.forward()
            each = [x.value() for x in losses]
            value.backward()
            return each, [p.grad_as_array().copy() for p in model.pc.parameters_list()]
        finally:
            dy._core.set_batching(True)

    for _ in range(3):
        (values, gradients), (expected, expected_gradients) = run(True), run(False)
        np.testing.assert_allclose(values, expected, rtol=1e-4)
        for ours, other in zip(gradients, expected_gradients):
            np.testing.assert_allclose(ours, other, rtol=1e-3, atol=1e-5)


def test_one_loop_is_left_alone() -> None:
    """The same number of launches as the bound for a plain recurrence, and for two that differ in length."""
    model, rng = Model(gru), random.Random(1)
    dy.renew_cg()
    words = [[rng.randrange(9) for _ in range(rng.randrange(3, 12))] for _ in range(40)]
    losses = []
    for sentence in words:
        state = model.first
        for word in sentence:
            state = model.cells[1](model.embed[word], state)
        other = model.first
        for word in sentence[::2]:
            other = model.cells[0](model.embed[word], other)
        losses.append(dy.pickneglogsoftmax(model.out * (state + other), 1))
    counts = dy._core.launch_counts(dy.esum(losses))
    assert counts["bucket"] <= 1.05 * counts["lower_bound"]
