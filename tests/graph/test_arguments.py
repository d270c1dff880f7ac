"""What the functions accept: number kinds, iterables, keyword names and defaults of DyNet 2.1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.subject import IS_REFERENCE

# call by keyword | the same by position
KEYWORDS = [
    ("dy.scalarInput(s=2, device='')", "dy.scalarInput(2)"),
    ("dy.inputTensor(arr=np.ones((2, 2)), batched=True, device='', reusable_expr=False)",
     "dy.inputTensor(np.ones((2, 2)), True)"),
    ("dy.inputTensorTranspose(val=[1, 2], dim=(2,), batch_size=1, device='')",
     "dy.inputTensorTranspose([1, 2], (2,))"),
    ("dy.sparse_inputTensor(idxs=([0],), values=[2.0], shape=(3,), batched=False, defval=1)",
     "dy.sparse_inputTensor(([0],), [2.0], (3,), False, 1)"),
    ("dy.one_hot(d=3, idx=1)", "dy.one_hot(3, 1)"),
    ("dy.lookup(p=E, index=1, update=True)", "dy.lookup(E, 1)"),
    ("dy.lookup_batch(p=E, indices=[1, 0], update=True)", "dy.lookup_batch(E, [1, 0])"),
    ("dy.pick(e=m, index=1, dim=1)", "dy.pick(m, 1, 1)"),
    ("dy.pick_batch(e=vb, indices=[1, 0], dim=0)", "dy.pick_batch(vb, [1, 0])"),
    ("dy.zeros(dim=(2,), batch_size=2)", "dy.zeros((2,), 2)"),
    ("dy.ones(dim=(2,), batch_size=2)", "dy.ones((2,), 2)"),
    ("dy.constant(dim=(2,), val=3, batch_size=2)", "dy.constant((2,), 3, 2)"),
    ("dy.scale_gradient(x=v, lambd=2)", "dy.scale_gradient(v, 2)"),
    ("dy.argmax(x=v, gradient_mode='zero_gradient')", "dy.argmax(v, 'zero_gradient')"),
    ("dy.cdiv(x=v, y=v)", "dy.cdiv(v, v)"),
    ("dy.cmult(x=v, y=v)", "dy.cmult(v, v)"),
    ("dy.colwise_add(x=m, y=v)", "dy.colwise_add(m, v)"),
    ("dy.trace_of_product(x=m, y=m)", "dy.trace_of_product(m, m)"),
    ("dy.dot_product(x=v, y=v)", "dy.dot_product(v, v)"),
    ("dy.squared_distance(x=v, y=v)", "dy.squared_distance(v, v)"),
    ("dy.l1_distance(x=v, y=v)", "dy.l1_distance(v, v)"),
    ("dy.binary_log_loss(x=p, y=p)", "dy.binary_log_loss(p, p)"),
    ("dy.elu(x=v, alpha=2)", "dy.elu(v, 2)"),
    ("dy.silu(x=v, beta=1)", "dy.silu(v)"),
    ("dy.round(x=v, gradient_mode='zero_gradient')", "dy.round(v, 'zero_gradient')"),
    ("dy.log_softmax(x=v, restrict=None)", "dy.log_softmax(v)"),
    ("dy.softmax(x=m, d=1)", "dy.softmax(m, 1)"),
    ("dy.pow(x=v, y=s)", "dy.pow(v, s)"),
    ("dy.bmin(x=v, y=v)", "dy.bmin(v, v)"),
    ("dy.bmax(x=v, y=v)", "dy.bmax(v, v)"),
    ("dy.transpose(x=m, dims=[1, 0])", "dy.transpose(m)"),
    ("dy.select_rows(x=m, rs=[1])", "dy.select_rows(m, [1])"),
    ("dy.select_cols(x=m, cs=[1])", "dy.select_cols(m, [1])"),
    ("dy.sum_dim(x=m, d=[0], b=False, n=0)", "dy.sum_dim(m, [0])"),
    ("dy.cumsum(x=m, d=1)", "dy.cumsum(m, 1)"),
    ("dy.mean_dim(x=m, d=[0], b=False, n=0)", "dy.mean_dim(m, [0], False)"),
    ("dy.std_dim(x=m, d=[0], b=False, n=0)", "dy.std_dim(m, [0], False)"),
    ("dy.moment_elems(x=m, r=2)", "dy.moment_elems(m, 2)"),
    ("dy.moment_dim(x=m, d=[0], r=2, b=False, n=0)", "dy.moment_dim(m, [0], 2, False)"),
    ("dy.moment_batches(x=vb, r=2)", "dy.moment_batches(vb, 2)"),
    ("dy.pairwise_rank_loss(x=s, y=s, m=2)", "dy.pairwise_rank_loss(s, s, 2)"),
    ("dy.poisson_loss(log_lambda=s, x=2)", "dy.poisson_loss(s, 2)"),
    ("dy.huber_distance(x=v, y=p, c=1.345)", "dy.huber_distance(v, p)"),
    ("dy.pickneglogsoftmax(x=v, v=1)", "dy.pickneglogsoftmax(v, 1)"),
    ("dy.pickneglogsoftmax_batch(x=vb, vs=[1, 0])", "dy.pickneglogsoftmax_batch(vb, [1, 0])"),
    ("dy.hinge(x=v, v=1, m=2)", "dy.hinge(v, 1, 2)"),
    ("dy.hinge_batch(x=vb, vs=[1, 0], m=2)", "dy.hinge_batch(vb, [1, 0], 2)"),
    ("dy.hinge_dim(x=m, v=[1, 0], d=0, m=1)", "dy.hinge_dim(m, [1, 0])"),
    ("dy.pick_range(x=v, s=1, e=2, d=0)", "dy.pick_range(v, 1, 2)"),
    ("dy.pickrange(x=v, s=1, e=2)", "dy.pickrange(v, 1, 2)"),
    ("dy.pick_batch_elem(x=vb, v=1)", "dy.pick_batch_elem(vb, 1)"),
    ("dy.pick_batch_elems(x=vb, vs=[1])", "dy.pick_batch_elems(vb, [1])"),
    ("dy.strided_select(x=v, strides=[2], range_from=[0], range_to=[3])",
     "dy.strided_select(v, [2], [0], [3])"),
    ("dy.reshape(x=m, d=(2, 3), batch_size=1)", "dy.reshape(m, (2, 3))"),
    ("dy.max_dim(x=m, d=1)", "dy.max_dim(m, 1)"),
    ("dy.min_dim(x=m, d=1)", "dy.min_dim(m, 1)"),
    ("dy.logsumexp_dim(x=m, d=0)", "dy.logsumexp_dim(m)"),
    ("dy.concatenate(xs=[m, m], d=1)", "dy.concatenate([m, m], 1)"),
    ("dy.layer_norm(x=v, g=p, b=p)", "dy.layer_norm(v, p, p)"),
    ("dy.weight_norm(w=m, g=s)", "dy.weight_norm(m, s)"),
    ("dy.dropout(x=v, p=0)", "dy.dropout(v, 0)"),
    ("dy.dropout_dim(x=m, d=0, p=0)", "dy.dropout_dim(m, 0, 0)"),
    ("dy.dropout_batch(x=v, p=0)", "dy.dropout_batch(v, 0)"),
    ("dy.block_dropout(x=v, p=0)", "dy.block_dropout(v, 0)"),
    ("dy.noise(x=v, stddev=0)", "dy.noise(v, 0)"),
    ("dy.vanilla_lstm_c(c_tm1=s, gates_t=v4)", "dy.vanilla_lstm_c(s, v4)"),
    ("dy.vanilla_lstm_h(c_t=s, gates_t=v4)", "dy.vanilla_lstm_h(s, v4)"),
    ("dy.vanilla_lstm_gates(x_t=v, h_tm1=s, Wx=W43, Wh=W41, b=v4, weightnoise_std=0)",
     "dy.vanilla_lstm_gates(v, s, W43, W41, v4)"),
]
# accepted kinds of numbers and containers | the plain form
CONVERSIONS = [
    ("dy.pick(v, 1.9)", "dy.pick(v, 1)"),
    ("dy.pick(v, np.int64(1))", "dy.pick(v, 1)"),
    ("dy.pick(v, np.uint8(1))", "dy.pick(v, 1)"),
    ("dy.pick(v, True)", "dy.pick(v, 1)"),
    ("dy.pick(v, np.array(1))", "dy.pick(v, 1)"),
    ("E[np.int32(2)]", "E[2]"),
    ("dy.lookup_batch(E, np.array([1, 2]))", "dy.lookup_batch(E, [1, 2])"),
    ("dy.lookup_batch(E, (1, 2))", "dy.lookup_batch(E, [1, 2])"),
    ("dy.lookup_batch(E, (i for i in (1, 2)))", "dy.lookup_batch(E, [1, 2])"),
    ("dy.lookup_batch(E, [1.5, 2.0])", "dy.lookup_batch(E, [1, 2])"),
    ("dy.lookup_batch(E, range(1, 3))", "dy.lookup_batch(E, [1, 2])"),
    ("dy.pick_batch(vb, np.array([2, 0]))", "dy.pick_batch(vb, [2, 0])"),
    ("dy.pickneglogsoftmax(v, np.int64(2))", "dy.pickneglogsoftmax(v, 2)"),
    ("dy.pickneglogsoftmax_batch(vb, (2, 0))", "dy.pickneglogsoftmax_batch(vb, [2, 0])"),
    ("dy.select_rows(m, (2, 0))", "dy.select_rows(m, [2, 0])"),
    ("dy.inputVector(np.array([1, 2], dtype=np.float32))", "dy.inputVector([1, 2])"),
    ("dy.inputVector(x for x in (1, 2))", "dy.inputVector([1, 2])"),
    ("dy.inputVector((1, np.float64(2)))", "dy.inputVector([1, 2])"),
    ("dy.inputTensor([[1, 2], [3, 4]])", "dy.inputTensor(np.array([[1.0, 2], [3, 4]]))"),
    ("dy.inputTensor(np.array([[1, 2], [3, 4]], dtype=np.int8)[:, ::-1])",
     "dy.inputTensor(np.array([[2.0, 1], [4, 3]]))"),
    ("dy.inputTensor(np.asfortranarray([[1.0, 2], [3, 4]]))", "dy.inputTensor(np.array([[1.0, 2], [3, 4]]))"),
    ("dy.scalarInput(np.float32(0.5))", "dy.scalarInput(0.5)"),
    ("dy.scalarInput(True)", "dy.scalarInput(1)"),
    ("dy.zeros(3)", "dy.zeros((3,))"),
    ("dy.zeros(3.7)", "dy.zeros((3,))"),
    ("dy.pick_range(v, 1.0, 3.0)", "dy.pick_range(v, 1, 3)"),
    ("v * np.float64(2)", "v * 2"),
    ("np.float64(2) * v", "v * 2"),
    ("v * True", "v * 1"),
    ("np.float32(2) * v", "v * 2"),
    ("dy.elu(v, np.float32(0.5))", "dy.elu(v, 0.5)"),
    ("dy.elu(v, np.array([0.5]))", "dy.elu(v, 0.5)"),
    ("dy.vecInput(2.0)", "dy.vecInput(2)"),
    ("dy.one_hot(3.0, 1)", "dy.one_hot(3, 1)"),
]


def names(dy: Any) -> dict[str, Any]:
    pc = dy.ParameterCollection()
    return {
        "dy": dy, "np": np, "s": dy.inputVector([1.5]), "v": dy.inputVector([1.0, -2, 3]),
        "p": dy.inputVector([0.2, 0.5, 0.7]), "v4": dy.inputVector([0.1, 0.2, 0.3, 0.4]),
        "m": dy.inputTensor(np.arange(6.0).reshape(3, 2)),
        "vb": dy.inputTensor(np.arange(6.0).reshape(3, 2) / 2, batched=True),
        "E": pc.lookup_parameters_from_numpy(np.arange(12.0).reshape(4, 3)),
        "W43": dy.inputTensor(np.ones((4, 3)) / 4), "W41": dy.inputTensor(np.ones((4, 1)) / 2),
    }  # fmt: skip


def same(dy: Any, one: str, other: str) -> None:
    scope = names(dy)
    first, second = eval(one, scope), eval(other, scope)  # noqa: S307 - our own text
    assert first.dim() == second.dim(), f"{one} has dim {first.dim()}, {other} {second.dim()}"
    assert np.array_equal(first.npvalue(), second.npvalue(), equal_nan=True), f"{one} is not {other}"


@pytest.mark.parametrize("call, plain", KEYWORDS, ids=[call.split("(")[0][3:] for call, _ in KEYWORDS])
def test_keyword_names(dy: Any, call: str, plain: str) -> None:
    same(dy, call, plain)


@pytest.mark.parametrize("call, plain", CONVERSIONS, ids=[call for call, _ in CONVERSIONS])
def test_conversions(dy: Any, call: str, plain: str) -> None:
    same(dy, call, plain)


@pytest.mark.parametrize("name", ["tanh", "exp", "sum_elems", "softmax", "nobackprop", "transpose"])
def test_wrong_keyword(dy: Any, name: str) -> None:
    with pytest.raises(TypeError):
        getattr(dy, name)(y=dy.inputVector([1, 2]))
    with pytest.raises(TypeError):
        getattr(dy, name)(dy.inputVector([1, 2]), nothing=1)


@pytest.mark.skipif(IS_REFERENCE, reason="the reference rejects the keyword of one-argument functions")
@pytest.mark.parametrize("name", ["tanh", "log_softmax", "sum_elems", "square", "rectify"])
def test_single_argument_by_keyword(dy: Any, name: str) -> None:
    same(dy, f"dy.{name}(x=p)", f"dy.{name}(p)")


@pytest.mark.skipif(IS_REFERENCE, reason="the reference demands exact lists and tuples")
def test_any_sequence(dy: Any) -> None:
    v = dy.inputVector([1, 2])
    assert dy.esum((v, v)).value() == [2, 4]
    assert dy.concatenate(tuple([v, v])).value() == [1, 2, 1, 2]
    assert dy.reshape(v, [1, 2]).dim() == ((1, 2), 1)


def test_device_argument(dy: Any) -> None:
    assert dy.inputVector([1], device="CPU").value() == 1
    with pytest.raises(RuntimeError):
        dy.inputVector([1], device="TPU:3")
    assert [str(d).strip("b'") for d in dy.available_devices()][-1] == "CPU"
