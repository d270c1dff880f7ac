"""The scalar text of the op table compiles for CUDA: NVRTC makes cubins, no GPU takes part."""

from __future__ import annotations

import importlib
import struct
import sys
from typing import Any

import pytest
from support import nvrtc
from support.subject import IS_REFERENCE

pytestmark = [
    pytest.mark.skipif(IS_REFERENCE, reason="the table is ours"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the NVRTC wheel is for Linux"),
]

SOURCE = "cuda/kernels/elementwise.cu"
EM_CUDA = 190
KERNELS = {
    "unary": ("unary_forward<{row}>", "unary_backward<{row}>"),
    "binary": ("binary_forward<{row}>", "binary_backward<{row}, 0>", "binary_backward<{row}, 1>"),
}


def source() -> str:
    return (nvrtc.SRC / SOURCE).read_text(encoding="utf-8")


def rows() -> dict[int, dict[str, Any]]:
    """Number and row of the op table, for the forms whose text is shared with the device."""
    table = importlib.import_module("dynet_compat._core").op_table()
    return {number: row for number, row in enumerate(table) if row["form"] in KERNELS}


def kernels(number: int, form: str) -> list[str]:
    return [f"dyc::cuda::{kernel.format(row=f'dyc::cuda::Row<{number}>')}" for kernel in KERNELS[form]]


def same_names(table: dict[int, dict[str, Any]]) -> str:
    """C++ that compiles where the rows' numbers stand for the same ops as in the running module."""
    checks = (f'static_assert(same_text(Row<{i}>::meta.name, "{row["name"]}"));' for i, row in table.items())
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


def test_the_library_is_installed() -> None:
    assert nvrtc.found() is not None


@pytest.mark.parametrize(("arch", "sm"), [("sm_80", 80), pytest.param("sm_90", 90, marks=pytest.mark.slow)])
def test_every_elementwise_row_compiles(arch: str, sm: int) -> None:
    table = rows()
    assert {"tanh", "logistic", "add", "cmult"} <= {row["name"] for row in table.values()}
    wanted = {i: kernels(i, row["form"]) for i, row in table.items()}
    names = [name for group in wanted.values() for name in group]
    cubin, lowered, log = nvrtc.compile_cubin(source() + same_names(table), SOURCE, arch, names)
    assert "warning" not in log, log
    machine, flags = struct.unpack_from("<H", cubin, 18)[0], struct.unpack_from("<I", cubin, 48)[0]
    assert cubin[:4] == b"\x7fELF" and machine == EM_CUDA and flags >> 8 & 0xFF == sm
    compiled = symbols(cubin)
    missing = {table[i]["name"] for i, group in wanted.items() if not {lowered[n] for n in group} <= compiled}
    assert not missing
    assert len(set(lowered.values())) == len(names), "two rows share a kernel"


def test_a_row_that_only_the_host_can_compile_is_found() -> None:
    row = """
namespace dyc {
struct HostOnly : OfX {
  static constexpr Meta meta{.name = "host_only", .formula = "", .form = Form::unary, .batch = Batch::ragged};
  template <class T> static T f(T x, const float*) { return __builtin_ia32_rsqrtss(x); }
  template <class T> static T df(T x, T, const float*) { return x; }
};
}
"""
    good = row.replace("__builtin_ia32_rsqrtss", "vtanh")
    name = "dyc::cuda::unary_forward<dyc::HostOnly>"
    _, lowered, _ = nvrtc.compile_cubin(source() + good, SOURCE, "sm_80", [name])
    assert "HostOnly" in lowered[name]
    with pytest.raises(nvrtc.CompileError, match="__builtin_ia32_rsqrtss"):
        nvrtc.compile_cubin(source() + row, SOURCE, "sm_80", [name])


def test_a_kernel_takes_only_rows_of_its_form() -> None:
    add = next(i for i, row in rows().items() if row["name"] == "add")
    with pytest.raises(nvrtc.CompileError, match="static assertion"):
        nvrtc.compile_cubin(source(), SOURCE, "sm_80", [f"dyc::cuda::unary_forward<dyc::cuda::Row<{add}>>"])
