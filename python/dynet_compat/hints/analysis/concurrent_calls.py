"""Calls in neighbouring statements that read values of the graph, and whether they may run side by side.

`left = self.expand(a)` and `right = self.expand(b)` may: neither needs the other's result, and nothing that
either does is seen by the other. The statements then end after all of the calls, so the rest of them must do
nothing else either.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..rewrite.trees import suites
from .independence import Independence
from .scopes import Function

_SIMPLE = (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr)
# Of these all parts are evaluated, each once and in order.
_WHOLE = (
    ast.Call, ast.keyword, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.BinOp, ast.UnaryOp, ast.Attribute,
    ast.Subscript, ast.Starred, ast.JoinedStr, ast.FormattedValue,
)  # fmt: skip
_NOT_MOVED = (ast.NamedExpr, ast.Lambda, ast.Yield, ast.YieldFrom, ast.Await)


@dataclass
class CallGroup:
    """Calls of one function that may be independent."""

    function: Function
    calls: list[ast.Call]
    line: int = 0
    reason: str = ""


class ConcurrentCalls:
    """Judges all groups of calls of which each reads values."""

    def __init__(self, independence: Independence) -> None:
        self.independence = independence
        self.program, self.facts = independence.program, independence.facts
        self.loops = independence.loops
        self._readers = {self.program.owner[node] for node in self.facts.reads}
        self.all: list[CallGroup] = []
        for function in self.program.functions if self._readers else ():
            if isinstance(function.node, ast.FunctionDef) and function.id not in self.program.opaque:
                for _, _, statements in suites(function.node):
                    self.all += self._groups(function, statements)

    def proved(self) -> list[CallGroup]:
        return [g for g in self.all if not g.reason] if self.independence.complete else []

    # ---- candidates

    def _groups(self, function: Function, statements: list[ast.stmt]) -> Iterator[CallGroup]:
        for run in _simple_runs(statements):
            calls = {s: self._calls(s, deep=False) for s in run}
            if sum(map(len, calls.values())) < 2:  # f(g(a), g(b))
                calls = {s: self._calls(s, deep=True) for s in run}
            if sum(map(len, calls.values())) < 2:
                continue
            needed = ""
            found: list[list[ast.stmt]] = [[]]
            for s in run:
                names = {n.id for call in calls[s] for n in ast.walk(call) if isinstance(n, ast.Name)}
                before = names & {name for other in found[-1] for name in _stored(other)}
                if before:
                    needed = needed or min(before)
                    found.append([])
                if calls[s] or found[-1]:
                    found[-1].append(s)
            groups = [
                (part, [call for s in part for call in calls[s]])
                for part in found
                if sum(len(calls[s]) for s in part) > 1
            ]
            for part, together in groups:
                while not calls[part[-1]]:
                    part.pop()
                yield self._judge(function, part, together)
            if not groups:
                alone = [call for s in run for call in calls[s]]
                yield CallGroup(function, alone, alone[1].lineno, f"{needed} comes from the call before")

    def _calls(self, statement: ast.stmt, deep: bool) -> list[ast.Call]:
        """Calls in a statement that read values and are certain to run. `deep`: those in arguments first."""
        value = getattr(statement, "value", None)
        return self._calls_in(value, deep) if value is not None else []

    def _calls_in(self, node: ast.AST, deep: bool) -> list[ast.Call]:
        if not isinstance(node, _WHOLE):
            return []
        own = isinstance(node, ast.Call) and self._reads(node)
        if own and not deep:
            return [node]  # type: ignore[list-item]
        inside = [c for part in ast.iter_child_nodes(node) for c in self._calls_in(part, deep)]
        return [node] if own and len(inside) < 2 else inside  # type: ignore[list-item]

    def _reads(self, call: ast.Call) -> bool:
        targets = self.facts.targets.get(call)
        if not targets or any(kind != "func" for kind, _ in targets):
            return False
        return bool(self.loops.graph.called_from([call]) & self._readers)

    # ---- one group

    def _judge(self, function: Function, statements: list[ast.stmt], calls: list[ast.Call]) -> CallGroup:
        group = CallGroup(function, calls, calls[0].lineno)
        effects = self.independence.effects
        stored = {name for s in statements for name in _stored(s)}
        outside = sorted(stored & (function.captured | function.globals | function.nonlocals))
        if outside:
            group.reason = f"other functions use {outside[0]}"
            return group
        moved = [node for call in calls for node in ast.walk(call)]
        for node in moved:
            if isinstance(node, _NOT_MOVED) or isinstance(node, ast.Name) and node.id == "super":
                group.line = getattr(node, "lineno", group.line)
                group.reason = "it holds what is not moved: a lambda, an assignment, super()"
                return group
        for s in statements:
            value: Any = getattr(s, "value", None)
            for node in ast.walk(value) if value is not None else ():
                group.reason = effects.reason_against(node, set(), None)
                if group.reason:
                    group.line = getattr(node, "lineno", group.line)
                    return group
        for number in sorted(self.loops.graph.called_from(calls)):
            moved += self.program.body_nodes(self.program.functions[number])
        group.reason = self.independence.reason_against_all(moved)
        return group


def _simple_runs(statements: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """Neighbours that only evaluate expressions and bind names."""
    run: list[ast.stmt] = []
    for s in statements:
        if isinstance(s, _SIMPLE) and _stored(s) is not None:
            run.append(s)
        else:
            if run:
                yield run
            run = []
    if run:
        yield run


def _stored(statement: ast.stmt) -> Any:
    """The names that a statement binds; None if it binds anything else."""
    targets: list[Any] = [*getattr(statement, "targets", ()), getattr(statement, "target", None)]
    names: set[str] = set()
    while targets:
        target = targets.pop()
        if isinstance(target, (ast.Tuple, ast.List)):
            targets += target.elts
        elif isinstance(target, ast.Starred):
            targets.append(target.value)
        elif isinstance(target, ast.Name):
            names.add(target.id)
        elif target is not None:
            return None
    return names
