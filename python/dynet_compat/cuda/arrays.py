"""CuPy, for programs that want arrays of the device."""

from __future__ import annotations

from types import ModuleType
from typing import Any


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
