"""A job that is killed at any moment and started again ends with the bits of one that was not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.jobs import SCRIPTS, distribute, job

KILLS = int(os.environ.get("DYNET_COMPAT_KILLS", "3"))
OPTIONS = ("--seed", 7, "--every", 10)


def arguments(out: Path) -> list[Any]:
    return ["train.py", "tree", "AdamTrainer", 6, 600, out]


def start(folder: Path, out: Path) -> subprocess.Popen[str]:
    words, env = distribute(arguments(out), options=(*OPTIONS, "--checkpoint", folder))
    return subprocess.Popen(
        words, env=env, cwd=out.parent, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip


def ranks_of(process: subprocess.Popen[str]) -> list[int]:
    command = ["pgrep", "-s", str(process.pid), "-f", "train.py"]
    listed = subprocess.run(command, capture_output=True, text=True)
    return [int(pid) for pid in listed.stdout.split() if int(pid) != process.pid]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds the ranks with pgrep")
def test_killed_jobs_resume_to_the_same_bits(tmp_path: Path) -> None:
    options = (*OPTIONS, "--checkpoint", tmp_path / "a")
    begin = time.monotonic()
    whole = job(arguments(tmp_path / "whole"), options=options, cwd=tmp_path)
    seconds = time.monotonic() - begin
    assert whole.returncode == 0, whole.stderr
    wanted = np.load(tmp_path / "whole0.npy")
    rng, kills, resumed = random.Random(KILLS), 0, False
    for _ in range(20 * KILLS + 20):
        if kills >= KILLS and resumed:
            break
        process = start(tmp_path / "b", tmp_path / "killed")
        try:
            _, errors = process.communicate(timeout=rng.uniform(0.5, 1.0) * seconds)
        except subprocess.TimeoutExpired:
            for pid in rng.sample(found, 1) if (found := ranks_of(process)) else []:
                os.kill(pid, signal.SIGKILL)
            kills += 1
            _, errors = process.communicate(timeout=30)  # mpiexec ends the other rank
            resumed = resumed or "resuming after update" in errors
            continue
        assert process.returncode == 0, errors
        resumed = resumed or "resuming after update" in errors
        got = np.load(tmp_path / "killed0.npy")
        assert (got == wanted).all(), f"after {kills} kills it differs by {np.abs(got - wanted).max()}"
        if kills < KILLS:  # the next one from the start
            for file in (tmp_path / "b").iterdir():
                file.unlink()
    assert kills >= KILLS and resumed, f"{kills} kills, resumed: {resumed}"
    process = start(tmp_path / "b", tmp_path / "killed")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert (np.load(tmp_path / "killed0.npy") == wanted).all()


def test_one_process_has_checkpoints_too(tmp_path: Path) -> None:
    def run(updates: int, out: str, folder: str) -> None:
        begin = ["-m", "dynet_compat", "distribute", *OPTIONS, "--checkpoint", tmp_path / folder]
        words = [*begin, SCRIPTS / "train.py", "tagger", "AdamTrainer", 5, updates, tmp_path / out]
        result = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr

    run(60, "whole", "a")
    run(35, "first", "b")  # the checkpoint is that of update 30
    run(60, "second", "b")
    assert (np.load(tmp_path / "whole0.npy") == np.load(tmp_path / "second0.npy")).all()


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    first = job(arguments(tmp_path / "x"), options=(*OPTIONS, "--checkpoint", folder), cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    result = job(arguments(tmp_path / "x"), ranks=3, options=(*OPTIONS, "--checkpoint", folder), cwd=tmp_path)
    assert result.returncode != 0 and "written by 2 ranks" in result.stderr, result.stderr
    (folder / "checkpoint").write_bytes(b"cos\nsystem\n(S'touch /tmp/x'\ntR.")
    result = job(arguments(tmp_path / "x"), options=(*OPTIONS, "--checkpoint", folder), cwd=tmp_path)
    assert result.returncode != 0 and "os.system" in result.stderr, result.stderr
