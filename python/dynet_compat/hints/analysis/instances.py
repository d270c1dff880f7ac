"""The loop over the instances of a minibatch.

From backward() (or, without training, from what reads values) back through sums to the loop whose iterations
produce the summands. Where there is none, the loop that begins a graph for every instance.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Optional

from . import api
from .loops import GRAPH, MAP, Loops
from .scopes import COMPREHENSIONS, Function, Loop
from .state import AnalysisState

BATCH, ONLINE = "batch", "online"
MAX_SEEN = 2000  # expressions of one search
MAX_CALLERS = 8  # functions to leave in search of a loop


@dataclass(frozen=True)
class InstanceLoop:
    """A loop over instances: of one graph ("batch"), or with a graph for each ("online")."""

    loop: Loop
    kind: str
    training: bool


class Instances:
    """The loops over instances that end in backward(), then those that end in reads."""

    def __init__(self, state: AnalysisState, loops: Loops) -> None:
        self.program = state.program
        self.facts = state.facts
        self.loops = loops
        self.all: list[InstanceLoop] = []
        backward = (("method", "expr.backward"), ("method", "param.backward"))
        for node in self._sorted(self.facts.calls_in(self.facts.targets, *backward)):
            if isinstance(node, ast.Call):
                self._add(node, training=True)
        for node in self._sorted(self.facts.reads):
            self._add(node, training=False)

    def _sorted(self, nodes: Iterable[ast.AST]) -> list[ast.AST]:
        """In the order of the text."""
        return sorted(nodes, key=self.program.uid.__getitem__)

    def _add(self, node: ast.AST, training: bool) -> None:
        """Finds the loop that made what is computed at a node."""
        function, value = self.program.functions[self.program.owner[node]], _receiver(node)
        loop, kind = (None if value is None else _Sources(self).find(value, function)), BATCH
        if loop is None and training:
            loop = self._with_graphs(node)
            if loop is not None and any(self.facts.calls_in(self.loops.sure(loop), ("dy", "renew_cg"))):
                kind = ONLINE
        if loop is not None and all(known.loop is not loop for known in self.all):
            self.all.append(InstanceLoop(loop, kind, training))

    def _with_graphs(self, node: ast.AST) -> Optional[Loop]:
        """The innermost loop around that begins graphs; or around the call of a function that does.

        With a graph in each iteration it is "online"; where graphs begin now and then, one holds a minibatch.
        """
        for _ in range(MAX_CALLERS):
            for index in reversed(self.program.loops_around.get(node, ())):
                facts = self.loops.found.get(index)
                if facts is not None and facts.kind == GRAPH:
                    return facts.loop
            function = self.program.functions[self.program.owner[node]]
            callers = self._sorted(self.facts.callers.get(function.id, ()))
            if not callers or self._has_graphs(function):
                return None
            node = callers[0]
        return None

    def _has_graphs(self, function: Function) -> bool:
        """Whether a loop of the function begins graphs: then it works for no loop of its callers."""
        return any(f.kind == GRAPH and f.loop.function == function.id for f in self.loops.found.values())

    def is_over_instances(self, loop: Loop) -> bool:
        """Whether iterations are independent of recorded values, and end in a loss or begin with a lookup."""
        facts = self.loops.found.get(loop.id)
        if facts is None or facts.kind != MAP or loop.form == "while":
            return False
        if any(self.loops.holds_tensor(self.facts.value(iterable)) for iterable in loop.iterables):
            return False
        nodes = self.loops.everything(loop)
        names = {self.facts.ops[node] for node in nodes if node in self.facts.ops}
        return len(names) > 1 and not names.isdisjoint(api.INPUT_OPS | {"lookup", "lookup_batch"})


def _receiver(node: ast.AST) -> Optional[ast.AST]:
    """The Expression that a call computes: its receiver, or its argument."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and not node.args:
            return node.func.value
        return node.args[0] if node.args else None
    return None


class _Sources:
    """Backwards from a value to the loop that made its summands."""

    def __init__(self, instances: Instances) -> None:
        self.i = instances
        self.program = instances.program
        self.facts = instances.facts
        self.seen: set[tuple[ast.AST, int]] = set()
        self.calls: dict[int, ast.Call] = {}  # function -> the call that was followed into it

    def find(self, node: ast.AST, function: Function) -> Optional[Loop]:
        """The first in depth-first order, so the outermost. Its own stack: sums may be nested deeply."""
        stack: list[tuple[ast.AST, Function]] = [(node, function)]
        while stack:
            at, inside = stack.pop()
            if (at, inside.id) in self.seen or len(self.seen) > MAX_SEEN:
                continue
            self.seen.add((at, inside.id))
            if isinstance(at, COMPREHENSIONS):
                loop = self.program.loops[self.program.loop_of[at]]
                if self.i.is_over_instances(loop):
                    return loop
                stack += [(part, inside) for part in [*reversed(loop.iterables), loop.results[-1]]]
                continue
            if isinstance(at, ast.Name):
                found, sources = self._name(at.id, inside)
                if found is not None:
                    return found
            else:
                sources = self._sources(at, inside)
            stack.extend(reversed(sources))
        return None

    def _sources(self, node: ast.AST, function: Function) -> list[tuple[ast.AST, Function]]:
        """Where an expression's value comes from."""
        parts: list[Any] = []
        if isinstance(node, ast.BinOp):
            parts = [node.left, node.right]
        elif isinstance(node, (ast.UnaryOp, ast.Subscript, ast.Starred)):
            parts = [node.operand if isinstance(node, ast.UnaryOp) else node.value]
        elif isinstance(node, (ast.List, ast.Tuple)):
            parts = list(node.elts)
        elif isinstance(node, ast.IfExp):
            parts = [node.body, node.orelse]
        elif isinstance(node, ast.Call):
            for kind, what in self.facts.target(node):
                if kind == "func":
                    return self._returned(node, what)
            parts = [*node.args, *[k.value for k in node.keywords]]
        return [(part, function) for part in parts]

    def _returned(self, call: ast.Call, function: int) -> list[tuple[ast.AST, Function]]:
        self.calls.setdefault(function, call)
        callee = self.program.functions[function]
        if isinstance(callee.node, ast.Lambda):
            return [(callee.node.body, callee)]
        returns = [n for n in self.program.body_nodes(callee) if isinstance(n, (ast.Return, ast.Yield))]
        return [(r.value, callee) for r in returns if r.value is not None]

    def _name(self, name: str, function: Function) -> tuple[Optional[Loop], list[tuple[ast.AST, Function]]]:
        """Assignments of a name; a loop that appends or adds to it may be the one looked for."""
        sources: list[tuple[ast.AST, Function]] = []
        around: tuple[int, ...] = ()
        growing: list[ast.AST] = []
        for node in self.program.body_nodes(function):
            if isinstance(node, ast.Assign) and any(_binds(target, name) for target in node.targets):
                if _mentions(node.value, name):
                    growing.append(node)
                else:
                    around = self.program.loops_around.get(node, ())
                sources.append((node.value, function))
            elif isinstance(node, ast.AugAssign) and _binds(node.target, name):
                growing.append(node)
                sources.append((node.value, function))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr in ("append", "extend") and _binds(node.func.value, name):
                    growing.append(node)
                    sources += [(argument, function) for argument in node.args]
        for node in growing:
            for index in self.program.loops_around.get(node, ()):
                loop = self.program.loops[index]
                if index not in around and self.i.is_over_instances(loop):
                    return loop, []
        if name in function.positional():
            for call in self._calls_into(function):
                sources += self._argument(call, name, function)
        return None, sources

    def _calls_into(self, function: Function) -> list[ast.Call]:
        """The call that was followed into the function; all, where the search begins in a helper."""
        if function.id in self.calls:
            return [self.calls[function.id]]
        callers = sorted(self.facts.callers.get(function.id, ()), key=self.program.uid.__getitem__)
        return [call for call in callers if isinstance(call, ast.Call)]

    def _argument(self, call: ast.Call, name: str, function: Function) -> list[tuple[ast.AST, Function]]:
        caller = self.program.functions[self.program.owner[call]]
        index = function.positional().index(name)
        if function.cls is not None and len(call.args) < len(function.positional()):
            index -= 1
        given = [k.value for k in call.keywords if k.arg == name]
        if 0 <= index < len(call.args):
            given.append(call.args[index])
        return [(argument, caller) for argument in given]


def _binds(target: ast.AST, name: str) -> bool:
    if isinstance(target, (ast.Tuple, ast.List)):
        return any(_binds(element, name) for element in target.elts)
    return isinstance(target, ast.Name) and target.id == name


def _mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(inner, ast.Name) and inner.id == name for inner in ast.walk(node))
