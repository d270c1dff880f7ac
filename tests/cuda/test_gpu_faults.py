"""Faults of a GPU in whole programs: what is lost, what is not, and what the program is told.

The driver is tests/cuda/fake_libcuda.cc: kernels are compiled by NVRTC and loaded, and launches do nothing.
"""

from __future__ import annotations

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
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="libcuda is opened with dlopen"),
    pytest.mark.skipif(not fake_gpu.available(), reason="no compiler"),
    pytest.mark.skipif(nvrtc.found() is None, reason="no NVRTC"),
]

START = """
import numpy as np, os, sys
import dynet_compat as dy
assert dy.available_devices() == ["GPU:0", "CPU"] and dy.HAVE_CUDA
pc = dy.ParameterCollection()
W = pc.parameters_from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3))
E = pc.lookup_parameters_from_numpy(np.arange(12, dtype=np.float32).reshape(4, 3))
trainer = dy.SimpleSGDTrainer(pc, 0.1)
trainer.set_clip_threshold(0)  # no launch finds the norm of the gradients
def step(count=1):
    dy.renew_cg()
    loss = dy.sum_elems(dy.esum([dy.tanh(W * E[i % 4]) for i in range(count)]))
    loss.value()
    loss.backward()
    return loss
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A GPU and a cache of kernels, which the tests share."""
    folder = tmp_path_factory.mktemp("machine")
    path = fake_gpu.build_fake(folder)
    return {
        "DYNET_COMPAT_LIBCUDA": str(path),
        "DYNET_COMPAT_CACHE": str(folder / "cache"),
        "DYNET_COMPAT_DEVICE": "gpu",
        "FAKE_CUDA": "version=13000",
    }


def program(text: str, machine: dict[str, str], folder: Path, **more: str) -> Any:
    whole = {**os.environ, **machine, **more}
    command = [sys.executable, "-c", START + text]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=whole, cwd=folder, check=False
    )


def saved(folder: Path) -> list[np.ndarray]:
    """The parameters of a model file, read by this process, on the CPU."""
    import dynet_compat as dy

    pc = dy.ParameterCollection()
    W, E = pc.add_parameters((2, 3)), pc.add_lookup_parameters((4, 3))
    pc.populate(str(folder / "model"))
    return [W.as_array(), E.as_array()]


def test_kernels_of_a_program_are_compiled_and_kept(machine: dict[str, str], tmp_path: Path) -> None:
    done = program("step(3); trainer.update(); print('through')", machine, tmp_path)
    assert done.stdout == "through\n", done.stderr
    entries = sorted(Path(machine["DYNET_COMPAT_CACHE"]).glob("kernels/*/*.kernels"))
    assert entries
    times = [entry.stat().st_mtime_ns for entry in entries]
    done = program("step(3); trainer.update(); print('again')", machine, tmp_path)
    assert done.stdout == "again\n", done.stderr
    assert [entry.stat().st_mtime_ns for entry in entries] == times
    assert sorted(Path(machine["DYNET_COMPAT_CACHE"]).glob("kernels/*/*.kernels")) == entries


@pytest.mark.parametrize(
    "call", ["cuLaunchKernel 1 700", "cuLaunchKernel 2 719", "cuMemcpyHtoDAsync_v2 1 999"]
)
def test_a_lost_context_leaves_the_parameters(machine: dict[str, str], tmp_path: Path, call: str) -> None:
    """The error is raised, is raised again, and the model can be saved as it was. Counters remain."""
    text = (
        "dy._core._measure_device(True)\n"
        "for attempt in range(2):\n"
        "    try:\n"
        "        step()\n"
        "        print('no error')\n"
        "    except RuntimeError as error:\n"
        "        print('GPU:0 (Fake 0) is lost' in str(error), 'save the model' in str(error))\n"
        "pc.save('model')\n"
        "print(W.as_array().tolist())\n"
        "print('device_uploads' in dy._core.timing())\n"
    )
    done = program(text, machine, tmp_path, FAKE_CUDA_FAIL=call)
    parameters = "[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]"
    assert done.stdout.splitlines() == ["True True", "True True", parameters, "True"], done.stderr
    W, E = saved(tmp_path)
    assert W.tolist() == np.arange(6.0).reshape(2, 3).tolist()
    assert E.tolist() == np.arange(12.0).reshape(4, 3).tolist()


def test_a_context_lost_in_training(machine: dict[str, str], tmp_path: Path) -> None:
    """Trainers changed the parameters on the device: the model goes back to what the host last had of it."""
    text = (
        "updates, told = 0, []\n"
        "try:\n"
        "    for _ in range(50):\n"
        "        step()\n"
        "        trainer.update()\n"
        "        updates += 1\n"
        "except RuntimeError as error:\n"
        "    told = str(error)\n"
        "print('GPU:0 (Fake 0) is lost' in told, 'save the model' in told, 'after update 0 of' in told)\n"
        "pc.save('model')\n"
        "print(3 <= updates < 50, W.as_array().tolist())\n"
    )
    done = program(text, machine, tmp_path, FAKE_CUDA_FAIL="cuLaunchKernel 60 700")
    assert done.stdout.splitlines() == ["True True True", "True [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]"], (
        done.stdout + done.stderr
    )
    W, E = saved(tmp_path)
    assert W.tolist() == np.arange(6.0).reshape(2, 3).tolist()
    assert E.tolist() == np.arange(12.0).reshape(4, 3).tolist()


def test_out_of_device_memory(machine: dict[str, str], tmp_path: Path) -> None:
    """A graph that is too large is an error with numbers; a smaller one computes afterwards."""
    text = (
        "step()\n"
        "try:\n"
        "    dy.renew_cg()\n"
        "    (dy.zeros(100_000_000) + 1.0).value()\n"
        "except MemoryError as error:\n"
        "    print('GPU:0 (Fake 0)' in str(error), 'asked for' in str(error), 'of 256 MB' in str(error))\n"
        "step()\n"
        "pc.save('model')\n"
        "print('through')\n"
    )
    done = program(text, machine, tmp_path, FAKE_CUDA="version=13000 memory=268435456")
    assert done.stdout == "True True True\nthrough\n", done.stderr
    assert saved(tmp_path)[1].shape == (4, 3)


def test_no_architecture(machine: dict[str, str], tmp_path: Path) -> None:
    done = program("step()", machine, tmp_path, FAKE_CUDA="version=13000 architecture=52")
    assert done.stderr.splitlines()[-1].endswith("pip install nvidia-cuda-nvrtc-cu12 instead")
    assert "this GPU is sm_52: it is too old for CUDA 13" in done.stderr


def test_a_damaged_cache(machine: dict[str, str], tmp_path: Path) -> None:
    own = {**machine, "DYNET_COMPAT_CACHE": str(tmp_path / "cache")}
    assert program("step(); print('through')", own, tmp_path).stdout == "through\n"
    for entry in (tmp_path / "cache").glob("kernels/*/*.kernels"):
        entry.write_bytes(entry.read_bytes()[:-1])
    assert program("step(); print('through')", own, tmp_path).stdout == "through\n"


def test_a_forked_process_is_told(machine: dict[str, str], tmp_path: Path) -> None:
    text = (
        "step()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        step()\n"
        "    except RuntimeError as error:\n"
        "        print('spawn' in str(error), flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "step()\n"
        "print('through')\n"
    )
    done = program(text, machine, tmp_path)
    assert done.stdout == "True\nthrough\n", done.stderr


def attempts_are_refused(
    hook: str, attempts: str, before: str, after: str, machine: dict[str, str], folder: Path
) -> None:
    """Calls that a signal handler makes, say, while a function of dynet_compat.cuda is asked, which `before`
    leads to: each is an error, and no endless wait. `after` runs when it is no longer interrupted."""
    text = (
        "from dynet_compat import cuda\n"
        f"asked = cuda.{hook}\n"
        "def interrupted(*what):\n"
        f"    for attempt in ({attempts}):\n"
        "        try:\n"
        "            print(attempt())\n"
        "        except RuntimeError as error:\n"
        "            print('in the middle of a computation' in str(error), flush=True)\n"
        "    return asked(*what)\n"
        f"cuda.{hook} = interrupted\n"
        "dy.renew_cg()\n"
        f"{before}\n"
        f"cuda.{hook} = asked\n"
        f"{after}\n"
        "print('through')\n"
    )
    done = program("step()\ntrainer.update()\n" + text, machine, folder)
    *told, end = done.stdout.splitlines() or [""]
    assert end == "through" and len(told) >= 2, done.stdout + done.stderr
    assert set(told) == {"True"}, done.stdout + done.stderr


def test_what_runs_while_kernels_are_compiled(machine: dict[str, str], tmp_path: Path) -> None:
    """What its own thread works on."""
    wanted = "dy.cosh(W * E[1]).value()"
    attempts_are_refused("for_engine", "W.as_array, dy.renew_cg", wanted, "W.as_array()", machine, tmp_path)


@pytest.mark.parametrize("hook", ["for_engine", "cublas_paths"])
def test_computing_while_kernels_are_compiled(machine: dict[str, str], tmp_path: Path, hook: str) -> None:
    """In a graph large enough to be computed without the lock of Python. No cuBLAS computes on this GPU."""
    wanted = (
        "U, V = pc.add_parameters((1024, 1024)), pc.add_parameters((1024, 1024))\n"
        "x = dy.inputTensor(np.ones((1024, 1024)))\n"
        "y, other = dy.sum_elems(dy.tanh(U * dy.tanh(V))), dy.sum_elems(dy.square(x))\n"
        "y.value()"
    )
    attempts_are_refused(hook, "other.value, other.backward", wanted, "other.value()", machine, tmp_path)


def test_a_forked_process_saves_and_updates(machine: dict[str, str], tmp_path: Path) -> None:
    text = (
        "trainer = dy.AdamTrainer(pc)\n"
        "trainer.set_clip_threshold(0)\n"
        "step()\n"
        "trainer.update()\n"
        "step()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    trainer.save('state')\n"
        "    trainer.update()\n"
        "    print(W.as_array().shape, flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "step()\n"
        "trainer.update()\n"
        "print('through')\n"
    )
    done = program(text, machine, tmp_path)
    assert done.stdout == "(2, 3)\nthrough\n", done.stdout + done.stderr


def test_a_fork_that_finds_the_device_lost(machine: dict[str, str], tmp_path: Path) -> None:
    """The child knows it, too, and reads what the host falls back on: the values before the update."""
    text = (
        "step()\n"
        "trainer.update()\n"
        "child = os.fork()\n"
        "if child:\n"
        "    os.waitpid(child, 0)\n"
        "print(W.as_array().tolist(), flush=True)\n"
        "os._exit(0)\n"
    )
    done = program(text, machine, tmp_path, FAKE_CUDA_FAIL="cuMemcpyDtoHAsync_v2 2 700")
    assert done.stdout.splitlines() == ["[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]"] * 2, done.stdout + done.stderr
    assert "Parameters on the host have the values after update 0 of 1" in done.stderr


def test_the_program_says_which_gpu(machine: dict[str, str], tmp_path: Path) -> None:
    text = "print(dy.get_device_info('GPU:0').id, dy.to_device(dy.scalarInput(1), 'GPU:0').dim())"
    env = {k: v for k, v in machine.items() if k != "DYNET_COMPAT_DEVICE"}
    command = [sys.executable, "-c", START + text, "--dynet-gpu", "--dynet-seed", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300,
                          env={**os.environ, **env, "DYNET_COMPAT_DEVICE": ""}, check=False)  # fmt: skip
    assert done.stdout == "0 ((1,), 1)\n", done.stderr
    assert done.stderr.splitlines()[-1] == "[dynet] using GPU:0, Fake 0"
