"""`dump_cg`: the values and gradients of the graph as text."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any, Optional, TextIO

import numpy as np

from .. import _core
from .text_graphviz import nodes

__all__ = ["dump_cg"]


def _matrix_text(array: np.ndarray) -> str:
    """Rows of numbers with six digits, in columns of one width."""
    cells = [[f"{value:.6g}" for value in row] for row in array]
    width = max(len(cell) for row in cells for cell in row)
    return "\n".join(" ".join(cell.rjust(width) for cell in row) for row in cells)


def _slices(array: np.ndarray, sizes: tuple[int, ...], batch: int) -> Iterator[tuple[str, np.ndarray]]:
    """The matrices that a tensor consists of, each with where it is."""
    full = np.asarray(array).reshape((*sizes, batch), order="F")
    if len(sizes) < 2:
        full = full.reshape((full.shape[0] if sizes else 1, 1, batch), order="F")
    outer = full.shape[2:]
    for place in np.ndindex(*reversed(outer)):
        at = tuple(reversed(place))
        names = [f"d{axis + 2}={i}" for axis, i in enumerate(at[:-1])]
        if batch > 1:
            names.append(f"batch {at[-1]}")
        yield ", ".join(names), full[(slice(None), slice(None), *at)]


def _block(
    what: str, array: Optional[np.ndarray], sizes: tuple[int, ...], batch: int, check: bool
) -> list[str]:
    if array is None:
        return [f"{what}: (not computed)"]
    if check:
        return [f"{what}: {'valid' if np.isfinite(array).all() else 'invalid'}"]
    lines = [f"{what}: "]
    for where, matrix in _slices(array, sizes, batch):
        lines += [f"[{where}]"] * bool(where) + [_matrix_text(matrix)]
    return lines


def _node_lines(number: int, node: Any, values: bool, gradients: bool, check: bool) -> list[str]:
    _, _, sizes, batch, _ = node
    lines = [f"Node {number}"]
    if values:
        try:
            lines += _block("Value", _core._expression(number).npvalue(), sizes, batch, check)
        except (ValueError, RuntimeError, IndexError) as error:
            lines.append(f"Value: ({error})")
    if gradients:
        lines += _block("Gradient", _core._node_gradient(number), sizes, batch, check)
    return lines


def dump_cg(
    filename: str = "", show_values: bool = True, show_gradients: bool = True, nan_check_only: bool = False
) -> None:
    """Write the values and gradients of all nodes; what is not computed yet is computed.

    Args:
        filename: where to; "" for stdout.
        show_values: whether to write values.
        show_gradients: whether to write gradients, those of the last backward().
        nan_check_only: write "valid" or "invalid" (some value is NaN or infinite) instead of numbers.
    Source: DyNet 2.1 `dump_cg`.
    Example:
        >>> graph = dy.renew_cg()
        >>> y = dy.log(dy.inputVector([1, 0]))
        >>> dy.dump_cg(show_gradients=False, nan_check_only=True)
        Node 0
        Value: valid
        Node 1
        Value: invalid
    """

    def write(stream: TextIO) -> None:
        for number, node in enumerate(nodes()):
            for line in _node_lines(number, node, show_values, show_gradients, nan_check_only):
                print(line, file=stream)

    path = os.fspath(filename)  # no number of an open file: it would be closed
    if not path:
        write(sys.stdout)
        return
    with open(path, "w", encoding="utf-8") as file:
        write(file)
