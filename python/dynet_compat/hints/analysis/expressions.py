"""The abstract interpreter, expression by expression."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from typing import Any, Optional

from . import api
from . import lattice as lat
from .calls import Calls
from .interpreter import Analysis, CallContext, is_property
from .lattice import EMPTY, UNKNOWN, Atom, Value, join
from .scopes import COMPREHENSIONS

Env = dict[str, Value]
MAX_DEPTH = 80  # of expressions inside expressions
OPERATORS = {
    "Add": "add", "Sub": "sub", "Mult": "mul", "Div": "div", "Pow": "pow", "MatMult": "matmul",
    "FloorDiv": "div", "Mod": "mod",
}  # fmt: skip


def join_envs(envs: Sequence[Optional[Env]]) -> Optional[Env]:
    """Names after branches that met again; None: none of them goes on."""
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


class Expressions(Calls):
    """Expressions of one unit."""

    def __init__(self, analysis: Analysis, unit: CallContext) -> None:
        self.an = analysis
        self.unit = unit
        self.function = analysis.program.functions[unit.function]
        self.env: Optional[Env] = {}
        self.class_id: Optional[int] = None
        self.nesting = 0
        self.depth = 0
        self.own_targets = 0  # inside the targets of a comprehension
        self.breaks: list[list[Optional[Env]]] = []
        self.continues: list[list[Optional[Env]]] = []

    def copy_env(self) -> Optional[Env]:
        return None if self.env is None else dict(self.env)

    # ---- names

    def load_name(self, name: str, node: ast.AST) -> Value:
        function, an = self.function, self.an
        if self.env is not None and name in self.env:
            value = self.env[name]
            if name in function.rebound:
                value = join(value, an.read(self.unit, "var", function.id, name))
            return value
        if self.class_id is not None and ("class", self.class_id, name) in an.cells:
            return an.read(self.unit, "class", self.class_id, name)
        if function.is_module or name not in function.bound:
            return self._outer_name(name)
        return EMPTY

    def _outer_name(self, name: str) -> Value:
        an, program = self.an, self.an.program
        at: Optional[int] = self.function.id if self.function.is_module else self.function.parent
        if name in self.function.globals:
            at = program.tops[self.function.module]
        while at is not None:
            if name in program.functions[at].bound:
                return an.read(self.unit, "var", at, name)
            at = program.functions[at].parent
        return self._starred(name, self.function.module)

    def _starred(self, name: str, module: int) -> Value:
        found = EMPTY
        for atom in self.an.read(self.unit, "star", module):
            if atom[0] == lat.DYNET and (name in api.EXPRESSION_FUNCTIONS or self.dynet_class(name)):
                found = join(found, self.dynet_name(name))
            elif atom[0] == lat.MODULE:
                top = self.an.program.tops[atom[1]]
                if top is not None and name in self.an.program.functions[top].bound:
                    found = join(found, self.an.read(self.unit, "var", top, name))
            elif atom[0] == lat.ANY and not hasattr(builtins, name):
                found = join(found, UNKNOWN)
        if found:
            return found
        if name in ("__name__", "__file__"):
            return lat.SOME_STR
        return lat.one(lat.EXT, "builtins." + name) if hasattr(builtins, name) else UNKNOWN

    def store_name(self, name: str, value: Value) -> None:
        an, function = self.an, self.function
        if self.own_targets:
            if self.env is not None:
                self.env[name] = value
        elif self.class_id is not None:
            an.write(value, "class", self.class_id, name)
        elif name in function.globals:
            an.write(value, "var", an.program.tops[function.module], name)
        elif name in function.nonlocals:
            outer = function.parent
            while outer is not None and name not in an.program.functions[outer].bound:
                outer = an.program.functions[outer].parent
            an.write(value, "var", outer, name)
        elif function.is_module:
            an.write(value, "var", function.id, name)
        elif self.env is not None:
            self.env[name] = value
            if name in function.captured:
                an.write(value, "var", function.id, name)

    def assign(self, target: ast.expr, value: Value) -> None:
        an = self.an
        if isinstance(target, ast.Name):
            self.store_name(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            starred = any(isinstance(element, ast.Starred) for element in target.elts)
            for index, element in enumerate(target.elts):
                if isinstance(element, ast.Starred):
                    rest = self.new_object("list", element, [self.items(value)])
                    self.assign(element.value, rest)
                else:
                    self.assign(element, self.items(value) if starred else self.part(value, index))
        elif isinstance(target, ast.Attribute):
            receiver = self.eval(target.value)
            an.facts.writes[target] = join(an.facts.writes.get(target, EMPTY), receiver)
            for atom in receiver:
                if atom[0] == lat.INSTANCE:
                    an.write(value, "attr", atom[1], target.attr)
                elif atom[0] == lat.CLASS:
                    an.write(value, "class", atom[1], target.attr)
                elif atom[0] == lat.MODULE:
                    an.write(value, "var", an.program.tops[atom[1]], target.attr)
        elif isinstance(target, ast.Subscript):
            receiver = self.eval(target.value)
            key = self.eval(target.slice)
            an.facts.writes[target] = join(an.facts.writes.get(target, EMPTY), receiver)
            for atom in receiver:
                if atom[0] == lat.OBJECT:
                    self.put(atom, value, self.constant(key))
                    an.write(key, "item", atom[1], "keys")
        elif isinstance(target, ast.Starred):
            self.assign(target.value, value)

    # ---- containers

    def new_object(self, form: str, node: ast.AST, values: Sequence[Value], exact: bool = False) -> Value:
        """A container made at a node. `exact`: the values are its items one by one."""
        key = (form, self.an.program.uid[node], self.unit.context)
        atom: Atom = (lat.OBJECT, key)
        for index, value in enumerate(values):
            self.put(atom, value, str(index) if exact else None)
        return frozenset({atom})

    def put(self, atom: Atom, value: Value, key: Optional[str] = None) -> None:
        self.an.write(value, "item", atom[1], "+")
        self.an.write(value, "item", atom[1], "*" if key is None else "=" + key)

    def part(self, value: Value, index: int) -> Value:
        """Item of a value that is unpacked."""
        found = EMPTY
        for atom in value:
            if atom[0] == lat.OBJECT and atom[1][0] == "tuple":
                found = join(found, self._item(atom, str(index)))
            else:
                found = join(found, self.keyed(self.items(frozenset({atom})), str(index)))
        return found

    def _item(self, atom: Atom, key: Optional[str]) -> Value:
        form = atom[1][0]
        if key is None or form not in ("tuple", "dict"):
            return self.keyed(self.an.read(self.unit, "item", atom[1], "+"), key)
        found = join(
            self.an.read(self.unit, "item", atom[1], "=" + key), self.an.read(self.unit, "item", atom[1], "*")
        )
        return found if form == "tuple" else self.keyed(found, key)

    def keyed(self, value: Value, key: Optional[str]) -> Value:
        """Parameters that one call made in a loop, told apart by their place in a table."""
        if key is None or not any(a[0] == lat.PARAM and a[2] is None for a in value):
            return value
        p = self.an.program

        def told_apart(atom: Atom) -> Atom:
            many = atom[0] == lat.PARAM and atom[2] is None and p.loops_around[p.nodes[atom[1]]]
            return (lat.PARAM, atom[1], key) if many else atom

        return frozenset(told_apart(atom) for atom in value)

    def constant(self, value: Value) -> Optional[str]:
        """The text of a single constant, as a key of tables."""
        if len(value) == 1:
            (atom,) = value
            if atom[0] in (lat.INT, lat.STR) and atom[1] is not None:
                return str(atom[1])
        return None

    def items(self, value: Value) -> Value:
        """What iterating over a value gives."""
        found = EMPTY
        for atom in value:
            if atom[0] == lat.OBJECT:
                field = "keys" if atom[1][0] == "dict" else "+"
                found = join(found, self.an.read(self.unit, "item", atom[1], field))
            elif atom[0] == lat.STR:
                text = atom[1]
                short = text is not None and len(text) <= lat.MAX_CONSTANTS
                found = join(found, frozenset((lat.STR, c) for c in text) if short else lat.SOME_STR)
            elif atom[0] in (lat.READ,):
                found = join(found, lat.WAS_READ)
            elif atom[0] in (lat.EXPR, lat.PARAM):
                found = join(found, lat.SOME_EXPR)
            elif atom[0] == lat.INSTANCE:
                found = join(found, self.items_of_instance(atom))
            elif atom[0] not in (lat.INT, lat.FLOAT, lat.BOOL, lat.NONE):
                found = join(found, UNKNOWN)
        return found

    # ---- expressions

    def eval(self, node: ast.expr) -> Value:
        an = self.an
        an.steps += 1
        self.depth += 1
        if self.depth > MAX_DEPTH:
            an.program.problem(node, "an expression nested too deeply")
            an.stop("an expression nested too deeply")
            value = UNKNOWN
        else:
            method = self._EXPRESSIONS.get(type(node))
            value = UNKNOWN if method is None else method(self, node)
            an.note_value(node, value, self.unit)
        self.depth -= 1
        return value

    def _constant(self, node: Any) -> Value:
        value = node.value
        if value is None:
            return lat.NOTHING
        if isinstance(value, bool):
            return lat.SOME_BOOL
        if isinstance(value, int):
            return lat.one(lat.INT, value if -1000 <= value <= 1000 else None)
        if isinstance(value, str):
            return lat.one(lat.STR, value if len(value) <= 40 else None)
        return lat.SOME_FLOAT if isinstance(value, float) else lat.one(lat.FLOAT)

    def _name(self, node: Any) -> Value:
        return self.load_name(node.id, node)

    def _attribute(self, node: Any) -> Value:
        return self.attribute_of(self.eval(node.value), node.attr, node)

    def attribute_of(self, receiver: Value, name: str, node: ast.AST) -> Value:
        found = EMPTY
        for atom in receiver:
            found = join(found, self._attribute_of_atom(atom, name, node))
        return found

    def _attribute_of_atom(self, atom: Atom, name: str, node: ast.AST) -> Value:
        an, tag = self.an, atom[0]
        if tag == lat.INSTANCE:
            return self._instance_attribute(atom, atom[1], name, node)
        if tag == lat.SUPER:
            found = EMPTY
            for base in an.bases.get(atom[1], ()):
                found = join(found, self._instance_attribute(atom[2], base, name, node, own=False))
            return found if found or atom[1] not in an.foreign else UNKNOWN
        if tag == lat.CLASS:
            found = EMPTY
            for cls in an.lookup(atom[1], name)[0][:1]:
                found = join(found, an.read(self.unit, "class", cls, name))
            return found if found or atom[1] not in an.foreign else UNKNOWN
        if tag == lat.MODULE:
            top = an.program.tops[atom[1]]
            if top is None:
                return UNKNOWN
            if name in an.program.functions[top].bound:
                return an.read(self.unit, "var", top, name)
            inner = an.program.loaded.module(f"{an.program.sources[atom[1]].name}.{name}")
            return UNKNOWN if inner is None else lat.one(lat.MODULE, inner)
        if tag == lat.EXT:
            return lat.one(lat.EXT, f"{atom[1]}.{name}") if len(atom[1]) < 200 else UNKNOWN
        if tag == lat.DYNET:
            return self.dynet_name(name)
        if tag in (lat.ANY, lat.FUNC, lat.METHOD, lat.DYNAME, lat.BOUND):
            return UNKNOWN
        return lat.one(lat.BOUND, atom, name)

    def _instance_attribute(
        self, receiver: Atom, cls: int, name: str, node: ast.AST, own: bool = True
    ) -> Value:
        """Attribute of an object: its own, and what its class has, functions bound to it."""
        an = self.an
        found = an.read(self.unit, "attr", cls, name) if own else EMPTY
        classes, foreign = an.lookup(cls, name)
        for at in classes[:1]:
            for atom in an.read(self.unit, "class", at, name):
                if atom[0] != lat.FUNC:
                    found = join(found, frozenset({atom}))
                    continue
                function = an.program.functions[atom[1]]
                if is_property(function):
                    value = self.call_function(node, atom[1], [frozenset({receiver})], {})
                    found = join(found, value)
                else:
                    found = join(found, lat.one(lat.METHOD, atom[1], receiver))
        for base in an.bases.get(cls, ()) if own else ():  # set by methods that were called on the base
            found = join(found, an.read(self.unit, "attr", base, name))
        if not found and (foreign or cls in an.foreign):
            return UNKNOWN
        return found

    def _subscript(self, node: Any) -> Value:
        receiver = self.eval(node.value)
        index = EMPTY if isinstance(node.slice, ast.Slice) else self.eval(node.slice)
        if isinstance(node.slice, ast.Slice):
            for part in (node.slice.lower, node.slice.upper, node.slice.step):
                if part is not None:
                    index = join(index, self.eval(part))
        found = EMPTY
        for atom in receiver:
            found = join(found, self._subscript_atom(node, atom, index))
        if lat.was_read(index) and not lat.is_tensor(found):
            found = join(found, lat.WAS_READ)
        return found

    def _subscript_atom(self, node: Any, atom: Atom, index: Value) -> Value:
        tag = atom[0]
        if tag == lat.LOOKUP:
            return lat.one(lat.EXPR, self.an.note_op(node, "lookup", [(node.value, frozenset({atom}))]))
        if tag in (lat.EXPR, lat.PARAM):
            name = "pick_range" if isinstance(node.slice, ast.Slice) else "pick"
            return lat.one(lat.EXPR, self.an.note_op(node, name, [(node.value, frozenset({atom}))]))
        if tag == lat.OBJECT:
            if isinstance(node.slice, ast.Slice):
                return frozenset({atom})
            return self._item(atom, self.constant(index))
        if tag == lat.INSTANCE:
            method = self._instance_attribute(atom, atom[1], "__getitem__", node)
            return self.apply(node, method, [index], {})
        if tag in (lat.STR, lat.READ):
            return lat.SOME_STR if tag == lat.STR else lat.WAS_READ
        return UNKNOWN

    def _binary(self, node: Any) -> Value:
        chain = []  # a + b + c + ... leans to the left: walked, not descended into
        while isinstance(node, ast.BinOp):
            chain.append(node)
            node = node.left
        value = self.eval(node)
        for at in reversed(chain):
            self.an.steps += 1
            value = self.binary(at, at.op, at.left, value, at.right, self.eval(at.right))
            self.an.note_value(at, value, self.unit)
        return value

    def binary(
        self, node: ast.AST, op: ast.operator, left: ast.AST, a: Value, right: ast.AST, b: Value
    ) -> Value:
        tensors = [(where, v) for where, v in ((left, a), (right, b)) if lat.is_tensor(v)]
        found = EMPTY
        if tensors:
            name = OPERATORS.get(type(op).__name__, "op")
            found = lat.one(lat.EXPR, self.an.note_op(node, name, tensors))
            if all(lat.is_pure_tensor(v) for _, v in tensors):
                return found
        both = lat.tags(a) | lat.tags(b)
        if lat.READ in both:
            found = join(found, lat.WAS_READ)
        if lat.OBJECT in both:
            items = [self.items(frozenset(x for x in v if x[0] == lat.OBJECT)) for v in (a, b)]
            found = join(found, self.new_object("list", node, items))
        if lat.ANY in both or lat.INSTANCE in both or lat.EXT in both or lat.BOUND in both:
            found = join(found, UNKNOWN)
        if lat.STR in both:
            found = join(found, lat.SOME_STR)
        if lat.FLOAT in both or isinstance(op, ast.Div):
            found = join(found, lat.SOME_FLOAT)
        elif both & {lat.INT, lat.BOOL}:
            found = join(found, lat.SOME_INT)
        return found

    def _unary(self, node: Any) -> Value:
        value = self.eval(node.operand)
        if isinstance(node.op, ast.USub) and lat.is_tensor(value):
            return lat.one(lat.EXPR, self.an.note_op(node, "neg", [(node.operand, value)]))
        if isinstance(node.op, ast.USub) and len(value) == 1:
            (atom,) = value
            if atom[0] == lat.INT and atom[1] is not None:
                return lat.one(lat.INT, -atom[1])
        if isinstance(node.op, ast.Not):
            return join(lat.SOME_BOOL, frozenset({(lat.READ,)} & value))
        return frozenset((lat.INT, None) if a[0] == lat.INT else a for a in value)

    def _bool(self, node: Any) -> Value:
        found = EMPTY
        for part in node.values:
            found = join(found, self.eval(part))
        return found

    def _compare(self, node: Any) -> Value:
        found = join(EMPTY, self.eval(node.left))
        for part in node.comparators:
            found = join(found, self.eval(part))
        return join(lat.SOME_BOOL, lat.WAS_READ) if lat.was_read(found) else lat.SOME_BOOL

    def _if_exp(self, node: Any) -> Value:
        self.eval(node.test)
        return join(self.eval(node.body), self.eval(node.orelse))

    def _sequence(self, node: Any) -> Value:
        form = {ast.Tuple: "tuple", ast.List: "list", ast.Set: "set"}[type(node)]
        exact = not any(isinstance(element, ast.Starred) for element in node.elts)
        if len(node.elts) > 64:  # a table of data
            found = EMPTY
            for element in node.elts:
                found = join(found, self.eval(element))
            return self.new_object(form, node, [found])
        values = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                values.append(self.items(self.eval(element.value)))
            else:
                values.append(self.eval(element))
        return self.new_object(form, node, values, exact)

    def _dict(self, node: Any) -> Value:
        key = ("dict", self.an.program.uid[node], self.unit.context)
        atom: Atom = (lat.OBJECT, key)
        for k, v in zip(node.keys, node.values):
            value = self.eval(v)
            if k is None:
                self.put(atom, self._all_of(value))
                continue
            name = self.eval(k)
            self.an.write(name, "item", key, "keys")
            self.put(atom, value, self.constant(name))
        return frozenset({atom})

    def _all_of(self, value: Value) -> Value:
        found = EMPTY
        for atom in value:
            inner = self.an.read(self.unit, "item", atom[1], "+") if atom[0] == lat.OBJECT else UNKNOWN
            found = join(found, inner)
        return found

    def _comprehension(self, node: Any) -> Value:
        saved = None if self.env is None else dict(self.env)
        for generator in node.generators:
            items = self.items(self.eval(generator.iter))
            self.own_targets += 1
            self.assign(generator.target, items)
            self.own_targets -= 1
            for test in generator.ifs:
                self.eval(test)
        form = {ast.ListComp: "list", ast.SetComp: "set", ast.DictComp: "dict"}.get(type(node), "iter")
        if isinstance(node, ast.DictComp):
            keys, value = self.eval(node.key), self.eval(node.value)
            found = self.new_object(form, node, [value])
            for atom in found:
                self.an.write(keys, "item", atom[1], "keys")
        else:
            found = self.new_object(form, node, [self.eval(node.elt)])
        self.env = saved
        return found

    def _named(self, node: Any) -> Value:
        value = self.eval(node.value)
        self.assign(node.target, value)
        return value

    def _lambda(self, node: Any) -> Value:
        return self.function_value(node)

    def function_value(self, node: Any) -> Value:
        """A function that is defined here; decorators may make anything of it."""
        function = self.an.program.functions[self.an.program.function_of[node]]
        a = function.node.args  # type: ignore[union-attr]
        named = a.posonlyargs + a.args
        pairs = list(zip(named[len(named) - len(a.defaults) :], a.defaults))
        pairs += [(k, d) for k, d in zip(a.kwonlyargs, a.kw_defaults) if d is not None]
        for argument, default in pairs:
            self.an.write(self.eval(default), "default", function.id, argument.arg)
        plain = {"staticmethod", "classmethod", "property", "cached_property", "abstractmethod", "wraps"}
        value = lat.one(lat.FUNC, function.id)
        for decorator in function.decorators:
            name = getattr(decorator, "id", getattr(decorator, "attr", ""))
            self.eval(decorator)
            if name not in plain:
                value = join(value, UNKNOWN)
        return value

    def _yield(self, node: Any) -> Value:
        value = lat.NOTHING if node.value is None else self.eval(node.value)
        self.an.change(self.unit.yielded, value)
        return UNKNOWN

    def _yield_from(self, node: Any) -> Value:
        self.an.change(self.unit.yielded, self.items(self.eval(node.value)))
        return UNKNOWN

    def _string(self, node: Any) -> Value:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.eval(part.value)
        return lat.SOME_STR

    def _starred_value(self, node: Any) -> Value:
        return self.items(self.eval(node.value))

    def _await(self, node: Any) -> Value:
        self.eval(node.value)
        return UNKNOWN

    def _slice(self, node: Any) -> Value:
        for part in (node.lower, node.upper, node.step):
            if part is not None:
                self.eval(part)
        return lat.SOME_INT

    _EXPRESSIONS: dict[type, Any] = {
        ast.Constant: _constant,
        ast.Name: _name,
        ast.Attribute: _attribute,
        ast.Subscript: _subscript,
        ast.BinOp: _binary,
        ast.UnaryOp: _unary,
        ast.BoolOp: _bool,
        ast.Compare: _compare,
        ast.IfExp: _if_exp,
        ast.Tuple: _sequence,
        ast.List: _sequence,
        ast.Set: _sequence,
        ast.Dict: _dict,
        **dict.fromkeys(COMPREHENSIONS, _comprehension),
        ast.NamedExpr: _named,
        ast.Lambda: _lambda,
        ast.Yield: _yield,
        ast.YieldFrom: _yield_from,
        ast.JoinedStr: _string,
        ast.Starred: _starred_value,
        ast.Await: _await,
        ast.Slice: _slice,
        ast.Call: Calls.call,
    }
