"""What hints look at when a program starts: which files, how much of them, how long."""

from __future__ import annotations

import gc
import importlib.util
import io
import os
import pickle
import subprocess
import sys
import threading
import types
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Optional

import dynet_compat as dy
import pytest
from dynet_compat.hints import runtime
from dynet_compat.hints.rewrite import code_objects, patch, rewriter
from dynet_compat.hints.rewrite.linking import link
from support.hinted_programs import STEPS, F

# ---------------------------------------------------------------- tracers


def traced(module: ModuleType, start: Callable, events: list) -> list:
    """What a tracer hears of the functions of the module."""
    file = module.__file__

    def hear(frame: Any, event: str, _: Any) -> Optional[Callable]:
        if frame.f_code.co_filename == file:
            events.append((frame.f_code.co_name, event, frame.f_lineno))
        return hear

    start(hear)
    try:
        module.use(dy.ones(3))
    finally:
        start(None)
    return events


TRACED = """
    W = dy.ParameterCollection().add_parameters((3, 3), init=0.5)
    def cell(x, h):
        z = dy.tanh(W * x)
        return z + h
    def use(x):
        h = cell(x, x)
        y = cell(h, x) + x
        out = []
        for _ in range(3):
            h = cell(h, y)
            out.append(h)
        out += [cell(e, h) for e in out]
        return dy.esum(out)
    """


@pytest.mark.parametrize("start", [sys.settrace, sys.setprofile])
def test_with_a_tracer_functions_run_as_written(pair: Callable[[str], Any], start: Callable) -> None:
    p = pair(TRACED)
    for _ in range(4):
        p.agree(lambda module: [module.use(dy.ones(3))])
    before = p.hits
    plain, other = traced(p.plain, start, []), traced(p.other, start, [])
    calls = [sum(e[:2] == ("cell", "call") for e in events) for events in (plain, other)]
    assert calls == [8, 8], "a region was recorded in place of a function that is traced"
    assert {e for e in plain if e[1] == "line"} <= set(other)
    assert before > 2 and p.hits == before
    p.agree(lambda module: [module.use(dy.ones(3))])
    assert p.hits > before


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12")
@pytest.mark.parametrize("local", [False, True])
def test_with_monitoring_functions_run_as_written(pair: Callable[[str], Any], local: bool) -> None:
    p = pair(TRACED)
    for _ in range(4):
        p.agree(lambda module: [module.use(dy.ones(3))])
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
    tool, event, seen = 3, monitoring.events.PY_START, []
    monitoring.use_tool_id(tool, "a test")
    try:
        monitoring.register_callback(tool, event, lambda code, _: seen.append(code.co_name))
        if local:
            monitoring.set_local_events(tool, p.other.cell.__code__, event)
        else:
            monitoring.set_events(tool, event)
        p.other.use(dy.ones(3))
        monitoring.set_events(tool, 0)
        if local:
            monitoring.set_local_events(tool, p.other.cell.__code__, 0)
    finally:
        monitoring.free_tool_id(tool)
    assert seen.count("cell") == 8
    before = p.hits
    p.agree(lambda module: [module.use(dy.ones(3))])
    assert p.hits > before


def test_modules_that_are_traced_are_left_alone(own_modules: Any, active: Any) -> None:
    module = own_modules("traced", F)
    code = module.f.__code__
    sys.setprofile(lambda *_: None)
    try:
        active.apply()
        assert module.f.__code__ is code
    finally:
        sys.setprofile(None)
    active.apply()
    assert module.f.__code__ is not code


# ---------------------------------------------------------------- pickles by value


class ByValue(pickle.Pickler):
    """Functions by their code, as cloudpickle does for those of the main module."""

    def reducer_override(self, o: Any) -> Any:
        if isinstance(o, types.FunctionType) and o.__module__.startswith("script"):
            return _function, (o.__code__, {"W": None}, o.__name__, o.__defaults__)
        if isinstance(o, types.CodeType):
            other = ("co_code", "co_lines", "co_positions", "co_lnotab", "co_branches", "co_nlocals")
            names = [n for n in dir(o) if n.startswith("co_") and n not in other]
            return _code, (o.co_code, {n: getattr(o, n) for n in names})
        return NotImplemented


def _function(code: types.CodeType, names: dict, name: str, defaults: Any) -> types.FunctionType:
    return types.FunctionType(code, {**names, "dy": dy, "__builtins__": __builtins__}, name, defaults)


def _code(code: bytes, fields: dict) -> types.CodeType:
    return _function.__code__.replace(co_code=code, co_nlocals=len(fields["co_varnames"]), **fields)


def test_functions_can_be_pickled_by_value(pair: Callable[[str], Any]) -> None:
    p = pair("""
        import numpy as np
        def f(x, k=0.5):
            z = dy.tanh(x) * k
            for _ in range(3):
                z = dy.tanh(z) + x
            best = int(np.argmax(z.npvalue())) if k is None else 0
            return dy.esum([dy.tanh(e) + e for e in [x, z]])
        """)
    for _ in range(4):
        p.agree(lambda module: [module.f(dy.ones(3))])
    assert p.hits > 3
    file = io.BytesIO()
    ByValue(file).dump(p.other.f)
    copy = pickle.loads(file.getvalue())
    for _ in range(3):
        assert copy(dy.ones(3)).npvalue() == pytest.approx(p.plain.f(dy.ones(3)).npvalue())


# ---------------------------------------------------------------- which modules, and what that takes


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("helper.py", True),
        ("package/sub/helper.py", True),
        ("venv/lib/python3.11/site-packages/pkg/a.py", False),
        ("lib/dist-packages/a.py", False),
        ("env/tool/a.py", False),
        ("miniconda/envs/x/lib/a.py", False),
        ("../elsewhere/a.py", False),
    ],
)
def test_which_files_are_the_scripts_own(tmp_path: Path, path: str, own: bool) -> None:
    for marker in ("env/pyvenv.cfg", "miniconda/envs/x/conda-meta/history"):
        (tmp_path / "s" / marker).parent.mkdir(parents=True)
        (tmp_path / "s" / marker).write_text("")
    file = (tmp_path / "s" / path).resolve()
    assert runtime.is_own(str(file), str((tmp_path / "s").resolve()) + "/") is own


def test_installed_packages_are_left_alone(own_modules: Any, active: Any) -> None:
    installed, own = own_modules("installed", F, "venv/lib/site-packages"), own_modules("own", F)
    codes = installed.f.__code__, own.f.__code__
    active.apply()
    assert installed.f.__code__ is codes[0] and own.f.__code__ is not codes[1]


def test_one_module_that_fails_does_not_disable_the_others(
    own_modules: Any,
    active: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Proxy:
        @property
        def __class__(self) -> Any:
            raise RuntimeError("asleep")

    class Odd(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("asleep")

    bad, good = own_modules("bad", F), own_modules("good", F)
    codes = bad.f.__code__, good.f.__code__
    monkeypatch.setitem(sys.modules, "a_proxy", Proxy())
    monkeypatch.setitem(sys.modules, "odd", Odd("odd"))
    (tmp_path / "bad.py").write_text("def f(: dynet")
    active.apply()
    assert bad.f.__code__ is codes[0] and good.f.__code__ is not codes[1]
    assert sum("bad.py is left as it is" in r.getMessage() for r in caplog.records) == 1
    other = own_modules("other", F)
    code = other.f.__code__
    monkeypatch.setattr(rewriter, "Rewriter", None)  # a mistake of ours
    active.apply()
    assert other.f.__code__ is code
    assert sum("other.py is left as it is" in r.getMessage() for r in caplog.records) == 1


def test_lazy_modules_stay_asleep(own_modules: Any, active: Any) -> None:
    own_modules("sleeper", "loaded = True\n" + F, run=False)
    spec = sys.modules["sleeper"].__spec__
    assert spec and spec.loader
    lazy = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    spec.loader = lazy
    lazy.exec_module(module)
    sys.modules["sleeper"] = module
    text = "def __getattr__(name):\n    raise AssertionError(name)\n"
    user = own_modules("user", text + "def f(x):\n    y = sleeper.tanh(x)\n    return y + user.other(x)\n")
    vars(user).update(user=user, sleeper=module)
    active.apply()
    assert "loaded" not in ModuleType.__getattribute__(module, "__dict__"), "a lazy module was loaded"
    code = module.f.__code__  # it is loaded now
    active.apply()
    assert module.f.__code__ is not code


def test_warnings_are_given_once(own_modules: Any, active: Any) -> None:
    module = own_modules("warns", F + "def g(x):\n    assert x is 1\n    return '\\d'\n")
    code = module.f.__code__
    registry: dict = {}

    def warn() -> None:
        warnings.warn_explicit("once", UserWarning, "here.py", 1, registry=registry)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        before = list(warnings.filters)
        warn()
        active.apply()
        warn()
    assert module.f.__code__ is not code
    assert [str(w.message) for w in seen] == ["once"] and before


def test_objects_are_looked_at_once(own_modules: Any, active: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = [own_modules(f"own{i}", F) for i in range(5)]
    looks = []
    find = gc.get_objects
    monkeypatch.setattr(patch.gc, "get_objects", lambda: looks.append(1) or find())
    codes = [module.f.__code__ for module in modules]
    active.apply()
    assert all(module.f.__code__ is not code for module, code in zip(modules, codes))
    active.apply()
    assert len(looks) == 1, "all objects are looked at once for all modules"


def test_no_analysis_is_loaded_without_a_hints_file() -> None:
    code = (
        "import sys, dynet_compat as dy\ndy.renew_cg()\nfrom dynet_compat.hints.rewrite import patch\n"
        "print(*(name for name in sys.modules if name.startswith('dynet_compat.hints.')))"
    )
    environment = {**os.environ, "DYNET_COMPAT_HINTS": "auto"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    loaded = {name.split(".")[2] for name in done.stdout.split()}
    assert loaded == {"runtime", "rewrite", "analysis", "waiting", "tuning"}, done
    assert "dynet_compat.hints.analysis.load" not in done.stdout


def test_only_what_changes_is_compiled() -> None:
    """The old code of a function is compiled to be compared; that of others is not needed."""
    source = (
        "import dynet_compat as dy\n{}@str\ndef other(x):\n    return 1 +\\\n 1\n"
        "class A:\n    def g(self):\n        return 2\n    def f(self, x):\n        return -dy.tanh(x)\n"
        "class B:\n    def f(self): pass\ndef one(x): return dy.tanh(x)\ndef two(x):\n    return one(x) + x\n"
    )
    starts = {"": "\n", "from math import (\n sin)\n": "\r\n", "'\x0c'; s = '\u2028é'\n": "\r"}
    for start, end in starts.items():
        text = source.format(start).replace("\n", end)
        r = rewriter.Rewriter(text.encode(), "x", {"dy": dy})
        codes = link(r.rewritten(), {}).codes
        assert {key[-1][0] for key in codes} == {"f", "two"}
        compiled = compile(text, "x", "exec", dont_inherit=True)
        functions = [c for key, c in code_objects.codes(compiled) if key in codes]
        assert functions == [old for old, _ in codes.values()], (
            "the old code is what Python makes of the file"
        )
        kept = code_objects.source_with(text, r.tree, sorted(key[-1][1] for key in codes))
        assert not any(word in kept for word in ("other", "def g", "class B", "one(x):"))


def test_blocks_in_threads(pair: Callable[[str], Any]) -> None:
    p = pair(STEPS)
    results: list = []

    def work() -> None:
        for _ in range(50):
            dy.renew_cg()
            value = p.other.steps(p.other.step(dy.ones(4)), 5).value()
        results.append(value)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    dy.renew_cg()
    assert len(results) == 4
    for value in results:
        assert value == pytest.approx(p.plain.steps(p.plain.step(dy.ones(4)), 5).value(), abs=1e-6)
