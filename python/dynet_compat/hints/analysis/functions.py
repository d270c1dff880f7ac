"""Entering the script's functions: what is given is joined into the parameters of a context."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Optional

from . import lattice as lat
from .containers import Containers
from .frame import Frame
from .lattice import EMPTY, UNKNOWN, Atom, Value
from .state import CallContext


@dataclass(frozen=True)
class Call:
    """A call. star: the items of starred arguments, and what is given after these."""

    node: ast.AST
    arguments: Sequence[Value] = ()
    keywords: dict[str, Value] = field(default_factory=dict)
    star: Optional[Value] = None

    def given(self, index: int) -> Value:
        return self.arguments[index] if index < len(self.arguments) else EMPTY

    def bound(self, receiver: Atom) -> Call:
        return replace(self, arguments=[frozenset({receiver}), *self.arguments])

    def flat(self) -> Call:
        """The starred arguments as one more."""
        return self if self.star is None else Call(self.node, [*self.arguments, self.star], self.keywords)

    @property
    def values(self) -> list[Value]:
        return [*self.arguments, *self.keywords.values()]


class FunctionCalls:
    """Calls of the script's functions in one visit."""

    def __init__(self, frame: Frame, containers: Containers) -> None:
        self.frame = frame
        self.containers = containers

    def enter(self, function_id: int, call: Call) -> Value:
        """What the function has returned so far; when that changes this context is visited again."""
        frame, program = self.frame, self.frame.program
        function = program.functions[function_id]
        context = frame.state.context(function_id, program.uid[call.node])
        frame.facts.note_target(call.node, ("func", function_id))
        self._bind(context, call)
        if function.is_async:
            return UNKNOWN
        if function.generator:
            context.yielded.readers.add(frame.context)
            atom: Atom = (lat.OBJECT, ("iter", program.uid[function.node], context.call_site))
            self.containers.put(atom, context.yielded.value)
            return frozenset({atom})
        context.returned.readers.add(frame.context)
        return context.returned.value

    def _bind(self, context: CallContext, call: Call) -> None:
        state = self.frame.state
        function = self.frame.program.functions[context.function]
        a = function.node.args  # type: ignore[union-attr]
        names = function.positional()
        given = set(names[: len(call.arguments)])
        for name, value in zip(names, call.arguments):
            state.enter(context, name, value)
        rest = list(call.arguments[len(names) :])
        if call.star is not None:
            rest.append(call.star)
            for name in names[len(call.arguments) :]:
                state.enter(context, name, call.star)
        if a.vararg is not None:
            self._collect(context, "list", a.vararg, rest)
        others = self._bind_keywords(context, call.keywords, given)
        if a.kwarg is not None:
            self._collect(context, "dict", a.kwarg, others)
        for name in names + [k.arg for k in a.kwonlyargs]:
            if name not in given:
                state.enter(context, name, self.frame.read("default", context.function, name))

    def _bind_keywords(
        self, context: CallContext, keywords: dict[str, Value], given: set[str]
    ) -> list[Value]:
        """Adds the names that are bound to `given`; returns the values for `**kw`."""
        others = []
        arguments = self.frame.program.functions[context.function].arguments
        collected = {a.arg for a in (arguments.vararg, arguments.kwarg) if a} if arguments else set()
        for name, value in keywords.items():
            if name == "**":
                others.append(UNKNOWN)
                for missing in set(context.parameters) - given - collected:
                    self.frame.state.enter(context, missing, self.containers.all_of(value))
            elif name in context.parameters:
                self.frame.state.enter(context, name, value)
                given.add(name)
            else:
                others.append(value)
        return others

    def _collect(self, context: CallContext, form: str, argument: ast.arg, values: Sequence[Value]) -> None:
        """*args and **kw."""
        program = self.frame.program
        uid = program.uid[program.functions[context.function].node]
        atom: Atom = (lat.OBJECT, (form, uid, context.call_site))
        for value in values:
            self.containers.put(atom, value)
        self.frame.state.enter(context, argument.arg, frozenset({atom}))

    def escape(self, node: ast.AST, values: Sequence[Value]) -> None:
        """Functions that are given to something unknown may be called with anything."""
        for value in values:
            for atom in value:
                if atom[0] in (lat.FUNC, lat.METHOD):
                    function = self.frame.program.functions[atom[1]]
                    given: list[Value] = [frozenset({atom[2]})] if atom[0] == lat.METHOD else []
                    given += [UNKNOWN] * (len(function.positional()) - len(given))
                    self.enter(atom[1], Call(node, given))
