"""What a rank does wrong, or what befalls it, ends the job soon; the message names rank and reason."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from support.jobs import SCRIPTS, job

HANGS = (SCRIPTS / "faults.py").read_text().split("time.sleep(1000)")[0].count("\n") + 1
# What mpiexec says, of MPICH and of Open MPI.
KILLED = r"EXIT STRING: Killed \(signal 9\)|rank 1 with PID \d+ on node \S+ exited\s+on\s+signal 9 "
# fault, what the job's errors say, and within how many seconds it ends (the timeout is 2)
FAULTS = [
    ("raise", "because of rank 1.*KeyError: 'a word that is not there'", 10),
    ("exit", r"because of rank 1.*sys.exit\(3\)", 10),
    ("break", r"rank 0: update of trainer 0 3\s+rank 1: sum\(\)", 10),
    ("kill", KILLED, 10),
    ("data", r"rank 0: shard of items: 3\s+rank 1: shard of items: 1", 10),
    ("shape", r"number 0 is /_0 \(3,\) on rank 0 and /_0 \(4,\) on rank 1", 10),
    ("drift", r"after 4 updates /_0 differs between rank 0 and rank 1", 10),
    ("another", r"after 7 updates /_0 differs between rank 0 and rank 1", 10),
    ("hang", rf"rank 0 has waited 2 s.*rank 1 on .*faults.py:{HANGS}\b", 20),
    ("stop", "rank 1 does not answer", 20),
    ("midway", "rank 0 has waited 2 s for the others in gradients.*rank 1 does not answer", 20),
]
MPIS = "raise", "exit", "kill", "stop", "midway"  # have a part in these


CASES = [(*fault, "mpich") for fault in FAULTS]
CASES += [(*fault, "openmpi") for fault in FAULTS if fault[0] in MPIS]
CASES += [(*fault, "overlap") for fault in FAULTS if fault[0] not in ("exit", "stop")]


@pytest.mark.parametrize(("fault", "says", "seconds", "mpi"), CASES, ids=[f"{c[0]}-{c[3]}" for c in CASES])
def test_a_fault_ends_the_job(tmp_path: Path, fault: str, says: str, seconds: float, mpi: str) -> None:
    start = time.monotonic()
    options = ("--timeout", 2, "--check-every", 2, "--overlap", "yes" if mpi == "overlap" else "no")
    result = job(["faults.py", fault], 2, mpi.replace("overlap", "mpich"), options, tmp_path)
    took = time.monotonic() - start
    assert result.returncode != 0, result.stdout
    by_mpich = says == KILLED and mpi != "openmpi"
    said = result.stdout if by_mpich else result.stderr
    assert re.search(says, said, re.S), f"wanted {says!r} in:\n{said}"
    assert took < seconds, f"the job ended after {took:.1f} s"
    assert "During handling" not in result.stderr, result.stderr
    assert "updates by" not in result.stdout


@pytest.mark.parametrize("fault", ["none", "busy"])
def test_no_fault(tmp_path: Path, fault: str) -> None:
    """Also where rank 0 is alone at work for longer than the timeout, and says so."""
    result = job(["faults.py", fault], options=("--timeout", 2), cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "updates by 2 ranks\n"), result.stderr
    assert (tmp_path / "rank1.log").read_text().endswith("updates by 2 ranks\n")


def test_a_file_that_rank_0_does_not_save(tmp_path: Path) -> None:
    script = tmp_path / "save.py"
    script.write_text(
        "import dynet as dy\n"
        "pc = dy.ParameterCollection(); pc.add_parameters(2); pc.save('there')\n"
        "if dy.distributed.rank == 1: pc.save('mine'); pc.populate('there')\n"
        "dy.distributed.broadcast(None)\n"
    )
    result = job([script], options=("--timeout", 2), cwd=tmp_path, timeout=20)
    assert result.returncode != 0
    assert re.search("rank 1 .*wait.* in a load, for rank 0 to save mine", result.stderr), result.stderr


def test_lines_of_the_start_are_printed_once(tmp_path: Path) -> None:
    result = job(["faults.py", "none", "--dynet-seed", 3], options=("--timeout", 2), cwd=tmp_path)
    assert result.stderr.count("[dynet] random seed: 3") == 1, result.stderr


FORKS = """
import atexit, os, sys, threading, time
import dynet as dy
pc = dy.ParameterCollection(); pc.add_parameters(2); trainer = dy.AdamTrainer(pc)


def fork(name):
    child = os.fork()
    if child:
        return os.WEXITSTATUS(os.waitpid(child, 0)[1])
    if name == "exit":
        sys.exit(3)
    if name == "raise":
        raise KeyError("of a child")
    if name == "sum":
        dy.distributed.sum(1)
    if name == "thread":  # which runs on after the script
        def later():
            time.sleep(0.5)
            open(f"thread{dy.distributed.rank}", "w").close()
        atexit.register(lambda: os.rename(f"thread{dy.distributed.rank}", f"after{dy.distributed.rank}"))
        threading.Thread(target=later).start()
        sys.exit(4)
    if name == "quiet":
        sys.stdout.close()
        sys.stderr = None
        sys.exit(5)
    if name == "data":
        assert dy.distributed.shard([0, 1, 2]) == [[0, 2], [1]][dy.distributed.rank]
    if name == "save":
        names = f"saved{dy.distributed.rank}", f"trainer{dy.distributed.rank}"
        pc.save(names[0]); trainer.save(names[1])
        os._exit(sum(map(os.path.exists, names)))


names = ["exit", "raise", "sum", "save", "thread", "quiet", "data"]
statuses = [fork(name) for name in names]
if all(status is not None for status in statuses):
    print(dy.distributed.gather([statuses]))
"""


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_processes_that_ranks_fork(tmp_path: Path, mpi: str) -> None:
    """They end as they would without MPI, save on rank 0 only, and cannot meet other ranks."""
    (tmp_path / "forks.py").write_text(FORKS)
    result = job([tmp_path / "forks.py"], 2, mpi, ("--timeout", 5), tmp_path)
    statuses = [[3, 1, 1, 2, 4, 5, 0], [3, 1, 1, 0, 4, 5, 0]]
    assert (result.returncode, result.stdout) == (0, f"{statuses}\n"), result.stdout + result.stderr
    assert "sum(): a process that rank 0 has forked cannot meet the ranks" in result.stderr
    assert sorted(path.name for path in tmp_path.glob("after*")) == ["after0", "after1"]
