"""cuBLAS for large products: where it is found, what it is asked for, and every fault, without a GPU."""

from __future__ import annotations

import ctypes
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import fake_gpu, nvrtc
from support.subject import IS_REFERENCE

pytestmark = [
    pytest.mark.skipif(IS_REFERENCE, reason="our backend"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="libraries are opened with dlopen"),
    pytest.mark.skipif(not fake_gpu.available(), reason="no compiler"),
]

Array = np.ndarray
ILLEGAL_ADDRESS = 700
MB = 1 << 20


@pytest.fixture
def gpu(driver: fake_gpu.Driver, fake: fake_gpu.Fake) -> fake_gpu.Driver:
    driver.open()
    driver.set_libraries(fake.path)
    return driver


# ---------------------------------------------------------------- products


def put(gpu: fake_gpu.Driver, values: Array) -> int:
    data = values.astype(np.float32).tobytes(order="F")
    memory = gpu.allocate(len(data))
    gpu.upload(memory, data)
    return memory


def product(
    gpu: fake_gpu.Driver, turn_a: bool, turn_b: bool, add: bool, further: int, precision: int = 0
) -> tuple[Array, Array]:
    """Found and expected; columns lie `further` floats apart than they need."""
    rng = np.random.default_rng(5)
    m, n, inner = 5, 3, 7
    a, b, c = (rng.integers(-9, 9, shape).astype(np.float64) for shape in ((m, inner), (inner, n), (m, n)))
    lying = [x.T if turned else x for x, turned in ((a, turn_a), (b, turn_b), (c, False))]
    wide = [np.vstack([x, np.full((further, x.shape[1]), 1e9)]) for x in lying]
    places = [put(gpu, x) for x in wide]
    strides = [x.shape[0] for x in wide]
    gpu.gemm((m, n, inner), (places[0], strides[0], turn_a), (places[1], strides[1], turn_b),
             (places[2], strides[2]), add, precision)  # fmt: skip
    data = gpu.download(places[2], 4 * wide[2].size)
    found = np.frombuffer(data, np.float32).reshape(wide[2].shape, order="F")
    wide[2][:m] = a @ b + (c if add else 0)
    return found, wide[2].astype(np.float32)


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize(("turn_a", "turn_b"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("further", [0, 3])
def test_products(gpu: fake_gpu.Driver, turn_a: bool, turn_b: bool, add: bool, further: int) -> None:
    """In the stream's order: factors that were just sent up, results that come down."""
    assert gpu.has_gemm()
    found, wanted = product(gpu, turn_a, turn_b, add, further)
    assert found.tolist() == wanted.tolist()
    assert gpu.counters()[0] == 1, "a call counts as a launch"


@pytest.mark.parametrize(("precision", "compute"), [(0, 68), (1, 77), (2, 75)])
def test_products_by_tensor_cores(
    gpu: fake_gpu.Driver, fake: fake_gpu.Fake, precision: int, compute: int
) -> None:
    """CUBLAS_COMPUTE_32F, _FAST_TF32 and _FAST_16BF. Whole numbers are the same in each."""
    assert gpu.has_gemm()
    found, wanted = product(gpu, True, False, True, 3, precision)
    numbers = (ctypes.c_int * 6)()
    fake.loaded.fake_last_product(numbers)
    assert found.tolist() == wanted.tolist() and list(numbers) == [1, 0, 5, 3, 7, compute]


def test_the_library_is_set_up_once(gpu: fake_gpu.Driver, fake: fake_gpu.Fake) -> None:
    """Our stream, then our workspace, which the stream takes away; no TF32. The fake refuses others."""
    assert gpu.gemm_library() == ""
    assert gpu.has_gemm() and gpu.has_gemm()
    log = [line for line in fake.log() if line.startswith("cublas")]
    order = [log.index(name) for name in ("cublasCreate_v2", "cublasSetStream_v2", "cublasSetWorkspace_v2")]
    assert order == sorted(order) and log.count("cublasCreate_v2") == 1 and "cublasSetMathMode" in log
    assert gpu.gemm_library() == f"cuBLAS 130002, {fake.path}"
    assert fake.loaded.fake_handles() == 1 and fake.loaded.fake_used() >= 32 * MB
    gpu.close()
    assert fake.loaded.fake_handles() == 0 and fake.loaded.fake_used() == 0


def test_times_of_products(gpu: fake_gpu.Driver) -> None:
    assert gpu.has_gemm()
    gpu.measure(True)
    product(gpu, False, False, False, 0)
    gpu.wait()
    assert gpu.seconds(False) == pytest.approx(0.5e-3)


# ---------------------------------------------------------------- faults


def test_no_library(gpu: fake_gpu.Driver, tmp_path: Path) -> None:
    gpu.set_libraries()
    assert not gpu.has_gemm() and gpu.gemm_library() == "none: no libcublas was found"
    gpu.set_libraries(tmp_path / "late.so")
    assert not gpu.has_gemm() and "late" not in gpu.gemm_library(), "it is looked for once"


def test_the_next_library_is_tried(gpu: fake_gpu.Driver, fake: fake_gpu.Fake, tmp_path: Path) -> None:
    source = tmp_path / "half.cc"
    source.write_text('extern "C" int cublasCreate_v2(void**) { return 0; }', encoding="utf-8")
    half = fake_gpu.build(tmp_path / "half.so", [source])
    gpu.set_libraries(tmp_path / "none.so", half)
    assert not gpu.has_gemm()
    told = gpu.gemm_library()
    assert told.startswith("none: ") and f"{half} has no cublasDestroy_v2" in told and "none.so" in told
    gpu.close()
    gpu.open()
    gpu.set_libraries(tmp_path / "none.so", half, fake.path)
    assert gpu.has_gemm() and str(fake.path) in gpu.gemm_library()


@pytest.mark.parametrize(
    ("function", "status", "words"),
    [
        ("cublasCreate_v2", 1, "CUBLAS_STATUS_NOT_INITIALIZED"),
        ("cublasCreate_v2", 8, "CUBLAS_STATUS_ARCH_MISMATCH"),
        ("cublasSetStream_v2", 7, "cublasSetStream_v2: CUBLAS_STATUS_INVALID_VALUE"),
        ("cublasSetWorkspace_v2", 14, "cublasSetWorkspace_v2: CUBLAS_STATUS_INTERNAL_ERROR"),
        ("cublasSetMathMode", 99, "cublasSetMathMode: cuBLAS status 99"),
        ("cuMemAlloc_v2", 2, "asked for"),
    ],
)
def test_a_library_that_does_not_start(
    gpu: fake_gpu.Driver, fake: fake_gpu.Fake, function: str, status: int, words: str
) -> None:
    """There is none then; nothing of it is left, and the device goes on."""
    used, handles = fake.loaded.fake_used(), fake.loaded.fake_handles()
    fake.fail(function, 1, status)
    if function == "cuMemAlloc_v2":
        fake.set("memory", used + MB)
    assert not gpu.has_gemm()
    assert gpu.gemm_library().startswith("none: ") and words in gpu.gemm_library()
    assert fake.loaded.fake_handles() == handles
    memory = gpu.allocate(4)
    gpu.fill(memory, 1, 1.0)
    assert np.frombuffer(gpu.download(memory, 4), np.float32)[0] == 1


def test_a_product_that_fails(gpu: fake_gpu.Driver, fake: fake_gpu.Fake) -> None:
    assert gpu.has_gemm()
    fake.fail("cublasSgemm_v2", 1, 13)
    with pytest.raises(RuntimeError) as caught:
        product(gpu, False, False, False, 0)
    for words in ("GPU:0 (Fake 0)", "cuBLAS 130002", str(fake.path), "5 x 7 and 7 x 3",
                  "CUBLAS_STATUS_EXECUTION_FAILED", "DYNET_COMPAT_CUBLAS=0"):  # fmt: skip
        assert words in str(caught.value)
    found, wanted = product(gpu, False, False, False, 0)
    assert found.tolist() == wanted.tolist(), "the next is well"


def test_what_went_wrong_before_is_told_first(gpu: fake_gpu.Driver, fake: fake_gpu.Fake) -> None:
    """The library fails in a context that a kernel has lost: the kernel's error is the one to tell."""
    assert gpu.has_gemm()
    places = [put(gpu, np.ones((2, 2))) for _ in range(3)]
    gpu.launch("stray")
    fake.fail("cublasSgemm_v2", 1, 13)
    with pytest.raises(RuntimeError, match="is lost to this process.*CUDA_ERROR_ILLEGAL_ADDRESS"):
        gpu.gemm((2, 2, 2), (places[0], 2, False), (places[1], 2, False), (places[2], 2), False)
    gpu.close()


def test_a_lost_device(gpu: fake_gpu.Driver, fake: fake_gpu.Fake) -> None:
    fake.fail("cuStreamSynchronize", 1, ILLEGAL_ADDRESS)
    with pytest.raises(RuntimeError, match="is lost"):
        gpu.wait()
    with pytest.raises(RuntimeError, match="is lost"):
        gpu.has_gemm()


# ---------------------------------------------------------------- where it is


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Wheels and a toolkit in a folder, and none elsewhere."""
    package = tmp_path / "wheels" / "nvidia"
    for folder, name in [("cu13", "libcublas.so.13"), ("cublas", "libcublas.so.12"),
                         ("cublas", "libcublasLt.so.12"), ("cublas", "libcublas.so.12.4.5")]:  # fmt: skip
        (package / folder / "lib").mkdir(parents=True, exist_ok=True)
        (package / folder / "lib" / name).touch()
    libraries = importlib.import_module("dynet_compat.cuda.libraries")
    places = type("Spec", (), {"submodule_search_locations": [str(package)]})
    monkeypatch.setattr(libraries.importlib.util, "find_spec", lambda name: places)
    for name in ("CUDA_HOME", "CONDA_PREFIX", "DYNET_COMPAT_CUBLAS"):
        monkeypatch.delenv(name, raising=False)
    toolkit = tmp_path / "toolkit"
    (toolkit / "lib64").mkdir(parents=True)
    (toolkit / "lib64" / "libcublas.so.12").touch()
    monkeypatch.setenv("CUDA_PATH", str(toolkit))
    return tmp_path


def test_the_newest_that_the_driver_serves_comes_first(machine: Path) -> None:
    paths = importlib.import_module("dynet_compat.cuda").cublas_paths
    ours = [path.replace(str(machine), "") for path in paths(13000) if "/usr/" not in path]
    assert ours == [
        "/wheels/nvidia/cu13/lib/libcublas.so.13", "/wheels/nvidia/cublas/lib/libcublas.so.12",
        "/toolkit/lib64/libcublas.so.12", "libcublas.so.13", "libcublas.so.12",
    ]  # fmt: skip
    assert all(path.endswith(".12") for path in paths(12080)) and len(paths(12080)) >= 3
    assert paths(11080) == []


def test_the_environment_chooses(machine: Path, fake: fake_gpu.Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    cublas = importlib.import_module("dynet_compat.cuda.cublas")
    monkeypatch.setenv("DYNET_COMPAT_CUBLAS", "0")
    assert cublas.cublas_paths() == [] and cublas.describe() == "not used (DYNET_COMPAT_CUBLAS=0)"
    monkeypatch.setenv("DYNET_COMPAT_CUBLAS", str(fake.path))
    assert cublas.cublas_paths(13000) == [str(fake.path)]
    assert cublas.describe(13000) == f"13.0.2, {fake.path}"
    monkeypatch.setenv("DYNET_COMPAT_CUBLAS", str(machine / "none.so"))
    assert cublas.describe() == "not installed: large products are made by the package's own kernels"


def test_info_tells_of_it(fake: fake_gpu.Fake) -> None:
    def line(**settings: str) -> str:
        command = [sys.executable, "-m", "dynet_compat", "info"]
        done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True,
                              timeout=300, check=True)  # fmt: skip
        return next(line for line in done.stdout.splitlines() if line.strip().startswith("cublas  "))

    assert line(DYNET_COMPAT_CUBLAS=str(fake.path)).split() == ["cublas", "13.0.2,", str(fake.path)]
    assert "not used (DYNET_COMPAT_CUBLAS=0)" in line(DYNET_COMPAT_CUBLAS="0")


# ---------------------------------------------------------------- in programs

PROGRAM = """
import ctypes, os
import numpy as np
import dynet_compat as dy
library = ctypes.CDLL(os.environ["DYNET_COMPAT_LIBCUDA"])
library.fake_log.restype = ctypes.c_char_p
pc = dy.ParameterCollection()
W, X, b = pc.add_parameters((1024, 1024)), pc.add_parameters((1024, 1024)), pc.add_parameters(1024)
def step():
    dy.renew_cg()
    loss = dy.sum_elems(dy.tanh(dy.affine_transform([b, W, dy.tanh(X)])))
    loss.value()
    loss.backward()
def told():
    return dy._core.timing()["library_products"], library.fake_log().decode().split().count("cublasSgemm_v2")
"""


def program(text: str, fake: Path, cache: Path, **settings: str) -> Any:
    environment = {**os.environ, "DYNET_COMPAT_DEVICE": "gpu", "DYNET_COMPAT_LIBCUDA": str(fake),
                   "DYNET_COMPAT_CUBLAS": str(fake), "DYNET_COMPAT_CACHE": str(cache),
                   "FAKE_CUDA": "version=13000", **settings}  # fmt: skip
    command = [sys.executable, "-c", PROGRAM + text]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


needs_nvrtc = pytest.mark.skipif(nvrtc.found() is None, reason="no NVRTC")


@needs_nvrtc
def test_large_products_of_a_program(built: tuple[Path, Path], cache: Path) -> None:
    """Forward, and both gradients: three products, of which the last one is that of the weights."""
    text = """
step()
numbers = (ctypes.c_int * 6)()
library.fake_last_product(numbers)
print(*told(), list(numbers), dy._core._device_options()['gemm_library'].split()[0])
"""
    for precision, calls, compute in (("", 3, 68), ("tf32", 0, 77), ("bf16", 0, 75)):
        done = program(text, built[0], cache, DYNET_COMPAT_PRECISION=precision)
        told = f"3 {calls} [0, 1, 1024, 1024, 1024, {compute}] cuBLAS\n"
        assert done.stdout == told, done.stdout + done.stderr


@needs_nvrtc
@pytest.mark.parametrize(
    ("setting", "precision"), [("0", ""), ("0", "tf32"), ("0", "bf16"), ("/nowhere/libcublas.so.13", "")]
)
def test_our_kernels_do_without_the_library(
    built: tuple[Path, Path], cache: Path, setting: str, precision: str
) -> None:
    """And nobody is told, unless they ask."""
    text = "step()\nfound = dy._core._device_options()['gemm_library']\n"
    text += "print(*told(), dy._core.timing()['large_products'], found)"
    done = program(text, built[0], cache, DYNET_COMPAT_CUBLAS=setting, DYNET_COMPAT_PRECISION=precision)
    library, calls, ours, *name = done.stdout.split()
    assert (library, calls) == ("0", "0") and int(ours) == 3, done.stdout + done.stderr
    assert not fake_gpu.complaints(done.stderr)
    assert name[:1] == ([] if setting == "0" else ["none:"])


@needs_nvrtc
def test_a_product_that_fails_in_a_program(built: tuple[Path, Path], cache: Path) -> None:
    text = """
try:
    step()
except RuntimeError as error:
    print("CUBLAS_STATUS_NOT_SUPPORTED" in str(error), "DYNET_COMPAT_CUBLAS=0" in str(error))
step()
print(told()[1], W.as_array().shape)
"""
    done = program(text, built[0], cache, FAKE_CUDA_FAIL="cublasSgemm_v2 1 15")
    assert done.stdout == "True True\n4 (1024, 1024)\n", done.stdout + done.stderr


def test_the_fake_is_as_strict_as_the_library(fake: fake_gpu.Fake) -> None:
    """Without a stream, a workspace and float32 it refuses, so that the tests above mean something."""
    handle = ctypes.c_void_p()
    fake.loaded.cuInit(0)
    fake.loaded.cuCtxSetCurrent(ctypes.c_void_p(1))
    assert fake.loaded.cublasCreate_v2(ctypes.byref(handle)) == 0
    nothing = [ctypes.c_float(1.0), ctypes.c_void_p(), ctypes.c_int(1)]
    one, none, stride = nothing
    refused = fake.loaded.cublasSgemm_v2(handle, 0, 0, 1, 1, 1, ctypes.byref(one), none, stride, none, stride,
                                         ctypes.byref(one), none, stride)  # fmt: skip
    assert refused == 1
