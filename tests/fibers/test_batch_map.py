"""What batch_map returns, how often it computes, and what may stand inside the function."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

Map = Callable[..., list[Any]]


def halvings(dy: Any, x: float) -> int:
    """Reads one value more than it returns."""
    e, n = dy.scalarInput(x), 0
    while (e * 1).value() >= 1:
        e, n = e * 0.5, n + 1
    return n


# ---------------------------------------------------------------- results and flushes


def test_results_in_order_and_one_flush_for_each_read_of_the_longest(
    dy: Any, batch_map: Map, flushes: Callable[[], int]
) -> None:
    assert batch_map(lambda x: halvings(dy, x), [0.5, 10, 3, 100]) == [0, 4, 2, 7]
    assert flushes() == 8


def test_any_iterable_and_no_instances(dy: Any, batch_map: Map) -> None:
    assert batch_map(lambda x: halvings(dy, x), (2.0**i for i in range(3))) == [1, 2, 3]
    assert batch_map(lambda x: x, []) == []
    assert batch_map(str, range(3)) == ["0", "1", "2"]


def test_instances_are_read_before_the_first_call(batch_map: Map) -> None:
    log: list[str] = []

    def instances() -> Iterator[int]:
        for i in range(2):
            log.append(f"made {i}")
            yield i

    batch_map(lambda i: log.append(f"called {i}"), instances())
    assert log == ["made 0", "made 1", "called 0", "called 1"]


def test_they_continue_in_the_order_of_the_instances(dy: Any, batch_map: Map) -> None:
    log: list[tuple[int, int]] = []

    def function(i: int) -> None:
        for step in range(4 - i):
            log.append((step, i))
            (dy.scalarInput(i) + step).value()

    batch_map(function, range(3))
    assert log == sorted(log)


READS: dict[str, Callable[[Any, Any], Any]] = {
    "value": lambda dy, e: e.value(),
    "npvalue": lambda dy, e: e.npvalue().tolist(),
    "vec_value": lambda dy, e: e.vec_value(),
    "scalar_value": lambda dy, e: dy.sum_elems(e).scalar_value(),
    "tensor_value": lambda dy, e: e.tensor_value().argmax().as_numpy().tolist(),
    "forward": lambda dy, e: e.forward() or e.value(),
    "dy.forward": lambda dy, e: dy.forward([e]) or e.value(),
    "dy.values": lambda dy, e: dy.values([e, e * 2]),
    "dy.npvalues": lambda dy, e: [v.tolist() for v in dy.npvalues([e * 2])],
    "recalculate": lambda dy, e: e.value(recalculate=True),
    "slice": lambda dy, e: e[0:1].value(),
    "nobackprop": lambda dy, e: dy.nobackprop(e).value(),
    "iteration": lambda dy, e: [x.value() for x in e],
}


@pytest.mark.parametrize("how", READS)
def test_every_way_to_read_suspends(dy: Any, batch_map: Map, flushes: Callable[[], int], how: str) -> None:
    read = READS[how]

    def function(x: float) -> Any:
        return read(dy, dy.tanh(dy.inputVector([x, 2 * x])))

    plain = [function(x) for x in (0.1, 0.2, 0.3)]
    alone = flushes() / 3
    assert batch_map(function, [0.1, 0.2, 0.3]) == plain
    assert flushes() - 3 * alone <= alone  # as many for all three as for one


def test_inputs_parameters_and_known_values_do_not_suspend(
    dy: Any, batch_map: Map, flushes: Callable[[], int]
) -> None:
    w = dy.ParameterCollection().add_parameters(2, init=3)
    before = dy.inputVector([1, 2]) + 1
    before.value()
    done = flushes()
    log: list[int] = []

    def function(i: int) -> Any:
        log.append(i)
        values = [before.value(), w.value(), dy.inputVector([i]).value()]
        log.append(i)
        return values

    assert batch_map(function, range(2)) == [[[2, 3], [3, 3], i] for i in range(2)]
    assert log == [0, 0, 1, 1]
    assert flushes() == done


def test_only_what_is_asked_for_is_computed(dy: Any, batch_map: Map) -> None:
    core = pytest.importorskip("dynet_compat")._core
    core.reset_timing()

    def function(x: float) -> Any:
        kept = dy.tanh(dy.inputVector([x] * 3))  # a loss that nobody reads yet
        (dy.scalarInput(x) + 1).value()
        return kept

    kept = batch_map(function, [1.0, 2.0])
    assert core.timing()["nodes"] == 2
    np.testing.assert_allclose(dy.esum(kept).value(), np.tanh(1.0) + np.tanh(2.0), rtol=1e-6)


@pytest.mark.parametrize("scheduler", ["bucket", "depth", "agenda", "none"])
@pytest.mark.parametrize("autobatching", [True, False])
def test_every_scheduler(dy: Any, batch_map: Map, scheduler: str, autobatching: bool) -> None:
    core = pytest.importorskip("dynet_compat")._core
    w = dy.ParameterCollection().parameters_from_numpy(np.array([[0.6, -0.2], [0.3, 0.5]]))

    def function(x: float) -> list[float]:
        e = dy.inputVector([x, 1.0])
        while dy.squared_norm(e).value() > 0.5:
            e = dy.tanh(w * e) + dy.softmax(e) * 0.1
        return list(e.value())

    xs = [0.1, 1.0, 2.5, -3.0]
    plain = [function(x) for x in xs]
    core.set_scheduler(scheduler)
    try:
        dy.renew_cg(autobatching=autobatching)
        np.testing.assert_allclose(batch_map(function, xs), plain, rtol=1e-6)
    finally:
        core.set_scheduler("bucket")


# ---------------------------------------------------------------- inside the function


def test_generators_recursion_and_early_return(dy: Any, batch_map: Map) -> None:
    def steps(x: float) -> Iterator[float]:
        e = dy.scalarInput(x)
        while True:
            value = (e * 1).value()
            yield value
            e = e * 0.5

    def first_below_one(x: float) -> float:
        for value in steps(x):
            if value < 1:
                return value
        raise AssertionError

    def depth(e: Any, n: int) -> int:
        return n if (e + 0).value() < 1 else depth(e * 0.5, n + 1)

    def delegated(x: float) -> Iterator[float]:
        yield from zip(steps(x), range(3))  # type: ignore[misc]

    xs = [0.5, 3.0, 20.0]
    assert batch_map(first_below_one, xs) == [0.5, 0.75, 0.625]
    assert batch_map(lambda x: depth(dy.scalarInput(x), 0), xs) == [0, 2, 5]
    assert batch_map(lambda x: [v for v, _ in delegated(x)], xs) == [[x, x / 2, x / 4] for x in xs]
    assert [list(g) for g in batch_map(lambda x: delegated(x), xs)] == [list(delegated(x)) for x in xs]


def test_deep_recursion(dy: Any, batch_map: Map) -> None:
    limit = sys.getrecursionlimit()

    def down(e: Any, n: int) -> float:
        if n == 0:
            return float((e * 2).value())
        return down(e, n - 1) + (n == 100 and (e * 3).value())

    sys.setrecursionlimit(6000)
    try:
        results = batch_map(lambda x: down(dy.scalarInput(x), 1500), range(5))
    finally:
        sys.setrecursionlimit(limit)
    assert results == [5.0 * x for x in range(5)]


def test_reads_inside_callbacks_from_compiled_code(dy: Any, batch_map: Map) -> None:
    """The engine's own functions may be interrupted while they read an iterator or a key."""
    lstm = dy.LSTMBuilder(1, 2, 2, dy.ParameterCollection())

    def function(x: float) -> Any:
        e = dy.inputVector([x, 1.0])

        def arrays() -> Iterator[Any]:
            for k in range(2):
                yield (e * (k + 1)).npvalue()

        state = lstm.initial_state_from_raw_vectors(arrays())
        ordered = sorted([3.0, 1.0, 2.0], key=lambda k: (e * -k).value()[0])
        return [round(v, 5) for v in state.h()[0].value()], ordered

    xs = [0.5, 1.5, 2.5, 3.5]
    plain = [function(x) for x in xs]
    dy.renew_cg(autobatching=True)
    assert batch_map(function, xs) == plain


def test_greenlets_inside(dy: Any) -> None:
    greenlet = pytest.importorskip("greenlet")

    def function(x: float) -> list[float]:
        out: list[float] = []
        caller = greenlet.getcurrent()

        def inner() -> None:
            for k in range(3):
                out.append((dy.scalarInput(x) * k).value())
                caller.switch()

        g = greenlet.greenlet(inner)
        while not g.dead:
            g.switch()
            out.append((dy.scalarInput(x) + 100).value())
        return out[:6]

    dy.renew_cg(autobatching=True)
    expected = [function(float(x)) for x in range(3)]
    assert dy.batch_map(function, map(float, range(3)), backend="greenlet") == expected


def test_context_variables_are_the_instances_own(dy: Any, batch_map: Map) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=-1)
    variable.set(7)

    def function(i: int) -> list[int]:
        seen = [variable.get()]
        variable.set(i)
        (dy.scalarInput(i) + 1).value()
        seen.append(variable.get())
        seen += batch_map(inner, range(1))[0]
        seen.append(variable.get())
        return seen

    def inner(_: int) -> list[int]:
        seen = [variable.get()]
        variable.set(99)
        (dy.scalarInput(1) + 1).value()
        return seen

    assert batch_map(function, range(3)) == [[7, i, i, i] for i in range(3)]
    assert variable.get() == 7


def test_exception_state_is_the_instances_own(dy: Any, batch_map: Map) -> None:
    def function(i: int) -> str:
        try:
            raise ValueError(i)
        except ValueError:
            (dy.scalarInput(i) + 1).value()
            return repr(sys.exc_info()[1])

    assert batch_map(function, range(3)) == [f"ValueError({i})" for i in range(3)]


def test_coroutines_run_inside(dy: Any, batch_map: Map) -> None:
    async def read(x: float) -> float:
        await asyncio.sleep(0)
        return x

    def function(x: float) -> float:
        loop = asyncio.new_event_loop()
        try:
            y = loop.run_until_complete(read(x))
        finally:
            loop.close()
        return float((dy.scalarInput(y) + 1).value())

    assert batch_map(function, [1.0, 2.0]) == [2.0, 3.0]


# ---------------------------------------------------------------- nesting


def test_inner_instances_join_the_outer_ones(dy: Any, batch_map: Map, flushes: Callable[[], int]) -> None:
    def outer(n: int) -> list[int]:
        return batch_map(lambda x: halvings(dy, x), [2.0**k for k in range(n)])

    assert batch_map(outer, [1, 3, 2]) == [[1], [1, 2, 3], [1, 2]]
    assert flushes() == 4


def test_nested_deeply_with_reads_between(dy: Any, batch_map: Map) -> None:
    def tree(x: float, level: int) -> Any:
        if (dy.scalarInput(x) * 1).value() < 1 or level == 4:
            return x
        below = batch_map(lambda f: tree(x * f, level + 1), [0.4, 0.6])
        return [*below, float((dy.scalarInput(x) + level).value())]

    xs = [0.5, 2.0, 4.0, 8.0]
    together = batch_map(lambda x: tree(x, 0), xs)
    assert together == [tree(x, 0) for x in xs]
    assert batch_map(lambda x: batch_map(lambda y: y, []), xs) == [[]] * 4


def test_many_instances(dy: Any, batch_map: Map, backend: str) -> None:
    """More than there are threads at a time, also inside."""
    n = 700
    assert batch_map(lambda x: halvings(dy, x % 9), range(n)) == [halvings(dy, x % 9) for x in range(n)]

    def outer(x: int) -> int:
        return sum(batch_map(lambda y: halvings(dy, y), [x, x + 1, x + 2]))

    assert batch_map(outer, range(120)) == [sum(halvings(dy, x + k) for k in range(3)) for x in range(120)]


# ---------------------------------------------------------------- training


def test_losses_summed_over_instances_train(dy: Any, batch_map: Map) -> None:
    def run(how: str) -> list[float]:
        dy.reset_random_seed(5)
        pc = dy.ParameterCollection()
        w, b = pc.add_parameters((3, 3)), pc.add_parameters(3)
        table = pc.add_lookup_parameters((4, 3))
        trainer = dy.SimpleSGDTrainer(pc, 0.1)

        def loss(i: int) -> Any:
            x = table[i]
            for _ in range(6):
                x = dy.tanh(w * x + b)
                if dy.sum_elems(x).value() > 0.1 * i:
                    break
            return dy.squared_norm(x - dy.inputVector([0.1, 0.2, 0.3]))

        values = []
        for _ in range(5):
            dy.renew_cg(autobatching=True)
            losses = batch_map(loss, range(4)) if how == "map" else [loss(i) for i in range(4)]
            total = dy.esum(losses)
            values.append(total.value())
            total.backward()
            trainer.update()
        return values

    np.testing.assert_allclose(run("map"), run("loop"), rtol=2e-6)


def test_immediate_graphs(dy: Any, batch_map: Map, flushes: Callable[[], int]) -> None:
    dy.renew_cg(immediate_compute=True, check_validity=True)
    assert batch_map(lambda x: halvings(dy, x), [0.5, 10, 3]) == [0, 4, 2]


def test_expressions_outlive_it(dy: Any, batch_map: Map) -> None:
    es = batch_map(lambda x: dy.scalarInput(x) * (halvings(dy, x) + 1), [1, 2, 3])
    assert [e.value() for e in es] == [2, 6, 9]
    dy.cg_checkpoint()
    batch_map(lambda x: halvings(dy, x), [5, 6])
    dy.cg_revert()
    assert dy.esum(es).value() == 17


# ---------------------------------------------------------------- threads


def test_threads_with_graphs_of_their_own(dy: Any, backend: str) -> None:
    results: dict[int, list[int]] = {}

    def work(k: int) -> None:
        dy.renew_cg(autobatching=True)
        for _ in range(5):
            results[k] = dy.batch_map(lambda x: halvings(dy, x), [k, 2 * k, 4 * k], backend=backend)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {k: [halvings(dy, x * k) for x in (1, 2, 4)] for k in range(1, 5)}


def test_a_thread_inside_has_its_own_graph(dy: Any, batch_map: Map) -> None:
    def function(x: float) -> list[Any]:
        found: list[Any] = []
        outside = dy.scalarInput(x) + 1

        def work() -> None:
            found.append((dy.scalarInput(x) * 3).value())
            try:
                outside.value()
            except (ValueError, RuntimeError) as error:
                found.append("this thread's graph" in str(error))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return [*found, outside.value()]

    assert batch_map(function, [1.0, 2.0]) == [[3.0, True, 2.0], [6.0, True, 3.0]]


# ---------------------------------------------------------------- arguments


def test_wrong_arguments(dy: Any) -> None:
    with pytest.raises(TypeError, match=r"batch_map\(\): expected a function, got int"):
        dy.batch_map(3, [1])
    with pytest.raises(TypeError):
        dy.batch_map(str, 3)
    with pytest.raises(ValueError, match=r"expected backend to be None or one of \['greenlet', 'threads'\]"):
        dy.batch_map(str, [1], backend="processes")


def test_threads_are_used_without_greenlet(dy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "greenlet", None)
    names = dy.batch_map(lambda _: threading.current_thread().name, range(2))
    assert names == ["batch_map-0", "batch_map-1"]
    with pytest.raises(ImportError):
        dy.batch_map(str, [1], backend="greenlet")


def test_greenlets_are_used_where_there_are(dy: Any) -> None:
    pytest.importorskip("greenlet")
    names = dy.batch_map(lambda _: threading.current_thread().name, range(2))
    assert names == [threading.current_thread().name] * 2
