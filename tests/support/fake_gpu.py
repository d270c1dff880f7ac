"""A CUDA driver without a GPU (tests/cuda/fake_libcuda.cc), and the driver backend over it."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1] / "cuda"
SRC = HERE.parents[1] / "src"
Factor = tuple[int, int, bool]
COMPILER = os.environ.get("CXX", "g++").split()


def complaints(stderr: str) -> str:
    """What a program wrote, but for the line that kernels are being compiled, which slow ones have."""
    return "".join(line for line in stderr.splitlines(True) if not line.startswith("[dynet] compiling "))


def available() -> bool:
    return shutil.which(COMPILER[0]) is not None


def build(target: Path, sources: Sequence[Path], *defined: str) -> Path:
    options = [*(f"-D{name}" for name in defined), "-std=c++20", "-O0", "-shared", "-fPIC", f"-I{SRC}"]
    command = [*COMPILER, *options, *map(str, sources), "-o", str(target), "-ldl", "-lpthread"]
    subprocess.run(command, check=True, timeout=300)
    return target


def build_fake(folder: Path, *defined: str) -> Path:
    """The driver, and cuBLAS in the same file; defined: FAKE_WITHOUT_GRAPHS."""
    sources = [HERE / "fake_libcuda.cc", HERE / "fake_libcublas.cc"]
    return build(folder / "libcuda_fake.so", sources, *defined)


def build_shim(folder: Path) -> Path:
    names = ("cublas", "driver", "graphs", "memory", "libcuda", "graph_cache")
    sources = [SRC / "cuda" / "driver" / f"{name}.cc" for name in names]
    return build(folder / "driver_shim.so", [HERE / "driver_shim.cc", *sources])


class Fake:
    """The library's own controls. A copy of the file for each test: a library is loaded once per file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.loaded = ctypes.CDLL(str(path))
        self.loaded.fake_waits.restype = self.loaded.fake_recorded.restype = ctypes.c_char_p
        self.loaded.fake_log.restype = self.loaded.fake_ran.restype = ctypes.c_char_p
        self.loaded.fake_used.restype = self.loaded.fake_most.restype = ctypes.c_longlong

    def fail(self, function: str, call: int, code: int) -> None:
        """The call-th call from now answers with this error."""
        self.loaded.fake_fail(function.encode(), call, code)

    def set(self, what: str, value: int) -> None:
        self.loaded.fake_set(what.encode(), ctypes.c_longlong(value))

    def calls(self, function: str) -> int:
        return int(self.loaded.fake_calls(function.encode()))

    def log(self) -> list[str]:
        return list(self.loaded.fake_log().decode().split())

    def ran(self) -> list[str]:
        """What has run since this was asked last: kernels and moves of memory, with their arguments."""
        told = list(self.loaded.fake_ran().decode().split())
        self.loaded.fake_clear_ran()
        return told

    def orders(self) -> list[tuple[int, int]]:
        """Streams on which an event was recorded last, and those that waited for it."""
        recorded, waits = self.loaded.fake_recorded().split(), self.loaded.fake_waits().split()
        return list(zip(map(int, recorded[-len(waits) :]), map(int, waits)))

    def graphs(self) -> int:
        """Graphs that were made and not destroyed."""
        return int(self.loaded.fake_graphs())


class Driver:
    """The backend, its errors as Python's."""

    def __init__(self, shim: Path) -> None:
        self.loaded = ctypes.CDLL(str(shim))
        self.loaded.shim_stream.restype = ctypes.c_uint64
        for name in ("shim_message", "shim_asked", "shim_gemm_library"):
            getattr(self.loaded, name).restype = ctypes.c_char_p
        self.loaded.shim_seconds.restype = ctypes.c_double
        self.loaded.shim_counter.restype = ctypes.c_uint64

    def _do(self, name: str, *arguments: Any) -> None:
        status = getattr(self.loaded, f"shim_{name}")(*arguments)
        if status:
            raise (RuntimeError, MemoryError)[status - 1](self.loaded.shim_message().decode())

    def open(self, device: int = 0) -> None:
        self._do("open", device)

    def close(self) -> None:
        self.loaded.shim_close()

    def allocate(self, size: int) -> int:
        memory = ctypes.c_uint64()
        self._do("allocate", ctypes.c_size_t(size), ctypes.byref(memory))
        return memory.value

    def release(self, memory: int, shared: bool = False) -> None:
        self.loaded.shim_release(ctypes.c_uint64(memory), int(shared))

    def disown(self, memory: int, shared: bool) -> None:
        self.loaded.shim_disown(ctypes.c_uint64(memory), int(shared))

    def check_memory(self, start: int, size: int) -> None:
        self._do("check_memory", ctypes.c_uint64(start), ctypes.c_size_t(size))

    def stream(self) -> int:
        return int(self.loaded.shim_stream())

    def wait_for(self, stream: int) -> None:
        self._do("order", ctypes.c_uint64(stream), 1)

    def make_wait(self, stream: int) -> None:
        self._do("order", ctypes.c_uint64(stream), 0)

    def upload(self, to: int, data: Any) -> None:
        self._do("upload", ctypes.c_uint64(to), data, ctypes.c_size_t(len(data)))

    def download(self, start: int, size: int) -> bytes:
        buffer = ctypes.create_string_buffer(size)
        self._do("download", buffer, ctypes.c_uint64(start), ctypes.c_size_t(size))
        return buffer.raw

    def copy(self, to: int, start: int, size: int) -> None:
        self._do("copy", ctypes.c_uint64(to), ctypes.c_uint64(start), ctypes.c_size_t(size))

    def clear(self, to: int, size: int) -> None:
        self._do("clear", ctypes.c_uint64(to), ctypes.c_size_t(size))

    def wait(self) -> None:
        self._do("wait")

    def measure(self, on: bool) -> None:
        self._do("measure", int(on))

    def seconds(self, copies: bool) -> float:
        return float(self.loaded.shim_seconds(int(copies)))

    def counters(self) -> list[int]:
        """launches, uploads, downloads, copies, bytes uploaded, bytes downloaded."""
        return [int(self.loaded.shim_counter(i)) for i in range(6)]

    def prepare(self, file: str, expressions: Sequence[str]) -> None:
        array = (ctypes.c_char_p * len(expressions))(*(e.encode() for e in expressions))
        self._do("prepare", file.encode(), array, len(expressions))

    def launch(
        self,
        kernel: str,
        *arguments: Any,
        blocks: int = 1,
        threads: int = 32,
        shared: int = 0,
        cooperative: bool = False,
    ) -> None:
        array = (ctypes.c_void_p * max(1, len(arguments)))(*(ctypes.addressof(a) for a in arguments))
        self._do("launch", b"file", kernel.encode(), blocks, threads, shared, int(cooperative), array)

    def fill(self, memory: int, count: int, value: float) -> None:
        arguments = ctypes.c_uint64(memory), ctypes.c_uint32(count), ctypes.c_float(value)
        self.launch("fill", *arguments, blocks=(count + 255) // 256, threads=256)

    def replay(self, operations: Sequence[tuple[int, int, int, int, int]]) -> bool:
        """Runs them, as the executor does: kind (0 fill_record, 1 copy, 2 clear), to, from, bytes, blocks."""
        numbers = [n for operation in operations for n in operation]
        array, done = (ctypes.c_uint64 * len(numbers))(*numbers), ctypes.c_int()
        self._do("replay", array, len(operations), ctypes.byref(done))
        return bool(done.value)

    def replays(self) -> int:
        return int(self.loaded.shim_counter(6))

    def set_libraries(self, *paths: Path) -> None:
        """What the search for cuBLAS gives."""
        self.loaded.shim_set_libraries("\n".join(map(str, paths)).encode())

    def has_gemm(self) -> bool:
        found = ctypes.c_int()
        self._do("has_gemm", ctypes.byref(found))
        return bool(found.value)

    def gemm_library(self) -> str:
        return str(self.loaded.shim_gemm_library().decode())

    def gemm(
        self, sides: Sequence[int], a: Factor, b: Factor, c: tuple[int, int], add: bool, precision: int = 0
    ) -> None:
        """`sides`: m, n, inner; a, b: address, stride, turned; c: address, stride; precision: its number."""
        numbers = [*sides, *a, *b, *c, add, precision]
        self._do("gemm", (ctypes.c_int64 * len(numbers))(*map(int, numbers)))

    def resident(self, kernel: str, threads: int, shared: int = 0) -> int:
        blocks = ctypes.c_uint32()
        self._do("resident", b"file", kernel.encode(), threads, shared, ctypes.byref(blocks))
        return blocks.value

    def compilations(self) -> int:
        return int(self.loaded.shim_compilations())

    def asked(self) -> str:
        return str(self.loaded.shim_asked().decode())

    def refuse_to_compile(self, reason: str) -> None:
        self.loaded.shim_compile_error(reason.encode())
