"""NVRTC of the nvidia-cuda-nvrtc wheel, through ctypes: compiles CUDA source without a GPU or a driver."""

from __future__ import annotations

import ctypes
import importlib.util
from functools import cache
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src"

# Headers of the C++ library that the op headers include; each of them is cuda/std.h for NVRTC.
STD_HEADERS = (
    "cstddef", "cstdint", "cstring", "initializer_list", "ostream", "sstream", "stdexcept", "string",
    "type_traits",
)  # fmt: skip


class CompileError(Exception):
    """The compiler's log."""


def found() -> Path | None:
    """The wheel's libnvrtc, or None."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob("*/lib/libnvrtc.so.*")):
            return path
    return None


@cache
def subject() -> ctypes.CDLL:
    path = found()
    assert path is not None, "no libnvrtc: the wheel nvidia-cuda-nvrtc is not installed"
    for builtins in sorted(path.parent.glob("libnvrtc-builtins.so.*")):
        ctypes.CDLL(str(builtins))  # NVRTC opens it by its bare name, which finds the one that is loaded
    loaded = ctypes.CDLL(str(path))
    loaded.nvrtcGetErrorString.restype = ctypes.c_char_p
    return loaded


def call(name: str, *arguments: object) -> None:
    status = getattr(subject(), name)(*arguments)
    if status:
        raise CompileError(f"{name}: {subject().nvrtcGetErrorString(status).decode()}")


def blob(program: ctypes.c_void_p, kind: str) -> bytes:
    """What nvrtcGet<kind> gives: the log, the cubin ..."""
    size = ctypes.c_size_t()
    call(f"nvrtcGet{kind}Size", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    call(f"nvrtcGet{kind}", program, buffer)
    return buffer.raw


def compile_cubin(source: str, name: str, arch: str, kernels: list[str]) -> tuple[bytes, dict[str, str], str]:
    """Cubin, lowered name of each of `kernels` (asking for a template's instance makes it), and log."""
    headers = [b'#include "cuda/std.h"\n'] * len(STD_HEADERS)
    names = [header.encode() for header in STD_HEADERS]
    texts = ctypes.c_char_p * len(names)
    program = ctypes.c_void_p()
    call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), name.encode(), len(names),
         texts(*headers), texts(*names))  # fmt: skip
    try:
        for kernel in kernels:
            call("nvrtcAddNameExpression", program, kernel.encode())
        options = [f"--gpu-architecture={arch}", f"--include-path={SRC}", "--std=c++20", "--fmad=true",
                   "--device-as-default-execution-space"]  # fmt: skip
        encoded = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = subject().nvrtcCompileProgram(program, len(options), encoded)
        log = blob(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if status:
            raise CompileError(log)
        lowered = {}
        for kernel in kernels:
            found = ctypes.c_char_p()
            call("nvrtcGetLoweredName", program, kernel.encode(), ctypes.byref(found))
            lowered[kernel] = (found.value or b"").decode()
        return blob(program, "CUBIN"), lowered, log
    finally:
        call("nvrtcDestroyProgram", ctypes.byref(program))
