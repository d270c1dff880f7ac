"""Every scheduler that can be chosen for bisecting gives the unbatched results, also with several threads.

DYNET_COMPAT_SCHEDULER is read when the library starts, so each runs in a child process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.subject import IS_REFERENCE

TESTS = Path(__file__).resolve().parent.parent
SCRIPT = """
import sys
sys.path[:0] = [{tests!r}, {graph!r}]
from support.subject import subject
from support.programs import PATTERNS, Program, run
from test_random_graphs import compare
dy = subject()
for seed in range(80):
    program = Program(seed, 10 + seed % 70, PATTERNS[seed % len(PATTERNS)], seed % 2 == 1)
    compare(program, run(dy, program, True), run(dy, program, False))
print("equal")
"""


@pytest.mark.skipif(IS_REFERENCE, reason="ours to choose")
@pytest.mark.parametrize("scheduler", ["bucket", "depth", "agenda", "none"])
def test_scheduler(scheduler: str) -> None:
    script = SCRIPT.format(tests=str(TESTS), graph=str(TESTS / "graph"))
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "DYNET_COMPAT_SCHEDULER": scheduler},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0 and "equal" in done.stdout, f"{scheduler}:\n{done.stderr[-4000:]}"


@pytest.mark.skipif(IS_REFERENCE, reason="ours to choose")
def test_unknown_scheduler_is_refused_or_named() -> None:
    """A typing error in the variable must not go unnoticed."""
    done = subprocess.run(
        [sys.executable, "-c", "import dynet_compat as dy; dy.renew_cg(); print((dy.ones(2) * 2).value())"],
        env={**os.environ, "DYNET_COMPAT_SCHEDULER": "fastest"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode >= 0
    assert "fastest" in done.stderr, "no word about the unknown scheduler"
