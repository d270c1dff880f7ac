"""The reader of .meta files: it makes plain data, and runs nothing."""

from __future__ import annotations

import collections
import os
import pickle
import sys
import time
import types
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("the reference has no such reader", allow_module_level=True)

from dynet_compat.files.pickle_names import Names
from dynet_compat.files.unpickler import load_all

RAN: list[Any] = []  # what was called


def ran(*arguments: Any, **keywords: Any) -> Any:
    RAN.append(arguments)
    return arguments


class Admitted:
    """Has from_spec: may be named, and nothing more."""

    value = 1

    def __init__(self, *arguments: Any) -> None:
        ran(self, *arguments)

    def __new__(cls, *arguments: Any) -> Any:
        ran(cls, *arguments)
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:
        ran(state)

    @classmethod
    def from_spec(cls, spec: Any, model: Any) -> Any:
        ran(spec)

    @classmethod
    def append(cls, item: Any) -> None:
        ran(item)

    extend = add = update = __setitem__ = append


class Vocabulary:
    """Of a user who lists it as trusted."""

    def __init__(self, words: Any = ()) -> None:
        self.words = list(words)

    def __eq__(self, other: Any) -> bool:
        return type(other) is type(self) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


class WithState(Vocabulary):
    def __getstate__(self) -> Any:
        return {"w": self.words}

    def __setstate__(self, state: Any) -> None:
        self.words = state["w"]


class ListOf(list):  # type: ignore[type-arg]
    pass


class Slots:
    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a, self.b = 1, [2]


def read(data: bytes, trusted: Any = ()) -> list[Any]:
    RAN.clear()
    return load_all(data, Names(lambda module, name: None, "from_spec", trusted, "load()"))


HERE = __name__.encode()
PLAIN: list[Any] = [
    None, True, False, 0, 1, -1, 255, 256, 65536, -(2**31), 2**31, 2**100, -(2**2100), 1.5, -0.0, 1e300,
    float("inf"), "", "text", "é" * 300, "\ud800", "a\nb\\", b"", b"bytes" * 100, bytearray(b"xyz"), 1 + 2j,
    [], [1, [2, [3]]], (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), list(range(3000)), {},
    {"a": 1, 2: (3,), (4, 5): None}, {i: str(i) for i in range(3000)}, set(), {1, "a", (2, 3)},
    frozenset([1, frozenset([2])]), [{"deep": [({1: {2}},)]}], collections.Counter("hello"),
    collections.OrderedDict([("b", 1), ("a", 2)]), collections.defaultdict(int, a=3),
    collections.defaultdict(list, {"x": [1]}), np.float32(1.5), np.int64(-7), np.bool_(True),
    np.float64("nan"),
    np.arange(6).reshape(2, 3), np.asfortranarray(np.ones((2, 3), dtype=np.float32)), np.array(["a", "bcd"]),
    np.array(3.5), np.zeros((0, 4)), np.dtype("float32"), int, str, dict, np.ndarray,
]  # fmt: skip


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    return type(a) is type(b) and (a == b or repr(a) == repr(b))


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("number", range(len(PLAIN)))
def test_plain_data(number: int, protocol: int) -> None:
    item = PLAIN[number]
    data = pickle.dumps((item, [item]), protocol)
    (found,) = read(data)
    assert same(found[0], item) and same(found[1][0], item)
    if isinstance(item, (list, dict, set, bytearray)):
        assert found[1][0] is found[0]
    assert [len(x) for x in read(data * 3)] == [2, 2, 2]
    if isinstance(item, collections.defaultdict):
        assert found[0].default_factory is item.default_factory


def test_cycles_and_shared_objects() -> None:
    a: list[Any] = [1]
    a.append(a)
    d: dict[str, Any] = {"a": a}
    d["d"] = d
    (found,) = read(pickle.dumps(d))
    assert found["d"] is found and found["a"][1] is found["a"]


def test_admitted_class_is_not_called() -> None:
    (found,) = read(pickle.dumps((Admitted, (1, Admitted), "/name/")))
    assert found == (Admitted, (1, Admitted), "/name/") and RAN == []


def G(name: str, module: bytes = HERE) -> bytes:  # noqa: N802 - an instruction
    return b"c" + module + b"\n" + name.encode() + b"\n"


HOSTILE: dict[str, bytes] = {
    "reduce": G("Admitted") + b"(I1\ntR.",
    "reduce without arguments": G("Admitted") + b")R.",
    "new object": b"\x80\x02" + G("Admitted") + b")\x81.",
    "new object with keywords": b"\x80\x04" + G("Admitted") + b")}\x92.",
    "instance": b"(I1\ni" + HERE + b"\nAdmitted\n.",
    "instance of a method": b"(I1\ni" + HERE + b"\nAdmitted.append\n.",
    "object": b"(" + G("Admitted") + b"I1\no.",
    "method": G("Admitted.append") + b"(I1\ntR.",
    "from_spec": G("Admitted.from_spec") + b"(I1\nI2\ntR.",
    "append to a class": G("Admitted") + b"I1\na.",
    "appends to a class": G("Admitted") + b"(I1\nI2\ne.",
    "set item of a class": G("Admitted") + b"I1\nI2\ns.",
    "set items of a class": G("Admitted") + b"(I1\nI2\nu.",
    "add items to a class": b"\x80\x04" + G("Admitted") + b"(I1\n\x90.",
    "state of a class": G("Admitted") + b"}S'value'\nI2\nsb.",
    "state of a number": b"I1\n}b.",
    "state of a list": b"](I1\ntb.",
    "function": G("ran") + b"(I1\ntR.",
    "class without from_spec": G("Vocabulary") + b")R.",
    "system": G("system", b"os") + b"(S'true'\ntR.",
    "posix system": G("system", b"posix") + b"(S'true'\ntR.",
    "eval": G("eval", b"builtins") + b"(S'ran(1)'\ntR.",
    "old eval": G("eval", b"__builtin__") + b"(S'ran(1)'\ntR.",
    "getattr": G("getattr", b"builtins") + b"(I1\nS'real'\ntR.",
    "type": G("type", b"builtins") + b"(S'x'\n)}tR.",
    "subprocess": G("Popen", b"subprocess") + b"(S'true'\ntR.",
    "module of a module": b"\x80\x04" + G("RAN.append") + b"(I1\ntR.",
    "dotted path": b"\x80\x04" + G("Admitted.__init__.__globals__") + b".",
    "mro": b"\x80\x04" + G("Admitted.__mro__") + b".",
    "partial": G("partial", b"functools") + b"(I1\ntR.",
    "reconstructor": G("_reconstructor", b"copyreg")
    + b"("
    + G("Admitted")
    + G("object", b"builtins")
    + b"NtR.",
    "reconstructor with a base": G("_reconstructor", b"copyreg")
    + b"("
    + G("int", b"builtins") * 2
    + b"I1\ntR.",
    "encode": G("encode", b"_codecs") + b"(S'x'\nS'zip'\ntR.",
    "default factory": G("defaultdict", b"collections") + b"(" + G("Admitted") + b"tR.",
    "counter of a class": G("Counter", b"collections") + b"(" + G("Admitted") + b"tR.",
    "list of a class": G("list", b"builtins") + b"(" + G("Admitted") + b"tR.",
    "class as a key": b"}" + G("Admitted") + b"I1\ns.",
    "array of objects": G("dtype", b"numpy") + b"(S'O8'\nI00\nI01\ntR.",
    "array of a class": G("_reconstruct", b"numpy.core.multiarray")
    + b"("
    + G("Admitted")
    + b"(I0\ntS'b'\ntR.",
    "new int": b"\x80\x02" + G("int", b"builtins") + b"(I1\nt\x81.",
    "persistent id": b"Pid\n.",
    "binary persistent id": b"I1\nQ.",
    "extension": b"\x82\x01.",
    "buffer": b"\x97.",
    "read-only buffer": b"I1\n\x98.",
    "nothing": b".",
    "two objects": b"I1\nI2\n.",
    "mark": b"(.",
    "unknown instruction": b"\xff.",
    "protocol 6": b"\x80\x06N.",
    "bad memo": b"g5\n.",
    "memo of letters": b"Np\xd9\xa1\n.",
    "odd dictionary": b"(I1\nd.",
    "list as a key": b"}]I1\ns.",
    "negative length": b"T\xff\xff\xff\xff.",
    "long length": b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "negative long": b"\x8b\xff\xff\xff\xff.",
    "text without quotes": b"Sabc\n.",
    "no text": b"\x8c\x02\xff\xfe.",
    "no number": b"Iabc\n.",
    "number of underscores": b"I1_0\n.",
    "name of numbers": b"I1\nI2\n\x93.",
    "long number": b"L" + b"9" * 100000 + b"\n.",
    "long float": b"F" + b"9" * 100000 + b"\n.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(name: str) -> None:
    modules = set(sys.modules)
    with pytest.raises(pickle.UnpicklingError) as raised:
        read(HOSTILE[name])
    assert RAN == [] and Admitted.value == 1 and set(sys.modules) == modules
    assert any(
        word in str(raised.value) for word in ("trusted=[", "damaged at byte", "which no model file needs")
    )


@pytest.mark.parametrize("command", ["os.system", "posix.system", "subprocess.call", "webbrowser.open"])
def test_what_pickle_would_run(command: str, tmp_path: Path) -> None:
    """The usual exploit, in every protocol."""
    module, function = command.rsplit(".", 1)

    class Exploit:
        def __reduce__(self) -> Any:
            return getattr(__import__(module), function), ("touch " + str(tmp_path / "ran"),)

    for protocol in range(6):
        data = pickle.dumps(Exploit(), protocol)
        with pytest.raises(pickle.UnpicklingError, match=r"the file names .*trusted=\["):
            read(data)
    assert not os.listdir(tmp_path)


def test_nothing_is_imported() -> None:
    data = b"cantigravity\nfly\n."
    with pytest.raises(pickle.UnpicklingError, match="module antigravity, which is not imported"):
        read(data)
    assert "antigravity" not in sys.modules


def test_modules_are_not_asked() -> None:
    """A module's __getattr__, a lazy module, and a thing in sys.modules that is no module."""
    module = types.ModuleType("lazy_module")
    module.__getattr__ = ran  # type: ignore[method-assign]

    class Lazy(types.ModuleType):
        def __getattribute__(self, name: str) -> Any:
            return ran(name)

    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            return ran(name)

    class Odd(metaclass=Meta):
        pass

    things = {"lazy_module": module, "lazier_module": Lazy("lazier_module"), "no_module": Odd}
    types.ModuleType.__setattr__(module, "Odd", Odd)
    sys.modules.update(things)  # type: ignore[arg-type]
    try:
        for name in things:
            for attribute in ("from_spec", "Odd", "Odd.from_spec"):
                with pytest.raises(pickle.UnpicklingError):
                    read(b"c" + name.encode() + b"\n" + attribute.encode() + b"\n.")
    finally:
        for name in things:
            del sys.modules[name]
    assert RAN == []


# ---------------------------------------------------------------------------------------------- trusted


@pytest.mark.parametrize("protocol", range(6))
def test_trusted(protocol: int) -> None:
    for item in (Vocabulary("ab"), WithState("cd"), ListOf([1, 2])):
        data = pickle.dumps(("x", item), protocol)
        name = f"{__name__}.{type(item).__name__}"
        with pytest.raises(pickle.UnpicklingError, match=name):
            read(data)
        for trusted in ([name], [type(item)], (name, "other.Name")):
            (found,) = read(data, trusted)
            assert type(found[1]) is type(item) and found[1] == item
    if protocol > 1:
        (slots,) = read(pickle.dumps(Slots(), protocol), [Slots])
        assert (slots.a, slots.b) == (1, [2])


def test_trusted_names_are_imported() -> None:
    sys.modules.pop("this_module_is_new", None)
    data = b"cdecimal\nDecimal\n(S'1.5'\ntR."
    (found,) = read(data, ["decimal.Decimal"])
    assert str(found) == "1.5"
    with pytest.raises(ModuleNotFoundError):
        read(b"cthis_module_is_new\nX\n.", ["this_module_is_new.X"])
    with pytest.raises(ValueError, match="mine"):  # an exception of trusted code is no damage of the file
        read(b"c" + HERE + b"\nraising\n)R.", [raising])


def raising() -> None:
    raise ValueError("mine")


def test_bad_trusted() -> None:
    for wrong in ("a.b", [1], [None]):
        with pytest.raises(TypeError, match="trusted"):
            read(b"N.", wrong)


# ------------------------------------------------------------------------------------------- exhaustion

BOMBS: dict[str, Callable[[], bytes]] = {
    "deep lists": lambda: b"]" * 200000 + b"a" * 199999 + b".",
    "deep tuples": lambda: b")" + b"\x85" * 200000 + b".",
    "deep tuple as a key": lambda: b"})" + b"\x85" * 200000 + b"I1\ns.",
    "deep tuple in a set": lambda: b"\x8f()" + b"\x85" * 200000 + b"\x90.",
    "doubling tuple as a key": lambda: b"})" + b"2\x86" * 60 + b"I1\ns.",
    "doubling frozen set as a key": lambda: b"}(I1\n\x91" + b"p0\n0(g0\ng0\n\x86\x91" * 60 + b"I1\ns.",
    "doubling lists": lambda: b"]p0\n" + b"0](g0\ng0\nep0\n" * 60 + b".",
    "many memos": lambda: b"N" + b"".join(b"p%d\n" % i for i in range(50000)) + b".",
    "many marks": lambda: b"(" * 200000 + b".",
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(name: str) -> None:
    start = time.process_time()
    try:
        read(BOMBS[name]())
    except pickle.UnpicklingError as error:
        assert "damaged" in str(error)
    assert time.process_time() - start < 20
