"""What a statement does, by its form."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from . import lattice as lat
from .expressions import ExpressionVisitor
from .frame import Env, Frame, join_envs
from .imports import Imports
from .lattice import UNKNOWN, join
from .state import AnalysisState, CallContext

MAX_NESTING = 60  # of statements


@dataclass
class LoopExits:
    """Names where the body of a loop was left early."""

    breaks: list[Optional[Env]] = field(default_factory=list)
    continues: list[Optional[Env]] = field(default_factory=list)


class StatementVisitor:
    """One visit to one context."""

    def __init__(self, state: AnalysisState, context: CallContext) -> None:
        self.state = state
        self.context = context
        self.frame = Frame(state, context)
        self.expressions = ExpressionVisitor(self.frame)
        self.imports = Imports(self.frame, self.expressions.objects)
        self.eval = self.expressions.eval
        self.assign = self.expressions.assign
        self._loops: list[LoopExits] = []
        self._nesting = 0

    def run(self) -> None:
        function = self.frame.function
        for name, cell in self.context.parameters.items():
            self.frame.store(name, cell.value)
        if isinstance(function.node, ast.Lambda):
            self.state.heap.change(self.context.returned, self.eval(function.node.body))
        else:
            self.block(function.node.body)
            if self.frame.env is not None and not function.is_module:
                self.state.heap.change(self.context.returned, lat.NOTHING)

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if self.frame.env is None:  # after return, raise, break, continue
                return
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            self.state.program.problem(node, "statements nested too deeply")
            self.state.stop("statements nested too deeply")
        else:
            method = self._METHODS.get(type(node).__name__)
            if method is not None:
                method(self, node)
        self._nesting -= 1

    # ---- simple statements

    def _assign(self, node: Any) -> None:
        value = self.eval(node.value)
        for target in node.targets:
            self.assign(target, value)

    def _ann_assign(self, node: Any) -> None:
        if node.value is not None:
            self.assign(node.target, self.eval(node.value))
        elif self.frame.class_id is not None and isinstance(node.target, ast.Name):
            fields = self.state.heap.cell("fields", self.frame.class_id)
            fields.value = fields.value | {("field", len(fields.value), node.target.id)}

    def _aug_assign(self, node: Any) -> None:
        target = node.target
        if isinstance(target, ast.Name):
            old = self.frame.load(target.id)
            self.state.facts.note_value(target, old)
        else:
            old = self.eval(target)
        self.assign(target, self.expressions.binary(node, node.op, old, self.eval(node.value)))

    def _return(self, node: Any) -> None:
        value = lat.NOTHING if node.value is None else self.eval(node.value)
        self.state.heap.change(self.context.returned, value)
        self.frame.env = None

    def _raise(self, node: Any) -> None:
        self.expressions.eval_all(node.exc, node.cause)
        self.frame.env = None

    def _assert(self, node: Any) -> None:
        self.expressions.eval_all(node.test, node.msg)

    def _delete(self, node: Any) -> None:
        for target in node.targets:
            if isinstance(target, (ast.Subscript, ast.Attribute)):
                self.state.facts.note_write(target, self.eval(target.value))

    def _break(self, node: Any) -> None:
        if self._loops:
            self._loops[-1].breaks.append(self.frame.env)
        self.frame.env = None

    def _continue(self, node: Any) -> None:
        if self._loops:
            self._loops[-1].continues.append(self.frame.env)
        self.frame.env = None

    # ---- definitions

    def _function_def(self, node: Any) -> None:
        self.frame.store(node.name, self.expressions.function_value(node))

    def _class_def(self, node: Any) -> None:
        classes, cls = self.state.classes, self.state.program.class_of[node]
        bases = []
        for base in node.bases:
            for atom in self.eval(base):
                if atom[0] == lat.CLASS:
                    bases.append(atom[1])
                elif atom != (lat.EXT, "builtins.object"):
                    classes.foreign.add(cls)
        if node.keywords:
            classes.foreign.add(cls)
        classes.bases[cls] = bases
        outer, self.frame.class_id = self.frame.class_id, cls
        self.block(node.body)
        self.frame.class_id = outer
        self.frame.store(node.name, lat.one(lat.CLASS, cls))

    # ---- branches and loops

    def _if(self, node: Any) -> None:
        ends: list[Optional[Env]] = []
        while True:  # a chain of elif: no recursion
            self.eval(node.test)
            before = self.frame.copy_env()
            self.block(node.body)
            ends.append(self.frame.env)
            self.frame.env = before
            if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If) and self.frame.env is not None:
                node = node.orelse[0]
                continue
            self.block(node.orelse)
            ends.append(self.frame.env)
            break
        self.frame.env = join_envs(ends)

    def _match(self, node: Any) -> None:
        subject = self.eval(node.subject)
        ends: list[Optional[Env]] = [self.frame.copy_env()]
        for case in node.cases:
            before = self.frame.copy_env()
            for part in ast.walk(case.pattern):
                name = getattr(part, "name", None) or getattr(part, "rest", None)
                if isinstance(name, str):
                    self.frame.store(name, join(UNKNOWN, self.expressions.objects.items(subject)))
            if case.guard is not None:
                self.eval(case.guard)
            self.block(case.body)
            ends.append(self.frame.env)
            self.frame.env = before
        self.frame.env = join_envs(ends)

    def _for(self, node: Any) -> None:
        items = self.expressions.objects.items(self.eval(node.iter))
        self._loop(node, lambda: self.assign(node.target, items))

    def _while(self, node: Any) -> None:
        endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        self._loop(node, lambda: self.eval(node.test), endless)

    def _loop(self, node: Any, begin: Callable[[], object], endless: bool = False) -> None:
        """The body once, from the join of the names before the loop and those that the body left before."""
        key = self.state.program.uid[node]
        kept = self.context.loops.get(key, {})
        entry = join_envs([self.frame.env, dict(kept)]) or {}
        self.frame.env = dict(entry)
        self._loops.append(LoopExits())
        begin()
        at_test = self.frame.copy_env()
        self.block(node.body)
        exits = self._loops.pop()
        end = join_envs([self.frame.env, *exits.continues])
        after = join_envs([entry, end])
        if after is not None and after != entry:
            self.context.loops[key] = after
            self.state.queue.add(self.context)
        elif key not in self.context.loops:
            self.context.loops[key] = entry
        if endless:
            self.frame.env = join_envs(exits.breaks)
        else:
            self.frame.env = join_envs([entry, at_test, end])
            self.block(node.orelse)
            self.frame.env = join_envs([self.frame.env, *exits.breaks])

    def _try(self, node: Any) -> None:
        before = self.frame.copy_env()
        self.block(node.body)
        middle = join_envs([before, self.frame.env])
        self.block(node.orelse)
        ends = [self.frame.env]
        for handler in node.handlers:
            self.frame.env = dict(middle) if middle is not None else {}
            if handler.type is not None:
                self.eval(handler.type)
            if handler.name:
                self.frame.store(handler.name, UNKNOWN)
            self.block(handler.body)
            ends.append(self.frame.env)
        joined = join_envs(ends)
        self.frame.env = joined if joined is not None else join_envs([middle])
        self.block(node.finalbody)
        if joined is None:
            self.frame.env = None

    def _with(self, node: Any) -> None:
        for item in node.items:
            value = self.eval(item.context_expr)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, UNKNOWN if not value else value)
        self.block(node.body)

    _METHODS: dict[str, Any] = {
        "Expr": lambda self, node: self.eval(node.value),
        "Assign": _assign,
        "AnnAssign": _ann_assign,
        "AugAssign": _aug_assign,
        "Return": _return,
        "Raise": _raise,
        "Assert": _assert,
        "Delete": _delete,
        "Break": _break,
        "Continue": _continue,
        "Import": lambda self, node: self.imports.plain(node),
        "ImportFrom": lambda self, node: self.imports.names(node),
        "FunctionDef": _function_def,
        "AsyncFunctionDef": _function_def,
        "ClassDef": _class_def,
        "If": _if,
        "Match": _match,
        "For": _for,
        "AsyncFor": _for,
        "While": _while,
        "Try": _try,
        "TryStar": _try,
        "With": _with,
        "AsyncWith": _with,
    }
