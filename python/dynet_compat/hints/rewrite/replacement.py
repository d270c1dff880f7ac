"""What replaces a region: one call, and the statements as they were written where it has no recording."""

from __future__ import annotations

import ast
from typing import Any, Optional

from . import loops, values
from .linking import UNBOUND
from .region import TracedRegion
from .scopes import Scope
from .trees import arguments, assign, call_method, delete, load, locate, nodes_of, passed_on, without_place
from .values import Constant, Derived, OneOf, Recorded, RegionSource, Sequence, Value


class Replacement:
    """Results of a region, and the statements that replace it.

    Attributes:
        loop: the loop whose body the region is.
        names: that the region assigns and that are read later.
        values: of these names, of what is appended to lists, and the returned one.
        alone: is the only result passed without a tuple around it?
    """

    def __init__(self, scope: Scope, region: TracedRegion, loop: Optional[loops.LoopBinding] = None) -> None:
        self.region = region
        self.scope = scope
        self.loop = loop
        self.names = [] if region.returned is not None else _left_behind(scope, region)
        self.appended = [f".appended{i}" for i in range(len(region.appends))]
        self.values: list[Value] = [region.env[n] for n in self.names]
        self.values += [append.value for append in region.appends]
        if region.returned is not None:
            self.values.append(region.returned)
        alone = not loop and not region.appends and len(self.values) == 1
        only = self.values[0] if alone else None
        self.alone = isinstance(only, Recorded) or (isinstance(only, Sequence) and only.kind != values.DICT)

    def spec(self, where: str) -> tuple[Any, ...]:
        arguments = [s for s in self.region.sources.all if s.kind == values.ARGUMENT]
        sources = arguments + [s for s in self.region.sources.all if s.kind != values.ARGUMENT]
        number = {source: i for i, source in enumerate(sources)}
        results = tuple(_result(v, number) for v in self.values)
        result = results[0] if self.alone else (values.TUPLE, results)
        ints = tuple(i for i in self.region.sources.ints if abs(i) < 1 << 31)
        loop = self.loop and self.loop.spec(self.names, number)
        return where, len(arguments), tuple(_source(s, number) for s in sources), ints, result, loop

    def over(
        self, placeholder: str, reads: Optional[ast.expr], target: ast.expr, iterable: ast.expr
    ) -> ast.Call:
        """The call that returns the iterator of a loop."""
        arguments = [reads or ast.Constant(None), *loops.over(target, iterable)]
        return call_method(ast.Constant(placeholder), "loop", *arguments)

    def comprehension(self, placeholder: str, node: ast.ListComp) -> ast.ListComp:
        """[element for target in <items> for element in <elements that were recorded> or (element,)]"""
        generator = node.generators[0]
        read = values.written(self.region.sources.all)
        n = len(self.region.targets)  # which are the first
        reads = ast.Lambda(arguments([]), ast.Tuple(read[n:], ast.Load()))
        loop = self.over(placeholder, reads, generator.target, generator.iter)
        recorded = ast.Call(ast.Constant(placeholder), read[:n], [])
        written = ast.Tuple([passed_on(placeholder, "done", node.elt)], ast.Load())
        parts: list[tuple[ast.expr, ast.expr]] = [
            (generator.target, loop),
            (ast.Name(".element", ast.Store()), ast.BoolOp(ast.Or(), [recorded, written])),
        ]
        return ast.ListComp(load(".element"), [ast.comprehension(*part, [], 0) for part in parts])

    def statements(self, placeholder: str) -> list[ast.stmt]:
        arguments = values.written(self.region.sources.all)
        if self.loop:
            arguments += map(load, self.loop.added)
        call = ast.Call(ast.Constant(placeholder), arguments, [])
        foreign = ast.If(passed_on(placeholder, "foreign", ast.Constant(None)), [ast.Raise(None, None)], [])
        unbound = [foreign, assign(".results", ast.Constant(None))]
        missed = ast.Compare(load(".results"), [ast.Is()], [ast.Constant(None)])
        failed = [ast.Expr(passed_on(placeholder, "drop", ast.Constant(None))), ast.Raise(None, None)]
        written = ast.Try(self._as_written(placeholder), [ast.ExceptHandler(None, None, failed)], [], [])
        return [
            ast.Try(
                [assign(".results", call)], [ast.ExceptHandler(ast.Constant(UNBOUND), None, unbound)], [], []
            ),
            ast.If(missed, [delete(".results"), written], self._recorded()),
        ]

    def _as_written(self, placeholder: str) -> list[ast.stmt]:
        """The region as it was written, which passes its results on when it has run."""
        body: list[ast.stmt] = []
        appended = {append.statement for append in self.region.appends}
        for s in self.region.statements:
            if s in appended:
                call = s.value  # type: ignore[attr-defined]
                kept = locate(passed_on(placeholder, "keep", call.args[0]), call.args[0])
                append = locate(ast.Call(call.func, [kept], []), call)
                body.append(locate(ast.Expr(append), s))
            elif isinstance(s, ast.Return) and s.value is not None:
                returned = passed_on(placeholder, "done" if self.alone else "last", s.value)
                body.append(locate(ast.Return(locate(returned, s.value)), s))
                return body
            else:
                body.append(s)
        names: list[ast.expr] = [load(n) for n in self.names]
        results = names[0] if self.alone else ast.Tuple(names, ast.Load())
        return [*body, without_place(ast.Expr(passed_on(placeholder, "done", results)))]

    def _recorded(self) -> list[ast.stmt]:
        """Assigning and appending the results of a recording."""
        targets = self.names + (self.loop.left if self.loop else self.appended)
        returns = self.region.returned is not None
        if returns:
            targets.append(".returned")
        body: list[ast.stmt] = []
        if self.alone and returns:
            return [ast.Return(load(".results"))]
        if self.alone:
            body.append(assign(targets[0], load(".results")))
        elif targets:
            names: list[ast.expr] = [ast.Name(t, ast.Store()) for t in targets]
            body.append(ast.Assign([ast.Tuple(names, ast.Store())], load(".results")))
        body.append(delete(".results"))
        for to, name in zip(self.region.appends, () if self.loop else self.appended):
            append = ast.Attribute(to.code, "append", ast.Load())
            body += [ast.Expr(ast.Call(append, [load(name)], [])), delete(name)]
        if returns:
            body.append(ast.Return(load(".returned")))
        return body


def _left_behind(scope: Scope, region: TracedRegion) -> list[str]:
    """Names that the region assigns; of names that the script does not have, those that are read elsewhere or
    by the next run of the region."""
    inside = {n for s in region.statements for n in nodes_of(s)}
    known = {key[1] for key in region.sources.known if key[0] == "name"}
    return [
        name for name in region.env if name[0] != "." or name in known or scope.occurs_outside(name, inside)
    ]


def _source(s: RegionSource, number: dict[RegionSource, int]) -> tuple[Any, ...]:
    base = number[s.base] if s.base else 0
    at = number[s.at] if s.at else 0
    uses = (
        s.called,
        s.method,
        s.expression,
        s.state,
        s.parameters,
        s.mapping,
        s.truth,
        s.appended,
        s.indices,
        s.others,
        s.callee,
        s.defaults,
        s.own,
        s.late,
    )
    return (s.kind, base, s.key, at, s.times if s.kind == values.ITEM_AT else s.length, *uses)


def _result(v: Value, number: dict[RegionSource, int]) -> tuple[int, Any]:
    if isinstance(v, RegionSource):
        return values.SOURCE, number[v]
    if isinstance(v, Constant):
        return values.CONSTANT, v.value
    if isinstance(v, Derived) or (isinstance(v, Sequence) and v.kind == values.DICT):
        return values.DERIVED, None
    if isinstance(v, Sequence):
        return v.kind, tuple(_result(item, number) for item in v.items)
    return values.ONE_OF if isinstance(v, OneOf) else values.RECORDED, None
