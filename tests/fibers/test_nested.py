"""batch_map inside batch_map: recursions that generate trees compute once per level."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Map = Callable[..., list[Any]]
SIZE = 4


@pytest.fixture
def parts(dy: Any) -> tuple[Any, Any, Any]:
    pc = dy.ParameterCollection()
    rng = np.random.RandomState(2)
    left, right = (pc.parameters_from_numpy(rng.normal(0, 0.8, (SIZE, SIZE))) for _ in range(2))
    return left, right, pc.parameters_from_numpy(rng.normal(0, 1, (1, SIZE)))


def tree(dy: Any, parts: Any, mapped: Map, depth: int) -> Callable[[Any, int], Any]:
    """Generates trees of at most so many levels below the root."""
    left, right, score = parts

    def expand(state: Any, level: int) -> Any:
        value = (score * state).scalar_value()
        if level == depth or value > 0.6:
            return round(value, 4)
        children = [dy.tanh(left * state) + state, dy.tanh(right * state) - state]
        return mapped(lambda child: expand(child, level + 1), children)

    return expand


def plain(function: Any, items: Any) -> list[Any]:
    return [function(x) for x in items]


def roots(dy: Any, count: int = 5) -> list[Any]:
    rng = np.random.RandomState(4)
    return [dy.inputTensor(rng.normal(0, 1, SIZE)) for _ in range(count)]


def test_a_flush_per_level(dy: Any, batch_map: Map, parts: Any, flushes: Callable[[], int]) -> None:
    def levels(found: Any) -> int:
        return 1 + max(map(levels, found)) if isinstance(found, list) else 1

    expand = tree(dy, parts, batch_map_of(batch_map), 6)
    before = flushes()
    found = batch_map(lambda root: expand(root, 0), roots(dy))
    assert flushes() - before == max(map(levels, found)) == 7
    dy.renew_cg()
    assert found == [tree(dy, parts, plain, 6)(root, 0) for root in roots(dy)]


def batch_map_of(batch_map: Map) -> Map:
    return lambda function, items: batch_map(function, items)


@pytest.mark.parametrize("most", [0, 3, 20])
def test_no_more_fibers_than_the_cap(
    dy: Any, parts: Any, monkeypatch: pytest.MonkeyPatch, flushes: Callable[[], int], most: int
) -> None:
    pytest.importorskip("greenlet")
    from dynet_compat.api import batch_map as module

    monkeypatch.setattr(module, "MOST_FIBERS", most)
    live = []
    start = module.Greenlets.start

    def counted(fibers: Any, task: Any) -> None:
        live.append(task.group.scheduler.live)
        start(fibers, task)

    monkeypatch.setattr(module.Greenlets, "start", counted)
    dy.renew_cg(autobatching=True)
    expand = tree(dy, parts, lambda f, items: dy.batch_map(f, items, backend="greenlet"), 8)
    before = flushes()
    found = dy.batch_map(lambda root: expand(root, 0), roots(dy), backend="greenlet")
    assert max(live) <= most + 5 + 8  # one sibling per level is still to start
    assert (flushes() - before > 9) == (most < 20)
    dy.renew_cg()
    assert found == [tree(dy, parts, plain, 8)(root, 0) for root in roots(dy)]


@pytest.mark.parametrize("most", [0, 6, 1024])
def test_an_exception_in_a_nested_call_ends_like_the_plain_loops(
    dy: Any, batch_map: Map, parts: Any, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    from dynet_compat.api import batch_map as module

    monkeypatch.setattr(module, "MOST_FIBERS", most)
    closed = []

    def walk(x: int) -> Any:
        try:
            (parts[2] * dy.inputTensor([x] * SIZE)).value()
            if x == 13:
                raise KeyError(x)
            return [x, *batch_map(walk, [2 * x, 2 * x + 1])] if x < 16 else x
        finally:
            closed.append(x)

    with pytest.raises(KeyError) as error:
        batch_map(walk, [1, 1])
    assert error.value.args == (13,)
    assert closed.count(13) == 2


@pytest.mark.parametrize("most", [0, 2, 1024])
def test_an_interrupt_unwinds_all_calls(
    dy: Any, batch_map: Map, parts: Any, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    from dynet_compat.api import batch_map as module

    monkeypatch.setattr(module, "MOST_FIBERS", most)
    begun, closed = [], []

    def walk(x: int) -> Any:
        begun.append(x)
        try:
            (parts[2] * dy.inputTensor([x] * SIZE)).value()
            if x == 9:
                raise KeyboardInterrupt
            if x < 32:
                batch_map(walk, [2 * x, 2 * x + 1])
        finally:
            closed.append(x)

    with pytest.raises(KeyboardInterrupt):
        batch_map(walk, [1, 1, 1])
    assert sorted(begun) == sorted(closed)
    assert batch_map(lambda x: (parts[2] * dy.inputTensor([x] * SIZE)).value() < 1e9, [1]) == [True]


def test_a_generator_is_closed_where_it_waits(dy: Any, batch_map: Map, parts: Any) -> None:
    closed = []

    def values(x: int) -> Any:
        try:
            for k in range(3):
                yield (parts[2] * dy.inputTensor([x + k] * SIZE)).value()
        finally:
            closed.append(x)

    def inner(x: int) -> float:
        for value in values(x):
            if x % 2:
                return value
        raise ValueError(x)

    with pytest.raises(ValueError):
        batch_map(lambda x: batch_map(inner, [x, x + 1]), [1, 3])
    assert sorted(closed) == [1, 2, 3, 4]


def test_deep_nesting(dy: Any, batch_map: Map, parts: Any, flushes: Callable[[], int]) -> None:
    def down(level: int) -> int:
        (parts[2] * dy.inputTensor([level] * SIZE)).value()
        return 1 + batch_map(down, [level + 1])[0] if level < 60 else 1

    assert batch_map(down, [0, 0]) == [61, 61]
    assert flushes() == 61


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("most", [0, 4, 1024])
def test_random_recursions_as_the_plain_loop(
    dy: Any, batch_map: Map, parts: Any, monkeypatch: pytest.MonkeyPatch, seed: int, most: int
) -> None:
    from dynet_compat.api import batch_map as module

    monkeypatch.setattr(module, "MOST_FIBERS", most)
    left, right, score = parts

    def program(mapped: Map) -> Any:
        dy.renew_cg(autobatching=True)
        losses: list[Any] = []

        def walk(item: tuple[int, Any, int]) -> Any:
            number, state, level = item
            rng = random.Random(1000 * seed + number)
            mine: list[Any] = [number]
            for _ in range(rng.randrange(3)):
                state = dy.tanh(left * state) + dy.tanh(right * state)
                mine.append(round((score * state).scalar_value(), 4))
            try:
                if rng.random() < 0.2:
                    raise ValueError(number)
                children = [(3 * number + k, state * 0.7, level + 1) for k in range(rng.randrange(4))]
                if level < 4:
                    mine.append(mapped(walk, children))
            except ValueError as error:
                mine.append(error.args)
            return mine, dy.squared_norm(state)

        found = mapped(walk, [(n, root, 0) for n, root in enumerate(roots(dy), 1)])

        def collect(part: Any) -> Any:
            mine, loss = part
            losses.append(loss)
            return [[collect(x) for x in m] if isinstance(m, list) else m for m in mine]

        seen = [collect(part) for part in found]
        total = dy.esum(losses)
        total.backward()
        return seen, round(total.value(), 2)

    assert program(batch_map) == program(plain)
