"""Functions of the API whose arguments need more than a row of the op table says.

The other functions are entry points of `_core`. Here arguments are checked and put into the words of a
row: `record(name, expressions, attributes, indices)`. The documentation texts are `_core`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, Callable, Optional, TypeVar, Union

import numpy as np

from . import _core
from ._core import Expression, affine_transform, cmult, concatenate, nobackprop, noise, record

__all__ = [
    "argmax",
    "ceil",
    "floor",
    "hinge_batch",
    "hinge_dim",
    "inputMatrix",
    "inputTensor",
    "inputTensorTranspose",
    "log_softmax",
    "matInput",
    "mean_batches",
    "mean_dim",
    "mean_elems",
    "moment_batches",
    "moment_dim",
    "moment_elems",
    "one_hot",
    "pick_batch_elem",
    "pickrange",
    "round",
    "sparse_inputTensor",
    "std_batches",
    "std_dim",
    "std_elems",
    "strided_select",
    "sum_batches",
    "sum_dim",
    "transpose",
    "vanilla_lstm_gates",
    "vanilla_lstm_gates_concat",
    "vanilla_lstm_gates_dropout",
    "vanilla_lstm_gates_dropout_concat",
]

_F = TypeVar("_F", bound=Callable[..., Any])
_MODES = {"zero_gradient": 0, "straight_through_gradient": 1}
_DEVICES = ("", "CPU")
_MOST_UINT = 2**32 - 1
_SWAP = (1, 0)  # axes of an ordinary transpose


def _documented(function: _F) -> _F:
    function.__doc__ = _core.doc(function.__name__)
    return function


# ---------------------------------------------------------------- arguments


def _int(op: str, name: str, value: Any, least: int = 0, most: int = _MOST_UINT) -> int:
    """An int: also from NumPy's, and from floats, which are truncated."""
    if type(value) is not int:
        if isinstance(value, (str, bytes, Expression)) or not hasattr(value, "__int__"):
            raise TypeError(f"{op}(): expected an int for {name}, got {type(value).__name__}")
        value = int(value)
    if not least <= value <= most:
        raise OverflowError(f"{op}(): expected {least} <= {name} <= {most}, got {value}")
    number: int = value
    return number


def _ints(op: str, name: str, values: Any, least: int = 0, most: int = _MOST_UINT) -> list[int]:
    if type(values) is list or type(values) is tuple:  # the common case, and fast
        if all(type(value) is int and least <= value <= most for value in values):
            return list(values)
    elif isinstance(values, (str, bytes, Expression)) or not isinstance(values, Iterable):
        raise TypeError(f"{op}(): expected a list of ints for {name}, got {type(values).__name__}")
    return [_int(op, name, value, least, most) for value in values]


def _float(op: str, name: str, value: Any) -> float:
    if isinstance(value, (str, bytes, Expression)) or not hasattr(value, "__float__"):
        raise TypeError(f"{op}(): expected a number for {name}, got {type(value).__name__}")
    return float(value)


def _mode(op: str, gradient_mode: str) -> int:
    if not isinstance(gradient_mode, str):
        raise TypeError(f"{op}(): expected a str for gradient_mode, got {type(gradient_mode).__name__}")
    if gradient_mode not in _MODES:
        raise ValueError(f"{op}(): expected gradient_mode to be one of {list(_MODES)}, got {gradient_mode!r}")
    return _MODES[gradient_mode]


def _check_device(op: str, device: str) -> None:
    if device not in _DEVICES:
        raise RuntimeError(f"{op}(): expected one of the available devices (CPU), got {device!r}")


def _dims(op: str, x: Expression) -> int:
    """Number of dimensions."""
    if not isinstance(x, Expression):
        raise TypeError(f"{op}(): expected an Expression, got {type(x).__name__}")
    try:
        return len(x.dim()[0])
    except RuntimeError as error:  # an operand of an earlier graph is a wrong argument
        raise ValueError(f"{op}(): {error}") from None


def _record(
    op: str, row: str, x: Expression, attrs: Sequence[Union[int, float]], ids: Optional[list[int]] = None
) -> Expression:
    """Record a row of another name than the function's; errors name the function."""
    try:
        return record(row, (x,), attrs, ids)
    except (TypeError, ValueError) as error:
        raise type(error)(str(error).replace(f"{row}()", f"{op}()")) from None


# ---------------------------------------------------------------- element by element


@_documented
def round(x: Expression, gradient_mode: str) -> Expression:  # noqa: A001 - DyNet's name
    return record("round", (x,), (_mode("round", gradient_mode),))


@_documented
def ceil(x: Expression, gradient_mode: str) -> Expression:
    return record("ceil", (x,), (_mode("ceil", gradient_mode),))


@_documented
def floor(x: Expression, gradient_mode: str) -> Expression:
    return record("floor", (x,), (_mode("floor", gradient_mode),))


@_documented
def argmax(x: Expression, gradient_mode: str) -> Expression:
    return record("argmax", (x,), (_mode("argmax", gradient_mode),))


# ---------------------------------------------------------------- shape and selection


@_documented
def transpose(x: Expression, dims: Sequence[int] = _SWAP) -> Expression:
    if dims is _SWAP:
        return record("transpose", (x,), (2, 1, 0))
    axes = _ints("transpose", "dims", dims)
    return record("transpose", (x,), (len(axes), *axes))


@_documented
def strided_select(
    x: Expression, strides: Sequence[int], range_from: Sequence[int], range_to: Sequence[int]
) -> Expression:
    words: list[int] = []
    for name, values in (("strides", strides), ("range_from", range_from), ("range_to", range_to)):
        entries = _ints("strided_select", name, values, -(2**31), 2**31 - 1)
        words += [len(entries), *entries]
    return record("strided_select", (x,), words)


@_documented
def pickrange(x: Expression, s: int, e: int) -> Expression:
    return _record("pickrange", "pick_range", x, (_int("pickrange", "s", s), _int("pickrange", "e", e), 0))


@_documented
def pick_batch_elem(x: Expression, v: int) -> Expression:
    return _record("pick_batch_elem", "pick_batch_elems", x, (1,), [_int("pick_batch_elem", "v", v)])


# ---------------------------------------------------------------- reductions


_ALL = tuple(tuple(range(n)) for n in range(8))  # all dimensions, by their number
_WORDS: dict[tuple[int, ...], tuple[int, ...]] = {
    (batch, *axes): (batch, len(axes), *axes)
    for batch in (0, 1)
    for axes in ((), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2))
}


def _reduced(op: str, d: Any, b: Any) -> tuple[int, ...]:
    """Words of the dimensions to reduce: whether the batch is one of them, their number, the dimensions."""
    if type(d) is list:
        try:
            return _WORDS[(b, *d)]
        except (KeyError, TypeError):  # an unusual call
            pass
    axes = _ints(op, "d", d)
    return (int(bool(b)), len(axes), *axes)


@_documented
def sum_dim(x: Expression, d: Sequence[int], b: bool = False, n: int = 0) -> Expression:
    return record("sum_dim", (x,), _reduced("sum_dim", d, b))


@_documented
def sum_batches(x: Expression) -> Expression:
    return _record("sum_batches", "sum_dim", x, (1, 0))


@_documented
def mean_elems(x: Expression) -> Expression:
    n = _dims("mean_elems", x)
    return _record("mean_elems", "moment_dim", x, (1, 0, 0, n, *_ALL[n]))


@_documented
def mean_dim(x: Expression, d: Sequence[int], b: bool, n: int = 0) -> Expression:
    return _record("mean_dim", "moment_dim", x, (1, _int("mean_dim", "n", n), *_reduced("mean_dim", d, b)))


@_documented
def mean_batches(x: Expression) -> Expression:
    return _record("mean_batches", "moment_dim", x, (1, 0, 1, 0))


@_documented
def moment_elems(x: Expression, r: int) -> Expression:
    n = _dims("moment_elems", x)
    return _record("moment_elems", "moment_dim", x, (_int("moment_elems", "r", r), 0, 0, n, *_ALL[n]))


@_documented
def moment_dim(x: Expression, d: Sequence[int], r: int, b: bool, n: int = 0) -> Expression:
    words = [_int("moment_dim", "r", r), _int("moment_dim", "n", n), *_reduced("moment_dim", d, b)]
    return record("moment_dim", (x,), words)


@_documented
def moment_batches(x: Expression, r: int) -> Expression:
    return _record("moment_batches", "moment_dim", x, (_int("moment_batches", "r", r), 0, 1, 0))


@_documented
def std_elems(x: Expression) -> Expression:
    n = _dims("std_elems", x)
    return _record("std_elems", "std_dim", x, (0, n, *_ALL[n]))


@_documented
def std_dim(x: Expression, d: Sequence[int], b: bool, n: int = 0) -> Expression:
    return record("std_dim", (x,), _reduced("std_dim", d, b))


@_documented
def std_batches(x: Expression) -> Expression:
    return _record("std_batches", "std_dim", x, (1, 0))


# ---------------------------------------------------------------- softmax and losses


@_documented
def log_softmax(x: Expression, restrict: Optional[Sequence[int]] = None) -> Expression:
    if restrict is None:
        return record("log_softmax", (x,))
    return _record("log_softmax", "restricted_log_softmax", x, (), _ints("log_softmax", "restrict", restrict))


@_documented
def hinge_batch(x: Expression, vs: Sequence[int], m: float = 1.0) -> Expression:
    ids = _ints("hinge_batch", "vs", vs)
    return _record("hinge_batch", "hinge", x, (_float("hinge_batch", "m", m), len(ids)), ids)


@_documented
def hinge_dim(
    x: Expression, v: Union[Sequence[int], Sequence[Sequence[int]]], d: int = 0, m: float = 1.0
) -> Expression:
    words = (_int("hinge_dim", "d", d), _float("hinge_dim", "m", m))
    if isinstance(v, (list, tuple, np.ndarray)) and len(v) and isinstance(v[0], (list, tuple, np.ndarray)):
        v = [index for item in v for index in item]  # one list per batch item
    return record("hinge_dim", (x,), words, _ints("hinge_dim", "v", v))


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
        raise TypeError(f"{op}(): expected a list of Expressions for x_t, got {type(parts).__name__}")
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
        raise TypeError(f"{op}(): expected a tuple for {name}, got {type(value).__name__}")
    return tuple(_int(op, name, size) for size in value)


def _split_batch(shape: Sequence[int], batched: bool) -> tuple[tuple[int, ...], int]:
    """Sizes and batch size; with `batched` the last size is the batch size."""
    if not batched:
        return tuple(shape), 1
    return tuple(shape[:-1]) or (1,), shape[-1]


def _numbers(op: str, values: Any) -> np.ndarray:
    """float32 array of any nested sequence of numbers."""
    try:
        array: np.ndarray = np.asarray(values, dtype=np.float32)
        return array
    except (ValueError, TypeError) as error:
        raise type(error)(f"{op}(): expected numbers of a regular shape; {error}") from None


@_documented
def inputTensor(
    arr: Union[np.ndarray, Sequence[Any]],
    batched: bool = False,
    device: str = "",
    reusable_expr: bool = False,
) -> Expression:
    _check_device("inputTensor", device)
    if isinstance(arr, np.ndarray):
        array = arr if arr.dtype.kind in "fiub" else _numbers("inputTensor", arr)
    elif isinstance(arr, list):
        if not arr:
            raise ValueError("inputTensor(): expected at least one number, got an empty list")
        if all(isinstance(item, np.ndarray) for item in arr):
            array, batched = _numbers("inputTensor", np.stack(arr, axis=-1)), True
        else:
            array = _numbers("inputTensor", arr)
    else:
        raise TypeError(f"inputTensor(): expected a NumPy array or a list, got {type(arr).__name__}")
    if array.ndim == 0:
        raise TypeError("inputTensor(): expected at least one dimension, got an array of none")
    sizes, batch = _split_batch(array.shape, batched)
    return _core._input_array(array, sizes, batch, bool(reusable_expr), "tensor")


@_documented
def inputTensorTranspose(
    val: Iterable[float], dim: Optional[tuple[int, ...]] = None, batch_size: int = 1, device: str = ""
) -> Expression:
    op = "inputTensorTranspose"
    _check_device(op, device)
    values = _numbers(op, val if isinstance(val, np.ndarray) else list(val))
    if values.ndim != 1:
        raise TypeError(f"{op}(): expected a flat list of numbers, got {values.ndim} dimensions")
    sizes = (values.size,) if dim is None else _sizes(op, "dim", dim)
    batch = _int(op, "batch_size", batch_size)
    if prod(sizes) * batch != values.size:
        raise ValueError(f"{op}(): expected as many numbers as {sizes} x {batch} elements, got {values.size}")
    return _core._input_array(values, sizes, batch, True, "tensor")


def _sparse(places: Any, values: Any, sizes: Sequence[int], batch: int, rest: float) -> Expression:
    """Tensor of `rest` with `values` at the given places (column-major, batch last)."""
    array = np.zeros(prod(sizes) * batch, dtype=np.float32)
    if rest:
        array.fill(rest)
    array[places] = values
    return _core._input_array(array, tuple(sizes), batch, False, "sparse")


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
    axes = [_ints(op, "idxs", axis, -(2**63), 2**63 - 1) for axis in idxs]
    if len(axes) != len(sizes) or not sizes:
        raise ValueError(f"{op}(): expected one list of positions per axis of {sizes}, got {len(axes)}")
    places: np.ndarray = np.zeros(numbers.size, dtype=np.int64)
    step = 1
    for axis, size in zip(axes, sizes):
        if len(axis) != numbers.size:
            raise ValueError(f"{op}(): expected one position per value, {numbers.size}, got {len(axis)}")
        if any(not 0 <= position < size for position in axis):
            raise ValueError(f"{op}(): expected positions 0 <= i < {size}, got {axis}")
        places += step * np.array(axis, dtype=np.int64)
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

    Raises:
        DeprecationWarning: always.
    Example:
        >>> dy.matInput(2, 3)
        Traceback (most recent call last):
        ...
        DeprecationWarning: matInput() is gone: use inputTensor()
    """
    raise DeprecationWarning("matInput() is gone: use inputTensor()")


def inputMatrix(v: Sequence[float], d: tuple[int, ...]) -> Expression:
    """Gone since DyNet 2.0: use `inputTensor`.

    Raises:
        DeprecationWarning: always.
    Example:
        >>> dy.inputMatrix([1, 2], (2, 1))
        Traceback (most recent call last):
        ...
        DeprecationWarning: inputMatrix() is gone: use inputTensor()
    """
    raise DeprecationWarning("inputMatrix() is gone: use inputTensor()")
