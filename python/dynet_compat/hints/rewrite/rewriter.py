"""Rewrites the functions of a module so that one call records each region, from the module's own source.

A region is replaced by one call with the values that the region reads. Where that call has a recording for
them, it replays it and returns the results; otherwise the region runs as it was written. In both cases the
names that the region assigns have their values, and no others exist: code that inspects frames sees the
script's names only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Optional, Union

from . import argmax
from .batch_map import BatchMapLoops, BatchMapWriter
from .call_graph import CallGraph
from .code_objects import codes, silently, source_with, with_functions
from .concurrent_calls import ConcurrentCallsWriter
from .linking import RewrittenCode
from .region_writer import RegionWriter
from .scopes import Module
from .trees import ODD_WORDS, any_in, first_line, functions, keeps_names, lines_with
from .walked_functions import WalkedFunctions

if TYPE_CHECKING:
    from ..hints_file import IndependentCalls, IndependentLoop


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
        writer: what it found.
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
        self.tree = silently(filename, ast.parse, source, filename)
        self.module = Module(self.tree, names)
        self.wanted = wanted
        maps: list[tuple[IndependentLoop, Any]] = []
        groups: list[tuple[IndependentCalls, Any]] = []
        for record, decider in loops:
            from ..hints_file import IndependentLoop  # imported where needed: only a hints file has them

            if isinstance(record, IndependentLoop):
                maps.append((record, decider))
            else:
                groups.append((record, decider))
        self.batch_maps = BatchMapLoops(maps, self.tree)
        self.calls = ConcurrentCallsWriter(groups)
        graph = CallGraph(self.module)
        self.writer = RegionWriter(self.module, graph.reached, self.batch_maps, self.calls)
        self.walked = WalkedFunctions(self.module, graph, self.writer)
        self.argmax_calls = 0

    @property
    def constants(self) -> dict[str, Any]:
        """The objects that decide whether loops and calls run side by side, by their names in the code."""
        return {**self.batch_maps.constants, **self.calls.constants}

    def rewritten(self) -> RewrittenCode:
        """What becomes of the module."""
        changed = self.find()
        found = self.writer.found, self.writer.refused, self.argmax_calls
        if not changed:
            return RewrittenCode(None, None, {}, {}, [], [], *found)
        places = sorted(self.module.callees)
        lines = sorted([*changed, *(line for _, line in places)])
        source = source_with(self.source, self.tree, lines)
        tree = ast.Module(list(with_functions(self.tree.body, changed)), [])
        old, new = (
            silently(self.filename, compile, text, self.filename, "exec", dont_inherit=True)
            for text in (source, tree)
        )
        at = {key[-1]: code for key, code in codes(new)}
        heads, programs = {}, []
        for qualname, node, program, head in self.walked.described:
            place = node.name, first_line(node)
            if head:
                heads[head] = qualname
            if place in at and set(program.free) == set(at[place].co_freevars):
                programs.append((place, program.spec(qualname, at[place]), head))
        return RewrittenCode(old, new, self.writer.regions, heads, programs, places, *found)

    def may_have_regions(self, node: ast.FunctionDef, odd_lines: Optional[list[int]] = None) -> bool:
        """`odd_lines`: those with words that can be a reason against it, if they are known."""
        return _keeps_names(node, odd_lines) and all(map(self.module.calls_only, node.decorator_list))

    def find(self) -> list[int]:
        """Change the trees of functions; returns the lines of those that have changed."""
        text = self.source if isinstance(self.source, bytes) else self.source.encode("utf-8", "replace")
        odd, argmax_lines = lines_with(text, *ODD_WORDS), lines_with(text, b"argmax")
        found = list(functions(self.tree))
        wanted = [f for f in found if self.wanted is None or f[0] in self.wanted]
        wanted = [f for f in wanted if self.may_have_regions(f[1], odd)]
        inside = [f for f in found if not f[1].decorator_list and _keeps_names(f[1], odd)]
        changed = set()
        for qualname, node, owner in wanted:
            self.writer.prepare(qualname, node, None if node.decorator_list else owner)
        for qualname, node, _ in wanted:
            before = len(self.writer.found)
            self.writer.write(qualname, node)
            if len(self.writer.found) > before:
                changed.add(node.lineno)
        self.walked.describe({node: qualname for qualname, node, _ in wanted})
        self.writer.apply()
        changed |= self.walked.insert_heads()
        for _, node, _ in wanted:
            n = argmax.replace(node) if any_in(argmax_lines, node) else 0
            if n:
                changed.add(node.lineno)
                self.argmax_calls += n
        for qualname, node, _ in inside if self.batch_maps.wanted or self.calls.groups else ():
            before = len(self.constants)
            self.calls.function(qualname, node)
            BatchMapWriter(self.batch_maps, qualname).function(node)
            if len(self.constants) > before:
                changed.add(node.lineno)
        self.walked.pass_on_results()
        return sorted(changed)


def _keeps_names(node: ast.FunctionDef, odd_lines: Optional[list[int]]) -> bool:
    """`odd_lines`: those with words that can be a reason against it."""
    return keeps_names(node) if odd_lines is None or any_in(odd_lines, node) else True
