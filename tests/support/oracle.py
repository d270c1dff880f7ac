"""Finding an interpreter that has the real DyNet, and running the recorder in it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Optional

import numpy as np

from support import records

TESTS = Path(__file__).resolve().parent.parent
DATA = TESTS / "oracle" / "data"


def interpreter() -> Optional[str]:
    """Path of a Python that can import the real DyNet, or None."""
    named = os.environ.get("DYNET_COMPAT_ORACLE")
    for path in (named, str(TESTS.parent / ".oracle" / "bin" / "python")):
        if path and os.access(path, os.X_OK):
            return path
    return None


def clean_environment() -> dict[str, str]:
    """This process's environment without what would lead another interpreter to our modules."""
    drop = ("PYTHONPATH", "PYTHONHOME", "DYNET_COMPAT_TEST_LIBRARY")
    return {k: v for k, v in os.environ.items() if k not in drop}


def recorded(section: str) -> dict[str, np.ndarray]:
    """The committed recordings of one section ("ops", "trainers", ...)."""
    return records.load(DATA / (section + ".npz"))


def live(section: str) -> dict[str, np.ndarray]:
    """Run the recorder now for one section."""
    python = interpreter()
    assert python is not None
    with tempfile.TemporaryDirectory() as folder:
        command = [python, str(TESTS / "oracle" / "record.py"), "--out", folder, section]
        done = subprocess.run(
            command,
            env=clean_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        if done.returncode != 0:
            raise RuntimeError(f"the recorder failed in {python}:\n{done.stdout[-4000:]}")
        return records.load(Path(folder) / (section + ".npz"))
