"""Models leave and come back: dicts of arrays, of the state of trainers, too, and safetensors files.

Names are those of the parameters, relative to the collection: in the root collection "/lstm/W" is "lstm/W".
Values are the ones that graphs see, float32; a table of LookupParameters has its rows first.

The weights of an LSTM (`VanillaLSTMBuilder`) for other libraries: `_0` is Wx {4H,I}, `_1` is Wh {4H,H}, `_2`
is b {4H}, then the same for the next layer. Blocks of H rows belong to the gates i, f, o, g in this order
(PyTorch's is i, f, g, o), and the builder adds `forget_bias`, 1 by default, to the f block when it computes.
`examples/export_weights.py` shows it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple, Union

import numpy as np

from .. import _core
from .._core import LookupParameters, ParameterCollection, Parameters, Trainer
from ..api.attach import attach
from . import atomic
from .atomic import replacing
from .text_format import parameters_of

__all__ = ["load_safetensors", "save_safetensors"]

Path = Union[str, "os.PathLike[str]"]
_MOST_LINES = 40  # of one error


class Loaded(NamedTuple):
    """What a load without `strict` left out."""

    missing: list[str]
    unexpected: list[str]


def _entries(op: str, pc: ParameterCollection) -> dict[str, Union[Parameters, LookupParameters]]:
    """The parameters by their names relative to the collection, in order of creation."""
    prefix = pc.name()
    entries: dict[str, Union[Parameters, LookupParameters]] = {}
    for p in parameters_of(pc):
        full = p.name()
        name = full[len(prefix) :] if full.startswith(prefix) else full
        if name in entries:
            raise ValueError(f"{op}(): got two parameters named {full}, which one dict cannot hold")
        entries[name] = p
    return entries


def _state_dict(self: ParameterCollection) -> dict[str, np.ndarray]:
    """The values of all parameters, for other libraries or `load_state_dict`.

    Values are the ones that graphs see: a factor of weight decay is applied, unlike in `as_array()`.

    Returns:
        dict from names, relative to this collection, to arrays: float32, C order, copies. Parameters come
        first, then LookupParameters, each in order of creation.
    Raises:
        ValueError: two parameters have the same name (after `load_param` of one key twice).
    Source: not in DyNet.
    Example:
        >>> pc = dy.ParameterCollection()
        >>> p = pc.add_parameters((2, 2), init=1, name="W")
        >>> table = pc.add_subcollection("words").add_lookup_parameters((3, 2), init=0)
        >>> {name: array.shape for name, array in pc.state_dict().items()}
        {'W': (2, 2), 'words/_0': (3, 2)}
    """
    entries = _entries("state_dict", self)
    return {name: np.array(_core._parameter_values(p), order="C") for name, p in entries.items()}


def _as_numbers(value: Any) -> Union[np.ndarray, str]:
    """The array, or what is wrong with it."""
    try:
        array: np.ndarray = np.asarray(value)
        if array.dtype.kind == "V":  # types of other packages, such as bfloat16
            array = array.astype(np.float32)
    except Exception as error:  # whatever the object does when it is asked for an array
        return f"{type(value).__name__}, which gives no array ({error})"
    if array.dtype.kind not in "biuf":
        return f"an array of {array.dtype}"
    return array


def _check_state(
    op: str, pc: ParameterCollection, state: Mapping[str, Any], strict: bool
) -> tuple[list[tuple[Any, np.ndarray]], Loaded]:
    """What is to be set, after every check."""
    entries = _entries(op, pc)
    left_out = Loaded([n for n in entries if n not in state], [str(n) for n in state if n not in entries])
    wrong = []
    if strict:
        wrong += [f"missing      {name}: wanted {entries[name].shape()}" for name in left_out.missing]
        wrong += [f"unexpected   {name}" for name in left_out.unexpected]
    accepted = []
    for name, p in entries.items():
        if name not in state:
            continue
        array = _as_numbers(state[name])
        if isinstance(array, str):
            wrong.append(f"mismatching  {name}: got {array}, wanted numbers {p.shape()}")
        elif array.shape != p.shape():
            wrong.append(f"mismatching  {name}: got {array.shape}, wanted {p.shape()}")
        else:
            accepted.append((p, array))
    if wrong:
        more = [f"and {len(wrong) - _MOST_LINES} more"] if len(wrong) > _MOST_LINES else []
        lines = "\n  ".join([*wrong[:_MOST_LINES], *more])
        raise ValueError(f"{op}(): nothing was loaded into {pc.name()}, which does not fit:\n  {lines}")
    return accepted, left_out


def _load_state(op: str, pc: ParameterCollection, state: Mapping[str, Any], strict: bool) -> Loaded:
    accepted, left_out = _check_state(op, pc, state, strict)
    for p, array in accepted:
        _core._set_parameter_values(p, array)
    return left_out


def _load_state_dict(self: ParameterCollection, state: Mapping[str, Any], strict: bool = True) -> Loaded:
    """Set the values of the parameters to those of a dict, such as `state_dict()` gives.

    Everything is checked before the first value is set: after an error the parameters are as they were.
    Gradients and trainers stay as they are.

    Args:
        state: from names, relative to this collection, to arrays of the parameters' shapes, or what
            `np.asarray` takes, of any type of real numbers.
        strict: whether every parameter must be in the dict and nothing else. Without it the rest is left
            alone; shapes must fit in any case.
    Returns:
        (missing, unexpected): names of the parameters not in the dict, and names that are no parameter.
    Raises:
        ValueError: names or shapes do not fit; the message lists all of them.
        TypeError: state is not a dict.
    Source: not in DyNet.
    Example:
        >>> pc = dy.ParameterCollection()
        >>> p = pc.add_parameters((2, 2), name="W")
        >>> result = pc.load_state_dict({"W": np.eye(2)})
        >>> p.as_array().tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        >>> pc.load_state_dict({"W": np.eye(3), "b": np.zeros(2)})
        Traceback (most recent call last):
        ...
        ValueError: load_state_dict(): nothing was loaded into /, which does not fit:
          unexpected   b
          mismatching  W: got (3, 3), wanted (2, 2)
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"load_state_dict(): expected a dict of arrays, got {type(state).__name__}")
    return _load_state("load_state_dict", self, state, bool(strict))


# ---------------------------------------------------------------- trainers

_NUMBERS = ("learning_rate", "clip_threshold", "sparse_updates", "updates", "status_updates", "status_clips",
            "cycle")  # fmt: skip
_AVERAGES = ("none", "cumulative", "exponential")


def _shaped(p: Any, flat: np.ndarray) -> np.ndarray:
    """Numbers in memory order as an array of the parameter's shape; a table has its rows first."""
    shape: tuple[int, ...] = p.shape()
    if isinstance(p, LookupParameters):
        array: np.ndarray = np.moveaxis(flat.reshape((*shape[1:], shape[0]), order="F"), -1, 0)
    else:
        array = flat.reshape(shape, order="F")
    own: np.ndarray = array.copy(order="C")
    return own


def _flat(p: Any, array: np.ndarray) -> np.ndarray:
    """The reverse of `_shaped`."""
    if isinstance(p, LookupParameters):
        array = np.moveaxis(array, 0, -1)
    flat: np.ndarray = np.asarray(array, dtype=np.float32).ravel(order="F")
    return flat


def _trainer_entries(op: str, trainer: Trainer, raw: dict[str, Any]) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Of each parameter by name: itself, and what the core says of it."""
    entries = _entries(op, _core._trainer_collection(trainer))
    return dict(zip(entries, zip(entries.values(), [*raw["parameters"], *raw["lookups"]])))


def _trainer_state_dict(self: Trainer) -> dict[str, Any]:
    """All that the trainer knows beside the parameters: rate, counters, momentum, accumulators, means.

    With `state_dict()` of the collection it is a checkpoint; a dict of numbers and arrays, which can be
    pickled. `save()` writes the same to a text file.

    Returns:
        dict of "trainer" (the class), "learning_rate", "clip_threshold", "sparse_updates", "updates" and
        other counters, "average" ("none", "cumulative" or "exponential") with "average_every" and
        "average_beta", and "state": from names, relative to the collection, to {"arrays": list of arrays of
        the parameter's shape, empty before its first update, "mean": array or None, "mean_count"}.
    Raises:
        RuntimeError: the parameters have the values of a moving average.
        ValueError: two parameters have the same name.
    Source: not in DyNet.
    Example:
        >>> pc = dy.ParameterCollection()
        >>> p = pc.add_parameters(2, init=1, name="p")
        >>> trainer = dy.MomentumSGDTrainer(pc, 0.5)
        >>> dy.sum_elems(p).backward()
        >>> trainer.update()
        >>> state = trainer.state_dict()
        >>> state["updates"], state["state"]["p"]["arrays"][0].tolist()
        (1, [-0.5, -0.5])
    """
    raw = _core._trainer_state(self, True)
    entries = _trainer_entries("state_dict", self, raw)
    state: dict[str, Any] = {"trainer": raw["trainer"], **{name: raw[name] for name in _NUMBERS}}
    state["average"] = _AVERAGES[raw["average"]]
    state["average_every"], state["average_beta"] = raw["average_every"], raw["average_beta"]
    state["state"] = {
        name: {
            "arrays": [_shaped(p, array) for array in own["arrays"]],
            "mean": None if own["mean"] is None else _shaped(p, own["mean"]),
            "mean_count": own["mean_count"],
        }
        for name, (p, own) in entries.items()
    }
    return state


def _wrong_state(p: Any, wanted: int, own: Any) -> str:
    """What is wrong with the state of one parameter; empty: nothing."""
    if not isinstance(own, Mapping) or not {"arrays", "mean", "mean_count"} <= set(own):
        return "expected a dict of arrays, mean and mean_count"
    arrays = [*own["arrays"], *([own["mean"]] if own["mean_count"] else [])]
    if len(own["arrays"]) not in (0, wanted):
        return f"got {len(own['arrays'])} arrays, wanted {wanted}, or none"
    for array in arrays:
        numbers = _as_numbers(array)
        if isinstance(numbers, str):
            return f"got {numbers}, wanted numbers {p.shape()}"
        if numbers.shape != p.shape():
            return f"got {numbers.shape}, wanted {p.shape()}"
    return ""


def _check_trainer_state(op: str, state: Any, raw: dict[str, Any], entries: dict[str, Any]) -> None:
    wanted = {"trainer", *_NUMBERS, "average", "average_every", "average_beta", "state"}
    if not isinstance(state, Mapping) or not isinstance(state.get("state"), Mapping):
        raise TypeError(f"{op}(): expected a dict as state_dict() gives it, got {type(state).__name__}")
    missing = sorted(wanted - set(state))
    if missing:
        raise ValueError(f"{op}(): the dict lacks {', '.join(missing)}")
    if state["trainer"] != raw["trainer"]:
        raise ValueError(f"{op}(): got the state of {state['trainer']} for {raw['trainer']}")
    if state["average"] not in _AVERAGES:
        raise ValueError(f"{op}(): expected average {', '.join(_AVERAGES)}, got {state['average']!r}")
    given = state["state"]
    wrong = [f"missing      {name}" for name in entries if name not in given]
    wrong += [f"unexpected   {name}" for name in given if name not in entries]
    for name, (p, own) in entries.items():
        fault = _wrong_state(p, own["wanted_arrays"], given[name]) if name in given else ""
        wrong += [f"mismatching  {name}: {fault}"] if fault else []
    if wrong:
        lines = "\n  ".join(wrong[:_MOST_LINES])
        raise ValueError(f"{op}(): nothing was loaded, as the parameters differ:\n  {lines}")


def _load_trainer_state(self: Trainer, state: Mapping[str, Any]) -> None:
    """Take a state that `state_dict()` of a trainer of this class and of equal parameters gave.

    Everything is checked before anything changes. What the constructor takes beside the learning rate, such
    as `beta_1`, is no part of the state.

    Args:
        state: the dict.
    Raises:
        ValueError: of another class, or names or shapes do not fit; the message lists them.
        TypeError: state is no such dict.
        RuntimeError: the parameters have the values of a moving average.
    Source: not in DyNet.
    Example:
        >>> pc = dy.ParameterCollection()
        >>> p = pc.add_parameters(2, init=1)
        >>> state = dy.AdamTrainer(pc, 0.5).state_dict()
        >>> trainer = dy.AdamTrainer(pc)
        >>> trainer.load_state_dict(state)
        >>> trainer.learning_rate
        0.5
    """
    op = "load_state_dict"
    raw = _core._trainer_state(self, False)
    entries = _trainer_entries(op, self, raw)
    _check_trainer_state(op, state, raw, entries)
    new = {name: type(raw[name])(state[name]) for name in (*_NUMBERS, "average_every", "average_beta")}
    new["average"] = _AVERAGES.index(state["average"])
    flat: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for name, (p, _) in entries.items():
        own = state["state"][name]
        count = int(own["mean_count"]) if new["average"] else 0
        flat[isinstance(p, LookupParameters)].append({
            "arrays": [_flat(p, np.asarray(array)) for array in own["arrays"]],
            "mean": _flat(p, np.asarray(own["mean"])) if count else None,
            "mean_count": count,
        })  # fmt: skip
    _core._set_trainer_state(self, {**new, "parameters": flat[False], "lookups": flat[True]})


# ---------------------------------------------------------------- safetensors


def _safetensors(op: str) -> ModuleType:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError(f"{op}(): needs the package safetensors: pip install safetensors") from error
    module: ModuleType = safetensors.numpy
    return module


def _collection(op: str, pc: Any) -> ParameterCollection:
    """The collection itself, or that of a builder."""
    if not isinstance(pc, ParameterCollection) and callable(getattr(pc, "param_collection", None)):
        pc = pc.param_collection()
    if not isinstance(pc, ParameterCollection):
        raise TypeError(f"{op}(): expected a ParameterCollection or a builder, got {type(pc).__name__}")
    return pc


def save_safetensors(path: Path, pc: Any) -> None:
    """Write `pc.state_dict()` to a safetensors file, which other libraries read.

    The file is complete or not there: it is written beside and then put into place.

    Args:
        path: of the file.
        pc: ParameterCollection, or a builder, whose `param_collection()` is taken.
    Raises:
        ImportError: the package safetensors is missing.
        OSError: the file cannot be written.
        ValueError: as `state_dict`.
    Source: https://github.com/huggingface/safetensors
    Example:
        >>> pc = dy.ParameterCollection()
        >>> p = pc.parameters_from_numpy(np.array([1.0, 2.0]), name="b")
        >>> dy.save_safetensors("model.safetensors", pc)
        >>> p.zero()
        >>> result = dy.load_safetensors("model.safetensors", pc)
        >>> p.as_array().tolist()
        [1.0, 2.0]
    """
    state = _state_dict(_collection("save_safetensors", pc))
    data = _safetensors("save_safetensors").save(state, metadata={"producer": "dynet_compat"})
    with replacing(os.fspath(path)) as file:
        file.write(data)


def load_safetensors(path: Path, pc: Any, strict: bool = True) -> Loaded:
    """Set the values of the parameters to those in a safetensors file; see `load_state_dict`.

    Args:
        path: of the file.
        pc: ParameterCollection, or a builder, whose `param_collection()` is taken.
        strict: whether every parameter must be in the file and nothing else.
    Returns:
        (missing, unexpected): names of the parameters not in the file, and names that are no parameter.
    Raises:
        ImportError: the package safetensors is missing.
        OSError: the file cannot be read.
        ValueError: it is no safetensors file, or names or shapes do not fit. Nothing is loaded.
    Source: https://github.com/huggingface/safetensors
    Example:
        >>> lstm = dy.LSTMBuilder(1, 2, 3, dy.ParameterCollection())
        >>> dy.save_safetensors("lstm.safetensors", lstm)
        >>> other = dy.LSTMBuilder(1, 2, 3, dy.ParameterCollection())
        >>> dy.load_safetensors("lstm.safetensors", other)
        Loaded(missing=[], unexpected=[])
    """
    op = "load_safetensors"
    collection = _collection(op, pc)
    library = _safetensors(op)
    atomic.role.before_load()
    with open(path, "rb") as file:
        data = file.read()
    try:
        state = library.load(data)
    except Exception as error:  # the library's own type, and KeyError for types NumPy has not
        what = f"{os.fspath(path)} is no safetensors file that NumPy can hold"
        raise ValueError(f"{op}(): {what}: {error}") from error
    try:
        return _load_state(op, collection, state, bool(strict))
    except ValueError as error:
        raise ValueError(f"{error}\n  in {os.fspath(path)}") from None


attach(ParameterCollection, state_dict=_state_dict, load_state_dict=_load_state_dict)
attach(Trainer, state_dict=_trainer_state_dict, load_state_dict=_load_trainer_state)
