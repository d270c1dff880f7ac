"""Arrays that go to and from other libraries: by these on the CPU, by stubs on a device."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from support import fake_gpu, nvrtc
from support.emulated import passes
from support.subject import IS_REFERENCE, ON_DEVICE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="additions")
A = np.arange(12, dtype=np.float32).reshape(3, 4)
on_the_cpu = pytest.mark.skipif(ON_DEVICE, reason="what the CPU answers; devices: test_exchange_on_device.py")


def test_on_the_emulation() -> None:
    passes(
        "tests/cuda/test_exchange_on_device.py",
        "tests/cuda/test_exchange_refused.py",
        "tests/graph/test_user_ops.py",
    )


# ---------------------------------------------------------------- on the CPU


class Strange:
    """An array of a GPU, for a program that computes on the CPU."""

    def __init__(self, **members: Any) -> None:
        self.__dict__.update(members)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 3

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("asked for")


@on_the_cpu
def test_arrays_of_a_gpu_are_refused(dy: Any) -> None:
    pc = dy.ParameterCollection()
    p, table = pc.add_parameters(3), pc.add_lookup_parameters((4, 3))
    interface = {"shape": (3,), "typestr": "<f4", "data": (0, False), "version": 3}
    for given, where in ((Strange(), "GPU:3"), (Strange(__cuda_array_interface__=interface), "a GPU")):
        for call in (
            dy.inputTensor, dy.inputVector, dy.vecInput(3).set, p.set_value, table.init_from_array,
            lambda array: table.init_row(0, array), p.set_gradient,
        ):  # fmt: skip
            with pytest.raises(ValueError, match=f"it is on {where}, and this program computes on the CPU"):
                call(given)
    assert p.has_gradient() is False


def test_what_is_no_array_is_on_no_gpu(dy: Any) -> None:
    """A mock has members of any name, and an interface is a dict."""
    p = dy.ParameterCollection().add_parameters(3)
    for given in (Mock(), Strange(__cuda_array_interface__="text")):
        for call in (dy.inputTensor, dy.inputVector, p.set_value, dy.vecInput(3).set):
            with pytest.raises((TypeError, ValueError)) as caught:
                call(given)
            assert "(): " in str(caught.value) and "it is on" not in str(caught.value)


class Bare:
    """DLPack and nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.array.__dlpack__(**keywords)


def test_dlpack_of_the_cpu(dy: Any) -> None:
    pc = dy.ParameterCollection()
    p, table = pc.add_parameters((3, 4)), pc.add_lookup_parameters((3, 4))
    for array in (A, A.T.copy().T, A.astype(np.float64), A[:, ::-1].astype(np.int32)):
        given = Bare(array)
        assert np.array_equal(dy.inputTensor(given).npvalue(), array)
        batched = dy.inputTensor(given, batched=True)
        assert batched.dim() == ((3,), 4)
        x = dy.inputTensor(A, reusable_expr=True)
        assert dy.inputVector(Bare(array[1])).value() == array[1].tolist()
        x.set(Bare(array.T.ravel()))
        assert np.array_equal(x.npvalue(), array)
        p.set_value(given)
        table.init_from_array(given)
        assert np.array_equal(p.as_array(), array) and np.array_equal(table.as_array(), array)
        table.init_row(2, Bare(array[0]))
        assert np.array_equal(table.row_as_array(2), array[0])
    with pytest.raises(TypeError, match="real numbers|complex"):
        dy.inputTensor(Bare(A.astype(np.complex64)))


@on_the_cpu
def test_expressions_hand_themselves_out(dy: Any) -> None:
    y = dy.square(dy.inputTensor(A))
    taken = np.from_dlpack(y)
    assert y.__dlpack_device__() == (1, 0) and taken.dtype == np.float32
    dy.renew_cg()
    assert np.array_equal(taken, A**2)
    y = dy.square(dy.inputTensor(A))
    with pytest.raises(BufferError, match="life of a graph"):
        y.__dlpack__(copy=False)
    with pytest.raises(BufferError, match="a stream"):
        y.__dlpack__(stream=1)
    assert y.npvalue(device="CPU").dtype == np.float64 and y.npvalue(False, "").shape == (3, 4)
    with pytest.raises(RuntimeError, match="available devices"):
        y.npvalue(device="GPU:7")
    p = dy.ParameterCollection().parameters_from_numpy(A)
    dy.squared_norm(p).backward()
    assert np.array_equal(np.from_dlpack(p.grad_as_tensor()), 2 * A)


@on_the_cpu
def test_torch(dy: Any) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    p = dy.ParameterCollection().add_parameters((3, 4))
    for given in (tensor, tensor.t(), tensor.double(), tensor.half(), tensor.int(), tensor[:, 1:]):
        assert np.array_equal(dy.inputTensor(given).npvalue(), given.double().numpy())
    assert dy.inputVector(tensor[1]).value() == [4, 5, 6, 7]
    p.set_value(tensor)
    assert np.array_equal(p.as_array(), tensor.numpy())
    y = dy.square(dy.inputTensor(tensor))
    mine = torch.from_dlpack(y)
    mine += 1
    dy.renew_cg()
    assert np.array_equal(mine.numpy(), A**2 + 1)
    assert torch.equal(torch.from_dlpack(p), tensor)
    dy.squared_norm(p).backward()
    assert torch.equal(torch.from_dlpack(p.grad_as_tensor()), 2 * tensor)
    with pytest.raises((BufferError, RuntimeError, ValueError), match="grad"):
        dy.inputTensor(tensor.requires_grad_())


@on_the_cpu
def test_cupy_asks_as_it_is_answered(dy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy's import needs no GPU, and its asarray() none before it has the array."""
    cupy = pytest.importorskip("cupy")
    from dynet_compat.api import device_arrays as arrays

    asked = []

    def answer(array: Any) -> Any:
        asked.append(np.asarray(array))
        raise KeyError("no GPU is needed until here")

    monkeypatch.setattr(arrays, "as_cupy", answer)
    p = dy.ParameterCollection().parameters_from_numpy(A)
    for owner in (dy.inputTensor(A), p):
        with pytest.raises(KeyError, match="no GPU"):
            cupy.asarray(owner)
    assert all(np.array_equal(values, A) for values in asked) and len(asked) == 2


def test_cupys_stream_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy 14 warns of what it is to remove."""
    cupy = pytest.importorskip("cupy")
    from dynet_compat.api import device_arrays as arrays

    monkeypatch.setattr(arrays._core, "_stream", lambda: 4096)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream = arrays.cupy_stream(cupy.cuda)
    assert stream.ptr == 4096


# ---------------------------------------------------------------- the driver's side


@pytest.mark.skipif(not fake_gpu.available(), reason="no compiler")
def test_streams_are_ordered(gpu: fake_gpu.Driver, fake: fake_gpu.Fake) -> None:
    own, other = gpu.stream(), 0x1234
    gpu.wait_for(other)
    assert fake.orders()[-1] == (other, own), "an event of theirs, for which we wait"
    gpu.make_wait(1)
    assert fake.orders()[-1] == (own, 1)


@pytest.mark.skipif(not fake_gpu.available(), reason="no compiler")
def test_memory_of_another_device(gpu: fake_gpu.Driver, fake: fake_gpu.Fake) -> None:
    memory = gpu.allocate(1000)
    gpu.check_memory(memory, 1000)
    for start, size in ((0x10, 8), (memory, 1 << 30)):
        with pytest.raises(RuntimeError, match="not that of a GPU"):
            gpu.check_memory(start, size)
    fake.set("pointers_on", 3)
    with pytest.raises(RuntimeError, match="it is on GPU:3, and this program computes on GPU:0"):
        gpu.check_memory(memory, 1000)


@pytest.mark.skipif(not fake_gpu.available(), reason="no compiler")
def test_shared_memory_waits_for_all_streams(gpu: fake_gpu.Driver, fake: fake_gpu.Fake) -> None:
    """Another library may still read what it gave back; memory that only we had is used again at once."""
    first, second = gpu.allocate(100_000), gpu.allocate(100_000)
    gpu.release(first, shared=True)
    gpu.release(second)
    assert gpu.allocate(100_000) == second and fake.calls("cuCtxSynchronize") == 0
    assert gpu.allocate(100_000) == first and fake.calls("cuCtxSynchronize") == 1


@pytest.mark.skipif(not fake_gpu.available(), reason="no compiler")
def test_memory_of_an_allocator_waits_for_all_streams(gpu: fake_gpu.Driver, fake: fake_gpu.Fake) -> None:
    memory = gpu.allocate(1000)
    gpu.disown(memory, shared=False)
    assert fake.calls("cuCtxSynchronize") == 0
    gpu.disown(memory, shared=True)
    assert fake.calls("cuCtxSynchronize") == 1


WAITS = """
import ctypes, os, threading, time
import dynet_compat as dy
fake = ctypes.CDLL(os.environ["DYNET_COMPAT_LIBCUDA"])
def allocate(size):
    block = type("Block", (), {})()
    memory = ctypes.c_uint64()
    assert fake.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(size + 256)) == 0
    block.ptr = -(-memory.value // 256) * 256
    return block
if POOL == "script":
    dy._core._set_allocator(allocate)
x = dy.inputVector([1.0] * 50_000)
tensors = [dy.square(x).tensor_value()]
def tell():
    while fake.fake_waits_for_word() < 2:
        time.sleep(0.001)
    fake.fake_tell()
thread = threading.Thread(target=tell, daemon=True)
thread.start()
fake.fake_wait_for_word()
tensors.clear()
dy.square(x).tensor_value()
print(fake.fake_waits_for_word())
"""


@pytest.mark.skipif(not fake_gpu.available() or nvrtc.found() is None, reason="no compiler or no NVRTC")
@pytest.mark.parametrize("pool", ["own", "script"])
def test_a_wait_for_other_streams_is_without_the_interpreter(tmp_path: Path, pool: str) -> None:
    """They may be waiting for a function of Python's."""
    machine = {
        "DYNET_COMPAT_LIBCUDA": str(fake_gpu.build_fake(tmp_path)),
        "DYNET_COMPAT_CACHE": str(tmp_path / "cache"),
        "DYNET_COMPAT_DEVICE": "gpu",
        "FAKE_CUDA": "version=13000",
    }
    done = subprocess.run([sys.executable, "-c", WAITS.replace("POOL", repr(pool))], capture_output=True,
                          env={**os.environ, **machine}, text=True, timeout=300, check=False)  # fmt: skip
    assert done.stdout == "3\n", done.stdout + done.stderr
