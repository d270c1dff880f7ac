"""Exceptions in instances, interrupts, what is refused inside, and what stays in memory."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

Map = Callable[..., list[Any]]


def read(dy: Any, x: float) -> float:
    return float((dy.scalarInput(x) + 1).value())


# ---------------------------------------------------------------- exceptions


def test_the_first_by_index_is_raised_after_the_others_ended(dy: Any, batch_map: Map) -> None:
    ended = []

    def function(i: int) -> int:
        for _ in range(i + 1 if i != 1 else 9):
            read(dy, i)
        ended.append(i)
        if i in (1, 3):
            raise ValueError(f"in {i}")
        return i

    with pytest.raises(ValueError, match="in 1") as caught:
        batch_map(function, range(5))
    assert sorted(ended) == [0, 1, 2, 3, 4]
    error: Any = caught.value
    assert error.instance == 1
    assert [(i, str(e)) for i, e in error.others] == [(3, "in 3")]
    assert "function" in [entry.name for entry in caught.traceback]
    if sys.version_info >= (3, 11):
        assert error.__notes__ == ["batch_map(): in the function's call for instance 1; 1 more failed"]


def test_return_exceptions(dy: Any, batch_map: Map) -> None:
    def function(i: int) -> int:
        read(dy, i)
        if i % 2:
            raise KeyError(i)
        return i

    results = batch_map(function, range(4), return_exceptions=True)
    assert [r if isinstance(r, int) else r.args for r in results] == [0, (1,), 2, (3,)]


def test_what_cannot_be_computed_fails_where_it_is_read(dy: Any, batch_map: Map) -> None:
    table = dy.ParameterCollection().add_lookup_parameters((3, 2), init=1)

    def function(i: int) -> Any:
        try:
            return table[i].value()
        except (IndexError, ValueError) as error:
            return str(error)

    assert batch_map(function, [0, 7, 2, 9]) == [
        [1, 1],
        "lookup(): expected index < 3, got 7 in /_0",
        [1, 1],
        "lookup(): expected index < 3, got 9 in /_0",
    ]


def test_errors_in_a_batch_map_inside(dy: Any, batch_map: Map) -> None:
    log: list[str] = []

    def inner(j: int) -> int:
        read(dy, j)
        if j == 1:
            raise ValueError("inner")
        read(dy, j)
        log.append(f"inner {j} ended")
        return j

    def outer(i: int) -> Any:
        if i == 1:
            return batch_map(inner, range(3))
        try:
            return batch_map(inner, range(3))
        except ValueError as error:
            read(dy, i)
            return str(error)

    results = batch_map(outer, range(3), return_exceptions=True)
    assert results[0] == results[2] == "inner"
    assert isinstance(results[1], ValueError) and log.count("inner 2 ended") == 3
    with pytest.raises(ValueError, match="inner"):
        batch_map(outer, range(3))


class Abort(BaseException):
    pass


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, Abort, GeneratorExit])
def test_base_exceptions_stop_all_and_unwind_them(dy: Any, batch_map: Map, kind: Any) -> None:
    log: list[Any] = []

    def inner(j: int) -> None:
        try:
            for _ in range(100):
                read(dy, j)
        finally:
            log.append(("inner", j))

    def function(i: int) -> None:
        try:
            if i == 2:
                batch_map(inner, range(2))
            for _ in range(3):
                read(dy, i)
            if i == 1:
                raise kind("stop")
            for _ in range(100):
                read(dy, i)
        except Exception:
            log.append("swallowed")
        finally:
            log.append((i, read(dy, i)))  # values can be read here
            log.append(batch_map(lambda x: x, [i]))  # and instances run, one after the other

    with pytest.raises(kind, match="stop"):
        batch_map(function, range(4))
    assert "swallowed" not in log
    assert [entry for entry in log if isinstance(entry, tuple)] == [
        (1, 2.0), (3, 4.0), ("inner", 1), ("inner", 0), (2, 3.0), (0, 1.0)
    ]  # fmt: skip
    assert batch_map(lambda i: read(dy, i), range(2)) == [1, 2]


def test_a_stop_inside_can_be_caught_outside(dy: Any, batch_map: Map) -> None:
    def inner(j: int) -> None:
        read(dy, j)
        if j == 1:
            raise KeyboardInterrupt
        read(dy, j)

    def outer(i: int) -> Any:
        try:
            batch_map(inner, range(3))
        except KeyboardInterrupt:
            return read(dy, i)

    assert batch_map(outer, range(3)) == [1, 2, 3]


def test_an_instance_that_does_not_let_itself_be_stopped_ends_on_its_own(dy: Any, batch_map: Map) -> None:
    ended = []

    def function(i: int) -> None:
        if i == 1:
            read(dy, i)
            raise KeyboardInterrupt
        for _ in range(4):
            try:
                read(dy, i)
                read(dy, i)
            except BaseException:
                pass
        ended.append(i)

    with pytest.raises(KeyboardInterrupt):
        batch_map(function, range(3))
    assert sorted(ended) == [0, 2]


INTERRUPTED = """
import os, signal, sys, threading, time
import dynet_compat as dy
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background may have it ignored
log = []
def function(i):
    e = dy.scalarInput(i)
    try:
        while True:
            (e + 1).value()
            if i == 2:
                time.sleep(0.001)
    finally:
        log.append(i)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    dy.batch_map(function, range(4), backend=sys.argv[1])
except KeyboardInterrupt:
    print("stopped", sorted(log), threading.active_count())
print(dy.batch_map(lambda i: (dy.scalarInput(i) + 1).value(), range(2), backend=sys.argv[1]))
"""


def test_control_c(dy: Any, backend: str) -> None:
    program = [sys.executable, "-c", INTERRUPTED, backend]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300)
    assert done.stdout == "stopped [0, 1, 2, 3] 1\n[1.0, 2.0]\n", done.stdout + done.stderr
    assert done.stderr == ""


TAKEN_BACK = """
import sys, threading
from dynet_compat.fibers import Interrupt
class Task:
    fiber = threading.Thread(target=threading.Event().wait, daemon=True)
Task.fiber.start()
interrupt = Interrupt(KeyboardInterrupt())
try:
    interrupt.settle(Task, lost=True)
except KeyboardInterrupt:
    pass
def function(): ...
sys.setprofile(lambda *event: None)
function()
sys.setprofile(None)
print("goes on")
"""


def test_an_interrupt_that_was_taken_back() -> None:
    """Python 3.11 looked for it for ever where functions are profiled."""
    program = [sys.executable, "-c", TAKEN_BACK]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300)
    assert done.stdout == "goes on\n", done.stdout + done.stderr


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs setitimer")
@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="needs the main thread")
def test_a_signal_handler_that_raises(dy: Any, batch_map: Map) -> None:
    class Late(Exception):
        def __init__(self, limit: float) -> None:
            self.limit = limit

    def late(*_: Any) -> None:
        raise Late(0.2)

    def function(i: int) -> None:
        while True:
            read(dy, i)

    before = signal.signal(signal.SIGALRM, late)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        start = time.monotonic()
        with pytest.raises(Late) as caught:
            batch_map(lambda i: function(i) if i == 1 else read(dy, i), range(3))
        assert caught.value.limit == 0.2 and time.monotonic() - start < 20
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_when_there_are_no_more_threads(dy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start
    most = 3

    def limited(thread: threading.Thread) -> None:
        if threading.active_count() > most:
            raise RuntimeError("can't start new thread")
        start(thread)

    def function(i: int) -> float:
        return read(dy, i) + read(dy, i)

    monkeypatch.setattr(threading.Thread, "start", limited)
    assert dy.batch_map(function, range(20), backend="threads") == [2.0 * i + 2 for i in range(20)]
    most = 0
    with pytest.raises(RuntimeError, match="can't start new thread") as caught:
        dy.batch_map(function, range(3), backend="threads")
    assert len(caught.value.others) == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("kept", [True, False])
def test_an_instance_that_goes_away(dy: Any, kept: bool) -> None:
    greenlet = pytest.importorskip("greenlet")
    keep: list[Any] = []

    def function(i: int) -> int:
        read(dy, i)
        if i == 1:
            keep.extend([greenlet.getcurrent()] * kept)
            greenlet.getcurrent().parent.switch()
        return i

    error, message = (
        (RuntimeError, r"instances \[1\] switched to another") if kept else (greenlet.GreenletExit, None)
    )
    with pytest.raises(error, match=message):
        dy.batch_map(function, range(3), backend="greenlet")
    keep.clear()
    assert dy.batch_map(lambda i: read(dy, i), range(3), backend="greenlet") == [1, 2, 3]


INTERRUPTED_ANYWHERE = """
import random, signal, sys, threading, time
import dynet_compat as dy
backend = sys.argv[1]
random.seed(3)
opened = closed = stopped = lost = 0

def stop(*_):
    raise KeyboardInterrupt

def read(i):
    global opened, closed
    opened += 1
    try:
        for _ in range(8):
            (dy.scalarInput(i) + 1).value()
    finally:
        closed += 1
    return i

def function(i):
    if i == 2:
        for _ in range(3):
            assert dy.batch_map(read, range(2)) == [0, 1]
    return read(i)

signal.signal(signal.SIGALRM, stop)
for _ in range(60):
    dy.renew_cg()
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0002, 0.004))
        assert dy.batch_map(function, range(4), backend=backend) == [0, 1, 2, 3]
        time.sleep(1)
        lost += 1  # Python ignores an exception in a weak reference's callback
    except KeyboardInterrupt:
        stopped += 1
    assert dy.batch_map(read, range(2), backend=backend) == [0, 1]
print(stopped + lost, stopped > lost, opened - closed)
"""


def test_interrupts_at_any_moment(dy: Any, backend: str) -> None:
    program = [sys.executable, "-c", INTERRUPTED_ANYWHERE, backend]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300)
    assert done.stdout == "60 True 0\n", done.stdout + done.stderr


# ---------------------------------------------------------------- what is refused


def checks(dy: Any) -> dict[str, tuple[Callable[[], Any], str]]:
    pc = dy.ParameterCollection()
    w, table = pc.add_parameters(2, init=1), pc.add_lookup_parameters((2, 2), init=1)
    trainer = dy.SimpleSGDTrainer(pc)
    lstm, gru = dy.LSTMBuilder(1, 2, 2, pc), dy.GRUBuilder(1, 2, 2, pc)
    compact = dy.CompactVanillaLSTMBuilder(1, 2, 2, pc)
    tree = dy.NaryTreeLSTMBuilder(2, 1, 2, 2, pc)
    outside = dy.scalarInput(1)
    vector = dy.inputVector([1, 2])
    row, picked = table[0], dy.inputVector([1, 2])[0]
    return {
        "renew_cg": (dy.renew_cg, r"renew_cg\(\).*call it before batch_map"),
        "backward": (lambda: (w[0] * 2).backward(), r"backward\(\).*return the loss"),
        "update": (trainer.update, r"update\(\).*call it after backward"),
        "checkpoint": (dy.cg_checkpoint, r"cg_checkpoint\(\).*call it before"),
        "revert": (dy.cg_revert, r"cg_revert\(\).*other instances"),
        "set_value": (lambda: w.set_value([1, 2]), r"values of parameter /_0.*before or after"),
        "zero": (w.zero, "values of parameter"),
        "scale": (lambda: w.scale(2), "values of parameter"),
        "init_row": (lambda: table.init_row(0, [1, 2]), "values of parameter"),
        "new parameter": (lambda: pc.add_parameters(3), "values of parameter"),
        "set of another's input": (lambda: outside.set(2), r"set\(\).*make it inside the function"),
        "set of another's vector": (lambda: vector.set([2, 3]), r"set\(\).*make it inside"),
        "set of another's row": (lambda: row.set(1), r"set\(\).*make it inside"),
        "set of another's index": (lambda: picked.set_index(1), r"set\(\).*make it inside"),
        "dropout": (lambda: lstm.set_dropout(0.5), r"set_dropout\(\).*before batch_map"),
        "dropouts": (lambda: lstm.set_dropouts(0.5, 0.1), r"set_dropouts\(\).*before batch_map"),
        "GRU dropout": (lambda: gru.set_dropout(0.5), r"set_dropout\(\).*before batch_map"),
        "tree dropout": (lambda: tree.set_dropout(0.5), r"set_dropout\(\).*before batch_map"),
        "noise": (lambda: compact.set_weightnoise(0.5), r"set_weightnoise\(\).*before batch_map"),
    }


@pytest.mark.parametrize("what", list(checks(pytest.importorskip("dynet_compat"))))
def test_refused_inside(dy: Any, batch_map: Map, what: str) -> None:
    call, message = checks(dy)[what]

    def function(i: int) -> Any:
        (dy.scalarInput(i) + 1).value()
        with pytest.raises(RuntimeError, match=message):
            call()
        return (dy.scalarInput(i) + 1).value()  # it goes on

    assert batch_map(function, range(2)) == [1, 2]
    if what not in ("revert",):
        call()  # outside it is allowed


def test_settings_that_do_not_change_are_allowed(dy: Any, batch_map: Map) -> None:
    lstm = dy.LSTMBuilder(1, 2, 2, dy.ParameterCollection())
    lstm.set_dropout(0.25)
    batch_map(lambda _: lstm.set_dropout(0.25), range(2))
    lstm.disable_dropout()
    batch_map(lambda _: lstm.disable_dropout(), range(2))


def test_inputs_of_the_instance_can_be_set(dy: Any, batch_map: Map) -> None:
    def function(x: float) -> list[float]:
        e = dy.scalarInput(x)
        y = e * 2
        values = [y.value()]
        e.set(x + 1)
        values.append(y.value())
        dy.cg_version()
        return values

    assert batch_map(function, [1, 2, 3]) == [[2, 4], [4, 6], [6, 8]]


def test_no_second_draw(dy: Any, batch_map: Map) -> None:
    """Setting an input computes all again, and would draw again for all instances."""

    def function(x: float) -> Any:
        e = dy.scalarInput(x)
        noisy = dy.noise(e, 0.1)
        noisy.value()
        with pytest.raises(RuntimeError, match="would draw all random numbers again"):
            e.set(2)
        with pytest.raises(RuntimeError, match=r"recalculate=True\).*record the expressions again"):
            noisy.value(recalculate=True)
        with pytest.raises(RuntimeError, match="recalculate=True"):
            noisy.forward(recalculate=True)

    batch_map(function, range(2))


# ---------------------------------------------------------------- memory


class Payload:
    pass


@pytest.mark.parametrize("outcome", ["result", "error", "stop", "nested"])
def test_nothing_is_left(dy: Any, batch_map: Map, outcome: str) -> None:
    """Without the help of the cycle collector."""
    alive: list[weakref.ref[Any]] = []

    def function(x: Any) -> None:
        local = Payload()
        alive.append(weakref.ref(local))
        read(dy, 1)
        if outcome == "nested" and x is not None:
            batch_map(function, [None, None])
        if outcome == "error":
            raise ValueError
        if outcome == "stop":
            raise KeyboardInterrupt
        read(dy, 1)

    arguments = [Payload() for _ in range(4)]
    alive += [weakref.ref(x) for x in arguments]
    gc.collect()
    gc.disable()
    try:
        try:
            batch_map(function, arguments)
        except (ValueError, KeyboardInterrupt):
            pass
        del arguments
        assert [r() for r in alive if r() is not None] == []
    finally:
        gc.enable()
    assert not [t for t in threading.enumerate() if t.name.startswith("batch_map")]


def test_fibers_are_used_again(dy: Any) -> None:
    greenlet = pytest.importorskip("greenlet").greenlet
    for n in (5, 1500, 5):
        dy.batch_map(lambda i: read(dy, i), range(n), backend="greenlet")
    gc.collect()
    idle = [o for o in gc.get_objects() if type(o) is greenlet and o and o is not greenlet.getcurrent]
    assert len(idle) <= 1026


EXIT = """
import threading
import dynet_compat as dy
def work():
    print(dy.batch_map(lambda i: (dy.scalarInput(i) + 1).value(), range(3), backend="greenlet"))
thread = threading.Thread(target=work)
thread.start()
thread.join()
work()
"""


def test_threads_and_processes_end_with_idle_fibers(dy: Any) -> None:
    pytest.importorskip("greenlet")
    done = subprocess.run([sys.executable, "-c", EXIT], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[1.0, 2.0, 3.0]\n" * 2, "")
