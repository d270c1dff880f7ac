# ruff: noqa: UP031
"""The cases of convolution and pooling, part of the list in cases.py."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
from ops.case import Input, t

WINDOWS = "np.lib.stride_tricks.sliding_window_view"
ODD_FILTERS = dict(why="the reference uses the filters and bias of the first batch item for all")


def spread(spec: Input) -> Input:
    """Values so far apart that finite differences do not change their order."""
    half = max(2.0, float(np.prod(spec.dims)) * spec.batch / 4)
    return spec._replace(distinct=True, lo=-half, hi=half)


def add_convolution(add: Callable[..., Any]) -> None:
    """Add them by `add`."""
    for dims, filters, stride, valid, batch in (
        ((5, 6), (3, 2, 1, 4), (1, 1), True, 1),
        ((5, 6, 2), (3, 2, 2, 4), (2, 1), True, 3),
        ((5, 6, 3), (3, 2, 3, 2), (1, 1), False, 2),
        ((7, 8, 2), (2, 5, 2, 3), (3, 2), False, 1),
        ((4, 3, 2), (4, 3, 2, 5), (1, 1), True, 1),  # the filter sees all of x
        ((4, 3, 2), (4, 3, 2, 7), (1, 1), True, 5),
        ((4, 4), (1, 1, 1, 3), (3, 3), True, 2),  # elements that no filter sees
        ((2, 2, 1), (5, 5, 1, 2), (1, 1), False, 1),  # a filter larger than x
        ((1, 9, 3), (1, 3, 3, 4), (1, 1), True, 2),  # text, one way
        ((6, 9), (6, 3, 1, 4), (1, 1), True, 2),  # text, the other
        ((9, 1, 2), (4, 1, 2, 3), (2, 1), True, 1),
        ((12, 10, 3), (3, 3, 3, 13), (1, 1), True, 2),
        ((12, 11, 2), (5, 3, 2, 6), (2, 3), False, 2),
        ((18, 5, 1), (2, 2, 1, 8), (1, 1), True, 1),
        ((5, 19, 1), (4, 2, 1, 8), (1, 2), False, 1),
        ((1, 1, 4), (1, 1, 4, 1), (1, 1), True, 3),
        ((6, 6, 2), (5, 5, 2, 3), (1, 1), True, 4),
    ):
        x, f = t(*dims, b=batch), t(*filters, kind="param")
        add("conv2d", f"dy.conv2d(x[0], x[1], {list(stride)}, is_valid={valid})", x, f, atol=2e-6)
        add("conv2d_bias", f"dy.conv2d_bias(x[0], x[1], x[2], {stride}, {valid})", x, f,
            t(filters[3], kind="param"), atol=2e-6)
    add("conv2d", "dy.conv2d(x[0], x[1], np.array([1, 2, 9]))", t(4, 5), t(2, 2, 1, 3))
    add("conv2d", "dy.conv2d(x[0], dy.tanh(x[1]), [1, 1])", t(6, 5, 2), t(2, 2, 2, 3))
    add("conv2d", "dy.conv2d(x[0], dy.reshape(dy.conv2d(x[1], x[2], [1, 1]), (2, 2, 1, 2)), [1, 1])", t(4, 4),
        t(3, 3), t(2, 2, 1, 2))
    for dims, filters, batch in (
        ((5, 6, 2), (3, 2, 2, 4), 3), ((4, 3, 2), (4, 3, 2, 5), 2), ((9, 8, 1), (2, 3, 1, 7), 2)
    ):
        each = f"np.einsum('ijcBab,abckB->ijkB', {WINDOWS}(x[0], {filters[:2]}, axis=(0, 1)), x[1])"
        one = f"np.einsum('ijcab,abckB->ijkB', {WINDOWS}(x[0][..., 0], {filters[:2]}, axis=(0, 1)), x[1])"
        add("conv2d", "dy.conv2d(x[0], x[1], [1, 1])", t(*dims, b=batch), t(*filters, b=batch), ref=each,
            atol=2e-6, **ODD_FILTERS)
        add("conv2d", "dy.conv2d(x[0], x[1], [1, 1])", t(*dims), t(*filters, b=batch), ref=one, atol=2e-6,
            **ODD_FILTERS)
        add("conv2d_bias", "dy.conv2d_bias(x[0], x[1], x[2], [1, 1])", t(*dims, b=batch),
            t(*filters, b=batch), t(filters[3], b=batch), ref=each + " + x[2]", atol=2e-6, **ODD_FILTERS)
        add("conv2d_bias", "dy.conv2d_bias(x[0], x[1], x[2], [1, 1])", t(*dims), t(*filters),
            t(filters[3], b=batch), ref=one + " + x[2]", atol=2e-6, **ODD_FILTERS)
    for dims, ksize, stride, valid, batch in (
        ((5, 6), (2, 2), (1, 1), True, 1),
        ((5, 6, 3), (2, 2), (2, 2), True, 2),
        ((5, 6, 3), (2, 2), (2, 2), False, 2),
        ((6, 7, 2), (3, 1), (1, 2), True, 1),
        ((6, 7, 2), (3, 4), (3, 2), False, 1),
        ((4, 5), (4, 5), (1, 1), True, 3),  # the window sees all of x
        ((3, 4), (5, 5), (1, 2), False, 1),  # a window larger than x
        ((5, 5), (1, 1), (2, 3), False, 1),
        ((9, 1, 2), (3, 1), (2, 1), True, 2),
        ((1, 9, 2), (1, 3), (1, 1), False, 1),
        ((20, 18), (2, 2), (2, 2), True, 1),
        ((35, 3), (3, 3), (1, 1), False, 1),
        ((1, 1), (1, 1), (1, 1), True, 1),
    ):
        add("maxpooling2d", f"dy.maxpooling2d(x[0], {list(ksize)}, {list(stride)}, is_valid={valid})",
            spread(t(*dims, b=batch)))
    add("maxpooling2d", "dy.maxpooling2d(x[0], [2, 2], [2, 1])", t(4, 4, lo=1, hi=1), fd=False)  # all equal
    add("maxpooling2d", "dy.maxpooling2d(x[0], (3, 3), np.array([1, 1]), False)",
        t(5, 4, lo=0, hi=2, whole=True), fd=False)
    long = spread(t(1300, 1))
    add("maxpooling2d", "dy.maxpooling2d(x[0], [600, 1], [300, 1])", long, fd=False)
    add("maxpooling2d", "dy.maxpooling2d(x[0], [3, 1], [2, 1], False)", long, fd=False)
    for dims, filters in (
        ((4, 7), (4, 3)), ((4, 7), (4, 3, 5)), ((3, 3), (3, 3)), ((3, 4), (3, 1, 2)),
        ((1, 6), (1, 2, 3)), ((5, 1), (5, 1, 4)), ((7, 20), (7, 4, 13)), ((6, 9), (6, 2, 6)),
        ((2, 30), (2, 5)),
    ):
        add("filter1d_narrow", "dy.filter1d_narrow(x[0], x[1])", t(*dims), t(*filters, kind="param"),
            atol=2e-6)
    add("filter1d_narrow", "dy.filter1d_narrow(dy.tanh(x[0]), dy.tanh(x[1]))", t(3, 6), t(3, 2, 2))
    add("filter1d_narrow", "dy.filter1d_narrow(x[0], x[1])", t(4, 7), t(4, 3, 1), atol=2e-6,
        ref=f"np.einsum('ajt,atf->fj', {WINDOWS}(x[0][..., 0], 3, axis=1), x[1][..., 0])[..., None]",
        why="the reference loses part of the gradient of a single filter with three dimensions")
    for batch in (1, 3):
        add("filter1d_narrow", "dy.filter1d_narrow(x[0], x[1])", t(4, 7, b=3), t(4, 3, 2, b=batch),
            ref=f"np.einsum('ajBt,atfB->fjB', {WINDOWS}(x[0], 3, axis=1), x[1] + np.zeros(3))",
            atol=2e-6, why="the reference uses the first batch item for all")
    add("filter1d_narrow", "dy.filter1d_narrow(x[0], x[1])", t(2, 5), t(2, 2, b=2),
        ref=f"np.einsum('ajt,atB->jB', {WINDOWS}(x[0][..., 0], 2, axis=1), x[1])[None]", why="as above")
    for spec, k, dim in (
        (t(4, 7), 3, 1), (t(4, 7), 3, 0), (t(5), 2, 0), (t(5), 5, 0), (t(1), 1, 0), (t(4, 7), 1, 1),
        (t(3, 4, 5, b=2), 2, 2), (t(3, 4, 5, b=2), 3, 1), (t(3, 4, 5), 2, 0), (t(1, 40, b=3), 9, 1),
        (t(40), 20, 0), (t(2, 17), 16, 1), (t(3, 6, kind="param"), 4, 1),
    ):
        call = "dy.kmax_pooling(x[0], %d)" if dim == 1 else f"dy.kmax_pooling(x[0], %d, d={dim})"
        add("kmax_pooling", call % k, spread(spec))
    for spec, k in ((t(3, 6, lo=1, hi=1), 2), (t(4, 9, lo=0, hi=2, whole=True), 4),
                    (t(2, 12, b=2, lo=0, hi=1, whole=True), 5)):
        add("kmax_pooling", "dy.kmax_pooling(x[0], %d)" % k, spec, fd=False)  # equal elements
    infinite = "dy.inputVector([-np.inf, -np.inf, 1, -np.inf, 0, np.inf])"
    add("kmax_pooling", f"dy.kmax_pooling({infinite}, 4, 0)", diff=False, fd=False)
    for spec, v in ((t(4, 7), 3), (t(4, 7), 1), (t(4, 7), 7), (t(1, 9), 2), (t(5, 1), 1), (t(20, 6), 4),
                    (t(3, 40), 11), (t(17, 3), 2), (t(2, 2), 2), (t(3, 5, kind="param"), 2)):
        add("kmh_ngram", "dy.kmh_ngram(x[0], %d)" % v, spec)
    for spec, v in ((t(4, 5, b=2), 2), (t(3, 3, b=4), 3)):
        add("kmh_ngram", "dy.kmh_ngram(x[0], v=%d)" % v, spec, ref=f"{WINDOWS}(x[0], {v}, axis=1).sum(-1)",
            why="the reference refuses batches")
    for spec, n in ((t(6, 4), 1), (t(6, 4), 6), (t(9), 3), (t(2, 5), 2), (t(40, 3), 4), (t(12, 1), 3),
                    (t(4, 4, kind="param"), 2)):
        add("fold_rows", f"dy.fold_rows(x[0], {n})", spec)
    add("fold_rows", "dy.fold_rows(x[0], 2)", t(4, 3, b=2), ref="x[0][0::2] + x[0][1::2]",
        why="the reference keeps the first batch item only")
