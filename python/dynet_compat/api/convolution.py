"""Convolution and pooling over two dimensions: windows and steps are lists, which become words of a row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._core import Expression, record
from .functions import _documented, _ints

__all__ = ["conv2d", "conv2d_bias", "maxpooling2d"]


def _pair(op: str, name: str, values: Any) -> list[int]:
    """The first two ints of an iterable: one for rows, one for columns."""
    found = _ints(op, name, values)
    if len(found) < 2:
        raise ValueError(f"{op}(): expected two ints for {name} (rows, columns), got {found}")
    return found[:2]


@_documented
def conv2d(x: Expression, f: Expression, stride: Iterable[int], is_valid: bool = True) -> Expression:
    return record("conv2d", (x, f), (*_pair("conv2d", "stride", stride), 1 if is_valid else 0))


@_documented
def conv2d_bias(
    x: Expression, f: Expression, b: Expression, stride: Iterable[int], is_valid: bool = True
) -> Expression:
    words = (*_pair("conv2d_bias", "stride", stride), 1 if is_valid else 0)
    return record("conv2d_bias", (x, f, b), words)


@_documented
def maxpooling2d(
    x: Expression, ksize: Iterable[int], stride: Iterable[int], is_valid: bool = True
) -> Expression:
    size, step = _pair("maxpooling2d", "ksize", ksize), _pair("maxpooling2d", "stride", stride)
    return record("maxpooling2d", (x,), (*size, *step, 1 if is_valid else 0))
