"""Ops whose functions a script supplies: `cupy_op`."""

from __future__ import annotations

import contextlib
import gc
import math
import numbers
import operator
import weakref
from collections.abc import Sequence
from itertools import count
from types import FrameType
from typing import Any, Callable, Optional

import numpy as np

from .. import _core
from .._core import Expression
from . import device_arrays as arrays

__all__ = ["cupy_op"]

Sizes = tuple[int, ...]
_numbers = count()
_TOO_MANY = 2**31


def _array_shape(x: Expression) -> Sizes:
    """The shape of the value as an array: the batch, if there is one, is the last axis."""
    sizes, batch = x.dim()
    return (*sizes, batch) if batch > 1 else tuple(sizes)


class _UserOp:
    """What `cupy_op` returns."""

    def __init__(
        self,
        forward: Callable[..., Any],
        backward: Optional[Callable[..., Any]],
        shape: Optional[Callable[..., Sizes]],
        name: str,
    ) -> None:
        self._forward, self._backward, self._shape = forward, backward, shape
        self._name = name
        self._number = next(_numbers)
        self._shapes: dict[tuple[Sizes, ...], Sizes] = {}  # of results, by those of the arguments
        _ops[self._number] = self

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is another op, with a number of its own."""
        return type(self), (self._forward, self._backward, self._shape, self._name)

    def __str__(self) -> str:
        return f"cupy_op {self._name}"

    def __repr__(self) -> str:
        return f"<{self}>"

    def __call__(self, *xs: Expression) -> Expression:
        if not xs:
            raise TypeError(f"{self}: expected one Expression at least, got none")
        for x in xs:
            if not isinstance(x, Expression):
                raise TypeError(f"{self}: expected Expressions, got {type(x).__name__}")
        batches = {x.dim()[1] for x in xs} - {1}
        if len(batches) > 1:
            raise ValueError(f"{self}: expected batches of one size, got {sorted(batches)}")
        batch = batches.pop() if batches else 1
        shape = self._result_shape(xs)
        if batch > 1 and (not shape or shape[-1] != batch):
            raise ValueError(f"{self}: expected a result with the batch of {batch} as last axis, got {shape}")
        sizes = (shape[:-1] if batch > 1 else shape) or (1,)
        if max(math.prod(sizes) * batch, *sizes) >= _TOO_MANY:
            raise ValueError(f"{self}: expected a result of fewer than 2**31 elements, got shape {shape}")
        made: Expression = _core._record_user_op(self._number, self, xs, sizes, batch)
        return made

    def _result_shape(self, xs: Sequence[Expression]) -> Sizes:
        given = tuple(map(_array_shape, xs))
        if given not in self._shapes:
            if self._shape is not None:
                shape = self._called("shape", self._shape, given)
            else:  # of a first result, for which the arguments are computed now
                values = [arrays.of_tensor(x.tensor_value()) for x in xs]
                with arrays.on_stream():
                    shape = self._shape_of(
                        "a result from forward()", self._called("forward", self._forward, values)
                    )
            try:
                sizes = tuple(operator.index(size) for size in shape)
            except TypeError:
                raise TypeError(f"{self}: expected a tuple of sizes from shape(), got {shape!r}") from None
            if any(size < 0 for size in sizes):
                raise ValueError(f"{self}: expected sizes of 0 or more from shape(), got {sizes}")
            self._shapes[given] = sizes
        return self._shapes[given]

    def _called(self, method: str, function: Callable[..., Any], values: Sequence[Any]) -> Any:
        try:
            return function(*values)
        except Exception as error:
            raise RuntimeError(f"{self}: {method}() raised {type(error).__name__}: {error}") from error

    def _shape_of(self, what: str, got: Any) -> Sizes:
        shape = getattr(got, "shape", None)
        try:
            return tuple(np.shape(got) if shape is None else shape)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self}: expected an array of numbers as {what}: {error}") from error

    def _is_one_gradient(self, given: Any, shape: Sizes) -> bool:
        """An array, or numbers for one of this shape, and no sequence of gradients."""
        if not isinstance(given, (tuple, list)):
            return True
        if not given or not all(isinstance(x, (numbers.Number, tuple, list)) for x in given):
            return False
        return len(given) > 1 or self._shape_of("gradient 0 from backward()", given[0]) != shape

    def _check(self, what: str, got: Any, wanted: Sizes) -> Any:
        """Of one number, or one for each element of the batch, the first axis may be left out."""
        shape = self._shape_of(what, got)
        if shape != wanted and not (wanted[:1] == (1,) and len(wanted) <= 2 and shape == wanted[1:]):
            raise ValueError(f"{self}: expected {what} of shape {wanted}, got {shape}")
        return got

    def _run(
        self, backward: bool, given: Sequence[Any], wanted: Sequence[bool], shape: Sequence[int]
    ) -> list[Any]:
        """What the engine calls for a node: returns the result or the gradients."""
        with arrays.on_stream():
            return self._run_backward(given, wanted) if backward else self._run_forward(given, tuple(shape))

    def _run_forward(self, given: Sequence[Any], shape: Sizes) -> list[Any]:
        result = self._called("forward", self._forward, [arrays.of_view(array) for array in given])
        return [self._check("a result from forward()", result, shape)]

    def _run_backward(self, given: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        if self._backward is None:
            raise RuntimeError(f"{self}: has no backward(), and its arguments take gradients")
        shapes = [tuple(array.shape) for array in given[: len(wanted)]]
        made = self._called("backward", self._backward, [arrays.of_view(array) for array in given])
        if len(wanted) == 1 and self._is_one_gradient(made, shapes[0]):
            made = [made]
        gradients = list(made) if isinstance(made, (tuple, list)) else [made]
        if len(gradients) != len(wanted):
            raise ValueError(
                f"{self}: expected {len(wanted)} gradients from backward(), one for each argument, "
                f"got {len(gradients)}"
            )
        for i, gradient in enumerate(gradients):
            if gradient is not None and wanted[i]:
                self._check(f"gradient {i} from backward()", gradient, shapes[i])
        return gradients


def _calls(frame: FrameType) -> list[FrameType]:
    """This frame and those that wait for it, up to that of an op; empty: it is of no op's function."""
    found: list[FrameType] = []
    at: Optional[FrameType] = frame
    while at is not None:
        found.append(at)
        if at.f_code is _UserOp._run.__code__:
            return found
        at = at.f_back
    return []


def _end_calls() -> None:
    """Functions that an op has called, and that have ended, let go of what their names stand for.

    A frame keeps that, and the frames that called it, as long as anything keeps the frame. The traceback of
    an error does, and libraries store errors: CuPy those of imports that failed.
    """
    # type() and not isinstance(), which asks lazy modules for their class, whereupon they are loaded
    frames = [calls for one in gc.get_objects() if type(one) is FrameType and (calls := _calls(one))]
    for calls in frames:
        with contextlib.suppress(RuntimeError):  # it runs
            calls[-1].clear()
            for frame in calls:
                frame.clear()
    gc.collect()


_ops: weakref.WeakValueDictionary[int, _UserOp] = weakref.WeakValueDictionary()
_core._set_user_ops(_ops, _end_calls)


def cupy_op(
    forward: Callable[..., Any],
    backward: Optional[Callable[..., Any]] = None,
    *,
    shape: Optional[Callable[..., Sizes]] = None,
    name: str = "",
) -> Callable[..., Expression]:
    """An op from functions of arrays: CuPy's on a GPU, which are views of its memory, and NumPy's on the CPU.

    The functions are called for each node, when it is computed, in the order of the device: kernels that they
    launch, `cupy.RawKernel` among them, go to the stream that the package computes on. They get float32
    arrays, read-only and, on a GPU, valid during the call, and return arrays of any type of real numbers; a
    number where the shape is (1,). They must not use expressions, parameters or graphs, nor wait for another
    thread that does, as it waits for them. Equal expressions are computed once, so that the results have to
    depend on the arguments alone. A copy of an op (`copy`, `pickle`) is another op of the same functions.

    Args:
        forward: forward(x1, .., xn) -> y; arrays have the shapes of `npvalue()`, a batch is the last axis.
        backward: backward(x1, .., xn, y, dy) -> gradients of x1 to xn, a tuple or list of them if there are
            several, None for those that have none. Without it no gradient can be asked for.
        shape: shape(shape1, .., shapen) -> shape of the result. Without it the arguments of the first call
            with such shapes are computed at once, and forward() says what the shape is.
        name: in messages; the name of forward by default.
    Returns:
        A function of Expressions that returns an Expression.
    Raises:
        TypeError: a function is none.
        RuntimeError: when the value is asked for: a function raised an error, or on a GPU kept an array
            it was given.
        ValueError: then, too: a result or gradient of another shape than expected, both named with the op.
    Source: not in DyNet.
    Example:
        >>> def swish(x):
        ...     return x / (1 + np.exp(-x))
        >>> def d_swish(x, y, dy):
        ...     s = 1 / (1 + np.exp(-x))
        ...     return dy * (y + s * (1 - y))
        >>> op = dy.cupy_op(swish, d_swish, shape=lambda x: x)
        >>> x = dy.inputVector([0.0, 1.0])
        >>> y = op(x)
        >>> dy.sum_elems(y).backward(full=True)
        >>> y.npvalue().round(4), x.gradient().round(4)
        (array([0.    , 0.7311]), array([0.5   , 0.9277]))
    """
    for what, function in (("forward", forward), ("backward", backward), ("shape", shape)):
        if not callable(function) and (function is not None or what == "forward"):
            raise TypeError(f"cupy_op(): expected a function for {what}, got {type(function).__name__}")
    return _UserOp(forward, backward, shape, name or getattr(forward, "__name__", type(forward).__name__))
