"""Arrays of other libraries on a device: taken without a way through the host, and handed out. Run on the
emulation by test_exchange.py."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.exchange import ByDlpack, ByInterface, Taken, seen
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("an addition", allow_module_level=True)

from dynet_compat import _core

pytestmark = pytest.mark.skipif(
    _core._device_options()["device"] != "emulation", reason="runs on the emulation, by test_exchange.py"
)
PRODUCERS = [ByInterface, ByDlpack]
A = np.arange(12, dtype=np.float32).reshape(3, 4)
LAYOUTS = [A, A.T, A[::-1], A[:, ::2], A[1:, 1:], np.asfortranarray(A), A.reshape(2, 3, 2).transpose(1, 2, 0)]


def moved() -> tuple[int, int]:
    """Bytes that went up and down since the last question."""
    counters = _core.timing()
    _core.reset_timing()
    return counters["device_uploaded_bytes"], counters["device_downloaded_bytes"]


# ---------------------------------------------------------------- taken


@pytest.mark.parametrize("make", PRODUCERS)
@pytest.mark.parametrize("layout", range(len(LAYOUTS)))
def test_layouts(dy: Any, make: Any, layout: int) -> None:
    array = LAYOUTS[layout]
    given = make(array)
    x = dy.inputTensor(given)
    given.overwrite()  # the input has a copy
    assert x.dim() == (array.shape, 1)
    assert np.array_equal(dy.square(x).npvalue(), array**2) and np.array_equal(x.npvalue(), array)
    batched = dy.inputTensor(make(array), batched=True)
    assert batched.dim() == (array.shape[:-1], array.shape[-1])
    assert np.array_equal(dy.square(batched).npvalue(), array**2)


@pytest.mark.parametrize("make", PRODUCERS)
@pytest.mark.parametrize("kind", "f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 ?".split())
def test_numbers_are_converted(dy: Any, make: Any, kind: str) -> None:
    numbers = np.array([[0, 1], [1, 5], [100, 7]]).astype(kind)
    if kind[0] == "f":
        numbers[2] = [6e-8, -np.inf]  # the smallest of float16 that is not normal
    if kind[0] == "i":
        numbers[0] = -3
    assert np.array_equal(dy.inputTensor(make(numbers)).npvalue(), numbers.astype(np.float32))


def test_bfloat16(dy: Any) -> None:
    bits = (np.array([1.5, -2.0, 3.140625], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    assert dy.inputVector(ByDlpack(bits, code=4)).value() == [1.5, -2.0, 3.140625]


@pytest.mark.parametrize("make", PRODUCERS)
def test_nothing_goes_through_the_host(dy: Any, make: Any) -> None:
    large = np.ones((500, 40), np.float32)
    given, pc = make(large), dy.ParameterCollection()
    p, table = pc.add_parameters((500, 40)), pc.add_lookup_parameters((500, 40))
    x = dy.inputTensor(make(large), reusable_expr=True)
    dy.sum_elems(dy.inputTensor(large) + p + table[0][0]).value()
    p.set_value(given)
    table.init_from_array(given)
    moved()
    dy.renew_cg()
    x = dy.inputTensor(given, reusable_expr=True)
    y = dy.square(x)
    y.tensor_value()
    x.set(make(large.ravel()))
    y.tensor_value()
    p.set_value(given)
    table.init_from_array(given)
    table.init_row(3, make(large[0]))
    (dy.sum_elems(p) + dy.sum_elems(dy.lookup(table, 3))).tensor_value()
    up, down = moved()
    assert up < 20_000 and down == 0, "launch records only"


@pytest.mark.parametrize("make", PRODUCERS)
def test_inputs_that_are_set(dy: Any, make: Any) -> None:
    """In any order with the host's, and however often the graph runs again."""
    x, z = dy.inputTensor(A, reusable_expr=True), dy.vecInput(4)
    w = dy.inputVector(make(A[0]))
    y = x * (z + w)
    rng = np.random.default_rng(1)
    for trial in range(30):
        a, b = rng.normal(size=(3, 4)).astype(np.float32), rng.normal(size=4).astype(np.float32)
        x.set(make(a.T.ravel()) if trial % 2 else a.T.ravel().tolist())
        z.set(make(b) if trial % 3 else b.tolist())
        if trial % 5 == 0:
            assert np.allclose(x.npvalue(), a)
        assert np.allclose(y.npvalue(), a @ (b + A[0]), atol=1e-5)
        if trial % 7 == 0:
            dy.squared_norm(y).backward(full=True)
            assert np.allclose(x.gradient(), 2 * np.outer(y.npvalue(), b + A[0]), atol=1e-3)
    with pytest.raises(ValueError, match=r"set\(\): expected 4 values for \{4\}, got 3"):
        z.set(make(np.ones(3, np.float32)))
    with pytest.raises(ValueError, match="reusable_expr"):
        dy.inputTensor(A).set(make(A.ravel()))


@pytest.mark.parametrize("make", PRODUCERS)
def test_inputs_survive_what_graphs_do(dy: Any, make: Any) -> None:
    x = dy.inputTensor(make(A))
    view = dy.reshape(x, (12,))
    dy.cg_checkpoint()
    other = dy.inputTensor(make(A + 1))
    assert np.array_equal(dy.square(other).npvalue(), (A + 1) ** 2)
    dy.cg_revert()
    again = dy.inputTensor(A + 2)  # in the same place
    assert np.array_equal(dy.square(again).npvalue(), (A + 2) ** 2)
    assert view.vec_value() == A.T.ravel().tolist()
    for _ in range(3):  # the arena grows
        dy.inputTensor(np.ones((100, 1000)))
        assert np.array_equal(dy.square(x).npvalue(), A**2) and np.array_equal(x.npvalue(), A)
    dy.renew_cg()
    fresh = dy.inputTensor(A + 5)
    assert np.array_equal(dy.square(fresh).npvalue(), (A + 5) ** 2) and np.array_equal(fresh.npvalue(), A + 5)


@pytest.mark.parametrize("make", PRODUCERS)
def test_gradients_of_inputs(dy: Any, make: Any) -> None:
    x = dy.inputTensor(make(A))
    shared = dy.square(x) + dy.square(x)  # one node for both
    dy.sum_elems(shared).backward(full=True)
    assert np.array_equal(x.gradient(), 4 * A)


@pytest.mark.parametrize("make", PRODUCERS)
def test_parameters(dy: Any, make: Any) -> None:
    pc = dy.ParameterCollection()
    p, table = pc.add_parameters((3, 4)), pc.add_lookup_parameters((5, 3, 4))
    before = table.as_array()
    dy.renew_cg()
    old = p + 0  # the graph keeps the values that it has seen
    seen_before = old.npvalue()
    p.set_value(make(A.astype(np.float16)))
    assert np.array_equal(p.as_array(), A) and np.array_equal(old.npvalue(), seen_before)
    rows = np.random.default_rng(2).normal(size=(2, 3, 4)).astype(np.float32)
    table.init_from_array(make(rows.transpose(0, 2, 1).copy().transpose(0, 2, 1)))
    assert np.array_equal(table.as_array()[:2], rows.astype(np.float64))
    assert np.array_equal(table.as_array()[2:], before[2:])
    table.init_from_array(make(np.arange(24.0).reshape(2, 12)))  # (rows, width)
    assert np.array_equal(table.row_as_array(1), np.arange(12.0, 24).reshape(4, 3).T)
    table.init_row(4, make(np.arange(12.0)))
    assert np.array_equal(table.row_as_array(4), np.arange(12.0).reshape(4, 3).T)
    trainer = dy.SimpleSGDTrainer(pc, 0.5)
    trainer.set_clip_threshold(0)
    dy.renew_cg()
    (dy.sum_elems(p) + dy.sum_elems(table[1])).backward()
    trainer.update()
    p_after = p.as_array()
    assert np.allclose(p_after, A - 0.5)
    assert np.allclose(table.row_as_array(1), np.arange(12.0, 24).reshape(4, 3).T - 0.5)
    p.set_gradient(make(A))  # as anything that wants numbers, by the way through the host
    assert np.array_equal(p.grad_as_array(), A)
    with pytest.raises(ValueError, match=r"set_value\(\): got an array of shape .4, 3.; /_0 has \{3,4\}"):
        p.set_value(make(A.T))
    with pytest.raises(ValueError, match=r"init_from_array\(\): got an array of shape .6, 12."):
        table.init_from_array(make(np.ones((6, 12))))
    with pytest.raises(ValueError, match=r"init_row\(\): got 3 values"):
        table.init_row(0, make(np.ones(3)))


@pytest.mark.parametrize("make", PRODUCERS)
def test_shapes_are_taken_as_numpys(dy: Any, make: Any) -> None:
    x, table = dy.vecInput(12), dy.ParameterCollection().add_lookup_parameters((2, 3, 4))
    for given in (A, make(A)):
        for call in (dy.inputVector, x.set, lambda array: table.init_row(0, array)):
            with pytest.raises(TypeError, match="expected a list of numbers or a 1-D array for"):
                call(given)
    x.set(make(A.reshape(12, 1)))
    assert x.value() == A.ravel().tolist()
    batched = dy.inputTensor([make(A), make(A + 1)])
    assert batched.dim() == ((3, 4), 2)
    assert np.array_equal(batched.npvalue(), dy.inputTensor([A, A + 1]).npvalue())
    scalar = dy.scalarInput(1)
    y = scalar * 2
    scalar.set(make(np.full(1, 4, np.float32)))
    assert y.value() == 8
    with pytest.raises(TypeError, match=r"set\(\): expected a number for value"):
        scalar.set(make(A))


# ---------------------------------------------------------------- handed out


def test_tensors_outlive_graphs(dy: Any) -> None:
    x = dy.inputTensor(A)
    y = dy.square(x)
    tensor, taken = y.tensor_value(), Taken(y.__dlpack__(stream=-1, max_version=(1, 0)))
    assert tensor.__dlpack_device__() == (2, 0) == y.__dlpack_device__() == taken.device
    about = tensor.__cuda_array_interface__
    assert about["version"] == 3 and about["typestr"] == "<f4" and about["data"][1] is True
    view = seen(tensor)
    assert not taken.read_only, "the consumer's own copy"
    taken.numpy()[...] += 1
    dy.renew_cg()
    for _ in range(4):
        dy.square(dy.inputTensor(np.full((300, 300), 9.0))).npvalue()
        dy.renew_cg()
    assert np.array_equal(view, A**2) and np.array_equal(taken.numpy(), A**2 + 1)
    assert np.array_equal(tensor.as_numpy(), A**2) and tensor.argmax().as_numpy().tolist() == [[2] * 4]
    taken.delete()
    batch = dy.inputTensor(A, batched=True).tensor_value()
    assert np.array_equal(seen(batch), A)
    assert seen(dy.inputTensor(A)[1].tensor_value()).tolist() == A[1].tolist()


def test_every_kind_of_node(dy: Any) -> None:
    pc = dy.ParameterCollection()
    p, table = pc.add_parameters((3, 4)), pc.add_lookup_parameters((5, 3))
    nodes = [
        dy.inputTensor(A), dy.inputTensor(ByInterface(A)), dy.reshape(dy.inputTensor(ByInterface(A)), (4, 3)),
        dy.scalarInput(3), dy.zeros((2, 2)), dy.random_normal((2, 3)), p, p[1], table, table[2], p * 2,
        dy.const_parameter(p), dy.inputTensor(A)[0:2], dy.square(dy.inputTensor(A))[1:3],
    ]  # fmt: skip
    for node in nodes:
        assert np.array_equal(seen(node.tensor_value()), node.npvalue().astype(np.float32))
    x = dy.scalarInput(3)
    y = x * 2
    assert y.tensor_value().as_numpy().tolist() == [6]
    x.set(4)
    assert y.tensor_value(recalculate=True).as_numpy().tolist() == [8]


def test_arguments_of_dlpack(dy: Any) -> None:
    y = dy.square(dy.inputTensor(A))
    tensor = y.tensor_value()
    for stream in (None, -1, 1, 2, 2**40):
        for version in (None, (0, 8), (1, 0), (1, 1)):
            taken = Taken(tensor.__dlpack__(stream=stream, max_version=version))
            assert taken.versioned == (version is not None and version[0] == 1)
            assert np.array_equal(taken.numpy(), A**2)
            shares = taken.array.data == tensor.__cuda_array_interface__["data"][0]
            assert shares == taken.versioned == taken.read_only, "who cannot be told gets a copy"
            taken.delete()
    for stream in (0, -2, 1.5, "1", True):
        with pytest.raises(BufferError, match="expected a stream of None, -1, 1, 2 or a handle"):
            tensor.__dlpack__(stream=stream)
    with pytest.raises(BufferError, match="no way to know that memory is read-only"):
        tensor.__dlpack__(copy=False)
    own = Taken(tensor.__dlpack__(max_version=(1, 0), copy=True))
    assert not own.read_only and own.array.data != tensor.__cuda_array_interface__["data"][0]
    view = Taken(tensor.__dlpack__(max_version=(1, 0)))
    assert own.copied and not view.copied
    own.delete()
    view.delete()
    with pytest.raises(BufferError, match=r"values are on \(2, 0\)"):
        tensor.__dlpack__(dl_device=(2, 3))
    with pytest.raises(BufferError, match="CPU's memory is another"):
        tensor.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match="life of a graph"):
        y.__dlpack__(copy=False)
    for owner in (y, tensor):
        host = Taken(owner.__dlpack__(dl_device=(1, 0), max_version=(1, 0)))
        assert host.device == (1, 0) and np.array_equal(host.numpy(), A**2)
        host.delete()
    del y
    tensor.__dlpack__()  # nobody takes it


def test_parameters_while_they_are_trained(dy: Any) -> None:
    """A view has the values of its moment; the engine writes elsewhere. Old memory goes with its views."""
    pc = dy.ParameterCollection()
    p, table = pc.parameters_from_numpy(A, name="p"), pc.lookup_parameters_from_numpy(A, name="t")
    trainer = dy.SimpleSGDTrainer(pc, 0.5)
    trainer.set_clip_threshold(0)
    kept = []
    for step in range(4):
        for owner in (p, table):
            taken = Taken(owner.__dlpack__(max_version=(1, 0)))
            assert taken.read_only and taken.device == (2, 0) == owner.__dlpack_device__()
            kept.append((taken, A - 0.5 * step))
            with pytest.raises(BufferError, match="no way to know"):
                owner.__dlpack__(copy=False)
        dy.renew_cg()
        (dy.sum_elems(p) + dy.sum_elems(dy.concatenate_cols([table[i] for i in range(3)]))).backward()
        trainer.update()
        p.set_value(p) if step == 2 else None
    for taken, values in kept:
        assert np.allclose(taken.numpy(), values)
    assert np.allclose(p.as_array(), A - 2) and np.allclose(table.as_array(), A - 2)
    del p, table, owner, trainer, pc
    gc.collect()
    dy.renew_cg()
    dy.square(dy.inputTensor(np.ones((50, 50)))).npvalue()
    for taken, values in kept:
        assert np.allclose(taken.numpy(), values)
        taken.delete()


def test_memory_does_not_grow(dy: Any) -> None:
    pc = dy.ParameterCollection()
    p = pc.parameters_from_numpy(A)
    trainer = dy.SimpleSGDTrainer(pc, 0.1)
    places = set()
    for _ in range(30):
        taken = Taken(p.__dlpack__(max_version=(1, 0)))
        places.add(taken.array.data)
        dy.renew_cg()
        dy.squared_norm(p).backward()
        trainer.update()
        taken.delete()
    assert len(places) <= 4


def test_weight_decay(dy: Any) -> None:
    pc = dy.ParameterCollection()
    pc.set_weight_decay(0.25)
    p = pc.parameters_from_numpy(A)
    trainer = dy.SimpleSGDTrainer(pc, 0.0)
    dy.renew_cg()
    dy.squared_norm(p).backward()
    trainer.update()
    with pytest.raises(BufferError, match="weight decay"):
        p.__dlpack__(copy=False, max_version=(1, 0))
    taken = Taken(p.__dlpack__(max_version=(1, 0)))
    dy.renew_cg()
    assert np.allclose(taken.numpy(), p.npvalue()) and not np.allclose(taken.numpy(), p.as_array())
    taken.delete()


def test_gradients(dy: Any) -> None:
    pc = dy.ParameterCollection()
    p, table = pc.parameters_from_numpy(A), pc.lookup_parameters_from_numpy(A)
    trainer = dy.SimpleSGDTrainer(pc, 0.1)
    assert not seen(p.grad_as_tensor()).any() and not seen(table.grad_as_tensor()).any()
    (dy.squared_norm(p) + dy.squared_norm(table[2])).backward()
    moved()
    tensors = p.grad_as_tensor(), table.grad_as_tensor()
    assert moved() == (0, 0), "on the device"
    wanted = p.grad_as_array(), table.grad_as_array()
    trainer.update()
    dy.renew_cg()
    for tensor, gradient in zip(tensors, wanted):
        assert np.array_equal(seen(tensor), gradient) and np.array_equal(tensor.as_numpy(), gradient)
        assert tensor.__dlpack_device__() == (2, 0)


def test_no_interface_that_cannot_keep_memory(dy: Any) -> None:
    """Its consumer keeps the object, and says not when it is done."""
    p = dy.ParameterCollection().add_parameters(3)
    for owner in (dy.inputTensor(A), p):
        assert not hasattr(owner, "__cuda_array_interface__")
        with pytest.raises(AttributeError, match=r"x\.tensor_value\(\) has it"):
            owner.__cuda_array_interface__  # noqa: B018


def test_from_one_graph_to_the_next(dy: Any) -> None:
    """Our own tensors are arrays of the device, too."""
    tensor = dy.square(dy.inputTensor(A)).tensor_value()
    dy.renew_cg()
    moved()
    x = dy.inputTensor(tensor)
    assert moved() == (0, 0) and np.array_equal(x.npvalue(), A**2)
    for wrong in (x, dy.ParameterCollection().add_parameters(2)):
        with pytest.raises(TypeError, match="expected an array or a list"):
            dy.inputTensor(wrong)


def test_the_host_goes_on_without_memory(dy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy is asked for where its arrays are wanted."""
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    with pytest.raises(ImportError, match="pip install cupy-cuda12x"):
        dy.inputTensor(A).npvalue(device="GPU:0")
    assert np.array_equal(dy.inputTensor(A).npvalue(device="CPU"), A)


# ---------------------------------------------------------------- CuPy


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module in CuPy's place, which can read the emulation's memory."""
    from dynet_compat.api import device_arrays as arrays
    from support import fake_cupy

    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    monkeypatch.setattr(arrays, "_is_emulated", lambda: False)
    return fake_cupy


def test_arrays_of_cupy(dy: Any, cupy: Any) -> None:
    y = dy.square(dy.inputTensor(A))
    arrays = y.npvalue(device="GPU:0"), cupy.asarray(y), cupy.asarray(y.tensor_value())
    p = dy.ParameterCollection().parameters_from_numpy(A)
    own = cupy.asarray(p)
    p.set_value(cupy.asarray(y) + 1)
    dy.renew_cg()
    gc.collect()
    dy.square(dy.inputTensor(np.ones((50, 50)))).npvalue()
    assert all(np.array_equal(array, A**2) for array in arrays) and np.array_equal(own, A)
    assert np.array_equal(p.as_array(), A**2 + 1)
    x = dy.inputTensor(arrays[0])
    assert np.array_equal(x.npvalue(), A**2)


@pytest.mark.parametrize("by_protocol", [True, False])
def test_functions_get_cupys_arrays(
    dy: Any, cupy: Any, by_protocol: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the stream of the package, so that neither waits."""
    other = "ExternalStream" if by_protocol else "Stream"  # CuPy 14 warns of the first, 13 has no protocol
    monkeypatch.setattr(cupy.cuda, other, type(other, (), {}))
    stream, kinds, streams = _core._stream(), set(), set()

    def forward(x: Any) -> Any:
        kinds.add(type(x))
        streams.add(cupy.current[-1])
        return x * x

    op = dy.cupy_op(forward, lambda x, y, d: 2 * x * d)
    x = dy.inputTensor(A)
    dy.renew_cg()
    x = dy.inputTensor(ByInterface(A))
    y = op(dy.square(x))
    moved()
    y.tensor_value()
    up, down = moved()
    assert down == 0 and up < 2000, "no value goes through the host"
    dy.sum_elems(y).backward(full=True)
    assert np.array_equal(y.npvalue(), A**4) and np.array_equal(x.gradient(), 4 * A**3)
    assert kinds == {cupy.Array} and streams == {stream}


def test_another_pool(dy: Any, cupy: Any) -> None:
    """Memory comes from it, in the order of the package's stream, and goes back to it."""
    pool = cupy.cuda.MemoryPool()
    dy.set_device_allocator(pool.malloc)
    try:
        pc = dy.ParameterCollection()
        p = pc.add_parameters((40, 30))
        trainer = dy.AdamTrainer(pc)
        for _ in range(3):
            dy.renew_cg()
            y = p * dy.inputTensor(np.ones((30, 5)))
            tensor = y.tensor_value()
            dy.squared_norm(dy.tanh(y)).backward()
            trainer.update()
        used = pool.used
        assert used > 4 * 40 * 30 * 4 and pool.streams == {_core._stream()}
        before = y.npvalue()
        waits = _core.timing()["device_waits_for_all"]
        del tensor
        gc.collect()
        assert pool.used < used
        assert _core.timing()["device_waits_for_all"] == waits + 1, "others may still have read it"
    finally:
        dy.set_device_allocator(None)
    dy.renew_cg()
    big = dy.square(dy.inputTensor(np.ones((500, 500))))  # the arena leaves the pool
    assert big.npvalue().sum() == 250_000 and np.isfinite(before).all() and pool.used < used


def test_pools_that_fail(dy: Any, cupy: Any) -> None:
    large = np.ones((300, 301))

    def raises(size: int) -> Any:
        raise KeyError("no")

    calls = [
        (cupy.cuda.MemoryPool(1000).malloc, MemoryError, "out of memory on the device: .*the pool is empty"),
        (raises, RuntimeError, "the allocator of device memory raised KeyError"),
        (lambda size: 5, RuntimeError, "has no attribute 'ptr'"),
        (
            lambda size: SimpleNamespace(ptr=8),
            RuntimeError,
            "the address 8; wanted a multiple of 256",
        ),
        (lambda size: dy.ones(2), RuntimeError, "cannot use expressions, parameters or graphs"),
    ]
    for n, (allocator, error, words) in enumerate(calls):
        dy.renew_cg()
        x = dy.inputTensor(np.ones((300 + n, 400)))
        dy.set_device_allocator(allocator)
        try:
            with pytest.raises(error, match=words):
                dy.inputTensor(ByInterface(large)) if n else dy.inputTensor(ByDlpack(large))
        finally:
            dy.set_device_allocator(None)
        assert dy.sum_elems(x).value() == (300 + n) * 400
    with pytest.raises(TypeError, match="expected a function, got int"):
        dy.set_device_allocator(3)
