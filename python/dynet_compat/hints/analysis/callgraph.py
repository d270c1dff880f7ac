"""Which function calls which, and which call themselves.

Targets of calls come from the interpreter, so that methods are found by the class of their object.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from .scopes import Function
from .state import AnalysisState


class CallGraph:
    """Calls between the functions of the program."""

    def __init__(self, state: AnalysisState) -> None:
        program, self.facts = state.program, state.facts
        self._n_functions = len(program.functions)
        # function -> its calls, in the order of the text
        self.calls: dict[int, list[tuple[ast.AST, int]]] = {}
        for node in sorted(self.facts.targets, key=program.uid.__getitem__):
            owner = program.owner.get(node)
            if owner is not None:
                for callee in self.facts.callees(node):
                    self.calls.setdefault(owner, []).append((node, callee))
        self.component = self._components()
        sizes: dict[int, int] = {}
        for number in self.component.values():
            sizes[number] = sizes.get(number, 0) + 1
        self.recursive = {
            f for f, number in self.component.items()
            if sizes[number] > 1 or any(callee == f for _, callee in self.calls.get(f, ()))
        }  # fmt: skip

    def callees(self, function: int) -> list[int]:
        return sorted({callee for _, callee in self.calls.get(function, ())})

    def reachable(self, start: Iterable[int]) -> set[int]:
        """The functions that calls lead to, those at the start included."""
        seen = set(start)
        stack = list(seen)
        while stack:
            for callee in self.callees(stack.pop()):
                if callee not in seen:
                    seen.add(callee)
                    stack.append(callee)
        return seen

    def called_from(self, nodes: Iterable[ast.AST]) -> set[int]:
        """Functions that code may call, directly or not."""
        return self.reachable(callee for node in nodes for callee in self.facts.callees(node))

    def order(self) -> list[int]:
        """All functions, callees before their callers where there is no recursion."""
        return sorted(self.component, key=lambda f: (self.component[f], f))

    def _components(self) -> dict[int, int]:
        """Strongly connected components, numbered callees first (Tarjan's algorithm with its own stack)."""
        index: dict[int, int] = {}
        low: dict[int, int] = {}
        component: dict[int, int] = {}
        stack: list[int] = []
        for root in range(self._n_functions):
            if root in index:
                continue
            index[root] = low[root] = len(index)
            stack.append(root)
            frames = [(root, iter(self.callees(root)))]
            while frames:
                at, callees = frames[-1]
                for callee in callees:
                    if callee not in index:
                        index[callee] = low[callee] = len(index)
                        stack.append(callee)
                        frames.append((callee, iter(self.callees(callee))))
                        break
                    if callee not in component:
                        low[at] = min(low[at], index[callee])
                else:
                    frames.pop()
                    if frames:
                        low[frames[-1][0]] = min(low[frames[-1][0]], low[at])
                    if low[at] == index[at]:
                        number = len(set(component.values()))
                        while True:
                            function = stack.pop()
                            component[function] = number
                            if function == at:
                                break
        return component

    # ---- recursion

    def siblings(self, function: Function) -> list[list[ast.AST]]:
        """Groups of recursive calls in one body that do not use each other's results.

        Such calls are concurrent: subtrees of a tree, for instance.
        """
        if function.id not in self.recursive:
            return []
        calls = [
            n for n, f in self.calls.get(function.id, ()) if self.component[f] == self.component[function.id]
        ]
        names = _results(function, calls)
        groups: list[list[ast.AST]] = []
        for call in calls:
            for group in groups:
                if all(not _uses(call, other, names) and not _uses(other, call, names) for other in group):
                    group.append(call)
                    break
            else:
                groups.append([call])
        return [group for group in groups if len(group) > 1]


def _results(function: Function, calls: list[ast.AST]) -> dict[ast.AST, set[str]]:
    """Names that hold something of a call's result, by assignment, in any order."""
    names: dict[ast.AST, set[str]] = {call: set() for call in calls}
    assignments: list[tuple[set[ast.AST], set[str], set[str]]] = []
    for node in ast.walk(function.node):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and node.value is not None:
            inside = set(ast.walk(node))
            stored = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            loaded = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
            assignments.append((inside, stored, loaded))
    for call in calls:
        changed = True
        while changed:
            changed = False
            for inside, stored, loaded in assignments:
                if (call in inside or loaded & names[call]) and not stored <= names[call]:
                    names[call] |= stored
                    changed = True
    return names


def _uses(call: Any, other: ast.AST, names: dict[ast.AST, set[str]]) -> bool:
    """Whether an argument of a call may come from another call's result."""
    for argument in [*call.args, *[k.value for k in call.keywords]] if isinstance(call, ast.Call) else []:
        for node in ast.walk(argument):
            if node is other or (isinstance(node, ast.Name) and node.id in names[other]):
                return True
    return False
