"""What a script does beside recording is as without hints: files, signals, frames, tracers and pickles."""

from __future__ import annotations

import ast
import dataclasses
import gc
import signal
import subprocess
import sys
import textwrap
import time
import traceback
import unittest.signals
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

import dynet_compat as dy
import pytest
from dynet_compat.hints.rewrite import rewriter
from support.hinted_programs import STEPS, F, environment

MODEL = """
    m = dy.ParameterCollection()
    W = m.parameters_from_numpy(__import__("numpy").linspace(-1, 1, 9).reshape(3, 3))
    """


def program(folder: Path, text: str, hints: str, name: str = "main.py") -> tuple[int, str, str]:
    """Status, output and errors of a script of its own process."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("import dynet_compat as dy\n" + textwrap.dedent(MODEL) + textwrap.dedent(text))
    done = subprocess.run(
        [sys.executable, name],
        cwd=folder,
        env=environment(hints),
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout, done.stderr


# ---------------------------------------------------------------- lifetimes

LEFT_OPEN = """
    class Log:
        def __init__(self, name):
            self.file = open(name, "w")
            self.end = DEFAULT
        def step(self, x):
            self.file.write("line\\n")
            h = dy.tanh(W * x)
            return dy.squared_norm(shifted(h, x))
        def __del__(self):
            print("gone", flush=True)
    def shifted(h, x, log=open("default.txt", "w"), *, named=open("named.txt", "w")):
        log.write("line\\n")
        named.write("line\\n")
        y = h + x
        return y + y
    DEFAULT = 1
    log = Log("o.txt")
    def main():
        for i in range(30):
            dy.renew_cg()
            x = dy.inputVector([1, 2, 3])
            if i == 29 and FAIL:
                x = dy.inputVector([1, 2])
            print("%.5f" % log.step(x).value(), flush=True)
    """


@pytest.mark.parametrize("fail", [False, True])
def test_files_left_open_are_flushed(tmp_path: Path, fail: bool) -> None:
    text = LEFT_OPEN.replace("FAIL", str(fail)) + "main()\n"
    found = []
    for hints in ("off", "eager"):
        done = program(tmp_path / hints, text, hints)
        files = {f.name: f.read_text() for f in sorted((tmp_path / hints).glob("*.txt"))}
        found.append((done[:2], done[2].replace(hints, ""), files))
    assert found[0] == found[1], "under hints (second) the files or the output are others"
    assert found[1][2]["o.txt"].count("line") == 30 and "gone" in found[1][0][1]


def test_blocks_let_their_module_go(pair: Callable[[str], Any]) -> None:
    p = pair("""
        class Sentinel: pass
        W = dy.ParameterCollection().add_parameters((3, 3), init=0.5)
        kept = Sentinel()
        def shifted(h, x, kept=kept): return dy.tanh(h + x) + h
        def f(x, fail=False):
            h = dy.tanh(W * x)
            y = shifted(h, x, None) + x
            return y + dy.inputVector([1, 2]) if fail else y
        """)
    import weakref

    for _ in range(5):
        p.agree(lambda module: [module.f(dy.ones(3))])
    assert p.hits > 2
    with pytest.raises(Exception):  # noqa: B017
        p.other.f(dy.ones(4)).value()
    gone = weakref.ref(p.other.kept)
    del sys.modules[p.other.__name__], p.other
    p.rewriter = None
    gc.collect()
    assert gone() is None, "what regions know keeps a global of the script alive"


def test_what_failed_is_let_go(pair: Callable[[str], Any]) -> None:
    p = pair("""
        def f(x, y):
            z = dy.tanh(x[0] * y)
            return z + x[0]
        """)

    class Items(list):
        pass

    import weakref

    items = Items([dy.ones((2, 2))])
    gone = weakref.ref(items)
    with pytest.raises(ValueError):
        p.other.f(items, dy.ones(3))
    del items
    gc.collect()
    assert gone() is None, "a region that failed keeps what it has read"


# ---------------------------------------------------------------- signals


class Late(Exception):
    pass


@pytest.mark.parametrize("kind", [Late, NameError])
def test_exceptions_of_handlers_arrive(pair: Callable[[str], Any], kind: type) -> None:
    p = pair(STEPS)

    def ring(*_: Any) -> None:
        raise kind("late")

    before = signal.signal(signal.SIGALRM, ring)
    arrived = 0
    try:
        for k in range(20):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.004 + 0.001 * k)
                end = time.monotonic() + 2
                while time.monotonic() < end:
                    dy.renew_cg()
                    for _ in range(20):
                        p.other.step(dy.ones(4))
                        p.other.steps(dy.ones(4), 3)
            except kind:
                arrived += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert arrived == 20 and p.hits > 1000


def test_a_handler_that_fails_while_the_ops_are_listed() -> None:
    """The table of ops is made when the first function is looked at."""
    table = dy._core.op_table()

    def ring(*_: Any) -> None:
        raise Late("late")

    before = signal.signal(signal.SIGALRM, ring)
    arrived = 0
    try:
        for _ in range(100):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.001)
                for _ in range(1000):
                    assert dy._core.op_table() == table
                time.sleep(1)
            except Late:
                arrived += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    assert arrived == 100


def test_exceptions_of_handlers_arrive_where_regions_are_given_up(pair: Callable[[str], Any]) -> None:
    """20,000 functions with one region get their old code back in one call, which takes a while."""
    source = "def make():\n  def f(x, s):\n    z = dy.tanh(x)\n    return z * s\n  return f\n"
    source += "fs = [make() for _ in range(20000)]\n"

    def ring(*_: Any) -> None:
        raise Late("late")

    before = signal.signal(signal.SIGALRM, ring)
    calls, arrived = 0, 0
    x = dy.inputVector([1, 2])
    try:
        for alarm in (False, True):
            fs = pair(source).other.fs
            new = fs[0].__code__
            for i in range(calls - 1 if alarm else 10000):
                fs[0](x, float(i))
                if fs[0].__code__ is not new:
                    calls = i + 1
                    break
            if alarm:
                assert fs[-1].__code__ is new
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.0005)
                    fs[0](x, float(calls - 1))
                    time.sleep(1)
                except Late:
                    arrived += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    assert calls > 100 and fs[-1].__code__ is not new and arrived == 1


def test_names_without_values_fail_where_they_are_read(pair: Callable[[str], Any]) -> None:
    p = pair("""
        def f(x, n):
            if n:
                late = dy.exp(x)
            y = dy.tanh(x) + x
            return dy.cmult(y, late) + y
        def g(x, n):
            if n:
                late = dy.exp(x)
            return [dy.tanh(e) + late for e in [x, x]]
        def h(x, flag):
            if not flag:
                late = x
            y = dy.tanh(x if flag else late)
            return y + dy.tanh(y)
        """)
    for flag in (True, True, True, False, True):
        for name in "fgh":
            p.agree(lambda module, n=name, flag=flag: [getattr(module, n)(dy.ones(3), flag)])
    assert p.hits > 3


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int = 0


def handler_of(kind: type) -> Any:
    def handler(*_: Any) -> None:
        raise kind

    return handler


of_unittest = unittest.signals._InterruptHandler(signal.default_int_handler)  # as with installHandler()


@pytest.mark.parametrize(
    ("kind", "handler", "frames"),
    [(kind, handler_of(kind), ["handler"]) for kind in (Late, SystemExit, TimeoutError, Frozen)]
    + [(KeyboardInterrupt, signal.default_int_handler, []), (KeyboardInterrupt, of_unittest, ["__call__"])],
)
def test_signals_arrive_in_the_first_renewal(
    own_modules: Any, active: Any, monkeypatch: pytest.MonkeyPatch, kind: type, handler: Any, frames: list
) -> None:
    module = own_modules("first", F)
    code = module.f.__code__
    parse = ast.parse

    def interrupted(*arguments: Any) -> Any:
        monkeypatch.setattr(rewriter.ast, "parse", parse)
        signal.raise_signal(signal.SIGALRM)
        return parse(*arguments)

    interrupted.__code__ = interrupted.__code__.replace(co_filename=ast.__file__)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        monkeypatch.setattr(rewriter.ast, "parse", interrupted)
        with pytest.raises(kind) as raised:
            dy.renew_cg()
    finally:
        signal.signal(signal.SIGALRM, before)
    names = [at.name for at in traceback.extract_tb(raised.value.__traceback__)]
    assert names == ["test_signals_arrive_in_the_first_renewal", *frames]
    assert module.f.__code__ is code
    dy.renew_cg()
    assert module.f.__code__ is not code, "after the signal the next renew_cg() looks at the modules again"


# ---------------------------------------------------------------- frames


FRAMES = """
    import builtins, sys
    W = dy.ParameterCollection().add_parameters((3, 3), init=0.5)
    ev = eval
    def names():
        return sorted(sys._getframe(1).f_locals)
    def query(text):
        return eval(text, {}, sys._getframe(1).f_locals)
    class Log:
        def __init__(self): self.seen = []
        def see(self): self.seen.append(names_of(sys._getframe(1)))
    def names_of(frame):
        return sorted(frame.f_locals)
    def inner_value(x):
        h = dy.tanh(W * x)
        y = h + x
        z = dy.cmult(h, y)
        return query("h + y"), ev("h + z"), names(), sorted(builtins.locals())
    def loop(x, n):
        for i in range(n):
            a = dy.tanh(W * x)
            b = a + x
            x = dy.logistic(b)
        return names(), query("a + b") if n else None, x
    def branches(x, log, other):
        if other:
            h = dy.tanh(x)
            t = h + x
        else:
            h = dy.logistic(x)
        y = dy.tanh(W * h) + x
        log.see()
        z = dy.cmult(dy.tanh(y), log and y) + dy.esum([e + y for e in [x, h]])
        out = []
        out.append(dy.tanh(z))
        log.see()
        return dy.tanh(slow(z)) + y, names(), out
    def slow(x):
        sys.intern("x")
        return x
    def failing(x, y):
        z = dy.tanh(x) + x
        out = [dy.tanh(e) + e for e in [x, z]]
        return z + y
    """


def test_frames_have_the_names_of_the_script(pair: Callable[[str], Any]) -> None:
    p = pair(FRAMES)

    def use(module: ModuleType) -> list:
        log = module.Log()
        out: list = []
        for k in range(6):
            out += [module.inner_value(dy.ones(3)), module.loop(dy.ones(3), k)]
            out += [module.branches(dy.ones(3), log, k % 2)]
        return out + log.seen

    for _ in range(3):
        p.agree(use)
    assert p.hits > 30


def traceback_of(call: Callable[[], Any]) -> list:
    """(function, line, names) of the frames that an exception has gone through."""
    try:
        call()
    except Exception as error:  # noqa: BLE001
        found, at = [], error.__traceback__
        while at is not None:
            frame = at.tb_frame
            names = sorted(frame.f_locals) if frame.f_code.co_name == "failing" else None
            found.append((frame.f_code.co_name, at.tb_lineno, names))
            at = at.tb_next
        return [type(error), *found[1:]]
    return []


def test_tracebacks_are_those_of_the_script(pair: Callable[[str], Any]) -> None:
    p = pair(
        FRAMES
        + """
    def many(x, ys):
        return [
            dy.tanh(x)
            + shifted(x, y)
            for y in ys
        ]
    def shifted(x, y):
        z = dy.tanh(x) + x
        return dy.cmult(z, y)
    def appended(x, y, out):
        z = dy.tanh(x) + x
        out.append(
            dy.cmult(z,
                     y))
    """
    )
    ones = dy.ones(3)
    for module in (p.plain, p.other):
        for _ in range(4):
            module.failing(ones, ones)
            module.many(ones, [ones, ones])
            module.appended(ones, ones, [])
    bad = dy.ones(4)
    for call in (
        lambda m: m.failing(ones, bad),
        lambda m: m.many(ones, [ones, ones, bad]),
        lambda m: m.appended(ones, bad, []),
        lambda m: m.appended(ones, ones, None),
    ):
        plain, other = (traceback_of(lambda c=call, m=m: c(m)) for m in (p.plain, p.other))
        assert plain and plain == other
    assert p.hits > 4
