"""Lists, tuples, dicts, sets and iterators: what they hold.

The cells of a container: "+" everything in it, "=KEY" what is stored at a constant key, "*" at other keys,
and "keys" the keys of a dict.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Optional

from . import lattice as lat
from .frame import Frame
from .lattice import EMPTY, UNKNOWN, Atom, Value, join


def constant(value: Value) -> Optional[str]:
    """The text of a single constant, as a key of tables."""
    if len(value) == 1:
        (atom,) = value
        if atom[0] in (lat.INT, lat.STR) and atom[1] is not None:
            return str(atom[1])
    return None


class Containers:
    """The containers of one visit."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    def new(self, form: str, node: ast.AST, values: Sequence[Value], exact: bool = False) -> Value:
        """A container made at a node. `exact`: the values are its items one by one."""
        atom: Atom = (lat.OBJECT, (form, self.frame.program.uid[node], self.frame.context.call_site))
        for index, value in enumerate(values):
            self.put(atom, value, str(index) if exact else None)
        return frozenset({atom})

    def put(self, atom: Atom, value: Value, key: Optional[str] = None) -> None:
        self.frame.write(value, "item", atom[1], "+")
        self.frame.write(value, "item", atom[1], "*" if key is None else "=" + key)

    def put_key(self, atom: Atom, key: Value) -> None:
        self.frame.write(key, "item", atom[1], "keys")

    def get(self, atom: Atom, key: Optional[str] = None) -> Value:
        """What is stored at a constant key, or at any."""
        if key is None or atom[1][0] not in ("tuple", "dict"):
            return self.frame.read("item", atom[1], "+")
        return join(self.frame.read("item", atom[1], "=" + key), self.frame.read("item", atom[1], "*"))

    def keys(self, atom: Atom) -> Value:
        return self.frame.read("item", atom[1], "keys")

    def all_of(self, value: Value) -> Value:
        """Everything in a container."""
        found = EMPTY
        for atom in value:
            found = join(found, self.get(atom) if atom[0] == lat.OBJECT else UNKNOWN)
        return found

    def any_read(self, values: Sequence[Value]) -> bool:
        """Whether numbers of the graph are among the values, or in the containers among them."""
        for value in values:
            if lat.was_read(value):
                return True
            if any(a[0] == lat.OBJECT and lat.was_read(self.get(a)) for a in value):
                return True
        return False
