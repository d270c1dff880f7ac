"""benchmarks/scaling.py: the model follows what an exchange does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.jobs import command

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "scaling.py"

pytest.importorskip("mpi4py", reason="mpi4py is not installed (requirements-dev.txt)")


def run(folder: Path, *options: str, ranks: int = 0) -> Any:
    begin, env = command("mpich", ranks) if ranks else ([], None)
    words = [*begin, sys.executable, str(SCRIPT), "--quick", "--json", str(folder / "out"), *options]
    result = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return json.loads((folder / "out").read_text())


def test_tables(tmp_path: Path) -> None:
    tables = run(tmp_path, "--ranks", "2", "8", "64", "--repeats", "1")
    assert len(tables) == 2 * 2 * 2  # models, networks, speeds
    for slow, fast in zip(tables[::2], tables[1::2]):
        assert (slow["network"], fast["network"]) == ("10 Gb/s", "100 Gb/s")
        for a, b in zip(slow["rows"], fast["rows"]):
            assert 0 < a["efficiency"] < b["efficiency"] < 1 and a["megabytes"] == b["megabytes"]
        sent = [row["network"] for row in slow["rows"]]
        assert sent == sorted(sent) and sent[0] > 0


def test_bytes_are_those_of_the_exchange(tmp_path: Path) -> None:
    """Each rank receives 2 (n - 1) / n of the gradients; of the tagger, 2 LSTMs of 8 to 8 and 16 to 5."""
    dense = 2 * (4 * 8 * (8 + 8 + 1)) + 5 * 16
    full, half = (
        {row["ranks"]: row["megabytes"] * 1e6 for row in run(
            tmp_path, "--model", "tagger", "--ranks", "2", "8", "--repeats", "1", *more)[0]["rows"]}
        for more in ((), ("--compress",))
    )  # fmt: skip
    for ranks in (2, 8):
        saved = 2 * (ranks - 1) / ranks * dense * 2  # bytes of each float16 that are not sent
        assert full[ranks] - half[ranks] == pytest.approx(saved, rel=0.02)


def test_overhead_on_real_ranks(tmp_path: Path) -> None:
    (row,) = run(tmp_path, "--overhead", "--steps", "5", ranks=2)
    assert 0 < row["ms tenth"] <= row["ms median"]
    assert row["beside tenth"] <= row["beside median"] < row["ms median"]
