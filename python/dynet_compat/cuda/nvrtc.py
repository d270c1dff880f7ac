"""NVRTC, NVIDIA's run-time compiler, through ctypes.

It is in the wheels `nvidia-cuda-nvrtc` (CUDA 13) and `nvidia-cuda-nvrtc-cu12`, and in CUDA toolkits. This
file is also a program of its own, which compiles what it reads, without the package (background.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, Optional

MISSING = (
    "NVRTC, which compiles the GPU's kernels, is not installed: "
    "pip install nvidia-cuda-nvrtc (drivers from 580 on) or nvidia-cuda-nvrtc-cu12 (from 525 on)"
)


class CompileError(RuntimeError):
    """The compiler's log."""


class Source(NamedTuple):
    """A text to compile: its name in messages, the headers that it may include by name, NVRTC's options."""

    text: str
    name: str
    headers: Mapping[str, str]
    options: Sequence[str]


class Compiled(NamedTuple):
    """A cubin, the lowered name of each expression, and what the compiler said."""

    cubin: bytes
    lowered: dict[str, str]
    log: str


def libraries() -> list[Path]:
    """Files of NVRTC, those of wheels first. None of them is loaded."""
    from .libraries import find

    return find("libnvrtc")


class Nvrtc:
    """One libnvrtc: `version`, `architectures` (80 for sm_80) and `compile`.

    Args:
        path: the library; a bare name is looked up as the system does.
    Raises:
        OSError: it cannot be loaded.
    """

    def __init__(self, path: str) -> None:
        folder = Path(path).parent
        if folder.is_absolute():
            for builtins in sorted(folder.glob("libnvrtc-builtins.so.*")):
                with contextlib.suppress(OSError):
                    ctypes.CDLL(
                        str(builtins)
                    )  # NVRTC opens it by its bare name, and finds the one that is loaded
        self.path = path
        self._library = ctypes.CDLL(path)
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.version = (major.value, minor.value)
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        listed = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", listed)
        self.architectures: list[int] = sorted(listed)

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise CompileError(f"{name}: {self._library.nvrtcGetErrorString(status).decode()}")

    def _blob(self, program: ctypes.c_void_p, kind: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{kind}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(max(size.value, 1))
        self._call(f"nvrtcGet{kind}", program, buffer)
        return buffer.raw[: size.value]

    def _lowered(self, program: ctypes.c_void_p, expression: str) -> str:
        name = ctypes.c_char_p()
        self._call("nvrtcGetLoweredName", program, expression.encode(), ctypes.byref(name))
        return (name.value or b"").decode()

    def compile(self, source: Source, expressions: Sequence[str]) -> Compiled:
        """The cubin of a source, with the kernels that the expressions name; templates are instantiated.

        Raises:
            CompileError: the log of a compilation that failed.
        """
        text, name, headers, options = source
        count = len(headers)
        array = ctypes.c_char_p * count
        names = array(*(header.encode() for header in headers))
        texts = array(*(header.encode() for header in headers.values()))
        program = ctypes.c_void_p()
        self._call(
            "nvrtcCreateProgram", ctypes.byref(program), text.encode(), name.encode(), count, texts, names
        )
        try:
            for expression in expressions:
                self._call("nvrtcAddNameExpression", program, expression.encode())
            words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            status = self._library.nvrtcCompileProgram(program, len(options), words)
            log = self._blob(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            if status:
                raise CompileError(log or self._library.nvrtcGetErrorString(status).decode())
            lowered = {expression: self._lowered(program, expression) for expression in expressions}
            return Compiled(self._blob(program, "CUBIN"), lowered, log)
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))


@cache
def _load(path: str) -> Optional[Nvrtc]:
    try:
        return Nvrtc(path)
    except (OSError, AttributeError, CompileError):
        return None


def find_nvrtc(driver: int = 0) -> Nvrtc:
    """The NVRTC to use with a driver: the newest whose cubins it can load.

    Args:
        driver: the CUDA version of the driver as it reports it, 12040 for 12.4; 0: any.
    Raises:
        RuntimeError: there is none, or none for this driver.
    """
    from .libraries import bare_names

    paths = [*map(str, libraries()), *bare_names("libnvrtc")]
    found = [one for one in map(_load, paths) if one is not None]
    if not found:
        raise RuntimeError(MISSING)
    fitting = [one for one in found if not driver or one.version[0] <= driver // 1000]
    if not fitting:
        newest = ".".join(map(str, found[0].version))
        other = "pip install nvidia-cuda-nvrtc-cu12, or " if driver >= 12000 else ""
        raise RuntimeError(
            f"the GPU's driver is for CUDA {driver // 1000}.{driver % 1000 // 10}, and NVRTC {newest} makes "
            f"kernels for newer drivers only: {other}update the driver"
        )
    return max(fitting, key=lambda one: one.version[0])


_PDEATHSIG, _SIGKILL = 1, 9


def _end_with_parent() -> None:
    """Also with one that is killed. Ctrl-C in the terminal is for the parent alone."""
    with contextlib.suppress(OSError):  # it has a session of its own
        os.setsid()
    with contextlib.suppress(OSError, AttributeError):  # elsewhere than on Linux
        ctypes.CDLL(None).prctl(_PDEATHSIG, _SIGKILL, 0, 0, 0)


def main() -> None:
    """Compiles what stdin has: the parent's number, a library's path, a source's fields, its kernels."""
    _end_with_parent()
    parent, path, *source, expressions = pickle.load(sys.stdin.buffer)
    if os.getppid() != parent:  # it has ended before
        return
    try:
        answer: tuple[object, ...] = (True, *Nvrtc(path).compile(Source(*source), expressions))
    except CompileError as error:
        answer = (False, str(error))
    pickle.dump(answer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
