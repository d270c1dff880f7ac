"""Many launches as one on a device that refuses them: the same launches run one by one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support import fake_gpu, nvrtc
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="the devices are ours")

NO_DRIVER = not sys.platform.startswith("linux") or not fake_gpu.available() or nvrtc.found() is None
WARNING = "[dynet] WARNING: persistent kernels do not work here"


def run(text: str, **settings: str) -> tuple[list[str], list[str]]:
    """What a program of its own writes to stdout, and its warnings."""
    environment = {**os.environ, **settings}
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines(), [line for line in done.stderr.splitlines() if WARNING in line]


# ---------------------------------------------------------------- on the emulation

LSTM = """
import numpy as np
import dynet_compat as dy
dy.reset_random_seed(1)
pc = dy.ParameterCollection()
lstm = dy.VanillaLSTMBuilder(1, 5, 6, pc)
E = pc.add_lookup_parameters((7, 5))
for _ in range(3):
    dy.renew_cg()
    dy._core.reset_timing()
    ends = [lstm.initial_state().transduce([E[(i + j) % 7] for j in range(n)])[-1]
            for i, n in enumerate([3, 5, 4])]
    loss = dy.sum_elems(dy.esum([dy.square(e) for e in ends]))
    values = [loss.value(), *ends[0].value()]
    loss.backward()
    gradients = [E.grad_as_array(), *(p.grad_as_array() for p in pc.parameters_list())]
    print(dy._core.timing()["device_launches"], np.float32(values).tobytes().hex(),
          b"".join(g.tobytes() for g in gradients).hex())
"""


def on_emulation(settings: str = "", persistent: str = "1") -> tuple[list[int], list[str], list[str]]:
    """Launches, values and gradients of each graph; warnings."""
    told, warnings = run(
        LSTM,
        DYNET_COMPAT_DEVICE="emulation",
        DYNET_COMPAT_EMULATION=settings,
        DYNET_COMPAT_PERSISTENT=persistent,
    )
    return [int(line.split()[0]) for line in told], [line.split(" ", 1)[1] for line in told], warnings


def test_refused_persistent_kernels_compute_the_same() -> None:
    joined, results, warnings = on_emulation()
    apart, the_same, _ = on_emulation(persistent="0")
    assert len(results) == 3 and results == the_same and not warnings
    assert joined[0] < apart[0], "nothing was joined"
    for refused in (1, 2, 3):
        launches, found, warnings = on_emulation(f"cooperative={refused}")
        assert found == results, f"kernel {refused} and those after it were refused"
        assert len(warnings) == 1 and "are refused" in warnings[0], warnings
        assert launches[-1] == apart[-1], "refused kernels are tried again"


# ---------------------------------------------------------------- on a driver without a GPU


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    if NO_DRIVER:
        pytest.skip("libcuda is opened with dlopen; needs a compiler and NVRTC")
    folder = tmp_path_factory.mktemp("kernels")
    return {
        "DYNET_COMPAT_LIBCUDA": str(fake_gpu.build_fake(folder)),
        "DYNET_COMPAT_CACHE": str(folder / "cache"),
        "DYNET_COMPAT_DEVICE": "gpu",
        "DYNET_COMPAT_PERSISTENT": "1",
        "DYNET_COMPAT_MEASURED": "0",
        "FAKE_CUDA": "version=13000",
    }


STEPS = """
import ctypes, os
import dynet_compat as dy
from dynet_compat import cuda
fake = ctypes.CDLL(os.environ["DYNET_COMPAT_LIBCUDA"])
W = dy.ParameterCollection().add_parameters((2, 3))
def step():
    before = [fake.fake_calls(b"cuLaunchKernel"), fake.fake_calls(b"cuLaunchCooperativeKernel")]
    dy.renew_cg()
    dy.sum_elems(dy.softmax(W * dy.inputVector([1, 2, 3]))).value()  # nothing follows in the product
    return [fake.fake_calls(b"cuLaunchKernel") - before[0],
            fake.fake_calls(b"cuLaunchCooperativeKernel") - before[1]]
"""
BROKEN_COMPILER = """
compile = cuda.for_engine
def without_persistent(kernels, *more):
    if any(file == "persistent" for file, name in kernels):
        raise RuntimeError("too many registers")
    return compile(kernels, *more)
cuda.for_engine = without_persistent
"""


def test_a_persistent_kernel_is_one_launch(machine: dict[str, str]) -> None:
    assert run(STEPS + "print(step(), step())", **machine) == (["[0, 1] [0, 1]"], [])


@pytest.mark.parametrize(
    ("call", "code", "tried"),
    [
        *(("cuLaunchCooperativeKernel", code, 1) for code in (1, 2, 701, 720, 801)),
        ("cuOccupancyMaxActiveBlocksPerMultiprocessor", 1, 0),
        ("cuModuleGetFunction", 500, 0),
        ("cuModuleLoadData", 2, 0),
    ],
)
def test_a_kernel_that_the_driver_refuses(machine: dict[str, str], call: str, code: int, tried: int) -> None:
    """Whatever goes wrong, short of a lost device: its launches run, and it is not tried again."""
    told, warnings = run(
        STEPS + "print(step(), step(), step())", **machine, FAKE_CUDA_FAIL=f"{call} 1 {code}"
    )
    assert told == [f"[3, {tried}] [3, 0] [3, 0]"]
    assert len(warnings) == 1, warnings


def test_a_persistent_kernel_that_does_not_compile(machine: dict[str, str]) -> None:
    told, warnings = run(STEPS + BROKEN_COMPILER + "print(step(), step())", **machine)
    assert told == ["[3, 0] [3, 0]"]
    assert len(warnings) == 1 and "too many registers" in warnings[0], warnings


def test_a_device_that_cannot_run_blocks_together(machine: dict[str, str]) -> None:
    settings = {**machine, "FAKE_CUDA": "version=13000 cooperative=0"}
    assert run(STEPS + "print(step(), step())", **settings) == (["[3, 0] [3, 0]"], [])


def test_a_device_lost_in_a_persistent_kernel(machine: dict[str, str]) -> None:
    attempt = """
try:
    step()
except RuntimeError as error:
    print("is lost" in str(error))
"""
    told, warnings = run(STEPS + 2 * attempt, **machine, FAKE_CUDA_FAIL="cuLaunchCooperativeKernel 1 700")
    assert told == ["True", "True"] and not warnings
