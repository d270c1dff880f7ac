"""Programs of functions: what the core needs to run them without Python (region_walk.h).

A program describes the statements of a function whose calls of regions, tests of values, reads of parts of
values and calls of other such functions are all that it does. Which functions a call means is found out when
it runs.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional, Union

from .code_objects import codes, silently
from .scopes import Module, is_private
from .trees import any_in, assign, first_line, functions, is_generator, joined, load, nodes_of
from .values import written

if TYPE_CHECKING:
    from .replacement import Replacement

(
    SLOT, CONSTANT, GLOBAL, ATTRIBUTE, ITEM, SLICE, CALL, TUPLE, LIST, NOT, ALL, ANY, COMPARISON, CONDITIONAL,
    ARITHMETIC, EACH, TEXT, REGION, ASSIGNMENT, BRANCH, LOOP, RESULT, EVALUATION, BLOCK, ROWS, WHILE, JUMP,
    FAILURE,
) = range(28)  # fmt: skip
_COMPARISONS = {
    ast.Lt: 0, ast.LtE: 1, ast.Eq: 2, ast.NotEq: 3, ast.Gt: 4, ast.GtE: 5, ast.Is: 16, ast.IsNot: 17,
    ast.In: 18, ast.NotIn: 19,
}  # fmt: skip
_ARITHMETIC = {ast.Add: 0, ast.Sub: 1, ast.Mult: 2, ast.Div: 3, ast.FloorDiv: 4, ast.Mod: 5}
_NEGATIVE, _IN_PLACE = 6, 16
_ROWS = ("zip", "enumerate", "reversed", "range")
_METHODS = (
    "append", "pop", "extend", "initial_state", "add_input", "add_inputs", "transduce", "output", "h", "s",
    "get", "insert", "reverse", "set_s", "set_h", "expr", "set_dropout", "set_dropouts", "disable_dropout",
)  # fmt: skip
_OVER_INPUTS = ("add_inputs", "transduce")
_RETURNS, _ALONE, _EXPRESSION = 1, 2, 4
_HIDDEN = ".value"  # what a statement evaluates once and uses several times
WHOLE = ".whole"  # the name of what the core has recorded and returned

Node = tuple[int, int, Any, tuple[Any, ...]]  # kind, number, object, parts
Spec = tuple[str, tuple[str, ...], int, tuple[int, ...], Node, bool]


class NotWalkable(Exception):
    """The function does something that only Python can do."""


class PlacedRegion(NamedTuple):
    """A region in the place of statements, or of the element of a comprehension; `before`: what is evaluated
    first."""

    new: Replacement
    name: str
    statements: int = 1
    before: tuple[ast.stmt, ...] = ()


class Program:
    """Describes the statements of a function; it has 26 methods, one for each kind of statement and value.

    Args:
        node: the function, which is no generator.
        free: names of functions around it that it reads, in the order of its closure.
        placed: the regions: by their first statement, or by the comprehension whose element they are.
        begun: how many statements have run when the program begins; then no program can call it.

    Raises:
        NotWalkable: see there.
    """

    def __init__(
        self,
        node: ast.FunctionDef,
        free: Iterable[str],
        placed: Mapping[ast.AST, PlacedRegion],
        begun: int = 0,
    ) -> None:
        self.placed = placed
        self.begun = begun > 0
        a = node.args
        if a.vararg or a.kwarg or a.kwonlyargs:
            raise NotWalkable("parameters of other kinds")
        self.parameters = tuple(p.arg for p in [*a.posonlyargs, *a.args])
        self.by_name = ("",) * len(a.posonlyargs) + self.parameters[len(a.posonlyargs) :]
        self.free = tuple(free)
        names = [*self.parameters, *self.free]
        if any(map(is_private, names)):
            raise NotWalkable("a private name")
        self.slots = {name: i for i, name in enumerate(names)}
        self.count = len(names)
        named = [n for n in nodes_of(node, (ast.ListComp,)) if isinstance(n, ast.Name)]
        regions = [name for p in placed.values() for name in [*p.new.names, *_targets(p.before)]]
        bound = [*(n.id for n in named if isinstance(n.ctx, ast.Store)), *regions]
        self.bound = {*names, *bound}
        for name in bound:
            if name in self.free:
                raise NotWalkable("it assigns to a name of a function around it")
            self._slot(name)
        try:
            self.body = self.block(node.body[begun:])
        except RecursionError as error:
            raise NotWalkable("a long expression") from error

    def spec(self, qualname: str, code: types.CodeType) -> Spec:
        cells = tuple(map(code.co_freevars.index, self.free))
        return qualname, self.by_name, self.count, cells, self.body, self.begun

    def _slot(self, name: str) -> int:
        if name not in self.slots:
            self.slots[name] = self.count
            self.count += 1
        return self.slots[name]

    # ---- statements

    def block(self, statements: list[ast.stmt]) -> Node:
        parts = []
        at = 0
        while at < len(statements):
            placed = self.placed.get(statements[at])
            if placed is None:
                parts.append(self.statement(statements[at]))
                at += 1
            else:
                parts += map(self.statement, placed.before)
                parts.append(self._region(placed))
                at += placed.statements
        return BLOCK, 0, None, tuple(parts)

    def _region(self, placed: PlacedRegion) -> Node:
        new = placed.new
        returns = new.region.returned is not None
        flags = _RETURNS * returns | _ALONE * new.alone
        arguments = tuple(self.expression(e) for e in written(new.region.sources.all))
        targets = tuple((SLOT, self._slot(name), None, ()) for name in new.names)
        lists = tuple(self.expression(append.code) for append in new.region.appends)
        parts = tuple((TUPLE, 0, None, p) for p in (arguments, targets, lists))
        return REGION, flags, placed.name, (*parts, self._as_written(self.statement, new.region.statements))

    def _as_written(self, describe: Callable[[Any], Node], parts: Iterable[Any]) -> Node:
        """What stands in the place of a region that cannot be used."""
        try:
            return BLOCK, 0, None, tuple(map(describe, parts))
        except NotWalkable:
            return FAILURE, 0, None, ()

    def statement(self, s: ast.stmt) -> Node:
        if isinstance(s, ast.If):
            return BRANCH, 0, None, (self.expression(s.test), self.block(s.body), self.block(s.orelse))
        if isinstance(s, ast.Return):
            value = s.value or ast.Constant(None)
            return RESULT, 0, None, (self.expression(value),)
        if isinstance(s, ast.Assign) and len(s.targets) == 1:
            return ASSIGNMENT, 0, None, (self.target(s.targets[0]), self.expression(s.value))
        if isinstance(s, ast.Assign):
            hidden = load(_HIDDEN)
            first = (self.target(hidden), self.expression(s.value))
            parts = [first, *((self.target(t), self.expression(hidden)) for t in s.targets)]
            return BLOCK, 0, None, tuple((ASSIGNMENT, 0, None, part) for part in parts)
        if isinstance(s, ast.AnnAssign) and s.value is not None and isinstance(s.target, ast.Name):
            return ASSIGNMENT, 0, None, (self.target(s.target), self.expression(s.value))
        if isinstance(s, ast.AugAssign) and isinstance(s.target, (ast.Name, ast.Attribute)):
            return self._augmented(s, s.target)
        if isinstance(s, ast.For) and not s.orelse:
            return LOOP, 0, None, (self.target(s.target), self.iterable(s.iter), self.block(s.body))
        if isinstance(s, ast.While) and not s.orelse:
            return WHILE, 0, None, (self.expression(s.test), self.block(s.body))
        if isinstance(s, (ast.Break, ast.Continue)):
            return JUMP, isinstance(s, ast.Continue), None, ()
        if isinstance(s, ast.Raise):
            return FAILURE, 0, None, ()
        if isinstance(s, ast.Assert) and __debug__:
            return BRANCH, 0, None, (self.expression(s.test), self.block([]), (FAILURE, 0, None, ()))
        if isinstance(s, ast.Expr):
            return EVALUATION, 0, None, (self.expression(s.value),)
        if isinstance(s, (ast.Pass, ast.Assert)):
            return BLOCK, 0, None, ()
        if isinstance(s, ast.Global) and self.bound.isdisjoint(s.names):
            return BLOCK, 0, None, ()
        raise NotWalkable(f"{type(s).__name__} in line {s.lineno}")

    def _augmented(self, s: ast.AugAssign, target: Union[ast.Name, ast.Attribute]) -> Node:
        """What an attribute belongs to is evaluated once."""
        parts = []
        if isinstance(target, ast.Attribute) and not isinstance(target.value, ast.Name):
            hidden = load(_HIDDEN)
            parts.append((self.target(hidden), self.expression(target.value)))
            target = ast.Attribute(hidden, target.attr)
        parts.append((self.target(target), self._binop(ast.BinOp(target, s.op, s.value), _IN_PLACE)))
        return BLOCK, 0, None, tuple((ASSIGNMENT, 0, None, part) for part in parts)

    def target(self, t: ast.expr) -> Node:
        if isinstance(t, ast.Name):
            return SLOT, self._slot(t.id), None, ()
        if isinstance(t, (ast.Tuple, ast.List)):
            return TUPLE, 0, None, tuple(map(self.target, t.elts))
        if isinstance(t, ast.Subscript) and not isinstance(t.slice, ast.Slice):
            return self._subscript(t)
        if isinstance(t, ast.Attribute):
            return self._attribute(t)
        raise NotWalkable(f"it assigns to a slice in line {t.lineno}")

    def iterable(self, e: ast.expr) -> Node:
        """What a loop runs over."""
        name = e.func.id if isinstance(e, ast.Call) and isinstance(e.func, ast.Name) else ""
        if name not in _ROWS or not isinstance(e, ast.Call) or e.keywords:
            return self.expression(e)
        others = name not in ("zip", "range") and len(e.args) != 1
        if any(isinstance(a, ast.Starred) for a in e.args) or others:
            raise NotWalkable(f"{name}() with other arguments")
        parts = (self.expression(e.func), *map(self.iterable, e.args))
        return ROWS, _ROWS.index(name), None, parts

    # ---- expressions

    def expression(self, e: ast.expr) -> Node:
        describe = getattr(self, f"_{type(e).__name__.lower()}", None)
        if describe is None:
            raise NotWalkable(f"{type(e).__name__} in line {getattr(e, 'lineno', '?')}")
        node: Node = describe(e)
        return node

    def _all(self, kind: int, *parts: ast.expr, number: int = 0, of: Any = None) -> Node:
        return kind, number, of, tuple(map(self.expression, parts))

    def _name(self, e: ast.Name) -> Node:
        if is_private(e.id):
            raise NotWalkable("a private name")
        slot = self.slots.get(e.id)
        return (GLOBAL, 0, e.id, ()) if slot is None else (SLOT, slot, None, ())

    def _constant(self, e: ast.Constant) -> Node:
        if e.value is ...:
            raise NotWalkable("an ellipsis")
        return CONSTANT, 0, e.value, ()

    def _attribute(self, e: ast.Attribute) -> Node:
        if is_private(e.attr):
            raise NotWalkable("a private name")
        return self._all(ATTRIBUTE, e.value, of=e.attr)

    def _subscript(self, e: ast.Subscript) -> Node:
        where: Any = e.slice
        if not isinstance(where, ast.Slice):
            return self._all(ITEM, e.value, where)
        kind, _, step, _ = (CONSTANT, 0, 1, ()) if where.step is None else self.expression(where.step)
        if kind != CONSTANT or type(step) is not int or not 0 < abs(step) < 1 << 31:
            raise NotWalkable("a slice with a step that is no number")
        none = ast.Constant(None)
        number = step % (1 << 32)  # as the core reads it: of 32 bits
        return self._all(SLICE, e.value, where.lower or none, where.upper or none, number=number)

    def _call(self, e: ast.Call) -> Node:
        if any(isinstance(a, ast.Starred) for a in e.args) or any(k.arg is None for k in e.keywords):
            raise NotWalkable("a starred argument")
        names = tuple(k.arg for k in e.keywords if k.arg)
        if any(map(is_private, names)):
            raise NotWalkable("a private name")
        method = e.func.attr if isinstance(e.func, ast.Attribute) else ""
        number = _METHODS.index(method) + 1 if method in _METHODS else 0
        is_list = isinstance(e.func, ast.Name) and e.func.id == "list"
        if (is_list or method in _OVER_INPUTS) and len(e.args) == 1 and not names:
            return CALL, number, names, (self.expression(e.func), self.iterable(e.args[0]))
        return self._all(CALL, e.func, *e.args, *(k.value for k in e.keywords), number=number, of=names)

    def _tuple(self, e: ast.Tuple) -> Node:
        return self._all(TUPLE, *e.elts)

    def _list(self, e: ast.List) -> Node:
        return self._all(LIST, *e.elts)

    def _unaryop(self, e: ast.UnaryOp) -> Node:
        if isinstance(e.op, ast.Not):
            return self._all(NOT, e.operand)
        value = e.operand.value if isinstance(e.operand, ast.Constant) else None
        if isinstance(e.op, ast.USub) and type(value) in (int, float):
            return CONSTANT, 0, -value, ()  # type: ignore[operator]
        if isinstance(e.op, ast.USub):
            return self._all(ARITHMETIC, e.operand, number=_NEGATIVE)
        raise NotWalkable("an operator")

    def _boolop(self, e: ast.BoolOp) -> Node:
        return self._all(ALL if isinstance(e.op, ast.And) else ANY, *e.values)

    def _compare(self, e: ast.Compare) -> Node:
        inner, last = e.comparators[:-1], e.comparators[-1]
        if not all(isinstance(c, (ast.Name, ast.Constant)) for c in inner):  # evaluated once
            raise NotWalkable("a comparison of several expressions")
        parts = []
        for left, op, right in zip([e.left, *inner], e.ops, [*inner, last]):
            parts.append(self._all(COMPARISON, left, right, number=_COMPARISONS[type(op)]))
        return parts[0] if len(parts) == 1 else (ALL, 0, None, tuple(parts))

    def _ifexp(self, e: ast.IfExp) -> Node:
        return self._all(CONDITIONAL, e.test, e.body, e.orelse)

    def _binop(self, e: ast.BinOp, how: int = 0) -> Node:
        number = _ARITHMETIC.get(type(e.op))
        if number is None:
            raise NotWalkable("an operator")
        return self._all(ARITHMETIC, e.left, e.right, number=number | how)

    def _listcomp(self, e: ast.ListComp) -> Node:
        first = e.generators[0]
        if len(e.generators) > 1 or first.is_async:
            raise NotWalkable("a comprehension of several loops")
        over = self.iterable(first.iter)
        outer = dict(self.slots)
        for n in nodes_of(first.target):
            if isinstance(n, ast.Name):
                self.slots[n.id] = self.count  # its names are its own
                self.count += 1
        target = self.target(first.target)
        placed = self.placed.get(e)
        element = self.expression(e.elt) if placed is None else self._element(placed, e.elt)
        tests = tuple(map(self.expression, first.ifs))
        self.slots = outer
        return EACH, 0, None, (target, over, element, *tests)

    def _joinedstr(self, e: ast.JoinedStr) -> Node:
        parts = joined(e)
        if parts is None:
            raise NotWalkable("a formatted text")
        return self._all(TEXT, *parts)

    def _element(self, placed: PlacedRegion, element: ast.expr) -> Node:
        arguments = tuple(self.expression(e) for e in written(placed.new.region.sources.all))
        as_written = self._as_written(self.expression, [element])
        return REGION, _EXPRESSION, placed.name, ((TUPLE, 0, None, arguments), as_written)


def free_names(module: Module, qualname: str, node: ast.FunctionDef) -> list[str]:
    """The names of the functions around it that a function reads."""
    if "<locals>" not in qualname:
        return []
    around = [f for _, f, _ in functions(module.tree) if f is not node and any_in([node.lineno], f)]
    bound = {name for f in around for name in module.names_in(f).local}
    own = module.own_nodes(node)
    read = {n.id for n in own if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return sorted(read & bound - module.names_in(node).local)


def _targets(statements: Iterable[ast.stmt]) -> list[str]:
    names = [n for s in statements for n in nodes_of(s) if isinstance(n, ast.Name)]
    return [n.id for n in names if isinstance(n.ctx, ast.Store)]


# ---------------------------------------------------------------- programs of a running script


def head(placeholder: str, program: Program, unbound: str) -> list[ast.stmt]:
    """The statements that a walked function begins with; `unbound` stands for NameError."""
    names = [*program.parameters, *program.free]
    call: ast.stmt = assign(WHOLE, ast.Call(ast.Constant(placeholder), [load(name) for name in names], []))
    if program.free:  # which may have no values yet
        missing = ast.ExceptHandler(ast.Constant(unbound), None, [assign(WHOLE, ast.Constant(...))])
        call = ast.Try([call], [missing], [], [])
    recorded = ast.Compare(load(WHOLE), [ast.IsNot()], [ast.Constant(...)])
    unset = ast.Delete([ast.Name(WHOLE, ast.Del())])
    return [call, ast.If(recorded, [ast.Return(load(WHOLE))], []), unset]


class Resolver:
    """Finds the programs of functions that walks meet and that were not rewritten.

    Attributes:
        files: the functions of each file, with code objects that are equal to theirs.
    """

    def __init__(self) -> None:
        self.files: dict[str, dict[tuple[str, int], tuple[types.CodeType, ast.FunctionDef]]] = {}

    def __call__(self, function: types.FunctionType) -> Optional[Spec]:
        code = function.__code__
        try:
            place = self._functions_in(code.co_filename).get((code.co_name, code.co_firstlineno))
            if place is None or place[0] != code or is_generator(place[1]):
                return None
            return Program(place[1], code.co_freevars, {}).spec(code.co_name, code)
        except (NotWalkable, OSError, SyntaxError, ValueError, RecursionError):  # of the parser, too
            return None

    def _functions_in(self, path: str) -> dict[tuple[str, int], tuple[types.CodeType, ast.FunctionDef]]:
        if path not in self.files:
            self.files[path] = {}
            with open(path, "rb") as file:
                tree = silently(path, ast.parse, file.read(), path)
            whole = silently(path, compile, tree, path, "exec", dont_inherit=True)
            by_place = {key[-1]: code for key, code in codes(whole)}
            for _, node, _ in functions(tree):
                place = node.name, first_line(node)
                if place in by_place:
                    self.files[path][place] = by_place[place], node
        return self.files[path]


resolver = Resolver()
