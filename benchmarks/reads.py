"""Programs with small graphs that read values at once, here and in the original DyNet, measured in one run.

    python benchmarks/reads.py --reference-python PATH [--threads N] [--rounds N] [--output FILE]

Each program of small_graphs/ runs in a process of its own, the two libraries in turn; medians of the time
that training takes, start-up left out, and their ratios are printed. Without a reference only this package
is measured. Hints are off.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

STEPS = {"dqn": 6000, "dqn_single": 3000, "inflection": 1200, "chart_parser": 800, "policy_gradient": 1500}


def run_here(library: str, name: str) -> None:
    """One side, also under Python 3.8: prints seconds of wall and of processor time."""
    sys.argv = [name, "--dynet-seed", "3"]
    if library == "dynet_compat":
        importlib.import_module(library).install_as_dynet()
    module = importlib.import_module("small_graphs." + name)
    module.run(STEPS[name] // 10)
    wall, cpu = time.perf_counter(), time.process_time()
    result = module.run(STEPS[name])
    print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu, result]))


def measure(python: str, library: str, name: str, threads: int) -> list[float]:
    count = ("DYNET_COMPAT_THREADS", "OPENBLAS_NUM_THREADS")  # NumPy's own would count as processor time
    environment = {**os.environ, "DYNET_COMPAT_HINTS": "off", **dict.fromkeys(count, str(threads))}
    command = [python, __file__, "--run", library, name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{name} failed on {library}:\n{done.stderr}")
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(name: str, reference: str | None, threads: int, rounds: int) -> dict[str, float]:
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(measure(sys.executable, "dynet_compat", name, threads))
        if reference:
            theirs.append(measure(reference, "dynet", name, threads))
    row = {"wall": statistics.median(r[0] for r in ours), "cpu": statistics.median(r[1] for r in ours)}
    if theirs:
        row["ratio_wall"] = statistics.median(r[0] for r in theirs) / row["wall"]
        row["ratio_cpu"] = statistics.median(r[1] for r in theirs) / row["cpu"]
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference-python", metavar="PATH", help="a Python that has the original dynet")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", metavar="FILE", help="writes the table as JSON")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        run_here(*args.run)
        return 0
    table = {}
    print(f"{'':16}{'ms':>8}{'cpu ms':>8}{'x DyNet':>9}{'cpu':>7}")
    for name in STEPS:
        row = table[name] = compare(name, args.reference_python, args.threads, args.rounds)
        ratios = f"{row['ratio_wall']:9.2f}{row['ratio_cpu']:7.2f}" if "ratio_wall" in row else ""
        print(f"{name:16}{1e3 * row['wall']:8.0f}{1e3 * row['cpu']:8.0f}{ratios}", flush=True)
    if args.reference_python:
        mean = math.exp(statistics.fmean(math.log(row["ratio_wall"]) for row in table.values()))
        print(f"{'mean':16}{mean:25.2f}")
    if args.output:
        Path(args.output).write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
