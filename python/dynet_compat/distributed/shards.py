"""How the items of a minibatch are divided among ranks, and put back in order."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, Callable, Optional

import numpy as np


class Shard(list):  # type: ignore[type-arg]
    """This rank's items; `positions` are their indices in what was sharded."""

    def __init__(self, items: Sequence[Any], positions: Sequence[int]) -> None:
        super().__init__(items)
        self.positions = positions


def positions(n: int, size: int, costs: Optional[Sequence[float]] = None) -> list[Sequence[int]]:
    """Indices of the items of each rank: every size-th, or, with costs, so that all ranks have about the
    same.

    Costs: the most expensive item first, to the rank that has the least so far (Graham, Bounds on
    multiprocessing timing anomalies, 1969); a rank keeps the order of its items.
    """
    if costs is None:
        return [range(rank, n, size) for rank in range(size)]
    loads = [(0.0, rank) for rank in range(size)]
    parts: list[list[int]] = [[] for _ in range(size)]
    for i in sorted(range(n), key=costs.__getitem__, reverse=True):
        load, rank = loads[0]
        parts[rank].append(i)
        heapq.heapreplace(loads, (load + costs[i], rank))
    return [sorted(part) for part in parts]


def cut(
    items: Any, rank: int, size: int, by: Optional[Callable[[Any], float]] = None
) -> tuple[Any, list[int]]:
    """The part of one of `size` ranks, an array of an array, else a `Shard`; and how many items each gets."""
    if isinstance(items, np.ndarray) and by is None:
        return items[rank::size], [len(range(first, len(items), size)) for first in range(size)]
    every = items if isinstance(items, Sequence) else list(items)
    costs = None if by is None else list(map(by, every))
    parts = positions(len(every), size, costs)
    return Shard([every[i] for i in parts[rank]], parts[rank]), [len(part) for part in parts]


def put_back(parts: Sequence[Sequence[Any]], places: Sequence[Optional[Sequence[int]]]) -> list[Any]:
    """Items of all ranks in the order of what was sharded; rank by rank where places are not known."""
    out = [item for part in parts for item in part]
    if any(place is None for place in places):
        return out
    at = [i for place in places for i in (place or ())]
    ordered: list[Any] = [None] * len(out)
    for i, item in zip(at, out):
        ordered[i] = item
    return ordered
