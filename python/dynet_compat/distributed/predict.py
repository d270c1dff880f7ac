"""`python -m dynet_compat predict module:Predictor input -o out/`: a model over the lines of a file.

A block of lines is one file of the result; what is finished stays, and a second start does the rest. The
ranks of MPI divide the blocks among them; Ray hands them to workers, which may be killed and come back.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

from ..files.atomic import replacing
from . import job
from .group import rank_and_size

Result = tuple[list[str], list[tuple[int, str]]]  # lines, and what went wrong: (index, message)


class LineBlock(NamedTuple):
    """Consecutive lines of the input."""

    number: int
    first_line: int  # from 1
    lines: list[bytes]


def parser() -> argparse.ArgumentParser:
    """The command line of `predict`."""
    out = argparse.ArgumentParser(
        prog="python -m dynet_compat predict",
        description="Run a model over the lines of a file. The predictor is a class: __init__() loads the "
        "model, __call__(lines) returns one result for each line. Below mpiexec all ranks share the work.",
    )
    out.add_argument("predictor", help="module:Class or file.py:Class")
    out.add_argument("input", help="a text file, UTF-8, one item a line")
    out.add_argument("-o", "--output", required=True, metavar="DIR", help="folder of the result: output.txt")
    out.add_argument("--engine", choices=("mpi", "ray"), default="mpi", help="ray: workers that come and go")
    out.add_argument("--workers", type=int, default=0, metavar="N", help="of Ray; without: one for each core")
    out.add_argument("--batch", type=int, default=64, metavar="N", help="lines of one call of the predictor")
    out.add_argument("--block", type=int, default=4096, metavar="N", help="lines of one file of the result")
    return out


def predictor_of(name: str) -> Callable[[list[str]], Sequence[Any]]:
    """An object of the class that a name stands for: "module:Class" or "file.py:Class"."""
    place, separator, cls = name.rpartition(":")
    if not separator:
        raise ValueError(f"predict: got {name!r}; wanted module:Class or file.py:Class")
    if place.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(place).stem, place)
        if spec is None or spec.loader is None or not os.path.isfile(place):
            raise ValueError(f"predict: no such file: {place}")
        sys.path.insert(0, os.path.dirname(os.path.abspath(place)))
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        sys.path.insert(0, os.getcwd())
        module = importlib.import_module(place)
    if not hasattr(module, cls):
        raise ValueError(f"predict: {place} has no {cls}")
    return getattr(module, cls)()  # type: ignore[no-any-return]


def blocks(path: str, size: int) -> Iterator[LineBlock]:
    """The input in blocks of `size` lines."""
    with open(path, "rb") as file:
        lines: list[bytes] = []
        number, first = 0, 1
        for line in file:
            lines.append(line.rstrip(b"\r\n"))
            if len(lines) == size:
                yield LineBlock(number, first, lines)
                number, first, lines = number + 1, first + size, []
        if lines:
            yield LineBlock(number, first, lines)


class Worker:
    """Runs the predictor over blocks; a line that it cannot take costs that line only."""

    def __init__(self, predictor: str, batch: int) -> None:
        self._predict, self._batch = predictor_of(predictor), batch

    def run(self, block: LineBlock) -> Result:
        results, wrong = [""] * len(block.lines), []
        texts: list[tuple[int, str]] = []
        for i, line in enumerate(block.lines):
            try:
                texts.append((i, line.decode("utf-8")))
            except UnicodeDecodeError as error:
                wrong.append((i, f"is no UTF-8: {error.reason} at byte {error.start}"))
        for first in range(0, len(texts), self._batch):
            self._some(texts[first : first + self._batch], results, wrong)
        return results, sorted(wrong)

    def _some(self, texts: list[tuple[int, str]], results: list[str], wrong: list[tuple[int, str]]) -> None:
        try:
            lines = self._lines([text for _, text in texts])
        except Exception as error:
            if len(texts) == 1:
                wrong.append((texts[0][0], f"{type(error).__name__}: {error}"))
                return
            for one in texts:  # which line is it?
                self._some([one], results, wrong)
            return
        for (i, _), line in zip(texts, lines):
            results[i] = line

    def _lines(self, texts: list[str]) -> list[str]:
        found = list(self._predict(texts))
        if len(found) != len(texts):
            raise ValueError(f"the predictor returned {len(found)} results for {len(texts)} lines")
        lines = [x if isinstance(x, str) else json.dumps(x, ensure_ascii=False) for x in found]
        for line in lines:
            if "\n" in line:
                raise ValueError("the predictor returned a text of several lines; return a list instead")
        return lines


class Output:
    """The folder of the result.

    Args:
        folder: made if it is not there.
        what: input and options, which a second start must share.
    """

    def __init__(self, folder: str, what: dict[str, Any]) -> None:
        self._folder = folder
        self._what = what

    def claim(self) -> None:
        """ValueError where the folder has another job's result."""
        os.makedirs(self._folder, exist_ok=True)
        path = self._path("job.json")
        text = json.dumps(self._what, indent=1, sort_keys=True)
        if not os.path.exists(path):
            with replacing(path) as file:
                file.write(text.encode())
        elif Path(path).read_text() != text:
            raise ValueError(f"{self._folder} has results of another input, predictor or --block: remove it")

    def has(self, number: int) -> bool:
        return os.path.exists(self._path(f"part-{number:06}.txt"))

    def write(self, block: LineBlock, result: Result) -> None:
        lines, wrong = result
        if wrong:
            with replacing(self._path(f"errors-{block.number:06}.txt")) as file:
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
    """Lines on stderr: how far it is, at most one a second, and at the end how fast it was.

    Attributes:
        blocks, total: of the input, as far as it was read; `total` counts lines.
        kept: lines of blocks that were finished before.
        lines: that this process has done.
    """

    def __init__(self, shown: bool) -> None:
        self._start = self._last = time.monotonic()
        self._shown = shown
        self.blocks = self.total = self.kept = self.lines = 0

    def add(self, lines: int) -> None:
        self.lines += lines
        now = time.monotonic()
        if self._shown and now - self._last > 1:
            self._last = now
            print(f"predict: {self.lines:,} lines, {self._rate(self.lines)}", file=sys.stderr)

    def _rate(self, lines: int) -> str:
        return f"{lines / max(1e-9, time.monotonic() - self._start):,.0f} a second"

    def summary(self, wrong: int, workers: str) -> str:
        out = f"predict: {self.total:,} lines in {time.monotonic() - self._start:.1f} s by {workers}"
        if self.total > self.kept:
            out += f", {self._rate(self.total - self.kept)}"
        if self.kept:
            out += f"; {self.kept:,} were there already"
        return out + (f"; {wrong:,} could not be predicted: errors.txt" if wrong else "")


def main(arguments: Sequence[str]) -> int:
    given = parser().parse_args(list(arguments))
    if not os.path.isfile(given.input):
        parser().error(f"no such file: {given.input}")
    if given.block < 1 or given.batch < 1:
        parser().error("--block and --batch: wanted 1 or more lines")
    what = {
        "input": os.path.abspath(given.input), "bytes": os.path.getsize(given.input),
        "start": _digest(given.input), "block": given.block, "predictor": given.predictor,
    }  # fmt: skip
    output = Output(given.output, what)
    try:
        return by_ray(given, output) if given.engine == "ray" else by_mpi(given, output)
    except ValueError as error:
        parser().error(str(error))


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.blake2b(file.read(1 << 20), digest_size=8).hexdigest()


def unfinished(given: argparse.Namespace, output: Output, progress: Progress) -> Iterator[LineBlock]:
    """The blocks of the input that have no part yet."""
    for block in blocks(given.input, given.block):
        progress.blocks += 1
        progress.total += len(block.lines)
        if output.has(block.number):
            progress.kept += len(block.lines)
        else:
            yield block


def by_mpi(given: argparse.Namespace, output: Output) -> int:
    """Block k is done by rank k modulo the number of ranks; alone, by this process."""
    comm = job.world()
    rank, size = rank_and_size(comm)
    failure: Optional[str] = None
    try:
        if rank == 0:
            output.claim()
    except ValueError as error:
        failure = str(error)
    failure = failure if comm is None else comm.bcast(failure)
    if failure:
        raise ValueError(failure)
    progress, worker = Progress(rank == 0), None
    for block in unfinished(given, output, progress):
        if block.number % size == rank:
            worker = worker or Worker(given.predictor, given.batch)
            output.write(block, worker.run(block))
            progress.add(len(block.lines))
    if comm is not None:
        comm.Barrier()
    who = f"{size} ranks" if size > 1 else "1 process"
    return _finish(output, progress, who) if rank == 0 else 0


def _finish(output: Output, progress: Progress, who: str) -> int:
    wrong = output.join(progress.blocks)
    print(progress.summary(wrong, who), file=sys.stderr)
    return 1 if wrong else 0


def by_ray(given: argparse.Namespace, output: Output) -> int:
    """Workers of Ray get blocks; those of a worker that is lost go to another one."""
    try:
        import ray
    except ImportError as error:
        raise ValueError(f"--engine ray: ray cannot be imported: pip install ray ({error})") from error
    output.claim()
    ray.init(ignore_reinit_error=True, log_to_driver=False, configure_logging=False)
    workers = given.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    remote = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)(Worker)
    pool = [remote.remote(given.predictor, given.batch) for _ in range(workers)]
    progress = Progress(True)
    idle: list[Any] = list(pool)
    running: dict[Any, tuple[Any, LineBlock]] = {}
    for block in unfinished(given, output, progress):
        if not idle:
            idle.append(_take(ray, running, output, progress))
        actor = idle.pop()
        running[actor.run.remote(block)] = actor, block
    while running:
        _take(ray, running, output, progress)
    for actor in pool:
        ray.kill(actor)
    return _finish(output, progress, f"{workers} Ray workers")


def _take(ray: Any, running: dict[Any, tuple[Any, LineBlock]], output: Output, progress: Progress) -> Any:
    """Waits for a block, writes its part, and returns the worker that is free now."""
    (done,), _ = ray.wait(list(running), num_returns=1)
    actor, block = running.pop(done)
    output.write(block, ray.get(done))
    progress.add(len(block.lines))
    return actor
