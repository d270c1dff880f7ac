"""Pass 5: loops that record ops, what they carry from one iteration to the next, and how they are nested."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Optional

from . import api
from . import lattice as lat
from .callgraph import CallGraph
from .interpreter import Analysis
from .lattice import EMPTY, Atom, Value
from .liveness import Liveness, sure_nodes
from .scopes import Loop

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
    sums: list[str] = field(default_factory=list)  # accumulators: += only
    collects: list[str] = field(default_factory=list)  # lists that are only appended to
    path: tuple[int, ...] = ()  # loops around, those of the callers included, and itself


class Loops:
    """All loops that record ops."""

    def __init__(self, analysis: Analysis, graph: CallGraph) -> None:
        self.an = analysis
        self.program = analysis.program
        self.facts = analysis.facts
        self.graph = graph
        self._bodies: dict[int, list[ast.AST]] = {}
        for node in self.program.nodes[1:]:
            for index in self.program.loops_around.get(node, ()):
                self._bodies.setdefault(index, []).append(node)
        self._exposed, self._written = self._attributes()
        self._records = self._recorders()
        self._renews = self._functions_that(self._is_renew)
        self._deep: dict[Value, bool] = {}
        self._fields: dict[int, list[Value]] = {}
        self._reached: Optional[frozenset[Atom]] = None
        self.found: dict[int, LoopFacts] = {}
        for loop in self.program.loops:
            facts = self._examine(loop)
            if facts is not None:
                self.found[loop.id] = facts
        self._paths()

    # ---- what a loop runs

    def body(self, loop: Loop) -> list[ast.AST]:
        """Nodes that run in each iteration, those of called functions left out."""
        return self._bodies.get(loop.id, [])

    def called(self, loop: Loop) -> set[int]:
        """Functions that the loop may call, directly or not."""
        return self.graph.called_from(self.body(loop))

    def sure(self, loop: Loop) -> list[ast.AST]:
        """Nodes that run in every iteration, those of functions that are surely called among them."""
        node: Any = loop.node
        if loop.form == "comprehension":
            start: list[ast.AST] = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        else:
            start = list(node.body)
        found: list[ast.AST] = []
        seen: set[int] = set()
        stack = [start]
        while stack:
            for inner in sure_nodes(stack.pop()):
                found.append(inner)
                targets = self.facts.targets.get(inner, set())
                functions = [what for kind, what in targets if kind == "func"]
                if len(targets) == 1 and len(functions) == 1 and functions[0] not in seen:
                    seen.add(functions[0])
                    body: Any = self.program.functions[functions[0]].node.body
                    stack.append(body if isinstance(body, list) else [body])
        return found

    def records(self, nodes: Iterable[ast.AST]) -> bool:
        """Whether code records ops, directly or by calls."""
        for node in nodes:
            if node in self.facts.ops:
                return True
            if any(k == "func" and f in self._records for k, f in self.facts.targets.get(node, ())):
                return True
        return False

    def renews(self, nodes: Iterable[ast.AST]) -> bool:
        """Whether code calls renew_cg, directly or by calls."""
        return any(
            self._is_renew(node)
            or any(k == "func" and f in self._renews for k, f in self.facts.targets.get(node, ()))
            for node in nodes
        )

    def _is_renew(self, node: ast.AST) -> bool:
        return ("dy", "renew_cg") in self.facts.targets.get(node, ())

    def is_recorder(self, function: int) -> bool:
        """Whether a function records ops, directly or by calls."""
        return function in self._records

    def _recorders(self) -> set[int]:
        return self._functions_that(lambda node: node in self.facts.ops)

    def _functions_that(self, test: Any) -> set[int]:
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
        if not self.records(nodes):
            return None
        if self.renews(nodes):
            return LoopFacts(loop, GRAPH)
        facts = LoopFacts(loop, MAP)
        facts.carried += self._carried_names(loop, facts)
        facts.carried += self._carried_containers(loop, facts)
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
            changed = self.facts.writes.get(node, EMPTY)
            if any((lat.ANY,) in part for atom in changed for part in self._parts(atom)):
                return True
            if (lat.ANY,) in changed:
                return True
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                unknown = (lat.ANY,) in self.facts.values.get(node.func.value, EMPTY)
                if unknown and node.func.attr in api.MUTATORS:
                    return True
        return False

    def _carried_names(self, loop: Loop, facts: LoopFacts) -> list[str]:
        """Names that an iteration reads before it assigns them, and that hold tensors."""
        node: Any = loop.node
        if loop.form == "comprehension":
            return []
        flow = Liveness()
        if loop.form == "for":
            flow.target(node.target)
        else:
            flow.expression(node.test)
        flow.block(node.body)
        carried = []
        for name in sorted(set(flow.exposed) & flow.assigned):
            if not any(self.holds_tensor(self.facts.values.get(n, EMPTY)) for n in flow.exposed[name]):
                continue
            if is_sum(name, node.body, flow):
                facts.sums.append(name)
            else:
                carried.append(name)
        return carried

    def _carried_containers(self, loop: Loop, facts: LoopFacts) -> list[str]:
        """Lists and tables from outside that iterations both change and look into."""
        inside = {*self.called(loop)}
        nodes = list(self.body(loop))
        for function in inside:
            nodes += self.program.body_nodes(self.program.functions[function])
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
        values = (self.facts.values.get(node, EMPTY) for node in self.body(loop))
        seen = frozenset(atom for value in values for atom in value if atom in changed)
        kept = self._kept() & frozenset(changed)
        changed = {atom: names for atom, names in changed.items() if atom in seen or atom in kept}
        if not changed:
            return []
        read: set[Atom] = set()
        for node in nodes:
            if node not in skip and not isinstance(getattr(node, "ctx", None), ast.Store):
                read |= self.facts.values.get(node, EMPTY) & set(changed)
        for atom in sorted(set(changed) - read, key=repr):
            facts.collects += sorted(changed[atom])
        facts.collects = sorted(set(facts.collects))
        return sorted(min(changed[atom]) for atom in read)

    def _kept(self) -> frozenset[Atom]:
        """Containers that attributes or variables of outer functions hold, which any function may reach."""
        if self._reached is None:
            cells = (cell.value for key, cell in self.an.cells.items() if key[0] in ("attr", "class", "var"))
            self._reached = frozenset(atom for value in cells for atom in value if atom[0] == lat.OBJECT)
        return self._reached

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
            if self.holds_tensor(self.an.cell("attr", cls, name).value)
        ]

    # ---- attributes

    def _attributes(self) -> tuple[dict[int, set[Attribute]], dict[int, set[Attribute]]]:
        """Per function, with everything it calls: attributes read before they are written; those written."""
        self._exposed, self._written = {}, {}
        for function in self.graph.order():
            nodes = list(self.program.body_nodes(self.program.functions[function]))
            exposed, written = self._attribute_flow(nodes)
            if self.program.functions[function].name == "__init__":
                exposed, written = set(), set()  # of an object that nobody else has yet
            self._exposed[function], self._written[function] = exposed, written
        return self._exposed, self._written

    def _attribute_flow(self, nodes: Iterable[ast.AST]) -> tuple[set[Attribute], set[Attribute]]:
        exposed: set[Attribute] = set()
        written: set[Attribute] = set()
        pending: set[Attribute] = set()  # written by the statement at hand, after everything it reads
        for node in nodes:
            if isinstance(node, ast.stmt):
                written |= pending
                pending = set()
            if isinstance(node, ast.Attribute):
                receiver = self.facts.values.get(node.value, EMPTY)
                places = {(a[1], node.attr) for a in receiver if a[0] == lat.INSTANCE}
                if isinstance(node.ctx, ast.Load):
                    exposed |= places - written
                else:
                    pending |= places
            for kind, what in self.facts.targets.get(node, ()):
                if kind == "func":
                    exposed |= self._exposed.get(what, set()) - written
                    pending |= self._written.get(what, set())
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
            return [self.an.cell("item", atom[1], "+").value]
        if atom[0] != lat.INSTANCE:
            return []
        if not self._fields:
            for key, cell in self.an.cells.items():
                if key[0] == "attr":
                    self._fields.setdefault(key[1], []).append(cell.value)
        return self._fields.get(atom[1], [])

    # ---- nesting

    def _paths(self) -> None:
        """Loops around each loop; through calls where all calls of a function agree."""
        entry: dict[int, tuple[int, ...]] = {}
        for function in reversed(self.graph.order()):
            around: Optional[tuple[int, ...]] = None
            for call in sorted(self.facts.callers.get(function, ()), key=self.program.uid.__getitem__):
                owner = self.program.owner.get(call)
                if owner is None or self.graph.component[owner] == self.graph.component[function]:
                    continue  # recursion adds no loop
                here = entry.get(owner, ()) + self.recording_loops(call)
                around = here if around is None else _common(around, here)
            entry[function] = around or ()
        self.entry = entry
        for facts in self.found.values():
            outer = entry.get(facts.loop.function, ())
            facts.path = (*outer, *[i for i in facts.loop.outer if self._counts(i)], facts.loop.id)

    def _counts(self, loop: int) -> bool:
        return loop in self.found and self.found[loop].kind != GRAPH

    def recording_loops(self, node: ast.AST) -> tuple[int, ...]:
        """Loops around a node in its function, those with a graph per iteration left out."""
        return tuple(i for i in self.program.loops_around.get(node, ()) if self._counts(i))


def _common(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return a[:n]


def is_sum(name: str, body: list[ast.stmt], flow: Liveness, left_only: bool = False) -> bool:
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
    return 0 < uses == len(flow.loads.get(name, ())) == len(flow.stores.get(name, ()))


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def receiver_of(node: Any) -> ast.AST:
    """What a store or a changing method is applied to."""
    if isinstance(node, ast.Call):
        node = node.func
    inner: ast.AST = node.value if isinstance(node, (ast.Attribute, ast.Subscript)) else node
    return inner


def text_of(node: ast.AST) -> str:
    """Source text of a short expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < 8:
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "...")
    return ".".join(reversed(parts))


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
