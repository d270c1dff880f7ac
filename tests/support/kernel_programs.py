"""Programs that run the kernels' text on the emulated device by themselves, without the package."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from support.fake_gpu import COMPILER, HERE, SRC

DEVICE = ("cuda/emulation/emulation.cc", "cuda/emulation/grid.cc", "cuda/driver/graph_cache.cc")


class KernelProgram:
    """tests/cuda/<cases>.cc with the emulated device and more of src/, compiled in a folder."""

    def __init__(self, folder: Path, cases: str, sources: Sequence[str] = (), *options: str) -> None:
        self.path = folder / cases
        files = [HERE / f"{cases}.cc", *(SRC / name for name in (*DEVICE, *sources))]
        command = [*COMPILER, "-std=c++20", "-O1", "-g1", "-fstack-clash-protection", f"-I{SRC}", *options]
        subprocess.run([*command, *map(str, files), "-o", str(self.path)], check=True, timeout=300)

    def __call__(
        self, *arguments: str, settings: str = "", timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """What it does; `settings`: of the emulation."""
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        environment["DYNET_COMPAT_EMULATION"] = settings
        command = [str(self.path), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)
