"""What all visits of the abstract interpreter share: cells, classes, facts, the queue of contexts."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Optional

from .facts import Facts
from .lattice import Cell, Value
from .scopes import Program

MAX_CONTEXTS = 40  # call sites of one function that are distinct
MAX_CONTEXTS_IN_ALL = 20_000


@dataclass(eq=False)
class CallContext:
    """A function as one call site enters it: the number of the call node, 0 if unknown."""

    function: int
    call_site: int
    parameters: dict[str, Cell] = field(default_factory=dict)
    returned: Cell = field(default_factory=Cell)
    yielded: Cell = field(default_factory=Cell)
    loops: dict[int, dict[str, Value]] = field(default_factory=dict)  # names at the entry of each loop
    visits: int = 0


class Queue:
    """Contexts to visit, each once."""

    def __init__(self) -> None:
        self._contexts: deque[CallContext] = deque()
        self._waiting: set[CallContext] = set()

    def __len__(self) -> int:
        return len(self._contexts)

    def add(self, context: CallContext) -> None:
        if context not in self._waiting:
            self._waiting.add(context)
            self._contexts.append(context)

    def next(self) -> CallContext:
        context = self._contexts.popleft()
        self._waiting.discard(context)
        return context

    def clear(self) -> None:
        self._contexts.clear()
        self._waiting.clear()


class Heap:
    """Cells for all that outlives a statement: attributes, items of containers, variables of outer functions.

    A cell that changes puts the contexts that have read it into the queue.
    """

    def __init__(self, queue: Queue) -> None:
        self.cells: dict[tuple[Any, ...], Cell] = {}
        self._queue = queue

    def cell(self, *key: Any) -> Cell:
        found = self.cells.get(key)
        if found is None:
            found = self.cells[key] = Cell()
        return found

    def read(self, reader: CallContext, *key: Any) -> Value:
        cell = self.cell(*key)
        cell.readers.add(reader)
        return cell.value

    def write(self, value: Value, *key: Any) -> None:
        self.change(self.cell(*key), value)

    def change(self, cell: Cell, value: Value) -> None:
        if value and cell.add(value):
            for context in sorted(cell.readers, key=lambda c: (c.function, c.call_site)):
                self._queue.add(context)


class Classes:
    """The script's classes.

    Attributes:
        bases: class -> its bases among them.
        foreign: classes that have other bases, or a metaclass.
    """

    def __init__(self, heap: Heap) -> None:
        self.bases: dict[int, list[int]] = {}
        self.foreign: set[int] = set()
        self._heap = heap

    def lookup(self, cls: int, name: str) -> tuple[list[int], bool]:
        """(classes that have the attribute, nearest first; whether a base is unknown)."""
        found, seen, stack, unknown = [], set(), [cls], False
        while stack:
            at = stack.pop(0)
            if at in seen:
                continue
            seen.add(at)
            unknown = unknown or at in self.foreign
            if ("class", at, name) in self._heap.cells:
                found.append(at)
            stack = list(self.bases.get(at, ())) + stack
        return found, unknown


class AnalysisState:
    """The state of the abstract interpreter, and after its run its result.

    Attributes:
        complete: no limit was met; otherwise nothing may be proved from what was found.
        steps: expressions evaluated so far.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.facts = Facts()
        self.queue = Queue()
        self.heap = Heap(self.queue)
        self.classes = Classes(self.heap)
        self.contexts: dict[tuple[int, int], CallContext] = {}
        self.count_of: dict[int, int] = {}  # contexts per function
        self.complete = True
        self.steps = 0

    def context(self, function: int, call_site: int) -> CallContext:
        """The context of a call; calls beyond MAX_CONTEXTS share one."""
        key = (function, call_site)
        found = self.contexts.get(key)
        if found is None and call_site:
            too_many = self.count_of.get(function, 0) >= MAX_CONTEXTS
            if too_many or len(self.contexts) >= MAX_CONTEXTS_IN_ALL:
                return self.context(function, 0)
        if found is None:
            self.count_of[function] = self.count_of.get(function, 0) + 1
            found = self.contexts[key] = CallContext(function, call_site)
            for name in self.program.functions[function].parameters():
                found.parameters[name] = Cell()
            self.queue.add(found)
        return found

    def enter(self, context: CallContext, name: str, value: Value) -> None:
        """Joins an argument into a parameter."""
        cell = context.parameters.get(name)
        if cell is not None and cell.add(value):
            self.queue.add(context)

    def stop(self, why: str) -> None:
        """A limit was met: what was found stays, and nothing may be proved from it."""
        if self.complete:
            self.complete = False
            top: Optional[int] = next((top for top in self.program.tops if top is not None), None)
            if top is not None:
                self.program.problem(self.program.functions[top].node, f"not analysed to the end: {why}")
