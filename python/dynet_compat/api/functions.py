"""Functions of the API whose arguments need more than an op definition says.

The other functions are entry points of `_core`. Here arguments are checked and put into the words of a
row: `record(name, expressions, attributes, indices)`. The documentation texts are `_core`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, Callable, Optional, TypeVar, Union

import numpy as np

from .. import _core
from .._core import Expression, affine_transform, cmult, concatenate, nobackprop, noise, record

__all__ = [
    "inputMatrix",
    "inputTensor",
    "matInput",
    "one_hot",
    "sparse_inputTensor",
    "strided_select",
    "vanilla_lstm_gates",
    "vanilla_lstm_gates_concat",
    "vanilla_lstm_gates_dropout",
    "vanilla_lstm_gates_dropout_concat",
]

_F = TypeVar("_F", bound=Callable[..., Any])
_MOST_UINT = 2**32 - 1


def _documented(function: _F) -> _F:
    function.__doc__ = _core.doc(function.__name__)
    return function


# ---------------------------------------------------------------- arguments


def _kind(value: Any) -> str:
    """The type for messages; "Expression" for all kinds of them."""
    name = type(value).__name__
    return "Expression" if name.startswith("_") and isinstance(value, Expression) else name


def _int(op: str, name: str, value: Any, least: int = 0, most: int = _MOST_UINT) -> int:
    """An int: also from NumPy's, and from floats, which are truncated."""
    if type(value) is not int:
        if isinstance(value, (str, bytes, Expression)) or not hasattr(value, "__int__"):
            raise TypeError(f"{op}(): expected an int for {name}, got {_kind(value)}")
        try:
            value = int(value)
        except (ValueError, TypeError, OverflowError) as error:  # NaN, infinity, arrays of several
            raise type(error)(f"{op}(): expected an int for {name}, got {value!r}") from None
    if not least <= value <= most:
        raise OverflowError(f"{op}(): expected {least} <= {name} <= {most}, got {value}")
    number: int = value
    return number


def _int_array(op: str, name: str, values: np.ndarray, least: int, most: int) -> np.ndarray:
    """int64 of an array of one axis of ints, or of floats, which are truncated."""
    if values.ndim == 0 or values.size != len(values) or values.dtype.kind not in "biuf":
        shape = f"of {values.dtype}, shape {values.shape}"
        raise TypeError(f"{op}(): expected a list of ints for {name}, got an array {shape}")
    flat = np.trunc(values.ravel(), dtype=np.float64) if values.dtype.kind == "f" else values.ravel()
    if flat.size and not (least <= flat.min() and flat.max() <= most):  # NaN is neither
        raise (ValueError if np.isnan(flat).any() else OverflowError)(
            f"{op}(): expected {least} <= {name} <= {most}, got {flat.min()} to {flat.max()}"
        )
    return flat.astype(np.int64)


def _ints(op: str, name: str, values: Any, least: int = 0, most: int = _MOST_UINT) -> list[int]:
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        ints: list[int] = _int_array(op, name, values, least, most).tolist()
        return ints
    if type(values) is list or type(values) is tuple:  # the common case, and fast
        if all(type(value) is int and least <= value <= most for value in values):
            return list(values)
    elif isinstance(values, (str, bytes, Expression)) or not isinstance(values, Iterable):
        raise TypeError(f"{op}(): expected a list of ints for {name}, got {_kind(values)}")
    return [_int(op, name, value, least, most) for value in values]


def _float(op: str, name: str, value: Any) -> float:
    if isinstance(value, (str, bytes, Expression)) or not hasattr(value, "__float__"):
        raise TypeError(f"{op}(): expected a number for {name}, got {_kind(value)}")
    if isinstance(value, np.ndarray):
        if value.size != 1 or value.dtype.kind not in "biuf":
            raise TypeError(f"{op}(): expected a number for {name}, got an array of shape {value.shape}")
        value = value.item()
    return float(value)


def _check_device(op: str, device: str) -> None:
    if device != "":
        _core._check_device(op, device)


# ---------------------------------------------------------------- shape and selection


@_documented
def strided_select(
    x: Expression, strides: Sequence[int], range_from: Sequence[int], range_to: Sequence[int]
) -> Expression:
    words: list[int] = []
    for name, values in (("strides", strides), ("range_from", range_from), ("range_to", range_to)):
        entries = _ints("strided_select", name, values, -(2**31), 2**31 - 1)
        words += [len(entries), *entries]
    return record("strided_select", (x,), words)


# ---------------------------------------------------------------- LSTM


def _gates(
    op: str,
    x: Expression,
    h: Expression,
    weights: tuple[Expression, Expression, Expression],
    masks: Optional[tuple[Expression, Expression]],
    weightnoise_std: float,
) -> Expression:
    """Activated gates {4H}xB. Each call draws its own noise; masks receive no gradient."""
    std = _float(op, "weightnoise_std", weightnoise_std)
    if std < 0.0:
        raise ValueError(f"{op}(): expected weightnoise_std >= 0, got {std}")
    try:
        if masks is not None:
            x, h = cmult(x, nobackprop(masks[0])), cmult(h, nobackprop(masks[1]))
        wx, wh, b = (noise(w, std) for w in weights) if std > 0.0 else weights
        return record("lstm_activate", (affine_transform([b, wx, x, wh, h]),), (1.0,))
    except (TypeError, ValueError) as error:
        raise type(error)(f"{op}(): {error}") from None


def _joined(op: str, parts: Sequence[Expression]) -> Expression:
    if isinstance(parts, (str, bytes, Expression)) or not isinstance(parts, Iterable):
        raise TypeError(f"{op}(): expected a list of Expressions for x_t, got {_kind(parts)}")
    parts = list(parts)
    return parts[0] if len(parts) == 1 else concatenate(parts)


@_documented
def vanilla_lstm_gates(
    x_t: Expression,
    h_tm1: Expression,
    Wx: Expression,
    Wh: Expression,
    b: Expression,
    weightnoise_std: float = 0.0,
) -> Expression:
    return _gates("vanilla_lstm_gates", x_t, h_tm1, (Wx, Wh, b), None, weightnoise_std)


@_documented
def vanilla_lstm_gates_concat(
    x_t: Sequence[Expression],
    h_tm1: Expression,
    Wx: Expression,
    Wh: Expression,
    b: Expression,
    weightnoise_std: float = 0.0,
) -> Expression:
    op = "vanilla_lstm_gates_concat"
    return _gates(op, _joined(op, x_t), h_tm1, (Wx, Wh, b), None, weightnoise_std)


@_documented
def vanilla_lstm_gates_dropout(
    x_t: Expression,
    h_tm1: Expression,
    Wx: Expression,
    Wh: Expression,
    b: Expression,
    dropout_mask_x: Expression,
    dropout_mask_h: Expression,
    weightnoise_std: float = 0.0,
) -> Expression:
    masks = (dropout_mask_x, dropout_mask_h)
    return _gates("vanilla_lstm_gates_dropout", x_t, h_tm1, (Wx, Wh, b), masks, weightnoise_std)


@_documented
def vanilla_lstm_gates_dropout_concat(
    x_t: Sequence[Expression],
    h_tm1: Expression,
    Wx: Expression,
    Wh: Expression,
    b: Expression,
    dropout_mask_x: Expression,
    dropout_mask_h: Expression,
    weightnoise_std: float = 0.0,
) -> Expression:
    op, masks = "vanilla_lstm_gates_dropout_concat", (dropout_mask_x, dropout_mask_h)
    return _gates(op, _joined(op, x_t), h_tm1, (Wx, Wh, b), masks, weightnoise_std)


# ---------------------------------------------------------------- inputs


def _sizes(op: str, name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"{op}(): expected a tuple for {name}, got {_kind(value)}")
    return tuple(_int(op, name, size) for size in value)


def _split_batch(shape: Sequence[int], batched: bool) -> tuple[tuple[int, ...], int]:
    """Sizes and batch size; with `batched` the last size is the batch size."""
    if not batched:
        return tuple(shape), 1
    return tuple(shape[:-1]) or (1,), shape[-1]


def _numbers(op: str, values: Any) -> np.ndarray:
    """float32 array of any nested sequence of numbers."""
    kind = values.dtype.kind if isinstance(values, np.ndarray) else ""
    if kind and kind in "cmMSU":
        raise TypeError(f"{op}(): expected real numbers, got an array of {values.dtype}")
    try:
        array: np.ndarray = np.asarray(values, dtype=np.float32)
        return array
    except (ValueError, TypeError) as error:
        raise type(error)(f"{op}(): expected numbers of a regular shape; {error}") from None


def _is_foreign(array: Any) -> bool:
    """An array of another library: of PyTorch, CuPy and the like."""
    kind = type(array)  # whose members those of protocols are; mocks have members of any name themselves
    own = getattr(array, "__dict__", ())
    return any(hasattr(kind, name) or name in own for name in ("__dlpack__", "__cuda_array_interface__"))


@_documented
def inputTensor(
    arr: Any,
    batched: bool = False,
    device: str = "",
    reusable_expr: bool = False,
) -> Expression:
    if device:
        _check_device("inputTensor", device)
    else:
        made: Optional[Expression] = _core._input_plain(arr, batched, reusable_expr)
        if made is not None:
            return made
    if isinstance(arr, np.ndarray):
        array = arr if arr.dtype.kind in "fiub" else _numbers("inputTensor", arr)
        if type(arr) is not np.ndarray and isinstance(arr, np.ma.MaskedArray):  # what is masked has no value
            array = np.where(np.ma.getmaskarray(arr), np.float32(np.nan), np.ma.getdata(array))
    elif isinstance(arr, list):
        if not arr:
            raise ValueError("inputTensor(): expected at least one number, got an empty list")
        if not isinstance(arr[0], (np.ndarray, float, int, list)):  # arrays of a device are as NumPy's
            arr = [_core._on_host(item, "inputTensor", "arr") for item in arr]
        if isinstance(arr[0], np.ndarray) and all(isinstance(item, np.ndarray) for item in arr):
            array, batched = _numbers("inputTensor", np.stack(arr, axis=-1)), True
        else:
            array = _numbers("inputTensor", arr)
    elif isinstance(arr, Expression) or not _is_foreign(arr):
        raise TypeError(f"inputTensor(): expected an array or a list, got {_kind(arr)}")
    else:
        made = _core._input_foreign(arr, batched, bool(reusable_expr))
        if made is not None:
            return made
        array = _numbers("inputTensor", np.asarray(_core._on_host(arr, "inputTensor", "arr")))
    if array.ndim == 0:
        raise TypeError("inputTensor(): expected at least one dimension, got an array of none")
    sizes, batch = _split_batch(array.shape, batched)
    return _core._input_array(array, sizes, batch, bool(reusable_expr), "tensor")


def _flat_input(
    op: str, val: Any, dim: Optional[tuple[int, ...]], batch_size: int, device: str, writable: bool
) -> Expression:
    """Tensor of numbers in memory order; one dimension if dim is None."""
    _check_device(op, device)
    values = _numbers(op, val if isinstance(val, np.ndarray) else list(val))
    if values.ndim != 1:
        raise TypeError(f"{op}(): expected a flat list of numbers, got {values.ndim} dimensions")
    sizes = (values.size,) if dim is None else _sizes(op, "dim", dim)
    batch = _int(op, "batch_size", batch_size)
    if prod(sizes) * batch != values.size:
        raise ValueError(f"{op}(): expected as many numbers as {sizes} x {batch} elements, got {values.size}")
    return _core._input_array(values, sizes, batch, writable, "tensor")


def _sparse(places: Any, values: Any, sizes: Sequence[int], batch: int, rest: float) -> Expression:
    """Tensor of `rest` with `values` at the given places (column-major, batch last)."""
    array = np.zeros(prod(sizes) * batch, dtype=np.float32)
    if rest:
        array.fill(rest)
    array[places] = values
    return _core._input_array(array, tuple(sizes), batch, False, "sparse")


def _sparse_places(
    op: str, idxs: Iterable[int], v: Iterable[float], sizes: tuple[int, ...], batch_size: int, defval: float
) -> Expression:
    """Tensor of `defval` with `v` at the positions `idxs` in memory order."""
    values = _numbers(op, v if isinstance(v, np.ndarray) else list(v)).ravel()
    batch = _int(op, "batch_size", batch_size)
    places = np.array(_positions(op, idxs), dtype=np.int64)
    size = prod(sizes) * batch
    if len(places) != values.size or (places.size and not (0 <= places.min() and places.max() < size)):
        raise ValueError(f"{op}(): expected {values.size} positions 0 <= i < {size}, got {places}")
    if size >= 2**31:
        raise ValueError(f"{op}(): expected fewer than 2**31 elements, got {size}")
    return _sparse(places, values, sizes, batch, _float(op, "defval", defval))


def _positions(op: str, axis: Any) -> Union[np.ndarray, list[int]]:
    if isinstance(axis, np.ndarray) and axis.dtype.kind in "biuf":
        return _int_array(op, "idxs", axis, -(2**63), 2**63 - 1)
    return _ints(op, "idxs", axis, -(2**63), 2**63 - 1)


@_documented
def sparse_inputTensor(
    idxs: Sequence[Sequence[int]],
    values: Union[Sequence[float], np.ndarray],
    shape: tuple[int, ...],
    batched: bool = False,
    defval: float = 0,
    device: str = "",
) -> Expression:
    op = "sparse_inputTensor"
    _check_device(op, device)
    sizes = _sizes(op, "shape", shape)
    numbers = _numbers(op, values)
    if numbers.ndim != 1:
        raise TypeError(f"{op}(): expected values of one dimension, got {numbers.ndim}")
    axes = [np.array(_positions(op, axis), dtype=np.int64) for axis in idxs]
    if len(axes) != len(sizes) or not sizes:
        raise ValueError(f"{op}(): expected one list of positions per axis of {sizes}, got {len(axes)}")
    places: np.ndarray = np.zeros(numbers.size, dtype=np.int64)
    step = 1
    for axis, size in zip(axes, sizes):
        if len(axis) != numbers.size:
            raise ValueError(f"{op}(): expected one position per value, {numbers.size}, got {len(axis)}")
        if axis.size and not (0 <= axis.min() and axis.max() < size):
            raise ValueError(f"{op}(): expected positions 0 <= i < {size}, got {axis.min()} to {axis.max()}")
        places += step * axis
        step *= size
    if not 0 < step < 2**31:
        raise ValueError(f"{op}(): expected sizes of 1 to 2**31 elements in all, got {sizes}")
    return _sparse(places, numbers, *_split_batch(sizes, batched), _float(op, "defval", defval))


@_documented
def one_hot(d: int, idx: Union[int, Iterable[int]], device: str = "") -> Expression:
    _check_device("one_hot", device)
    if type(d) is int and type(idx) is int and 0 <= idx < d < 2**31:
        return _sparse(idx, 1.0, (d,), 1, 0.0)
    size = _int("one_hot", "d", d)
    single = type(idx) is int or not isinstance(idx, Iterable) or getattr(idx, "ndim", 1) == 0
    places = _ints("one_hot", "idx", [idx] if single else idx)
    if not places:
        raise ValueError("one_hot(): expected at least one position, got none")
    if max(places) >= size:
        raise ValueError(f"one_hot(): expected positions < {size}, got {idx}")
    if size * len(places) >= 2**31:
        raise ValueError(f"one_hot(): expected fewer than 2**31 elements, got {size} x {len(places)}")
    flat = [place + size * item for item, place in enumerate(places)]
    return _sparse(flat, 1.0, (size,), len(places), 0.0)


def matInput(d1: int, d2: int) -> Expression:
    """Gone since DyNet 2.0: use `inputTensor`.

    Args:
        d1: rows.
        d2: columns.
    Raises:
        DeprecationWarning: always.
    Source: DyNet 2.1 `matInput`.
    Example:
        >>> dy.matInput(2, 3)
        Traceback (most recent call last):
        ...
        DeprecationWarning: matInput() is gone: use inputTensor()
    """
    raise DeprecationWarning("matInput() is gone: use inputTensor()")


def inputMatrix(v: Sequence[float], d: tuple[int, ...]) -> Expression:
    """Gone since DyNet 2.0: use `inputTensor`.

    Args:
        v: numbers in memory order.
        d: sizes.
    Raises:
        DeprecationWarning: always.
    Source: DyNet 2.1 `inputMatrix`.
    Example:
        >>> dy.inputMatrix([1, 2], (2, 1))
        Traceback (most recent call last):
        ...
        DeprecationWarning: inputMatrix() is gone: use inputTensor()
    """
    raise DeprecationWarning("inputMatrix() is gone: use inputTensor()")
