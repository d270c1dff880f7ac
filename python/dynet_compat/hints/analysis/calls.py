"""What calling something gives, for everything it may be."""

from __future__ import annotations

from . import lattice as lat
from .containers import Containers
from .dynet_models import dynet_call, method_call
from .frame import Frame
from .functions import Call, FunctionCalls
from .lattice import EMPTY, UNKNOWN, Atom, Value, join
from .models import container_method, outside_call
from .objects import Objects

_NOT_CALLABLE = frozenset({lat.EXPR, lat.STATE, lat.NONE, lat.INT, lat.STR, lat.OBJECT, lat.PARAM})


class Calls:
    """The calls of one visit."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.containers = Containers(frame)
        self.functions = FunctionCalls(frame, self.containers)
        self.objects = Objects(frame, self.containers, self.functions)

    def apply(self, function: Value, call: Call) -> Value:
        """Join of what the call gives for everything the function may be."""
        found = EMPTY
        for atom in function:
            found = join(found, self._apply(atom, call))
        return found

    def _apply(self, atom: Atom, call: Call) -> Value:
        tag = atom[0]
        if tag == lat.FUNC:
            return self.functions.enter(atom[1], call)
        if tag == lat.METHOD:
            return self._apply_method(atom, call)
        if tag == lat.CLASS:
            return self._make(atom[1], call)
        if tag == lat.INSTANCE:
            method = self.objects.of_instance(atom, atom[1], "__call__", call.node)
            if any(a[0] == lat.METHOD for a in method):
                return self.apply(method, call)
        call = call.flat()
        if tag == lat.DYNAME:
            return dynet_call(self, call, atom[1])
        if tag == lat.BOUND:
            is_container = atom[1][0] == lat.OBJECT
            return (container_method if is_container else method_call)(self, call, atom[1], atom[2])
        if tag == lat.EXT:
            return outside_call(self, call, atom[1])
        if tag in _NOT_CALLABLE:
            return EMPTY  # it raises
        self.frame.facts.note_target(call.node, ("?", "something unknown"))
        self.functions.escape(call.node, call.values)
        return join(UNKNOWN, lat.WAS_READ) if self.containers.any_read(call.arguments) else UNKNOWN

    def _apply_method(self, atom: Atom, call: Call) -> Value:
        function, receiver = self.frame.program.functions[atom[1]], atom[2]
        if function.is_static:
            return self.functions.enter(atom[1], call)
        if function.is_class_method and receiver[0] == lat.INSTANCE:
            receiver = (lat.CLASS, receiver[1])
        return self.functions.enter(atom[1], call.bound(receiver))

    def _make(self, cls: int, call: Call) -> Value:
        """An object of a class of the script."""
        frame = self.frame
        frame.facts.note_target(call.node, ("class", cls))
        instance: Atom = (lat.INSTANCE, cls)
        classes, _ = frame.state.classes.lookup(cls, "__init__")
        for at in classes[:1]:
            for atom in frame.read("class", at, "__init__"):
                if atom[0] == lat.FUNC:
                    self.functions.enter(atom[1], call.bound(instance))
        if not classes:
            fields = frame.read("fields", cls)
            names = [atom[2] for atom in sorted(fields, key=lambda atom: int(atom[1]))]
            for name, value in [*zip(names, call.arguments), *call.keywords.items()]:
                frame.write(value, "attr", cls, name)
            if not names:
                self.functions.escape(call.node, call.arguments)
        return frozenset({instance})
