"""The computation graph as an object, and evaluation of several expressions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Optional, Union

import numpy as np

from . import _core
from ._core import Expression
from .functions import _check_device, _float, _int, _numbers, _sizes, _sparse

__all__ = [
    "available_devices",
    "cg",
    "cg_checkpoint",
    "cg_revert",
    "cg_version",
    "ComputationGraph",
    "DeviceInfo",
    "forward",
    "get_device_info",
    "npvalues",
    "print_graphviz",
    "renew_cg",
    "reset_random_seed",
    "values",
]

Value = Union[float, list[float], np.ndarray]


class ComputationGraph:
    """The graph: `cg()` and `renew_cg()` return it. Each thread has its own, on which the methods work.

    Its methods take node numbers, which `str(expression)` shows: "expression <number>/<version>".

    Source: DyNet 2.1 `ComputationGraph`.
    Example:
        >>> graph = dy.renew_cg()
        >>> x = dy.scalarInput(3) + 1
        >>> graph.forward_scalar(1)
        4.0
    """

    __module__ = "_dynet"
    __slots__ = ()

    def __init__(self, guard: int = 0) -> None:
        raise RuntimeError("ComputationGraph(): there is one graph (per thread), and cg() returns it")

    def renew(
        self,
        immediate_compute: bool = False,
        check_validity: bool = False,
        autobatching: Optional[bool] = None,
    ) -> ComputationGraph:
        """See `renew_cg`."""
        return renew_cg(immediate_compute, check_validity, autobatching)

    def version(self) -> int:
        """How often the graph was renewed."""
        return cg_version()

    def checkpoint(self) -> None:
        """See `cg_checkpoint`."""
        _core.cg_checkpoint()

    def revert(self) -> None:
        """See `cg_revert`."""
        _core.cg_revert()

    def forward(self, index: int) -> None:
        """Compute node `index` and all before it, from scratch."""
        _node("forward", index).forward(recalculate=True)

    def inc_forward(self, index: int) -> None:
        """Compute what is missing up to node `index`."""
        _node("inc_forward", index).forward()

    def forward_scalar(self, index: int) -> float:
        """Value of node `index`, one number, computed from scratch."""
        return _node("forward_scalar", index).scalar_value(recalculate=True)

    def inc_forward_scalar(self, index: int) -> float:
        """Value of node `index`, one number."""
        return _node("inc_forward_scalar", index).scalar_value()

    def forward_vec(self, index: int) -> list[float]:
        """Values of node `index`, flat, computed from scratch."""
        return _node("forward_vec", index).vec_value(recalculate=True)

    def inc_forward_vec(self, index: int) -> list[float]:
        """Values of node `index`, flat."""
        return _node("inc_forward_vec", index).vec_value()

    def backward(self, index: int, full: bool = False) -> None:
        """Gradients of node `index`, which has one element."""
        _node("backward", index).backward(full)

    def inputMatrixLiteral(
        self, v: Sequence[float], d: tuple[int, ...], batch_size: int = 1, device: str = ""
    ) -> Expression:
        """A tensor of numbers in memory order (column-major, batch last)."""
        op = "inputMatrixLiteral"
        _check_device(op, device)
        values, sizes = _numbers(op, list(v)).ravel(), _sizes(op, "d", d)
        return _core._input_array(values, sizes, _int(op, "batch_size", batch_size), True, "tensor")

    def inputSparseTensor(
        self,
        idxs: Sequence[int],
        v: Sequence[float],
        dim: tuple[int, ...],
        batch_size: int = 1,
        defval: float = 0,
        device: str = "",
    ) -> Expression:
        """A tensor of `defval` with `v` at the positions `idxs` in memory order."""
        op = "inputSparseTensor"
        _check_device(op, device)
        values, sizes = _numbers(op, list(v)), _sizes(op, "dim", dim)
        batch = _int(op, "batch_size", batch_size)
        places = [_int(op, "idxs", i) for i in idxs]
        size = prod(sizes) * batch
        if len(places) != values.size or any(place >= size for place in places):
            raise ValueError(f"{op}(): expected {values.size} positions < {size}, got {places}")
        if size >= 2**31:
            raise ValueError(f"{op}(): expected fewer than 2**31 elements, got {size}")
        where = np.array(places, dtype=np.int64)
        return _sparse(where, values, sizes, batch, _float(op, "defval", defval))

    def __repr__(self) -> str:
        return f"<the computation graph, version {cg_version()}, {_core.cg_size()} nodes>"


_graph = object.__new__(ComputationGraph)


def _node(op: str, index: int) -> Expression:
    number = _int(op, "index", index)
    if number >= _core.cg_size():
        raise IndexError(f"{op}(): expected a node < {_core.cg_size()}, got {number}")
    return _core._expression(number)


def cg() -> ComputationGraph:
    """The computation graph.

    Source: DyNet 2.1 `cg`.
    Example:
        >>> dy.cg() is dy.renew_cg()
        True
    """
    return _graph


def cg_version() -> int:
    """How often the graph was renewed: expressions of earlier versions cannot be used any more.

    Source: DyNet 2.1 `cg_version`.
    Example:
        >>> before = dy.cg_version()
        >>> graph = dy.renew_cg()
        >>> dy.cg_version() - before
        1
    """
    return _core.cg_version()


renew_cg = _core.renew_cg
_core._set_graph(_graph)


def cg_checkpoint() -> None:
    """Remember the graph as it is, for `cg_revert`; checkpoints stack.

    Source: DyNet 2.1 `cg_checkpoint`.
    Example:
        >>> x = dy.scalarInput(2)
        >>> dy.cg_checkpoint()
        >>> y = x * 3
        >>> dy.cg_revert()
        >>> x.value()
        2.0
    """
    _core.cg_checkpoint()


def cg_revert() -> None:
    """Forget the expressions made since the last `cg_checkpoint`; without one nothing happens.

    Source: DyNet 2.1 `cg_revert`.
    Example:
        >>> dy.cg_checkpoint()
        >>> y = dy.scalarInput(2) * 3
        >>> dy.cg_revert()
    """
    _core.cg_revert()


def reset_random_seed(seed: int) -> None:
    """Start the stream of random numbers again: initial parameters, dropout, noise, samples.

    Args:
        seed: any number 0 <= seed < 2**32; equal seeds give equal streams.
    Source: DyNet 2.1 `reset_random_seed`.
    Example:
        >>> dy.reset_random_seed(7)
        >>> first = dy.random_normal(3).value()
        >>> dy.reset_random_seed(7)
        >>> dy.random_normal(3).value() == first
        True
    """
    _core.reset_random_seed(_int("reset_random_seed", "seed", seed))


def _several(op: str, exps: Sequence[Expression]) -> list[Expression]:
    if isinstance(exps, (str, bytes, Expression)) or not isinstance(exps, Sequence):
        raise TypeError(f"{op}(): expected a list of Expressions, got {type(exps).__name__}")
    if not exps:
        raise IndexError(f"{op}(): expected at least one Expression, got an empty list")
    for e in exps:
        if not isinstance(e, Expression):
            raise TypeError(f"{op}(): expected a list of Expressions, got one with a {type(e).__name__}")
    return list(exps)


def forward(exps: Sequence[Expression], recalculate: bool = False) -> None:
    """Compute the expressions.

    Args:
        exps: Expressions.
        recalculate: compute them again if they are computed, with new random numbers.
    Raises:
        IndexError: exps is empty.
    Source: DyNet 2.1 `forward`.
    Example:
        >>> x, y = dy.scalarInput(2), dy.scalarInput(3)
        >>> dy.forward([x + y, x * 2])
    """
    _core._forward(_several("forward", exps), bool(recalculate))


def values(exps: Sequence[Expression], recalculate: bool = False) -> list[Value]:
    """Values of the expressions, computed together: `value()` of each.

    Args:
        exps: Expressions.
        recalculate: compute them again if they are computed, with new random numbers.
    Raises:
        IndexError: exps is empty.
    Source: DyNet 2.1 `values`.
    Example:
        >>> x, y = dy.scalarInput(2), dy.inputVector([3, 4])
        >>> dy.values([x, y])
        [2.0, [3.0, 4.0]]
    """
    several = _several("values", exps)
    _core._forward(several, bool(recalculate))
    return [e.value() for e in several]


def npvalues(exps: Sequence[Expression], recalculate: bool = False) -> list[np.ndarray]:
    """Values of the expressions as arrays, computed together: `npvalue()` of each.

    Args:
        exps: Expressions.
        recalculate: compute them again if they are computed, with new random numbers.
    Raises:
        IndexError: exps is empty.
    Source: DyNet 2.1 `npvalues`.
    Example:
        >>> [a.tolist() for a in dy.npvalues([dy.scalarInput(2), dy.inputVector([3, 4])])]
        [[2.0], [3.0, 4.0]]
    """
    several = _several("npvalues", exps)
    _core._forward(several, bool(recalculate))
    return [e.npvalue() for e in several]


# ---------------------------------------------------------------- devices


class DeviceInfo:
    """A device: `name`, `id` (0) and `type` (-1, the CPU)."""

    __module__ = "_dynet"
    __slots__ = ("name", "id", "type")

    def __init__(self, name: str, id: int, type: int) -> None:
        self.name, self.id, self.type = name, id, type


def available_devices() -> list[str]:
    """Names of the devices.

    Source: DyNet 2.1 `available_devices`.
    Example:
        >>> dy.available_devices()
        ['CPU']
    """
    return ["CPU"]


def get_device_info(name: str) -> DeviceInfo:
    """Description of a device.

    Args:
        name: one of `available_devices()`.
    Raises:
        RuntimeError: there is no such device.
    Source: DyNet 2.1 `get_device_info`.
    Example:
        >>> dy.get_device_info("CPU").name
        'CPU'
    """
    if not isinstance(name, str):
        raise TypeError(f"get_device_info(): expected a str, got {type(name).__name__}")
    if name not in available_devices():
        raise RuntimeError(f"get_device_info(): expected one of {available_devices()}, got {name!r}")
    return DeviceInfo(name, 0, -1)


def print_graphviz(**kwargs: Any) -> None:
    """Prints a hint: drawing belongs to the mode `--dynet-viz`.

    Example:
        >>> dy.print_graphviz()
        Run with --dynet-viz to get the visualization behavior.
    """
    print("Run with --dynet-viz to get the visualization behavior.")
