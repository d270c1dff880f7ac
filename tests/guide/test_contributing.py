"""CONTRIBUTING.md's "Add an op in three files", done: its snippets are applied to a copy, which is built.

The copy is an unpacked sdist, and pip makes a package of it without a network: an sdist is complete. It lies
in build/walkthrough and keeps its objects, so that a later run compiles what has changed since.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.sdists import QUICK, kept_folder, sync, unpacked_sdist
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("our own documentation", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "CONTRIBUTING.md"
BLOCK = re.compile(r"^```(\w+) ([^\n]*)\n(.*?)^```$", re.M | re.S)


def snippets() -> list[tuple[str, str]]:
    """(file, diff) of each change that the page shows."""
    found = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    return [(rest, text) for language, rest, text in found if language == "diff"]


def commands() -> str:
    found = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    return "".join(text for language, rest, text in found if (language, rest) == ("sh", "walkthrough"))


def applied(text: str, diff: str, name: str) -> str:
    """The text after one change: its context and removed lines must be there once."""
    lines = diff.splitlines(keepends=True)
    assert all(line[0] in "+- \n" for line in lines), f"not a diff: {diff}"
    old = "".join(line[1:] for line in lines if line[0] in "- ").rstrip("\n")
    new = "".join(line[1:] or "\n" for line in lines if line[0] in "+ \n").rstrip("\n")
    assert text.count(old) == 1, f"{name} has {text.count(old)} times:\n{old}"
    return text.replace(old, new)


def changes(source: Path) -> dict[str, str]:
    """The files that the page changes, with its changes."""
    changed: dict[str, str] = {}
    for name, diff in snippets():
        changed[name] = applied(changed.get(name) or (source / name).read_text(encoding="utf-8"), diff, name)
    return changed


def run(command: list[str], folder: Path, **environment: str) -> str:
    result = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=1500
    )
    shown = f"{shlex.join(command)} fails:\n{result.stdout[-6000:]}\n{result.stderr[-6000:]}"
    assert result.returncode == 0, shown
    return result.stdout


def test_three_files() -> None:
    assert len({name for name, _ in snippets()}) == 3
    assert len(snippets()) == 4


def test_snippet_that_does_not_fit_is_refused() -> None:
    with pytest.raises(AssertionError, match="0 times"):
        applied("a\nb\n", "-c\n+d\n", "file")
    assert applied("a\nb\nc\n", "-b\n+x\n+\n+y\n c\n", "file") == "a\nx\n\ny\nc\n"


@pytest.mark.slow
def test_walkthrough(tmp_path: Path) -> None:
    needed = ("pip", "scikit_build_core", "pybind11")
    if any(importlib.util.find_spec(name) is None for name in needed):
        pytest.skip("needs pip and the build requirements")
    if not (os.environ.get("CXX") or shutil.which("c++")):
        pytest.skip("needs a C++ compiler")
    work = kept_folder("walkthrough", tmp_path)
    tree, site = work / "tree", tmp_path / "site"
    source = unpacked_sdist(tmp_path)
    sync(source, tree, changes(source))
    settings = [f"--config-settings={setting}" for setting in (*QUICK, f"build-dir={work / 'objects'}")]
    run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index",
         "--no-build-isolation", "--no-deps", "--target", str(site), *settings, str(tree)], work)  # fmt: skip
    shell = f'python() {{ {shlex.quote(sys.executable)} "$@"; }}\nset -e\n{commands()}'
    output = run(["bash", "-c", shell], tree, PYTHONPATH=str(site), PYTEST_ADDOPTS="-vv")
    # what has run, by the tests' own names, on the new op
    for wanted in ("test_formula", "test_copies", "test_ragged", "test_finite_differences", "test_function",
                   "test_documentation", "test_cases"):  # fmt: skip
        assert re.search(rf"::{wanted}\[softplus[^\]]*\] PASSED", output), f"{wanted}:\n{output[-4000:]}"
    assert len(re.findall(r"::test_formula\[softplus[^\]]*\] PASSED", output)) == 14
    stub = (tree / "python" / "dynet_compat" / "_core.pyi").read_text(encoding="utf-8")
    assert "def softplus(x: Expression)" in stub
