"""Kernels for the GPU that is found: compiled at run time by NVRTC, kept on the disk.

The package holds the kernels' text. `compile_kernels` is what the engine calls when a launch needs kernels
that this process has not loaded; nothing here needs a GPU or its driver.
"""

from __future__ import annotations

from collections.abc import Sequence

from .background import is_compiled, take
from .compiler import KernelError, compile_kernels, options_for
from .cublas import cublas_paths
from .notes import keep, recall
from .nvrtc import CompileError, Nvrtc, find_nvrtc, libraries
from .sources import closure, embedded

__all__ = [
    "CompileError",
    "KernelError",
    "Nvrtc",
    "closure",
    "compile_kernels",
    "cublas_paths",
    "embedded",
    "find_nvrtc",
    "is_compiled",
    "keep",
    "libraries",
    "options_for",
    "recall",
]


def for_engine(
    file: str, expressions: Sequence[str], architecture: int, driver: int
) -> list[tuple[bytes, list[tuple[str, str]]]]:
    """`compile_kernels` as the engine's callback wants it: lowered names as pairs."""
    parts = take(file, expressions, architecture, driver)
    return [(part.cubin, list(part.lowered.items())) for part in parts]
