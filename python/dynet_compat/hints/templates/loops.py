"""Loops whose whole body is a block: one call records all iterations that it can."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Optional

from .scopes import Scope
from .straight import ARGUMENT, Block, Slot


def body(scope: Scope, node: ast.For) -> Optional[Block]:
    """The block that the body of a loop is; None if it is none."""
    names = list(_names(node.target))
    if not _binds_names(node.target) or len(set(names)) < len(names):
        return None
    block = Block(scope)
    if not all(block.take(s) for s in node.body) or block.returned is not None:
        return None
    later = (append.code.id in scope.appends for append in block.appends if isinstance(append.code, ast.Name))
    return None if any(later) else block


def _names(target: ast.AST) -> Iterator[str]:
    return (n.id for n in ast.walk(target) if isinstance(n, ast.Name))


def _binds_names(target: ast.expr) -> bool:
    if isinstance(target, (ast.Tuple, ast.List)):
        return bool(target.elts) and all(map(_binds_names, target.elts))
    return isinstance(target, ast.Name)


class Bound:
    """What a loop binds anew in each iteration.

    Attributes:
        left: names of its target that are read after the loop.
        added: those that the block itself does not read, which are arguments after its own.
    """

    def __init__(self, scope: Scope, node: ast.For, block: Block) -> None:
        self.target = node.target
        self.block = block
        inside = {n for part in (node.target, *node.body) for n in ast.walk(part)}
        self.left = [
            name
            for name in _names(node.target)
            if name not in block.env and any(n not in inside for n in scope.names[name])
        ]
        self.added = [name for name in self.left if ("name", name) not in block.known]

    def spec(self, names: list[str], number: dict[Slot, int]) -> tuple[Any, ...]:
        """`names`: those that the block leaves behind; `number`: of its slots."""
        arguments = {key[1]: number[s] for key, s in self.block.known.items() if s.kind == ARGUMENT}
        arguments.update({name: len(arguments) + i for i, name in enumerate(self.added)})
        carried = tuple(map(arguments.get, names))
        left = tuple(arguments[name] for name in self.left)
        appended = tuple(number[append.to] for append in self.block.appends)
        return _target(self.target, arguments), len(self.added), left, carried, appended


def _target(target: ast.expr, arguments: dict[str, int]) -> Any:
    if isinstance(target, (ast.Tuple, ast.List)):
        return tuple(_target(t, arguments) for t in target.elts)
    return arguments.get(target.id)  # type: ignore[attr-defined]
