"""Random recursive and looping programs with and without hints: the same nodes in order, and values."""

from __future__ import annotations

import itertools
import random
import traceback
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


def outcome(module: ModuleType, model: Any, seed: int, strange: float) -> tuple:
    rng = random.Random(seed)
    dy.renew_cg()
    dy.reset_random_seed(seed + 1)
    results, errors = [], []
    for _ in range(4):
        of = argument(module, rng, strange)
        try:
            results.append(model.loss(of))
        except Exception as e:  # noqa: BLE001 - must be the same on both sides
            errors.append((f"{type(e).__name__}: {e}", lines_of(e)))
    results.append(list(model.scores))
    model.scores.clear()
    notes = list(getattr(module, "NOTES", ()))
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


def check(folder: Path, seed: int, programs: ModuleType, graphs: int = 8) -> int:
    """One program, some graphs; how many calls were recorded as wholes."""
    source = programs.Generator(seed).module()
    path = folder / f"program{next(_numbers)}.py"
    with two_models(path, source, f"program {seed}") as (modules, models, rewriter):
        changes = random.Random(seed)
        for graph in range(graphs):
            if graph > graphs // 2 and hasattr(modules[0], "NOTES") and changes.random() < 0.3:
                change = changes.choice(looping_programs.CHANGES)
                for module, model in zip(modules, models):
                    dy.reset_random_seed(2)
                    exec(change, {"module": module, "model": model, "dy": dy})
            strange = 0.05 if graph >= graphs - 3 and seed % 2 else 0.0
            left, right = (outcome(*m, seed * 10 + graph, strange) for m in zip(modules, models))
            what = f"program {seed}, graph {graph}:\n{source}"
            assert left[0] == right[0], what
            for a, b in zip(left[1], right[1]):  # summed in an order that the graphs before decide
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=what)
    return sum(r.statistics()["hits"] for r in rewriter.walked_functions.values())


PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_random_recursions(tmp_path: Path, fuzz_count: int, part: int) -> None:
    seeds = range(part, fuzz_count or 120, PARTS)
    hits = [check(tmp_path, seed, recursive_programs) for seed in seeds]
    assert sum(h > 0 for h in hits) > len(seeds) / 4  # the test is about something


@pytest.mark.parametrize("part", range(PARTS))
def test_random_loops(tmp_path: Path, fuzz_count: int, part: int) -> None:
    seeds = range(part, fuzz_count or 120, PARTS)
    hits = [check(tmp_path, seed, looping_programs, 24) for seed in seeds]
    assert sum(h > 0 for h in hits) > len(seeds) / 4
