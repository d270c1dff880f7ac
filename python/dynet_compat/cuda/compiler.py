"""From the names of kernels to cubins: sources, compiler and cache together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from ..files.cache import key_of
from . import sources
from .cache import Cache, CompiledKernels
from .nvrtc import CompileError, Nvrtc, find_nvrtc

# Expressions name kernels as inside dyc::cuda; NVRTC looks them up at the end of the file.
_EPILOGUE = "\nusing namespace dyc;\nusing namespace dyc::cuda;\n"


class KernelError(RuntimeError):
    """Kernels that cannot be compiled for this GPU."""


def options_for(architecture: int) -> list[str]:
    """NVRTC's options: the rules of floating point that the CPU's kernels follow, too."""
    return [
        f"--gpu-architecture=sm_{architecture}",
        "--std=c++20",
        "--fmad=true",
        "--device-as-default-execution-space",
    ]


def _target(nvrtc: Nvrtc, architecture: int) -> int:
    """The architecture to compile for: the device's, or an older one whose cubins it runs, too."""
    fitting = [one for one in nvrtc.architectures if one <= architecture and one // 10 == architecture // 10]
    if fitting:
        return max(fitting)
    version, known = ".".join(map(str, nvrtc.version)), nvrtc.architectures
    if architecture < known[0]:
        advice = f"it is too old for CUDA {nvrtc.version[0]}: pip install nvidia-cuda-nvrtc-cu12 instead"
    else:
        advice = "update the package that has it (nvidia-cuda-nvrtc), and the driver"
    raise KernelError(
        f"NVRTC {version} compiles for sm_{known[0]} to sm_{known[-1]}, and this GPU is sm_{architecture}: "
        f"{advice}"
    )


def compile_kernels(
    file: str,
    expressions: Sequence[str],
    architecture: int,
    driver: int = 0,
    nvrtc: Optional[Nvrtc] = None,
) -> list[CompiledKernels]:
    """Cubins that together have the kernels asked for, from the cache as far as it has them.

    Args:
        file: one of src/cuda/kernels, without ".cu".
        expressions: the kernels, as named inside dyc::cuda: "unary_forward<Row<8>>".
        architecture: of the device: 90 for sm_90.
        driver: CUDA version of the driver, 12040 for 12.4; 0: any.
        nvrtc: the compiler; None: the one found for the driver.
    Returns:
        Entries: a cubin, and the name in it of each kernel it has.
    Raises:
        RuntimeError: NVRTC is missing, does not know the architecture, or the kernels do not compile.
    Example:
        >>> parts = compile_kernels("elementwise", ["unary_forward<Row<8>>"], 90)  # doctest: +SKIP
    """
    wanted = list(dict.fromkeys(expressions))
    if not wanted:
        return []
    texts = sources.embedded()
    name = f"cuda/kernels/{file}.cu"
    if name not in texts:
        raise KernelError(f"there is no file {file}.cu of kernels")
    compiler = nvrtc or find_nvrtc(driver)
    options = options_for(_target(compiler, architecture))
    headers = sources.closure(name, texts)
    source = texts[name] + _EPILOGUE
    version = ".".join(map(str, compiler.version))
    read = [text for item in sorted(headers.items()) for text in item]
    cache = Cache(key_of([version, *options, name, source, *sources.STD_HEADERS, sources.STD_TEXT, *read]))
    found = cache.find(wanted)
    missing = [one for one in wanted if not any(one in entry.lowered for entry in found)]
    if missing:
        headers.update(dict.fromkeys(sources.STD_HEADERS, sources.STD_TEXT))
        try:
            compiled = compiler.compile(source, name, headers, options, missing)
        except CompileError as error:
            raise KernelError(
                f"NVRTC {version} cannot compile {name} for sm_{architecture}; this is a fault of "
                f"dynet_compat or of that compiler, please report it:\n{error}"
            ) from error
        found.append(CompiledKernels(compiled.cubin, compiled.lowered))
        cache.keep(found[-1])
    return found
