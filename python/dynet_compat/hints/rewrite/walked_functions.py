"""Functions that the core records by one call: which of them ask it first, and the programs of all."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Optional

from . import programs
from .call_graph import CallGraph
from .linking import ONLY_REMEMBERED, UNBOUND
from .recording import is_recording_name
from .region_writer import RegionWriter
from .scopes import Module
from .trees import KNOWS_NO_PLACE, locate, nodes_of, own_nodes, passed_on, without_place

# Names of what computes values or starts a graph, as the API and scripts call it: no walk goes past it.
_COMPUTES = frozenset(
    "backward inc_forward npforward npvalue print renew_cg scalar_value value vec_value".split()
)


class WalkedFunctions:
    """The programs of one module.

    Args:
        writer: which has found the regions.

    Attributes:
        described: qualified name, node and program of each function, and its name among the heads or "".
    """

    def __init__(self, module: Module, graph: CallGraph, writer: RegionWriter) -> None:
        self.module, self.graph, self.writer = module, graph, writer
        self.described: list[tuple[str, ast.FunctionDef, programs.Program, str]] = []

    def _may_be_head(self, node: ast.FunctionDef) -> bool:
        """May the function ask the core to record it by one call? Recursive ones may, and those with loops or
        calls of functions with loops, but for functions that always compute: a walk of them would end there,
        and all its work be lost."""
        if self._is_walked_always(node):
            return True
        reached = (node, *self.graph.named[node])
        loops = not self.writer.with_loops.keys().isdisjoint(reached) or any(
            isinstance(n, ast.ListComp) for f in reached for n in self.module.own_nodes(f)
        )
        return loops and not self._computes(node)

    def _records_in_loops(self, node: ast.FunctionDef) -> bool:
        """Does it call an op in a loop? A single op is no region, but a walk records the loop."""
        loops = [n for n in self.module.own_nodes(node) if isinstance(n, (ast.ListComp, ast.For, ast.While))]
        return any(is_recording_name(name) for loop in loops for name in _called(ast.walk(loop)))

    def _is_walked_always(self, node: ast.FunctionDef) -> bool:
        """Is it walked with any arguments? Others are walked only where their arguments come again, to be
        remembered: where a walk makes the steps of a sequence one by one, or what is called has the loops,
        statements and regions are as fast."""
        if node in self.graph.recursive or node not in self.writer.with_loops:
            return node in self.graph.recursive
        of_states = any(self.writer.with_loops.get(f) for f in (node, *self.graph.called[node]))
        return not of_states and not self._computes(node)

    def _computes(self, node: ast.FunctionDef) -> bool:
        """Is there such a call in a statement that always runs, of no function of the module?"""
        for s in node.body[_begun(node) :]:
            inside = nodes_of(s)
            if isinstance(s, (ast.Assign, ast.Expr, ast.Return)):
                if _called(inside) & _COMPUTES - {f.name for f in self.graph.called}:
                    return True
            elif any(isinstance(n, ast.Return) for n in inside):
                return False
        return False

    def describe(self, wanted: dict[ast.FunctionDef, str]) -> None:
        """Describe functions to the core: heads, which ask it first and have regions in them or in what they
        may call, and all that these may call."""
        called_by = self.graph.called
        placed = {f for f in wanted if f in self.writer.placed or self._records_in_loops(f)}
        heads = [f for f in wanted if not placed.isdisjoint((f, *called_by[f])) and self._may_be_head(f)]
        found = {f: self._program(wanted[f], f) for f in heads}
        called = {callee for head in heads if found[head] for callee in called_by[head]}
        found |= {f: self._program(wanted[f], f) for f in wanted if f in called and f not in found}
        placed = {f for f in placed if found.get(f)}
        heads = [f for f in heads if found[f] and not placed.isdisjoint((f, *called_by[f]))]
        walked = {f for head in heads for f in (head, *called_by[head])}
        for node, program in found.items():
            if program is not None and node in walked:
                kind = "\0function" if self._is_walked_always(node) else ONLY_REMEMBERED
                head = f"{kind} {len(self.described)}" if node in heads else ""
                self.described.append((wanted[node], node, program, head))

    def _program(self, qualname: str, node: ast.FunctionDef) -> Optional[programs.Program]:
        free = programs.free_names(self.module, qualname, node)
        try:
            return programs.Program(node, free, self.writer.placed.get(node, {}), _begun(node))
        except programs.NotWalkable:
            return None

    def insert_heads(self) -> set[int]:
        """Let heads ask the core first; the lines of these functions."""
        changed = set()
        for _, node, program, head in self.described:
            if head:
                changed.add(node.lineno)
                after = _begun(node) or ast.get_docstring(node, clean=False) is not None
                new = programs.head(head, program, UNBOUND)
                node.body[after:after] = [locate(s, node.body[0]) for s in new]
        return changed

    def pass_on_results(self) -> None:
        """Let the object that a head asks first see that its statements have run. This call needs no level of
        recursion and cannot fail. Done last, as others look for calls in what functions return."""
        for _, node, _, head in self.described:
            if head:
                _pass_on_results(node, head)


def _called(nodes: Iterable[ast.AST]) -> set[str]:
    """Names of the functions and methods that these call."""
    functions = [n.func for n in nodes if isinstance(n, ast.Call)]
    return {getattr(f, "attr", getattr(f, "id", "")) for f in functions}


def _begun(node: ast.FunctionDef) -> int:
    """How many statements the function begins with that start a graph, with its docstring; 0: none. They run
    before the core is asked."""
    first = n = int(ast.get_docstring(node, clean=False) is not None)
    while n < len(node.body) and _starts_graph(node.body[n]):
        n += 1
    return n if n > first else 0


def _starts_graph(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return False
    values = [*call.args, *(k.value for k in call.keywords)]
    return _called([call]) == {"renew_cg"} and all(isinstance(value, ast.Constant) for value in values)


def _pass_on_results(node: ast.FunctionDef, head: str) -> None:
    def result(value: Optional[ast.expr]) -> ast.Call:
        return passed_on(head, "result", value or ast.Constant(None))

    for returned in {n for n in own_nodes(node) if isinstance(n, ast.Return)}:
        if isinstance(returned.value, ast.Name) and returned.value.id == programs.WHOLE:
            continue
        returned.value = locate(result(returned.value), returned)
    if KNOWS_NO_PLACE and not isinstance(node.body[-1], (ast.Return, ast.Raise)):
        node.body.append(without_place(ast.Return(result(None))))
