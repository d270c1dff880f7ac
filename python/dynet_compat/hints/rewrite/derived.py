"""Values that follow from others which the region reads: comprehensions, comparisons, calls of len().

The values that they follow from are guarded whole, lists and dicts with all that is in them. So this is for
values that seldom change: attributes of objects, and globals.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Optional, Union

from .scopes import NotTraceable
from .trees import nodes_of
from .values import ARGUMENT, DICT, Constant, Derived, Recorded, RegionSource, Sequence, Value

if TYPE_CHECKING:
    from .region import TracedRegion

_PURE = ("len", "zip", "enumerate", "range", "reversed", "list", "tuple", "min", "max")
_OF_DICTS = ("items", "keys", "values")
_COMPARED: tuple[Any, ...] = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Is, ast.IsNot)


def seldom_changes(region: TracedRegion, v: Value) -> bool:
    """Is the value a constant, or what it is read from no local name?"""
    if isinstance(v, Sequence):
        return v.kind != DICT and all(seldom_changes(region, item) for item in v.items)
    if not isinstance(v, RegionSource):
        return isinstance(v, (Constant, Derived))
    name = None
    while v.kind != ARGUMENT and v.base is not None:
        name, v = v.key, v.base
    root = v.code.id if isinstance(v.code, ast.Name) else ""
    return root not in region.scope.local or (root == region.self_name and name is not None)


def comprehension(region: TracedRegion, e: Union[ast.ListComp, ast.DictComp]) -> Value:
    """The list or dict of a comprehension over values that seldom change, or that only picks parts."""
    frame = region.frame
    before = dict(frame.env)
    parts = [e.key, e.value] if isinstance(e, ast.DictComp) else [e.elt]
    picked = (ast.Name, ast.Tuple, ast.expr_context)
    only_picks = all(isinstance(n, picked) for part in parts for n in nodes_of(part))
    try:
        for generator in e.generators:
            if generator.is_async:
                raise NotTraceable("a comprehension")
            items = region.value(generator.iter)
            if not seldom_changes(region, items) and not only_picks:
                raise NotTraceable("a comprehension")
            region.use(items, index=False)
            _bind(region, generator.target)
            for test in generator.ifs:
                region.condition(test)
        for part in parts:
            region.use(region.value(part), index=False)
    finally:
        frame.env = before
    return Derived()


def _bind(region: TracedRegion, target: ast.expr) -> None:
    for n in nodes_of(target):
        if isinstance(n, ast.Name):
            region.frame.env[n.id] = Derived()
        elif not isinstance(n, (ast.Tuple, ast.List, ast.expr_context)):
            raise NotTraceable("a comprehension that binds more than names")


def comparison(region: TracedRegion, e: ast.Compare) -> Value:
    """Of a value that seldom changes with a constant."""
    sides = [region.value(side) for side in (e.left, *e.comparators)]
    constants = [isinstance(side, Constant) for side in sides]
    if len(sides) > 2 or not any(constants) or not isinstance(e.ops[0], _COMPARED):
        raise NotTraceable("a comparison")
    if not all(seldom_changes(region, side) for side in sides):
        raise NotTraceable("a comparison")
    for side in sides:
        region.use(side, index=False)
    return Derived()


def call(region: TracedRegion, e: ast.Call) -> Optional[Value]:
    """The value of a call of a method of dicts or Parameters, or of a function like len(); None: another."""
    f = e.func
    if isinstance(f, ast.Attribute):
        if f.attr in _OF_DICTS and not e.args and not e.keywords:
            return _of_dict(region, f.value)
        return _expr(region, f.value, e) if f.attr == "expr" else None
    if not isinstance(f, ast.Name) or f.id not in _PURE or e.keywords or region.frame.is_local(f.id):
        return None
    if region.frame.scope.module.meaning(f) != f"builtin {f.id}":
        return None
    values = [region.value(a) for a in e.args]
    if not all(seldom_changes(region, v) for v in values):
        raise NotTraceable(f"{f.id}() of values that may change each time")
    for v in [region.name(f.id), *values]:
        region.use(v, index=False)
    return Derived()


def _of_dict(region: TracedRegion, owner: ast.expr) -> Optional[Value]:
    source = region.value(owner)
    if not isinstance(source, RegionSource) or not seldom_changes(region, source):
        raise NotTraceable("a method of a dict that may change each time")
    source.mapping = True
    region.use(source, index=False)
    return Derived()


def _expr(region: TracedRegion, owner: ast.expr, e: ast.Call) -> Value:
    """The value of parameters.expr()."""
    source = region.value(owner)
    updates = [*e.args, *(k.value for k in e.keywords)]
    if not isinstance(source, RegionSource) or any(k.arg != "update" for k in e.keywords):
        raise NotTraceable("it calls expr() of something that is no Parameters")
    if len(updates) > 1 or not all(isinstance(u, ast.Constant) and type(u.value) is bool for u in updates):
        raise NotTraceable("it calls expr() with other arguments")
    source.parameters = True
    region.use(source, index=False)
    region.ops += 1
    return Recorded()
