"""With Open MPI's fault tolerance a job goes on without the ranks that are lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from support.jobs import alone, distribute, job

KILLS = int(os.environ.get("DYNET_COMPAT_KILLS", "2"))
OPTIONS = ("--on-failure", "shrink", "--timeout", 5, "--check-every", 1)
SCRIPT = """
import os, sys
import dynet as dy
import numpy as np

dead, out, means = int(sys.argv[1]), sys.argv[2], len(sys.argv) > 3
job = dy.distributed.size > 1
me = dy.distributed.rank
pc = dy.ParameterCollection()
p, E = pc.add_parameters(3, init=1), pc.add_lookup_parameters((9, 3), init=1)
dy.SimpleSGDTrainer(pc)  # has the same parameters
trainer = dy.MomentumSGDTrainer(pc, 0.01)
trainer.set_clip_threshold(0)
for k in range(6):
    batch = dy.distributed.shard([1.0, 2.0, 3.0, 4.0])
    if not job and k == 3:  # what is left of this update
        del batch[dead::3]
    dy.renew_cg()
    losses = [dy.squared_norm(p - x) + dy.squared_norm(E[int(x) + k % 3] * x) for x in batch]
    (dy.average if means else dy.esum)(losses).backward()
    if job and k == 3 and me == dead:
        os.kill(os.getpid(), 9)
    trainer.update()
    pc.save(out)
    pc.populate(out)
print("done by", dy.distributed.gather([me]))
"""

LONG_SCRIPT = """
import os, sys
import dynet as dy

folder, d = sys.argv[1], dy.distributed
pc = dy.ParameterCollection()
p, E = pc.add_parameters((50, 50)), pc.add_lookup_parameters((9, 50))
trainer = dy.AdamTrainer(pc)
updates = last = 0
while not last or updates < last + 20:
    batch = d.shard(range(6))
    dy.renew_cg()
    dy.esum([dy.squared_norm(p * E[(x + updates) % 9]) for x in batch]).backward()
    trainer.update()
    updates += 1
    d.gather([x for x in range(updates % 3)])
    if updates == 3:
        open(f"{folder}/pid{os.getpid()}", "w").close()
    if not last and d.sum(os.path.exists(f"{folder}/enough")):
        last = updates
with open(f"{folder}/bits{os.getpid()}", "w") as file:
    print(updates, d.sum(1), p.as_array().tobytes().hex(), E.as_array().tobytes().hex(), file=file)
print("updates by", d.size, "ranks")
"""


def values(file: Path) -> np.ndarray:
    """Of the file's lines that hold them."""
    text = file.read_text().splitlines()
    return np.array([float(x) for line in text if not line.startswith("#") for x in line.split()])


@pytest.mark.parametrize("gradients", ["sum", "mean"])
@pytest.mark.parametrize("dead", [0, 1])
def test_the_others_go_on(tmp_path: Path, dead: int, gradients: str) -> None:
    """The update in which a rank dies lacks its instances, also of means; from then on the others share all.
    Rank 0 has two of four."""
    (tmp_path / "script.py").write_text(SCRIPT)
    means, options = ["means"] * (gradients == "mean"), (*OPTIONS, "--gradients", gradients)
    one = alone([tmp_path / "script.py", dead, tmp_path / "one", *means])
    assert one.returncode == 0, one.stderr
    words = [tmp_path / "script.py", dead, tmp_path / "several", *means]
    several = job(words, 3, "ulfm", options, tmp_path, 30)
    left = [rank for rank in range(3) if rank != dead]
    assert several.stdout.splitlines() == [f"done by {left}"], several.stdout + several.stderr
    assert f"rank {dead} was lost; 2 go on" in several.stderr, several.stderr
    np.testing.assert_allclose(values(tmp_path / "several"), values(tmp_path / "one"), rtol=1e-5)


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """Two of four ranks, one after the other; those that are left end with the same bits."""
    (tmp_path / "script.py").write_text(LONG_SCRIPT)
    rng = random.Random(KILLS)
    for number in range(KILLS):
        folder = tmp_path / f"out{number}"
        folder.mkdir()
        words, env = distribute([tmp_path / "script.py", folder], 4, "ulfm", OPTIONS)
        process = subprocess.Popen(words, env=env, cwd=folder, text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip
        try:
            pids = started(folder)
            for pid in rng.sample(pids, 2):
                time.sleep(rng.uniform(0, 0.2))
                os.kill(pid, signal.SIGKILL)
            (folder / "enough").touch()
            out, errors = process.communicate(timeout=40)
        finally:
            process.kill()
        bits = {file.read_text() for file in folder.glob("bits*")}
        assert len(list(folder.glob("bits*"))) == 2 and len(bits) == 1, errors
        assert out.endswith("updates by 2 ranks\n"), out + errors


def started(folder: Path) -> list[int]:
    """Process numbers of the four ranks, once all have begun to train."""
    end = time.monotonic() + 30
    while len(list(folder.glob("pid*"))) < 4 and time.monotonic() < end:
        time.sleep(0.05)
    return [int(file.name[3:]) for file in folder.glob("pid*")]


@pytest.mark.parametrize(
    ("fault", "says"),
    [("data", "rank 1: shard of items: 1"), ("hang", "rank 1 on "), ("together", "a word that is not there")],
)
def test_other_faults_end_the_job(tmp_path: Path, fault: str, says: str) -> None:
    result = job(["faults.py", fault], 2, "ulfm", ("--timeout", 2, "--on-failure", "shrink"), tmp_path, 30)
    assert result.returncode != 0 and says in result.stderr, result.stderr


def test_refused_where_ranks_cannot_be_lost(tmp_path: Path) -> None:
    for mpi in ("mpich", "openmpi"):
        result = job(["faults.py", "none"], 2, mpi, OPTIONS, tmp_path)
        assert result.returncode != 0 and "mpiexec --with-ft ulfm" in result.stderr, result.stderr
    options = (*OPTIONS, "--checkpoint", "saved")
    result = job(["faults.py", "none"], 2, "ulfm", options, tmp_path)
    assert result.returncode != 0 and "leave out --checkpoint" in result.stderr, result.stderr
