"""What the rewriter makes of a module: plain data, which a file can keep, and what that stands for."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from ... import _core
from .code_objects import Key, Place, codes, with_constants
from .recording import recording, walkable

UNBOUND = "\0unbound"  # stands for NameError in the code
ONLY_REMEMBERED = "\0remembered"  # begins the names of heads that are walked only for a memo
READ_ARGMAX = "\0read argmax"  # stands for the function that reads the index of the largest value
SINGLE_OP = "it records a single op"  # a reason to refuse
_CODES = 15  # of the fields of a source in the description of a region: what functions it may be


class FoundRegion(NamedTuple):
    """A region, the function that it is in, and its lines.

    form: "" for statements, "loop" for the body of one, "comprehension" for the element of one.
    """

    qualname: str
    line: int
    last_line: int
    form: str = ""


class Refusal(NamedTuple):
    """Statements of a function that are no region, and why."""

    qualname: str
    line: int
    last_line: int
    reason_line: int
    reason: str


class RewrittenCode(NamedTuple):
    """What becomes of a module, without objects of the running process.

    Attributes:
        old: code of the module as it was written; functions that stay as they are may be missing.
        new: that of the functions that change, with names in the place of constants. None: nothing changes.
        regions: name -> what describes the region to the core; functions that it calls are their places.
        heads: of functions that one call records: name -> qualified name.
        programs: place of a function, its program, and its name in `heads` or "".
        callees: places of the functions that regions call.
        found, refused: statements that are regions, and that are none.
        argmax_calls: number of calls that read an index in place of values.
    """

    old: Optional[types.CodeType]
    new: Optional[types.CodeType]
    regions: dict[str, tuple[Any, ...]]
    heads: dict[str, str]
    programs: list[tuple[Place, tuple[Any, ...], str]]
    callees: list[Place]
    found: list[FoundRegion]
    refused: list[Refusal]
    argmax_calls: int


class LinkedModule(NamedTuple):
    """Code that can run.

    Attributes:
        codes: old and new code of every function that changes, by its key.
        regions: name -> the object that records the region.
        walked_functions: the same, of functions that one call records.
        found, refused, argmax_calls: as in RewrittenCode.
    """

    codes: dict[Key, tuple[types.CodeType, types.CodeType]]
    regions: dict[str, Any]
    walked_functions: dict[str, Any]
    found: list[FoundRegion]
    refused: list[Refusal]
    argmax_calls: int


def link(code: RewrittenCode, constants: Mapping[str, Any]) -> LinkedModule:
    """Make the objects that stand in rewritten code. `constants`: others that it names."""
    callees: dict[Any, list[types.CodeType]] = {place: [] for place in code.callees}
    regions = {
        name: _core._Region(_with_codes(spec, callees), recording()) for name, spec in code.regions.items()
    }
    walked = {
        name: _core._WalkedFunction(q, describe, walkable(), name.startswith(ONLY_REMEMBERED))
        for name, q in code.heads.items()
    }
    rest = code.found, code.refused, code.argmax_calls
    if code.old is None or code.new is None:
        return LinkedModule({}, regions, walked, *rest)
    known = {**regions, **walked, **constants, UNBOUND: NameError, READ_ARGMAX: _core._read_argmax}
    old, new = dict(codes(code.old)), dict(codes(with_constants(code.new, known)))
    for key, written in old.items():
        if key[-1] in callees:
            both = {id(c): c for c in (written, new.get(key, written))}
            callees[key[-1]] += both.values()
    at = {key[-1]: c for key, c in new.items()}
    for place, program, head in code.programs:
        asked = walked[head or next(iter(walked))]
        asked.define(at[place], program, regions, bool(head))
    both_codes = {key: (c, new[key]) for key, c in old.items() if key in new and c.co_flags & _FUNCTION}
    changed = {key: pair for key, pair in both_codes.items() if pair[0] != pair[1]}
    return LinkedModule(changed, regions, walked, *rest)


_FUNCTION = 2  # flag of code objects: inspect.CO_NEWLOCALS, which those of classes do not have


def _with_codes(spec: tuple[Any, ...], callees: dict[Any, list[types.CodeType]]) -> tuple[Any, ...]:
    """The description of a region with lists of code objects in the place of functions."""
    where, n_arguments, sources, *rest = spec
    full = ((*s[:_CODES], callees.get(s[_CODES], []), *s[_CODES + 1 :]) for s in sources)
    return where, n_arguments, tuple(full), *rest


def describe(function: types.FunctionType) -> Any:
    """The program of a function that a walk meets and that was not rewritten; None: it has none."""
    from . import programs  # here, as most scripts that were looked at before need no analysis

    return programs.resolver(function)
