"""cuBLAS, which makes large matrix products on a GPU where it is installed. The engine loads it itself."""

from __future__ import annotations

import ctypes
import os

from .libraries import bare_names, find

VARIABLE = "DYNET_COMPAT_CUBLAS"  # 0: without it; a path: that library


def _major(path: str) -> int:
    return int(path.rpartition(".")[2])


def cublas_paths(driver: int = 0) -> list[str]:
    """Libraries to try, in this order: the newest that the driver can serve, then where the system looks.

    Args:
        driver: the CUDA version of the driver as it reports it, 12040 for 12.4; 0: any.
    """
    chosen = os.environ.get(VARIABLE, "")
    if chosen == "0":
        return []
    if chosen and chosen != "1":
        return [chosen]
    found = sorted(map(str, find("libcublas")), key=_major, reverse=True)
    paths = [*found, *bare_names("libcublas")]
    return [path for path in paths if not driver or _major(path) <= driver // 1000]


def describe(driver: int = 0) -> str:
    """Version and path of the first library that can be loaded, or why large products go without."""
    if os.environ.get(VARIABLE) == "0":
        return f"not used ({VARIABLE}=0)"
    for path in cublas_paths(driver):
        try:
            library = ctypes.CDLL(path)
            numbers = [ctypes.c_int() for _ in range(3)]
            for kind, number in enumerate(numbers):
                library.cublasGetProperty(kind, ctypes.byref(number))
        except (OSError, AttributeError):
            continue
        return f"{'.'.join(str(number.value) for number in numbers)}, {path}"
    return "not installed: large products are made by the package's own kernels"
