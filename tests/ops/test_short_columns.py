"""Losses of few rows are computed for many columns at once, each in a lane of a vector. A column has the bits
that it has alone, in nodes of its own and as an item of a batch."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest
from support.subject import IS_REFERENCE, ON_DEVICE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="about how this package computes")

COLUMNS = 77  # some vectors, with a rest

Loss = Callable[[Any, Any, int], Any]
LOSSES: dict[str, tuple[Loss, Callable[[Any, Any, list[int]], Any]]] = {
    "pickneglogsoftmax": (
        lambda dy, x, v: dy.pickneglogsoftmax(x, v),
        lambda dy, x, vs: dy.pickneglogsoftmax_batch(x, vs),
    ),
    "log_softmax": (
        lambda dy, x, v: -dy.pick(dy.log_softmax(x), v),
        lambda dy, x, vs: -dy.pick_batch(dy.log_softmax(x), vs),
    ),
    "softmax": (
        lambda dy, x, v: -dy.log(dy.pick(dy.softmax(x), v)),
        lambda dy, x, vs: -dy.log(dy.pick_batch(dy.softmax(x), vs)),
    ),
    "hinge": (lambda dy, x, v: dy.hinge(x, v), lambda dy, x, vs: dy.hinge_batch(x, vs)),
}


def data(rows: int, scale: float = 3) -> tuple[np.ndarray, list[int]]:
    r = np.random.RandomState(rows)
    return (r.randn(COLUMNS, rows) * scale).astype("f4"), r.randint(0, rows, COLUMNS).tolist()


def each(dy: Any, name: str, scores: np.ndarray, ids: list[int], alone: bool) -> list[tuple]:
    table = dy.ParameterCollection().lookup_parameters_from_numpy(scores)
    results = []
    for columns in [[i] for i in range(COLUMNS)] if alone else [list(range(COLUMNS))]:
        dy.renew_cg()
        xs = [table[i] for i in columns]
        losses = [LOSSES[name][0](dy, x, ids[i]) for i, x in zip(columns, xs)]
        dy.esum([loss * (0.5 + i) for i, loss in zip(columns, losses)]).backward()
        results += [(loss.npvalue(), x.gradient()) for loss, x in zip(losses, xs)]
    return results


@pytest.mark.parametrize("rows", [1, 2, 5, 8, 15, 16, 17, 40])
@pytest.mark.parametrize("name", LOSSES)
def test_bits_are_those_of_a_column_alone(dy: Any, name: str, rows: int) -> None:
    scores, ids = data(rows)
    alone, together = (each(dy, name, scores, ids, a) for a in (True, False))
    for (loss, dx), (expected, expected_dx) in zip(together, alone):
        np.testing.assert_array_equal(loss, expected)
        np.testing.assert_array_equal(dx, expected_dx)
    table = dy.ParameterCollection().lookup_parameters_from_numpy(scores)
    dy.renew_cg()
    x = dy.lookup_batch(table, range(COLUMNS))
    loss = LOSSES[name][1](dy, x, ids)
    factors = dy.inputTensor(0.5 + np.arange(COLUMNS)[None], batched=True)
    dy.sum_batches(dy.cmult(loss, factors)).backward()
    np.testing.assert_array_equal(loss.npvalue().ravel(), np.ravel([value for value, _ in alone]))
    np.testing.assert_array_equal(x.gradient().T, [dx for _, dx in alone])


@pytest.mark.parametrize("rows", [2, 5, 16])
def test_digits(dy: Any, rows: int) -> None:
    """CUDA's exponential is within 2 units of the last digit and its logarithm within 1: twice the CPU's. Its
    argument, a distance of up to 2**7 to the greatest score, is rounded on a device."""
    least, rounded = (2.0**-23, 2.0**-18) if ON_DEVICE else (2.0**-24, 0)
    for scale in (1, 30):
        scores, ids = data(rows, scale)
        x = scores.astype("f8")
        shifted = x - x.max(1, keepdims=True)
        p = np.exp(shifted) / np.exp(shifted).sum(1, keepdims=True)
        at = np.arange(COLUMNS)
        others = np.exp(x - x[at, ids][:, None])
        others[at, ids] = 0
        got = each(dy, "pickneglogsoftmax", scores, ids, False)
        np.testing.assert_allclose(
            np.ravel([value for value, _ in got]), np.log1p(others.sum(1)), rtol=6 * least, atol=1e-37
        )
        p[at, ids] = -others.sum(1) / (1 + others.sum(1))
        gradient = p * (0.5 + at)[:, None]
        np.testing.assert_allclose([dx for _, dx in got], gradient, rtol=8 * least + rounded, atol=1e-35)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", LOSSES)
def test_infinite_scores(dy: Any, name: str, value: float) -> None:
    scores, ids = data(5)
    scores[3, ids[3]] = scores[9, (ids[9] + 1) % 5] = value
    scores[20] = value
    alone, together = (each(dy, name, scores, ids, a) for a in (True, False))
    for (loss, dx), (expected, expected_dx) in zip(together, alone):
        np.testing.assert_array_equal(loss, expected)
        np.testing.assert_array_equal(dx, expected_dx)
    infinite = {
        "pickneglogsoftmax": {np.inf: 0.0, -np.inf: np.inf},
        "log_softmax": {np.inf: -0.0, -np.inf: np.inf},
    }
    if name in infinite and value in infinite[name]:
        assert together[3][0] == infinite[name][value]
    if value == -np.inf:
        np.testing.assert_allclose(
            together[9][0],
            each(dy, name, np.where(np.isinf(scores), np.float32(-1e30), scores), ids, False)[9][0],
            rtol=1e-6,
        )
