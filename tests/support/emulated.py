"""Programs and tests that run on the emulation of a GPU, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
# Of programs.
START = """
import numpy as np
import dynet_compat as dy
"""

# `make sanitize` preloads the sanitizer, which the programs below inherit.
LIMIT = 1800 if "LD_PRELOAD" in os.environ else 600


def on_device(
    *arguments: str, settings: str = "", timeout: int = LIMIT, device: str = "emulation"
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DYNET_COMPAT_DEVICE": device, "DYNET_COMPAT_EMULATION": settings}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout,
                          cwd=TESTS.parent)  # fmt: skip


def passes(*arguments: str, settings: str = "") -> None:
    command = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *arguments]
    result = on_device(*command, settings=settings)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]


def program(text: str, settings: str = "") -> str:
    result = on_device("-c", text, settings=settings)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
