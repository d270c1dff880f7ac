"""Loops that record ops, and what they carry from one iteration to the next."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Callable, Optional

from . import api
from . import lattice as lat
from .callgraph import CallGraph
from .lattice import Atom, Value
from .liveness import Liveness, sure_nodes
from .scopes import Loop, receiver_of, text_of
from .state import AnalysisState

RECURRENCE, MAP, GRAPH = "recurrence", "map", "graph"
# Methods that put something into a container and give nothing back.
FILLING = frozenset({"append", "extend", "insert", "add", "appendleft", "extendleft", "update", "setdefault"})
Attribute = tuple[int, str]


@dataclass
class LoopFacts:
    """What is known of one loop.

    kind is "recurrence" (something recorded in one iteration is used in the next), "map" (nothing is), or
    "graph" (graphs begin in its iterations).
    """

    loop: Loop
    kind: str
    carried: list[str] = field(default_factory=list)


class Loops:
    """All loops that record ops."""

    def __init__(self, state: AnalysisState, graph: CallGraph) -> None:
        self.heap = state.heap
        self.program = state.program
        self.facts = state.facts
        self.graph = graph
        self._bodies: dict[int, list[ast.AST]] = {}
        for node in self.program.nodes[1:]:
            for index in self.program.loops_around.get(node, ()):
                self._bodies.setdefault(index, []).append(node)
        self._exposed: dict[int, set[Attribute]] = {}
        self._written: dict[int, set[Attribute]] = {}
        self._find_attributes()
        self._records = self._functions_that(lambda node: node in self.facts.ops)
        self._renews = self._functions_that(self._is_renew)
        self._deep: dict[Value, bool] = {}
        self.found: dict[int, LoopFacts] = {}
        for loop in self.program.loops:
            facts = self._examine(loop)
            if facts is not None:
                self.found[loop.id] = facts

    # ---- what a loop runs

    def body(self, loop: Loop) -> list[ast.AST]:
        """Nodes that run in each iteration, those of called functions left out."""
        return self._bodies.get(loop.id, [])

    def called(self, loop: Loop) -> set[int]:
        """Functions that the loop may call, directly or not."""
        return self.graph.called_from(self.body(loop))

    def everything(self, loop: Loop) -> list[ast.AST]:
        """Nodes that may run in an iteration, those of called functions too."""
        nodes = list(self.body(loop))
        for function in sorted(self.called(loop)):
            nodes += self.program.body_nodes(self.program.functions[function])
        return nodes

    def sure(self, loop: Loop) -> list[ast.AST]:
        """Nodes that run in every iteration, those of functions that are surely called among them."""
        node: Any = loop.node
        found: list[ast.AST] = []
        seen: set[int] = set()
        stack = [loop.results if loop.form == "comprehension" else node.body]
        while stack:
            for inner in sure_nodes(stack.pop()):
                found.append(inner)
                functions = self.facts.callees(inner)
                only = len(functions) == len(self.facts.targets.get(inner, ())) == 1
                if only and functions[0] not in seen:
                    seen.add(functions[0])
                    stack.append(self.program.functions[functions[0]].statements)
        return found

    def _is_renew(self, node: ast.AST) -> bool:
        return self.facts.calls(node, ("dy", "renew_cg"))

    def is_recorder(self, function: int) -> bool:
        """Whether a function records ops, directly or by calls."""
        return function in self._records

    def _functions_that(self, test: Callable[[ast.AST], bool]) -> set[int]:
        """Functions whose body has a node that passes the test, and everything that calls them."""
        nodes = [*self.facts.ops, *self.facts.targets]
        found = {self.program.owner[node] for node in nodes if node in self.program.owner and test(node)}
        callers: dict[int, set[int]] = {}
        for function, calls in self.graph.calls.items():
            for _, callee in calls:
                callers.setdefault(callee, set()).add(function)
        stack = list(found)
        while stack:
            for caller in callers.get(stack.pop(), ()):
                if caller not in found:
                    found.add(caller)
                    stack.append(caller)
        return {f for f in found if not self.program.functions[f].is_module}

    # ---- one loop

    def _examine(self, loop: Loop) -> Optional[LoopFacts]:
        nodes = self.body(loop)
        called = {callee for node in nodes for callee in self.facts.callees(node)}
        if called.isdisjoint(self._records) and not any(node in self.facts.ops for node in nodes):
            return None
        if not called.isdisjoint(self._renews) or any(self._is_renew(node) for node in nodes):
            return LoopFacts(loop, GRAPH)
        facts = LoopFacts(loop, MAP)
        facts.carried += self._carried_names(loop)
        facts.carried += self._carried_containers(loop)
        facts.carried += self._carried_attributes(loop)
        if not facts.carried and loop.form == "while" and self._changes_unknown(nodes):
            facts.carried = ["something unknown"]
        if facts.carried:
            facts.kind = RECURRENCE
        facts.carried = sorted(set(facts.carried))
        return facts

    def _changes_unknown(self, nodes: Iterable[ast.AST]) -> bool:
        """Whether code changes objects of which nothing is known: a `while` loop may carry things in them."""
        for node in nodes:
            changed = self.facts.writes.get(node, lat.EMPTY)
            if any((lat.ANY,) in part for atom in changed for part in self._parts(atom)):
                return True
            if (lat.ANY,) in changed:
                return True
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                unknown = (lat.ANY,) in self.facts.value(node.func.value)
                if unknown and node.func.attr in api.MUTATORS:
                    return True
        return False

    def _carried_names(self, loop: Loop) -> list[str]:
        """Names that an iteration reads before it assigns them, and that hold tensors."""
        node: Any = loop.node
        if loop.form == "comprehension":
            return []
        names = Liveness()
        if loop.form == "for":
            names.target(node.target)
        else:
            names.expression(node.test)
        names.block(node.body)
        return [
            name
            for name in sorted(set(names.exposed) & names.assigned)
            if any(self.holds_tensor(self.facts.value(node)) for node in names.exposed[name])
            and not is_sum(name, node.body, names)
        ]

    def _carried_containers(self, loop: Loop) -> list[str]:
        """Lists and tables from outside that iterations both change and look into."""
        inside, nodes = self.called(loop), self.everything(loop)
        changed: dict[Atom, set[str]] = {}
        skip: set[ast.AST] = set()
        for node in nodes:
            for atom in self.facts.writes.get(node, ()):
                if atom[0] != lat.OBJECT or not self.holds_tensor(frozenset({atom})):
                    continue
                if not self._made_inside(atom, loop, inside):
                    changed.setdefault(atom, set()).add(text_of(receiver_of(node)))
            for part in _unused_receivers(node):
                skip.add(part)
        values = (self.facts.value(node) for node in self.body(loop))
        seen = frozenset(atom for value in values for atom in value if atom in changed)
        kept = self._kept & frozenset(changed)
        changed = {atom: names for atom, names in changed.items() if atom in seen or atom in kept}
        if not changed:
            return []
        read: set[Atom] = set()
        for node in nodes:
            if node not in skip and not isinstance(getattr(node, "ctx", None), ast.Store):
                read |= self.facts.value(node) & set(changed)
        return sorted(min(changed[atom]) for atom in read)

    @cached_property
    def _kept(self) -> frozenset[Atom]:
        """Containers that attributes or variables of outer functions hold, which any function may reach."""
        cells = (cell.value for key, cell in self.heap.cells.items() if key[0] in ("attr", "class", "var"))
        return frozenset(atom for value in cells for atom in value if atom[0] == lat.OBJECT)

    def _made_inside(self, atom: Atom, loop: Loop, inside: set[int]) -> bool:
        maker = self.program.nodes[atom[1][1]]
        owner = self.program.owner.get(maker)
        if owner == loop.function and loop.id in self.program.loops_around.get(maker, ()):
            return True
        return owner in inside and owner != loop.function

    def _carried_attributes(self, loop: Loop) -> list[str]:
        """Attributes such as self.state that iterations read first and write later."""
        exposed, written = self._attribute_flow(self.body(loop))
        return [
            f"{self.program.classes[cls].qualname}.{name}"
            for cls, name in sorted(exposed & written)
            if self.holds_tensor(self.heap.cell("attr", cls, name).value)
        ]

    # ---- attributes

    def _find_attributes(self) -> None:
        """Per function, with everything it calls: attributes read before they are written; those written."""
        for function in self.graph.order():
            nodes = list(self.program.body_nodes(self.program.functions[function]))
            exposed, written = self._attribute_flow(nodes)
            if self.program.functions[function].name == "__init__":
                exposed, written = set(), set()  # of an object that nothing else has yet
            self._exposed[function], self._written[function] = exposed, written

    def _attribute_flow(self, nodes: Iterable[ast.AST]) -> tuple[set[Attribute], set[Attribute]]:
        exposed: set[Attribute] = set()
        written: set[Attribute] = set()
        pending: set[Attribute] = set()  # written by this statement, after everything it reads
        for node in nodes:
            if isinstance(node, ast.stmt):
                written |= pending
                pending = set()
            if isinstance(node, ast.Attribute):
                receiver = self.facts.value(node.value)
                places = {(a[1], node.attr) for a in receiver if a[0] == lat.INSTANCE}
                if isinstance(node.ctx, ast.Load):
                    exposed |= places - written
                else:
                    pending |= places
            for callee in self.facts.callees(node):
                exposed |= self._exposed.get(callee, set()) - written
                pending |= self._written.get(callee, set())
        return exposed, written | pending

    # ---- values

    def holds_tensor(self, value: Value, depth: int = 4) -> bool:
        """Whether a value is a tensor or holds tensors."""
        known = self._deep.get(value)
        if known is None:
            known = lat.is_tensor(value)
            inner = (part for atom in value for part in self._parts(atom)) if depth and not known else ()
            known = known or any(self.holds_tensor(part, depth - 1) for part in inner)
            if depth == 4:
                self._deep[value] = known
        return known

    def _parts(self, atom: Atom) -> list[Value]:
        """What a container or an object of the script holds."""
        if atom[0] == lat.OBJECT:
            return [self.heap.cell("item", atom[1], "+").value]
        return self._fields.get(atom[1], []) if atom[0] == lat.INSTANCE else []

    @cached_property
    def _fields(self) -> dict[int, list[Value]]:
        """Class -> what the attributes of its objects are."""
        found: dict[int, list[Value]] = {}
        for key, cell in self.heap.cells.items():
            if key[0] == "attr":
                found.setdefault(key[1], []).append(cell.value)
        return found


def is_sum(name: str, body: list[ast.stmt], names: Liveness, left_only: bool = False) -> bool:
    """Whether a loop uses a name only to add to it: `x += e`, `x = x + e` and, if allowed, `x = e + x`."""
    uses = 0
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.AugAssign) and _is_name(node.target, name):
                if not isinstance(node.op, ast.Add):
                    return False
                uses += 1
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and _is_name(node.targets[0], name):
                value = node.value
                if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
                    return False
                if not _is_name(value.left, name) and (left_only or not _is_name(value.right, name)):
                    return False
                uses += 1
    return 0 < uses == len(names.loads.get(name, ())) == len(names.stores.get(name, ()))


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _unused_receivers(node: ast.AST) -> list[ast.AST]:
    """Containers in places where nothing is taken out of them."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        if isinstance(function, ast.Attribute) and function.attr in FILLING:
            return [function.value]
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("len", "bool", "print")
    ):
        return list(node.args)
    if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store):
        return [node.value]
    return []
