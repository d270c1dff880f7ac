"""The operations that the models use, of PyTorch, and of a counter of their work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np


def torch_ops(torch: Any) -> SimpleNamespace:
    """Of PyTorch. Vectors have one axis, and matrices the shape that they have in DyNet."""
    functional = torch.nn.functional

    def affine(terms: Sequence[Any]) -> Any:
        total = terms[0]
        for W, x in zip(terms[1::2], terms[2::2]):
            total = total + W @ x
        return total

    return SimpleNamespace(
        affine=affine,
        matmul=torch.matmul,
        tanh=torch.tanh,
        logistic=torch.sigmoid,
        relu=torch.relu,
        cmult=torch.mul,
        concatenate=lambda xs: torch.cat(list(xs)),
        columns=lambda xs: torch.stack(list(xs), 1),
        add_column=lambda x, b: x + b[:, None],
        rows=lambda x, a, b: x[a:b],
        transpose=lambda x: x.T,
        column=lambda x, i: x[:, i],
        scale=torch.mul,
        softmax=lambda x: torch.softmax(x, 0),
        column_norm=lambda x, gain, bias: functional.layer_norm(x.T, (x.shape[0],), gain, bias, 1e-9).T,
        lookup=lambda table, i: table[i],
        loss=lambda x, i: -torch.log_softmax(x, 0)[i],
        total=lambda xs: torch.stack(list(xs)).sum(),
        read=lambda x: x.tolist(),
    )


class Shape(tuple[int, ...]):
    """Stands for a value in `counting_ops`; + and - are element-wise."""

    counter: Counter

    def __add__(self, other: Any) -> Shape:  # type: ignore[override]
        return self.counter.elementwise(self)

    __sub__ = __add__


class Counter:
    """Floating-point operations, values, and table rows that one instance needs."""

    def __init__(self) -> None:
        self.flops = 0
        self.nodes = 0
        self.rows = 0  # floats of looked-up rows

    def shape(self, *dims: int) -> Shape:
        made = Shape(dims)
        made.counter = self
        return made

    def node(self, flops: int, *dims: int) -> Shape:
        self.nodes += 1
        self.flops += flops
        return self.shape(*dims)

    def elementwise(self, x: Shape, *_: Any) -> Shape:
        return self.node(math.prod(x), *x)


def counting_ops(counter: Counter) -> SimpleNamespace:
    """Counts instead of computing; parameters are `Shape`s."""

    def matmul(a: Shape, b: Shape) -> Shape:
        return counter.node(2 * math.prod(a) * (b[1] if len(b) > 1 else 1), a[0], *b[1:])

    def affine(terms: Sequence[Shape]) -> Shape:
        products = [matmul(W, x) for W, x in zip(terms[1::2], terms[2::2])]
        return counter.elementwise(products[0])

    def concatenate(xs: Sequence[Shape]) -> Shape:
        return counter.node(0, sum(x[0] for x in xs), *xs[0][1:])

    def lookup(table: Shape, i: int) -> Shape:
        counter.rows += math.prod(table[1:])
        return counter.shape(*table[1:])

    return SimpleNamespace(
        affine=affine,
        matmul=matmul,
        tanh=counter.elementwise,
        logistic=counter.elementwise,
        relu=counter.elementwise,
        cmult=counter.elementwise,
        concatenate=concatenate,
        columns=lambda xs: counter.node(0, xs[0][0], len(xs)),
        add_column=counter.elementwise,
        rows=lambda x, a, b: counter.node(0, b - a, *x[1:]),
        transpose=lambda x: counter.node(0, *reversed(x)),
        column=lambda x, i: counter.node(0, x[0]),
        scale=counter.elementwise,
        softmax=counter.elementwise,
        column_norm=counter.elementwise,
        lookup=lookup,
        loss=lambda x, i: counter.node(3 * math.prod(x), 1),
        total=lambda xs: counter.node(len(xs), 1),
        read=lambda x: [0.0] * math.prod(x),
    )


# ---------------------------------------------------------------- parameters


def initial(shape: Sequence[int], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Uniform, as large as Glorot's rule has it."""
    bound = math.sqrt(6.0 / sum(shape[-2:])) if len(shape) > 1 else 0.1
    return rng.uniform(-bound, bound, shape).astype(np.float32)
