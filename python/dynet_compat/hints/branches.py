"""Pass 8: branches that decide what is recorded, and places where numbers are read from the graph."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from .analysis import lattice as lat
from .analysis.callgraph import CallGraph
from .analysis.interpreter import Analysis
from .analysis.lattice import EMPTY
from .analysis.loops import Loops

TENSOR, STRUCTURE = "tensor", "structure"
SPLITTING = frozenset({"If", "IfExp", "Try", "TryStar", "Match"})
MAX_OPS = 1_000_000


@dataclass
class Branch:
    """An if, elif, while, conditional expression or match.

    kind is "tensor" when the test may depend on numbers read from the graph, else "structure".
    arms: how many ops each arm records; None where that is not one number.
    """

    node: ast.AST
    kind: str
    arms: list[Optional[int]]


class Branches:
    """All branches that record ops, or whose test depends on tensors."""

    def __init__(self, analysis: Analysis, graph: CallGraph, loops: Loops) -> None:
        self.program = analysis.program
        self.facts = analysis.facts
        self.graph = graph
        self.loops = loops
        self._before = [0]  # recording nodes before each node number
        for node in self.program.nodes:
            self._before.append(self._before[-1] + loops.records([node]))
        self._counts: dict[int, Optional[int]] = {}
        for function in graph.order():  # callees first
            self._counts[function] = self._count_function(function)
        self.all = [b for b in (self._branch(n) for n in self.program.nodes[1:]) if b is not None]
        self.reads = sorted(self.facts.reads, key=self.program.uid.__getitem__)

    def ops_of(self, function: int) -> Optional[int]:
        """How many ops a call records; None: it depends."""
        return self._counts.get(function)

    def _branch(self, node: ast.AST) -> Optional[Branch]:
        arms: list[Sequence[ast.AST]]
        if isinstance(node, (ast.If, ast.IfExp)):
            test: ast.AST = node.test
            if isinstance(node, ast.If):
                arms = [node.body, node.orelse]
            else:
                arms = [[node.body], [node.orelse]]
        elif isinstance(node, ast.While):
            test, arms = node.test, [node.body]
        elif type(node).__name__ == "Match":
            whole: Any = node
            test, arms = whole.subject, [case.body for case in whole.cases]
        else:
            return None
        counts = [self.count(arm) for arm in arms]
        read = lat.was_read(self.facts.values.get(test, EMPTY))
        owner = self.program.owner[node]
        if not any(count != 0 for count in counts) and not (read and self._records_here(owner)):
            return None
        if isinstance(node, ast.While) or any(_leaves(arm) for arm in arms):
            counts = [None] * len(arms)
        return Branch(node, TENSOR if read else STRUCTURE, counts)

    def _records_here(self, function: int) -> bool:
        """Whether leaving a loop early, say, can matter to what is recorded."""
        return self.loops.is_recorder(function) or self.program.functions[function].is_module

    def _count_function(self, function: int) -> Optional[int]:
        if not self.loops.is_recorder(function):
            return 0
        if function in self.graph.recursive:
            return None
        body: Any = self.program.functions[function].node.body
        return self.count(body if isinstance(body, list) else [body])

    def count(self, nodes: Sequence[ast.AST]) -> Optional[int]:
        """Ops that code records; None when that depends on loops, recursion or branches of unequal arms."""
        total = 0
        stack: list[ast.AST] = list(nodes)
        while stack:
            node = stack.pop()
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                continue  # not run here
            if node in self.program.loop_of or type(node).__name__ in SPLITTING:
                if self._any(node):
                    return None
                continue
            total += node in self.facts.ops
            for kind, what in self.facts.targets.get(node, ()):
                if kind == "func":
                    inner = self._counts.get(what)
                    if inner is None:
                        return None
                    total += inner
            if total > MAX_OPS:
                return None
            stack.extend(ast.iter_child_nodes(node))
        return total

    def _any(self, node: ast.AST) -> bool:
        """Whether code may record anything."""
        uid = self.program.uid[node]
        return self._before[self.program.end[uid]] > self._before[uid]


def _leaves(arm: Sequence[ast.AST]) -> bool:
    """Whether code may go on elsewhere than after the branch."""
    leaving = (ast.Return, ast.Break, ast.Continue, ast.Raise)
    stack = list(arm)
    while stack:
        node = stack.pop()
        if isinstance(node, leaving):
            return True
        if isinstance(node, ast.If):
            stack += [*node.body, *node.orelse]
        elif isinstance(node, (ast.With, ast.Try)):
            stack += node.body
    return False
