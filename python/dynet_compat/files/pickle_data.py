"""Calls and states in a .meta file: plain data is made here, of arguments that are checked."""

from __future__ import annotations

import collections
import enum
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import own_classes
from .own_classes import expect, is_one_of
from .pickle_names import ENCODE, RECONSTRUCT, SCALAR

if TYPE_CHECKING:
    from .unpickler import Machine

_DTYPE = re.compile(r"[<|=]?(?:[biufc]\d{1,2}|[SU]\d{1,6}|\?)")
_FACTORIES = (None, int, float, str, list, dict, set)
_SETS = (set, frozenset)
STEPS_PER_ITEM = 20
ENTRY = 100  # bytes that an entry of a dictionary or a set may take


def call_plain(machine: Machine, called: Any, arguments: tuple[Any, ...]) -> Any:
    """What a call of an admitted type or helper makes; None if it is another one."""
    if is_one_of(called, (*_SETS, list, tuple, bytearray)):
        items = arguments[0] if arguments else ()
        kinds = (list, tuple, bytes) if called is bytearray else (list, tuple)
        expect(len(arguments) <= 1 and is_one_of(type(items), kinds), "a container of no list")
        if is_one_of(called, _SETS):
            return _new_set(machine, lambda: called(items), items)
        machine.budget.copy(len(items) * (1 if called is bytearray else 8))
        if called is not tuple:
            return called(items)
        machine.budget.work(2 * STEPS_PER_ITEM * len(items))
        return machine.weigh(tuple(items))
    if called is complex:
        expect(len(arguments) == 2 and all(type(a) is float for a in arguments), "no complex number")
        return complex(*arguments)
    if called is bytes:
        expect(not arguments, "bytes of something")
        return b""
    if is_one_of(called, (collections.OrderedDict, collections.Counter, dict)):
        return _fill(machine, called(), arguments)
    if called is collections.defaultdict:
        return collections.defaultdict(_factory(arguments))
    return _call_numpy(machine, called, arguments)


def _new_set(machine: Machine, make: Callable[[], Any], items: Any) -> Any:
    machine.check_keys(items, machine.start)
    made = make()
    return machine.weigh(made) if issubclass(type(made), frozenset) else made


def _fill(machine: Machine, made: Any, arguments: tuple[Any, ...]) -> Any:
    """A dictionary of another one, or of a list of pairs."""
    items = arguments[0] if arguments else []
    expect(len(arguments) < 2 and is_one_of(type(items), (list, dict)), "no items of a dictionary")
    pairs = items.items() if type(items) is dict else items
    machine.budget.work(STEPS_PER_ITEM * len(items))
    flat = [
        part for pair in pairs if is_one_of(type(pair), (list, tuple)) and len(pair) == 2 for part in pair
    ]
    expect(len(flat) == 2 * len(items), "no items of a dictionary")
    return machine.dictionary(flat, made)


def _factory(arguments: tuple[Any, ...]) -> Any:
    factory = arguments[0] if arguments else None
    expect(len(arguments) <= 1 and is_one_of(factory, _FACTORIES), "an unusual defaultdict")
    return factory


def _call_numpy(machine: Machine, called: Any, arguments: tuple[Any, ...]) -> Any:
    if called is np.dtype:
        name = arguments[0] if arguments else None
        expect(type(name) is str and _DTYPE.fullmatch(name), "an unusual type of numbers")
        return np.dtype(name)
    if called is SCALAR:
        expect(len(arguments) == 2, "no number of NumPy")
        kind, raw = arguments
        expect(issubclass(type(kind), np.dtype) and kind.kind in "biufc", "no number of NumPy")
        expect(type(raw) is bytes and len(raw) == kind.itemsize, "a number of NumPy of another size")
        return np.frombuffer(raw, kind)[0]
    if called is RECONSTRUCT:
        expect(len(arguments) == 3 and arguments[0] is np.ndarray, "no array of NumPy")
        return np.empty(0)
    if called is ENCODE:
        expect(len(arguments) == 2 and all(type(a) is str for a in arguments), "no bytes")
        expect(arguments[1] == "latin1", "no bytes")
        machine.budget.copy(len(arguments[0]))
        return arguments[0].encode("latin1")
    return None


def fill_array(machine: Machine, target: np.ndarray, state: Any) -> None:
    expect(type(state) is tuple and len(state) == 5 and state[0] == 1, "no array of NumPy")
    _, shape, kind, fortran, raw = state
    expect(type(shape) is tuple and len(shape) <= 32 and type(fortran) is bool, "no shape of an array")
    expect(all(type(size) is int and 0 <= size < 1 << 40 for size in shape), "no shape of an array")
    expect(issubclass(type(kind), np.dtype) and kind.kind in "biufcSU" and type(raw) is bytes, "no numbers")
    size = kind.itemsize * math.prod(shape)
    expect(size == len(raw), "an array of another size")
    machine.budget.copy(size)
    target.__setstate__(state)


def check_dtype_state(state: Any) -> None:
    usual = type(state) is tuple and len(state) >= 2 and state[1] in ("<", "|", "=")
    expect(usual and all(part is None for part in state[2:5]), "an unusual type of numbers")


def set_trusted_state(target: Any, state: Any) -> None:
    """What pickle does with the state of an object."""
    set_state = getattr(target, "__setstate__", None)
    if set_state is not None:
        set_state(state)
        return
    slots = None
    if type(state) is tuple and len(state) == 2:
        state, slots = state
    for part in (state, slots):
        for name, value in (part or {}).items():
            setattr(target, name, value)


def call_own(machine: Machine, cls: Any, arguments: tuple[Any, ...]) -> Any:
    """What a call of an own class stands for in pickles of built-in bases; None if it would run its code."""
    if issubclass(type(cls), enum.EnumMeta):
        expect(len(arguments) == 1, "no member of an enumeration")
        return _member(machine, cls, arguments[0])
    base = own_classes.base_of(cls)
    if is_one_of(base, _SETS):
        items = arguments[0] if arguments else []
        expect(len(arguments) <= 1 and is_one_of(type(items), (list, tuple)), "a set of no list")
        if base is frozenset:
            return _new_set(machine, lambda: own_classes.make(cls, (frozenset(items),)), items)
        made = own_classes.make(cls, ())
        machine.check_keys(items, machine.start)
        set.update(made, items)
        return made
    if base is collections.defaultdict:
        made = own_classes.make(cls, ())
        collections.defaultdict.__dict__["default_factory"].__set__(made, _factory(arguments))
        return made
    if is_one_of(base, (collections.OrderedDict, collections.Counter)):
        return _fill(machine, own_classes.make(cls, ()), arguments)
    return None


def _member(machine: Machine, cls: Any, value: Any) -> Any:
    def charge(steps: int, size: int) -> None:
        machine.budget.work(steps)
        machine.budget.copy(size)

    return machine.names.members_of(cls).find(value, charge)


def new_own(machine: Machine, cls: Any, arguments: tuple[Any, ...]) -> Any:
    for item in arguments:
        if is_one_of(type(item), (str, bytes, tuple, frozenset)):
            machine.budget.copy(8 * len(item))
        elif type(item) is int:
            machine.budget.copy(item.bit_length() // 8)
    machine.budget.copy(8 * len(arguments))
    made = own_classes.make(cls, arguments)
    return machine.weigh(made) if issubclass(type(made), tuple) else made


def reconstruct_own(machine: Machine, cls: Any, base: Any, state: Any) -> Any:
    """What copyreg._reconstructor makes, in pickles of protocols 0 and 1."""
    own = own_classes.base_of(cls)
    expect(base is own, "an object of an unusual kind")
    if own is object:
        return own_classes.make(cls, ())
    expect(type(state) is own, "an object of an unusual kind")
    if own is list:
        made = own_classes.make(cls, ())
        machine.budget.copy(8 * len(state))
        list.extend(made, state)
        return made
    if own is dict:
        return _fill(machine, own_classes.make(cls, ()), (state,))
    return (
        own_classes.make(cls, (state,))
        if own is not tuple
        else machine.weigh(_own_tuple(machine, cls, state))
    )


def _own_tuple(machine: Machine, cls: Any, state: tuple[Any, ...]) -> Any:
    machine.budget.copy(8 * len(state))
    return own_classes.make(cls, state if own_classes.fields_of(cls) else (state,))


def set_own_state(machine: Machine, target: Any, state: Any) -> None:
    for part in state if type(state) is tuple else (state,):
        if type(part) is dict:
            machine.budget.work(STEPS_PER_ITEM * len(part))
            machine.budget.copy(ENTRY * len(part))
    own_classes.set_state(target, state)
