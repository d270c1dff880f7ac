"""Evaluating cases in a library: values, gradients, many copies in one graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import numpy as np
from ops.case import Case

SEED = 20  # the random seed under which random cases are compared


class Result(NamedTuple):
    """Value of the output, and gradients of sum(w*out) for every operand (None where not differentiated)."""

    value: np.ndarray  # dims + (batch,)
    dim: tuple[tuple[int, ...], int]
    grads: list[Optional[np.ndarray]]


def with_batch(array: np.ndarray, dim: tuple[tuple[int, ...], int]) -> np.ndarray:
    """npvalue() drops a batch axis of 1 (and NumPy's order is Fortran's): always dims + (batch,)."""
    dims, batch = dim
    return np.asarray(array).reshape(tuple(dims) + (batch,), order="F")


class Operands:
    """The operands of one copy of a case, in the current graph."""

    def __init__(self, dy: Any, case: Case, values: Sequence[np.ndarray], shared: dict[int, Any]) -> None:
        self.case = case
        self.exprs: list[Any] = []
        self.shared = shared
        for n, (spec, array) in enumerate(zip(case.inputs, values)):
            if spec.kind in ("param", "lookup"):
                self.exprs.append(shared[n])
            elif spec.batch > 1:
                self.exprs.append(dy.inputTensor(array, batched=True))
            else:
                self.exprs.append(dy.inputTensor(array[..., 0]))


def parameters(dy: Any, pc: Any, case: Case, values: Sequence[np.ndarray]) -> dict[int, Any]:
    """The parameters among a case's operands, by operand number."""
    made = {}
    for n, (spec, array) in enumerate(zip(case.inputs, values)):
        if spec.kind == "param":
            made[n] = pc.parameters_from_numpy(array[..., 0])
        elif spec.kind == "lookup":
            made[n] = pc.lookup_parameters_from_numpy(array[..., 0])
    return made


def weighted_sum(dy: Any, case: Case, out: Any, copy: int) -> Any:
    """sum(w * out) as an expression of one element."""
    dims, batch = out.dim()
    w = case.weights(tuple(dims) + (batch,), copy)
    weight = dy.inputTensor(w, batched=True) if batch > 1 else dy.inputTensor(w[..., 0])
    total = dy.sum_elems(dy.cmult(out, weight))
    return dy.sum_batches(total) if batch > 1 else total


def gradients(operands: Operands) -> list[Optional[np.ndarray]]:
    """Gradients of the operands after a backward(full=True), shape dims + (batch,)."""
    found: list[Optional[np.ndarray]] = []
    for spec, expr in zip(operands.case.inputs, operands.exprs):
        if spec.kind == "const":
            found.append(None)
        elif spec.kind in ("param", "lookup"):
            found.append(np.array(expr.grad_as_array())[..., None])
        else:
            found.append(with_batch(expr.gradient(), (spec.dims, spec.batch)))
    return found


def evaluate(
    dy: Any,
    case: Case,
    values: Optional[Sequence[np.ndarray]] = None,
    copy: int = 0,
    grads: Optional[bool] = None,
    autobatching: bool = False,
) -> Result:
    """One copy of a case in a graph of its own."""
    values = case.values(copy) if values is None else values
    dy.renew_cg(autobatching=autobatching)
    if case.random:
        dy.reset_random_seed(SEED)
    pc = dy.ParameterCollection()
    operands = Operands(dy, case, values, parameters(dy, pc, case, values))
    out = case.build(dy, operands.exprs, copy)
    value = with_batch(out.npvalue(), out.dim())
    if not (case.diff if grads is None else grads):
        return Result(value, out.dim(), [])
    loss = weighted_sum(dy, case, out, copy)
    loss.backward(full=True)
    return Result(value, out.dim(), gradients(operands))


class Copies(NamedTuple):
    """Results of several cases' copies in one graph, plus the gradients of the parameters they share."""

    results: list[Result]
    shared: list[dict[int, np.ndarray]]


def evaluate_together(dy: Any, jobs: Sequence[tuple[Case, int]], autobatching: bool, grads: bool) -> Copies:
    """Build every (case, copies) of `jobs` interleaved in one graph, then one forward and one backward."""
    dy.renew_cg(autobatching=autobatching)
    dy.reset_random_seed(SEED)
    pc = dy.ParameterCollection()
    pools = [parameters(dy, pc, case, case.values()) for case, _ in jobs]
    made: list[tuple[Operands, Any]] = []
    losses = []
    for copy in range(max(count for _, count in jobs)):
        for (case, count), pool in zip(jobs, pools):
            if copy >= count:
                continue
            operands = Operands(dy, case, case.values(copy), pool)
            out = case.build(dy, operands.exprs, copy)
            made.append((operands, out))
            if grads:
                losses.append(weighted_sum(dy, case, out, copy))
    if not grads:
        return Copies([Result(with_batch(out.npvalue(), out.dim()), out.dim(), []) for _, out in made], [])
    dy.esum([dy.reshape(loss, (1,)) for loss in losses]).backward(full=True)
    results = []
    for operands, out in made:
        own = [
            None if spec.kind in ("param", "lookup") else grad
            for spec, grad in zip(operands.case.inputs, gradients(operands))
        ]
        results.append(Result(with_batch(out.npvalue(), out.dim()), out.dim(), own))
    shared = [{n: np.array(p.grad_as_array()) for n, p in pool.items()} for pool in pools]
    return Copies(results, shared)


_erf = np.vectorize(math.erf, otypes=[np.float64])


def reference_value(case: Case, values: Sequence[np.ndarray]) -> np.ndarray:
    """The NumPy formula of a case, in float64."""
    x = [np.asarray(v, dtype=np.float64) for v in values]
    return np.asarray(eval(case.ref or "", {"np": np, "x": x, "erf": _erf}), dtype=np.float64)  # noqa: S307 - our own text


def reference_grads(case: Case, values: Sequence[np.ndarray], w: np.ndarray) -> list[Optional[np.ndarray]]:
    """Gradients of sum(w * formula): by `ref_grad`, or by central differences of the formula in float64."""
    x = [np.asarray(v, dtype=np.float64) for v in values]
    if case.ref_grad is not None:
        scope = {"np": np, "x": x, "w": np.asarray(w, dtype=np.float64)}
        return [np.asarray(eval(g, scope), dtype=np.float64) for g in case.ref_grad]  # noqa: S307 - our own text

    def objective() -> float:
        return float((w * reference_value(case, x)).sum())

    found: list[Optional[np.ndarray]] = []
    for spec, array in zip(case.inputs, x):
        grad = np.zeros_like(array)
        for at in np.ndindex(array.shape):
            kept = array[at]
            array[at] = kept + 1e-5
            up = objective()
            array[at] = kept - 1e-5
            grad[at] = (up - objective()) / 2e-5
            array[at] = kept
        found.append(None if spec.kind == "const" else grad)
    return found
