"""What regions may call: functions of the API that do nothing but record ops."""

from __future__ import annotations

import builtins
import functools
import sys
import types
from typing import Any

from ... import _core
from ..analysis.api import DYNET_MODULES

_OTHERS = """
argmax average_cols block_dropout concatenate_cols const_parameter constant conv1d_narrow conv1d_wide conv2d
conv2d_bias cwise_multiply dropout dropout_batch dropout_dim hinge_batch log_softmax lookup lookup_batch
maxpooling2d mean_batches mean_dim mean_elems moment_batches moment_dim moment_elems noise ones parameter
pick_batch pick_batch_elem pickneglogsoftmax_batch pickrange random_bernoulli random_gumbel random_normal
random_uniform reshape std_batches std_dim std_elems strided_select sum_batches sum_cols sum_dim sum_rows
to_device transpose vanilla_lstm_gates vanilla_lstm_gates_concat vanilla_lstm_gates_dropout
vanilla_lstm_gates_dropout_concat zeroes zeros
""".split()

_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
_recording: set[Any] = set()


def api() -> types.ModuleType:
    """The package, which imports this module."""
    return sys.modules["dynet_compat"]


def recording() -> set[Any]:
    """The functions that do nothing but record ops, and whose ops their arguments decide."""
    if not _recording:
        names = [row["name"] for row in _core.op_table() if row["public"]]
        _recording.update(getattr(api(), name) for name in [*names, *_OTHERS])
    return _recording


@functools.cache
def walkable() -> set[Any]:
    """These, and functions that record what numbers alone decide."""
    return recording() | {api().scalarInput, api().inputVector}


def is_recording(function: Any) -> bool:
    return type(function) in _FUNCTIONS and function in recording()


@functools.cache
def is_recording_name(name: str) -> bool:
    return getattr(api(), name, None) in recording()


def look_up(names: dict[str, Any], dotted: str) -> Any:
    """The object that a dotted name means in a module with this dict; None if it is not known."""
    first, *attributes = dotted.split(".")
    value = names.get(first, getattr(builtins, first, None))
    for attribute in attributes:
        if type(value) is not types.ModuleType:  # attributes of modules only
            return None
        value = vars(value).get(attribute)
    return value


def meaning(value: Any) -> str:
    """What the analysis of a script learns of an object that a global name means: whether it is a module, a
    function that does nothing but record ops, or returns its argument, or a decorator that only calls the
    function, or which of Python's own. Runs no code of the script."""
    if issubclass(type(value), types.ModuleType):
        return "module"
    if value is functools.lru_cache or value is getattr(functools, "cache", ...):
        return "decorator"
    if is_recording(value):
        return "itself" if value is api().parameter else "op"
    name = getattr(value, "__name__", "") if type(value) in (type, types.BuiltinFunctionType) else ""
    return f"builtin {name}" if name and getattr(builtins, name, None) is value else ""


def uses_dynet(names: dict[str, Any]) -> bool:
    """Does the module with this dict know anything of DyNet's by a name?"""

    def is_known(value: Any) -> bool:
        return type(value) is types.ModuleType and value.__name__ in DYNET_MODULES

    own = {id(v) for v in vars(api()).values() if isinstance(v, (type, *_FUNCTIONS))}
    return any(id(value) in own or is_known(value) for value in list(names.values()))
