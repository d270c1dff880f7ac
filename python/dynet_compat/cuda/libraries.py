"""Where NVIDIA's libraries are: in the wheels `nvidia-*`, in a CUDA toolkit, or where the system looks.

CuPy's wheels contain none of them: they load them from there, too.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path

MAJORS = (13, 12)  # of CUDA


def _wheels(stem: str) -> Iterator[Path]:
    """Those of the nvidia-* wheels, whichever folder their version uses."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob(f"*/lib/{stem}.so.*")):
            if re.fullmatch(rf"{stem}\.so\.\d+", path.name):
                yield path


def _toolkits(stem: str) -> Iterator[Path]:
    roots = [os.environ.get(name, "") for name in ("CUDA_PATH", "CUDA_HOME", "CONDA_PREFIX")]
    for root in [*filter(None, roots), "/usr/local/cuda"]:
        for folder in ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"):
            for name in bare_names(stem):
                path = Path(root, folder, name)
                if path.exists():
                    yield path


def bare_names(stem: str) -> list[str]:
    """What a library is called, without a folder."""
    return [f"{stem}.so.{major}" for major in MAJORS]


def find(stem: str) -> list[Path]:
    """Files of a library ("libnvrtc"), those of wheels first. None of them is loaded."""
    found: list[Path] = []
    for path in (*_wheels(stem), *_toolkits(stem)):
        if path.resolve() not in [other.resolve() for other in found]:
            found.append(path)
    return found
