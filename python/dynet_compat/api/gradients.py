"""Gradients of a whole collection as one array, and hashes of values and trainers: for programs that sum
gradients over processes of their own, keep them, or check that a run repeats another one.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import index
from typing import Any, NamedTuple, Optional

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._core import LookupParameters, ParameterCollection, Trainer
from ..files.text_format import parameters_of
from .attach import attach

__all__ = ["GradientEntry"]

_ROWS, _ALL = 1, 2  # kinds of gradients, as _core._gradient_kinds() gives them


class GradientEntry(NamedTuple):
    """Where `ParameterCollection.gradients_to_vector` has put the gradient of one parameter.

    Attributes:
        name: of the parameter.
        offset: of its first element in the vector.
        shape: of the gradient; of a table: number of rows, sizes of a row.
        rows: of a table, the numbers of its rows, ascending; None for Parameters.
        number: among the collection's parameters of this name, which is seldom that of several.

    Example:
        >>> pc = dy.ParameterCollection()
        >>> table = pc.add_lookup_parameters((4, 2), name="E")
        >>> dy.squared_norm(table[3] - dy.inputVector([1, 2])).backward()
        >>> vector, contents = pc.gradients_to_vector()
        >>> contents[0].name, contents[0].shape, contents[0].rows
        ('/E', (1, 2), array([3], dtype=uint32))
    """

    name: str
    offset: int
    shape: tuple[int, ...]
    rows: Optional[NDArray[np.uint32]]
    number: int = 0

    @property
    def size(self) -> int:
        """Number of elements.

        Example:
            >>> dy.GradientEntry("/W", 0, (2, 3), None).size
            6
        """
        return math.prod(self.shape)

    def view(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """The gradient's part of a vector, in its shape and without a copy.

        Args:
            vector: as `ParameterCollection.gradients_to_vector` gives it.
        Example:
            >>> pc = dy.ParameterCollection()
            >>> W = pc.parameters_from_numpy(np.array([[1.0, 2.0], [3.0, 4.0]]))
            >>> dy.squared_norm(dy.reshape(W, (4,))).backward()
            >>> vector, contents = pc.gradients_to_vector()
            >>> contents[0].view(vector)
            array([[2., 4.],
                   [6., 8.]], dtype=float32)
        """
        part = vector[self.offset : self.offset + self.size]
        if self.rows is None:
            return part.reshape(self.shape, order="F")
        rows = part.reshape(self.shape[0], *self.shape[:0:-1])
        return rows.transpose(0, *range(rows.ndim - 1, 0, -1))


def _gradients_to_vector(
    self: ParameterCollection, dense: bool = False
) -> tuple[NDArray[np.float32], list[GradientEntry]]:
    """Copy all gradients into one array.

    Args:
        dense: whether to include every parameter and all rows of tables, with zeros where there is no
            gradient. Two programs with equal parameters then get equal contents.
    Returns:
        The gradients, float32, and a `GradientEntry` for each that is in it: by default for parameters that
        have a gradient, of tables the rows that have one.
    Source: PyTorch's `parameters_to_vector`, of gradients.
    Example:
        >>> pc = dy.ParameterCollection()
        >>> p, unused = pc.parameters_from_numpy(np.array([1.0, 2.0])), pc.add_parameters(3)
        >>> dy.squared_norm(p).backward()
        >>> vector, contents = pc.gradients_to_vector()
        >>> vector, [entry.name for entry in contents]
        (array([2., 4.], dtype=float32), ['/_0'])
        >>> pc.gradients_to_vector(dense=True)[0]
        array([2., 4., 0., 0., 0.], dtype=float32)
    """
    kinds = _core._gradient_kinds(self)
    if dense:
        kinds[:] = _ALL
    contents, offset = [], 0
    parts: list[tuple[int, Any]] = []
    for i, (key, parameter) in enumerate(_by_name(self).items()):
        shape, rows = tuple(parameter.shape()), None
        if kinds[i] not in (_ROWS, _ALL):
            continue
        if isinstance(parameter, LookupParameters):
            rows = np.arange(shape[0], dtype=np.uint32) if kinds[i] == _ALL else parameter.touched_rows()
            shape = (len(rows), *shape[1:])
        contents.append(GradientEntry(key[0], offset, shape, rows, key[1]))
        parts.append((i, parameter))
        offset += contents[-1].size
    vector = np.empty(offset, np.float32)
    for kind, group in groupby(zip(parts, contents), lambda part: kinds[part[0][0]]):
        run = list(group)  # whole gradients that follow each other are copied at once
        if kind == _ALL:
            (first, _), entry = run[0]
            _core._take_gradients(self, kinds, vector[entry.offset :], first, run[-1][0][0] + 1)
            continue
        for (_, table), entry in run:
            entry.view(vector)[...] = table.rows_grad_as_array(entry.rows)
    return vector, contents


def _by_name(collection: ParameterCollection) -> dict[tuple[str, int], Any]:
    """Its parameters, by name and number among those of this name."""
    counts: Counter[str] = Counter()
    found = {}
    for parameter in parameters_of(collection):
        name = parameter.name()
        found[name, counts[name]] = parameter
        counts[name] += 1
    return found


def _vector_to_gradients(
    self: ParameterCollection, vector: Any, contents: Iterable[Sequence[Any]]
) -> None:
    """Replace all gradients of the collection by those of an array. Parameters that are not in it have none
    afterwards.

    Args:
        vector: float32 array, as `gradients_to_vector` gives it; other real numbers are converted.
        contents: what came with it; entries may be lists, as JSON makes them. Rows that are listed count as
            rows with a gradient, also where that is zero: trainers update them.
    Raises:
        ValueError: a parameter of the contents is not in the collection or of another shape, a row does not
            exist, or the array is too short or too long.
        TypeError: the array is not of real numbers, or an entry is something else. Nothing is changed then.
    Source: PyTorch's `vector_to_parameters`, for gradients.
    Example:
        >>> pc = dy.ParameterCollection()
        >>> p = pc.parameters_from_numpy(np.array([1.0, 2.0]))
        >>> dy.squared_norm(p).backward()
        >>> vector, contents = pc.gradients_to_vector()
        >>> pc.vector_to_gradients(vector / 2, contents)
        >>> p.grad_as_array()
        array([1., 2.])
    """
    op = "vector_to_gradients()"
    given = np.asarray(vector)
    if given.dtype.kind not in "fiub":
        raise TypeError(f"{op}: expected an array of real numbers, got one of {given.dtype}")
    values = np.ascontiguousarray(given, np.float32)
    by_name = _by_name(self)
    found: dict[tuple[str, int], GradientEntry] = {}
    for each in contents:
        entry = _entry(op, each)
        key = entry.name, entry.number
        parameter = by_name.get(key)
        if parameter is None or key in found:
            what = "each parameter once" if parameter is not None else "names of parameters of the collection"
            number = f", number {entry.number} of this name" if entry.number else ""
            raise ValueError(f"{op}: expected {what}, got {entry.name!r}{number}")
        _check_entry(op, parameter, entry)
        found[key] = entry
    sizes = [entry.size for entry in found.values()]
    starts = np.cumsum([0, *sizes])
    if values.shape != (starts[-1],) or [entry.offset for entry in found.values()] != starts[:-1].tolist():
        raise ValueError(
            f"{op}: expected an array of {starts[-1]} elements and the contents that came with it; got "
            f"{values.shape}"
        )
    for key, parameter in by_name.items():
        if key not in found:
            parameter.set_gradient(None)
        elif found[key].rows is None:
            parameter.set_gradient(found[key].view(values))
        else:
            parameter.set_row_gradients(found[key].rows, found[key].view(values))


def _entry(op: str, given: Sequence[Any]) -> GradientEntry:
    """TypeError unless it is one; lists, as JSON makes them, are accepted."""
    try:
        name, offset, shape, rows, number = GradientEntry(*given)
        rows = None if rows is None else np.asarray(rows)
        return GradientEntry(str(name), index(offset), tuple(map(index, shape)), rows, index(number))
    except (TypeError, ValueError):
        raise TypeError(f"{op}: expected entries of gradients_to_vector(), got {given!r}") from None


def _check_entry(op: str, parameter: Any, entry: GradientEntry) -> None:
    """ValueError where it is no gradient of this parameter."""
    shape, table = tuple(parameter.shape()), isinstance(parameter, LookupParameters)
    rows = entry.rows if table else None
    wanted = shape if rows is None else (*rows.shape[:1], *shape[1:])
    if table != (entry.rows is not None) or entry.shape != wanted:
        kind = "a table" if table else "parameters"
        raise ValueError(f"{op}: expected a gradient of {entry.name}, {kind} of {shape}; got {entry.shape}")
    if rows is None or rows.size == 0:
        return
    ascending = rows.ndim == 1 and rows.dtype.kind in "iu" and (rows[1:] > rows[:-1]).all()
    if not ascending or rows[0] < 0 or rows[-1] >= shape[0]:
        bad = f"expected ascending rows below {shape[0]} of {entry.name}; got {rows.tolist()}"
        raise ValueError(f"{op}: {bad}")


def _values_hash(self: ParameterCollection) -> str:
    """A hash of the bits of all values: equal for equal runs, and different for all others, but for one
    chance in 2^64.

    Returns:
        16 hexadecimal digits. Names of parameters have no influence, their order has.
    Example:
        >>> pc = dy.ParameterCollection()
        >>> p = pc.parameters_from_numpy(np.array([1.0, 2.0]))
        >>> before = pc.values_hash()
        >>> p.set_value([1, np.nextafter(np.float32(2), np.float32(3))])
        >>> len(before), pc.values_hash() == before
        (16, False)
    """
    return hashlib.blake2b(_core._value_hashes(self).tobytes(), digest_size=8).hexdigest()


def _state_hash(self: Trainer) -> str:
    """A hash of what the trainer keeps from update to update: learning rate, clip threshold, number of
    updates, momentum and the like. Values of parameters have no influence; see
    `ParameterCollection.values_hash`.

    Returns:
        16 hexadecimal digits.
    Example:
        >>> trainers = [dy.AdamTrainer(dy.ParameterCollection(), 0.1) for _ in range(2)]
        >>> first, second = (trainer.state_hash() for trainer in trainers)
        >>> first == second
        True
    """
    return f"{_core._trainer_hash(self):016x}"


attach(
    ParameterCollection,
    gradients_to_vector=_gradients_to_vector,
    vector_to_gradients=_vector_to_gradients,
    values_hash=_values_hash,
)
attach(Trainer, state_hash=_state_hash)
