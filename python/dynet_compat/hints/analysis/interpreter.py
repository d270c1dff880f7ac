"""What each expression of a script may be, by abstract interpretation with a context for each call site.

Each context, a function and the call that entered it, is visited from top to bottom again and again while
something it has read changes; all that outlives a statement (attributes, list items, returned values,
globals) is stored in cells that remember their readers. The body of a loop is visited once in each visit; the
names that it leaves are joined into those at its entry, and a change makes the context be visited again. So
the cost is linear in the text times the height of the values, and nothing recurses with the calls.

    state        cells, classes, facts, the queue
    frame        the names of one visit
    containers   lists, tuples, dicts and iterators
    calls        entering the script's functions; attributes and items of objects; what a call gives
    models       Python's functions, containers and other modules;  dynet_models: DyNet's
    expressions  what an expression is;  statements: what a statement does
"""

from __future__ import annotations

import ast
from typing import Callable, Optional

from . import lattice as lat
from .facts import Facts
from .lattice import UNKNOWN, Value
from .scopes import Function, Program
from .state import AnalysisState
from .statements import StatementVisitor

MAX_STEPS = 3_000_000  # expressions evaluated in all
MAX_VISITS = 25  # of one context
_ANNOTATED = {
    "Expression": lat.SOME_EXPR, "RNNState": lat.SOME_STATE, "int": lat.SOME_INT, "str": lat.SOME_STR,
    "float": lat.SOME_FLOAT,
}  # fmt: skip


class Interpreter:
    """The fixed point.

    Args:
        program: what was read.
        progress: called now and then with the numbers of visits done and known to be ahead.
    """

    def __init__(self, program: Program, progress: Optional[Callable[[int, int], None]] = None) -> None:
        self.program = program
        self.state = AnalysisState(program)
        self._progress = progress
        self._visits = 0

    def run(self) -> Facts:
        """Visits everything until nothing changes, or a limit is met (then `state.complete` is false)."""
        for top in self.program.tops:
            if top is not None:
                self.state.context(top, 0)
        self._visit_all()
        for function in self.program.functions:  # those that no call is seen of
            if not function.is_module and function.id not in self.state.count_of:
                self._enter_unknown(function)
                self._visit_all()
        return self.state.facts

    def _visit_all(self) -> None:
        state, queue = self.state, self.state.queue
        while queue:
            context = queue.next()
            if context.visits >= MAX_VISITS:
                state.stop("it changes for too long")
                continue
            context.visits += 1
            StatementVisitor(state, context).run()
            if state.steps > MAX_STEPS:
                state.stop("it is too large")
                queue.clear()
                return
            self._visits += 1
            if self._progress is not None:
                self._progress(self._visits, len(queue))

    def _enter_unknown(self, function: Function) -> None:
        """A context for callers that are not seen: parameters may be anything."""
        context = self.state.context(function.id, 0)
        for index, name in enumerate(function.parameters()):
            if index == 0 and function.cls is not None and not function.is_static:
                value = lat.one(lat.INSTANCE, function.cls)
            else:
                value = _annotated(function, name)
            self.state.enter(context, name, value)


def _annotated(function: Function, name: str) -> Value:
    """What a parameter may be, by its annotation."""
    arguments = function.arguments
    if arguments is not None:
        for argument in arguments.posonlyargs + arguments.args + arguments.kwonlyargs:
            if argument.arg == name and isinstance(argument.annotation, (ast.Attribute, ast.Name)):
                note = argument.annotation
                return _ANNOTATED.get(note.attr if isinstance(note, ast.Attribute) else note.id, UNKNOWN)
    return UNKNOWN
