"""Attributes of objects, and what iterating over a value gives."""

from __future__ import annotations

import ast

from . import lattice as lat
from .containers import Containers
from .frame import Frame
from .functions import Call, FunctionCalls
from .lattice import EMPTY, UNKNOWN, Atom, Value, join


class Objects:
    """The objects of one visit."""

    def __init__(self, frame: Frame, containers: Containers, functions: FunctionCalls) -> None:
        self.frame = frame
        self.containers = containers
        self.functions = functions

    # ---- attributes

    def attribute(self, receiver: Value, name: str, node: ast.AST) -> Value:
        found = EMPTY
        for atom in receiver:
            found = join(found, self._attribute(atom, name, node))
        return found

    def _attribute(self, atom: Atom, name: str, node: ast.AST) -> Value:
        tag = atom[0]
        if tag == lat.INSTANCE:
            return self.of_instance(atom, atom[1], name, node)
        if tag in (lat.SUPER, lat.CLASS):
            found = self._of_super(atom, name, node) if tag == lat.SUPER else self._of_class(atom[1], name)
            return found if found or atom[1] not in self.frame.state.classes.foreign else UNKNOWN
        if tag == lat.MODULE:
            return self._of_module(atom[1], name)
        if tag == lat.EXT:
            return lat.one(lat.EXT, f"{atom[1]}.{name}") if len(atom[1]) < 200 else UNKNOWN
        if tag == lat.DYNET:
            return lat.one(lat.DYNAME, name)
        if tag in (lat.ANY, lat.FUNC, lat.METHOD, lat.DYNAME, lat.BOUND):
            return UNKNOWN
        return lat.one(lat.BOUND, atom, name)

    def _of_super(self, atom: Atom, name: str, node: ast.AST) -> Value:
        found = EMPTY
        for base in self.frame.state.classes.bases.get(atom[1], ()):
            found = join(found, self.of_instance(atom[2], base, name, node, own=False))
        return found

    def _of_class(self, cls: int, name: str) -> Value:
        """What the nearest class that has the name stores for it."""
        classes, _ = self.frame.state.classes.lookup(cls, name)
        return self.frame.read("class", classes[0], name) if classes else EMPTY

    def _of_module(self, module: int, name: str) -> Value:
        program = self.frame.program
        top = program.tops[module]
        if top is None:
            return UNKNOWN
        if name in program.functions[top].bound:
            return self.frame.read("var", top, name)
        inner = program.loaded.module(f"{program.sources[module].name}.{name}")
        return UNKNOWN if inner is None else lat.one(lat.MODULE, inner)

    def of_instance(self, receiver: Atom, cls: int, name: str, node: ast.AST, own: bool = True) -> Value:
        """Attribute of an object: its own, and what its class has, functions bound to it."""
        frame, classes = self.frame, self.frame.state.classes
        found = frame.read("attr", cls, name) if own else EMPTY
        for atom in self._of_class(cls, name):
            if atom[0] != lat.FUNC:
                found = join(found, frozenset({atom}))
            elif frame.program.functions[atom[1]].is_property:
                found = join(found, self.functions.enter(atom[1], Call(node).bound(receiver)))
            else:
                found = join(found, lat.one(lat.METHOD, atom[1], receiver))
        for base in classes.bases.get(cls, ()) if own else ():  # set by methods that were called on the base
            found = join(found, frame.read("attr", base, name))
        if not found and (classes.lookup(cls, name)[1] or cls in classes.foreign):
            return UNKNOWN
        return found

    # ---- items

    def items(self, value: Value) -> Value:
        """What iterating over a value gives."""
        found = EMPTY
        for atom in value:
            found = join(found, self._items(atom))
        return found

    def _items(self, atom: Atom) -> Value:
        tag = atom[0]
        if tag == lat.OBJECT:
            return self.containers.keys(atom) if atom[1][0] == "dict" else self.containers.get(atom)
        if tag == lat.STR:
            text = atom[1]
            short = text is not None and len(text) <= lat.MAX_CONSTANTS
            return frozenset((lat.STR, c) for c in text) if short else lat.SOME_STR
        if tag == lat.READ:
            return lat.WAS_READ
        if tag in (lat.EXPR, lat.PARAM):
            return lat.SOME_EXPR
        if tag == lat.INSTANCE:
            return self._items_of_instance(atom)
        return EMPTY if tag in (lat.INT, lat.FLOAT, lat.BOOL, lat.NONE) else UNKNOWN

    def _items_of_instance(self, atom: Atom) -> Value:
        """What iterating over an object of the script gives."""
        found = EMPTY
        for function in self._of_class(atom[1], "__iter__"):
            if function[0] == lat.FUNC:
                node = self.frame.program.functions[function[1]].node
                result = self.functions.enter(function[1], Call(node).bound(atom))
                found = join(found, self.items(result - {atom}))
        return found if found else UNKNOWN

    def part(self, value: Value, index: int) -> Value:
        """Item of a value that is unpacked."""
        found = EMPTY
        for atom in value:
            is_tuple = atom[0] == lat.OBJECT and atom[1][0] == "tuple"
            found = join(found, self.containers.get(atom, str(index)) if is_tuple else self._items(atom))
        return found
