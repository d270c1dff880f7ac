"""Functions whose blocks are recorded by one call take the place of the old ones, while the script runs."""

from __future__ import annotations

import gc
import types
from collections.abc import Iterable
from typing import Any, Optional, Union

from ..emit import MapRewrite
from .rewrite import Key, Rewriter


def rewrite_module(
    module: types.ModuleType,
    source: Union[str, bytes],
    wanted: Optional[set[str]] = None,
    loops: Iterable[tuple[MapRewrite, Any]] = (),
) -> Rewriter:
    """Exchange the code of functions of a module for code in which blocks are recorded by one call.

    Args:
        module: already run; functions that run now keep their code until they return.
        source: its text, as bytes in the encoding that it says. Functions that were compiled from another
            text keep their code.
        wanted: qualified names of the functions; None: all.
        loops: those over instances, as Rewriter takes them.
    Returns:
        what was found.
    """
    functions = _functions(vars(module))
    filename = functions[0].__code__.co_filename if functions else str(module.__file__)
    rewriter = Rewriter(source, filename, vars(module), wanted, loops)
    exchange(rewriter.codes(), functions)
    return rewriter


def exchange(
    codes: dict[Key, tuple[types.CodeType, types.CodeType]], functions: list[types.FunctionType]
) -> int:
    """Put new code into the functions that have the old one; the number of functions."""
    by_place = {key[-1]: pair for key, pair in codes.items()}
    n = 0
    for function in functions:
        code = function.__code__
        old, new = by_place.get((code.co_name, code.co_firstlineno), (None, None))
        if old is not None and new is not None and code == old and code.co_freevars == new.co_freevars:
            function.__code__ = new
            n += 1
    return n


def _functions(names: dict[str, Any]) -> list[types.FunctionType]:
    """All functions of the module with this dict, closures and methods too."""
    return [o for o in gc.get_objects() if type(o) is types.FunctionType and o.__globals__ is names]
