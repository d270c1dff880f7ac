# ruff: noqa: UP031
"""THE list of op cases. Values, gradients, batching, ragged batching, the op table's test and the oracle's
recordings all run over it. An op of the table needs at least two cases here.

`x` are the operands, `k` the number of the copy (so attributes can differ between copies of one batch).
After a change: `python tests/oracle/record.py ops` in an environment that has the real DyNet.
"""

from __future__ import annotations

from ops.case import CaseList, t
from ops.cases_conv import add_convolution

from ops import cases_audit, cases_linalg

_list = CaseList()
add = _list.add

# ---- inputs and constants

NODIFF = dict(diff=False, fd=False)
for value in (0.0, -1.5, 3.25e7):
    add("scalarInput", f"dy.scalarInput({value!r})", **NODIFF)
add("vecInput", "dy.vecInput(3)", **NODIFF)
add("vecInput", "(lambda e: (e.set([1.5, -2, k]), e)[1])(dy.vecInput(3))", **NODIFF)
add("inputVector", "dy.inputVector([1.0, -2.5, 1e-3])", **NODIFF)
add("inputVector", "dy.inputVector(np.array([k, 2], dtype=np.float32))", **NODIFF)
add("inputVector", "dy.inputVector((4,))", **NODIFF)
add("inputTensor", "dy.inputTensor(np.arange(24.).reshape(2, 3, 4))", **NODIFF)
add("inputTensor", "dy.inputTensor(np.arange(24.).reshape(2, 3, 4), batched=True)", **NODIFF)
add("inputTensor", "dy.inputTensor(np.arange(6, dtype=np.int32).reshape(2, 3, order='F').T)", **NODIFF)
add("inputTensor", "dy.inputTensor([[1, 2, 3], [4, 5, 6 + k]])", **NODIFF)
add("inputTensor", "dy.inputTensor([np.array([1., 2]), np.array([3., 4]), np.array([5., 6])])", **NODIFF)
add("inputTensor", "dy.inputTensor(np.arange(4.), batched=True)", **NODIFF)
add("inputTensor", "dy.inputTensor(np.array([True, False, True]))", **NODIFF)
add("inputTensorTranspose", "dy.inputTensorTranspose([1, 2, 3, 4, 5, 6], (2, 3))", **NODIFF)
add("inputTensorTranspose", "dy.inputTensorTranspose(list(range(12)), (2, 3), 2)", **NODIFF)
add("inputTensorTranspose", "dy.inputTensorTranspose([3, 1, 2])", **NODIFF)
add("sparse_inputTensor", "dy.sparse_inputTensor(([0, 2], [1, 0]), [5., -1.], (3, 2))", **NODIFF)
add("sparse_inputTensor", "dy.sparse_inputTensor(([0, 2, 1],), [5., -1., 2.], (3,), defval=0.5)", **NODIFF)
add("sparse_inputTensor", "dy.sparse_inputTensor(([0, 1], [1, 0]), [5., -1.], (3, 2), batched=True)",
    **NODIFF)
add("one_hot", "dy.one_hot(4, 2)", **NODIFF)
add("one_hot", "dy.one_hot(3, [2, 0, 0, 1])", **NODIFF)
add("one_hot", "dy.one_hot(3, (2 * k) % 3)", **NODIFF)
for name in ("zeros", "zeroes", "ones"):
    add(name, f"dy.{name}((2, 3))", **NODIFF)
    add(name, f"dy.{name}(4, batch_size=3)", **NODIFF)
    add(name, f"dy.{name}((1,))", **NODIFF)
add("constant", "dy.constant((3, 2), -0.75)", **NODIFF)
add("constant", "dy.constant(2, 1.5 + k, batch_size=2)", **NODIFF)
add("random_normal", "dy.random_normal((3, 2))", random=True, **NODIFF)
add("random_normal", "dy.random_normal(5, 0.0, 0.5, 3)", random=True, **NODIFF)
add("random_normal", "dy.random_normal((7,), mean=2.0, stddev=3.0)", random=True, **NODIFF)
add("random_bernoulli", "dy.random_bernoulli((4, 3), 0.4)", random=True, **NODIFF)
add("random_bernoulli", "dy.random_bernoulli(6, 0.7, scale=2.5, batch_size=2)", random=True, **NODIFF)
add("random_uniform", "dy.random_uniform((3, 3), -2, 5)", random=True, **NODIFF)
add("random_uniform", "dy.random_uniform(4, 0, 1, batch_size=3)", random=True, **NODIFF)
add("random_gumbel", "dy.random_gumbel((3, 2))", random=True, **NODIFF)
add("random_gumbel", "dy.random_gumbel(4, batch_size=2)", random=True, **NODIFF)

# ---- lookups and parameters

TABLE = t(5, 3, kind="lookup")
add("lookup", "dy.lookup(x[0], 2)", TABLE)
add("lookup", "dy.lookup(x[0])", TABLE)
add("lookup", "x[0][(3 + k) % 5]", TABLE)
add("lookup", "dy.lookup(x[0], 4, update=False)", t(5, 3, kind="lookup"), fd=False)
add("lookup", "dy.lookup(x[0], 1)", t(2, 3, 2, kind="lookup"), ref="x[0][1]",
    why="3-D tables come in misordered")
add("lookup", "dy.lookup(x[0], 1)", t(3, 1, kind="lookup"))
add("lookup_batch", "dy.lookup_batch(x[0], [1, 4, 1])", TABLE)
add("lookup_batch", "x[0].batch([k % 5, 0])", TABLE)
add("lookup_batch", "dy.lookup_batch(x[0], [3])", TABLE)
add("lookup_batch", "dy.lookup_batch(x[0], [2, 0], update=False)", TABLE, fd=False)
add("lookup_table", "dy.tanh(x[0])", TABLE)
add("lookup_table", "x[0] * dy.inputVector([1, 0.5, -1, 2, 0.25])", TABLE)
add("parameter", "dy.tanh(x[0])", t(3, 2, kind="param"))
add("parameter", "dy.parameter(x[0]) + 1", t(3, kind="param"))
add("parameter", "x[0].expr(update=True) * 2", t(1, 3, kind="param"))
add("const_parameter", "dy.const_parameter(x[0]) * 2", t(3, kind="param"), fd=False)
add("const_parameter", "x[0].expr() * 2", t(2, 2, kind="param"), fd=False)
add("const_parameter", "dy.cmult(x[0], dy.const_parameter(x[0]))", t(2, 2, kind="param"), fd=False)

# ---- elementwise, one operand

SHAPES = (((3,), 1), ((3, 2), 4), ((1,), 1), ((1, 5), 1), ((2, 1, 3), 2), ((17, 3), 1))
UNARY = {
    "exp": {}, "log": dict(lo=0.2, hi=4), "sqrt": dict(lo=0.2,
        hi=4), "square": {}, "cube": {}, "abs": dict(gap=0.15),
    "sin": {}, "cos": {}, "tan": dict(lo=-1.2, hi=1.2), "asin": dict(lo=-0.85, hi=0.85),
    "acos": dict(lo=-0.85, hi=0.85), "atan": {}, "sinh": {}, "cosh": {}, "tanh": dict(lo=-3,
        hi=3), "asinh": {},
    "acosh": dict(lo=1.3, hi=4), "atanh": dict(lo=-0.85, hi=0.85), "logistic": dict(lo=-5, hi=5),
    "log_sigmoid": dict(lo=-5,
        hi=5), "rectify": dict(gap=0.15), "elu": dict(gap=0.15), "selu": dict(gap=0.15),
    "silu": {}, "erf": {}, "lgamma": dict(lo=0.3,
        hi=5), "nobackprop": {}, "flip_gradient": {}, "scale_gradient": {},
}
LOOSE = {"lgamma": 10.0, "tan": 3.0, "acosh": 3.0, "atanh": 3.0, "asin": 2.0, "acos": 2.0}
for name, given in UNARY.items():
    skip_fd = name in ("nobackprop", "flip_gradient")
    for dims, batch in SHAPES:
        add(name, f"dy.{name}(x[0])", t(*dims, b=batch, **given), fd=not skip_fd,
            grad_tol=LOOSE.get(name, 1.0))
    add(name, f"dy.{name}(x[0])", t(4, kind="param", **given), fd=not skip_fd, grad_tol=LOOSE.get(name, 1.0))
for dims, batch in SHAPES:
    for reach in (2, 6):
        add("gelu", "dy.gelu(x[0])", t(*dims, b=batch, lo=-reach, hi=reach),
            ref="x[0] * (1 + erf(x[0] / np.sqrt(2))) / 2", why="not a function of the reference")
for dims, batch in (((3,), 1), ((4, 1), 3), ((17,), 1)):
    add("softsign", "dy.softsign(x[0])", t(*dims, b=batch))
# far arguments, and where the plain formula overflows or loses every digit
for name in ("exp", "tanh", "logistic", "log_sigmoid", "erf", "sinh", "asinh", "atan", "silu", "selu"):
    add(name, f"dy.{name}(dy.inputVector([-80, -20, -9, -1e-4, 1e-4, 9, 20, 80]))", **NODIFF)
add("tanh", "dy.tanh(dy.inputVector([1e-7, -1e-5, 3e-3, -0.02, 0.3, -4.9, 5.1, 1e4]))", **NODIFF)
add("log", "dy.log(dy.inputVector([1e-30, 1e-6, 0.999, 1.001, 1e6, 1e30]))", **NODIFF)
add("log", "dy.log(dy.inputVector([0, -1]))", **NODIFF)
add("sqrt", "dy.sqrt(dy.inputVector([0, 1e-30, 1e30]))", **NODIFF)
add("abs", "dy.abs(x[0])", t(4, lo=0, hi=0), fd=False)
add("rectify", "dy.rectify(x[0])", t(4, lo=0, hi=0), fd=False)
add("elu", "dy.elu(x[0], 0.3)", t(3, 2, gap=0.15))
add("elu", "dy.elu(x[0], alpha=2.0 + k)", t(4, b=2, gap=0.15))
add("silu", "dy.silu(x[0], 2.0)", t(3, 2), ref="x[0] / (1 + np.exp(-2 * x[0]))",
    why="silu gradient for beta != 1")
add("silu", "dy.silu(x[0], beta=0.5)", t(4, b=2), ref="x[0] / (1 + np.exp(-0.5 * x[0]))", why="as above")
add("scale_gradient", "dy.scale_gradient(x[0], -2.5)", t(3, 2), fd=False)
add("scale_gradient", "dy.scale_gradient(x[0], lambd=0.5)", t(3, b=2), fd=False)
add("flip_gradient", "dy.tanh(dy.flip_gradient(x[0]))", t(3, 2), fd=False)
add("nobackprop", "dy.cmult(x[0], dy.nobackprop(x[0]))", t(3, b=2), fd=False)
ROUNDINGS = {"round": "np.where(x[0] < 0, -1, 1) * np.floor(np.abs(x[0]) + 0.5)", "ceil": "np.ceil(x[0])",
             "floor": "np.floor(x[0])"}
for name, formula in ROUNDINGS.items():
    for mode, grad in (("zero_gradient", "0 * w"), ("straight_through_gradient", "w")):
        for spec in (t(3, 2, lo=-4, hi=4), t(5, b=2, lo=-4, hi=4)):
            add(name, f"dy.{name}(x[0], gradient_mode={mode!r})", spec, ref=formula, ref_grad=(grad,),
                fd=False,
                why="the reference ignores the gradient mode of round, ceil and floor")
    add(name, f"dy.{name}(dy.inputVector([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5]), 'zero_gradient')", **NODIFF)

# ---- operators

for spec in (t(3), t(3, 2, b=2), t(1), t(2, kind="param")):
    add("negate", "-x[0]", spec)
    add("add_const", "x[0] + 1.5", spec)
    add("add_const", "-2 + x[0]", spec)
    add("add_const", "x[0] - 0.5", spec)
    add("const_minus", "3 - x[0]", spec)
    add("scale", "x[0] * 2.5", spec)
    add("scale", "-3 * x[0]", spec)
    add("scale", "np.float64(0.5) * x[0]", spec)
    add("scale", "x[0] / 4", spec)
for spec in (t(1, lo=0.3), t(1, b=3, lo=0.3), t(1, 1, lo=0.3), t(1, kind="param", lo=0.3)):
    for name, of_instance, first in (  # k: number of the instance
        ("scale_by_own", "x[0] * (0.7 + k)", "x[0] * 0.7"),
        ("scale_by_own", "x[0] / (3 + k)", "x[0] / 3"),
        ("add_own", "x[0] - (0.7 + k)", "x[0] - 0.7"),
        ("own_minus", "(0.7 + k) - x[0]", "0.7 - x[0]"),
        ("own_div", "(0.7 + k) / x[0]", "0.7 / x[0]"),
    ):
        add(name, of_instance, spec, ref=first, why="a number for each instance")
        if spec == t(1, lo=0.3):  # of larger expressions the graph decides (graph/varying_numbers.h)
            own = f"(dy._core._own_numbers(True), {of_instance}, dy._core._own_numbers())[1]"
            for larger in (t(5, lo=0.3), t(3, 7, b=2, lo=0.3)):
                add(name, own, larger, ref=first, why="a number for each instance")
add("pow_const", "x[0] ** 2", t(3, 2, lo=0.3))
add("pow_const", "x[0] ** 3", t(3, 2))
add("pow_const", "x[0] ** -1.5", t(3, lo=0.3), grad_tol=3)
add("pow_const", "x[0] ** 0.5", t(3, b=2, lo=0.3))
add("pow", "x[0] ** x[1]", t(4, lo=0.3), t(1), grad_tol=3)
add("pow", "dy.pow(x[0], x[1])", t(2, 3, b=2, lo=0.3), t(1), grad_tol=3)
add("pow", "dy.pow(x[0], dy.scalarInput(3))", t(3, 1, lo=0.3))
add("add", "sum([x[0], x[1], x[2]])", t(3), t(3), t(3))
add("scale", "x[0] / np.float32(3)", t(3), ref="x[0] / 3", why="np.float32 operands are refused")
add("scale", "x[0] * np.int64(3 + k)", t(2, 2), ref="x[0] * 3", why="as above")
add("add_const", "x[0] + np.float32(0.25)", t(2, 2), ref="x[0] + 0.25", why="as above")
add("cdiv", "x[0] / x[1]", t(3, 2), t(3, 2, gap=0.5), ref="x[0] / x[1]",
    why="Expression / Expression is refused")
for spec in (t(3, b=2, gap=0.5), t(2, 2, gap=0.5)):
    add("const_div", "-2.0 / x[0]", spec, ref="-2 / x[0]", why="number / Expression is refused")

# ---- two operands with broadcasting

PAIRS = (
    (t(3), t(3)), (t(3, b=4), t(3)), (t(3), t(3, b=4)), (t(3, b=4), t(3, b=4)), (t(1), t(1)),
    (t(3, 2), t(3, 2)), (t(3, 2, b=2), t(3, 2)), (t(3, 2), t(3)), (t(3), t(3, 2)), (t(3, 2), t(1)), (t(1),
        t(3, 2)),
    (t(3, 2), t(1, 2)), (t(3, 1), t(1, 2)), (t(3, 2, b=3), t(3)), (t(3, 2), t(3, b=3)), (t(3), t(3, 1)),
    (t(3, 1), t(3)), (t(2, 3, 2), t(2, 1, 2)), (t(2, 1, 2, b=2), t(1, 3)), (t(17, 3), t(17)), (t(1, b=3),
        t(4)),
    (t(3, kind="param"), t(3)), (t(3, kind="param"), t(3, 2, b=2)),
)
for left, right in PAIRS:
    for name, expr in (("add", "x[0] + x[1]"), ("sub", "x[0] - x[1]"), ("cmult", "dy.cmult(x[0], x[1])")):
        add(name, expr, left, right)
DIVISIONS = (PAIRS[0], PAIRS[1], PAIRS[3], PAIRS[4], PAIRS[5], PAIRS[6], PAIRS[7], PAIRS[9], PAIRS[11],
    PAIRS[13],
             (t(2, 3, 2), t(2, 1, 2)), (t(2, 3, 2, b=2), t(2)))
for left, right in DIVISIONS:
    add("cdiv", "dy.cdiv(x[0], x[1])", left, right._replace(gap=0.5))
SAME = ((t(4), t(4)), (t(3, 2), t(3, 2)), (t(3, b=3), t(3, b=3)), (t(1), t(1)), (t(1, 4, b=2), t(1, 4, b=2)))
for left, right in SAME:
    left = left._replace(distinct=True)
    add("bmax", "dy.bmax(x[0], x[1])", left, right._replace(distinct=True, lo=-2.1, hi=2.3), fd=False)
    add("bmin", "dy.bmin(x[0], x[1])", left, right._replace(distinct=True, lo=-2.1, hi=2.3), fd=False)
add("bmax", "dy.bmax(x[0], x[1])", t(3, lo=1, hi=1), t(3, lo=1, hi=1), fd=False)
add("bmin", "dy.bmin(x[0], x[1])", t(3, lo=1, hi=1), t(3, lo=1, hi=1), fd=False)
for left, right in ((t(3, 2), t(3)), (t(3, 4), t(3, 1)), (t(3, 2, b=2), t(3)), (t(3, 2), t(3, b=2)),
    (t(1, 4), t(1)),
                    (t(3, 1), t(3)), (t(3, 2, b=2), t(3, b=2)), (t(3, 2, kind="param"), t(3, kind="param"))):
    add("colwise_add", "dy.colwise_add(x[0], x[1])", left, right)
for left, right in ((t(4), t(4)), (t(3, 2), t(3, 2)), (t(3, b=3), t(3)), (t(3), t(3, b=3)),
    (t(3, b=2), t(3, b=2)),
                    (t(1), t(1)), (t(2, 2, 2), t(2, 2, 2)), (t(33), t(33)), (t(4, kind="param"), t(4, b=2))):
    add("dot_product", "dy.dot_product(x[0], x[1])", left, right)
    add("squared_distance", "dy.squared_distance(x[0], x[1])", left, right)
add("squared_distance", "dy.squared_distance(x[0], x[1])", t(3, 1), t(3))
for left, right in ((t(4), t(4)), (t(3, 2), t(3, 2)), (t(1), t(1)), (t(3, 1), t(3)),
    (t(3, kind="param"), t(3))):
    add("l1_distance", "dy.l1_distance(x[0], x[1])", left._replace(lo=1, hi=3), right._replace(lo=-2, hi=0.8))
    add("huber_distance", "dy.huber_distance(x[0], x[1])", left._replace(lo=0.5, hi=1.5),
        right._replace(lo=0.4, hi=0.6))
    add("huber_distance", "dy.huber_distance(x[0], x[1], c=0.5)", left._replace(lo=2),
        right._replace(lo=-2, hi=1))
    if left.kind == "input" and right.dims == left.dims:
        add("trace_of_product", "dy.trace_of_product(x[0], x[1])", left, right)
add("l1_distance", "dy.l1_distance(x[0], x[1])", t(3, lo=1, hi=1), t(3, lo=1, hi=1), fd=False)
WIDER = "the reference has no batches here"
HUBER = ("np.where(np.abs(x[0] - x[1]) < %g, (x[0] - x[1]) ** 2 / 2, "
         "%g * (np.abs(x[0] - x[1]) - %g / 2)).sum(0, keepdims=True)")
for left, right in ((t(3, b=3, lo=1, hi=3), t(3, b=3, hi=0.8)), (t(3, b=2, lo=1, hi=3), t(3, hi=0.8))):
    add("l1_distance", "dy.l1_distance(x[0], x[1])", left, right, why=WIDER,
        ref="np.abs(x[0] - x[1]).sum(0, keepdims=True)")
    add("huber_distance", "dy.huber_distance(x[0], x[1], 0.05)", left, right, why=WIDER,
        ref=HUBER % ((0.05,) * 3))
    add("trace_of_product", "dy.trace_of_product(x[0], x[1])", left, right, why=WIDER,
        ref="(x[0] * x[1]).sum(0, keepdims=True)")
add("pow", "dy.pow(x[0], x[1])", t(3, b=2, lo=0.3), t(1, b=2), ref="x[0] ** x[1]", grad_tol=3, why=WIDER)
for dims in ((3,), (1,), (2, 3)):
    for target in (t(*dims, kind="const", lo=0.1, hi=0.9), t(*dims, kind="const", lo=0, hi=1, whole=True)):
        add("binary_log_loss", "dy.binary_log_loss(x[0], x[1])", t(*dims, lo=0.1, hi=0.9), target)
add("binary_log_loss", "dy.binary_log_loss(dy.inputVector([0, 1, 0, 1]), dy.inputVector([0, 1, 1, 0]))",
    **NODIFF)
for left, right in ((t(1), t(1)), (t(1, 5), t(1, 5)), (t(1, b=4), t(1, b=4)), (t(1, 3, b=2), t(1, 3, b=2))):
    add("pairwise_rank_loss", "dy.pairwise_rank_loss(x[0], x[1])", left._replace(hi=-0.2),
        right._replace(lo=-1))
    add("pairwise_rank_loss", "dy.pairwise_rank_loss(x[0], x[1], 0.5)", left._replace(lo=1),
        right._replace(hi=0.3))

# ---- matrix product

PRODUCTS = (
    (t(3, 4), t(4)), (t(3, 4), t(4, 1)), (t(3, 4), t(4, 2)), (t(3), t(1, 4)), (t(3, 1), t(1, 4)), (t(1, 4),
        t(4)),
    (t(1, 4), t(4, 1)), (t(3, 4), t(4, b=3)), (t(3, 4, b=3), t(4)), (t(3, 4, b=3), t(4, b=3)), (t(3, 4),
        t(4, 2, b=3)),
    (t(3, 4, b=2), t(4, 2, b=2)), (t(3), t(1)), (t(3), t(1, b=2)), (t(1), t(1)), (t(3, 1), t(1)), (t(1, 1),
        t(1, 4)),
    (t(3, 4, kind="param"), t(4)), (t(3, 4, kind="param"), t(4, b=5)), (t(3, 4, kind="param"), t(4, 2, b=2)),
    (t(16, 33, kind="param"), t(33)), (t(33, 17, kind="param"), t(17, b=20)), (t(4, 3),
        t(3, 4, kind="param")),
    (t(1, 7, kind="param"), t(7, b=3)), (t(64, 9, kind="param"), t(9, 5)),
)
for left, right in PRODUCTS:
    add("matmul", "x[0] * x[1]", left, right)
AFFINE = (
    (t(3), t(3, 4), t(4)), (t(3, kind="param"), t(3, 4, kind="param"), t(4)), (t(3), t(3, 4), t(4, b=3)),
    (t(3, kind="param"), t(3, 4, kind="param"), t(4, b=3)), (t(3), t(3, 4, b=2), t(4)), (t(3), t(3, 4),
        t(4, 1)),
    (t(3, b=2), t(3, 4), t(4)), (t(3), t(3, 4), t(4, 2)), (t(3, 2), t(3, 4), t(4, 2)), (t(3, 1), t(3, 4),
        t(4, 2, b=2)),
    (t(1), t(1, 1), t(1)), (t(3, 2, b=2), t(3, 4), t(4, 2, b=2)), (t(20, kind="param"),
        t(20, 33, kind="param"), t(33)),
)
for group in AFFINE:
    add("affine_transform", "dy.affine_transform([x[0], x[1], x[2]])", *group)
for group in ((t(3), t(3, 4), t(4), t(3, 2), t(2)), (t(3, kind="param"), t(3, 4, kind="param"), t(4, b=2),
              t(3, 2, kind="param"), t(2)), (t(3), t(3, 4), t(4, 2), t(3, 5), t(5, 2)),
              (t(3), t(3, 4), t(4), t(3, 2), t(2, b=3))):
    add("affine_transform", "dy.affine_transform([x[0], x[1], x[2], x[3], x[4]])", *group)
add("affine_transform", "dy.affine_transform([x[0]])", t(3))
add("affine_transform", "dy.affine_transform([x[0], x[1], x[2], x[1], x[3]])", t(3), t(3, 3, kind="param"),
    t(3), t(3))

# ---- lists

LISTS = ((t(3), t(3), t(3)), (t(3, 2), t(3, 2)), (t(4),), (t(3, b=2), t(3, b=2)), (t(1), t(1), t(1), t(1)),
         (t(2, 3, 2), t(2, 3, 2)), (t(3, kind="param"), t(3, b=3)))
for group in LISTS:
    for name in ("esum", "logsumexp"):
        add(name, f"dy.{name}(x)", *group)
    if not any(i.batch != group[0].batch for i in group):
        add("average", "dy.average(x)", *group)
        add("emax", "dy.emax(x)", *[i._replace(distinct=True, lo=-2 - n / 7, hi=2 + n / 9) for n,
            i in enumerate(group)],
            fd=False)
for group in ((t(3, b=2), t(3)), (t(3), t(3, b=2)), (t(3), t(3, b=2), t(3)), (t(3, 1), t(3))):
    add("esum", "dy.esum(x)", *group)
    add("logsumexp", "dy.logsumexp(x)", *group)
add("esum", "dy.esum([x[0], x[0], x[1]])", t(3), t(3))
add("esum", "dy.esum([dy.tanh(x[0]) for _ in range(12)])", t(5), grad_tol=3)
add("logsumexp", "dy.logsumexp([x[0] * 40, x[1] * 40])", t(3, distinct=True), t(3, distinct=True), fd=False,
    grad_tol=10)
for group in ((t(3, b=2), t(3)), (t(3), t(3, b=2), t(3))):
    add("average", "dy.average(x)", *group, ref="sum(x) / len(x)",
        why="gradient of average with mixed batches")
add("emax", "dy.emax(x)", t(3, lo=1, hi=1), t(3, lo=1, hi=1), t(3, lo=1, hi=1), fd=False)
CATS = (
    ((t(3), t(2)), 0), ((t(3), t(2), t(4)), 0), ((t(3),), 0), ((t(3, 2), t(1, 2)), 0), ((t(3, 2), t(3, 4)),
        1),
    ((t(3), t(3)), 1), ((t(3, 2), t(3)), 1), ((t(3, b=2), t(2)), 0), ((t(3), t(2, b=2)),
        0), ((t(3, b=2), t(2, b=2)), 0),
    ((t(3, 2), t(3, 2)), 2), ((t(3, kind="param"), t(2, b=3)), 0), ((t(3, 2, 2), t(3, 1, 2)),
        1), ((t(2), t(2, 1)), 0),
    ((t(2, 3, 1), t(2, 3, 1)), 3), ((t(1), t(1), t(1), t(1)), 0), ((t(2, 3, b=2), t(2, 1)), 1),
)
for group, dim in CATS:
    add("concatenate", "dy.concatenate(x, d=%d)" % dim if dim else "dy.concatenate(x)", *group)
add("concatenate", "dy.concatenate([x[0], x[1], x[0]])", t(3), t(2))
add("concatenate", "dy.concatenate([dy.pick(x[0], i % 4) for i in range(20)])", t(4))
add("concatenate", "dy.concatenate([x[0][2], dy.scalarInput(3), x[1], x[0][0]])", t(4), t(3))
add("concatenate", "dy.concatenate(x, d=3)", t(2, 3), t(2, 3), ref="np.stack(x, axis=2)[:, :, None]",
    why="concatenate two dims beyond the operands' leaves the dim between them undefined")
for group in ((t(3), t(3), t(3)), (t(3, 2), t(3)), (t(3, b=2), t(3)), (t(1), t(1)), (t(4),)):
    add("concatenate_cols", "dy.concatenate_cols(x)", *group)
for group in ((t(3), t(3)), (t(3, 2, b=2), t(3, 2)), (t(1), t(1, b=3), t(1)), (t(4),),
    (t(3, kind="param"), t(3))):
    add("concatenate_to_batch", "dy.concatenate_to_batch(x)", *group)

# ---- shape and selection

for expr, spec in (
    ("dy.reshape(x[0], (2, 3))", t(6)), ("dy.reshape(x[0], (6,))", t(2, 3)), ("dy.reshape(x[0], (3, 2))",
        t(2, 3, b=2)),
    ("dy.reshape(x[0], (6,), batch_size=2)", t(2, 3, b=2)), ("dy.reshape(x[0], (3,), batch_size=4)",
        t(2, 3, b=2)),
    ("dy.reshape(x[0], (12,))", t(2, 3, b=2)), ("dy.reshape(x[0], (3, 1))",
        t(3)), ("dy.reshape(x[0], (2,), 3)", t(6)),
    ("dy.reshape(x[0], (1, 4))", t(4, kind="param")), ("dy.reshape(x[0], (2, 2, 2))", t(8)),
):
    add("reshape", expr, spec)
for expr, spec in (
    ("dy.transpose(x[0])", t(3, 2)), ("dy.transpose(x[0])", t(3, 2, b=3)), ("dy.transpose(x[0])", t(3)),
    ("dy.transpose(x[0])", t(1, 4)), ("dy.transpose(x[0], [1, 0])",
        t(4, 1)), ("dy.transpose(x[0], [2, 0, 1])", t(2, 3, 4)),
    ("dy.transpose(x[0], [0, 2, 1])", t(2, 3, 4, b=2)), ("dy.transpose(x[0])", t(3, 2, kind="param")),
    ("dy.transpose(x[0]) * x[0]", t(3, 2)), ("dy.transpose(x[0], [3, 2, 1, 0])", t(2, 3, 2, 2)),
):
    add("transpose", expr, spec)
for expr, spec in (
    ("dy.pick(x[0], 2)", t(4)), ("dy.pick(x[0])", t(3)), ("dy.pick(x[0], 1)",
        t(3, 2)), ("dy.pick(x[0], 1, 1)", t(3, 2)),
    ("dy.pick(x[0], index=0, dim=2)", t(2, 3, 2)), ("dy.pick(x[0], 1)", t(3, b=4)), ("dy.pick(x[0], 1, 1)",
        t(3, 2, b=2)),
    ("dy.pick(x[0], k % 4)", t(4)), ("dy.pick(x[0], 0)", t(1)), ("dy.pick(x[0], 2)", t(4, kind="param")),
    ("x[0][1]", t(4)), ("x[0][-1]", t(4)), ("x[0][-2]", t(3, 2)), ("x[0][0]", t(3, b=2)), ("x[0][0][1]",
        t(3, 2)),
    ("(lambda e: (e.set_index(2), e)[1])(dy.pick(x[0], 0))", t(4)), ("dy.esum(list(x[0]))", t(3, 2)),
    ("dy.concatenate([x[0][2], x[0][0], x[0][2]])", t(4)), ("x[0][3]", t(5, 3)), ("x[0][True]", t(4)),
):
    add("pick", expr, spec)
for expr, spec in (
    ("dy.pick_batch(x[0], [1, 0, 2])", t(3, b=3)), ("dy.pick_batch(x[0], [1, 0])", t(3, 2, b=2)),
    ("dy.pick_batch(x[0], [1, 0], dim=1)", t(3, 2, b=2)), ("dy.pick_batch(x[0], [1, 0, 1])", t(3)),
    ("dy.pick_batch(x[0], [1, k % 3])", t(3, b=2)), ("dy.pick_batch(x[0], [2])", t(4)),
):
    add("pick_batch", expr, spec)
for expr, spec in (
    ("dy.pick_range(x[0], 1, 3)", t(4)), ("dy.pick_range(x[0], 0, 2)",
        t(3, 2)), ("dy.pick_range(x[0], 1, 3, 1)", t(2, 4)),
    ("dy.pick_range(x[0], 1, 2)", t(3, b=3)), ("dy.pick_range(x[0], 0, 4)",
        t(4)), ("dy.pick_range(x[0], 3, 4)", t(4)),
    ("dy.pick_range(x[0], k % 3, k % 3 + 2)", t(4)), ("dy.pick_range(x[0], 1, 3, d=2)", t(2, 2, 3)),
):
    add("pick_range", expr, spec)
add("pickrange", "dy.pickrange(x[0], 1, 3)", t(4))
add("pickrange", "dy.pickrange(x[0], 0, 2)", t(3, 2, b=2))
for expr, spec in (("dy.pick_batch_elem(x[0], 1)", t(3, b=3)), ("dy.pick_batch_elem(x[0], 0)", t(3, 2, b=2)),
                   ("dy.pick_batch_elem(x[0], (k + 1) % 3)", t(3, b=3)), ("dy.pick_batch_elem(x[0], 0)",
                       t(3))):
    add("pick_batch_elem", expr, spec)
for expr, spec in (("dy.pick_batch_elems(x[0], [2, 0])", t(3, b=3)),
    ("dy.pick_batch_elems(x[0], [1, 1, 0])", t(2, 2, b=2)),
                   ("dy.pick_batch_elems(x[0], [k % 3])", t(3, b=3))):
    add("pick_batch_elems", expr, spec)
for expr, spec in (
    ("dy.strided_select(x[0], [2], [0], [5])", t(5)), ("dy.strided_select(x[0], [1, 2], [0, 1], [2, 4])",
        t(3, 4)),
    ("dy.strided_select(x[0], [2, 1, 2], [1, 0, 0], [3, 2, 3])", t(3, 2, b=3)),
    ("dy.strided_select(x[0], [], [1], [])", t(3, 2)), ("dy.strided_select(x[0], [], [], [])", t(3, 2)),
    ("dy.strided_select(x[0], [3], [], [])", t(7, b=2)), ("x[0][1:3]", t(4)), ("x[0][:2]",
        t(3, 2)), ("x[0][1:]", t(3, b=2)),
    ("x[0][:]", t(3)), ("x[0][::2]", t(5, 2)), ("x[0][1:3, 0:1]", t(3, 2)), ("x[0][:, 1:]", t(3, 2)),
    ("x[0][0:2, :, 1:2]", t(3, 2, b=2)), ("x[0][1:6:2]", t(6)), ("x[0][0:2][0:1]", t(4)),
):
    add("strided_select", expr, spec)
add("strided_select", "x[0][:-1]", t(4), ref="x[0][:-1]", why="negative bounds are refused")
add("strided_select", "x[0][-2:]", t(4, 2), ref="x[0][-2:]", why="negative bounds are refused")
for expr, spec in (("dy.select_rows(x[0], [2, 0])", t(3, 2)), ("dy.select_rows(x[0], [1, 1])", t(3)),
                   ("dy.select_rows(x[0], [0])", t(3, 2, b=2)), ("dy.select_rows(x[0], (1, k % 2))", t(2, 3)),
                   ("dy.select_rows(x[0], [3, 1, 0])", t(4, kind="param"))):
    add("select_rows", expr, spec)
for expr, spec in (("dy.select_cols(x[0], [1, 0])", t(3, 2)), ("dy.select_cols(x[0], [2, 2, 0])", t(2, 3)),
                   ("dy.select_cols(x[0], [0])", t(3, 2, b=2)), ("dy.select_cols(x[0], [k % 2])", t(3, 2))):
    add("select_cols", expr, spec)
for name in ("max_dim", "min_dim"):
    for spec, dim in ((t(5), 0), (t(3, 4), 0), (t(3, 4), 1), (t(3, b=3), 0), (t(2, 3, 2, b=2), 1),
        (t(1, 4), 0),
                      (t(2, 3, 2), 2), (t(1), 0)):
        add(name, "dy.%s(x[0], %d)" % (name, dim) if dim else f"dy.{name}(x[0])",
            spec._replace(distinct=True))
    add(name, f"dy.{name}(x[0], d=1)", t(2, 3, lo=1, hi=1), fd=False)
TO_CPU = dict(ref="x[0]", why="to_device leaves its result uninitialised on CPU builds")
for expr, spec in (("dy.fold_rows(x[0])", t(4, 3)), ("dy.fold_rows(x[0], 3)", t(6, 2)),
    ("dy.fold_rows(x[0], nrows=2)", t(4))):
    add("fold_rows", expr, spec)
add("to_device", "dy.to_device(x[0], 'CPU')", t(3), **TO_CPU)
add("to_device", "dy.to_device(x[0], 'CPU')", t(3, 2, b=2), **TO_CPU)

# ---- reductions

for spec in (t(4), t(3, 2), t(3, b=3), t(2, 3, 2), t(1), t(2, 3, 2, b=2), t(40), t(3, 2, kind="param")):
    for name in ("sum_elems", "squared_norm", "l2_norm"):
        add(name, f"dy.{name}(x[0])", spec)
for spec in (t(4), t(3, 2), t(3, b=3), t(1, 3), t(5, 1, b=2)):
    add("mean_elems", "dy.mean_elems(x[0])", spec)
    add("std_elems", "dy.std_elems(x[0])", spec, grad_tol=3)
    for power in (1, 2, 3):
        add("moment_elems", "dy.moment_elems(x[0], %d)" % power, spec)
for spec in (t(3, b=4), t(3, 2, b=2), t(1, b=5), t(2, 3, 2, b=2)):
    add("sum_batches", "dy.sum_batches(x[0])", spec)
    add("mean_batches", "dy.mean_batches(x[0])", spec)
    add("std_batches", "dy.std_batches(x[0])", spec, grad_tol=3)
    add("moment_batches", "dy.moment_batches(x[0], 2)", spec)
add("sum_batches", "dy.sum_batches(x[0])", t(3))
DIMS = ((t(3, 4), "[0]"), (t(3, 4), "[1]"), (t(3, 4), "[0, 1]"), (t(4), "[0]"), (t(3, 4, b=2), "[0]"),
    (t(3, 4, b=2), "[1]"),
        (t(2, 3, 4), "[1]"), (t(2, 3, 4, b=2), "[0, 2]"), (t(2, 3, 4), "[2, 1]"), (t(1, 4), "[1]"))
for spec, dims in DIMS:
    add("sum_dim", f"dy.sum_dim(x[0], {dims})", spec)
    add("mean_dim", f"dy.mean_dim(x[0], {dims}, False)", spec)
    add("moment_dim", f"dy.moment_dim(x[0], {dims}, 2, False)", spec)
    add("std_dim", f"dy.std_dim(x[0], {dims}, False)", spec, grad_tol=3)
for spec, dims in ((t(3, b=4), "[0]"), (t(3, 2, b=2), "[1]"), (t(3, 2, b=3), "[]"), (t(3, 2, b=2), "[0, 1]")):
    add("sum_dim", f"dy.sum_dim(x[0], {dims}, b=True)", spec)
    add("mean_dim", f"dy.mean_dim(x[0], {dims}, True)", spec)
    add("moment_dim", f"dy.moment_dim(x[0], {dims}, 3, True)", spec)
    add("std_dim", f"dy.std_dim(x[0], {dims}, True)", spec, grad_tol=3)
add("mean_dim", "dy.mean_dim(x[0], [0], False, n=7)", t(3, 4))
add("moment_dim", "dy.moment_dim(x[0], [1], 2, False, n=5)", t(3, 4))
add("moment_dim", "dy.moment_dim(x[0], [0], 1, False)", t(3, 2))
for spec, dim in ((t(4), 0), (t(3, 4), 0), (t(3, 4), 1), (t(3, b=3), 0), (t(2, 3, 2, b=2), 2),
    (t(2, 3, 2), 1), (t(1), 0)):
    add("cumsum", "dy.cumsum(x[0], %d)" % dim if dim else "dy.cumsum(x[0])", spec)
for spec, dim in ((t(4), 0), (t(3, 4), 0), (t(3, 4), 1), (t(3, b=3), 0), (t(3, 4, b=2), 1), (t(1, 4), 0),
    (t(4, 4), 1)):
    add("logsumexp_dim", "dy.logsumexp_dim(x[0], %d)" % dim if dim else "dy.logsumexp_dim(x[0])", spec)
for spec in (t(7, 2), t(5, 3, b=2), t(4, 1)):
    add("logsumexp_dim", "dy.logsumexp_dim(x[0], d=1)", spec, ref="np.log(np.exp(x[0]).sum(1))",
        why="logsumexp_dim along columns of tall matrices leaves rows uncomputed")

# ---- softmax family and losses

for spec in (t(5), t(3, 4), t(3, b=3), t(3, 4, b=2), t(1), t(1, 4), t(4, 1), t(40, lo=-6, hi=6),
    t(5, kind="param")):
    add("softmax", "dy.softmax(x[0])", spec)
    add("log_softmax", "dy.log_softmax(x[0])", spec)
for spec in (t(3, 4), t(3, 4, b=2), t(4, 1), t(1, 4)):
    add("softmax", "dy.softmax(x[0], d=1)", spec)
add("softmax", "dy.softmax(dy.inputVector([1000, -1000, 999]))", **NODIFF)
add("log_softmax", "dy.log_softmax(dy.inputVector([1000, -1000, 999]))", **NODIFF)
PICK_ROWS = "dy.concatenate([dy.log_softmax(x[0], %s)[i] for i in %s])"
for rows in ("[0, 2]", "[3, 1, 2]", "[1]"):
    add("restricted_log_softmax", PICK_ROWS % (rows, rows), t(5), fd=False)
add("restricted_log_softmax", "dy.log_softmax(x[0], restrict=[0, 2])", t(4), **NODIFF)
for spec, row in ((t(5), "2"), (t(5), "k % 5"), (t(5, 1), "0"), (t(1), "0"), (t(40, lo=-6, hi=6), "7"),
                  (t(4, kind="param"), "3")):
    add("pickneglogsoftmax", f"dy.pickneglogsoftmax(x[0], {row})", spec)
for spec, rows in ((t(5, b=3), "[2, 0, 4]"), (t(4, b=2), "[k % 4, 1]"), (t(3, 1, b=2), "[0, 0]"),
    (t(5), "[1]")):
    add("pickneglogsoftmax_batch", f"dy.pickneglogsoftmax_batch(x[0], {rows})", spec)
HINGE = dict(distinct=True, lo=-2.03, hi=2.11)
for expr, spec in (("dy.hinge(x[0], 2)", t(5, **HINGE)), ("dy.hinge(x[0], 0, 0.5)", t(4, **HINGE)),
                   ("dy.hinge(x[0], k % 4, m=2.0)", t(4, **HINGE)), ("dy.hinge(x[0], 1)", t(3, 1, **HINGE))):
    add("hinge", expr, spec, fd=False)
for expr, spec in (("dy.hinge_batch(x[0], [2, 0, 1])", t(4, b=3, **HINGE)),
                   ("dy.hinge_batch(x[0], [0, k % 3], m=0.7)", t(3, b=2, **HINGE))):
    add("hinge_batch", expr, spec, fd=False)
for expr, spec in (("dy.hinge_dim(x[0], [1, 0, 2, 2])", t(3, 4, **HINGE)),
    ("dy.hinge_dim(x[0], [1, 0, 1], d=1)", t(3, 3, **HINGE)),
                   ("dy.hinge_dim(x[0], [0, 1], 0, 0.5)", t(3, 2, **HINGE))):
    add("hinge_dim", expr, spec, fd=False)
HINGE_COLS = ("np.stack([sum(np.maximum(0, 1 - x[0][i, v] + x[0][i, j]) for j in range(4) if j != v) "
              "for i, v in enumerate([3, 0])])")
add("hinge_dim", "dy.hinge_dim(x[0], [3, 0], d=1)", t(2, 4, **HINGE), ref=HINGE_COLS, fd=False,
    why="hinge_dim with d=1 checks ids against rows")
POISSON = dict(ref="np.exp(x[0]) - 3 * x[0] + np.log(6)", why="poisson_loss ignores the incoming gradient")
add("poisson_loss", "dy.poisson_loss(x[0], 3)", t(1), **POISSON)
add("poisson_loss", "dy.poisson_loss(x[0], 3)", t(1, kind="param"), **POISSON)
add("poisson_loss", "dy.poisson_loss(dy.scalarInput(0.5 * k), 2)", **NODIFF)
for mode in ("zero_gradient", "straight_through_gradient"):
    for spec in (t(5, distinct=True), t(4, b=3, distinct=True), t(1)):
        add("argmax", f"dy.argmax(x[0], gradient_mode={mode!r})", spec, fd=False)
add("argmax", "dy.argmax(dy.inputVector([1, 3, 3, 2]), 'zero_gradient')", **NODIFF)

# ---- noise and dropout

RANDOM = dict(random=True, fd=False)
for spec in (t(5), t(3, 2, b=3), t(1), t(6, kind="param")):
    add("noise", "dy.noise(x[0], 0.5)", spec, **RANDOM)
    add("dropout", "dy.dropout(x[0], 0.4)", spec, **RANDOM)
    add("dropout_batch", "dy.dropout_batch(x[0], 0.5)", spec, **RANDOM)
add("dropout", "dy.dropout(dy.dropout(x[0], 0.3), 0.3)", t(4, 2), **RANDOM)
add("dropout", "dy.dropout(x[0], 0.0)", t(4), **RANDOM)
add("dropout_batch", "dy.dropout_batch(x[0], 0.3)", t(2, 2, b=6), **RANDOM)
for spec, dim in ((t(3, 4), 0), (t(3, 4), 1), (t(2, 3, b=2), 0), (t(2, 3, 2), 2)):
    add("dropout_dim", "dy.dropout_dim(x[0], %d, 0.4)" % dim, spec, **RANDOM)
for chance in (0.5, 0.2, 0.8):
    add("block_dropout", f"dy.block_dropout(x[0], {chance!r})", t(3, 2), **RANDOM)
add("noise", "dy.noise(x[0], 0.0)", t(3), **RANDOM)

# ---- normalisation and LSTM primitives

for first, rest in ((t(5), t(5)), (t(4, b=3), t(4)), (t(3, 2), t(3, 2)), (t(6, b=2), t(6, kind="param"))):
    add("layer_norm", "dy.layer_norm(x[0], x[1], x[2])", first, rest, rest, grad_tol=5)
for first, rest in ((t(3, 2), t(1)), (t(4), t(1)), (t(3, 4, kind="param"), t(1, kind="param"))):
    add("weight_norm", "dy.weight_norm(x[0], x[1])", first, rest)
# H=2, I=3: Wx {8,3}, Wh {8,2}, b {8}
WEIGHTS = (t(8, 3, kind="param"), t(8, 2, kind="param"), t(8, kind="param"))
for x_t, h in ((t(3), t(2)), (t(3, b=3), t(2, b=3)), (t(3, b=2), t(2, b=2))):
    add("vanilla_lstm_gates", "dy.vanilla_lstm_gates(x[0], x[1], x[2], x[3], x[4])", x_t, h, *WEIGHTS)
    for mask_b in {1, x_t.batch}:
        masks = (t(3, b=mask_b, kind="const", lo=0, hi=2), t(2, b=mask_b, kind="const", lo=0, hi=2))
        add("vanilla_lstm_gates_dropout", "dy.vanilla_lstm_gates_dropout(*x)", x_t, h, *(WEIGHTS + masks))
        add("vanilla_lstm_gates_dropout_concat", "dy.vanilla_lstm_gates_dropout_concat([x[0], x[1]], *x[2:])",
            t(1, b=x_t.batch), t(2, b=x_t.batch), h, *(WEIGHTS + masks))
    add("vanilla_lstm_gates_concat", "dy.vanilla_lstm_gates_concat([x[0], x[1]], *x[2:])", t(1, b=x_t.batch),
        t(2, b=x_t.batch), h, *WEIGHTS)
add("vanilla_lstm_gates_concat", "dy.vanilla_lstm_gates_concat([x[0]], *x[1:])", t(3), t(2), *WEIGHTS)
for batch in (1, 3):
    gates = t(8, b=batch, lo=0.1, hi=0.9)
    add("vanilla_lstm_c", "dy.vanilla_lstm_c(x[0], x[1])", t(2, b=batch), gates)
    add("vanilla_lstm_h", "dy.vanilla_lstm_h(x[0], x[1])", t(2, b=batch), gates)
add("vanilla_lstm_h", "dy.vanilla_lstm_h(x[0], x[1])", t(1), t(4, lo=0.1, hi=0.9))
add("vanilla_lstm_c", "dy.vanilla_lstm_c(x[0], x[1])", t(1), t(4, lo=0.1, hi=0.9))

add_convolution(add)

# ---- functions of the script

for dims, batch in (((1,), 1), ((5,), 1), ((2, 3), 1), ((4,), 3), ((2, 3), 2)):
    add("cupy_op", "dy.cupy_op(np.tanh, lambda x, y, d: d * (1 - y * y))(x[0])", t(*dims, b=batch),
        ref="np.tanh(x[0])", why="not a function of the reference")
    add("cupy_op", "dy.cupy_op(lambda a, b: a * b, lambda a, b, y, d: (d * b, d * a), shape=max)(x[0], x[1])",
        t(*dims, b=batch), t(*dims, b=batch), ref="x[0] * x[1]", why="not a function of the reference")

# ---- compositions: what value-numbering, fusion and in-place nodes could get wrong

add("composition", "dy.tanh(x[0]) + dy.tanh(x[0])", t(3))
add("composition", "dy.cmult(dy.logistic(x[0]), dy.tanh(x[0] * x[1]))", t(3, 3, kind="param"), t(3))
add("composition", "dy.cmult(x[0], x[0]) - x[0]", t(3, b=2))
add("composition", "dy.reshape(dy.tanh(x[0]), (2, 3)) * x[1]", t(6), t(3))
add("composition", "dy.cmult(dy.reshape(x[0], (6,)), x[1]) + dy.reshape(x[0], (6,))", t(2, 3), t(6))
add("composition", "dy.sum_batches(dy.softmax(x[0] * x[1]))", t(4, 3, kind="param"), t(3, b=4))
add("composition", "dy.concatenate([dy.pick(x[0], i) * (i + 1) for i in range(4)])", t(4))
add("composition", "dy.log(dy.softmax(dy.cmult(x[0], x[0])))", t(5), grad_tol=3)
add("composition", "x[0] * x[0] * x[0]", t(3, 3, kind="param"))
add("composition", "dy.esum([dy.lookup(x[0], i) for i in (0, 2, 2, 4)])", TABLE)
add("composition", "dy.dot_product(dy.lookup(x[0], 1), dy.lookup(x[0], 1))", TABLE)
add("composition", "dy.affine_transform([x[0], x[1], dy.tanh(dy.affine_transform([x[0], x[1], x[2]]))])",
    t(3, kind="param"), t(3, 3, kind="param"), t(3))

cases_linalg.extend(_list)
cases_audit.extend(_list, UNARY, LOOSE)

CASES = tuple(_list.cases)
BY_ID = {case.id: case for case in CASES}
