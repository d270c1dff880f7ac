"""Programs that keep making sites, as every factor of `x * 0.3` has one of its own."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from support.subject import IS_REFERENCE

GRAPHS, STEPS = 100, 8  # more graphs than a program may have before it counts as one of these


def test_values_gradients_and_launches_stay(dy: Any) -> None:
    """Every step reads a value before the next one is recorded, with a factor that no step had before."""
    draw = random.Random(3)
    model = dy.ParameterCollection()
    W = model.add_parameters((3, 2), init=0.5)
    launches = []
    for _ in range(GRAPHS):
        dy.renew_cg()
        W.scale_gradient(0)
        before = dy._core.timing()["launches"]
        terms, value, gradient = [], 0.0, np.zeros((3, 2))
        for _ in range(STEPS):
            x, factor = np.array([draw.uniform(-1, 1), 1.0]), draw.uniform(0.5, 2)
            h = dy.tanh(W * dy.inputVector(x))
            y = h.npvalue()
            expected = np.tanh(np.full((3, 2), 0.5) @ x)
            np.testing.assert_allclose(y, expected, rtol=1e-5)
            terms.append(dy.sum_elems(h * factor))
            value += factor * expected.sum()
            gradient += np.outer(factor * (1 - expected**2), x)
        loss = dy.esum(terms)
        assert loss.value() == pytest.approx(value, rel=1e-5)
        loss.backward()
        np.testing.assert_allclose(W.grad_as_array(), gradient, rtol=1e-4, atol=1e-5)
        launches.append(dy._core.timing()["launches"] - before)
    assert max(launches[-10:]) <= max(launches[:10])


@pytest.mark.skipif(IS_REFERENCE, reason="our launches")
@pytest.mark.parametrize("kind", ["x * r", "r * x", "x / r", "x + r", "x - r", "r - x", "r / x"])
def test_losses_with_numbers_of_their_own_share_launches(dy: Any, kind: str) -> None:
    """Weighed losses take as many launches, forward and backward, as if all numbers were one."""

    def run(numbers: list[float]) -> tuple[int, list[float], np.ndarray]:
        dy.renew_cg(autobatching=True)
        model = dy.ParameterCollection()
        W = model.add_parameters((3, 2), init=0.5)
        before = dy._core.timing()["launches"]
        inputs = [dy.inputVector([1 + i / 10, 1]) for i in range(len(numbers))]
        losses = [eval(kind, {"x": dy.sum_elems(dy.tanh(W * x)), "r": r}) for x, r in zip(inputs, numbers)]
        total = dy.esum(losses)
        total.forward()
        total.backward()
        launches = dy._core.timing()["launches"] - before
        return launches, [loss.value() for loss in losses], W.grad_as_array()

    numbers = [0.0, -1.5, 2.0, 2.0, 0.3] if "/ r" not in kind else [1.0, -1.5, 2.0, 2.0, 0.3]
    launches, values, gradient = run(numbers)
    assert launches == run([1.5] * 5)[0]
    expected, wanted = np.zeros((3, 2)), []
    for i, r in enumerate(numbers):
        x = np.array([1 + i / 10, 1])
        h = np.tanh(np.full((3, 2), 0.5) @ x)
        wanted.append(eval(kind, {"x": h.sum(), "r": r}))
        slope = (eval(kind, {"x": h.sum() + 1e-6, "r": r}) - eval(kind, {"x": h.sum() - 1e-6, "r": r})) / 2e-6
        expected += slope * np.outer(1 - h**2, x)
    np.testing.assert_allclose(values, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(IS_REFERENCE, reason="our graph")
def test_numbers_of_a_regulariser_are_forgotten(dy: Any) -> None:
    """Equal values of parameters are computed once, and remembered for that; but not where a script's number
    is in them, which is new in each graph if it is annealed: what is remembered would grow without end."""
    W = dy.ParameterCollection().add_parameters((3, 2), init=0.5)

    def computed(form: str, times: int) -> int:
        dy.renew_cg()
        results = [eval(form, {"dy": dy, "x": dy.squared_norm(W)}) for _ in range(times)]
        before = dy._core.timing()["planned_nodes"]
        dy.forward(results)
        return int(dy._core.timing()["planned_nodes"] - before)

    forms = ("dy.exp(x)", "x * 0.5", "x / 3", "x + 0.5", "0.5 - x", "3 / x", "dy.tanh(x * 0.5)")
    more = {form: computed(form, 2) - computed(form, 1) for form in forms}
    assert more == {form: "exp" not in form and 1 + ("tanh" in form) for form in forms}


def test_weights_computed_from_parameters_stay_apart(dy: Any) -> None:
    """Chains over parameters, in another order in each graph, make so many values that their numbers begin
    again; sums of two matrices, which products of the same graph multiply by, must not be mixed up then."""
    draw = random.Random(5)
    model = dy.ParameterCollection()
    matrices = [model.add_parameters((3, 3), init=dy.NumpyInitializer(np.eye(3) * (i + 1))) for i in range(4)]
    vectors = [model.add_parameters(3, init=0.1 * i) for i in range(8)]
    for _ in range(30):
        dy.renew_cg()
        h = vectors[0]
        for _ in range(4000):
            h = dy.tanh(h + vectors[draw.randrange(8)])
        products, expected, wanted = [], [], np.zeros((4, 3, 3))
        for _ in range(12):
            i, j, x = draw.randrange(4), draw.randrange(4), np.array([draw.uniform(-1, 1) for _ in range(3)])
            products.append(dy.tanh((matrices[i] + matrices[j]) * dy.inputVector(x)))
            expected.append(np.tanh((i + j + 2) * x))
            for k in (i, j):
                wanted[k] += np.outer(1 - expected[-1] ** 2, x)
        for product, value in zip(products, expected):
            np.testing.assert_allclose(product.npvalue(), value, rtol=1e-5)
        for matrix in matrices:
            matrix.scale_gradient(0)
        (dy.sum_elems(dy.esum(products)) + dy.sum_elems(h)).backward()
        for matrix, gradient in zip(matrices, wanted):
            np.testing.assert_allclose(matrix.grad_as_array(), gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(IS_REFERENCE, reason="our launches")
def test_rates_that_are_annealed(dy: Any) -> None:
    """A rate of dropout that no graph had before: its nodes come after what they read, before what reads
    them, in as many launches as ever, also after many such graphs."""
    model = dy.ParameterCollection()
    lstm, V = dy.LSTMBuilder(1, 3, 4, model), model.add_parameters((2, 4))
    launches = []

    def values(rate: float, autobatching: bool) -> np.ndarray:
        dy.renew_cg(autobatching=autobatching)
        dy.reset_random_seed(7)
        losses = []
        for n in (2, 3, 5, 2):
            state = lstm.initial_state()
            for i in range(n):
                state = state.add_input(dy.inputVector([0.1 * i, 0.5, -0.3]))
            losses.append(dy.pickneglogsoftmax(V * dy.dropout(dy.tanh(state.output()), rate), 1))
        before = dy._core.timing()["launches"]
        dy.esum(losses).value()
        launches.append(dy._core.timing()["launches"] - before)
        return np.array([loss.value() for loss in losses])

    for graph in range(150):
        found = values(0.5 + graph / 1000, True)
    np.testing.assert_allclose(found, values(0.5 + 149 / 1000, False), rtol=1e-5)
    assert max(launches[100:150]) <= min(launches[2:10])
