"""Which steps of a persistent kernel need no grid barrier: the rule of exec/cuda/persistent_weights.h."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import fake_gpu
from support.subject import IS_REFERENCE

pytestmark = [
    pytest.mark.skipif(IS_REFERENCE, reason="the devices are ours"),
    pytest.mark.skipif(not fake_gpu.available(), reason="no compiler"),
]

Made = tuple[Any, ...]


@pytest.fixture(scope="module")
def find_runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """find_barrier_free_runs(): runs (first step, end, period), and the periods of the products."""
    weights = fake_gpu.SRC / "exec/cuda/persistent_weights.cc"
    sources = [Path(__file__).parent / "barrier_free_runs.cc", weights]
    built = fake_gpu.build(tmp_path_factory.mktemp("runs") / "barrier_free_runs.so", sources)
    library = ctypes.CDLL(str(built))

    def find(
        products: Sequence[Made], steps: Sequence[Made], waits: Sequence[int], begin: int = 0
    ) -> tuple[list[tuple[int, ...]], list[int]]:
        words: list[int] = []
        for listed in (products, steps):
            words.append(len(listed))
            for *fixed, accesses in listed:
                words += [*fixed, len(accesses), *(word for access in accesses for word in access)]
        words += [begin, len(waits), *waits]
        found = (ctypes.c_int64 * 256)()
        count = library.find_barrier_free_runs((ctypes.c_int64 * len(words))(*words), found)
        runs = [tuple(found[3 * i : 3 * i + 3]) for i in range(count)]
        return runs, list(found[3 * count : 3 * count + len(products)])

    return find


def reads(place: int, size: int = 24, spacing: int = 8) -> tuple[int, ...]:
    return place, place + size, spacing, 0


def writes(place: int, size: int = 24, spacing: int = 8) -> tuple[int, ...]:
    return place, place + size, spacing, 1


def product(
    step: int, to: int, of: int = 10, rows: int = 8, spacing: int = 8, weight: int | None = None
) -> Made:
    """Adds to three columns at `to`, from others at `of`; the weight is its own if none is named."""
    return (
        step,
        rows,
        9000 + step if weight is None else weight,
        [writes(to, 3 * rows, spacing), reads(of, 24, 1)],
    )


def sliced(step: int, *accesses: tuple[int, ...], period: int = 8, finer: int = 1) -> Made:
    return step, period, finer, accesses


P, Q = product(0, 100), product(1, 200)
FIRST = [0, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("products", "steps", "expected"),
    [
        ([P], [sliced(1, writes(300), reads(100))], [(0, 2, 8)]),
        ([P], [sliced(1, writes(300), reads(100), period=4)], [(0, 2, 4)]),
        ([P], [sliced(1, writes(300), reads(100), reads(10))], [(0, 2, 8)]),
        ([P], [sliced(1, writes(300), reads(100)), sliced(2, writes(400), reads(300))], [(0, 3, 8)]),
        ([P, Q], [sliced(2, writes(300), reads(100), reads(200))], [(0, 3, 8)]),
        # several results; a larger one, of the same period; to add to where others have added
        ([P], [sliced(1, writes(300, 96), writes(400), reads(100))], [(0, 2, 8)]),
        ([P], [sliced(1, writes(300), reads(100)), sliced(2, writes(300))], [(0, 3, 8)]),
        ([P], [sliced(1, writes(100), reads(500))], [(0, 2, 8)]),
        # a step of period 16, or the cell of an LSTM of size 16
        ([P], [sliced(1, writes(300), reads(100)), sliced(2, writes(500, 48, 16), period=16)], [(0, 3, 8)]),
        (
            [P],
            [sliced(1, writes(300), reads(100)), sliced(2, writes(500, 48, 16), period=16, finer=0)],
            [(0, 2, 8)],
        ),
        # another period, other rows, some nodes, part of them
        ([P], [sliced(1, writes(300), reads(100), period=3)], []),
        ([P], [sliced(1, writes(300), reads(101))], []),
        ([P], [sliced(1, writes(300), reads(100, spacing=4))], []),
        ([P], [sliced(1, writes(300, 8), reads(90, 20))], []),
        ([product(0, 100, spacing=1)], [sliced(1, writes(300), reads(100))], []),
        ([P], [sliced(1, writes(300), reads(100)), sliced(2, writes(400), reads(301))], [(0, 2, 8)]),
        ([P], [sliced(1, writes(300), reads(100)), sliced(2, writes(301))], [(0, 2, 8)]),
        ([P], [sliced(1, writes(300), reads(100), reads(401)), sliced(2, writes(400))], [(0, 2, 8)]),
        ([P], [sliced(1, writes(300), writes(401), reads(100)), sliced(2, reads(400))], [(0, 2, 8)]),
        # what the product reads, all blocks of it, changes
        ([product(0, 100, of=300)], [sliced(1, writes(300), reads(100))], []),
        ([P, product(1, 200, of=300)], [sliced(2, writes(300), reads(100))], [(0, 2, 8)]),
        # products that read the result of one before, or add to it, or follow other steps
        ([P, product(1, 200, of=100)], [sliced(2, writes(300), reads(200))], [(1, 3, 8)]),
        ([P, product(1, 100)], [sliced(2, writes(300), reads(100))], [(0, 3, 8)]),
        ([P, product(1, 101)], [sliced(2, writes(300), reads(101))], [(1, 3, 8)]),
        ([P, product(2, 400)], [sliced(1, writes(300), reads(100))], [(0, 3, 8)]),
        ([P, product(2, 400, of=300)], [sliced(1, writes(300), reads(100))], [(0, 2, 8)]),
        (
            [P, product(2, 400, of=300)],
            [sliced(1, writes(300), reads(100)), sliced(3, writes(500), reads(400))],
            [(0, 2, 8), (2, 4, 8)],
        ),
        ([P], [sliced(2, writes(300), reads(100))], []),  # another step between them
        # few blocks would make all rows of a small period
        ([product(0, 100, rows=16)], [sliced(1, writes(300), reads(100), period=2)], [(0, 2, 2)]),
        ([product(0, 100, rows=32)], [sliced(1, writes(300), reads(100), period=2)], []),
    ],
)
def test_which_steps_need_not_wait(
    find_runs: Callable[..., Any], products: list[Made], steps: list[Made], expected: Any
) -> None:
    """Backward every step waits, if nothing else is found."""
    assert find_runs(products, steps, FIRST)[0] == expected


def test_runs_begin_with_a_product_that_waits(find_runs: Callable[..., Any]) -> None:
    """Else what it reads, from before, may not be there yet."""
    later = [product(1, 100)], [sliced(2, writes(300), reads(100))]
    assert find_runs(*later, [0, 0, 1])[0] == []
    assert find_runs(*later, [0, 1, 1])[0] == [(1, 3, 8)]
    assert find_runs(*later, [0, 0, 1], 1)[0] == [(1, 3, 8)]  # nothing is before


def test_units_of_products(find_runs: Callable[..., Any]) -> None:
    """What no step goes on with is made by as many blocks as can be."""
    four, wide = product(0, 100, rows=32), product(1, 1000, rows=48)
    runs, periods = find_runs([four, wide], [sliced(2, writes(300), reads(100, 96))], FIRST)
    assert runs == [(0, 3, 8)] and periods == [8, 48]


def test_what_goes_on_behind_the_run_does_not_count(find_runs: Callable[..., Any]) -> None:
    products = [product(0, 100, rows=32), product(2, 1000, rows=32)]
    steps = [sliced(1, writes(300), reads(100, 96)), sliced(3, writes(2000), reads(1000, 96), reads(301))]
    assert find_runs(products, steps, FIRST) == ([(0, 3, 8)], [8, 32])


@pytest.mark.parametrize(("weight", "spacing", "period"), [(50, 8, 8), (51, 8, 32), (50, 4, 32)])
def test_a_weight_is_kept_once(find_runs: Callable[..., Any], weight: int, spacing: int, period: int) -> None:
    """Products outside of runs have the period that their weight has in one, where they can."""
    products = [
        product(0, 100, rows=32, weight=50),
        product(3, 1000, rows=32, weight=weight, spacing=spacing),
    ]
    steps = [sliced(1, writes(300), reads(100, 96))]
    assert find_runs(products, steps, FIRST) == ([(0, 2, 8)], [8, period])


def test_long_runs_end(find_runs: Callable[..., Any]) -> None:
    steps = [sliced(i, writes(100)) for i in range(1, 200)]
    assert find_runs([P], steps, [1] * 200)[0] == [(0, 64, 8)]
