"""Small objects that hold a number or a list of numbers, and the classes of inputs, lookups and picks.

`_inputExpression(g, s)` and its like are what `scalarInput(s)` and its like return; old scripts make them
themselves. Here is what their calls record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Optional

from .. import _core
from .._core import Expression
from .functions import _check_device, _flat_input, _float, _int, _ints, _sizes, _sparse_places

__all__ = ["FloatValue", "FloatVectorValue", "UnsignedValue", "UnsignedVectorValue"]


def _single(value: float) -> float:
    """The number as 32 bits hold it."""
    import numpy as np

    return float(np.float32(value))


class UnsignedValue:
    """A number 0 <= val < 2**32; floats are truncated.

    Source: DyNet 2.1 `UnsignedValue`.
    Example:
        >>> dy.UnsignedValue(3).get()
        3
    """

    __module__ = "_dynet"
    __slots__ = ("_value",)

    def __init__(self, val: int = 0) -> None:
        self.set(val)

    def set(self, val: int) -> None:
        """Replace the number.

        Args:
            val: a number 0 <= val < 2**32.
        Raises:
            TypeError: not a number.
            OverflowError: it is out of this range.
        Source: DyNet 2.1 `UnsignedValue.set`.
        Example:
            >>> v = dy.UnsignedValue(1)
            >>> v.set(7)
            >>> v.get()
            7
        """
        self._value = _int("UnsignedValue", "val", val)

    def get(self) -> int:
        """The number.

        Source: DyNet 2.1 `UnsignedValue.get`.
        Example:
            >>> dy.UnsignedValue(7).get()
            7
        """
        return self._value


class FloatValue:
    """A number of 32 bits.

    Source: DyNet 2.1 `FloatValue`.
    Example:
        >>> dy.FloatValue(0.5).get()
        0.5
    """

    __module__ = "_dynet"
    __slots__ = ("_value",)

    def __init__(self, val: float = 0) -> None:
        self.set(val)

    def set(self, val: float) -> None:
        """Replace the number.

        Args:
            val: a number.
        Raises:
            TypeError: not a number.
        Source: DyNet 2.1 `FloatValue.set`.
        Example:
            >>> v = dy.FloatValue(1)
            >>> v.set(0.25)
            >>> v.get()
            0.25
        """
        self._value = _single(_float("FloatValue", "val", val))

    def get(self) -> float:
        """The number.

        Source: DyNet 2.1 `FloatValue.get`.
        Example:
            >>> dy.FloatValue(0.25).get()
            0.25
        """
        return self._value


class UnsignedVectorValue:
    """A list of numbers 0 <= v < 2**32.

    Source: DyNet 2.1 `UnsignedVectorValue`.
    Example:
        >>> v = dy.UnsignedVectorValue([1, 2])
        >>> v.size(), v.get()
        (2, [1, 2])
    """

    __module__ = "_dynet"
    __slots__ = ("_values",)

    def __init__(self, vals: Iterable[int]) -> None:
        self.set(vals)

    def set(self, newval: Iterable[int]) -> None:
        """Replace the numbers.

        Args:
            newval: numbers 0 <= v < 2**32.
        Raises:
            TypeError: not a list of numbers.
            OverflowError: one is out of this range.
        Source: DyNet 2.1 `UnsignedVectorValue.set`.
        Example:
            >>> v = dy.UnsignedVectorValue([])
            >>> v.set([4, 5])
            >>> v.get()
            [4, 5]
        """
        self._values = _ints("UnsignedVectorValue", "vals", newval)

    def get(self) -> list[int]:
        """A copy of the numbers.

        Source: DyNet 2.1 `UnsignedVectorValue.get`.
        Example:
            >>> dy.UnsignedVectorValue([4, 5]).get()
            [4, 5]
        """
        return list(self._values)

    def size(self) -> int:
        """How many numbers there are.

        Source: DyNet 2.1 `UnsignedVectorValue.size`.
        Example:
            >>> dy.UnsignedVectorValue([4, 5]).size()
            2
        """
        return len(self._values)


class FloatVectorValue:
    """A list of numbers of 32 bits.

    Source: DyNet 2.1 `FloatVectorValue`.
    Example:
        >>> v = dy.FloatVectorValue([1, 0.5])
        >>> v.size(), v.get()
        (2, [1.0, 0.5])
    """

    __module__ = "_dynet"
    __slots__ = ("_values",)

    def __init__(self, vals: Iterable[float]) -> None:
        self.set(vals)

    def set(self, newval: Iterable[float]) -> None:
        """Replace the numbers.

        Args:
            newval: numbers.
        Raises:
            TypeError: not a list of numbers.
        Source: DyNet 2.1 `FloatVectorValue.set`.
        Example:
            >>> v = dy.FloatVectorValue([])
            >>> v.set([2, 0.5])
            >>> v.get()
            [2.0, 0.5]
        """
        if isinstance(newval, (str, bytes)) or not isinstance(newval, Iterable):
            raise TypeError(f"FloatVectorValue(): expected a list of numbers, got {type(newval).__name__}")
        self._values = [_single(_float("FloatVectorValue", "vals", value)) for value in newval]

    def get(self) -> list[float]:
        """A copy of the numbers.

        Source: DyNet 2.1 `FloatVectorValue.get`.
        Example:
            >>> dy.FloatVectorValue([2, 0.5]).get()
            [2.0, 0.5]
        """
        return list(self._values)

    def size(self) -> int:
        """How many numbers there are.

        Source: DyNet 2.1 `FloatVectorValue.size`.
        Example:
            >>> dy.FloatVectorValue([2, 0.5]).size()
            2
        """
        return len(self._values)


# ---------------------------------------------------------------- classes of expressions


def _check_graph(op: str, g: Any) -> None:
    from .graph import ComputationGraph

    if not isinstance(g, ComputationGraph):
        raise TypeError(f"{op}(): expected the graph that cg() returns for g, got {type(g).__name__}")


def _input(g: Any, s: float, device: str = "") -> Expression:
    _check_graph("_inputExpression", g)
    return _core.scalarInput(s, device)


def _vector_input(
    g: Any, val: Iterable[float], dim: Optional[tuple[int, ...]] = None, batch_size: int = 1, device: str = ""
) -> Expression:
    _check_graph("_vecInputExpression", g)
    return _flat_input("_vecInputExpression", val, dim, batch_size, device, True)


def _tensor_input(
    g: Any,
    val: Iterable[float],
    dim: Optional[tuple[int, ...]] = None,
    batch_size: int = 1,
    device: str = "",
    reusable_expr: bool = False,
) -> Expression:
    _check_graph("_tensorInputExpression", g)
    return _flat_input("_tensorInputExpression", val, dim, batch_size, device, bool(reusable_expr))


def _transposed_input(
    val: Iterable[float], dim: Optional[tuple[int, ...]] = None, batch_size: int = 1, device: str = ""
) -> Expression:
    return _flat_input("inputTensorTranspose", val, dim, batch_size, device, False)


def _sparse_input(
    g: Any,
    idxs: Iterable[int],
    val: Iterable[float],
    dim: tuple[int, ...],
    batch_size: int = 1,
    defval: float = 0,
    device: str = "",
) -> Expression:
    op = "_sparseInputExpression"
    _check_graph(op, g)
    _check_device(op, device)
    return _sparse_places(op, idxs, val, _sizes(op, "dim", dim), batch_size, defval)


def _lookup(g: Any, p: Any, index: int = 0, update: bool = True) -> Expression:
    _check_graph("_lookupExpression", g)
    return _core.lookup(p, index, update)


def _lookup_batch(g: Any, p: Any, indices: Iterable[int], update: bool = True) -> Expression:
    _check_graph("_lookupBatchExpression", g)
    return _core.lookup_batch(p, indices, update)


def _pick(g: Any, e: Expression, index: int = 0, dim: int = 0) -> Expression:
    _check_graph("_pickerExpression", g)
    return _core.pick(e, index, dim)


def _pick_batch(g: Any, e: Expression, indices: Iterable[int], dim: int = 0) -> Expression:
    _check_graph("_pickerBatchExpression", g)
    return _core.pick_batch(e, indices, dim)


for _kind, _make in (
    (_core._inputExpression, _input),
    (_core._vecInputExpression, _vector_input),
    (_core._tensorInputExpression, _tensor_input),
    (_core.inputTensorTranspose, _transposed_input),
    (_core._sparseInputExpression, _sparse_input),
    (_core._lookupExpression, _lookup),
    (_core._lookupBatchExpression, _lookup_batch),
    (_core._pickerExpression, _pick),
    (_core._pickerBatchExpression, _pick_batch),
):
    _core._constructor(_kind, _make)
