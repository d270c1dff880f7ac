"""BERxiT (Xin et al., 2021): a transformer encoder that is left early, the layers sharing their weights.

Sequences have 128 tokens; BERT-base has 12 layers of width 768, the large model 18 of BERT-large's. After
each layer a score is read, and a draw with a fixed seed decides whether to leave.
"""

from __future__ import annotations

import random
from typing import Any

from .base import Model

# width: heads, inner width, layers, tokens
SHAPES = {768: (12, 3072, 12, 128), 1024: (16, 4096, 18, 128), 8: (2, 16, 3, 4)}
SHAPES[16] = (2, 32, 12, 16)  # the layers of the first: benchmarks/gpu_model.py counts steps


class Berxit(Model):
    name = "Berxit"
    sizes = {"small": 768, "large": 1024, "quick": 8}
    decides = True
    cells = ("layer",)
    classes = 3

    @staticmethod
    def parameters(size: int) -> dict[str, tuple[int, ...]]:
        inner = SHAPES[size][1]
        attention = {name: (size, size) for name in ("Q", "K", "M", "O")}
        biases = {name: (size,) for name in ("b_q", "b_k", "b_m", "b_o", "b_2", "g_1", "n_1", "g_2", "n_2")}
        forward = {"F": (inner, size), "b_1": (inner,), "G": (size, inner)}
        top = {"E": (1, size), "e": (1,), "V": (Berxit.classes, size), "c": (Berxit.classes,)}
        return {"table_words": (Model.words, size), **attention, **biases, **forward, **top}

    @classmethod
    def instance(cls, rng: random.Random, size: int) -> Any:
        _, _, layers, tokens = SHAPES[size]
        left_after = min(layers, 1 + int(rng.expovariate(1.0 / (0.6 * layers))))
        return [rng.randrange(cls.words) for _ in range(tokens)], left_after, rng.randrange(cls.classes)

    def layer(self, x: Any) -> Any:
        o, p = self.ops, self.p
        heads = SHAPES[self.size][0]
        width = self.size // heads
        q = o.add_column(o.matmul(p.Q, x), p.b_q)
        k = o.add_column(o.matmul(p.K, x), p.b_k)
        v = o.add_column(o.matmul(p.M, x), p.b_m)
        out = []
        for head in range(heads):
            part = head * width, (head + 1) * width
            scores = o.matmul(o.transpose(o.rows(k, *part)), o.rows(q, *part))  # key, query
            out.append(o.matmul(o.rows(v, *part), o.softmax(o.scale(scores, width**-0.5))))
        attended = o.add_column(o.matmul(p.O, o.concatenate(out)), p.b_o)
        x = o.column_norm(x + attended, p.g_1, p.n_1)
        inner = o.relu(o.add_column(o.matmul(p.F, x), p.b_1))
        return o.column_norm(x + o.add_column(o.matmul(p.G, inner), p.b_2), p.g_2, p.n_2)

    def __call__(self, instance: Any) -> list[Any]:
        o, p = self.ops, self.p
        words, left_after, label = instance
        x = o.columns([o.lookup(p.table_words, word) for word in words])
        for _ in range(left_after):
            x = self.layer(x)
            first = o.column(x, 0)
            o.read(o.logistic(o.affine([p.e, p.E, first])))  # would decide; `left_after` does
        return [o.loss(o.affine([p.c, p.V, o.column(x, 0)]), label)]
