"""What names mean where a region is: the module of the script, and the function around the region."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from typing import Any, Callable, Optional

from .code_objects import Place
from .recording import look_up, meaning
from .trees import (
    DEFINITIONS,
    WAITS,
    WITH_NAMES_OF_THEIR_OWN,
    dotted,
    functions,
    is_generator,
    nodes_of,
    own_nodes,
    root_of,
)

_PATTERNS = ("MatchAs", "MatchStar", "MatchMapping")  # from Python 3.10 on
_BINDERS = frozenset(
    [*DEFINITIONS, ast.ExceptHandler, ast.Import, ast.ImportFrom]
    + [*(getattr(ast, name) for name in _PATTERNS if hasattr(ast, name))]
)
MOST_DEPTH = 8  # of functions of the script that call one another


class NotTraceable(Exception):
    """A statement does something that a region may not do; the message says what, for people."""


def is_private(name: str) -> bool:
    """Does the name mean another one inside a class?"""
    return name.startswith("__") and not name.endswith("__")


class Module:
    """A module of the script: what its names mean, as far as regions may rely on it."""

    def __init__(self, tree: ast.Module, names: dict[str, Any]) -> None:
        self.tree = tree
        self.names = names  # the module's own dict
        self.functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
        self.methods: dict[str, dict[str, ast.FunctionDef]] = {}
        self.bases: dict[str, list[str]] = {}
        self.written_in: dict[ast.FunctionDef, str] = {}
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                self.methods[node.name] = {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}
                self.written_in.update(dict.fromkeys(self.methods[node.name].values(), node.name))
                self.bases[node.name] = [b.id for b in node.bases if isinstance(b, ast.Name)]
        self.own_nodes: Callable[[ast.FunctionDef], list[ast.AST]] = functools.cache(own_nodes)
        self.callees: set[Place] = set()  # functions that regions call
        self.meanings: dict[str, str] = {}  # of the names that were looked up
        self.used: dict[ast.FunctionDef, UsedNames] = {}

    def is_plain(self, node: ast.FunctionDef) -> bool:
        """Is the function neither decorated nor a generator?"""
        return not node.decorator_list and not (self.names_in(node).waits and is_generator(node))

    def calls_only(self, decorator: ast.expr) -> bool:
        """Does the decorator only call the function, without a look at its code?"""
        code = decorator.func if isinstance(decorator, ast.Call) else decorator
        known = ("decorator", "builtin staticmethod", "builtin classmethod", "builtin property")
        root = root_of(code)
        if root is None or self.meaning(code) not in known:
            return False
        return not any(root in self.names_in(f).local for _, f, _ in functions(self.tree))

    def names_in(self, node: ast.FunctionDef) -> UsedNames:
        if node not in self.used:
            own = self.own_nodes(node)
            inside = any(isinstance(n, WITH_NAMES_OF_THEIR_OWN) for n in own)
            self.used[node] = UsedNames(node, nodes_of(node) if inside else own)
        return self.used[node]

    def callee(self, node: ast.FunctionDef) -> Place:
        """The place of a function that a region calls."""
        self.callees.add((node.name, node.lineno))
        return node.name, node.lineno

    def method(self, cls: Optional[str], name: str, depth: int = 0) -> Optional[ast.FunctionDef]:
        """The method of a class or of its bases, as far as the source shows."""
        if cls not in self.methods or depth > MOST_DEPTH:
            return None
        found = (self.method(base, name, depth + 1) for base in self.bases[cls])
        return self.methods[cls].get(name) or next(filter(None, found), None)

    def meaning(self, code: ast.expr) -> str:
        """What a dotted global name means now, as recording.meaning() says; "" for other code."""
        name = dotted(code)
        if name and name not in self.meanings:
            self.meanings[name] = meaning(look_up(self.names, name))
        return self.meanings.get(name, "")


class Scope:
    """The function that a region is in.

    Attributes:
        cls: name of the class that it is a method of.
        nested: is it in another function, whose names it may see?
        written_in: name of the class around it.
        lists: may there be list comprehensions?
        sums, appends: of loops over instances that may run side by side: names that they add to, lists that
            they append to.
        aliases: names that the script does not have -> the function that one means.
        counters, functions: answers of is_counter() and own_function().
    """

    sums: frozenset[str] = frozenset()
    appends: frozenset[str] = frozenset()

    def __init__(
        self, module: Module, node: ast.FunctionDef, cls: Optional[str], nested: bool = False
    ) -> None:
        self.module = module
        self.node = node
        self.cls = cls
        self.nested = nested
        used = module.names_in(node)
        self.local = set(used.local)
        self.lists = used.lists
        self.written_in = module.written_in.get(node)
        self.aliases: dict[str, Optional[ast.expr]] = {}
        self.counters: dict[str, bool] = {}
        self.functions: dict[str, Optional[ast.FunctionDef]] = {}

    def private(self, name: str) -> str:
        """The attribute that a private name means in the class that the function is written in."""
        if self.written_in is None or not self.written_in.strip("_"):
            raise NotTraceable("a private name")
        return f"_{self.written_in.lstrip('_')}{name}"

    def new_name(self, function: Optional[ast.expr] = None) -> str:
        """A local name for a value; `function`: how the script writes it, if it is one."""
        name = f".value{len(self.aliases)}"
        self.aliases[name] = function
        self.local.add(name)
        return name

    def is_bound(self, name: str) -> bool:
        """Is the local name always bound?"""
        if name.startswith("."):
            return True
        names = (n for n in nodes_of(self.node) if isinstance(n, ast.Name) and n.id == name)
        deleted = any(isinstance(n.ctx, ast.Del) for n in names)
        return not deleted and any(p.arg == name for p in self.node.args.args)

    def is_counter(self, name: str) -> bool:
        """Is the local name bound to numbers only, and by `+=` and the like?"""
        if name not in self.counters:
            self.counters[name] = self._is_counter(name)
        return self.counters[name]

    def own_function(self, name: str) -> Optional[ast.FunctionDef]:
        """The function that a local name means: defined here, and the name is never bound otherwise."""
        if name not in self.functions:
            self.functions[name] = self._own_function(name)
        return self.functions[name]

    @functools.cached_property
    def names(self) -> dict[str, list[ast.Name]]:
        """The occurrences of each name in the function, when this is first asked."""
        found: dict[str, list[ast.Name]] = {}
        for n in nodes_of(self.node):
            if isinstance(n, ast.Name):
                found.setdefault(n.id, []).append(n)
        return found

    def occurs_outside(self, name: str, nodes: set[ast.AST]) -> bool:
        """Does the name occur in the function outside these nodes?"""
        return any(n not in nodes for n in self.names.get(name, ()))

    def _is_counter(self, name: str) -> bool:
        found = [_bound_values(n, name) for n in self.module.own_nodes(self.node)]
        values = [value for values in found for value in values]
        return not self._is_parameter(name) and bool(values) and all(map(_is_number, values))

    def _is_parameter(self, name: str) -> bool:
        return any(p.arg == name for p in nodes_of(self.node.args) if isinstance(p, ast.arg))

    def _own_function(self, name: str) -> Optional[ast.FunctionDef]:
        if self.nested or name not in self.local:
            return None
        nodes = self.module.own_nodes(self.node)
        found = [n for n in nodes if isinstance(n, ast.FunctionDef) and n.name == name]
        if not found:
            return None
        stored = any(
            isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load)
            for n in nodes_of(self.node)
        )
        bound = sum(len(_bound_values(n, name)) for n in nodes)
        return found[0] if len(found) == bound == 1 and not stored and not self._is_parameter(name) else None


class UsedNames:
    """The names that a function and the functions inside it use.

    Args:
        nodes: all that are in it.

    Attributes:
        local: names that are bound.
        read: names that are read.
        lists: are there comprehensions of lists?
        waits: is there a `yield` or `await`?
    """

    def __init__(self, node: ast.FunctionDef, nodes: list[ast.AST]) -> None:
        a = node.args
        self.local = {p.arg for p in [*a.posonlyargs, *a.args, *a.kwonlyargs]}
        self.local |= {p.arg for p in (a.vararg, a.kwarg) if p}
        self.read: set[str] = set()
        self.lists = self.waits = False
        for n in nodes:
            kind = type(n)
            if kind is ast.Name:
                (self.read if type(n.ctx) is ast.Load else self.local).add(n.id)  # type: ignore[attr-defined]
            elif kind in _BINDERS and n is not node:
                self.local |= _bound_by(n)
            elif kind is ast.ListComp:
                self.lists = True
            elif kind in WAITS:
                self.waits = True


def _bound_by(n: ast.AST) -> set[str]:
    """Names that a statement or pattern itself binds."""
    if isinstance(n, DEFINITIONS):
        return {n.name}
    if type(n).__name__ in _PATTERNS:
        return {getattr(n, key) for key in ("name", "rest") if getattr(n, key, None)}
    if isinstance(n, ast.ExceptHandler):
        return {n.name} if n.name else set()
    if isinstance(n, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).split(".")[0] for alias in n.names}
    return set()


def _bound_values(node: ast.AST, name: str) -> list[Optional[ast.expr]]:
    """The values that a statement binds a name to, None for one that is not written there; without `+=`."""
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [value for target in targets for value in _parts_for(target, node.value, name)]
    if isinstance(node, ast.Name) or isinstance(node, ast.AugAssign):
        return []
    direct = [getattr(node, "target", None), getattr(node, "optional_vars", None)]
    hidden = any(
        isinstance(n, ast.Name) and n.id == name for d in direct if d is not None for n in nodes_of(d)
    )
    named = name in (getattr(node, "name", None), getattr(node, "rest", None))  # def, except ... as, match
    imported = isinstance(node, ast.alias) and name == (node.asname or node.name).split(".")[0]
    return [None] if hidden or named or imported else []


def _parts_for(target: ast.expr, value: Optional[ast.expr], name: str) -> Iterator[Optional[ast.expr]]:
    if isinstance(target, ast.Name):
        if target.id == name:
            yield value
    elif isinstance(target, (ast.Tuple, ast.List)):
        both = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
        for i, t in enumerate(target.elts):
            yield from _parts_for(t, value.elts[i] if both else None, name)  # type: ignore[union-attr]
    elif isinstance(target, ast.Starred):
        yield from _parts_for(target.value, None, name)


def _is_number(e: Optional[ast.expr]) -> bool:
    return isinstance(e, ast.Constant) and type(e.value) in (int, float)
