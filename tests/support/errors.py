# ruff: noqa: UP031
"""Bad calls and what they raise, lazily or eagerly: for the recorder and tests/graph/test_errors.py."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class BadCall(NamedTuple):
    """`code` must raise one of `raises`; the message must contain `says`."""

    id: str
    code: str
    raises: tuple[str, ...]
    says: str
    kills_reference: bool  # the real DyNet dies, hangs or reads wrong memory: not executed there
    differs: str  # why the reference gives something else ("" = the recording must agree with `raises`)


ERRORS: list[BadCall] = []
_seen: dict[str, int] = {}


def bad(op: str, code: str, raises: str = "ValueError", says: str = "", kills: bool = False,
    differs: str = "",
        quiet: bool = False) -> None:
    """Add one entry. `quiet`: the message need not contain the op's name."""
    _seen[op] = _seen.get(op, 0) + 1
    ERRORS.append(BadCall("%s/%d" % (op, _seen[op]), code, tuple(raises.split("|")), says
        or ("" if quiet else op),
                          kills, differs))


def scope(dy: Any) -> dict[str, Any]:
    """A fresh graph with the operands the calls name."""
    dy.renew_cg(autobatching=False)
    pc = dy.ParameterCollection()
    old = dy.inputVector([1, 2, 3]) + 0
    old_state = dy.SimpleRNNBuilder(1, 3, 3, pc).initial_state().add_input(old)
    for n in range(40):  # enough nodes that an unchecked stale index would be out of range
        old = old + n
    dy.renew_cg(autobatching=False)
    names = {
        "dy": dy, "np": np, "pc": pc, "stale": old, "stale_state": old_state,
        "s": dy.inputVector([2]), "v": dy.inputVector([1, 2, 3]), "v4": dy.inputVector([1, 2, 3, 4]),
        "m": dy.inputTensor(np.arange(6.0).reshape(3, 2)), "m4": dy.inputTensor(np.arange(12.0).reshape(3,
            4)),
        "q": dy.inputTensor(np.arange(24.0).reshape(2, 3,
            4)), "q4": dy.inputTensor(np.arange(16.0).reshape(2, 2, 2, 2)),
        "vb": dy.inputTensor(np.arange(6.0).reshape(3, 2), batched=True),
        "vb3": dy.inputTensor(np.arange(9.0).reshape(3, 3), batched=True),
        "mb": dy.inputTensor(np.arange(12.0).reshape(3, 2, 2), batched=True),
        "E": pc.add_lookup_parameters((4, 3)), "W": pc.add_parameters((3, 3)),
    }
    return names


def outcome(dy: Any, code: str) -> str:
    """Name of the exception `code` raises (also when its value is read), or "ok"."""
    names = scope(dy)
    try:
        force(dy, eval(code, names))  # noqa: S307 - our own text
    except Exception as error:
        return type(error).__name__
    return "ok"


def force(dy: Any, result: Any) -> None:
    """Lazy errors appear when the value is read."""
    for item in result if isinstance(result, (list, tuple)) else [result]:
        if isinstance(item, dy.Expression):
            item.npvalue()


# ---- shapes

for expr in ("v + v4", "m + v4", "v - v4", "m - m4", "vb + vb3"):
    bad("+", expr, quiet=True)
for expr in ("m * v", "v * v4", "m * m4", "q * v", "v * q", "s * v", "m4 * m"):
    bad("*", expr, quiet=True)
bad("*", "mb * vb3", kills=True, quiet=True)
bad("+", "q4 + v4", quiet=True)
for name in ("cmult", "bmax", "bmin", "dot_product", "squared_distance", "l1_distance", "huber_distance",
             "binary_log_loss", "trace_of_product"):
    bad(name, f"dy.{name}(v, v4)")
    bad(name, f"dy.{name}(m, m4)")
for name in ("bmax", "bmin"):
    bad(name, f"dy.{name}(v, vb)")
    bad(name, f"dy.{name}(m, v)")
bad("cmult", "dy.cmult(vb, vb3)")
for name in ("dot_product", "squared_distance"):
    bad(name, f"dy.{name}(vb, vb3)", kills=True)
bad("dot_product", "dy.dot_product(v, dy.reshape(v, (3, 1)))")
bad("cdiv", "dy.cdiv(v, v4)")
bad("cdiv", "dy.cdiv(s, v)")
bad("cdiv", "dy.cdiv(v, vb)")
bad("cdiv", "dy.cdiv(v, m4)", kills=True)
bad("pow", "dy.pow(v, v)")
bad("colwise_add", "dy.colwise_add(m, v4)")
bad("colwise_add", "dy.colwise_add(v, v)")
bad("pairwise_rank_loss", "dy.pairwise_rank_loss(v, v)")
bad("binary_log_loss", "dy.binary_log_loss(vb, vb3)")
bad("softsign", "dy.softsign(m)")
for name in ("esum", "average", "logsumexp"):
    bad(name, f"dy.{name}([v, v4])")
    bad(name, f"dy.{name}([vb, vb3])", kills=True)
bad("emax", "dy.emax([v, v4])", says="max")
bad("emax", "dy.emax([v, vb])", says="max")
bad("concatenate", "dy.concatenate([m, m4])")
bad("concatenate", "dy.concatenate([v, v4], d=1)")
bad("concatenate", "dy.concatenate([vb, vb3])", kills=True)
bad("concatenate_cols", "dy.concatenate_cols([v, v4])", says="concatenate")
bad("concatenate_to_batch", "dy.concatenate_to_batch([v, v4])")
bad("affine_transform", "dy.affine_transform([v, W])")
bad("affine_transform", "dy.affine_transform([v, W, v4])")
bad("affine_transform", "dy.affine_transform([v4, W, v])")
bad("affine_transform", "dy.affine_transform([v, m, v])")
bad("affine_transform", "dy.affine_transform([v, W, m, m4, v4])")
bad("affine_transform", "dy.affine_transform([v, W, vb, W, vb3])", kills=True)
bad("reshape", "dy.reshape(v, (2, 2))")
bad("reshape", "dy.reshape(vb, (4,), 2)")
bad("transpose", "dy.transpose(q)")
bad("transpose", "dy.transpose(m, [0, 1, 2])")
bad("transpose", "dy.transpose(m, [0, 0])", differs="a repeated dim is not checked", kills=True)
bad("pick_range", "dy.pick_range(v, 2, 2)")
bad("pick_range", "dy.pick_range(v, 1, 4)")
bad("pick_range", "dy.pick_range(v, 0, 1, 1)")
bad("pick_batch", "dy.pick_batch(vb, [0, 1, 2])", says="pick")
bad("strided_select", "dy.strided_select(v, [0], [0], [2])")
bad("strided_select", "dy.strided_select(v, [1], [3], [3])")
bad("strided_select", "dy.strided_select(v, [1], [0], [4])")
bad("strided_select", "dy.strided_select(v, [1, 1, 1], [0, 0, 0], [1, 1, 1])")
bad("select_cols", "dy.select_cols(v, [0])")
bad("max_dim", "dy.max_dim(v, 1)")
bad("min_dim", "dy.min_dim(m, d=2)")
bad("sum_dim", "dy.sum_dim(m, [2])")
bad("sum_dim", "dy.sum_dim(v, [])")
bad("sum_dim", "dy.sum_dim(q, [0, 1, 2])")
bad("mean_dim", "dy.mean_dim(m, [2], False)")
bad("std_dim", "dy.std_dim(m, [3], False)")
bad("moment_dim", "dy.moment_dim(m, [0], 0, False)")
bad("mean_elems", "dy.mean_elems(q)", quiet=True)
bad("cumsum", "dy.cumsum(q4)")
bad("logsumexp_dim", "dy.logsumexp_dim(q)")
bad("logsumexp_dim", "dy.logsumexp_dim(m, 2)")
bad("softmax", "dy.softmax(q)")
bad("softmax", "dy.softmax(v, 1)")
bad("log_softmax", "dy.log_softmax(q)")
bad("log_softmax", "dy.log_softmax(m, [0])")
bad("pickneglogsoftmax", "dy.pickneglogsoftmax(m, 0)")
bad("pickneglogsoftmax", "dy.pickneglogsoftmax(vb, 0)")
bad("pickneglogsoftmax_batch", "dy.pickneglogsoftmax_batch(vb, [0, 1, 2])", says="pickneglogsoftmax")
bad("hinge", "dy.hinge(m, 0)")
bad("hinge", "dy.hinge(vb, 0)")
bad("hinge", "dy.hinge(v, 0, -1)")
bad("hinge_batch", "dy.hinge_batch(vb, [0, 1, 2])", says="hinge")
bad("hinge_dim", "dy.hinge_dim(v, [0])")
bad("hinge_dim", "dy.hinge_dim(m, [0])")
bad("poisson_loss", "dy.poisson_loss(v, 2)")
bad("argmax", "dy.argmax(m, 'zero_gradient')")
bad("dropout_dim", "dy.dropout_dim(v, 1, 0.5)")
bad("block_dropout", "dy.block_dropout(v, 1.5)")
bad("layer_norm", "dy.layer_norm(v, v4, v4)", quiet=True)
bad("weight_norm", "dy.weight_norm(m, v)")
bad("vanilla_lstm_gates", "dy.vanilla_lstm_gates(v, v, W, W, v)")
bad("vanilla_lstm_c", "dy.vanilla_lstm_c(v, v4)")
bad("vanilla_lstm_h", "dy.vanilla_lstm_h(v, v4)")
bad("zeros", "dy.zeros((1,) * 8)", differs="more than 7 dims: the error is swallowed")
bad("random_gumbel", "dy.random_gumbel(3, mu=1.0)")

# ---- indices

bad("pick", "dy.pick(v, 3)")
bad("pick", "dy.pick(m, 2, 1)")
bad("pick", "dy.pick(v, 0, 1)")
bad("pick", "dy.pick(v, -1)", "OverflowError", quiet=True)
bad("pick", "dy.pick(v, 2**32)", "OverflowError", quiet=True)
bad("getitem", "v[3]", "IndexError", quiet=True)
bad("getitem", "v[-4]", "IndexError", quiet=True)
bad("getitem", "v[0:9]", "ValueError", quiet=True)
bad("getitem", "v[2:1]", "ValueError", quiet=True, kills=True)
bad("getitem", "v[::0]", "ValueError|IndexError", quiet=True)
bad("getitem", "v['a']", "AssertionError|TypeError", quiet=True)
bad("getitem", "m[0, 1]", "AttributeError|TypeError|IndexError", quiet=True)
bad("pick_batch", "dy.pick_batch(vb, [0, 3])", says="pick")
bad("pick_batch_elem", "dy.pick_batch_elem(vb, 2)")
bad("pick_batch_elems", "dy.pick_batch_elems(vb, [0, 2])", says="pick_batch_elem")
bad("select_rows", "dy.select_rows(v, [3])")
bad("select_cols", "dy.select_cols(m, [2])")
bad("lookup", "dy.lookup(E, 4)")
bad("lookup", "E[-1]", "OverflowError|IndexError", quiet=True)
bad("lookup", "E[0:2]", "TypeError", quiet=True)
bad("lookup_batch", "dy.lookup_batch(E, [0, 4])", says="lookup")
bad("lookup_batch", "dy.lookup_batch(E, [])", differs="an empty batch", kills=True)
bad("pickneglogsoftmax", "dy.pickneglogsoftmax(v, 3)")
bad("pickneglogsoftmax_batch", "dy.pickneglogsoftmax_batch(vb, [0, 3])", says="pickneglogsoftmax")
bad("hinge", "dy.hinge(v, 3)")
bad("hinge_dim", "dy.hinge_dim(m, [0, 3])")
bad("one_hot", "dy.one_hot(3, 3)", differs="not checked: memory beyond the vector is written", kills=True)
bad("one_hot", "dy.one_hot(3, -1)", "OverflowError", quiet=True)
bad("one_hot", "dy.one_hot(3, [0, 5])", differs="not checked", kills=True)
bad("sparse_inputTensor", "dy.sparse_inputTensor(([3],), [1.], (3,))", quiet=True)
bad("sparse_inputTensor", "dy.sparse_inputTensor(([1], [0]), [1.], (3,))", quiet=True)
bad("sparse_inputTensor", "dy.sparse_inputTensor(([1],), [1., 2.], (3,))", quiet=True)
bad("log_softmax", "dy.log_softmax(v, [])")
bad("log_softmax", "dy.log_softmax(v, [7])", differs="ids are not checked", kills=True)

# ---- types

UNARY_NAMES = ("tanh", "exp", "log", "logistic", "rectify", "softmax", "sum_elems", "transpose", "nobackprop")
for name in UNARY_NAMES:
    bad(name, f"dy.{name}(3.0)", "TypeError", quiet=True)
    bad(name, f"dy.{name}('x')", "TypeError", quiet=True)
    bad(name, f"dy.{name}(None)", "TypeError", quiet=True, kills=True)
    bad(name, f"dy.{name}()", "TypeError", quiet=True)
    bad(name, f"dy.{name}([v])", "TypeError", quiet=True)
for name in ("cmult", "cdiv", "bmax", "dot_product", "squared_distance", "pow"):
    bad(name, f"dy.{name}(v, 2)", "TypeError", quiet=True)
    bad(name, f"dy.{name}(2, v)", "TypeError", quiet=True)
    bad(name, f"dy.{name}(v, None)", "TypeError", quiet=True, kills=True)
    bad(name, f"dy.{name}(v)", "TypeError", quiet=True)
    bad(name, f"dy.{name}(v, object())", "TypeError", quiet=True)
for operator in ("+", "-", "*", "/", "**"):
    bad("operator", f"v {operator} 'x'", "NotImplementedError|TypeError", quiet=True)
    bad("operator", f"[1] {operator} v", "NotImplementedError|TypeError", quiet=True)
    bad("operator", f"v {operator} object()", "NotImplementedError|TypeError", quiet=True)
bad("operator", "v + None", "NotImplementedError|TypeError", quiet=True)
bad("operator", "2 ** v", "NotImplementedError|TypeError", quiet=True)
for name in ("esum", "average", "emax", "logsumexp", "concatenate", "concatenate_cols",
    "concatenate_to_batch",
             "affine_transform"):
    bad(name, f"dy.{name}([])", "AssertionError", quiet=True)
    bad(name, f"dy.{name}([v, 3])", "TypeError", quiet=True)
    bad(name, f"dy.{name}([3, v])", "TypeError", quiet=True)
    bad(name, f"dy.{name}(v, v, v, v)", "TypeError", quiet=True)
    bad(name, f"dy.{name}(3)", "TypeError", quiet=True)
    bad(name, f"dy.{name}([v, stale])", "ValueError", quiet=True)
bad("values", "dy.values([])", "IndexError", quiet=True)
bad("inputTensor", "dy.inputTensor((1, 2))", "TypeError", quiet=True)
bad("inputTensor", "dy.inputTensor(1.0)", "TypeError", quiet=True)
bad("inputTensor", "dy.inputTensor([])", "ValueError", quiet=True)
bad("inputTensor", "dy.inputTensor([[1, 2], [3]])", "ValueError|TypeError", quiet=True)
bad("inputTensor", "dy.inputTensor(np.array(1.0))", "TypeError", quiet=True)
bad("inputTensor", "dy.inputTensor(v)", "TypeError", quiet=True)
bad("inputTensor", "dy.inputTensor(np.ones(3)).set([1, 2, 3])", "ValueError", quiet=True)
bad("inputTensorTranspose", "dy.inputTensorTranspose([1, 2, 3], (2, 2))", "ValueError", quiet=True)
bad("inputVector", "dy.inputVector(['a'])", "TypeError", quiet=True)
bad("inputVector", "dy.inputVector(3)", "TypeError", quiet=True)
bad("inputVector", "dy.inputVector(np.ones((2, 2)))", "TypeError|ValueError", quiet=True)
bad("scalarInput", "dy.scalarInput('x')", "TypeError", quiet=True)
bad("vecInput", "dy.vecInput(3).set([1, 2])", "ValueError", quiet=True, kills=True)
bad("vecInput", "dy.vecInput(-1)", "OverflowError|ValueError|MemoryError", quiet=True)
bad("reshape", "dy.reshape(v, 3)", "TypeError", quiet=True)
bad("round", "dy.round(v, 'nothing')", "ValueError", quiet=True)
bad("round", "dy.round(v)", "TypeError", quiet=True)
bad("argmax", "dy.argmax(v, 'nothing')", "ValueError", quiet=True)
bad("to_device", "dy.to_device(v, 'TPU:0')", "RuntimeError", quiet=True)
bad("matInput", "dy.matInput(2, 2)", "DeprecationWarning", quiet=True)
bad("ComputationGraph", "dy.ComputationGraph()", "RuntimeError", quiet=True)
bad("backward", "v.backward()", "ValueError", quiet=True)
bad("backward", "dy.sum_elems(vb).backward()", "ValueError", quiet=True)
bad("gradient", "v.gradient()", "RuntimeError", quiet=True)
bad("scalar_value", "v.scalar_value()", "RuntimeError", quiet=True, kills=True)
bad("Expression", "v.new_attribute", "AttributeError", quiet=True)

# ---- stale expressions

for method in ("value", "npvalue", "vec_value", "forward", "backward", "dim", "gradient"):
    bad("stale", f"stale.{method}()", "RuntimeError", quiet=True)
for expr in ("v + stale", "W * stale", "dy.cmult(v, stale)", "dy.dot_product(v, stale)",
             "dy.squared_distance(v, stale)", "dy.cdiv(v, stale)", "dy.bmax(v, stale)",
             "stale_state.add_input(v)"):
    bad("stale", expr, "ValueError", quiet=True)
for expr in ("v - stale", "stale + v", "stale * 2", "-stale", "stale + 1", "dy.tanh(stale)", "stale[0]",
             "dy.pick(stale, 0)", "dy.sum_elems(stale)", "dy.cmult(stale, v)",
             "dy.pickneglogsoftmax(stale, 0)", "dy.reshape(stale, (3,))"):
    bad("stale", expr, "ValueError", quiet=True, kills=True)

# ---- parameters, trainers, builders

bad("add_parameters", "pc.add_parameters((2, 3), init='nothing')", "ValueError", quiet=True)
bad("add_parameters", "pc.add_parameters((2, 3), init='identity')", "RuntimeError", quiet=True)
bad("add_parameters", "pc.add_parameters((2, 3), init=dy.SaxeInitializer())", "RuntimeError", quiet=True)
bad("add_parameters", "pc.add_parameters('x')", "AssertionError|TypeError", quiet=True)
bad("add_parameters", "pc.add_parameters(3, name='a/b')", "RuntimeError", quiet=True)
bad("add_parameters", "pc.add_parameters(3, name='a_b')", "RuntimeError", quiet=True)
bad("add_lookup_parameters", "pc.add_lookup_parameters((2, 3), init=dy.NumpyInitializer(np.ones((2, 3))))",
    quiet=True)
bad("set_value", "W.set_value(np.ones((2, 3)))", "ValueError", quiet=True)
bad("PyInitializer", "dy.PyInitializer()", "AssertionError", quiet=True)
bad("UniformInitializer", "pc.add_parameters(3, init=dy.UniformInitializer(0))", "ValueError", quiet=True,
    kills=True)
bad("init_row", "E.init_row(0, [1, 2])", "ValueError", quiet=True, kills=True)
bad("init_row", "E.init_row(4, [1, 2, 3])", "ValueError|IndexError", quiet=True, kills=True)
bad("row_as_array", "E.row_as_array(9)", "ValueError|IndexError", quiet=True, kills=True)

# ---- convolution and pooling

FILTERS = "dy.reshape(dy.inputVector(range(24)), (2, 3, 1, 4))"
for call in ("conv2d({x}, {f}, {s})", "conv2d_bias({x}, {f}, v4, {s})"):
    op = call.split("(")[0]
    for x, f, stride in (
        ("v", FILTERS, "[1, 1]"), ("q4", FILTERS, "[1, 1]"), ("m4", "q", "[1, 1]"), ("q", FILTERS, "[1, 1]"),
        ("v", "v", "[1, 1]"), ("m", FILTERS, "[1, 1]"),
        ("dy.transpose(m)", "dy.reshape(q, (3, 2, 1, 4))", "[1, 1]"),
    ):
        bad(op, "dy." + call.format(x=x, f=f, s=stride))
    for stride, raises in (("[-1, 1]", "OverflowError"), ("[1, 2**32]", "OverflowError"),
                           ("'ab'", "TypeError"), ("None", "TypeError"), ("2", "TypeError"),
                           ("[1, 'a']", "TypeError")):
        bad(op, "dy." + call.format(x="m4", f=FILTERS, s=stride), raises)
    for stride in ("[0, 1]", "[1, 0]", "[1]", "[]"):
        bad(op, "dy." + call.format(x="m4", f=FILTERS, s=stride), kills=True)
    bad(op, "dy." + call.format(x="3", f=FILTERS, s="[1, 1]"), "TypeError", quiet=True)
    bad(op, "dy." + call.format(x="dy.concatenate_to_batch([m4, m4])",
        f=f"dy.concatenate_to_batch([{FILTERS}] * 3)", s="[1, 1]"), kills=True)
for bias in ("v", "dy.reshape(v4, (4, 1))", "dy.reshape(v4, (1, 4))"):
    bad("conv2d_bias", f"dy.conv2d_bias(m4, {FILTERS}, {bias}, [1, 1])")
bad("conv2d", f"dy.conv2d(m4, {FILTERS})", "TypeError", quiet=True)
for x, ksize, stride in (("v", "[1, 1]", "[1, 1]"), ("q4", "[1, 1]", "[1, 1]"), ("m", "[4, 1]", "[1, 1]"),
                         ("m", "[1, 3]", "[1, 1]")):
    bad("maxpooling2d", f"dy.maxpooling2d({x}, {ksize}, {stride})")
for ksize, stride in (("[0, 1]", "[1, 1]"), ("[1, 1]", "[0, 1]"), ("[2]", "[1, 1]"), ("[1, 1]", "[]")):
    bad("maxpooling2d", f"dy.maxpooling2d(m, {ksize}, {stride}, is_valid=False)", kills=True)
bad("maxpooling2d", "dy.maxpooling2d(m, [-1, 1], [1, 1])", "OverflowError")
bad("maxpooling2d", "dy.maxpooling2d(m, 2, [1, 1])", "TypeError")
bad("maxpooling2d", "dy.maxpooling2d(m, [2, 2])", "TypeError", quiet=True)
for x, y in (("v", "m"), ("q", "m"), ("m", "v"), ("m", "m4[:2]"), ("m", "m4"),
             ("m4", "dy.reshape(v, (1, 3))")):
    bad("filter1d_narrow", f"dy.filter1d_narrow({x}, {y})")
bad("filter1d_narrow", "dy.filter1d_narrow(m, dy.reshape(m, (3, 1, 2, 1)))", kills=True)  # ignores filters
bad("filter1d_narrow", "dy.filter1d_narrow(mb, dy.concatenate_to_batch([m, m, m]))", kills=True)
for call in ("v, 2", "m, 3", "m, 0", "m, 1, 2", "m, 4, d=0", "q4, 1"):
    bad("kmax_pooling", f"dy.kmax_pooling({call})")
bad("kmax_pooling", "dy.kmax_pooling(m, -1)", "OverflowError")
bad("kmax_pooling", "dy.kmax_pooling(m)", "TypeError")
for call in ("v, 1", "q, 1", "m, 3"):
    bad("kmh_ngram", f"dy.kmh_ngram({call})")
bad("kmh_ngram", "dy.kmh_ngram(m, 0)", kills=True)  # a result with a column too many
bad("kmh_ngram", "dy.kmh_ngram(m, -1)", "OverflowError")
bad("fold_rows", "dy.fold_rows(m)")
bad("fold_rows", "dy.fold_rows(q)")
bad("fold_rows", "dy.fold_rows(m, 0)", kills=True)
bad("weight_decay", "pc.set_weight_decay_lambda(-0.5)", "ValueError", quiet=True, kills=True)
bad("SimpleSGDTrainer", "dy.SimpleSGDTrainer()", "TypeError", quiet=True)
bad("SimpleSGDTrainer", "dy.SimpleSGDTrainer(3)", "TypeError", quiet=True)
bad("SimpleSGDTrainer", "dy.SimpleSGDTrainer(None)", "TypeError", quiet=True, kills=True)
bad("set_dropout", "dy.SimpleRNNBuilder(1, 2, 3, pc).set_dropout(1.5)", "ValueError", quiet=True)
bad("set_dropouts", "dy.LSTMBuilder(1, 2, 3, pc).set_dropouts(0.5, -1)", "ValueError", quiet=True, kills=True)
bad("set_dropout_masks", "dy.LSTMBuilder(1, 2, 3, pc).set_dropout_masks()", "ValueError", quiet=True,
    kills=True)
bad("set_s", "dy.LSTMBuilder(2, 2, 3, pc).initial_state().set_s([v])", "ValueError", quiet=True)
bad("set_h", "dy.LSTMBuilder(2, 2, 3, pc).initial_state().set_h([v])", "ValueError", quiet=True)
bad("get_parameter_expressions", "dy.LSTMBuilder(1, 2, 3, pc).get_parameter_expressions()", "ValueError",
    quiet=True)
bad("add_input", "dy.LSTMBuilder(1, 2, 3, pc).initial_state().add_input(v)", "ValueError", quiet=True)
bad("BiRNNBuilder", "dy.BiRNNBuilder(1, 2, 3, pc, dy.LSTMBuilder)", "AssertionError", quiet=True)
bad("BiRNNBuilder", "dy.BiRNNBuilder(0, 2, 4, pc, dy.LSTMBuilder)", "AssertionError", quiet=True)
