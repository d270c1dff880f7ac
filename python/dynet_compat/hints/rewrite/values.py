"""The values that a region reads and makes, as far as the source shows them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Optional, Union

from .code_objects import Place
from .scopes import NotTraceable

ARGUMENT, ITEM, ITEM_AT, ATTRIBUTE, COUNT, SUM = range(6)  # kinds of sources
SOURCE, CONSTANT, RECORDED, TUPLE, LIST, ONE_OF, _STATE, _INPUT, DERIVED, DICT = range(10)  # kinds of results

MOST_SOURCES = 200  # of a region

# Of a function: defaults of positional arguments, and by name; `...` for one that is no constant.
Defaults = tuple[tuple[Any, ...], dict[str, Any]]


class RegionSource:
    """A value that the region reads: an expression of the script, or a part of another source's value."""

    code: Optional[ast.expr] = None  # ARGUMENT: what the script calls it
    base: Optional[RegionSource] = None
    key: Any = None  # ITEM: number or text; ATTRIBUTE: name
    at: Optional[RegionSource] = None  # ITEM_AT
    length: int = 0  # COUNT; SUM: what is added to a whole number
    times: int = 0  # ITEM_AT: places where it is read, each of which may be a lookup
    called: bool = False
    method: bool = False  # called as a method of `base`
    expression: bool = False
    state: bool = False
    parameters: bool = False  # a method of Parameters is called
    mapping: bool = False  # a method of a dict is called
    truth: bool = False  # its truth decides
    appended: bool = False
    late: bool = False  # read after something was appended to a list
    indices: int = 0
    others: int = 0
    callee: Optional[Place] = None  # called: the function of the script that it is
    defaults: Optional[Defaults] = None  # called: that this function has
    own: bool = False  # called: defined in the function that the region is in

    def __init__(self, kind: int, **fields: Any) -> None:
        self.kind = kind
        vars(self).update(fields)


def written(sources: Iterable[RegionSource]) -> list[ast.expr]:
    """The expressions of those that are arguments."""
    return [s.code for s in sources if s.kind == ARGUMENT and s.code is not None]


class Constant:
    def __init__(self, value: Any) -> None:
        self.value = value


class Sequence:
    """A tuple, list or dict that the region itself makes.

    Attributes:
        kind: TUPLE, LIST or DICT.
        keys: of a dict, in the order of the items.
    """

    def __init__(self, kind: int, items: list[Value], keys: Iterable[Any] = ()) -> None:
        self.kind = kind
        self.items = items
        self.keys = list(keys)


class Recorded:
    """What a function that records ops returned."""


class OneOf:
    """One of several values, of any kind; their own uses are noted."""


class Derived:
    """What follows from values that the region guards whole: a number, or a list or dict of results."""


Value = Union[RegionSource, Constant, Sequence, Recorded, OneOf, Derived]


class Append(NamedTuple):
    """A value that goes to a list that the region did not make."""

    statement: ast.stmt
    code: ast.expr  # how the script writes the list
    to: RegionSource
    value: Value


def sequences(values: Iterable[Value]) -> Iterator[Sequence]:
    for v in values:
        if isinstance(v, Sequence):
            yield v
            yield from sequences(v.items)


class Sources:
    """The values that a region reads, each once, in the order of their first use.

    Attributes:
        known: what is read -> its source.
        ints: whole numbers among the region's constants.
        late: has something been appended to a list?
    """

    def __init__(self) -> None:
        self.all: list[RegionSource] = []
        self.known: dict[tuple[Any, ...], RegionSource] = {}
        self.ints: set[int] = set()
        self.late = False

    def add(self, key: tuple[Any, ...], kind: int, /, **fields: Any) -> RegionSource:
        """The source of this key: a new one is of this kind."""
        source = self.known.get(key)
        if source is None:
            if len(self.all) == MOST_SOURCES:
                raise NotTraceable(f"it reads more than {MOST_SOURCES} values")
            source = self.known[key] = RegionSource(kind, **fields)
            self.all.append(source)
        source.late = source.late or self.late
        return source

    def item(self, base: RegionSource, key: Value) -> RegionSource:
        """An item of a source's value."""
        if isinstance(key, RegionSource):
            source = self.add((base, key), ITEM_AT, base=base, at=key)
            source.times += 1
            return source
        assert isinstance(key, Constant)
        self.constant(key.value)
        return self.add((base, type(key.value), key.value), ITEM, base=base, key=key.value)

    def sum(self, base: RegionSource, number: int) -> RegionSource:
        """An index: a source's value plus a number."""
        return self.add((base, "sum", number), SUM, base=base, length=number)

    def constant(self, value: Any) -> None:
        if isinstance(value, int):
            self.ints.add(int(value))

    def state(self) -> tuple[Any, ...]:
        """What restore() takes back to."""
        return [(s, dict(vars(s))) for s in self.all], dict(self.known), set(self.ints), self.late

    def restore(self, state: tuple[Any, ...]) -> None:
        uses, self.known, self.ints, self.late = state
        self.all = [source for source, _ in uses]
        for source, values in uses:
            vars(source).clear()
            vars(source).update(values)
