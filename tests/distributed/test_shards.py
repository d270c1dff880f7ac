"""How items are divided, and what the API does in a process that was started alone."""

from __future__ import annotations

import dynet_compat as dy
import numpy as np
import pytest
from dynet_compat.distributed.buckets import Float16Feedback
from dynet_compat.distributed.shards import cut, positions, put_back
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sizes = st.integers(1, 9)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.integers(0, 50), max_size=40), sizes, st.booleans())
def test_parts_are_the_whole_and_come_back_in_order(items: list[int], size: int, by_cost: bool) -> None:
    cuts = [cut(items, rank, size, float if by_cost else None) for rank in range(size)]
    parts = [part for part, _ in cuts]
    assert all(counts == list(map(len, parts)) for _, counts in cuts)
    _, counts = cut(np.array(items), 0, size)
    assert by_cost or counts == list(map(len, parts))
    assert put_back(parts, [part.positions for part in parts]) == items
    assert sorted(i for part in parts for i in part.positions) == list(range(len(items)))
    if not by_cost:
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=60), sizes)
def test_costs_are_balanced(costs: list[float], size: int) -> None:
    """Graham's bound: at most 4/3 of the best there is, which is at least the mean and the largest item."""
    loads = [sum(costs[i] for i in part) for part in positions(len(costs), size, costs)]
    assert max(loads) <= 4 / 3 * max(sum(costs) / size, max(costs), least_of_two(costs, size)) + 1e-9


def least_of_two(costs: list[float], size: int) -> float:
    """With more items than ranks, one rank has two of the size + 1 largest."""
    largest = sorted(costs, reverse=True)
    return largest[size - 1] + largest[size] if len(costs) > size else 0.0


def test_alone_everything_is_the_identity() -> None:
    d = dy.distributed
    items = [3, 1, 2]
    assert d.shard(items) is items and d.shard(items, by=float) is items
    assert (d.rank, d.size, d.is_main) == (0, 1, True)
    assert d.sum(2.5) == d.sum(dy.scalarInput(2.5)) == 2.5
    assert d.gather((1, 2), of=(3, 4)) == [1, 2] and d.broadcast("x") == "x"
    with d.main_only():
        pass
    d.start()
    with pytest.raises(ValueError, match="gradients='max'"):
        d.start(gradients="max")
    for other in ({"compress": "float16"}, {"on_failure": "shrink"}):
        with pytest.raises(ValueError, match="--nccl: it can neither go on without a rank nor send float16"):
            d.start(nccl=True, **other)
    with pytest.raises(ValueError, match="2 items for a shard of 3"):
        d.gather([1, 2], of=items)


def test_float16_feedback_loses_nothing_in_the_long_run() -> None:
    rng, feedback = np.random.default_rng(1), Float16Feedback()
    every = [np.float32(rng.normal(0, 1, 100) * 10.0 ** rng.integers(-9, 1, 100)) for _ in range(500)]
    sent = [feedback(values, "sent") for values in every]
    assert all((s == s.astype(np.float16)).all() for s in sent)
    total, got = np.sum(every, axis=0, dtype=np.float64), np.sum(sent, axis=0, dtype=np.float64)
    rounded = np.sum([v.astype(np.float16) for v in every], axis=0, dtype=np.float64)
    assert np.abs(got - total).max() < 1e-2 < np.abs(rounded - total).max() + 1e-2
    assert np.abs(got - total).sum() < 0.2 * np.abs(rounded - total).sum()
    assert np.isnan(feedback(np.float32([np.nan]), "other")).all()
