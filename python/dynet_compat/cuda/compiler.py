"""From the names of kernels to cubins: sources, compiler and cache together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional, Protocol

from ..files.cache import key_of
from . import sources
from .cache import Cache, CompiledKernels
from .nvrtc import Compiled, CompileError, Source, find_nvrtc

# Expressions name kernels as inside dyc::cuda; NVRTC looks them up at the end of the file.
_EPILOGUE = "\nusing namespace dyc;\nusing namespace dyc::cuda;\n"


class KernelError(RuntimeError):
    """Kernels that cannot be compiled for this GPU."""


class Compiler(Protocol):
    """NVRTC in this process (nvrtc.Nvrtc) or in another one."""

    @property
    def version(self) -> tuple[int, int]: ...

    @property
    def architectures(self) -> list[int]: ...

    def compile(self, source: Source, expressions: Sequence[str]) -> Compiled: ...


def options_for(architecture: int) -> list[str]:
    """NVRTC's options: the rules of floating point that the CPU's kernels follow, too."""
    return [
        f"--gpu-architecture=sm_{architecture}",
        "--std=c++20",
        "--fmad=true",
        "--device-as-default-execution-space",
    ]


def _target(nvrtc: Compiler, architecture: int) -> int:
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


class KernelFile:
    """One of src/cuda/kernels for an architecture: kernels of it from the cache, or from a compiler.

    Args:
        file: without ".cu".
        architecture: of the device: 90 for sm_90.
        driver: CUDA version of the driver, 12040 for 12.4; 0: any.
        nvrtc: the compiler; None: the one found for the driver.
    Raises:
        RuntimeError: NVRTC is missing or does not know the architecture, or there is no such file.
    """

    def __init__(
        self, file: str, architecture: int, driver: int = 0, nvrtc: Optional[Compiler] = None
    ) -> None:
        texts = sources.embedded()
        name = f"cuda/kernels/{file}.cu"
        if name not in texts:
            raise KernelError(f"there is no file {file}.cu of kernels")
        self._compiler: Compiler = nvrtc or find_nvrtc(driver)
        self._architecture = architecture
        options = options_for(_target(self._compiler, architecture))
        text = texts[name] + _EPILOGUE
        self._version = ".".join(map(str, self._compiler.version))
        headers = sources.closure(name, texts)
        read = [part for item in sorted(headers.items()) for part in item]
        everything = [self._version, *options, name, text, *sources.STD_HEADERS]
        self._cache = Cache(key_of([*everything, sources.STD_TEXT, *read]))
        headers.update(dict.fromkeys(sources.STD_HEADERS, sources.STD_TEXT))
        self._source = Source(text, name, headers, options)

    def kept(self, expressions: Sequence[str]) -> tuple[list[CompiledKernels], list[str]]:
        """Entries of the cache that have kernels among these, and the kernels that none of them has."""
        wanted = list(dict.fromkeys(expressions))
        found = self._cache.find(wanted)
        return found, [one for one in wanted if not any(one in entry.lowered for entry in found)]

    def compile(self, expressions: Sequence[str]) -> CompiledKernels:
        """An entry with these kernels, which the cache keeps.

        Raises:
            KernelError: they do not compile.
        """
        try:
            made = self._compiler.compile(self._source, expressions)
        except CompileError as error:
            raise KernelError(
                f"NVRTC {self._version} cannot compile {self._source.name} for sm_{self._architecture}; this "
                f"is a fault of dynet_compat or of that compiler, please report it:\n{error}"
            ) from error
        entry = CompiledKernels(made.cubin, made.lowered)
        self._cache.keep(entry)
        return entry


def compile_kernels(
    file: str,
    expressions: Sequence[str],
    architecture: int,
    driver: int = 0,
    nvrtc: Optional[Compiler] = None,
) -> list[CompiledKernels]:
    """Cubins that together have the kernels asked for, from the cache as far as it has them.

    Args:
        file, architecture, driver, nvrtc: as for KernelFile.
        expressions: the kernels, as named inside dyc::cuda: "unary_forward<Row<8>>".
    Returns:
        Entries: a cubin, and the name in it of each kernel it has.
    Raises:
        RuntimeError: NVRTC is missing, does not know the architecture, or the kernels do not compile.
    Example:
        >>> parts = compile_kernels("elementwise", ["unary_forward<Row<8>>"], 90)  # doctest: +SKIP
    """
    if not expressions:
        return []
    kernels = KernelFile(file, architecture, driver, nvrtc)
    found, missing = kernels.kept(expressions)
    return [*found, kernels.compile(missing)] if missing else found
