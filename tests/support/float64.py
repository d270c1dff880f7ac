"""The functions of DyNet that tests of precision use, in float64 on a tape: exact as far as float32 can tell.

A program that takes the module and its parameters runs on this and on the library alike. Expressions have no
batches, and their gradients are in `gradient` after backward().
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional

import numpy as np


class Expression:
    def __init__(self, value: Any, back: Optional[Callable[[np.ndarray], None]] = None) -> None:
        self.exact = np.asarray(value, np.float64)
        self.gradient = np.zeros_like(self.exact)
        self.back = back
        tape.append(self)

    def __add__(self, other: Any) -> Expression:
        y = Expression(self.exact + getattr(other, "exact", other))

        def back(g: np.ndarray) -> None:
            self.gradient += g
            if isinstance(other, Expression):
                other.gradient += g

        y.back = back
        return y

    def __mul__(self, x: Expression) -> Expression:
        y = Expression(self.exact @ x.exact)

        def back(g: np.ndarray) -> None:
            self.gradient += np.outer(g, x.exact) if x.exact.ndim == 1 else g @ x.exact.T
            x.gradient += self.exact.T @ g

        y.back = back
        return y

    def backward(self) -> None:
        self.gradient[...] = 1
        for node in reversed(tape):
            if node.back is not None:
                node.back(node.gradient)


tape: list[Expression] = []


def renew_cg() -> None:
    tape.clear()


def inputVector(values: Any) -> Expression:
    return Expression(np.asarray(values, np.float32))


def _unary(f: Callable[[Any], Any], slope: Callable[[Any, Any], Any]) -> Callable[[Expression], Expression]:
    def op(x: Expression) -> Expression:
        y = Expression(f(x.exact))

        def back(g: np.ndarray) -> None:
            x.gradient += g * slope(x.exact, y.exact)

        y.back = back
        return y

    return op


tanh = _unary(np.tanh, lambda _, y: 1 - y * y)
logistic = _unary(lambda x: 1 / (1 + np.exp(-x)), lambda _, y: y * (1 - y))
rectify = _unary(lambda x: np.maximum(x, 0), lambda x, _: x > 0)


def cmult(x: Expression, y: Expression) -> Expression:
    z = Expression(x.exact * y.exact)

    def back(g: np.ndarray) -> None:
        x.gradient += g * y.exact
        y.gradient += g * x.exact

    z.back = back
    return z


def affine_transform(xs: Sequence[Expression]) -> Expression:
    y = xs[0]
    for w, x in zip(xs[1::2], xs[2::2]):
        y = y + w * x
    return y


def concatenate(xs: Sequence[Expression]) -> Expression:
    ends = np.cumsum([len(x.exact) for x in xs])

    def back(g: np.ndarray) -> None:
        for x, part in zip(xs, np.split(g, ends[:-1])):
            x.gradient += part

    return Expression(np.concatenate([x.exact for x in xs]), back)


def part(x: Expression, begin: int, end: int) -> Expression:
    def back(g: np.ndarray) -> None:
        x.gradient[begin:end] += g

    return Expression(x.exact[begin:end], back)


def esum(xs: Sequence[Expression]) -> Expression:
    def back(g: np.ndarray) -> None:
        for x in xs:
            x.gradient += g

    return Expression(sum(x.exact for x in xs), back)


def pickneglogsoftmax(x: Expression, v: int) -> Expression:
    e = np.exp(x.exact - x.exact.max())
    others = np.delete(e, v).sum()

    def back(g: np.ndarray) -> None:
        p = e / (others + e[v])
        p[v] = -others / (others + e[v])
        x.gradient += g[0] * p

    is_top = e[v] == 1
    loss = np.log1p(others) if is_top else np.log(others + e[v]) + x.exact.max() - x.exact[v]
    return Expression(np.array([loss]), back)


class LSTM:
    """A state of DyNet's VanillaLSTMBuilder; parameters Wx {4h,i}, Wh {4h,h}, b {4h}."""

    def __init__(self, parameters: Sequence[Expression], c: Any = None, h: Any = None) -> None:
        self.parameters, self.c, self.h = parameters, c, h

    def add_input(self, x: Expression) -> LSTM:
        wx, wh, b = self.parameters
        z = affine_transform([b, wx, x] if self.h is None else [b, wx, x, wh, self.h])
        n = len(z.exact) // 4
        i, f, o = (logistic(part(z, k * n, k * n + n) + shift) for k, shift in ((0, 0.0), (1, 1.0), (2, 0.0)))
        c = cmult(i, tanh(part(z, 3 * n, 4 * n)))
        if self.c is not None:
            c = c + cmult(f, self.c)
        return LSTM(self.parameters, c, cmult(o, tanh(c)))

    def output(self) -> Expression:
        return self.h  # type: ignore[no-any-return]
