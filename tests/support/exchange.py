"""Arrays that other libraries would have in memory of the device: the emulation's, which is the host's."""

from __future__ import annotations

import ctypes
from typing import Any, Optional

import numpy as np

KINDS = {"i": 0, "u": 1, "f": 2, "b": 6, "c": 5}


class Memory:
    """Memory of the device with the bytes of an array, and the array's layout."""

    def __init__(self, array: np.ndarray) -> None:
        from dynet_compat import _core

        base = array
        while isinstance(base.base, np.ndarray):
            base = base.base
        self.floats = _core._DeviceFloats(base.nbytes // 4 + 1)
        self.address, self.size = self.floats.address, base.nbytes
        ctypes.memmove(self.address, base.ctypes.data, base.nbytes)
        self.start = self.address + array.ctypes.data - base.ctypes.data
        self.array = array

    def overwrite(self) -> None:
        ctypes.memset(self.address, 0x7F, self.size)


class ByInterface(Memory):
    """With a `__cuda_array_interface__`; `changes` are made to it."""

    def __init__(self, array: Any, **changes: Any) -> None:
        super().__init__(np.asarray(array))
        self.changes = changes

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        array = self.array
        strides = None if array.flags.c_contiguous else array.strides
        return {
            "shape": array.shape, "typestr": array.dtype.str, "data": (self.start, False),
            "strides": strides, "version": 3, "stream": None, **self.changes,
        }  # fmt: skip


class _Array(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("axes", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
    ]  # fmt: skip


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("array", _Array), ("context", ctypes.c_void_p), ("deleter", _DELETER)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", _DELETER), ("flags", ctypes.c_uint64), ("array", _Array),
    ]  # fmt: skip


def _api(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(ctypes.pythonapi, name)
    function.restype, function.argtypes = result, arguments
    return function


_new = _api("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_pointer = _api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_is_valid = _api("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_rename = _api("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)


class ByDlpack(Memory):
    """With `__dlpack__`. `version` None: the capsule of DLPack before version 1, whatever is asked for."""

    def __init__(
        self, array: Any, device: tuple[int, int] = (2, 0), version: Optional[int] = 1, **changes: Any
    ) -> None:
        super().__init__(np.asarray(array))
        self.device, self.version, self.changes = device, version, changes
        self.deleted, self.streams = 0, []  # type: int, list[Any]

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def _delete(self, _: Any) -> None:
        self.deleted += 1
        self.overwrite()

    def __dlpack__(self, *, stream: Any = None, **more: Any) -> Any:
        if self.version is None and more:
            raise TypeError(f"__dlpack__(): {list(more)}?")
        self.streams.append(stream)
        array, item = self.array, self.array.dtype.itemsize
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        strides = (ctypes.c_int64 * array.ndim)(*(s // item for s in array.strides))
        made: Any = _Managed() if self.version is None else _Versioned(self.version, 0)
        made.array = _Array(
            self.address, *self.device, array.ndim, KINDS[array.dtype.kind], item * 8, 1, shape,
            None if array.flags.c_contiguous else strides, self.start - self.address,
        )  # fmt: skip
        for name, value in self.changes.items():
            setattr(made.array, name, value)
        made.deleter = _DELETER(self._delete)
        self.kept = made, shape, strides
        name = b"dltensor" if self.version is None else b"dltensor_versioned"
        return _new(ctypes.addressof(made), name, None)


class Taken:
    """What a consumer of DLPack has: it deletes the array when it is told to."""

    def __init__(self, capsule: Any) -> None:
        self.versioned = bool(_is_valid(capsule, b"dltensor_versioned"))
        name = b"dltensor_versioned" if self.versioned else b"dltensor"
        address = _pointer(capsule, name)
        _rename(capsule, b"used_" + name)
        self.managed: Any = (_Versioned if self.versioned else _Managed).from_address(address)
        self.address, self.array = address, self.managed.array

    @property
    def device(self) -> tuple[int, int]:
        return self.array.device_type, self.array.device_id

    @property
    def read_only(self) -> bool:
        return bool(self.versioned and self.managed.flags & 1)

    @property
    def copied(self) -> bool:
        return bool(self.versioned and self.managed.flags & 2)

    def numpy(self) -> np.ndarray:
        """The memory itself, seen as the host's."""
        return memory(
            self.array.data + self.array.offset,
            [self.array.shape[i] for i in range(self.array.axes)],
            [4 * self.array.strides[i] for i in range(self.array.axes)],
        )

    def delete(self) -> None:
        self.managed.deleter(self.address)


def memory(address: int, shape: Any, strides: Any) -> np.ndarray:
    size = int(np.prod(shape))
    flat = np.ctypeslib.as_array((ctypes.c_float * size).from_address(address))
    return np.lib.stride_tricks.as_strided(flat, shape, strides)


def seen(owner: Any) -> np.ndarray:
    """The array that a `__cuda_array_interface__` describes."""
    about = owner.__cuda_array_interface__
    return memory(about["data"][0], about["shape"], about["strides"])
