"""Whether the iterations of a loop are independent: a proof, or the first reason why there is none.

Only what is proved here may run as `batch_map` without asking. So whatever is not understood is a reason
against it: unknown calls, stores to anything the iteration has not made itself, names that outlive it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from . import api
from . import lattice as lat
from .effects import METHODS_OF_BUILDERS, EffectAnalysis
from .liveness import Liveness
from .loops import RECURRENCE, Loops, is_sum
from .scopes import COMPREHENSIONS, Loop, receiver_of, text_of
from .state import AnalysisState

VISIBLE_OPERATORS = frozenset({"__init__", "__getitem__", "__call__"})  # whose calls are seen
SETTERS = frozenset("__setitem__ __delitem__ __setattr__ __delattr__ __post_init__".split())
COMPUTED = frozenset(
    ("ext", f"builtins.{name}") for name in ("setattr", "delattr", "globals", "vars", "locals")
)

TRAINING = tuple(("method", name) for name in ("expr.backward", "trainer.update", "trainer.update_subset"))


@dataclass
class LoopIndependence:
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


class Independence:
    """Judges the loops that read numbers from the graph; others gain nothing from running together."""

    def __init__(self, state: AnalysisState, loops: Loops) -> None:
        self.program = state.program
        self.facts = state.facts
        self.loops = loops
        self.effects = EffectAnalysis(state, loops.graph)
        self.complete = state.complete
        readers = {self.program.owner[node] for node in self.facts.reads}
        self._dropout = any(
            kind == "method" and what in ("builder.set_dropout", "builder.set_dropouts")
            for targets in self.facts.targets.values() for kind, what in targets
        )  # fmt: skip
        self._operators = self._operators_with_effects()
        self._computed = self._computed_names()
        self.all: list[LoopIndependence] = []
        for loop in self.program.loops:
            if loop.id in loops.found and self._is_candidate(loop, readers):
                self.all.append(self._judge(loop))

    def proved(self) -> list[LoopIndependence]:
        return [r for r in self.all if r.proved] if self.complete else []

    def _is_candidate(self, loop: Loop, readers: set[int]) -> bool:
        """Reads numbers and records ops in each iteration, iterates over data, and does not train."""
        if loop.form == "while" or isinstance(loop.node, (ast.AsyncFor, ast.GeneratorExp)):
            return False
        if self.loops.found[loop.id].kind == RECURRENCE:
            return False
        if not any(node in self.facts.reads for node in self.loops.body(loop)):
            if not self.loops.called(loop) & readers:
                return False
        inside = self.loops.everything(loop)
        if not any(node in self.facts.ops for node in inside):
            return False
        if any(self.facts.calls_in(inside, *TRAINING)):
            return False
        if isinstance(loop.node, ast.ListComp):  # over children, say
            return True
        return not self.loops.holds_tensor(self.facts.value(loop.iterables[0]))

    # ---- one loop

    def _judge(self, loop: Loop) -> LoopIndependence:
        result = LoopIndependence(loop, loop.line)
        result.reason = self._general_reason(loop)
        if result.reason:
            return result
        node: Any = loop.node
        if isinstance(node, COMPREHENSIONS):
            if len(node.generators) > 1 or node.generators[0].ifs or not isinstance(node, ast.ListComp):
                result.reason = "only a list comprehension with one `for` and no `if` is understood"
                return result
            self._check(result, [node.elt], set())
            return result
        if node.orelse:
            result.reason = "the loop has an else"
            return result
        body: list[ast.stmt] = list(node.body)
        if body and self._is_renew(body[0]):
            result.renews = True
            body = body[1:]
        names = Liveness()
        names.target(node.target)
        names.block(body)
        if names.too_deep:
            result.reason = "it is nested too deeply"
            return result
        self._names(result, body, names)
        if result.proved:
            self._check(result, body, set(result.appends))
        return result

    def _general_reason(self, loop: Loop) -> str:
        """A reason that is found without looking at single statements."""
        if self._in_class(loop):
            return "its names are attributes of a class"
        return self._lazy_iterable(loop) or self.reason_against_all(self.loops.everything(loop))

    def reason_against_all(self, nodes: list[ast.AST]) -> str:
        """A reason against code that is found without looking at its statements one by one."""
        if self._operators or self._computed:
            return self._operators or self._computed
        if self._dropout and any(self._uses_builder(node) for node in nodes):
            return "its builders may have dropout, which draws random numbers"
        return self._shared_iterator(nodes)

    def _iterators(self, nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.AST, ast.AST]]:
        """(node, where what it is was made) for nodes that may be iterators."""
        for node in nodes:
            for atom in self.facts.value(node):
                if atom[0] == lat.OBJECT and atom[1][0] == "iter":
                    yield node, self.program.nodes[atom[1][1]]

    def _lazy_iterable(self, loop: Loop) -> str:
        """Generators run between the iterations; an iterator may be over anything, and partly used up."""
        inside = {node for iterable in loop.iterables for node in ast.walk(iterable)}
        for _, maker in self._iterators(inside):
            if maker in self.program.function_of:
                name = self.program.functions[self.program.function_of[maker]].name
                return f"{name}() is a generator: it runs between iterations"
            if maker not in inside:
                return "it iterates over an iterator that was made before"
        return ""

    def _uses_builder(self, node: ast.AST) -> bool:
        return self.facts.ops.get(node) in METHODS_OF_BUILDERS | api.STATE_OPS

    def _shared_iterator(self, nodes: list[ast.AST]) -> str:
        """Iterators that were made elsewhere are used up by the first iteration that gets them."""
        here = set(nodes)
        for node, maker in self._iterators(nodes):
            if maker not in here and not self.facts.calls(maker, ("ext", "builtins.range")):
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
            if name in VISIBLE_OPERATORS:
                continue
            effects = self.effects.of(function.id, generators=function.generator)
            if effects.reason or effects.changes - ({0} if name in SETTERS else set()):
                return f"{function.qualname} has effects of its own"
        return ""

    def _is_renew(self, node: ast.stmt) -> bool:
        return isinstance(node, ast.Expr) and self.facts.calls(node.value, ("dy", "renew_cg"))

    def _names(self, result: LoopIndependence, body: list[ast.stmt], names: Liveness) -> None:
        """No name goes from one iteration to the next, or out of the loop."""
        node: Any = result.loop.node
        for name in sorted(names.assigned):
            line = getattr(names.stores[name][0], "lineno", result.line)
            if name in names.exposed:
                inside_only = not self._loaded_by_called(result.loop, name)
                if inside_only and is_sum(name, body, names, left_only=True):
                    result.sums.append(name)
                    continue
                result.line = getattr(names.exposed[name][0], "lineno", line)
                result.reason = f"{name} comes from the iteration before"
                return
            if self._used_outside(name, node):
                result.line, result.reason = line, f"{name} is used after the loop, or in other functions"
                return
        for name in sorted(self._appended(body)):
            if name not in names.assigned:
                if self._is_iterated(name, result.loop):
                    result.reason = f"{name} grows while the loop iterates over it"
                    return
                if self._seen_otherwise(result.loop, name) or (
                    len(names.loads.get(name, ())) != self._appends_of(body, name)
                ):
                    result.line = getattr(names.loads[name][0], "lineno", result.line)
                    result.reason = f"{name} is appended to and also looked at"
                    return
                result.appends.append(name)

    def _is_iterated(self, name: str, loop: Loop) -> bool:
        """Whether the list behind a name is what the loop iterates over."""
        named = self._named(loop, name)
        grown = frozenset(atom for node in named for atom in self.facts.value(node))
        inside = {inner for iterable in loop.iterables for inner in ast.walk(iterable)}
        for node in inside:
            if isinstance(node, ast.Name) and node.id == name:
                return True
            if any(a[0] == lat.OBJECT for a in self.facts.value(node) & grown):
                return True
        return False

    def _seen_otherwise(self, loop: Loop, name: str) -> bool:
        """Whether the body has the list behind a name by another expression."""
        names = self._named(loop, name)
        values = [self.facts.value(node) for node in names]
        lists = frozenset(atom for value in values for atom in value if atom[0] == lat.OBJECT)
        nodes = self.loops.everything(loop)
        return any(self.facts.value(node) & lists for node in nodes if node not in names)

    def _named(self, loop: Loop, name: str) -> set[ast.AST]:
        """The places where the body has a name."""
        return {n for n in self.loops.body(loop) if isinstance(n, ast.Name) and n.id == name}

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
            targets = [] if index in around[loop] else self.program.loops[index].targets
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

    def _check(self, result: LoopIndependence, body: Iterable[ast.AST], appends: set[str]) -> None:
        """Everything the body does itself, and what the functions it calls do."""
        own = self.effects.fresh_names(self.loops.body(result.loop))
        for statement in body:
            for node in ast.walk(statement):
                reason = self.effects.reason_against(node, own | appends, result.loop)
                if reason:
                    result.line, result.reason = getattr(node, "lineno", result.line), reason
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
