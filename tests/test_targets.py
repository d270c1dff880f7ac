"""Every core file compiles for machines that nobody here has: macOS and musl on aarch64.

Clang's front end of the zig tool chain (ziglang on PyPI) reads the files as a compiler there would;
nothing is linked or run. By default those that ask something of the system; DYNET_COMPAT_FUZZ=1: all.
"""

from __future__ import annotations

import concurrent.futures
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_codebase import ROOT

SRC = ROOT / "src"
CORE = ("base", "ops", "graph", "plan", "cpu", "cuda", "exec", "model")
# What the sources ask of the system, not of the language only.
SYSTEM = (
    "base/arena.cc", "base/thread_pool.cc", "cpu/isa/gemm.cc", "cuda/emulation/grid.cc",
    "cuda/driver/libcuda.cc",
)  # fmt: skip
LIBRARY = """ABI_VERSION=1 ABI_NAMESPACE=__1
    HAS_THREADS=1 HAS_MONOTONIC_CLOCK=1 HAS_TERMINAL=1 HAS_FILESYSTEM=1
    HARDENING_MODE_DEFAULT=2
    ASSERTION_SEMANTIC_DEFAULT=_LIBCPP_ASSERTION_SEMANTIC_IGNORE PSTL_BACKEND_SERIAL=1
    HAS_LOCALIZATION=1 HAS_UNICODE=1 HAS_WIDE_CHARACTERS=1 HAS_RANDOM_DEVICE=1 HAS_TIME_ZONE_DATABASE=0"""
TARGETS = {
    "aarch64-macos": ("aarch64-apple-macos13", ["any-darwin-any"], []),
    "aarch64-linux-musl": (
        "aarch64-linux-musl",
        ["aarch64-linux-musl", "generic-musl", "aarch64-linux-any", "any-linux-any"],
        ["-D_LIBCPP_HAS_MUSL_LIBC=1", "-D_GNU_SOURCE"],
    ),
}

zig = importlib.util.find_spec("ziglang")
pytestmark = pytest.mark.skipif(zig is None, reason="needs ziglang of requirements-dev.txt")


def core_files() -> list[str]:
    files = (file for folder in CORE for file in (SRC / folder).rglob("*.cc"))
    return sorted(file.relative_to(SRC).as_posix() for file in files)


def compiler(target: str) -> list[str]:
    assert zig and zig.origin
    lib = Path(zig.origin).parent / "lib"
    triple, libc, flags = TARGETS[target]
    folders = ["libcxx/include", "libcxxabi/include", "include", *(f"libc/include/{name}" for name in libc)]
    isystem = [part for folder in folders for part in ("-isystem", str(lib / folder))]
    library = [f"-D_LIBCPP_{setting}" for setting in LIBRARY.split()]
    return [sys.executable, "-m", "ziglang", "clang", f"--target={triple}", "-nostdinc", "-nostdinc++",
            *isystem, *library, *flags, "-std=c++20", "-w", "-DDYC_ISA_ONLY_BASELINE",
            f"-I{SRC}"]  # fmt: skip


def errors(target: str, file: str, folder: Path) -> str:
    """What the compiler says of the file; "" if nothing. Assembly is looked at by the assembler only."""
    isa = ["-DDYC_ISA=baseline"] if "/isa/" in file else []
    assembly = "asm(" in (SRC / file).read_text(encoding="utf-8")
    what = ["-c", "-o", str(folder / "a.o")] if assembly else ["-fsyntax-only"]
    done = subprocess.run([*compiler(target), *isa, *what, str(SRC / file)],
                          capture_output=True, text=True, timeout=600)  # fmt: skip
    return "" if done.returncode == 0 else f"{file} for {target}:\n{done.stderr[:1500]}"


def check(target: str, files: list[str], folder: Path) -> None:
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        found = [said for said in pool.map(lambda file: errors(target, file, folder), files) if said]
    assert found == [], "\n".join(found)


@pytest.mark.parametrize("target", TARGETS)
def test_files_that_ask_something_of_the_system_compile(target: str, tmp_path: Path) -> None:
    check(target, list(SYSTEM), tmp_path)


@pytest.mark.parametrize("target", TARGETS)
def test_every_core_file_compiles(target: str, tmp_path: Path, fuzz_count: int) -> None:
    if not fuzz_count:
        pytest.skip("two minutes: DYNET_COMPAT_FUZZ=1")
    files = core_files()
    assert len(files) > 80 and set(SYSTEM) <= set(files)
    check(target, files, tmp_path)


@pytest.mark.parametrize("target", TARGETS)
def test_errors_are_seen(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "#include <vector>\nint f() { return lgamma_s(1); }\n"
    (tmp_path / "wrong.cc").write_text(text, encoding="utf-8")
    monkeypatch.setitem(globals(), "SRC", tmp_path)
    assert "lgamma_s" in errors(target, "wrong.cc", tmp_path)
