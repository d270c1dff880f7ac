"""Combined members of the program's own flags, in .meta files."""

from __future__ import annotations

import pickle
from typing import Any

import test_own_classes
from test_own_classes import RAN, Folder, G

program = test_own_classes.program  # a fixture

FLAGS = """
import enum
from test_own_classes import RAN
class Rights(enum.Flag):
    WRITE, READ, BOTH, RUN = 2, 1, 3, 8
    @classmethod
    def _missing_(cls, value): RAN.append(value)
    def __or__(self, other): RAN.append(other)
class Modes(enum.IntFlag):
    A, B, C = 1, 2, 4
class Same(enum.IntFlag):
    A, B, C = 1, 2, 4
class Wide(enum.Flag):
    LOW, BOTH = 1, 6
"""


def test_flags_that_are_combined(program: Folder) -> None:
    """They are made without the class's code, and are the objects that the program has or makes later."""
    program.write("flags.py", FLAGS)
    flags = program.module("flags")

    def read(name: str, value: int) -> Any:
        return program.read(b"\x80\x02" + G(name, "flags") + b"I%d\n\x85R." % value)

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
    for name, value in (("Rights", 4), ("Rights", 19), ("Modes", 8), ("Modes", -2), ("Wide", 3), ("Wide", 2)):
        program.refuses(b"\x80\x02" + G(name, "flags") + b"I%d\n\x85R." % value, "no such member")
    program.refuses(b"\x80\x02" + G("Modes", "flags") + b"F3.0\n\x85R.", "no such member")
    for protocol in range(6):
        both = flags.Modes.A | flags.Modes.C
        assert program.read(pickle.dumps([both, {both: 1}], protocol)) == [both, {both: 1}]
    assert RAN == []
