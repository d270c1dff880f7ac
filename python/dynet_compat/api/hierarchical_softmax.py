"""The softmax builder along a tree of classes, which DyNet has in C++ only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import _core
from .._core import Expression, concatenate, log_softmax
from .class_factored_softmax import _read_clusters, _word_numbers
from .functions import _int
from .softmax import _check_collection, _class, _classes, _draw, _Layer, _vector, _WithSpec

__all__ = ["HierarchicalSoftmaxBuilder"]


class _Branch:
    """An inner node of the tree of a HierarchicalSoftmaxBuilder."""

    def __init__(self) -> None:
        self.children: list[_Branch | int] = []  # an int is a word
        self.by_name: dict[str, _Branch] = {}
        self.layer: _Layer | None = None  # none with a single child

    def below(self, name: str) -> _Branch:
        if name not in self.by_name:
            self.by_name[name] = _Branch()
            self.children.append(self.by_name[name])
        return self.by_name[name]


class HierarchicalSoftmaxBuilder(_WithSpec):
    """p(word) = the product of the probabilities of the branches on the way to it in a tree.

    Each inner node of the tree has a softmax over its branches; a node with two branches has one row of
    weights, the log odds of the first of them. sample() draws once at each node on its way; full_logits() is
    full_log_distribution(). Morin and Bengio, Hierarchical probabilistic neural network language model, 2005.
    Not in DyNet's Python API.

    Args:
        input_dim: I, size of x.
        cluster_file: path of a text file with a line `PATH WORD [frequency]` for each word, as programs for
            Brown clustering write it. The parts of a path are separated by '/'; where no path has one, each
            character is a part ("0110"). Words of equal paths are the branches of one node.
        dic: the words' numbers, 0 to V-1.
        pc: ParameterCollection. In its sub-collection "hierarchical-softmax-builder" are W and b of the inner
            nodes, depth first, branches in the order in which they appear: {k,I} and {k} for k > 2 branches,
            {1,I} and {1} for two.
        bias: False: no b.

    Raises:
        ValueError: the file cannot be read or has a line of another form; a word of dic has no line or two;
            the numbers are not 0 to V-1.
        RuntimeError: the file has a word that is not in dic.

    Example:
        >>> with open("paths", "w") as file: print("00 go\\n00 sing\\n01 bird\\n1 the", file=file)
        >>> words = {"bird": 0, "go": 1, "sing": 2, "the": 3}
        >>> softmax = dy.HierarchicalSoftmaxBuilder(4, "paths", words, dy.ParameterCollection())
        >>> distribution = softmax.full_log_distribution(dy.ones(4)).npvalue()
        >>> round(float(np.exp(distribution).sum()), 5)
        1.0
        >>> bool(np.isclose(softmax.neg_log_softmax(dy.ones(4), 2).value(), -distribution[2]))
        True
    """

    _name = "HierarchicalSoftmaxBuilder"

    def __init__(
        self, input_dim: int, cluster_file: str, dic: Mapping[str, int], pc: Any, bias: bool = True
    ) -> None:
        op = self._name
        self._input_dim = _int(op, "input_dim", input_dim, 1)
        numbers = _word_numbers(op, dic)
        _check_collection(op, pc)
        lines = _read_clusters(op, cluster_file, numbers)
        self._num_classes = len(numbers)
        self._spec = (self._input_dim, cluster_file, dict(dic), bool(bias))
        self._root = _Branch()
        slashes = any("/" in path for path, _ in lines)
        for path, word in lines:
            branch = self._root
            for part in path.split("/") if slashes else path:
                branch = branch.below(part)
            branch.children.append(word)
        self._pc = pc.add_subcollection("hierarchical-softmax-builder")
        self._ways: dict[int, list[tuple[_Branch, int]]] = {}  # word -> the branch to take at each node
        stack: list[tuple[_Branch, list[tuple[_Branch, int]]]] = [(self._root, [])]
        while stack:
            branch, way = stack.pop()
            count = len(branch.children)
            if count > 1:
                branch.layer = _Layer(self._pc, 1 if count == 2 else count, self._input_dim, bool(bias))
            below = []
            for n, child in enumerate(branch.children):
                longer = [*way, (branch, n)] if count > 1 else way
                if isinstance(child, int):
                    self._ways[child] = longer
                else:
                    below.append((child, longer))
            stack.extend(reversed(below))

    @staticmethod
    def _loss(branch: _Branch, n: int, x: Expression, update: bool) -> Expression:
        """Minus the log probability of a node's branch."""
        assert branch.layer is not None
        logits = branch.layer.logits(x, update)
        if branch.layer.rows == 1:
            return -_core.log_sigmoid(-logits if n else logits)
        if logits.dim()[1] == 1:
            return _core.pickneglogsoftmax(logits, n)
        return _core.pickneglogsoftmax_batch(logits, [n] * logits.dim()[1])

    def _losses(self, x: Expression, word: int, update: bool) -> Expression:
        terms = [self._loss(branch, n, x, update) for branch, n in self._ways[word]]
        return _core.esum(terms) if terms else _core.zeros(1)

    def neg_log_softmax(self, x: Expression, c: int, update: bool = True) -> Expression:
        x = _vector("neg_log_softmax", x, self._input_dim, batched=False)
        return self._losses(x, _class("neg_log_softmax", c, self._num_classes), update)

    def neg_log_softmax_batch(self, x: Expression, c: Sequence[int], update: bool = True) -> Expression:
        x = _vector("neg_log_softmax_batch", x, self._input_dim)
        words = _classes("neg_log_softmax_batch", x, c, self._num_classes)
        elements = [_core.pick_batch_elems(x, [b]) for b in range(len(words))]
        return _core.concatenate_to_batch(
            [self._losses(element, word, update) for element, word in zip(elements, words)]
        )

    def sample(self, x: Expression) -> int:
        x = _vector("sample", x, self._input_dim, batched=False)
        branch = self._root
        while True:
            n = 0
            if branch.layer is not None:
                logits = branch.layer.logits(x, False)
                if branch.layer.rows == 1:
                    logits = concatenate([logits, _core.zeros(1)])
                n = _draw(log_softmax(logits))
            child = branch.children[n]
            if isinstance(child, int):
                return child
            branch = child

    def full_log_distribution(self, x: Expression, update: bool = True) -> Expression:
        x = _vector("full_log_distribution", x, self._input_dim)
        losses: dict[tuple[int, int], Expression] = {}
        words = []
        for word in range(self._num_classes):
            terms = []
            for branch, n in self._ways[word]:
                key = (id(branch), n)
                if key not in losses:
                    losses[key] = self._loss(branch, n, x, update)
                terms.append(losses[key])
            words.append(_core.esum(terms) if terms else _core.zeros(1))
        return -concatenate(words)

    def full_logits(self, x: Expression, update: bool = True) -> Expression:
        return self.full_log_distribution(x, update)
