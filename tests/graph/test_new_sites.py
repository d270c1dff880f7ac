"""Programs that keep making sites, as every factor of `x * 0.3` has one of its own."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

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
