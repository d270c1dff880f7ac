"""A predictor, an input for it, and what `predict` must make of them."""

from __future__ import annotations

import random
import sys
from pathlib import Path

PREDICTOR = """
import os, time
import dynet_compat as dy

PAUSE = 0

class Predictor:
    def __init__(self):
        self.model = dy.ParameterCollection()
        self.words = self.model.add_lookup_parameters((200, 4), init=1)

    def __call__(self, lines):
        time.sleep(PAUSE)
        dy.renew_cg()
        if any("bad" in line for line in lines):
            raise KeyError("bad")
        sums = [dy.sum_elems(dy.esum([self.words[len(w)] for w in line.split()])) for line in lines]
        dy.forward(sums)
        return [{"words": s.value() / 4} if i % 2 else f"{s.value() / 4:.0f}" for i, s in enumerate(sums)]
"""


def corpus(folder: Path, lines: int, pause: float = 0) -> list[str]:
    """Writes input and a predictor that sleeps so long for each batch; returns the result."""
    (folder / "model.py").write_text(PREDICTOR.replace("PAUSE = 0", f"PAUSE = {pause}"))
    rng = random.Random(1)
    counts = [rng.randint(1, 9) for _ in range(lines)]
    (folder / "in.txt").write_text("".join(" ".join(["word"] * n) + "\n" for n in counts))
    return [f'{{"words": {n}.0}}' if i % 7 % 2 else str(n) for i, n in enumerate(counts)]


def words(*options: str, predictor: str = "model.py:Predictor") -> list[str]:
    """What starts `predict` with batches of 7 and blocks of 70 lines."""
    return [sys.executable, "-m", "dynet_compat", "predict", "--batch", "7", "--block", "70", "-o", "out",
            *options, predictor, "in.txt"]  # fmt: skip


def output(folder: Path) -> list[str]:
    return (folder / "out" / "output.txt").read_text().splitlines()
