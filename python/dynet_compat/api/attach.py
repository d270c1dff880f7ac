"""Methods written in Python for the classes of the compiled module."""

from __future__ import annotations

from types import FunctionType

from .. import _core


def attach(owner: type, **functions: FunctionType) -> None:
    """Give a class these methods, by name."""
    for name, function in functions.items():
        function.__name__, function.__qualname__ = name, f"{owner.__name__}.{name}"
        _core._extend(owner, name, function)
