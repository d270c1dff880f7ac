"""What code may do beyond computing a value: reasons why its order with other code matters.

A function has a reason when it prints, draws random numbers, changes anything but its own objects and its
parameters, or calls something that is not known. Parameters that it changes are listed: its callers may give
it objects of their own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Optional

from . import api
from . import lattice as lat
from .callgraph import CallGraph
from .scopes import Function, Loop, name_of, receiver_of, text_of
from .state import AnalysisState

_MAKERS = {"builtins": "list dict set sorted", "collections": "deque defaultdict Counter OrderedDict"}
MAKERS = frozenset(f"{module}.{name}" for module, names in _MAKERS.items() for name in names.split())
EXITS = {
    ast.Break: "break leaves the loop early", ast.Return: "return leaves the loop early",
    ast.Yield: "yield returns values in order", ast.YieldFrom: "yield returns values in order",
    ast.Await: "await", ast.Global: "global", ast.Nonlocal: "nonlocal", ast.Delete: "del",
    ast.With: "with: files and locks have an order", ast.AsyncWith: "async with", ast.AsyncFor: "async for",
    ast.Try: "try: an exception would stop the loop in another place", ast.Import: "an import",
    ast.ImportFrom: "an import", ast.FunctionDef: "an inner function", ast.ClassDef: "an inner class",
    ast.AsyncFunctionDef: "an inner function", ast.Lambda: "a lambda",
}  # fmt: skip
DY_PURE = api.PARAMETER_FUNCTIONS | api.MODULE_READS
METHODS_OF_TENSORS = (
    api.READS | api.STATE_OPS | api.STATE_READS | frozenset({"dim", "expr", "as_array", "shape", "batch"})
)
METHODS_OF_BUILDERS = api.SOFTMAX_OPS | frozenset({"initial_state", "transduce", "add_inputs"})


@dataclass
class Effects:
    """What calling a function may do beyond returning a value."""

    line: int = 0
    reason: str = ""
    changes: set[int] = field(default_factory=set)  # parameters whose objects it changes


class EffectAnalysis:
    """Effects of functions, and reasons against single nodes."""

    def __init__(self, state: AnalysisState, graph: CallGraph) -> None:
        self.foreign = state.classes.foreign
        self.program = state.program
        self.facts = state.facts
        self.graph = graph
        self._effects: dict[int, Effects] = {}
        self._recursive: dict[int, list[int]] = {}  # component -> its functions, which call one another
        for function, number in graph.component.items():
            self._recursive.setdefault(number, []).append(function)

    def fresh_names(self, nodes: Iterable[ast.AST]) -> set[str]:
        """Names that some code only ever binds to new containers and objects."""
        stores: dict[str, set[ast.AST]] = {}
        made: set[ast.AST] = set()
        grown: set[ast.AST] = set()
        for node in nodes:
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                stores.setdefault(node.id, set()).add(node)
            elif isinstance(node, ast.Assign):
                pairs = [pair for target in node.targets for pair in _assigned(target, node.value)]
                made.update(target for target, value in pairs if self._is_fresh(value))
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

    def reason_against(self, node: ast.AST, own: set[str], loop: Optional[Loop]) -> str:
        """Why a node must not run in another order with other code; empty if it may."""
        for form, reason in EXITS.items():
            if isinstance(node, form):
                if loop is None and isinstance(node, (ast.Yield, ast.YieldFrom)):
                    continue  # of a generator: `of` has the reason
                if isinstance(node, ast.Break) and loop is not None and self._leaves_inner(node, loop):
                    continue
                if loop is None and isinstance(node, (ast.Return, ast.Break, ast.Lambda, ast.Try)):
                    continue  # in a called function these end that function only
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
            value = self.facts.value(node.target)
            if any(atom[0] in (lat.OBJECT, lat.ANY) for atom in value):
                return f"{node.target.id} may be a list that is changed"
        if isinstance(node, ast.Call):
            return self._call(node, own)
        return self._targets(node, own)  # properties, operators

    def _leaves_inner(self, node: ast.Break, loop: Loop) -> bool:
        loops = [self.program.loops[i] for i in self.program.loops_around.get(node, ())]
        around = [inner.id for inner in loops if inner.form != "comprehension"]
        return bool(around) and around[-1] != loop.id

    def _call(self, node: ast.Call, own: set[str]) -> str:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            return ""
        if not self.facts.target(node):
            return f"what {name_of(node)}() does is not known"
        if any(keyword.arg == "out" for keyword in node.keywords):
            return "out= changes an array"
        return self._targets(node, own)

    def _targets(self, node: ast.AST, own: set[str]) -> str:
        """The first reason against what a node calls."""
        reasons = (self._target(node, kind, what, own) for kind, what in self.facts.target(node))
        return next(filter(None, reasons), "")

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
        if kind == "class" and what not in self.foreign:
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
        effects = self.of(function)
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
        """(index of the parameter, what is given), for all parameters; None: not known."""
        names = callee.positional()
        given: dict[int, Optional[ast.AST]] = {i: None for i in range(len(names))}
        if isinstance(node, ast.Call) and not any(isinstance(a, ast.Starred) for a in node.args):
            shift = 0
            if callee.cls is not None and not callee.is_static:
                receiver = self._receiver(node, callee)
                if receiver is None:
                    return sorted(given.items(), key=lambda pair: pair[0])
                shift, given[0] = 1, receiver
            elif not self._is_called_itself(node, callee):
                return sorted(given.items(), key=lambda pair: pair[0])
            for index, argument in enumerate(node.args):
                given[index + shift] = argument
            for keyword in node.keywords:
                if keyword.arg in names:
                    given[names.index(keyword.arg)] = keyword.value
        return sorted(given.items(), key=lambda pair: pair[0])

    def _is_called_itself(self, node: ast.Call, callee: Function) -> bool:
        """Whether a call is of the function, and not of something that calls it in turn."""
        value = self.facts.value(node.func)
        return any(atom[0] in (lat.FUNC, lat.METHOD) and atom[1] == callee.id for atom in value)

    def _receiver(self, node: ast.Call, callee: Function) -> Optional[ast.AST]:
        """The object of a method call, where it is certain which one that is."""
        if any(kind == "class" for kind, _ in self.facts.targets.get(node, ())):
            new_object = ast.List([], ast.Load())
            return new_object if callee.name == "__init__" else None
        whole = self.facts.value(node.func)
        if callee.name == "__call__" and whole and all(atom[0] == lat.INSTANCE for atom in whole):
            return node.func
        if not isinstance(node.func, ast.Attribute) or not self._is_called_itself(node, callee):
            return None
        receiver = node.func.value
        value = self.facts.value(receiver)
        if value and all(atom[0] == lat.INSTANCE for atom in value):
            return receiver
        if value and all(atom[0] == lat.CLASS for atom in value) and callee.is_class_method:
            return receiver
        if (
            isinstance(receiver, ast.Call)
            and isinstance(receiver.func, ast.Name)
            and receiver.func.id == "super"
        ):
            names = self.program.functions[self.program.owner[node]].positional()
            return ast.Name(names[0], ast.Load()) if names else None
        return None

    def _is_own(self, node: Optional[ast.AST], own: set[str]) -> bool:
        return node is not None and (isinstance(node, ast.Name) and node.id in own or self._is_fresh(node))

    def of(self, function: int, generators: bool = False) -> Effects:
        """What calling a function does. `generators`: of a generator, what running it does.

        Functions that call one another are looked at again until nothing is found that was not known.
        """
        key = function if not generators else -1 - function
        known = self._effects.get(key)
        if known is not None:
            return known
        functions = [function] if generators else self._recursive[self.graph.component[function]]
        keys = [key] if generators else functions
        for at in keys:
            self._effects[at] = Effects()
        changed = True
        while changed:
            changed = False
            for at, number in zip(keys, functions):
                known = self._effects[at]
                if known.reason:
                    continue  # the first reason stays: with another one its text would grow without end
                found = self._effects_of(number, generators)
                found.changes |= known.changes
                if found != known:
                    self._effects[at] = found
                    changed = True
        return self._effects[key]

    def _effects_of(self, function: int, generators: bool) -> Effects:
        callee = self.program.functions[function]
        if callee.generator and not generators:
            return Effects(callee.line, "it is a generator")
        if callee.is_async or callee.decorators and not all(_is_harmless(d) for d in callee.decorators):
            return Effects(callee.line, "it is decorated or async")
        names = callee.positional()
        nodes = list(self.program.body_nodes(callee))
        fresh = self.fresh_names(nodes) - set(callee.parameters())
        stored = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        changed: set[str] = set()
        own = fresh | (set(names) - stored)  # a parameter that is assigned to may be any object
        for node in nodes:
            reason = self.reason_against(node, own, None)
            if reason:
                return Effects(getattr(node, "lineno", callee.line), reason)
            changed |= self._changed_parameters(node, set(names))
        return Effects(changes={names.index(name) for name in changed})

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
                inner = self.of(what)
                for index, argument in self._arguments(node, self.program.functions[what]):
                    if index in inner.changes and isinstance(argument, ast.Name):
                        found.add(argument.id)
        return found & names


def is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _assigned(target: ast.expr, value: ast.expr) -> Iterable[tuple[ast.Name, ast.expr]]:
    """Names and what they get; for `a, b = c, d` too."""
    if isinstance(target, ast.Name):
        yield target, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        starred = any(isinstance(part, ast.Starred) for part in (*target.elts, *value.elts))
        if not starred and len(target.elts) == len(value.elts):
            for inner, part in zip(target.elts, value.elts):
                yield from _assigned(inner, part)


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
