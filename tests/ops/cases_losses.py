"""Losses, dropout and LSTM cells in more shapes: part of ops/cases_audit.py."""

from __future__ import annotations

from ops.case import CaseList, t

NODIFF = dict(diff=False, fd=False)
RANDOM = dict(random=True, fd=False)


def losses(cases: CaseList) -> None:
    """Softmax family and losses."""
    add = cases.add
    for mode in ("zero_gradient", "straight_through_gradient"):
        for spec in (
            t(2, distinct=True),
            t(33, distinct=True),
            t(3, b=2, distinct=True),
            t(4, kind="param", distinct=True),
        ):
            add("argmax", f"dy.argmax(x[0], {mode!r})", spec, fd=False)
    only = "dy.concatenate([dy.log_softmax(x[0], {})[i] for i in {}])"
    for rows, spec in (
        ([0], t(1)),
        ([0, 1, 2], t(3)),
        ([4, 0], t(5, kind="param")),
        ([16, 3, 9], t(17)),
        ([2, 1], t(4, lo=-30, hi=30)),
        ([1], t(2)),
    ):
        add("restricted_log_softmax", only.format(rows, rows), spec, fd=False, grad_tol=3)
    for v, spec in ((0, t(2)), (16, t(33)), (3, t(4, 1)), (1, t(3, lo=-30, hi=30)), (2, t(7))):
        add("pickneglogsoftmax", f"dy.pickneglogsoftmax(x[0], {v})", spec, fd=spec.hi < 30)
    for vs, spec in (
        ([0, 1], t(2, b=2)),
        ([0, 0, 0], t(1, b=3)),
        ([16, 3], t(17, b=2)),
        ([2, 1, 0, 1], t(3, b=4)),
        ([1, 1], t(2, 1, b=2)),
        ([0, 2], t(3, b=2, lo=-20, hi=20)),
        ([3], t(4, kind="param")),
    ):
        add("pickneglogsoftmax_batch", f"dy.pickneglogsoftmax_batch(x[0], {vs})", spec, fd=spec.hi < 20)
    far = dict(distinct=True, lo=-2.03, hi=2.11)
    for v, m, spec in (
        (0, 1, t(1, **far)),
        (1, 0, t(3, **far)),
        (16, 1, t(33, **far)),
        (2, 5, t(4, **far)),
        (0, 0.25, t(5, 1, **far)),
        (3, 1, t(4, kind="param", **far)),
        (1, 100, t(2, **far)),
    ):
        add("hinge", f"dy.hinge(x[0], {v}, {m})", spec, fd=False)
    for vs, m, spec in (
        ([0, 1], 1, t(2, b=2, **far)),
        ([0, 0, 0], 1, t(1, b=3, **far)),
        ([16, 3], 0.5, t(17, b=2, **far)),
        ([2, 1, 0, 1], 2, t(3, b=4, **far)),
        ([1, 1], 0, t(2, 1, b=2, **far)),
        ([3], 1, t(4, **far)),
        ([0, 2], 10, t(3, b=2, **far)),
        ([1, 2, 3], 1, t(4, b=3, **far)),
    ):
        add("hinge_batch", f"dy.hinge_batch(x[0], {vs}, {m})", spec, fd=False)
    for vs, d, m, spec in (
        ([0], 0, 1, t(3, 1, **far)),
        ([2, 0], 0, 2, t(4, 2, **far)),
        ([0, 0], 1, 1, t(2, 2, **far)),
        ([1, 1, 0], 1, 0.5, t(3, 2, **far)),
        ([16, 3, 0], 0, 1, t(17, 3, **far)),
        ([0, 1, 2, 3], 0, 0, t(4, 4, **far)),
        ([1, 0], 0, 1, t(2, 2, kind="param", **far)),
        ([0, 2, 1, 1], 1, 1, t(4, 3, **far)),
    ):
        add("hinge_dim", f"dy.hinge_dim(x[0], {vs}, {d}, {m})", spec, fd=False)
    for rate, x in ((0, 0), (0, 5), (-3, 1), (2, 7), (1.5, 100), (0.25, 1), (5, 0), (-10, 3), (3, 20)):
        add("poisson_loss", f"dy.poisson_loss(dy.scalarInput({rate}), {x})", **NODIFF)


def dropouts(cases: CaseList) -> None:
    """Noise and dropout under one seed."""
    add = cases.add
    for p, spec in ((0.1, t(33)), (0.9, t(4, 4)), (0.5, t(2, 2, 2)), (0.3, t(1, b=5)), (0.25, t(17, b=2))):
        add("dropout", f"dy.dropout(x[0], {p})", spec, **RANDOM)
        add("dropout_batch", f"dy.dropout_batch(x[0], {p})", spec._replace(batch=3), **RANDOM)
        add("noise", f"dy.noise(x[0], {p})", spec, **RANDOM)
    for d, p, spec in (
        (0, 0.5, t(5)),
        (1, 0.5, t(2, 6)),
        (0, 0.2, t(6, 2)),
        (1, 0.3, t(3, 4, b=2)),
        (2, 0.5, t(2, 2, 4)),
        (0, 0.6, t(33)),
        (0, 0.0, t(4, 2)),
    ):
        add("dropout_dim", f"dy.dropout_dim(x[0], {d}, {p})", spec, **RANDOM)
    for p, spec in (
        (0.5, t(4)),
        (0.1, t(3)),
        (0.9, t(2, 2)),
        (0.0, t(5)),
        (1.0, t(3)),
        (0.5, t(2, 2, 2)),
        (0.4, t(1)),
        (0.6, t(33)),
    ):
        add("block_dropout", f"dy.block_dropout(x[0], {p})", spec, **RANDOM)


def lstm(cases: CaseList) -> None:
    """LSTM primitives of several sizes."""
    add = cases.add
    for hidden, width, batch in ((1, 1, 1), (3, 2, 1), (5, 4, 2), (17, 3, 1), (4, 9, 3)):
        weights = (
            t(4 * hidden, width, kind="param", lo=-1, hi=1),
            t(4 * hidden, hidden, kind="param", lo=-1, hi=1),
            t(4 * hidden, kind="param"),
        )
        x, h = t(width, b=batch), t(hidden, b=batch)
        add("vanilla_lstm_gates", "dy.vanilla_lstm_gates(*x)", x, h, *weights, grad_tol=2)
        add(
            "vanilla_lstm_gates", "dy.vanilla_lstm_gates(*x, weightnoise_std=0.0)", x, h, *weights, grad_tol=2
        )
        masks = (t(width, b=batch, kind="const", lo=0, hi=2), t(hidden, b=batch, kind="const", lo=0, hi=2))
        add(
            "vanilla_lstm_gates_dropout",
            "dy.vanilla_lstm_gates_dropout(*x)",
            x,
            h,
            *weights,
            *masks,
            grad_tol=2,
        )
        if width > 1:
            parts = (t(1, b=batch), t(width - 1, b=batch))
            add(
                "vanilla_lstm_gates_concat",
                "dy.vanilla_lstm_gates_concat([x[0], x[1]], *x[2:])",
                *parts,
                h,
                *weights,
                grad_tol=2,
            )
            add(
                "vanilla_lstm_gates_dropout_concat",
                "dy.vanilla_lstm_gates_dropout_concat([x[0], x[1]], *x[2:])",
                *parts,
                h,
                *weights,
                *masks,
                grad_tol=2,
            )
        add(
            "vanilla_lstm_gates_concat",
            "dy.vanilla_lstm_gates_concat([x[0]], *x[1:])",
            x,
            h,
            *weights,
            grad_tol=2,
        )
        add(
            "vanilla_lstm_gates_dropout_concat",
            "dy.vanilla_lstm_gates_dropout_concat([x[0]], *x[1:])",
            x,
            h,
            *weights,
            *masks,
            grad_tol=2,
        )
    for hidden, batch in ((3, 1), (4, 2), (5, 1), (8, 3), (17, 1), (33, 2), (16, 4)):
        gates = t(4 * hidden, b=batch, lo=0.1, hi=0.9)
        add("vanilla_lstm_c", "dy.vanilla_lstm_c(x[0], x[1])", t(hidden, b=batch), gates)
        add("vanilla_lstm_h", "dy.vanilla_lstm_h(x[0], x[1])", t(hidden, b=batch), gates)
