"""Programs that run with and without hints."""

from __future__ import annotations

import importlib.util
import os
import sys
import textwrap
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

import dynet_compat as dy
import pytest
from dynet_compat.hints import runtime


def environment(hints: str) -> dict[str, str]:

    return {**os.environ, "DYNET_COMPAT_HINTS": hints}


STEPS = """
    W = dy.ParameterCollection().add_parameters((4, 4), init=0.5)
    def step(x):
        h = dy.tanh(W * x)
        h = dy.tanh(W * h + x)
        h = dy.tanh(W * h + x)
        return dy.logistic(W * h)
    def steps(x, n):
        hs = [dy.tanh(W * x) + x for _ in range(n)]
        for h in hs:
            x = dy.tanh(W * x + h)
        return x
    """


@pytest.fixture
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """Writes and loads modules of a script in that folder."""
    monkeypatch.setattr(runtime, "_script_folder", lambda: str(tmp_path.resolve()) + "/")

    def load(name: str, text: str, under: str = "", run: bool = True) -> ModuleType:
        path = tmp_path.resolve() / under / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("import dynet_compat as dy\n" + textwrap.dedent(text))
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        if run:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                spec.loader.exec_module(module)
        return module

    return load


F = "def f(a, b):\n    c = a * b\n    d = c + a\n    return d - b\n"


@pytest.fixture
def active(monkeypatch: pytest.MonkeyPatch) -> Any:
    new = runtime.Active(None, {}, {})
    dy._core._on_renew(new.on_renew)
    yield new
    dy._core._on_renew(runtime._active.on_renew if runtime._active else None)
