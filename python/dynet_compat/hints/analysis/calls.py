"""The abstract interpreter: what calling something gives."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional

from . import api
from . import lattice as lat
from .interpreter import is_class_method, is_static
from .lattice import EMPTY, UNKNOWN, Atom, Value, join
from .models import BuiltinCalls

if TYPE_CHECKING:
    from .interpreter import CallContext


class Calls(BuiltinCalls):
    """Calls of one unit."""

    def call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            return self._super(node)
        function = self.eval(node.func)
        arguments: list[Value] = []
        self.star: Optional[Value] = None
        star: Optional[Value] = None
        for argument in node.args:
            value = self.eval(argument)  # of a starred one: the items
            if isinstance(argument, ast.Starred):
                star = value if star is None else join(star, value)
            elif star is None:
                arguments.append(value)
            else:
                star = join(star, value)
        keywords: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.eval(keyword.value)
            keywords[keyword.arg or "**"] = value
        return self.apply(node, function, arguments, keywords, star)

    def apply(
        self,
        node: ast.AST,
        function: Value,
        arguments: Sequence[Value],
        keywords: dict[str, Value],
        star: Optional[Value] = None,
    ) -> Value:
        """Join of what the call gives for everything the function may be."""
        found = EMPTY
        for atom in function:
            found = join(found, self._apply_atom(node, atom, arguments, keywords, star))
        return found

    def _apply_atom(
        self, node: ast.AST, atom: Atom, args: Sequence[Value], kw: dict[str, Value], star: Optional[Value]
    ) -> Value:
        tag = atom[0]
        if tag == lat.FUNC:
            return self.call_function(node, atom[1], args, kw, star)
        if tag == lat.METHOD:
            function = self.an.program.functions[atom[1]]
            receiver = frozenset({atom[2]})
            if is_static(function):
                return self.call_function(node, atom[1], args, kw, star)
            if is_class_method(function) and atom[2][0] == lat.INSTANCE:
                receiver = lat.one(lat.CLASS, atom[2][1])
            return self.call_function(node, atom[1], [receiver, *args], kw, star)
        if tag == lat.CLASS:
            return self._make(node, atom[1], args, kw, star)
        if tag == lat.INSTANCE:
            method = self._instance_attribute(atom, atom[1], "__call__", node)
            if any(a[0] == lat.METHOD for a in method):
                return self.apply(node, method, args, kw, star)
        if star is not None:
            args = [*args, star]
        if tag == lat.DYNAME:
            return self.dynet_call(node, atom[1], args, kw)
        if tag == lat.BOUND:
            return self.method_call(node, atom[1], atom[2], args, kw)
        if tag == lat.EXT:
            return self.outside_call(node, atom[1], args, kw)
        if tag in (lat.EXPR, lat.STATE, lat.NONE, lat.INT, lat.STR, lat.OBJECT, lat.PARAM):
            return EMPTY  # it raises
        self.an.note_target(node, ("?", "something unknown"))
        self.escape(node, [*args, *kw.values()])
        return join(UNKNOWN, lat.WAS_READ) if self.any_read(args) else UNKNOWN

    def _super(self, node: ast.Call) -> Value:
        cls = self.function.cls
        names = self.function.positional()
        if cls is None or not names:
            return UNKNOWN
        found = EMPTY
        for atom in self.load_name(names[0], node):
            if atom[0] == lat.INSTANCE:
                found = join(found, lat.one(lat.SUPER, cls, atom))
        return found

    # ---- the script's own functions

    def call_function(
        self,
        node: ast.AST,
        function_id: int,
        arguments: Sequence[Value],
        keywords: dict[str, Value],
        star: Optional[Value] = None,
    ) -> Value:
        an = self.an
        function = an.program.functions[function_id]
        unit = an.unit(function_id, an.program.uid[node])
        an.note_target(node, ("func", function_id))
        self._bind(unit, arguments, keywords, star)
        if function.is_async:
            return UNKNOWN
        if function.generator:
            unit.yielded.readers.add(self.unit)
            key = ("iter", an.program.uid[function.node], unit.context)
            atom: Atom = (lat.OBJECT, key)
            self.put(atom, unit.yielded.value)
            return frozenset({atom})
        unit.returned.readers.add(self.unit)
        return unit.returned.value

    def _bind(
        self, unit: CallContext, arguments: Sequence[Value], keywords: dict[str, Value], star: Optional[Value]
    ) -> None:
        an = self.an
        function = an.program.functions[unit.function]
        a = function.node.args  # type: ignore[union-attr]
        names = function.positional()
        given = set()
        rest: list[Value] = []
        for index, value in enumerate(arguments):
            if index < len(names):
                an.enter(unit, names[index], value)
                given.add(names[index])
            else:
                rest.append(value)
        if star is not None:
            rest.append(star)
            for name in names[len(arguments) :]:
                an.enter(unit, name, star)
        if a.vararg is not None:
            self._collect(unit, "list", a.vararg, rest)
        others = []
        for name, value in keywords.items():
            if name in unit.parameters and name != "**":
                an.enter(unit, name, value)
                given.add(name)
            elif name == "**":
                others.append(UNKNOWN)
                for missing in set(unit.parameters) - given:
                    if not (a.vararg and missing == a.vararg.arg) and not (
                        a.kwarg and missing == a.kwarg.arg
                    ):
                        an.enter(unit, missing, self._all_of(value))
            else:
                others.append(value)
        if a.kwarg is not None:
            self._collect(unit, "dict", a.kwarg, others)
        for name in names + [k.arg for k in a.kwonlyargs]:
            if name not in given:
                an.enter(unit, name, an.read(self.unit, "default", unit.function, name))

    def _collect(self, unit: CallContext, form: str, argument: ast.arg, values: Sequence[Value]) -> None:
        """*args and **kw."""
        key = (form, self.an.program.uid[self.an.program.functions[unit.function].node], unit.context)
        atom: Atom = (lat.OBJECT, key)
        for value in values:
            self.put(atom, value)
        self.an.enter(unit, argument.arg, frozenset({atom}))

    def _make(
        self, node: ast.AST, cls: int, args: Sequence[Value], kw: dict[str, Value], star: Optional[Value]
    ) -> Value:
        """An object of a class of the script."""
        an = self.an
        an.note_target(node, ("class", cls))
        instance: Atom = (lat.INSTANCE, cls)
        classes, _ = an.lookup(cls, "__init__")
        for at in classes[:1]:
            for atom in an.read(self.unit, "class", at, "__init__"):
                if atom[0] == lat.FUNC:
                    self.call_function(node, atom[1], [frozenset({instance}), *args], kw, star)
        if not classes:
            fields = an.read(self.unit, "fields", cls)
            names = [atom[2] for atom in sorted(fields, key=lambda atom: int(atom[1]))]
            for name, value in [*zip(names, args), *kw.items()]:
                an.write(value, "attr", cls, name)
            if not names:
                self.escape(node, args)
        return frozenset({instance})

    def escape(self, node: ast.AST, values: Sequence[Value]) -> None:
        """Functions that were given to something unknown may be called with anything."""
        for value in values:
            for atom in value:
                if atom[0] in (lat.FUNC, lat.METHOD):
                    function = self.an.program.functions[atom[1]]
                    given: list[Value] = [frozenset({atom[2]})] if atom[0] == lat.METHOD else []
                    given += [UNKNOWN] * (len(function.positional()) - len(given))
                    self.call_function(node, atom[1], given, {})

    def items_of_instance(self, atom: Atom) -> Value:
        """What iterating over an object of the script gives."""
        found = EMPTY
        for cls in self.an.lookup(atom[1], "__iter__")[0][:1]:
            for function in self.an.read(self.unit, "class", cls, "__iter__"):
                if function[0] == lat.FUNC:
                    node = self.an.program.functions[function[1]].node
                    result = self.call_function(node, function[1], [frozenset({atom})], {})
                    found = join(found, self.items(result - {atom}))
        return found if found else UNKNOWN

    # ---- dynet

    def dynet_class(self, name: str) -> bool:
        known = api.BUILDERS | api.TREE_BUILDERS | api.SOFTMAX_BUILDERS | api.COLLECTIONS | {api.BIRNN}
        return name in known or name.endswith(("Trainer", "Initializer")) or name in api.PARAMETER_FUNCTIONS \
            or name in api.PLAIN  # fmt: skip

    def dynet_name(self, name: str) -> Value:
        return lat.one(lat.DYNAME, name)

    def dynet_call(self, node: ast.AST, name: str, args: Sequence[Value], kw: dict[str, Value]) -> Value:
        an = self.an
        if name in api.EXPRESSION_FUNCTIONS:
            an.note_target(node, ("op", name))
            return lat.one(lat.EXPR, an.note_op(node, name, self.tensor_arguments(node)))
        an.note_target(node, ("dy", name))
        if name in api.PARAMETER_FUNCTIONS:
            return args[0] if len(args) == 1 else self.new_object("tuple", node, args, exact=True)
        if name in api.MODULE_READS:
            an.facts.reads[node] = name
            return self.new_object("list", node, [lat.WAS_READ])
        if name == "forward":
            an.facts.reads[node] = name
            return lat.NOTHING
        if name == "batch_map":
            result = EMPTY
            if args:
                result = self.apply(node, args[0], [self.items(a) for a in args[1:2]], {})
            return self.new_object("list", node, [result])
        if (
            name in api.BUILDERS
            or name in api.TREE_BUILDERS
            or name in api.SOFTMAX_BUILDERS
            or name == api.BIRNN
        ):
            return lat.one(lat.BUILDER, an.program.uid[node], name)
        if name in api.COLLECTIONS:
            return lat.one(lat.COLL)
        if name.endswith("Trainer"):
            return lat.one(lat.TRAINER)
        return UNKNOWN

    def tensor_arguments(self, node: ast.AST) -> list[tuple[ast.AST, Value]]:
        """Arguments of a call that are tensors, or hold them."""
        found: list[tuple[ast.AST, Value]] = []
        if not isinstance(node, ast.Call):
            return found
        for argument in [*node.args, *[k.value for k in node.keywords]]:
            value = self.an.facts.values.get(argument, EMPTY)
            if lat.is_tensor(value) or any(a[0] in (lat.LOOKUP, lat.OBJECT) for a in value):
                found.append((argument, value))
        return found

    def method_call(
        self, node: ast.AST, receiver: Atom, name: str, args: Sequence[Value], kw: dict[str, Value]
    ) -> Value:
        """A method of something that is not the script's own."""
        tag = receiver[0]
        if tag == lat.OBJECT:
            return self.container_call(node, receiver, name, args)
        if tag == lat.NONE:
            return EMPTY  # it raises
        self.an.note_target(node, ("method", f"{tag}.{name}"))
        if tag in (lat.EXPR, lat.PARAM):
            return self._expression_method(node, receiver, name)
        if tag == lat.STATE:
            return self._state_method(node, receiver, name)
        if tag == lat.BUILDER:
            return self._builder_method(node, receiver, name)
        if tag == lat.LOOKUP:
            if name == "batch":
                return lat.one(
                    lat.EXPR, self.an.note_op(node, "lookup_batch", [(node, frozenset({receiver}))])
                )
            return frozenset({receiver}) if name == "expr" else UNKNOWN
        if tag == lat.COLL:
            return self._collection_method(node, name)
        if tag == lat.STR:
            return self.string_call(node, name)
        if tag == lat.READ:
            return lat.WAS_READ
        return lat.NOTHING if tag == lat.TRAINER else UNKNOWN

    def _with_receiver(self, node: ast.AST, receiver: Atom) -> list[tuple[ast.AST, Value]]:
        where = (
            node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else node
        )
        return [(where, frozenset({receiver})), *self.tensor_arguments(node)]

    def _expression_method(self, node: ast.AST, receiver: Atom, name: str) -> Value:
        if name in api.READS or name == "gradient":
            self.an.facts.reads[node] = name
            return lat.WAS_READ
        if name == "forward":
            self.an.facts.reads[node] = name
        if name == "expr":
            return frozenset({receiver})
        return lat.NOTHING if name in ("forward", "backward", "set") else UNKNOWN

    def _state_method(self, node: ast.AST, receiver: Atom, name: str) -> Value:
        if name in api.STATE_OPS:
            site = self.an.note_op(node, name, self._with_receiver(node, receiver))
            if name == "transduce":
                return self.new_object("list", node, [lat.one(lat.EXPR, site)])
            state = lat.one(lat.STATE, site)
            return self.new_object("list", node, [state]) if name == "add_inputs" else state
        if name == "output":
            return lat.one(lat.EXPR, receiver[1])
        if name in ("h", "s"):
            return self.new_object("list", node, [lat.one(lat.EXPR, receiver[1])])
        return lat.one(lat.STATE, receiver[1]) if name == "prev" else UNKNOWN

    def _builder_method(self, node: ast.AST, receiver: Atom, name: str) -> Value:
        an = self.an
        if name in api.SOFTMAX_OPS:
            return lat.one(lat.EXPR, an.note_op(node, name, self.tensor_arguments(node)))
        if name == "sample":
            an.facts.reads[node] = name
            return lat.WAS_READ
        if receiver[2] in api.TREE_BUILDERS and name in ("expr_for_tree", "add_input", "transduce"):
            return lat.one(lat.EXPR, an.note_op(node, name, self.tensor_arguments(node)))
        if name not in api.BUILDER_OPS:
            return UNKNOWN
        site = an.note_op(node, name, self.tensor_arguments(node))
        if name == "transduce":
            return self.new_object("list", node, [lat.one(lat.EXPR, site)])
        state = lat.one(lat.STATE, site)
        if name == "add_inputs":
            return self.new_object("list", node, [self.new_object("tuple", node, [state])])
        return state

    def _collection_method(self, node: ast.AST, name: str) -> Value:
        uid = self.an.program.uid[node]
        if name in ("add_parameters", "parameters_from_numpy", "load_param"):
            return lat.one(lat.PARAM, uid, None)
        if name in ("add_lookup_parameters", "lookup_parameters_from_numpy", "load_lookup_param"):
            return lat.one(lat.LOOKUP, uid, None)
        return lat.one(lat.COLL) if name == "add_subcollection" else UNKNOWN
