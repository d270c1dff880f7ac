"""`python -m dynet_compat info`: what this installation is and what it finds on this machine."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import sys
from importlib import metadata
from typing import Any, Optional

import numpy as np

from . import __compat_version__, __version__, _core

EXTRAS = {
    "cupy": ("cupy-cuda12x", "cupy-cuda13x"),
    "rich": ("rich",),
    "safetensors": ("safetensors",),
    "libcst": ("libcst",),
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
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "model": model,
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "features": [flag for flag in wanted if flag in flags],
        "kernels": _core.isa(),
        "threads": _core.threads(),
    }


def _gpu() -> str:
    """The driver and its devices, or what is missing."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver (libcuda.so.1)"
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return "the NVIDIA driver does not start"
    names = []
    for index in range(count.value):
        device, name = ctypes.c_int(0), ctypes.create_string_buffer(128)
        driver.cuDeviceGet(ctypes.byref(device), index)
        driver.cuDeviceGetName(name, 128, device)
        names.append(name.value.decode("utf-8", "replace"))
    return ", ".join(names) or "no device"


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
        "gpu": _gpu() + " (this version computes on the CPU)",
        "extras": {name: _installed(names) for name, names in EXTRAS.items()},
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith("DYNET_COMPAT_")},
    }


def text_of(facts: dict[str, Any]) -> str:
    """The facts as lines."""
    lines = []
    for key, value in facts.items():
        if isinstance(value, dict):
            lines.append(f"{key}:")
            for name, item in value.items():
                text = ", ".join(map(str, item)) if isinstance(item, list) else item
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
