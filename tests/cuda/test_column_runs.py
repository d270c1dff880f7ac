"""Columns found by their offsets, as runs of evenly spaced ones (exec/cuda/column_runs.h), and in how many
comparisons."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support import fake_gpu
from support.subject import IS_REFERENCE

pytestmark = [
    pytest.mark.skipif(IS_REFERENCE, reason="the devices are ours"),
    pytest.mark.skipif(not fake_gpu.available(), reason="no compiler"),
]

ROWS = 4
MANY = 1 << 20


def array(some: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(some))(*some)


class Columns:
    """Functions of column_runs.cc."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        self.loaded = loaded
        for name in ("find_columns", "same_columns", "count_runs"):
            getattr(loaded, name).restype = ctypes.c_int64

    def find(
        self, at: Sequence[int], offsets: Sequence[int], together: int = 1
    ) -> tuple[list[tuple[int, int, int]], int]:
        """Column (-1: none), those that follow and their step, for each offset; and the comparisons made."""
        results = [array([0] * len(offsets)) for _ in range(3)]
        sizes = [ctypes.c_int64(size) for size in (len(at), ROWS, together)]
        looked_for = ctypes.c_int64(len(offsets))
        comparisons = self.loaded.find_columns(array(at), *sizes, array(offsets), looked_for, *results)
        return list(zip(*results)), comparisons

    def same(self, a: Sequence[int], b: Sequence[int], together: tuple[int, int] = (1, MANY)) -> bool:
        sides = [
            argument
            for at, n in zip((a, b), together)
            for argument in (array(at), ctypes.c_int64(len(at)), ctypes.c_int64(n))
        ]
        return bool(self.loaded.same_columns(*sides))

    def runs(self, at: Sequence[int], together: int) -> int:
        return int(self.loaded.count_runs(array(at), ctypes.c_int64(len(at)), ctypes.c_int64(together)))


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory) -> Columns:
    source = Path(__file__).parent / "column_runs.cc"
    built = fake_gpu.build(tmp_path_factory.mktemp("columns") / "columns.so", [source])
    return Columns(ctypes.CDLL(str(built)))


def shuffled(count: int) -> list[int]:
    at = [ROWS * j for j in range(count)]
    random.Random(count).shuffle(at)
    return at


SOME = [
    [],
    [12],
    [12, 16, 20, 24],
    [12, 20, 28],  # every other one
    [24, 20, 16],  # descending
    [12, 16, 20, 28, 32],  # evenly spaced at first
    [12, 20, 28, 16, 24, 32],  # runs that lie between each other
    [16, 12, 12, 24, 12],  # some twice: the first is found
    [8, 8, 8],
    shuffled(37),
]


@pytest.mark.parametrize("together", [1, 2, MANY])
@pytest.mark.parametrize("at", SOME)
def test_each_offset(columns: Columns, at: list[int], together: int) -> None:
    offsets = list(range(-2, max(at, default=0) + 2 * ROWS))
    found, _ = columns.find(at, offsets, together)
    assert [column for column, _, _ in found] == [at.index(o) if o in at else -1 for o in offsets]
    for column, rest, step in found:
        if column >= 0:
            assert at[column : column + rest + 1] == [at[column] + k * step for k in range(rest + 1)]


@pytest.mark.parametrize("together", [1, 3, MANY])
def test_even_columns_are_one_run(columns: Columns, together: int) -> None:
    assert columns.runs([12, 20, 28, 36, 44, 52, 60], together) == 1
    assert columns.runs([12, 20, 28, 36, 40, 44, 48], together) == 2
    assert columns.runs([], together) == 0


@pytest.mark.parametrize("at", SOME)
def test_same_columns(columns: Columns, at: list[int]) -> None:
    for together in ((1, MANY), (2, 3), (MANY, 2)):
        assert columns.same(at, at, together)
        assert not columns.same(at, [*at, 4], together)
        for j in range(len(at)):
            assert not columns.same(at, [*at[:j], at[j] + 1, *at[j + 1 :]], together)


@pytest.mark.parametrize("bits", [6, 10, 14])
def test_comparisons(columns: Columns, bits: int) -> None:
    """None of evenly spaced columns, of others those of a bisection for each."""
    count = 1 << bits
    even, uneven = [ROWS * j for j in range(count)], shuffled(count)
    found, comparisons = columns.find(even, uneven)
    assert [column for column, _, _ in found] == [offset // ROWS for offset in uneven]
    assert comparisons == 0
    found, comparisons = columns.find(uneven, uneven)
    assert [column for column, _, _ in found] == list(range(count))
    assert count < comparisons <= count * (bits + 1)
