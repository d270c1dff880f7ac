"""What static hints gain end to end, on programs written as users write them (written/).

Each program trains in two processes, without hints and with them, that take turns in short slices over
the same batches. Printed are the ratios of both, by the clock and by processor time, and their geometric
means. `most` is what would be gained if recording took no time, nor the script's own Python: the time without
hints over that in plans and kernels. The first losses of both must be the same bits.

With --coverage: which share of the ops were recorded by hints (regions, walks, memos), which by steps of
builders outside of these, and what kept the rest out. Programs may be scripts there, with their arguments:
"path/to/train.py --epochs 1". A script counts from its start, with what it records to learn.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "examples"))

from dynet_compat.hints.coverage import LEARNING, REFUSED, SINGLE, SLOWER  # noqa: E402
from turns import WORKER, Measured, Worker, machine, mean, show, take_turns  # noqa: E402

PROGRAMS = sorted(path.stem for path in (HERE / "written").glob("*.py"))


def measure(program: str, hidden: int, args: argparse.Namespace) -> Measured:
    options = [program, "--hidden", str(hidden), "--batch", str(args.batch), "--pool", str(args.pool)]
    options += ["--dynet-seed", "1"]
    row = Measured((program, hidden))
    starts = {
        hints: partial(Worker, sys.executable, options, {
            "DYNET_COMPAT_HINTS": hints, "DYNET_COMPAT_THREADS": str(args.threads)
        })
        for hints in ("off", "eager")
    }  # fmt: skip
    take_turns(row, starts, args.batch, args.repeats, args.slice)
    return row


def gain(row: Measured, clock: str) -> float | None:
    off, hinted = row.median("off", clock), row.median("eager", clock)
    return hinted / off if off and hinted else None


def most(row: Measured) -> float | None:
    """The gain where only plans and kernels would take time."""
    computing = row.median("off", "computing")
    return 1 / computing if computing else None


def coverage(program: str, hidden: int, args: argparse.Namespace) -> dict[str, float]:
    """Shares of the ops of a run with hints, in percent, by what recorded them or kept them out."""
    command, requests = shlex.split(program), None
    if command[0].endswith(".py"):
        script = Path(command[0]).resolve()
        command = ["-m", "dynet_compat", "run", str(script), *command[1:]]
        folder, limit = script.parent, args.seconds
    else:
        command = [str(WORKER), program, "--hidden", str(hidden), "--batch", str(args.batch)]
        command += ["--pool", str(args.pool), "--dynet-seed", "1"]
        requests = f"0 {args.pool} {args.slice:g}\n\n"
        folder, limit = HERE, None
    settings = {"DYNET_COMPAT_HINTS": "eager", "DYNET_COMPAT_REPORT": "lines"}
    settings["DYNET_COMPAT_THREADS"] = str(args.threads)
    process = subprocess.Popen(
        [sys.executable, *command], cwd=folder, env={**os.environ, **settings}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        _, report = process.communicate(requests, timeout=limit)
    except subprocess.TimeoutExpired:  # the script ends as by Ctrl-C
        process.send_signal(signal.SIGINT)
        _, report = process.communicate()
    if "[dynet] hints:" not in report:
        raise RuntimeError(f"exit status {process.returncode}: {report[-800:].strip()}")
    return shares(report)


def shares(report: str) -> dict[str, float]:
    """Of the lines that DYNET_COMPAT_REPORT=lines prints."""
    found = re.search(r"(\d+) % of all ops \((\d+) % by steps of builders", report)
    by_hints, by_builders = map(float, found.groups()) if found else (0.0, 0.0)
    result = {"hints": by_hints, "builders": by_builders}
    line = re.search(r"recorded one by one: .*", report)
    for kind in (SLOWER, SINGLE, LEARNING, REFUSED):
        share = re.search(rf"(\d+) % {re.escape(kind)}[,;]", line.group()) if line else None
        result[kind] = (100 - by_hints - by_builders) * (float(share.group(1)) if share else 0) / 100
    return result


def print_coverage(args: argparse.Namespace) -> int:
    names = ("hints", "builders", SLOWER, SINGLE, LEARNING, REFUSED)
    print("shares of all recorded ops, in percent; those recorded one by one by their reasons:")
    for column, name in zip("abcd", names[2:]):
        print(f"  {column}: {name}")
    heads = ["hints", "builders", *"abcd"]
    print(f"{'program':32} {'hidden':>6} " + " ".join(f"{head:>8}" for head in heads))
    failed = False
    for hidden in args.hidden:
        for program in args.programs:
            try:
                row = coverage(program, hidden, args)
            except RuntimeError as error:
                failed = True
                print(f"{program[-32:]:32} failed: {error}", file=sys.stderr)
                continue
            figures = " ".join(f"{row[name]:8.0f}" for name in names)
            print(f"{program[-32:]:32} {hidden:6} {figures}", flush=True)
    return 1 if failed else 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = "of written/ or examples/; with --coverage also scripts"
    parser.add_argument("programs", nargs="*", default=PROGRAMS, help=names)
    parser.add_argument("--hidden", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--pool", type=int, default=40, help="number of batches to choose from")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--slice", type=float, default=1.0, help="seconds of one turn")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", metavar="FILE", help="write the numbers as JSON")
    parser.add_argument("--seconds", type=float, default=30, help="after which --coverage ends a script")
    parser.add_argument("--coverage", action="store_true", help="print shares of recorded ops, and no times")
    args = parser.parse_args(argv)
    if args.coverage:
        return print_coverage(args)
    heads = " ".join(f"{head:>6}" for head in ("gain", "cpu", "most"))
    print(f"{'program':20} {'hidden':>6} {'off/s':>9} {'hints/s':>9} {heads}  losses")
    rows: list[dict[str, Any]] = []
    failed = False
    for hidden in args.hidden:
        for program in args.programs:
            row = measure(program, hidden, args)
            same = row.losses.get("off") == row.losses.get("eager")
            failed |= bool(row.errors) or not same
            for side, error in row.errors.items():
                print(f"  {side} failed: {error.splitlines()[-1]}", file=sys.stderr)
            rates = " ".join(f"{show(row.median(side), '9.0f'):>9}" for side in ("off", "eager"))
            gained = {"wall": gain(row, "wall"), "cpu": gain(row, "cpu"), "most": most(row)}
            figures = " ".join(f"{show(figure, '6.2f'):>6}" for figure in gained.values())
            losses = "equal" if same else "DIFFERENT"
            print(f"{program:20} {hidden:6} {rates} {figures}  {losses}", flush=True)
            rows.append({"program": program, "hidden": hidden, **gained, "same": same})
        for clock in ("wall", "cpu", "most"):
            gains = [row[clock] for row in rows if row["hidden"] == hidden and row[clock]]
            if gains:
                print(f"hidden {hidden}, {clock}: geometric mean {mean(gains):.2f}, least {min(gains):.2f}")
    if args.output:
        result = {"machine": machine(), "rows": rows}
        Path(args.output).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
