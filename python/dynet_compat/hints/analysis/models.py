"""Models of Python's functions, of containers and texts, and of other modules: what a call of them gives."""

from __future__ import annotations

import ast
from typing import Callable, Protocol

from . import api
from . import lattice as lat
from .containers import Containers, constant
from .frame import Frame
from .functions import Call, FunctionCalls
from .lattice import EMPTY, UNKNOWN, Atom, Value, join
from .objects import Objects


class Caller(Protocol):
    """What a model may use."""

    frame: Frame
    containers: Containers
    functions: FunctionCalls
    objects: Objects

    def apply(self, function: Value, call: Call) -> Value:
        """What a call gives, for everything the function may be."""


Model = Callable[[Caller, Call], Value]
MethodModel = Callable[[Caller, Call, Atom], Value]

_SIZES = frozenset({"len", "isinstance", "issubclass", "type", "id", "range", "enumerate", "print"})


def _table(models: dict[str, Model]) -> dict[str, Model]:
    """By name, from a table by several names."""
    return {name: model for names, model in models.items() for name in names.split()}


# ---- methods of containers and texts


def container_method(caller: Caller, call: Call, receiver: Atom, name: str) -> Value:
    """A method of a list, tuple, dict, set or iterator."""
    facts = caller.frame.facts
    facts.note_target(call.node, ("method", f"object.{name}"))
    if name in api.MUTATORS and isinstance(call.node, ast.Call):
        facts.note_write(call.node, frozenset({receiver}))
    model = _CONTAINER_METHODS.get(name)
    if model is not None:
        return model(caller, call, receiver)
    if name in ("copy", "union", "intersection", "difference"):
        return frozenset({receiver})
    if name in ("index", "count"):
        return lat.SOME_INT
    return lat.NOTHING if name in ("sort", "reverse", "clear", "remove", "discard") else UNKNOWN


def _append(caller: Caller, call: Call, receiver: Atom) -> Value:
    caller.containers.put(receiver, call.given(0))
    return lat.NOTHING


def _extend(caller: Caller, call: Call, receiver: Atom) -> Value:
    caller.containers.put(receiver, caller.objects.items(call.given(0)))
    return lat.NOTHING


def _insert(caller: Caller, call: Call, receiver: Atom) -> Value:
    caller.containers.put(receiver, call.given(1))
    return lat.NOTHING


def _update(caller: Caller, call: Call, receiver: Atom) -> Value:
    caller.containers.put(receiver, caller.containers.all_of(call.given(0)))
    return lat.NOTHING


def _pop(caller: Caller, call: Call, receiver: Atom) -> Value:
    key = constant(call.given(0)) if receiver[1][0] == "dict" else None
    return caller.containers.get(receiver, key)


def _get(caller: Caller, call: Call, receiver: Atom) -> Value:
    value = caller.containers.get(receiver, constant(call.given(0)))
    return join(value, call.given(1) if len(call.arguments) > 1 else lat.NOTHING)


def _setdefault(caller: Caller, call: Call, receiver: Atom) -> Value:
    key = constant(call.given(0))
    value = join(caller.containers.get(receiver, key), call.given(1))
    if len(call.arguments) > 1:
        caller.containers.put(receiver, call.given(1), key)
    return value


def _items(caller: Caller, call: Call, receiver: Atom) -> Value:
    pair = [caller.containers.keys(receiver), caller.containers.get(receiver)]
    return _iterator(caller, call, caller.containers.new("tuple", call.node, pair, exact=True))


def _values(caller: Caller, call: Call, receiver: Atom) -> Value:
    return _iterator(caller, call, caller.containers.get(receiver))


def _keys(caller: Caller, call: Call, receiver: Atom) -> Value:
    return _iterator(caller, call, caller.containers.keys(receiver))


_CONTAINER_METHODS: dict[str, MethodModel] = {
    **dict.fromkeys(("append", "add", "appendleft"), _append),
    **dict.fromkeys(("extend", "extendleft"), _extend),
    **dict.fromkeys(("pop", "popleft"), _pop),
    "insert": _insert, "update": _update, "get": _get, "setdefault": _setdefault,
    "items": _items, "values": _values, "keys": _keys,
}  # fmt: skip


def text_method(caller: Caller, call: Call, name: str) -> Value:
    """A method of a text."""
    if name in ("split", "rsplit", "splitlines", "partition", "rpartition"):
        return caller.containers.new("list", call.node, [lat.SOME_STR])
    if name.startswith(("is", "starts", "ends")):
        return lat.SOME_BOOL
    return lat.SOME_INT if name in ("find", "rfind", "index", "count") else lat.SOME_STR


# ---- functions of Python and of other modules


def outside_call(caller: Caller, call: Call, name: str) -> Value:
    """A call of `module.function`, Python's own functions among them."""
    caller.frame.facts.note_target(call.node, ("ext", name))
    top, _, rest = name.partition(".")
    read = rest not in _SIZES and caller.containers.any_read(call.arguments)
    if top == "builtins":
        model = _BUILTINS.get(rest)
        if model is not None:
            result = model(caller, call)
            return join(result, lat.WAS_READ) if read and not lat.is_tensor(result) else result
        if rest in api.DYNAMIC_BUILTINS:
            return _dynamic(caller, call, rest)
    elif top == "collections" or rest in ("defaultdict", "OrderedDict", "Counter", "deque"):
        return _collection(caller, call, rest)
    elif top == "itertools":
        inner = UNKNOWN
        for value in call.arguments:
            inner = join(inner, caller.objects.items(value))
        return _iterator(caller, call, inner)
    caller.functions.escape(call.node, call.values)
    return join(UNKNOWN, lat.WAS_READ) if read else UNKNOWN


def _dynamic(caller: Caller, call: Call, name: str) -> Value:
    """Functions that can do more than is seen."""
    if name == "getattr" and call.arguments:
        constants = [atom[1] for atom in call.given(1) if atom[0] == lat.STR]
        if constants and None not in constants:
            found = call.given(2)
            for text in constants:
                found = join(found, caller.objects.attribute(call.given(0), text, call.node))
            return found
    if name in ("eval", "exec", "compile", "__import__"):
        text = f"{name}() can do anything: no hints for this program"
        caller.frame.program.problem(call.node, text, "program")
    elif name == "getattr":
        caller.frame.program.problem(call.node, "getattr() with a computed name: what it finds is not known")
    elif name in ("setattr", "delattr"):
        text = f"{name}() with a computed name: no hints for this function"
        caller.frame.program.problem(call.node, text, "function")
    return UNKNOWN


def _collection(caller: Caller, call: Call, name: str) -> Value:
    if name == "defaultdict":
        value = caller.apply(call.given(0), Call(call.node))
        return caller.containers.new("dict", call.node, [value])
    if name in ("deque", "Counter", "OrderedDict"):
        inner = caller.objects.items(call.given(0))
        found = caller.containers.new("list" if name == "deque" else "dict", call.node, [inner])
        for atom in found:
            caller.containers.put_key(atom, inner)
        return found
    return UNKNOWN


def _iterator(caller: Caller, call: Call, inner: Value) -> Value:
    return caller.containers.new("iter", call.node, [inner])


def _as_list(caller: Caller, call: Call) -> Value:
    name = getattr(getattr(call.node, "func", None), "id", "list")
    form = name if name in ("tuple", "set") else ("iter" if name in ("iter", "reversed") else "list")
    inner = caller.objects.items(call.given(0))
    if "key" in call.keywords:
        caller.apply(call.keywords["key"], Call(call.node, [inner]))
    return caller.containers.new(form, call.node, [inner])


def _as_dict(caller: Caller, call: Call) -> Value:
    containers, objects = caller.containers, caller.objects
    found = containers.new("dict", call.node, list(call.keywords.values()))
    for atom in found:
        for name, value in call.keywords.items():
            containers.put(atom, value, name)
            containers.put_key(atom, lat.one(lat.STR, name))
        for value in call.arguments:
            if any(a[0] == lat.OBJECT and a[1][0] == "dict" for a in value):
                containers.put(atom, containers.all_of(value))
                containers.put_key(atom, objects.items(value))
                continue
            for pair in objects.items(value):
                if pair[0] == lat.OBJECT:
                    containers.put_key(atom, containers.get(pair, "0"))
                    containers.put(atom, containers.get(pair, "1"))
                else:
                    containers.put(atom, UNKNOWN)
    return found


def _zip(caller: Caller, call: Call) -> Value:
    items = [caller.objects.items(value) for value in call.arguments]
    exact = not any(isinstance(a, ast.Starred) for a in getattr(call.node, "args", []))
    if not exact:
        inner = EMPTY
        for value in items:
            inner = join(inner, value)
        items = [inner]
    return _iterator(caller, call, caller.containers.new("tuple", call.node, items, exact))


def _enumerate(caller: Caller, call: Call) -> Value:
    pair = [lat.SOME_INT, caller.objects.items(call.given(0))]
    return _iterator(caller, call, caller.containers.new("tuple", call.node, pair, exact=True))


def _range(caller: Caller, call: Call) -> Value:
    return _iterator(caller, call, lat.SOME_INT)


def _map(caller: Caller, call: Call) -> Value:
    items = [caller.objects.items(value) for value in call.arguments[1:]]
    return _iterator(caller, call, caller.apply(call.given(0), Call(call.node, items)))


def _filter(caller: Caller, call: Call) -> Value:
    inner = caller.objects.items(call.given(1))
    caller.apply(call.given(0) - lat.NOTHING, Call(call.node, [inner]))
    return _iterator(caller, call, inner)


def _sum(caller: Caller, call: Call) -> Value:
    inner = caller.objects.items(call.given(0))
    for start in [*call.arguments[1:2], *call.keywords.values()]:
        inner = join(inner, start)
    if lat.is_tensor(inner):
        caller.frame.facts.note_op(call.node, "sum")
        return lat.SOME_EXPR
    return inner if inner else lat.SOME_INT


def _extreme(caller: Caller, call: Call) -> Value:
    """max, min."""
    found = EMPTY
    if len(call.arguments) == 1:
        found = caller.objects.items(call.given(0))
    else:
        for value in call.arguments:
            found = join(found, value)
    if "key" in call.keywords:
        key = caller.apply(call.keywords["key"], Call(call.node, [found]))
        if lat.was_read(key):
            found = join(found, lat.WAS_READ)
    return join(found, call.keywords.get("default", EMPTY))


def _next(caller: Caller, call: Call) -> Value:
    return join(caller.objects.items(call.given(0)), call.given(1))


def _abs(caller: Caller, call: Call) -> Value:
    return UNKNOWN if lat.is_tensor(call.given(0)) else lat.SOME_FLOAT


def _always(value: Value) -> Model:
    return lambda caller, call: value


_BUILTINS = _table(
    {
        "list tuple set frozenset sorted reversed iter": _as_list,
        "int len ord hash id": _always(lat.SOME_INT),
        "float round": _always(lat.SOME_FLOAT),
        "bool isinstance issubclass any all callable hasattr": _always(lat.SOME_BOOL),
        "str repr chr format input": _always(lat.SOME_STR),
        "max min": _extreme,
        "print": _always(lat.NOTHING),
        "dict": _as_dict, "zip": _zip, "enumerate": _enumerate, "range": _range, "map": _map,
        "filter": _filter, "sum": _sum, "next": _next, "abs": _abs,
    }
)  # fmt: skip
