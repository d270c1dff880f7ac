"""Pass 4: the places that record ops, numbered in the order of the text, with their place in nested loops."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from .analysis import lattice as lat
from .analysis.interpreter import Analysis
from .analysis.loops import Loops


@dataclass
class Site:
    """One place that records an op."""

    id: int
    node: ast.AST
    op: str
    kinds: list[str]
    function: int
    path: tuple[int, ...]  # loops around, outermost first
    vector: list[int]  # the same with lexical positions between: position, loop, position, ..., position


class Sites:
    """All sites, and the graph of who takes whose results."""

    def __init__(self, analysis: Analysis, loops: Loops) -> None:
        self.program = program = analysis.program
        self.loops = loops
        nodes = sorted(analysis.facts.ops, key=program.uid.__getitem__)
        self.of_node: dict[ast.AST, Site] = {}
        self.of_uid: dict[int, Site] = {}
        self.all: list[Site] = []
        places = _Places(loops)
        for node in nodes:
            op = analysis.facts.ops[node]
            kinds = [lat.kind(value) for _, value in op.arguments]
            site = Site(len(self.all), node, op.name, kinds, program.owner[node], (), [])
            self.all.append(site)
            self.of_node[node] = site
            self.of_uid[program.uid[node]] = site
        keys = [places.key(site.node) for site in self.all]
        rank = {place: i for i, place in enumerate(sorted({p for key in keys for p in key[::2]}))}
        for site, key in zip(self.all, keys):
            site.vector = [item if i % 2 else rank[item] for i, item in enumerate(key)]
            site.path = tuple(key[1::2])
        self.sources: dict[int, list[int]] = {}
        for uid, sources in analysis.facts.edges.items():
            here = [self.of_uid[s].id for s in sources if s in self.of_uid]
            self.sources[self.of_uid[uid].id] = sorted(here)


class _Places:
    """Lexical positions, through calls: where in the caller, then where in the called function."""

    def __init__(self, loops: Loops) -> None:
        self.loops = loops
        self.program = loops.program
        self._calls: dict[int, ast.AST] = {}  # function -> its only call site
        for function, nodes in loops.facts.callers.items():
            if len(nodes) == 1 and function not in loops.graph.recursive:
                (self._calls[function],) = nodes

    def key(self, node: ast.AST) -> list[Any]:
        """Place, loop, place, ..., place. A place is a tuple of text positions: calls, then the node."""
        uid, program = self.program.uid, self.program
        frames = [node]
        while program.owner[frames[-1]] in self._calls and len(frames) < 50:
            frames.append(self._calls[program.owner[frames[-1]]])
        result: list[Any] = []
        for loop in self.loops.entry.get(program.owner[frames[-1]], ()):
            result += [(uid[program.loops[loop].node],), loop]
        place: tuple[int, ...] = ()
        for frame in reversed(frames):
            for loop in self.loops.recording_loops(frame):
                result += [(*place, uid[program.loops[loop].node]), loop]
                place = ()
            place = (*place, uid[frame])
        return [*result, place]


def position(program: Any, node: ast.AST) -> dict[str, Any]:
    """File, function, line and columns of a node, as `co_positions` gives them."""
    function = program.functions[program.owner[node]]
    return {
        "file": program.path(function.module),
        "qualname": function.qualname,
        "line": getattr(node, "lineno", 1),
        "col": getattr(node, "col_offset", 0),
        "end_line": getattr(node, "end_lineno", None) or getattr(node, "lineno", 1),
        "end_col": getattr(node, "end_col_offset", None) or 0,
    }
