"""NVRTC as the package uses it, over the sources of the checkout: compiles without a GPU or a driver."""

from __future__ import annotations

import struct
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Optional

REGISTERS, FRAME = 0x2F, 0x11  # attributes of .nv.info
OTHERS = ("12.9", "13.5")  # beside that of requirements-dev.txt: `make test` puts them into $(VENV)/nvrtc
SRC = Path(__file__).resolve().parents[2] / "src"


def package() -> Any:
    return import_module("dynet_compat.cuda")


def __getattr__(name: str) -> Any:
    if name in ("CompileError", "Source"):  # the compiler's log, and what it is given
        return getattr(package().nvrtc, name)
    raise AttributeError(name)


def found(version: str = "") -> Optional[Path]:
    """The libnvrtc of the wheel, or of another version, or None."""
    if version:
        return next(Path(sys.prefix, "nvrtc", version).glob("nvidia/*/lib/libnvrtc.so.*"), None)
    return next((path for path in package().libraries() if "site-packages" in path.parts), None)


@cache
def texts() -> dict[str, str]:
    """Headers and kernels of the checkout, by the names that #include has for them."""
    files = [path for path in SRC.rglob("*") if path.suffix in (".h", ".cu")]
    return {path.relative_to(SRC).as_posix(): path.read_text(encoding="utf-8") for path in files}


@cache
def subject(version: str = "") -> Any:
    path = found(version)
    assert path is not None, f"no libnvrtc: the wheel nvidia-cuda-nvrtc {version} is not installed"
    return package().Nvrtc(str(path))


class Usage(NamedTuple):
    """What a kernel takes: registers and bytes of memory of a thread, bytes of shared memory of a block."""

    registers: int
    local: int
    shared: int


def usage(elf: bytes) -> dict[str, Usage]:
    """Of the kernels in a cubin: its section .nv.info tells, and the sizes of sections .nv.shared.<name>."""
    (offset,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, offset + i * size) for i in range(count)]
    text_at = lambda table, at: elf[table + at : elf.index(b"\0", table + at)].decode()  # noqa: E731
    sections = {text_at(headers[names][4], h[0]): (h[4], h[5]) for h in headers}
    symbols, strings = sections[".symtab"][0], sections[".strtab"][0]
    told: dict[int, dict[str, int]] = {REGISTERS: {}, FRAME: {}}
    at, length = sections[".nv.info"]
    end = at + length
    while at < end:
        form, attribute, extent = struct.unpack_from("<BBH", elf, at)
        at += 4
        if form != 4:  # a value in place of a size
            continue
        if attribute in told:
            symbol, value = struct.unpack_from("<II", elf, at)
            told[attribute][text_at(strings, struct.unpack_from("<I", elf, symbols + 24 * symbol)[0])] = value
        at += extent
    shared = {name: sections.get(f".nv.shared.{name}", (0, 0))[1] for name in told[REGISTERS]}
    return {name: Usage(n, told[FRAME].get(name, 0), shared[name]) for name, n in told[REGISTERS].items()}


def source_of(text: str, name: str, options: list[str]) -> Any:
    """With the headers of the checkout."""
    sources = import_module("dynet_compat.cuda.sources")
    headers = sources.closure(name, {**texts(), name: text})
    headers.update(dict.fromkeys(sources.STD_HEADERS, sources.STD_TEXT))
    return package().nvrtc.Source(text, name, headers, options)


def compile_ptx(source: str, name: str, arch: str, kernels: list[str]) -> tuple[str, dict[str, str], str]:
    """As compile_cubin(), for a virtual architecture: "compute_90"."""
    library = subject()
    blob = library._blob
    library._blob = lambda program, kind: blob(program, "PTX" if kind == "CUBIN" else kind)
    try:
        options = [f"--gpu-architecture={arch}", *package().options_for(90)[1:]]
        ptx, lowered, log = library.compile(source_of(source, name, options), kernels)
    finally:
        del library._blob
    return ptx.rstrip(b"\0").decode(), lowered, log


def compile_cubin(
    source: str, name: str, arch: str, kernels: list[str], version: str = ""
) -> tuple[bytes, dict[str, str], str]:
    """Cubin, lowered name of each of `kernels` (asking for a template's instance makes it), and log."""
    options = package().options_for(int(arch.removeprefix("sm_")))
    made = subject(version).compile(source_of(source, name, options), kernels)
    return tuple(made)  # type: ignore[return-value]
