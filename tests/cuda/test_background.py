"""Kernels that compile in the background, and programs that go on meanwhile."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support import fake_gpu, nvrtc
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="the devices are ours")
KEY = ("persistent", ["persistent<1>"], 90, 13000)


@pytest.fixture
def background(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = importlib.import_module("dynet_compat.cuda.background")
    monkeypatch.setattr(module, "_works", {})
    return module


def wait_for(module: Any) -> None:
    end = time.monotonic() + 20
    while not module.is_compiled(*KEY):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_question_does_not_wait(background: Any, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    go, asked = threading.Event(), []

    def compile_kernels(*key: Any) -> list[str]:
        asked.append(key)
        assert go.wait(20)
        return ["a kernel"]

    monkeypatch.setattr(background, "compile_kernels", compile_kernels)
    assert not background.is_compiled(*KEY) and not background.is_compiled(*KEY)
    time.sleep(1.2)
    assert capfd.readouterr().err.count("[dynet] compiling a kernel") == 1, "one line after a second"
    go.set()
    wait_for(background)
    assert background.take(*KEY) == ["a kernel"] and len(asked) == 1
    assert background.take(*KEY) == ["a kernel"] and len(asked) == 2, "nothing is kept"


def test_what_goes_wrong_is_raised_where_kernels_are_taken(
    background: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*key: Any) -> list[str]:
        raise RuntimeError("no such architecture")

    monkeypatch.setattr(background, "compile_kernels", fail)
    background.is_compiled(*KEY)
    wait_for(background)
    with pytest.raises(RuntimeError, match="no such architecture"):
        background.take(*KEY)


PROGRAM = """
import ctypes, os, time
import dynet_compat as dy
fake = ctypes.CDLL(os.environ["DYNET_COMPAT_LIBCUDA"])
fake.fake_ran.restype = ctypes.c_char_p
W = dy.ParameterCollection().add_parameters((8, 8))
def flush():
    dy.renew_cg()
    h = dy.inputVector(range(8))
    for _ in range(6):
        h = dy.tanh(W * h)
    h.npvalue()
    return b"persistentIJ" in fake.fake_ran()
for _ in range(2):
    flush()  # the usual kernels are compiled
start, flushes = time.monotonic(), 0
while not flush():
    flushes += 1
    assert time.monotonic() - start < 200
print(flushes)
"""


@pytest.mark.skipif(not fake_gpu.available() or nvrtc.found() is None, reason="no compiler or no NVRTC")
def test_launches_go_on_while_a_persistent_kernel_compiles(tmp_path: Path) -> None:
    more = {"DYNET_COMPAT_LIBCUDA": str(fake_gpu.build_fake(tmp_path)), "DYNET_COMPAT_DEVICE": "gpu",
            "DYNET_COMPAT_CACHE": str(tmp_path / "cache"), "FAKE_CUDA": "version=13000"}  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name != "DYNET_COMPAT_PERSISTENT"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env={**environment, **more}, capture_output=True,
                          text=True, timeout=300, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 3, "flushes while NVRTC was at work"
