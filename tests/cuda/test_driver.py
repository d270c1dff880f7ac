"""The driver backend over a driver without a GPU: copies, kernels, and every fault a GPU can have."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from support import fake_gpu
from support.subject import IS_REFERENCE

pytestmark = [
    pytest.mark.skipif(IS_REFERENCE, reason="our backend"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="libcuda is opened with dlopen"),
    pytest.mark.skipif(not fake_gpu.available(), reason="no compiler"),
]

OUT_OF_MEMORY, BAD_IMAGE, ILLEGAL_ADDRESS, LAUNCH_TIMEOUT = 2, 200, 700, 702
MB = 1 << 20


# ---------------------------------------------------------------- copies and memory


@pytest.mark.parametrize("size", [1, 4, 1000, 4 * MB - 1, 4 * MB, 4 * MB + 1, 37 * MB + 5])
def test_what_goes_up_comes_down(gpu: fake_gpu.Driver, size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    memory = gpu.allocate(size)
    gpu.upload(memory, data)
    assert gpu.download(memory, size) == data


def test_uploads_may_be_overwritten_at_once(gpu: fake_gpu.Driver) -> None:
    """Copies are put off by the driver until someone waits; many small ones go round the pinned memory."""
    count, size = 3000, 9001
    memory = gpu.allocate(count * size)
    buffer = ctypes.create_string_buffer(size)
    for i in range(count):
        ctypes.memset(buffer, i % 251, size)
        gpu.upload(memory + i * size, memoryview(buffer).tobytes())
    whole = np.frombuffer(gpu.download(memory, count * size), np.uint8).reshape(count, size)
    assert (whole == (np.arange(count) % 251)[:, None]).all()


def test_order_of_the_stream(gpu: fake_gpu.Driver) -> None:
    a, b = gpu.allocate(4096), gpu.allocate(4096)
    gpu.fill(a, 1024, 3.0)
    gpu.copy(b, a, 4096)
    gpu.fill(a, 1024, 5.0)
    gpu.clear(b, 16)
    found = np.frombuffer(gpu.download(b, 4096), np.float32)
    assert found[:4].tolist() == [0] * 4 and (found[4:] == 3).all()
    assert (np.frombuffer(gpu.download(a, 4096), np.float32) == 5).all()
    assert gpu.counters() == [2, 0, 2, 2, 0, 8192]


def test_nothing_is_nothing(gpu: fake_gpu.Driver) -> None:
    memory = gpu.allocate(0)
    gpu.upload(memory, b"")
    gpu.clear(memory, 0)
    gpu.copy(memory, memory, 0)
    assert gpu.download(memory, 0)[:0] == b""
    gpu.launch("fill", blocks=0)
    assert gpu.counters() == [0] * 6


def test_memory_is_kept_for_the_next_request(gpu: fake_gpu.Driver, fake: fake_gpu.Fake) -> None:
    first = gpu.allocate(3 * MB)
    gpu.release(first)
    assert gpu.allocate(3 * MB - 100) == first and fake.calls("cuMemAlloc_v2") == 1
    assert gpu.allocate(3 * MB) != first
    gpu.close()
    assert fake.loaded.fake_blocks() == 0 and fake.loaded.fake_used() == 0


def test_kept_memory_goes_before_an_error(gpu: fake_gpu.Driver, fake: fake_gpu.Fake) -> None:
    fake.set("memory", 64 * MB)
    gpu.release(gpu.allocate(40 * MB))
    assert gpu.allocate(60 * MB)


def test_out_of_memory(gpu: fake_gpu.Driver, fake: fake_gpu.Fake) -> None:
    fake.set("memory", 64 * MB)
    memory = gpu.allocate(40 * MB)
    gpu.upload(memory, b"abc")
    with pytest.raises(MemoryError) as caught:
        gpu.allocate(30 * MB)
    for words in (
        "GPU:0 (Fake 0)",
        "30 MB asked for",
        "40 MB in use",
        "24 MB of 64 MB free",
        "smaller batches",
    ):
        assert words in str(caught.value)
    assert gpu.download(memory, 3) == b"abc", "the device is as it was"
    with pytest.raises(MemoryError, match="asked for"):
        gpu.allocate(2**63)
    with pytest.raises(MemoryError, match="asked for"):
        gpu.allocate(2**64 - 1)


def test_no_pinned_memory(gpu: fake_gpu.Driver, fake: fake_gpu.Fake) -> None:
    memory = gpu.allocate(8)
    fake.fail("cuMemHostAlloc", 1, OUT_OF_MEMORY)
    with pytest.raises(MemoryError, match="ulimit -l"):
        gpu.upload(memory, b"12345678")
    gpu.upload(memory, b"12345678")  # there is some again
    assert gpu.download(memory, 8) == b"12345678"


# ---------------------------------------------------------------- kernels


def test_kernels_are_compiled_once_and_together(gpu: fake_gpu.Driver, fake: fake_gpu.Fake) -> None:
    gpu.prepare("file", ["fill", "a<1>", "a<2>"])
    assert gpu.asked() == "file sm_90 12080: fill a<1> a<2>"
    gpu.prepare("file", ["a<2>", "fill"])
    gpu.launch("a<1>")
    assert gpu.compilations() == 1 and fake.calls("cuModuleLoadData") == 1
    gpu.prepare("file", ["a<2>", "b"])
    assert gpu.asked() == "file sm_90 12080: b" and gpu.compilations() == 2


def test_launch_compiles_what_is_missing(gpu: fake_gpu.Driver) -> None:
    memory = gpu.allocate(400)
    gpu.fill(memory, 100, 2.5)
    assert (np.frombuffer(gpu.download(memory, 400), np.float32) == 2.5).all()
    assert gpu.compilations() == 1


def test_kernels_outlive_a_backend(gpu: fake_gpu.Driver, driver: fake_gpu.Driver) -> None:
    gpu.prepare("file", ["fill"])
    gpu.close()
    driver.open()
    driver.prepare("file", ["fill"])
    assert driver.compilations() == 1


def test_shared_memory_beyond_the_default_is_asked_for(gpu: fake_gpu.Driver, fake: fake_gpu.Fake) -> None:
    gpu.launch("big", shared=48 << 10)
    assert fake.calls("cuFuncSetAttribute") == 0
    gpu.launch("big", shared=100 << 10)
    gpu.launch("big", shared=90 << 10)
    assert fake.calls("cuFuncSetAttribute") == 1
    assert gpu.resident("big", 256, 150 << 10) == 4 * 8
    with pytest.raises(RuntimeError, match="file.cu: big"):
        gpu.launch("big", shared=300 << 10)


def test_launch_together(gpu: fake_gpu.Driver, fake: fake_gpu.Fake) -> None:
    most = gpu.resident("all", 512)
    gpu.launch("all", blocks=most, threads=512, cooperative=True)
    assert fake.calls("cuLaunchCooperativeKernel") == 1
    with pytest.raises(RuntimeError, match="more blocks than fit"):
        gpu.launch("all", blocks=most + 1, threads=512, cooperative=True)


def test_compiler_fails(gpu: fake_gpu.Driver) -> None:
    gpu.refuse_to_compile("NVRTC is not installed")
    with pytest.raises(RuntimeError, match="NVRTC is not installed"):
        gpu.launch("fill")
    gpu.refuse_to_compile("")
    gpu.launch("anything")


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("broken", "nvidia-cuda-nvrtc-cu12"),
        ("absent", "file.cu: absent"),
        ("forgotten", "lack file.cu: forgotten"),
    ],
)
def test_kernels_that_do_not_load(gpu: fake_gpu.Driver, kernel: str, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        gpu.launch(kernel)
    memory = gpu.allocate(4)  # and the device goes on
    gpu.fill(memory, 1, 1.0)
    assert np.frombuffer(gpu.download(memory, 4), np.float32)[0] == 1


def test_times_on_the_device(gpu: fake_gpu.Driver) -> None:
    memory = gpu.allocate(4)
    gpu.fill(memory, 1, 1.0)
    gpu.wait()
    assert gpu.seconds(False) == gpu.seconds(True) == 0
    gpu.measure(True)
    for _ in range(3):
        gpu.fill(memory, 1, 1.0)
    gpu.clear(memory, 4)
    gpu.wait()
    assert gpu.seconds(False) == pytest.approx(1.5e-3) and gpu.seconds(True) == pytest.approx(0.5e-3)
    gpu.measure(False)
    gpu.fill(memory, 1, 1.0)
    gpu.wait()
    assert gpu.seconds(False) == pytest.approx(1.5e-3)


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize("where", ["wait", "download", "upload"])
def test_a_kernel_that_goes_astray(gpu: fake_gpu.Driver, where: str) -> None:
    """The error appears at the first wait, says what to do, and again at every later call."""
    memory = gpu.allocate(1024)
    gpu.launch("stray")
    if where == "upload":  # waits for the pinned memory to come round
        memory = gpu.allocate(64 * MB)
        action = lambda: gpu.upload(memory, b"x" * (64 * MB))  # noqa: E731
    else:
        action = {"wait": gpu.wait, "download": lambda: gpu.download(memory, 8)}[where]
    with pytest.raises(RuntimeError) as caught:
        action()
    first = str(caught.value)
    for words in (
        "GPU:0 (Fake 0) is lost",
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "compute-sanitizer",
        "save the model",
    ):
        assert words in first
    for again in (
        gpu.wait,
        lambda: gpu.allocate(8),
        lambda: gpu.launch("fill"),
        lambda: gpu.clear(memory, 4),
    ):
        with pytest.raises(RuntimeError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
            again()
    gpu.release(memory)
    gpu.close()
    with pytest.raises(RuntimeError, match="is lost"):
        gpu.open()


@pytest.mark.parametrize(
    "function",
    ["cuMemAlloc_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2",
     "cuMemsetD8Async", "cuEventCreate", "cuEventRecord", "cuEventSynchronize", "cuStreamSynchronize",
     "cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel", "cuMemHostAlloc", "cuCtxSetCurrent"],
)  # fmt: skip
@pytest.mark.parametrize("code", [LAUNCH_TIMEOUT, 999, 1, OUT_OF_MEMORY])
def test_every_call_may_fail(gpu: fake_gpu.Driver, fake: fake_gpu.Fake, function: str, code: int) -> None:
    """Never a crash, always an error with the driver's words."""

    def everything() -> bytes:
        memory = gpu.allocate(64)
        gpu.upload(memory, b"a" * 64)
        gpu.clear(memory, 4)
        gpu.copy(memory + 32, memory, 8)
        gpu.fill(memory, 1, 0.0)
        gpu.wait()
        return gpu.download(memory, 64)

    fake.fail(function, 1, code)
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        everything()
    assert "GPU:0" in str(caught.value)
    assert isinstance(caught.value, MemoryError) == (code == OUT_OF_MEMORY)
    if code in (LAUNCH_TIMEOUT, 999):
        assert "is lost" in str(caught.value)
    else:
        assert everything() == b"\0" * 4 + b"a" * 28 + b"\0" * 4 + b"a" * 28
    gpu.close()


def test_a_forked_process(gpu: fake_gpu.Driver) -> None:
    memory = gpu.allocate(8)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            gpu.upload(memory, b"12345678")
        except RuntimeError as error:
            os.write(write, str(error).encode())
        gpu.close()
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert "spawn" in pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    gpu.upload(memory, b"12345678")
    assert gpu.download(memory, 8) == b"12345678"


# ---------------------------------------------------------------- what a machine lacks


def test_no_library(driver: fake_gpu.Driver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DYNET_COMPAT_LIBCUDA", str(tmp_path / "none.so"))
    with pytest.raises(RuntimeError, match="driver is not installed.*none.so.*DYNET_COMPAT_DEVICE=cpu"):
        driver.open()


def test_old_library(driver: fake_gpu.Driver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = tmp_path / "old.cc"
    source.write_text('extern "C" int cuInit(unsigned) { return 0; }', encoding="utf-8")
    monkeypatch.setenv("DYNET_COMPAT_LIBCUDA", str(fake_gpu.build(tmp_path / "old.so", [source])))
    with pytest.raises(RuntimeError, match="too old, its libcuda has no cuDriverGetVersion"):
        driver.open()


@pytest.mark.parametrize(
    ("order", "device", "words"),
    [
        ("devices=0", 0, "CUDA_ERROR_NO_DEVICE.*CUDA_VISIBLE_DEVICES"),
        ("devices=1", 1, "no GPU:1: this machine has 1 GPU, GPU:0;"),
        ("devices=3", 3, "this machine has 3 GPUs, GPU:0 to GPU:2"),
        ("devices=1", -1, "no GPU:-1"),
    ],
)
def test_no_device(
    driver: fake_gpu.Driver, monkeypatch: pytest.MonkeyPatch, order: str, device: int, words: str
) -> None:
    monkeypatch.setenv("FAKE_CUDA", order)
    with pytest.raises(RuntimeError, match=words):
        driver.open(device)


@pytest.mark.parametrize(
    ("function", "code", "words"),
    [
        ("cuInit", 999, "CUDA_ERROR_UNKNOWN"),
        ("cuInit", 803, "of different versions"),
        ("cuDriverGetVersion", 1, "CUDA_ERROR_INVALID_VALUE"),
        ("cuDevicePrimaryCtxRetain", OUT_OF_MEMORY, "GPU:0.*starting the device"),
        ("cuDevicePrimaryCtxRetain", 101, "GPU is unwell"),
        ("cuStreamCreate", 1, "making a stream"),
        ("cuDeviceGetName", 1, "GPU:0 cannot be used"),
        ("cuDeviceGetCount", 100, "nvidia-smi"),
    ],
)
def test_the_start_fails(
    driver: fake_gpu.Driver, fake: fake_gpu.Fake, function: str, code: int, words: str
) -> None:
    fake.fail(function, 1, code)
    with pytest.raises((RuntimeError, MemoryError), match=words):
        driver.open()
