"""MV-RNN (Socher et al., 2012): every word and phrase is a vector and a matrix."""

from __future__ import annotations

from typing import Any

from .base import OverTrees


class MVRNN(OverTrees):
    name = "MV-RNN"
    sizes = {"small": 64, "large": 128, "quick": 4}
    cells = ("compose",)

    @staticmethod
    def parameters(size: int) -> dict[str, tuple[int, ...]]:
        return {
            "table_vectors": (MVRNN.words, size),
            "table_matrices": (MVRNN.words, size, size),
            "W_l": (size, size),
            "W_r": (size, size),
            "b": (size,),
            "M_l": (size, size),
            "M_r": (size, size),
            "V": (MVRNN.classes, size),
            "c": (MVRNN.classes,),
        }

    def tree(self, tree: Any) -> tuple[Any, Any]:
        o, p = self.ops, self.p
        if isinstance(tree, int):
            return o.lookup(p.table_vectors, tree), o.lookup(p.table_matrices, tree)
        return self.compose(*self.tree(tree[0]), *self.tree(tree[1]))

    def compose(self, a: Any, A: Any, b: Any, B: Any) -> tuple[Any, Any]:
        o, p = self.ops, self.p
        vector = o.tanh(o.affine([p.b, p.W_l, o.matmul(B, a), p.W_r, o.matmul(A, b)]))
        return vector, o.matmul(p.M_l, A) + o.matmul(p.M_r, B)

    def __call__(self, instance: Any) -> list[Any]:
        tree, label = instance
        vector, _ = self.tree(tree)
        return [self.ops.loss(self.ops.affine([self.p.c, self.p.V, vector]), label)]
