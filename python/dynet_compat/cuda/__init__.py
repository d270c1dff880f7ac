"""Kernels for the GPU that is found: compiled at run time by NVRTC, kept on the disk.

The package holds the kernels' text. `compile_kernels` is what the engine calls when a launch needs kernels
that this process has not loaded; nothing here needs a GPU or its driver.
"""

from __future__ import annotations

from collections.abc import Sequence

from .background import is_compiled
from .compiler import KernelError, compile_kernels, options_for
from .cublas import cublas_paths
from .notes import keep, recall
from .nvrtc import CompileError, Nvrtc, find_nvrtc, libraries
from .sources import closure, embedded
from .together import compile_together

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
    kernels: Sequence[tuple[str, str]], architecture: int, driver: int
) -> list[tuple[str, bytes, list[tuple[str, str]]]]:
    """`compile_together` as the engine's callback wants it: lowered names as pairs."""
    parts = compile_together(kernels, architecture, driver)
    return [(file, part.cubin, list(part.lowered.items())) for file, part in parts]
