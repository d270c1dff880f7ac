"""Convolutions as launches: many nodes at once, shared filters and inputs, threads, views, dead branches."""

from __future__ import annotations

import importlib
from typing import Any, Callable

import numpy as np
import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="the launches are ours")

Arrays = dict[str, np.ndarray]


def random(seed: int, *dims: int) -> np.ndarray:
    return np.random.RandomState(seed).uniform(-1, 1, dims).astype(np.float32)


@pytest.fixture(autouse=True)
def _threads() -> Any:
    core = importlib.import_module("dynet_compat._core")
    before = core.threads()
    yield
    core.set_threads(before)


def run(dy: Any, build: Callable[..., Any], arrays: Arrays, batching: bool = True) -> Arrays:
    """Values and the gradients of the named parameters of sum(squares of the outputs)."""
    dy.renew_cg(autobatching=batching)
    pc = dy.ParameterCollection()
    params = {name: pc.parameters_from_numpy(array) for name, array in arrays.items()}
    outs = build(dy, params)
    dy.esum([dy.sum_batches(dy.squared_norm(out)) for out in outs]).backward()
    found = {f"value {i}": out.npvalue() for i, out in enumerate(outs)}
    found.update({name: np.array(p.grad_as_array()) for name, p in params.items()})
    return found


def same(got: Arrays, want: Arrays, rtol: float = 2e-5) -> None:
    assert got.keys() == want.keys()
    for name, array in want.items():
        scale = max(1.0, float(np.abs(array).max()))
        np.testing.assert_allclose(got[name], array, rtol=rtol, atol=rtol * scale, err_msg=name)


def texts(dy: Any, p: dict[str, Any]) -> list[Any]:
    """Sentences of many lengths, one filter: one ragged launch."""
    outs = []
    for n in (3, 5, 9, 30, 4, 17):
        columns = dy.concatenate_cols([p["emb"] * dy.inputVector([0.1 * i, 1, -0.2 * n]) for i in range(n)])
        x = dy.reshape(dy.transpose(columns), (1, n, 4))
        outs.append(dy.conv2d_bias(x, p["f"], p["b"], [1, 1]))
    return outs


def images(dy: Any, p: dict[str, Any]) -> list[Any]:
    """Images of several sizes, on planes and on patches, some batched."""
    outs = []
    for i, size in enumerate((3, 12, 4, 12, 6, 3)):
        x = dy.cmult(dy.inputTensor(random(i, size, size + i % 2, 2)), p["s"])
        if i % 2:
            x = dy.concatenate_to_batch([x, dy.tanh(x), x * 2])
        outs.append(dy.conv2d_bias(x, p["f"], p["b"], [1, 1], is_valid=i < 3))
    return outs


def one_input(dy: Any, p: dict[str, Any]) -> list[Any]:
    """Several filters read one input, so that members of a launch add to one gradient."""
    filters = [p["f"], dy.tanh(p["f"]), p["f"] * 2, dy.reshape(p["f"], (4, 1, 2, 5)), p["g"]]
    return [dy.conv2d(p["x"], f, [1, 1]) for f in filters]


def narrow(dy: Any, p: dict[str, Any]) -> list[Any]:
    outs = []
    for n in (4, 7, 40, 5):
        x = dy.cmult(dy.inputTensor(random(n, 6, n)), p["s"])
        outs.append(dy.filter1d_narrow(x, p["y"]))
        outs.append(dy.filter1d_narrow(dy.concatenate_to_batch([x, x * 2]), p["y"]))
    return outs


PROGRAMS: dict[str, tuple[Callable[..., Any], Arrays]] = {
    "texts": (texts, {"emb": random(1, 4, 3), "f": random(2, 1, 3, 4, 7), "b": random(3, 7)}),
    "images": (images, {"s": random(4, 1), "f": random(5, 3, 3, 2, 8), "b": random(6, 8)}),
    "one_input": (
        one_input,
        {"x": random(7, 9, 8, 2), "f": random(8, 2, 2, 2, 5), "g": random(9, 2, 2, 2, 4)},
    ),
    "narrow": (narrow, {"s": random(10, 1), "y": random(11, 6, 3, 13)}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_launches(dy: Any, name: str) -> None:
    build, arrays = PROGRAMS[name]
    same(run(dy, build, arrays), run(dy, build, arrays, batching=False))


@pytest.mark.parametrize("batching", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_threads_do_not_change_results(dy: Any, name: str, batching: bool) -> None:
    core = importlib.import_module("dynet_compat._core")
    build, arrays = PROGRAMS[name]
    found = []
    for threads in (1, 4, 3):
        core.set_threads(threads)
        found.append(run(dy, build, arrays, batching))
    for other in found[1:]:
        for key, array in found[0].items():
            assert np.array_equal(array, other[key]), key


def test_large_launch_on_threads(dy: Any) -> None:
    """Enough work that threads take part: the same bits, and the same numbers as item by item."""
    core = importlib.import_module("dynet_compat._core")
    x, f, b = random(1, 20, 20, 6, 16), random(2, 3, 3, 6, 20), random(3, 20)

    def build(dy: Any, p: dict[str, Any]) -> list[Any]:
        batch = dy.concatenate_to_batch([dy.cmult(dy.inputTensor(x[..., i]), p["s"]) for i in range(16)])
        return [dy.conv2d_bias(batch, p["f"], p["b"], [1, 1])]

    def single(dy: Any, p: dict[str, Any]) -> list[Any]:
        items = [dy.cmult(dy.inputTensor(x[..., i]), p["s"]) for i in range(16)]
        return [dy.concatenate_to_batch([dy.conv2d_bias(item, p["f"], p["b"], [1, 1]) for item in items])]

    arrays = {"s": np.ones(1, np.float32), "f": f, "b": b}
    found = []
    for threads in (1, 4):
        core.set_threads(threads)
        found.append(run(dy, build, arrays))
        found.append(run(dy, single, arrays))
    for key, array in found[0].items():
        assert np.array_equal(array, found[2][key]), key
    for key, array in found[1].items():
        assert np.array_equal(array, found[3][key]), key
    same(found[1], found[0])
    assert np.array_equal(found[0]["value 0"], found[1]["value 0"]), "an item has other bits in a batch"


def test_members_without_gradient(dy: Any) -> None:
    """Of a launch only some members reach the loss, or want a gradient of their input."""
    arrays = {"s": random(1, 1), "f": random(2, 3, 3, 1, 4)}
    maps = [random(i, 7, 7) for i in range(5)]

    def build(dy: Any, p: dict[str, Any]) -> list[Any]:
        inputs = [
            dy.cmult(dy.inputTensor(m), p["s"]) if i % 2 else dy.inputTensor(m) + 0
            for i, m in enumerate(maps)
        ]
        outs = [dy.conv2d(x, p["f"], [1, 1]) for x in inputs]
        dy.forward(outs)
        return outs[1:4]

    same(run(dy, build, arrays), run(dy, build, arrays, batching=False))


def test_filter_is_input(dy: Any) -> None:
    """The same node as input and as filters: both gradients arrive."""
    arrays = {"w": random(3, 2, 2)}

    def build(dy: Any, p: dict[str, Any]) -> list[Any]:
        return [dy.conv2d(dy.reshape(p["w"], (2, 2)), dy.reshape(p["w"], (2, 2, 1, 1)), [1, 1])]

    got = run(dy, build, arrays)
    value = float((arrays["w"] ** 2).sum())
    np.testing.assert_allclose(got["value 0"].ravel(), [value], rtol=1e-6)
    np.testing.assert_allclose(got["w"], 4 * value * arrays["w"], rtol=1e-5)


def test_nan_is_no_maximum(dy: Any) -> None:
    """k-max pooling counts NaN as -inf; nothing reads beyond its line."""
    nan = float("nan")
    assert dy.kmax_pooling(dy.inputVector([1, nan, 3, 2]), 2, 0).value() == [3, 2]
    assert np.isnan(dy.kmax_pooling(dy.inputVector([nan, nan, 3, nan]), 3, 0).value()).tolist() == [1, 1, 0]
    p = dy.ParameterCollection().parameters_from_numpy(np.array([nan, 1, nan, 2], np.float32))
    dy.sum_elems(dy.kmax_pooling(p, 2, 0)).backward()
    assert p.grad_as_array().tolist() == [0, 1, 0, 1]


def test_keywords_and_iterables(dy: Any) -> None:
    x, f = dy.inputTensor(random(1, 6, 5, 1)), dy.inputTensor(random(2, 2, 2, 1, 3))
    want = dy.conv2d(x, f, [2, 1], True).npvalue()
    for stride in ((2, 1), np.array([2, 1]), (n for n in (2, 1)), [2.9, True, 7], range(2, 0, -1)):
        assert np.array_equal(dy.conv2d(x=x, f=f, stride=stride).npvalue(), want)
    biased = dy.conv2d_bias(x, f=f, b=dy.inputVector([1, 2, 3]), stride=(2, 1), is_valid=True)
    np.testing.assert_allclose(biased.npvalue(), want + np.array([1, 2, 3]), rtol=1e-6)
    pooled = dy.maxpooling2d(x=x, ksize=iter([2, 2]), stride=np.array([2.0, 1.0]), is_valid=1)
    assert pooled.dim() == ((3, 4, 1), 1)


def test_gradient_of_a_filter_where_strides_leave_inputs_out(dy: Any) -> None:
    """With is_valid=False; DyNet takes other inputs for its gradient than for its value."""
    f = dy.ParameterCollection().add_parameters((1, 3, 1, 1), init=1)
    x = dy.reshape(dy.inputVector([1, 2, 4, 8, 16]), (1, 5, 1))
    loss = dy.sum_elems(dy.conv2d(x, f, stride=[1, 7], is_valid=False))
    loss.backward()
    assert loss.value() == 7 and f.grad_as_array().ravel().tolist() == [1, 2, 4]
