"""A softmax in two levels: clusters, and the words of each."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .. import _core
from .._core import Expression, concatenate, log_softmax
from .functions import _int
from .softmax import _check_collection, _class, _classes, _draw, _Layer, _vector, _WithSpec

__all__ = ["ClassFactoredSoftmaxBuilder"]


def _word_numbers(op: str, dic: Mapping[str, int]) -> dict[str, int]:
    """The dictionary, checked: words to 0..V-1, each once."""
    if not isinstance(dic, Mapping):
        raise TypeError(f"{op}(): expected a dict of words to numbers for dic, got {type(dic).__name__}")
    numbers = {}
    for word, number in dic.items():
        if not isinstance(word, str):
            raise TypeError(f"{op}(): expected words of type str in dic, got {type(word).__name__}")
        numbers[word] = _int(op, f"the number of {word!r}", number)
    if sorted(numbers.values()) != list(range(len(numbers))) or not numbers:
        raise ValueError(
            f"{op}(): expected dic to give the numbers 0 to {len(numbers) - 1}, each to one word; got "
            f"{sorted(set(numbers.values()))[:8]} for {len(numbers)} words"
        )
    return numbers


def _read_clusters(op: str, path: str, dic: Mapping[str, int]) -> list[tuple[str, int]]:
    """(cluster, word number) of each line `CLUSTER WORD [frequency]`; every word of dic once."""
    if not isinstance(path, str):
        raise TypeError(f"{op}(): expected a path of type str for cluster_file, got {type(path).__name__}")
    try:
        with open(path, encoding="utf-8") as stream:
            lines = stream.read().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{op}(): cannot read the cluster file {path!r}: {error}") from None
    found: list[tuple[str, int]] = []
    seen: set[int] = set()
    if lines[-1] == "":
        lines.pop()
    for n, line in enumerate(lines, 1):
        fields = line.split()
        if not 2 <= len(fields) <= 3:
            raise ValueError(f"{op}(): {path}:{n}: expected 'CLUSTER WORD [frequency]', got {line!r}")
        cluster, word = fields[:2]
        if word not in dic:
            raise RuntimeError(f"{op}(): {path}:{n}: expected words of dic only, got {word!r}")
        if dic[word] in seen:
            raise ValueError(f"{op}(): {path}:{n}: expected each word once, got {word!r} again")
        seen.add(dic[word])
        found.append((cluster, dic[word]))
    lost = [word for word, number in dic.items() if number not in seen]
    if lost:
        raise ValueError(f"{op}(): {path}: expected a line for each word of dic, got none for {lost[:5]}")
    return found


class ClassFactoredSoftmaxBuilder(_WithSpec):
    """p(word) = p(cluster) p(word | cluster): two small softmaxes in place of a large one.

    sample() draws the cluster, then the word in it; full_logits() is full_log_distribution(). Goodman,
    Classes for fast maximum entropy training, 2001.

    Args:
        input_dim: I, size of x.
        cluster_file: path of a text file with a line `CLUSTER WORD [frequency]` for each word; clusters are
            numbered in the order in which they appear.
        dic: the words' numbers, 0 to V-1.
        pc: ParameterCollection. In its sub-collection "class-factored-softmax-builder" are W {K,I} and b {K}
            for the K clusters and, for each cluster of n > 1 words, W {n,I} and b {n}.
        bias: False: no b.

    Raises:
        ValueError: the file cannot be read or has a line of another form; a word of dic has no line or two;
            the numbers are not 0 to V-1.
        RuntimeError: the file has a word that is not in dic.

    Example:
        >>> with open("clusters", "w") as file: print("verb go\\nverb sing\\nnoun bird", file=file)
        >>> pc = dy.ParameterCollection()
        >>> softmax = dy.ClassFactoredSoftmaxBuilder(4, "clusters", {"bird": 0, "go": 1, "sing": 2}, pc)
        >>> [p.shape() for p in pc.parameters_list()]
        [(2, 4), (2,), (2, 4), (2,)]
        >>> losses = [softmax.neg_log_softmax(dy.ones(4), word).value() for word in range(3)]
        >>> round(float(sum(np.exp(-loss) for loss in losses)), 5)
        1.0
    """

    _name = "ClassFactoredSoftmaxBuilder"

    def __init__(
        self, input_dim: int, cluster_file: str, dic: Mapping[str, int], pc: Any, bias: bool = True
    ) -> None:
        op = self._name
        self._input_dim = _int(op, "input_dim", input_dim, 1)
        numbers = _word_numbers(op, dic)
        _check_collection(op, pc)
        print(f"Reading clusters from {cluster_file} ...", file=sys.stderr)
        clusters: dict[str, int] = {}
        self._words: list[list[int]] = []  # of each cluster
        for cluster, word in _read_clusters(op, cluster_file, numbers):
            if cluster not in clusters:
                clusters[cluster] = len(clusters)
                self._words.append([])
            self._words[clusters[cluster]].append(word)
        single = sum(len(words) == 1 for words in self._words)
        print(
            f"Read {len(numbers)} words in {len(clusters)} clusters ({single} singleton clusters)",
            file=sys.stderr,
        )
        self._num_classes = len(numbers)
        self._spec = (self._input_dim, cluster_file, dict(dic), bool(bias))
        self._place = {word: (k, n) for k, words in enumerate(self._words) for n, word in enumerate(words)}
        self._pc = pc.add_subcollection("class-factored-softmax-builder")
        self._clusters = _Layer(self._pc, len(self._words), self._input_dim, bool(bias))
        self._inside = [
            _Layer(self._pc, len(words), self._input_dim, bool(bias)) if len(words) > 1 else None
            for words in self._words
        ]
        # full_logits() has the words cluster by cluster; this puts them in the order of their numbers
        order = [word for words in self._words for word in words]
        self._order = sorted(range(len(order)), key=order.__getitem__)

    def neg_log_softmax(self, x: Expression, c: int, update: bool = True) -> Expression:
        x = _vector("neg_log_softmax", x, self._input_dim, batched=False)
        cluster, n = self._place[_class("neg_log_softmax", c, self._num_classes)]
        loss = _core.pickneglogsoftmax(self._clusters.logits(x, update), cluster)
        inside = self._inside[cluster]
        return loss if inside is None else loss + _core.pickneglogsoftmax(inside.logits(x, update), n)

    def neg_log_softmax_batch(self, x: Expression, c: Sequence[int], update: bool = True) -> Expression:
        op = "neg_log_softmax_batch"
        x = _vector(op, x, self._input_dim)
        places = [self._place[word] for word in _classes(op, x, c, self._num_classes)]
        loss = _core.pickneglogsoftmax_batch(
            self._clusters.logits(x, update), [cluster for cluster, _ in places]
        )
        terms = []
        for b, (cluster, n) in enumerate(places):
            inside = self._inside[cluster]
            if inside is None:
                terms.append(_core.zeros(1))
            else:
                element = _core.pick_batch_elems(x, [b])
                terms.append(_core.pickneglogsoftmax(inside.logits(element, update), n))
        return loss + _core.concatenate_to_batch(terms)

    def sample(self, x: Expression) -> int:
        x = _vector("sample", x, self._input_dim, batched=False)
        cluster = _draw(log_softmax(self._clusters.logits(x, False)))
        inside = self._inside[cluster]
        n = 0 if inside is None else _draw(log_softmax(inside.logits(x, False)))
        return self._words[cluster][n]

    def full_log_distribution(self, x: Expression, update: bool = True) -> Expression:
        x = _vector("full_log_distribution", x, self._input_dim)
        clusters = log_softmax(self._clusters.logits(x, update))
        parts = []
        for k, inside in enumerate(self._inside):
            cluster = _core.pick(clusters, k)
            if inside is not None:
                cluster = log_softmax(inside.logits(x, update)) + cluster
            parts.append(cluster)
        joined = concatenate(parts)
        if self._order == list(range(len(self._order))):
            return joined
        return _core.select_rows(joined, self._order)

    def full_logits(self, x: Expression, update: bool = True) -> Expression:
        return self.full_log_distribution(x, update)

    def class_logits(self, x: Expression, update: bool = True) -> Expression:
        """Scores of the clusters.

        Args:
            x: Expression {I}xB.
            update: False: no gradient for the builder's parameters.
        Returns:
            Expression {K}xB.
        Raises:
            ValueError: wrong size of x.
        Source: DyNet 2.1 `ClassFactoredSoftmaxBuilder.class_logits`.
        Example:
            >>> with open("clusters", "w") as file: print("verb go\\nverb sing\\nnoun bird", file=file)
            >>> words = {"bird": 0, "go": 1, "sing": 2}
            >>> softmax = dy.ClassFactoredSoftmaxBuilder(4, "clusters", words, dy.ParameterCollection())
            >>> softmax.class_logits(dy.ones(4)).dim()
            ((2,), 1)
        """
        return self._clusters.logits(_vector("class_logits", x, self._input_dim), update)

    def class_log_distribution(self, x: Expression, update: bool = True) -> Expression:
        """Log probabilities of the clusters.

        Args:
            x: Expression {I}xB.
            update: False: no gradient for the builder's parameters.
        Returns:
            Expression {K}xB.
        Raises:
            ValueError: wrong size of x.
        Source: DyNet 2.1 `ClassFactoredSoftmaxBuilder.class_log_distribution`.
        Example:
            >>> with open("clusters", "w") as file: print("verb go\\nverb sing\\nnoun bird", file=file)
            >>> words = {"bird": 0, "go": 1, "sing": 2}
            >>> softmax = dy.ClassFactoredSoftmaxBuilder(4, "clusters", words, dy.ParameterCollection())
            >>> clusters = softmax.class_log_distribution(dy.ones(4))
            >>> round(float(np.exp(clusters.npvalue()).sum()), 5)
            1.0
        """
        return log_softmax(self.class_logits(x, update))

    def subclass_logits(self, x: Expression, classid: int, update: bool = True) -> Expression:
        """Scores of the n words of a cluster.

        Args:
            x: Expression {I}xB.
            classid: the cluster, 0 <= classid < K.
            update: False: no gradient for the builder's parameters.
        Returns:
            Expression {n}xB.
        Raises:
            ValueError: wrong size of x; no such cluster, or one of a single word.
        Source: DyNet 2.1 `ClassFactoredSoftmaxBuilder.subclass_logits`.
        Example:
            >>> with open("clusters", "w") as file: print("verb go\\nverb sing\\nnoun bird", file=file)
            >>> words = {"bird": 0, "go": 1, "sing": 2}
            >>> softmax = dy.ClassFactoredSoftmaxBuilder(4, "clusters", words, dy.ParameterCollection())
            >>> softmax.subclass_logits(dy.ones(4), 0).dim()
            ((2,), 1)
        """
        op = "subclass_logits"
        x = _vector(op, x, self._input_dim)
        classid = _int(op, "classid", classid)
        if classid >= len(self._inside):
            raise ValueError(f"{op}(): expected a cluster below {len(self._inside)}, got {classid}")
        inside = self._inside[classid]
        if inside is None:
            raise ValueError(f"{op}(): expected a cluster of several words, got {classid}, which has one")
        return inside.logits(x, update)

    def subclass_log_distribution(self, x: Expression, classid: int, update: bool = True) -> Expression:
        """Log probabilities of the n words of a cluster.

        Args:
            x: Expression {I}xB.
            classid: the cluster, 0 <= classid < K.
            update: False: no gradient for the builder's parameters.
        Returns:
            Expression {n}xB.
        Raises:
            ValueError: wrong size of x; no such cluster, or one of a single word.
        Source: DyNet 2.1 `ClassFactoredSoftmaxBuilder.subclass_log_distribution`.
        Example:
            >>> with open("clusters", "w") as file: print("verb go\\nverb sing\\nnoun bird", file=file)
            >>> words = {"bird": 0, "go": 1, "sing": 2}
            >>> softmax = dy.ClassFactoredSoftmaxBuilder(4, "clusters", words, dy.ParameterCollection())
            >>> verbs = softmax.subclass_log_distribution(dy.ones(4), 0)
            >>> round(float(np.exp(verbs.npvalue()).sum()), 5)
            1.0
        """
        return log_softmax(self.subclass_logits(x, classid, update))
