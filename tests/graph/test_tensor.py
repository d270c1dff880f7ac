"""Tensor: what the real DyNet gives, and what is ours: copies, errors, array interfaces."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import numpy as np
import pytest
from support import oracle
from support.compare import difference
from support.scenarios import ALL
from support.subject import IS_REFERENCE, ON_GPU

OURS = pytest.mark.skipif(IS_REFERENCE, reason="the reference differs or dies")
ON_THE_HOST = pytest.mark.skipif(ON_GPU, reason="of arrays on the host")


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    return oracle.recorded("tensors")


@pytest.mark.parametrize("scenario", ["tensor-values", "tensor-samples"])
def test_recorded(dy: Any, scenario: str, recorded: dict[str, np.ndarray]) -> None:
    """Values within rounding; indices, samples and the position in the random stream exactly."""
    results = {f"{scenario}|{key}": np.asarray(array) for key, array in ALL[scenario](dy).items()}
    assert results.keys() == {key for key in recorded if key.startswith(scenario + "|")}
    assert len(results) > 60
    for key, got in results.items():
        want = recorded[key]
        assert got.dtype == want.dtype, key
        if want.dtype == np.int64 or key.endswith("next"):
            assert np.array_equal(got, want), f"{key}: {got} instead of {want}"
        else:
            assert difference(got, want) is None, f"{key}: {difference(got, want)}"


@pytest.mark.oracle
def test_recordings_are_current(oracle_python: str, recorded: dict[str, np.ndarray]) -> None:
    live = oracle.live("tensors")
    assert live.keys() == recorded.keys()
    assert all(np.array_equal(array, recorded[key]) for key, array in live.items())


def test_forms(dy: Any) -> None:
    m = dy.inputTensor(np.arange(6.0).reshape(2, 3))
    tensor = m.tensor_value()
    assert type(tensor) is dy.Tensor and type(tensor).__module__ == "_dynet"
    assert str(tensor) == "<Dynet Tensor:float>" and str(tensor.argmax()) == "<Dynet Tensor:int>"
    assert [str(t) for t in tensor.topk(1, 2)] == ["<Dynet Tensor:float>", "<Dynet Tensor:int>"]
    array = tensor.as_numpy()
    assert array.dtype == np.float64 and array.flags.f_contiguous and np.array_equal(array, m.npvalue())
    assert tensor.argmax().as_numpy().dtype == np.int64
    assert tensor and tensor == tensor and len({tensor, m.tensor_value()}) == 2
    assert m.tensor_value(recalculate=True).as_numpy().tolist() == array.tolist()
    for batched in (True, False):
        x = dy.inputTensor(np.arange(4.0).reshape(4, 1), batched=batched)
        assert x.tensor_value().as_numpy().shape == x.npvalue().shape
    pc = dy.ParameterCollection()
    p, table = pc.add_parameters((2, 3)), pc.add_lookup_parameters((4, 2))
    assert p.tensor_value().as_numpy().shape == (2, 3)
    assert np.array_equal(table.tensor_value().as_numpy(), table.as_array().T)
    for refused in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            refused(tensor)
    with pytest.raises(AttributeError):
        tensor.anything = 1


def test_values_of_random_nodes_are_drawn_anew(dy: Any) -> None:
    x = dy.random_uniform(50, 0, 1)
    first = x.tensor_value().as_numpy()
    assert np.array_equal(x.tensor_value().as_numpy(), first)
    assert not np.array_equal(x.tensor_value(recalculate=True).as_numpy(), first)


def test_arguments(dy: Any) -> None:
    tensor = dy.inputTensor(np.arange(6.0).reshape(2, 3)).tensor_value()
    assert tensor.argmax(dim=np.int64(1)).as_numpy().tolist() == [[2], [2]]
    assert tensor.argmax(1.9).as_numpy().tolist() == [[2], [2]]
    assert tensor.argmax(5).as_numpy().tolist() == [[0, 0, 0], [0, 0, 0]]  # further sizes are 1
    for method in (tensor.argmax, tensor.topk, tensor.categorical_sample_log_prob):
        with pytest.raises(OverflowError):
            method(-1)
        with pytest.raises(TypeError):
            method("0")


@OURS
def test_errors(dy: Any) -> None:
    tensor = dy.inputTensor(np.arange(6.0).reshape(2, 3)).tensor_value()
    for name in ("argmax", "categorical_sample_log_prob"):
        with pytest.raises(RuntimeError, match=rf"{name}\(\): expected num of 1, got 2"):
            getattr(tensor, name)(num=2)
        with pytest.raises(ValueError, match=name):
            getattr(tensor, name)(num=0)
    for num in (0, 3):
        with pytest.raises(ValueError, match=r"topk\(\): expected 1 <= num <= 2, the size of dim 0"):
            tensor.topk(0, num)
    with pytest.raises(ValueError, match="topk"):
        tensor.topk(2, 2)
    for name in ("argmax", "topk", "categorical_sample_log_prob"):
        with pytest.raises(ValueError, match="dim < 7"):
            getattr(tensor, name)(7)
        with pytest.raises(RuntimeError, match="indices"):
            getattr(tensor.argmax(), name)()
        with pytest.raises(ValueError, match="empty"):
            getattr(dy.Tensor(), name)()
    empty = dy.Tensor()
    assert str(empty) == "<Dynet Tensor:float>"
    for call in (empty.as_numpy, empty.__array__, empty.__dlpack__):
        with pytest.raises(ValueError, match="empty"):
            call()
    assert not hasattr(empty, "__array_interface__")
    old = dy.inputVector([1, 2])
    dy.renew_cg()
    with pytest.raises(RuntimeError):
        old.tensor_value()


@OURS
def test_ties_and_nan(dy: Any) -> None:
    """The first of equal elements; NaN is smaller than everything."""
    nan = np.nan
    tensor = dy.inputVector([1, 2, 2, 1, 2]).tensor_value()
    assert tensor.argmax().as_numpy() == [1]
    values, at = tensor.topk(0, 4)
    assert values.as_numpy().tolist() == [2, 2, 2, 1] and at.as_numpy().tolist() == [1, 2, 4, 0]
    zeros = dy.inputVector([-0.0, 0.0, -0.0]).tensor_value()
    assert zeros.topk(0, 3)[1].as_numpy().tolist() == [0, 1, 2]
    some = dy.inputVector([nan, 1, nan, 3, -np.inf, np.inf]).tensor_value()
    assert some.argmax().as_numpy() == [5]
    values, at = some.topk(0, 6)
    assert at.as_numpy().tolist() == [5, 3, 1, 4, 0, 2]
    assert np.array_equal(values.as_numpy(), [np.inf, 3, 1, -np.inf, nan, nan], equal_nan=True)
    assert dy.inputVector([nan, nan]).tensor_value().argmax().as_numpy() == [0]
    assert dy.inputVector([-np.inf, nan]).tensor_value().argmax().as_numpy() == [0]
    assert dy.inputVector([nan, -np.inf]).tensor_value().argmax().as_numpy() == [1]


@OURS
@pytest.mark.parametrize("shape", [(1000,), (7, 300), (5, 4, 60)])
def test_topk_is_a_stable_sort(dy: Any, shape: tuple[int, ...]) -> None:
    numbers = np.random.RandomState(3).randint(-20, 20, shape).astype(np.float64)
    tensor = dy.inputTensor(numbers).tensor_value()
    for dim, size in enumerate(shape):
        order = np.argsort(-numbers, axis=dim, kind="stable")
        for num in sorted({1, 2, size // 2, size} - {0}):
            values, at = tensor.topk(dim, num)
            want = np.take(order, range(num), axis=dim)
            assert np.array_equal(at.as_numpy(), want)
            assert np.array_equal(values.as_numpy(), np.take_along_axis(numbers, want, axis=dim))


def test_samples_follow_the_distribution(dy: Any) -> None:
    probabilities = np.array([0.5, 0.3, 0.15, 0.05])
    logs = dy.inputTensor(np.log(np.repeat(probabilities[:, None], 20000, axis=1)), batched=True)
    drawn = logs.tensor_value().categorical_sample_log_prob().as_numpy()
    assert drawn.shape == (1, 20000)
    counts = np.bincount(drawn[0], minlength=4) / 20000
    assert np.abs(counts - probabilities).max() < 0.015


@OURS
def test_it_outlives_the_graph(dy: Any) -> None:
    tensor = dy.inputVector([1, 2, 3]).tensor_value()
    view = np.asarray(tensor)
    dy.renew_cg()
    dy.inputVector([7, 8, 9]).value()
    assert tensor.as_numpy().tolist() == [1, 2, 3] == view.tolist()
    tensor.as_numpy()[:] = 0  # a copy
    del tensor
    gc.collect()
    assert view.tolist() == [1, 2, 3]


@ON_THE_HOST
@OURS
def test_array_interfaces(dy: Any) -> None:
    m = dy.inputTensor(np.arange(6.0).reshape(2, 3))
    tensor = m.tensor_value()
    view = np.asarray(tensor)
    assert view.dtype == np.float32 and view.shape == (2, 3) and np.array_equal(view, m.npvalue())
    assert np.shares_memory(view, np.asarray(tensor)) and not view.flags.writeable
    own = np.array(tensor)
    assert own.flags.writeable and not np.shares_memory(own, view)
    assert np.asarray(tensor.argmax()).dtype == np.int64
    assert np.asarray(tensor, dtype=np.float64).dtype == np.float64
    assert (tensor + np.ones((2, 3))).tolist() == (m.npvalue() + 1).tolist()
    interface = tensor.__array_interface__
    assert interface["typestr"] == "<f4" and interface["shape"] == (2, 3)
    assert tensor.__dlpack_device__() == (1, 0)
    taken = np.from_dlpack(tensor)
    assert np.array_equal(taken, view)
    scalar = np.asarray(dy.scalarInput(3).tensor_value())
    assert scalar.shape == (1,) and scalar[0] == 3


@OURS
def test_copy_argument(dy: Any) -> None:
    """NumPy 2's: True copies, False refuses to, None copies where needed."""
    tensor = dy.inputVector([1, 2, 3]).tensor_value()
    view = tensor.__array__()
    assert np.shares_memory(view, tensor.__array__(copy=False))
    assert np.shares_memory(view, tensor.__array__(np.float32, copy=None))
    own = tensor.__array__(copy=True)
    assert not np.shares_memory(view, own) and own.flags.writeable
    assert tensor.__array__(np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="copy=False"):
        tensor.__array__(np.float64, copy=False)
    if int(np.__version__.split(".")[0]) >= 2:
        assert np.shares_memory(np.asarray(tensor, copy=False), view)
        assert not np.shares_memory(np.asarray(tensor, copy=True), view)


@ON_THE_HOST
@OURS
def test_dlpack_arguments(dy: Any) -> None:
    tensor = dy.inputVector([1, 2, 3]).tensor_value()
    assert "dltensor" in repr(tensor.__dlpack__())
    assert "dltensor" in repr(tensor.__dlpack__(stream=None, max_version=(0, 8)))
    for wrong in ({"stream": 1}, {"dl_device": (2, 0)}, {"copy": False}):
        with pytest.raises(BufferError, match="__dlpack__"):
            tensor.__dlpack__(**wrong)  # without max_version nobody can be told that memory is read-only
    assert tensor.__dlpack__(dl_device=(1, 0), copy=True) is not None


class Old:
    """A consumer that knows DLPack before version 1 only: it may write."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    def __dlpack__(self, **_: Any) -> Any:
        return self.owner.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self.owner.__dlpack_device__()


@ON_THE_HOST
@OURS
def test_old_consumers_get_a_copy(dy: Any) -> None:
    tensor = dy.inputVector([1, 2, 3]).tensor_value()
    p = dy.ParameterCollection().parameters_from_numpy(np.array([1.0, 2.0, 3.0]))
    for owner in (tensor, p):
        taken = np.from_dlpack(Old(owner))
        assert taken.tolist() == [1, 2, 3] and not np.shares_memory(taken, np.asarray(owner))


@OURS
def test_subclass(dy: Any) -> None:
    class Mine(dy.Tensor):
        pass

    mine = Mine()
    mine.anything = 1
    with pytest.raises(ValueError, match="empty"):
        mine.as_numpy()


@ON_THE_HOST
@OURS
def test_numpy_before_read_only_dlpack(dy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy before 2.1 cannot say that memory is read-only: a copy, whatever the consumer knows."""
    from dynet_compat.api import tensor as module

    monkeypatch.setattr(module, "_NUMPY_KNOWS_READ_ONLY", False)
    p = dy.ParameterCollection().parameters_from_numpy(np.array([1.0, 2.0, 3.0]))
    for owner in (dy.inputVector([1, 2, 3]).tensor_value(), p):
        taken = np.from_dlpack(owner)
        assert taken.tolist() == [1, 2, 3] and not np.shares_memory(taken, np.asarray(owner))
        with pytest.raises(BufferError, match="read-only"):
            owner.__dlpack__(max_version=(1, 0), copy=False)
