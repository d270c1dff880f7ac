"""`print_text_graphviz`, and what it says of a node: "v2 = v0 * v1"."""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Callable

import numpy as np

from .. import _core

__all__ = ["describe", "dims_text", "print_text_graphviz"]


def dims_text(sizes: Sequence[int], batch: int) -> str:
    """Sizes and batch size: "{3,4}", "{3,4X2}"."""
    return "{" + ",".join(map(str, sizes)) + (f"X{batch}" if batch > 1 else "") + "}"


def _real(word: int) -> str:
    """A float attribute as C++ streams print it: six digits."""
    return f"{struct.unpack('f', struct.pack('I', word))[0]:.6g}"


def _list(numbers: Sequence[int]) -> str:
    return "[" + ",".join(map(str, numbers)) + "]"


class _Node:
    """What a description is made of."""

    def __init__(self, number: int) -> None:
        self.op, self.arguments, sizes, batch, _ = _core._graph_node(number)
        self.words, self.ids, self.listed, self.rows = _core._node_words(number)
        self.sizes, self.batch = sizes, batch
        self.dims = dims_text(sizes, batch)
        self.parameter = (_core._node_parameter(number) or "").replace('"', '\\"').replace("\n", " ")
        self.v = [f"v{a}" for a in self.arguments]

    def real(self, at: int) -> str:
        return _real(self.words[at])

    @property
    def number(self) -> str:
        """The number of an operator: an attribute, or kept by the node."""
        return _real((self.words or self.ids)[0])

    @property
    def index(self) -> str:
        """The indices: one, or a list if there is one for each item of the batch."""
        return _list(self.ids) if self.listed else str(self.ids[0])

    @property
    def reduced(self) -> str:
        """Dimensions of a reduction: attributes {.., b, n, d1 .. dn}. DyNet forgets to open an empty list."""
        from_end = {"moment_dim": 3}.get(self.op, 1)
        dims = self.words[from_end + 1 :]
        return "{" + ",".join(map(str, dims)) + "}" if dims else "}"


# Words with the arguments in place of {0}, {1} ..
_FORMS = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "cmult": "{0} \\cdot {1}", "cdiv": "{0} / {1}",
    "pow": "{0} ** {1}", "matmul": "{0} * {1}", "negate": "-{0}", "logistic": "\\sigma({0})",
    "rectify": "ReLU({0})", "bmax": "max{{{0}, {1}}}", "bmin": "min{{{0}, {1}}}",
    "dot_product": "{0}^T . {1}", "squared_distance": "|| {0} - {1} ||^2", "squared_norm": "|| {0} ||^2",
    "l1_distance": "|| {0} - {1} ||_1", "l2_norm": "|| {0} ||", "sum_elems": "sum_elems( {0} )",
    "trace_of_product": "Tr({0} * {1}^T)", "to_device": "copy {0} between devices",
    "conv2d": "conv2d({0}, f={1})", "conv2d_bias": "conv2d({0}, f={1}, b={2})",
    "filter1d_narrow": "conv1d_narrow({0}, f={1})", "kmh_ngram": "kmh-ngram({0})",
    "contract3d_1d": "dot({0},{1})", "contract3d_1d_bias": "dot({0},{1}) + {2}",
    "contract3d_1d_1d": "dotdot({0},{1},{2})", "contract3d_1d_1d_bias": "dotdot({0},{1},{2}) + {3}",
    "constrained_softmax": "constrained_softmax({0})", "restricted_log_softmax": "r_log_softmax({0})",
    "flip_gradient": "flip_gradient({0})", "scale_gradient": "flip_gradient({0})",
    "selu": "ELU({0}, lambda=1.0507, alpha=1.67326)",
}  # fmt: skip


def _affine(n: _Node) -> str:
    products = [f"{w} * {x}" for w, x in zip(n.v[1::2], n.v[2::2])]
    return " + ".join([n.v[0], *products])


def _selected(n: _Node) -> str:
    """Attributes {n, strides.., n, from.., n, to..}; DyNet leaves out what is as it is, and all commas."""
    lists, words = [], list(n.words)
    while words:
        count, *words = words
        lists.append(words[:count])
        words = words[count:]
    named = zip(("strides", "from", "to"), lists)
    return f"StridedSelect({n.v[0]},[" + "".join(f"{k}={','.join(map(str, v))}" for k, v in named if v) + "])"


def _random(n: _Node) -> str:
    kind, a, b = n.words
    return (
        f"random_normal({n.dims})",
        f"random_uniform({n.dims}, {_real(a)}, {_real(b)})",
        f"random_bernoulli({n.dims}, {_real(a)})",
        f"random_gumbel({n.dims}, 0, 1)",
    )[kind]


def _parameter(n: _Node) -> str:
    kind = "parameters" if n.words[1] == 1 else "const_parameters"
    return f"{kind}({n.dims}) @ {n.parameter}"


_WRITERS: dict[str, Callable[[_Node], str]] = {
    "input": lambda n: f"constant({n.dims})",
    "constant": lambda n: f"constant({n.dims},{n.real(0)})",
    "parameter": _parameter,
    "lookup": lambda n: f"lookup_parameters(|x|={n.rows} --> {dims_text(n.sizes, n.batch)}) @ {n.parameter}",
    "random": _random,
    "affine_transform": _affine,
    "esum": lambda n: " + ".join(n.v),
    "emax": lambda n: "max{" + ", ".join(n.v) + "}",
    "logsumexp": lambda n: "log(" + " + ".join(f"exp {v}" for v in n.v) + ")",
    "concatenate": lambda n: "concat({" + ",".join(n.v) + f"}}, {n.words[0]})",
    "concatenate_to_batch": lambda n: f"concat_batch_elems({','.join(n.v)})",
    "add_const": lambda n: f"{n.number} + {n.v[0]}",
    "const_minus": lambda n: f"{n.number} - {n.v[0]}",
    "pow_const": lambda n: f"{n.v[0]} ** {n.real(0)}",
    "const_div": lambda n: f"{n.number} / {n.v[0]}",
    "scale": lambda n: f"{n.v[0]} * {n.number}",
    "elu": lambda n: f"ELU({n.v[0]}, lambda=1, alpha={n.real(0)})",
    "silu": lambda n: f"{n.v[0]}*\\sigma({n.v[0]}*beta), beta={n.real(0)})",
    "pairwise_rank_loss": lambda n: f"max(0, {n.real(0)} - {n.v[0]} + {n.v[1]})",
    "huber_distance": lambda n: f"|| {n.v[0]} - {n.v[1]} ||_H({n.real(0)})",
    "cumsum": lambda n: f"cumsum(expression={n.v[0]},{n.words[0]})",
    "sum_dim": lambda n: f"sum_dim(expression={n.v[0]},{n.reduced})",
    "std_dim": lambda n: f"std_dim(expression={n.v[0]},{n.reduced})",
    "moment_dim": lambda n: f"moment_dim(expression={n.v[0]},{n.reduced}), order={n.words[0]}",
    "logsumexp_dim": lambda n: f"logsumexp_dim({n.v[0]}, {n.words[0]})",
    "max_dim": lambda n: f"max_dim({n.v[0]}, reduced_dim={n.words[0]})",
    "min_dim": lambda n: f"min_dim({n.v[0]}, reduced_dim={n.words[0]})",
    "reshape": lambda n: f"reshape({n.v[0]} --> {n.dims})",
    "transpose": lambda n: f"transpose({n.v[0]}, {{{','.join(map(str, n.words[1:]))}}})",
    "pick": lambda n: f"pick({n.v[0]},{n.index}, {n.words[0]})",
    "pick_batch_elems": lambda n: f"pick_batch_elems({n.v[0]},{n.index})",
    "pick_range": lambda n: f"slice({n.v[0]},{n.words[0]}:{n.words[1]}, dim={n.words[2]})",
    "strided_select": _selected,
    "select_rows": lambda n: f"select_rows({n.v[0]}, {{rsize={n.words[0]}}})",
    "select_cols": lambda n: f"select_cols({n.v[0]}, {{csize={n.words[0]}}})",
    "fold_rows": lambda n: f"fold_rows({n.v[0]}, nrows={n.words[0]})",
    "kmax_pooling": lambda n: f"kmaxpool({n.v[0]}, k={n.words[0]}, d={n.words[1]})",
    "hinge": lambda n: f"hinge({n.v[0]}, pe={n.index}, m={n.real(0)})",
    "hinge_dim": lambda n: f"hinge_dim({n.v[0]}, pe={_list(n.ids)}, d={n.words[0]}, m={n.real(1)})",
    "poisson_loss": lambda n: f"-log Poisson({n.ids[0]}; lambda=\\exp{n.v[0]})",
    "argmax": lambda n: f"{('argmax', 'straight_through')[n.words[0]]}({n.v[0]})_{{{n.dims}}}",
}


def _pickneglogsoftmax(n: _Node) -> str:
    return f"pickneglogsoftmax({n.v[0]})_{{{','.join(map(str, n.ids))}}}"


_WRITERS["pickneglogsoftmax"] = _pickneglogsoftmax
_WRITERS |= {
    "add_own": _WRITERS["add_const"], "own_minus": _WRITERS["const_minus"],
    "own_div": _WRITERS["const_div"], "scale_by_own": _WRITERS["scale"],
}  # fmt: skip


def describe(number: int) -> str:
    """What a node of the graph is: DyNet's words, with a parameter's name where DyNet has an address."""
    n = _Node(number)
    if n.op in _FORMS:
        return _FORMS[n.op].format(*n.v)
    if n.op in _WRITERS:
        return _WRITERS[n.op](n)
    return f"{n.op}({', '.join(n.v)})"


def nodes() -> Iterator[tuple[str, list[int], tuple[int, ...], int, bool]]:
    """The nodes of the graph as it is now: op, arguments, sizes, batch size, in its argument's memory."""
    for number in range(_core.cg_size()):
        yield _core._graph_node(number)


def _kib(number: float) -> str:
    return f"{number / 1024:>11.4g} KiB"


def print_text_graphviz() -> None:
    """Print the graph on stderr, in the language of Graphviz.

    Each node is labelled with its op and its arguments; with `--dynet-profiling` also with the memory of its
    value, and from level 2 on a table of all kinds of nodes follows.

    Source: DyNet 2.1 `print_text_graphviz`.
    Example:
        >>> y = dy.tanh(dy.inputVector([1, 2]))
        >>> dy.print_text_graphviz()
    """
    from ..startup.config import profiling_level

    level = profiling_level()
    lines = ["digraph G {", "  rankdir=LR;", "  nodesep=.05;"]
    used: dict[str, list[int]] = {}  # label with unnamed arguments -> bytes of each node
    for number, (_, arguments, sizes, batch, shared) in enumerate(nodes()):
        words = describe(number)
        label = f"v{number} = {words}"
        memory = 0 if shared else 4 * batch * int(np.prod(sizes))
        if level:
            label += f" (MEM: {_kib(memory)}{' (forward/backward inplaced)' if shared else ''})"
        used.setdefault(re.sub(r"\bv\d+", "a", words), []).append(memory)
        lines.append(f'  N{number} [label="{label}"];')
        lines += [f"  N{argument} -> N{number};" for argument in arguments]
    lines.append("}")
    if level > 1:
        lines += ["", "Aggregated nodes, sorted by memory consumption:"]
        total = sum(sum(sizes) for sizes in used.values())
        for kind, each in sorted(used.items(), key=lambda item: sum(item[1])):
            share = 100.0 * sum(each) / max(total, 1)
            lines.append(f"{_kib(sum(each))}\t{share:.4g}%\tcalled {len(each)}x\t{kind}")
        lines.append(f"{_kib(total)}\t100%\t(total)")
    print("\n".join(lines), file=sys.stderr)
