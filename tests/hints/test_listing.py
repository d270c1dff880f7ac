"""The regions that the compile step lists are those of the run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("our own command", allow_module_level=True)
sys.path.insert(0, str(Path(__file__).resolve().parent))
from sources import SCRIPTS, analysed, explained  # noqa: E402

RUN = """
import atexit, runpy, sys
from dynet_compat.hints import runtime
atexit.register(lambda: print("regions", len(runtime.active().regions())))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("name", sorted(path.stem for path in SCRIPTS.glob("*.py")))
def test_their_number_is_that_of_the_run(tmp_path: Path, name: str) -> None:
    script = tmp_path / f"{name}.py"
    script.write_text((SCRIPTS / script.name).read_text(encoding="utf-8"), encoding="utf-8")
    command = [sys.executable, "-m", "dynet_compat", "compile", str(script)]
    compiled = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    environment = {**os.environ, "DYNET_COMPAT_HINTS": f"{script}".replace(".py", ".dyhints")}
    (tmp_path / "run.py").write_text(RUN, encoding="utf-8")
    command = [sys.executable, "-m", "dynet_compat", "run", str(tmp_path / "run.py"), str(script)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    (listed,) = re.findall(r" (\d+) regions?,", compiled)
    assert re.findall(r"regions (\d+)", ran) == [listed]
    assert int(listed) > 2 or name == "bilstm_tagger"


MODULES = {
    "ops.py": "from dynet import *\nimport dynet\nsquash = dynet.tanh\nnumpy = None\n",
    "pkg/__init__.py": "from .inner import tanh as t\n",
    "pkg/inner.py": "try: import dynet as dy\nexcept ImportError: dy = None\nfrom dynet import tanh\n",
}
USES = {
    "dy.tanh(W * x)": True,
    "squash(W * x)": True,  # by another name, from another module
    "logistic(W * x)": True,  # by two stars
    "dynet.exp(W * x)": False,  # a module that is not there under this name
    "pkg.inner.dy.exp(W * x)": True,
    "t(W * x)": True,
    "inner.tanh(W * x)": True,
    "inner.dy.cube(W * x)": True,
    "mine(W * x)": False,
    "numpy.tanh(W * x)": False,
    "zeros((3,)) + W * x": False,  # bound to something else
    "list(W * x)": False,
}


@pytest.mark.parametrize("code", USES)
def test_names_mean_what_the_source_says(tmp_path: Path, code: str) -> None:
    for name, text in MODULES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    text = f"""
        from ops import squash, logistic
        import pkg, pkg.inner
        from pkg import t, inner
        zeros = lambda shape: W
        def mine(x): return dy.tanh(print(x) or x)
        def f(x):
            return {code}
        f(b)
    """
    found = [str(finding) for finding in explained(analysed(tmp_path, text)).regions]
    assert any("f(): line" in line for line in found) == USES[code], found


REASONS = {
    "if x: x = W * x\nelse: x = V * x\nreturn x": "has none: line 19: it records a single op; one op costs",
    "y = dy.esum([W * j for i in x for j in i])\nreturn y": "has none: line 19: a comprehension",
    "y = W * x\ny.value()\nreturn dy.tanh(y)": "has none: line 20: it calls value(); read it in the caller",
    "model.h = dy.tanh(W * x)\nreturn model.h": "it assigns to an attribute or an item; return",
    "return helper(dy.tanh(W * x))": "helper() is not straight-line (line 13: a loop)",
    "return starred(dy.tanh(W * x))": "a function that takes any number of arguments; name its arguments",
    "return decorated(dy.tanh(W * x))": "it calls decorated(), which is decorated or a generator; do",
    "yield dy.tanh(W * x)": "it is decorated, a generator, or looks at its own names; record in",
    "return dy.tanh(W * eval('x'))": "looks at its own names",
}


@pytest.mark.parametrize(("body", "reason"), REASONS.items(), ids=[r[-20:] for r in REASONS.values()])
def test_reasons(tmp_path: Path, body: str, reason: str) -> None:
    text = f"""
        class Model: pass
        model = Model()
        def helper(x):
            for _ in range(3): x = dy.tanh(x)
            return x
        def starred(*x): return dy.tanh(x[0])
        @staticmethod
        def decorated(x): return x
        def f(x):
            {body.replace(chr(10), chr(10) + " " * 12)}
        f(b)
    """
    found = [str(finding) for finding in explained(analysed(tmp_path, text)).regions]
    assert any("f() has none" in line and reason in line for line in found), found
