"""Statements written in another way, with the same meaning, so that longer blocks come of them.

What follows a branch can be in each of its arms, where it may be one block with what the arm ends with. And a
call whose arguments do more than to record can be taken apart: what is evaluated first comes first, as
statements of its own, and what is left may begin a block.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from typing import Any, Optional

from . import straight
from .scopes import NotStraight, Scope, copied, locate, nodes_of
from .straight import Block

_MOST_MOVED = 6  # statements put into the arms of a branch
_MOST_ARMS = 4
_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)

# ---------------------------------------------------------------- what follows a branch


def into_arms(scope: Scope, statements: list[ast.stmt]) -> None:
    """Move straight statements after a branch into its arms, for all branches of a suite."""
    for at in range(len(statements) - 1, -1, -1):
        branch = statements[at]
        if not isinstance(branch, ast.If):
            continue
        arms = _arms(branch)
        moved = _straight(scope, statements[at + 1 :][:_MOST_MOVED])
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


def _straight(scope: Scope, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Those at the beginning that are a block."""
    block = Block(scope)
    for s in statements:
        if not block.take(s):
            break
    return block.statements if block.ops else []


def _records(scope: Scope, arm: Sequence[ast.stmt]) -> bool:
    """Does the arm end with a statement that can be part of a block?"""
    if not arm:
        return False
    block = Block(scope)
    return (block.take(arm[-1]) and block.ops > 0) or Apart(scope).statement(arm[-1]) is not None


# ---------------------------------------------------------------- sums


def sums_apart(scope: Scope, statements: list[ast.stmt]) -> None:
    """What is added to a sum over instances can be part of a block: it gets a name, and is added after it."""
    for at in range(len(statements) - 1, -1, -1):
        s = statements[at]
        place, part = _added(s, scope.sums)
        value = getattr(place, part, None)
        if value is None or not _value_ops(scope, value):
            continue
        name = scope.new_name()
        setattr(place, part, ast.copy_location(ast.Name(name, ast.Load()), value))
        before = ast.Assign([ast.Name(name, ast.Store())], value)
        after = ast.Delete([ast.Name(name, ast.Del())])
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
    """How many ops the expression records; None if it is not straight."""
    block = Block(scope)
    try:
        block.value(value)
    except NotStraight:
        return None
    return block.ops


# ---------------------------------------------------------------- calls taken apart


class Apart:
    """Takes one statement apart.

    Attributes:
        before: assignments of what is evaluated first, in its order, to names of its own.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.before: list[ast.stmt] = []
        self.straight: dict[ast.expr, bool] = {}

    def statement(self, s: ast.stmt) -> Optional[ast.stmt]:
        """What is left of the statement: something that records, and straight; None if it is nothing."""
        value = getattr(s, "value", None)
        if not isinstance(s, (ast.Assign, ast.AnnAssign, ast.Return)) or not isinstance(value, ast.expr):
            return None
        if not self._parts(value):
            return None
        if any(isinstance(n, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)) for n in nodes_of(s)):
            return None
        new = copy.copy(s)
        new.value = self._value(value)
        block = Block(self.scope)
        records = block.take(new) and any(slot.called for slot in block.slots)
        return new if self.before and records else None

    def _value(self, e: ast.expr) -> ast.expr:
        """The expression, with names for what is evaluated before the rest of it."""
        new: Any = copy.copy(e)
        parts = self._parts(e)
        if self._is_straight(e):
            return e
        if all(self._is_straight(part) for part in parts):
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
        """What can be evaluated apart from the rest: the last things evaluated before that itself."""
        if isinstance(e, ast.Call) and self._is_known(e):
            return [*e.args, *(k.value for k in e.keywords)]
        if isinstance(e, (ast.Tuple, ast.List)) and not any(isinstance(x, ast.Starred) for x in e.elts):
            return e.elts
        if isinstance(e, ast.BinOp) and isinstance(e.op, straight.OPERATORS):
            return [e.left, e.right]
        return []

    def _values(self, parts: list[ast.expr]) -> list[ast.expr]:
        """Parts that are evaluated one after the other: what comes before the last that is not straight is
        evaluated before it."""
        last = max(i for i, part in enumerate(parts) if not self._is_straight(part))
        before = [self._named(part) for part in parts[:last]]
        return [*before, self._value(parts[last]), *parts[last + 1 :]]

    def _is_straight(self, e: ast.expr) -> bool:
        if e not in self.straight:
            self.straight[e] = _value_ops(self.scope, e) is not None
        return self.straight[e]

    def _is_known(self, e: ast.Call) -> bool:
        """Is it a call of something that blocks may call, but for its arguments?"""
        if any(isinstance(a, ast.Starred) for a in e.args) or any(k.arg is None for k in e.keywords):
            return False
        try:
            Block(self.scope).callee(e.func)
        except NotStraight:
            return False
        return True

    def _named(self, e: ast.expr, called: bool = False) -> ast.expr:
        """A name for its value, which is evaluated now."""
        if isinstance(e, ast.Constant) or (isinstance(e, ast.Name) and self.scope.is_bound(e.id)):
            return e
        name = self.scope.new_name(e if called else None)
        target = ast.Name(name, ast.Store())
        self.before.append(locate(ast.Assign([target], e), e))
        return ast.copy_location(ast.Name(name, ast.Load()), e)
