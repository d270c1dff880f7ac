"""`python -m dynet_compat info`: what this installation is and what it finds on this machine."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib import metadata
from typing import Any, Optional

import numpy as np

from . import __compat_version__, __version__, _core
from .startup import devices

EXTRAS = {
    "cupy": ("cupy-cuda12x", "cupy-cuda13x"),
    "nvrtc": ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"),
    "cublas": ("nvidia-cublas", "nvidia-cublas-cu12"),
    "rich": ("rich",),
    "safetensors": ("safetensors",),
}


def _installed(names: tuple[str, ...]) -> Optional[str]:
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def _cpu() -> dict[str, Any]:
    model, flags = platform.processor() or platform.machine(), set()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() == "model name":
                    model = value.strip()
                elif key.strip() in ("flags", "Features"):
                    flags = set(value.split())
                    break
    except OSError:
        pass
    wanted = ("sse4_2", "avx2", "fma", "avx512f", "avx512vl", "asimd")
    return {
        "model": model,
        "cores": devices.cores(),
        "features": [flag for flag in wanted if flag in flags],
        "kernels": _core.isa(),
        "threads": _core.threads(),
    }


def _precision() -> str:
    """What factors of large products are rounded to."""
    used = _core._device_options().get("precision", "float32")
    asked = os.environ.get("DYNET_COMPAT_PRECISION") or used
    if asked == used:
        return str(used)
    why = "the CPU computes" if devices.current().device == "cpu" else "the GPU is older than sm_80"
    return f"{used}; DYNET_COMPAT_PRECISION={asked} has no effect: {why}"


def _gpu() -> dict[str, Any]:
    """Devices, driver, compiler and cache of kernels, or what is missing of them."""
    from .cuda import cublas, find_nvrtc
    from .files.cache import root

    found = devices.gpus()
    version = found["version"]
    try:
        nvrtc = find_nvrtc(version)
        compiler = f"{'.'.join(map(str, nvrtc.version))}, {nvrtc.path}"
    except RuntimeError as error:
        compiler = str(error)
    return {
        "in use": devices.current().device,
        "usable": not devices.missing([0]),
        "devices": [
            f"GPU:{i} {one['name']}, sm_{one['architecture']}, {one['memory'] >> 20} MB"
            for i, one in enumerate(found["devices"])
        ],
        "driver": f"for CUDA {version // 1000}.{version % 1000 // 10}" if version else found["missing"],
        "nvrtc": compiler,
        "cublas": cublas.describe(version),
        "precision": _precision(),
        "cache": root() or "none",
    }


def collect() -> dict[str, Any]:
    """Versions, processor, GPU, settings from the environment.

    Returns:
        A dict of strings, numbers, lists and dicts, as `info --json` prints it.
    Example:
        >>> from dynet_compat.info import collect
        >>> collect()["dynet"]
        '2.1'
    """
    return {
        "dynet_compat": __compat_version__,
        "dynet": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "module": _core.__file__,
        "platform": platform.platform(),
        "cpu": _cpu(),
        "gpu": _gpu(),
        "extras": {name: _installed(names) for name, names in EXTRAS.items()},
        "hints": os.environ.get("DYNET_COMPAT_HINTS") or "of a script: script.dyhints beside it",
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith("DYNET_COMPAT_")},
    }


def text_of(facts: dict[str, Any]) -> str:
    """The facts as lines."""
    lines = []
    for key, value in facts.items():
        if isinstance(value, dict):
            lines.append(f"{key}:")
            for name, item in value.items():
                text = (", ".join(map(str, item)) or None) if isinstance(item, list) else item
                lines.append(f"  {name:12} {'-' if text is None else text}")
        else:
            lines.append(f"{key:14} {value}")
    return "\n".join(lines)


def main(as_json: bool) -> int:
    """The command. Returns the exit status."""
    facts = collect()
    try:
        print(json.dumps(facts, indent=1) if as_json else text_of(facts), flush=True)
    except BrokenPipeError:  # `info | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main("--json" in sys.argv[1:]))
