"""Reading pickles without running them, for the .meta files of `dy.save`.

A pickle is a program for a small stack machine; Python's own machine calls whatever the file names. This one
makes plain data only. Names are looked up in modules that are imported already, through a function of the
caller, and what they stand for is put into the result as it is. Nothing is called but what the user lists as
trusted, and a few types of the standard library and of NumPy whose arguments are checked here.
"""

from __future__ import annotations

import codecs
import collections
import copyreg
import pickle
import re
import struct
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy as np

Find = Callable[[str, str], Any]  # (module, qualified name) -> object; raises for what is not admitted

_MARK = object()
_DTYPE = re.compile(r"[<|=]?(?:[biufc]\d{1,2}|[SU]\d{1,6}|\?)")
_LONGEST_NUMBER = 4300  # digits; more take time that grows with the square
_HEAVIEST_KEY = 100_000  # parts of a tuple used as a key, counted as often as they are hashed
_DEEPEST_KEY = 100
# Names of Python 2 in files of DyNet under Python 2.
_OLD_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg", "UserDict": "collections"}
_OLD_NAMES = {("builtins", "unicode"): "str", ("builtins", "long"): "int", ("builtins", "xrange"): "range"}


class _Helper:
    """A function of NumPy or of the standard library that pickles of plain data name."""

    def __init__(self, name: str) -> None:
        self.name = name


_RECONSTRUCT, _SCALAR, _ENCODE = _Helper("_reconstruct"), _Helper("scalar"), _Helper("encode")
_PLAIN: dict[tuple[str, str], Any] = {
    **{
        ("builtins", t.__name__): t
        for t in (int, float, bool, str, bytes, bytearray, complex, list, tuple, dict, set, frozenset)
    },
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "Counter"): collections.Counter,
    ("collections", "defaultdict"): collections.defaultdict,
    ("_codecs", "encode"): _ENCODE,
    ("builtins", "object"): object,
    ("copyreg", "_reconstructor"): copyreg._reconstructor,  # type: ignore[attr-defined]
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    **{
        (f"numpy.{core}.multiarray", helper.name): helper
        for core in ("core", "_core")
        for helper in (_RECONSTRUCT, _SCALAR)
    },
}
_REFUSED = {
    **dict.fromkeys(b"PQ", "a persistent id"),
    **dict.fromkeys(b"\x82\x83\x84", "a registered extension"),
    **dict.fromkeys(b"\x97\x98", "an external buffer"),
}
_KEYS = (str, int, float, bytes, complex, tuple, frozenset, np.generic)
_FACTORIES = (None, int, float, str, list, dict, set)
_BASES = (object, list, dict, tuple, str, int, float)
_DICTS = (dict, collections.OrderedDict, collections.Counter, collections.defaultdict)


class Names:
    """What the names in a pickle may stand for.

    Args:
        own: (module, name) -> object of this package, or None.
        protocol: methods that make a class of the user's program admissible, `from_spec`.
        trusted: names ("package.module.Class") or objects that may be imported and called, too.
    """

    def __init__(
        self, own: Callable[[str, str], Any], protocol: str, trusted: Iterable[Any], caller: str
    ) -> None:
        self._own = own
        self._protocol = protocol
        self._caller = caller
        self._trusted_names: set[str] = set()
        self.trusted: list[Any] = []
        if isinstance(trusted, str):
            raise TypeError(f"{caller}: expected a list of names for trusted, got the str {trusted!r}")
        for item in trusted:
            if isinstance(item, str):
                self._trusted_names.add(item)
            elif callable(item):
                self.trusted.append(item)
            else:
                raise TypeError(f"{caller}: expected names or classes in trusted, got {item!r}")

    def find(self, module: str, name: str) -> Any:
        """The object, or an UnpicklingError that says how to admit it."""
        module = _OLD_MODULES.get(module, module)
        name = _OLD_NAMES.get((module, name), name)
        if (module, name) in _PLAIN:
            return _PLAIN[module, name]
        full = f"{module}.{name}"
        if full in self._trusted_names:
            found = _imported(module, name)
            self.trusted.append(found)
            return found
        found = self._own(module, name)
        if found is not None:
            return found
        found = _loaded(module, name)
        if found is not None and (self.may_call(found) or _has(found, self._protocol)):
            return found
        raise pickle.UnpicklingError(self._refusal(module, full, found))

    def may_call(self, found: Any) -> bool:
        return _is_one_of(found, self.trusted)

    def _refusal(self, module: str, full: str, found: Any) -> str:
        why = "is no class with a from_spec()"
        if found is None:
            there = module in sys.modules
            why = "does not exist" if there else f"is in the module {module}, which is not imported"
        return (
            f"the file names {full}, which {why}. Names of this package and of imported classes with a "
            f"from_spec() are admitted; if you know the file and what it would run, say "
            f"{self._caller.split('(')[0]}(..., trusted=[{full!r}])"
        )


def _parts(name: str) -> list[str]:
    return name.split(".") if len(name) < 1000 else [name]


def _loaded(module: str, name: str) -> Any:
    """The object of this name in an imported module, found without running code; None if there is none."""
    found: Any = sys.modules.get(module)
    if not issubclass(type(found), types.ModuleType):  # isinstance() would ask the object for its class
        return None
    names = types.ModuleType.__getattribute__(found, "__dict__")
    for part in _parts(name):
        if not isinstance(names, (dict, types.MappingProxyType)):
            return None
        found = names.get(part)
        names = type.__getattribute__(found, "__dict__") if issubclass(type(found), type) else None
    return found


def _imported(module: str, name: str) -> Any:
    __import__(module)
    found: Any = sys.modules[module]
    for part in _parts(name):
        found = getattr(found, part)
    return found


def _has(found: Any, method: str) -> bool:
    """Whether a class has a method, found without running code."""
    if not issubclass(type(found), type):
        return False
    bases = type.__getattribute__(found, "__mro__")
    return any(method in type.__getattribute__(c, "__dict__") for c in bases)


def load_all(data: bytes, names: Names) -> list[Any]:
    """The objects of consecutive pickles.

    Raises:
        pickle.UnpicklingError: damaged data, or a name or an instruction that is not admitted.
    """
    found, position = [], 0
    while position < len(data):
        machine = _Machine(data, position, names)
        try:
            found.append(machine.run())
        except (LookupError, ValueError, TypeError, OverflowError, struct.error) as error:
            if machine.is_outside:
                raise
            raise pickle.UnpicklingError(f"damaged at byte {machine.start}: {error}") from None
        position = machine.position
    return found


def _expect(condition: Any, message: str) -> None:
    if not condition:
        raise ValueError(message)


class _Machine:
    """Runs one pickle."""

    def __init__(self, data: bytes, position: int, names: Names) -> None:
        self.data = data
        self.position = self.start = position
        self.names = names
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        # id -> (parts, depth) of tuples and frozen sets, kept alive by the list.
        self.weights: dict[int, tuple[int, int]] = {}
        self.alive: list[Any] = []
        self.is_outside = False

    def run(self) -> Any:
        while True:
            self.start = self.position
            code = self.take(1)[0]
            if code == 0x2E:  # STOP
                _expect(len(self.stack) == 1, "the stack does not hold one object")
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
        _expect(n >= 0 and end <= len(self.data), "the file is truncated")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> bytes:
        end = self.data.find(b"\n", self.position)
        _expect(end >= 0, "the file is truncated")
        line = self.data[self.position : end]
        self.position = end + 1
        return line

    def index(self) -> int:
        line = self.line()
        _expect(line.isdigit() and len(line) < 12, "no number of an object")
        return int(line)

    # ---- stack

    def push(self, item: Any) -> None:
        self.stack.append(item)

    def pop(self) -> Any:
        item = self.stack.pop()
        _expect(item is not _MARK, "a mark where an object should be")
        return item

    def top(self) -> Any:
        item = self.stack[-1]
        _expect(item is not _MARK, "a mark where an object should be")
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

    def weigh(self, item: Any) -> Any:
        """Notes what it costs to hash a tuple or a frozen set: each part as often as it occurs."""
        parts = [self.weights.get(id(part), (1, 0)) for part in item]
        weight = min(1 + sum(w for w, _ in parts), 1 << 60)
        self.weights[id(item)] = (weight, 1 + max((d for _, d in parts), default=0))
        self.alive.append(item)
        return item

    def check_keys(self, keys: Iterable[Any]) -> None:
        for key in keys:
            weight, depth = self.weights.get(id(key), (1, 0))
            _expect(weight <= _HEAVIEST_KEY and depth <= _DEEPEST_KEY, "a key is nested too deeply")
            _expect(
                key is None or isinstance(key, _KEYS) or self.names.may_call(type(key)),
                "a key is no plain data",
            )

    def dictionary(self, items: list[Any], target: Any) -> Any:
        _expect(len(items) % 2 == 0, "a key without a value")
        keys = items[::2]
        if type(target) not in _DICTS:
            self.check_trusted(type(target), "filled")
        self.check_keys(keys)
        for key, value in zip(keys, items[1::2]):
            target[key] = value
        return target

    def extend_list(self, items: list[Any]) -> None:
        target = self.top()
        if type(target) is not list:
            self.check_trusted(type(target), "filled")
        for item in items:
            target.append(item)

    def extend_set(self, items: list[Any]) -> None:
        target = self.top()
        _expect(type(target) is set, "members of something that is no set")
        self.check_keys(items)
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
        if isinstance(called, (type, types.FunctionType, types.BuiltinFunctionType)):
            name = f"{called.__module__}.{called.__qualname__}"
        else:
            name = type(called).__name__
        raise pickle.UnpicklingError(
            f"byte {self.start}: {name} would be {what}, which runs its code; a model needs its name only. "
            f"If you know the file and what it would run, list it: trusted=[{name!r}]"
        )

    def find(self, module: Any, name: Any) -> None:
        _expect(type(module) is str and type(name) is str, "a name is no text")
        self.push(self.names.find(module, name))

    def call(self, called: Any, arguments: Any) -> Any:
        _expect(type(arguments) is tuple, "arguments are no tuple")
        plain = _plain_call(self, called, arguments)
        if plain is not None:
            return plain
        if called is _PLAIN["copyreg", "_reconstructor"]:
            _expect(len(arguments) == 3, "an object of an unusual kind")
            self.check_trusted(arguments[0], "called")
            _expect(_is_one_of(arguments[1], _BASES), "an object of an unusual kind")
        else:
            self.check_trusted(called, "called")
        return self.outside(lambda: called(*arguments))

    def new(self, cls: Any, arguments: Any, keywords: Any) -> Any:
        _expect(isinstance(cls, type) and type(arguments) is tuple and type(keywords) is dict, "no class")
        self.check_trusted(cls, "called")
        return self.outside(lambda: cls.__new__(cls, *arguments, **keywords))

    def build(self) -> None:
        state, target = self.pop(), self.top()
        if type(target) is np.ndarray:
            return _fill_array(target, state)
        if isinstance(target, np.dtype):
            usual = type(state) is tuple and len(state) >= 2 and state[1] in ("<", "|", "=")
            _expect(usual and all(part is None for part in state[2:5]), "an unusual type of numbers")
            return None
        self.check_trusted(type(target), "filled")
        self.outside(lambda: _set_state(target, state))
        return None


# ------------------------------------------------------------------------------------------ plain data


def _is_one_of(item: Any, options: Iterable[Any]) -> bool:
    """By identity: `in` would call the item's __eq__."""
    return any(item is option for option in options)


def _plain_call(machine: _Machine, called: Any, arguments: tuple[Any, ...]) -> Any:
    """What a call of an admitted type or helper makes; None if it is another one."""
    if _is_one_of(called, (set, frozenset, list, tuple, bytearray)):
        items = arguments[0] if arguments else ()
        _expect(len(arguments) <= 1 and type(items) in (list, tuple, bytes), "a container of no list")
        if _is_one_of(called, (set, frozenset)):
            machine.check_keys(items)
        made = called(items)
        return machine.weigh(made) if _is_one_of(called, (tuple, frozenset)) else made
    if called is complex:
        _expect(len(arguments) == 2 and all(type(a) is float for a in arguments), "no complex number")
        return complex(*arguments)
    if called is bytes:
        _expect(not arguments, "bytes of something")
        return b""
    if _is_one_of(called, (collections.OrderedDict, collections.Counter, dict)):
        made = called()
        if arguments and type(arguments[0]) is dict and len(arguments) == 1:
            made.update(arguments[0])
            return made
        items = arguments[0] if arguments else []
        _expect(len(arguments) < 2 and type(items) is list, "no items of a dictionary")
        pairs = [part for pair in items if type(pair) in (list, tuple) and len(pair) == 2 for part in pair]
        _expect(len(pairs) == 2 * len(items), "no items of a dictionary")
        return machine.dictionary(pairs, made)
    if called is collections.defaultdict:
        factory = arguments[0] if arguments else None
        _expect(len(arguments) <= 1 and _is_one_of(factory, _FACTORIES), "an unusual defaultdict")
        return collections.defaultdict(factory)
    return _numpy_call(called, arguments)


def _numpy_call(called: Any, arguments: tuple[Any, ...]) -> Any:
    if called is np.dtype:
        name = arguments[0] if arguments else None
        _expect(type(name) is str and _DTYPE.fullmatch(name), "an unusual type of numbers")
        return np.dtype(name)
    if called is _SCALAR:
        _expect(len(arguments) == 2, "no number of NumPy")
        kind, raw = arguments
        _expect(isinstance(kind, np.dtype) and kind.kind in "biufc", "no number of NumPy")
        _expect(type(raw) is bytes and len(raw) == kind.itemsize, "a number of NumPy of another size")
        return np.frombuffer(raw, kind)[0]
    if called is _RECONSTRUCT:
        _expect(len(arguments) == 3 and arguments[0] is np.ndarray, "no array of NumPy")
        return np.empty(0)
    if called is _ENCODE:
        _expect(len(arguments) == 2 and all(type(a) is str for a in arguments), "no bytes")
        _expect(arguments[1] == "latin1", "no bytes")
        return arguments[0].encode("latin1")
    return None


def _set_state(target: Any, state: Any) -> None:
    """What pickle does with the state of an object."""
    set_state = getattr(target, "__setstate__", None)
    if set_state is not None:
        return set_state(state)  # type: ignore[no-any-return]
    slots = None
    if type(state) is tuple and len(state) == 2:
        state, slots = state
    for part in (state, slots):
        for name, value in (part or {}).items():
            setattr(target, name, value)
    return None


def _fill_array(target: np.ndarray, state: Any) -> None:
    _expect(type(state) is tuple and len(state) == 5 and state[0] == 1, "no array of NumPy")
    _, shape, kind, fortran, raw = state
    _expect(type(shape) is tuple and len(shape) <= 32 and type(fortran) is bool, "no shape of an array")
    _expect(all(type(size) is int and 0 <= size < 1 << 40 for size in shape), "no shape of an array")
    _expect(isinstance(kind, np.dtype) and kind.kind in "biufcSU" and type(raw) is bytes, "no numbers")
    size = kind.itemsize
    for extent in shape:
        size *= extent
    _expect(size == len(raw), "an array of another size")
    target.__setstate__(state)


# ---------------------------------------------------------------------------------------- instructions

_INSTRUCTIONS: dict[int, Callable[[_Machine], Any]] = {}


def _instruction(code: int) -> Callable[[Callable[[_Machine], Any]], Callable[[_Machine], Any]]:
    def keep(do: Callable[[_Machine], Any]) -> Callable[[_Machine], Any]:
        _INSTRUCTIONS[code] = do
        return do

    return keep


def _constant(code: bytes, value: Any) -> None:
    _INSTRUCTIONS[code[0]] = lambda m: m.push(value)


def _pushing(code: bytes, make: Callable[[_Machine], Any]) -> None:
    _INSTRUCTIONS[code[0]] = lambda m: m.push(make(m))


def _int_line(m: _Machine) -> Any:
    line = m.line().rstrip(b"L")
    if line in (b"00", b"01"):
        return line == b"01"
    _expect(len(line) <= _LONGEST_NUMBER and re.fullmatch(rb"[+-]?\d+", line.strip()), "no number")
    return int(line)


def _float_line(m: _Machine) -> float:
    line = m.line()
    _expect(len(line) <= _LONGEST_NUMBER, "no number")
    return float(line)


def _old_string(raw: bytes) -> str:
    """A str of Python 2."""
    return raw.decode("utf-8", "surrogateescape")


def _quoted(m: _Machine) -> str:
    line = m.line().strip()
    _expect(len(line) >= 2 and line[0] == line[-1] and line[:1] in (b"'", b'"'), "text without quotes")
    decoded: Any = codecs.escape_decode(line[1:-1])
    return _old_string(decoded[0])


def _text(m: _Machine, form: str) -> str:
    return m.take(m.number(form)).decode("utf-8", "surrogatepass")


def _long(m: _Machine, form: str) -> int:
    return int.from_bytes(m.take(m.number(form)), "little", signed=True)


def _proto(m: _Machine) -> None:
    _expect(m.take(1)[0] <= 5, "a protocol that is not known")


def _tuple(m: _Machine, n: int) -> tuple[Any, ...]:
    return m.weigh(tuple([m.pop() for _ in range(n)][::-1]))  # type: ignore[no-any-return]


def _remember(m: _Machine, key: int) -> None:
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
def _frozen_set(m: _Machine) -> None:
    items = m.marked()
    m.check_keys(items)
    m.push(m.weigh(frozenset(items)))


@_instruction(ord("s"))
def _set_item(m: _Machine) -> None:
    value, key = m.pop(), m.pop()
    m.dictionary([key, value], m.top())


@_instruction(0x93)
def _stack_global(m: _Machine) -> None:
    name, module = m.pop(), m.pop()
    m.find(module, name)


@_instruction(ord("R"))
def _reduce(m: _Machine) -> None:
    arguments, called = m.pop(), m.pop()
    m.push(m.call(called, arguments))


@_instruction(0x81)
def _new_object(m: _Machine) -> None:
    arguments, cls = m.pop(), m.pop()
    m.push(m.new(cls, arguments, {}))


@_instruction(0x92)
def _new_object_ex(m: _Machine) -> None:
    keywords, arguments, cls = m.pop(), m.pop(), m.pop()
    m.push(m.new(cls, arguments, keywords))


@_instruction(ord("i"))
def _instance(m: _Machine) -> None:
    module, name = m.line().decode(), m.line().decode()
    arguments = tuple(m.marked())
    m.find(module, name)
    m.push(m.call(m.pop(), arguments))


@_instruction(ord("o"))
def _object(m: _Machine) -> None:
    items = m.marked()
    _expect(items, "no class")
    m.push(m.call(items[0], tuple(items[1:])))
