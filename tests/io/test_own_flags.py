"""Combined members of the program's own flags, in .meta files."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable
from typing import Any

import pytest
import test_own_classes
from test_own_classes import RAN, Folder, G

program = test_own_classes.program  # a fixture

FLAGS = """
import enum
from test_own_classes import RAN
class Rights(enum.Flag):
    WRITE, READ, BOTH, RUN = 2, 1, 3, 8
    def __or__(self, other): RAN.append(other)
class Modes(enum.IntFlag):
    A, B, C = 1, 2, 4
class Same(enum.IntFlag):
    A, B, C = 1, 2, 4
class Wide(enum.Flag):
    LOW, BOTH, ALSO = 1, 6, 10
class SameWide(enum.Flag):
    LOW, BOTH, ALSO = 1, 6, 10
class Missing(enum.Flag):
    A, B, C, BOTH = 1, 2, 4, 3
    @classmethod
    def _missing_(cls, value): RAN.append(value); return super()._missing_(value)
class Mixed:
    @classmethod
    def _create_pseudo_member_(cls, value): RAN.append(value)
class Pseudo(Mixed, enum.IntFlag):
    A, B, C, BOTH = 1, 2, 4, 3
class Dying(enum.Flag):
    A, B, C, BOTH = 1, 2, 4, 3
    def __del__(self): pass
Many = enum.Flag("Many", [f"M{i}" for i in range(1500)])
Long = enum.Flag("Long", [f"M{i}" + "x" * 100_000 for i in range(12)])
"""


def call(name: str, value: int) -> bytes:
    return b"\x80\x02" + G(name, "flags") + b"I%d\n\x85R." % value


def test_flags_that_are_combined(program: Folder) -> None:
    """They are made without the class's code, and are the objects that the program has or makes later."""
    program.write("flags.py", FLAGS)
    flags = program.module("flags")

    def read(name: str, value: int) -> Any:
        return program.read(call(name, value))

    assert read("Rights", 3) is flags.Rights.BOTH
    found = read("Rights", 11)
    assert found is read("Rights", 11) and found is flags.Rights(11) and found.value == 11
    assert flags.Rights.RUN in found and RAN == []
    for value in (0, 3, 5, 7):
        found, same = read("Modes", value), flags.Same(value)
        assert found is flags.Modes(value) and found is read("Modes", value) and found == value
        assert str(found) == str(same).replace("Same", "Modes") and hash(found) == hash(same)
        assert repr(found) == repr(same).replace("Same", "Modes")
        assert vars(found).keys() == vars(same).keys() and found.name == same.name
    assert read("Modes", 3) | flags.Modes.C is read("Modes", 7)
    for value in (7, 11, 14, 15, 0):
        found, same = read("Wide", value), flags.SameWide(value)
        assert found is flags.Wide(value) and found.value == value and found.name == same.name
    for name, value in (("Rights", 4), ("Rights", 19), ("Modes", 8), ("Modes", -2), ("Wide", 3), ("Wide", 2)):
        program.refuses(call(name, value), "no such member")
    program.refuses(b"\x80\x02" + G("Modes", "flags") + b"F3.0\n\x85R.", "no such member")
    for protocol in range(6):
        both = flags.Modes.A | flags.Modes.C
        assert program.read(pickle.dumps([both, {both: 1}], protocol)) == [both, {both: 1}]
    assert RAN == []


@pytest.mark.parametrize(
    "name, method",
    [("Missing", "_missing_"), ("Pseudo", "_create_pseudo_member_"), ("Dying", "__del__")],
)
def test_classes_that_combine_by_their_own_code(program: Folder, name: str, method: str) -> None:
    """A file puts no member into them, but finds those that the program has."""
    program.write("flags.py", FLAGS)
    cls = getattr(program.module("flags"), name)
    assert program.read(call(name, 3)) is cls.BOTH
    before = dict(cls._value2member_map_)
    program.refuses(call(name, 7), rf"flags\.{name}, which has a {method}\(\)")
    assert cls._value2member_map_ == before
    if name != "Pseudo":
        made = cls.B | cls.C
        assert program.read(call(name, 6)) is made


def test_many_combined_flags_take_of_what_a_file_may(program: Folder) -> None:
    """Time that grows with the members of the class, and memory for names that the class keeps."""
    program.write("flags.py", FLAGS)
    program.module("flags")

    def combined(name: str, numbers: Iterable[int]) -> bytes:
        calls = (b"h\x00J" + i.to_bytes(4, "little") + b"\x85R" for i in numbers)
        return b"\x80\x02(" + G(name, "flags") + b"q\x00" + b"".join(calls) + b"l."

    assert len(program.read(combined("Many", range(200)))) == 201
    program.refuses(combined("Many", range(2000)), "asks for more than .* steps")
    if sys.version_info >= (3, 11):  # they have names
        program.refuses(combined("Long", range(1 << 12)), "asks for copies of more than .* bytes")
