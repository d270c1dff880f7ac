"""Kernels that a flush needs, compiled on all cores."""

from __future__ import annotations

import gc
import os
import threading
from collections import deque
from collections.abc import Iterable, Sequence

from ..startup.devices import cores
from .background import notice, take
from .cache import CompiledKernels
from .compiler import KernelFile


def by_file(names: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The kernels of each file."""
    files: dict[str, list[str]] = {}
    for file, expression in names:
        files.setdefault(file, []).append(expression)
    return files


def pieces_of(files: dict[str, list[str]], count: int) -> list[tuple[str, list[str]]]:
    """Files and some of their kernels, which one compilation makes: `count`, where there are so many.

    Reading the headers of a file takes NVRTC as long as a kernel or two, and no two threads do it at once.
    """
    pieces = list(files.items())
    while 0 < len(pieces) < count:
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
    """Kernels of several files (file, expression): parts with their files.

    What neither the background nor the cache has is compiled on all cores.
    """
    found: list[tuple[str, CompiledKernels]] = []
    sources: dict[str, KernelFile] = {}
    missing: dict[str, list[str]] = {}
    with notice("kernels for this program"):
        for file, kernels in by_file(names).items():
            parts = take(file, kernels, architecture, driver)
            if parts is None:
                sources[file] = KernelFile(file, architecture, driver)
                parts, lacking = sources[file].kept(kernels)
                if lacking:
                    missing[file] = lacking
            found += [(file, part) for part in parts]
        pieces = pieces_of(missing, cores())
        compiled = _on_threads([(sources[file], kernels) for file, kernels in pieces])
    return found + [(file, part) for (file, _), part in zip(pieces, compiled)]


def _on_threads(tasks: Sequence[tuple[KernelFile, list[str]]]) -> list[CompiledKernels]:
    """Compiles them, in this thread and in as many more as there are cores, if they can be started."""
    results: dict[int, CompiledKernels] = {}
    waiting, errors = deque(enumerate(tasks)), deque[BaseException]()

    def work() -> None:
        while True:
            try:
                number, (file, kernels) = waiting.popleft()
            except IndexError:
                return
            try:
                results[number] = file.compile(kernels)
            except BaseException as error:  # noqa: BLE001 - raised below
                waiting.clear()
                errors.append(error)

    with _collection:
        threads = [threading.Thread(target=work) for _ in range(1, min(len(tasks), cores()))]
        try:
            for number, thread in enumerate(threads):
                try:
                    thread.start()
                except RuntimeError:  # at the end of the program
                    del threads[number:]
                    break
            work()
        finally:
            waiting.clear()
            for thread in threads:
                if thread.is_alive():
                    thread.join()
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(tasks))]


class _Collection:
    """Off while somebody is inside.

    No `__del__` of the program runs in a thread that it waits for: it may want the device.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._users = 0
        self._enabled = False

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._enabled = gc.isenabled()
            self._users += 1
            gc.disable()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and self._enabled:
                gc.enable()

    def forget(self) -> None:
        """In a forked process: it has none of the threads."""
        self._lock = threading.RLock()
        if self._users and self._enabled:
            gc.enable()
        self._users = 0


_collection = _Collection()
os.register_at_fork(after_in_child=lambda: _collection.forget())
