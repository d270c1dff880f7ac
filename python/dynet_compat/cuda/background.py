"""Kernels that compile while the program goes on without them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence

from .cache import CompiledKernels
from .compiler import compile_kernels

_Key = tuple[str, tuple[str, ...], int, int]


class _Work(threading.Thread):
    """One compilation. `take` raises what goes wrong."""

    def __init__(self, key: _Key) -> None:
        super().__init__(name="dynet_compat kernels", daemon=True)
        self.key = key
        self.parts: list[CompiledKernels] = []
        self.error: Exception | None = None

    def run(self) -> None:
        file, expressions, architecture, driver = self.key
        start = time.monotonic()
        notice = threading.Timer(1.0, self.report)
        notice.daemon = True
        notice.start()
        try:
            self.parts = compile_kernels(file, expressions, architecture, driver)
        except Exception as error:  # noqa: BLE001 - raised where the kernels are asked for
            self.error = error
        notice.cancel()
        if notice.finished.is_set() and time.monotonic() - start > 1.0:
            print(f"[dynet] compiled a kernel in {time.monotonic() - start:.0f} s", file=sys.stderr)

    def report(self) -> None:
        print("[dynet] compiling a kernel for this program; it goes on without until then", file=sys.stderr)


_lock = threading.Lock()
_works: dict[_Key, _Work] = {}


def _key(file: str, expressions: Sequence[str], architecture: int, driver: int) -> _Key:
    return file, tuple(expressions), architecture, driver


def is_compiled(file: str, expressions: Sequence[str], architecture: int, driver: int) -> bool:
    """Whether the compilation of these kernels has ended, or failed; the first question begins it."""
    key = _key(file, expressions, architecture, driver)
    with _lock:
        work = _works.get(key)
        if work is None:
            work = _works[key] = _Work(key)
            work.start()
    return not work.is_alive()


def take(file: str, expressions: Sequence[str], architecture: int, driver: int) -> list[CompiledKernels]:
    """As `compile_kernels`, or what was compiled in the background."""
    with _lock:
        work = _works.pop(_key(file, expressions, architecture, driver), None)
    if work is None:
        return compile_kernels(file, expressions, architecture, driver)
    work.join()
    if work.error is not None:
        raise work.error
    return work.parts
