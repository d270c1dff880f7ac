"""At run time: functions of the script whose blocks are recorded by one call take the place of the old ones."""

from __future__ import annotations

import gc
import types
from typing import Any, Optional

from .rewrite import Key, Rewriter


def rewrite_module(module: types.ModuleType, source: str, wanted: Optional[set[str]] = None) -> Rewriter:
    """Exchange the code of functions of a module for code in which blocks are recorded by one call.

    Args:
        module: already run; functions that run now keep their code until they return.
        source: its text. Functions that were compiled from another text keep their code.
        wanted: qualified names of the functions; None: all.
    Returns:
        what was found.
    """
    rewriter = Rewriter(source, str(module.__file__), vars(module), wanted)
    exchange(rewriter.codes(), rewriter.filename)
    return rewriter


def exchange(codes: dict[Key, tuple[types.CodeType, types.CodeType]], filename: str) -> int:
    """Put new code into the functions that have the old one; the number of functions."""
    by_place = {key[-1]: pair for key, pair in codes.items()}
    n = 0
    for function in _functions(filename):
        code = function.__code__
        old, new = by_place.get((code.co_name, code.co_firstlineno), (None, None))
        if old is not None and new is not None and code == old and code.co_freevars == new.co_freevars:
            function.__code__ = new
            n += 1
    return n


def _functions(filename: str) -> list[types.FunctionType]:
    def is_ours(o: Any) -> bool:
        return type(o) is types.FunctionType and o.__code__.co_filename == filename

    return [o for o in gc.get_objects() if is_ours(o)]
