"""Throughput of every example, or of other programs, here and in the original DyNet, measured in one run.

Each side is a process of its own (worker.py): the original with autobatch 0 and 1, this package as it
comes, and this package with batching off; with --hints also with a hints file for the example. Only one
of them works at a time. They take turns in short slices over the same batches of the same data; the
medians are compared. The original needs a Python 3.8 that can `import dynet`; without one only this
package is measured.
"""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "examples"))

import data  # noqa: E402
from programs import PROGRAMS  # noqa: E402
from turns import Measured, Worker, machine, mean, show, take_turns  # noqa: E402

KINDS = {
    "bilstm_tagger": "tags",
    "bilstm_char_tagger": "tags",
    "treelstm": "trees",
    "rnnlm": "text",
    "seq2seq": "text",
    "parser": "trees",
    "mlp": "classes",
    "xor": None,
}
MODELS = [name for name in KINDS if name not in ("mlp", "xor")] + list(PROGRAMS)
GROUPS = {
    "minibatch": "training, minibatches",
    "single": "training, one instance per graph",
    "online": "training, one tiny graph per update",
    "predict": "prediction",
}


Paths = dict  # kind of data -> file


@dataclass(frozen=True)
class Config:
    group: str
    example: str
    hidden: int
    batch: int

    @property
    def mode(self) -> str:
        return "predict" if self.group == "predict" else "train"

    def __str__(self) -> str:
        return f"{self.group:9} {self.example:18} hidden {self.hidden:3} batch {self.batch:3}"


@dataclass
class Row(Measured):
    clock: str = "wall"  # or "cpu": which of the two the ratios are made of

    def median(self, side: str, clock: str | None = None) -> float | None:
        return super().median(side, clock or self.clock)

    def ratio(self) -> float | None:
        """This package over the better setting of the original."""
        ours = self.median("ours")
        theirs = [m for m in (self.median("dynet-0"), self.median("dynet-1")) if m]
        return ours / max(theirs) if ours and theirs else None

    def hinted(self) -> float | None:
        """The same with hints."""
        hinted = self.median("hinted")
        theirs = [m for m in (self.median("dynet-0"), self.median("dynet-1")) if m]
        return hinted / max(theirs) if hinted and theirs else None

    def gain(self) -> float | None:
        """This package over itself with batching off."""
        ours, off = self.median("ours"), self.median("ours-off")
        return ours / off if ours and off else None

    def difference(self) -> float | None:
        """From the original without autobatch."""
        return self.loss_difference("ours", "dynet-0")

    def as_json(self) -> dict[str, Any]:
        return {
            "group": self.config.group,
            "example": self.config.example,
            "hidden": self.config.hidden,
            "batch": self.config.batch,
            "instances_per_second": {side: self.median(side) for side in self.wall},
            "slices": {"wall": self.wall, "cpu": self.cpu},
            "ratio": self.ratio(),
            "hinted": self.hinted(),
            "gain": self.gain(),
            "loss_difference": self.difference(),
            "errors": self.errors,
        }


def start_worker(side: str, config: Config, paths: Paths, args: argparse.Namespace) -> Worker:
    reference = side.startswith("dynet-")
    options = [config.example, "--hidden", str(config.hidden), "--batch", str(config.batch)]
    options += ["--mode", config.mode, "--losses", str(args.losses), "--dynet-seed", "1"]
    if KINDS.get(config.example):
        options += ["--data", paths[KINDS[config.example]]]
    hints = paths.get("hints " + config.example, "eager") if side == "hinted" else "off"
    environment = {"DYNET_COMPAT_HINTS": hints}
    if reference:
        options += ["--reference", "--dynet-autobatch", side[-1]]
    else:
        environment.update(item.split("=", 1) for item in args.env)
    if side == "ours-off":
        environment["DYNET_COMPAT_SCHEDULER"] = "none"
    return Worker(args.reference_python if reference else args.python, options, environment)


def measure(config: Config, sides: Sequence[str], paths: Paths, args: argparse.Namespace) -> Row:
    """Rates and losses of all sides of a configuration."""
    row = Row(config, clock=args.clock)
    starts = {side: functools.partial(start_worker, side, config, paths, args) for side in sides}
    take_turns(row, starts, config.batch, args.repeats, args.slice)
    return row


def configurations(args: argparse.Namespace) -> list[Config]:
    """Everything to measure; --quick keeps one size of each kind."""
    found = []
    for name in MODELS:
        sizes = [64] if args.quick else [64, 256]
        for hidden in sizes + [16] * args.hints:
            for batch in (32,) if args.quick else (32, 64):
                found.append(Config("minibatch", name, hidden, batch))
            if hidden in sizes and name in KINDS:
                found.append(Config("predict", name, hidden, 32))
        for hidden in () if name in PROGRAMS else (64,) if args.quick else (32, 64, 128):
            found.append(Config("single", name, hidden, 1))
    found += [Config("online", "xor", 8, 4), Config("online", "mlp", 32, 100)]
    return [c for c in found if c.example in args.examples and c.group in args.groups]


def find_reference(wanted: str | None) -> str | None:
    """A Python that can import the original dynet: the one asked for, .oracle, or python3.8 on the path."""
    for candidate in [wanted] if wanted else [str(ROOT / ".oracle/bin/python"), shutil.which("python3.8")]:
        if candidate and shutil.which(candidate):
            probe = subprocess.run([candidate, "-c", "import dynet"], capture_output=True)
            if probe.returncode == 0:
                return candidate
    if wanted:
        sys.exit(f"{wanted} cannot import dynet")
    return None


def write_data(folder: str, chosen: list[str]) -> Paths:
    """One file of lines per kind of data, so that both interpreters read the same."""
    given = dict(item.split("=", 1) for item in chosen)
    paths: Paths = {}
    for kind in data.MAKERS:
        paths[kind] = str(Path(folder) / kind)
        data.dump(kind, paths[kind], given.get(kind), limit=3000)
    return paths


def write_hints(folder: str, examples: Iterable[str], python: str) -> Paths:
    """A hints file for each example; other programs are looked at when they start."""
    paths: Paths = {}
    for name in set(examples) & set(KINDS):
        path = paths["hints " + name] = str(Path(folder) / f"{name}.dyhints")
        script = str(ROOT / "examples" / f"{name}.py")
        subprocess.run([python, "-m", "dynet_compat", "compile", script, "-o", path], check=True, stdout=2)
    return paths


def print_row(row: Row, sides: Sequence[str]) -> None:
    rates = " ".join(f"{show(row.median(side), '.0f'):>10}" for side in sides)
    ratio, gain, difference = show(row.ratio(), ".2f"), show(row.gain(), ".2f"), show(row.difference(), ".1e")
    print(f"{row.config} {rates} {ratio:>7} {gain:>7} {difference:>9}", flush=True)
    for side, error in row.errors.items():
        print(f"  {side} failed: {error.splitlines()[-1]}", file=sys.stderr)


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Geometric mean and minimum of ratio and gain of each group, and the largest loss difference."""
    summary: dict[str, Any] = {}
    for group in GROUPS:
        members = [row for row in rows if row.config.group == group]
        for name in ("ratio", "gain", "hinted"):
            values = [v for v in (getattr(row, name)() for row in members) if v]
            if values:
                summary.setdefault(group, {})[name] = {"mean": mean(values), "least": min(values)}
    differences = [d for d in (row.difference() for row in rows) if d is not None]
    summary["loss_difference"] = max(differences) if differences else None
    return summary


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference-python", metavar="PATH", help="a Python that has the original dynet")
    parser.add_argument("--python", default=sys.executable, help="a Python that has dynet_compat")
    parser.add_argument("--no-reference", action="store_true", help="measure only this package")
    parser.add_argument("--hints", action="store_true", help="with hints, too; hidden 16 as well")
    parser.add_argument("--no-ours", action="store_true", help="measure only the original")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="for this package")
    parser.add_argument("--quick", action="store_true", help="hidden 64 and one batch size only")
    parser.add_argument("--examples", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--programs", nargs="*", help="of programs.py, in place of the examples; none: all")
    parser.add_argument("--groups", nargs="+", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--data", action="append", default=[], metavar="KIND=FILE", help="read this")
    parser.add_argument("--repeats", type=int, help="slices per side (default 5, quick 3)")
    parser.add_argument("--slice", type=float, help="seconds per slice (default 0.6, quick 0.4)")
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="cpu counts processor time of all threads: steadier on a busy machine, harder on this package",
    )
    parser.add_argument("--losses", type=int, default=10, help="first losses to compare")
    parser.add_argument("--output", metavar="FILE", default=str(HERE / "results/vs_dynet.json"))
    args = parser.parse_args(argv)
    args.repeats = args.repeats or (3 if args.quick else 5)
    args.slice = args.slice or (0.4 if args.quick else 0.6)
    if args.programs is not None:
        args.examples = args.programs or list(PROGRAMS)
    return args


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    args.reference_python = None if args.no_reference else find_reference(args.reference_python)
    sides = ["dynet-0", "dynet-1"] if args.reference_python else []
    sides += [] if args.no_ours else ["ours", "ours-off"]
    sides += ["hinted"] if args.hints else []
    if not sides:
        sys.exit("nothing to measure: no Python with the original dynet found")
    titles = " ".join(f"{side:>10}" for side in sides)
    print(f"{'instances/s':46} {titles} {'ratio':>7} {'gain':>7} {'losses':>9}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        paths = write_data(folder, args.data)
        if args.hints:
            paths.update(write_hints(folder, args.examples, args.python))
        for config in configurations(args):
            rows.append(measure(config, sides, paths, args))
            print_row(rows[-1], sides)
    summary = summarise(rows)
    for group, title in GROUPS.items():
        for name, values in summary.get(group, {}).items():
            print(f"{title:36} {name:5} mean {values['mean']:.2f}, least {values['least']:.2f}")
    print(f"largest relative difference of losses: {show(summary['loss_difference'], '.1e')}")
    result = {
        "machine": machine(),
        "clock": args.clock,
        "summary": summary,
        "rows": [row.as_json() for row in rows],
    }
    Path(args.output).parent.mkdir(parents=True, exist_ok=True)
    Path(args.output).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if any(row.errors for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
