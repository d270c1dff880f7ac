"""Kernels that a flush needs, compiled on all cores."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from ..startup.devices import cores
from .background import notice, take
from .cache import CompiledKernels


def pieces_of(names: Iterable[tuple[str, str]], count: int) -> list[tuple[str, list[str]]]:
    """Files and some of their kernels, which one compilation makes: `count`, where there are so many.

    Reading the headers of a file takes NVRTC as long as a kernel or two, and no two threads do it at once.
    """
    files: dict[str, list[str]] = {}
    for file, expression in names:
        files.setdefault(file, []).append(expression)
    pieces = list(files.items())
    while len(pieces) < count:
        file, kernels = max(pieces, key=lambda piece: len(piece[1]))
        if len(kernels) == 1:
            break
        pieces.remove((file, kernels))
        half = len(kernels) // 2
        pieces += [(file, kernels[:half]), (file, kernels[half:])]
    return pieces


def compile_together(
    names: Iterable[tuple[str, str]], architecture: int, driver: int
) -> list[tuple[str, CompiledKernels]]:
    """Kernels of several files (file, expression), on all cores: parts with their files."""

    def compile_piece(piece: tuple[str, list[str]]) -> list[tuple[str, CompiledKernels]]:
        return [(piece[0], part) for part in take(*piece, architecture, driver)]

    pieces = pieces_of(names, cores())
    with notice("kernels for this program"):
        if len(pieces) == 1:
            return compile_piece(pieces[0])
        with _no_collection(), ThreadPoolExecutor(min(len(pieces), cores())) as pool:
            return [part for parts in pool.map(compile_piece, pieces) for part in parts]


@contextmanager
def _no_collection() -> Iterator[None]:
    """No `__del__` of the program runs in a thread that it waits for: it may want the device."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
