"""Pass 3: kinds of values, by abstract interpretation that tells calls of a function apart by call site.

A *unit* is a function together with the call that entered it (0: unknown). Each unit is walked from top to
bottom again and again while something it has read changes; all that outlives a statement - attributes, list
items, returned values, globals - is kept in cells that remember their readers. Loops are walked once per
pass; what their bodies leave behind is joined into their entry, and a change makes the unit be walked again.
So the cost is linear in the text times the height of the values, and nothing recurses with the calls.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from . import lattice as lat
from .lattice import EMPTY, UNKNOWN, Cell, Value, join
from .scopes import Function, Program

MAX_STEPS = 3_000_000  # expressions evaluated in all
MAX_CONTEXTS = 40  # call sites of one function that are told apart
MAX_PASSES = 25  # over one unit
MAX_UNITS = 20_000

_WEIGHTS = frozenset({lat.PARAM, lat.LOOKUP, lat.BUILDER})
# ("func", id), ("op", name), ("dy", name), ("ext", name), ("class", id), ("method", "tag.name"), ("?", why)
Target = tuple[str, Any]


@dataclass(eq=False)
class CallContext:
    """A function as one call site enters it."""

    function: int
    context: int
    parameters: dict[str, Cell] = field(default_factory=dict)
    returned: Cell = field(default_factory=Cell)
    yielded: Cell = field(default_factory=Cell)
    loops: dict[int, dict[str, Value]] = field(default_factory=dict)  # names at the entry of each loop
    passes: int = 0


@dataclass
class Op:
    """A place where ops are recorded."""

    name: str
    given: dict[ast.AST, Value]  # the arguments that are tensors, or lists of them

    @property
    def arguments(self) -> list[tuple[ast.AST, Value]]:
        return list(self.given.items())


@dataclass
class Facts:
    """What the walks found, per syntax node, over all units."""

    values: dict[ast.AST, Value] = field(default_factory=dict)
    in_unit: dict[tuple[int, int, ast.AST], Value] = field(default_factory=dict)  # weights, by call site
    ops: dict[ast.AST, Op] = field(default_factory=dict)
    edges: dict[int, set[int]] = field(default_factory=dict)  # site -> sites it takes its arguments from
    reads: dict[ast.AST, str] = field(default_factory=dict)  # value() and the like -> method
    targets: dict[ast.AST, set[Target]] = field(default_factory=dict)  # calls
    writes: dict[ast.AST, Value] = field(default_factory=dict)  # stores to attributes and items -> of what
    callers: dict[int, set[ast.AST]] = field(default_factory=dict)  # function -> call nodes


class Analysis:
    """The fixed point.

    Args:
        program: what was read.
        progress: called now and then with the numbers of walks done and known to be ahead.
    """

    def __init__(self, program: Program, progress: Optional[Callable[[int, int], None]] = None) -> None:
        self.program = program
        self.facts = Facts()
        self.complete = True  # nothing was cut short
        self.steps = 0
        self.units: dict[tuple[int, int], CallContext] = {}
        self.contexts: dict[int, int] = {}  # number of units per function
        self.cells: dict[tuple[Any, ...], Cell] = {}
        self.all_fields: dict[tuple[Any, ...], set[str]] = {}
        self.queue: deque[CallContext] = deque()
        self.queued: set[CallContext] = set()
        self.bases: dict[int, list[int]] = {}
        self.foreign: set[int] = set()  # classes with bases that are not the script's
        self._progress = progress
        self._walks = 0

    # ---- cells

    def cell(self, *key: Any) -> Cell:
        found = self.cells.get(key)
        if found is None:
            found = self.cells[key] = Cell()
        return found

    def read(self, unit: Optional[CallContext], *key: Any) -> Value:
        cell = self.cell(*key)
        if unit is not None:
            cell.readers.add(unit)
        return cell.value

    def write(self, value: Value, *key: Any) -> None:
        self.change(self.cell(*key), value)

    def change(self, cell: Cell, value: Value) -> None:
        if value and cell.add(value):
            for unit in sorted(cell.readers, key=lambda u: (u.function, u.context)):
                self.enqueue(unit)

    def enqueue(self, unit: CallContext) -> None:
        if unit not in self.queued:
            self.queued.add(unit)
            self.queue.append(unit)

    # ---- units

    def unit(self, function: int, context: int) -> CallContext:
        """The unit of a call; calls beyond MAX_CONTEXTS share one."""
        key = (function, context)
        found = self.units.get(key)
        if found is None and context:
            if self.contexts.get(function, 0) >= MAX_CONTEXTS or len(self.units) >= MAX_UNITS:
                return self.unit(function, 0)
        if found is None:
            self.contexts[function] = self.contexts.get(function, 0) + 1
            found = self.units[key] = CallContext(function, context)
            for name in self.program.functions[function].parameters():
                found.parameters[name] = Cell()
            self.enqueue(found)
        return found

    def contexts_of(self, function: int) -> list[CallContext]:
        return [unit for unit in self.units.values() if unit.function == function]

    def enter(self, unit: CallContext, name: str, value: Value) -> None:
        """Joins an argument into a parameter."""
        cell = unit.parameters.get(name)
        if cell is not None and cell.add(value):
            self.enqueue(unit)

    def run(self) -> Facts:
        """Walks everything until nothing changes, or a limit is met (then `complete` is false)."""
        for top in self.program.tops:
            if top is not None:
                self.unit(top, 0)
        self._drain()
        for function in self.program.functions:  # what nobody is seen to call
            if not function.is_module and function.id not in self.contexts:
                self.enter_unknown(function)
                self._drain()
        return self.facts

    def enter_unknown(self, function: Function) -> None:
        """A unit for callers that are not seen: parameters may be anything."""
        unit = self.unit(function.id, 0)
        for index, name in enumerate(function.parameters()):
            value = UNKNOWN
            if index == 0 and function.cls is not None and not is_static(function):
                value = lat.one(lat.INSTANCE, function.cls)
            else:
                value = self._annotated(function, name)
            self.enter(unit, name, value)

    def _annotated(self, function: Function, name: str) -> Value:
        arguments = function.arguments
        if arguments is None:
            return UNKNOWN
        for argument in arguments.posonlyargs + arguments.args + arguments.kwonlyargs:
            if argument.arg == name and isinstance(argument.annotation, (ast.Attribute, ast.Name)):
                note = argument.annotation
                text = note.attr if isinstance(note, ast.Attribute) else note.id
                if text == "Expression":
                    return lat.SOME_EXPR
                if text == "RNNState":
                    return lat.one(lat.STATE, 0)
                if text in ("int", "str", "float"):
                    return {"int": lat.SOME_INT, "str": lat.SOME_STR, "float": lat.SOME_FLOAT}[text]
        return UNKNOWN

    def _drain(self) -> None:
        from .statements import StatementVisitor

        while self.queue:
            unit = self.queue.popleft()
            self.queued.discard(unit)
            if unit.passes >= MAX_PASSES:
                self.stop("it changes for too long")
                continue
            unit.passes += 1
            StatementVisitor(self, unit).run()
            if self.steps > MAX_STEPS:
                self.stop("it is too large")
                self.queue.clear()
                self.queued.clear()
                return
            self._walks += 1
            if self._progress is not None:
                self._progress(self._walks, len(self.queue))

    def stop(self, why: str) -> None:
        """A limit was met: what was found stays, and nothing may be proved from it."""
        if self.complete:
            self.complete = False
            top = next((top for top in self.program.tops if top is not None), None)
            if top is not None:
                self.program.problem(self.program.functions[top].node, f"not analysed to the end: {why}")

    # ---- classes

    def lookup(self, cls: int, name: str) -> tuple[list[int], bool]:
        """(classes that have the attribute, nearest first; whether a base is unknown)."""
        found, seen, stack, unknown = [], set(), [cls], False
        while stack:
            at = stack.pop(0)
            if at in seen:
                continue
            seen.add(at)
            unknown = unknown or at in self.foreign
            if ("class", at, name) in self.cells:
                found.append(at)
            stack = list(self.bases.get(at, ())) + stack
        return found, unknown

    # ---- facts

    def note_value(self, node: ast.AST, value: Value, unit: CallContext) -> None:
        if not value:
            return
        old = self.facts.values.get(node)
        self.facts.values[node] = value if old is None else join(old, value)
        if unit.context and any(atom[0] in _WEIGHTS for atom in value):
            key = (unit.function, unit.context, node)
            self.facts.in_unit[key] = join(self.facts.in_unit.get(key, EMPTY), value)

    def note_target(self, node: ast.AST, target: Target) -> None:
        self.facts.targets.setdefault(node, set()).add(target)
        if target[0] == "func":
            self.facts.callers.setdefault(target[1], set()).add(node)

    def note_op(self, node: ast.AST, name: str, arguments: Iterable[tuple[ast.AST, Value]]) -> int:
        """An op is recorded here; returns its site."""
        site = self.program.uid[node]
        op = self.facts.ops.setdefault(node, Op(name, {}))
        sources = self.facts.edges.setdefault(site, set())
        for argument, value in arguments:
            op.given[argument] = join(op.given.get(argument, EMPTY), value)
            for atom in value:
                if atom[0] in (lat.EXPR, lat.STATE) and atom[1]:
                    sources.add(atom[1])
                elif atom[0] == lat.OBJECT:
                    for inner in self.cell("item", atom[1], "+").value:
                        if inner[0] in (lat.EXPR, lat.STATE) and inner[1]:
                            sources.add(inner[1])
        return site


def is_static(function: Function) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorators)


def is_class_method(function: Function) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "classmethod" for d in function.decorators)


def is_property(function: Function) -> bool:
    names = {d.id if isinstance(d, ast.Name) else getattr(d, "attr", "") for d in function.decorators}
    return bool(names & {"property", "cached_property"})
