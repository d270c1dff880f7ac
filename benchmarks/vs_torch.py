"""Training steps of six programs here and in PyTorch, on the processor, measured in one run.

    python benchmarks/vs_torch.py --torch-python PATH

Sides: this package, whose programs are written for one instance; PyTorch computing one instance of a
minibatch after the other (`loop`); PyTorch batched by hand, with packed or padded sequences and trees level
by level (`batched`). Each is a process of its own (worker.py); they take turns in short slices over the same
minibatches. All start from the same parameters, and their first losses must be equal. The programs are in
pairs/. Making PyTorch's minibatches (packing, padding, order of nodes) counts, as recording the graph does
here; tensors of the instances are made beforehand. Processor time counts all threads. PyTorch's threads wait
for each other without spinning (OMP_WAIT_POLICY): beside other work, spinning makes it many times slower.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairs import PROGRAMS, SIDES
from turns import Measured, Worker, machine, mean, show, take_turns

HERE = Path(__file__).resolve().parent
CLOCKS = ("wall", "cpu")
LIMIT = 1e-4  # for relative differences of losses


@dataclass(frozen=True)
class Config:
    program: str
    hidden: int
    batch: int
    threads: int

    def __str__(self) -> str:
        return f"{self.program:15} hidden {self.hidden:3} batch {self.batch:3} threads {self.threads}"


class Row(Measured):
    def ratio(self, side: str, clock: str) -> float | None:
        """This package's speed over that of a side."""
        ours, theirs = self.median("ours", clock), self.median(side, clock)
        return ours / theirs if ours and theirs else None

    def difference(self) -> float | None:
        found = [self.loss_difference(side, "ours") for side in SIDES[1:]]
        return max((one for one in found if one is not None), default=None)

    def agrees(self) -> bool:
        difference = self.difference()
        return not self.errors and difference is not None and difference <= LIMIT

    def as_json(self) -> dict[str, Any]:
        return {
            **vars(self.config),
            "instances_per_second": {c: {side: self.median(side, c) for side in SIDES} for c in CLOCKS},
            "ratios": {c: {side: self.ratio(side, c) for side in SIDES[1:]} for c in CLOCKS},
            "slices": {"wall": self.wall, "cpu": self.cpu},
            "loss_difference": self.difference(),
            "errors": self.errors,
        }


def start_worker(side: str, config: Config, args: argparse.Namespace) -> Worker:
    options = [config.program, "--side", side, "--hidden", str(config.hidden), "--batch", str(config.batch)]
    options += ["--losses", str(args.losses)]
    python = args.python if side == "ours" else args.torch_python
    names = ("DYNET_COMPAT_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    settings = {"DYNET_COMPAT_HINTS": "off", "OMP_WAIT_POLICY": "PASSIVE"}
    return Worker(python, options, {**settings, **dict.fromkeys(names, str(config.threads))})


def measure(config: Config, args: argparse.Namespace) -> Row:
    row = Row(config)
    starts = {side: functools.partial(start_worker, side, config, args) for side in SIDES}
    take_turns(row, starts, config.batch, args.repeats, args.slice)
    return row


def torch_version(python: str) -> str | None:
    """Of that interpreter's PyTorch, or None."""
    try:
        probe = subprocess.run(
            [python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True
        )
    except OSError:
        return None
    return None if probe.returncode else probe.stdout.strip()


def summarise(rows: list[Row]) -> list[dict[str, Any]]:
    """Geometric mean and least of the ratios to each of PyTorch's sides, by clock and threads."""
    found = []
    for side in SIDES[1:]:
        for threads in sorted({row.config.threads for row in rows}):
            for clock in CLOCKS:
                ratios = {
                    str(row.config): row.ratio(side, clock) for row in rows if row.config.threads == threads
                }
                values = {config: ratio for config, ratio in ratios.items() if ratio}
                if values:
                    least = min(values, key=values.__getitem__)
                    what = {"side": side, "threads": threads, "clock": clock}
                    found.append({**what, "mean": mean(values.values()), "least": values[least], "at": least})
    return found


def print_row(row: Row) -> None:
    rates = " ".join(f"{show(row.median(side), '.0f'):>9}" for side in SIDES)
    ratios = " ".join(f"{show(row.ratio(side, c), '.2f'):>8}" for c in CLOCKS for side in SIDES[1:])
    print(f"{row.config} {rates} {ratios} {show(row.difference(), '.1e'):>9}", flush=True)
    for side, error in row.errors.items():
        print(f"  {side} failed: {error.splitlines()[-1]}", file=sys.stderr)


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch-python", default=sys.executable, metavar="PATH", help="one with PyTorch")
    parser.add_argument("--python", default=sys.executable, help="a Python that has dynet_compat")
    parser.add_argument("--programs", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--hidden", nargs="+", type=int, default=[64, 256])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5, help="slices per side")
    parser.add_argument("--slice", type=float, default=0.6, help="seconds per slice")
    parser.add_argument("--losses", type=int, default=10, help="first losses to compare")
    parser.add_argument("--output", metavar="FILE", default=str(HERE / "results/vs_torch.json"))
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    version = torch_version(args.torch_python)
    if version is None:
        print(f"not measured: {args.torch_python} cannot import torch; name one that can with --torch-python")
        return 0
    rates = " ".join(f"{side:>9}" for side in SIDES)
    ratios = " ".join(f"{clock + '/' + side[:4]:>8}" for clock in CLOCKS for side in SIDES[1:])
    print(f"{'instances/s, PyTorch ' + version:46} {rates} {ratios} {'losses':>9}")
    rows = []
    for hidden in args.hidden:
        for threads in args.threads:
            for program in args.programs:
                rows.append(measure(Config(program, hidden, args.batch, threads), args))
                print_row(rows[-1])
    summary = summarise(rows)
    for one in summary:
        title = f"over {one['side']}, threads {one['threads']}, {one['clock']}"
        print(f"{title:30} mean {one['mean']:.2f}, least {one['least']:.2f} ({one['at']})")
    result = {
        "machine": {**machine(), "load": os.getloadavg()},
        "date": datetime.date.today().isoformat(),
        "torch": version,
        "summary": summary,
        "rows": [row.as_json() for row in rows],
    }
    Path(args.output).parent.mkdir(parents=True, exist_ok=True)
    Path(args.output).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    differing = [row for row in rows if not row.agrees()]
    for row in differing:
        print(f"FAILED {row.config}: losses differ by {show(row.difference(), '.1e')}", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
