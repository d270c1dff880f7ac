"""What arguments may be: calls, and what they give. For the recorder and tests/graph/test_conversions.py."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np


class Call(NamedTuple):
    """A call, and why we do something else than the reference ("" = we do the same)."""

    code: str
    differs: str


def scope(dy: Any) -> dict[str, Any]:
    """A fresh graph with what the calls name."""

    def changed(e: Any, value: Any) -> Any:
        e.set(value)
        return e

    def changed_index(e: Any, value: Any) -> Any:
        e.set_index(value)
        return e

    dy.renew_cg(autobatching=False)
    dy.reset_random_seed(1)
    pc = dy.ParameterCollection()
    return {
        "dy": dy,
        "np": np,
        "nan": float("nan"),
        "inf": float("inf"),
        "changed": changed,
        "changed_index": changed_index,
        "pc": pc,
        "x": dy.inputVector([1, 2, 3]),
        "xb": dy.inputTensor(np.arange(6.0).reshape(3, 2), batched=True),
        "m": dy.inputTensor(np.arange(6.0).reshape(3, 2)),
        "E": pc.lookup_parameters_from_numpy(np.arange(10.0).reshape(5, 2)),
        "p": pc.parameters_from_numpy(np.arange(6.0).reshape(3, 2)),
    }


def plain(dy: Any, result: Any) -> Any:
    """A result as JSON has it."""
    if isinstance(result, dy.Expression):
        sizes, batch = result.dim()
        return {"dim": list(sizes), "batch": batch, "value": np.ravel(result.npvalue(), "F").tolist()}
    if isinstance(result, (list, tuple)):
        return [plain(dy, item) for item in result]
    return result if result is None or isinstance(result, (bool, int, float, str)) else type(result).__name__


def outcome(dy: Any, code: str) -> str:
    """What a call does, as JSON: its result, or {"raises": name of the exception}."""
    names = scope(dy)
    try:
        result = plain(dy, eval(code, names))  # noqa: S307 - our own text
    except Exception as error:
        result = {"raises": type(error).__name__}
    return json.dumps(result)


# What the reference accepts is accepted and gives the same; what it refuses is refused in the same way.
SAME = r"""
dy.pick(x, nan)
dy.pick(x, inf)
dy.pick(x, 1.9)
dy.pick(x, -0.5)
dy.pick(x, True)
dy.pick(x, np.int8(1))
dy.pick(x, np.float32(1.7))
dy.pick(x, np.array(1))
dy.pick(x, np.array(1.7))
dy.pick(x, np.array([1]))
dy.pick(x, np.array([1, 2]))
dy.pick(x, '1')
dy.pick(x, [1])
dy.pick(x, None)
dy.pick(x, -1)
dy.pick(x, 2**32)
dy.pick(x, 2**70)
dy.lookup_batch(E, np.array([1, 2]))
dy.lookup_batch(E, np.array([1.9, 2]))
dy.lookup_batch(E, np.array([1, -2]))
dy.lookup_batch(E, np.array([[1, 2]]))
dy.lookup_batch(E, np.array([[1], [2]]))
dy.lookup_batch(E, (i for i in range(2)))
dy.lookup_batch(E, range(2))
dy.lookup_batch(E, bytes([1, 2]))
dy.inputVector(bytes([1, 2]))
dy.esum(dy.SimpleRNNBuilder(1, 2, 2, pc).initial_state().transduce(m))
len(dy.LSTMBuilder(1, 2, 2, pc).initial_state().add_inputs(p))
dy.LSTMBuilder(1, 2, 3, pc).initial_state(dy.transpose(m)).s()
dy.GRUBuilder(1, 2, 3, pc).initial_state().set_h(dy.transpose(m)[:1]).h()
dy.esum(m)
dy.lookup_batch(E, {1, 2})
dy.lookup_batch(E, {1: 2})
dy.lookup_batch(E, [1.9, True])
dy.lookup_batch(E, [nan])
dy.lookup_batch(E, 'ab')
dy.lookup_batch(E, '12')
dy.lookup_batch(E, 3)
dy.lookup_batch(E, np.array(3))
dy.lookup_batch(E, np.array(['1']))
dy.lookup_batch(E, np.array([1, 2], dtype=object))
dy.lookup_batch(E, np.array([1, 2], dtype=np.uint64))
dy.lookup_batch(E, np.array([True, False]))
dy.scalarInput(np.array([[2.]]))
dy.scalarInput(np.array(2))
dy.scalarInput(np.float16(2))
dy.scalarInput(1j)
dy.scalarInput(np.complex64(2))
dy.scalarInput(np.array([1., 2.]))
dy.scalarInput('2')
dy.scalarInput(None)
dy.scalarInput([2.])
dy.scalarInput(True)
dy.scalarInput(2**70)
dy.scalarInput(1e300)
dy.inputVector(np.arange(3))
dy.inputVector(np.array([True, False]))
dy.inputVector(np.arange(6)[::2])
dy.inputVector(np.ones((1, 3)))
dy.inputVector(np.ones((3, 1)))
dy.inputVector(i * 1.5 for i in range(3))
dy.inputVector({1.5})
dy.inputVector('12')
dy.inputVector(np.array(['1']))
dy.inputVector([np.float32(1), np.array(2), np.array([3])])
dy.inputVector(np.array(2.))
dy.inputTensor(np.array(['1', '2']))
dy.inputTensor(['1', '2'])
dy.inputTensor(np.array([1, 2], dtype=object))
dy.inputTensor([1, 2, 3])
dy.inputTensor([[1, 2], [3, 4]])
dy.inputTensor([np.ones(2), np.zeros(2)])
dy.inputTensor([np.ones(2), [1, 2]])
dy.inputTensor([np.ones(2), np.zeros(3)])
dy.inputTensor([[1, 2], [3, 4]], batched=True)
dy.inputTensor(np.array([True, False]))
dy.inputTensor(np.arange(12).reshape(3, 4)[::2, 1::2])
dy.inputTensor(np.asfortranarray(np.arange(6).reshape(2, 3)))
dy.inputTensor(np.arange(3.), batched=True)
dy.inputTensor(range(3))
dy.inputTensor({1, 2})
dy.inputTensor(None)
dy.inputTensor(arr=[1, 2])
dy.inputTensor(np.ma.array([1., 2.], mask=[True, False]))
dy.inputTensor([[[1]]] )
dy.inputTensor(np.float64(3))
dy.inputTensor([np.float64(3), np.float64(2)])
dy.inputTensor([np.array(3.), np.array(2.)])
dy.one_hot(3, 1)
dy.one_hot(3, [0, 2])
dy.one_hot(3, (0, 2))
dy.one_hot(3, np.array([0, 2]))
dy.one_hot(3.5, 1)
dy.one_hot(3, -1)
dy.one_hot(3, [])
dy.sparse_inputTensor([[0, 1], [1, 0]], [1, 2], (2, 2))
dy.sparse_inputTensor([np.array([0, 1]), (1, 0)], np.array([1, 2]), (2, 2))
dy.sparse_inputTensor(np.array([[0, 1], [1, 0]]), [1, 2], (2, 2), batched=True, defval=3)
dy.sparse_inputTensor([[0, 1]], [1, 2], (2, 2))
dy.sparse_inputTensor([[0, 2], [1, 0]], [1, 2], (2, 2))
dy.sparse_inputTensor([[0, -1], [1, 0]], [1, 2], (2, 2))
dy.sparse_inputTensor([[0, 1], [1, 0]], [1, 2, 3], (2, 2))
dy.sparse_inputTensor([[0, 0], [1, 1]], [1, 2], (2, 2))
dy.inputTensorTranspose([1, 2, 3, 4], (2, 2))
dy.inputTensorTranspose(np.arange(4), (2, 2))
dy.inputTensorTranspose([1, 2, 3, 4], (2,), 2)
dy.inputTensorTranspose(range(3))
dy.inputTensorTranspose([1, 2, 3, 4], 4)
dy.select_rows(x, np.array([2, 0]))
dy.select_rows(x, (2, 0))
dy.select_cols(m, np.array([1.5]))
dy.pick_batch(xb, np.array([2, 0]))
dy.pick_batch(xb, (2, 0))
dy.pickneglogsoftmax_batch(xb, np.array([2, 0]))
dy.pickneglogsoftmax_batch(xb, range(2))
dy.hinge_batch(xb, np.array([2, 0]))
dy.hinge_dim(m, np.array([2, 0]))
dy.pick_batch_elems(xb, np.array([1, 1, 0]))
dy.strided_select(m, np.array([1, 2]), [0, 0], [3, 2])
dy.strided_select(m, (1, 2), (0, 0), (3, 2))
dy.strided_select(m, [1.9, 2], [0, 0], [3, 2])
dy.sum_dim(m, [0])
dy.zeros((2.9, 1))
dy.zeros(2.9)
dy.constant((2,), np.float32(1.5))
dy.reshape(x, (1, 3))
dy.vecInput(2.7)
dy.lookup(E, np.int64(2))
dy.lookup(E, 1.9)
E[np.int64(1)]
E[1.9]
E[True]
E.batch(np.array([1, 0]))
E.init_row(np.int64(1), np.array([1, 2]))
E.init_row(1, np.ones((2, 1)))
E.init_row(1, (i for i in range(2)))
E.init_from_array(np.ones((2, 2), dtype=int))
p.set_value(np.arange(6).reshape(3, 2))
p.set_value([[1, 2], [3, 4], [5, 6]])
p.set_value(np.arange(6))
pc.parameters_from_numpy(np.arange(4).reshape(2, 2)).as_array().tolist()
pc.parameters_from_numpy(np.array(2.)).shape()
pc.lookup_parameters_from_numpy(np.arange(4).reshape(2, 2)).as_array().tolist()
pc.add_parameters((2, 2), init=np.arange(4).reshape(2, 2)).as_array().tolist()
pc.add_parameters((2, 2), init=dy.NumpyInitializer(np.arange(4).reshape(2, 2))).as_array().tolist()
x + np.float64(2)
x * np.float64(2)
np.float64(2) * x
np.float64(2) + x
np.float64(2) - x
x / np.float64(2)
np.float32(2) + x
np.int64(2) * x
x + True
x ** 2
x ** np.float64(2)
x[1.5]
x[True]
dy.concatenate(x)
dy.average(np.array([1, 2]))
dy.log_softmax(x, [0, 1])
dy.dropout(x, '0.5')
dy.dropout(x, None)
changed(dy.scalarInput(1), 2)
changed(dy.scalarInput(1), np.float32(2.5))
changed(dy.scalarInput(1), np.array(2.5))
changed(dy.scalarInput(1), True)
changed(dy.scalarInput(1), '2')
changed(dy.vecInput(2), [1, 2])
changed(dy.vecInput(2), (1, 2))
changed(dy.vecInput(2), np.array([1, 2]))
changed(dy.vecInput(2), np.arange(4.)[::2])
changed(dy.vecInput(2), (i for i in range(2)))
changed(dy.vecInput(2), np.array([True, False]))
changed(dy.inputVector([1, 2]), np.array([3, 4], dtype=np.float16))
changed(dy.inputVector([1, 2]), ['a', 'b'])
changed(dy.inputVector([1, 2]), 3)
changed(dy.inputTensor(np.zeros((2, 2)), reusable_expr=True), [1, 2, 3, 4])
changed(dy.inputTensor(np.zeros((2, 2)), reusable_expr=True), np.arange(4))
changed(dy.inputTensor(np.zeros((2, 2)), reusable_expr=True), range(4))
changed(dy.inputTensor(np.zeros((2, 2))), [1, 2, 3, 4])
changed(dy.sparse_inputTensor([[0], [1]], [1], (2, 2)), [1, 2, 3, 4])
changed(E[0], np.int64(2))
changed(E[0], 2.9)
changed(E[0], np.array(2))
changed(E[0], -1)
changed(E[0], 'a')
changed(E.batch([0, 1]), np.array([2, 3]))
changed(E.batch([0, 1]), (2, 3))
changed(E.batch([0, 1]), [2.9, 3])
changed_index(x[0], 2)
changed_index(x[0], np.int64(2))
changed_index(x[0], 2.9)
changed_index(dy.pick_batch(xb, [0, 1]), np.array([1, 2]))
changed_index(dy.pick_batch(xb, [0, 1]), (1, 2))
dy.const_parameter(p)
len(dy.const_parameter(p, E))
dy.const_parameter()
dy.const_parameter([p])
len(dy.parameter(p, E))
dy.random_normal((2, 2.9)).dim()
dy.random_uniform(2, 0, 1, 3).dim()
dy.random_bernoulli((2,), 1, np.float32(3), batch_size=np.int64(2))
dy.ones((2, 1), 2)
dy.constant(2, True)
dy.constant((2,), '1')
dy.zeros(())
dy.scalarInput(s=2)
dy.hinge(x, np.int64(1), np.float32(2))
dy.hinge(x, 1.9)
dy.hinge_batch(xb, (0.5, 1))
dy.pickneglogsoftmax(x, np.int8(1))
dy.pick_range(x, 0.5, 2.9)
dy.max_dim(m, True)
dy.pow(x, 2)
dy.softmax(m, np.int64(1))
dy.concatenate([m, m], d=1.9)
dy.inputTensor(np.arange(4., dtype=np.float16))
dy.inputTensor(np.arange(4).astype('>f8'))
dy.inputTensor(np.arange(4, dtype=np.uint8))
dy.inputTensor(np.ones((1, 1, 1, 1, 1, 1, 1)))
dy.inputTensor(np.ones((2, 3), order='F')[:, ::-1])
dy.inputTensor(np.broadcast_to(np.arange(3.), (2, 3)))
dy.inputTensor([1, 'a'])
dy.inputTensor([[1, 2], [3]])
dy.inputTensor([None])
dy.inputTensor(np.array([1e300, -1e300, 1e-300]))
dy.inputTensor(np.array([2.**31, 16777217]))
dy.inputVector([1e300, 16777217])
dy.inputVector([10**30])
dy.lookup(E, -1)
dy.lookup(E, 7)
dy.lookup(E, '1')
dy.lookup(p, 0)
dy.lookup_batch(E, [])
dy.lookup_batch(E, [7])
dy.lookup_batch(E, [-1])
dy.lookup_batch(E, [2**32])
dy.lookup_batch(E, np.array([2**32]))
dy.lookup_batch(E, np.array([2**63], dtype=np.uint64))
dy.lookup_batch(E, np.array([nan]))
dy.lookup_batch(E, np.array([-0.5, 1.5]))
dy.lookup_batch(E, np.array([1, 2], dtype='>i2'))
dy.lookup_batch(E, np.arange(6)[1:5:2])
dy.lookup_batch(E, [None])
dy.lookup_batch(E, [[1]])
dy.lookup_batch(E, [x])
np.float32(2) - x
"""
# Where we do something else: a call, and why. Values that we accept are checked in the test.
DIES = "the reference dies"
DIFFERENT = {
    "dy.inputVector(np.array([1j]))": "the imaginary part is not dropped",
    "dy.inputTensor(np.array([1j, 2]))": "the imaginary part is not dropped",
    "dy.inputTensor(np.matrix([[1, 2], [3, 4]]))": "accepted",
    "dy.one_hot(3, 1.5)": "truncated as everywhere",
    "dy.sparse_inputTensor(([0, 1], [1, 0]), (1, 2), (2, 2))": "accepted",
    "dy.sparse_inputTensor([[0], [1]], 3, (2, 2))": "TypeError, as for other values",
    "dy.sparse_inputTensor([[0, 1], [1, 0]], [1, 2], [2, 2])": "accepted",
    "dy.zeros(np.int64(2))": "the reference prints an error and makes a scalar",
    "dy.zeros(np.array([2, 3]))": "the reference prints an error and makes a scalar",
    "E.init_from_array([[1, 2], [3, 4]])": "accepted",
    "pc.parameters_from_numpy([[1, 2], [3, 4]])": "accepted",
    "pc.add_parameters((2, 2), init=np.float32(2)).as_array().tolist()": "accepted",
    "x + np.float32(2)": "NumPy's numbers are numbers",
    "x + np.ones(3)": "an array is an operand",
    "x[np.int64(1)]": "accepted",
    "dy.esum((x, x))": "any sequence is accepted",
    "dy.values((x, x))": "any sequence is accepted",
    "dy.log_softmax(x, (0, 1))": "any sequence is accepted",
    "dy.log_softmax(x, np.array([0, 1]))": "any sequence is accepted",
    "dy.transpose(m, (1, 0))": "any sequence is accepted",
    "dy.reshape(x, [3, 1])": "any sequence is accepted",
    "dy.zeros('2')": "the reference prints an error and makes a scalar",
    "dy.zeros(-1)": DIES,
    "dy.zeros((2, -1))": DIES,
    "dy.sum_dim(m, (0,))": "any sequence is accepted",
    "dy.sum_dim(m, np.array([0]))": "any sequence is accepted",
    "dy.concatenate([x, None])": "TypeError, as for other types",
    "dy.concatenate({x})": "any sequence is accepted",
    "dy.esum(e for e in [x, x])": "any sequence is accepted",
    "x * np.int64(2)": "NumPy's numbers are numbers",
    "x - np.float32(2)": "NumPy's numbers are numbers",
    "x * np.ones((3, 3))": "an operand, of a shape that does not fit",
    "np.ones((2, 3)) * x": "NumPy loops over the elements there",
    "x - [1, 2, 3]": "Python's TypeError for operands",
    "x + 'a'": "Python's TypeError for operands",
    "x ** np.ones(1)": "an array is an operand",
    "2 / x": "division is there",
    "x / x": "division is there",
    "x + (1 + 2j)": "Python's TypeError for operands",
    "x * None": "Python's TypeError for operands",
}

CALLS: list[Call] = [Call(code, "") for code in SAME.strip().splitlines()]
CALLS += [Call(code, why) for code, why in DIFFERENT.items()]
