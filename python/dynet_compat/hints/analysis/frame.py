"""The names of one visit: which a statement sees, and where what it assigns is stored."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Optional

from . import api
from . import lattice as lat
from .lattice import EMPTY, UNKNOWN, Value, join
from .state import AnalysisState, CallContext

Env = dict[str, Value]


def join_envs(envs: Sequence[Optional[Env]]) -> Optional[Env]:
    """Names after branches that met again; None: none of them continues."""
    alive = [env for env in envs if env is not None]
    if len(alive) < 2:
        return alive[0] if alive else None
    result = dict(alive[0])
    for env in alive[1:]:
        for name, value in env.items():
            old = result.get(name)
            if old is not value:
                result[name] = value if old is None else join(old, value)
    return result


class Frame:
    """One visit to one context.

    Attributes:
        env: local names; None after return, raise, break and continue.
        class_id: the class whose body is visited.
        own_targets: in the targets of a comprehension, whose names are its own.
    """

    def __init__(self, state: AnalysisState, context: CallContext) -> None:
        self.state = state
        self.program = state.program
        self.facts = state.facts
        self.context = context
        self.function = state.program.functions[context.function]
        self.env: Optional[Env] = {}
        self.class_id: Optional[int] = None
        self.own_targets = 0

    def read(self, *key: object) -> Value:
        """The value of a cell; this context is visited again when it changes."""
        return self.state.heap.read(self.context, *key)

    def write(self, value: Value, *key: object) -> None:
        self.state.heap.write(value, *key)

    def copy_env(self) -> Optional[Env]:
        return None if self.env is None else dict(self.env)

    def load(self, name: str) -> Value:
        function = self.function
        if self.env is not None and name in self.env:
            value = self.env[name]
            return join(value, self.read("var", function.id, name)) if name in function.rebound else value
        if self.class_id is not None and ("class", self.class_id, name) in self.state.heap.cells:
            return self.read("class", self.class_id, name)
        if function.is_module or name not in function.bound:
            return self._outer(name)
        return EMPTY

    def _outer(self, name: str) -> Value:
        """A name of an outer function, of the module, or of Python."""
        program = self.program
        at: Optional[int] = self.function.id if self.function.is_module else self.function.parent
        if name in self.function.globals:
            at = program.tops[self.function.module]
        while at is not None:
            if name in program.functions[at].bound:
                return self.read("var", at, name)
            at = program.functions[at].parent
        found = self._starred(name, self.function.module)
        if found:
            return found
        if name in ("__name__", "__file__"):
            return lat.SOME_STR
        return lat.one(lat.EXT, "builtins." + name) if hasattr(builtins, name) else UNKNOWN

    def _starred(self, name: str, module: int) -> Value:
        """A name that `from ... import *` may have brought."""
        found = EMPTY
        for atom in self.read("star", module):
            if atom[0] == lat.DYNET and api.is_name(name):
                found = join(found, lat.one(lat.DYNAME, name))
            elif atom[0] == lat.MODULE:
                top = self.program.tops[atom[1]]
                if top is not None and name in self.program.functions[top].bound:
                    found = join(found, self.read("var", top, name))
            elif atom[0] == lat.ANY and not hasattr(builtins, name):
                found = join(found, UNKNOWN)
        return found

    def store(self, name: str, value: Value) -> None:
        function, program = self.function, self.program
        if self.own_targets:
            if self.env is not None:
                self.env[name] = value
        elif self.class_id is not None:
            self.write(value, "class", self.class_id, name)
        elif name in function.globals:
            self.write(value, "var", program.tops[function.module], name)
        elif name in function.nonlocals:
            outer = function.parent
            while outer is not None and name not in program.functions[outer].bound:
                outer = program.functions[outer].parent
            self.write(value, "var", outer, name)
        elif function.is_module:
            self.write(value, "var", function.id, name)
        elif self.env is not None:
            self.env[name] = value
            if name in function.captured:
                self.write(value, "var", function.id, name)
