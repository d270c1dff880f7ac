"""Abstract values: finite sets of atoms. The empty set is "not computed yet"; ANY is "unknown".

An atom is a tuple whose first item is one of the tags below:

    EXPR, STATE             an Expression, an RNNState
    PARAM, LOOKUP           Parameters, LookupParameters
    BUILDER class           RNN or softmax builder
    COLL, TRAINER           parameter collection, trainer
    OBJECT key              list, tuple, dict, set or iterator; its contents are in the heap
    INSTANCE class          object of a class of the script
    FUNC f, METHOD f self, CLASS c, MODULE m, SUPER c     names of the script
    EXT name                name of another module, or of Python itself
    DYNET, DYNAME name      the module dynet, one of its names
    BOUND atom name         method `name` of something that is not the script's own
    READ                    number or array that was read from an Expression
    INT value, FLOAT, STR value, BOOL, NONE               value None: not a single constant
"""

from __future__ import annotations

from typing import Any

Atom = tuple[Any, ...]
Value = frozenset[Atom]

EXPR, STATE, PARAM, LOOKUP, BUILDER = "expr", "state", "param", "lookup", "builder"
COLL, TRAINER, OBJECT, INSTANCE = "coll", "trainer", "object", "instance"
FUNC, METHOD, CLASS, MODULE, SUPER, EXT = "func", "method", "class", "module", "super", "ext"
DYNET, DYNAME, BOUND, READ = "dynet", "dyname", "bound", "read"
INT, FLOAT, STR, BOOL, NONE, ANY = "int", "float", "str", "bool", "none", "any"

EMPTY: Value = frozenset()
UNKNOWN: Value = frozenset({(ANY,)})
SOME_EXPR: Value = frozenset({(EXPR,)})
SOME_STATE: Value = frozenset({(STATE,)})
SOME_PARAM: Value = frozenset({(PARAM,)})
SOME_LOOKUP: Value = frozenset({(LOOKUP,)})
SOME_INT: Value = frozenset({(INT, None)})
SOME_FLOAT: Value = frozenset({(FLOAT,)})
SOME_STR: Value = frozenset({(STR, None)})
SOME_BOOL: Value = frozenset({(BOOL,)})
NOTHING: Value = frozenset({(NONE,)})
WAS_READ: Value = frozenset({(READ,)})

MAX_CONSTANTS = 12
MAX_ATOMS = 384
TENSORS = frozenset({EXPR, STATE, PARAM})  # what ops take and give


def one(*atom: Any) -> Value:
    return frozenset({atom})


def join(a: Value, b: Value) -> Value:
    """Least upper bound; sets that grow too large lose detail."""
    if a is b or not b or b <= a:
        return a
    if not a or a <= b:
        return b
    both = a | b
    return both if len(both) <= MAX_CONSTANTS else _widen(both)


def _widen(value: Value) -> Value:
    atoms: dict[str, set[Atom]] = {}
    for atom in value:
        atoms.setdefault(atom[0], set()).add(atom)
    for tag in (INT, STR):
        if len(atoms.get(tag, ())) > MAX_CONSTANTS:
            atoms[tag] = {(tag, None)}
    result = frozenset(atom for group in atoms.values() for atom in group)
    return result if len(result) <= MAX_ATOMS else UNKNOWN | _tensors_only(result)


def _tensors_only(value: Value) -> Value:
    """That a name may hold an Expression is not forgotten, whatever else it may hold."""
    return SOME_EXPR if any(atom[0] in TENSORS for atom in value) else EMPTY


def tags(value: Value) -> set[str]:
    return {atom[0] for atom in value}


def is_tensor(value: Value) -> bool:
    """Whether a value may be an Expression, a state or a parameter."""
    return any(atom[0] in TENSORS for atom in value)


def is_pure_tensor(value: Value) -> bool:
    """Whether a value is certainly one."""
    return bool(value) and all(atom[0] in TENSORS for atom in value)


def was_read(value: Value) -> bool:
    """Whether a value may depend on numbers read from the graph."""
    return (READ,) in value


class Cell:
    """A place that keeps the join of everything stored in it, and who has read it."""

    __slots__ = ("value", "readers", "changes")
    MAX_CHANGES = 60

    def __init__(self) -> None:
        self.value: Value = EMPTY
        self.readers: set[Any] = set()
        self.changes = 0

    def add(self, value: Value) -> bool:
        """Whether that changed anything."""
        joined = join(self.value, value)
        if joined is self.value or joined == self.value:
            return False
        self.changes += 1
        if self.changes > self.MAX_CHANGES:
            joined = UNKNOWN | _tensors_only(joined) | frozenset({(READ,)} & joined)
            if joined <= self.value:
                return False
            joined = joined | self.value
        self.value = joined
        return True
