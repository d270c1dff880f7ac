"""DYNET_COMPAT_PRECISION: large products of tf32 or bf16, on the emulation's tensor cores."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import fake_gpu, nvrtc
from support.emulated import START, program
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="our option")

PRODUCTS = (
    START
    + """
core = dy._core
rng = np.random.default_rng(3)
def near(found, wanted, size, precision):
    "Within the precision, and not within that of float32."
    error = np.abs(found - wanted)
    most = {"float32": 4e-6, "tf32": 1.1e-3, "bf16": 1e-2}[precision]
    assert (error <= most * size).all(), (precision, (error / size).max())
    assert (error > most * size / 200).any(), (precision, (error / size).max())
def sizes(a, b):
    return a @ b, np.abs(a) @ np.abs(b)
def run(precision, way, m, n, inner):
    core._device_options(matmul=way, precision=precision)
    pc = dy.ParameterCollection()
    w, x, r = (rng.normal(size=s).astype(np.float32) for s in ((m, inner), (inner, n), (m, n)))
    W, X = pc.parameters_from_numpy(w), pc.parameters_from_numpy(x)
    dy.renew_cg()
    core.reset_timing()
    y = W * X
    loss = dy.sum_elems(dy.cmult(y, dy.inputTensor(r)))
    near(y.npvalue(), *sizes(w.astype(float), x), precision)
    loss.backward()
    near(W.grad_as_array(), *sizes(r.astype(float), x.T), precision)
    near(X.grad_as_array(), *sizes(w.T.astype(float), r), precision)
    return int(core.timing()[way + "_products"])
"""
)


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize("way", ["large", "library"])
def test_values_and_gradients(precision: str, way: str) -> None:
    """Against float64: forward, and the gradients of both factors."""
    told = program(PRODUCTS + f"print(run('{precision}', '{way}', 150, 70, 90), "
                   f"run('{precision}', '{way}', 33, 129, 47))")  # fmt: skip
    assert told == "3 3\n"


ALONE = (
    START
    + """
core = dy._core
rng = np.random.default_rng(3)
W = dy.ParameterCollection().parameters_from_numpy(rng.normal(size=(70, 50)).astype(np.float32))
xs = rng.normal(size=(45, 50)).astype(np.float32)
told = set()
for precision in ("float32", "tf32", "bf16"):
    core._device_options(matmul="large", precision=precision)
    dy.renew_cg()
    together = np.stack([y.npvalue() for y in [dy.tanh(W * dy.inputVector(x)) for x in xs]])
    alone = []
    for x in xs:
        dy.renew_cg()
        alone.append(dy.tanh(W * dy.inputVector(x)).npvalue())
    assert np.stack(alone).tobytes() == together.tobytes(), precision
    told.add(together.tobytes())
print(len(told), core._device_options()["precision"])
"""
)


def test_a_node_alone_has_the_bits_that_it_has_in_a_batch() -> None:
    assert program(ALONE) == "3 bf16\n"


SAYS = "import dynet_compat as dy\nprint(dy._core._device_options().get('precision'))"


def started(*command: str, **settings: str) -> tuple[str, str]:
    done = subprocess.run([sys.executable, *command], env={**os.environ, **settings}, capture_output=True,
                          text=True, timeout=300, check=True)  # fmt: skip
    return done.stdout, done.stderr


@pytest.mark.parametrize(("asked", "used"), [("", "float32"), ("float32", "float32"), ("tf32", "tf32"),
                                             ("bf16", "bf16")])  # fmt: skip
def test_the_environment_chooses(asked: str, used: str) -> None:
    settings = {"DYNET_COMPAT_PRECISION": asked}
    assert started("-c", SAYS, DYNET_COMPAT_DEVICE="emulation", **settings) == (used + "\n", "")
    assert started("-c", SAYS, DYNET_COMPAT_DEVICE="cpu", **settings) == ("None\n", "")


@pytest.mark.skipif(nvrtc.found() is None, reason="no NVRTC")
@pytest.mark.skipif(not fake_gpu.available(), reason="no compiler")
def test_older_gpus_are_said_to_have_none(tmp_path: Path) -> None:
    fake = {"DYNET_COMPAT_LIBCUDA": str(fake_gpu.build_fake(tmp_path)), "DYNET_COMPAT_DEVICE": "gpu",
            "DYNET_COMPAT_PRECISION": "bf16"}  # fmt: skip
    out, err = started("-c", SAYS, FAKE_CUDA="version=13000 architecture=75", **fake)
    assert out == "float32\n" and err.count("\n") == 1
    assert "DYNET_COMPAT_PRECISION=bf16 has no effect on" in err and "sm_75 is older than sm_80" in err
    assert started("-c", SAYS, FAKE_CUDA="version=13000 architecture=80", **fake) == ("bf16\n", "")


@pytest.mark.parametrize(
    ("device", "asked", "line"),
    [("cpu", "", "float32"), ("emulation", "tf32", "tf32"),
     ("cpu", "tf32", "float32; DYNET_COMPAT_PRECISION=tf32 has no effect: the CPU computes")],
)  # fmt: skip
def test_info_says_what_is_used(device: str, asked: str, line: str) -> None:
    settings = {"DYNET_COMPAT_DEVICE": device, "DYNET_COMPAT_PRECISION": asked}
    out, _ = started("-m", "dynet_compat", "info", **settings)
    found = [one.split(None, 1)[1] for one in out.splitlines() if one.startswith("  precision ")]
    assert found == [line]
