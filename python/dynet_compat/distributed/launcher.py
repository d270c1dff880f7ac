"""`mpiexec -n 4 python -m dynet_compat distribute script.py args...`: runs a script on every rank of a
job."""

from __future__ import annotations

import argparse
import atexit
import os
import socket
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from ..startup import options
from . import job, state
from .group import abort, rank_and_size

# NumPy's matrix library takes all cores otherwise; sets of strings have another order in each process.
_VARIABLES = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
              "PYTHONHASHSEED": "0"}  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """The command line of `distribute`."""
    out = argparse.ArgumentParser(
        prog="python -m dynet_compat distribute",
        description="Run a script on every rank that mpiexec starts: mpiexec -n 4 python -m dynet_compat "
        "distribute script.py. The script cuts each minibatch by dy.distributed.shard(); updates sum the "
        "gradients of all ranks.",
    )
    out.add_argument("--gradients", choices=("sum", "mean"), default="sum",
                     help="mean: the script divides losses by the size of its shard")  # fmt: skip
    out.add_argument("--shard", choices=("batch_map",), help="cut what the script gives to batch_map()")
    out.add_argument("--check-every", type=int, default=100, metavar="N",
                     help="compare the parameters of all ranks every N updates; 0: never")  # fmt: skip
    out.add_argument("--compress", choices=("float16",), help="send gradients so, with error feedback")
    out.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS",
                     help="how long a rank waits for the others before it ends the job")  # fmt: skip
    out.add_argument("--seed", type=int, help="of all random numbers; without: one that rank 0 draws")
    out.add_argument("--checkpoint", metavar="DIR", help="write checkpoints there; resume from one there")
    out.add_argument("--every", type=int, default=1000, metavar="N", help="updates between checkpoints")
    out.add_argument("--on-failure", choices=("stop", "shrink"), default="stop",
                     help="shrink: others go on without a lost rank (Open MPI, --with-ft ulfm)")  # fmt: skip
    out.add_argument("--overlap", choices=("yes", "no"),
                     help="send gradients while others are computed; without: on several hosts")  # fmt: skip
    out.add_argument("--nccl", action="store_true", help="send gradients from GPU to GPU, by CuPy's NCCL")
    out.add_argument("--logs", metavar="DIR", default=".", help="where other ranks write rank1.log, ...")
    out.add_argument("-m", action="store_true", dest="module",
                     help="the script is a module, as with `python -m`")  # fmt: skip
    out.add_argument("script", help="the Python file")
    out.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments, with --dynet-* options")
    return out


def main(arguments: Sequence[str]) -> int:
    given = parser().parse_args(list(arguments))
    if not given.module and not os.path.isfile(given.script):
        parser().error(f"no such file: {given.script}")
    settings = _settings(given)
    _set_variables(arguments)
    comm = job.world()
    rank, _ = rank_and_size(comm)
    if rank:
        _redirect(os.path.join(given.logs, f"rank{rank}.log"), given.checkpoint is not None)
    try:
        job.start(settings)
        from ..startup.program import run

        try:
            with _forks_end_here():
                run(given.script, given.arguments, module=given.module)
        except SystemExit as end:
            if end.code not in (None, 0):
                status = end.code if isinstance(end.code, int) else 1
                end_job(comm, f"sys.exit({end.code!r})", status)
        mine = state.job
        if mine:
            mine.end()
            if mine.group.has_lost:
                atexit._run_exitfuncs()
                mine.leave()
    except BaseException:
        if comm is None:
            if state.job:
                state.job.has_failed = True
            raise
        end_job(comm, traceback.format_exc())
    return 0


@contextmanager
def _forks_end_here() -> Iterator[None]:
    """A process that the script forks ends as Python would end it, but without MPI_Finalize: that is for the
    rank alone, which it would disturb."""
    rank, status = os.getpid(), 0
    try:
        yield
    except BaseException as error:
        if os.getpid() == rank:
            raise
        status = 1
        if not isinstance(error, SystemExit):
            traceback.print_exc()
        elif error.code is None or isinstance(error.code, int):
            status = error.code or 0
        else:
            print(error.code, file=sys.stderr)
    if os.getpid() != rank:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
        atexit._run_exitfuncs()
        job.flush_output()
        os._exit(status & 0xFF)


def _settings(given: argparse.Namespace) -> job.Settings:
    """What the options say; those that exclude each other are refused before MPI starts."""
    seed = given.seed if given.seed is not None else options.seed_of(given.arguments) or None
    settings = job.Settings(
        given.gradients, given.check_every, given.compress, given.timeout, seed, given.on_failure,
        given.checkpoint, given.every, given.shard is not None, given.overlap and given.overlap == "yes",
        given.nccl,
    )  # fmt: skip
    try:
        settings.check()
    except ValueError as error:
        parser().error(str(error))
    return settings


def _set_variables(arguments: Sequence[str]) -> None:
    """Those that are read before this program is: starts again with them."""
    if all(name in os.environ for name in _VARIABLES):
        return
    os.environ.update({**_VARIABLES, **os.environ})
    sys.stdout.flush()
    command = [sys.executable, *_interpreter_options(), "-m", "dynet_compat", "distribute", *arguments]
    os.execv(sys.executable, command)


def _interpreter_options() -> list[str]:
    """-O, -W and their kin, as this interpreter was started."""
    import subprocess

    return subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined,no-any-return]


def _redirect(path: str, appends: bool) -> None:
    """Standard output and error go into a file, after what a job that is resumed has written; errors that end
    the job still go to the terminal, which sys.__stdout__ and sys.__stderr__ are then."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    terminals = os.dup(1), os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | (os.O_APPEND if appends else os.O_TRUNC), 0o666)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    out, errors = (os.fdopen(fd, "w", buffering=1, errors="backslashreplace") for fd in terminals)
    sys.__stdout__, sys.__stderr__ = out, errors  # type: ignore[misc]


def end_job(comm: Any, text: str, status: int = 1) -> NoReturn:
    """One rank cannot go on: says why, and ends all."""
    where = f"rank {rank_and_size(comm)[0]} on {socket.gethostname()}"
    say = f"dynet_compat: the job ends because of {where}:\n{text.rstrip()}"
    print(say, file=sys.__stderr__, flush=True)
    if comm is not None:
        abort(comm, status or 1)
    raise SystemExit(status or 1)
