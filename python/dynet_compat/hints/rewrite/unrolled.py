"""Comprehensions over items that the source shows, one element after the other, and getattr() of a name that
the source shows: {gate: getattr(self, f"W{gate}") * x for gate in "iou"}."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Optional, Union

from .scopes import NotTraceable, is_private
from .trees import nodes_of
from .values import DICT, LIST, TUPLE, Constant, RegionSource, Sequence, Value

if TYPE_CHECKING:
    from .region import TracedRegion

_MOST_ELEMENTS = 16
_LARGEST = 1 << 64


def comprehension(region: TracedRegion, e: Union[ast.ListComp, ast.DictComp]) -> Value:
    """The list or dict that it makes."""
    generator = e.generators[0]
    items = _items(region, generator.iter)
    bound = [n for n in nodes_of(generator.target) if not isinstance(n, ast.expr_context)]
    plain = all(isinstance(n, (ast.Name, ast.Tuple, ast.List)) for n in bound)
    if items is None or not plain or len(e.generators) > 1 or generator.ifs or generator.is_async:
        raise NotTraceable("a comprehension")
    before = dict(region.frame.env)
    keys, values = [], []
    try:
        for item in items:
            region.assign(generator.target, item)
            if isinstance(e, ast.DictComp):
                keys.append(region.value(e.key))
            values.append(region.value(e.value if isinstance(e, ast.DictComp) else e.elt))
    finally:
        region.frame.env = before
    if not isinstance(e, ast.DictComp):
        return Sequence(LIST, values)
    texts = [key.value for key in keys if isinstance(key, Constant) and type(key.value) in (int, str)]
    if len(set(texts)) < len(keys):
        raise NotTraceable("a dict whose keys only the run knows")
    return Sequence(DICT, values, texts)


def _items(region: TracedRegion, e: ast.expr) -> Optional[list[Value]]:
    """What the source shows of an iterable; None: it does not show its items."""
    items: Optional[list[Value]] = None
    if isinstance(e, ast.Constant) and isinstance(e.value, str):
        items = [Constant(letter) for letter in e.value]
    elif isinstance(e, (ast.Tuple, ast.List)):
        made = region.value(e)
        assert isinstance(made, Sequence) and made.kind in (TUPLE, LIST)
        items = made.items
    return items if items is not None and len(items) <= _MOST_ELEMENTS else None


def attribute(region: TracedRegion, e: ast.Call) -> Optional[Value]:
    """The value of getattr(object, name); None: another call."""
    if not isinstance(e.func, ast.Name) or e.func.id != "getattr" or len(e.args) != 2 or e.keywords:
        return None
    if region.frame.is_local("getattr") or region.frame.scope.module.meaning(e.func) != "builtin getattr":
        return None
    owner, name = map(region.value, e.args)
    if not isinstance(owner, RegionSource) or not isinstance(name, Constant) or type(name.value) is not str:
        raise NotTraceable("getattr() of a name that only the run knows")
    if is_private(name.value):  # for getattr() it means the same inside a class
        raise NotTraceable("getattr() of a private name")
    region.use(region.name("getattr"), index=False)
    return region.attribute(owner, name.value)


def text(parts: list[Any]) -> Optional[Constant]:
    """Text that is put together from these values; None: they are no constants."""
    known = [part.value for part in parts if isinstance(part, Constant)]
    if len(known) < len(parts) or not all(type(value) in (str, int) for value in known):
        return None
    if any(type(value) is int and abs(value) > _LARGEST for value in known):  # Python may refuse to write it
        return None
    return Constant("".join(map(str, known)))
