"""Rewrites the functions of a module so that one call records each region, from the module's own source.

A region is replaced by one call with the values that the region reads. Where that call has a recording for
them, it replays it and returns the results; otherwise the region runs as it was written. In both cases the
names that the region assigns have their values, and no others exist: code that inspects frames sees the
script's names only.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from ... import _core
from . import argmax, desugar, loops, programs
from .batch_map import BatchMapLoops, BatchMapWriter
from .code_objects import Key, codes, silence, source_with, with_constants, with_functions
from .concurrent_calls import ConcurrentCallsWriter
from .recording import is_recording, recording, walkable
from .region import LEAST_OPS, STATEMENTS, TracedRegion
from .replacement import UNBOUND, Replacement
from .scopes import Module, Scope
from .trees import (
    ODD_WORDS,
    any_in,
    delete,
    functions,
    lines_with,
    locate,
    may_change,
    own_comprehensions,
    store,
    suites,
)

if TYPE_CHECKING:
    from ..hints_file import IndependentCalls, IndependentLoop

Node = Union[ast.stmt, ast.expr]
_FUNCTION = 2  # flag of code objects: inspect.CO_NEWLOCALS, which those of classes do not have


class FoundRegion(NamedTuple):
    """A region, the function that it is in, and its lines.

    form: "" for statements, "loop" for the body of one, "comprehension" for the element of one.
    """

    qualname: str
    region: TracedRegion
    line: int
    last_line: int
    form: str = ""


class Refusal(NamedTuple):
    """Statements of a function that are no region, and why."""

    qualname: str
    line: int
    last_line: int
    reason_line: int
    reason: str


class Rewriter:
    """Rewrites the functions of one module.

    Args:
        source: text of the module.
        filename: as in its code objects.
        names: the module's dict.
        wanted: qualified names of the functions to rewrite; None: all.
        loops: those over instances whose iterations may run side by side, and for each the object that
            decides whether they do.

    Attributes:
        found: the regions.
        refused: statements that are none.
        regions: placeholder in the code -> the object that records the region.
        walked_functions: the same, of functions that one call records.
        argmax_calls: number of calls that read an index in place of values.
    """

    def __init__(
        self,
        source: Union[str, bytes],
        filename: str,
        names: dict[str, Any],
        wanted: Optional[set[str]] = None,
        loops: Iterable[tuple[Union[IndependentLoop, IndependentCalls], Any]] = (),
    ) -> None:
        self.filename = filename
        self.source = source
        text = source if isinstance(source, bytes) else source.encode("utf-8", "replace")
        self.odd_lines, self.argmax_lines = lines_with(text, *ODD_WORDS), lines_with(text, b"argmax")
        with silence():
            self.tree = ast.parse(source, filename)
        self.module = Module(self.tree, names, is_recording)
        self.wanted = wanted
        self.found: list[FoundRegion] = []
        self.refused: list[Refusal] = []
        self.parts: list[tuple[ast.AST, str, Any]] = []  # node, field, its new value
        self.regions: dict[str, Any] = {}
        self.walked_functions: dict[str, Any] = {}
        self.called = programs.called(self.module)
        self.recursive = {f for f, called in self.called.items() if f in called}
        self.reached = {f for head in self.recursive for f in self.called[head]}
        self.scopes: dict[ast.FunctionDef, Scope] = {}
        self.loop_bodies: dict[ast.For, TracedRegion] = {}
        self.with_loops: set[ast.FunctionDef] = set()
        self.with_state_loops: set[ast.FunctionDef] = set()
        self.placed: dict[ast.FunctionDef, dict[ast.AST, programs.PlacedRegion]] = {}
        self.programs: list[tuple[str, ast.FunctionDef, programs.Program, str]] = []  # last: of its head
        maps: list[tuple[IndependentLoop, Any]] = []
        groups: list[tuple[IndependentCalls, Any]] = []
        for record, decider in loops:
            from ..hints_file import IndependentLoop  # here, as without a hints file there are none

            if isinstance(record, IndependentLoop):
                maps.append((record, decider))
            else:
                groups.append((record, decider))
        self.batch_maps = BatchMapLoops(maps, self.tree)
        self.calls = ConcurrentCallsWriter(groups)
        self.argmax_calls = 0

    def codes(self) -> dict[Key, tuple[types.CodeType, types.CodeType]]:
        """Old and new code of every function that changes, by its key."""
        changed = self.find()
        if not changed:
            return {}
        lines = sorted([*changed, *(node.lineno for node in self.module.codes)])
        source = source_with(self.source, self.tree, lines)
        tree = ast.Module(list(with_functions(self.tree.body, changed)), [])
        with silence():
            old = dict(codes(compile(source, self.filename, "exec", dont_inherit=True)))
            compiled = compile(tree, self.filename, "exec", dont_inherit=True)
        constants = {**self.regions, **self.walked_functions}
        constants |= {**self.batch_maps.constants, **self.calls.constants}
        constants[UNBOUND] = NameError
        constants[argmax.PLACEHOLDER] = _core._read_argmax
        new = dict(codes(with_constants(compiled, constants)))
        self._name_callees(old, new)
        self._define_programs({key[-1]: code for key, code in new.items()})
        both = [(key, code) for key, code in old.items() if key in new and code.co_flags & _FUNCTION]
        return {key: (code, new[key]) for key, code in both if new[key] != code}

    def _define_programs(self, codes_at: dict[tuple[str, int], types.CodeType]) -> None:
        for qualname, node, program, head in self.programs:
            code = codes_at.get((node.name, node.lineno))
            if code is not None and set(program.free) == set(code.co_freevars):
                asked = self.walked_functions[head or next(iter(self.walked_functions))]
                asked.define(code, program.spec(qualname, code), bool(head))

    def _name_callees(self, old: dict[Key, types.CodeType], new: dict[Key, types.CodeType]) -> None:
        places: dict[tuple[str, int], list[types.CodeType]] = {}
        for key in old:
            known = {id(code): code for code in (old[key], new.get(key, old[key]))}
            places.setdefault(key[-1], []).extend(known.values())
        for node, of_node in self.module.codes.items():
            of_node += places.get((node.name, node.lineno), ())

    # ---- functions

    def find(self) -> list[int]:
        """Change the trees of functions; returns the lines of those that have changed."""
        inside = [f for f in functions(self.tree) if self._may_change(f[1])]
        wanted = [f for f in inside if self.wanted is None or f[0] in self.wanted]
        changed = set()
        for qualname, node, owner in wanted:
            self._prepare(qualname, node, owner)
        for qualname, node, _ in wanted:
            before = len(self.found)
            self._rewrite(qualname, node)
            if len(self.found) > before:
                changed.add(node.lineno)
        self._describe({node: qualname for qualname, node, _ in wanted})
        for parent, name, part in self.parts:
            setattr(parent, name, part)
        for qualname, node, program, head in self.programs:
            if head:
                self.walked_functions[head] = _core._WalkedFunction(qualname, programs.resolver, walkable())
                changed.add(node.lineno)
                after = ast.get_docstring(node, clean=False) is not None
                new = programs.head(head, program, UNBOUND)
                node.body[after:after] = [locate(s, node.body[0]) for s in new]
        for _, node, _ in wanted:
            n = argmax.replace(node) if any_in(self.argmax_lines, node) else 0
            if n:
                changed.add(node.lineno)
                self.argmax_calls += n
        maps, calls = self.batch_maps, self.calls
        for qualname, node, _ in inside if maps.wanted or calls.groups else ():
            before = len(maps.constants) + len(calls.constants)
            calls.function(qualname, node)
            BatchMapWriter(maps, qualname).function(node)
            if len(maps.constants) + len(calls.constants) > before:
                changed.add(node.lineno)
        return sorted(changed)

    def _may_change(self, node: ast.FunctionDef) -> bool:
        return may_change(node) if any_in(self.odd_lines, node) else not node.decorator_list

    def _prepare(self, qualname: str, node: ast.FunctionDef, owner: Optional[str]) -> None:
        """Find the loops of a function, and those of them whose bodies are regions."""
        scope = self.scopes[node] = Scope(self.module, node, owner, "<locals>" in qualname)
        scope.sums, scope.appends = self.batch_maps.sums(qualname), self.batch_maps.appends(qualname)
        for _, _, statements in suites(node):
            desugar.name_sums(scope, statements)
            desugar.move_into_branches(scope, statements)
        for loop in {parent: None for parent, name, _ in suites(node) if name == "body"}:
            if isinstance(loop, (ast.For, ast.While)):
                self.with_loops.add(node)
            if isinstance(loop, ast.For) and node not in self.reached and not self.batch_maps.of(loop):
                region = loops.body(scope, loop)
                if region is not None and region.ops >= LEAST_OPS:
                    self.loop_bodies[loop] = region
                    if any(source.state for source in region.sources.all):
                        self.with_state_loops.add(node)

    def _may_be_head(self, node: ast.FunctionDef) -> bool:
        """May the function ask the core to record it by one call? Recursive ones may, and those with loops,
        but for loops over the states of a sequence, whose steps a walk makes one by one."""
        if node in self.recursive or node not in self.with_loops:
            return node in self.recursive
        return self.with_state_loops.isdisjoint((node, *self.called[node]))

    def _rewrite(self, qualname: str, node: ast.FunctionDef) -> None:
        scope = self.scopes[node]
        for parent, name, statements in suites(node):
            if name != "body" or not self._loop(qualname, scope, parent):
                self.parts.append((parent, name, list(self._suite(qualname, scope, statements))))
        for comprehension in own_comprehensions(node) if scope.lists else ():
            self._comprehension(qualname, scope, comprehension)

    def _describe(self, wanted: dict[ast.FunctionDef, str]) -> None:
        """Describe functions to the core: heads, which ask it first and have regions in them or in what they
        may call, and all that these may call."""
        placed = wanted.keys() & self.placed
        heads = [f for f in wanted if not placed.isdisjoint((f, *self.called[f])) and self._may_be_head(f)]
        found = {f: self._program(wanted[f], f) for f in heads}
        called = {callee for head in heads if found[head] for callee in self.called[head]}
        found |= {f: self._program(wanted[f], f) for f in wanted if f in called and f not in found}
        placed = {f for f in placed if found.get(f)}
        heads = [f for f in heads if found[f] and not placed.isdisjoint((f, *self.called[f]))]
        walked = {f for head in heads for f in (head, *self.called[head])}
        for node, program in found.items():
            if program is not None and node in walked:
                head = f"\0function {len(self.programs)}" if node in heads else ""
                self.programs.append((wanted[node], node, program, head))

    def _program(self, qualname: str, node: ast.FunctionDef) -> Optional[programs.Program]:
        free = programs.free_names(self.module, qualname, node)
        try:
            return programs.Program(node, free, self.placed.get(node, {}))
        except programs.NotWalkable:
            return None

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
        self._place(scope, node, programs.PlacedRegion(new, self.regions[placeholder]))
        comprehension = locate(new.comprehension(placeholder, node), node)
        self.parts += [(node, name, getattr(comprehension, name)) for name in ("elt", "generators")]

    def _loop(self, qualname: str, scope: Scope, node: ast.AST) -> bool:
        """Let a loop whose whole body is a region iterate over an iterator that records iterations."""
        region = self.loop_bodies.get(node) if isinstance(node, ast.For) else None
        if region is None or not isinstance(node, ast.For):
            return False
        new = Replacement(scope, region, loops.LoopBinding.of_loop(scope, node, region))
        placeholder = self._region(qualname, new, node, node.body[-1], "loop")
        placed = programs.PlacedRegion(new, self.regions[placeholder], len(node.body))
        self._place(scope, node.body[0], placed)
        over = new.over(placeholder, None, node.target, node.iter)
        self.parts.append((node, "iter", locate(over, node.iter)))
        self.parts.append((node, "body", _placed(new.statements(placeholder), node.body[0])))
        return True

    def _region(self, qualname: str, new: Replacement, first: Node, last: Node, form: str = "") -> str:
        """The placeholder for the object that records a region, which is noted as found."""
        line = first.lineno
        placeholder = f"\0region {len(self.regions)}"
        self.regions[placeholder] = _core._Region(new.spec(f"{qualname}:{line}"), recording())
        self.found.append(FoundRegion(qualname, new.region, line, last.end_lineno or line, form))
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
                refusal = region.refusal or (line, "it records a single op")
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
        self._place(scope, first, programs.PlacedRegion(new, self.regions[placeholder], *rest))
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
