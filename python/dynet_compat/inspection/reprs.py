"""Texts that `repr` gives for objects of the compiled module: kind, sizes, and values that are computed.

Nothing is computed, recorded or drawn for them. `str` of expressions and parameters is DyNet's.
"""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from .. import _core
from .._core import Expression, LookupParameters, ParameterCollection, Parameters, RNNState, Trainer

__all__ = ["described", "numbers_text", "sizes_text"]

_MOST_NUMBERS = 8
_MOST_PARAMETERS = 8


def sizes_text(sizes: tuple[int, ...], batch: int = 1) -> str:
    """Sizes as messages write them: {3,4}, {3}x8."""
    return "{" + ",".join(map(str, sizes)) + "}" + (f"x{batch}" if batch > 1 else "")


def numbers_text(values: np.ndarray) -> str:
    """A few numbers on one line."""
    if values.size == 1:
        return f"{values.reshape(-1)[0]:.6g}"
    text = np.array2string(
        values, precision=4, threshold=_MOST_NUMBERS, edgeitems=2, separator=", ", max_line_width=10**6
    )
    return " ".join(text.split())


def count(number: int, word: str, words: str = "") -> str:
    return f"{number:,} {word if number == 1 else words or word + 's'}"


def _expression(e: Expression) -> str:
    peeked = _core._peek(e)
    if peeked is None:
        return f"{e} of an earlier graph or of another thread's"
    sizes, batch, value = peeked
    shown = "" if value is None else f", value {numbers_text(value)}"
    return f"{e}: {sizes_text(sizes, batch)}{shown}"


def _rows_and_sizes(p: LookupParameters) -> str:
    rows, *sizes = p.shape()
    return f"{count(rows, 'row')} of {sizes_text(tuple(sizes))}"


def _frozen(p: Any) -> str:
    return "" if p.is_updated() else ", not updated"


def _parameters(p: Parameters) -> str:
    return f"{p}: {sizes_text(p.shape())}{_frozen(p)}"


def _lookup_parameters(p: LookupParameters) -> str:
    return f"{p}: {_rows_and_sizes(p)}{_frozen(p)}"


def _collection(pc: ParameterCollection) -> str:
    prefix = pc.name()
    names = [f"{p.name()[len(prefix) :]} {sizes_text(p.shape())}" for p in pc.parameters_list()]
    names += [f"{p.name()[len(prefix) :]} {_rows_and_sizes(p)}" for p in pc.lookup_parameters_list()]
    if not names:
        return f"<{type(pc).__name__} {prefix}: empty>"
    more = [f"and {len(names) - _MOST_PARAMETERS} more"] if len(names) > _MOST_PARAMETERS else []
    shown = ", ".join([*names[:_MOST_PARAMETERS], *more])
    return f"<{type(pc).__name__} {prefix}: {count(pc.parameter_count(), 'number')} in {shown}>"


def _trainer(t: Trainer) -> str:
    state = _core._trainer_state(t, False)
    clips = f"{state['clip_threshold']:.6g}" if state["clip_threshold"] > 0 else "off"
    rate = f"learning rate {state['learning_rate']:.6g}"
    return f"<{type(t).__name__}: {rate}, clipping {clips}, {count(state['updates'], 'update')}>"


def _state(s: RNNState) -> str:
    builder, output = s.b(), s.output()
    if builder is None:
        return f"<{type(s).__name__}: empty>"
    name = type(builder).__name__
    if output is None:
        return f"<{type(s).__name__} of {name}: before the first input>"
    peeked = _core._peek(output)
    if peeked is None:
        return f"<{type(s).__name__} of {name}: of an earlier graph or of another thread's>"
    steps, at = 0, s.prev()
    while at is not None:
        steps, at = steps + 1, at.prev()
    return f"<{type(s).__name__} of {name}: after {count(steps, 'input')}, output {sizes_text(*peeked[:2])}>"


def _builder(b: Any) -> str:
    spec = getattr(b, "spec", None)
    sizes = ""
    if hasattr(b, "_num_classes"):  # a softmax builder
        sizes = f"{b._input_dim} -> {count(b._num_classes, 'class', 'classes')}"
    elif isinstance(spec, tuple) and len(spec) >= 3:
        layers, from_size, to_size = spec[getattr(b, "_sizes", slice(0, 3))]
        sizes = f"{count(layers, 'layer')}, {from_size} -> {to_size}"
    try:
        place = f"in {b.param_collection().name()}"
    except (ValueError, NotImplementedError):  # made without a collection
        place = ""
    inside = ", ".join(part for part in (sizes, place) if part)
    return f"<{type(b).__name__}: {inside}>" if inside else f"<{type(b).__name__}>"


# Derived classes before their bases.
_TEXTS: tuple[tuple[type, Callable[[Any], str]], ...] = (
    (Parameters, _parameters),
    (LookupParameters, _lookup_parameters),
    (Expression, _expression),
    (ParameterCollection, _collection),
    (Trainer, _trainer),
    (RNNState, _state),
)


def described(item: Any) -> str:
    """What `repr` of an object of the compiled module gives."""
    try:
        return next((text for kind, text in _TEXTS if isinstance(item, kind)), _builder)(item)
    except Exception:  # a subclass whose __init__ has not run, for one: debuggers show such objects, too
        return object.__repr__(item)
