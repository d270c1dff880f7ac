"""Softmax builders: output layers over a vocabulary. The flat one, and what all have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import FunctionType
from typing import Any

from .. import _core
from .._core import Expression, affine_transform, log_softmax
from .functions import _int, _ints

__all__ = ["SoftmaxBuilder", "StandardSoftmaxBuilder"]


def _vector(op: str, x: Any, size: int, batched: bool = True) -> Expression:
    """x, which must be an Expression {size}xB; without `batched` {size}."""
    if not isinstance(x, Expression):
        raise TypeError(f"{op}(): expected an Expression for x, got {type(x).__name__}")
    try:
        dims, batch = x.dim()
    except RuntimeError as error:
        raise ValueError(f"{op}(): {error}") from None
    if not dims or dims[0] != size or any(d != 1 for d in dims[1:]):
        raise ValueError(f"{op}(): expected x of {{{size}}}, got {dims}")
    if batch > 1 and not batched:
        raise ValueError(f"{op}(): expected x without a batch, got a batch of {batch}")
    return x


def _classes(op: str, x: Expression, cs: Iterable[int], count: int) -> list[int]:
    """One class number for each batch element of x."""
    numbers = _ints(op, "cs", cs)
    batch = x.dim()[1]
    if len(numbers) != batch:
        raise ValueError(
            f"{op}(): expected one class for each of the {batch} batch elements of x, got {len(numbers)}"
        )
    for c in numbers:
        _class(op, c, count)
    return numbers


def _class(op: str, c: Any, count: int) -> int:
    number = _int(op, "c", c)
    if number >= count:
        raise ValueError(f"{op}(): expected a class below {count}, got {number}")
    return number


def _draw(log_probabilities: Expression) -> int:
    """An index, from the random stream all draws come from."""
    return _core.choose(_core.exp(log_probabilities).vec_value())


class _Layer:
    """W x + b: a matrix and perhaps a bias of a collection."""

    def __init__(self, pc: Any, rows: int, columns: int, bias: bool) -> None:
        self.rows = rows
        self.W = pc.add_parameters((rows, columns))
        self.b = pc.add_parameters(rows, init=0) if bias else None

    def logits(self, x: Expression, update: bool) -> Expression:
        W: Expression = self.W.expr(bool(update))
        if self.b is None:
            return W * x
        return affine_transform([self.b.expr(bool(update)), W, x])


def _check_collection(op: str, pc: Any) -> None:
    if not isinstance(pc, _core.ParameterCollection):
        raise TypeError(f"{op}(): expected a ParameterCollection for pc, got {type(pc).__name__}")


class SoftmaxBuilder:
    """Base of the softmax builders.

    A builder turns a vector x {I}xB into a distribution over `num_classes` classes. `update=False` keeps the
    builder's parameters from getting a gradient, for that call (in DyNet for the rest of the graph).

    Source: DyNet 2.1 `SoftmaxBuilder`.
    Example:
        >>> softmax = dy.StandardSoftmaxBuilder(2, 3, dy.ParameterCollection())
        >>> isinstance(softmax, dy.SoftmaxBuilder)
        True
    """

    _name = "SoftmaxBuilder"
    _input_dim = 0
    _num_classes = 0
    _pc: Any = None
    _spec: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        from ..inspection.reprs import described

        return described(self)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Methods that mean the same as here have the same documentation."""
        super().__init_subclass__(**kwargs)
        for name, item in vars(cls).items():
            if isinstance(item, FunctionType) and item.__doc__ is None and not name.startswith("_"):
                item.__doc__ = getattr(getattr(SoftmaxBuilder, name, None), "__doc__", None)

    def _missing(self, method: str) -> NotImplementedError:
        return NotImplementedError(
            f"SoftmaxBuilder.{method}(): is not there in the base class; use StandardSoftmaxBuilder"
        )

    def neg_log_softmax(self, x: Expression, c: int, update: bool = True) -> Expression:
        """Minus the log probability of class c.

        Args:
            x: Expression {I}.
            c: the class, 0 <= c < num_classes.
            update: False: no gradient for the builder's parameters.
        Returns:
            Expression {1}.
        Raises:
            ValueError: wrong size of x, a batch of more than 1, or no such class.
        Source: DyNet 2.1 `SoftmaxBuilder.neg_log_softmax`.
        Example:
            >>> softmax = dy.StandardSoftmaxBuilder(2, 3, dy.ParameterCollection())
            >>> x = dy.inputVector([1, 2])
            >>> losses = [softmax.neg_log_softmax(x, c).value() for c in range(3)]
            >>> round(float(np.exp(-np.array(losses)).sum()), 5)
            1.0
        """
        raise self._missing("neg_log_softmax")

    def neg_log_softmax_batch(self, x: Expression, c: Sequence[int], update: bool = True) -> Expression:
        """Minus the log probability of a class for each batch element.

        Args:
            x: Expression {I}xB.
            c: B classes.
            update: False: no gradient for the builder's parameters.
        Returns:
            Expression {1}xB.
        Raises:
            ValueError: wrong size of x, another number of classes than B, or no such class.
        Source: DyNet 2.1 `SoftmaxBuilder.neg_log_softmax_batch`.
        Example:
            >>> softmax = dy.StandardSoftmaxBuilder(2, 3, dy.ParameterCollection())
            >>> x = dy.inputTensor([[1, 2], [3, 4]], batched=True)
            >>> softmax.neg_log_softmax_batch(x, [0, 2]).dim()
            ((1,), 2)
        """
        raise self._missing("neg_log_softmax_batch")

    def sample(self, x: Expression) -> int:
        """A class drawn from the distribution, with the random stream of reset_random_seed().

        Args:
            x: Expression {I}.
        Returns:
            The class, an int.
        Raises:
            ValueError: wrong size of x, or a batch of more than 1.
        Source: DyNet 2.1 `SoftmaxBuilder.sample`.
        Example:
            >>> softmax = dy.StandardSoftmaxBuilder(2, 3, dy.ParameterCollection())
            >>> softmax.sample(dy.inputVector([1, 2])) in (0, 1, 2)
            True
        """
        raise self._missing("sample")

    def full_log_distribution(self, x: Expression, update: bool = True) -> Expression:
        """Log probabilities of all classes.

        Args:
            x: Expression {I}xB.
            update: False: no gradient for the builder's parameters.
        Returns:
            Expression {num_classes}xB.
        Raises:
            ValueError: wrong size of x.
        Source: DyNet 2.1 `SoftmaxBuilder.full_log_distribution`.
        Example:
            >>> softmax = dy.StandardSoftmaxBuilder(2, 3, dy.ParameterCollection())
            >>> distribution = softmax.full_log_distribution(dy.inputVector([1, 2]))
            >>> round(float(np.exp(distribution.npvalue()).sum()), 5)
            1.0
        """
        raise self._missing("full_log_distribution")

    def full_logits(self, x: Expression, update: bool = True) -> Expression:
        """Scores of all classes, whose log_softmax is full_log_distribution().

        Args:
            x: Expression {I}xB.
            update: False: no gradient for the builder's parameters.
        Returns:
            Expression {num_classes}xB.
        Raises:
            ValueError: wrong size of x.
        Source: DyNet 2.1 `SoftmaxBuilder.full_logits`.
        Example:
            >>> softmax = dy.StandardSoftmaxBuilder(2, 3, dy.ParameterCollection())
            >>> softmax.full_logits(dy.inputVector([1, 2])).dim()
            ((3,), 1)
        """
        raise self._missing("full_logits")

    def param_collection(self) -> Any:
        """The builder's own part of its model.

        Returns:
            ParameterCollection.
        Raises:
            NotImplementedError: in the base class.
        Source: DyNet 2.1 `SoftmaxBuilder.param_collection`.
        Example:
            >>> softmax = dy.StandardSoftmaxBuilder(2, 3, dy.ParameterCollection())
            >>> softmax.param_collection().name()
            '/standard-softmax-builder/'
        """
        if self._pc is None:
            raise self._missing("param_collection")
        return self._pc

    @property
    def spec(self) -> tuple[Any, ...]:
        """Arguments of the constructor but the collection, for dy.save().

        Source: DyNet 2.1 `SoftmaxBuilder.spec`.
        Example:
            >>> softmax = dy.StandardSoftmaxBuilder(2, 3, dy.ParameterCollection())
            >>> softmax.spec
            (2, 3, True)
        """
        return self._spec

    def whoami(self) -> str:
        """Name of the class.

        Source: DyNet 2.1 `SoftmaxBuilder.whoami`.
        Example:
            >>> softmax = dy.StandardSoftmaxBuilder(2, 3, dy.ParameterCollection())
            >>> softmax.whoami()
            'StandardSoftmaxBuilder'
        """
        return self._name


class _WithSpec(SoftmaxBuilder):
    """The builders with parameters, whose constructors take (sizes .., collection, bias)."""

    @classmethod
    def from_spec(cls, spec: Sequence[Any], pc: Any) -> Any:
        """A new builder from another one's `spec`, which names the cluster file where there is one.

        Args:
            spec: all arguments of the constructor but the collection.
            pc: ParameterCollection that gets the parameters.
        Returns:
            A builder of this class, with new values.
        Raises:
            ValueError, RuntimeError: as by the constructor.
        Source: DyNet 2.1 `StandardSoftmaxBuilder.from_spec`.
        Example:
            >>> softmax = dy.StandardSoftmaxBuilder.from_spec((2, 3, True), dy.ParameterCollection())
            >>> softmax.spec
            (2, 3, True)
        """
        *sizes, bias = spec
        make: Any = cls
        return make(*sizes, pc, bias)


class StandardSoftmaxBuilder(_WithSpec):
    """softmax(W x + b).

    Args:
        input_dim: I, size of x.
        num_classes: C.
        pc: ParameterCollection; the parameters W {C,I} and b {C} are in its sub-collection
            "standard-softmax-builder".
        bias: False: no b.

    Example:
        >>> pc = dy.ParameterCollection()
        >>> softmax = dy.StandardSoftmaxBuilder(2, 3, pc)
        >>> W, b = pc.parameters_list()
        >>> W.set_value(np.array([[1, 0], [0, 1], [0, 0]]))
        >>> softmax.full_logits(dy.inputVector([2, -1])).value()
        [2.0, -1.0, 0.0]
        >>> round(softmax.neg_log_softmax(dy.inputVector([2, -1]), 0).value(), 4)
        0.1698
        >>> softmax.sample(dy.inputVector([50, -50]))
        0
    """

    _name = "StandardSoftmaxBuilder"

    def __init__(self, input_dim: int, num_classes: int, pc: Any, bias: bool = True) -> None:
        self._input_dim = _int(self._name, "input_dim", input_dim, 1)
        self._num_classes = _int(self._name, "num_classes", num_classes, 1)
        self._spec = (self._input_dim, self._num_classes, bool(bias))
        _check_collection(self._name, pc)
        self._pc = pc.add_subcollection("standard-softmax-builder")
        self._layer = _Layer(self._pc, self._num_classes, self._input_dim, bool(bias))

    def neg_log_softmax(self, x: Expression, c: int, update: bool = True) -> Expression:
        x = _vector("neg_log_softmax", x, self._input_dim, batched=False)
        c = _class("neg_log_softmax", c, self._num_classes)
        return _core.pickneglogsoftmax(self._layer.logits(x, update), c)

    def neg_log_softmax_batch(self, x: Expression, c: Sequence[int], update: bool = True) -> Expression:
        x = _vector("neg_log_softmax_batch", x, self._input_dim)
        cs = _classes("neg_log_softmax_batch", x, c, self._num_classes)
        return _core.pickneglogsoftmax_batch(self._layer.logits(x, update), cs)

    def sample(self, x: Expression) -> int:
        x = _vector("sample", x, self._input_dim, batched=False)
        return _draw(log_softmax(self._layer.logits(x, False)))

    def full_log_distribution(self, x: Expression, update: bool = True) -> Expression:
        return log_softmax(self.full_logits(x, update))

    def full_logits(self, x: Expression, update: bool = True) -> Expression:
        return self._layer.logits(_vector("full_logits", x, self._input_dim), update)
