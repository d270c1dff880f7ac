"""The main job in about a minute: train every example on real input, here and in the real DyNet.

Each example runs in its own process on the Python standard library's sources, as usual, with
DYNET_COMPAT_SCHEDULER=none, and, where a Python with DyNet is found, in DyNet with autobatching off
and on, from the same random seed. Exit status 1 when a run fails, a loss does not fall, or the losses
of two runs differ.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# By name: `compare` takes a script that imports the package for a program to be compared.
reference = importlib.import_module("dynet_compat.compare.reference")

HERE = Path(__file__).resolve().parent

# example -> (steps, instances per step); those that batch by themselves come last
JOBS = {
    "bilstm_tagger": (80, 32),
    "bilstm_char_tagger": (60, 32),
    "treelstm": (60, 32),
    "rnnlm": (25, 32),
    "seq2seq": (40, 32),
    "parser": (60, 32),
    "mlp": (150, 100),
    "xor": (1000, 4),
}
COMPARED = 5  # first losses that must agree between the runs
HERE_BATCHED, UNBATCHED, DYNET_OFF, DYNET_ON = ("here", "unbatched", "DyNet, off", "DyNet, on")


class Failed(Exception):
    pass


def find_dynet() -> str | None:
    """A Python that has the real DyNet, if there is one; nothing is installed."""
    places = (
        os.environ.get("DYNET_COMPAT_ORACLE"),
        HERE.parent / ".oracle" / "bin" / "python",
        reference.cache_folder() / "reference-py38" / "bin" / "python",
    )
    for place in places:
        python = shutil.which(str(place)) if place else None
        if python and not reference.why_not(python):
            return python
    return None


def train(example: str, side: str, scale: float, dynet: str | None, shared: str) -> dict[str, Any]:
    """Run one example in its own process and return what it wrote."""
    steps, batch = JOBS[example]
    steps = max(2, int(steps * scale))
    there = side.startswith("DyNet")
    environment = reference.clean_environment() if there else dict(os.environ)
    environment["DYNET_COMPAT_SHARED"] = shared  # libraries differ: all read the first's
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [dynet if there and dynet else sys.executable, str(HERE / f"{example}.py")]
        command += ["--steps", str(steps), "--batch", str(batch), "--quiet", "--losses", str(result)]
        command += ["--dynet-seed", "1"]
        if there:
            command += ["--reference", "--dynet-autobatch", str(int(side == DYNET_ON))]
        elif side == UNBATCHED:
            environment["DYNET_COMPAT_SCHEDULER"] = "none"
        run = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
        if run.returncode:
            raise Failed(f"{example}, {side}: exit status {run.returncode}\n{run.stderr[-2000:]}")
        return json.loads(result.read_text(encoding="utf-8"))


def check(example: str, results: dict[str, dict[str, Any]]) -> list[str]:
    """What is wrong with the runs of an example."""
    ours = results[HERE_BATCHED]
    wrong = [] if ours["last"] < ours["first"] else [f"{example}: the loss does not fall"]
    for side, other in results.items():
        for step, (a, b) in enumerate(zip(other["losses"][:COMPARED], ours["losses"])):
            if abs(a - b) > 1e-4 * abs(a) + 1e-6:
                wrong.append(f"{example}: loss {step + 1} is {a:.7g} {side}, {b:.7g} here")
    return wrong


def speeds(results: dict[str, dict[str, Any]]) -> list[str]:
    """Instances per second here, unbatched and in DyNet's better setting, and the ratio to DyNet."""
    rates = {side: result["instances"] / result["seconds"] for side, result in results.items()}
    dynet = max((rates[side] for side in (DYNET_OFF, DYNET_ON) if side in rates), default=None)
    ours = rates[HERE_BATCHED]
    cells = [f"{ours:.0f}", f"{rates[UNBATCHED]:.0f}"]
    return [*cells, f"{dynet:.0f}", f"{ours / dynet:.2f}x"] if dynet else [*cells, "-", "-"]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("examples", nargs="*", default=list(JOBS), help="default: all of them")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the number of steps")
    args = parser.parse_args(argv)
    unknown = sorted(set(args.examples) - set(JOBS))
    if unknown:
        parser.error(f"no such example: {', '.join(unknown)}")

    dynet = find_dynet()
    sides = [HERE_BATCHED, UNBATCHED, *([DYNET_OFF, DYNET_ON] if dynet else [])]
    form = "{:20} {:20} {:24} {:>8} {:>12} {:>8} {:>8}"
    print("instances per second in training; DyNet: the better of autobatching off and on")
    heads = ("example", "loss first -> last", "held-out score", "here", "unbatched", "DyNet", "ratio")
    print(form.format(*heads), flush=True)
    wrong = []
    with tempfile.TemporaryDirectory() as shared:
        for example in args.examples:
            try:
                results = {side: train(example, side, args.scale, dynet, shared) for side in sides}
            except Failed as failure:
                wrong.append(str(failure))
                print(f"{example:20} failed")
                continue
            wrong += check(example, results)
            ours = results[HERE_BATCHED]
            loss = f"{ours['first']:.4f} -> {ours['last']:.4f}"
            score = ", ".join(f"{name} {value:.3f}" for name, value in ours["scores"].items())
            print(form.format(example, loss, score, *speeds(results)), flush=True)
    if not dynet:
        print("no real DyNet found: `make oracle` installs it (Python 3.8), or name a Python that has it in")
        print("DYNET_COMPAT_ORACLE, to fill the last two columns")
    for line in wrong:
        print("FAILED " + line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
