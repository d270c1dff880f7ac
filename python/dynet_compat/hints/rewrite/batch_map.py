"""Loops over instances, rewritten so that their iterations can run side by side.

A loop becomes, with names that no script can have:

    map = <the loop>.start(iterable)
    while map.more():
        if map.together:
            def body(item): ...           # the body; appends and sums become a list that it returns
            for results in map.run(body): # in the order of the iterations
                ...                       # the appends and sums of one iteration
        else:
            for ... in map.part: ...      # the loop as it was written

and a list comprehension becomes a call that does the same. `map.more()` decides whether the iterations may
run side by side (see `hints/parallel_loops.py`).
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

from .trees import arguments, assign, call_method, load, store

if TYPE_CHECKING:
    from ..hints_file import IndependentLoop

Loop = Union[ast.For, ast.ListComp]

_STATEMENTS = (
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.If, ast.For, ast.While, ast.Continue, ast.Break,
    ast.Pass, ast.Assert, ast.Raise,
)  # fmt: skip
_NOT_IN_EXPRESSIONS = (ast.NamedExpr, ast.Lambda, ast.Yield, ast.YieldFrom, ast.Await)


def possible() -> bool:
    """Whether instances can be suspended cheaply: the library is there and can be used."""
    try:
        importlib.import_module("greenlet")
    except Exception:  # noqa: BLE001 - made for another Python, say: the script runs without it, too
        return False
    return True


class BatchMapLoops:
    """The loops of one module to be rewritten.

    Args:
        loops: their records, and for each the object that decides how its iterations run.
        old: the module's tree, not changed yet.
    """

    def __init__(self, loops: Iterable[tuple[IndependentLoop, Any]], old: ast.Module) -> None:
        self.wanted = {(r.line, r.col): (r, decider) for r, decider in loops}
        self.possible = {
            (node.lineno, node.col_offset)
            for node in (ast.walk(old) if self.wanted else ())
            if isinstance(node, (ast.For, ast.ListComp)) and is_possible(node)
        }
        self.constants: dict[str, Any] = {}

    def sums(self, qualname: str) -> frozenset[str]:
        """Names that the loops of a function add to."""
        return frozenset(name for r in self._of_function(qualname) for name in r.sums)

    def appends(self, qualname: str) -> frozenset[str]:
        """Names of the lists that they append to."""
        return frozenset(name for r in self._of_function(qualname) for name in r.appends)

    def _of_function(self, qualname: str) -> list[IndependentLoop]:
        found = (r for place, (r, _) in self.wanted.items() if place in self.possible)
        return [r for r in found if r.qualname == qualname]

    def of(self, node: Loop) -> Optional[tuple[IndependentLoop, Any]]:
        """The record of a loop that can be rewritten."""
        place = (node.lineno, node.col_offset)
        return self.wanted.get(place) if place in self.possible else None

    def written(self, node: Loop, record: IndependentLoop, decider: Any) -> Union[list[ast.stmt], ast.expr]:
        """What replaces a loop or comprehension."""
        number = len(self.constants)
        placeholder = f"\0batch_map {number}"
        self.constants[placeholder] = decider
        new: Any
        if isinstance(node, ast.ListComp):
            new = _comprehension(node, placeholder)
        else:
            new = _statements(node, placeholder, f".map{number}", f".body{number}", record)
        for part in new if isinstance(new, list) else [new]:
            for n in ast.walk(part):
                if isinstance(n, (ast.expr, ast.stmt, ast.arg)) and not hasattr(n, "lineno"):
                    ast.copy_location(n, node)
        return new  # type: ignore[no-any-return]


class BatchMapWriter(ast.NodeTransformer):
    """Rewrites the loops of one function."""

    def __init__(self, maps: BatchMapLoops, qualname: str) -> None:
        self.batch_maps = maps
        self.qualname = qualname

    def function(self, node: ast.FunctionDef) -> None:
        self.generic_visit(node)

    def keep(self, node: ast.AST) -> ast.AST:
        """Functions and classes inside the function are left alone."""
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = keep  # noqa: N815

    def _new(self, node: Loop) -> Any:
        found = self.batch_maps.of(node)
        if found is None or found[0].qualname != self.qualname:
            self.generic_visit(node)
            return node
        return self.batch_maps.written(node, *found)

    def visit_For(self, node: ast.For) -> Any:  # noqa: N802 - the name is given
        return self._new(node)

    def visit_ListComp(self, node: ast.ListComp) -> Any:  # noqa: N802
        return self._new(node)


# ---------------------------------------------------------------- which loops


def is_possible(node: Loop) -> bool:
    """Whether the body means the same in a function of its own."""
    if isinstance(node, ast.ListComp):
        generators = node.generators
        if len(generators) != 1 or generators[0].ifs or generators[0].is_async:
            return False
        parts: list[ast.AST] = [node.elt, generators[0].target]
    else:
        if node.orelse or not _statements_possible(node.body, inner=False):
            return False
        parts = [node.target, *node.body]
    return not any(_forbidden(n) for part in parts for n in ast.walk(part))


def _forbidden(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id in ("super", "__class__")
    return isinstance(node, _NOT_IN_EXPRESSIONS)


def _statements_possible(body: Sequence[ast.stmt], inner: bool) -> bool:
    for statement in body:
        if not isinstance(statement, _STATEMENTS) or (isinstance(statement, ast.Break) and not inner):
            return False
        below = inner or isinstance(statement, (ast.For, ast.While))
        for name in ("body", "orelse"):
            part = getattr(statement, name, [])
            loops_else = name == "orelse" and isinstance(statement, (ast.For, ast.While))
            if isinstance(part, list) and not _statements_possible(part, inner if loops_else else below):
                return False
    return True


# ---------------------------------------------------------------- new syntax


def _statements(
    node: ast.For, placeholder: str, name: str, body: str, record: IndependentLoop
) -> list[ast.stmt]:
    parts = list(node.body)
    renew: list[ast.expr] = []
    if record.renew_first:
        first = parts.pop(0)
        call: Any = first.value if isinstance(first, ast.Expr) else None
        plain_call = isinstance(call, ast.Call) and not call.args and not call.keywords
        renew = [call.func if plain_call else ast.Constant(None)]  # None: this loop stays as it is
    updates = _UpdateCollector(record.appends, record.sums)
    inside = [updates.statement(s, own=True) for s in parts]
    item: list[ast.stmt] = [
        assign(".out", ast.List([], ast.Load())),
        ast.Assign([node.target], load(".item")),
        *inside,
        ast.Return(load(".out")),
    ]
    loop = ast.For(
        store(".results"),
        call_method(load(name), "run", load(body), *renew),
        [updates.applied()],
        [],
    )
    plain = ast.For(node.target, _attribute(name, "part"), node.body, [])
    return [
        assign(name, call_method(ast.Constant(placeholder), "start", node.iter)),
        ast.While(
            call_method(load(name), "more"),
            [
                ast.If(
                    _attribute(name, "together"),
                    [_function(body, [".item"], item), loop],
                    [plain],
                )
            ],
            [],
        ),
    ]


def _comprehension(node: ast.ListComp, placeholder: str) -> ast.Call:
    """<loop>.collect(iterable, item -> element, items -> [element for ... in items])"""
    generator = node.generators[0]
    one = ast.comprehension(generator.target, ast.Tuple([load(".item")], ast.Load()), [], 0)
    many = ast.comprehension(generator.target, load(".items"), [], 0)
    return call_method(
        ast.Constant(placeholder),
        "collect",
        generator.iter,
        _lambda(".item", ast.Subscript(ast.ListComp(node.elt, [one]), ast.Constant(0), ast.Load())),
        _lambda(".items", ast.ListComp(node.elt, [many])),
    )


class _UpdateCollector:
    """Replaces the appends and sums of a body by items of the list that it returns."""

    def __init__(self, appends: Sequence[str], sums: Sequence[str]) -> None:
        self.appends, self.sums = appends, sums
        self.kept: list[ast.stmt] = []  # the append or sum for each kind of item, with `.value` as its value

    def statement(self, node: ast.stmt, own: bool) -> ast.stmt:
        """A statement of the body. `own`: a `continue` in it continues this loop, not one inside it."""
        value = self._taken(node)
        if value is not None:
            return ast.copy_location(self._noted(value), node)
        if isinstance(node, ast.Continue) and own:
            return ast.copy_location(ast.Return(load(".out")), node)
        parts: dict[str, Any] = {}
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list) and statements and isinstance(statements[0], ast.stmt):
                inner = own and not (field == "body" and isinstance(node, (ast.For, ast.While)))
                parts[field] = [self.statement(s, inner) for s in statements]
        if not parts:
            return node
        fields = {f: getattr(node, f) for f in node._fields if hasattr(node, f)}
        return ast.copy_location(type(node)(**{**fields, **parts}), node)

    def _taken(self, node: ast.stmt) -> Optional[ast.expr]:
        """What is appended or added, if the statement does nothing else."""
        value: Optional[ast.expr] = None
        result: Optional[ast.stmt] = None
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            f = call.func
            if isinstance(f, ast.Attribute) and f.attr == "append" and len(call.args) == 1:
                if isinstance(f.value, ast.Name) and f.value.id in self.appends and not call.keywords:
                    value, result = call.args[0], ast.Expr(ast.Call(f, [load(".value")], []))
        elif isinstance(node, ast.AugAssign):
            if isinstance(node.target, ast.Name) and node.target.id in self.sums:
                value, result = node.value, ast.AugAssign(node.target, node.op, load(".value"))
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, right = node.targets[0], node.value
            if isinstance(target, ast.Name) and target.id in self.sums and isinstance(right, ast.BinOp):
                value = right.right
                result = ast.Assign([target], ast.BinOp(right.left, right.op, load(".value")))
        if result is not None:
            self.kept.append(ast.copy_location(result, node))
        return value

    def _noted(self, value: ast.expr) -> ast.stmt:
        pair = ast.Tuple([ast.Constant(len(self.kept) - 1), value], ast.Load())
        return ast.Expr(call_method(load(".out"), "append", pair))

    def applied(self) -> ast.stmt:
        """for kind, value in results: ..."""
        if not self.kept:
            return ast.Pass()
        body: list[ast.stmt] = [self.kept[-1]]
        for kind in range(len(self.kept) - 2, -1, -1):
            test = ast.Compare(load(".kind"), [ast.Eq()], [ast.Constant(kind)])
            body = [ast.If(test, [self.kept[kind]], body)]
        pair = ast.Tuple([store(".kind"), store(".value")], ast.Store())
        return ast.For(pair, load(".results"), body, [])


def _function(name: str, parameters: list[str], body: list[ast.stmt]) -> ast.FunctionDef:
    extra: dict[str, Any] = {"type_params": []} if sys.version_info >= (3, 12) else {}
    return ast.FunctionDef(
        name=name, args=arguments(parameters), body=body, decorator_list=[], returns=None, **extra
    )


def _attribute(name: str, attribute: str) -> ast.Attribute:
    return ast.Attribute(load(name), attribute, ast.Load())


def _lambda(parameter: str, value: ast.expr) -> ast.Lambda:
    return ast.Lambda(arguments([parameter]), value)
