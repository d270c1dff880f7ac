"""Every kernel compiles for CUDA: NVRTC makes cubins for three generations of GPUs, without any of them."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import re
import struct
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache

import pytest
from support import nvrtc
from support.subject import IS_REFERENCE

pytestmark = [
    pytest.mark.skipif(IS_REFERENCE, reason="the table is ours"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the NVRTC wheel is for Linux"),
]

EM_CUDA = 190
EPILOGUE = "\nusing namespace dyc;\nusing namespace dyc::cuda;\n"
KERNEL_FILES = sorted(path.stem for path in (nvrtc.SRC / "cuda" / "kernels").glob("*.cu"))
ARCHITECTURES = [80, 90, 100]


def source_name(file: str) -> str:
    return f"cuda/kernels/{file}.cu"


def source(file: str) -> str:
    return (nvrtc.SRC / source_name(file)).read_text(encoding="utf-8")


@cache
def kernels() -> dict[str, list[str]]:
    """Names by file: what the emulation has, with the tiles of products as large as on a GPU."""
    found: dict[str, list[str]] = {}
    for file, name in importlib.import_module("dynet_compat._core")._device_kernels():
        found.setdefault(file, []).append(name.replace(", 8>", ", 16>") if file == "matmul" else name)
    return found


@cache
def rows() -> list[dict[str, str]]:
    return list(importlib.import_module("dynet_compat._core").op_table())


def same_names(table: dict[int, str]) -> str:
    """C++ that compiles where the rows' numbers stand for the same ops as in the running module."""
    checks = (f'static_assert(same_text(OpById<{i}>::meta.name, "{name}"));' for i, name in table.items())
    return (
        "\nnamespace dyc::cuda {\n"
        "constexpr bool same_text(const char* a, const char* b) {\n"
        "  for (; *a && *a == *b; ++a, ++b) {}\n"
        "  return *a == *b;\n"
        "}\n" + "\n".join(checks) + "\n}\n"
    )


def symbols(elf: bytes) -> set[str]:
    """Names of the functions with code in an ELF file: sections .text.<name>."""
    (offset,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, offset + i * size) for i in range(count)]
    text = elf[headers[names][4] :]
    found = (text[header[0] : text.index(b"\0", header[0])].decode() for header in headers)
    return {name[len(".text.") :] for name in found if name.startswith(".text.")}


class Compiled:
    """Cubins of files for architectures, made two at a time by processes of their own: minutes otherwise."""

    def __init__(self, pool: ProcessPoolExecutor, jobs: list[tuple[str, int]]) -> None:
        jobs.sort(key=lambda job: -len(kernels()[job[0]]))  # the longest first
        self.found = {job: pool.submit(nvrtc.compile_cubin, *self.arguments(*job)) for job in jobs}

    @staticmethod
    def arguments(file: str, architecture: int) -> tuple[str, str, str, list[str]]:
        names = kernels()[file]
        numbered = {i: row["name"] for i, row in enumerate(rows())} if "OpById<" in names[0] else {}
        text = source(file) + same_names(numbered) + EPILOGUE
        return text, source_name(file), f"sm_{architecture}", names


@pytest.fixture(scope="module")
def compiled(request: pytest.FixtureRequest) -> Iterator[Compiled]:
    """Of the tests that are selected."""
    asked = [item.callspec.params for item in request.session.items
             if getattr(item, "originalname", "") == test_every_kernel_compiles.__name__]  # fmt: skip
    workers = 2 if (os.cpu_count() or 1) > 1 else 1
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        yield Compiled(pool, [(one["file"], one["architecture"]) for one in asked])


def test_the_library_is_installed() -> None:
    assert nvrtc.found() is not None


def test_the_emulation_has_kernels_of_every_file() -> None:
    assert sorted(kernels()) == KERNEL_FILES
    assert all(len(set(names)) == len(names) for names in kernels().values())


def test_every_row_with_a_kernel_has_it() -> None:
    kernels_of = {"unary": ("elementwise", "unary"), "binary": ("elementwise", "binary"),
             "per_node": ("per_node", "node"), "custom": ("custom", "custom")}  # fmt: skip
    for number, row in enumerate(rows()):
        if row["kind"] not in kernels_of:
            continue
        file, kernel = kernels_of[row["kind"]]
        names = kernels()[file]
        assert f"{kernel}_forward<OpById<{number}>>" in names, row["name"]
        backward = [name for name in names if name.startswith(f"{kernel}_backward<OpById<{number}>")]
        expected = 0 if row["nondiff"] and row["kind"] == "per_node" else 2 if row["kind"] == "binary" else 1
        assert len(backward) == expected, row["name"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("file", KERNEL_FILES)
def test_every_kernel_compiles(compiled: Compiled, file: str, architecture: int) -> None:
    names = kernels()[file]
    cubin, lowered, log = compiled.found[file, architecture].result(timeout=580)
    assert "warning" not in log, log
    machine, flags = struct.unpack_from("<H", cubin, 18)[0], struct.unpack_from("<I", cubin, 48)[0]
    assert cubin[:4] == b"\x7fELF" and machine == EM_CUDA and flags >> 8 & 0xFF == architecture
    has_code = symbols(cubin)
    assert not [name for name in names if lowered[name] not in has_code]
    assert len(set(lowered.values())) == len(names), "two kernels are one"


@pytest.mark.parametrize("file", KERNEL_FILES)
def test_kernels_compile_for_older_gpus(file: str) -> None:
    """One of each file, and those with asynchronous copies, which sm_75 lacks."""
    numbers = [i for i, row in enumerate(rows()) if row["name"] in ("tanh", "lstm_cell")]
    passes = 3  # of cuda::Pass
    steps = ", ".join(str(i * passes) for i in numbers)
    names = [f"persistent<{steps}>", f"chain<{steps}>"] if file == "persistent" else kernels()[file][:1]
    _, lowered, log = nvrtc.compile_cubin(source(file) + EPILOGUE, source_name(file), "sm_75", names)
    assert sorted(lowered) == sorted(names) and "warning" not in log


@pytest.mark.parametrize(
    ("file", "of_row", "op"),
    [("elementwise", "unary_forward", "tanh"), ("per_node", "node_forward", "log_softmax"),
     ("per_node", "node_backward", "concatenate"), ("per_node", "node_backward", "lstm_cell")],
)  # fmt: skip
def test_floats_move_whole(file: str, of_row: str, op: str) -> None:
    """Not byte by byte, as a memcpy() does that does not know how its pointers are aligned."""
    number = next(i for i, row in enumerate(rows()) if row["name"] == op)
    name = f"{of_row}<OpById<{number}>>"
    ptx, _, _ = nvrtc.compile_ptx(source(file) + EPILOGUE, source_name(file), "compute_90", [name])
    assert ".entry" in ptx and re.search(r"\bst\.(global\.)?f32", ptx)
    assert not re.search(r"\bst\.(global\.)?[ub]8", ptx)


def test_a_row_that_only_the_host_can_compile_is_found() -> None:
    row = """
namespace dyc {
struct HostOnly : OfX {
  static constexpr Meta meta{
      .name = "host_only", .formula = "", .kind = OpKind::unary, .batch = Batch::ragged};
  template <class T> static T f(T x, const float*) { return __builtin_ia32_rsqrtss(x); }
  template <class T> static T df(T x, T, const float*) { return x; }
};
}
"""
    file, name = "elementwise", "unary_forward<HostOnly>"
    good = row.replace("__builtin_ia32_rsqrtss", "vtanh")
    _, lowered, _ = nvrtc.compile_cubin(source(file) + good + EPILOGUE, source_name(file), "sm_80", [name])
    assert "HostOnly" in lowered[name]
    with pytest.raises(nvrtc.CompileError, match="__builtin_ia32_rsqrtss"):
        nvrtc.compile_cubin(source(file) + row + EPILOGUE, source_name(file), "sm_80", [name])


@pytest.mark.parametrize(
    ("file", "kernel", "op"),
    [("elementwise", "unary_forward", "add"), ("per_node", "node_backward", "tanh")],
)
def test_a_kernel_takes_only_rows_of_its_form(file: str, kernel: str, op: str) -> None:
    number = next(i for i, row in enumerate(rows()) if row["name"] == op)
    with pytest.raises(nvrtc.CompileError, match="static assertion"):
        names = [f"{kernel}<OpById<{number}>>"]
        nvrtc.compile_cubin(source(file) + EPILOGUE, source_name(file), "sm_80", names)
