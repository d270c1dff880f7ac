"""Ops whose functions a script supplies (`cupy_op`), on the CPU; tests/cuda/test_exchange.py runs this on the
emulation, too."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import threading
import traceback
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="an addition")


def same(*shapes: Any) -> Any:
    return shapes[0]


def tanh_op(dy: Any, calls: Any = None, **more: Any) -> Any:
    def forward(x: Any) -> Any:
        if calls is not None:
            calls.append(x.shape)
        return np.tanh(x)

    return dy.cupy_op(forward, lambda x, y, d: d * (1 - y * y), **more)


def product_op(dy: Any) -> Any:
    return dy.cupy_op(
        lambda a, b: a @ b,
        lambda a, b, y, d: (d @ b.T, a.T @ d),
        shape=lambda a, b: (a[0], b[1]),
        name="product",
    )


def matrix(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_values_and_gradients(dy: Any) -> None:
    pc = dy.ParameterCollection()
    p, q = pc.parameters_from_numpy(matrix(1, 3, 4)), pc.parameters_from_numpy(matrix(2, 4, 2))
    product, tanh = product_op(dy), tanh_op(dy, shape=same)

    def loss(mine: bool) -> Any:
        y = product(p, q) if mine else p * q
        return dy.sum_elems(dy.square(tanh(y) if mine else dy.tanh(y)))

    numbers = []
    for mine in (False, True):
        dy.renew_cg()
        total = loss(mine)
        value = total.value()
        total.backward()
        numbers.append([value, p.grad_as_array(), q.grad_as_array()])
        p.scale_gradient(0)
        q.scale_gradient(0)
    assert numbers[0][0] == pytest.approx(numbers[1][0], rel=1e-5)
    for a, b in zip(numbers[0][1:], numbers[1][1:]):
        assert np.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("shape", [(1,), (5,), (2, 3), (2, 3, 4)])
@pytest.mark.parametrize("batch", [1, 3])
def test_shapes(dy: Any, shape: Any, batch: int) -> None:
    """The arrays have the shapes of npvalue(); so has what the functions return."""
    values = matrix(3, *shape, batch) if batch > 1 else matrix(3, *shape)
    seen = []

    def forward(x: Any) -> Any:
        seen.append((x.shape, x.dtype, getattr(x.flags, "writeable", False)))  # CuPy has no such flag
        return x[::-1].astype(np.float64).T.copy().T[::-1] * 2  # float64, in another order

    op = dy.cupy_op(forward, lambda x, y, d: 2 * d)
    x = dy.inputTensor(values, batched=batch > 1)
    y = op(x)
    assert y.dim() == x.dim() and np.array_equal(y.npvalue(), 2 * values)
    assert set(seen) == {(values.shape, np.dtype(np.float32), False)}
    weights = dy.inputTensor(matrix(4, *values.shape), batched=batch > 1)
    dy.sum_batches(dy.sum_elems(dy.cmult(y, weights))).backward(full=True)
    assert np.allclose(x.gradient(), 2 * weights.npvalue())


def test_shape_from_the_first_result(dy: Any) -> None:
    """It is computed once for arguments of such shapes."""
    calls: list[Any] = []
    op = tanh_op(dy, calls)
    x, y = dy.inputVector([1.0, 2.0]), dy.inputVector([3.0, 4.0])
    first, second = op(x), op(y)
    assert calls == [(2,)], "the first result; the second waits"
    assert np.allclose(first.npvalue(), np.tanh([1, 2])) and np.allclose(second.npvalue(), np.tanh([3, 4]))
    assert calls == [(2,)] * 3
    op(dy.inputVector([1.0]))
    assert calls[3:] == [(1,)]


@pytest.mark.parametrize("autobatching", [False, True])
def test_batching(dy: Any, autobatching: bool) -> None:
    """Nodes share a launch, each of them a call."""
    pc = dy.ParameterCollection()
    w = pc.parameters_from_numpy(matrix(1, 4, 4))
    calls: list[Any] = []
    op, values = tanh_op(dy, calls, shape=same), [matrix(n, 4) for n in range(6)]

    def losses(tanh: Any) -> Any:
        dy.renew_cg(autobatching=autobatching)
        states = [tanh(w * tanh(w * dy.inputVector(v))) for v in values]
        return dy.esum([dy.squared_norm(s) for s in states])

    loss = losses(dy.tanh)
    wanted = loss.value()
    loss.backward()
    gradient = w.grad_as_array()
    w.scale_gradient(0)
    loss = losses(op)
    assert loss.value() == pytest.approx(wanted, rel=1e-5) and len(calls) == 12
    loss.backward()
    assert np.allclose(w.grad_as_array(), gradient, atol=1e-5)


def test_one_argument_twice_and_equal_nodes(dy: Any) -> None:
    calls = []

    def forward(a: Any, b: Any) -> Any:
        calls.append(1)
        return a * b

    op = dy.cupy_op(forward, lambda a, b, y, d: [d * b, d * a], shape=same)
    x = dy.inputVector([2.0, 3.0])
    y = op(x, x) + op(x, x)
    dy.sum_elems(y).backward(full=True)
    assert y.value() == [8, 18] and x.gradient().tolist() == [8, 12]
    p = dy.ParameterCollection().parameters_from_numpy(np.array([1.0, 2.0]))
    calls.clear()
    assert dy.esum([op(p, p), op(p, p)]).value() == [2, 8] and len(calls) == 1


def test_gradients_that_nobody_wants(dy: Any) -> None:
    wanted: list[Any] = []

    def backward(a: Any, b: Any, y: Any, d: Any) -> Any:
        wanted.append(1)
        return None, d

    op = dy.cupy_op(lambda a, b: a + b, backward, shape=same)
    p = dy.ParameterCollection().parameters_from_numpy(np.array([1.0, 2.0]))
    x = dy.inputVector([1.0, 1.0])
    dy.sum_elems(op(x, p)).backward()
    assert p.grad_as_array().tolist() == [1, 1] and wanted == [1]
    dy.renew_cg()
    dy.sum_elems(op(dy.inputVector([1.0, 1.0]), dy.nobackprop(p)) + p).backward()
    assert wanted == [1], "no gradient goes through"
    dy.renew_cg()
    loss = dy.sum_elems(op(p, p))
    for _ in range(2):
        loss.backward()
    assert p.grad_as_array().tolist() == [1 + 1 + 2] * 2


def test_inputs_change(dy: Any) -> None:
    op = tanh_op(dy, shape=same)
    x = dy.vecInput(2)
    y = op(x)
    for value in ([1, 2], [3, 4]):
        x.set(value)
        assert np.allclose(y.npvalue(), np.tanh(value))


def test_checkpoints(dy: Any) -> None:
    op = tanh_op(dy, shape=same)
    x = dy.inputVector([1.0, 2.0])
    y = op(x)
    dy.cg_checkpoint()
    z = op(y)
    assert np.allclose(z.npvalue(), np.tanh(np.tanh([1, 2])))
    dy.cg_revert()
    again = op(op(y))
    assert np.allclose(again.npvalue(), np.tanh(np.tanh(np.tanh([1, 2]))))
    assert np.allclose(y.npvalue(), np.tanh([1, 2]))


def test_an_op_lives_as_long_as_its_nodes(dy: Any) -> None:
    def make() -> Any:
        op = tanh_op(dy, shape=same)
        return op(dy.inputVector([1.0])), weakref.ref(op)

    y, op = make()
    gc.collect()
    assert op() is not None and np.allclose(y.value(), np.tanh(1))
    dy.renew_cg()
    gc.collect()
    assert op() is None


def test_batch_map(dy: Any) -> None:
    op = tanh_op(dy)
    values = [[float(n), 1.0] for n in range(5)]

    def one(v: Any) -> Any:
        y = op(dy.inputVector(v))
        return dy.sum_elems(op(y)) if y.npvalue()[0] > 0.5 else dy.sum_elems(y)

    found = [e.value() for e in dy.batch_map(one, values)]
    for (a, b), got in zip(values, found):
        once = np.tanh([a, b])
        assert got == pytest.approx((np.tanh(once) if once[0] > 0.5 else once).sum(), rel=1e-5)


def test_errors_name_the_op(dy: Any) -> None:
    x = dy.inputVector([1.0, 2.0])

    def broken(x: Any) -> Any:
        raise KeyError("oh")

    with pytest.raises(RuntimeError, match=r"cupy_op broken: forward\(\) raised KeyError: 'oh'") as caught:
        dy.cupy_op(broken, shape=same)(x).value()
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(RuntimeError, match=r"cupy_op broken: forward\(\) raised"):
        dy.cupy_op(broken)(x)
    for result in (np.ones(3), np.ones((2, 1)), 3.0):
        y = dy.cupy_op(lambda x, r=result: r, shape=same, name="f")(x)
        with pytest.raises(
            ValueError, match=r"cupy_op f: expected a result from forward.* shape \(2,\), got"
        ):
            y.value()
    y = dy.cupy_op(lambda x: "text", shape=lambda x: (), name="f")(x)
    with pytest.raises((TypeError, ValueError), match="cupy_op f"):
        y.value()
    half = dy.cupy_op(lambda x: x * 2, shape=same, name="g")(x)
    with pytest.raises(RuntimeError, match=r"cupy_op g: has no backward\(\)"):
        dy.sum_elems(half).backward(full=True)
    assert half.value() == [2, 4], "the value stays"
    for backward, words in (
        (lambda x, y, d: (d, d), "expected 1 gradients from backward.., one for each argument, got 2"),
        (lambda x, y, d: d[:1], r"expected gradient 0 from backward.. of shape \(2,\), got \(1,\)"),
        (lambda x, y, d: 1 / 0, "raised ZeroDivisionError"),
    ):
        with pytest.raises((ValueError, RuntimeError), match=f"cupy_op h: .*{words}"):
            dy.sum_elems(dy.cupy_op(lambda x: x * 2, backward, shape=same, name="h")(x)).backward(full=True)
    assert (x + 1).value() == [2, 3]
    op = tanh_op(dy, shape=same, name="t")
    for wrong in ((), (1.0,), (x, np.ones(2))):
        with pytest.raises(TypeError, match="cupy_op t: expected"):
            op(*wrong)
    with pytest.raises(ValueError, match=r"cupy_op t: expected batches of one size, got \[2, 3\]"):
        op(dy.inputTensor(np.ones((2, 2)), batched=True), dy.inputTensor(np.ones((2, 3)), batched=True))
    with pytest.raises(ValueError, match="with the batch of 2 as last axis"):
        dy.cupy_op(lambda x: x, shape=lambda x: (5,))(dy.inputTensor(np.ones((3, 2)), batched=True))
    with pytest.raises(TypeError, match=r"cupy_op h: expected a tuple of sizes from shape\(\)"):
        dy.cupy_op(lambda x: x, shape=lambda x: None, name="h")(x)
    for shape, words in (
        (lambda x: (-1,), r"expected sizes of 0 or more from shape\(\), got \(-1,\)"),
        (lambda x: (2**20, 2**20), r"expected a result of fewer than 2\*\*31 elements"),
        (lambda x: (0, 2**40), r"expected a result of fewer than 2\*\*31 elements"),
        (lambda x: 1 / 0, r"shape\(\) raised ZeroDivisionError"),
    ):
        with pytest.raises((ValueError, RuntimeError), match=f"cupy_op h: {words}"):
            dy.cupy_op(lambda x: x, shape=shape, name="h")(x)
    with pytest.raises(ValueError, match=r"cupy_op h: expected an array of numbers as a result from forward"):
        dy.cupy_op(lambda x: [[1.0], [1.0, 2.0]], name="h")(x)
    for arguments in ((None,), (len, 3)):
        with pytest.raises(TypeError, match=r"cupy_op\(\): expected a function for"):
            dy.cupy_op(*arguments)


def test_no_graphs_inside(dy: Any) -> None:
    p = dy.ParameterCollection().parameters_from_numpy(np.array([1.0, 2.0]))
    x = dy.inputVector([1.0, 2.0])
    for use in (
        lambda: x + 1, lambda: dy.inputVector([1.0]), x.value, dy.renew_cg, p.as_array, p.tensor_value,
        lambda: p.set_value(np.ones(2)),
    ):  # fmt: skip
        y = dy.cupy_op(lambda x, use=use: use() and x, shape=same, name="f")(x)
        with pytest.raises(RuntimeError, match="cannot use expressions, parameters or graphs"):
            y.value()
        assert (x + 1).value() == [2, 3] and p.as_array().tolist() == [1, 2]


def shape_of_x(shape: Any) -> Any:
    return shape


def test_copies_are_ops_of_their_own(dy: Any) -> None:
    op = dy.cupy_op(np.tanh, shape=shape_of_x)
    made = pickle.dumps(op)
    dy.cupy_op(np.exp, shape=shape_of_x)
    copies = [copy.copy(op), copy.deepcopy(op), pickle.loads(made)]
    del op
    gc.collect()
    others = [dy.cupy_op(np.exp, shape=shape_of_x) for _ in range(3)]
    x = dy.inputVector([1.0])
    assert [str(op) for op in copies] == ["cupy_op tanh"] * 3
    assert [op(x).value() for op in copies] == [pytest.approx(np.tanh(1))] * 3
    assert [op(x).value() for op in others] == [pytest.approx(np.e)] * 3
    tests = Path(__file__).parent
    program = (
        f"import sys; sys.path[:0] = [{str(tests)!r}, {str(tests.parent)!r}]\n"
        "import pickle, numpy as np, dynet_compat as dy\n"
        "from test_user_ops import shape_of_x\n"
        "ops = [dy.cupy_op(np.exp, shape=shape_of_x) for _ in range(99)]\n"
        f"print(pickle.loads({made!r})(dy.inputVector([1.0])).value())"
    )
    assert float(subprocess.check_output([sys.executable, "-c", program])) == pytest.approx(np.tanh(1))


@pytest.mark.parametrize("shape", [None, lambda s: (), lambda s: (1,)])
def test_results_of_one_number(dy: Any, shape: Any) -> None:
    x = dy.inputVector([1.0, 2.0])
    y = dy.cupy_op(lambda x: x.sum(), lambda x, y, d: d * np.ones_like(x), shape=shape)(x)
    assert y.dim() == ((1,), 1) and y.value() == 3
    z = dy.cupy_op(lambda y: y[0] * y[0], lambda y, z, d: (2 * y * d).sum(), shape=shape)(y)
    z.backward(full=True)
    assert z.value() == 9 and y.gradient() == 6 and x.gradient().tolist() == [6, 6]


def test_one_number_for_each_of_a_batch(dy: Any) -> None:
    x = dy.inputTensor(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), batched=True)
    y = dy.cupy_op(lambda x: x.sum(axis=0), lambda x, y, d: d * np.ones_like(x))(x)
    assert y.dim() == ((1,), 3) and y.npvalue().tolist() == [[5, 7, 9]]
    dy.sum_batches(dy.square(y)).backward(full=True)
    assert x.gradient().tolist() == [[10, 14, 18]] * 2


def test_gradients_as_lists(dy: Any) -> None:
    """Numbers in a list are an array, arrays in a list are gradients."""
    for made in ([3.0, 4.0], (3.0, 4.0), [np.float32(3), 4], [[3.0, 4.0]], [np.array([3.0, 4.0])]):
        x = dy.inputVector([1.0, 2.0])
        y = dy.cupy_op(lambda x: x * 1, lambda x, y, d, made=made: made, shape=same)(x)
        dy.sum_elems(y).backward(full=True)
        assert x.gradient().tolist() == [3, 4]
    x = dy.inputTensor(np.ones((2, 2)))
    y = dy.cupy_op(lambda x: x * 1, lambda x, y, d: [[1, 2], [3, 4]], shape=same)(x)
    dy.sum_elems(y).backward(full=True)
    assert x.gradient().tolist() == [[1, 2], [3, 4]]


class Liar:
    """Has more numbers than it says."""

    shape = (2,)

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        return np.full(3, 7, np.float32)


def test_sizes_are_those_of_the_numbers(dy: Any) -> None:
    x = dy.inputVector([1.0, 2.0])
    words = "cupy_op f: expected a result of 2 numbers, got an array of 3"
    with pytest.raises(ValueError, match=words):
        dy.cupy_op(lambda x: Liar(), shape=same, name="f")(x).value()
    y = dy.cupy_op(lambda x: x * 1, lambda x, y, d: Liar(), shape=same, name="f")(x)
    with pytest.raises(ValueError, match=words):
        dy.sum_elems(y).backward(full=True)


def on_cpu() -> bool:
    return bool(__import__("dynet_compat")._core._device_options()["device"] == "cpu")


@pytest.mark.parametrize("ends", ["returns", "raises", "returns text"])
def test_arrays_that_are_kept(dy: Any, ends: str) -> None:
    """NumPy's arrays on the CPU have their own memory; on a device the op says that they were kept, and its
    values go to other memory from then on."""
    kept = []

    def keep(x: Any) -> Any:
        kept.append(x.T)
        if ends == "raises":
            raise KeyError("oh")
        return x * 2 if ends == "returns" else np.array(["a", "b"])

    def work() -> None:
        y = dy.cupy_op(keep, shape=same, name="k")(dy.tanh(dy.inputVector(np.zeros(2))))
        if on_cpu() and ends == "returns":
            assert y.value() == [0, 0]
            return
        with pytest.raises((RuntimeError, TypeError)) as caught:
            y.value()
        assert on_cpu() != ("cupy_op k: its function has kept an array" in str(caught.value))
        errors = [caught.value, caught.value.__cause__]
        why = {"raises": "KeyError", "returns text": "real numbers", "returns": "kept"}[ends]
        assert any(why in str(error) for error in errors), errors

    with ThreadPoolExecutor(1) as other:
        other.submit(work).result()
    dy.tanh(dy.inputVector([1.0, 2.0])).value()
    assert len(kept) == 1 and kept[0].tolist() == [0, 0], "the graph is gone, and its memory is not"


def test_arrays_that_are_not_kept(dy: Any) -> None:
    def fails(x: Any) -> Any:
        raise KeyError("oh")

    def cycle(x: Any) -> Any:
        try:
            fails(x)
        except KeyError as error:
            found = error  # whose traceback has this frame
        return x + len(found.args)

    x = dy.inputVector([1.0, 2.0])
    assert dy.cupy_op(lambda x: x, shape=same)(x).value() == [1, 2]
    assert dy.cupy_op(cycle, shape=same)(x).value() == [2, 3]
    for ending in (fails, lambda x: cycle(fails)):
        with pytest.raises(RuntimeError, match=r"cupy_op f: forward\(\) raised"):
            dy.cupy_op(ending, shape=same, name="f")(x).value()
    kept: list[Any] = []
    copied = dy.cupy_op(lambda x: kept.append(x.copy()) or x + 1, shape=same)(x)
    assert copied.value() == [2, 3] and kept[0].tolist() == [1, 2]


STORED: list[BaseException] = []


def library(fails: bool) -> None:
    """Stores an error, as libraries do at a first use: its frames keep those of all that called this."""
    STORED.clear()
    try:
        raise ImportError("not installed")
    except ImportError as error:
        STORED.append(error)
        if fails:
            raise


@pytest.mark.parametrize("fails", [False, True])
def test_frames_that_a_library_keeps_hold_no_arrays(dy: Any, fails: bool) -> None:
    def calls(x: Any, *_: Any) -> Any:
        library(fails)
        return x * 2

    x = dy.inputVector([1.0, 2.0])
    y = dy.cupy_op(calls, calls, shape=same, name="f")(x)
    if fails:
        with pytest.raises(RuntimeError, match=r"cupy_op f: forward\(\) raised ImportError"):
            y.value()
    else:
        assert y.value() == [2, 4]
        dy.sum_elems(y).backward(full=True)
        assert x.gradient().tolist() == [2, 4]
    *_, (frame, _) = traceback.walk_tb(STORED[0].__traceback__)
    assert frame.f_code is library.__code__ and frame.f_back is not None
    assert ("x" in frame.f_back.f_locals) == on_cpu()


def test_other_threads_go_on(dy: Any) -> None:
    """They may compute while a function waits; nothing of theirs is mixed up."""
    inside, done = threading.Event(), threading.Event()
    found = []

    def other() -> None:
        inside.wait(10)
        dy.renew_cg()
        found.append(dy.tanh(dy.inputVector([3.0])).value())
        done.set()

    def forward(x: Any) -> Any:
        inside.set()
        assert done.wait(10)
        return x + 1

    thread = threading.Thread(target=other)
    thread.start()
    y = dy.cupy_op(forward, shape=same)(dy.inputVector([1.0]))
    if not on_cpu():
        done.set()  # the device is one for all threads
    assert y.value() == 2
    thread.join()
    assert found[0] == pytest.approx(np.tanh(3))
