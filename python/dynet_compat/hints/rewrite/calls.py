"""Calls inside a region: the function that is called, and the body of one of the script as a part of it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from . import derived, unrolled
from .code_objects import Place
from .recording import is_recording_name
from .scopes import MOST_DEPTH, NotTraceable, Scope, is_private
from .trees import root_of
from .values import ARGUMENT, ATTRIBUTE, Constant, Defaults, Recorded, RegionSource, Sources, Value

if TYPE_CHECKING:
    from .region import TracedRegion

_TOOLKIT = ("dy", "_dy", "dn", "dynet", "dynet_compat", "_dynet")  # what scripts call the package
_ACTIVATIONS = ("activ", "nonlin")  # in names of attributes that are functions like tanh; the run will check
_OF_STATES = {"output": 0, "h": 0, "s": 0, "add_input": 1}  # methods of RNNState: number of arguments


class Callee(NamedTuple):
    """A function of the script that is called by a name or as a method of `self`."""

    node: ast.FunctionDef
    place: Place
    owner: Optional[ast.expr] = None  # the object whose method it is
    own: bool = False  # defined in the function that the region is in


class CallFrame:
    """The function whose statements are traced: that of the region, or one that it calls.

    Attributes:
        env: values of local names.
        depth: number of calls around it.
        around: local names of the functions that call it.
        free: names that a function defined inside the region's own function takes from there.
        outer: the values of these in the region.
    """

    depth = 0
    around: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()
    outer: Mapping[str, Value] = {}

    def __init__(self, scope: Scope, env: dict[str, Value]) -> None:
        self.scope = scope
        self.env = env

    def is_local(self, name: str) -> bool:
        return name in self.scope.local or name in self.env or name in self.free


def call(region: TracedRegion, e: ast.Call) -> Value:
    """The value of a call."""
    if any(isinstance(a, ast.Starred) for a in e.args):
        raise NotTraceable("a starred argument")
    if any(k.arg is None or is_private(k.arg) for k in e.keywords):
        raise NotTraceable("** or a private name as an argument")
    if isinstance(e.func, ast.Attribute) and e.func.attr in _OF_STATES and not e.keywords:
        state = _state_of(region, e.func.value)
        if state is not None:
            return _state_method(region, state, e)
    value = derived.call(region, e) or unrolled.attribute(region, e)
    if value is not None:
        return value
    called = callee(region, e.func)
    if called is None:
        function = region.value(e.func)
        assert isinstance(function, RegionSource)
        function.called = True
        if len(e.args) == 1 and not e.keywords and _returns_argument(region, e.func):
            return region.value(e.args[0])
        for a in [*e.args, *(k.value for k in e.keywords)]:
            region.use(_argument(region, a), index=True)
        region.ops += 1
        return Recorded()
    owner = region.value(called.owner) if called.owner else None
    if isinstance(owner, RegionSource) and isinstance(e.func, ast.Attribute):
        source: Value = region.attribute(owner, e.func.attr, "called")
    else:
        source = region.value(e.func)
    if not isinstance(source, RegionSource) or source.kind not in (ARGUMENT, ATTRIBUTE):
        raise NotTraceable("it calls a function that is no name")
    source.called = True
    source.callee = called.place
    source.defaults = _defaults(called.node)
    source.own = called.own
    if isinstance(owner, RegionSource):
        source.method = True
        source.base = owner
    arguments = [region.value(a) for a in e.args]
    named = {str(k.arg): region.value(k.value) for k in e.keywords}
    if owner:
        arguments.insert(0, owner)
    return _inline(region, called, arguments, named)


def _returns_argument(region: TracedRegion, f: ast.expr) -> bool:
    """Is this dy.parameter(), which returns its argument? The run will check that the result is that."""
    if isinstance(f, ast.Attribute) and f.attr == "parameter" and _is_toolkit(region, f.value):
        return True
    root = root_of(f)
    local = root is None or region.frame.is_local(root)
    return not local and region.frame.scope.module.meaning(f) == "itself"


def _argument(region: TracedRegion, e: ast.expr) -> Value:
    """An argument of an op, for which a copy of a list is the list itself."""
    if not isinstance(e, ast.Call) or not isinstance(e.func, ast.Name) or len(e.args) != 1 or e.keywords:
        return region.value(e)
    if region.frame.is_local(e.func.id):
        return region.value(e)
    if region.frame.scope.module.meaning(e.func) not in ("builtin list", "builtin tuple"):
        return region.value(e)
    region.use(region.name(e.func.id), index=False)
    return region.value(e.args[0])


def _state_of(region: TracedRegion, e: ast.expr) -> Optional[Value]:
    """The value whose method is called, if it can be an RNN state."""
    if isinstance(e, ast.Name) and _is_self(region, e.id):
        return None
    scope = region.frame.scope
    root = root_of(e)
    if root and root not in scope.local and scope.module.meaning(e) == "module":
        return None
    return region.value(e)


def _state_method(region: TracedRegion, state: Value, e: ast.Call) -> Value:
    if isinstance(state, RegionSource):
        state.state = True
    elif not isinstance(state, Recorded):
        raise NotTraceable(f"it calls {_name(e.func)}() of something that is no state")
    if len(e.args) != _OF_STATES[e.func.attr]:  # type: ignore[attr-defined]
        raise NotTraceable(f"it calls {_name(e.func)}() with other arguments")
    for a in e.args:
        region.use(region.value(a), index=False)
    region.ops += len(e.args)
    return Recorded()


def callee(region: TracedRegion, f: ast.expr) -> Optional[Callee]:
    """The function of the script that is called; None: one that records ops."""
    scope = region.frame.scope
    if isinstance(f, ast.Name):
        f = scope.aliases.get(f.id) or f
    if isinstance(f, ast.Name) and region.frame.is_local(f.id):
        own = None if region.frame.depth or f.id in region.frame.env else scope.own_function(f.id)
        if own is None:
            raise NotTraceable(f"it calls {_name(f)}(), a local name")
        return Callee(own, scope.module.callee(own), own=True)
    if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name) and _is_self(region, f.value.id):
        node = scope.module.method(scope.cls, f.attr)
        if node is None and any(word in f.attr for word in _ACTIVATIONS):
            return None
        if node is None:
            raise NotTraceable(f"it calls {_name(f)}(), which is no method of the class")
        return Callee(node, scope.module.callee(node), f.value)
    if isinstance(f, ast.Attribute) and is_recording_name(f.attr) and _is_toolkit(region, f.value):
        return None
    root = root_of(f)
    if not root or region.frame.is_local(root):
        raise NotTraceable(f"it calls {_name(f)}()")
    if scope.module.meaning(f) in ("op", "itself"):
        return None
    if isinstance(f, ast.Name) and f.id in scope.module.functions:
        node = scope.module.functions[f.id]
        return Callee(node, scope.module.callee(node))
    raise NotTraceable(f"it calls {_name(f)}()")


def _is_toolkit(region: TracedRegion, e: ast.expr) -> bool:
    """Is this, as its name says, the package itself in a local name or an attribute? The run will check."""
    if isinstance(e, ast.Name) and region.frame.is_local(e.id):
        value = region.frame.env.get(e.id)
        name = value.key if isinstance(value, RegionSource) and value.kind == ATTRIBUTE else e.id
        return name in _TOOLKIT and (value is None or isinstance(value, RegionSource))
    return isinstance(e, ast.Attribute) and e.attr in _TOOLKIT


def _is_self(region: TracedRegion, name: str) -> bool:
    """Is the name the object whose method the region is in?"""
    if region.self_name is None:
        return False
    if name in region.frame.env:
        return region.frame.env[name] is region.sources.known.get(("name", region.self_name))
    return name == region.self_name and not region.frame.depth


def _inline(region: TracedRegion, callee: Callee, arguments: list[Value], named: dict[str, Value]) -> Value:
    node = callee.node
    if region.frame.depth == MOST_DEPTH:
        raise NotTraceable(f"it calls {node.name}() too deep in other functions")
    if region.frame.scope.nested:
        raise NotTraceable(f"it calls {node.name}() from inside another function")
    if not region.frame.scope.module.is_plain(node):
        raise NotTraceable(f"it calls {node.name}(), which is decorated or a generator")
    if callee.own and (... in _defaults(node)[0] or any(node.args.kw_defaults)):
        raise NotTraceable(f"it calls {node.name}(), whose defaults are others each time")
    caller = region.frame
    inner = Scope(caller.scope.module, node, caller.scope.cls)
    free = _free_names(region, callee, inner)
    around = caller.around.union(caller.scope.local, caller.env)
    env = _bind(node, arguments, named, region.sources)
    region.frame = frame = CallFrame(inner, env)
    frame.depth, frame.around, frame.free, frame.outer = caller.depth + 1, around, frozenset(free), caller.env
    try:
        for s in node.body:
            try:
                region.trace(s)
            except NotTraceable as reason:
                if " is not straight-line " in str(reason):
                    raise
                why = f"(line {s.lineno}: {reason})"
                raise NotTraceable(f"{node.name}() is not straight-line {why}") from None
        result = region.returned
        if result is None:
            raise NotTraceable(f"{node.name}() returns nothing")
        return result
    finally:
        region.frame = caller
        region.returned = None


def _free_names(region: TracedRegion, callee: Callee, inner: Scope) -> set[str]:
    """The names that a function takes from the function around it."""
    read = region.frame.scope.module.names_in(callee.node).read - inner.local
    here = region.frame.around | region.frame.scope.local | set(region.frame.env)
    if callee.own and not read & set(region.targets):
        return read & here
    if read & here:
        raise NotTraceable(f"it calls {callee.node.name}(), whose global names are local ones here")
    return set()


def _bind(
    node: ast.FunctionDef, arguments: list[Value], named: dict[str, Value], sources: Sources
) -> dict[str, Value]:
    """The parameters of a function as it is called."""
    a = node.args
    if a.vararg or a.kwarg:
        raise NotTraceable("a function that takes any number of arguments")
    positional = [p.arg for p in [*a.posonlyargs, *a.args]]
    by_name = [p.arg for p in [*a.args, *a.kwonlyargs]]
    names = [*positional, *(p.arg for p in a.kwonlyargs)]
    defaults: dict[str, Optional[ast.expr]] = dict(zip(reversed(positional), reversed(a.defaults)))
    defaults.update(zip((p.arg for p in a.kwonlyargs), a.kw_defaults))
    if len(arguments) > len(positional):
        raise NotTraceable("too many arguments")
    env = dict(zip(positional, arguments))
    for name, value in named.items():
        if name in env or name not in by_name:
            raise NotTraceable("an argument that does not fit")
        env[name] = value
    for name in names:
        if name in env:
            continue
        default = _constant(defaults.get(name))
        if default is ...:
            raise NotTraceable("a default that is no constant")
        sources.constant(default)
        env[name] = Constant(default)
    return env


def _defaults(node: ast.FunctionDef) -> Defaults:
    """The defaults that a function has as it is written."""
    by_name = {p.arg: d for p, d in zip(node.args.kwonlyargs, node.args.kw_defaults) if d is not None}
    return tuple(map(_constant, node.args.defaults)), {name: _constant(d) for name, d in by_name.items()}


def _name(f: ast.expr) -> str:
    """The name that is called."""
    return f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else "a result"


def _constant(e: Optional[ast.expr]) -> Any:
    kinds = (bool, int, float, str, type(None))
    return e.value if isinstance(e, ast.Constant) and isinstance(e.value, kinds) else ...
