"""Asking for a GPU: by options, `dynet_config`, names and the environment, with and without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Optional

import pytest
from support import fake_gpu
from support.subject import IS_REFERENCE, ON_DEVICE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="our devices")

FACTS = """
import dynet_compat as dy
print(dy.available_devices(), dy.devices.current().device, dy.HAVE_CUDA)
"""
NO_DRIVER = {"DYNET_COMPAT_LIBCUDA": "/nowhere/libcuda.so.1"}


def program(text: str, *arguments: str, env: Optional[dict[str, str]] = None) -> tuple[str, str]:
    """stdout and stderr of a program, on a machine without a driver unless the environment says otherwise."""
    whole = {k: v for k, v in os.environ.items() if k != "DYNET_COMPAT_DEVICE"}
    whole.update({**NO_DRIVER, **(env or {})})
    command = [sys.executable, "-c", text, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=whole, check=False)
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def two_gpus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a machine with two GPUs, as far as its driver can tell."""
    if not fake_gpu.available():
        pytest.skip("no compiler")
    path = fake_gpu.build_fake(tmp_path_factory.mktemp("fake"))
    return {"DYNET_COMPAT_LIBCUDA": str(path), "FAKE_CUDA": "devices=2 version=13000"}


# ---------------------------------------------------------------- without a GPU


@pytest.mark.parametrize(
    "arguments",
    [["--dynet-gpu"], ["--dynet-gpus", "1"], ["--dynet-gpus=2"], ["--dynet-devices", "CPU,GPU:0"],
     ["--dynet-devices=GPU:1"], ["--dynet_gpu"]],
    ids=" ".join,
)  # fmt: skip
def test_one_error_says_what_is_missing(arguments: list[str]) -> None:
    out, err = program(FACTS, *arguments)
    last = err.splitlines()[-1]
    assert out == "" and last.startswith("RuntimeError: no GPU can be used: NVIDIA's driver is not installed")
    assert "/nowhere/libcuda.so.1" in last and "DYNET_COMPAT_DEVICE=cpu" in last


@pytest.mark.parametrize("device", ["gpu", "cuda:0", "CUDA:1", "cuda"])
def test_environment_asks_for_what_is_not_there(device: str) -> None:
    out, err = program(FACTS, env={"DYNET_COMPAT_DEVICE": device})
    assert out == "" and "RuntimeError: no GPU can be used" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [([], "['CPU']"), (["--dynet-gpus", "0"], "['CPU']"), (["--dynet-devices", "CPU"], "['CPU']"),
     (["--dynet-gpu"], "['GPU:0', 'CPU']"), (["--dynet-devices", "CPU,GPU:3"], "['GPU:3', 'CPU']")],
)  # fmt: skip
def test_the_cpu_can_stand_in(arguments: list[str], names: str) -> None:
    """DYNET_COMPAT_DEVICE=cpu: the program's device names stay valid."""
    out, err = program(FACTS, *arguments, env={"DYNET_COMPAT_DEVICE": "cpu"})
    assert out == f"{names} cpu False\n", err


def test_no_such_device() -> None:
    _, err = program(FACTS, env={"DYNET_COMPAT_DEVICE": "tpu"})
    assert err.splitlines()[-1].startswith(
        "ValueError: DYNET_COMPAT_DEVICE: expected cpu, gpu, cuda:N or emulation"
    )


def test_configuration_asks_and_the_cpu_computes() -> None:
    """As DyNet without CUDA, which ignores it; but we say so."""
    out, err = program(
        "import sys; sys.argv = ['x']\n"
        "from dynet_compat import dynet_config\n"
        "dynet_config.set_gpu()\n"
        "import dynet_compat as dy\n"
        "print(dy.inputVector([1, 2]).value(), dynet_config.gpu())"
    )
    assert out == "[1.0, 2.0] True\n"
    assert err.splitlines()[-1].startswith("[dynet] WARNING: computing on the CPU: no GPU can be used")


@pytest.mark.skipif(ON_DEVICE, reason="a device has this name")
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("dy.inputVector([1], device='GPU:0')", r"available devices \(CPU\), got 'GPU:0'.*--dynet-gpu"),
        ("dy.inputTensor([1.0], device='GPU:0')", r"inputTensor\(\): expected one of .*--dynet-gpu"),
        ("dy.to_device(dy.scalarInput(1), 'GPU:1')", r"to_device\(\): .*'GPU:1'.*--dynet-gpu"),
        ("dy.ParameterCollection().add_parameters(2, device='GPU:0')", "got 'GPU:0'"),
        ("dy.ParameterCollection().add_lookup_parameters((2, 2), device='gpu')", "got 'gpu'$"),
        ("dy.get_device_info('GPU:0')", "GPU:0"),
    ],
)
def test_names_of_devices_that_are_not_used(dy: Any, code: str, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        eval(code, {"dy": dy})  # noqa: S307 - our own text


# ---------------------------------------------------------------- options

GOOD = [(["--dynet-gpu"], [0]), (["--dynet-gpus", "2"], [0, 1]), (["--dynet-gpus=1"], [0]),
        (["--dynet-devices", "GPU:1,CPU"], [1]), (["--dynet_devices=CPU,GPU:1,GPU:0"], [1, 0]),
        (["--dynet-gpus", "0"], []), (["--x", "--dynet-gpu", "--y"], [0])]  # fmt: skip
BAD = [["--dynet-gpu", "--dynet-gpus", "1"], ["--dynet-gpu", "--dynet-gpu"], ["--dynet-devices", "GPU"],
       ["--dynet-devices", "GPU:0,GPU:0"], ["--dynet-devices", "CPU:1"], ["--dynet-devices", "GPU:0,"],
       ["--dynet-gpu", "--dynet-devices", "CPU,GPU:0"], ["--dynet-gpus", "x"], ["--dynet-gpus"]]  # fmt: skip


@pytest.mark.parametrize(("arguments", "numbers"), GOOD, ids=lambda v: " ".join(map(str, v)))
def test_options(arguments: list[str], numbers: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    import dynet_compat.startup.config as config

    monkeypatch.setenv("DYNET_COMPAT_DEVICE", "cpu")
    assert config.parse_arguments(arguments).gpus == numbers


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_bad_options(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import dynet_compat.startup.config as config

    monkeypatch.setenv("DYNET_COMPAT_DEVICE", "cpu")
    with pytest.raises(ValueError, match="--dynet-"):
        config.parse_arguments(arguments)


@pytest.mark.parametrize(
    ("requested", "mask", "numbers"),
    [(0, [], []), (2, [], [0, 1]), (1, [0, 0, 1], [2]), (0, [1, 1], [0, 1]), (1, [0, 0], [0]), (-3, [], [])],
)
def test_counts_and_masks(requested: int, mask: list[int], numbers: list[int]) -> None:
    from dynet_compat.startup import devices

    assert devices.numbers_of(requested, mask) == numbers


@pytest.mark.parametrize(
    ("variable", "numbers", "device", "names"),
    [
        ("", [], "cpu", ["CPU"]),
        ("", [0], "cuda:0", ["GPU:0", "CPU"]),
        ("", [1, 0], "cuda:1", ["GPU:1", "GPU:0", "CPU"]),
        ("gpu", [], "cuda:0", ["GPU:0", "CPU"]),
        ("cuda:2", [0], "cuda:2", ["GPU:2", "GPU:0", "CPU"]),
        ("emulation", [], "emulation", ["GPU:0", "CPU"]),
        ("emulation", [1], "emulation", ["GPU:1", "CPU"]),
        (" CPU ", [0, 1], "cpu", ["GPU:0", "GPU:1", "CPU"]),
    ],
)
def test_choice(
    variable: str, numbers: list[int], device: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dynet_compat.startup import devices

    monkeypatch.setenv("DYNET_COMPAT_DEVICE", variable)
    assert devices.choose(numbers) == (device, names)


# ---------------------------------------------------------------- with GPUs


def test_devices_are_found(two_gpus: dict[str, str]) -> None:
    out, err = program(
        "from dynet_compat.startup import devices as d; print(d.gpus(), d.missing([1]) == '')", env=two_gpus
    )
    assert "'name': 'Fake 1'" in out and "'architecture': 90" in out and out.endswith("True\n"), err


def test_one_gpu_too_many(two_gpus: dict[str, str]) -> None:
    _, err = program(FACTS, "--dynet-devices", "GPU:2", env=two_gpus)
    assert err.splitlines()[-1] == (
        "RuntimeError: there is no GPU:2: this machine has GPU:0 (Fake 0), GPU:1 (Fake 1)"
    )


def test_no_compiler_of_kernels(two_gpus: dict[str, str]) -> None:
    text = "from dynet_compat.cuda import nvrtc\nnvrtc.libraries = lambda: []\nnvrtc._NAMES = ()\n"
    text += "from dynet_compat.startup import config\nconfig.parse_arguments(['--dynet-gpu'])"
    _, err = program(text, env=two_gpus)
    assert err.splitlines()[-1].startswith(
        "RuntimeError: NVRTC, which compiles the GPU's kernels, is not installed"
    )


def test_info(two_gpus: dict[str, str], tmp_path: Path) -> None:
    import json

    text = "import json\nfrom dynet_compat.info import collect\nprint(json.dumps(collect()['gpu']))"
    with_gpus = json.loads(program(text, env=two_gpus)[0])
    assert with_gpus["usable"] is True and with_gpus["devices"][1] == "GPU:1 Fake 1, sm_90, 1024 MB"
    assert with_gpus["driver"] == "for CUDA 13.0" and with_gpus["in use"] == "cpu"
    without = json.loads(program(text, env={"DYNET_COMPAT_CACHE": str(tmp_path)})[0])
    assert without["usable"] is False and without["devices"] == [] and "not installed" in without["driver"]
    assert without["cache"] == str(tmp_path)
