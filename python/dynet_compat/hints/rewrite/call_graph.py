"""Which functions of a module call which, as far as names show."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from .recording import is_recording_name
from .scopes import Module
from .trees import functions


class CallGraph:
    """
    Attributes:
        called: for each function all that it may call, directly or not.
        named: of these, what it may call by their names.
        recursive: functions that may call themselves.
        reached: all that these may call.
    """

    def __init__(self, module: Module) -> None:
        by_name: dict[str, list[ast.FunctionDef]] = {}
        for _, node, _ in functions(module.tree):
            by_name.setdefault(node.name, []).append(node)
        nodes = {f: module.own_nodes(f) for same in by_name.values() for f in same}
        self.called = _reached({f: _called(n, by_name) for f, n in nodes.items()}, by_name)
        self.named = _reached({f: _names(n) & by_name.keys() for f, n in nodes.items()}, by_name)
        self.recursive = {f for f, called in self.called.items() if f in called}
        self.reached = {f for head in self.recursive for f in self.called[head]}


_ByName = Mapping[str, list[ast.FunctionDef]]


def _reached(
    calls: dict[ast.FunctionDef, set[str]], by_name: _ByName
) -> dict[ast.FunctionDef, set[ast.FunctionDef]]:
    """For each function all that it calls, directly or not."""
    reached = {}
    for node in calls:
        seen: set[str] = set()
        todo = list(calls[node])
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += [n for f in by_name[name] for n in calls[f]]
        reached[node] = {f for name in seen for f in by_name[name]}
    return reached


def _names(nodes: list[ast.AST]) -> set[str]:
    """The last names of what is called."""
    called = [n.func for n in nodes if isinstance(n, ast.Call)]
    return {f.id if isinstance(f, ast.Name) else getattr(f, "attr", "") for f in called}


def _called(nodes: list[ast.AST], known: Mapping[str, Any]) -> set[str]:
    """The known ones of these names; what else is called may be objects."""
    names = _names(nodes)
    others = any(name not in known and not is_recording_name(name) for name in names)
    return (names | ({"__call__"} if others else set())) & known.keys()
