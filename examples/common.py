"""What the example scripts share: their command line, minibatches, and the report while training."""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any


def options(
    doc: str, argv: list[str] | None, hidden: int, batch: int, report: int = 50
) -> argparse.Namespace:
    """Parse the command line; unknown options are left alone, DyNet reads its own --dynet-* ones."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--data", help="input file (default: the Python standard library's sources)")
    parser.add_argument("--limit", type=int, help="use only the first LIMIT lines of the data")
    parser.add_argument("--hidden", type=int, default=hidden, help="hidden size (default %(default)s)")
    parser.add_argument("--batch", type=int, default=batch, help="instances per graph (default %(default)s)")
    parser.add_argument("--epochs", type=int, default=1, help="passes over the data (default 1)")
    parser.add_argument("--steps", type=int, help="stop after this many updates, whatever --epochs says")
    parser.add_argument("--report", type=int, default=report, help="steps between two progress lines")
    parser.add_argument("--quiet", action="store_true", help="no progress lines")
    parser.add_argument("--losses", metavar="FILE", help="write the loss of every step to FILE as JSON")
    parser.add_argument("--reference", action="store_true", help="run with the original dynet package")
    return parser.parse_known_args(argv)[0]


def split(instances: Sequence[Any], part: float = 0.1, most: int = 200) -> tuple[list[Any], list[Any]]:
    """Training instances and the held-out rest, taken from the end."""
    held_out = max(1, min(most, int(len(instances) * part)))
    return list(instances[:-held_out]), list(instances[-held_out:])


def batches(instances: Sequence[Any], args: argparse.Namespace) -> Iterator[list[Any]]:
    """Shuffled minibatches for --epochs passes, or for exactly --steps of them."""
    shuffle = random.Random(1).shuffle
    order = list(range(len(instances)))
    step = epoch = 0
    while args.steps or epoch < args.epochs:
        shuffle(order)
        for start in range(0, len(order), args.batch):
            if args.steps and step >= args.steps:
                return
            yield [instances[i] for i in order[start : start + args.batch]]
            step += 1
        epoch += 1


class Log:
    """Collects losses, prints progress, and writes them to --losses at the end."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.losses: list[float] = []  # sum over the batch, as DyNet computed it
        self.means: list[float] = []  # per word, node or example
        self.instances = self.seen = 0
        self.start = self.since = self.end = time.perf_counter()

    def step(self, loss: float, units: int, instances: int) -> None:
        """Record one update: its loss, how many predictions it sums, how many instances it used."""
        self.losses.append(loss)
        self.means.append(loss / units)
        self.instances += instances
        self.seen += instances
        self.end = time.perf_counter()
        if not self.args.quiet and len(self.losses) % self.args.report == 0:
            now = time.perf_counter()
            mean = sum(self.means[-self.args.report :]) / self.args.report
            rate = self.seen / (now - self.since)
            print(f"step {len(self.losses):6}  loss {mean:.4f}  {rate:.0f} instances/s")
            self.seen, self.since = 0, now

    def finish(self, **scores: float) -> dict[str, Any]:
        """Print and return what the run achieved."""
        seconds = self.end - self.start  # of training: without the evaluation
        tenth = max(1, len(self.means) // 10)
        result = {
            "losses": self.losses,
            "first": sum(self.means[:tenth]) / tenth,
            "last": sum(self.means[-tenth:]) / tenth,
            "instances": self.instances,
            "seconds": seconds,
            "scores": scores,
        }
        if not self.args.quiet:
            losses = f"{result['first']:.4f} -> {result['last']:.4f}"
            print(f"loss {losses}, {self.instances} instances, {seconds:.1f} s")
            for name, value in scores.items():
                print(f"{name} {value:.4f}")
        if self.args.losses:
            with open(self.args.losses, "w", encoding="utf-8") as stream:
                json.dump(result, stream)
        return result
