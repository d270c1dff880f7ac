"""Gradients of large nodes in graphs that leave the cache, which threads share wherever they lie. What the
memory held before, who else adds, and how often backward runs must not show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dynet_compat as dy
import numpy as np
import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="memory of this package")

N, COUNT = 48, 24  # 2,304 floats each
Model = dict[str, Any]
Make = Callable[[Model, list[Any]], Any]


def products(p: Model, rows: list[Any]) -> Any:
    """W m and m v add to m; either may be the last one that reads it."""
    made = [p["W"] * m + p["V"] * dy.tanh(m) for m in rows]
    return dy.esum([dy.sum_elems(dy.tanh(m * p["v"])) for m in made])


def own_weights(p: Model, rows: list[Any]) -> Any:
    """Each m is the weight of one product and the input of another one."""
    made = [dy.tanh(a * b) for a, b in zip(rows, rows[1:])]
    return dy.esum([dy.sum_elems(m * p["v"]) for m in made])


def parts(p: Model, rows: list[Any]) -> Any:
    """A later reader takes a part; others read all, or read what is the same memory in another shape."""
    found = []
    for i, m in enumerate(rows):
        y = p["W"] * m
        flat = dy.reshape(y, (N * N,))
        if i % 3 == 0:
            found.append(dy.sum_elems(dy.tanh(dy.pick_range(flat, 5, 5 + N))))
        if i % 3 == 1:
            found.append(dy.sum_elems(dy.tanh(p["V"] * dy.reshape(flat, (N, N)))))
        if i % 3 < 2 or i % 2:
            found.append(dy.sum_elems(y + m))
        if i % 4 == 0:
            found.append(dy.sum_elems(dy.cmult(y, y)))
    return dy.esum(found)


def sums(p: Model, rows: list[Any]) -> Any:
    """Sums of products, the same sum twice, and one product in many sums."""
    made = [p["W"] * m for m in rows]
    both = [a + b for a, b in zip(made[::2], made[1::2])]
    both += [a + a for a in made[:4]] + [made[0] + b for b in made[5:9]]
    return dy.esum([dy.sum_elems(dy.tanh(m)) for m in both])


def unread(p: Model, rows: list[Any]) -> Any:
    """Of a launch, only some nodes take part in the loss."""
    made = [dy.tanh(p["W"] * m) for m in rows]
    dy.esum([dy.sum_elems(p["V"] * m) for m in made]).forward()
    return dy.esum([dy.sum_elems(p["V"] * m) for m in made[::3]])


PROGRAMS = [products, own_weights, parts, sums, unread]


def model() -> Model:
    rng = np.random.default_rng(3)
    pc = dy.ParameterCollection()

    def values(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32) * 0.2

    p: Model = {name: pc.parameters_from_numpy(values(N, N)) for name in "WV"}
    p["v"] = pc.parameters_from_numpy(values(N))
    p["E"] = pc.lookup_parameters_from_numpy(values(COUNT, N, N))
    p["pc"] = pc
    return p


def gradients(p: Model) -> list[Any]:
    return [p[name].grad_as_array() for name in ("W", "V", "v")] + [p["E"].grad_as_array()]


def run(make: Make, p: Model, rows: list[int], full: bool = False, times: int = 1) -> list[Any]:
    """What backward adds to parameters and gives to the rows, after `times` passes."""
    dy.renew_cg()
    dy.SimpleSGDTrainer(p["pc"], 0.0).update()  # forgets gradients
    xs = [p["E"][row] for row in rows]
    loss = make(p, xs)
    for _ in range(times):
        loss.forward()
        loss.backward(full)
    return [loss.value(), *gradients(p), *(x.gradient() for x in xs)]


def are_same(a: list[Any], b: list[Any]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b))


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_what_the_memory_held_does_not_show(make: Make) -> None:
    p, rows = model(), [*range(COUNT), 3, 3, 5]
    first = run(make, p, rows)
    for other in PROGRAMS:  # leaves other gradients there
        run(other, p, rows[::-1])
        assert are_same(run(make, p, rows), first)


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_full_gradients_and_second_passes(make: Make) -> None:
    """A full pass zeroes everything first, and is the same. Passes add up."""
    p, rows = model(), [*range(COUNT), 3, 3, 5]
    first = run(make, p, rows)
    full = run(make, p, rows, full=True)
    for a, b in zip(first, full):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    twice = run(make, p, rows, times=2)
    assert all(np.array_equal(a, b) for a, b in zip(twice[5:], first[5:])), "a node's are of the last pass"
    for a, b in zip(first[1:5], twice[1:5]):
        np.testing.assert_allclose(2 * np.asarray(a), b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_threads_share_gradients(make: Make) -> None:
    p, rows = model(), list(range(COUNT))
    before, found = dy._core.threads(), []
    try:
        for threads in (1, 2, 3):
            dy._core.set_threads(threads)
            found.append(run(make, p, rows))
    finally:
        dy._core.set_threads(before)
    assert are_same(found[0], found[1]) and are_same(found[0], found[2])


@pytest.mark.parametrize("make", [products, sums], ids=lambda make: make.__name__)
def test_central_differences(make: Make) -> None:
    p, rows = model(), list(range(COUNT))
    found = run(make, p, rows)
    d = np.random.default_rng(5).normal(size=(N, N)).astype(np.float32)
    values, step = p["W"].as_array().copy(), 1e-2
    losses = []
    for sign in (1, -1):
        p["W"].set_value(values + sign * step * d)
        losses.append(run(make, p, rows)[0])
    expected = (losses[0] - losses[1]) / (2 * step)
    assert np.sum(found[1] * d) == pytest.approx(expected, rel=0.02, abs=0.02)
