"""Doubly recurrent network (Alvarez-Melis and Jaakkola, 2017): a tree grown from the root down.

Each node has a state from its parent and one from the sibling before it; two scores decide whether it has
children and whether another sibling follows. Scores are read; draws with a fixed seed decide.
"""

from __future__ import annotations

import random
from typing import Any

from .base import Model


class DRNN(Model):
    name = "DRNN"
    sizes = {"small": 256, "large": 512, "quick": 8}
    decides = True
    cells = ("cell",)
    classes = 32
    most_levels = 6

    @staticmethod
    def parameters(size: int) -> dict[str, tuple[int, ...]]:
        return {
            "root": (size,),
            "first": (size,),
            "W_a": (size, size),
            "b_a": (size,),
            "W_f": (size, size),
            "b_f": (size,),
            "U_a": (size, size),
            "U_f": (size, size),
            "b_h": (size,),
            "D": (2, size),
            "d": (2,),
            "V": (DRNN.classes, size),
            "c": (DRNN.classes,),
        }

    @classmethod
    def instance(cls, rng: random.Random, size: int) -> Any:
        """A tree: label and children; what is generated follows it."""

        def grow(level: int) -> Any:
            more = level < (cls.most_levels if size > 8 else 2)
            children = [grow(level + 1) for _ in range(rng.choice((0, 2, 2, 3)))] if more else []
            return rng.randrange(cls.classes), children

        return grow(0)

    def cell(self, ancestor: Any, sibling: Any) -> tuple[Any, Any]:
        """State, and scores of the decisions."""
        o, p = self.ops, self.p
        a = o.tanh(o.affine([p.b_a, p.W_a, ancestor]))
        f = o.tanh(o.affine([p.b_f, p.W_f, sibling]))
        h = o.tanh(o.affine([p.b_h, p.U_a, a, p.U_f, f]))
        return h, o.logistic(o.affine([p.d, p.D, h]))

    def node(self, tree: Any, ancestor: Any, sibling: Any) -> tuple[list[Any], Any]:
        """Losses below a node, and the state for the sibling that follows."""
        o, p = self.ops, self.p
        label, children = tree
        h, scores = self.cell(ancestor, sibling)
        o.read(scores)  # would decide; `children` does
        losses = [o.loss(o.affine([p.c, p.V, h]), label)]
        before = p.first
        for child in children:
            below, before = self.node(child, h, before)
            losses += below
        return losses, h

    def __call__(self, instance: Any) -> list[Any]:
        return self.node(instance, self.p.root, self.p.first)[0]
