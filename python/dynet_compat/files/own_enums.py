"""Members of the program's own enumerations, found and combined without code of the class."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from typing import Any, Optional

from .own_classes import (
    CodeNeeded,
    attributes_of,
    base_of,
    bases_of,
    full_name_of,
    is_one_of,
    name_of,
    refusal,
)

_PLAIN = (int, str, float, bool, bytes, type(None))
_STEPS, _STEPS_PER_MEMBER = 100, 4  # of a combined member, and for each member that it may have
_SIZE = 400  # bytes of a combined member without its name


class Members:
    """The members of one enumeration.

    Args:
        cls: the enumeration.
    """

    def __init__(self, cls: Any) -> None:
        self._cls = cls
        self._by_value: dict[Any, Any] = {}
        self._bits: Optional[dict[int, str]] = {}  # names of values; None of what is not combined
        self._refusal = refusal(cls) or _refusal_of_flags(cls)
        found = next(attributes_of(c).get("_member_map_") for c in bases_of(cls))
        for member in found.values():
            own = object.__getattribute__(member, "__dict__")
            value = own.get("_value_")
            if is_one_of(type(value), _PLAIN):
                self._by_value.setdefault((type(value), value), member)
            if type(value) is not int:
                self._bits = None
            elif self._bits is not None and value > 0:
                self._bits.setdefault(value, own["_name_"])
        if not any(c is enum.Flag for c in bases_of(cls)) or not is_one_of(base_of(cls), (int, object)):
            self._bits = None

    def find(self, value: Any, charge: Callable[[int, int], None]) -> Any:
        """The member with this value. `charge` gets steps and bytes that a combined one takes.

        Raises:
            ValueError: there is none.
            CodeNeeded: only the class's code may say which it is.
        """
        found = self._by_value.get((type(value), value)) if is_one_of(type(value), _PLAIN) else None
        if found is None and type(value) is int and self._bits is not None:
            charge(_STEPS + _STEPS_PER_MEMBER * len(self._bits), 0)
            found = self._combined(value, self._bits, charge)
        if found is None:
            raise ValueError(f"{name_of(self._cls)} has no such member")
        return found

    def _combined(self, value: int, bits: dict[int, str], charge: Callable[[int, int], None]) -> Any:
        """What `A | B` of members is, the same object as in the program; None if there is no such."""
        cls, known = self._cls, attributes_of(self._cls).get("_value2member_map_")
        parts, union = [part for part in bits if part & value == part], 0
        for part in parts:
            union |= part
        if union != value or type(known) is not dict:
            return None
        if value in known:
            return known[value]
        if self._refusal is not None:
            raise CodeNeeded(full_name_of(cls), self._refusal)
        made = int.__new__(cls, value) if base_of(cls) is int else object.__new__(cls)
        name = _combined_name(parts, bits) if parts and sys.version_info >= (3, 11) else None
        charge(0, _SIZE + len(name or ""))  # the class keeps it
        object.__getattribute__(made, "__dict__").update(_name_=name, _value_=value)
        return known.setdefault(value, made)  # another thread may have made it


def _combined_name(parts: list[int], bits: dict[int, str]) -> str:
    """As `enum` names it: members of several bits only where those of one bit are not all."""
    singles = [part for part in parts if part & (part - 1) == 0]
    others = [part for part in parts if part & (part - 1)]
    covered = sum(singles)
    if any(part & ~covered for part in others):
        singles += others
    return "|".join(bits[part] for part in singles)


def _refusal_of_flags(cls: type) -> Optional[str]:
    """Why a combined member may be another one than `enum` makes; None if it is that."""
    for name in ("_missing_", "_create_pseudo_member_"):
        first = next((c for c in bases_of(cls) if name in attributes_of(c)), enum.Flag)
        if not is_one_of(first, (enum.Enum, enum.Flag, enum.IntFlag)):
            return f"has a {name}(), which makes combined members from what the file says"
    return None
