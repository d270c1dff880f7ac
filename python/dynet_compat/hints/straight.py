"""Pass 10, functions: which ones record the same ops whatever they are called with.

A function is straight when its body has no branch and no loop, changes nothing but its own names, and calls
only ops, methods of states and other straight functions. A straight function that records two ops or more and
returns Expressions is a candidate for a template. The recorder derives and checks templates itself; this only
names them.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from .analysis import api
from .analysis import lattice as lat
from .analysis.callgraph import CallGraph
from .analysis.facts import CallTarget
from .analysis.lattice import EMPTY
from .analysis.scopes import COMPREHENSIONS, Function, name_of
from .analysis.state import AnalysisState

MIN_OPS = 2
TRAINING = frozenset(
    {("dy", "renew_cg"), ("method", "expr.backward"), ("method", "trainer.update")}
    | {("method", f"coll.{name}") for name in ("add_parameters", "add_lookup_parameters")}
)
STATE_METHODS = frozenset({"add_input", "output", "h", "s", "prev", "set_h", "set_s"})
FORBIDDEN = {
    "If": "a branch", "IfExp": "a conditional expression", "Match": "a branch", "BoolOp": "and/or",
    "For": "a loop", "While": "a loop", "AsyncFor": "a loop", "ListComp": "a comprehension",
    "DictComp": "a comprehension", "SetComp": "a comprehension", "GeneratorExp": "a comprehension",
    "Try": "try", "TryStar": "try", "With": "with", "AsyncWith": "with", "Raise": "raise",
    "Assert": "assert", "Delete": "del", "Global": "global", "Nonlocal": "nonlocal", "Import": "an import",
    "ImportFrom": "an import", "FunctionDef": "an inner function", "AsyncFunctionDef": "an inner function",
    "ClassDef": "an inner class", "Lambda": "a lambda", "Compare": "a comparison",
    "Starred": "a starred argument", "NamedExpr": ":=", "Yield": "yield", "YieldFrom": "yield",
    "Await": "await", "JoinedStr": "a formatted text",
}  # fmt: skip


@dataclass
class Verdict:
    """Whether a function is straight, and if not, the first reason against it."""

    function: Function
    ops: int = 0  # recorded by one call, those of called functions included
    own_ops: int = 0
    random: bool = False
    line: int = 0
    reason: str = ""

    @property
    def straight(self) -> bool:
        return not self.reason

    @property
    def template(self) -> bool:
        return self.straight and self.ops >= MIN_OPS


class Straight:
    """Verdicts on all functions."""

    def __init__(self, state: AnalysisState, graph: CallGraph) -> None:
        self.program = state.program
        self.facts = state.facts
        self.graph = graph
        self.verdicts: dict[int, Verdict] = {}
        for function in graph.order():  # callees first
            if not self.program.functions[function].is_module:
                self.verdicts[function] = self._judge(self.program.functions[function])

    def templates(self) -> list[Verdict]:
        return [v for _, v in sorted(self.verdicts.items()) if v.template]

    def rejected(self) -> list[Verdict]:
        """Functions that record at least as much, and are not templates; those that train are left out."""
        none = [v for _, v in sorted(self.verdicts.items()) if not v.straight and v.own_ops >= MIN_OPS]
        return [v for v in none if not self._trains(v.function)]

    def _trains(self, function: Function) -> bool:
        return any(
            not TRAINING.isdisjoint(self.facts.targets.get(node, ()))
            for node in self.program.body_nodes(function)
        )

    def _judge(self, function: Function) -> Verdict:
        verdict = Verdict(function, line=function.line)
        nodes = list(self.program.body_nodes(function))
        verdict.own_ops = sum(node in self.facts.ops for node in nodes)
        verdict.reason = self._signature(function)
        statements: Any = function.node.body
        for node in nodes:
            if verdict.reason:
                return verdict
            verdict.line = getattr(node, "lineno", verdict.line)
            verdict.reason = self._node(node, verdict)
        for index, statement in enumerate(statements if isinstance(statements, list) else ()):
            reason = self._statement(statement, index == len(statements) - 1)
            if reason and not verdict.reason:
                verdict.line, verdict.reason = statement.lineno, reason
        return verdict

    def _signature(self, function: Function) -> str:
        if isinstance(function.node, ast.Lambda):
            return "it is a lambda"
        if function.generator:
            return "it is a generator"
        if function.is_async:
            return "it is async"
        if function.decorators:
            return "it is decorated"
        arguments = function.arguments
        if arguments is not None and (arguments.vararg or arguments.kwarg):
            return "it takes any number of arguments"
        return ""

    def _statement(self, node: Any, last: bool) -> str:
        if isinstance(node, ast.Return):
            if not last:
                return "code after return"
            if node.value is None or not self._gives_tensors(node.value):
                return "it returns something that is not an Expression"
        elif last:
            return "it returns nothing"
        single: Any = getattr(node, "target", None)
        targets: list[Any] = list(node.targets) if isinstance(node, ast.Assign) else [single]
        for target in targets:
            for part in ast.walk(target) if target is not None else ():
                if isinstance(part, (ast.Attribute, ast.Subscript)) and not isinstance(part.ctx, ast.Load):
                    return "it assigns to an attribute or an item"
        if isinstance(node, ast.AugAssign):
            value = self.facts.values.get(node.target, EMPTY)
            if any(atom[0] == lat.OBJECT for atom in value):
                return "it changes a list"
        return ""

    def _gives_tensors(self, node: ast.expr) -> bool:
        if isinstance(node, (ast.Tuple, ast.List)):
            return bool(node.elts) and all(self._gives_tensors(element) for element in node.elts)
        value = self.facts.values.get(node, EMPTY)
        return lat.is_tensor(value) or self._calls_straight(node)

    def _calls_straight(self, node: ast.expr) -> bool:
        """`return self.helper(x)`, where the helper returns tuples of Expressions."""
        targets = self.facts.targets.get(node, set())
        return bool(targets) and all(
            kind == "func" and what in self.verdicts and self.verdicts[what].straight
            for kind, what in targets
        )

    def _node(self, node: ast.AST, verdict: Verdict) -> str:
        forbidden = FORBIDDEN.get(type(node).__name__)
        if forbidden or isinstance(node, COMPREHENSIONS):
            return forbidden or "a comprehension"
        if node in self.facts.ops:
            verdict.ops += 1
        if isinstance(node, ast.Call):
            return self._call(node, verdict)
        for kind, what in self.facts.targets.get(node, ()):  # a property
            if kind == "func":
                return self._target(node, (kind, what), verdict)
        return ""

    def _call(self, node: ast.Call, verdict: Verdict) -> str:
        targets = self.facts.targets.get(node, set())
        if not targets:
            return f"{name_of(node)}() is not known"
        reasons = sorted(self._target(node, target, verdict) for target in sorted(targets, key=repr))
        return reasons[-1]

    def _target(self, node: ast.AST, target: CallTarget, verdict: Verdict) -> str:
        kind, what = target
        if kind == "op":
            verdict.random = verdict.random or what in api.RANDOM_OPS
            data = what in api.INPUT_OPS and isinstance(node, ast.Call) and not _constant_arguments(node)
            return f"{what}() takes numbers of the program" if data else ""
        if kind == "dy":
            return "" if what in api.PARAMETER_FUNCTIONS else f"it calls {what}()"
        if kind == "func":
            return self._callee(what, verdict)
        if kind == "method":
            tag, _, name = what.partition(".")
            if (
                tag == lat.STATE
                and name in STATE_METHODS
                or tag in (lat.PARAM, lat.LOOKUP)
                and name == "expr"
            ):
                return ""
            if name in api.READS:
                return f"{name}() reads a number of the graph"
            return f"it calls {name}()"
        if kind == "ext":
            return f"it calls {what.removeprefix('builtins.')}()"
        if kind == "class":
            return f"it makes a {self.program.classes[what].qualname}"
        return f"{name_of(node)}() is not known"

    def _callee(self, function: int, verdict: Verdict) -> str:
        called = self.program.functions[function]
        if function in self.graph.recursive:
            return f"{called.name}() is recursive"
        callee = self.verdicts.get(function)
        if callee is None or not callee.straight:
            why = f" ({self.program.path(called.module)}:{callee.line}: {callee.reason})" if callee else ""
            return f"{called.name}() is not straight-line{why}"
        verdict.ops += callee.ops
        verdict.random = verdict.random or callee.random
        return ""


def _constant_arguments(node: ast.Call) -> bool:
    return all(isinstance(a, ast.Constant) for a in [*node.args, *[k.value for k in node.keywords]])
