"""Compiling parts of a module: code objects by name and line, with constants that have no syntax."""

from __future__ import annotations

import ast
import copy
import importlib.util
import re
import types
import warnings
from collections.abc import Iterator
from typing import Any, Callable, TypeVar, Union

from .trees import DEFINITIONS, WITH_NAMES_OF_THEIR_OWN, any_in, nodes_of, suite_fields

_Result = TypeVar("_Result")
Place = tuple[str, int]  # of a function: name and first line
Key = tuple[Place, ...]  # of a code object, from the outside in


def silently(filename: str, work: Callable[..., _Result], *arguments: Any, **options: Any) -> _Result:
    """Without warnings of a compiler that reads this file: the script's were shown when it was compiled.
    Those of other threads are. warnings.catch_warnings() would reset which warnings have been shown.

    No @contextmanager, as these set attributes of exceptions, which one of a signal handler may forbid.
    """
    module = filename[:-3] if filename.endswith(".py") else filename  # what warnings take for its name
    ignore = ("ignore", None, Warning, re.compile(re.escape(module) + r"\Z"), 0)
    filters: list[Any] = warnings.filters  # type: ignore[assignment]
    filters.insert(0, ignore)
    try:
        return work(*arguments, **options)
    finally:
        filters.remove(ignore)


def source_with(source: Union[str, bytes], tree: ast.Module, wanted: list[int]) -> str:
    """The source with empty lines for functions and classes that hold no function on these lines."""
    text = source if isinstance(source, str) else importlib.util.decode_source(source)
    lines = re.split("\r\n|\r|\n", text)
    for top in tree.body:
        for s in [top, *top.body] if isinstance(top, ast.ClassDef) else [top]:
            if isinstance(s, DEFINITIONS) and not any_in(wanted, s):
                first = min([s.lineno, *(decorator.lineno for decorator in s.decorator_list)]) - 1
                last = s.end_lineno or s.lineno
                lines[first:last] = [""] * (last - first)
    return "\n".join([*lines, ""])


def with_functions(body: list[ast.stmt], lines: list[int]) -> Iterator[ast.stmt]:
    """The statements that hold functions on these lines, and imports, which decide how calls are compiled."""
    for s in body:
        if not any_in(lines, s):
            closed = WITH_NAMES_OF_THEIR_OWN
            nodes = nodes_of(ast.Module([s], []), closed) if suite_fields(type(s)) else [s]
            if any(isinstance(n, (ast.Import, ast.ImportFrom)) for n in nodes):
                yield s
        elif isinstance(s, ast.ClassDef):
            part = copy.copy(s)
            part.body = [m for m in s.body if any_in(lines, m)]
            yield part
        else:
            yield s


def codes(code: types.CodeType, outer: Key = ()) -> Iterator[tuple[Key, types.CodeType]]:
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            key = (*outer, (c.co_name, c.co_firstlineno))
            yield key, c
            yield from codes(c, key)


def with_constants(code: types.CodeType, values: dict[str, Any]) -> types.CodeType:
    def of(c: Any) -> Any:
        if isinstance(c, types.CodeType):
            return with_constants(c, values)
        return values.get(c, c) if isinstance(c, str) else c

    return code.replace(co_consts=tuple(of(c) for c in code.co_consts))
