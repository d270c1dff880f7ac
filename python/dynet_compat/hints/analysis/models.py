"""The abstract interpreter: Python's own functions, containers, and other modules."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional

from . import api
from . import lattice as lat
from .lattice import EMPTY, UNKNOWN, Atom, Value, join

if TYPE_CHECKING:
    from .interpreter import Analysis, CallContext
    from .scopes import Function


_SIZES = frozenset({"len", "isinstance", "issubclass", "type", "id", "range", "enumerate", "print"})


class BuiltinCalls:
    """What the classes built on this one add is declared, not defined, here."""

    an: Analysis
    unit: CallContext
    function: Function

    if TYPE_CHECKING:

        def eval(self, node: ast.expr) -> Value: ...
        def items(self, value: Value) -> Value: ...
        def put(self, atom: Atom, value: Value, key: Optional[str] = None) -> None: ...
        def _item(self, atom: Atom, key: Optional[str]) -> Value: ...
        def _all_of(self, value: Value) -> Value: ...
        def constant(self, value: Value) -> Optional[str]: ...
        def load_name(self, name: str, node: ast.AST) -> Value: ...
        def attribute_of(self, receiver: Value, name: str, node: ast.AST) -> Value: ...
        def new_object(
            self, form: str, node: ast.AST, values: Sequence[Value], exact: bool = False
        ) -> Value: ...
        def _instance_attribute(
            self, receiver: Atom, cls: int, name: str, node: ast.AST, own: bool = True
        ) -> Value: ...
        def apply(
            self,
            node: ast.AST,
            function: Value,
            arguments: Sequence[Value],
            keywords: dict[str, Value],
            star: Optional[Value] = None,
        ) -> Value: ...
        def escape(self, node: ast.AST, values: Sequence[Value]) -> None: ...

    def any_read(self, values: Sequence[Value]) -> bool:
        """Whether numbers of the graph are among the values, or in the lists among them."""
        for value in values:
            if lat.was_read(value):
                return True
            if any(a[0] == lat.OBJECT and lat.was_read(self._item(a, None)) for a in value):
                return True
        return False

    # ---- methods of containers and strings

    def container_call(self, node: ast.AST, receiver: Atom, name: str, args: Sequence[Value]) -> Value:
        """A method of a list, tuple, dict, set or iterator."""
        an = self.an
        an.note_target(node, ("method", f"object.{name}"))
        if name in api.MUTATORS and isinstance(node, ast.Call):
            old = an.facts.writes.get(node, EMPTY)
            an.facts.writes[node] = join(old, frozenset({receiver}))
        first = args[0] if args else EMPTY
        if name in ("append", "add", "appendleft"):
            self.put(receiver, first)
            return lat.NOTHING
        if name in ("extend", "extendleft"):
            self.put(receiver, self.items(first))
            return lat.NOTHING
        if name == "insert":
            self.put(receiver, args[1] if len(args) > 1 else EMPTY)
            return lat.NOTHING
        if name == "update":
            self.put(receiver, self._all_of(first))
            return lat.NOTHING
        if name in ("pop", "popleft"):
            return self._item(receiver, self.constant(first) if receiver[1][0] == "dict" else None)
        if name in ("get", "setdefault"):
            value = self._item(receiver, self.constant(first))
            for default in args[1:2]:
                value = join(value, default)
                if name == "setdefault":
                    self.put(receiver, default, self.constant(first))
            return value if name == "setdefault" or args[1:] else join(value, lat.NOTHING)
        if name == "items":
            keys = an.read(self.unit, "item", receiver[1], "keys")
            pair = self.new_object("tuple", node, [keys, self._item(receiver, None)], exact=True)
            return self.new_object("iter", node, [pair])
        if name == "values":
            return self.new_object("iter", node, [self._item(receiver, None)])
        if name == "keys":
            return self.new_object("iter", node, [an.read(self.unit, "item", receiver[1], "keys")])
        if name in ("copy", "union", "intersection", "difference"):
            return frozenset({receiver})
        if name in ("index", "count"):
            return lat.SOME_INT
        return lat.NOTHING if name in ("sort", "reverse", "clear", "remove", "discard") else UNKNOWN

    def string_call(self, node: ast.AST, name: str) -> Value:
        """A method of a text."""
        if name in ("split", "rsplit", "splitlines", "partition", "rpartition"):
            return self.new_object("list", node, [lat.SOME_STR])
        if name.startswith(("is", "starts", "ends")):
            return lat.SOME_BOOL
        return lat.SOME_INT if name in ("find", "rfind", "index", "count") else lat.SOME_STR

    # ---- functions of Python and of other modules

    def outside_call(self, node: ast.AST, name: str, args: Sequence[Value], kw: dict[str, Value]) -> Value:
        """A call of `module.function`, builtins among them."""
        self.an.note_target(node, ("ext", name))
        top, _, rest = name.partition(".")
        read = rest not in _SIZES and self.any_read(args)
        if top == "builtins":
            method = self._BUILTINS.get(rest)
            if method is not None:
                result: Value = method(self, node, args, kw)
                return join(result, lat.WAS_READ) if read and not lat.is_tensor(result) else result
            if rest in api.DYNAMIC_BUILTINS:
                return self._dynamic(node, rest, args)
        elif top == "collections" or rest in ("defaultdict", "OrderedDict", "Counter", "deque"):
            return self._collection(node, rest, args)
        elif top == "itertools":
            inner = UNKNOWN
            for value in args:
                inner = join(inner, self.items(value))
            return self.new_object("iter", node, [inner])
        self.escape(node, [*args, *kw.values()])
        if top == "builtins" and rest in api.PURE_BUILTINS and not read:
            return UNKNOWN
        return join(UNKNOWN, lat.WAS_READ) if read else UNKNOWN

    def _dynamic(self, node: ast.AST, name: str, args: Sequence[Value]) -> Value:
        key = args[1] if len(args) > 1 else EMPTY
        if name == "getattr" and args:
            constants = [atom[1] for atom in key if atom[0] == lat.STR]
            if constants and None not in constants:
                found = args[2] if len(args) > 2 else EMPTY
                for text in constants:
                    found = join(found, self.attribute_of(args[0], text, node))
                return found
        if name in ("eval", "exec", "compile", "__import__"):
            text = f"{name}() can do anything: no hints for this program"
            self.an.program.problem(node, text, "program")
        elif name in ("getattr", "setattr", "delattr"):
            text = f"{name}() with a computed name: no hints for this function"
            self.an.program.problem(node, text, "function")
        return UNKNOWN

    def _collection(self, node: ast.AST, name: str, args: Sequence[Value]) -> Value:
        if name == "defaultdict":
            value = self.apply(node, args[0], [], {}) if args else EMPTY
            return self.new_object("dict", node, [value])
        if name in ("deque", "Counter", "OrderedDict"):
            inner = self.items(args[0]) if args else EMPTY
            found = self.new_object("list" if name == "deque" else "dict", node, [inner])
            for atom in found:
                self.an.write(inner, "item", atom[1], "keys")
            return found
        return UNKNOWN

    def _as_list(self, node: ast.AST, args: Sequence[Value], kw: dict[str, Value]) -> Value:
        name = getattr(getattr(node, "func", None), "id", "list")
        form = name if name in ("tuple", "set") else ("iter" if name in ("iter", "reversed") else "list")
        inner = self.items(args[0]) if args else EMPTY
        if "key" in kw:
            self.apply(node, kw["key"], [inner], {})
        return self.new_object(form, node, [inner])

    def _as_dict(self, node: ast.AST, args: Sequence[Value], kw: dict[str, Value]) -> Value:
        found = self.new_object("dict", node, list(kw.values()))
        for atom in found:
            for name, value in kw.items():
                self.put(atom, value, name)
                self.an.write(lat.one(lat.STR, name), "item", atom[1], "keys")
            for value in args:
                if any(a[0] == lat.OBJECT and a[1][0] == "dict" for a in value):
                    self.put(atom, self._all_of(value))
                    self.an.write(self.items(value), "item", atom[1], "keys")
                else:  # pairs
                    for pair in self.items(value):
                        if pair[0] == lat.OBJECT:
                            self.an.write(self._item(pair, "0"), "item", atom[1], "keys")
                            self.put(atom, self._item(pair, "1"))
                        else:
                            self.put(atom, UNKNOWN)
        return found

    def _zip(self, node: ast.AST, args: Sequence[Value], kw: dict[str, Value]) -> Value:
        starred = any(isinstance(a, ast.Starred) for a in getattr(node, "args", []))
        if starred:
            inner = EMPTY
            for value in args:
                inner = join(inner, self.items(value))
            return self.new_object("iter", node, [self.new_object("tuple", node, [inner])])
        pair = self.new_object("tuple", node, [self.items(value) for value in args], exact=True)
        return self.new_object("iter", node, [pair])

    def _enumerate(self, node: ast.AST, args: Sequence[Value], kw: dict[str, Value]) -> Value:
        inner = self.items(args[0]) if args else EMPTY
        pair = self.new_object("tuple", node, [lat.SOME_INT, inner], exact=True)
        return self.new_object("iter", node, [pair])

    def _range(self, node: ast.AST, args: Sequence[Value], kw: dict[str, Value]) -> Value:
        return self.new_object("iter", node, [lat.SOME_INT])

    def _map(self, node: ast.AST, args: Sequence[Value], kw: dict[str, Value]) -> Value:
        inner = self.apply(node, args[0], [self.items(a) for a in args[1:]], {}) if args else EMPTY
        return self.new_object("iter", node, [inner])

    def _filter(self, node: ast.AST, args: Sequence[Value], kw: dict[str, Value]) -> Value:
        inner = self.items(args[1]) if len(args) > 1 else EMPTY
        if args:
            self.apply(node, args[0] - lat.NOTHING, [inner], {})
        return self.new_object("iter", node, [inner])

    def _sum(self, node: ast.AST, args: Sequence[Value], kw: dict[str, Value]) -> Value:
        inner = self.items(args[0]) if args else EMPTY
        for start in [*args[1:2], *kw.values()]:
            inner = join(inner, start)
        if lat.is_tensor(inner):
            where = node.args[0] if isinstance(node, ast.Call) and node.args else node
            return lat.one(lat.EXPR, self.an.note_op(node, "sum", [(where, inner)]))
        return inner if inner else lat.SOME_INT

    def _extreme(self, node: ast.AST, args: Sequence[Value], kw: dict[str, Value]) -> Value:
        if len(args) == 1:
            found = self.items(args[0])
        else:
            found = EMPTY
            for value in args:
                found = join(found, value)
        if "key" in kw:
            key = self.apply(node, kw["key"], [found], {})
            if lat.was_read(key):
                found = join(found, lat.WAS_READ)
        return join(found, kw.get("default", EMPTY))

    def _next(self, node: ast.AST, args: Sequence[Value], kw: dict[str, Value]) -> Value:
        found = self.items(args[0]) if args else EMPTY
        return join(found, args[1]) if len(args) > 1 else found

    def _abs(self, node: ast.AST, args: Sequence[Value], kw: dict[str, Value]) -> Value:
        tensor = bool(args) and lat.is_tensor(args[0])
        return UNKNOWN if tensor else lat.SOME_FLOAT

    def _integer(self, node: ast.AST, args: Sequence[Value], kw: dict[str, Value]) -> Value:
        return lat.SOME_INT

    def _float(self, node: ast.AST, args: Sequence[Value], kw: dict[str, Value]) -> Value:
        return lat.SOME_FLOAT

    def _truth(self, node: ast.AST, args: Sequence[Value], kw: dict[str, Value]) -> Value:
        return lat.SOME_BOOL

    def _text(self, node: ast.AST, args: Sequence[Value], kw: dict[str, Value]) -> Value:
        return lat.SOME_STR

    def _nothing(self, node: ast.AST, args: Sequence[Value], kw: dict[str, Value]) -> Value:
        return lat.NOTHING

    _BUILTINS: dict[str, Any] = {
        **dict.fromkeys(("list", "tuple", "set", "frozenset", "sorted", "reversed", "iter"), _as_list),
        **dict.fromkeys(("int", "len", "ord", "hash", "id"), _integer),
        **dict.fromkeys(("float", "round"), _float),
        **dict.fromkeys(("bool", "isinstance", "issubclass", "any", "all", "callable", "hasattr"), _truth),
        **dict.fromkeys(("str", "repr", "chr", "format", "input"), _text),
        **dict.fromkeys(("max", "min"), _extreme),
        "dict": _as_dict,
        "zip": _zip,
        "enumerate": _enumerate,
        "range": _range,
        "map": _map,
        "filter": _filter,
        "sum": _sum,
        "next": _next,
        "abs": _abs,
        "print": _nothing,
    }
