"""Binary TreeLSTM (Tai et al., 2015) over sentiment trees, with a class for the root."""

from __future__ import annotations

from typing import Any

from .base import OverTrees


class TreeLSTM(OverTrees):
    name = "TreeLSTM"
    sizes = {"small": 256, "large": 512, "quick": 8}
    cells = ("leaf", "node")

    @staticmethod
    def parameters(size: int) -> dict[str, tuple[int, ...]]:
        gates = {f"{kind}_{gate}": (size, size) for gate in ("i", "o", "u") for kind in ("W", "l", "r")}
        forget = {name: (size, size) for name in ("ll", "lr", "rl", "rr")}
        biases = {f"b_{gate}": (size,) for gate in "iouf"}
        top = {"V": (TreeLSTM.classes, size), "c": (TreeLSTM.classes,)}
        return {"table_words": (TreeLSTM.words, size), **gates, **forget, **biases, **top}

    def leaf(self, x: Any) -> tuple[Any, Any]:
        o, p = self.ops, self.p
        i = o.logistic(o.affine([p.b_i, p.W_i, x]))
        u = o.tanh(o.affine([p.b_u, p.W_u, x]))
        c = o.cmult(i, u)
        return o.cmult(o.logistic(o.affine([p.b_o, p.W_o, x])), o.tanh(c)), c

    def node(self, hl: Any, cl: Any, hr: Any, cr: Any) -> tuple[Any, Any]:
        o, p = self.ops, self.p
        i = o.logistic(o.affine([p.b_i, p.l_i, hl, p.r_i, hr]))
        u = o.tanh(o.affine([p.b_u, p.l_u, hl, p.r_u, hr]))
        fl = o.logistic(o.affine([p.b_f, p.ll, hl, p.lr, hr]))
        fr = o.logistic(o.affine([p.b_f, p.rl, hl, p.rr, hr]))
        c = o.cmult(i, u) + o.cmult(fl, cl) + o.cmult(fr, cr)
        return o.cmult(o.logistic(o.affine([p.b_o, p.l_o, hl, p.r_o, hr])), o.tanh(c)), c

    def tree(self, tree: Any) -> tuple[Any, Any]:
        if isinstance(tree, int):
            return self.leaf(self.ops.lookup(self.p.table_words, tree))
        return self.node(*self.tree(tree[0]), *self.tree(tree[1]))

    def __call__(self, instance: Any) -> list[Any]:
        tree, label = instance
        h, _ = self.tree(tree)
        return [self.ops.loss(self.ops.affine([self.p.c, self.p.V, h]), label)]
