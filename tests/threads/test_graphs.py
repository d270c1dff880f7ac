"""Each thread has a graph of its own: what mixes them is refused by name, and it ends with its thread."""

from __future__ import annotations

import ctypes
import gc
import re
import sys
import threading
from pathlib import Path
from typing import Any, Callable

import pytest
from support.in_thread import in_thread
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="DyNet has one graph for all threads")


def test_graphs_are_apart(dy: Any) -> None:
    """Recording, renewing and counting in one thread does not show in another."""
    x = dy.inputVector([1, 2, 3])
    y = x * 2
    version, number = dy.cg_version(), str(y)

    def other() -> tuple[list[float], int, int, str]:
        before = dy.cg_version()
        a = dy.inputVector([5, 6])
        for _ in range(3):
            dy.renew_cg()
            a = dy.inputVector([7, 8])
        return (a + 1).value(), before, dy.cg_version(), str(a)

    assert in_thread(other) == ([8, 9], 0, 3, "expression 0/3")
    assert dy.cg_version() == version and str(y) == number
    assert y.value() == [2, 4, 6]


MIXED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "x + y": lambda dy, x, y: x + y,
    "y + x": lambda dy, x, y: y + x,
    "-x": lambda dy, x, y: -x,
    "x[0]": lambda dy, x, y: x[0],
    "tanh": lambda dy, x, y: dy.tanh(x),
    "concatenate": lambda dy, x, y: dy.concatenate([y, x]),
    "value": lambda dy, x, y: x.value(),
    "npvalue": lambda dy, x, y: x.npvalue(),
    "backward": lambda dy, x, y: x.backward(),
    "gradient": lambda dy, x, y: x.gradient(),
    "dim": lambda dy, x, y: x.dim(),
    "set": lambda dy, x, y: x.set([1.0, 2.0]),
    "forward": lambda dy, x, y: dy.forward([y, x]),
    "values": lambda dy, x, y: dy.values([y, x]),
    "dropout": lambda dy, x, y: dy.dropout(x, 0.5),
    "reshape": lambda dy, x, y: dy.reshape(x, (1, 2)),
    "add_input": lambda dy, x, y: builder_of(dy).initial_state().add_input(x),
}


def builder_of(dy: Any) -> Any:
    return dy.VanillaLSTMBuilder(1, 2, 2, dy.ParameterCollection())


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("name", MIXED)
def test_expressions_of_other_threads_are_refused(dy: Any, name: str, ended: bool) -> None:
    """By a ValueError that says whose they are; the graph of this thread stays usable."""
    made, done = threading.Event(), threading.Event()
    theirs: list[Any] = []

    def other() -> None:
        for _ in range(dy.cg_version()):  # the same number of renewals as here
            dy.renew_cg()
        theirs.append(dy.inputVector([1, 2]))
        made.set()
        if not ended:
            done.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    made.wait(60)
    if ended:
        thread.join()
    y = dy.inputVector([3, 4])
    try:
        whose = "a thread that has ended" if ended else "another thread's graph"
        with pytest.raises(ValueError, match=whose):
            MIXED[name](dy, theirs[0], y)
        assert re.fullmatch(r"expression 0/\d+", str(theirs[0]))
        assert (y * 2).value() == [6, 8]
    finally:
        done.set()
        thread.join()


def test_earlier_graphs_of_this_thread_are_still_told_apart(dy: Any) -> None:
    x = dy.inputVector([1, 2])
    in_thread(dy.renew_cg)
    dy.renew_cg()
    in_thread(lambda: dy.inputVector([1, 2]))
    with pytest.raises(ValueError, match="earlier one"):
        x + x  # noqa: B018
    with pytest.raises(RuntimeError, match="earlier one"):
        x.value()


def test_states_of_other_threads_are_refused(dy: Any) -> None:
    builder = builder_of(dy)
    state = in_thread(lambda: builder.initial_state().add_input(dy.inputVector([1, 2])))
    for call in (
        lambda: state.add_input(dy.inputVector([1, 2])),
        lambda: state.h(),
        lambda: state.s(),
        lambda: state.transduce([dy.inputVector([1, 2])]),
        lambda: state.set_h([dy.inputVector([1, 2])]),
    ):
        with pytest.raises(ValueError, match="a thread that has ended"):
            call()
    with pytest.raises(ValueError, match="a thread that has ended"):
        state.output().value()
    assert state.b() is builder


def test_objects_outlive_their_thread(dy: Any) -> None:
    """Expressions and states of a dead thread are freed, printed and copied around without harm."""

    def other() -> list[Any]:
        pc = dy.ParameterCollection()
        w, table = pc.add_parameters((3, 3)), pc.add_lookup_parameters((5, 3))
        state = dy.GRUBuilder(2, 3, 3, pc).initial_state().add_input(table[2])
        loss = dy.squared_norm(w * state.output())
        loss.backward()
        return [w, table, state, loss, state.output(), pc, dy.inputVector([1, 2])]

    for _ in range(20):
        things = in_thread(other)
        gc.collect()
        assert [str(thing) for thing in things]
        w = things[0]
        assert dy.squared_norm(w).value() > 0 and w.grad_as_array().any()
        things.clear()
        gc.collect()


def test_builders_are_shared(dy: Any) -> None:
    """Two threads run steps of the same builder in turns, each in its own graph."""
    dy.reset_random_seed(3)
    builder = dy.VanillaLSTMBuilder(2, 4, 5, dy.ParameterCollection())
    inputs = [[0.1 * (i + j) for j in range(4)] for i in range(12)]

    def run(pause: Callable[[], Any], times: int) -> list[float]:
        for _ in range(times):
            dy.renew_cg()
            state = builder.initial_state()
            for i in inputs:
                pause()
                state = state.add_input(dy.inputVector(i))
            assert state.prev().b() is builder and builder.initial_state() is not None
        return state.output().value()  # type: ignore[no-any-return]

    alone = run(lambda: None, 1)
    barrier = threading.Barrier(3)
    out: list[list[float]] = []
    threads = [
        threading.Thread(target=lambda n=n: out.append(run(lambda: barrier.wait(60), n))) for n in (4, 4, 4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert out == [alone] * 3


def test_initial_state_is_one_per_graph(dy: Any) -> None:
    builder = builder_of(dy)
    start = builder.initial_state()
    other = in_thread(builder.initial_state)
    assert builder.initial_state().add_input(dy.inputVector([1, 2])).output().dim() == ((2,), 1)
    with pytest.raises(ValueError, match="thread that has ended"):
        other.add_input(dy.inputVector([1, 2]))
    assert start.add_input(dy.inputVector([1, 2])).output().dim() == ((2,), 1)


def test_options_are_of_the_thread(dy: Any) -> None:
    """renew_cg(immediate_compute=True) holds for the graph of its thread only."""

    def other() -> None:
        dy.renew_cg(immediate_compute=True, check_validity=True)
        with pytest.raises(RuntimeError, match="nan|inf|NaN"):
            dy.log(dy.scalarInput(-1.0))

    dy.renew_cg()
    in_thread(other)
    dy.log(dy.scalarInput(-1.0))


def test_checkpoints_are_of_the_thread(dy: Any) -> None:
    x = dy.inputVector([1, 2])
    dy.cg_checkpoint()
    y = x * 2
    in_thread(dy.cg_revert)
    assert y.value() == [2, 4]
    dy.cg_revert()
    assert x.value() == [1, 2]


def mapped() -> int:
    """Address space of this process in KiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmSize"):
            return int(line.split()[1])
    raise RuntimeError("no VmSize in /proc/self/status")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_a_graph_ends_with_its_thread(dy: Any) -> None:
    """Its arenas are given back, also while expressions of it are still there."""
    kept = []

    def other() -> None:
        kept.append(dy.inputVector([1.0] * 1000))
        (kept[-1] * 2).value()

    in_thread(other)
    before = mapped()
    inside = in_thread(lambda: (other(), mapped())[1])
    for _ in range(50):
        in_thread(other)
    grown = mapped() - before
    assert inside - before > 0, "an arena shows in the address space"
    assert grown < (inside - before) / 2, f"50 threads left {grown} KiB, one needs {inside - before}"


def test_a_graph_pins_parameters_until_its_thread_ends(dy: Any) -> None:
    """A thread's graph goes on seeing the values it has read; afterwards they are given up."""
    w = dy.ParameterCollection().add_parameters(3, init=dy.ConstInitializer(1.0))
    read, changed = threading.Event(), threading.Event()
    seen: list[Any] = []

    def other() -> None:
        y = w * 1.0
        seen.append(y.value())
        read.set()
        changed.wait(60)
        seen.append((w * 2.0).value())
        dy.renew_cg()
        seen.append((w * 2.0).value())

    thread = threading.Thread(target=other)
    thread.start()
    read.wait(60)
    w.set_value([5, 6, 7])
    assert w.value() == [5, 6, 7]
    changed.set()
    thread.join()
    assert seen == [[1, 1, 1], [2, 2, 2], [10, 12, 14]]


def test_threads_that_python_did_not_start(dy: Any) -> None:
    """Each call from such a thread is a thread of its own to Python: its graph ends with the call."""
    libc = ctypes.CDLL(None)
    seen: list[Any] = []

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    def start(_: Any) -> None:
        x = dy.inputVector([1, 2])
        seen.append((x, (x * 2).value(), dy.cg_version()))

    for _ in range(3):
        thread = ctypes.c_ulong()
        assert libc.pthread_create(ctypes.byref(thread), None, start, None) == 0
        assert libc.pthread_join(thread, None) == 0
    for x, value, version in seen:
        assert (value, version) == ([2, 4], 0)
        with pytest.raises(ValueError, match="a thread that has ended"):
            x.value()


@pytest.mark.skipif(not hasattr(sys, "_is_gil_enabled"), reason="this Python always has the lock")
def test_the_interpreter_lock_is_claimed(dy: Any) -> None:
    """Parameters are guarded by it: a Python without it turns it on when it imports the module."""
    assert sys._is_gil_enabled()


def test_many_threads(dy: Any) -> None:
    """Threads come and go while others work."""
    w = dy.ParameterCollection().add_parameters((4, 4), init=dy.ConstInitializer(0.5))
    wrong: list[Any] = []

    def work(n: int) -> None:
        for i in range(20):
            dy.renew_cg()
            x = dy.inputVector([float(n), 1.0, 2.0, float(i)])
            value = dy.sum_elems(w * x).value()
            if abs(value - 2.0 * (n + 3 + i)) > 1e-4:
                wrong.append((n, i, value))

    for _ in range(3):
        threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
