"""What the abstract interpreter has found, per node of the syntax tree, over all calls of each function."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .lattice import EMPTY, Value, join

# ("func", id), ("op", name), ("dy", name), ("ext", name), ("class", id), ("method", "tag.name"), ("?", why)
CallTarget = tuple[str, Any]


@dataclass
class Facts:
    """Tables by node.

    Attributes:
        values: what each expression may be.
        ops: places that record an op -> its name.
        reads: value() and the like -> the method.
        targets: calls, and attributes that are properties -> what is called.
        writes: stores to attributes and items -> the object that changes.
        callers: function -> the nodes that call it.
    """

    values: dict[ast.AST, Value] = field(default_factory=dict)
    ops: dict[ast.AST, str] = field(default_factory=dict)
    reads: dict[ast.AST, str] = field(default_factory=dict)
    targets: dict[ast.AST, set[CallTarget]] = field(default_factory=dict)
    writes: dict[ast.AST, Value] = field(default_factory=dict)
    callers: dict[int, set[ast.AST]] = field(default_factory=dict)

    # ---- what the interpreter adds

    def note_value(self, node: ast.AST, value: Value) -> None:
        if value:
            old = self.values.get(node)
            self.values[node] = value if old is None else join(old, value)

    def note_op(self, node: ast.AST, name: str) -> None:
        self.ops.setdefault(node, name)

    def note_target(self, node: ast.AST, target: CallTarget) -> None:
        self.targets.setdefault(node, set()).add(target)
        if target[0] == "func":
            self.callers.setdefault(target[1], set()).add(node)

    def note_write(self, node: ast.AST, changed: Value) -> None:
        self.writes[node] = join(self.writes.get(node, EMPTY), changed)

    # ---- what is asked

    def value(self, node: ast.AST) -> Value:
        return self.values.get(node, EMPTY)

    def target(self, node: ast.AST) -> list[CallTarget]:
        """What a node calls, in an order that is the same in each run."""
        return sorted(self.targets.get(node, ()), key=repr)

    def callees(self, node: ast.AST) -> list[int]:
        """The script's functions that a node may call."""
        return sorted(what for kind, what in self.targets.get(node, ()) if kind == "func")

    def calls(self, node: ast.AST, *targets: CallTarget) -> bool:
        """Whether a node may call one of these."""
        found = self.targets.get(node)
        return found is not None and not found.isdisjoint(targets)

    def calls_in(self, nodes: Iterable[ast.AST], *targets: CallTarget) -> Iterator[ast.AST]:
        """The nodes that may call one of these."""
        return (node for node in nodes if self.calls(node, *targets))
