"""What static hints gain end to end, on programs written as users write them (written/).

Each program trains in two processes, without hints and with them, that take turns in short slices over
the same batches. Printed are the ratios of both, by the clock and by processor time, and their geometric
means. The first losses of both must be the same bits.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "examples"))

from turns import Measured, Worker, machine, mean, show, take_turns  # noqa: E402

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


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", default=PROGRAMS, help="of written/ or examples/")
    parser.add_argument("--hidden", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--pool", type=int, default=40, help="number of batches to choose from")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--slice", type=float, default=1.0, help="seconds of one turn")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", metavar="FILE", help="write the numbers as JSON")
    args = parser.parse_args(argv)
    print(f"{'program':20} {'hidden':>6} {'off/s':>9} {'hints/s':>9} {'gain':>6} {'cpu':>6}  losses")
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
            wall, cpu = gain(row, "wall"), gain(row, "cpu")
            losses = "equal" if same else "DIFFERENT"
            print(
                f"{program:20} {hidden:6} {rates} {show(wall, '6.2f')} {show(cpu, '6.2f')}  {losses}",
                flush=True,
            )
            rows.append({"program": program, "hidden": hidden, "wall": wall, "cpu": cpu, "same": same})
        for clock in ("wall", "cpu"):
            gains = [row[clock] for row in rows if row["hidden"] == hidden and row[clock]]
            if gains:
                print(f"hidden {hidden}, {clock}: geometric mean {mean(gains):.2f}, least {min(gains):.2f}")
    if args.output:
        result = {"machine": machine(), "rows": rows}
        Path(args.output).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
