"""`Tensor`, and the array interfaces of tensors and parameters.

A reader of an array interface sees the value at the time of the call, and no later one:

- a `Tensor` has a copy of its own, so it outlives its graph;
- a view of `Parameters` or `LookupParameters` is no copy, but the engine does not write into memory that
  is being viewed: trainers and `set_value` put the new values elsewhere. It costs that memory while the
  view lives. With weight decay the values of a graph are stored nowhere, so there it is a copy.

Views are read-only. Who cannot take read-only memory (DLPack before version 1) gets a copy.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, TypeVar, Union

import numpy as np

from .. import _core
from .._core import Expression, LookupParameters, Parameters
from .attach import attach
from .functions import _int

__all__ = ["Tensor"]

_CPU = (1, 0)  # DLPack's device type and number
_MOST_DIMS = 7
# NumPy 2.1 can say that memory is read-only; versions before have the protocol before that.
_NUMPY_KNOWS_READ_ONLY = tuple(int(part) for part in np.__version__.split(".")[:2]) >= (2, 1)

_NO_WAY = "__dlpack__(): got copy=False, but this consumer has no way to know that memory is read-only"

_T = TypeVar("_T", bound="Tensor")


def _as_array(values: np.ndarray, dtype: Any, copy: Optional[bool], fresh: bool = False) -> np.ndarray:
    """What `__array__` returns. `fresh`: `values` was made for this call."""
    wanted = values.dtype if dtype is None else np.dtype(dtype)
    if copy is False and (fresh or wanted != values.dtype):
        raise ValueError(
            f"__array__(): got copy=False, but values as {wanted} need a copy; use copy=None (np.asarray)"
        )
    if wanted != values.dtype or (copy and not fresh):
        return values.astype(wanted)
    return values


class _Request(NamedTuple):
    """Arguments of `__dlpack__`."""

    stream: Any
    max_version: Optional[tuple[int, int]]
    dl_device: Optional[tuple[int, int]]
    copy: Optional[bool]


_Values = Union[np.ndarray, _core._DeviceArray]


def _dlpack(values: _Values, request: _Request, fresh: str = "") -> Any:
    """The capsule. `fresh`: why `values` was made for this call."""
    if fresh and request.copy is False:
        raise BufferError(f"__dlpack__(): got copy=False, but {fresh} a copy necessary")
    if not isinstance(values, np.ndarray):
        return _dlpack_of_device(values, request, fresh)
    stream, max_version, dl_device, copy = request
    if dl_device is not None and tuple(dl_device) != _CPU:
        raise BufferError(f"__dlpack__(): got dl_device {dl_device}; values are on the CPU, {_CPU}")
    if stream is not None:
        raise BufferError("__dlpack__(): got a stream; values are on the CPU, which has none")
    versioned = _NUMPY_KNOWS_READ_ONLY and max_version is not None and max_version[0] >= 1
    if versioned:
        return values.__dlpack__(max_version=max_version, copy=True if copy else None)
    if fresh and not copy:
        return values.__dlpack__()
    if copy is False:
        raise BufferError(_NO_WAY)
    return values.copy(order="K").__dlpack__()


def _dlpack_of_device(values: _core._DeviceArray, request: _Request, fresh: str) -> Any:
    stream, max_version, dl_device, copy = request
    device = _core._dlpack_device()
    if dl_device is not None and tuple(dl_device) != device:
        if tuple(dl_device) != _CPU:
            raise BufferError(f"__dlpack__(): got dl_device {dl_device}; values are on {device}")
        if copy is False:
            raise BufferError("__dlpack__(): got copy=False, but the CPU's memory is another")
        return _dlpack(values.numpy(), request, "another device makes")
    if stream is None:
        stream = 1  # the default stream, says the standard
    if isinstance(stream, bool) or not isinstance(stream, int) or stream == 0 or stream < -1:
        raise BufferError(f"__dlpack__(): expected a stream of None, -1, 1, 2 or a handle, got {stream!r}")
    versioned = max_version is not None and max_version[0] >= 1
    copied = bool(fresh)
    if not copied and (copy or (values.read_only and not versioned)):
        if copy is False:
            raise BufferError(_NO_WAY)
        values, copied = values.copy(), True
    if stream > 0:
        _core._publish(stream)
    return values.capsule(versioned, copied)


def _interface(values: np.ndarray) -> dict[str, Any]:
    """`__array_interface__` whose consumer keeps the memory alive, not only the object it came from."""
    flat = values.ravel(order="K")
    return {
        "version": 3,
        "shape": values.shape,
        "strides": values.strides,
        "typestr": values.dtype.str,
        "data": flat,
    }


class Tensor:
    """A value that was computed: a copy, which stays when the graph is renewed.

    Made by `expr.tensor_value()`. Tensors of numbers are float32 inside, tensors of indices int64.
    `as_numpy()` is a copy; `np.asarray(t)` and `np.from_dlpack(t)` (also of PyTorch and others) read the
    same memory, read-only. `str()` is `<Dynet Tensor:float>` or `<Dynet Tensor:int>`.

    In every method `dim` counts from 0 and sizes beyond the last are 1; a batch is the last axis of
    arrays and is never reduced.

    Raises:
        ValueError: by all methods of a Tensor made by `Tensor()`, which holds nothing.
    Source: DyNet 2.1 `Tensor`.
    Example:
        >>> t = dy.inputTensor([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]]).tensor_value()
        >>> print(t)
        <Dynet Tensor:float>
        >>> graph = dy.renew_cg()
        >>> np.asarray(t).tolist(), np.asarray(t).dtype
        ([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]], dtype('float32'))
        >>> t.argmax(1).as_numpy().tolist()
        [[1], [2]]
    """

    __module__ = "_dynet"
    __slots__ = ("_array", "_device", "_dims", "__weakref__")
    _array: Optional[np.ndarray]  # None: empty, or not yet asked for
    _device: _core._DeviceArray  # not set on the CPU
    _dims: int

    def __init__(self) -> None:
        self._array = None
        self._dims = 0

    @classmethod
    def _of(cls: type[_T], array: np.ndarray, dims: int) -> _T:
        tensor = cls.__new__(cls)
        array.flags.writeable = False
        tensor._array, tensor._dims = array, dims
        return tensor

    @classmethod
    def _of_device(cls: type[_T], values: _core._DeviceArray, dims: int) -> _T:
        tensor = cls.__new__(cls)
        tensor._array, tensor._device, tensor._dims = None, values, dims
        return tensor

    def _host(self) -> Optional[np.ndarray]:
        device: Optional[_core._DeviceArray] = getattr(self, "_device", None)
        if device is not None and self._array is None:
            self._array = device.numpy()
            self._array.flags.writeable = False
        array: Optional[np.ndarray] = getattr(self, "_array", None)
        return array

    def _filled(self, method: str) -> np.ndarray:
        array = self._host()
        if array is None:
            raise ValueError(f"{method}(): expected a Tensor from tensor_value(), got an empty one")
        return array

    def _numbers(self, method: str) -> np.ndarray:
        array = self._filled(method)
        if array.dtype != np.float32:
            raise RuntimeError(f"{method}(): expected a tensor of numbers, got one of indices")
        return array

    def _axis(self, method: str, dim: Any, array: np.ndarray) -> int:
        """Axis of the array; one past all, the batch too, for a dimension past the last."""
        axis = _int(method, "dim", dim)
        if axis >= _MOST_DIMS:
            raise ValueError(f"{method}(): expected dim < {_MOST_DIMS}, got {axis}")
        return axis if axis < self._dims else array.ndim

    def as_numpy(self) -> np.ndarray:
        """The value as an array.

        Returns:
            float64, or int64 for indices; shape and order as `npvalue()` gives them; a copy.
        Raises:
            ValueError: the Tensor is empty.
        Source: DyNet 2.1 `Tensor.as_numpy`.
        Example:
            >>> dy.inputTensor([[1.0, 2.0], [3.0, 4.0]]).tensor_value().as_numpy()
            array([[1., 2.],
                   [3., 4.]])
        """
        array = self._filled("as_numpy")
        return array.astype(np.float64 if array.dtype == np.float32 else np.int64, order="F")

    def argmax(self, dim: int = 0, num: int = 1) -> Tensor:
        """Position of the largest element along a dimension: the first of equal ones. NaN counts as
        smaller than everything.

        Args:
            dim: the dimension, which keeps the size 1.
            num: 1.
        Returns:
            Tensor of indices.
        Raises:
            ValueError: the Tensor is empty, or num is 0.
            RuntimeError: num is more than 1 (use `topk`), or the Tensor holds indices.
            OverflowError: dim is negative.
        Source: DyNet 2.1 `Tensor.argmax`.
        Example:
            >>> t = dy.inputTensor([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]]).tensor_value()
            >>> t.argmax().as_numpy()
            array([[1, 0, 1]])
        """
        return self._best("argmax", dim, num, _core._argmax)

    def categorical_sample_log_prob(self, dim: int = 0, num: int = 1) -> Tensor:
        """A sample along a dimension from the distribution whose log probabilities, up to a constant, are
        the elements: the position of the largest element plus Gumbel noise (Gumbel, 1954). One random number
        per element is drawn from the stream that `reset_random_seed` starts.

        Args:
            dim: the dimension, which keeps the size 1.
            num: 1.
        Returns:
            Tensor of indices.
        Raises:
            ValueError: the Tensor is empty, or num is 0.
            RuntimeError: num is more than 1, or the Tensor holds indices.
            OverflowError: dim is negative.
        Source: DyNet 2.1 `Tensor.categorical_sample_log_prob`.
        Example:
            >>> t = dy.log_softmax(dy.inputVector([0.0, 90.0, 0.0])).tensor_value()
            >>> t.categorical_sample_log_prob().as_numpy()
            array([1])
        """
        return self._best("categorical_sample_log_prob", dim, num, _core._sample)

    def _best(self, method: str, dim: Any, num: Any, function: Any) -> Tensor:
        array = self._numbers(method)
        axis = self._axis(method, dim, array)
        count = _int(method, "num", num)
        if count == 0:
            raise ValueError(f"{method}(): expected num of 1, got 0")
        if count > 1:
            raise RuntimeError(f"{method}(): expected num of 1, got {count}; use topk()")
        return type(self)._of(function(array, axis), self._dims)

    def topk(self, dim: int = 0, num: int = 1) -> tuple[Tensor, Tensor]:
        """The largest elements along a dimension, in falling order.

        Equal elements are ordered by their position; NaN comes last.

        Args:
            dim: the dimension, which gets the size num.
            num: how many.
        Returns:
            (Tensor of the values, Tensor of their positions).
        Raises:
            ValueError: the Tensor is empty, or num is 0 or more than there are.
            RuntimeError: the Tensor holds indices.
            OverflowError: dim is negative.
        Source: DyNet 2.1 `Tensor.topk`.
        Example:
            >>> t = dy.inputVector([1.0, 5.0, 3.0, 4.0]).tensor_value()
            >>> values, positions = t.topk(num=2)
            >>> values.as_numpy(), positions.as_numpy()
            (array([5., 4.]), array([1, 3]))
        """
        array = self._numbers("topk")
        axis = self._axis("topk", dim, array)
        count = _int("topk", "num", num)
        size = array.shape[axis] if axis < array.ndim else 1
        if not 1 <= count <= size:
            raise ValueError(f"topk(): expected 1 <= num <= {size}, the size of dim {dim}, got {count}")
        values, indices = _core._topk(array, axis, count)
        return type(self)._of(values, self._dims), type(self)._of(indices, self._dims)

    def __str__(self) -> str:
        array = getattr(self, "_array", None)
        return f"<Dynet Tensor:{'int' if array is not None and array.dtype == np.int64 else 'float'}>"

    def __repr__(self) -> str:
        array = self._host()
        if array is None:
            return "<Dynet Tensor: empty>"
        from ..inspection.reprs import numbers_text, sizes_text

        sizes, batch = array.shape[: self._dims], array.shape[self._dims :]
        return f"{str(self)[:-1]} {sizes_text(sizes, *batch)}, {numbers_text(array)}>"

    def __reduce__(self) -> Any:
        raise TypeError("a Tensor cannot be copied or pickled; as_numpy() can")

    # ------------------------------------------------------------ array interfaces

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        return _as_array(self._filled("__array__"), dtype, copy)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        array = self._host()
        if array is None:
            raise AttributeError("an empty Tensor has no __array_interface__")
        return _interface(array)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        device: Optional[_core._DeviceArray] = getattr(self, "_device", None)
        if device is None:
            raise AttributeError("a Tensor on the CPU has an __array_interface__")
        interface: dict[str, Any] = device.__cuda_array_interface__
        return interface

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Optional[tuple[int, int]] = None,
        dl_device: Optional[tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> Any:
        device: Optional[_core._DeviceArray] = getattr(self, "_device", None)
        values = self._filled("__dlpack__") if device is None else device
        return _dlpack(values, _Request(stream, max_version, dl_device, copy))

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU if getattr(self, "_device", None) is None else _device_of_process(self)


_core._set_tensor(Tensor)


# ---------------------------------------------------------------- expressions


def _expression_dlpack(
    self: Any,
    *,
    stream: Any = None,
    max_version: Optional[tuple[int, int]] = None,
    dl_device: Optional[tuple[int, int]] = None,
    copy: Optional[bool] = None,
) -> Any:
    """The value, float32, for `from_dlpack` of any library: a copy, which the consumer may change."""
    tensor = self.tensor_value()
    device: Optional[_core._DeviceArray] = getattr(tensor, "_device", None)
    values = tensor._array if device is None else device.writable()
    if isinstance(values, np.ndarray):
        values.flags.writeable = True
    return _dlpack(values, _Request(stream, max_version, dl_device, copy), "the life of a graph makes")


def _device_of_process(self: Any) -> tuple[int, int]:
    """The device that computes, as DLPack numbers it."""
    kind, number = _core._dlpack_device()
    return kind, number


def _as_cupy(self: Any) -> Any:
    """CuPy's array of the value, for `cupy.asarray`."""
    from .device_arrays import as_cupy

    return as_cupy(self.tensor_value())


_core._extend(Expression, "__dlpack__", _expression_dlpack)
_core._extend(Expression, "__dlpack_device__", _device_of_process)
_core._extend(Expression, "__cupy_get_ndarray__", _as_cupy)


# ---------------------------------------------------------------- parameters


def _on_device() -> bool:
    return bool(_core._dlpack_device() != _CPU)


def _parameter_array(self: Any, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
    """The values that graphs see, float32: a read-only view that later changes do not reach, or a copy."""
    values = _core._parameter_values(self)
    return _as_array(values, dtype, copy, bool(values.flags.owndata))


def _parameter_interface(self: Any) -> dict[str, Any]:
    """See `__array__`."""
    return _interface(_core._parameter_values(self))


def _parameter_dlpack(
    self: Any,
    *,
    stream: Any = None,
    max_version: Optional[tuple[int, int]] = None,
    dl_device: Optional[tuple[int, int]] = None,
    copy: Optional[bool] = None,
) -> Any:
    """The values that graphs see, float32, for `from_dlpack` of any library; see `__array__`."""
    values = _core._parameter_on_device(self) if _on_device() else _core._parameter_values(self)
    view = values.read_only if _on_device() else not values.flags.owndata
    request = _Request(stream, max_version, dl_device, copy)
    return _dlpack(values, request, "" if view else "weight decay makes")


def _parameter_cupy(self: Any) -> Any:
    """CuPy's array of the values that graphs see, for `cupy.asarray`: read-only, see `__array__`."""
    from .device_arrays import as_cupy

    return as_cupy(_core._parameter_on_device(self) if _on_device() else _core._parameter_values(self))


def grad_as_tensor(self: Any) -> Tensor:
    """The gradient, as an array on the device that computes: `grad_as_array()` without the way to the host.

    Returns:
        Tensor of the shape of `grad_as_array()`, zeros where there is no gradient; a copy.
    Source: not in DyNet.
    Example:
        >>> pc = dy.ParameterCollection()
        >>> p = pc.parameters_from_numpy(np.array([1.0, 2.0]))
        >>> dy.squared_norm(p).backward()
        >>> np.from_dlpack(p.grad_as_tensor())
        array([2., 4.], dtype=float32)
    """
    if _on_device():
        return Tensor._of_device(_core._gradient_on_device(self), len(self.shape()))
    return Tensor._of(_core._gradient_array(self), len(self.shape()))


for _type in (Parameters, LookupParameters):
    _core._extend(_type, "__array__", _parameter_array)
    _core._extend(_type, "__array_interface__", property(_parameter_interface))
    _core._extend(_type, "__dlpack__", _parameter_dlpack)
    _core._extend(_type, "__cupy_get_ndarray__", _parameter_cupy)
    attach(_type, grad_as_tensor=grad_as_tensor)
