"""Whether the iterations of a loop can run side by side: a proof, or the first reason why there is none.

Only what is proved here may be turned into `batch_map` without asking. So whatever is not understood is a
reason against it: unknown calls, stores to anything the iteration has not made itself, names that outlive it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Optional

from . import api
from . import lattice as lat
from .flow import Flow
from .kinds import Analysis
from .lattice import EMPTY
from .loops import RECURRENCE, Loops, is_sum, receiver_of, text_of
from .scopes import COMPREHENSIONS, Function, Loop
from .straight import name_of

_MAKERS = {"builtins": "list dict set sorted", "collections": "deque defaultdict Counter OrderedDict"}
MAKERS = frozenset(f"{module}.{name}" for module, names in _MAKERS.items() for name in names.split())
OPERATORS_APART = frozenset(
    "__init__ __getitem__ __call__ __setitem__ __delitem__ __setattr__ __delattr__".split()
)
EXITS = {
    ast.Break: "break leaves the loop early", ast.Return: "return leaves the loop early",
    ast.Yield: "yield hands out values in order", ast.YieldFrom: "yield hands out values in order",
    ast.Await: "await", ast.Global: "global", ast.Nonlocal: "nonlocal", ast.Delete: "del",
    ast.With: "with: files and locks have an order", ast.AsyncWith: "async with", ast.AsyncFor: "async for",
    ast.Try: "try: an exception would stop the loop in another place", ast.Import: "an import",
    ast.ImportFrom: "an import", ast.FunctionDef: "an inner function", ast.ClassDef: "an inner class",
    ast.AsyncFunctionDef: "an inner function", ast.Lambda: "a lambda",
}  # fmt: skip
DY_PURE = api.PARAMETER_FUNCTIONS | api.MODULE_READS
METHODS_OF_TENSORS = (
    api.READS | api.STATE_OPS | api.STATE_READS | frozenset({"dim", "expr", "npvalue", "shape", "batch"})
)
METHODS_OF_BUILDERS = api.SOFTMAX_OPS | frozenset({"initial_state", "transduce", "add_inputs"})


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


@dataclass
class Effects:
    """What calling a function may do beyond returning a value."""

    line: int = 0
    reason: str = ""
    changes: set[int] = field(default_factory=set)  # parameters whose objects it changes


class Independence:
    """Judges the loops that read numbers from the graph; others gain nothing from running side by side."""

    def __init__(self, analysis: Analysis, loops: Loops) -> None:
        self.an = analysis
        self.program = analysis.program
        self.facts = analysis.facts
        self.loops = loops
        self._effects: dict[int, Effects] = {}
        readers = {analysis.program.owner[node] for node in self.facts.reads}
        self._dropout = any(
            kind == "method" and what in ("builder.set_dropout", "builder.set_dropouts")
            for targets in self.facts.targets.values() for kind, what in targets
        )  # fmt: skip
        self._operators = self._operators_with_effects()
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
        flow = Flow()
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
        if self._operators:
            return self._operators
        for iterable in self._iterables(loop):
            for kind, what in self.facts.targets.get(iterable, ()):
                if kind == "func" and self.program.functions[what].generator:
                    return (
                        f"{self.program.functions[what].name}() is a generator, which runs between iterations"
                    )
        if self._dropout and any(
            node in self.facts.ops and self.facts.ops[node].name in METHODS_OF_BUILDERS | api.STATE_OPS
            for function in [*self.loops.called(loop)]
            for node in self.program.body_nodes(self.program.functions[function])
        ):
            return "its builders may have dropout, which draws random numbers"
        return ""

    def _operators_with_effects(self) -> str:
        """Operators of the script's classes run without a call that is seen: they must do nothing else."""
        for function in self.program.functions:
            name = function.name
            if function.cls is None or not name.startswith("__") or not name.endswith("__"):
                continue
            if name in OPERATORS_APART:
                continue
            effects = self.effects(function.id, generators=True)
            if effects.reason or effects.changes:
                return f"{function.qualname} has effects of its own"
        return ""

    def _is_renew(self, node: ast.stmt) -> bool:
        return isinstance(node, ast.Expr) and ("dy", "renew_cg") in self.facts.targets.get(node.value, ())

    def _names(self, rewrite: Rewrite, body: list[ast.stmt], flow: Flow) -> None:
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
                if self._seen_otherwise(rewrite.loop, name) or (
                    len(flow.loads.get(name, ())) != self._appends_of(body, name)
                ):
                    rewrite.line = getattr(flow.loads[name][0], "lineno", rewrite.line)
                    rewrite.reason = f"{name} is appended to and also looked at"
                    return
                rewrite.appends.append(name)

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

    def _fresh_names(self, nodes: Iterable[ast.AST]) -> set[str]:
        """Names that some code only ever binds to new containers and objects."""
        stores: dict[str, set[ast.AST]] = {}
        made: set[ast.AST] = set()
        grown: set[ast.AST] = set()
        for node in nodes:
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                stores.setdefault(node.id, set()).add(node)
            elif isinstance(node, ast.Assign):
                if self._is_fresh(node.value):
                    made.update(target for target in node.targets if isinstance(target, ast.Name))
            elif isinstance(node, ast.AnnAssign):
                if node.value is not None and self._is_fresh(node.value):
                    made.add(node.target)
            elif isinstance(node, ast.AugAssign):
                grown.add(node.target)  # changes what the name holds already
        return {name for name, where in stores.items() if where & made and where <= made | grown}

    def _is_fresh(self, node: ast.AST) -> bool:
        """Whether an expression makes a new container, or an object of a class of the script."""
        if isinstance(node, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)):
            return True
        if isinstance(node, ast.Call):
            targets = self.facts.targets.get(node, set())
            made = {(k, w) for k, w in targets if k == "class" or k == "ext" and w in MAKERS}
            init = {
                (k, w) for k, w in targets if k == "func" and self.program.functions[w].name == "__init__"
            }
            return bool(made) and targets == made | init
        if isinstance(node, ast.IfExp):
            return all(is_none(part) or self._is_fresh(part) for part in (node.body, node.orelse))
        if isinstance(node, ast.BinOp):  # a concatenation
            return isinstance(node.op, ast.Add) and (_is_display(node.left) or _is_display(node.right))
        return False

    def _reason(self, node: ast.AST, own: set[str], loop: Optional[Loop]) -> str:
        """Why a node forbids it; empty if it does not."""
        for form, reason in EXITS.items():
            if isinstance(node, form):
                if loop is None and isinstance(node, (ast.Yield, ast.YieldFrom)):
                    continue  # of a generator, which is looked at elsewhere
                if isinstance(node, ast.Break) and loop is not None and self._leaves_inner(node, loop):
                    continue
                if loop is None and isinstance(node, (ast.Return, ast.Break, ast.Lambda, ast.Try)):
                    continue  # in a called function these are its own affair
                return reason
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            base = node.value
            if not (isinstance(base, ast.Name) and base.id in own):
                what = text_of(node) if isinstance(node, ast.Attribute) else f"an item of {text_of(base)}"
                return f"{what} is assigned"
        if (
            isinstance(node, ast.AugAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id not in own
        ):
            value = self.facts.values.get(node.target, EMPTY)
            if any(atom[0] in (lat.OBJECT, lat.ANY) for atom in value):
                return f"{node.target.id} may be a list that is changed"
        if isinstance(node, ast.Call):
            return self._call(node, own)
        for kind, what in sorted(self.facts.targets.get(node, ()), key=repr):  # properties, operators
            reason = self._target(node, kind, what, own)
            if reason:
                return reason
        return ""

    def _leaves_inner(self, node: ast.Break, loop: Loop) -> bool:
        loops = [self.program.loops[i] for i in self.program.loops_around.get(node, ())]
        around = [inner.id for inner in loops if inner.form != "comprehension"]
        return bool(around) and around[-1] != loop.id

    def _call(self, node: ast.Call, own: set[str]) -> str:
        targets = self.facts.targets.get(node, set())
        if not targets:
            return f"what {name_of(node)}() does is not known"
        if any(keyword.arg == "out" for keyword in node.keywords):
            return "out= changes an array"
        for kind, what in sorted(targets, key=repr):
            reason = self._target(node, kind, what, own)
            if reason:
                return reason
        return ""

    def _target(self, node: ast.AST, kind: str, what: Any, own: set[str]) -> str:
        if kind == "op":
            return f"{what}() draws random numbers" if what in api.RANDOM_OPS else ""
        if kind == "dy":
            return "" if what in DY_PURE else f"it calls {what}()"
        if kind == "method":
            return self._method(node, what, own)
        if kind == "func":
            return self._function(node, what, own)
        if kind == "ext":
            return _outside(what)
        if kind == "class" and what not in self.an.foreign:
            return ""
        return f"what {name_of(node)}() does is not known"

    def _method(self, node: ast.AST, what: str, own: set[str]) -> str:
        tag, _, name = what.partition(".")
        if tag in (lat.EXPR, lat.PARAM, lat.STATE, lat.LOOKUP):
            return "" if name in METHODS_OF_TENSORS else f"it calls {name}()"
        if tag == lat.BUILDER:
            return "" if name in METHODS_OF_BUILDERS else f"it calls {name}()"
        if tag == "object" and name in api.MUTATORS:
            base = receiver_of(node)
            if isinstance(base, ast.Name) and base.id in own:
                return ""
            return f"{text_of(base)} is changed by {name}()"
        if tag in ("object", lat.STR, lat.READ, lat.INT, lat.FLOAT):
            return "" if name in api.PURE_METHODS else f"what {name}() does is not known"
        return f"it calls {name}()"

    def _function(self, node: ast.AST, function: int, own: set[str]) -> str:
        effects = self.effects(function)
        callee = self.program.functions[function]
        if effects.reason:
            path = self.program.path(callee.module)
            return f"{callee.qualname}(): {effects.reason} ({path}:{effects.line})"
        for index, argument in self._arguments(node, callee) if effects.changes else ():
            if index in effects.changes and not self._is_own(argument, own):
                what = text_of(argument) if argument is not None else "an argument"
                return f"{callee.qualname}() changes {what}"
        return ""

    def _arguments(self, node: ast.AST, callee: Function) -> list[tuple[int, Optional[ast.AST]]]:
        """(index of the parameter, what is given), for all parameters."""
        names = callee.positional()
        given: dict[int, Optional[ast.AST]] = {i: None for i in range(len(names))}
        if isinstance(node, ast.Call) and not any(isinstance(a, ast.Starred) for a in node.args):
            makes = any(kind == "class" for kind, _ in self.facts.targets.get(node, ()))
            shift = 1 if callee.cls is not None and (makes or isinstance(node.func, ast.Attribute)) else 0
            if shift:
                given[0] = ast.List([], ast.Load()) if makes else receiver_of(node)  # a new object is its own
            for index, argument in enumerate(node.args):
                given[index + shift] = argument
            for keyword in node.keywords:
                if keyword.arg in names:
                    given[names.index(keyword.arg)] = keyword.value
        return sorted(given.items(), key=lambda pair: pair[0])

    def _is_own(self, node: Optional[ast.AST], own: set[str]) -> bool:
        return node is not None and (isinstance(node, ast.Name) and node.id in own or self._is_fresh(node))

    def effects(self, function: int, generators: bool = False) -> Effects:
        """What calling a function does; recursion is taken to add nothing to what one level does."""
        known = self._effects.get(function)
        if known is not None:
            return known
        effects = self._effects[function] = Effects()
        callee = self.program.functions[function]
        if callee.generator and not generators:
            effects.line, effects.reason = callee.line, "it is a generator"
            return effects
        if callee.is_async or callee.decorators and not all(_is_harmless(d) for d in callee.decorators):
            effects.line, effects.reason = callee.line, "it is decorated or async"
            return effects
        names = callee.positional()
        nodes = list(self.program.body_nodes(callee))
        fresh = self._fresh_names(nodes) - set(callee.parameters())
        stored = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        changed: set[str] = set()
        own = fresh | (set(names) - stored)  # a parameter that is assigned to may be anybody's object
        for node in nodes:
            reason = self._reason(node, own, None)
            if reason:
                effects.line, effects.reason = getattr(node, "lineno", callee.line), reason
                return effects
            changed |= self._changed_parameters(node, set(names))
        effects.changes = {names.index(name) for name in changed}
        return effects

    def _changed_parameters(self, node: ast.AST, names: set[str]) -> set[str]:
        """Parameters whose object a node changes."""
        found: set[str] = set()
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            found.add(text_of(node.value))
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        for kind, what in self.facts.targets.get(node, ()):
            if kind == "method" and what.partition(".")[2] in api.MUTATORS and what.startswith("object."):
                found.add(text_of(receiver_of(node)))
            elif kind == "func":
                inner = self.effects(what)
                for index, argument in self._arguments(node, self.program.functions[what]):
                    if index in inner.changes and isinstance(argument, ast.Name):
                        found.add(argument.id)
        return found & names


def _is_append(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == "append" and len(node.args) == 1


def is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_display(node: ast.AST) -> bool:
    while isinstance(node, ast.BinOp):
        node = node.left
    return isinstance(node, (ast.List, ast.ListComp))


def _is_harmless(node: ast.expr) -> bool:
    return getattr(node, "id", getattr(node, "attr", "")) in ("staticmethod", "classmethod", "property")


def _outside(name: str) -> str:
    """Why a function of another module forbids it."""
    top, _, rest = name.partition(".")
    last = name.rsplit(".", 1)[-1]
    if top == "builtins":
        if rest in api.OUTPUT_BUILTINS:
            return f"it calls {rest}(), whose order is seen"
        return "" if rest in api.PURE_BUILTINS else f"what {rest}() does is not known"
    parts = set(name.split("."))
    if top in api.RANDOM_MODULES or "random" in parts:
        return f"{name}() draws random numbers"
    if top in api.PURE_MODULES and not parts & api.IMPURE_PARTS:
        return ""
    return f"what {last}() does is not known"
