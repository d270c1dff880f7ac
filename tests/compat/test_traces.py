# ruff: noqa: UP031
"""Twenty steps of every small program of traces.py: the losses are the real DyNet's to 1e-4."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import trace_programs  # noqa: E402
import traces  # noqa: E402
from support import oracle, records  # noqa: E402

RTOL = 1e-4
LIVE_SEED = 12


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    return oracle.recorded("traces")


@pytest.fixture(scope="module")
def live(oracle_python: str, tmp_path_factory: Any) -> dict[str, np.ndarray]:
    """The traces under another seed, from a DyNet that runs now."""
    path = tmp_path_factory.mktemp("traces") / "live.npz"
    command = [oracle_python, str(HERE / "traces.py"), "--out", str(path), "--seed", str(LIVE_SEED)]
    done = subprocess.run(
        command, env=oracle.clean_environment(), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return records.load(path)


def check(dy: Any, name: str, want: np.ndarray, seed: int) -> None:
    missing = [need for need in traces.PROGRAMS[name].needs if not hasattr(dy, need)]
    if missing:
        pytest.skip("this build has no " + ", ".join(missing))
    got = traces.run(dy, name, seed)
    assert got.shape == want.shape == (trace_programs.STEPS + 1,)
    assert np.isfinite(got).all() and np.ptp(got[:-1]) > 0, f"{name}: losses {got}"
    error = np.abs(got - want.astype(np.float64)) / np.maximum(np.abs(want), 1e-3)
    at = int(error.argmax())
    assert error[-1] == 0, f"{name}: another number of draws was made than in DyNet"
    assert error.max() <= RTOL, "%s: loss %d is %.8g, DyNet's %.8g (relative error %.2g)" % (
        name, at + 1, got[at], want[at], error[at],
    )  # fmt: skip


@pytest.mark.parametrize("name", traces.PROGRAMS)
def test_trace(dy: Any, name: str, recorded: dict[str, np.ndarray]) -> None:
    check(dy, name, recorded[name], traces.SEED)


@pytest.mark.oracle
@pytest.mark.parametrize("name", traces.PROGRAMS)
def test_live(dy: Any, name: str, live: dict[str, np.ndarray]) -> None:
    check(dy, name, live[name], LIVE_SEED)


def test_recording_has_every_program(recorded: dict[str, np.ndarray]) -> None:
    assert set(recorded) == set(traces.PROGRAMS), "run tests/oracle/record_traces.py"


def test_every_builder_trainer_and_initialiser_has_a_program(dy: Any) -> None:
    """By the names of the classes; what DyNet does not have is left out."""
    source = "".join((HERE / name).read_text(encoding="utf-8") for name in ("traces.py", "trace_layers.py"))
    ours = ("Tree", "Hierarchical", "EGTrainer", "AdamWTrainer")
    wanted = [
        name
        for name in dir(dy)
        if name.endswith(("Builder", "Trainer", "Initializer"))
        and name not in ("Trainer", "SoftmaxBuilder", "PyInitializer")
        and not name.startswith("_")
        and not any(part in name for part in ours)
    ]
    assert len(wanted) > 25
    assert [name for name in wanted if f"dy.{name}" not in source] == []
