"""Regions in the place of statements: which statements of a function are regions, and what replaces them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any, Optional, Union

from . import desugar, loops, programs
from .batch_map import BatchMapLoops
from .concurrent_calls import ConcurrentCallsWriter
from .linking import SINGLE_OP, FoundRegion, Refusal
from .region import LEAST_OPS, STATEMENTS, TracedRegion
from .replacement import Replacement
from .scopes import Module, Scope
from .trees import delete, locate, own_comprehensions, store, suites

Node = Union[ast.stmt, ast.expr]


class RegionWriter:
    """Finds the regions of the functions of one module. Trees stay as they are until apply().

    Args:
        reached: functions that are recorded by one call as wholes, since they call themselves.
        batch_maps, calls: loops and calls that run side by side, which are no parts of regions.

    Attributes:
        found, refused: statements that are regions, and that are none.
        regions: name -> what describes the region to the core.
        placed: function -> its regions, by their first statement or by the comprehension.
        with_loops: functions that have loops -> does one of them run over the states of a sequence?
    """

    def __init__(
        self,
        module: Module,
        reached: set[ast.FunctionDef],
        batch_maps: BatchMapLoops,
        calls: ConcurrentCallsWriter,
    ) -> None:
        self.module = module
        self.reached = reached
        self.batch_maps, self.calls = batch_maps, calls
        self.scopes: dict[ast.FunctionDef, Scope] = {}
        self.loop_bodies: dict[ast.For, TracedRegion] = {}
        self.with_loops: dict[ast.FunctionDef, bool] = {}
        self.parts: list[tuple[ast.AST, str, Any]] = []  # node, field, its new value
        self.found: list[FoundRegion] = []
        self.refused: list[Refusal] = []
        self.regions: dict[str, tuple[Any, ...]] = {}
        self.placed: dict[ast.FunctionDef, dict[ast.AST, programs.PlacedRegion]] = {}

    def prepare(self, qualname: str, node: ast.FunctionDef, owner: Optional[str]) -> None:
        """Find the loops of a function, and those of them whose bodies are regions."""
        scope = self.scopes[node] = Scope(self.module, node, owner, "<locals>" in qualname)
        scope.sums, scope.appends = self.batch_maps.sums(qualname), self.batch_maps.appends(qualname)
        for _, _, statements in suites(node):
            desugar.name_sums(scope, statements)
            desugar.move_into_branches(scope, statements)
        for loop in {parent: None for parent, name, _ in suites(node) if name == "body"}:
            if isinstance(loop, (ast.For, ast.While)):
                self.with_loops.setdefault(node, False)
            if isinstance(loop, ast.For) and node not in self.reached and not self.batch_maps.of(loop):
                region = loops.body(scope, loop)
                if region is not None and region.ops >= LEAST_OPS:
                    self.loop_bodies[loop] = region
                    self.with_loops[node] |= any(source.state for source in region.sources.all)

    def write(self, qualname: str, node: ast.FunctionDef) -> None:
        """Find the regions of a function, and what replaces them."""
        scope = self.scopes[node]
        for parent, name, statements in suites(node):
            if name != "body" or not self._loop(qualname, scope, parent):
                self.parts.append((parent, name, list(self._suite(qualname, scope, statements))))
        for comprehension in own_comprehensions(node) if scope.lists else ():
            self._comprehension(qualname, scope, comprehension)

    def apply(self) -> None:
        """Put what replaces the regions into the trees."""
        for parent, name, part in self.parts:
            setattr(parent, name, part)

    def _comprehension(self, qualname: str, scope: Scope, node: ast.ListComp) -> None:
        """Let one call record the elements of [element for target in iterable]."""
        region = loops.element(scope, node)
        if region is None or not region.ops:
            return
        if region.ops < self._least(scope) and not any(isinstance(n, ast.List) for n in ast.walk(node.elt)):
            return  # a lookup, or an op without a list of arguments, costs less than the region's checks
        new = Replacement(scope, region, loops.LoopBinding(node.generators[0].target, region))
        new.alone = True
        placeholder = self._region(qualname, new, node, node, "comprehension")
        self._place(scope, node, programs.PlacedRegion(new, placeholder))
        comprehension = locate(new.comprehension(placeholder, node), node)
        self.parts += [(node, name, getattr(comprehension, name)) for name in ("elt", "generators")]

    def _loop(self, qualname: str, scope: Scope, node: ast.AST) -> bool:
        """Let a loop whose whole body is a region iterate over an iterator that records iterations."""
        region = self.loop_bodies.get(node) if isinstance(node, ast.For) else None
        if region is None or not isinstance(node, ast.For):
            return False
        new = Replacement(scope, region, loops.LoopBinding.of_loop(scope, node, region))
        placeholder = self._region(qualname, new, node, node.body[-1], "loop")
        self._place(scope, node.body[0], programs.PlacedRegion(new, placeholder, len(node.body)))
        over = new.over(placeholder, None, node.target, node.iter)
        self.parts.append((node, "iter", locate(over, node.iter)))
        self.parts.append((node, "body", _placed(new.statements(placeholder), node.body[0])))
        return True

    def _region(self, qualname: str, new: Replacement, first: Node, last: Node, form: str = "") -> str:
        """The name of the object that records a region, which is noted as found."""
        line = first.lineno
        placeholder = f"\0region {len(self.regions)}"
        self.regions[placeholder] = new.spec(f"{qualname}:{line}")
        self.found.append(FoundRegion(qualname, line, last.end_lineno or line, form))
        return placeholder

    def _place(self, scope: Scope, at: ast.AST, placed: programs.PlacedRegion) -> None:
        self.placed.setdefault(scope.node, {})[at] = placed

    def _suite(self, qualname: str, scope: Scope, statements: list[ast.stmt]) -> Iterator[ast.stmt]:
        at = 0
        if statements is scope.node.body and ast.get_docstring(scope.node, clean=False) is not None:
            yield statements[0]
            at = 1
        while at < len(statements):
            if not isinstance(statements[at], STATEMENTS) or self.calls.has(statements[at]):
                yield statements[at]
                at += 1
                continue
            before, region = self._region_at(scope, statements[at:])
            if region.ops >= self._least(scope):
                new = [*before, *self._replaced(qualname, scope, region, statements[at], before)]
                yield from _without([s.targets[0].id for s in before], new)
                at += len(region.statements)
            else:  # what follows may still begin a region
                line = statements[at].lineno
                refusal = region.refusal or (line, SINGLE_OP if region.ops else "it records nothing")
                self.refused.append(Refusal(qualname, line, statements[at].end_lineno or line, *refusal))
                yield statements[at]
                at += 1

    def _region_at(self, scope: Scope, statements: list[ast.stmt]) -> tuple[list[Any], TracedRegion]:
        """The region that begins with these statements, and what is evaluated before it."""
        region = TracedRegion(scope)
        before: list[Any] = []
        if not region.add(statements[0]):
            splitter = desugar.CallSplitter(scope)
            first = splitter.statement(statements[0])
            if first is None or not region.add(first):
                return [], region
            before = splitter.before
        for s in statements[1:]:
            if not region.add(s):
                break
        return before, region

    def _least(self, scope: Scope) -> int:
        """Ops that a region must have: recursive functions are recorded by one call as wholes."""
        return 1 if scope.node in self.reached else LEAST_OPS

    def _replaced(
        self, qualname: str, scope: Scope, region: TracedRegion, first: ast.stmt, before: list[Any]
    ) -> Iterable[ast.stmt]:
        new = Replacement(scope, region)
        placeholder = self._region(qualname, new, region.statements[0], region.statements[-1])
        rest = len(region.statements), tuple(before)
        self._place(scope, first, programs.PlacedRegion(new, placeholder, *rest))
        return _placed(new.statements(placeholder), region.statements[0])


def _without(names: list[str], statements: list[ast.stmt]) -> list[ast.stmt]:
    """The statements, after which these names are unbound, also if a statement fails."""
    if not names:
        return statements
    unset = delete(*names)
    bound: list[ast.expr] = [store(name) for name in names]
    failed = [ast.Assign(bound, ast.Constant(None)), unset, ast.Raise(None, None)]
    whole = ast.Try(statements, [ast.ExceptHandler(None, None, failed)], [unset], [])
    return [locate(whole, statements[0])]


def _placed(new: list[ast.stmt], at: ast.stmt) -> list[ast.stmt]:
    """The statements, with lines for the new ones."""
    return [s if hasattr(s, "lineno") else locate(s, at) for s in new]
