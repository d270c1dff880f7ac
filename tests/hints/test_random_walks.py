"""Random recursive and looping programs with and without hints: the same nodes in order, and values."""

from __future__ import annotations

import itertools
import random
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import dynet_compat as dy
import numpy as np
import pytest
from support import looping_programs, recursive_programs
from support.modules import flat, identities, recorded_nodes, recorded_ops
from support.region_models import two_models

_numbers = itertools.count()


def lines_of(error: BaseException) -> list:
    """Functions and lines of its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    return [(f.name, f.lineno) for f in frames if Path(f.filename).stem.startswith("program")]


def argument(module: ModuleType, rng: random.Random, strange: float) -> Any:
    if hasattr(module, "Tree"):
        return recursive_programs.tree(module, rng, 4, strange)
    return looping_programs.words(rng, strange)


def change(of: Any, rng: random.Random) -> None:
    """Something in an argument that comes again is another one from now on."""
    if isinstance(of, list):
        at = rng.randrange(len(of) + 1)
        of[at : at + rng.randrange(2)] = [rng.choice([3, 4, 1000, True])]
    if not hasattr(of, "kids"):
        return
    while of.kids and rng.random() < 0.6:
        of = rng.choice(of.kids)
    name, values = rng.choice(
        [("word", [1, 7, 300]), ("label", [0, 4]), ("kids", [of.kids[::-1], of.kids[:1]])]
    )
    setattr(of, name, rng.choice(values))


def arguments(module: ModuleType, rng: random.Random, strange: float, known: list) -> Iterator[Any]:
    """Of a graph: new ones, and those of earlier graphs, sometimes changed."""
    for _ in range(4):
        if known and rng.random() < 0.8:
            of = rng.choice(known)
            if rng.random() < 0.1:
                change(of, rng)
        else:
            of = argument(module, rng, strange)
            if len(known) < 5:
                known.append(of)
        yield of


def opened(result: Any) -> Any:
    """The result with the names and values that its objects hold in their place."""
    if isinstance(result, (list, tuple)):
        return [opened(r) for r in result]
    if isinstance(result, dy.RNNState):
        return [list(result.s()), result.output(), opened(result.prev())]
    names = getattr(result, "__slots__", None) or getattr(result, "__dict__", None)
    if names is None or isinstance(result, dy.Expression):
        return result
    return [type(result).__name__, *((name, opened(getattr(result, name, 0))) for name in names)]


def outcome(module: ModuleType, model: Any, seed: int, strange: float, known: list) -> tuple:
    rng = random.Random(seed)
    dy.renew_cg()
    dy.reset_random_seed(seed + 1)
    random.seed(seed)
    np.random.seed(seed)
    results, errors = [], []
    for of in arguments(module, rng, strange, known):
        try:
            results.append(model.loss(of))
        except Exception as e:  # noqa: BLE001 - must be the same on both sides
            errors.append((f"{type(e).__name__}: {e}", lines_of(e)))
    results.append(list(model.scores))
    model.scores.clear()
    notes = list(getattr(module, "NOTES", ()))
    notes += [
        random.getstate(),
        np.random.get_state()[2],
        np.random.get_state()[1].tolist(),
        getattr(module, "RNG", random).getstate(),
    ]
    results = opened(results)
    numbers = [repr(r) for r in flat(results) if not isinstance(r, dy.Expression)]
    nodes = recorded_nodes(), recorded_ops()
    expressions = [r for r in flat(results) if isinstance(r, dy.Expression)]
    values, gradients = [], []
    try:
        values = [e.npvalue().tobytes() for e in expressions]
        dy.esum([dy.squared_norm(e) for e in expressions]).backward(full=True)
        gradients = [p.grad_as_array() for p in (model.W, model.E, model.b)]
    except Exception as e:  # noqa: BLE001
        errors.append(f"{type(e).__name__}: {e}")
    return (nodes, errors, values, notes, numbers, identities(results)), gradients


def check(folder: Path, seed: int, programs: ModuleType, graphs: int = 16) -> tuple[int, int]:
    """One program, some graphs; how many calls were recorded as wholes, and how many of them from memory."""
    source = programs.Generator(seed).module()
    path = folder / f"program{next(_numbers)}.py"
    with two_models(path, source, f"program {seed}") as (modules, models, rewriter):
        changes = random.Random(seed)
        known: list[list] = [[], []]
        for graph in range(graphs):
            if graph > graphs // 2 and hasattr(modules[0], "NOTES") and changes.random() < 0.3:
                text = changes.choice(looping_programs.CHANGES)
                for module, model in zip(modules, models):
                    dy.reset_random_seed(2)
                    exec(text, {"module": module, "model": model, "dy": dy})
            strange = 0.05 if graph >= graphs - 3 and seed % 2 else 0.0
            left, right = (
                outcome(*m, seed * 10 + graph, strange, k) for *m, k in zip(modules, models, known)
            )
            what = f"program {seed}, graph {graph}:\n{source}"
            assert left[0] == right[0], what
            for a, b in zip(left[1], right[1]):  # summed in an order that the graphs before decide
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=what)
    statistics = [r.statistics() for r in rewriter.walked_functions.values()]
    return sum(s["hits"] for s in statistics), sum(s["remembered"] for s in statistics)


PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_random_recursions(tmp_path: Path, fuzz_count: int, part: int) -> None:
    seeds = range(part, fuzz_count or 120, PARTS)
    hits = [check(tmp_path, seed, recursive_programs) for seed in seeds]
    assert sum(h > 0 for h, _ in hits) > len(seeds) / 4  # the test is about something
    assert sum(r > 0 for _, r in hits) > len(seeds) / 8, hits


@pytest.mark.parametrize("part", range(PARTS))
def test_random_loops(tmp_path: Path, fuzz_count: int, part: int) -> None:
    seeds = range(part, fuzz_count or 120, PARTS)
    hits = [check(tmp_path, seed, looping_programs, 24) for seed in seeds]
    assert sum(h > 0 for h, _ in hits) > len(seeds) / 4
    assert sum(r > 0 for _, r in hits) > len(seeds) / 8, hits
