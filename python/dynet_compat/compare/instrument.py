"""Putting functions in the place of a library's functions and methods, also in extension types.

Runs under Python 3.8 as well. Extension types refuse attributes by a flag in the type object (no
Py_TPFLAGS_HEAPTYPE before Python 3.10, Py_TPFLAGS_IMMUTABLETYPE since): it is changed for the moment of the
assignment, so that the interpreter itself updates the slots behind `+`, `[]` and so on.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Callable, Optional

_HEAP_TYPE = 1 << 9
_IMMUTABLE_TYPE = 1 << 8

# What a function or method is to the comparison.
OP, READ, FORWARD, BACKWARD, UPDATE = "op", "read", "forward", "backward", "update"
RENEW, RANDOM, COLLECT, TRAINER, FILE = "renew", "random", "collect", "trainer", "file"

_SKIPPED_FUNCTIONS = frozenset(
    "init init_from_params available_devices get_device_info cg cg_version print_graphviz "
    "print_text_graphviz dump_cg reset_random_seed to_device".split()
)
_FILES = dict.fromkeys("save load load_generator save_safetensors load_safetensors".split(), FILE)
_FILES.update(
    dict.fromkeys(
        "save_all load_all populate populate_from_textfile load_param load_lookup_param".split(), FILE
    )
)
_FUNCTIONS = {"forward": FORWARD, "values": READ, "npvalues": READ, "renew_cg": RENEW, **_FILES}
RANDOM_OPS = frozenset(
    "dropout dropout_dim dropout_batch block_dropout noise random_normal random_bernoulli random_uniform "
    "random_gumbel vanilla_lstm_gates_dropout vanilla_lstm_gates_dropout_concat".split()
)

_OPERATORS = "add sub mul truediv div neg pos pow radd rsub rmul rtruediv rpow getitem".split()
_VALUES = "value npvalue scalar_value vec_value gradient as_array grad_as_array row_as_array".split()
_VALUES += "rows_as_array row_grad_as_array rows_grad_as_array".split()
_EXPRESSION = {f"__{name}__": OP for name in _OPERATORS}
_EXPRESSION.update(dict.fromkeys(_VALUES, READ))
_EXPRESSION.update({"forward": FORWARD, "backward": BACKWARD, "set": OP, "expr": OP, "batch": OP})
_EXPRESSION.update(_FILES)
_EXPRESSION.update({"set_value": OP, "init_row": OP, "init_from_array": OP, "zero": OP, "clip_inplace": OP})
_STATE = dict.fromkeys("add_input add_inputs transduce set_h set_s".split(), OP)
_BUILDER = dict.fromkeys("initial_state initial_state_from_raw_vectors add_inputs transduce".split(), OP)
_BUILDER.update({"set_dropout": RANDOM, "set_dropouts": RANDOM})
_SOFTMAX = "neg_log_softmax sample class_log_distribution full_log_distribution full_logits".split()
_GRAPH = {"renew": RENEW, "backward": BACKWARD, "forward": FORWARD, "inc_forward": FORWARD}
_GRAPH.update(dict.fromkeys("forward_scalar inc_forward_scalar forward_vec inc_forward_vec".split(), READ))
_GRAPH.update(dict.fromkeys("inputMatrixLiteral inputSparseTensor checkpoint revert".split(), OP))

_ALIASES = {"__div__": "__truediv__", "zeroes": "zeros"}  # names that one side has apart, the other does not

_BASES: tuple[tuple[str, dict[str, str]], ...] = (
    ("Expression", _EXPRESSION),
    ("Trainer", {"update": UPDATE, "__init__": TRAINER, **_FILES}),
    ("ParameterCollection", {"__init__": COLLECT, **_FILES}),
    ("_RNNBuilder", _BUILDER),
    ("BiRNNBuilder", _BUILDER),
    ("RNNState", _STATE),
    ("StackedRNNState", _STATE),
    ("SoftmaxBuilder", dict.fromkeys(_SOFTMAX, OP)),
    ("ComputationGraph", _GRAPH),
)


def _flags_offset() -> int:
    """Where a type object keeps tp_flags, found by their value."""
    samples = (int, str, type, BaseException, bool)
    for offset in range(0, 392, ctypes.sizeof(ctypes.c_void_p)):
        if all(ctypes.c_ulong.from_address(id(t) + offset).value == t.__flags__ for t in samples):
            return offset
    raise RuntimeError("this Python keeps the flags of types in a place unknown to dynet_compat.compare")


def patch(cls: Any, name: str, value: Any) -> None:
    """Assigns an attribute of a type, of extension types too."""
    try:
        setattr(cls, name, value)
        return
    except TypeError:
        pass
    flags = ctypes.c_ulong.from_address(id(cls) + _flags_offset())
    before = flags.value
    flags.value = before & ~_IMMUTABLE_TYPE if sys.version_info >= (3, 10) else before | _HEAP_TYPE
    try:
        setattr(cls, name, value)
    finally:
        # Only the bit that was changed: the assignment may have changed others.
        bit = _IMMUTABLE_TYPE if sys.version_info >= (3, 10) else _HEAP_TYPE
        flags.value = (flags.value & ~bit) | (before & bit)


def kind_of_function(name: str) -> Optional[str]:
    """What the comparison sees in a function of the module."""
    if name.startswith("_") or name in _SKIPPED_FUNCTIONS:
        return None
    return _FUNCTIONS.get(name, OP)


def kinds_of_class(cls: type) -> dict[str, str]:
    """What the comparison sees in the methods of a class of the library."""
    names = [base.__name__ for base in cls.__mro__]
    for base, kinds in _BASES:
        if base in names:
            return kinds
    return {}


def common_name(name: str) -> str:
    """One name for what both sides may call differently: `2 * x` is `__mul__` or `__rmul__`."""
    if name.startswith("__r") and name[3:] in ("add__", "sub__", "mul__", "truediv__", "pow__"):
        name = "__" + name[3:]
    return _ALIASES.get(name, name)


def display_name(name: str, cls: Optional[type] = None) -> str:
    """The name of an op for people."""
    signs = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**", "neg": "-x", "pos": "+x"}
    signs["getitem"] = "[]"
    bare = name.strip("_")
    if name.startswith("__") and bare in signs:
        return signs[bare]
    if cls is not None and name in ("set", "add_input", "add_inputs", "transduce", "initial_state", "update"):
        return cls.__name__.lstrip("_") + "." + name
    return name


def cost_per_call(hook_of: Callable[[Any], Any], cell: list[float], calls: int = 4000) -> tuple[float, float]:
    """What a hook adds to one call, in seconds, and how much of that it counts as the function's own time.

    Measured on a function that does nothing, the best of some attempts: other processes only add to it.

    Args:
        hook_of: makes the hook of a function.
        cell: where the hook adds the seconds that it counts.
        calls: per attempt.
    """
    import time

    def bare(x: Any) -> Any:
        return x

    def seconds(function: Any) -> tuple[float, float]:
        counted, start = cell[0], time.perf_counter()
        for _ in range(calls):
            function(None)
        return (time.perf_counter() - start) / calls, (cell[0] - counted) / calls

    hooked = hook_of(bare)
    plain = min(seconds(bare)[0] for _ in range(7))
    attempts = [seconds(hooked) for _ in range(7)]
    added = max(0.0, min(whole for whole, _ in attempts) - plain)
    return added, min(added, max(0.0, min(part for _, part in attempts) - plain))
