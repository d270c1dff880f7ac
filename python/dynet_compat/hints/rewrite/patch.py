"""Giving the functions of a running script their rewritten code."""

from __future__ import annotations

import gc
import types
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

from .code_objects import Key
from .rewriter import Rewriter

if TYPE_CHECKING:
    from ..hints_file import IndependentLoop


def rewrite_module(
    module: types.ModuleType,
    source: Union[str, bytes],
    wanted: Optional[set[str]] = None,
    loops: Iterable[tuple[IndependentLoop, Any]] = (),
    functions: Optional[list[types.FunctionType]] = None,
) -> Rewriter:
    """Replace the code of a module's functions by code in which one call records each region.

    Args:
        module: already run; functions that run now keep their code until they return.
        source: its text, as bytes in the encoding that it says. Functions that were compiled from another
            text keep their code.
        wanted: qualified names of the functions; None: all.
        loops: those over instances, as Rewriter takes them.
        functions: of the module; None: search for them.
    Returns:
        What was found.
    """
    if functions is None:
        [functions] = functions_of([module])
    filename = functions[0].__code__.co_filename if functions else str(module.__file__)
    rewriter = Rewriter(source, filename, vars(module), wanted, loops)
    replace_code(rewriter.codes(), functions)
    rewriter.module.names = {}  # so that they are freed with the module
    return rewriter


def replace_code(
    codes: dict[Key, tuple[types.CodeType, types.CodeType]], functions: list[types.FunctionType]
) -> int:
    """Give functions that have the old code the new one; returns their number."""
    by_place = {key[-1]: pair for key, pair in codes.items()}
    n = 0
    for function in functions:
        code = function.__code__
        old, new = by_place.get((code.co_name, code.co_firstlineno), (None, None))
        if old is not None and new is not None and code == old and code.co_freevars == new.co_freevars:
            function.__code__ = new
            n += 1
    return n


def functions_of(modules: Sequence[types.ModuleType]) -> list[list[types.FunctionType]]:
    """All functions of each module, closures and methods too, found in one pass over all objects."""
    found: dict[int, list[types.FunctionType]] = {id(vars(module)): [] for module in modules}
    for o in gc.get_objects():
        if type(o) is types.FunctionType and id(o.__globals__) in found:
            found[id(o.__globals__)].append(o)
    return [found[id(vars(module))] for module in modules]
