# ruff: noqa: UP031
"""Random arguments into every public function: any Python exception is fine, a dead process is not.

The calls run in a child (support/fuzz_child.py); on a crash the failure shows the last calls it made.
DYNET_COMPAT_FUZZ multiplies the number of seeds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.subject import IS_REFERENCE, ON_GPU

CHILD = Path(__file__).resolve().parent.parent / "support" / "fuzz_child.py"
SEEDS = max(12, int(os.environ.get("DYNET_COMPAT_FUZZ", "0")) // 100)
CALLS = 1500


@pytest.mark.skipif(IS_REFERENCE, reason="the reference dies of many of these")
@pytest.mark.skipif(ON_GPU, reason="CUDA does not start where memory is limited")
@settings(
    max_examples=SEEDS,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(seed=st.integers(0, 10**9))
def test_no_crash(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "calls.txt"
        with log.open("wb") as stream:
            done = subprocess.run(
                [sys.executable, "-X", "faulthandler", str(CHILD), str(seed), str(CALLS)],
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=stream,
                timeout=300,
                check=False,
            )
        if done.returncode != 0:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-40:])
            pytest.fail(
                "seed %d: the process ended with %d; its last calls:\n%s" % (seed, done.returncode, tail)
            )
        assert "survived" in log.read_text(errors="replace").splitlines()[-1]
