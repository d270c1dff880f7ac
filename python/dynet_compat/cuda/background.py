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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Optional

from . import nvrtc
from .cache import CompiledKernels
from .compiler import compile_kernels

_Key = tuple[str, tuple[str, ...], int, int]


# Python before 3.10 forks for a session or to close files, which runs what the engine does before forks.
_FORKS_LIGHTLY = sys.version_info >= (3, 10)

_told: set[str] = set()


def _tell(what: str) -> None:
    if what not in _told:
        _told.add(what)
        print(f"[dynet] compiling {what}", file=sys.stderr)


@contextmanager
def notice(what: str) -> Iterator[None]:
    """One line, the first time that it takes longer than a second."""
    timer = threading.Timer(1.0, _tell, [what])
    timer.daemon = True
    with suppress(RuntimeError):  # the program ends, or has as many threads as it may
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _can_start() -> bool:
    """Whether sys.executable is Python: a program that has it inside would be started again."""
    name = os.path.basename(sys.executable or "").lower()
    return ("python" in name or "pypy" in name) and not getattr(sys, "frozen", False)


class _Process:
    """NVRTC in a process of its own, which `stop` ends at once: a Compiler."""

    def __init__(self, inner: nvrtc.Nvrtc) -> None:
        self._path, self.version, self.architectures = inner.path, inner.version, inner.architectures
        self._running: Optional[subprocess.Popen[bytes]] = None

    def compile(self, source: nvrtc.Source, expressions: Sequence[str]) -> nvrtc.Compiled:
        """As Nvrtc.compile.

        Raises:
            RuntimeError: there is no such process, it has ended, or its answer is none of NVRTC's.
        """
        request = os.getpid(), self._path, *source, list(expressions)  # no class: it lacks the package
        with _lock:
            if _ends.is_set():
                raise RuntimeError("the program ends")
            try:
                self._running = subprocess.Popen(
                    [sys.executable, "-I", "-S", os.path.abspath(nvrtc.__file__)],
                    start_new_session=_FORKS_LIGHTLY, close_fds=_FORKS_LIGHTLY,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                )  # fmt: skip
            except OSError as error:
                raise RuntimeError(f"NVRTC's process cannot be started: {error}") from error
        answer, errors = self._running.communicate(pickle.dumps(request))
        if self._running.returncode:
            words = errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise RuntimeError(f"NVRTC's process ended with status {self._running.returncode}. {words}")
        try:
            is_compiled, *fields = pickle.loads(answer)
            compiled = nvrtc.Compiled(*fields) if is_compiled else None
        except Exception as error:
            raise RuntimeError(f"NVRTC's process gave no answer: {error}") from error
        if compiled is None:
            raise nvrtc.CompileError(*fields)
        return compiled

    def stop(self) -> None:
        if self._running:
            self._running.kill()


class _Work:
    """One compilation, by a thread."""

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.parts: list[CompiledKernels] = []
        self.error: Optional[RuntimeError] = None
        self.compiler: Optional[_Process] = None
        self._thread = threading.Thread(target=self._run, name="dynet_compat kernels", daemon=True)

    def start(self) -> None:
        try:
            self._thread.start()
        except RuntimeError as error:  # the program ends, or has as many threads as it may
            self.error = error

    def _run(self) -> None:
        file, expressions, architecture, driver = self.key
        try:
            self.compiler = _Process(nvrtc.find_nvrtc(driver))
            with notice("a kernel for this program, which goes on without until then"):
                self.parts = compile_kernels(file, expressions, architecture, driver, self.compiler)
        except RuntimeError as error:  # raised where the kernels are asked for
            self.error = error
        except BaseException as error:  # noqa: BLE001 - the engine goes on without the kernels
            self.error = RuntimeError(f"{type(error).__name__}: {error}")

    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        if self._thread.is_alive():
            self._thread.join()


_lock = threading.RLock()  # a `__del__` that runs meanwhile may ask, too
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
        work.wait()


def _forget() -> None:
    """In a forked process: the work is the other one's."""
    global _lock
    _lock = threading.RLock()
    _works.clear()


os.register_at_fork(after_in_child=_forget)


def _key(file: str, expressions: Sequence[str], architecture: int, driver: int) -> _Key:
    return file, tuple(expressions), architecture, driver


def is_compiled(file: str, expressions: Sequence[str], architecture: int, driver: int) -> bool:
    """Whether the compilation of these kernels has ended, or failed; the first question begins it.

    Where no process can do it they are not waited for: who needs them compiles them.
    """
    if not _can_start():
        return True
    key = _key(file, expressions, architecture, driver)
    with _lock:
        work = _works.get(key)
        if work is None:
            work = _works[key] = _Work(key)
            work.start()
    return work.is_done()


def wait() -> None:
    """Until nothing is being compiled any more."""
    with _lock:
        works = list(_works.values())
    for work in works:
        work.wait()


def take(
    file: str, expressions: Sequence[str], architecture: int, driver: int
) -> Optional[list[CompiledKernels]]:
    """What was compiled in the background, or None if it was not begun there."""
    key = _key(file, expressions, architecture, driver)
    with _lock:
        work = _works.get(key)
    if work is None:
        return None
    work.wait()
    with _lock:
        _works.pop(key, None)
    if work.error is not None:
        raise work.error
    return work.parts
