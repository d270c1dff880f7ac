"""Sizes of 0: parameters, tables, inputs and the operations on them, as in the real DyNet."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.subject import IS_REFERENCE

OURS = pytest.mark.skipif(IS_REFERENCE, reason="the reference refuses these, or dies")


def table(dy: Any) -> Any:
    return dy.ParameterCollection().add_lookup_parameters((17, 0))


SHAPES = [(0,), (3, 0), (0, 3), (2, 0, 3)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_parameters(dy: Any, shape: tuple[int, ...]) -> None:
    pc = dy.ParameterCollection()
    arrays = [np.zeros(shape), dy.NumpyInitializer(np.zeros(shape))]
    for init in (None, 0, "uniform", "normal", dy.ConstInitializer(1), dy.GlorotInitializer(), *arrays):
        p = pc.add_parameters(shape) if init is None else pc.add_parameters(shape, init=init)
        assert p.shape() == shape == p.as_array().shape == p.grad_as_array().shape == p.npvalue().shape
        assert p.dim() == (shape, 1)
    p.zero()
    p.scale(2)
    p.clip_inplace(0, 1)
    p.set_value(np.zeros(shape))
    assert pc.parameters_from_numpy(np.zeros(shape)).shape() == shape
    assert (p + 1).dim() == (shape, 1)
    assert (p + 1).npvalue().shape == shape


def test_tables(dy: Any) -> None:
    t = table(dy)
    assert t.shape() == (17, 0) == t.as_array().shape == t.grad_as_array().shape
    assert len(t) == 17
    assert t[3].dim() == ((0,), 1)
    assert t[3].value() == []
    assert dy.lookup(t, 3).npvalue().shape == (0,)
    assert t.batch([1, 2]).dim() == ((0,), 2)
    assert t.batch([1, 2]).npvalue().shape == (0, 2)
    assert t.row_as_array(2).shape == (0,)
    assert t.rows_as_array([2, 3]).shape == (2, 0)
    assert t.expr().dim() == ((0, 17), 1)
    t.init_row(2, [])
    t.zero()
    t.scale(2)
    row = t[1]
    row.set(2)
    assert row.value() == []


def test_tables_without_rows(dy: Any) -> None:
    pc = dy.ParameterCollection()
    t = pc.add_lookup_parameters((0, 3))
    assert t.shape() == (0, 3)
    assert len(t) == 0
    assert isinstance(t, dy.LookupParameters)
    assert len(pc.lookup_parameters_list()) == 1
    assert pc.add_lookup_parameters(0).shape() == (0, 1)
    assert pc.lookup_parameters_from_numpy(np.zeros((0, 3))).shape() == (0, 3)
    if not IS_REFERENCE:
        assert list(t) == []
        with pytest.raises(ValueError, match=r"lookup\(\): expected index < 0, got 0"):
            t[0].value()


def test_inputs_and_constants(dy: Any) -> None:
    es = [dy.zeros(0), dy.ones(0), dy.constant(0, 3), dy.vecInput(0), dy.inputVector([])]
    es += [dy.random_normal(0), dy.random_uniform(0, 0, 1), dy.random_bernoulli(0, 0.5)]
    for e in (*es, dy.inputTensor(np.zeros(0))):
        assert e.dim() == ((0,), 1)
        assert e.value() == []
    assert dy.zeros((2, 0)).npvalue().shape == (2, 0)
    assert dy.inputTensor(np.zeros((0, 2))).npvalue().shape == (0, 2)
    assert dy.inputTensor(np.zeros((0, 2)), batched=True).dim() == ((0,), 2)


def test_operations(dy: Any) -> None:
    e = dy.zeros(0)
    for y in (
        dy.exp(e),
        dy.tanh(e),
        e + e,
        e * 2,
        dy.cmult(e, e),
        dy.esum([e, e]),
        dy.softmax(e),
        dy.dropout(e, 0.5),
    ):
        assert y.dim() == ((0,), 1)
        assert y.value() == []
    assert dy.sum_elems(e).value() == dy.squared_norm(e).value() == dy.dot_product(e, e).value() == 0
    assert math.isnan(dy.mean_elems(e).value())
    assert (dy.zeros((3, 0)) * e).value() == [0, 0, 0]
    assert (dy.zeros((0, 3)) * dy.zeros(3)).dim() == ((0,), 1)
    assert dy.reshape(e, (2, 0)).npvalue().shape == (2, 0)
    assert dy.transpose(dy.zeros((2, 0))).dim() == ((0, 2), 1)
    assert dy.concatenate_cols([e, e]).dim() == ((0, 2), 1)


def test_affine_transform_without_columns(dy: Any) -> None:
    b, w, x = dy.inputVector([1, 2, 3]), dy.zeros((3, 0)), dy.zeros(0)
    v, y = dy.ones((3, 2)), dy.inputVector([1, 2])
    assert dy.affine_transform([b, w, x]).value() == [1, 2, 3]
    assert dy.affine_transform([b, w, x, v, y]).value() == [4, 5, 6]
    batched = dy.inputTensor(np.zeros((0, 2)), batched=True)
    assert dy.affine_transform([b, w, batched]).npvalue().T.tolist() == [[1, 2, 3], [1, 2, 3]]


def test_builders_with_inputs_of_0(dy: Any) -> None:
    for kind in (dy.LSTMBuilder, dy.GRUBuilder, dy.SimpleRNNBuilder):
        builder = kind(1, 0, 4, dy.ParameterCollection())
        for _ in range(3):
            dy.renew_cg()
            outputs = builder.initial_state().transduce([dy.zeros(0)] * 3)
            assert outputs[2].value() == [0, 0, 0, 0]
            dy.sum_elems(outputs[2]).backward()


@OURS
@pytest.mark.parametrize(
    "kind", "SimpleRNN GRU LSTM SparseLSTM CompactVanillaLSTM CoupledLSTM FastLSTM".split()
)
def test_builders_without_states(dy: Any, kind: str) -> None:
    make = getattr(dy, f"{kind}Builder")
    with pytest.raises(ValueError, match=r"Builder\(\): expected hidden_dim >= 1, got 0"):
        make(1, 4, 0, dy.ParameterCollection())
    with pytest.raises(ValueError, match="hidden_dim >= 1"):
        dy.BiRNNBuilder(1, 4, 0, dy.ParameterCollection(), make)
    make(0, 0, 0, dy.ParameterCollection())  # no layers, no states


@pytest.mark.parametrize(
    "kind", ["SimpleSGD", "MomentumSGD", "Adagrad", "Adadelta", "RMSProp", "Adam", "Amsgrad"]
)
def test_training_beside_them(dy: Any, kind: str, tmp_path: Path) -> None:
    """What uuparser does: makes tables of size 0, never reads them, trains, saves and loads."""

    def model() -> tuple[Any, Any, Any]:
        pc = dy.ParameterCollection()
        t, p = pc.add_lookup_parameters((17, 0)), pc.add_parameters((3, 0))
        pc.add_lookup_parameters((0, 3))
        return pc, pc.add_parameters((3, 2), init=1), (t, p)

    def trained(with_empty: bool) -> list[list[float]]:
        pc, w, (t, p) = model()
        trainer = getattr(dy, kind + "Trainer")(pc)
        trainer.set_sparse_updates(False)
        for _ in range(3):
            dy.renew_cg()
            loss = dy.squared_norm(w * dy.inputVector([1, 2]))
            if with_empty:
                loss = loss + dy.sum_elems(t[3]) + dy.sum_elems(p * dy.zeros(0)) + dy.sum_elems(p + 1)
            loss.backward()
            trainer.update()
        pc.save(str(tmp_path / "m"))
        again, w_again, _ = model()
        again.populate(str(tmp_path / "m"))
        assert np.allclose(w_again.as_array(), w.as_array())
        return w.as_array().tolist()

    assert trained(True) == trained(False)


@OURS
def test_files_are_dynets(dy: Any, tmp_path: Path) -> None:
    pc = dy.ParameterCollection()
    pc.add_lookup_parameters((17, 0))
    pc.add_parameters((3, 0))
    pc.add_lookup_parameters((0, 3))
    pc.save(str(tmp_path / "m"))
    want = "#Parameter# /_1 {3,0} 1 ZERO_GRAD\n\n#LookupParameter# /_0 {0,17} 1 ZERO_GRAD\n\n"
    assert (tmp_path / "m").read_text() == want + "#LookupParameter# /_2 {3,0} 1 ZERO_GRAD\n\n"
    dy.save(str(tmp_path / "pair"), pc.lookup_parameters_list())
    first, second = dy.load(str(tmp_path / "pair"), dy.ParameterCollection())
    assert (first.shape(), second.shape()) == ((17, 0), (0, 3))


@OURS
def test_operations_without_a_value_say_so(dy: Any) -> None:
    for record in (
        lambda: dy.max_dim(dy.zeros(0)),
        lambda: dy.concatenate([dy.zeros(0), dy.ones(2)]),
        lambda: dy.logsumexp_dim(dy.zeros((0, 2)), 0),
    ):
        with pytest.raises(ValueError, match=r"\(\): expected arguments with elements, got \{0"):
            record()
    assert dy.ones(2).value() == [1, 1]


@OURS
def test_no_kernel_sees_them(dy: Any) -> None:
    """Every row of the op table with arguments of size 0: a value or a ValueError, nothing computed."""
    sizes = [(0,), (0, 2), (2, 0)]
    tried = 0
    for row in dy._core.op_table():
        if row["kind"] in ("input", "parameter", "draw", "lookup") or row.get("hidden"):
            continue
        f = getattr(dy, row["name"], None)
        if f is None:
            continue
        for a, b in itertools.product(sizes, sizes):
            x, y = dy.zeros(a), dy.zeros(b)
            for arguments in (
                (x,),
                ([x, y],),
                (x, y),
                (x, 0),
                (x, 1),
                (x, y, x),
                (x, [0]),
                (x, y, 0),
                ([x, y, x],),
            ):
                try:
                    e = f(*arguments)
                    e.value()
                    tried += 1
                    if e.dim() == ((1,), 1):
                        e.backward()
                except (ValueError, TypeError, IndexError, OverflowError, RuntimeError):
                    pass
    assert tried > 200


@OURS
def test_hints_do_not_take_them_for_more(dy: Any) -> None:
    """A block that ran with sizes of 0 is not replayed for others."""
    builder = dy.GRUBuilder(1, 2, 2, dy.ParameterCollection())
    for size in [0] * 40 + [2] * 3 + [0] * 3:
        dy.renew_cg()
        x = dy.ones(size)
        total = dy.sum_elems(dy.tanh(x) * 2) + dy.sum_elems(x)
        assert np.isclose(total.value(), size * (2 * math.tanh(1) + 1))
        if size:
            builder.initial_state().add_input(x).output().value()


@OURS
def test_copies(dy: Any) -> None:
    pc = dy.ParameterCollection()
    pc.add_lookup_parameters((0, 3))
    pc.add_lookup_parameters((17, 0))
    pc.add_parameters((3, 0))
    for again in (copy.deepcopy(pc), pickle.loads(pickle.dumps(pc))):
        assert [p.shape() for p in again.lookup_parameters_list()] == [(0, 3), (17, 0)]
        assert [p.shape() for p in again.parameters_list()] == [(3, 0)]
