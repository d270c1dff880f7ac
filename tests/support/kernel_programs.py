"""Programs that run the kernels' text on the emulated device by themselves, without the package."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from support.fake_gpu import COMPILER, HERE, SRC

DEVICE = (
    "cuda/emulation/emulation.cc",
    "cuda/emulation/grid.cc",
    "cuda/emulation/heap.cc",
    "cuda/emulation/races.cc",
    "cuda/emulation/tensor_cores.cc",
    "cuda/driver/graph_cache.cc",
)
# Each access of a kernel calls the emulation (cuda/emulation/races.h).
RACES = ("-DDYC_RACES", "-fsanitize=thread", "--param=tsan-distinguish-volatile=1")


class KernelProgram:
    """tests/cuda/<cases>.cc with the emulated device and more of src/, compiled in a folder.

    races: the kernels' accesses are checked.
    device: the emulated device; programs that have their own want none.
    """

    def __init__(
        self,
        folder: Path,
        cases: str,
        sources: Sequence[str] = (),
        *options: str,
        races: bool = False,
        device: Sequence[str] = DEVICE,
    ) -> None:
        self.path = folder / cases
        kernels = [str(HERE / f"{cases}.cc"), *(str(SRC / name) for name in sources)]
        files = [str(SRC / name) for name in device]
        command = [*COMPILER, "-std=c++20", "-O1", "-g1", "-fstack-clash-protection", f"-I{SRC}", *options]
        if races:  # the library of that sanitizer is not linked
            subprocess.run([*command, *RACES, "-c", *kernels], check=True, timeout=300, cwd=folder)
            command.append(RACES[0])
            kernels = [str(folder / f"{Path(name).stem}.o") for name in kernels]
        subprocess.run([*command, *kernels, *files, "-o", str(self.path)], check=True, timeout=300)

    def __call__(
        self, *arguments: str, settings: str = "", timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """What it does; `settings`: of the emulation."""
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        environment["DYNET_COMPAT_EMULATION"] = settings
        command = [str(self.path), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)
