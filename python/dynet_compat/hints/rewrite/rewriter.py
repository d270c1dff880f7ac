"""Rewrites the functions of a module so that one call records each region, from the module's own source.

A region is replaced by one call with the values that the region reads. Where that call has a recording for
them, it replays it and returns the results; otherwise the region runs as it was written. In both cases the
names that the region assigns have their values, and no others exist: code that inspects frames sees the
script's names only.
"""

from __future__ import annotations

import ast
import bisect
import contextlib
import copy
import functools
import importlib.util
import re
import types
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from ... import _core
from . import argmax, desugar, loops, scopes, values
from .batch_map import BatchMapLoops, BatchMapWriter
from .recording import is_recording, recording
from .region import LEAST_OPS, STATEMENTS, Region
from .scopes import Module, Scope
from .values import Constant, OneOf, Recorded, Sequence, Source, Value

if TYPE_CHECKING:
    from ..hints_file import IndependentLoop

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_FUNCTION = 2  # flag of code objects: inspect.CO_NEWLOCALS, which those of classes do not have
_UNBOUND = "\0unbound"  # stands for the class of errors of names without values, in the code

Key = tuple[tuple[str, int], ...]  # of a code object: names and first lines, from the outside in


@dataclass
class FoundRegion:
    """A region, the function that it is in, and its lines.

    form: "" for statements, "loop" for the body of one, "comprehension" for the element of one.
    """

    qualname: str
    region: Region
    line: int
    last_line: int
    form: str = ""


@dataclass
class Refusal:
    """Statements of a function that are no region, and why."""

    qualname: str
    line: int
    last_line: int
    reason_line: int
    reason: str


class Rewriter:
    """Makes the functions of one module anew.

    Args:
        source: text of the module.
        filename: as in its code objects.
        names: dict of the module, as it is now.
        wanted: qualified names of the functions to look at; None: all.
        loops: those over instances that are to be written so that they can run side by side, and for each the
            object that decides whether they do.
    """

    def __init__(
        self,
        source: Union[str, bytes],
        filename: str,
        names: dict[str, Any],
        wanted: Optional[set[str]] = None,
        loops: Iterable[tuple[IndependentLoop, Any]] = (),
    ) -> None:
        self.filename = filename
        self.source = source
        text = source if isinstance(source, bytes) else source.encode("utf-8", "replace")
        self.odd_lines, self.argmax_lines = _lines_with(text, *_ODD), _lines_with(text, b"argmax")
        with _silence():
            self.tree = ast.parse(source, filename)
        self.module = Module(self.tree, names, is_recording)
        self.wanted = wanted
        self.found: list[FoundRegion] = []
        self.refused: list[Refusal] = []
        self.parts: list[tuple[ast.AST, str, Any]] = []  # of nodes, new, to be put in their places
        self.regions: dict[str, Any] = {}  # placeholder in the code -> region
        self.batch_maps = BatchMapLoops(loops, self.tree)
        self.argmax_calls = 0  # that do not need the values

    def codes(self) -> dict[Key, tuple[types.CodeType, types.CodeType]]:
        """Old and new code of every function that changes, by its key."""
        changed = self.find()
        if not changed:
            return {}
        source = self._source_of(sorted([*changed, *(node.lineno for node in self.module.codes)]))
        tree = ast.Module(list(_with_functions(self.tree.body, changed)), [])
        with _silence():
            old = dict(_codes(compile(source, self.filename, "exec", dont_inherit=True)))
            compiled = compile(tree, self.filename, "exec", dont_inherit=True)
        constants = {**self.regions, **self.batch_maps.constants, _UNBOUND: NameError}
        constants[argmax.PLACEHOLDER] = _core._read_argmax
        new = dict(_codes(_with_constants(compiled, constants)))
        self._name_callees(old, new)
        functions = [(key, code) for key, code in old.items() if key in new and code.co_flags & _FUNCTION]
        return {key: (code, new[key]) for key, code in functions if new[key] != code}

    def _source_of(self, wanted: list[int]) -> str:
        """The source with empty lines for functions and classes that hold no function on these lines."""
        text = self.source if isinstance(self.source, str) else importlib.util.decode_source(self.source)
        lines = re.split("\r\n|\r|\n", text)
        for top in self.tree.body:
            for s in [top, *top.body] if isinstance(top, ast.ClassDef) else [top]:
                if isinstance(s, _DEFINITIONS) and not _any_in(wanted, s):
                    first = min([s.lineno, *(decorator.lineno for decorator in s.decorator_list)]) - 1
                    last = s.end_lineno or s.lineno
                    lines[first:last] = [""] * (last - first)
        return "\n".join([*lines, ""])

    def _name_callees(self, old: dict[Key, types.CodeType], new: dict[Key, types.CodeType]) -> None:
        places: dict[tuple[str, int], list[types.CodeType]] = {}
        for key in old:
            known = {id(code): code for code in (old[key], new.get(key, old[key]))}
            places.setdefault(key[-1], []).extend(known.values())
        for node, codes in self.module.codes.items():
            codes += places.get((node.name, node.lineno), ())

    # ---- functions

    def find(self) -> list[int]:
        """Lines of the functions that change, whose trees have changed then."""
        inside = [f for f in functions(self.tree) if self._may_change(f[1])]
        wanted = [f for f in inside if self.wanted is None or f[0] in self.wanted]
        changed = set()
        for qualname, node, owner in wanted:
            before = len(self.found)
            self._rewrite(qualname, node, owner)
            if len(self.found) > before:
                changed.add(node.lineno)
        for parent, name, part in self.parts:
            setattr(parent, name, part)
        for _, node, _ in wanted:
            n = argmax.replace(node) if _any_in(self.argmax_lines, node) else 0
            if n:
                changed.add(node.lineno)
                self.argmax_calls += n
        for qualname, node, _ in inside if self.batch_maps.wanted else ():
            before = len(self.batch_maps.constants)
            BatchMapWriter(self.batch_maps, qualname).function(node)
            if len(self.batch_maps.constants) > before:
                changed.add(node.lineno)
        return sorted(changed)

    def _may_change(self, node: ast.FunctionDef) -> bool:
        return may_change(node) if _any_in(self.odd_lines, node) else not node.decorator_list

    def _rewrite(self, qualname: str, node: ast.FunctionDef, owner: Optional[str]) -> None:
        scope = Scope.of(self.module, node, owner, "<locals>" in qualname)
        scope.sums, scope.appends = self.batch_maps.sums(qualname), self.batch_maps.appends(qualname)
        for _, _, statements in _suites(node):
            desugar.name_sums(scope, statements)
            desugar.move_into_branches(scope, statements)
        for parent, name, statements in _suites(node):
            if name != "body" or not self._loop(qualname, scope, parent):
                self.parts.append((parent, name, list(self._suite(qualname, scope, statements))))
        for comprehension in _own_comprehensions(node) if scope.lists else ():
            self._comprehension(qualname, scope, comprehension)

    def _comprehension(self, qualname: str, scope: Scope, node: ast.ListComp) -> None:
        """[element for target in iterable] becomes one call."""
        region = loops.element(scope, node)
        if region is None or not region.ops:
            return
        if region.ops < LEAST_OPS and not any(isinstance(n, ast.List) for n in ast.walk(node.elt)):
            return  # a lookup, or an op without a list of arguments, costs less than the region's checks
        shape = Replacement(scope, region, loops.LoopBinding(node.generators[0].target, region))
        shape.alone = True
        placeholder = self._region(shape.spec(f"{qualname}:{node.lineno}"))
        last_line = node.end_lineno or node.lineno
        self.found.append(FoundRegion(qualname, region, node.lineno, last_line, "comprehension"))
        new = scopes.locate(shape.comprehension(placeholder, node), node)
        self.parts += [(node, "elt", new.elt), (node, "generators", new.generators)]

    def _loop(self, qualname: str, scope: Scope, node: ast.AST) -> bool:
        """A loop whose whole body is a region goes over what records all iterations that it can."""
        if not isinstance(node, ast.For) or self.batch_maps.of(node):
            return False
        region = loops.body(scope, node)
        if region is None or region.ops < LEAST_OPS:
            return False
        shape = Replacement(scope, region, loops.LoopBinding.of_loop(scope, node, region))
        placeholder = self._region(shape.spec(f"{qualname}:{node.lineno}"))
        last_line = node.body[-1].end_lineno or node.lineno
        self.found.append(FoundRegion(qualname, region, node.lineno, last_line, "loop"))
        over = shape.over(placeholder, None, node.target, node.iter)
        self.parts.append((node, "iter", scopes.locate(over, node.iter)))
        self.parts.append((node, "body", _placed(shape.statements(placeholder), node.body[0])))
        return True

    def _region(self, spec: tuple[Any, ...]) -> str:
        placeholder = f"\0region {len(self.regions)}"
        self.regions[placeholder] = _core._Region(spec, recording())
        return placeholder

    def _suite(self, qualname: str, scope: Scope, statements: list[ast.stmt]) -> Iterator[ast.stmt]:
        at = 0
        if statements is scope.node.body and ast.get_docstring(scope.node, clean=False) is not None:
            yield statements[0]
            at = 1
        while at < len(statements):
            if not isinstance(statements[at], STATEMENTS):
                yield statements[at]
                at += 1
                continue
            before, region = self._block(scope, statements[at:])
            if region.ops >= LEAST_OPS:
                yield from _without(
                    [s.targets[0].id for s in before], [*before, *self._replaced(qualname, scope, region)]
                )
                at += len(region.statements)
            else:  # what follows may still begin a region
                line = statements[at].lineno
                refusal = region.refusal or (line, "it records a single op")
                self.refused.append(Refusal(qualname, line, statements[at].end_lineno or line, *refusal))
                yield statements[at]
                at += 1

    def _block(self, scope: Scope, statements: list[ast.stmt]) -> tuple[list[Any], Region]:
        """The region that the statements begin with, and what of the first one is evaluated before it."""
        region = Region(scope)
        before: list[Any] = []
        if not region.add(statements[0]):
            apart = desugar.CallSplitter(scope)
            first = apart.statement(statements[0])
            if first is None or not region.add(first):
                return [], region
            before = apart.before
        for s in statements[1:]:
            if not region.add(s):
                break
        return before, region

    def _replaced(self, qualname: str, scope: Scope, region: Region) -> Iterable[ast.stmt]:
        shape = Replacement(scope, region)
        line = region.statements[0].lineno
        placeholder = self._region(shape.spec(f"{qualname}:{line}"))
        last_line = region.statements[-1].end_lineno or line
        self.found.append(FoundRegion(qualname, region, line, last_line))
        return _placed(shape.statements(placeholder), region.statements[0])


def _without(names: list[str], statements: list[ast.stmt]) -> list[ast.stmt]:
    """The statements, after which the names have no values, also if they fail."""
    if not names:
        return statements
    unset = ast.Delete([ast.Name(name, ast.Del()) for name in names])
    bound: list[ast.expr] = [ast.Name(name, ast.Store()) for name in names]
    failed = [ast.Assign(bound, ast.Constant(None)), unset, ast.Raise(None, None)]
    whole = ast.Try(statements, [ast.ExceptHandler(None, None, failed)], [unset], [])
    return [scopes.locate(whole, statements[0])]


def _placed(new: list[ast.stmt], at: ast.stmt) -> list[ast.stmt]:
    """The statements, with lines: those of the script have them."""
    return [s if hasattr(s, "lineno") else scopes.locate(s, at) for s in new]


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef, Optional[str]]]:
    """All functions of the module: qualified name, node, and name of the class of a method of a class of the
    module."""

    def inside(
        node: ast.AST, prefix: str, owner: Optional[str]
    ) -> Iterator[tuple[str, ast.FunctionDef, Optional[str]]]:
        for child in _statements_in(node):
            if isinstance(child, ast.FunctionDef):
                yield prefix + child.name, child, owner
                yield from inside(child, f"{prefix}{child.name}.<locals>.", None)
            elif isinstance(child, ast.ClassDef):
                yield from inside(child, f"{prefix}{child.name}.", child.name if child in tree.body else None)
            elif isinstance(child, ast.AsyncFunctionDef):
                yield from inside(child, f"{prefix}{child.name}.<locals>.", None)
            elif _suite_fields(type(child)):
                yield from inside(child, prefix, None)

    return inside(tree, "", None)


# Fields of a kind of statement that hold statements, or handlers and cases, which hold them.
_suite_fields: Callable[[Any], tuple[str, ...]] = functools.cache(
    lambda kind: tuple(f for f in ("body", "orelse", "finalbody", "handlers", "cases") if f in kind._fields)
)


def _statements_in(node: ast.AST) -> Iterator[ast.AST]:
    """The statements, handlers and cases right inside one."""
    for name in _suite_fields(type(node)):
        yield from getattr(node, name)


def _suites(node: ast.FunctionDef) -> Iterator[tuple[ast.AST, str, list[ast.stmt]]]:
    """The lists of statements of a function, those inside loops and branches too."""
    inside: list[ast.AST] = [node]
    for n in inside:  # which grows
        for name in _suite_fields(type(n)):
            statements = getattr(n, name)
            if statements and name not in ("handlers", "cases"):
                yield n, name, statements
            inside += [s for s in statements if not isinstance(s, scopes.WITH_NAMES_OF_THEIR_OWN)]


def _own_comprehensions(node: ast.FunctionDef) -> Iterator[ast.ListComp]:
    """Those whose names are the function's own."""
    closed = (*scopes.WITH_NAMES_OF_THEIR_OWN, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    roots: list[ast.AST] = [ast.Module(node.body, [])]
    for root in roots:  # which grows
        for n in scopes.nodes_of(root, closed):
            if isinstance(n, ast.ListComp):
                yield n
                roots.append(ast.Expr(n.generators[0].iter))


# UsedNames that may keep a function as it is.
_ODD = (b"locals", b"vars", b"eval", b"exec", b"dir", b"global", b"nonlocal", b"yield", b"await")


def _lines_with(text: bytes, *words: bytes) -> list[int]:
    """Numbers of the lines in which one of the words may stand, also in other letters."""
    found = [word for word in words if word in text]
    if not found and text.isascii():
        return []
    lines = enumerate(text.splitlines(), 1)
    return [i for i, line in lines if not line.isascii() or any(word in line for word in found)]


def _any_in(lines: list[int], node: ast.stmt) -> bool:
    """Is one of the lines in the statement?"""
    at = bisect.bisect_left(lines, node.lineno)
    return at < len(lines) and lines[at] <= (node.end_lineno or node.lineno)


def may_change(node: ast.FunctionDef) -> bool:
    return not (node.decorator_list or _looks_at_names(node) or scopes.is_generator(node))


def _looks_at_names(node: ast.FunctionDef) -> bool:
    """Does the function look at its own local names as a dict, or declare names of other functions?"""
    for n in scopes.nodes_of(node):
        if isinstance(n, ast.Name) and n.id in ("locals", "vars", "eval", "exec", "dir"):
            return True
        if isinstance(n, (ast.Global, ast.Nonlocal)):
            return True
    return False


# ---------------------------------------------------------------- what replaces a region


class Replacement:
    """Results of a region, and the statements that replace it; `loop`: whose body the region is."""

    def __init__(self, scope: Scope, region: Region, loop: Optional[loops.LoopBinding] = None) -> None:
        self.region = region
        self.scope = scope
        self.loop = loop
        self.names = [] if region.returned is not None else _left_behind(scope, region)
        self.appended = [f".appended{i}" for i in range(len(region.appends))]
        self.values: list[Value] = [region.env[n] for n in self.names]
        self.values += [append.value for append in region.appends]
        if region.returned is not None:
            self.values.append(region.returned)
        # One that is new each time goes without a tuple around it.
        alone = not loop and not region.appends and len(self.values) == 1
        self.alone = alone and isinstance(self.values[0], (Recorded, Sequence))

    def spec(self, where: str) -> tuple[Any, ...]:
        arguments = [s for s in self.region.sources if s.kind == values.ARGUMENT]
        sources = arguments + [s for s in self.region.sources if s.kind != values.ARGUMENT]
        number = {source: i for i, source in enumerate(sources)}
        results = tuple(_result(v, number) for v in self.values)
        result = results[0] if self.alone else (values.TUPLE, results)
        ints = tuple(i for i in self.region.ints if abs(i) < 1 << 31)
        loop = self.loop and self.loop.spec(self.names, number)
        return where, len(arguments), tuple(_source(s, number) for s in sources), ints, result, loop

    def over(
        self, placeholder: str, reads: Optional[ast.expr], target: ast.expr, iterable: ast.expr
    ) -> ast.Call:
        """The call that gives what a loop goes over."""
        arguments = [reads or ast.Constant(None), *loops.over(target, iterable)]
        return _method(placeholder, "loop", *arguments)

    def comprehension(self, placeholder: str, node: ast.ListComp) -> ast.ListComp:
        """[element for target in <items> for element in <elements that were recorded> or (element,)]"""
        generator = node.generators[0]
        arguments = values.written(self.region.sources)
        n = len(self.region.targets)  # which are the first
        reads = _function([], ast.Tuple(arguments[n:], ast.Load()))
        loop = self.over(placeholder, reads, generator.target, generator.iter)
        recorded = ast.Call(ast.Constant(placeholder), arguments[:n], [])
        written = ast.Tuple([_method(placeholder, "done", node.elt)], ast.Load())
        parts: list[tuple[ast.expr, ast.expr]] = [
            (generator.target, loop),
            (ast.Name(".element", ast.Store()), ast.BoolOp(ast.Or(), [recorded, written])),
        ]
        return ast.ListComp(_load(".element"), [ast.comprehension(*part, [], 0) for part in parts])

    def statements(self, placeholder: str) -> list[ast.stmt]:
        arguments = values.written(self.region.sources)
        if self.loop:
            arguments += map(_load, self.loop.added)
        call = ast.Call(ast.Constant(placeholder), arguments, [])
        foreign = ast.If(_method(placeholder, "is_foreign"), [ast.Raise(None, None)], [])
        unbound = [foreign, _set(".results", ast.Constant(None))]
        missed = ast.Compare(_load(".results"), [ast.Is()], [ast.Constant(None)])
        failed = [ast.Expr(_method(placeholder, "drop")), ast.Raise(None, None)]
        written = ast.Try(self._as_written(placeholder), [ast.ExceptHandler(None, None, failed)], [], [])
        return [
            ast.Try(
                [_set(".results", call)], [ast.ExceptHandler(ast.Constant(_UNBOUND), None, unbound)], [], []
            ),
            ast.If(missed, [_unset(".results"), written], self._recorded()),
        ]

    def _as_written(self, placeholder: str) -> list[ast.stmt]:
        """The region, which hands over its results when it has run."""
        body: list[ast.stmt] = []
        appended = {append.statement for append in self.region.appends}
        for s in self.region.statements:
            if s in appended:
                call = s.value  # type: ignore[attr-defined]
                kept = scopes.locate(_method(placeholder, "keep", call.args[0]), call.args[0])
                append = scopes.locate(ast.Call(call.func, [kept], []), call)
                body.append(scopes.locate(ast.Expr(append), s))
            elif isinstance(s, ast.Return) and s.value is not None:
                returned = _method(placeholder, "done" if self.alone else "last", s.value)
                body.append(scopes.locate(ast.Return(scopes.locate(returned, s.value)), s))
                return body
            else:
                body.append(s)
        names: list[ast.expr] = [_load(n) for n in self.names]
        results = names[0] if self.alone else ast.Tuple(names, ast.Load())
        return [*body, ast.Expr(_method(placeholder, "done", results))]

    def _recorded(self) -> list[ast.stmt]:
        """What the region leaves behind, taken from the results."""
        targets = self.names + (self.loop.left if self.loop else self.appended)
        returns = self.region.returned is not None
        if returns:
            targets.append(".returned")
        body: list[ast.stmt] = []
        if self.alone and returns:
            return [ast.Return(_load(".results"))]
        if self.alone:
            body.append(_set(targets[0], _load(".results")))
        elif targets:
            names: list[ast.expr] = [ast.Name(t, ast.Store()) for t in targets]
            body.append(ast.Assign([ast.Tuple(names, ast.Store())], _load(".results")))
        body.append(_unset(".results"))
        for to, name in zip(self.region.appends, () if self.loop else self.appended):
            append = ast.Attribute(to.code, "append", ast.Load())
            body += [ast.Expr(ast.Call(append, [_load(name)], [])), _unset(name)]
        if returns:
            body.append(ast.Return(_load(".returned")))
        return body


def _left_behind(scope: Scope, region: Region) -> list[str]:
    """Names that the region assigns; of those that the script does not have, which something else reads, or
    the region when it runs again."""
    inside = {n for s in region.statements for n in scopes.nodes_of(s)}
    known = {key[1] for key in region.known if key[0] == "name"}
    return [
        name for name in region.env if name[0] != "." or name in known or scope.stands_outside(name, inside)
    ]


def _function(parameters: list[str], value: ast.expr) -> ast.Lambda:
    arguments = ast.arguments([], [ast.arg(p) for p in parameters], None, [], [], None, [])
    return ast.Lambda(arguments, value)


def _method(placeholder: str, method: str, *arguments: ast.expr) -> ast.Call:
    """A call of a method of a region."""
    return ast.Call(ast.Attribute(ast.Constant(placeholder), method, ast.Load()), list(arguments), [])


def _unset(name: str) -> ast.Delete:
    return ast.Delete([ast.Name(name, ast.Del())])


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _set(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _source(s: Source, number: dict[Source, int]) -> tuple[Any, ...]:
    base = number[s.base] if s.base else 0
    at = number[s.at] if s.at else 0
    uses = (
        s.called,
        s.method,
        s.expression,
        s.state,
        s.appended,
        s.indices,
        s.others,
        s.codes,
        s.defaults,
        s.own,
        s.late,
    )
    return (s.kind, base, s.key, at, s.times if s.kind == values.ITEM_AT else s.length, *uses)


def _result(v: Value, number: dict[Source, int]) -> tuple[int, Any]:
    if isinstance(v, Source):
        return values.SOURCE, number[v]
    if isinstance(v, Constant):
        return values.CONSTANT, v.value
    if isinstance(v, Sequence):
        return v.kind, tuple(_result(item, number) for item in v.items)
    return values.ONE_OF if isinstance(v, OneOf) else values.RECORDED, None


# ---------------------------------------------------------------- code objects


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """The script's own warnings were given when it was compiled. What was given once is not forgotten, as it
    would be by warnings.catch_warnings()."""
    ignore = ("ignore", None, Warning, None, 0)
    filters: list[Any] = warnings.filters  # type: ignore[assignment]
    filters.insert(0, ignore)
    try:
        yield
    finally:
        filters.remove(ignore)


def _with_functions(body: list[ast.stmt], lines: list[int]) -> Iterator[ast.stmt]:
    """What holds functions on these lines, and imports, which decide how other statements are compiled."""
    for s in body:
        if not _any_in(lines, s):
            closed = scopes.WITH_NAMES_OF_THEIR_OWN
            nodes = scopes.nodes_of(ast.Module([s], []), closed) if _suite_fields(type(s)) else [s]
            if any(isinstance(n, (ast.Import, ast.ImportFrom)) for n in nodes):
                yield s
        elif isinstance(s, ast.ClassDef):
            part = copy.copy(s)
            part.body = [m for m in s.body if _any_in(lines, m)]
            yield part
        else:
            yield s


def _codes(code: types.CodeType, outer: Key = ()) -> Iterator[tuple[Key, types.CodeType]]:
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            key = (*outer, (c.co_name, c.co_firstlineno))
            yield key, c
            yield from _codes(c, key)


def _with_constants(code: types.CodeType, values: dict[str, Any]) -> types.CodeType:
    def of(c: Any) -> Any:
        if isinstance(c, types.CodeType):
            return _with_constants(c, values)
        return values.get(c, c) if isinstance(c, str) else c

    return code.replace(co_consts=tuple(of(c) for c in code.co_consts))
