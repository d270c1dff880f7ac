"""What the package uses of CuPy, over the memory of the emulation, which is the host's."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Optional

import numpy as np

from support.exchange import memory, seen


class Array(np.ndarray):
    """On the device: NumPy sees its memory, and the package what CuPy tells of it."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape, "typestr": self.dtype.str, "data": (self.ctypes.data, False),
            "strides": self.strides, "version": 3, "stream": current[-1] if current else 1,
        }  # fmt: skip


current: list[int] = []  # streams


@contextmanager
def _external_stream(pointer: int) -> Any:
    current.append(pointer)
    try:
        yield
    finally:
        current.pop()


def asarray(owner: Any) -> Any:
    if hasattr(owner, "__cuda_array_interface__"):
        array = seen(owner).view(Array)
        array.owner = owner  # it keeps the memory
        return array
    if hasattr(owner, "__cupy_get_ndarray__"):
        return owner.__cupy_get_ndarray__()
    return np.asarray(owner).view(Array)


class Block:
    """CuPy's MemoryPointer."""

    def __init__(self, pool: Pool, size: int) -> None:
        self.buffer = ctypes.create_string_buffer(size + 256)
        self.ptr = -(-ctypes.addressof(self.buffer) // 256) * 256
        self.pool, self.size = pool, size
        pool.used += size

    def __del__(self) -> None:
        self.pool.used -= self.size


class Pool:
    """CuPy's MemoryPool."""

    def __init__(self, limit: Optional[int] = None) -> None:
        self.used, self.limit, self.streams = 0, limit, set()  # type: int, Optional[int], set[int]

    def malloc(self, size: int) -> Block:
        self.streams.add(current[-1])
        if self.limit is not None and self.used + size > self.limit:
            raise MemoryError("the pool is empty")
        return Block(self, size)


class Stream:
    """CuPy's from version 14 on."""

    @staticmethod
    def from_external(stream: Any) -> Any:
        version, pointer = stream.__cuda_stream__()
        assert version == 0
        return _external_stream(pointer)


cuda = SimpleNamespace(ExternalStream=_external_stream, MemoryPool=Pool, Stream=Stream)

__all__ = ["asarray", "cuda", "memory"]
