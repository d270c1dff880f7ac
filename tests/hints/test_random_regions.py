"""Random programs with and without regions: the same nodes, draws, values and gradients."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dynet_compat as dy
import numpy as np
import pytest
from support import straight_programs
from support.modules import flat, identities, load, recorded_nodes, recorded_ops
from support.region_models import two_models

pytestmark = pytest.mark.trials

_numbers = itertools.count()


def outcome(model: Any, seed: int, autobatching: bool = True) -> tuple:
    dy.renew_cg(autobatching=autobatching)
    dy.reset_random_seed(seed + 1)
    error = None
    results: list = []
    whole: list = []
    try:
        whole = straight_programs.use(model, dy, seed)
        results = flat(whole)
    except Exception as e:  # noqa: BLE001 - must be the same on both sides
        error = f"{type(e).__name__}: {e}"
    expressions = [r for r in results if isinstance(r, dy.Expression)]
    nodes = recorded_nodes(), recorded_ops()
    values, gradients = [], []
    try:
        values = [e.npvalue() for e in expressions]
        if expressions:
            loss = dy.esum([dy.squared_norm(e) for e in expressions])
            loss.backward(full=True)
            gradients = [e.gradient() for e in expressions]
            gradients += [model.W.grad_as_array(), model.E.grad_as_array()]
    except Exception as e:  # noqa: BLE001
        error = f"{error} {type(e).__name__}: {e}"
    others = [r for r in results if not isinstance(r, dy.Expression)]
    others = [r if isinstance(r, (int, float, type(None))) else type(r) for r in others]
    return nodes, error, values, gradients, (others, identities(whole))


def largest(values: Any) -> float:
    """Sums are rounded by the largest of what they are made of, which may cancel out."""
    finite = np.abs(np.asarray(values, dtype=float))
    return float(np.max(finite, initial=1.0, where=np.isfinite(finite)))


def numbers(result: tuple) -> list[np.ndarray]:
    """Values and gradients."""
    return [np.asarray(v, dtype=float) for v in [*result[2], *result[3]]]


def assert_close(left: tuple, right: tuple, alone: Callable[[], tuple], what: str) -> None:
    """Equal but for roundings: those that regions may change or, where the program makes more of them,
    twice what it makes itself. `alone()`: what it gives where nodes are computed one by one."""
    pairs = list(zip(numbers(left), numbers(right)))
    close = [np.allclose(a, b, rtol=1e-5, atol=1e-6 * largest(b), equal_nan=True) for a, b in pairs]
    if all(close):
        return
    for (a, b), c in zip(pairs, numbers(alone())):
        roundings = np.max(np.abs(a - c), initial=0.0, where=np.isfinite(a) & np.isfinite(c))
        atol = max(1e-6 * largest(b), 2 * roundings)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=atol, err_msg=what)


def one_by_one(path: Path, seed: int, graph: int) -> tuple:
    """A graph of the program as written, without batching, after those before it: models have a state."""
    module = load(path)
    dy.reset_random_seed(1)
    model = module.Model()
    return [outcome(model, seed * 10 + g, autobatching=False) for g in range(graph + 1)][-1]


def check(folder: Path, seed: int) -> int:
    """One program, some graphs; how many regions were recorded by one call."""
    source = straight_programs.module(seed)
    path = folder / f"program{next(_numbers)}.py"
    with two_models(path, source, f"program {seed}") as (_, models, rewriter):
        for graph in range(6):
            left, right = (outcome(model, seed * 10 + graph) for model in models)
            what = f"program {seed}, graph {graph}:\n{source}"
            assert left[0] == right[0], what
            assert left[1] == right[1] and left[4] == right[4], what
            assert len(left[2]) == len(right[2]) and len(left[3]) == len(right[3]), what
            assert_close(left, right, functools.partial(one_by_one, path, seed, graph), what)
    return sum(t.statistics()["hits"] for t in rewriter.regions.values())


PARTS = 12  # a long run would be longer than one test may take


@pytest.mark.parametrize("part", range(PARTS))
def test_random_programs(tmp_path: Path, fuzz_count: int, part: int) -> None:
    seeds = range(part, fuzz_count or 300, PARTS)
    hits = [check(tmp_path, seed) for seed in seeds]
    assert sum(h > 0 for h in hits) > len(seeds) / 4  # the test is about something


@pytest.mark.parametrize("seed", range(20))
def test_sampled_programs(tmp_path: Path, seed: int) -> None:
    check(tmp_path, 1_000_000 + seed)
