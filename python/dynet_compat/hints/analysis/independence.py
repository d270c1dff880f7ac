"""Whether the iterations of a loop can run side by side: a proof, or the first reason why there is none.

Only what is proved here may be turned into `batch_map` without asking. So whatever is not understood is a
reason against it: unknown calls, stores to anything the iteration has not made itself, names that outlive it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from . import api
from . import lattice as lat
from .effects import METHODS_OF_BUILDERS, OPERATORS_APART, SETTERS, EffectAnalysis
from .interpreter import Analysis
from .lattice import EMPTY
from .liveness import Liveness
from .loops import RECURRENCE, Loops, is_sum, receiver_of, text_of
from .scopes import COMPREHENSIONS, Loop

COMPUTED = frozenset(
    ("ext", f"builtins.{name}") for name in ("setattr", "delattr", "globals", "vars", "locals")
)


@dataclass
class Rewrite:
    """What was found out about one loop."""

    loop: Loop
    line: int = 0
    reason: str = ""
    renews: bool = False  # renew_cg() is the first statement of the body
    appends: list[str] = field(default_factory=list)
    sums: list[str] = field(default_factory=list)

    @property
    def proved(self) -> bool:
        return not self.reason


class Independence(EffectAnalysis):
    """Judges the loops that read numbers from the graph; others gain nothing from running side by side."""

    def __init__(self, analysis: Analysis, loops: Loops) -> None:
        super().__init__(analysis, loops)
        readers = {analysis.program.owner[node] for node in self.facts.reads}
        self._dropout = any(
            kind == "method" and what in ("builder.set_dropout", "builder.set_dropouts")
            for targets in self.facts.targets.values() for kind, what in targets
        )  # fmt: skip
        self._operators = self._operators_with_effects()
        self._computed = self._computed_names()
        self.all: list[Rewrite] = []
        for loop in self.program.loops:
            if loop.id in loops.found and self._is_candidate(loop, readers):
                self.all.append(self._judge(loop))

    def proved(self) -> list[Rewrite]:
        return [r for r in self.all if r.proved] if self.an.complete else []

    def _is_candidate(self, loop: Loop, readers: set[int]) -> bool:
        """Reads numbers and records ops in each iteration, goes over data, and is not inside such a loop."""
        if loop.form == "while" or isinstance(loop.node, (ast.AsyncFor, ast.GeneratorExp)):
            return False
        if self.loops.found[loop.id].kind == RECURRENCE:
            return False
        nodes = self.loops.body(loop)
        called = self.loops.called(loop)
        if not any(node in self.facts.reads for node in nodes) and not called & readers:
            return False
        inside = list(nodes)
        for function in called:
            inside += self.program.body_nodes(self.program.functions[function])
        if not any(node in self.facts.ops for node in inside):
            return False
        if any(self._trains(node) for node in inside):
            return False
        iterable = self._iterables(loop)[0]
        return not self.loops.holds_tensor(self.facts.values.get(iterable, EMPTY))

    def _trains(self, node: ast.AST) -> bool:
        return any(
            kind == "method" and what in ("expr.backward", "trainer.update", "trainer.update_subset")
            for kind, what in self.facts.targets.get(node, ())
        )

    def _iterables(self, loop: Loop) -> list[ast.expr]:
        node: Any = loop.node
        return [g.iter for g in node.generators] if isinstance(node, COMPREHENSIONS) else [node.iter]

    # ---- one loop

    def _judge(self, loop: Loop) -> Rewrite:
        rewrite = Rewrite(loop, loop.line)
        rewrite.reason = self._general_reason(loop)
        if rewrite.reason:
            return rewrite
        node: Any = loop.node
        if isinstance(node, COMPREHENSIONS):
            if len(node.generators) > 1 or node.generators[0].ifs or not isinstance(node, ast.ListComp):
                rewrite.reason = "only a list comprehension with one `for` and no `if` is understood"
                return rewrite
            self._check(rewrite, [node.elt], set())
            return rewrite
        if node.orelse:
            rewrite.reason = "the loop has an else"
            return rewrite
        body: list[ast.stmt] = list(node.body)
        if body and self._is_renew(body[0]):
            rewrite.renews = True
            body = body[1:]
        flow = Liveness()
        flow.target(node.target)
        flow.block(body)
        if flow.too_deep:
            rewrite.reason = "it is nested too deeply"
            return rewrite
        self._names(rewrite, body, flow)
        if rewrite.proved:
            self._check(rewrite, body, set(rewrite.appends))
        return rewrite

    def _general_reason(self, loop: Loop) -> str:
        """What forbids it before the body is looked at."""
        if self._operators or self._computed:
            return self._operators or self._computed
        if self._in_class(loop):
            return "its names are attributes of a class"
        reason = self._lazy_iterable(loop)
        if reason:
            return reason
        nodes = list(self.loops.body(loop))
        for function in self.loops.called(loop):
            nodes += self.program.body_nodes(self.program.functions[function])
        if self._dropout and any(self._uses_builder(node) for node in nodes):
            return "its builders may have dropout, which draws random numbers"
        return self._shared_iterator(nodes)

    def _lazy_iterable(self, loop: Loop) -> str:
        """Generators run between the iterations; an iterator may be over anything, and partly used up."""
        inside = {node for iterable in self._iterables(loop) for node in ast.walk(iterable)}
        for node in inside:
            for atom in self.facts.values.get(node, ()):
                if atom[0] == lat.OBJECT and atom[1][0] == "iter":
                    maker = self.program.nodes[atom[1][1]]
                    if maker in self.program.function_of:
                        name = self.program.functions[self.program.function_of[maker]].name
                        return f"{name}() is a generator: it runs between iterations"
                    if maker not in inside:
                        return "it goes over an iterator that was made before"
        return ""

    def _uses_builder(self, node: ast.AST) -> bool:
        op = self.facts.ops.get(node)
        return op is not None and op.name in METHODS_OF_BUILDERS | api.STATE_OPS

    def _shared_iterator(self, nodes: list[ast.AST]) -> str:
        """Iterators that were made elsewhere are used up by the first iteration that gets them."""
        here = set(nodes)
        for node in nodes:
            for atom in self.facts.values.get(node, ()):
                if atom[0] == lat.OBJECT and atom[1][0] == "iter":
                    maker = self.program.nodes[atom[1][1]]
                    is_range = any(w == "builtins.range" for _, w in self.facts.targets.get(maker, ()))
                    if maker not in here and not is_range:
                        return f"{self._place(node)} may use up an iterator that was made outside"
        return ""

    def _in_class(self, loop: Loop) -> bool:
        """Whether a loop stands directly in the body of a class."""
        uid, end = self.program.uid, self.program.end
        at = uid[loop.node]
        return any(
            uid[c.node] < at < end[uid[c.node]] and c.function == loop.function for c in self.program.classes
        )

    def _computed_names(self) -> str:
        """Whether attributes may be set in ways that are not seen, or dynet itself be changed."""
        only_read = {part for node in self.program.nodes for part in _read_tables(node)}
        for node in self.program.nodes:
            table = isinstance(node, ast.Attribute) and node.attr == "__dict__"
            if table or not COMPUTED.isdisjoint(self.facts.targets.get(node, ())):
                if node not in only_read:
                    return f"{self._place(node)} may set names that are not known"
        for node, value in self.facts.writes.items():
            if any(atom[0] in (lat.DYNET, lat.EXT, lat.DYNAME) for atom in value):
                return f"{self._place(node)} changes another module"
        return ""

    def _place(self, node: ast.AST) -> str:
        path, line = self.program.where(node)
        return f"{path}:{line}"

    def _operators_with_effects(self) -> str:
        """Operators of the script's classes run without a call that is seen: they must do nothing else."""
        for function in self.program.functions:
            name = function.name
            if function.cls is None or not name.startswith("__") or not name.endswith("__"):
                continue
            if name in OPERATORS_APART:
                continue
            effects = self.effects(function.id, generators=function.generator)
            if effects.reason or effects.changes - ({0} if name in SETTERS else set()):
                return f"{function.qualname} has effects of its own"
        return ""

    def _is_renew(self, node: ast.stmt) -> bool:
        return isinstance(node, ast.Expr) and ("dy", "renew_cg") in self.facts.targets.get(node.value, ())

    def _names(self, rewrite: Rewrite, body: list[ast.stmt], flow: Liveness) -> None:
        """No name goes from one iteration to the next, or out of the loop."""
        node: Any = rewrite.loop.node
        for name in sorted(flow.assigned):
            line = getattr(flow.stores[name][0], "lineno", rewrite.line)
            if name in flow.exposed:
                inside_only = not self._loaded_by_called(rewrite.loop, name)
                if inside_only and is_sum(name, body, flow, left_only=True):
                    rewrite.sums.append(name)
                    continue
                rewrite.line = getattr(flow.exposed[name][0], "lineno", line)
                rewrite.reason = f"{name} comes from the iteration before"
                return
            if self._used_outside(name, node):
                rewrite.line, rewrite.reason = line, f"{name} is used after the loop, or in other functions"
                return
        for name in sorted(self._appended(body)):
            if name not in flow.assigned:
                if self._is_iterated(name, rewrite.loop):
                    rewrite.reason = f"{name} grows while the loop goes over it"
                    return
                if self._seen_otherwise(rewrite.loop, name) or (
                    len(flow.loads.get(name, ())) != self._appends_of(body, name)
                ):
                    rewrite.line = getattr(flow.loads[name][0], "lineno", rewrite.line)
                    rewrite.reason = f"{name} is appended to and also looked at"
                    return
                rewrite.appends.append(name)

    def _is_iterated(self, name: str, loop: Loop) -> bool:
        """Whether the list behind a name is what the loop goes over."""
        body = self.loops.body(loop)
        named = [n for n in body if isinstance(n, ast.Name) and n.id == name]
        grown = frozenset(atom for node in named for atom in self.facts.values.get(node, ()))
        inside = {inner for iterable in self._iterables(loop) for inner in ast.walk(iterable)}
        for node in inside:
            value = self.facts.values.get(node, EMPTY)
            if (
                isinstance(node, ast.Name)
                and node.id == name
                or any(a[0] == lat.OBJECT for a in value & grown)
            ):
                return True
        return False

    def _seen_otherwise(self, loop: Loop, name: str) -> bool:
        """Whether the body gets at the list behind a name in any other way."""
        body = list(self.loops.body(loop))
        names = {node for node in body if isinstance(node, ast.Name) and node.id == name}
        values = [self.facts.values.get(node, EMPTY) for node in names]
        lists = frozenset(atom for value in values for atom in value if atom[0] == lat.OBJECT)
        for function in self.loops.called(loop):
            body += self.program.body_nodes(self.program.functions[function])
        return any(self.facts.values.get(node, EMPTY) & lists for node in body if node not in names)

    def _loaded_by_called(self, loop: Loop, name: str) -> bool:
        """Whether a function that the body calls takes the name from outside."""
        functions = (self.program.functions[f] for f in self.loops.called(loop))
        return any(name in f.loads and name not in f.bound for f in functions)

    def _used_outside(self, name: str, loop: Any) -> bool:
        """Whether a name that the body assigns is loaded anywhere else."""
        inside = set(ast.walk(loop))
        function = self.program.functions[self.program.owner[loop]]
        if name in function.captured and not function.is_module:
            return True
        for node in self.program.body_nodes(function):
            if isinstance(node, ast.Name) and node.id == name and node not in inside:
                if isinstance(node.ctx, ast.Load) and not self._bound_otherwise(node, name, loop):
                    return True
        if not function.is_module:
            return name in function.globals or name in function.nonlocals
        others = (f for f in self.program.functions if f is not function)
        return any(name in f.loads and name not in f.bound for f in others)

    def _bound_otherwise(self, node: ast.AST, name: str, loop: ast.AST) -> bool:
        """Whether a load cannot see what the loop binds: it runs before, or another loop binds the name."""
        uid, around = self.program.uid, self.program.loops_around
        if uid[node] < uid[loop] and not around[loop]:
            return True
        for index in around.get(node, ()):
            whole: Any = self.program.loops[index].node
            if index in around[loop] or isinstance(whole, ast.While):
                continue
            targets = (
                [g.target for g in whole.generators] if isinstance(whole, COMPREHENSIONS) else [whole.target]
            )
            if any(isinstance(n, ast.Name) and n.id == name for target in targets for n in ast.walk(target)):
                return True
        return False

    def _appended(self, body: Iterable[ast.AST]) -> set[str]:
        return {
            node.func.value.id
            for statement in body
            for node in ast.walk(statement)
            if isinstance(node, ast.Call) and _is_append(node)
            and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)
        }  # fmt: skip

    def _appends_of(self, body: Iterable[ast.AST], name: str) -> int:
        """Statements `name.append(...)` directly in the body or its branches."""
        return sum(
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _is_append(node.value)
            and text_of(receiver_of(node.value)) == name
            for statement in body for node in ast.walk(statement)
        )  # fmt: skip

    # ---- effects

    def _check(self, rewrite: Rewrite, body: Iterable[ast.AST], appends: set[str]) -> None:
        """Everything the body does itself, and what the functions it calls do."""
        own = self._fresh_names(self.loops.body(rewrite.loop))
        for statement in body:
            for node in ast.walk(statement):
                reason = self._reason(node, own | appends, rewrite.loop)
                if reason:
                    rewrite.line, rewrite.reason = getattr(node, "lineno", rewrite.line), reason
                    return


def _read_tables(node: ast.AST) -> list[ast.expr]:
    """Parts of a node of which it only reads items: `vars(x).items()`, `globals()["x"]`, `print(vars(x))`."""
    if isinstance(node, ast.Attribute) and node.attr in ("items", "keys", "values", "get"):
        return [node.value]
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return [node.value]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.args if node.func.id in ("print", "dict", "sorted", "len", "str", "repr", "list") else []
    return []


def _is_append(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == "append" and len(node.args) == 1
