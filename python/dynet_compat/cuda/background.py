"""Kernels that compile while the program goes on without them.

They compile in a process of their own: a thread of NVRTC that is at work when the program ends would crash
it, as the library's data are destroyed under it, and it cannot be stopped for seconds.
"""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Optional

from . import nvrtc
from .cache import CompiledKernels
from .compiler import compile_kernels

_Key = tuple[str, tuple[str, ...], int, int]


@contextmanager
def notice(what: str) -> Iterator[None]:
    """One line when it takes longer than a second."""
    timer = threading.Timer(1.0, lambda: print(f"[dynet] compiling {what}", file=sys.stderr))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class _Process(nvrtc.Nvrtc):
    """NVRTC in a process of its own, which `stop` ends at once."""

    def __init__(self, inner: nvrtc.Nvrtc) -> None:
        self.path, self.version, self.architectures = inner.path, inner.version, inner.architectures
        self._running: Optional[subprocess.Popen[bytes]] = None

    def compile(
        self,
        source: str,
        name: str,
        headers: Mapping[str, str],
        options: Sequence[str],
        expressions: Sequence[str],
    ) -> nvrtc.Compiled:
        """As Nvrtc.compile.

        Raises:
            RuntimeError: there is no such process, or it has ended.
        """
        data = pickle.dumps((self.path, source, name, dict(headers), list(options), list(expressions)))
        with _lock:
            if _ends.is_set():
                raise RuntimeError("the program ends")
            try:
                self._running = subprocess.Popen(
                    [sys.executable, "-I", "-S", os.path.abspath(nvrtc.__file__)], start_new_session=True,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                )  # fmt: skip
            except OSError as error:
                raise RuntimeError(f"NVRTC's process cannot be started: {error}") from error
        answer, errors = self._running.communicate(data)
        if self._running.returncode:
            words = errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise RuntimeError(f"NVRTC's process ended with status {self._running.returncode}. {words}")
        is_compiled, *fields = pickle.loads(answer)
        if not is_compiled:
            raise nvrtc.CompileError(*fields)
        return nvrtc.Compiled(*fields)

    def stop(self) -> None:
        if self._running:
            self._running.kill()


class _Work(threading.Thread):
    """One compilation. `take` raises what goes wrong."""

    def __init__(self, key: _Key) -> None:
        super().__init__(name="dynet_compat kernels", daemon=True)
        self.key = key
        self.parts: list[CompiledKernels] = []
        self.error: Optional[Exception] = None
        self.compiler: Optional[_Process] = None

    def run(self) -> None:
        file, expressions, architecture, driver = self.key
        try:
            self.compiler = _Process(nvrtc.find_nvrtc(driver))
            with notice("a kernel for this program, which goes on without until then"):
                self.parts = compile_kernels(file, expressions, architecture, driver, self.compiler)
        except Exception as error:  # noqa: BLE001 - raised where the kernels are asked for
            self.error = error


_lock = threading.Lock()
_works: dict[_Key, _Work] = {}
_ends = threading.Event()  # the program


@atexit.register
def _stop() -> None:
    with _lock:
        _ends.set()
        works = list(_works.values())
    for work in works:
        if work.compiler:
            work.compiler.stop()
        work.join()


def _forget() -> None:
    """In a forked process: the work is the other one's."""
    global _lock
    _lock = threading.Lock()
    _works.clear()


os.register_at_fork(after_in_child=_forget)


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


def wait() -> None:
    """Until nothing is being compiled any more."""
    with _lock:
        works = list(_works.values())
    for work in works:
        work.join()


def take(file: str, expressions: Sequence[str], architecture: int, driver: int) -> list[CompiledKernels]:
    """As `compile_kernels`, or what was compiled in the background."""
    key = _key(file, expressions, architecture, driver)
    work = _works.get(key)
    if work is None:
        return compile_kernels(file, expressions, architecture, driver)
    work.join()
    with _lock:
        _works.pop(key, None)
    if work.error is not None:
        raise work.error
    return work.parts
