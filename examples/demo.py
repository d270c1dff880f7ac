"""The main job in about a minute: train every example on real input, with batching off and on.

Each example runs in its own process on the Python standard library's sources, once with
DYNET_COMPAT_SCHEDULER=none and once as usual, from the same random seed. Exit status 1 when a run
fails, a loss does not fall, or batching changes the losses.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

# example -> (steps, instances per step)
JOBS = {
    "xor": (1000, 4),
    "mlp": (150, 100),
    "bilstm_tagger": (80, 32),
    "bilstm_char_tagger": (60, 32),
    "treelstm": (60, 32),
    "rnnlm": (25, 32),
    "seq2seq": (40, 32),
    "parser": (60, 32),
}
COMPARED = 5  # first losses that must agree between the two runs


class Failed(Exception):
    pass


def train(example: str, batching: bool, args: argparse.Namespace) -> dict[str, Any]:
    """Run one example in its own process and return what it wrote."""
    steps, batch = JOBS[example]
    steps = max(2, int(steps * args.scale))
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, str(HERE / f"{example}.py"), "--steps", str(steps)]
        command += ["--batch", str(batch), "--quiet", "--losses", str(result), "--dynet-seed", "1"]
        environment = dict(os.environ)
        if args.reference:
            command += ["--reference", "--dynet-autobatch", str(int(batching))]
        elif not batching:
            environment["DYNET_COMPAT_SCHEDULER"] = "none"
        run = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
        if run.returncode:
            raise Failed(f"{example}: exit status {run.returncode}\n{run.stderr[-2000:]}")
        return json.loads(result.read_text(encoding="utf-8"))


def check(example: str, off: dict[str, Any], on: dict[str, Any]) -> list[str]:
    """What is wrong with the two runs of an example."""
    wrong = []
    for name, result in (("off", off), ("on", on)):
        if not result["last"] < result["first"]:
            wrong.append(f"{example}: the loss does not fall with batching {name}")
    for step, (a, b) in enumerate(zip(off["losses"][:COMPARED], on["losses"])):
        if abs(a - b) > 1e-4 * abs(a) + 1e-6:
            wrong.append(f"{example}: loss {step + 1} is {a:.7g} with batching off, {b:.7g} with it on")
    return wrong


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("examples", nargs="*", default=list(JOBS), help="default: all of them")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the number of steps")
    parser.add_argument("--reference", action="store_true", help="run with the original dynet package")
    args = parser.parse_args(argv)
    unknown = sorted(set(args.examples) - set(JOBS))
    if unknown:
        parser.error(f"no such example: {', '.join(unknown)}")

    form = "{:20} {:20} {:24} {:>12} {:>12} {:>7}"
    print(form.format("example", "loss first -> last", "held-out score", "off, /s", "on, /s", "gain"))
    wrong = []
    for example in args.examples:
        try:
            off, on = (train(example, batching, args) for batching in (False, True))
        except Failed as failure:
            wrong.append(str(failure))
            print(f"{example:20} failed")
            continue
        wrong += check(example, off, on)
        rates = [result["instances"] / result["seconds"] for result in (off, on)]  # per second
        loss = f"{on['first']:.4f} -> {on['last']:.4f}"
        score = ", ".join(f"{name} {value:.3f}" for name, value in on["scores"].items())
        speeds = [f"{rates[0]:.0f}", f"{rates[1]:.0f}", f"{rates[1] / rates[0]:.2f}x"]
        print(form.format(example, loss, score, *speeds), flush=True)
    for line in wrong:
        print("FAILED " + line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
