"""Names and forms of DyNet 1.x and 2.0 that DyNet 2.1 no longer has, where they have a faithful meaning.

The first use of each name is logged by "dynet_compat" (level WARNING, so on stderr unless the program sets up
logging): `logging.getLogger("dynet_compat").setLevel(logging.ERROR)` silences them.

Forms that are known by their arguments are handled where the arguments are: `e0=` and `edecay=` of trainers,
`Trainer.update(s)`, `Trainer.update_epoch()`, `parameter(p, update=)`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Union

import numpy as np

from .. import _core
from .._core import Expression, ParameterCollection, Parameters, cmult, record
from .attach import attach

__all__ = [
    "Saveable",
    "average_cols",
    "conv1d_narrow",
    "conv1d_wide",
    "cwise_multiply",
    "flip_gradient",
    "poisson_loss",
    "sum_cols",
    "sum_rows",
]

_warned: set[str] = set()


def deprecated(name: str, advice: str) -> None:
    """Log once that `name` is old, and what to write instead."""
    if name in _warned:
        return
    _warned.add(name)
    import logging  # not at import: it would slow the start of every program

    logging.getLogger("dynet_compat").warning("dynet_compat: %s is deprecated: %s", name, advice)


# ---------------------------------------------------------------- functions


def sum_cols(x: Expression) -> Expression:
    """Sum of the columns of a matrix; until DyNet 2.0.1. Now `sum_dim(x, [1])`.

    Args:
        x: Expression {r,c}xB.
    Returns:
        Expression {r}xB.
    Source: DyNet 2.0 `sum_cols`.
    Example:
        >>> dy.sum_cols(dy.inputTensor([[1, 2], [3, 4]])).value()
        [3.0, 7.0]
    """
    deprecated("sum_cols", "say sum_dim(x, [1])")
    return record("sum_dim", (x,), (0, 1, 1))


def sum_rows(x: Expression) -> Expression:
    """Sum of the rows of a matrix; in the C++ library of DyNet 2.0. Now `sum_dim(x, [0])`.

    Args:
        x: Expression {r,c}xB.
    Returns:
        Expression {c}xB.
    Source: DyNet 2.0 `sum_rows`.
    Example:
        >>> dy.sum_rows(dy.inputTensor([[1, 2], [3, 4]])).value()
        [4.0, 6.0]
    """
    deprecated("sum_rows", "say sum_dim(x, [0])")
    return record("sum_dim", (x,), (0, 1, 0))


def average_cols(x: Expression) -> Expression:
    """Mean of the columns of a matrix; in the C++ library of DyNet 2.0. Now `mean_dim(x, [1], False)`.

    Args:
        x: Expression {r,c}xB.
    Returns:
        Expression {r}xB.
    Source: DyNet 2.0 `average_cols`.
    Example:
        >>> dy.average_cols(dy.inputTensor([[1, 2], [3, 4]])).value()
        [1.5, 3.5]
    """
    deprecated("average_cols", "say mean_dim(x, [1], False)")
    return record("moment_dim", (x,), (1, 0, 0, 1, 1))


def cwise_multiply(x: Expression, y: Expression) -> Expression:
    """Product element by element; in DyNet 1.0. Now `cmult`.

    Args:
        x, y: Expressions of equal dimensions.
    Returns:
        Expression of the same dimensions.
    Source: DyNet 1.0 `cwise_multiply`.
    Example:
        >>> dy.cwise_multiply(dy.inputVector([1, 2]), dy.inputVector([3, 4])).value()
        [3.0, 8.0]
    """
    deprecated("cwise_multiply", "say cmult")
    return cmult(x, y)


def _matrix(op: str, name: str, x: Expression) -> tuple[int, int]:
    sizes, _ = x.dim()
    if len(sizes) not in (1, 2):
        raise ValueError(f"{op}(): expected a matrix for {name}, got {sizes}")
    return sizes[0], sizes[1] if len(sizes) == 2 else 1


def _shifted_sum(op: str, x: Expression, f: Expression, wide: bool) -> Expression:
    """Sum over t of the columns t.. of x, or of zeros beside x, times column t of f."""
    (rows, columns), (filter_rows, width) = _matrix(op, "x", x), _matrix(op, "f", f)
    if rows != filter_rows or (not wide and width > columns):
        raise ValueError(
            f"{op}(): expected x and f of as many rows, f not wider than x, got "
            f"{{{rows},{columns}}} and {{{filter_rows},{width}}}"
        )
    size = columns + width - 1 if wide else columns - width + 1
    x, f = _core.reshape(x, (rows, columns)), _core.reshape(f, (rows, width))
    if wide and width > 1:
        zeros = _core.zeros((rows, width - 1))
        x = _core.concatenate_cols([zeros, x, zeros])
    terms = []
    for t in range(width):
        start = width - 1 - t if wide else t  # wide: a true convolution, y[j + t] += f[t] x[j]
        part = _core.pick_range(x, start, start + size, 1)
        terms.append(cmult(part, _core.pick_range(f, t, t + 1, 1)))
    return _core.esum(terms)


def conv1d_narrow(x: Expression, f: Expression) -> Expression:
    """Each row of x filtered with the same row of f, where they overlap; in DyNet 1.0. Now `filter1d_narrow`.

    y[i, j] = sum_t x[i, j + t] f[i, t].

    Args:
        x: Expression {r,c}.
        f: Expression {r,w}, w <= c.
    Returns:
        Expression {r,c-w+1}.
    Raises:
        ValueError: the rows differ, or f is wider than x.
    Source: DyNet 1.0 `conv1d_narrow`.
    Example:
        >>> x, f = dy.inputTensor([[1, 2, 3]]), dy.inputTensor([[10, 1]])
        >>> dy.conv1d_narrow(x, f).value().tolist()
        [[12.0, 23.0]]
    """
    deprecated("conv1d_narrow", "say filter1d_narrow or conv2d")
    return _shifted_sum("conv1d_narrow", x, f, False)


def conv1d_wide(x: Expression, f: Expression) -> Expression:
    """Each row of x convolved with the same row of f, with zeros around x; in DyNet 1.0. Now `conv2d`.

    y[i, k] = sum_t x[i, k - t] f[i, t].

    Args:
        x: Expression {r,c}.
        f: Expression {r,w}.
    Returns:
        Expression {r,c+w-1}.
    Raises:
        ValueError: the rows differ.
    Source: DyNet 1.0 `conv1d_wide`.
    Example:
        >>> x, f = dy.inputTensor([[1, 2, 3]]), dy.inputTensor([[10, 1]])
        >>> dy.conv1d_wide(x, f).value().tolist()
        [[10.0, 21.0, 32.0, 3.0]]
    """
    deprecated("conv1d_wide", "say conv2d")
    return _shifted_sum("conv1d_wide", x, f, True)


def flip_gradient(x: Expression, lambd: float = 1.0) -> Expression:  # noqa: D103 - below
    if lambd == 1.0:
        return _core.flip_gradient(x)
    deprecated("flip_gradient(lambd)", "say scale_gradient(x, -lambd)")
    return _core.scale_gradient(x, -lambd)


flip_gradient.__doc__ = _core.flip_gradient.__doc__


def poisson_loss(*args: Any, **kwargs: Any) -> Expression:
    """Until DyNet 2.0.1 the arguments were called x and y."""
    if "y" in kwargs:
        deprecated("poisson_loss(x, y)", "the arguments are called log_lambda and x")
        kwargs["log_lambda"], kwargs["x"] = args[0] if args else kwargs.pop("x", None), kwargs.pop("y")
        args = ()
    return _core.poisson_loss(*args, **kwargs)


poisson_loss.__doc__ = _core.poisson_loss.__doc__
poisson_loss.__wrapped__ = _core.poisson_loss  # type: ignore[attr-defined]


# ---------------------------------------------------------------- classes


class Saveable:
    """Base of classes that DyNet 1.x could save. Now: `spec`, `param_collection()` and `from_spec()`.

    Source: DyNet 1.1 `Saveable`.
    Example:
        >>> class Scorer(dy.Saveable):
        ...     def __init__(self, model):
        ...         self.w = model.add_parameters(3)
        ...     def get_components(self):
        ...         return (self.w,)
        ...     def restore_components(self, components):
        ...         (self.w,) = components
        >>> [w.shape() for w in Scorer(dy.ParameterCollection()).get_components()]
        [(3,)]
    """

    def get_components(self) -> Sequence[Any]:
        """The parameters and builders that make up the object; a derived class says which.

        Returns:
            A sequence of Parameters, LookupParameters and builders.
        Raises:
            NotImplementedError: the class does not define it.
        Source: DyNet 1.1 `Saveable.get_components`.
        Example:
            >>> class Scorer(dy.Saveable):
            ...     w = dy.ParameterCollection().add_parameters(3)
            ...     def get_components(self):
            ...         return (self.w,)
            >>> len(Scorer().get_components())
            1
        """
        raise NotImplementedError("Saveable: a class derived from it says what its components are")

    def restore_components(self, components: Sequence[Any]) -> None:
        """Take the components that were loaded; a derived class defines it.

        Args:
            components: what get_components() gave, in the same order.
        Raises:
            NotImplementedError: the class does not define it.
        Source: DyNet 1.1 `Saveable.restore_components`.
        Example:
            >>> class Scorer(dy.Saveable):
            ...     def restore_components(self, components):
            ...         (self.w,) = components
            >>> scorer = Scorer()
            >>> scorer.restore_components([dy.ParameterCollection().add_parameters(3)])
            >>> scorer.w.shape()
            (3,)
        """
        raise NotImplementedError("Saveable: a class derived from it takes its components")


def _from_file(fname: Union[str, os.PathLike[str]]) -> tuple[ParameterCollection, tuple[Any, ...]]:
    """A new collection with the objects in a file, and these objects. Now `dy.load(basename, collection)`.

    Args:
        fname: a name given to `dy.save`, or to `Model.save` with components.
    Returns:
        The ParameterCollection and a tuple of the objects.
    Raises:
        RuntimeError: written by DyNet 1.x itself, or damaged, or holding values only.
    Source: DyNet 1.1 `Model.from_file`.
    Example:
        >>> dy.save("model", [dy.ParameterCollection().add_parameters((2, 3))])
        >>> model, (W,) = dy.Model.from_file("model")
        >>> W.shape(), len(model.parameters_list())
        ((2, 3), 1)
    """
    deprecated("Model.from_file", "say dynet.load(basename, collection)")
    model = ParameterCollection()
    return model, tuple(model.load(fname) or ())


def _pl(self: ParameterCollection) -> int:
    """The number of Parameters. Now `len(parameters_list())`.

    Source: DyNet 1.1 `Model.pl`.
    Example:
        >>> pc = dy.ParameterCollection()
        >>> W, b = pc.add_parameters((2, 3)), pc.add_parameters(2)
        >>> pc.pl()
        2
    """
    deprecated("ParameterCollection.pl", "say len(parameters_list())")
    return len(self.parameters_list())


def _load_array(self: Parameters, arr: Union[np.ndarray, Iterable[Any]]) -> None:
    """New values. Now `set_value(arr)`.

    Args:
        arr: array or nested list of the parameter's shape.
    Raises:
        ValueError: another shape.
    Source: DyNet 1.1 `Parameters.load_array`.
    Example:
        >>> p = dy.ParameterCollection().add_parameters(2)
        >>> p.load_array(np.array([1, 2]))
        >>> p.as_array()
        array([1., 2.])
    """
    deprecated("Parameters.load_array", "say set_value(arr)")
    self.set_value(arr)


def extend_classes() -> None:
    """Give the classes of the compiled module the methods that they once had."""
    attach(ParameterCollection, pl=_pl)
    _core._extend(ParameterCollection, "from_file", staticmethod(_from_file))
    attach(Parameters, load_array=_load_array)
