"""NVRTC as the package uses it, over the sources of the checkout: compiles without a GPU or a driver."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Optional

SRC = Path(__file__).resolve().parents[2] / "src"


def package() -> Any:
    return import_module("dynet_compat.cuda")


def __getattr__(name: str) -> Any:
    if name == "CompileError":  # the compiler's log
        return package().CompileError
    raise AttributeError(name)


def found() -> Optional[Path]:
    """The wheel's libnvrtc, or None."""
    return next((path for path in package().libraries() if "site-packages" in path.parts), None)


@cache
def texts() -> dict[str, str]:
    """Headers and kernels of the checkout, by the names that #include has for them."""
    files = [path for path in SRC.rglob("*") if path.suffix in (".h", ".cu")]
    return {path.relative_to(SRC).as_posix(): path.read_text(encoding="utf-8") for path in files}


@cache
def subject() -> Any:
    path = found()
    assert path is not None, "no libnvrtc: the wheel nvidia-cuda-nvrtc is not installed"
    return package().Nvrtc(str(path))


def compile_ptx(source: str, name: str, arch: str, kernels: list[str]) -> tuple[str, dict[str, str], str]:
    """As compile_cubin(), for a virtual architecture: "compute_90"."""
    library = subject()
    blob = library._blob
    library._blob = lambda program, kind: blob(program, "PTX" if kind == "CUBIN" else kind)
    try:
        sources = import_module("dynet_compat.cuda.sources")
        headers = sources.closure(name, {**texts(), name: source})
        headers.update(dict.fromkeys(sources.STD_HEADERS, sources.STD_TEXT))
        options = [f"--gpu-architecture={arch}", *package().options_for(90)[1:]]
        ptx, lowered, log = library.compile(source, name, headers, options, kernels)
    finally:
        del library._blob
    return ptx.rstrip(b"\0").decode(), lowered, log


def compile_cubin(source: str, name: str, arch: str, kernels: list[str]) -> tuple[bytes, dict[str, str], str]:
    """Cubin, lowered name of each of `kernels` (asking for a template's instance makes it), and log."""
    sources = import_module("dynet_compat.cuda.sources")
    headers = sources.closure(name, {**texts(), name: source})
    headers.update(dict.fromkeys(sources.STD_HEADERS, sources.STD_TEXT))
    options = package().options_for(int(arch.removeprefix("sm_")))
    return tuple(subject().compile(source, name, headers, options, kernels))  # type: ignore[return-value]
