"""Inputs, lookups and ops of the drawing mode: each makes a node of its name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Callable, Optional

from .nodes import (
    Expression,
    GVExpr,
    InvalidConcreteDim,
    InvalidDim,
    SimpleConcreteDim,
    VizDim,
    copy_dim,
    ensure_all_same_dim,
    ensure_mul_dim,
    ensure_same_dim,
    make_dim,
)

# ---------------------------------------------------------------- inputs and lookups


def scalarInput(s: float) -> Expression:
    """A number."""
    return GVExpr("scalarInput", [s], make_dim(1, 1, True))


def vecInput(dim: int) -> Expression:
    """A vector."""
    return GVExpr("vecInput", [dim], make_dim(dim))


def inputVector(v: Sequence[float]) -> Expression:
    """A vector."""
    return GVExpr("inputVector", [], make_dim(len(v), 1, True))


def matInput(d1: int, d2: int) -> Expression:
    """A matrix."""
    return GVExpr("matInput", [d1, d2], make_dim(d1, d2))


def inputMatrix(v: Sequence[float], d: Any) -> Expression:
    """A matrix."""
    return GVExpr("inputMatrix", [], make_dim(d, inferred=True))


def lookup(p: Expression, index: int = 0, update: bool = True) -> Expression:
    """A row of a table."""
    return GVExpr("lookup", [p, index], copy_dim(p))


def lookup_batch(p: Expression, indices: Iterable[int], update: bool = True) -> Expression:
    """Rows of a table."""
    return GVExpr("lookup_batch", [p, list(indices)], copy_dim(p))


# ---------------------------------------------------------------- ops

Op1 = Callable[[Expression], Expression]
Op2 = Callable[[Expression, Expression], Expression]


def _scalar() -> VizDim:
    return make_dim(1, 1, True)


def _columns(x: Expression, rows: Optional[int]) -> VizDim:
    if not isinstance(x.dim, SimpleConcreteDim) or rows is None:
        return InvalidDim
    return make_dim(rows, x.dim.ncols, True)


def _unary(name: str) -> Op1:
    """An op whose result is as large as its argument."""

    def op(x: Expression) -> Expression:
        return GVExpr(name, [x], copy_dim(x))

    op.__name__ = name
    op.__doc__ = f"Node of `{name}`."
    return op


def _binary(name: str, scalar: bool) -> Op2:
    """An op of two arguments of one size, whose result is as large, or one number."""

    def op(x: Expression, y: Expression) -> Expression:
        dim = ensure_same_dim(x, y)
        return GVExpr(name, [x, y], _scalar() if scalar and dim.isvalid() else dim)

    op.__name__ = name
    op.__doc__ = f"Node of `{name}`."
    return op


nobackprop, flip_gradient, sum_batches = map(_unary, "nobackprop flip_gradient sum_batches".split())
tanh, exp, square, sqrt, erf, cube, log = map(_unary, "tanh exp square sqrt erf cube log".split())
lgamma, logistic, rectify, softmax, softsign = map(_unary, "lgamma logistic rectify softmax softsign".split())
cmult, cdiv, bmin, bmax = (_binary(name, False) for name in "cmult cdiv bmin bmax".split())
trace_of_product, dot_product, squared_distance, l1_distance, binary_log_loss = (
    _binary(name, True)
    for name in "trace_of_product dot_product squared_distance l1_distance binary_log_loss".split()
)


def pick(a: Expression, index: int = 0, dim: int = 0) -> Expression:
    """Node of `pick`."""
    return GVExpr("pick", [a, index], _scalar() if a.dim[1] == 1 else _columns(a, a.dim[1]))


def pick_batch(a: Expression, indices: Iterable[int], dim: int = 0) -> Expression:
    """Node of `pick_batch`."""
    return GVExpr("pick_batch", [a, list(indices)], _scalar())


def hinge(x: Expression, index: int, m: float = 1.0) -> Expression:
    """Node of `hinge`."""
    return GVExpr("hinge", [x, index, m], _scalar())


def max_dim(a: Expression, d: int = 0) -> Expression:
    """Node of `max_dim`."""
    size = a.dim[1 - d] if d in (0, 1) else None
    return GVExpr("max_dim", [a, d], InvalidDim if size is None else make_dim(size, 1, True))


def min_dim(a: Expression, d: int = 0) -> Expression:
    """Node of `min_dim`."""
    size = a.dim[1 - d] if d in (0, 1) else None
    return GVExpr("min_dim", [a, d], InvalidDim if size is None else make_dim(size, 1, True))


def colwise_add(x: Expression, y: Expression) -> Expression:
    """Node of `colwise_add`."""
    fits = x.dim[0] is not None and x.dim[0] == y.dim[0] and y.dim[1] == 1
    return GVExpr("colwise_add", [x, y], x.dim if fits else InvalidConcreteDim(x.dim, y.dim))


def filter1d_narrow(x: Expression, y: Expression) -> Expression:
    """Node of `filter1d_narrow`."""
    size = (x.dim[1] or 0) - (y.dim[1] or 0) + 1
    fits = x.dim.isvalid() and x.dim[0] == y.dim[0] and size > 0
    dim = make_dim(1, size, True) if fits else InvalidConcreteDim(x.dim, y.dim)
    return GVExpr("filter1d_narrow", [x, y], dim)


def log_softmax(x: Expression, restrict: Optional[Sequence[int]] = None) -> Expression:
    """Node of `log_softmax`."""
    return GVExpr("log_softmax", [x] if restrict is None else [x, restrict], copy_dim(x))


def pow(x: Expression, y: Any) -> Expression:  # noqa: A001 - DyNet's name
    """Node of `pow`."""
    return GVExpr("pow", [x, y], copy_dim(x))


def transpose(x: Expression) -> Expression:
    """Node of `transpose`."""
    return GVExpr("transpose", [x], InvalidDim if x.dim.invalid() else make_dim(x.dim[1], x.dim[0], True))


def sum_cols(x: Expression) -> Expression:
    """Node of `sum_cols`."""
    return GVExpr("sum_cols", [x], InvalidDim if x.dim.invalid() else make_dim(x.dim[0], 1, True))


def fold_rows(x: Expression, nrows: int = 2) -> Expression:
    """Node of `fold_rows`."""
    rows = x.dim[0]
    return GVExpr("fold_rows", [x, nrows], _columns(x, rows // nrows if rows and rows % nrows == 0 else None))


def pairwise_rank_loss(x: Expression, y: Expression, m: float = 1.0) -> Expression:
    """Node of `pairwise_rank_loss`."""
    return GVExpr("pairwise_rank_loss", [x, y, m], ensure_same_dim(x, y))


def poisson_loss(x: Expression, y: int) -> Expression:
    """Node of `poisson_loss`."""
    return GVExpr("poisson_loss", [x, y], copy_dim(x))


def huber_distance(x: Expression, y: Expression, c: float = 1.345) -> Expression:
    """Node of `huber_distance`."""
    dim = ensure_same_dim(x, y)
    return GVExpr("huber_distance", [x, y, c], _scalar() if dim.isvalid() else dim)


def kmax_pooling(x: Expression, k: int, d: int = 1) -> Expression:
    """Node of `kmax_pooling`."""
    if x.dim.invalid():
        return GVExpr("kmax_pooling", [x, k, d], InvalidDim)
    dim = make_dim(x.dim[0], k, True) if d else make_dim(k, x.dim[1], True)
    return GVExpr("kmax_pooling", [x, k, d], dim)


def pickneglogsoftmax(x: Expression, v: int) -> Expression:
    """Node of `pickneglogsoftmax`."""
    return GVExpr("pickneglogsoftmax", [x, v], _scalar())


def pickneglogsoftmax_batch(x: Expression, vs: Iterable[int]) -> Expression:
    """Node of `pickneglogsoftmax_batch`."""
    return GVExpr("pickneglogsoftmax_batch", [x, list(vs)], _scalar())


def kmh_ngram(x: Expression, n: int) -> Expression:
    """Node of `kmh_ngram`."""
    size = (x.dim[1] or 0) - n + 1
    return GVExpr("kmh_ngram", [x, n], make_dim(x.dim[0], size, True) if size > 0 else InvalidDim)


def pickrange(x: Expression, v: int, u: int) -> Expression:
    """Node of `pickrange`."""
    return GVExpr("pickrange", [x, v, u], _columns(x, u - v if 0 <= v < u else None))


def noise(x: Expression, stddev: float) -> Expression:
    """Node of `noise`."""
    return GVExpr("noise", [x, stddev], copy_dim(x))


def dropout(x: Expression, p: float) -> Expression:
    """Node of `dropout`."""
    return GVExpr("dropout", [x, p], copy_dim(x))


def block_dropout(x: Expression, p: float) -> Expression:
    """Node of `block_dropout`."""
    return GVExpr("block_dropout", [x, p], copy_dim(x))


def reshape(x: Expression, d: Any) -> Expression:
    """Node of `reshape`."""
    return GVExpr("reshape", [x, d], make_dim(d))


def esum(xs: Sequence[Expression]) -> Expression:
    """Node of `esum`."""
    return GVExpr("esum", xs, ensure_all_same_dim(xs))


def average(xs: Sequence[Expression]) -> Expression:
    """Node of `average`."""
    return GVExpr("average", xs, ensure_all_same_dim(xs))


def emax(xs: Sequence[Expression]) -> Expression:
    """Node of `emax`."""
    return GVExpr("emax", xs, ensure_all_same_dim(xs))


def _joined(xs: Sequence[Expression], axis: int) -> VizDim:
    if any(x.dim.invalid() or x.dim[1 - axis] != xs[0].dim[1 - axis] for x in xs):
        return InvalidDim
    size = sum(x.dim[axis] or 0 for x in xs)
    other = xs[0].dim[1 - axis]
    return make_dim(size, other, True) if axis == 0 else make_dim(other, size, True)


def concatenate_cols(xs: Sequence[Expression]) -> Expression:
    """Node of `concatenate_cols`."""
    return GVExpr("concatenate_cols", xs, _joined(xs, 1))


def concatenate(xs: Sequence[Expression]) -> Expression:
    """Node of `concatenate`."""
    return GVExpr("concatenate", xs, _joined(xs, 0))


def affine_transform(xs: Sequence[Expression]) -> Expression:
    """Node of `affine_transform`."""
    dim = xs[0].dim
    for w, x in zip(xs[1::2], xs[2::2]):
        product = ensure_mul_dim(w, x)
        if dim.isvalid() and product != dim:
            dim = product if product.invalid() else InvalidConcreteDim(dim, product)
    return GVExpr("affine_transform", xs, dim)
