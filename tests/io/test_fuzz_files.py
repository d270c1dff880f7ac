"""Mutated model files: no crash, no hang, no partial load, no code run (support/fuzz_files.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.subject import IS_REFERENCE

CHILD = Path(__file__).resolve().parent.parent / "support" / "fuzz_files.py"
FILES = 400  # by default; DYNET_COMPAT_FUZZ says another number
BATCH = 500


@pytest.mark.skipif(IS_REFERENCE, reason="the reference dies of many of these")
def test_mutated_files(fuzz_count: int) -> None:
    files = max(fuzz_count, FILES)
    outcomes: dict[str, int] = {}
    for seed in range((files + BATCH - 1) // BATCH):
        count = min(BATCH, files - seed * BATCH)
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", str(CHILD), str(seed), str(count)],
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"seed {seed} ended with {done.returncode}:\n{done.stderr[-4000:]}"
        word, survived, found = done.stdout.strip().splitlines()[-1].split(" ", 2)
        assert (word, int(survived)) == ("survived", count)
        for name, number in eval(found, {"__builtins__": {}}).items():  # noqa: S307 - our own text
            outcomes[name] = outcomes.get(name, 0) + number
    print(outcomes)
    assert sum(outcomes.values()) == files and len(outcomes) >= 3, outcomes
