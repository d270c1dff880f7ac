"""Launches over nodes of equal shapes that differ in which of their arguments take gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="its batching is not ours")
SIZE, LENGTHS = 5, (1, 4, 2, 7, 3)


class Recurrence:
    """States begin as zeros, as an input, or as a parameter."""

    def __init__(self, dy: Any) -> None:
        self.dy, self.pc = dy, dy.ParameterCollection()
        names = ("W", "U")
        self.matrices = {name: self.pc.add_parameters((SIZE, SIZE)) for name in names}
        self.b, self.first = self.pc.add_parameters(SIZE), self.pc.add_parameters(SIZE)
        self.words = self.pc.add_lookup_parameters((9, SIZE))

    def start(self, which: int) -> Any:
        dy = self.dy
        first = self.first
        return (dy.zeros(SIZE), dy.inputVector([0.5] * SIZE), first.expr(), first.expr(False))[which % 4]

    def loss(self, which: int) -> Any:
        dy, h = self.dy, self.start(which)
        c = self.start(which + 1)
        for t in range(LENGTHS[which % len(LENGTHS)]):
            x = self.words[(3 * which + t) % 9]
            gate = dy.logistic(dy.affine_transform([self.b, self.matrices["W"], x, self.matrices["U"], h]))
            c = dy.cmult(gate, c) + dy.cmult(1 - gate, dy.tanh(x))
            h = dy.cmult(dy.tanh(c), gate) + dy.concatenate([dy.pick(h, i) for i in range(SIZE)])
        return dy.squared_norm(h) + dy.sum_elems(c)


def run(dy: Any, model: Recurrence, batching: bool) -> tuple[list[np.ndarray], list[np.ndarray]]:
    dy.renew_cg(autobatching=batching)
    losses = [model.loss(which) for which in range(12)]
    total = dy.esum(losses)
    total.value()
    total.backward()
    parameters = [*model.matrices.values(), model.b, model.first, model.words]
    return [loss.npvalue().copy() for loss in losses], [p.grad_as_array().copy() for p in parameters]


def test_first_steps(dy: Any) -> None:
    model = Recurrence(dy)
    values, grads = run(dy, model, batching=True)
    dy.SimpleSGDTrainer(model.pc, 0.0).update()
    alone_values, alone_grads = run(dy, model, batching=False)
    for got, want in zip(values, alone_values):
        assert np.array_equal(got, want)
    for got, want in zip(grads, alone_grads):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("batching", [True, False], ids=["batched", "alone"])
def test_full_gradients_of_inputs(dy: Any, batching: bool) -> None:
    model = Recurrence(dy)
    dy.renew_cg(autobatching=batching)
    start = model.start(1)
    states = (start, model.first.expr(), start)
    dy.esum([dy.squared_norm(dy.cmult(h, dy.tanh(h))) for h in states]).backward(full=True)
    h = np.full(SIZE, 0.5)
    want = 4 * h * np.tanh(h) * (np.tanh(h) + h * (1 - np.tanh(h) ** 2))
    np.testing.assert_allclose(start.gradient(), want, rtol=1e-5)
