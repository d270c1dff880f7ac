"""Cases of the ops on matrices, the simplex, circular convolution and contractions: part of ops/cases.py."""

from __future__ import annotations

from ops.case import CaseList, t

NODIFF = dict(diff=False, fd=False)
NO_BATCH = "the reference has no batches here"


def matrices(cases: CaseList) -> None:
    """inverse and logdet, of matrices far from singular."""
    add = cases.add
    for n in (1, 2, 3, 4, 5, 8, 9, 17, 33):
        for kind in ("input", "param"):
            if kind == "param" and n > 3:
                continue
            add(
                "inverse",
                f"dy.inverse(x[0] + dy.inputTensor(np.eye({n}) * {3 + n}))",
                t(n, n, kind=kind),
                rtol=5e-5,
                grad_tol=3,
            )
            add(
                "logdet",
                f"dy.logdet(x[0] + dy.inputTensor(np.eye({n}) * {3 + n}))",
                t(n, n, kind=kind),
                rtol=2e-5,
                grad_tol=5,
            )
    # rows that must be exchanged; two exchanges keep the determinant positive
    for order in ((1, 2, 0), (2, 0, 1), (3, 2, 1, 0), (0, 1, 3, 2)):
        n = len(order)
        matrix = f"x[0] * 0.4 + dy.inputTensor(np.eye({n})[{list(order)}] * 2)"
        add("inverse", f"dy.inverse({matrix})", t(n, n), rtol=5e-5, grad_tol=5)
        if order != (0, 1, 3, 2):
            add("logdet", f"dy.logdet({matrix})", t(n, n), grad_tol=5)
    add("inverse", "dy.inverse(x[0])", t(1, lo=0.5))
    add("inverse", "dy.inverse(dy.inputTensor([[0.0, 1.0], [1.0, 0.0]]))", **NODIFF)
    add("inverse", "dy.inverse(dy.inputTensor([[1e-20, 1.0], [1.0, 1e-20]]))", **NODIFF)
    add("inverse", "dy.inverse(dy.inputTensor([[1e10, 0.0], [0.0, 1e-10]]))", **NODIFF)
    add(
        "inverse",
        "dy.inverse(dy.inverse(x[0] + dy.inputTensor(np.eye(3) * 5)))",
        t(3, 3),
        rtol=5e-5,
        grad_tol=5,
    )
    add("logdet", "dy.logdet(x[0])", t(1, lo=0.5))
    add("logdet", "dy.logdet(dy.inputTensor([[1.0, 2.0], [2.0, 1.0]]))", **NODIFF)
    add("logdet", "dy.logdet(dy.inputTensor([[0.0, 0.0], [0.0, 0.0]]))", **NODIFF)
    add("logdet", "dy.logdet(dy.inputTensor(np.eye(40) * 1e-20))", **NODIFF)
    add(
        "logdet",
        "dy.logdet(x[0] * dy.transpose(x[0]) + dy.inputTensor(np.eye(4)))",
        t(4, 3),
        rtol=3e-5,
        grad_tol=5,
    )
    per_item = "np.moveaxis(np.linalg.{}(np.moveaxis(x[0], -1, 0) + {} * np.eye({})), 0, -1)"
    for n, batch in ((2, 3), (4, 2)):
        plus = f"x[0] + dy.inputTensor(np.eye({n}) * {3 + n})"
        add(
            "inverse",
            f"dy.inverse({plus})",
            t(n, n, b=batch),
            ref=per_item.format("inv", 3 + n, n),
            why=NO_BATCH,
        )
        add(
            "logdet",
            f"dy.logdet({plus})",
            t(n, n, b=batch),
            ref="np.log(" + per_item.format("det", 3 + n, n) + ")[None]",
            why=NO_BATCH,
        )


def circular(cases: CaseList) -> None:
    """circ_conv and circ_corr."""
    for name, index in (("circ_conv", "(k - i)"), ("circ_corr", "(i + k)")):
        call = f"dy.{name}(x[0], x[1])"
        for n in (1, 2, 3, 4, 7, 16, 33, 100):
            cases.add(name, call, t(n), t(n))
        cases.add(name, call, t(5, kind="param"), t(5))
        cases.add(name, call, t(4), t(4, kind="param"))
        cases.add(name, f"dy.{name}(x[0], x[0])", t(6))
        cases.add(name, f"dy.{name}(dy.inputVector([1, 2, 3]), dy.inputVector([1, 10, 100 + k]))", **NODIFF)
        ref = f"np.stack([sum(x[0][i] * x[1][{index} % 4] for i in range(4)) for k in range(4)])"
        for left, right in ((3, 3), (3, 1), (1, 2)):
            cases.add(name, call, t(4, b=left), t(4, b=right), ref=ref, why=NO_BATCH)


TAU = "((np.cumsum(-np.sort(-x[0], 0), 0) - 1) / np.arange(1, len(x[0]) + 1).reshape({})).max(0)"


def simplex(cases: CaseList) -> None:
    """sparsemax and its loss, constrained_softmax. Their slopes jump: no finite differences."""
    add = cases.add
    for spec in (
        t(1),
        t(2),
        t(3),
        t(5),
        t(8, lo=-0.5, hi=0.5),
        t(4, 1),
        t(17),
        t(40, lo=-0.1, hi=0.1),
        t(33, lo=0, hi=0.02),
        t(6, kind="param"),
        t(5, lo=-30, hi=30),
        t(100, lo=-3, hi=3),
    ):
        add("sparsemax", "dy.sparsemax(x[0])", spec, fd=False, grad_tol=2)
    for values in (
        "[1, 1, 0, 0]",
        "[1, 0, -1]",
        "[0, 0, 0]",
        "[1e6, 1e6, 0]",
        "[1, float('-inf'), 2]",
        "[5]",
    ):
        add("sparsemax", f"dy.sparsemax(dy.inputVector({values}))", **NODIFF)
    add("sparsemax", "dy.sparsemax(dy.tanh(x[0]))", t(6), fd=False)
    add("sparsemax", "dy.sparsemax(dy.inputVector([1, float('nan'), 2]))", **NODIFF)
    add(
        "sparsemax",
        "dy.sparsemax(dy.inputVector([1, 2, float('inf')]))",
        ref="np.full((3, 1), np.nan)",
        why="the reference gives inf everywhere",
        **NODIFF,
    )
    for spec in (t(5, b=3), t(3, 1, b=2)):
        tau = TAU.format("-1, 1, 1" if len(spec.dims) > 1 else "-1, 1")
        add(
            "sparsemax",
            "dy.sparsemax(x[0])",
            spec,
            fd=False,
            ref=f"np.maximum(0, x[0] - {tau})",
            why=NO_BATCH,
        )
    only_cpp = "the reference has it in C++ only"
    loss = (
        "(lambda tau, q: np.where(x[0] > tau, x[0] ** 2 - tau ** 2, 0).sum(0, keepdims=True) / 2 "
        "+ (q ** 2).sum() / 2 - (x[0] * q).sum(0, keepdims=True))"
        "({}, np.bincount({}, minlength=len(x[0])).reshape(-1, 1) / {})"
    )
    for spec, labels in (
        (t(1), [0]),
        (t(4), [2]),
        (t(5), [0, 3]),
        (t(6), [1, 1, 4]),
        (t(3), [0, 1, 2]),
        (t(9, lo=-0.3, hi=0.3), [8]),
        (t(33, lo=0, hi=0.1), [5, 30]),
        (t(4, kind="param"), [3]),
        (t(5, b=3), [1]),
        (t(4, b=2), [0, 2]),
        (t(5, lo=-30, hi=30), [0]),
    ):
        add(
            "sparsemax_loss",
            f"dy.sparsemax_loss(x[0], {labels})",
            spec,
            fd=False,
            why=only_cpp,
            ref=loss.format(TAU.format("-1, 1"), labels, len(labels)),
        )
    add(
        "sparsemax_loss",
        "dy.sparsemax_loss(x[0], q_support=[k % 3])",
        t(3),
        fd=False,
        why=only_cpp,
        ref=loss.format(TAU.format("-1, 1"), [0], 1),
    )
    call = "dy.constrained_softmax(x[0], x[1])"
    for n in (1, 2, 3, 4, 5, 9, 17):
        add("constrained_softmax", call, t(n), t(n, lo=1, hi=2), fd=False)
        add(
            "constrained_softmax",
            call,
            t(n, distinct=True),
            t(n, lo=0.5 / n, hi=2.5 / n),
            fd=False,
            grad_tol=5,
        )
    add("constrained_softmax", call, t(4), t(4, lo=0.05, hi=0.15), fd=False)
    add("constrained_softmax", call, t(3, 1), t(3, 1, lo=0.3, hi=0.5), fd=False, grad_tol=5)
    add("constrained_softmax", call, t(3, 1), t(3, lo=0.3, hi=0.5), fd=False, grad_tol=5)
    add(
        "constrained_softmax",
        call,
        t(5, kind="param"),
        t(5, kind="param", lo=0.1, hi=0.6),
        fd=False,
        grad_tol=5,
    )
    add("constrained_softmax", call, t(6, lo=-8, hi=8), t(6, lo=0.1, hi=0.4), fd=False, grad_tol=10)
    for bounds in ("[0, 0, 1, 1]", "[0.25, 0.25, 0.25, 0.25]", "[0, 0, 0, 0]", "[0.5, 0.5, 0.5, 0]"):
        add(
            "constrained_softmax",
            f"dy.constrained_softmax(dy.inputVector([1, 2, 3, 0.5]), dy.inputVector({bounds}))",
            **NODIFF,
        )
    add(
        "constrained_softmax",
        "dy.constrained_softmax(dy.inputVector([1000, 0, 0, 0]), dy.inputVector([0.25, 1, 1, 1]))",
        ref="np.full((4, 1), 0.25)",
        why="the reference overflows: it does not shift by the maximum",
        **NODIFF,
    )


def contractions(cases: CaseList) -> None:
    """contract3d_1d and contract3d_1d_1d, with and without bias."""
    add = cases.add
    shapes = (
        (2, 3, 4),
        (1, 1, 1),
        (1, 3, 2),
        (3, 1, 4),
        (4, 2, 1),
        (5, 4, 3),
        (17, 2, 5),
        (3, 7, 9),
        (16, 3, 8),
        (2, 2, 33),
    )
    dirty = "the reference adds to whatever the memory held"
    for r, c, n in shapes:
        x, y, z = t(r, c, n), t(n), t(c)
        add(
            "contract3d_1d",
            "dy.contract3d_1d(x[0], x[1])",
            x,
            y,
            why=dirty,
            ref="np.einsum('ijkb,kb->ijb', x[0], x[1])",
        )
        add("contract3d_1d_bias", "dy.contract3d_1d_bias(x[0], x[1], x[2])", x, y, t(r, c))
        add("contract3d_1d_1d", "dy.contract3d_1d_1d(x[0], x[1], x[2])", x, y, z, grad_tol=2)
        add(
            "contract3d_1d_1d_bias",
            "dy.contract3d_1d_1d_bias(x[0], x[1], x[2], x[3])",
            x,
            y,
            z,
            t(r),
            grad_tol=2,
        )
    weight = t(2, 3, 4, kind="param")
    for y in (t(4, 1), t(4, kind="param")):
        add(
            "contract3d_1d",
            "dy.contract3d_1d(x[0], x[1])",
            weight,
            y,
            why=dirty,
            ref="np.einsum('ijkb,kb->ijb', x[0], x[1].reshape(4, 1))",
        )
        add("contract3d_1d_bias", "dy.contract3d_1d_bias(x[0], x[1], x[2])", weight, y, t(2, 3, kind="param"))
        add("contract3d_1d_1d", "dy.contract3d_1d_1d(x[0], x[1], x[2])", weight, y, t(3, 1))
        add(
            "contract3d_1d_1d_bias",
            "dy.contract3d_1d_1d_bias(x[0], x[1], x[2], x[3])",
            weight,
            y,
            t(3),
            t(2, kind="param"),
        )
    for bx, by, bb in ((2, 1, 1), (1, 3, 1), (1, 1, 2), (2, 2, 2), (2, 2, 1)):
        x, y = t(2, 3, 4, b=bx), t(4, b=by)
        if bb == 1:
            add(
                "contract3d_1d",
                "dy.contract3d_1d(x[0], x[1])",
                x,
                y,
                why=dirty,
                ref="(x[0] * x[1][None, None]).sum(2)",
            )
        add("contract3d_1d_bias", "dy.contract3d_1d_bias(x[0], x[1], x[2])", x, y, t(2, 3, b=bb))
        add(
            "contract3d_1d_1d",
            "dy.contract3d_1d_1d(x[0], x[1], x[2])",
            x,
            y,
            t(3, b=bb),
            why=NO_BATCH,
            ref="(x[0] * x[1][None, None] * x[2][None, :, None]).sum((1, 2))",
        )
        add(
            "contract3d_1d_1d_bias",
            "dy.contract3d_1d_1d_bias(x[0], x[1], x[2], x[3])",
            x,
            y,
            t(3),
            t(2, b=bb),
            why=NO_BATCH,
            ref="(x[0] * x[1][None, None] * x[2][None, :, None]).sum((1, 2)) + x[3]",
        )


def extend(cases: CaseList) -> None:
    """Add all of them to the list."""
    matrices(cases)
    circular(cases)
    simplex(cases)
    contractions(cases)
