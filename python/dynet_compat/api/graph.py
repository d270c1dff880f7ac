"""The computation graph as an object, and evaluation of several expressions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

import numpy as np

from .. import _core
from .._core import Expression
from ..inspection.dump import dump_cg
from ..inspection.text_graphviz import print_text_graphviz
from ..startup import devices
from .functions import _check_device, _int, _numbers, _sizes, _sparse_places
from .legacy import deprecated

if TYPE_CHECKING:
    from ..inspection.batch_plan import BatchPlan

__all__ = [
    "available_devices", "cg", "cg_checkpoint", "cg_revert", "cg_version", "ComputationGraph",
    "DeviceInfo", "dump_cg", "forward", "get_device_info", "npvalues", "print_graphviz",
    "print_text_graphviz", "renew_cg", "reset_random_seed", "values",
]  # fmt: skip

Value = Union[float, list[float], np.ndarray]


def _flat(op: str, v: Any) -> np.ndarray:
    """float32 array of any iterable of numbers."""
    return _numbers(op, v if isinstance(v, np.ndarray) else list(v)).ravel()


class ComputationGraph:
    """The graph: `cg()` and `renew_cg()` return it. Each thread has its own, on which the methods work.

    Its methods take node numbers, which `str(expression)` shows: "expression <number>/<version>".

    Source: DyNet 2.1 `ComputationGraph`.
    Example:
        >>> graph = dy.renew_cg()
        >>> x = dy.scalarInput(3) + 1
        >>> graph.forward_scalar(1)
        4.0
    """

    __module__ = "_dynet"
    __slots__ = ()

    def __init__(self, guard: int = 0) -> None:
        raise RuntimeError("ComputationGraph(): there is one graph (per thread), and cg() returns it")

    def renew(
        self,
        immediate_compute: bool = False,
        check_validity: bool = False,
        autobatching: Optional[bool] = None,
    ) -> ComputationGraph:
        """See `renew_cg`.

        Args:
            immediate_compute: as in `renew_cg`.
            check_validity: as in `renew_cg`.
            autobatching: as in `renew_cg`.
        Returns:
            The graph.
        Source: DyNet 2.1 `ComputationGraph.renew`.
        Example:
            >>> dy.cg().renew() is dy.cg()
            True
        """
        return renew_cg(immediate_compute, check_validity, autobatching)

    def version(self) -> int:
        """How often the graph was renewed.

        Source: DyNet 2.1 `ComputationGraph.version`.
        Example:
            >>> dy.cg().version() == dy.cg_version()
            True
        """
        return cg_version()

    def checkpoint(self) -> None:
        """See `cg_checkpoint`.

        Source: DyNet 2.1 `ComputationGraph.checkpoint`.
        Example:
            >>> dy.cg().checkpoint()
            >>> dy.cg().revert()
        """
        _core.cg_checkpoint()

    def revert(self) -> None:
        """See `cg_revert`.

        Source: DyNet 2.1 `ComputationGraph.revert`.
        Example:
            >>> x = dy.scalarInput(2)
            >>> dy.cg().checkpoint()
            >>> y = x * 3
            >>> dy.cg().revert()
            >>> x.value()
            2.0
        """
        _core.cg_revert()

    def forward(self, index: int) -> None:
        """Compute node `index` and all before it, from scratch.

        Args:
            index: number of the node.
        Raises:
            IndexError: no such node.
        Source: DyNet 2.1 `ComputationGraph.forward`.
        Example:
            >>> x = dy.scalarInput(3) + 1
            >>> dy.cg().forward(1)
        """
        _node("forward", index).forward(recalculate=True)

    def inc_forward(self, index: int) -> None:
        """Compute what is missing up to node `index`.

        Args:
            index: number of the node.
        Raises:
            IndexError: no such node.
        Source: DyNet 2.1 `ComputationGraph.inc_forward`.
        Example:
            >>> x = dy.scalarInput(3) + 1
            >>> dy.cg().inc_forward(1)
        """
        _node("inc_forward", index).forward()

    def forward_scalar(self, index: int) -> float:
        """Value of node `index`, one number, computed from scratch.

        Args:
            index: number of the node.
        Raises:
            IndexError: no such node.
            RuntimeError: it has more than one element.
        Source: DyNet 2.1 `ComputationGraph.forward_scalar`.
        Example:
            >>> x = dy.scalarInput(3) + 1
            >>> dy.cg().forward_scalar(1)
            4.0
        """
        return _node("forward_scalar", index).scalar_value(recalculate=True)

    def inc_forward_scalar(self, index: int) -> float:
        """Value of node `index`, one number.

        Args:
            index: number of the node.
        Raises:
            IndexError: no such node.
            RuntimeError: it has more than one element.
        Source: DyNet 2.1 `ComputationGraph.inc_forward_scalar`.
        Example:
            >>> x = dy.scalarInput(3) + 1
            >>> dy.cg().inc_forward_scalar(1)
            4.0
        """
        return _node("inc_forward_scalar", index).scalar_value()

    def forward_vec(self, index: int) -> list[float]:
        """Values of node `index`, flat, computed from scratch.

        Args:
            index: number of the node.
        Raises:
            IndexError: no such node.
        Source: DyNet 2.1 `ComputationGraph.forward_vec`.
        Example:
            >>> x = dy.inputVector([1, 2]) + 1
            >>> dy.cg().forward_vec(1)
            [2.0, 3.0]
        """
        return _node("forward_vec", index).vec_value(recalculate=True)

    def inc_forward_vec(self, index: int) -> list[float]:
        """Values of node `index`, flat.

        Args:
            index: number of the node.
        Raises:
            IndexError: no such node.
        Source: DyNet 2.1 `ComputationGraph.inc_forward_vec`.
        Example:
            >>> x = dy.inputVector([1, 2]) + 1
            >>> dy.cg().inc_forward_vec(1)
            [2.0, 3.0]
        """
        return _node("inc_forward_vec", index).vec_value()

    def backward(self, index: int, full: bool = False) -> None:
        """Gradients of node `index`, which has one element.

        Args:
            index: number of the node.
            full: as in `Expression.backward`.
        Raises:
            IndexError: no such node.
            ValueError: it has more than one element.
        Source: DyNet 2.1 `ComputationGraph.backward`.
        Example:
            >>> x = dy.inputVector([1, 2])
            >>> y = dy.squared_norm(x)
            >>> dy.cg().backward(1, full=True)
            >>> x.gradient()
            array([2., 4.])
        """
        _node("backward", index).backward(full)

    def inputMatrixLiteral(
        self, v: Sequence[float], d: tuple[int, ...], batch_size: int = 1, device: str = ""
    ) -> Expression:
        """A tensor of numbers in memory order (column-major, batch last).

        Args:
            v: the numbers, any iterable.
            d: sizes.
            batch_size: batch size.
            device: "" or "CPU".
        Raises:
            ValueError: another number of numbers than elements.
        Source: DyNet 2.1 `ComputationGraph.inputMatrixLiteral`.
        Example:
            >>> dy.cg().inputMatrixLiteral([1, 2, 3, 4], (2, 2)).value()
            array([[1., 3.],
                   [2., 4.]])
        """
        op = "inputMatrixLiteral"
        _check_device(op, device)
        values, sizes = _flat(op, v), _sizes(op, "d", d)
        return _core._input_array(values, sizes, _int(op, "batch_size", batch_size), True, "vector")

    def inputSparseTensor(
        self,
        idxs: Sequence[int],
        v: Sequence[float],
        dim: tuple[int, ...],
        batch_size: int = 1,
        defval: float = 0,
        device: str = "",
    ) -> Expression:
        """A tensor of `defval` with `v` at the positions `idxs` in memory order.

        Args:
            idxs: positions in memory order.
            v: a number for each.
            dim: sizes.
            batch_size: batch size.
            defval: the number at all other positions.
            device: "" or "CPU".
        Raises:
            ValueError: another number of positions than numbers, or a position that is not there.
        Source: DyNet 2.1 `ComputationGraph.inputSparseTensor`.
        Example:
            >>> dy.cg().inputSparseTensor([3], [5], (2, 2)).value()
            array([[0., 0.],
                   [0., 5.]])
        """
        op = "inputSparseTensor"
        _check_device(op, device)
        return _sparse_places(op, idxs, v, _sizes(op, "dim", dim), batch_size, defval)

    def print_graphviz(self) -> None:
        """See `print_text_graphviz`.

        Source: DyNet 2.1 `ComputationGraph.print_graphviz`.
        Example:
            >>> x = dy.scalarInput(2)
            >>> dy.cg().print_graphviz()
        """
        print_text_graphviz()

    def dump(self, filename: str, show_values: bool, show_gradients: bool, nan_check_only: bool) -> None:
        """See `dump_cg`.

        Args:
            filename, show_values, show_gradients, nan_check_only: as in `dump_cg`.
        Raises:
            OSError: the file cannot be written.
        Source: DyNet 2.1 `ComputationGraph.dump`.
        Example:
            >>> import os
            >>> y = dy.scalarInput(2) * 3
            >>> dy.cg().dump("graph.txt", False, False, False)
            >>> os.path.getsize("graph.txt") > 0
            True
        """
        dump_cg(filename, show_values, show_gradients, nan_check_only)

    def batch_plan(self, of: Optional[Expression] = None) -> BatchPlan:
        """What is computed together, what is not, and why: a table, and the same as rows.

        Launches that ran come first, then those that would run; nothing is computed.

        Args:
            of: what is pending is planned for this expression alone; None: for the whole graph.
        Returns:
            A `BatchPlan`.
        Raises:
            ValueError: `of` is of an earlier graph.
        Example:
            >>> xs = [dy.inputVector([1, i]) for i in range(3)]
            >>> y = dy.esum([dy.tanh(x) for x in xs])
            >>> print(dy.cg().batch_plan())
            4 nodes in 2 launches: 0 ran, 2 are pending
            <BLANKLINE>
              #  op    nodes  shapes                operands    flush
              1  tanh      3  {2} -> {2}            contiguous  pending
              2  esum      1  {2} {2} {2} -> {2}    gathered    pending
            <BLANKLINE>
            Launches of one op that are not one launch: none
        """
        from ..inspection.batch_plan import batch_plan

        return batch_plan(of)

    def to_svg(self, of: Optional[Expression] = None, limit: int = 300) -> str:
        """The graph as a drawing: nodes of one launch have one colour. Nothing is computed.

        Notebooks show it for the graph, and for an expression what that is made of.

        Args:
            of: only this expression and what it is made of; None: the whole graph.
            limit: a graph with more nodes is drawn with a box for each launch, that many at most.
        Returns:
            A document in SVG, of UTF-8 text without references to anything outside.
        Raises:
            ValueError: `of` is of an earlier graph; limit is less than 1.
        Example:
            >>> y = dy.tanh(dy.inputVector([1, 2]))
            >>> dy.cg().to_svg().startswith("<svg")
            True
        """
        from ..inspection.graph_svg import graph_svg

        return graph_svg(of, limit)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def parameters(self, params: Any) -> Any:
        """The parameter itself, which is an expression; until DyNet 2.0.3.

        Args:
            params: Parameters or LookupParameters.
        Returns:
            params.
        Source: DyNet 2.0 `ComputationGraph.parameters`.
        Example:
            >>> p = dy.ParameterCollection().add_parameters(2, init=1)
            >>> dy.cg().parameters(p).value()
            [1.0, 1.0]
        """
        deprecated("ComputationGraph.parameters", "use the parameter as it is")
        return params

    def __repr__(self) -> str:
        return f"<the computation graph, version {cg_version()}, {_core.cg_size()} nodes>"


_graph = object.__new__(ComputationGraph)


def _node(op: str, index: int) -> Expression:
    number = _int(op, "index", index)
    if number >= _core.cg_size():
        raise IndexError(f"{op}(): expected a node < {_core.cg_size()}, got {number}")
    return _core._expression(number)


def _expression_svg(self: Expression) -> Optional[str]:
    number = _core._node_number(self)
    if number is None:  # of an earlier graph, or a parameter: notebooks show the text
        return None
    return _graph.to_svg(self)


_core._extend(Expression, "_repr_svg_", _expression_svg)


def cg() -> ComputationGraph:
    """The computation graph.

    Source: DyNet 2.1 `cg`.
    Example:
        >>> dy.cg() is dy.renew_cg()
        True
    """
    return _graph


def cg_version() -> int:
    """How often the graph was renewed: expressions of earlier versions cannot be used any more.

    Source: DyNet 2.1 `cg_version`.
    Example:
        >>> before = dy.cg_version()
        >>> graph = dy.renew_cg()
        >>> dy.cg_version() - before
        1
    """
    return _core.cg_version()


renew_cg = _core.renew_cg
_core._set_graph(_graph)


def cg_checkpoint() -> None:
    """Remember the graph as it is, for `cg_revert`; checkpoints stack.

    Source: DyNet 2.1 `cg_checkpoint`.
    Example:
        >>> x = dy.scalarInput(2)
        >>> dy.cg_checkpoint()
        >>> y = x * 3
        >>> dy.cg_revert()
        >>> x.value()
        2.0
    """
    _core.cg_checkpoint()


def cg_revert() -> None:
    """Forget the expressions made since the last `cg_checkpoint`; without one nothing happens.

    Source: DyNet 2.1 `cg_revert`.
    Example:
        >>> dy.cg_checkpoint()
        >>> y = dy.scalarInput(2) * 3
        >>> dy.cg_revert()
    """
    _core.cg_revert()


def reset_random_seed(seed: int) -> None:
    """Start the stream of random numbers again: initial parameters, dropout, noise, samples.

    Args:
        seed: any number 0 <= seed < 2**32; equal seeds give equal streams.
    Source: DyNet 2.1 `reset_random_seed`.
    Example:
        >>> dy.reset_random_seed(7)
        >>> first = dy.random_normal(3).value()
        >>> dy.reset_random_seed(7)
        >>> dy.random_normal(3).value() == first
        True
    """
    _core.reset_random_seed(_int("reset_random_seed", "seed", seed))


def _several(op: str, exps: Iterable[Expression]) -> list[Expression]:
    if isinstance(exps, (str, bytes, Expression)) or not isinstance(exps, Iterable):
        raise TypeError(f"{op}(): expected a list of Expressions, got {type(exps).__name__}")
    exps = list(exps)
    if not exps:
        raise IndexError(f"{op}(): expected at least one Expression, got an empty list")
    for e in exps:
        if not isinstance(e, Expression):
            raise TypeError(f"{op}(): expected a list of Expressions, got one with a {type(e).__name__}")
    return exps


def forward(exps: Iterable[Expression], recalculate: bool = False) -> None:
    """Compute the expressions.

    Args:
        exps: Expressions.
        recalculate: compute them again if they are computed, with new random numbers.
    Raises:
        IndexError: exps is empty.
    Source: DyNet 2.1 `forward`.
    Example:
        >>> x, y = dy.scalarInput(2), dy.scalarInput(3)
        >>> dy.forward([x + y, x * 2])
    """
    _core._forward(_several("forward", exps), bool(recalculate), False)


def values(exps: Iterable[Expression], recalculate: bool = False) -> list[Value]:
    """Values of the expressions, computed together: `value()` of each.

    Args:
        exps: Expressions.
        recalculate: compute them again if they are computed, with new random numbers.
    Raises:
        IndexError: exps is empty.
    Source: DyNet 2.1 `values`.
    Example:
        >>> x, y = dy.scalarInput(2), dy.inputVector([3, 4])
        >>> dy.values([x, y])
        [2.0, [3.0, 4.0]]
    """
    several = _several("values", exps)
    _core._forward(several, bool(recalculate), True)
    return [e.value() for e in several]


def npvalues(exps: Iterable[Expression], recalculate: bool = False) -> list[np.ndarray]:
    """Values of the expressions as arrays, computed together: `npvalue()` of each.

    Args:
        exps: Expressions.
        recalculate: compute them again if they are computed, with new random numbers.
    Raises:
        IndexError: exps is empty.
    Source: DyNet 2.1 `npvalues`.
    Example:
        >>> [a.tolist() for a in dy.npvalues([dy.scalarInput(2), dy.inputVector([3, 4])])]
        [[2.0], [3.0, 4.0]]
    """
    several = _several("npvalues", exps)
    _core._forward(several, bool(recalculate), True)
    return [e.npvalue() for e in several]


# ---------------------------------------------------------------- devices


class DeviceInfo:
    """A device: `name`, `id` and `type`.

    Args:
        name: its name.
        id: its number; 0 for the CPU.
        dtype: its kind, which `type` has: -1 for the CPU, 0 for a GPU.
    Source: DyNet 2.1 `DeviceInfo`.
    Example:
        >>> device = dy.get_device_info("CPU")
        >>> device.name, device.id, device.type
        ('CPU', 0, -1)
    """

    __module__ = "_dynet"

    def __init__(self, name: str, id: int, dtype: int) -> None:
        self.name, self.type, self.id = name, dtype, id


def available_devices() -> list[str]:
    """Names of the devices that the program asked for, GPUs first; the CPU is always the last.

    Source: DyNet 2.1 `available_devices`.
    Example:
        >>> dy.available_devices()[-1]
        'CPU'
    """
    return list(devices.current().names)


def get_device_info(name: str) -> DeviceInfo:
    """Description of a device.

    Args:
        name: one of `available_devices()`.
    Raises:
        RuntimeError: there is no such device.
    Source: DyNet 2.1 `get_device_info`.
    Example:
        >>> dy.get_device_info("CPU").name
        'CPU'
    """
    if not isinstance(name, str):
        raise TypeError(f"get_device_info(): expected a str, got {type(name).__name__}")
    if name not in available_devices():
        raise RuntimeError(f"get_device_info(): expected one of {available_devices()}, got {name!r}")
    return DeviceInfo(name, int(name[4:]), 0) if name.startswith("GPU:") else DeviceInfo(name, 0, -1)


def print_graphviz(**kwarge: Any) -> None:
    """Prints a hint: drawing belongs to the mode `--dynet-viz`.

    Args:
        kwargs: options of the drawing, not used here.
    Source: DyNet 2.1 `print_graphviz`.
    Example:
        >>> dy.print_graphviz()
        Run with --dynet-viz to get the visualization behavior.
    """
    print("Run with --dynet-viz to get the visualization behavior.")
