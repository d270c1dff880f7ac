# ruff: noqa: UP031
"""What one entry of the case list is: an expression over inputs with reproducible values.

A case is plain data. `support.runner` builds it in a library; `cases.py` holds the list.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import numpy as np


class Input(NamedTuple):
    """One operand: how it is fed and which values it takes."""

    dims: tuple[int, ...]
    batch: int
    lo: float
    hi: float
    kind: str  # input | param | lookup (dims = (rows, width...)) | const (gradient not checked)
    gap: float  # no value closer than this to 0 (kinks)
    distinct: bool  # all values at least (hi-lo)/(2 size) apart (ties of max and the like)
    whole: bool  # integer values in [lo, hi]

    def values(self, seed: int) -> np.ndarray:
        """Values of shape dims + (batch,), float32."""
        shape = self.dims + (self.batch,)
        size = int(np.prod(shape))
        rng = np.random.RandomState(seed)
        if self.distinct:
            step = (self.hi - self.lo) / size
            flat = self.lo + step * (rng.permutation(size) + 0.25 + 0.5 * rng.rand(size))
        elif self.whole:
            flat = rng.randint(int(self.lo), int(self.hi) + 1, size).astype(np.float64)
        else:
            flat = self.lo + (self.hi - self.lo) * rng.rand(size)
        if self.gap:
            flat = np.where(
                np.abs(flat) < self.gap, np.where(flat < 0, -1, 1) * (self.gap + np.abs(flat)), flat
            )
        return flat.reshape(shape).astype(np.float32)

    def label(self) -> str:
        """Short form for ids: 3x2b4, with the kind when it is not a plain input."""
        kind = "" if self.kind == "input" else self.kind[0].upper()
        return kind + "x".join(map(str, self.dims)) + ("b%d" % self.batch if self.batch > 1 else "")


def t(
    *dims: int,
    b: int = 1,
    lo: float = -2.0,
    hi: float = 2.0,
    kind: str = "input",
    gap: float = 0.0,
    distinct: bool = False,
    whole: bool = False,
) -> Input:
    """Shorthand for an operand."""
    return Input(tuple(dims), b, lo, hi, kind, gap, distinct, whole)


class Case(NamedTuple):
    """One entry. `expr` is Python over dy, np, x (the operands) and k (number of the copy in a batch)."""

    id: str
    op: str
    expr: str
    inputs: tuple[Input, ...]
    diff: bool = True  # has a gradient with respect to its non-const operands
    rtol: float = 1e-5
    atol: float = 1e-6
    grad_tol: float = 1.0  # factor on the tolerances of the gradient
    fd: bool = True  # finite differences apply
    random: bool = False  # draws random numbers when computed: compare under one seed only
    seed: int = 0  # distinguishes cases with equal text
    ref: Optional[str] = (
        None  # NumPy formula over x (dims + batch axis), where the reference is wrong or refuses
    )
    ref_grad: Optional[tuple[str, ...]] = (
        None  # gradients by formula over x, w, where `ref` is not to be differentiated
    )
    why: str = ""  # what is wrong with the reference

    @property
    def key(self) -> str:
        """Everything the recorded values depend on."""
        return "%s | %s | %d" % (self.expr, " ".join(repr(tuple(i)) for i in self.inputs), self.seed)

    def values(self, copy: int = 0) -> list[np.ndarray]:
        """Operand values; parameters and lookups are the same in every copy."""
        base = zlib.crc32(self.key.encode())
        shared = ("param", "lookup")
        return [
            spec.values((base + 7919 * n + (0 if spec.kind in shared else 104729 * copy)) % 2**32)
            for n, spec in enumerate(self.inputs)
        ]

    def weights(self, shape: Sequence[int], copy: int = 0) -> np.ndarray:
        """The weights w of the scalar sum(w * out) whose gradient is taken."""
        rng = np.random.RandomState((zlib.crc32(self.key.encode()) ^ 0x5EED) + copy)
        w = 0.5 + rng.rand(*shape)
        return np.where(rng.rand(*shape) < 0.4, -w, w).astype(np.float32)

    def build(self, dy: Any, x: Sequence[Any], copy: int = 0) -> Any:
        """The output expression in library `dy`."""
        return eval(self.expr, {"dy": dy, "np": np, "x": list(x), "k": copy})  # noqa: S307 - our own text

    def describe(self) -> str:
        """For messages."""
        shapes = ", ".join("%s {%s}x%d" % (i.kind, ",".join(map(str, i.dims)), i.batch) for i in self.inputs)
        return f"case {self.id}: op {self.op}, {self.expr}, operands [{shapes}]"


class CaseList:
    """Collects cases and gives them unique ids."""

    def __init__(self) -> None:
        self.cases: list[Case] = []
        self._ids: dict[str, int] = {}

    def add(self, op: str, expr: str, *inputs: Input, **marks: Any) -> None:
        """Append one case."""
        base = op + "/" + ("-".join(i.label() for i in inputs) or "none")
        count = self._ids.get(base, 0) + 1
        self._ids[base] = count
        self.cases.append(
            Case(base if count == 1 else "%s/%d" % (base, count), op, expr, tuple(inputs), **marks)
        )
