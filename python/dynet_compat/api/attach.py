"""Methods written in Python for the classes of the compiled module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _core


def attach(owner: type, **functions: Callable[..., Any]) -> None:
    """Give a class these methods, by name."""
    for name, function in functions.items():
        function.__name__, function.__qualname__ = name, f"{owner.__name__}.{name}"
        _core._extend(owner, name, function)
