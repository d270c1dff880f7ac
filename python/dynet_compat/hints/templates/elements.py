"""Comprehensions whose element is a block: recorded item by item in one call."""

from __future__ import annotations

import ast
from typing import Optional

from .scopes import NotStraight, Scope
from .straight import Block


def element(scope: Scope, node: ast.ListComp) -> Optional[Block]:
    """The block that the element of a comprehension is; None if it is none."""
    names = target_names(node)
    if not names or len(set(names)) < len(names):
        return None
    block = Block(scope)
    block.whole_item = isinstance(node.generators[0].target, ast.Name)
    if block.own in names:
        block.own = None
    block.targets = names
    for name in names:
        block.name(name)
    try:
        block.returned = block.value(node.elt)
    except NotStraight:
        return None
    return block


def target_names(node: ast.ListComp) -> list[str]:
    """The names that one loop without conditions binds, if that is all it does; else none."""
    first = node.generators[0]
    if len(node.generators) > 1 or first.ifs or first.is_async:
        return []
    target = first.target
    if isinstance(target, ast.Name):
        return [target.id]
    if isinstance(target, (ast.Tuple, ast.List)) and all(isinstance(t, ast.Name) for t in target.elts):
        return [t.id for t in target.elts if isinstance(t, ast.Name)]
    return []


def zipped(iterable: ast.expr) -> bool:
    """Is it a plain call of zip(), whatever that is?"""
    if not isinstance(iterable, ast.Call) or not isinstance(iterable.func, ast.Name) or iterable.keywords:
        return False
    if any(isinstance(a, ast.Starred) for a in iterable.args) or not iterable.args:
        return False
    return iterable.func.id == "zip"
