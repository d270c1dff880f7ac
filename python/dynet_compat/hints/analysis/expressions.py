"""What an expression is, by its form."""

from __future__ import annotations

import ast
from typing import Any

from . import lattice as lat
from .calls import Calls
from .containers import constant
from .frame import Frame
from .functions import Call
from .lattice import EMPTY, UNKNOWN, Atom, Value, join
from .scopes import COMPREHENSIONS

MAX_DEPTH = 80  # of expressions inside expressions
MAX_ELEMENTS = 64  # of a display whose elements are distinct
OPERATORS = {
    "Add": "add", "Sub": "sub", "Mult": "mul", "Div": "div", "Pow": "pow", "MatMult": "matmul",
    "FloorDiv": "div", "Mod": "mod",
}  # fmt: skip
_FORMS = {
    ast.Tuple: "tuple", ast.List: "list", ast.Set: "set",
    ast.ListComp: "list", ast.SetComp: "set", ast.DictComp: "dict", ast.GeneratorExp: "iter",
}  # fmt: skip
# Decorators after which a name still stands for the function.
_TRANSPARENT = frozenset("staticmethod classmethod property cached_property abstractmethod wraps".split())


class ExpressionVisitor:
    """The expressions of one visit."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.calls = Calls(frame)
        self.containers = self.calls.containers
        self.objects = self.calls.objects
        self._depth = 0

    def eval(self, node: ast.expr) -> Value:
        state = self.frame.state
        state.steps += 1
        self._depth += 1
        if self._depth > MAX_DEPTH:
            state.program.problem(node, "an expression nested too deeply")
            state.stop("an expression nested too deeply")
            value = UNKNOWN
        else:
            method = self._METHODS.get(type(node))
            value = UNKNOWN if method is None else method(self, node)
            state.facts.note_value(node, value)
        self._depth -= 1
        return value

    def eval_all(self, *nodes: Any) -> Value:
        """The join of several; None is left out."""
        found = EMPTY
        for node in nodes:
            if node is not None:
                found = join(found, self.eval(node))
        return found

    # ---- assignments

    def assign(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.frame.store(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target, value)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, value)
        elif isinstance(target, ast.Attribute):
            receiver = self.eval(target.value)
            self.frame.facts.note_write(target, receiver)
            for atom in receiver:
                if atom[0] == lat.INSTANCE:
                    self.frame.write(value, "attr", atom[1], target.attr)
                elif atom[0] == lat.CLASS:
                    self.frame.write(value, "class", atom[1], target.attr)
                elif atom[0] == lat.MODULE:
                    self.frame.write(value, "var", self.frame.program.tops[atom[1]], target.attr)
        elif isinstance(target, ast.Subscript):
            receiver, key = self.eval(target.value), self.eval(target.slice)
            self.frame.facts.note_write(target, receiver)
            for atom in receiver:
                if atom[0] == lat.OBJECT:
                    self.containers.put(atom, value, constant(key))
                    self.containers.put_key(atom, key)

    def _unpack(self, target: Any, value: Value) -> None:
        starred = any(isinstance(element, ast.Starred) for element in target.elts)
        for index, element in enumerate(target.elts):
            if isinstance(element, ast.Starred):
                rest = self.containers.new("list", element, [self.objects.items(value)])
                self.assign(element.value, rest)
            else:
                part = self.objects.items(value) if starred else self.objects.part(value, index)
                self.assign(element, part)

    # ---- constants, names, attributes, items

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
        return lat.SOME_FLOAT

    def _subscript(self, node: Any) -> Value:
        receiver = self.eval(node.value)
        at = node.slice
        index = self.eval_all(at.lower, at.upper, at.step) if isinstance(at, ast.Slice) else self.eval(at)
        found = EMPTY
        for atom in receiver:
            found = join(found, self._item(node, atom, index))
        if lat.was_read(index) and not lat.is_tensor(found):
            found = join(found, lat.WAS_READ)
        return found

    def _item(self, node: Any, atom: Atom, index: Value) -> Value:
        tag = atom[0]
        if tag in (lat.LOOKUP, lat.EXPR, lat.PARAM):
            pick = "pick_range" if isinstance(node.slice, ast.Slice) else "pick"
            self.frame.facts.note_op(node, "lookup" if tag == lat.LOOKUP else pick)
            return lat.SOME_EXPR
        if tag == lat.OBJECT:
            is_slice = isinstance(node.slice, ast.Slice)
            return frozenset({atom}) if is_slice else self.containers.get(atom, constant(index))
        if tag == lat.INSTANCE:
            method = self.objects.of_instance(atom, atom[1], "__getitem__", node)
            return self.calls.apply(method, Call(node, [index]))
        if tag in (lat.STR, lat.READ):
            return lat.SOME_STR if tag == lat.STR else lat.WAS_READ
        return UNKNOWN

    # ---- operators

    def _binary(self, node: Any) -> Value:
        chain = []  # a + b + c + ... leans to the left: a loop, no recursion
        while isinstance(node, ast.BinOp):
            chain.append(node)
            node = node.left
        value = self.eval(node)
        for at in reversed(chain):
            self.frame.state.steps += 1
            value = self.binary(at, at.op, value, self.eval(at.right))
            self.frame.facts.note_value(at, value)
        return value

    def binary(self, node: ast.AST, op: ast.operator, a: Value, b: Value) -> Value:
        """`a op b`, written at a node."""
        found = EMPTY
        tensors = [value for value in (a, b) if lat.is_tensor(value)]
        if tensors:
            self.frame.facts.note_op(node, OPERATORS.get(type(op).__name__, "op"))
            found = lat.SOME_EXPR
            if all(lat.is_pure_tensor(value) for value in tensors):
                return found
        both = lat.tags(a) | lat.tags(b)
        if lat.READ in both:
            found = join(found, lat.WAS_READ)
        if lat.OBJECT in both:
            items = [self.objects.items(frozenset(x for x in v if x[0] == lat.OBJECT)) for v in (a, b)]
            found = join(found, self.containers.new("list", node, items))
        if both & {lat.ANY, lat.INSTANCE, lat.EXT, lat.BOUND}:
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
            self.frame.facts.note_op(node, "neg")
            return lat.SOME_EXPR
        if isinstance(node.op, ast.USub) and len(value) == 1:
            (atom,) = value
            if atom[0] == lat.INT and atom[1] is not None:
                return lat.one(lat.INT, -atom[1])
        if isinstance(node.op, ast.Not):
            return join(lat.SOME_BOOL, frozenset({(lat.READ,)} & value))
        return frozenset((lat.INT, None) if a[0] == lat.INT else a for a in value)

    def _compare(self, node: Any) -> Value:
        found = self.eval_all(node.left, *node.comparators)
        return join(lat.SOME_BOOL, lat.WAS_READ) if lat.was_read(found) else lat.SOME_BOOL

    def _if_exp(self, node: Any) -> Value:
        self.eval(node.test)
        return self.eval_all(node.body, node.orelse)

    # ---- containers

    def _display(self, node: Any) -> Value:
        """A list, tuple or set."""
        form = _FORMS[type(node)]
        if len(node.elts) > MAX_ELEMENTS:  # a table of data
            return self.containers.new(form, node, [self.eval_all(*node.elts)])
        values = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                values.append(self.objects.items(self.eval(element.value)))
            else:
                values.append(self.eval(element))
        exact = not any(isinstance(element, ast.Starred) for element in node.elts)
        return self.containers.new(form, node, values, exact)

    def _dict(self, node: Any) -> Value:
        found = self.containers.new("dict", node, [])
        (atom,) = found
        for k, v in zip(node.keys, node.values):
            value = self.eval(v)
            if k is None:
                self.containers.put(atom, self.containers.all_of(value))
                continue
            name = self.eval(k)
            self.containers.put_key(atom, name)
            self.containers.put(atom, value, constant(name))
        return found

    def _comprehension(self, node: Any) -> Value:
        saved = self.frame.copy_env()
        for generator in node.generators:
            items = self.objects.items(self.eval(generator.iter))
            self.frame.own_targets += 1
            self.assign(generator.target, items)
            self.frame.own_targets -= 1
            self.eval_all(*generator.ifs)
        if isinstance(node, ast.DictComp):
            keys, value = self.eval(node.key), self.eval(node.value)
            found = self.containers.new("dict", node, [value])
            for atom in found:
                self.containers.put_key(atom, keys)
        else:
            found = self.containers.new(_FORMS[type(node)], node, [self.eval(node.elt)])
        self.frame.env = saved
        return found

    # ---- functions and calls

    def function_value(self, node: Any) -> Value:
        """A function that is defined here; decorators may make anything of it."""
        program = self.frame.program
        function = program.functions[program.function_of[node]]
        a = function.node.args  # type: ignore[union-attr]
        named = a.posonlyargs + a.args
        pairs = list(zip(named[len(named) - len(a.defaults) :], a.defaults))
        pairs += [(k, d) for k, d in zip(a.kwonlyargs, a.kw_defaults) if d is not None]
        for argument, default in pairs:
            self.frame.write(self.eval(default), "default", function.id, argument.arg)
        value = lat.one(lat.FUNC, function.id)
        for decorator in function.decorators:
            self.eval(decorator)
            if getattr(decorator, "id", getattr(decorator, "attr", "")) not in _TRANSPARENT:
                value = join(value, UNKNOWN)
        return value

    def _call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            return self._super()
        function = self.eval(node.func)
        arguments: list[Value] = []
        star = None
        for argument in node.args:
            value = self.eval(argument)  # of a starred one: the items
            if star is None and not isinstance(argument, ast.Starred):
                arguments.append(value)
            else:
                star = value if star is None else join(star, value)
        keywords = {keyword.arg or "**": self.eval(keyword.value) for keyword in node.keywords}
        return self.calls.apply(function, Call(node, arguments, keywords, star))

    def _super(self) -> Value:
        cls, names = self.frame.function.cls, self.frame.function.positional()
        if cls is None or not names:
            return UNKNOWN
        objects = (atom for atom in self.frame.load(names[0]) if atom[0] == lat.INSTANCE)
        return frozenset((lat.SUPER, cls, atom) for atom in objects)

    def _yield(self, node: Any) -> Value:
        value = lat.NOTHING if node.value is None else self.eval(node.value)
        if isinstance(node, ast.YieldFrom):
            value = self.objects.items(value)
        self.frame.state.heap.change(self.frame.context.yielded, value)
        return UNKNOWN

    # ---- the rest

    def _named(self, node: Any) -> Value:
        value = self.eval(node.value)
        self.assign(node.target, value)
        return value

    def _text(self, node: Any) -> Value:
        self.eval_all(*(part.value for part in node.values if isinstance(part, ast.FormattedValue)))
        return lat.SOME_STR

    def _await(self, node: Any) -> Value:
        self.eval(node.value)
        return UNKNOWN

    def _slice(self, node: Any) -> Value:
        self.eval_all(node.lower, node.upper, node.step)
        return lat.SOME_INT

    _METHODS: dict[type, Any] = {
        ast.Constant: _constant,
        ast.Name: lambda self, node: self.frame.load(node.id),
        ast.Attribute: lambda self, node: self.objects.attribute(self.eval(node.value), node.attr, node),
        ast.Subscript: _subscript,
        ast.BinOp: _binary,
        ast.UnaryOp: _unary,
        ast.BoolOp: lambda self, node: self.eval_all(*node.values),
        ast.Compare: _compare,
        ast.IfExp: _if_exp,
        **dict.fromkeys((ast.Tuple, ast.List, ast.Set), _display),
        ast.Dict: _dict,
        **dict.fromkeys(COMPREHENSIONS, _comprehension),
        ast.NamedExpr: _named,
        ast.Lambda: function_value,
        ast.Yield: _yield,
        ast.YieldFrom: _yield,
        ast.JoinedStr: _text,
        ast.Starred: lambda self, node: self.objects.items(self.eval(node.value)),
        ast.Await: _await,
        ast.Slice: _slice,
        ast.Call: _call,
    }
