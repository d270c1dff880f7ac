"""Reading pickles without running them, for the .meta files of `dy.save`.

A pickle is a program for a small stack machine; Python's own machine calls whatever the file names. This one
makes plain data, and objects of the program's own classes by their attributes alone. What names stand for is
looked up in pickle_names.py and put into the result as it is. Nothing is called but what the user lists as
trusted, and a few types of the standard library and of NumPy whose arguments are checked in pickle_data.py.

Time and memory are limited by the size of the file: a file in which a few bytes ask for much is refused.
"""

from __future__ import annotations

import array
import codecs
import operator
import pickle
import re
import struct
import types
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, NoReturn, Optional

import numpy as np

from . import pickle_data as data_of
from .own_classes import CodeNeeded, base_of, expect, full_name_of, hashes_by_itself, is_class, is_one_of
from .pickle_data import STEPS_PER_ITEM
from .pickle_names import PLAIN, Names

_MARK = object()
_LONGEST_NUMBER = 4300  # digits; more take time that grows with the square
_HEAVIEST_KEY = 100_000  # parts of a tuple used as a key, counted as often as they are hashed
_DEEPEST_KEY = 100
_REFUSED = {
    **dict.fromkeys(b"PQ", "a persistent id"),
    **dict.fromkeys(b"\x82\x83\x84", "a registered extension"),
    **dict.fromkeys(b"\x97\x98", "an external buffer"),
}
_KEYS = (str, int, float, bytes, complex, tuple, frozenset, np.generic)
_BASES = (object, list, dict, tuple, str, int, float)
_DICTS = (dict, OrderedDict, Counter, defaultdict)
_HASHES = 1 << 20  # counters of keys with the same hash
# What reading may take, whatever the size of the file, and for each of its bytes.
_FREE_MEMORY, _MEMORY_PER_BYTE = 64 << 20, 8
_FREE_STEPS, _STEPS_PER_BYTE = 2_000_000, 32


def load_all(data: bytes, names: Names) -> list[Any]:
    """The objects of consecutive pickles.

    Raises:
        pickle.UnpicklingError: damaged data, or a name or an instruction that is not admitted.
    """
    found, position, budget = [], 0, Budget(len(data))
    while position < len(data):
        machine = Machine(data, position, names, budget)
        try:
            found.append(machine.run())
        except CodeNeeded as error:
            name, why = error.args
            message = f"byte {machine.start} is an object of {name}, which {why}; {names.hint(name)}"
            raise pickle.UnpicklingError(message) from None
        except (LookupError, ValueError, TypeError, OverflowError, struct.error) as error:
            if machine.is_outside:
                raise
            raise pickle.UnpicklingError(f"damaged at byte {machine.start}: {error}") from None
        position = machine.position
    return found


class Budget:
    """What reading a file of a size may take. Model files take far less than a tenth of it.

    Attributes:
        memory: bytes of copies that the file asks for; what it holds itself does not count.
        steps: keys hashed and compared, in parts that take some 30 ns each.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.memory = self.most_memory = _FREE_MEMORY + _MEMORY_PER_BYTE * size
        self.steps = self.most_steps = _FREE_STEPS + _STEPS_PER_BYTE * size
        self._hashes: Optional[array.array[int]] = None
        self._hashed = 0

    def copy(self, n: int) -> None:
        self.memory -= n
        if self.memory < 0:
            self._refuse(f"copies of more than {self.most_memory:,} bytes")

    def work(self, n: int) -> None:
        """Takes n steps. Looking at an item in Python counts as STEPS_PER_ITEM."""
        self.steps -= n
        if self.steps < 0:
            self._refuse(f"more than {self.most_steps:,} steps with containers")

    def _refuse(self, what: str) -> NoReturn:
        raise pickle.UnpicklingError(
            f"the file has {self.size:,} bytes and asks for {what}: it is made to fill the memory or to take "
            "long, as no model file is"
        )

    def hash(self, key: Any, container: int, weight: int) -> None:
        """Counts keys of one container that have one hash: each is compared with all before it."""
        if self._hashes is None:
            self._hashes = array.array("I", bytes(4 * _HASHES))
        self._hashed += 1
        place = hash((container, hash(key))) % _HASHES
        self._hashes[place] += 1
        count = self._hashes[place]
        if count > 12 + 4 * self._hashed // _HASHES:
            self.work(count * weight)


class Machine:
    """Runs one pickle."""

    def __init__(self, data: bytes, position: int, names: Names, budget: Budget) -> None:
        self.budget = budget
        self.data = data
        self.position = self.start = position
        self.names = names
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        # Of tuples and frozen sets, by id, kept alive by the list.
        self.weights: dict[int, tuple[int, int, bool]] = {}
        self.alive: list[Any] = []
        self.is_outside = False

    def run(self) -> Any:
        while True:
            self.start = self.position
            code = self.take(1)[0]
            if code == 0x2E:  # STOP
                expect(len(self.stack) == 1, "the stack does not hold one object")
                return self.pop()
            do = _INSTRUCTIONS.get(code)
            if do is None:
                self.refuse_instruction(code)
            do(self)

    def refuse_instruction(self, code: int) -> NoReturn:
        what = _REFUSED.get(code)
        raise pickle.UnpicklingError(
            f"byte {self.start} asks for {what}, which no model file needs"
            if what
            else f"damaged at byte {self.start}: no such instruction, {code:#04x}"
        )

    # ---- data

    def take(self, n: int) -> bytes:
        end = self.position + n
        expect(n >= 0 and end <= len(self.data), "the file is truncated")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> bytes:
        end = self.data.find(b"\n", self.position)
        expect(end >= 0, "the file is truncated")
        line = self.data[self.position : end]
        self.position = end + 1
        return line

    def index(self) -> int:
        line = self.line()
        expect(line.isdigit() and len(line) < 12, "no number of an object")
        return int(line)

    # ---- stack

    def push(self, item: Any) -> None:
        self.stack.append(item)

    def pop(self) -> Any:
        item = self.stack.pop()
        expect(item is not _MARK, "a mark where an object should be")
        return item

    def top(self) -> Any:
        item = self.stack[-1]
        expect(item is not _MARK, "a mark where an object should be")
        return item

    def marked(self) -> list[Any]:
        """The objects above the topmost mark."""
        for at in range(len(self.stack) - 1, -1, -1):
            if self.stack[at] is _MARK:
                items = self.stack[at + 1 :]
                del self.stack[at:]
                return items
        raise ValueError("no mark")

    # ---- containers

    def weight_of(self, item: Any) -> tuple[int, int, bool]:
        """(Cost of hashing and comparing it, depth, whether that runs no code)"""
        known = self.weights.get(id(item))
        if known is not None:
            return known
        kind = type(item)
        if kind is str or kind is bytes:
            return 1 + (len(item) >> 6), 0, True
        if kind is int:
            return 1 + (item.bit_length() >> 6), 0, True
        return 1, 0, self.names.may_call(kind) or hashes_by_itself(kind)

    def weigh(self, item: Any) -> Any:
        """Notes what it costs to hash a tuple or a frozen set: each part as often as it occurs."""
        base = tuple if issubclass(type(item), tuple) else frozenset
        parts = [self.weight_of(part) for part in base.__iter__(item)]  # not that of an own class
        weight = min(1 + sum(part[0] for part in parts), 1 << 60)
        depth = 1 + max((part[1] for part in parts), default=0)
        runs_no_code = hashes_by_itself(type(item)) and all(part[2] for part in parts)
        self.weights[id(item)] = weight, depth, runs_no_code
        self.alive.append(item)
        return item

    def check_keys(self, keys: Any, container: int) -> None:
        """Refuses keys that run code, and those that take too long in a container."""
        self.budget.work(STEPS_PER_ITEM * len(keys))
        for key in keys:
            kind = type(key)
            weight, depth, is_plain = self.weight_of(key)
            if kind is not str:
                expect(weight <= _HEAVIEST_KEY and depth <= _DEEPEST_KEY, "a key is nested too deeply")
                if kind is not int or weight > 1:
                    expect(key is None or (is_plain and self._may_be_key(kind)), "a key is no plain data")
                    self.budget.hash(key, container, weight)
            if weight > 1:
                self.budget.work(weight)

    def _may_be_key(self, kind: type) -> bool:
        return issubclass(kind, _KEYS) or self.names.is_own(kind) or self.names.may_call(kind)

    def dictionary(self, items: list[Any], target: Any) -> Any:
        expect(len(items) % 2 == 0, "a key without a value")
        keys, kind = items[::2], type(target)
        put: Any = dict.__setitem__
        if self.names.is_own(kind) and is_one_of(base_of(kind), _DICTS):
            put = base_of(kind).__setitem__
        elif not is_one_of(kind, _DICTS):
            self.check_trusted(kind, "filled")
            put = operator.setitem
        elif kind is OrderedDict:
            put = OrderedDict.__setitem__
        self.check_keys(keys, id(target))
        for key, value in zip(keys, items[1::2]):
            put(target, key, value)
        return target

    def extend_list(self, items: list[Any]) -> None:
        target = self.top()
        if type(target) is list or (self.names.is_own(type(target)) and base_of(type(target)) is list):
            list.extend(target, items)
            return
        self.check_trusted(type(target), "filled")
        for item in items:
            target.append(item)

    def extend_set(self, items: list[Any]) -> None:
        target = self.top()
        expect(type(target) is set, "members of something that is no set")
        self.check_keys(items, id(target))
        target.update(items)

    # ---- names and calls

    def outside(self, run: Callable[[], Any]) -> Any:
        """Runs trusted code, whose exceptions say nothing about the file."""
        self.is_outside = True
        made = run()
        self.is_outside = False
        return made

    def check_trusted(self, called: Any, what: str) -> None:
        if self.names.may_call(called):
            return
        if is_class(called):
            name = full_name_of(called)
        elif is_one_of(type(called), (types.FunctionType, types.BuiltinFunctionType)):
            name = f"{called.__module__}.{called.__qualname__}"
        else:
            name = full_name_of(type(called))
        raise pickle.UnpicklingError(
            f"byte {self.start}: {name} would be {what}, which runs its code; a model needs its name only, "
            f"and objects of own classes their attributes; {self.names.hint(name)}"
        )

    def find(self, module: Any, name: Any) -> None:
        expect(type(module) is str and type(name) is str, "a name is no text")
        self.push(self.names.find(module, name))

    def call(self, called: Any, arguments: Any) -> Any:
        expect(type(arguments) is tuple, "arguments are no tuple")
        plain = data_of.call_plain(self, called, arguments)
        if plain is not None:
            return plain
        if called is PLAIN["copyreg", "_reconstructor"]:
            expect(len(arguments) == 3, "an object of an unusual kind")
            if self.names.is_own(arguments[0]):
                return data_of.reconstruct_own(self, *arguments)
            self.check_trusted(arguments[0], "called")
            expect(is_one_of(arguments[1], _BASES), "an object of an unusual kind")
        elif self.names.is_own(called):
            made = data_of.call_own(self, called, arguments)
            if made is not None:
                return made
        if called is not PLAIN["copyreg", "_reconstructor"]:
            self.check_trusted(called, "called")
        return self.outside(lambda: called(*arguments))

    def instance(self, called: Any, arguments: tuple[Any, ...]) -> Any:
        """As `call`; of a class of Python 2 without arguments, an object that nothing has initialised."""
        if self.names.is_own(called) and not arguments:
            return data_of.new_own(self, called, arguments)
        return self.call(called, arguments)

    def new(self, cls: Any, arguments: Any, keywords: Any) -> Any:
        expect(is_class(cls) and type(arguments) is tuple and type(keywords) is dict, "no class")
        if self.names.is_own(cls):
            expect(not keywords, "arguments by name")
            return data_of.new_own(self, cls, arguments)
        self.check_trusted(cls, "called")
        return self.outside(lambda: cls.__new__(cls, *arguments, **keywords))

    def build(self) -> None:
        state, target = self.pop(), self.top()
        kind = type(target)
        if kind is np.ndarray:
            data_of.fill_array(self, target, state)
        elif issubclass(kind, np.dtype):
            data_of.check_dtype_state(state)
        elif self.names.is_own(kind):
            data_of.set_own_state(self, target, state)
        else:
            self.check_trusted(kind, "filled")
            self.outside(lambda: data_of.set_trusted_state(target, state))


# ---------------------------------------------------------------------------------------- instructions

_INSTRUCTIONS: dict[int, Callable[[Machine], Any]] = {}


def _instruction(code: int) -> Callable[[Callable[[Machine], Any]], Callable[[Machine], Any]]:
    def keep(do: Callable[[Machine], Any]) -> Callable[[Machine], Any]:
        _INSTRUCTIONS[code] = do
        return do

    return keep


def _constant(code: bytes, value: Any) -> None:
    _INSTRUCTIONS[code[0]] = lambda m: m.push(value)


def _pushing(code: bytes, make: Callable[[Machine], Any]) -> None:
    _INSTRUCTIONS[code[0]] = lambda m: m.push(make(m))


def _int_line(m: Machine) -> Any:
    line = m.line().rstrip(b"L")
    if line in (b"00", b"01"):
        return line == b"01"
    expect(len(line) <= _LONGEST_NUMBER and re.fullmatch(rb"[+-]?\d+", line.strip()), "no number")
    return int(line)


def _float_line(m: Machine) -> float:
    line = m.line()
    expect(len(line) <= _LONGEST_NUMBER, "no number")
    return float(line)


def _old_string(raw: bytes) -> str:
    """A str of Python 2."""
    return raw.decode("utf-8", "surrogateescape")


def _quoted(m: Machine) -> str:
    line = m.line().strip()
    expect(len(line) >= 2 and line[0] == line[-1] and line[:1] in (b"'", b'"'), "text without quotes")
    decoded: Any = codecs.escape_decode(line[1:-1])
    return _old_string(decoded[0])


def _text(m: Machine, form: str) -> str:
    return m.take(m.number(form)).decode("utf-8", "surrogatepass")


def _long(m: Machine, form: str) -> int:
    return int.from_bytes(m.take(m.number(form)), "little", signed=True)


def _proto(m: Machine) -> None:
    expect(m.take(1)[0] <= 5, "a protocol that is not known")


def _tuple(m: Machine, n: int) -> tuple[Any, ...]:
    return m.weigh(tuple([m.pop() for _ in range(n)][::-1]))  # type: ignore[no-any-return]


def _remember(m: Machine, key: int) -> None:
    m.memo[key] = m.top()


_constant(b"N", None)
_constant(b"\x88", True)
_constant(b"\x89", False)
_constant(b"(", _MARK)
_constant(b")", ())
_pushing(b"I", _int_line)
_pushing(b"L", _int_line)
_pushing(b"J", lambda m: m.number("<i"))
_pushing(b"K", lambda m: m.number("<B"))
_pushing(b"M", lambda m: m.number("<H"))
_pushing(b"\x8a", lambda m: _long(m, "<B"))
_pushing(b"\x8b", lambda m: _long(m, "<i"))
_pushing(b"F", _float_line)
_pushing(b"G", lambda m: m.number(">d"))
_pushing(b"S", _quoted)
_pushing(b"T", lambda m: _old_string(m.take(m.number("<i"))))
_pushing(b"U", lambda m: _old_string(m.take(m.number("<B"))))
_pushing(b"V", lambda m: m.line().decode("raw-unicode-escape"))
_pushing(b"X", lambda m: _text(m, "<I"))
_pushing(b"\x8c", lambda m: _text(m, "<B"))
_pushing(b"\x8d", lambda m: _text(m, "<Q"))
_pushing(b"B", lambda m: m.take(m.number("<I")))
_pushing(b"C", lambda m: m.take(m.number("<B")))
_pushing(b"\x8e", lambda m: m.take(m.number("<Q")))
_pushing(b"\x96", lambda m: bytearray(m.take(m.number("<Q"))))
_pushing(b"]", lambda m: [])
_pushing(b"}", lambda m: {})
_pushing(b"\x8f", lambda m: set())
_pushing(b"l", lambda m: m.marked())
_pushing(b"t", lambda m: m.weigh(tuple(m.marked())))
_pushing(b"\x85", lambda m: _tuple(m, 1))
_pushing(b"\x86", lambda m: _tuple(m, 2))
_pushing(b"\x87", lambda m: _tuple(m, 3))
_pushing(b"d", lambda m: m.dictionary(m.marked(), {}))
_pushing(b"g", lambda m: m.memo[m.index()])
_pushing(b"h", lambda m: m.memo[m.number("<B")])
_pushing(b"j", lambda m: m.memo[m.number("<I")])
_INSTRUCTIONS.update(
    {
        0x80: _proto,
        0x95: lambda m: m.take(8),  # FRAME: only for readers of streams
        ord("0"): lambda m: m.stack.pop(),
        ord("1"): lambda m: m.marked(),
        ord("2"): lambda m: m.push(m.top()),
        ord("a"): lambda m: m.extend_list([m.pop()]),
        ord("e"): lambda m: m.extend_list(m.marked()),
        0x90: lambda m: m.extend_set(m.marked()),
        ord("u"): lambda m: m.dictionary(m.marked(), m.top()),
        ord("p"): lambda m: _remember(m, m.index()),
        ord("q"): lambda m: _remember(m, m.number("<B")),
        ord("r"): lambda m: _remember(m, m.number("<I")),
        0x94: lambda m: _remember(m, len(m.memo)),
        ord("b"): lambda m: m.build(),
        ord("c"): lambda m: m.find(m.line().decode(), m.line().decode()),
    }
)


@_instruction(0x91)
def _frozen_set(m: Machine) -> None:
    items = m.marked()
    m.check_keys(items, m.start)
    m.push(m.weigh(frozenset(items)))


@_instruction(ord("s"))
def _set_item(m: Machine) -> None:
    value, key = m.pop(), m.pop()
    m.dictionary([key, value], m.top())


@_instruction(0x93)
def _stack_global(m: Machine) -> None:
    name, module = m.pop(), m.pop()
    m.find(module, name)


@_instruction(ord("R"))
def _reduce(m: Machine) -> None:
    arguments, called = m.pop(), m.pop()
    m.push(m.call(called, arguments))


@_instruction(0x81)
def _new_object(m: Machine) -> None:
    arguments, cls = m.pop(), m.pop()
    m.push(m.new(cls, arguments, {}))


@_instruction(0x92)
def _new_object_ex(m: Machine) -> None:
    keywords, arguments, cls = m.pop(), m.pop(), m.pop()
    m.push(m.new(cls, arguments, keywords))


@_instruction(ord("i"))
def _instance(m: Machine) -> None:
    module, name = m.line().decode(), m.line().decode()
    arguments = tuple(m.marked())
    m.find(module, name)
    m.push(m.instance(m.pop(), arguments))


@_instruction(ord("o"))
def _object(m: Machine) -> None:
    items = m.marked()
    expect(items, "no class")
    m.push(m.instance(items[0], tuple(items[1:])))
