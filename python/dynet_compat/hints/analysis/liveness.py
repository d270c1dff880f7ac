"""Which names code reads before it assigns them: what one iteration may take from the one before."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Optional

from .scopes import COMPREHENSIONS

MAX_NESTING = 60


class Liveness:
    """Reads and assignments of code that is given in the order in which it runs.

    Attributes:
        exposed: name -> loads that may see a value from before.
        assigned: names that may be assigned.
        loads, stores: every load and store, by name.
    """

    def __init__(self) -> None:
        self.exposed: dict[str, list[ast.AST]] = {}
        self.assigned: set[str] = set()
        self.loads: dict[str, list[ast.AST]] = {}
        self.stores: dict[str, list[ast.AST]] = {}
        self.too_deep = False
        self._depth = 0
        self.defined: Optional[set[str]] = set()  # surely assigned; None: not reached

    # ---- expressions

    def expression(self, node: Optional[ast.AST]) -> None:
        """Loads first, then what := assigns."""
        if node is None:
            return
        stored = []
        for name in visible_names(node):
            if isinstance(name.ctx, ast.Load):
                self._load(name.id, name)
            else:
                stored.append(name)
        for name in stored:
            self._store(name.id, name, sure=False)

    def target(self, node: ast.AST) -> None:
        """Something that is assigned to."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name):
                if isinstance(inner.ctx, ast.Load):
                    self._load(inner.id, inner)
                else:
                    self._store(inner.id, inner)

    def _load(self, name: str, node: ast.AST) -> None:
        self.loads.setdefault(name, []).append(node)
        if self.defined is not None and name not in self.defined:
            self.exposed.setdefault(name, []).append(node)

    def _store(self, name: str, node: ast.AST, sure: bool = True) -> None:
        self.assigned.add(name)
        self.stores.setdefault(name, []).append(node)
        if sure and self.defined is not None:
            self.defined.add(name)

    # ---- statements

    def block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        self._depth += 1
        if self._depth > MAX_NESTING:
            self.too_deep = True
        elif isinstance(node, ast.If):
            self._if(node)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self.expression(node.iter)
            self._maybe([*node.body, *node.orelse], node.target)
        elif isinstance(node, ast.While):
            self.expression(node.test)
            self._maybe([*node.body, *node.orelse])
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                self.expression(item.context_expr)
                if item.optional_vars is not None:
                    self.target(item.optional_vars)
            self.block(node.body)
        elif isinstance(node, ast.Try) or type(node).__name__ in ("TryStar", "Match"):
            self._branches(node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self.expression(node)
            self._store(node.name, node)
        else:
            self._simple(node)
        self._depth -= 1

    def _simple(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign):
            self.expression(node.value)
            for target in node.targets:
                self.target(target)
        elif isinstance(node, ast.AugAssign):
            self.expression(node.value)
            if isinstance(node.target, ast.Name):
                self._load(node.target.id, node.target)
            self.target(node.target)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.expression(node.value)
                self.target(node.target)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                self._store(alias.asname or alias.name.split(".")[0], node)
        else:
            self.expression(node)
            if isinstance(node, (ast.Return, ast.Raise, ast.Break, ast.Continue)):
                self.defined = None

    def _if(self, node: ast.If) -> None:
        ends: list[Optional[set[str]]] = []
        at: ast.If = node
        while True:
            self.expression(at.test)
            before = None if self.defined is None else set(self.defined)
            self.block(at.body)
            ends.append(self.defined)
            self.defined = before
            if len(at.orelse) == 1 and isinstance(at.orelse[0], ast.If):
                at = at.orelse[0]
                continue
            self.block(at.orelse)
            ends.append(self.defined)
            break
        alive = [end for end in ends if end is not None]
        self.defined = set.intersection(*alive) if alive else None

    def _maybe(self, statements: Sequence[ast.stmt], target: Optional[ast.AST] = None) -> None:
        """Code that runs any number of times."""
        before = None if self.defined is None else set(self.defined)
        if target is not None:
            self.target(target)
        self.block(statements)
        self.defined = before

    def _branches(self, node: ast.AST) -> None:
        """`try` and `match`: nothing inside is sure."""
        for child in ast.iter_child_nodes(node):
            before = None if self.defined is None else set(self.defined)
            if isinstance(child, ast.stmt):
                self.statement(child)
            elif isinstance(child, ast.expr):
                self.expression(child)
            else:  # a handler or a case
                self._arm(child)
            self.defined = before

    def _arm(self, node: ast.AST) -> None:
        for inner in ast.walk(node):
            name = getattr(inner, "name", None) or getattr(inner, "rest", None)
            if isinstance(name, str) and not isinstance(inner, ast.stmt):
                self._store(name, inner, sure=False)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.expression(child)
        self.block(getattr(node, "body", []))


def sure_nodes(statements: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Nodes that run whenever the code runs to its end: nothing of branches, loops, handlers, functions."""
    stack: list[ast.AST] = list(reversed(statements))
    while stack:
        node = stack.pop()
        yield node
        children: list[ast.AST]
        if isinstance(node, (ast.If, ast.While, ast.IfExp)):
            children = [node.test]
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            children = [node.iter]
        elif isinstance(node, ast.BoolOp):
            children = node.values[:1]  # type: ignore[assignment]
        elif isinstance(node, COMPREHENSIONS):
            children = [node.generators[0].iter]
        elif type(node).__name__ == "Match":
            children = [getattr(node, "subject")]  # noqa: B009 - not in Python 3.9
        elif type(node).__name__ in ("Try", "TryStar"):
            children = [*getattr(node, "finalbody")]  # noqa: B009
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            children = []
        else:
            children = list(ast.iter_child_nodes(node))
        stack.extend(reversed(children))


def visible_names(node: ast.AST) -> Iterator[ast.Name]:
    """Names in an expression, without those that comprehensions, lambdas and functions keep to themselves."""
    stack: list[tuple[ast.AST, frozenset[str]]] = [(node, frozenset())]
    while stack:
        at, hidden = stack.pop()
        if isinstance(at, ast.Name):
            if at.id not in hidden:
                yield at
            continue
        children = list(ast.iter_child_nodes(at))
        inner = hidden
        if isinstance(at, COMPREHENSIONS):
            first = at.generators[0].iter
            stack.append((first, hidden))
            targets = (n for g in at.generators for n in ast.walk(g.target) if isinstance(n, ast.Name))
            inner = hidden | {n.id for n in targets}
            for generator in at.generators:
                children += ast.iter_child_nodes(generator)
            children = [c for c in children if c is not first and not isinstance(c, ast.comprehension)]
        elif isinstance(at, (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef)):
            inner = hidden | _locals(at)
        stack.extend((child, inner) for child in reversed(children))


def _locals(function: ast.AST) -> set[str]:
    """Parameters of a function and what it assigns, as far as they are its own."""
    own = set()
    shared: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            own.add(node.arg)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            own.add(node.id)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            shared.update(node.names)
    return own - shared
