"""Regions of a function that record a fixed sequence of ops: what they read, and what they leave behind.

A region is a run of statements without branches or loops that calls nothing but functions that record ops,
and functions of the script whose bodies are such regions themselves. What it records is decided by what it
reads: local names and attributes, read when it begins, and parts of these. The analysis follows each value
through the region and lists these reads, so that they can be compared when the region runs again; where a
statement does anything else, the region ends before it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Callable, Optional, Union

from .scopes import MOST_DEPTH, NotTraceable, Scope
from .values import (
    ARGUMENT,
    ATTRIBUTE,
    COUNT,
    ITEM,
    ITEM_AT,
    LIST,
    TUPLE,
    Append,
    Constant,
    Defaults,
    OneOf,
    Recorded,
    Sequence,
    Source,
    Value,
    sequences,
)

_OF_STATES = {"output": 0, "h": 0, "s": 0, "add_input": 1}  # methods of RNNState: how many arguments
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div)  # that expressions have
STATEMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr, ast.Pass)  # of regions
LEAST_OPS = 2  # of a region that is worth a call
_MOST_SOURCES = 200
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


# ---------------------------------------------------------------- what is known of the module


@dataclass
class Callee:
    """A function of the script that is called by a name or as a method of `self`."""

    node: ast.FunctionDef
    codes: list[Any]  # filled with its code objects when the module has been compiled anew
    owner: Optional[ast.expr] = None  # the object whose method it is
    own: bool = False  # defined in the function that the region is in


# ---------------------------------------------------------------- the analysis


class Region:
    """Consecutive statements that are traceable, read one after the other."""

    returned: Optional[Value] = None
    refusal: Optional[tuple[int, str]] = None  # line and reason of the last statement that was not added
    ops = 0
    depth = 0
    around: frozenset[str] = frozenset()  # local names of the functions that the present one is called in
    targets: Collection[str] = ()  # of a comprehension
    free: Collection[str] = frozenset()  # names that a function inside the region's own takes from there
    outer: Mapping[str, Value] = {}  # what these are in the region

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.sources: list[Source] = []
        self.known: dict[tuple[Any, ...], Source] = {}
        self.env: dict[str, Value] = {}
        self.ints: set[int] = set()
        self.appends: list[Append] = []
        self.statements: list[ast.stmt] = []
        parameters = scope.node.args.args
        self.own = parameters[0].arg if scope.cls and parameters else None

    def add(self, statement: ast.stmt) -> bool:
        """Add the statement; False, and nothing changed, if it is not traceable."""
        before = self._state() if self.statements else ([], [], {}, {}, set(), (0, 0))
        try:
            self._statement(statement)
        except NotTraceable as reason:
            self._restore(before)
            self.refusal = statement.lineno, str(reason)
            return False
        self.statements.append(statement)
        return True

    def _state(self) -> tuple[Any, ...]:
        uses = [(s, dict(vars(s))) for s in self.sources]
        lists = [(v, list(v.items)) for v in sequences(self.env.values())]
        counts = (len(self.appends), self.ops)
        return uses, lists, dict(self.env), dict(self.known), set(self.ints), counts

    def _restore(self, state: tuple[Any, ...]) -> None:
        uses, lists, self.env, self.known, self.ints, (appends, self.ops) = state
        self.sources = [source for source, _ in uses]
        for source, values in uses:
            vars(source).update(values)
        for sequence, items in lists:
            sequence.items = items
        del self.appends[appends:]
        self.depth = 0
        self.around = frozenset()

    # ---- sources

    def _source(self, key: tuple[Any, ...], make: Callable[[], Source]) -> Source:
        source = self.known.get(key)
        if source is None:
            if len(self.sources) == _MOST_SOURCES:
                raise NotTraceable(f"it reads more than {_MOST_SOURCES} values")
            source = self.known[key] = make()
            self.sources.append(source)
        source.late = source.late or bool(self.appends)
        return source

    def name(self, name: str) -> Source:
        if self.depth and _is_private(name):
            raise NotTraceable(f"the private name {name}")
        return self._source(("name", name), lambda: Source(ARGUMENT, code=ast.Name(name, ast.Load())))

    def _attribute(self, base: Source, name: str, *use: str) -> Source:
        """One for each use: a method that is called is not the one that is a value."""
        if _is_private(name):
            name = self.scope.private(name)
        return self._source((base, name, *use), lambda: Source(ATTRIBUTE, base=base, key=name))

    def _item(self, base: Source, key: Value) -> Source:
        if isinstance(key, Source):
            source = self._source((base, key), lambda: Source(ITEM_AT, base=base, at=key))
            source.times += 1
            return source
        assert isinstance(key, Constant)
        self._constant(key.value)
        return self._source(
            (base, type(key.value), key.value), lambda: Source(ITEM, base=base, key=key.value)
        )

    def _constant(self, value: Any) -> None:
        if isinstance(value, int):
            self.ints.add(int(value))

    # ---- statements

    def _statement(self, s: ast.stmt) -> None:
        if self.returned is not None:
            raise NotTraceable("code after return")
        if isinstance(s, ast.Assign):
            value = self.value(s.value)
            for target in s.targets:
                self._assign(target, value)
        elif isinstance(s, ast.AnnAssign) and s.value is not None and isinstance(s.target, ast.Name):
            self._assign(s.target, self.value(s.value))
        elif isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name):
            self._assign(s.target, self._in_place(s))
        elif isinstance(s, ast.Return) and s.value is not None:
            self.returned = self.value(s.value)
        elif isinstance(s, ast.Expr):
            self._expression_statement(s)
        elif not isinstance(s, ast.Pass):
            raise NotTraceable(_PLAIN_WORDS.get(type(s).__name__, "a statement of another kind"))

    def _in_place(self, s: ast.AugAssign) -> Value:
        """x += y makes a new expression, but changes a list."""
        x = self.value(ast.Name(s.target.id, ast.Load()))  # type: ignore[union-attr]
        if isinstance(s.value, ast.Constant):
            raise NotTraceable("a counter")
        y = self.value(s.value)
        if isinstance(x, Source):
            if isinstance(y, Source) and self.scope.is_counter(s.target.id):  # type: ignore[union-attr]
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
        elif isinstance(target, Source) and not self.targets and self._may_append(call.func.value):
            target.appended = True
            self.appends.append(Append(s, call.func.value, target, value))
        else:
            raise NotTraceable("append() to something that is no list")

    def _may_append(self, to: ast.expr) -> bool:
        """Does the expression mean the same when the region has run?"""
        root = _root(to)
        return root is not None and root not in self.env and not self.depth

    def _assign(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            if target.id in self.scope.sums:
                raise NotTraceable("a sum over instances")
            if any(_root(append.code) == target.id for append in self.appends):
                raise NotTraceable("a name that is assigned after append()")
            self.env[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            for t, v in zip(target.elts, self._parts(value, target.elts)):
                self._assign(t, v)
        else:
            raise NotTraceable("it assigns to an attribute or an item")

    def _parts(self, value: Value, targets: list[ast.expr]) -> list[Value]:
        n = len(targets)
        if any(isinstance(t, ast.Starred) for t in targets):
            raise NotTraceable("a starred target")
        if isinstance(value, Sequence) and len(value.items) == n:
            return value.items
        if not isinstance(value, Source):
            raise NotTraceable("it unpacks a result")
        self._source((value, "count", n), lambda: Source(COUNT, base=value, length=n))
        return [self._item(value, Constant(i)) for i in range(n)]

    # ---- expressions

    def value(self, e: ast.expr) -> Value:
        if isinstance(e, ast.Name):
            return self._read(e.id)
        if isinstance(e, ast.Call):
            return self._call(e)
        if isinstance(e, ast.Attribute):
            base = self.value(e.value)
            if not isinstance(base, Source):
                raise NotTraceable("an attribute of a result")
            return self._attribute(base, e.attr)
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
        raise NotTraceable(_PLAIN_WORDS.get(type(e).__name__, "an expression of another kind"))

    def _read(self, name: str) -> Value:
        if name not in self.env and name in self.free and name in self.outer:
            return self.outer[name]
        return self.env[name] if name in self.env else self.name(name)

    def _one_of(self, e: Union[ast.BoolOp, ast.IfExp]) -> Value:
        """One of its parts: which one is decided by values that the region reads."""
        parts = e.values if isinstance(e, ast.BoolOp) else [e.body, e.orelse]
        if isinstance(e, ast.IfExp):
            self._condition(e.test)
        for part in parts:
            self._decides(self.value(part))
        return OneOf()

    def _condition(self, e: ast.expr) -> None:
        """Something whose truth is known where the values that the region reads are known."""
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.Not):
            return self._condition(e.operand)
        if isinstance(e, ast.Compare):
            none = isinstance(e.comparators[0], ast.Constant) and e.comparators[0].value is None
            if len(e.ops) > 1 or not isinstance(e.ops[0], (ast.Is, ast.IsNot)) or not none:
                raise NotTraceable("a comparison")
            e = e.left
        return self._decides(self.value(e))

    def _decides(self, v: Value) -> None:
        """Its truth decides what is evaluated, or it is the value."""
        if isinstance(v, Sequence):
            raise NotTraceable("a list that a condition chooses")
        self._use(v, index=False)

    def _negative(self, x: Value) -> Value:
        if isinstance(x, Constant) and type(x.value) in (int, float):
            self._constant(-x.value)
            return Constant(-x.value)
        self._use(x, index=False)
        self.ops += 1
        return Recorded()

    def _operation(self, op: ast.operator, x: Value, y: Value) -> Value:
        if not isinstance(op, OPERATORS):
            raise NotTraceable("an operator that expressions do not have")
        if not any(isinstance(v, (Source, Recorded, OneOf)) for v in (x, y)):
            raise NotTraceable("arithmetic on constants")
        self._use(x, index=False)
        self._use(y, index=False)
        self.ops += 1
        return Recorded()

    def _use(self, v: Value, index: bool) -> None:
        """The value goes into an op, `index`: where an index may stand."""
        if isinstance(v, Source):
            v.indices += index
            v.others += not index
        elif isinstance(v, Constant):
            self._constant(v.value)
        elif isinstance(v, Sequence):
            for item in v.items:
                self._use(item, index=False)

    def _subscript(self, e: ast.Subscript) -> Value:
        base = self.value(e.value)
        where = e.slice
        if isinstance(where, ast.Slice):
            for bound in (where.lower, where.upper, where.step):
                if bound is not None:
                    self._use(self.value(bound), index=False)
            if not isinstance(base, (Source, Recorded)):
                raise NotTraceable("a part of a list, or of a value that a condition chooses")
            self._use(base, index=False)
            self.ops += 1
            return Recorded()
        key = self.value(where)
        if isinstance(base, Sequence):
            at = key.value if isinstance(key, Constant) else None
            if type(at) is not int or not -len(base.items) <= at < len(base.items):
                raise NotTraceable("an item of a list that only the run knows")
            return base.items[at]
        if not isinstance(key, (Source, Constant)) or isinstance(base, (Constant, OneOf)):
            raise NotTraceable("an index that is a result, or an item of a value that a condition chooses")
        if isinstance(base, Source):
            self.ops += isinstance(key, Source)  # perhaps: a lookup
            return self._item(base, key)
        self._use(key, index=True)
        self.ops += 1
        return Recorded()

    # ---- calls

    def _call(self, e: ast.Call) -> Value:
        if any(isinstance(a, ast.Starred) for a in e.args):
            raise NotTraceable("a starred argument")
        if any(k.arg is None or _is_private(k.arg) for k in e.keywords):
            raise NotTraceable("** or a private name as an argument")
        if isinstance(e.func, ast.Attribute) and e.func.attr in _OF_STATES and not e.keywords:
            state = self._state_of(e.func.value)
            if state is not None:
                return self._state_method(state, e)
        callee = self.callee(e.func)
        if callee is None:
            function = self.value(e.func)
            assert isinstance(function, Source)
            function.called = True
            for a in [*e.args, *(k.value for k in e.keywords)]:
                self._use(self._argument(a), index=True)
            self.ops += 1
            return Recorded()
        owner = self.value(callee.owner) if callee.owner else None
        if isinstance(owner, Source) and isinstance(e.func, ast.Attribute):
            source: Value = self._attribute(owner, e.func.attr, "called")
        else:
            source = self.value(e.func)
        if not isinstance(source, Source) or source.kind not in (ARGUMENT, ATTRIBUTE):
            raise NotTraceable("it calls a function that is no name")
        source.called = True
        source.codes = callee.codes
        source.defaults = _defaults(callee.node)
        source.own = callee.own
        if isinstance(owner, Source):
            source.method = True
            source.base = owner
        arguments = [self.value(a) for a in e.args]
        named = {str(k.arg): self.value(k.value) for k in e.keywords}
        if owner:
            arguments.insert(0, owner)
        return self._inline(callee, arguments, named)

    def _argument(self, e: ast.expr) -> Value:
        """Of an op, for which a copy of a list is the list."""
        if not isinstance(e, ast.Call) or not isinstance(e.func, ast.Name) or len(e.args) != 1 or e.keywords:
            return self.value(e)
        if self._is_local(e.func.id):
            return self.value(e)
        if self.scope.module.look_up(e.func) not in (list, tuple):
            return self.value(e)
        self._use(self.name(e.func.id), index=False)
        return self.value(e.args[0])

    def _state_of(self, e: ast.expr) -> Optional[Value]:
        """The value whose method is called, if it can be the state of a sequence."""
        if isinstance(e, ast.Name) and self._is_self(e.id):
            return None
        if isinstance(self.scope.module.look_up(e), type(ast)) and e.id not in self.scope.local:  # type: ignore[attr-defined]
            return None
        return self.value(e)

    def _state_method(self, state: Value, e: ast.Call) -> Value:
        if isinstance(state, Source):
            state.state = True
        elif not isinstance(state, Recorded):
            raise NotTraceable(f"it calls {_name(e.func)}() of something that is no state")
        if len(e.args) != _OF_STATES[e.func.attr]:  # type: ignore[attr-defined]
            raise NotTraceable(f"it calls {_name(e.func)}() with other arguments")
        for a in e.args:
            self._use(self.value(a), index=False)
        self.ops += len(e.args)
        return Recorded()

    def callee(self, f: ast.expr) -> Optional[Callee]:
        """The function of the script that is called; None: one that records ops."""
        scope = self.scope
        if isinstance(f, ast.Name):
            f = scope.aliases.get(f.id) or f
        if isinstance(f, ast.Name) and self._is_local(f.id):
            own = None if self.depth or f.id in self.env else scope.own_function(f.id)
            if own is None:
                raise NotTraceable(f"it calls {_name(f)}(), a local name")
            return Callee(own, scope.module.codes_of(own), own=True)
        if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name) and self._is_self(f.value.id):
            node = scope.module.method(scope.cls, f.attr)
            if node is None:
                raise NotTraceable(f"it calls {_name(f)}(), which is no method of the class")
            return Callee(node, scope.module.codes_of(node), f.value)
        root = f
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name) or self._is_local(root.id):
            raise NotTraceable(f"it calls {_name(f)}()")
        function = scope.module.look_up(f)
        if function is not None and scope.module.recording(function):
            return None
        if isinstance(f, ast.Name) and f.id in scope.module.functions:
            node = scope.module.functions[f.id]
            return Callee(node, scope.module.codes_of(node))
        raise NotTraceable(f"it calls {_name(f)}()")

    def _is_local(self, name: str) -> bool:
        return name in self.scope.local or name in self.env or name in self.free

    def _is_self(self, name: str) -> bool:
        """Is the name the object whose method the region is in?"""
        if self.own is None:
            return False
        if name in self.env:
            return self.env[name] is self.known.get(("name", self.own))
        return name == self.own and not self.depth

    def _inline(self, callee: Callee, arguments: list[Value], named: dict[str, Value]) -> Value:
        node = callee.node
        if self.depth == MOST_DEPTH:
            raise NotTraceable(f"it calls {node.name}() too deep in other functions")
        if self.scope.nested:
            raise NotTraceable(f"it calls {node.name}() from inside another function")
        if not self.scope.module.is_plain(node):
            raise NotTraceable(f"it calls {node.name}(), which is decorated or a generator")
        if callee.own and (... in _defaults(node)[0] or any(node.args.kw_defaults)):
            raise NotTraceable(f"it calls {node.name}(), whose defaults are others each time")
        before = self.scope, self.env, self.around, self.free, self.outer
        inner = Scope.of(self.scope.module, node, self.scope.cls)
        free = self._free_names(callee, inner)
        self.around = self.around | self.scope.local | set(self.env)
        self.free, self.outer = free, self.env
        self.scope, self.env = inner, _bind(node, arguments, named, self._constant)
        self.depth += 1
        try:
            for s in node.body:
                try:
                    self._statement(s)
                except NotTraceable as reason:
                    if " is not straight-line " in str(reason):
                        raise
                    why = f"(line {s.lineno}: {reason})"
                    raise NotTraceable(f"{node.name}() is not straight-line {why}") from None
            result = self.returned
            if result is None:
                raise NotTraceable(f"{node.name}() returns nothing")
            return result
        finally:
            self.scope, self.env, self.around, self.free, self.outer = before
            self.returned = None
            self.depth -= 1

    def _free_names(self, callee: Callee, inner: Scope) -> set[str]:
        """The names that a function takes from the one around it. All are read where the region is."""
        read = self.scope.module.names_in(callee.node).read - inner.local
        here = self.around | self.scope.local | set(self.env)
        if callee.own and not read & set(self.targets):
            return read & here
        if read & here:
            raise NotTraceable(f"it calls {callee.node.name}(), whose global names are local ones here")
        return set()


def _bind(
    node: ast.FunctionDef, arguments: list[Value], named: dict[str, Value], constant: Callable[[Any], None]
) -> dict[str, Value]:
    """The parameters of a function as it is called."""
    a = node.args
    if a.vararg or a.kwarg:
        raise NotTraceable("a function that takes any number of arguments")
    positional = [p.arg for p in [*a.posonlyargs, *a.args]]
    by_name = [p.arg for p in [*a.args, *a.kwonlyargs]]
    names = [*positional, *(p.arg for p in a.kwonlyargs)]
    defaults: dict[str, Optional[ast.expr]] = dict(zip(reversed(positional), reversed(a.defaults)))
    defaults.update(zip((p.arg for p in a.kwonlyargs), a.kw_defaults))
    if len(arguments) > len(positional):
        raise NotTraceable("too many arguments")
    env = dict(zip(positional, arguments))
    for name, value in named.items():
        if name in env or name not in by_name:
            raise NotTraceable("an argument that does not fit")
        env[name] = value
    for name in names:
        if name in env:
            continue
        default = _constant(defaults.get(name))
        if default is ...:
            raise NotTraceable("a default that is no constant")
        constant(default)
        env[name] = Constant(default)
    return env


def _defaults(node: ast.FunctionDef) -> Defaults:
    """The defaults that a function has as it is written."""
    by_name = {p.arg: d for p, d in zip(node.args.kwonlyargs, node.args.kw_defaults) if d is not None}
    return tuple(map(_constant, node.args.defaults)), {name: _constant(d) for name, d in by_name.items()}


def _name(f: ast.expr) -> str:
    """The name that is called."""
    return f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else "a result"


def _constant(e: Optional[ast.expr]) -> Any:
    kinds = (bool, int, float, str, type(None))
    return e.value if isinstance(e, ast.Constant) and isinstance(e.value, kinds) else ...


def _is_private(name: str) -> bool:
    """Does it mean another name inside a class?"""
    return name.startswith("__") and not name.endswith("__")


def _root(e: ast.expr) -> Optional[str]:
    """The name that a dotted name begins with."""
    while isinstance(e, ast.Attribute):
        e = e.value
    return e.id if isinstance(e, ast.Name) else None
