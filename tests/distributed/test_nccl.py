"""Gradients that stay on the device: those that travel over the host, bit for bit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dynet_compat import _core
from support.jobs import SCRIPTS, job

FAKE = Path(__file__).parent / "fake_cupy"
# What `distribute` runs: says what went over the host, and by NCCL.
COUNTING = """
import runpy, sys
from dynet_compat import _core
from dynet_compat.distributed import exchange
exchange._BUCKET, exchange._MOST_BUCKETS = 1, 1000
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
cupy = sys.modules.get("cupy")
print(_core.timing()["device_downloaded_bytes"], cupy.cuda.nccl.log.count("sent") if cupy else 0)
"""


def run(
    folder: Path, *arguments: Any, ranks: int = 2, options: tuple[Any, ...] = (), device: str = "emulation",
    **variables: str,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    (folder / "counting.py").write_text(COUNTING)
    path = os.pathsep.join([str(FAKE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    words = [folder / "counting.py", SCRIPTS / "train.py", *arguments, "--dynet-seed", 4]
    variables.update(PYTHONPATH=path, DYNET_COMPAT_DEVICE=device)
    return job(words, ranks, "mpich", options, folder, **variables)


@pytest.mark.parametrize(
    ("model", "ranks", "options"),
    [
        ("tagger", 2, ()), ("tree", 3, ("--overlap", "yes")), ("seq2seq", 2, ("--gradients", "mean")),
    ],
)  # fmt: skip
def test_the_same_bits_as_over_the_host(
    tmp_path: Path, model: str, ranks: int, options: tuple[str, ...]
) -> None:
    """Also where a rank has no instance. What comes to the host is less by the gradients of parameters."""
    counted = []
    for name in ("host", "nccl"):
        every = (*options, "--nccl") if name == "nccl" else options
        result = run(tmp_path, model, "AdamTrainer", 2, 10, tmp_path / name, ranks=ranks, options=every)
        assert result.returncode == 0, result.stderr
        counted.append([int(word) for word in result.stdout.split()[-2:]])
    values = [np.load(tmp_path / f"{name}{rank}.npy") for name in ("host", "nccl") for rank in range(ranks)]
    assert all((each == values[0]).all() for each in values[1:])
    (host, none), (device, sent) = counted
    assert device < host and none == 0 and sent >= 10, counted


@pytest.mark.parametrize(
    ("variables", "device", "says"),
    [
        ({}, "cpu", "nccl: rank 0: this process computes on the CPU"),
        ({"WITHOUT_NCCL": "1"}, "emulation", r"nccl: rank 0: CuPy with NCCL cannot be imported"),
        ({"RANKS_OF_A_GPU": "2"}, "emulation", "nccl: ranks 0 and 1 have the same GPU, 0000:0 of "),
    ],
    ids=["a GPU", "NCCL", "a GPU for each"],
)
def test_what_is_missing(tmp_path: Path, variables: dict[str, str], device: str, says: str) -> None:
    arguments = ("tree", "AdamTrainer", 2, 3, tmp_path / "out")
    result = run(tmp_path, *arguments, options=("--nccl",), device=device, **variables)
    assert result.returncode != 0 and says in result.stderr, result.stderr


def test_memory_of_a_device_needs_one() -> None:
    with pytest.raises(RuntimeError, match="this process computes on the CPU"):
        _core._DeviceFloats(3)
