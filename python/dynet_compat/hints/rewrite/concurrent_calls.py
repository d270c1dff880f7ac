"""Independent calls, rewritten so that they can run side by side.

    left = self.expand(a)
    right = self.expand(b)

becomes, with a name that no script can have:

    results = <the group>.run(lambda: self.expand(a), lambda: self.expand(b))
    if results is None:
        ...                    # the statements as they were written
    else:
        left = results[0]
        right = results[1]
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .trees import arguments, assign, call_method, copied, load, locate, suites

if TYPE_CHECKING:
    from ..hints_file import IndependentCalls

_SIMPLE = (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr)


class ConcurrentCallsWriter:
    """The groups of calls of one module.

    Args:
        groups: their records, and for each the object that decides how the calls run.
    """

    def __init__(self, groups: Iterable[tuple[IndependentCalls, Any]]) -> None:
        self.groups = list(groups)
        self.ends = {end for record, _ in self.groups for end in _ends(record)}
        self.constants: dict[str, Any] = {}

    def has(self, statement: ast.stmt) -> bool:
        """Whether a statement holds such calls, and is to be left to this."""
        return bool(self.ends) and bool(self._found(statement, self.ends))

    def function(self, qualname: str, node: ast.FunctionDef) -> None:
        """Rewrites the groups of one function."""
        wanted = [(record, decider) for record, decider in self.groups if record.qualname == qualname]
        for parent, name, _ in list(suites(node)) if wanted else ():
            for record, decider in wanted:
                setattr(parent, name, self._suite(getattr(parent, name), record, decider))

    @staticmethod
    def _found(statement: ast.stmt, ends: Any) -> set[tuple[Any, Any]]:
        if not isinstance(statement, _SIMPLE) or statement.value is None:
            return set()
        calls = (n for n in ast.walk(statement.value) if isinstance(n, ast.Call))
        return {_end(n) for n in calls if _end(n) in ends}

    def _suite(self, statements: list[ast.stmt], record: IndependentCalls, decider: Any) -> list[ast.stmt]:
        ends = _ends(record)
        places = [i for i, s in enumerate(statements) if self._found(s, ends)]
        if not places:
            return statements
        old = statements[places[0] : places[-1] + 1]
        if any(not isinstance(s, _SIMPLE) for s in old):
            return statements
        name, placeholder = f".calls{len(self.constants)}", f"\0calls {len(self.constants)}"
        replaced = _Replaced(name, ends)
        new = [replaced.visit(copied(s)) for s in old]
        if len(replaced.calls) != len(ends):
            return statements
        self.constants[placeholder] = decider
        calls = [ast.Lambda(arguments([]), replaced.calls[i]) for i in range(len(ends))]
        test = ast.Compare(load(name), [ast.Is()], [ast.Constant(None)])
        both = [
            assign(name, call_method(ast.Constant(placeholder), "run", *calls)),
            ast.If(test, old, new),
        ]
        return [*statements[: places[0]], *(locate(s, old[0]) for s in both), *statements[places[-1] + 1 :]]


class _Replaced(ast.NodeTransformer):
    """Results in place of the calls."""

    def __init__(self, name: str, ends: list[tuple[int, int]]) -> None:
        self.name, self.ends = name, ends
        self.calls: dict[int, ast.Call] = {}

    def visit_Call(self, node: ast.Call) -> ast.AST:  # noqa: N802 - the name is given
        if _end(node) not in self.ends:
            return self.generic_visit(node)
        number = self.ends.index(_end(node))
        self.calls[number] = node
        return locate(ast.Subscript(load(self.name), ast.Constant(number), ast.Load()), node)


def _ends(record: IndependentCalls) -> list[tuple[int, int]]:
    return list(zip(record.last_lines, record.last_cols))


def _end(node: ast.AST) -> tuple[Any, Any]:
    return getattr(node, "end_lineno", None), getattr(node, "end_col_offset", None)
