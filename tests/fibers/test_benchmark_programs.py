"""The programs of benchmarks/fibers.py: what batch_map gives, and how often it computes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def fibers() -> Iterator[Any]:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import fibers

        yield fibers
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.mark.parametrize("name", ["GreedyParser", "TreeGenerator", "TreeGeneratorTogether", "EarlyExit"])
def test_same_outputs_and_flushes_of_the_longest(dy: Any, fibers: Any, backend: str, name: str) -> None:
    program = getattr(fibers, name)(12, count=16)
    plain = fibers.plain_program(program) if hasattr(program, "together") else program
    assert fibers.batched(program, backend) == fibers.plain_loop(plain)
    done = fibers.counts(lambda: fibers.batched(program, backend))
    alone = fibers.counts(lambda: fibers.plain_loop(plain))
    assert done["nodes"] <= alone["nodes"]
    assert alone["flushes"] > fibers.longest(plain)
    if name == "TreeGeneratorTogether":
        assert done["flushes"] <= program.MOST + 1
    else:
        assert done["flushes"] <= fibers.longest(program) + 1


def test_the_benchmark_runs(dy: Any) -> None:
    command = [sys.executable, str(BENCHMARKS / "fibers.py"), "--hidden=8", "--batch=4", "--repeats=1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 6
