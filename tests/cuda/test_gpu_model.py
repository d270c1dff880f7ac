"""The latency model of benchmarks/gpu_model.py, and the counts that it rests on: they must not grow."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.subject import IS_REFERENCE

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="the devices are ours")

# Of a minibatch of 8, at most: steps on the device for each planned launch (a level of a recurrence is one),
# flushes, uploads and downloads for each of these.
MOST = {
    "TreeLSTM": (1.9, 1, 1.0, 1.0),
    "MV-RNN": (1.05, 1, 1.0, 1.0),
    "BiRNN": (2.7, 1, 1.0, 1.0),
    "NestedRNN": (3.95, 1, 1.0, 1.0),  # a recurrence inside another is planned as few launches
    "DRNN": (0.45, 95, 1.05, 1.0),
    "Berxit": (2.0, 13, 1.0, 1.0),
    "StackRNN": (0.65, 80, 1.05, 1.0),
}


@pytest.fixture(scope="module")
def decoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    file = tmp_path_factory.mktemp("decoders") / "counts.json"
    command = [sys.executable, str(BENCHMARKS / "gpu_model.py"), "--decoders", "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, dict[str, float]] = json.loads(file.read_text(encoding="utf-8"))
    return found


DECODERS = ["greedy", "sampling", "subtracting", "gumbel", "drawing", "categorical", "side by side",
            "early exit"]  # fmt: skip


@pytest.mark.parametrize("name", DECODERS)
def test_a_step_of_decoders_is_one_transfer_each_way(
    decoders: dict[str, dict[str, float]], name: str
) -> None:
    """Of 64 instances together; the first step also uploads the states that they begin with. Without
    batch_map it finds out that all instances are read; Gumbel noise is drawn on the host."""
    told = decoders[name]
    more, uploads = 3 if name == "side by side" else 1, 2 if name == "gumbel" else 1
    assert told["fewest"] < told["steps"] if name == "early exit" else told["fewest"] == 12, told
    assert told["steps"] <= told["flushes"] <= told["steps"] + more, told
    assert told["downloads"] <= told["flushes"] and told["uploads"] <= uploads * told["flushes"] + 1, told


def test_all_decoders_are_checked(decoders: dict[str, dict[str, float]]) -> None:
    assert list(decoders) == DECODERS


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Of the small size, by model."""
    file = tmp_path_factory.mktemp("model") / "rows.json"
    command = [sys.executable, str(BENCHMARKS / "gpu_model.py"), "--batches", "8", "--json", str(file)]
    done = subprocess.run(
        [*command, "--models", *MOST], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "geometric mean" in done.stdout
    found = json.loads(file.read_text(encoding="utf-8"))
    return {row["model"]: row for row in found if row["size"] == "small"}


@pytest.mark.parametrize("name", MOST)
def test_counts_do_not_grow(rows: dict[str, dict[str, Any]], name: str) -> None:
    counts = rows[name]["counts"]
    found = (counts["steps"] / counts["launches"], counts["flushes"],
             counts["uploads"] / counts["flushes"], counts["downloads"] / counts["flushes"])  # fmt: skip
    assert all(value <= most for value, most in zip(found, MOST[name])), (found, MOST[name])
    assert counts["products"] > 0 and rows[name]["waits"] > 0


@pytest.mark.parametrize("name", MOST)
def test_estimates(rows: dict[str, dict[str, Any]], name: str) -> None:
    """Faster than DyNet's way, and the parts add up."""
    row = rows[name]
    device = min(row["plain"], row["graph"], row["persistent"])
    assert row["ratio"] > 1 and row["total"] >= row["host"] + device
    assert row["dominates"] in ("recording", "flushes", "operations", "steps")


def test_what_dominates_follows_the_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    model = importlib.import_module("gpu_model")
    n = model.Counts(1000, 1, 10, 100, 50, 20, 30, 1, 1, 8)
    chosen = {"launch": 3.0, "kernel": 2.0, "graph_kernel": 1.6, "product": 1.5, "link": 0.7}
    assert chosen.keys() < model.CONSTANTS.keys()
    c = {**model.CONSTANTS, **chosen}
    told = model.estimate(n, n, 140.0, 10.0, c)
    # The device: 100 kernels, 50 products, 50 others, 8 more steps in them; 10 us of operations.
    assert told.plain == pytest.approx(1e-3 * (100 * 3.0 + 8 * 0.5 + 1 * 2.0 + 5.0))  # the host is slower
    assert told.graph == pytest.approx(1e-3 * (100 * 1.6 + 50 * 1.5 + 50 * 0.3 + 8 * 0.7 + 10))
    assert told.host == pytest.approx(1e-3 * 1000 * 0.14) and told.dominates == "steps"
    # Kept products whose barrier is spared: a wait less is a barrier less, also below their number.
    walks = [n._replace(kept=50, waits=waits) for waits in (60, 50, 20, 0)]
    inside = [model.estimate(n, w, 140.0, 10.0, {**c, "barrier": 1.5}).persistent for w in walks]
    spared = [round(1e3 * (a - b), 6) for a, b in zip(inside, inside[1:])]
    assert spared == [10 * 1.5, 30 * 1.5, 20 * 1.5]
    assert model.estimate(n, n, 1e4, 10.0, c).dominates == "recording"
    assert model.estimate(n, n, 140.0, 10.0, {**c, "flush": 1e4}).dominates == "flushes"
    assert model.estimate(n, n, 140.0, 1e5, c).dominates == "operations"


def test_constants_of_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    model = importlib.import_module("gpu_model")
    file = tmp_path / "report.json"
    file.write_text(json.dumps({"parts": [{"name": "micro", "facts": {"launch": 7.5, "other": 1}}]}))
    found = model.constants_of(model.argparse.Namespace(constants=str(file)))
    assert found["launch"] == 7.5 and "other" not in found
