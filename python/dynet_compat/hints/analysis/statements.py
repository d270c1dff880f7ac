"""The abstract interpreter, statement by statement."""

from __future__ import annotations

import ast
from typing import Any, Optional

from . import lattice as lat
from .expressions import Env, Expressions, join_envs
from .lattice import EMPTY, UNKNOWN, Value, join
from .load import DYNET_MODULES, KNOWN_MODULES, absolute

MAX_NESTING = 60  # of statements


class StatementVisitor(Expressions):
    """One pass over one unit."""

    def run(self) -> None:
        function, unit = self.function, self.unit
        for name, cell in unit.parameters.items():
            self.store_name(name, cell.value)
        if isinstance(function.node, ast.Lambda):
            self.an.change(unit.returned, self.eval(function.node.body))
        else:
            self.block(function.node.body)
            if self.env is not None and not function.is_module:
                self.an.change(unit.returned, lat.NOTHING)

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if self.env is None:  # after return, raise, break, continue
                return
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            self.an.program.problem(node, "statements nested too deeply")
            self.an.stop("statements nested too deeply")
        else:
            method = self._STATEMENTS.get(type(node).__name__)
            if method is not None:
                method(self, node)
        self.nesting -= 1

    # ---- simple statements

    def _expr(self, node: Any) -> None:
        self.eval(node.value)

    def _assign(self, node: Any) -> None:
        value = self.eval(node.value)
        for target in node.targets:
            self.assign(target, value)

    def _ann_assign(self, node: Any) -> None:
        if node.value is not None:
            self.assign(node.target, self.eval(node.value))
        elif self.class_id is not None and isinstance(node.target, ast.Name):
            fields = self.an.cell("fields", self.class_id)
            fields.value = fields.value | {("field", len(fields.value), node.target.id)}

    def _aug_assign(self, node: Any) -> None:
        target = node.target
        if isinstance(target, ast.Name):
            old = self.load_name(target.id, target)
            self.an.note_value(target, old, self.unit)
        else:
            old = self.eval(target)
        new = self.binary(node, node.op, target, old, node.value, self.eval(node.value))
        self.assign(target, new)

    def _return(self, node: Any) -> None:
        value = lat.NOTHING if node.value is None else self.eval(node.value)
        self.an.change(self.unit.returned, value)
        self.env = None

    def _raise(self, node: Any) -> None:
        for part in (node.exc, node.cause):
            if part is not None:
                self.eval(part)
        self.env = None

    def _assert(self, node: Any) -> None:
        self.eval(node.test)
        if node.msg is not None:
            self.eval(node.msg)

    def _delete(self, node: Any) -> None:
        for target in node.targets:
            if isinstance(target, (ast.Subscript, ast.Attribute)):
                self.an.facts.writes[target] = join(
                    self.an.facts.writes.get(target, EMPTY), self.eval(target.value)
                )

    def _break(self, node: Any) -> None:
        if self.breaks and self.env is not None:
            self.breaks[-1].append(self.env)
        self.env = None

    def _continue(self, node: Any) -> None:
        if self.continues and self.env is not None:
            self.continues[-1].append(self.env)
        self.env = None

    # ---- imports

    def _import(self, node: Any) -> None:
        for alias in node.names:
            top = alias.name.split(".")[0]
            value = self.module_value(alias.name if alias.asname else top)
            self.store_name(alias.asname or top, value)

    def module_value(self, name: str) -> Value:
        if name.split(".")[0] in DYNET_MODULES:
            return lat.one(lat.DYNET)
        index = self.an.program.loaded.module(name)
        return lat.one(lat.EXT, name) if index is None else lat.one(lat.MODULE, index)

    def _import_from(self, node: Any) -> None:
        source = self.an.program.sources[self.function.module]
        base = absolute(source, node.module, node.level)
        if base == "__future__":
            return
        for alias in node.names:
            name = alias.asname or alias.name
            if base is None:
                self.store_name(name, UNKNOWN)
            elif base.split(".")[0] in DYNET_MODULES:
                if alias.name == "*":
                    self.an.write(lat.one(lat.DYNET), "star", self.function.module)
                else:
                    self.store_name(name, self.dynet_name(alias.name))
            elif alias.name == "*":
                self._import_star(node, base)
            else:
                inner = self.an.program.loaded.module(f"{base}.{alias.name}" if base else alias.name)
                if inner is not None:
                    self.store_name(name, lat.one(lat.MODULE, inner))
                else:
                    self.store_name(name, self.attribute_of(self.module_value(base), alias.name, node))

    def _import_star(self, node: Any, base: str) -> None:
        index = self.an.program.loaded.module(base)
        if index is not None:
            self.an.write(lat.one(lat.MODULE, index), "star", self.function.module)
        else:
            if base.split(".")[0] not in KNOWN_MODULES:
                text = f"from {base} import *: its names are not known, so no hints for this program"
                self.an.program.problem(node, text, "program")
            self.an.write(UNKNOWN, "star", self.function.module)

    # ---- definitions

    def _function_def(self, node: Any) -> None:
        self.store_name(node.name, self.function_value(node))

    def _class_def(self, node: Any) -> None:
        an, cls = self.an, self.an.program.class_of[node]
        bases = []
        for base in node.bases:
            for atom in self.eval(base):
                if atom[0] == lat.CLASS:
                    bases.append(atom[1])
                elif atom != (lat.EXT, "builtins.object"):
                    an.foreign.add(cls)
        if node.keywords:
            an.foreign.add(cls)
        if an.bases.get(cls) != bases:
            an.bases[cls] = bases
        outer, self.class_id = self.class_id, cls
        self.block(node.body)
        self.class_id = outer
        self.store_name(node.name, lat.one(lat.CLASS, cls))

    # ---- branches and loops

    def _if(self, node: Any) -> None:
        ends: list[Optional[Env]] = []
        while True:  # a chain of elif is walked, not descended into
            self.test(node, node.test)
            before = self.copy_env()
            self.block(node.body)
            ends.append(self.env)
            self.env = before
            if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If) and self.env is not None:
                node = node.orelse[0]
                continue
            self.block(node.orelse)
            ends.append(self.env)
            break
        self.env = join_envs(ends)

    def test(self, branch: ast.AST, test: ast.expr) -> None:
        self.eval(test)

    def _match(self, node: Any) -> None:
        subject = self.eval(node.subject)
        ends: list[Optional[Env]] = [self.copy_env()]
        for case in node.cases:
            before = self.copy_env()
            for part in ast.walk(case.pattern):
                name = getattr(part, "name", None) or getattr(part, "rest", None)
                if isinstance(name, str):
                    self.store_name(name, join(UNKNOWN, self.items(subject)))
            if case.guard is not None:
                self.eval(case.guard)
            self.block(case.body)
            ends.append(self.env)
            self.env = before
        self.env = join_envs(ends)

    def _for(self, node: Any) -> None:
        items = self.items(self.eval(node.iter))
        self._loop(node, lambda: self.assign(node.target, items))

    def _while(self, node: Any) -> None:
        endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        self._loop(node, lambda: self.test(node, node.test), endless)

    def _loop(self, node: Any, begin: Any, endless: bool = False) -> None:
        """Once through the body, from the join of what comes in and what the body left last time."""
        key = self.an.program.uid[node]
        kept = self.unit.loops.get(key, {})
        entry = join_envs([self.env, dict(kept)]) or {}
        self.env = dict(entry)
        self.breaks.append([])
        self.continues.append([])
        begin()
        at_test = self.copy_env()
        self.block(node.body)
        end = join_envs([self.env, *self.continues.pop()])
        breaks = self.breaks.pop()
        after = join_envs([entry, end])
        if after is not None and after != entry:
            self.unit.loops[key] = after
            self.an.enqueue(self.unit)
        elif key not in self.unit.loops:
            self.unit.loops[key] = entry
        if endless:
            self.env = join_envs(list(breaks))
        else:
            self.env = join_envs([entry, at_test, end])
            self.block(node.orelse)
            self.env = join_envs([self.env, *breaks])

    def _try(self, node: Any) -> None:
        before = self.copy_env()
        self.block(node.body)
        middle = join_envs([before, self.env])
        self.block(node.orelse)
        ends = [self.env]
        for handler in node.handlers:
            self.env = dict(middle) if middle is not None else {}
            if handler.type is not None:
                self.eval(handler.type)
            if handler.name:
                self.store_name(handler.name, UNKNOWN)
            self.block(handler.body)
            ends.append(self.env)
        joined = join_envs(ends)
        self.env = joined if joined is not None else join_envs([middle])
        self.block(node.finalbody)
        if joined is None:
            self.env = None

    def _with(self, node: Any) -> None:
        for item in node.items:
            value = self.eval(item.context_expr)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, UNKNOWN if not value else value)
        self.block(node.body)

    _STATEMENTS: dict[str, Any] = {
        "Expr": _expr,
        "Assign": _assign,
        "AnnAssign": _ann_assign,
        "AugAssign": _aug_assign,
        "Return": _return,
        "Raise": _raise,
        "Assert": _assert,
        "Delete": _delete,
        "Break": _break,
        "Continue": _continue,
        "Import": _import,
        "ImportFrom": _import_from,
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
