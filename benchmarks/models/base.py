"""What the models have in common: parameters by name, sizes, random instances."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, ClassVar

# Lengths of the sentences of the Stanford Sentiment Treebank and of XNLI: median, spread and bounds of the
# distributions that instances are drawn from.
SST_LENGTHS = (19, 9, 2, 52)
XNLI_LENGTHS = (20, 9, 4, 60)


def length(rng: random.Random, distribution: tuple[int, int, int, int]) -> int:
    mean, spread, least, most = distribution
    return min(most, max(least, round(rng.gauss(mean, spread))))


class Model:
    """One of the seven.

    Args:
        ops: what to compute with.
        p: parameters, an attribute for each name of `parameters(size)`.
        size: an entry of `sizes`.
    """

    name: ClassVar[str]
    sizes: ClassVar[dict[str, int]]
    cells: ClassVar[tuple[str, ...]] = ()  # methods from tensors to tensors, for compilers
    decides = False  # control flow depends on values that are read on the way
    words = 1000

    def __init__(self, ops: SimpleNamespace, p: SimpleNamespace, size: int) -> None:
        self.ops, self.p, self.size = ops, p, size

    @staticmethod
    def parameters(size: int) -> dict[str, tuple[int, ...]]:
        """Shapes; names that begin with "table_" are lookup tables, of which only the rows used are read."""
        raise NotImplementedError

    @classmethod
    def instance(cls, rng: random.Random, size: int) -> Any:
        """Random data for one instance."""
        raise NotImplementedError

    def __call__(self, instance: Any) -> list[Any]:
        """The losses of one instance."""
        raise NotImplementedError


class OverTrees(Model):
    """A model of sentiment trees, with a class for the root. An instance is a tree of words and the class."""

    classes = 5

    @classmethod
    def instance(cls, rng: random.Random, size: int) -> Any:
        count = length(rng, SST_LENGTHS) if size > 8 else rng.randrange(2, 5)
        tree = binary_tree(rng, [rng.randrange(cls.words) for _ in range(count)])
        return tree, rng.randrange(cls.classes)


def binary_tree(rng: random.Random, leaves: list[int]) -> Any:
    """A tree over the leaves: a leaf, or a pair of trees."""
    if len(leaves) == 1:
        return leaves[0]
    at = rng.randrange(1, len(leaves))
    return binary_tree(rng, leaves[:at]), binary_tree(rng, leaves[at:])
