"""Giving the functions of a running script their rewritten code."""

from __future__ import annotations

import gc
import os
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

from ... import _core
from .code_objects import Key
from .kept import KeptCode, has_columns
from .linking import LinkedModule, link

if TYPE_CHECKING:
    from ..hints_file import IndependentCalls, IndependentLoop

_Codes = dict[Key, tuple[types.CodeType, types.CodeType]]

_WRITTEN = frozenset(
    (type(None), type(...), bool, int, float, complex, str, bytes, tuple, frozenset, slice)
)  # of constants of code that was compiled from a text


def rewrite_module(
    module: types.ModuleType,
    source: Union[str, bytes],
    wanted: Optional[set[str]] = None,
    loops: Iterable[tuple[Union[IndependentLoop, IndependentCalls], Any]] = (),
    functions: Optional[list[types.FunctionType]] = None,
    kept: bool = False,
) -> LinkedModule:
    """Replace the code of a module's functions by code in which one call records each region.

    Args:
        module: already run; functions that run now keep their code until they return.
        source: its text, as bytes in the encoding that it says. Functions that were compiled from another
            text keep their code.
        wanted: qualified names of the functions; None: all.
        loops: those over instances, as Rewriter takes them.
        functions: of the module; None: search for them.
        kept: may what was made of the same text in an earlier run be used, and this be kept?
    """
    if functions is None:
        [functions] = functions_of([module])
    filename = _filename(module, functions)
    loops = list(loops)
    file = KeptCode(source, filename, wanted) if kept and isinstance(source, bytes) and not loops else None
    linked = file.read(vars(module)) if file else None
    if linked and (replace_code(linked.codes, functions) or not _differs(linked.codes, functions)):
        return linked
    from .rewriter import Rewriter  # imported only where the cache has nothing: it takes its time

    rewriter = Rewriter(source, filename, vars(module), wanted, loops)
    code = rewriter.rewritten()
    if file:
        file.write(code, rewriter.module.meanings)
    linked = link(code, rewriter.constants)
    replace_code(linked.codes, functions)
    return linked


def _filename(module: types.ModuleType, functions: list[types.FunctionType]) -> str:
    """As the code of the module's text names its file; functions that a library made in it name others."""
    own = str(vars(module).get("__file__"))
    names = {function.__code__.co_filename for function in functions}
    same = (name for name in sorted(names) if os.path.basename(name) == os.path.basename(own))
    return own if own in names else next(same, own)


def _differs(codes: _Codes, functions: list[types.FunctionType]) -> bool:
    """Is there a function where the code has one, so that the code was made for another? Functions that
    were compiled with columns where this process does without, or the other way round, never fit."""
    old = {key[-1]: code for key, (code, _) in codes.items()}
    pairs = ((f.__code__, old.get((f.__code__.co_name, f.__code__.co_firstlineno))) for f in functions)
    return any(known and has_columns(code) == has_columns(known) for code, known in pairs)


def replace_code(codes: _Codes, functions: list[types.FunctionType]) -> int:
    """Give functions that have the old code the new one; returns their number."""
    by_place = {key[-1]: pair for key, pair in codes.items()}
    changed: dict[tuple[int, int], tuple[types.CodeType, types.CodeType, list[types.FunctionType]]] = {}
    for function in functions:
        code = function.__code__
        old, new = by_place.get((code.co_name, code.co_firstlineno), (None, None))
        if old is not None and new is not None and code == old and code.co_freevars == new.co_freevars:
            function.__code__ = new
            changed.setdefault((id(code), id(new)), (code, new, []))[-1].append(function)
    for code, new, alike in changed.values():
        added = list({id(each): each for each in _added(new)}.values())
        if added and all(isinstance(each, (_core._Region, _core._WalkedFunction)) for each in added):
            _core._restore_code(alike, code, added)
    return sum(len(alike) for _, _, alike in changed.values())


def _added(code: types.CodeType) -> Iterator[Any]:
    """The constants of rewritten code, and of the functions in it, that no source text has."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _added(constant)
        elif type(constant) not in _WRITTEN and constant is not NameError:
            yield constant


def functions_of(modules: Sequence[types.ModuleType]) -> list[list[types.FunctionType]]:
    """All functions of each module, closures and methods too, found in one pass over all objects."""
    found: dict[int, list[types.FunctionType]] = {id(vars(module)): [] for module in modules}
    for o in gc.get_objects():
        if type(o) is types.FunctionType and id(o.__globals__) in found:
            found[id(o.__globals__)].append(o)
    return [found[id(vars(module))] for module in modules]
