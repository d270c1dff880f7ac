"""All passes over one script, and the hints file's contents made of their results."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from typing import Any, Callable, Optional

from . import hints_file, phases
from .analysis.callgraph import CallGraph
from .analysis.independence import Independence
from .analysis.instances import InstanceLoop, Instances
from .analysis.interpreter import Analysis
from .analysis.load import Loaded, load
from .analysis.loops import Loops
from .analysis.scopes import Function, Program
from .blocks import Blocks
from .branches import Branches
from .sites import Sites, position
from .straight import Straight


class Passes:
    """The results of all passes.

    Args:
        script: path of the Python file.
        progress: called now and then with the numbers of function walks done and known to be ahead.
    Raises:
        LoadError: the script cannot be read.
    """

    def __init__(self, script: str, progress: Optional[Callable[[int, int], None]] = None) -> None:
        self.loaded: Loaded = load(script)
        self.program = Program(self.loaded)
        self.analysis = Analysis(self.program, progress)
        self.facts = self.analysis.run()
        self.graph = CallGraph(self.analysis)
        self.loops = Loops(self.analysis, self.graph)
        self.sites = Sites(self.analysis, self.loops)
        self.phases = phases.phases(self.sites)
        self.roles = phases.labels(self.sites)
        self.branches = Branches(self.analysis, self.graph, self.loops)
        self.straight = Straight(self.analysis, self.graph)
        self.blocks = Blocks(self.analysis, self.sites, self.straight)
        self.instances = Instances(self.analysis, self.loops)
        self.independence = Independence(self.analysis, self.loops)

    @property
    def usable(self) -> bool:
        """Whether anything may be said of the program at all."""
        return not any(problem.scope == "program" for problem in self.program.problems)

    def hints(self, root: str = ".") -> hints_file.Hints:
        """The contents of the hints file; empty lists for a program that cannot be seen through.

        Args:
            root: the script's folder, relative to the hints file's.
        """
        return _Contents(self).hints(root)


class _Contents:
    """Turns results into records."""

    def __init__(self, passes: Passes) -> None:
        self.p = passes
        self.program = passes.program
        self.opaque = passes.program.opaque
        kept = [f for f in passes.loops.found.values() if f.loop.function not in self.opaque]
        self.loop_facts = sorted(kept, key=lambda f: self.program.uid[f.loop.node])
        self.loop_number = {f.loop.id: i for i, f in enumerate(self.loop_facts)}
        self.site_list = [s for s in passes.sites.all if s.function not in self.opaque]
        self.site_number = {s.id: i for i, s in enumerate(self.site_list)}

    def hints(self, root: str) -> hints_file.Hints:
        p, program = self.p, self.program
        base: dict[str, Any] = {
            "script": program.sources[0].path,
            "root": root.replace(os.sep, "/"),
            "complete": p.usable and p.analysis.complete,
            "sources": {source.path: source.sha256 for source in program.sources},
            "problems": tuple(
                hints_file.Note(q.path, q.line, clean(q.text)) for q in sorted(program.problems)
            ),
        }
        if not p.usable:
            return hints_file.Hints(**base)
        main = p.instances.main
        return hints_file.Hints(
            **base,
            sites=tuple(self._sites()),
            loops=tuple(self._loops()),
            branches=tuple(
                hints_file.Branch(self.place(b.node), b.kind, tuple(b.arms))
                for b in p.branches.all if self._clear(b.node)
            ),
            blocks=tuple(self._blocks()),
            templates=tuple(
                hints_file.Template(*self._header(v.function), col(v.function.node), v.ops, v.random)
                for v in p.straight.templates() if v.function.id not in self.opaque
            ),
            helpers=tuple(
                hints_file.Helper(*self._header(f), tuple(self._calls(calls)))
                for f, calls in p.straight.helpers() if f.id not in self.opaque
            ),
            param_groups=tuple(self._groups()),
            recursion=tuple(self._recursion()),
            instance_loop=None if main is None else self._instance(main),
            instance_loops=tuple(
                i for i in (self._instance(i) for i in p.instances.all) if i is not None
            ),
            sync_points=tuple(
                hints_file.SyncPoint(self.place(n), p.facts.reads[n])
                for n in p.branches.reads if self._clear(n)
            ),
            phases=tuple(p.phases[s.id] for s in self.site_list),
            independent_loops=tuple(self._rewrites()),
        )  # fmt: skip

    def place(self, node: ast.AST) -> hints_file.Place:
        return hints_file.Place(**position(self.program, node))

    def _clear(self, node: ast.AST) -> bool:
        return self.program.owner[node] not in self.opaque

    def _header(self, function: Function) -> tuple[str, str, int]:
        return self.program.path(function.module), function.qualname, function.line

    def _calls(self, calls: Iterable[int]) -> Iterator[hints_file.Place]:
        nodes = (self.program.nodes[call] for call in calls)
        return (self.place(node) for node in nodes if self._clear(node))

    def _sites(self) -> Any:
        for site in self.site_list:
            number = self.loop_number
            vector = [number.get(v, -1) if i % 2 else v for i, v in enumerate(site.vector)]
            loops = [number.get(i, -1) for i in site.path]
            if -1 in loops:  # a loop of a function that is left out
                loops, vector = [], vector[-1:]
            phase, role = self.p.phases[site.id], self.p.roles[site.id]
            yield hints_file.Site(
                self.place(site.node), site.op, tuple(site.kinds), tuple(loops), tuple(vector), phase, role
            )

    def _loops(self) -> Any:
        for f in self.loop_facts:
            path = tuple(self.loop_number[i] for i in f.path if i in self.loop_number)
            names = (cleaned(f.carried), cleaned(f.sums), cleaned(f.collects))
            yield hints_file.Loop(self.place(f.loop.node), f.loop.form, f.kind, *names, path)

    def _blocks(self) -> Any:
        for block in self.p.blocks.all:
            if block.function.id in self.opaque or any(op.site not in self.site_number for op in block.ops):
                continue
            ops = tuple(hints_file.BlockOp(self.site_number[op.site], tuple(op.args)) for op in block.ops)
            yield hints_file.Block(self.place(block.node), ops)

    def _groups(self) -> Any:
        for block, name, products in self.p.blocks.groups():
            if block.function.id in self.opaque:
                continue
            weights = []
            for product in products:
                made = self.program.nodes[product.weight[1]]
                file, line = self.program.where(made)
                key = product.weight[2]
                shown, key = clean(product.name), None if key is None else clean(key)
                weights.append(hints_file.Weight(shown, file, line, col(made), key))
            file, qualname, _ = self._header(block.function)
            yield hints_file.ParamGroup(file, qualname, products[0].line, clean(name), tuple(weights))

    def _recursion(self) -> Any:
        for number in sorted(self.p.graph.recursive):
            function = self.program.functions[number]
            if not self.p.loops.is_recorder(number) or number in self.opaque:
                continue
            groups = self.p.graph.siblings(function)
            siblings = tuple(tuple(self.place(call) for call in group) for group in groups)
            yield hints_file.Recursion(*self._header(function), siblings)

    def _instance(self, found: InstanceLoop) -> Optional[hints_file.InstanceLoop]:
        loop = found.loop
        if loop.id not in self.loop_number:
            return None
        file, qualname, _ = self._header(self.program.functions[loop.function])
        number = self.loop_number[loop.id]
        return hints_file.InstanceLoop(
            number, file, qualname, loop.line, loop.col, found.kind, found.training
        )

    def _rewrites(self) -> Any:
        for r in self.p.independence.proved():
            if r.loop.function in self.opaque:
                continue
            file, qualname, _ = self._header(self.program.functions[r.loop.function])
            names = (r.renews, cleaned(r.appends), cleaned(r.sums))
            yield hints_file.IndependentLoop(file, qualname, r.loop.line, r.loop.col, *names)


def col(node: ast.AST) -> int:
    return getattr(node, "col_offset", 0)


def cleaned(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(clean(text) for text in texts)


def clean(text: str) -> str:
    """A text that a hints file may hold."""
    return "".join(c if c.isprintable() else "?" for c in text)[: hints_file.MAX_TEXT]
