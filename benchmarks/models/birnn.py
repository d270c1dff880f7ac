"""A bidirectional RNN over sentences, with one of 16 classes for each token."""

from __future__ import annotations

import random
from typing import Any

from .base import XNLI_LENGTHS, Model, length


class BiRNN(Model):
    name = "BiRNN"
    sizes = {"small": 256, "large": 512, "quick": 8}
    cells = ("step",)
    classes = 16

    @staticmethod
    def parameters(size: int) -> dict[str, tuple[int, ...]]:
        cell = {"W": (size, size), "U": (size, size), "b": (size,), "start": (size,)}
        both = {f"{name}_{way}": shape for way in ("f", "b") for name, shape in cell.items()}
        top = {"V_f": (BiRNN.classes, size), "V_b": (BiRNN.classes, size), "c": (BiRNN.classes,)}
        return {"table_words": (Model.words, size), **both, **top}

    @classmethod
    def instance(cls, rng: random.Random, size: int) -> Any:
        count = length(rng, XNLI_LENGTHS) if size > 8 else rng.randrange(2, 5)
        return [(rng.randrange(cls.words), rng.randrange(cls.classes)) for _ in range(count)]

    def step(self, x: Any, h: Any, W: Any, U: Any, b: Any) -> Any:
        return self.ops.tanh(self.ops.affine([b, W, x, U, h]))

    def run(self, xs: list[Any], W: Any, U: Any, b: Any, h: Any) -> list[Any]:
        states = []
        for x in xs:
            h = self.step(x, h, W, U, b)
            states.append(h)
        return states

    def __call__(self, instance: Any) -> list[Any]:
        o, p = self.ops, self.p
        xs = [o.lookup(p.table_words, word) for word, _ in instance]
        forward = self.run(xs, p.W_f, p.U_f, p.b_f, p.start_f)
        backward = self.run(xs[::-1], p.W_b, p.U_b, p.b_b, p.start_b)[::-1]
        return [
            o.loss(o.affine([p.c, p.V_f, f, p.V_b, b]), label)
            for f, b, (_, label) in zip(forward, backward, instance)
        ]
