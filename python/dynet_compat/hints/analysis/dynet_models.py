"""Models of DyNet's functions and of the methods of its objects: what a call of them records and gives."""

from __future__ import annotations

import ast

from . import api
from . import lattice as lat
from .functions import Call
from .lattice import EMPTY, UNKNOWN, Atom, Value
from .models import Caller, MethodModel, text_method

_BUILDERS = api.BUILDERS | api.TREE_BUILDERS | api.SOFTMAX_BUILDERS | {api.BIRNN}
_MAKE_PARAMETERS = ("add_parameters", "parameters_from_numpy", "load_param")
_MAKE_LOOKUP_PARAMETERS = ("add_lookup_parameters", "lookup_parameters_from_numpy", "load_lookup_param")


def dynet_call(caller: Caller, call: Call, name: str) -> Value:
    """A function or class of the module."""
    facts, node = caller.frame.facts, call.node
    if name in api.EXPRESSION_FUNCTIONS:
        facts.note_target(node, ("op", name))
        return _record(caller, node, name)
    facts.note_target(node, ("dy", name))
    if name in api.PARAMETER_FUNCTIONS:
        several = len(call.arguments) != 1
        return caller.containers.new("tuple", node, call.arguments, exact=True) if several else call.given(0)
    if name in api.MODULE_READS or name == "forward":
        facts.reads[node] = name
        return lat.NOTHING if name == "forward" else caller.containers.new("list", node, [lat.WAS_READ])
    if name == "batch_map":
        items = [caller.objects.items(value) for value in call.arguments[1:2]]
        return caller.containers.new("list", node, [caller.apply(call.given(0), Call(node, items))])
    if name in _BUILDERS:
        return lat.one(lat.BUILDER, name)
    if name in api.COLLECTIONS:
        return lat.one(lat.COLL)
    return lat.one(lat.TRAINER) if name.endswith("Trainer") else UNKNOWN


def method_call(caller: Caller, call: Call, receiver: Atom, name: str) -> Value:
    """A method of one of DyNet's objects, of a text, or of a number."""
    tag = receiver[0]
    if tag == lat.NONE:
        return EMPTY  # it raises
    caller.frame.facts.note_target(call.node, ("method", f"{tag}.{name}"))
    if tag == lat.STR:
        return text_method(caller, call, name)
    model = _METHODS.get(tag)
    return UNKNOWN if model is None else model(caller, call, (*receiver, name))


def _record(caller: Caller, node: ast.AST, name: str) -> Value:
    caller.frame.facts.note_op(node, name)
    return lat.SOME_EXPR


def _record_list(caller: Caller, node: ast.AST, name: str) -> Value:
    return caller.containers.new("list", node, [_record(caller, node, name)])


def _expression_method(caller: Caller, call: Call, atom: Atom) -> Value:
    tag, name = atom
    if name in api.READS or name in ("gradient", "forward"):
        caller.frame.facts.reads[call.node] = name
    if name in api.READS or name == "gradient":
        return lat.WAS_READ
    if name == "expr":
        return lat.one(tag)
    return lat.NOTHING if name in ("forward", "backward", "set") else UNKNOWN


def _state_method(caller: Caller, call: Call, atom: Atom) -> Value:
    name, node = atom[-1], call.node
    if name == "transduce":
        return _record_list(caller, node, name)
    if name in api.STATE_OPS:
        caller.frame.facts.note_op(node, name)
        several = name == "add_inputs"
        return caller.containers.new("list", node, [lat.SOME_STATE]) if several else lat.SOME_STATE
    if name == "output":
        return lat.SOME_EXPR
    if name in ("h", "s"):
        return caller.containers.new("list", node, [lat.SOME_EXPR])
    return lat.SOME_STATE if name == "prev" else UNKNOWN


def _builder_method(caller: Caller, call: Call, atom: Atom) -> Value:
    _, cls, name = atom
    node, containers = call.node, caller.containers
    if name in api.SOFTMAX_OPS:
        return _record(caller, node, name)
    if name == "sample":
        caller.frame.facts.reads[node] = name
        return lat.WAS_READ
    if cls in api.TREE_BUILDERS and name in ("expr_for_tree", "add_input", "transduce"):
        return _record(caller, node, name)
    if name == "transduce":
        return _record_list(caller, node, name)
    if name not in api.BUILDER_OPS:
        return UNKNOWN
    caller.frame.facts.note_op(node, name)
    if name == "add_inputs":
        return containers.new("list", node, [containers.new("tuple", node, [lat.SOME_STATE])])
    return lat.SOME_STATE


def _lookup_method(caller: Caller, call: Call, atom: Atom) -> Value:
    if atom[-1] == "batch":
        return _record(caller, call.node, "lookup_batch")
    return lat.SOME_LOOKUP if atom[-1] == "expr" else UNKNOWN


def _collection_method(caller: Caller, call: Call, atom: Atom) -> Value:
    if atom[-1] in _MAKE_PARAMETERS:
        return lat.SOME_PARAM
    if atom[-1] in _MAKE_LOOKUP_PARAMETERS:
        return lat.SOME_LOOKUP
    return lat.one(lat.COLL) if atom[-1] == "add_subcollection" else UNKNOWN


_METHODS: dict[str, MethodModel] = {
    lat.EXPR: _expression_method,
    lat.PARAM: _expression_method,
    lat.STATE: _state_method,
    lat.BUILDER: _builder_method,
    lat.LOOKUP: _lookup_method,
    lat.COLL: _collection_method,
    lat.READ: lambda caller, call, atom: lat.WAS_READ,
    lat.TRAINER: lambda caller, call, atom: lat.NOTHING,
}
