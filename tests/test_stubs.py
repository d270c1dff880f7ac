"""The stubs are what tools/make_stubs.py writes, and say what the compiled module has."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="our own types")

ROOT = Path(__file__).resolve().parents[1]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT, env=environment)


def test_generated_stub_is_up_to_date() -> None:
    result = run("tools/make_stubs.py", "--check")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("mypy"), reason="mypy is not installed")
def test_stubtest() -> None:
    result = run(
        "-m", "mypy.stubtest", "dynet_compat", "--concise", "--ignore-unused-allowlist",
        "--mypy-config-file=tools/stubtest.ini", "--allowlist=tools/stubtest.allowlist",
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


def test_allowlist_is_short() -> None:
    lines = (ROOT / "tools" / "stubtest.allowlist").read_text(encoding="utf-8").splitlines()
    assert sum(bool(line) and not line.startswith("#") for line in lines) <= 8


def test_star_imports_have_types(tmp_path: Path) -> None:
    """Type checkers read __all__ without running the package."""
    script = tmp_path / "script.py"
    text = "from dynet_compat import *\nloss = pickneglogsoftmax(inputVector([1.0]), 0)\nsave('f', [])\n"
    script.write_text(text, encoding="utf-8")
    result = run("-m", "mypy", "--config-file=tools/stubtest.ini", "--cache-dir", str(tmp_path), str(script))
    assert result.returncode == 0, result.stdout + result.stderr
