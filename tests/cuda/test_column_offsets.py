"""Columns found by their offsets (exec/cuda/column_offsets.h), and in how many comparisons."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support import fake_gpu
from support.subject import IS_REFERENCE

pytestmark = [
    pytest.mark.skipif(IS_REFERENCE, reason="the devices are ours"),
    pytest.mark.skipif(not fake_gpu.available(), reason="no compiler"),
]

ROWS = 4
Found = tuple[list[int], int]


@pytest.fixture(scope="module")
def find_columns(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Found]:
    """The columns at these offsets, -1: none, and the comparisons made."""
    source = Path(__file__).parent / "column_offsets.cc"
    library = ctypes.CDLL(str(fake_gpu.build(tmp_path_factory.mktemp("columns") / "columns.so", [source])))
    library.find_columns.restype = ctypes.c_int64

    def find(at: Sequence[int], offsets: Sequence[int]) -> Found:
        columns, looked_for = ((ctypes.c_int64 * len(some))(*some) for some in (at, offsets))
        found = (ctypes.c_int64 * len(offsets))()
        sizes = [ctypes.c_int64(size) for size in (len(at), ROWS, len(offsets))]
        comparisons = library.find_columns(columns, *sizes[:2], looked_for, sizes[2], found)
        return list(found), comparisons

    return find


def shuffled(count: int) -> list[int]:
    at = [ROWS * j for j in range(count)]
    random.Random(count).shuffle(at)
    return at


@pytest.mark.parametrize(
    "at",
    [
        [],
        [12],
        [12, 16, 20, 24],
        [12, 20, 28],  # every other one
        [24, 20, 16],  # descending
        [12, 16, 20, 28, 32],  # evenly spaced at first
        [16, 12, 12, 24, 12],  # some twice: the first is found
        [8, 8, 8],
        shuffled(37),
    ],
)
def test_each_offset(find_columns: Callable[..., Found], at: list[int]) -> None:
    offsets = list(range(-2, max(at, default=0) + 2 * ROWS))
    expected = [at.index(offset) if offset in at else -1 for offset in offsets]
    assert find_columns(at, offsets)[0] == expected


@pytest.mark.parametrize("bits", [6, 10, 14])
def test_comparisons(find_columns: Callable[..., Found], bits: int) -> None:
    """None of evenly spaced columns, of others those of a bisection for each."""
    count = 1 << bits
    even, uneven = [ROWS * j for j in range(count)], shuffled(count)
    assert find_columns(even, uneven) == ([offset // ROWS for offset in uneven], 0)
    found, comparisons = find_columns(uneven, uneven)
    assert found == list(range(count))
    assert count < comparisons <= count * (bits + 1)
