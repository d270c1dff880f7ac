"""The library under test.

`DYNET_COMPAT_TEST_LIBRARY` names it, `dynet_compat` by default. With `dynet` the same tests run on the real
DyNet (Python 3.8): that is how this suite was checked against the reference before the engine existed.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

NAME = os.environ.get("DYNET_COMPAT_TEST_LIBRARY", "dynet_compat")
IS_REFERENCE = NAME == "dynet"
# CUDA does not survive fork().
ON_GPU = os.environ.get("DYNET_COMPAT_DEVICE", "").lower().startswith(("gpu", "cuda"))


def subject() -> Any:
    """Import and return the library under test."""
    return importlib.import_module(NAME)
