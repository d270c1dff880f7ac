"""More shapes, batches and edge values, so that every op has at least ten cases: part of ops/cases.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ops.case import CaseList, t

from ops import cases_losses

NODIFF = dict(diff=False, fd=False)
RANDOM = dict(random=True, fd=False)
INF = "float('inf')"
NAN = "float('nan')"


def inputs(cases: CaseList) -> None:
    """Inputs, constants, random values."""
    add = cases.add
    for value in ("0.1", "-0.0", "1e-38", "-2**24 - 1", "True", "np.float32(0.3)", INF):
        add("scalarInput", f"dy.scalarInput({value})", **NODIFF)
    for size in (1, 2, 5, 17, 100):
        add("vecInput", f"dy.vecInput({size})", **NODIFF)
    for data in ("[0.5]", "(4, 5, 6)", "np.arange(3)"):
        add("vecInput", f"(lambda v: (lambda e: (e.set(v), e)[1])(dy.vecInput(len(v))))({data})", **NODIFF)
    for name in ("zeros", "zeroes", "ones"):
        for args in (
            "(1, 5)",
            "7, 2",
            "(2, 2, 2)",
            "(3, 1), 4",
            "(2, 3), batch_size=5",
            "2.7",
            "(4,), 1",
            "(2, 1, 2, 1)",
        ):
            add(name, f"dy.{name}({args})", **NODIFF)
    for args in (
        "5, 0.0",
        "(1,), -1e30",
        "(2, 2, 2), 7",
        "(3,), 1, 4",
        "2, 0.1, batch_size=3",
        "(1, 4), 2.5",
        f"3, {INF}",
        f"(2, 2), {NAN}",
        "(2, 1, 3), -0.5, 2",
    ):
        add("constant", f"dy.constant({args})", **NODIFF)
    for args in (
        "np.zeros((0 + 1,))",
        "[1.5, 2.5]",
        "[[1], [2]]",
        "np.arange(8.).reshape(2, 2, 2)",
        "np.arange(16.).reshape(2, 2, 2, 2)",
        "np.arange(6.).reshape(1, 6), batched=True",
        "np.float32([[1, 2]])",
        "[np.array([[1., 2]]), np.array([[3., 4]])]",
    ):
        add("inputTensor", f"dy.inputTensor({args})", **NODIFF)
    for args in (
        "[1, 2, 3, 4], (2, 2)",
        "[1, 2, 3, 4], (1,), 4",
        "(5, 6), (2,)",
        "list(range(8)), (2, 2, 2)",
        "np.arange(6.), (3, 2)",
        "[7], (1,)",
        "list(range(24)), (2, 3), 4",
        "[1, 2], (1, 2)",
    ):
        add("inputTensorTranspose", f"dy.inputTensorTranspose({args})", **NODIFF)
    for args in (
        "([1], [1], [1]), [2.], (2, 2, 2)",
        "([0],), [1.], (1,)",
        "([3], [3]), [1.], (4, 4)",
        "([0, 1], [1, 1]), [1., 2.], (2, 2), defval=-1",
        "([0, 2], [0, 3]), [1., 2.], (3, 4), True",
        "([2, 0], [0, 0]), np.array([1., 2.]), (3, 1)",
        "([0, 1, 2],), np.array([4., 5., 6.]), (5,)",
        "([1, 1], [0, 2]), [1, 2], (2, 3), True, 0.25",
    ):
        add("sparse_inputTensor", f"dy.sparse_inputTensor({args})", **NODIFF)
    for args in (
        "1, 0",
        "5, 4",
        "4, [0]",
        "4, [3, 3, 3]",
        "2, [0, 1, 0, 1, 1]",
        "100, 99",
        "3, (1, 2)",
        "10, list(range(10))",
    ):
        add("one_hot", f"dy.one_hot({args})", **NODIFF)
    draws = {
        "random_normal": (
            "3",
            "(1,)",
            "(2, 2, 2)",
            "(3,), 1, 2",
            "4, batch_size=3",
            "(5, 5), -1.0, 0.1",
            "2, 0, 1, 2",
        ),
        "random_bernoulli": (
            "3, 0.5",
            "(1,), 1.0",
            "(2, 2), 0.0",
            "5, 0.3, 4.0",
            "(2, 3), 0.9, batch_size=2",
            "(3,), 0.5, 0.5, 3",
            "(2, 2, 2), 0.2",
            "17, 0.6",
        ),
        "random_uniform": (
            "3, 0, 1",
            "(1,), -1, 1",
            "(2, 2, 2), 5, 6",
            "4, 0, 0",
            "(5,), 0.5, 1.5, 2",
            "(3, 1), -3, -2",
            "17, 0, 100",
            "(2, 2), -0.1, 0.1, batch_size=3",
        ),
        "random_gumbel": (
            "3",
            "(1,)",
            "(2, 2, 2)",
            "5, 0, 1",
            "(4, 1)",
            "17",
            "(3,), 0, 1, 2",
            "2, batch_size=4",
        ),
    }
    for name, calls in draws.items():
        for args in calls:
            add(name, f"dy.{name}({args})", random=True, **NODIFF)


def parameters(cases: CaseList) -> None:
    """Lookups and parameters."""
    add = cases.add
    wide, single = t(6, 2, kind="lookup"), t(1, 4, kind="lookup")
    for table, index in ((wide, 0), (wide, 5), (single, 0), (t(3, 17, kind="lookup"), 1)):
        add("lookup", f"dy.lookup(x[0], {index})", table)
    add("lookup", "dy.cmult(dy.lookup(x[0], 1), dy.lookup(x[0], 1))", wide)
    for table, rows in (
        (wide, [0]),
        (wide, [5, 4, 3, 2, 1, 0]),
        (wide, [2, 2, 2]),
        (single, [0, 0]),
        (t(3, 17, kind="lookup"), [1, 2]),
        (t(4, 1, kind="lookup"), [3, 1]),
    ):
        add("lookup_batch", f"dy.lookup_batch(x[0], {rows})", table)
    for expr in (
        "dy.exp(x[0])",
        "dy.sum_elems(x[0])",
        "x[0] * dy.inputVector([1, 2, 3, 4, 5, 6])",
        "dy.cmult(x[0], x[0])",
        "dy.lookup(x[0], 1) + dy.pick(x[0], 1, 1)",
        "dy.transpose(x[0])",
        "dy.select_cols(x[0], [5, 0])",
        "dy.sum_dim(x[0], [1])",
    ):
        add("lookup_table", expr, wide)
    matrix, vector = t(3, 3, kind="param"), t(3, kind="param")
    for expr, spec in (
        ("x[0] + x[0]", vector),
        ("dy.parameter(x[0])", matrix),
        ("x[0] * x[0]", matrix),
        ("dy.sum_elems(x[0])", t(1, kind="param")),
        ("dy.reshape(x[0], (9,))", matrix),
        ("dy.parameter(x[0])[1]", vector),
        ("x[0].expr(update=True) + x[0].expr()", vector),
    ):
        add("parameter", expr, spec, fd="expr()" not in expr)
    for expr, spec in (
        ("dy.const_parameter(x[0])", vector),
        ("dy.const_parameter(x[0]) + x[0]", vector),
        ("dy.const_parameter(x[0]) * x[0]", matrix),
        ("x[0] * dy.const_parameter(x[0])", matrix),
        ("dy.const_parameter(x[0], x[0])[1] + 1", vector),
        ("dy.tanh(x[0].expr(False))", matrix),
        ("dy.dot_product(x[0].expr(), x[0])", vector),
    ):
        add("const_parameter", expr, spec, fd=False)


def elementwise(cases: CaseList, unary: Mapping[str, Mapping[str, Any]], loose: Mapping[str, float]) -> None:
    """One operand; far and special values; operators with numbers; rounding."""
    add = cases.add
    stops = ("nobackprop", "flip_gradient")
    for name, given in unary.items():
        for dims, batch in (((1,), 5), ((2, 3, 2, 2), 1), ((65,), 1), ((8, 8), 2)):
            add(
                name,
                f"dy.{name}(x[0])",
                t(*dims, b=batch, **given),
                fd=name not in stops,
                grad_tol=loose.get(name, 1.0),
            )
        if name in stops or name == "scale_gradient":
            continue
        add(name, f"dy.{name}(dy.inputVector([{NAN}, 0.5]))", **NODIFF)
    for name in ("abs", "rectify", "elu", "selu", "silu", "square", "cube", "exp", "erf", "tanh", "atan"):
        special = f"0.0, -0.0, {INF}, -{INF}" if name != "silu" else "0.0, -0.0, 80, -80"
        add(name, f"dy.{name}(dy.inputVector([{special}]))", **NODIFF)
    add("sqrt", "dy.sqrt(x[0])", t(3, lo=0, hi=0), fd=False)
    add("log", "dy.log(x[0])", t(3, lo=1e-3, hi=1e-2), fd=False)
    add("selu", "dy.selu(x[0])", t(3, lo=0, hi=0), fd=False)
    add("elu", "dy.elu(x[0], 2)", t(3, lo=0, hi=0), fd=False)
    add("lgamma", "dy.lgamma(dy.inputVector([1, 2, 0.5, 10, 100, 1e-3, 1e5]))", **NODIFF)
    for spec in (
        t(1),
        t(5),
        t(33, gap=0.3),
        t(6, 1),
        t(3, b=2),
        t(4, kind="param"),
        t(3, lo=0, hi=0),
        t(4, lo=-50, hi=50),
    ):
        add("softsign", "dy.softsign(x[0])", spec, fd=spec.lo != spec.hi)
    add("softsign", f"dy.softsign(dy.inputVector([{INF}, -{INF}, 1]))", ref="np.array([[1], [-1], [0.5]])",
        why="the reference gives NaN", **NODIFF)
    infinite = f"dy.inputVector([{INF}, 1, 2])"
    twice = f"dy.concatenate_cols([{infinite}, {infinite}])"
    for name, call, ref in (
        ("softmax", f"dy.softmax({infinite})", "[[1], [0], [0]]"),
        ("softmax", f"dy.softmax(dy.transpose({twice}), 1)", "[[[1], [0], [0]]] * 2"),
        ("log_softmax", f"dy.log_softmax({infinite})", "[[0], [-np.inf], [-np.inf]]"),
        ("restricted_log_softmax", f"dy.log_softmax({infinite}, [0, 2])", "[[0], [-np.inf], [-np.inf]]"),
        ("pickneglogsoftmax", f"dy.pickneglogsoftmax({infinite}, 0)", "[[0]]"),
        ("pickneglogsoftmax", f"dy.pickneglogsoftmax({infinite}, 1)", "[[np.inf]]"),
    ):
        add(name, call, ref=f"np.array({ref})", why="the reference gives NaN", **NODIFF)
    for name in ("round", "ceil", "floor"):
        for data in (
            "[0.0]",
            "[0.49999997, 0.50000006]",
            "[-3.5, 3.5]",
            "[8388609.0, -8388609.0]",
            "[1e20]",
            f"[{INF}, -{INF}]",
            "[-0.2, -0.0]",
            "[2.0, -7.0]",
            "[1e-30, -1e-30]",
            f"[{NAN}]",
        ):
            add(name, f"dy.{name}(dy.inputVector({data}), 'straight_through_gradient')", **NODIFF)
    for spec in (t(1), t(3, 4, b=2), t(2, 2, 2), t(33), t(3, kind="param"), t(1, b=3)):
        add("negate", "-(-x[0])", spec)
        add("const_minus", "0.5 - x[0]", spec)
        add("const_div", "3 / (x[0] + 5)", spec, ref="3 / (x[0] + 5)", why="number / Expression is refused")
        add("const_div", "-1 / (x[0] - 5)", spec, ref="-1 / (x[0] - 5)", why="number / Expression is refused")
        add("pow_const", "(x[0] + 3) ** 1.7", spec, grad_tol=3)
    add("pow_const", "x[0] ** 0", t(3, lo=0.5))
    add("pow_const", "x[0] ** 1", t(3, lo=0.5))
    for x, y in (
        (t(1, lo=0.3), t(1)),
        (t(5, lo=0.3), t(1, 1)),
        (t(3, 2, lo=0.3), t(1, kind="param")),
        (t(2, 2, 2, lo=0.3), t(1)),
        (t(33, lo=0.3), t(1)),
        (t(3, 1, lo=0.3), t(1)),
        (t(4, b=3, lo=0.3), t(1)),
        (t(3, kind="param", lo=0.3), t(1, lo=2, hi=3)),
    ):
        add("pow", "dy.pow(x[0], x[1])", x, y, grad_tol=3)


def pairs_and_lists(cases: CaseList) -> None:
    """Two operands and lists."""
    add = cases.add
    one = dict(distinct=True, lo=-2.03, hi=1.97)
    two = dict(distinct=True, lo=-1.81, hi=2.11)
    for dims, batch in (((1,), 3), ((33,), 1), ((2, 3, 2), 1), ((5, 1), 2), ((3, 3), 4)):
        add("bmax", "dy.bmax(x[0], x[1])", t(*dims, b=batch, **one), t(*dims, b=batch, **two), fd=False)
        add("bmin", "dy.bmin(x[0], x[1])", t(*dims, b=batch, **one), t(*dims, b=batch, **two), fd=False)
    for name in ("bmax", "bmin"):
        add(name, f"dy.{name}(dy.inputVector([0, {INF}, 1]), dy.inputVector([-0.0, 5, -{INF}]))", **NODIFF)
    for x, y in ((t(1, 1), t(1)), (t(17, 3), t(17)), (t(2, 5, b=2), t(2, 1, b=2)), (t(4, 2), t(4, 1, b=3))):
        add("colwise_add", "dy.colwise_add(x[0], x[1])", x, y)
    for dims in ((5,), (2, 2), (33,), (2, 3, 2)):
        for name, bounds in (("l1_distance", (1, 3, -2, 0.8)), ("trace_of_product", (-2, 2, -2, 2))):
            a, b, c, d = bounds
            if name == "l1_distance" or len(dims) < 3:
                add(name, f"dy.{name}(x[0], x[1])", t(*dims, lo=a, hi=b), t(*dims, lo=c, hi=d))
    for dims in ((6,), (1, 3), (5, 1), (4, 4), (2,)):
        add("trace_of_product", "dy.trace_of_product(x[0], x[1])", t(*dims, kind="param"), t(*dims))
    for dims in ((4, 2), (1, 5), (10,), (3, 1), (2, 2, 2)):
        add(
            "binary_log_loss",
            "dy.binary_log_loss(x[0], x[1])",
            t(*dims, lo=0.2, hi=0.8),
            t(*dims, kind="const", lo=0, hi=1),
        )
    for dims, batch in (((1,), 2), ((1, 2), 1), ((1, 1), 3)):
        add(
            "pairwise_rank_loss",
            "dy.pairwise_rank_loss(x[0], x[1], m=2)",
            t(*dims, b=batch, lo=3),
            t(*dims, b=batch, hi=0.5),
        )
    for group in (
        (t(1), t(1)),
        (t(2, 2, 2),) * 2,
        (t(3, b=4),) * 3,
        (t(33),) * 4,
        (t(5, 1),) * 2,
        (t(3, 4),) * 5,
    ):
        add("average", "dy.average(x)", *group)
        varied = [i._replace(distinct=True, lo=-2 - n / 7, hi=2 + n / 9) for n, i in enumerate(group)]
        add("emax", "dy.emax(x)", *varied, fd=False)
    for group in (
        (t(1), t(1), t(1)),
        (t(3, b=2), t(3, b=2)),
        (t(2, 3), t(2, 2), t(2)),
        (t(4), t(4, b=3)),
        (t(17), t(17, 2)),
        (t(3, kind="param"), t(3)),
    ):
        add("concatenate_cols", "dy.concatenate_cols(x)", *group)
    for group in (
        (t(1),),
        (t(2, b=2), t(2, b=3)),
        (t(2, 2, 2),) * 2,
        (t(17), t(17, b=2), t(17)),
        (t(4, 1), t(4, 1)),
        (t(3, b=5),),
    ):
        add("concatenate_to_batch", "dy.concatenate_to_batch(x)", *group)


def shapes(cases: CaseList) -> None:
    """Selection."""
    add = cases.add
    for expr, spec in (
        ("[1, 0, 1, 0]", t(2, b=4)),
        ("[0, 0]", t(1, b=2)),
        ("[4, 4, 0]", t(5, 3)),
        ("[2, 1]", t(3, 2, 2, b=2)),
        ("[0, 2], dim=1", t(2, 3)),
        ("[1, 0], 2", t(2, 2, 2, b=2)),
    ):
        add("pick_batch", f"dy.pick_batch(x[0], {expr})", spec)
    for index, spec in (
        (0, t(3, b=2)),
        (1, t(2, 2, b=2)),
        (2, t(1, b=3)),
        (4, t(17, b=5)),
        (0, t(2, 3, 2)),
        (1, t(4, 1, b=3)),
    ):
        add("pick_batch_elem", f"dy.pick_batch_elem(x[0], {index})", spec)
        add("pick_batch_elems", f"dy.pick_batch_elems(x[0], [{index}, 0, {index}])", spec)
    add("pick_batch_elems", "dy.pick_batch_elems(x[0], list(range(5)))", t(3, b=5))
    for s, e, d, spec in (
        (0, 1, 0, t(1)),
        (2, 5, 0, t(6, b=2)),
        (1, 2, 1, t(3, 2, b=2)),
        (0, 17, 0, t(20)),
        (1, 4, 0, t(5, 2, 2)),
    ):
        add("pick_range", f"dy.pick_range(x[0], {s}, {e}, {d})", spec)
        if d == 0:
            add("pickrange", f"dy.pickrange(x[0], {s}, {e})", spec)
    for s, e, spec in (
        (0, 3, t(3)),
        (1, 2, t(3, b=3)),
        (2, 4, t(4, kind="param")),
        (0, 2, t(2, 3, 2)),
        (5, 9, t(33)),
    ):
        add("pickrange", f"dy.pickrange(x[0], {s}, {e})", spec)
    for rows, spec in (
        ([0], t(1)),
        ([4, 0, 2], t(5)),
        ([1, 1, 1], t(2, 2)),
        ([2], t(3, 2, b=3)),
        ([0, 1], t(2, 2, 2)),
        ([16, 0, 8], t(17, 2)),
    ):
        add("select_rows", f"dy.select_rows(x[0], {rows})", spec)
    for cols, spec in (
        ([0], t(2, 1)),
        ([2, 0, 1], t(3, 3)),
        ([1, 1, 1], t(2, 2)),
        ([0, 3], t(3, 4, b=2)),
        ([4], t(1, 5)),
        ([7, 7, 0], t(17, 8)),
        ([1, 0], t(2, 2, kind="param")),
    ):
        add("select_cols", f"dy.select_cols(x[0], {cols})", spec)
    for n, spec in (
        (1, t(3)),
        (4, t(4)),
        (2, t(2, 1)),
        (5, t(10, 2)),
        (2, t(6, 4)),
        (3, t(3, 3)),
        (8, t(16, 2)),
        (2, t(4, 2, kind="param")),
    ):
        add("fold_rows", f"dy.fold_rows(x[0], {n})", spec)
    for spec in (t(1), t(2, 3), t(3, b=4), t(2, 2, 2), t(33), t(4, kind="param"), t(1, 5, b=2), t(3, 1)):
        add(
            "to_device",
            "dy.to_device(x[0], 'CPU')",
            spec,
            ref="x[0]",
            why="to_device leaves its result uninitialised on CPU builds",
        )


def reductions(cases: CaseList) -> None:
    """Sums, moments, extremes, normalisation."""
    add = cases.add
    for spec in (t(1, b=4), t(65), t(3, 1, b=2)):
        for name in ("sum_elems", "squared_norm", "l2_norm"):
            add(name, f"dy.{name}(x[0])", spec)
    for spec in (t(2), t(33), t(4, 4), t(2, 3, b=2), t(17, b=3), t(5, kind="param")):
        add("mean_elems", "dy.mean_elems(x[0])", spec)
        add("std_elems", "dy.std_elems(x[0])", spec, grad_tol=3)
    for spec in (t(5, b=2), t(33, b=3), t(2, 2, b=5), t(1, 3, b=2), t(4, 1, b=3), t(3, b=7)):
        add("sum_batches", "dy.sum_batches(x[0])", spec)
        add("mean_batches", "dy.mean_batches(x[0])", spec)
        add("std_batches", "dy.std_batches(x[0])", spec, grad_tol=5)
        for r in (1, 3):
            add("moment_batches", f"dy.moment_batches(x[0], {r})", spec)
    for d, spec in ((0, t(33)), (1, t(17, 3)), (0, t(2, 2, 2)), (1, t(3, 4, b=2)), (0, t(1, 4)), (1, t(4))):
        add("cumsum", f"dy.cumsum(x[0], {d})", spec)
    for d, spec in ((0, t(33)), (0, t(5, 2, b=3)), (1, t(2, 5)), (0, t(1, b=2)), (1, t(3, 17))):
        add("logsumexp_dim", f"dy.logsumexp_dim(x[0], {d})", spec)
    for name in ("max_dim", "min_dim"):
        for d, spec in (
            (0, t(33, distinct=True)),
            (1, t(17, 3, distinct=True)),
            (1, t(2, 2, b=3, distinct=True)),
        ):
            add(name, f"dy.{name}(x[0], d={d})", spec)
    for x, g in (
        (t(2), t(2)),
        (t(33), t(33)),
        (t(3, b=2), t(3)),
        (t(4, 1), t(4, 1)),
        (t(3, 4), t(3, 4)),
        (t(5, kind="param"), t(5)),
        (t(17, b=3), t(17)),
    ):
        add("layer_norm", "dy.layer_norm(x[0], x[1], x[2])", x, g, g, grad_tol=8)
    for w, g in (
        (t(1, lo=0.5), t(1)),
        (t(5), t(1)),
        (t(2, 2), t(1)),
        (t(33), t(1)),
        (t(4, 1), t(1)),
        (t(7, 5), t(1)),
        (t(3, kind="param"), t(1)),
        (t(2, 3, 2), t(1)),
    ):
        add("weight_norm", "dy.weight_norm(x[0], x[1])", w, g)





def extend(cases: CaseList, unary: Mapping[str, Mapping[str, Any]], loose: Mapping[str, float]) -> None:
    """Add all of them to the list. `unary`: operand ranges of the ops of one operand, `loose`: tolerances."""
    inputs(cases)
    parameters(cases)
    elementwise(cases, unary, loose)
    pairs_and_lists(cases)
    shapes(cases)
    reductions(cases)
    cases_losses.losses(cases)
    cases_losses.dropouts(cases)
    cases_losses.lstm(cases)
