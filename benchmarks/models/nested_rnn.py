"""An RNN loop inside a GRU loop, both of 20 to 40 steps."""

from __future__ import annotations

import random
from typing import Any

from .base import Model


class NestedRNN(Model):
    name = "NestedRNN"
    sizes = {"small": 256, "large": 512, "quick": 8}
    cells = ("inner", "outer")
    classes = 16

    @staticmethod
    def parameters(size: int) -> dict[str, tuple[int, ...]]:
        gru = {f"{kind}_{gate}": (size, size) for gate in "zrn" for kind in ("W", "U")}
        biases = {f"b_{gate}": (size,) for gate in "zrni"}
        inner = {"W_i": (size, size), "U_i": (size, size)}
        top = {"V": (NestedRNN.classes, size), "c": (NestedRNN.classes,), "start": (size,)}
        return {"table_words": (Model.words, size), **gru, **biases, **inner, **top}

    @classmethod
    def instance(cls, rng: random.Random, size: int) -> Any:
        trips = (lambda: rng.randint(20, 40)) if size > 8 else (lambda: rng.randint(1, 3))
        return [[rng.randrange(cls.words) for _ in range(trips())] for _ in range(trips())], rng.randrange(
            cls.classes
        )

    def inner(self, word: Any, x: Any) -> Any:
        o, p = self.ops, self.p
        return o.tanh(o.affine([p.b_i, p.W_i, word, p.U_i, x]))

    def outer(self, x: Any, h: Any) -> Any:
        o, p = self.ops, self.p
        z = o.logistic(o.affine([p.b_z, p.W_z, x, p.U_z, h]))
        r = o.logistic(o.affine([p.b_r, p.W_r, x, p.U_r, h]))
        n = o.tanh(o.affine([p.b_n, p.W_n, x, p.U_n, o.cmult(r, h)]))
        return n + o.cmult(z, h - n)

    def __call__(self, instance: Any) -> list[Any]:
        o, p = self.ops, self.p
        sentences, label = instance
        h = p.start
        for words in sentences:
            x = h
            for word in words:
                x = self.inner(o.lookup(p.table_words, word), x)
            h = self.outer(x, h)
        return [o.loss(o.affine([p.c, p.V, h]), label)]
