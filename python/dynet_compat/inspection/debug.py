"""Looking at the graph and at the time its ops take: text for people, in DyNet's form."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import Any, Optional, TextIO

import numpy as np

from .. import _core

__all__ = ["dump_cg", "print_text_graphviz"]


# ---------------------------------------------------------------- the graph as a drawing


def _nodes() -> Iterator[tuple[str, list[int], tuple[int, ...], int, bool]]:
    """The nodes of the graph as it is now: op, arguments, sizes, batch size, in its argument's memory."""
    for number in range(_core.cg_size()):
        yield _core._graph_node(number)


def _kib(number: float) -> str:
    return f"{number / 1024:>11.4g} KiB"


def print_text_graphviz() -> None:
    """Print the graph on stderr, in the language of Graphviz.

    Each node is labelled with its op and its arguments; with `--dynet-profiling` also with the memory of its
    value, and from level 2 on a table of all kinds of nodes follows.

    Source: DyNet 2.1 `print_text_graphviz`.
    Example:
        >>> y = dy.tanh(dy.inputVector([1, 2]))
        >>> dy.print_text_graphviz()
    """
    from ..startup.config import profiling_level
    from .text_graphviz import describe

    level = profiling_level()
    lines = ["digraph G {", "  rankdir=LR;", "  nodesep=.05;"]
    used: dict[str, list[int]] = {}  # label with unnamed arguments -> bytes of each node
    for number, (_, arguments, sizes, batch, shared) in enumerate(_nodes()):
        words = describe(number)
        label = f"v{number} = {words}"
        memory = 0 if shared else 4 * batch * int(np.prod(sizes))
        if level:
            label += f" (MEM: {_kib(memory)}{' (forward/backward inplaced)' if shared else ''})"
        used.setdefault(re.sub(r"\bv\d+", "a", words), []).append(memory)
        lines.append(f'  N{number} [label="{label}"];')
        lines += [f"  N{argument} -> N{number};" for argument in arguments]
    lines.append("}")
    if level > 1:
        lines += ["", "Aggregated nodes, sorted by memory consumption:"]
        total = sum(sum(sizes) for sizes in used.values())
        for kind, each in sorted(used.items(), key=lambda item: sum(item[1])):
            share = 100.0 * sum(each) / max(total, 1)
            lines.append(f"{_kib(sum(each))}\t{share:.4g}%\tcalled {len(each)}x\t{kind}")
        lines.append(f"{_kib(total)}\t100%\t(total)")
    print("\n".join(lines), file=sys.stderr)


# ---------------------------------------------------------------- the graph with its values


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
        for number, node in enumerate(_nodes()):
            for line in _node_lines(number, node, show_values, show_gradients, nan_check_only):
                print(line, file=stream)

    path = os.fspath(filename)  # no number of an open file: it would be closed
    if not path:
        write(sys.stdout)
        return
    with open(path, "w", encoding="utf-8") as file:
        write(file)


# ---------------------------------------------------------------- profiling


def timing_lines() -> list[str]:
    """The time of each kind of launch so far, in DyNet's form; empty if nothing was timed."""
    times = []
    for name, (forward, forwards, backward, backwards) in _core._op_times().items():
        times += [(forward, f"FWD {name}")] * bool(forwards) + [(backward, f"BWD {name}")] * bool(backwards)
    if not times:
        return []
    total = sum(seconds for seconds, _ in times)
    lines = ["Timing Info:"]
    for seconds, kind in [*sorted(times), (total, "(total time)")]:
        lines.append(f"{1000 * seconds:>11.4g}\t{100 * seconds / (total or 1.0):.4g}%\t{kind}")
    return lines


def print_timing() -> None:
    """Print `timing_lines`; with `--dynet-profiling` this happens when the program ends."""
    for line in timing_lines():
        print(line)
