"""CuPy, for programs that want arrays of the device."""

from __future__ import annotations

import contextlib
from types import ModuleType
from typing import Any, Callable, Optional

import numpy as np

from .. import _core

__all__ = ["set_device_allocator"]

_CPU = 1  # DLPack's number


def find_cupy() -> ModuleType:
    """CuPy, or an ImportError that says how to install it."""
    try:
        import cupy
    except ImportError as error:
        raise ImportError(
            "arrays of a GPU are CuPy's, which cannot be imported: pip install cupy-cuda12x or cupy-cuda13x "
            f"({error})"
        ) from error
    module: ModuleType = cupy
    return module


def as_cupy(array: Any) -> Any:
    """CuPy's array of memory of the device, which stays as long as that array; of the CPU's, a copy."""
    return find_cupy().asarray(array)


def _is_emulated() -> bool:
    """The emulation's memory is the host's, which CuPy cannot read."""
    return bool(_core._is_emulated())


class _Stream:
    """The stream that this package computes on, by CUDA's stream protocol."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, _core._stream()  # the version of the protocol


def cupy_stream(cuda: Any) -> Any:
    """The same as a stream of CuPy.

    Args:
        cuda: `cupy.cuda`; before version 14 it knows of no protocol.
    """
    if hasattr(cuda.Stream, "from_external"):
        return cuda.Stream.from_external(_Stream())
    return cuda.ExternalStream(_core._stream())


def on_stream() -> Any:
    """CuPy works on the stream of this package, so that neither waits for the other."""
    if _core._dlpack_device()[0] == _CPU or _is_emulated():
        return contextlib.nullcontext()
    return cupy_stream(find_cupy().cuda)


def of_view(view: Any) -> Any:
    """Memory of a graph as an array of the library that computes on the device: NumPy's on the CPU."""
    if isinstance(view, np.ndarray):
        return view
    return view.seen() if _is_emulated() else as_cupy(view)


def of_tensor(tensor: Any) -> Any:
    """The same of a Tensor."""
    device = getattr(tensor, "_device", None)
    return of_view(np.asarray(tensor) if device is None else device)


def set_device_allocator(allocator: Optional[Callable[[int], Any]]) -> None:
    """Where memory of the GPU comes from, from now on: CuPy's pool, say, so that there is one for both.

    The function is called with a number of bytes, and with the stream that the package computes on as CuPy's
    current one: pools give memory back in the order of that stream. What it returns has the address as its
    attribute `ptr`, a multiple of 256, and is kept until the memory is given back. It must not use
    expressions, parameters or graphs. Memory that is in use stays where it is.

    Args:
        allocator: a function, as `cupy.get_default_memory_pool().malloc` and `cupy.cuda.MemoryPool().malloc`
            are; None: the package's own pool again.
    Raises:
        TypeError: it is no function.
        RuntimeError: the process computes on the CPU.
    Source: not in DyNet.
    Example:
        >>> dy.set_device_allocator(lambda size: pool.malloc(size))
        Traceback (most recent call last):
        RuntimeError: memory of a device: this process computes on the CPU; choose one by --dynet-gpu
    """
    if allocator is None:
        _core._set_allocator(None)
        return
    if not callable(allocator):
        raise TypeError(f"set_device_allocator(): expected a function, got {type(allocator).__name__}")

    def allocate(size: int) -> Any:
        with on_stream():
            return allocator(size)

    _core._set_allocator(allocate)
