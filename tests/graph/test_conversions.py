"""Arguments of every kind, against what the real DyNet does with them; speed of arrays."""

from __future__ import annotations

import json
from typing import Any, Callable

import numpy as np
import pytest
from support import oracle, records
from support.conversions import CALLS, DIES, DIFFERENT, Call, outcome
from support.subject import IS_REFERENCE

OURS = pytest.mark.skipif(IS_REFERENCE, reason="additions")


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    return oracle.recorded("conversions")


def same(got: Any, want: Any) -> bool:
    """Equal, values within float32 rounding."""
    if isinstance(want, dict) and "value" in want:
        if not isinstance(got, dict) or [got.get("dim"), got.get("batch")] != [want["dim"], want["batch"]]:
            return False
        return np.allclose(got["value"], want["value"], rtol=1e-6, atol=1e-6, equal_nan=True)
    return got == want


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.code)
def test_recorded(dy: Any, call: Call, recorded: dict[str, np.ndarray]) -> None:
    text = records.untext(recorded[call.code]) if call.differs != DIES else '"dies"'
    got = json.loads(outcome(dy, call.code))
    want = json.loads(text)
    assert same(got, want) != bool(call.differs), f"{call.code} gives {got}; the reference: {want}"


@pytest.mark.oracle
def test_recordings_are_current(oracle_python: str, recorded: dict[str, np.ndarray]) -> None:
    live = oracle.live("conversions")
    assert live.keys() == recorded.keys()
    changed = [code for code, array in live.items() if not np.array_equal(array, recorded[code])]
    assert changed == []


# What we do where the reference does something else: the value, or the exception.
X, M = [1.0, 2.0, 3.0], np.arange(6.0).reshape(3, 2)
OTHERWISE: dict[str, Any] = {
    "dy.inputVector(np.array([1j]))": TypeError,
    "dy.inputTensor(np.array([1j, 2]))": TypeError,
    "dy.inputTensor(np.matrix([[1, 2], [3, 4]]))": [1, 3, 2, 4],
    "dy.one_hot(3, 1.5)": [0, 1, 0],
    "dy.sparse_inputTensor(([0, 1], [1, 0]), (1, 2), (2, 2))": [0, 2, 1, 0],
    "dy.sparse_inputTensor([[0], [1]], 3, (2, 2))": TypeError,
    "dy.sparse_inputTensor([[0, 1], [1, 0]], [1, 2], [2, 2])": [0, 2, 1, 0],
    "dy.zeros(np.int64(2))": [0, 0],
    "dy.zeros(np.array([2, 3]))": [0] * 6,
    "dy.zeros('2')": TypeError,
    "dy.zeros(-1)": OverflowError,
    "dy.zeros((2, -1))": OverflowError,
    "E.init_from_array([[1, 2], [3, 4]])": None,
    "pc.parameters_from_numpy([[1, 2], [3, 4]])": [1, 3, 2, 4],
    "pc.add_parameters((2, 2), init=np.float32(2)).as_array().tolist()": [[2, 2], [2, 2]],
    "x[np.int64(1)]": [2],
    "changed(dy.inputTensorTranspose([1, 2, 3, 4], (2, 2)), np.arange(4))": [0, 1, 2, 3],
    "dy.concatenate([x, None])": TypeError,
    "np.ones((2, 3)) * x": [6, 6],
    "x * np.ones((3, 3))": ValueError,
    "x + np.float32(2)": [3, 4, 5],
    "x * np.int64(2)": [2, 4, 6],
    "x * 10**400": OverflowError,
    "10**400 - x": OverflowError,
    "x - np.float32(2)": [-1, 0, 1],
    "x + np.ones(3)": [2, 3, 4],
    "x ** np.ones(1)": X,
    "x - [1, 2, 3]": TypeError,
    "x + 'a'": TypeError,
    "x + (1 + 2j)": TypeError,
    "x * None": TypeError,
    "2 / x": [2, 1, 2 / 3],
    "x / x": [1, 1, 1],
    "dy.esum((x, x))": [2, 4, 6],
    "dy.values((x, x))": [X, X],
    "dy.log_softmax(x, (0, 1))": [-1.3132617, -0.3132617, -np.inf],
    "dy.log_softmax(x, np.array([0, 1]))": [-1.3132617, -0.3132617, -np.inf],
    "dy.transpose(m, (1, 0))": M.ravel().tolist(),
    "dy.reshape(x, [3, 1])": X,
    "dy.sum_dim(m, (0,))": M.sum(0).tolist(),
    "dy.sum_dim(m, np.array([0]))": M.sum(0).tolist(),
    "dy.concatenate({x})": X,
    "dy.esum(e for e in [x, x])": [2, 4, 6],
}


@OURS
@pytest.mark.parametrize("code", DIFFERENT)
def test_different(dy: Any, code: str) -> None:
    want = OTHERWISE[code]
    got = json.loads(outcome(dy, code))
    if isinstance(want, type):
        assert got == {"raises": want.__name__}
    elif isinstance(got, dict):
        assert "value" in got, f"{code} gives {got}"
        assert np.allclose(got["value"], want, rtol=1e-6)
    else:
        assert got == want


DTYPES = ["f2", "f4", "f8", ">f8", "i1", "i2", ">i4", "i8", "u1", "u2", "u4", "u8", "?"]
LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "reversed": lambda a: np.ascontiguousarray(a[::-1])[::-1],
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "unaligned": lambda a: np.frombuffer(b"x" + a.tobytes(), a.dtype, offset=1).reshape(a.shape),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_kind_of_array(dy: Any, dtype: str, layout: str) -> None:
    numbers = np.arange(24).reshape(2, 3, 4).astype(dtype)
    array = LAYOUTS[layout](numbers)
    want = numbers.astype(np.float64)
    assert np.array_equal(dy.inputTensor(array).npvalue(), want)
    assert np.array_equal(dy.inputTensor(array, batched=True).npvalue(), want)
    line = LAYOUTS[layout](numbers.reshape(-1)[:12])
    assert dy.inputVector(line).value() == line.astype(float).tolist()
    pc = dy.ParameterCollection()
    assert np.array_equal(pc.parameters_from_numpy(array).as_array(), want)
    p = pc.add_parameters((2, 3, 4))
    p.set_value(array)
    assert np.array_equal(p.as_array(), want)
    if not IS_REFERENCE:  # rows of three axes are mixed up there
        assert np.array_equal(pc.lookup_parameters_from_numpy(array).as_array(), want)
    table = pc.add_lookup_parameters((3, 12))
    table.init_row(1, line)
    assert table.row_as_array(1).tolist() == line.astype(float).tolist()
    rows = LAYOUTS[layout](np.arange(12).reshape(1, 12).astype(dtype))
    table.init_from_array(rows)
    assert table.as_array()[0].tolist() == rows[0].astype(float).tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_kind_of_indices(dy: Any, dtype: str) -> None:
    """Floats are truncated, truth values are 0 and 1."""
    pc = dy.ParameterCollection()
    table = pc.lookup_parameters_from_numpy(np.arange(8.0).reshape(4, 2))
    m = dy.inputTensor(np.arange(12.0).reshape(4, 3))
    batch = dy.inputTensor(np.arange(8.0).reshape(4, 2), batched=True)
    at = np.array([1, 0]).astype(dtype)
    if at.dtype.kind == "f":
        at = (at + 0.5).astype(dtype)
    assert dy.lookup_batch(table, at).npvalue().tolist() == [[2, 0], [3, 1]]
    assert table.batch(at[::-1]).npvalue().tolist() == [[0, 2], [1, 3]]
    assert table.rows_as_array(at).tolist() == [[2, 3], [0, 1]] if at.dtype.kind != "f" else True
    assert dy.pick_batch(batch, at).vec_value() == [2, 1]
    assert dy.pick_batch_elems(batch, at).npvalue()[:, 0].tolist() == [1, 3, 5, 7]
    assert dy.select_rows(m, at).npvalue().tolist() == [[3, 4, 5], [0, 1, 2]]
    assert dy.select_cols(m, at).npvalue()[:, 0].tolist() == [1, 4, 7, 10]
    losses = dy.pickneglogsoftmax_batch(batch, at).vec_value()
    assert losses == dy.pickneglogsoftmax_batch(batch, [1, 0]).vec_value()
    assert dy.hinge_batch(batch, at).vec_value() == dy.hinge_batch(batch, [1, 0]).vec_value()
    square = dy.inputTensor(np.arange(4.0).reshape(2, 2))
    assert dy.hinge_dim(square, at).vec_value() == dy.hinge_dim(square, [1, 0]).vec_value()
    strides = np.array([1, 2]).astype(dtype)
    strides[1] = strides[1] or 1  # of truth values
    want = dy.strided_select(m, [int(s) for s in strides], [0, 0], [4, 3]).npvalue()
    assert np.array_equal(dy.strided_select(m, strides, [0, 0], [4, 3]).npvalue(), want)
    if at.dtype.kind != "f" or not IS_REFERENCE:
        assert dy.one_hot(3, at).npvalue().tolist() == [[0, 1], [1, 0], [0, 0]]
    sparse = dy.sparse_inputTensor([at.astype("i8"), at[::-1].astype("i8")], np.array([5, 6]), (2, 2))
    assert sparse.npvalue().tolist() == [[0, 6], [5, 0]]


@OURS
@pytest.mark.parametrize("bad", [np.array([-1.0]), np.array([np.inf]), np.array([2.0**32]), np.array([-1])])
def test_indices_out_of_range(dy: Any, bad: np.ndarray) -> None:
    table = dy.ParameterCollection().add_lookup_parameters((4, 2))
    x = dy.inputVector([1, 2])
    for op, call in {
        "lookup_batch": lambda: dy.lookup_batch(table, bad),
        "batch": lambda: table.batch(bad),
        "select_rows": lambda: dy.select_rows(x, bad),
        "one_hot": lambda: dy.one_hot(3, bad),
        "hinge_batch": lambda: dy.hinge_batch(x, bad),
    }.items():
        with pytest.raises(OverflowError, match=op):
            call()
    with pytest.raises(ValueError, match="lookup_batch"):
        dy.lookup_batch(table, np.array([np.nan]))
    with pytest.raises(ValueError, match="one_hot"):
        dy.one_hot(3, np.array([np.nan]))


@OURS
@pytest.mark.parametrize("kind", ["complex64", "U1", "S1", "M8[s]", "m8[s]"])
def test_arrays_that_are_no_numbers(dy: Any, kind: str) -> None:
    array = np.zeros(2, dtype=kind)
    pc = dy.ParameterCollection()
    p, table = pc.add_parameters(2), pc.add_lookup_parameters((2, 2))
    before = p.as_array()
    x = dy.inputVector([1, 2])
    for call in (
        lambda: dy.inputTensor(array),
        lambda: dy.inputVector(array),
        lambda: x.set(array),
        lambda: p.set_value(array),
        lambda: table.init_row(0, array),
        lambda: table.init_from_array(array.reshape(1, 2)),
        lambda: pc.parameters_from_numpy(array),
        lambda: pc.lookup_parameters_from_numpy(array),
        lambda: dy.NumpyInitializer(array),
        lambda: x + array,
        lambda: array * x,
        lambda: dy.cmult(x, array),
        lambda: dy.scalarInput(array[:1]),
    ):
        with pytest.raises(TypeError):
            call()
    assert np.array_equal(p.as_array(), before)


ARRAY = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
OPERANDS: dict[str, tuple[str, Any]] = {
    "x + a": ("v + np.array([1., 2., 3.])", [2, 4, 6]),
    "a + x": ("np.array([1., 2., 3.]) + v", [2, 4, 6]),
    "x - a": ("v - np.array([3, 2, 1])", [-2, 0, 2]),
    "a - x": ("np.array([3, 2, 1]) - v", [2, 0, -2]),
    "a * x": ("A * v", [14, 32]),
    "x * a": ("v * np.ones((1, 2))", [[1, 1], [2, 2], [3, 3]]),
    "x / a": ("v / np.array([2, 4, 8])", [0.5, 0.5, 0.375]),
    "a / x": ("np.array([2, 4, 6]) / v", [2, 2, 2]),
    "broadcast": ("v + np.ones((3, 2))", [[2, 2], [3, 3], [4, 4]]),
    "0-d": ("v * np.array(2)", [2, 4, 6]),
    "one element": ("np.array([2.]) - v", [1, 0, -1]),
    "float32": ("np.float32(2) * v", [2, 4, 6]),
    "int64": ("np.int64(2) - v", [1, 0, -1]),
    "bool": ("np.bool_(True) + v", [2, 3, 4]),
    "float16": ("v / np.float16(2)", [0.5, 1, 1.5]),
    "power": ("v ** np.float32(2)", [1, 4, 9]),
    "int8 power": ("v ** np.int8(2)", [1, 4, 9]),
    "function": ("dy.dot_product(v, np.array([1, 2, 3]))", 14),
    "function, first": ("dy.cmult(np.array([1, 2, 3]), v)", [1, 4, 9]),
    "list": ("dy.concatenate([v, np.array([4, 5])])", [1, 2, 3, 4, 5]),
    "affine": ("dy.affine_transform([np.array([1, 1]), A, v])", [15, 33]),
    "unary": ("dy.sum_elems(A)", 21),
}


@OURS
@pytest.mark.parametrize("name", OPERANDS)
def test_operands(dy: Any, name: str) -> None:
    """One Expression, not an array of Expressions."""
    code, want = OPERANDS[name]
    v = dy.inputVector([1, 2, 3])
    got = eval(code, {"dy": dy, "np": np, "v": v, "A": ARRAY})  # noqa: S307
    assert isinstance(got, dy.Expression)
    assert np.allclose(got.value(), want, rtol=1e-6)


@OURS
def test_array_operands_have_no_gradient_but_pass_it(dy: Any) -> None:
    pc = dy.ParameterCollection()
    p = pc.parameters_from_numpy(np.array([1.0, 2.0, 3.0]))
    array = ARRAY.copy()
    loss = dy.sum_elems(array * p)
    array[:] = 0  # the values were taken
    assert loss.value() == 46
    loss.backward()
    assert p.grad_as_array().tolist() == [5, 7, 9]
    with pytest.raises(ValueError, match=r"\+\(\): expected expressions of this graph"):
        old = dy.inputVector([1, 2, 3])
        dy.renew_cg()
        old + np.ones(3)


@OURS
def test_bad_array_operands(dy: Any) -> None:
    v = dy.inputVector([1, 2, 3])
    with pytest.raises(ValueError, match="dot_product"):
        dy.dot_product(v, np.ones(4))
    with pytest.raises(ValueError, match="cmult"):
        dy.cmult(v, np.ones((1,) * 8))
    with pytest.raises(ValueError, match="cmult"):
        dy.cmult(v, np.ones(0))
    with pytest.raises(ValueError, match="cmult"):
        dy.cmult(v, np.array(1.0))
    with pytest.raises(TypeError, match="operand"):
        dy.cmult(v, np.array([v, v, v], dtype=object))
    array = np.ones(3)
    with pytest.raises(TypeError):  # an array cannot hold the result
        array += v
    assert (v + 1).value() == [2, 3, 4]


@OURS
def test_masked_and_foreign_sequences(dy: Any) -> None:
    import array
    from collections import deque

    masked = np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[True, False], [False, False]])
    assert np.array_equal(dy.inputTensor(masked).npvalue(), [[np.nan, 2], [3, 4]], equal_nan=True)
    for numbers in (array.array("d", [1, 2]), deque([1, 2]), {1: 0, 2: 0}.keys(), memoryview(b"\x01\x02")):
        assert dy.inputVector(numbers).value() == [1, 2]
        assert dy.select_rows(dy.inputVector([5, 6, 7]), numbers).value() == [6, 7]
    assert dy.values(e for e in [dy.scalarInput(1), dy.scalarInput(2)]) == [1, 2]
    graph = dy.cg()
    flat = np.arange(6, dtype=np.int16)
    assert graph.inputMatrixLiteral(flat, (2, 3)).npvalue().tolist() == [[0, 2, 4], [1, 3, 5]]
    sparse = graph.inputSparseTensor(np.array([3, 0]), np.array([7, 8]), (2, 2), defval=np.float32(1))
    assert sparse.npvalue().tolist() == [[8, 1], [1, 7]]


@OURS
def test_operators_of_others_are_asked(dy: Any) -> None:
    class Large:
        def __float__(self) -> float:
            raise OverflowError("too large")

        def __radd__(self, other: Any) -> str:
            return "asked"

    assert dy.inputVector([1, 2]) + Large() == "asked"
