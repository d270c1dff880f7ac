"""Loops whose body is a region, and comprehensions whose element is one: one call records iterations."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, Optional

from .region import TracedRegion
from .scopes import NotTraceable, Scope
from .trees import nodes_of
from .values import ARGUMENT, RegionSource


def body(scope: Scope, node: ast.For) -> Optional[TracedRegion]:
    """The body of a loop as a region; None if it cannot be one."""
    if not binds_names(node.target):
        return None
    region = TracedRegion(scope)
    if not all(region.add(s) for s in node.body) or region.returned is not None:
        return None
    lists = (append.code.id for append in region.appends if isinstance(append.code, ast.Name))
    return None if any(name in scope.appends for name in lists) else region


def element(scope: Scope, node: ast.ListComp) -> Optional[TracedRegion]:
    """The element of a comprehension as a region; None if it cannot be one."""
    first = node.generators[0]
    if len(node.generators) > 1 or first.ifs or first.is_async or not binds_names(first.target):
        return None
    region = TracedRegion(scope)
    region.targets = names(first.target)
    if region.self_name in region.targets:
        region.self_name = None
    for name in region.targets:
        region.name(name)
    try:
        region.returned = region.value(node.elt)
    except NotTraceable:
        return None
    return region


def names(target: ast.AST) -> list[str]:
    return [n.id for n in nodes_of(target) if isinstance(n, ast.Name)]


def binds_names(target: ast.expr) -> bool:
    """Does binding the target to an item only bind names, each once?"""
    nodes = nodes_of(target)
    unpacked = [n for n in nodes if isinstance(n, (ast.Tuple, ast.List))]
    found = names(target)
    return len(nodes) == len(unpacked) + len(set(found)) and all(n.elts for n in unpacked)


def over(target: ast.expr, iterable: ast.expr) -> list[ast.expr]:
    """What a loop iterates over; of a plain call of zip(), its arguments and then that function."""
    if not isinstance(iterable, ast.Call) or not isinstance(iterable.func, ast.Name) or iterable.keywords:
        return [iterable]
    starred = any(isinstance(a, ast.Starred) for a in iterable.args)
    if iterable.func.id != "zip" or starred or not isinstance(target, (ast.Tuple, ast.List)):
        return [iterable]
    return [ast.Tuple(iterable.args, ast.Load()), iterable.func]


class LoopBinding:
    """The names that a loop binds in each iteration.

    Args:
        target: of the loop.
        region: its body or element.
        left: names of its target that are read after it.

    Attributes:
        added: those that the region does not read, which are passed after its own arguments.
    """

    def __init__(self, target: ast.expr, region: TracedRegion, left: Sequence[str] = ()) -> None:
        self.target = target
        self.region = region
        self.left = list(left)
        self.added = [name for name in left if ("name", name) not in region.sources.known]

    @classmethod
    def of_loop(cls, scope: Scope, node: ast.For, region: TracedRegion) -> LoopBinding:
        """That of a loop of statements."""
        inside = {n for part in (node.target, *node.body) for n in nodes_of(part)}
        own = (name for name in names(node.target) if name not in region.env)
        return cls(node.target, region, [name for name in own if scope.occurs_outside(name, inside)])

    def spec(self, assigned: list[str], number: dict[RegionSource, int]) -> tuple[Any, ...]:
        """`assigned`: names that the region leaves behind; `number`: of its sources."""
        arguments = {key[1]: number[s] for key, s in self.region.sources.known.items() if s.kind == ARGUMENT}
        arguments.update({name: len(arguments) + i for i, name in enumerate(self.added)})
        own = names(self.target)
        carried = tuple(None if name in own else arguments.get(name) for name in assigned)
        left = tuple(arguments[name] for name in self.left)
        appended = tuple(number[append.to] for append in self.region.appends)
        return _target(self.target, arguments), len(self.added), left, carried, appended


def _target(target: ast.expr, arguments: dict[str, int]) -> Any:
    if isinstance(target, (ast.Tuple, ast.List)):
        return tuple(_target(t, arguments) for t in target.elts)
    return arguments.get(target.id)  # type: ignore[attr-defined]
