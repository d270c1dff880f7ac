"""examples/demo.py: the columns it prints, with the real DyNet and without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import examples
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="the demo starts both sides itself")


def demo(folder: Path, oracle: str) -> list[str]:
    """The lines that the demo prints for one example."""
    script = folder / "examples" / "demo.py"
    if not script.exists():
        (folder / "examples").mkdir()
        for path in examples.EXAMPLES.glob("*.py"):
            (folder / "examples" / path.name).write_bytes(path.read_bytes())
    environment = {**os.environ, "DYNET_COMPAT_ORACLE": oracle, "XDG_CACHE_HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, str(script), "treelstm", "--scale", "0.4"],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_without_dynet_a_line_says_how_to_get_its_column(tmp_path: Path) -> None:
    lines = demo(tmp_path, "")
    assert lines[1].split()[-4:] == ["here", "unbatched", "DyNet", "ratio"], lines
    row = next(line for line in lines if line.startswith("treelstm")).split()
    assert float(row[-4]) > 0 and float(row[-3]) > 0 and row[-2:] == ["-", "-"], row
    assert "make oracle" in lines[-2] and "DYNET_COMPAT_ORACLE" in lines[-1], lines
    assert not (tmp_path / "dynet_compat" / "reference-py38").exists(), "the demo installed a reference"


@pytest.mark.oracle
def test_with_dynet_the_ratio_is_to_its_better_setting(tmp_path: Path, oracle_python: str) -> None:
    lines = demo(tmp_path, oracle_python)
    row = next(line for line in lines if line.startswith("treelstm")).split()
    here, dynet = float(row[-4]), float(row[-2])
    assert float(row[-1].rstrip("x")) == pytest.approx(here / dynet, rel=0.02), row
    assert not any("make oracle" in line for line in lines), lines
