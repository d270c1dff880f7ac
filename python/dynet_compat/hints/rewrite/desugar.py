"""Statements rewritten to others with the same meaning, so that regions become longer.

Statements that follow a branch are moved into its arms, where they may join the region that ends an arm. A
call whose arguments do more than record is split: what is evaluated first becomes statements of its own, and
the rest may begin a region.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from typing import Any, Optional

from . import calls
from .region import OPERATORS, TracedRegion
from .scopes import NotTraceable, Scope
from .trees import copied, delete, load, locate, nodes_of, store

_MOST_MOVED = 6  # statements put into the arms of a branch
_MOST_ARMS = 4
_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)

# ---------------------------------------------------------------- statements after a branch


def move_into_branches(scope: Scope, statements: list[ast.stmt]) -> None:
    """Move traceable statements after a branch into its arms, for all branches of a suite."""
    for at in range(len(statements) - 1, -1, -1):
        branch = statements[at]
        if not isinstance(branch, ast.If):
            continue
        arms = _arms(branch)
        moved = _traceable(scope, statements[at + 1 :][:_MOST_MOVED])
        open_arms = [arm for arm in arms if not (arm and isinstance(arm[-1], _ENDS))]
        if not moved or len(arms) > _MOST_ARMS or not any(_records(scope, arm) for arm in open_arms):
            continue
        del statements[at + 1 : at + 1 + len(moved)]
        for arm in open_arms:
            arm += map(copied, moved)


def _arms(branch: ast.If) -> list[list[ast.stmt]]:
    last = branch.orelse
    if len(last) == 1 and isinstance(last[0], ast.If):
        return [branch.body, *_arms(last[0])]
    return [branch.body, last]


def _traceable(scope: Scope, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Those at the beginning that are a region."""
    region = TracedRegion(scope)
    for s in statements:
        if not region.add(s):
            break
    return region.statements if region.ops else []


def _records(scope: Scope, arm: Sequence[ast.stmt]) -> bool:
    """Does the arm end with a statement that can be part of a region?"""
    if not arm:
        return False
    region = TracedRegion(scope)
    return (region.add(arm[-1]) and region.ops > 0) or CallSplitter(scope).statement(arm[-1]) is not None


# ---------------------------------------------------------------- sums


def name_sums(scope: Scope, statements: list[ast.stmt]) -> None:
    """Give what is added to a sum over instances a name, so that it can be part of a region."""
    for at in range(len(statements) - 1, -1, -1):
        s = statements[at]
        place, part = _added(s, scope.sums)
        value = getattr(place, part, None)
        if value is None or not _value_ops(scope, value):
            continue
        name = scope.new_name()
        setattr(place, part, ast.copy_location(load(name), value))
        before = ast.Assign([store(name)], value)
        after = delete(name)
        statements[at : at + 1] = [locate(before, s), s, locate(after, s)]


def _added(s: ast.stmt, sums: frozenset[str]) -> tuple[Any, str]:
    """Where the value stands in `x += value` and `x = x + value`."""
    if isinstance(s, ast.AugAssign):
        return (s if isinstance(s.target, ast.Name) and s.target.id in sums else None), "value"
    value, target = getattr(s, "value", None), getattr(s, "targets", [None])[0]
    if isinstance(value, ast.BinOp) and isinstance(value.left, ast.Name) and isinstance(target, ast.Name):
        return (value if value.left.id == target.id and target.id in sums else None), "right"
    return None, ""


def _value_ops(scope: Scope, value: ast.expr) -> Optional[int]:
    """How many ops the expression records; None if it is not traceable."""
    region = TracedRegion(scope)
    try:
        region.value(value)
    except NotTraceable:
        return None
    return region.ops


# ---------------------------------------------------------------- splitting calls


class CallSplitter:
    """Splits one statement.

    Attributes:
        before: assignments of what is evaluated first, in that order, to new names.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.before: list[ast.stmt] = []
        self.traceable: dict[ast.expr, bool] = {}

    def statement(self, s: ast.stmt) -> Optional[ast.stmt]:
        """The rest of the statement, if it is traceable and records; else None."""
        value = getattr(s, "value", None)
        if not isinstance(s, (ast.Assign, ast.AnnAssign, ast.Return)) or not isinstance(value, ast.expr):
            return None
        if not self._parts(value):
            return None
        if any(isinstance(n, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)) for n in nodes_of(s)):
            return None
        new = copy.copy(s)
        new.value = self._value(value)
        region = TracedRegion(self.scope)
        records = region.add(new) and any(source.called for source in region.sources.all)
        return new if self.before and records else None

    def _value(self, e: ast.expr) -> ast.expr:
        """The expression, with names for what is evaluated before the rest of it."""
        new: Any = copy.copy(e)
        parts = self._parts(e)
        if self._is_traceable(e):
            return e
        if all(self._is_traceable(part) for part in parts):
            return self._named(e)
        if isinstance(e, ast.Call):
            new.func = self._named(e.func, called=True)
        values = self._values(parts)
        if isinstance(e, ast.Call):
            new.args = values[: len(e.args)]
            rest = values[len(e.args) :]
            new.keywords = [ast.copy_location(ast.keyword(k.arg, v), k) for k, v in zip(e.keywords, rest)]
        elif isinstance(e, ast.BinOp):
            new.left, new.right = values
        else:
            new.elts = values
        return new  # type: ignore[no-any-return]

    def _parts(self, e: ast.expr) -> list[ast.expr]:
        """The operands that can be evaluated separately: the last ones before the expression itself."""
        if isinstance(e, ast.Call) and self._is_known(e):
            return [*e.args, *(k.value for k in e.keywords)]
        if isinstance(e, (ast.Tuple, ast.List)) and not any(isinstance(x, ast.Starred) for x in e.elts):
            return e.elts
        if isinstance(e, ast.BinOp) and isinstance(e.op, OPERATORS):
            return [e.left, e.right]
        return []

    def _values(self, parts: list[ast.expr]) -> list[ast.expr]:
        """The operands, in order: those before the last one that is not traceable get names."""
        last = max(i for i, part in enumerate(parts) if not self._is_traceable(part))
        before = [self._named(part) for part in parts[:last]]
        return [*before, self._value(parts[last]), *parts[last + 1 :]]

    def _is_traceable(self, e: ast.expr) -> bool:
        if e not in self.traceable:
            self.traceable[e] = _value_ops(self.scope, e) is not None
        return self.traceable[e]

    def _is_known(self, e: ast.Call) -> bool:
        """May regions call this function, whatever its arguments?"""
        if any(isinstance(a, ast.Starred) for a in e.args) or any(k.arg is None for k in e.keywords):
            return False
        try:
            calls.callee(TracedRegion(self.scope), e.func)
        except NotTraceable:
            return False
        return True

    def _named(self, e: ast.expr, called: bool = False) -> ast.expr:
        """A name for its value, which is evaluated now."""
        if isinstance(e, ast.Constant) or (isinstance(e, ast.Name) and self.scope.is_bound(e.id)):
            return e
        name = self.scope.new_name(e if called else None)
        target = store(name)
        self.before.append(locate(ast.Assign([target], e), e))
        return ast.copy_location(load(name), e)
