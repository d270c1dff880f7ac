"""StackRNN: a shift-reduce parser whose stack and buffer are RNNs, with an action chosen at each step.

The scores of the actions are read at each step; actions drawn with a fixed seed are taken.
"""

from __future__ import annotations

import random
from typing import Any

from .base import XNLI_LENGTHS, Model, length

SHIFT, REDUCE = 0, 1


class StackRNN(Model):
    name = "StackRNN"
    sizes = {"small": 256, "large": 512, "quick": 8}
    decides = True
    cells = ("ahead", "score", "reduce", "push")

    @staticmethod
    def parameters(size: int) -> dict[str, tuple[int, ...]]:
        cells = {f"{kind}_{cell}": (size, size) for cell in "bs" for kind in ("W", "U")}
        biases = {name: (size,) for name in ("b_b", "b_s", "b_r", "b_h", "empty", "end")}
        reduce = {"R_l": (size, size), "R_r": (size, size)}
        top = {"H_s": (size, size), "H_b": (size, size), "A": (2, size), "a": (2,)}
        return {"table_words": (Model.words, size), **cells, **biases, **reduce, **top}

    @classmethod
    def instance(cls, rng: random.Random, size: int) -> Any:
        count = length(rng, XNLI_LENGTHS) if size > 8 else rng.randrange(2, 5)
        actions, depth, left = [], 0, count
        while left or depth > 1:
            action = SHIFT if depth < 2 or (left and rng.random() < 0.5) else REDUCE
            depth, left = (depth + 1, left - 1) if action == SHIFT else (depth - 1, left)
            actions.append(action)
        return [rng.randrange(cls.words) for _ in range(count)], actions

    def ahead(self, x: Any, h: Any) -> Any:
        o, p = self.ops, self.p
        return o.tanh(o.affine([p.b_b, p.W_b, x, p.U_b, h]))

    def score(self, stack: Any, ahead: Any) -> Any:
        o, p = self.ops, self.p
        return o.affine([p.a, p.A, o.relu(o.affine([p.b_h, p.H_s, stack, p.H_b, ahead]))])

    def reduce(self, left: Any, right: Any) -> Any:
        o, p = self.ops, self.p
        return o.tanh(o.affine([p.b_r, p.R_l, left, p.R_r, right]))

    def push(self, x: Any, state: Any) -> Any:
        o, p = self.ops, self.p
        return o.tanh(o.affine([p.b_s, p.W_s, x, p.U_s, state]))

    def __call__(self, instance: Any) -> list[Any]:
        o, p = self.ops, self.p
        words, actions = instance
        h, buffer = p.end, []
        for word in reversed(words):
            x = o.lookup(p.table_words, word)
            h = self.ahead(x, h)
            buffer.append((x, h))
        stack: list[tuple[Any, Any]] = [(None, p.empty)]  # what lies there, state of the stack with it
        losses = []
        for action in actions:
            ahead = buffer[-1][1] if buffer else p.end
            scores = self.score(stack[-1][1], ahead)
            o.read(scores)  # would decide; `action` does
            losses.append(o.loss(scores, action))
            if action == SHIFT:
                x = buffer.pop()[0]
            else:
                right, left = stack.pop()[0], stack.pop()[0]
                x = self.reduce(left, right)
            stack.append((x, self.push(x, stack[-1][1])))
        return losses
