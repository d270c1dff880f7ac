"""Sides of a comparison, each a worker.py process, that take turns in short slices over the same data."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

WORKER = Path(__file__).resolve().parent / "worker.py"


@dataclass
class Measured:
    """Rates and losses of each side."""

    config: Any
    wall: dict[str, list[float]] = field(default_factory=dict)  # side -> instances/s of each slice
    cpu: dict[str, list[float]] = field(default_factory=dict)  # the same per second of processor time
    computing: dict[str, list[float]] = field(default_factory=dict)  # side -> part of the time of each slice
    losses: dict[str, list[float]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def median(self, side: str, clock: str = "wall") -> float | None:
        rates = getattr(self, clock).get(side)
        return statistics.median(rates) if rates else None

    def loss_difference(self, side: str, from_side: str) -> float | None:
        """Largest relative difference of the first losses."""
        a, b = self.losses.get(from_side), self.losses.get(side)
        return max(abs(x - y) / max(abs(x), 1e-30) for x, y in zip(a, b)) if a and b else None


class Worker:
    """A process: `python worker.py OPTIONS`."""

    def __init__(self, python: str, options: Sequence[str], environment: Mapping[str, str]) -> None:
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [python, str(WORKER), *options],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def answer(self) -> dict[str, Any]:
        """Next line of the worker; RuntimeError with its last words when it died."""
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        self.process.wait()
        self.errors.seek(0)
        raise RuntimeError(f"exit status {self.process.returncode}: {self.errors.read()[-800:].strip()}")

    def run(self, count: int, seconds: float) -> dict[str, Any]:
        assert self.process.stdin
        try:
            self.process.stdin.write(f"0 {count} {seconds:g}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # answer() says why
        return self.answer()

    def close(self) -> None:
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()


def take_turns(
    row: Measured, starts: Mapping[str, Callable[[], Worker]], batch: int, repeats: int, slice_: float
) -> None:
    """Start all sides, let them work by turns for about `slice_` seconds each, and fill the row."""
    workers: dict[str, Worker] = {}
    step_seconds: dict[str, float] = {}

    def attempt(side: str, work: Callable[[Worker], None]) -> None:
        try:
            work(workers[side])
        except (RuntimeError, ValueError) as error:
            row.errors[side] = str(error)
            row.wall.pop(side, None)
            row.cpu.pop(side, None)
            row.computing.pop(side, None)
            workers.pop(side).close()

    def start(worker: Worker) -> None:
        row.losses[side] = worker.answer()["losses"]
        calibration = worker.run(4, 0.1)
        step_seconds[side] = calibration["seconds"] / (calibration["instances"] / batch)

    def turn(worker: Worker) -> None:
        result = worker.run(count, slice_ / 2)
        row.wall.setdefault(side, []).append(result["instances"] / result["seconds"])
        row.cpu.setdefault(side, []).append(result["instances"] / max(result["cpu"], 1e-9))
        row.computing.setdefault(side, []).append(result["computing"] / result["seconds"])

    try:
        for side in starts:
            workers[side] = starts[side]()
            attempt(side, start)
        # The same batches for everyone: as many as the slowest side does in a slice.
        slowest = max((step_seconds[side] for side in workers), default=1.0)
        count = max(2, min(400, round(slice_ / slowest)))
        for repeat in range(repeats):
            order = list(workers)
            for side in order if repeat % 2 == 0 else reversed(order):
                attempt(side, turn)
    finally:
        for worker in workers.values():
            worker.close()


def mean(values: Iterable[float]) -> float:
    """Geometric mean."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def show(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def machine() -> dict[str, Any]:
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = lines[0].split(":", 1)[1].strip() if lines else cpu
    return {"cpu": cpu, "cores": os.cpu_count(), "python": platform.python_version()}
