"""benchmarks/roofline.py and the programs that it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.benchmark_sides import BENCHMARKS, importer, train_four
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="our tools")

load = pytest.fixture(scope="module")(importer)


@pytest.mark.parametrize("name", [
    "MLP", "early exit", "LSTM classifier", "GRU tagger", "own LSTM", "TreeLSTM of ops", "matrix-vector",
    "reader", "biaffine", "siamese"])  # fmt: skip
def test_a_batch_has_the_sum_of_its_instances(load: Any, name: str) -> None:
    assert name in load("programs").PROGRAMS and len(load("programs").PROGRAMS) == 10
    side = load("worker").load_program(name, 8)
    alone, together, losses = train_four(side, 0.05)
    assert together == pytest.approx(alone, rel=1e-5)
    assert losses[-1] < losses[0]


def test_quick_run(tmp_path: Path) -> None:
    output = tmp_path / "rows.json"
    command = [sys.executable, str(BENCHMARKS / "roofline.py"), "--quick", "--programs", "MLP", "own LSTM"]
    command += ["--hidden", "16", "--steps", "2", "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(output.read_text(encoding="utf-8"))
    rows = found["rows"]
    assert [row["gain"] for row in rows] == sorted((row["gain"] for row in rows), reverse=True)
    assert {row["program"] for row in rows} == {"MLP", "own LSTM"}
    assert all(0 < row["reached"] <= 1 and 0 <= row["gain"] <= row["share"] < 1 for row in rows)
    assert any("weights" in row["kind"] for row in rows) and any(row["kind"].startswith("'") for row in rows)


def test_ratios_at_the_bound(load: Any) -> None:
    def row(example: str, hidden: int, ratio: float | None, **other: Any) -> dict[str, Any]:
        about = {"group": "minibatch", "example": example, "hidden": hidden, "batch": 32}
        return {**about, "ratio": ratio, **other}

    results = [{"program": "MLP", "hidden": n, "at_bound": 1 + n / 64} for n in (64, 128, 256)]
    rows = [row("MLP", 64, 1.5), row("MLP", 64, 9.0, batch=64), row("MLP", 64, 9.0, group="single")]
    rows += [row("MLP", 128, None), row("reader", 256, 9.0), row("MLP", 256, 2.0)]
    found = load("roofline").ratios_at_bound(results, {"rows": rows}, 32)
    assert found == [["MLP", 64, 1.5, 3.0], ["MLP", 256, 2.0, 10.0]]


def test_a_bound_is_the_longest_of_three(load: Any) -> None:
    machine = load("roofline").Machine(1e9, [(1000.0, 2e9), (1e6, 1e9)], 1e8, {})

    def bound(**work: Any) -> float:
        return machine.bound({"args": work})

    assert bound(flops=5000.0, bytes=400.0) == pytest.approx(5e-6)
    assert bound(flops=1.0, bytes=500.0) == pytest.approx(500 / 2e9)  # in the cache
    assert bound(flops=1.0, bytes=1e7) == pytest.approx(1e7 / 1e9)
    both = {"ops": ["tanh", "cmult"], "floats": [3000, 3000], "flops": 6000.0, "bytes": 0.0}
    assert bound(direction="forward", **both) == pytest.approx(3e-5)
    assert bound(direction="backward", **both) == pytest.approx(6e-6)
