"""benchmarks/vs_torch.py; beside PyTorch where DYNET_COMPAT_TORCH names a Python that has it."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.benchmark_sides import BENCHMARKS, importer, train_four
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="our tools")

PROGRAMS = ["TreeLSTM", "BiRNN", "StackRNN", "tagger", "translator", "language model"]
TORCH = os.environ.get("DYNET_COMPAT_TORCH")

load = pytest.fixture(scope="module")(importer)


def run(*options: str) -> Any:
    command = [sys.executable, str(BENCHMARKS / "vs_torch.py"), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("name", PROGRAMS)
def test_our_side_learns_the_sum_of_its_instances(load: Any, name: str) -> None:
    side = load("pairs").load_side(name, "ours", 8)
    alone, together, losses = train_four(side, 0.01)
    assert together == pytest.approx(alone, rel=1e-5)
    assert losses[-1] < 0.999 * losses[0]


def test_every_side_starts_from_the_same(load: Any) -> None:
    data = load("pairs.data")
    assert list(data.PROGRAMS) == PROGRAMS
    for name in PROGRAMS:
        assert data.instances_of(name, 8) == data.instances_of(name, 8)
        arrays, again = data.arrays_of(name, 8), data.arrays_of(name, 8)
        assert all(np.array_equal(arrays[key], again[key]) for key in arrays)


def test_turns_are_taken_by_workers(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    vs_torch = load("vs_torch")
    monkeypatch.setattr(vs_torch, "SIDES", ("ours",))
    args = vs_torch.arguments(["--repeats", "2", "--slice", "0.02", "--losses", "2"])
    row = vs_torch.measure(vs_torch.Config("BiRNN", 8, 4, 1), args)
    assert row.errors == {} and len(row.losses["ours"]) == 2
    assert len(row.wall["ours"]) == len(row.cpu["ours"]) == 2 and row.median("ours", "cpu") > 0


def test_a_side_that_dies_is_told(load: Any) -> None:
    vs_torch = load("vs_torch")
    args = vs_torch.arguments(["--torch-python", sys.executable, "--repeats", "1", "--slice", "0.02"])
    if vs_torch.torch_version(sys.executable):
        pytest.skip("PyTorch is installed here")
    row = vs_torch.measure(vs_torch.Config("BiRNN", 8, 4, 1), args)
    assert set(row.errors) == {"loop", "batched"} and "torch" in row.errors["loop"]
    assert set(row.wall) == {"ours"} and not row.agrees()


def made_row(vs_torch: Any, name: str, losses: list[float], **rates: float) -> Any:
    row = vs_torch.Row(vs_torch.Config(name, 64, 32, 1))
    for side, rate in rates.items():
        row.wall[side], row.cpu[side] = [rate, rate, 100 * rate], [2 * rate]
        row.losses[side] = losses if side == "loop" else [1.0, 2.0]
    return row


def test_ratios_and_losses(load: Any) -> None:
    vs_torch = load("vs_torch")
    rows = [
        made_row(vs_torch, "A", [1.0, 2.0], ours=8.0, loop=1.0, batched=4.0),
        made_row(vs_torch, "B", [1.0, 2.001], ours=2.0, loop=1.0, batched=4.0),
    ]
    assert rows[0].agrees() and not rows[1].agrees()
    assert rows[1].difference() == pytest.approx(5e-4)
    found = {(one["side"], one["clock"]): one for one in vs_torch.summarise(rows)}
    assert found["loop", "wall"]["mean"] == pytest.approx(4) and found["loop", "wall"]["least"] == 2
    assert found["batched", "cpu"]["mean"] == pytest.approx(1) and found["batched", "cpu"]["least"] == 0.5
    assert found["batched", "cpu"]["at"] == str(rows[1].config)


def test_without_torch_it_says_so(load: Any, tmp_path: Path) -> None:
    if load("vs_torch").torch_version(sys.executable):
        pytest.skip("PyTorch is installed here")
    done = run("--output", str(tmp_path / "t.json"))
    assert done.returncode == 0 and list(tmp_path.iterdir()) == []
    assert "cannot import torch; name one that can with --torch-python" in done.stdout


@pytest.mark.skipif(not TORCH, reason="DYNET_COMPAT_TORCH names no Python with PyTorch")
def test_losses_equal_those_of_pytorch(tmp_path: Path) -> None:
    assert TORCH
    sizes = ["--hidden", "8", "--batch", "4", "--threads", "1", "--repeats", "1", "--slice", "0.02"]
    done = run("--torch-python", TORCH, *sizes, "--output", str(tmp_path / "t.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    assert [row["program"] for row in result["rows"]] == PROGRAMS
    for row in result["rows"]:
        assert row["loss_difference"] < 1e-5
        assert all(math.isfinite(ratio) for by_side in row["ratios"].values() for ratio in by_side.values())


def test_make_bench_runs_it(load: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run_all = load("run_all")
    commands: list[list[str]] = []

    def note(command: list[str]) -> Any:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(run_all, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(run_all.subprocess, "run", note)
    assert run_all.main(["--torch-python", "/a/python"]) == 0
    names = [Path(command[1]).stem for command in commands]
    assert names == [*run_all.BENCHMARKS] and "vs_torch" in names
    asked = [Path(command[1]).stem for command in commands if "--torch-python" in command]
    assert asked == ["vs_torch"]
