"""Regions: runs of statements that record a fixed sequence of ops, the values they read, and their results.

A region has no branches or loops, and calls only functions that record ops, and functions of the script whose
bodies are such statements. The values that it reads decide what it records: local names and attributes, read
when it begins, and parts of these. The analysis follows each value through the region and lists its sources,
so that they can be compared when the region runs again. A statement that does anything else ends the region.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import Any, Optional, Union

from . import calls, derived, unrolled
from .calls import CallFrame
from .scopes import NotTraceable, Scope, is_private
from .trees import joined, only_reads, root_of
from .values import (
    ARGUMENT,
    ATTRIBUTE,
    COUNT,
    DICT,
    LIST,
    TUPLE,
    Append,
    Constant,
    Derived,
    OneOf,
    Recorded,
    RegionSource,
    Sequence,
    Sources,
    Value,
    sequences,
)

OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div)  # that expressions have
STATEMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr, ast.Pass)  # of regions
LEAST_OPS = 2  # of a region that is worth a call
_PLAIN_WORDS = {
    "If": "a branch", "Match": "a branch", "For": "a loop", "While": "a loop", "ListComp": "a comprehension",
    "DictComp": "a comprehension", "SetComp": "a comprehension", "GeneratorExp": "a comprehension",
    "Try": "try", "TryStar": "try", "With": "with", "Raise": "raise", "Assert": "assert", "Delete": "del",
    "Import": "an import", "ImportFrom": "an import", "FunctionDef": "an inner function",
    "ClassDef": "an inner class", "Lambda": "a lambda", "Compare": "a comparison",
    "Starred": "a starred argument", "NamedExpr": ":=", "JoinedStr": "a formatted text",
    "AugAssign": "it changes an attribute or an item", "AnnAssign": "it assigns to an attribute or an item",
    "Return": "it returns nothing",
}  # fmt: skip


class TracedRegion:
    """Consecutive statements that are traceable, added one after the other."""

    returned: Optional[Value] = None
    refusal: Optional[tuple[int, str]] = None  # line and reason of the last statement that was not added
    ops = 0
    targets: Collection[str] = ()  # of a comprehension

    def __init__(self, scope: Scope) -> None:
        self.frame = CallFrame(scope, {})
        self.sources = Sources()
        self.appends: list[Append] = []
        self.statements: list[ast.stmt] = []
        self.scope = scope
        parameters = scope.node.args.args
        self.self_name = parameters[0].arg if scope.cls and parameters else None

    @property
    def env(self) -> dict[str, Value]:
        """The values of names."""
        return self.frame.env

    def add(self, statement: ast.stmt) -> bool:
        """Add the statement; False, and nothing changed, if it is not traceable."""
        before = self._state() if self.statements else (Sources().state(), [], {}, 0, 0)
        try:
            self.trace(statement)
        except NotTraceable as reason:
            self._restore(before)
            self.refusal = statement.lineno, str(reason)
            return False
        self.statements.append(statement)
        return True

    def _state(self) -> tuple[Any, ...]:
        lists = [(v, list(v.items)) for v in sequences(self.env.values())]
        return self.sources.state(), lists, dict(self.env), len(self.appends), self.ops

    def _restore(self, state: tuple[Any, ...]) -> None:
        sources, lists, self.frame.env, appends, self.ops = state
        self.sources.restore(sources)
        for sequence, items in lists:
            sequence.items = items
        del self.appends[appends:]

    # ---- sources

    def name(self, name: str) -> RegionSource:
        if self.frame.depth and is_private(name):
            raise NotTraceable(f"the private name {name}")
        source = self.sources.add(("name", name), ARGUMENT)
        if source.code is None:
            source.code = ast.Name(name, ast.Load())
        return source

    def attribute(self, base: RegionSource, name: str, *use: str) -> RegionSource:
        """A source for each use: a method that is called is not the same as one that is a value."""
        if is_private(name):
            name = self.frame.scope.private(name)
        return self.sources.add((base, name, *use), ATTRIBUTE, base=base, key=name)

    # ---- statements

    def trace(self, s: ast.stmt) -> None:
        """Follow the values through one statement."""
        if self.returned is not None:
            raise NotTraceable("code after return")
        if isinstance(s, ast.Assign):
            value = self.value(s.value)
            for target in s.targets:
                self.assign(target, value)
        elif isinstance(s, ast.AnnAssign) and s.value is not None and isinstance(s.target, ast.Name):
            self.assign(s.target, self.value(s.value))
        elif isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name):
            self.assign(s.target, self._in_place(s))
        elif isinstance(s, ast.Return) and s.value is not None:
            self.returned = self.value(s.value)
        elif isinstance(s, ast.Expr):
            self._expression_statement(s)
        elif isinstance(s, ast.Global) and self.frame.depth:
            # In the region's own function it must stand before what reads the name.
            if not only_reads(self.frame.scope.node, s) or not self.frame.free.isdisjoint(s.names):
                raise NotTraceable("it declares a name that it binds, or that is a local one here")
        elif not isinstance(s, ast.Pass):
            raise NotTraceable(_PLAIN_WORDS.get(type(s).__name__, "a statement of another kind"))

    def _in_place(self, s: ast.AugAssign) -> Value:
        """The value of x += y, where x is an expression: a list would be changed."""
        x = self.value(ast.Name(s.target.id, ast.Load()))  # type: ignore[union-attr]
        if isinstance(s.value, ast.Constant):
            raise NotTraceable("a counter")
        y = self.value(s.value)
        if isinstance(x, RegionSource):
            if isinstance(y, RegionSource) and self.frame.scope.is_counter(s.target.id):  # type: ignore[union-attr]
                raise NotTraceable("a counter")
            x.expression = True
        elif not isinstance(x, Recorded):
            raise NotTraceable("+= on something that is no expression")
        return self._operation(s.op, x, y)

    def _expression_statement(self, s: ast.Expr) -> None:
        call = s.value
        if isinstance(call, ast.Constant):
            return
        if not (
            isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append"
        ):
            self.value(call)
            return
        if len(call.args) != 1 or call.keywords:
            raise NotTraceable("append() with other arguments than one")
        target = self.value(call.func.value)
        value = self.value(call.args[0])
        if isinstance(target, Sequence) and target.kind == LIST:
            if any(v is target for v in sequences([value])):
                raise NotTraceable("a list that contains itself")
            target.items.append(value)
        elif isinstance(target, RegionSource) and not self.targets and self._may_append(call.func.value):
            target.appended = self.sources.late = True
            self.appends.append(Append(s, call.func.value, target, value))
        else:
            raise NotTraceable("append() to something that is no list")

    def _may_append(self, to: ast.expr) -> bool:
        """Does the expression of the list mean the same after the region?"""
        root = root_of(to)
        return root is not None and root not in self.env and not self.frame.depth

    def assign(self, target: ast.expr, value: Value) -> None:
        """Bind the names of a target."""
        if isinstance(target, ast.Name):
            if target.id in self.frame.scope.sums:
                raise NotTraceable("a sum over instances")
            if any(root_of(append.code) == target.id for append in self.appends):
                raise NotTraceable("a name that is assigned after append()")
            self.env[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            for t, v in zip(target.elts, self._parts(value, target.elts)):
                self.assign(t, v)
        else:
            raise NotTraceable("it assigns to an attribute or an item")

    def _parts(self, value: Value, targets: list[ast.expr]) -> list[Value]:
        n = len(targets)
        if any(isinstance(t, ast.Starred) for t in targets):
            raise NotTraceable("a starred target")
        if isinstance(value, Sequence) and value.kind != DICT and len(value.items) == n:
            return value.items
        if isinstance(value, Derived):
            return [Derived() for _ in targets]
        if not isinstance(value, RegionSource):
            raise NotTraceable("it unpacks a result")
        self.sources.add((value, "count", n), COUNT, base=value, length=n)
        return [self.sources.item(value, Constant(i)) for i in range(n)]

    # ---- expressions

    def value(self, e: ast.expr) -> Value:
        if isinstance(e, ast.Name):
            return self._read(e.id)
        if isinstance(e, ast.Call):
            return calls.call(self, e)
        if isinstance(e, ast.Attribute):
            base = self.value(e.value)
            if not isinstance(base, RegionSource):
                raise NotTraceable("an attribute of a result")
            return self.attribute(base, e.attr)
        if isinstance(e, ast.Constant):
            if e.value is not None and not isinstance(e.value, (bool, int, float, str)):
                raise NotTraceable("a constant that is neither a number nor text")
            return Constant(e.value)
        if isinstance(e, (ast.Tuple, ast.List)):
            return Sequence(TUPLE if isinstance(e, ast.Tuple) else LIST, [self.value(x) for x in e.elts])
        if isinstance(e, ast.Subscript):
            return self._subscript(e)
        if isinstance(e, ast.BinOp):
            return self._operation(e.op, self.value(e.left), self.value(e.right))
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
            return self._negative(self.value(e.operand))
        if isinstance(e, (ast.BoolOp, ast.IfExp)):
            return self._one_of(e)
        if isinstance(e, (ast.ListComp, ast.DictComp)):
            return self._comprehension(e)
        if isinstance(e, ast.JoinedStr):
            return self._text(e)
        if isinstance(e, ast.Compare):
            return derived.comparison(self, e)
        raise NotTraceable(_PLAIN_WORDS.get(type(e).__name__, "an expression of another kind"))

    def _comprehension(self, e: Union[ast.ListComp, ast.DictComp]) -> Value:
        before = self._state()
        try:
            return unrolled.comprehension(self, e)
        except NotTraceable:
            self._restore(before)
            return derived.comprehension(self, e)

    def _text(self, e: ast.JoinedStr) -> Value:
        parts = joined(e)
        whole = None if parts is None else unrolled.text([self.value(part) for part in parts])
        if whole is None:
            raise NotTraceable("a formatted text")
        return whole

    def _read(self, name: str) -> Value:
        frame = self.frame
        if name in frame.env:
            return frame.env[name]
        return frame.outer[name] if name in frame.free and name in frame.outer else self.name(name)

    def _one_of(self, e: Union[ast.BoolOp, ast.IfExp]) -> Value:
        """One of the operands, which the values that the region reads decide."""
        parts = e.values if isinstance(e, ast.BoolOp) else [e.body, e.orelse]
        if isinstance(e, ast.IfExp):
            self.condition(e.test)
        for part in parts:
            self._decides(self.value(part))
        return OneOf()

    def condition(self, e: ast.expr) -> None:
        """A condition that depends only on values that the region reads."""
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.Not):
            return self.condition(e.operand)
        if isinstance(e, ast.BoolOp):
            for operand in e.values:
                self.condition(operand)
            return None
        if isinstance(e, ast.Compare):
            none = isinstance(e.comparators[0], ast.Constant) and e.comparators[0].value is None
            if len(e.ops) > 1 or not isinstance(e.ops[0], (ast.Is, ast.IsNot)) or not none:
                derived.comparison(self, e)
                return None
            return self._decides(self.value(e.left))
        v = self.value(e)
        if isinstance(v, RegionSource):
            v.truth = True
            return None
        return self._decides(v)

    def _decides(self, v: Value) -> None:
        """A value whose truth decides what is evaluated, or that is the result."""
        if isinstance(v, Sequence):
            raise NotTraceable("a list that a condition chooses")
        self.use(v, index=False)

    def _negative(self, x: Value) -> Value:
        if isinstance(x, Constant) and type(x.value) in (int, float):
            self.sources.constant(-x.value)
            return Constant(-x.value)
        self.use(x, index=False)
        self.ops += 1
        return Recorded()

    def _operation(self, op: ast.operator, x: Value, y: Value) -> Value:
        if not isinstance(op, OPERATORS):
            raise NotTraceable("an operator that expressions do not have")
        if isinstance(x, Sequence) or isinstance(y, Sequence):
            raise NotTraceable("arithmetic on lists")
        self.use(x, index=False)
        self.use(y, index=False)
        if all(isinstance(v, (Constant, Derived)) for v in (x, y)):
            texts = [v for v in (x, y) if isinstance(v, Constant) and type(v.value) is str]
            whole = unrolled.text(texts) if isinstance(op, ast.Add) and len(texts) == 2 else None
            return whole or Derived()
        self.ops += 1
        return Recorded()

    def use(self, v: Value, index: bool) -> None:
        """The value is an operand of an op; `index`: where an index may be."""
        if isinstance(v, RegionSource):
            v.indices += index
            v.others += not index
        elif isinstance(v, Constant):
            self.sources.constant(v.value)
        elif isinstance(v, Sequence):
            for item in v.items:
                self.use(item, index=False)

    def _index(self, e: ast.expr) -> Value:
        """The value of an index, which may be the sum of a value that is read and of a number."""
        if not isinstance(e, ast.BinOp) or not isinstance(e.op, (ast.Add, ast.Sub)):
            return self.value(e)
        x, y = self.value(e.left), self.value(e.right)
        if isinstance(e.op, ast.Add) and isinstance(x, Constant):
            x, y = y, x
        number = y.value if isinstance(y, Constant) else None
        if isinstance(x, RegionSource) and type(number) is int and abs(number) < 1 << 31:
            return self.sources.sum(x, number if isinstance(e.op, ast.Add) else -number)
        return self._operation(e.op, x, y)

    def _subscript(self, e: ast.Subscript) -> Value:
        base = self.value(e.value)
        where = e.slice
        if isinstance(where, ast.Slice):
            bounds = [self.value(b) for b in (where.lower, where.upper, where.step) if b is not None]
            if isinstance(base, RegionSource) and not all(derived.seldom_changes(self, b) for b in bounds):
                raise NotTraceable("a part of what may be a list, between bounds that may change each time")
            for bound in bounds:
                self.use(bound, index=False)
            if not isinstance(base, (RegionSource, Recorded)):
                raise NotTraceable("a part of a list, or of a value that a condition chooses")
            self.use(base, index=False)
            self.ops += 1
            return Recorded()
        key = self._index(where)
        if isinstance(base, Sequence):
            at = key.value if isinstance(key, Constant) else None
            if base.kind == DICT:
                at = base.keys.index(at) if at in base.keys else None
            if type(at) is not int or not -len(base.items) <= at < len(base.items):
                raise NotTraceable("an item of a list that only the run knows")
            return base.items[at]
        if isinstance(base, Derived) or (isinstance(key, Derived) and isinstance(base, RegionSource)):
            self.use(base, index=False)
            self.use(key, index=False)
            self.ops += 1  # perhaps
            return Derived()
        if not isinstance(key, (RegionSource, Constant)) or isinstance(base, (Constant, OneOf)):
            raise NotTraceable("an index that is a result, or an item of a value that a condition chooses")
        if isinstance(base, RegionSource):
            self.ops += isinstance(key, RegionSource)  # perhaps: a lookup
            return self.sources.item(base, key)
        self.use(key, index=True)
        self.ops += 1
        return Recorded()
