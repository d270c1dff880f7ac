"""`python -m dynet_compat predict module:Predictor input -o out/`: a model over the lines of a file.

A block of lines is one file of the result; what is finished stays, and a second start does the rest. The
ranks of MPI divide the blocks among them; Ray hands them to workers, which may be killed and come back.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..files.atomic import replacing
from . import job
from .cores import share_cores, usable_cores
from .group import rank_and_size
from .launcher import end_job
from .lines import LineBlock, Result, UsageError, Worker, blocks, source_of

_PART = re.compile(r"part-\d{6,}\.txt")


def parser() -> argparse.ArgumentParser:
    """The command line of `predict`."""
    out = argparse.ArgumentParser(
        prog="python -m dynet_compat predict",
        description="Run a model over the lines of a file. The predictor is a class: __init__() loads the "
        "model, __call__(lines) returns one result for each line. Below mpiexec all ranks share the work. "
        "--dynet-* options come last.",
    )
    out.add_argument("predictor", help="module:Class or file.py:Class")
    out.add_argument("input", help="a text file, UTF-8, one item a line; may be compressed by gzip")
    out.add_argument("-o", "--output", required=True, metavar="DIR", help="folder of the result: output.txt")
    out.add_argument("--engine", choices=("mpi", "ray"), default="mpi", help="ray: workers that come and go")
    out.add_argument("--workers", type=int, default=0, metavar="N", help="of Ray; without: one for each core")
    out.add_argument("--batch", type=int, default=64, metavar="N", help="lines of one call of the predictor")
    out.add_argument("--block", type=int, default=4096, metavar="N", help="lines of one file of the result")
    return out


class Output:
    """The folder of the result.

    Args:
        folder: made if it is not there.
        what: input and options, which a second start must share.
    """

    def __init__(self, folder: str, what: dict[str, Any]) -> None:
        self._folder = folder
        self._what = what

    def claim(self) -> set[int]:
        """The numbers of the blocks that an earlier job has finished.

        Raises:
            UsageError: the folder cannot be written to, or has another job's result.
        """
        try:
            self._claim()
            return {int(name[5:-4]) for name in os.listdir(self._folder) if _PART.fullmatch(name)}
        except OSError as error:
            raise UsageError(f"-o {self._folder}: {error.strerror}; wanted a folder to write to") from error

    def _claim(self) -> None:
        os.makedirs(self._folder, exist_ok=True)
        path = self._path("job.json")
        text = json.dumps(self._what, indent=1, sort_keys=True)
        if not os.path.exists(path):
            with replacing(path) as file:
                file.write(text.encode())
            return
        old = json.loads(Path(path).read_text())
        differ = [name for name in sorted({*old, *self._what}) if old.get(name) != self._what.get(name)]
        if differ:
            say = f"-o {self._folder} has results of another {' and another '.join(differ)}"
            raise UsageError(f"{say}; remove it, or name another folder")

    def write(self, block: LineBlock, result: Result) -> None:
        lines, wrong = result
        errors = self._path(f"errors-{block.number:06}.txt")
        if not wrong:  # an earlier job may have been killed between its two files
            with contextlib.suppress(FileNotFoundError):
                os.unlink(errors)
        else:
            with replacing(errors) as file:
                for i, message in wrong:
                    file.write(f"line {block.first_line + i}: {message}\n".encode())
        with replacing(self._path(f"part-{block.number:06}.txt")) as file:
            file.write("".join(f"{line}\n" for line in lines).encode())

    def join(self, count: int) -> int:
        """output.txt and errors.txt of all parts; returns how many lines went wrong."""
        wrong = 0
        with replacing(self._path("output.txt")) as out:
            for number in range(count):
                with open(self._path(f"part-{number:06}.txt"), "rb") as part:
                    shutil.copyfileobj(part, out)
        with replacing(self._path("errors.txt")) as out:
            for number in range(count):
                if os.path.exists(self._path(f"errors-{number:06}.txt")):
                    text = Path(self._path(f"errors-{number:06}.txt")).read_bytes()
                    wrong += text.count(b"\n")
                    out.write(text)
        return wrong

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)


class Progress:
    """A bar on stderr, at most once a second, and at the end how fast it was.

    Args:
        shown: by this process.
        bytes_: of the input.
    Attributes:
        blocks, total, read: of the input, as far as it was read; `total` counts lines, `read` bytes.
        kept: lines of blocks that were finished before.
        lines, wrong: that this process has done, and of those that could not be predicted.
    """

    def __init__(self, shown: bool, bytes_: int) -> None:
        self._start = self._last = time.monotonic()
        self._shown, self._bytes = shown, bytes_
        self._end = "\r" if sys.stderr.isatty() else "\n"
        self.blocks = self.total = self.read = self.kept = self.lines = self.wrong = 0

    def add(self, block: LineBlock, result: Result) -> None:
        self.lines += len(block.lines)
        if result[1] and not self.wrong:  # the first at once, as it may be all of them
            i, message = result[1][0]
            print(f"predict: line {block.first_line + i}: {message}", file=sys.stderr, flush=True)
        self.wrong += len(result[1])
        now = time.monotonic()
        if self._shown and now - self._last > 1:
            self._last = now
            share = min(1.0, self.read / max(1, self._bytes))
            bar = f"[{'#' * int(20 * share):20}] {share:4.0%}"
            say = f"predict: {bar}, {self.lines:,} lines, {self._rate(self.lines)}"
            say += f", {self.wrong:,} failed" if self.wrong else ""
            print(say, end=self._end, file=sys.stderr, flush=True)

    def _rate(self, lines: int) -> str:
        return f"{lines / max(1e-9, time.monotonic() - self._start):,.0f} a second"

    def summary(self, wrong: int, workers: str) -> str:
        out = f"predict: {self.total:,} lines in {time.monotonic() - self._start:.1f} s by {workers}"
        if self.total > self.kept:
            out += f", {self._rate(self.total - self.kept)}"
        if self.kept:
            out += f"; {self.kept:,} were there already"
        return out + (f"; {wrong:,} could not be predicted: errors.txt" if wrong else "")


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    given, rest = parser().parse_known_args(list(arguments))
    option = False
    for word in rest:  # the package has read those of DyNet
        if not word.startswith("--dynet") and (word.startswith("-") or not option):
            parser().error(f"unrecognized argument: {word}")
        option = word.startswith("--dynet") and "=" not in word
    if rest and given.engine == "ray":
        parser().error(f"{rest[0]}: workers of Ray do not get it; set DYNET_COMPAT_ variables there")
    return given


def main(arguments: Sequence[str]) -> int:
    given = _options(arguments)
    if not os.path.isfile(given.input):
        parser().error(f"no such file: {given.input}; wanted one, as each rank and a second start read it")
    if given.block < 1 or given.batch < 1:
        parser().error("--block and --batch: wanted 1 or more lines")
    try:
        output = Output(given.output, _job(given))
        return by_ray(given, output) if given.engine == "ray" else by_mpi(given, output)
    except UsageError as error:
        parser().error(str(error))


def _job(given: argparse.Namespace) -> dict[str, Any]:
    """What an earlier job must have had to be continued."""
    path = os.path.abspath(given.input)
    return {
        "input": [path, os.path.getsize(path), _digest(path)],
        "predictor": [given.predictor, _digest(source_of(given.predictor))],
        "--block": given.block,
    }


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.blake2b(file.read(1 << 20), digest_size=8).hexdigest()


def unfinished(given: argparse.Namespace, done: set[int], progress: Progress) -> Iterator[LineBlock]:
    """The blocks of the input that no earlier job has done."""
    for block in blocks(given.input, given.block):
        progress.blocks += 1
        progress.total += len(block.lines)
        progress.read = block.end
        if block.number in done:
            progress.kept += len(block.lines)
        else:
            yield block


def by_mpi(given: argparse.Namespace, output: Output) -> int:
    """Block k is done by rank k modulo the number of ranks; alone, by this process."""
    comm = job.world()
    try:
        return _run_ranks(given, output, comm)
    except BaseException as error:
        if comm is None:
            raise
        end_job(comm, str(error) if isinstance(error, UsageError) else traceback.format_exc())


def _run_ranks(given: argparse.Namespace, output: Output, comm: Any) -> int:
    rank, size = rank_and_size(comm)
    if comm is not None:
        share_cores(rank, comm.allgather(usable_cores()))
    done = output.claim() if rank == 0 else None
    done = done if comm is None else comm.bcast(done)
    progress, worker = Progress(rank == 0, os.path.getsize(given.input)), Worker(given.predictor, given.batch)
    for block in unfinished(given, done or set(), progress):
        if block.number % size == rank:
            result = worker.run(block)
            output.write(block, result)
            progress.add(block, result)
    if comm is not None:
        comm.Barrier()
    who = f"{size} ranks" if size > 1 else "1 process"
    return finish(output, progress, who) if rank == 0 else 0


def finish(output: Output, progress: Progress, who: str) -> int:
    wrong = output.join(progress.blocks)
    print(progress.summary(wrong, who), file=sys.stderr)
    return 1 if wrong else 0


def by_ray(given: argparse.Namespace, output: Output) -> int:
    """Workers of Ray get the blocks."""
    from .ray_workers import RayWorkers

    done, progress = output.claim(), Progress(True, os.path.getsize(given.input))
    workers = RayWorkers(given.predictor, given.batch, given.workers)
    for block, result in workers.run(unfinished(given, done, progress)):
        output.write(block, result)
        progress.add(block, result)
    machines = f" on {len(workers.machines)} machines" if len(workers.machines) > 1 else ""
    return finish(output, progress, f"{workers.count} Ray workers{machines}")
