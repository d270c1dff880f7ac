"""Kernels that compile in the background, and programs that go on meanwhile, or end."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Optional

import pytest
from support import fake_gpu, nvrtc
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="the devices are ours")
KEY = ("persistent", ["persistent<1>"], 90, 13000)


@pytest.fixture
def background(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = importlib.import_module("dynet_compat.cuda.background")
    monkeypatch.setattr(module, "_works", {})
    monkeypatch.setattr(module, "_told", set())
    return module


def wait_for(module: Any) -> None:
    end = time.monotonic() + 20
    while not module.is_compiled(*KEY):
        assert time.monotonic() < end
        time.sleep(0.01)


def first_line(capfd: Any) -> str:
    """What is said after a second, which other processes may delay."""
    said, end = "", time.monotonic() + 20
    while not said.endswith("\n") and time.monotonic() < end:
        time.sleep(0.01)
        said += capfd.readouterr().err
    return said


def test_the_question_does_not_wait(background: Any, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    go, asked = threading.Event(), []

    def compile_kernels(*key: Any) -> list[str]:
        asked.append(key)
        assert go.wait(20)
        return ["a kernel"]

    monkeypatch.setattr(background, "compile_kernels", compile_kernels)
    assert not background.is_compiled(*KEY) and not background.is_compiled(*KEY)
    said = first_line(capfd)
    assert said.count("[dynet] compiling a kernel") == said.count("\n") == 1, "one line after a second"
    go.set()
    wait_for(background)
    assert background.take(*KEY) == ["a kernel"] and len(asked) == 1
    assert background.take(*KEY) is None, "nothing is kept"


def test_a_line_is_told_once(background: Any, capfd: Any) -> None:
    """A first start compiles for one flush after another."""
    with background.notice("kernels"):
        assert first_line(capfd) == "[dynet] compiling kernels\n"
    with background.notice("kernels"):
        time.sleep(1.2)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("no such architecture"), "^no such architecture"),
        (TypeError("expected str"), "^TypeError: expected str"),
        (MemoryError(), "^MemoryError"),
        (SystemExit(3), "^SystemExit: 3"),
    ],
)
def test_what_goes_wrong_is_raised_where_kernels_are_taken(
    background: Any, monkeypatch: pytest.MonkeyPatch, error: BaseException, words: str
) -> None:
    """As an error without which the engine does."""

    def fail(*key: Any) -> list[str]:
        raise error

    monkeypatch.setattr(background, "compile_kernels", fail)
    background.is_compiled(*KEY)
    wait_for(background)
    with pytest.raises(RuntimeError, match=words):
        background.take(*KEY)


def test_a_thread_that_cannot_be_started(background: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert background.is_compiled(*KEY)
    background.wait()
    with pytest.raises(RuntimeError, match="can't start new thread"):
        background.take(*KEY)


@pytest.mark.parametrize("path", [None, "", "/usr/bin/editor", "frozen"])
def test_a_program_that_has_python_inside(
    background: Any, monkeypatch: pytest.MonkeyPatch, path: Optional[str]
) -> None:
    """It is not started again: who needs the kernels compiles them."""
    if path == "frozen":
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    else:
        monkeypatch.setattr(sys, "executable", path)
    assert background.is_compiled(*KEY) and background.take(*KEY) is None and not background._works


# ---------------------------------------------------------------- a process of its own

HEADERS = {"cuda/device/std.h": "#pragma once\n"}
TINY = """#include "cuda/device/std.h"
template <int N> __global__ void add(float* x) { x[0] += N; }
"""
needs_nvrtc = pytest.mark.skipif(nvrtc.found() is None, reason="no NVRTC")


@needs_nvrtc
def test_a_process_compiles_as_the_library_does(background: Any) -> None:
    options = ["--gpu-architecture=sm_90", "--std=c++20"]
    source, kernels = nvrtc.Source(TINY, "tiny.cu", HEADERS, options), ["add<1>", "add<2>"]
    process = background._Process(nvrtc.subject())
    assert process.compile(source, kernels) == nvrtc.subject().compile(source, kernels)
    with pytest.raises(nvrtc.CompileError, match="no_such_type"):
        process.compile(source._replace(text="no_such_type x;"), kernels)


@needs_nvrtc
def test_a_process_that_is_killed(background: Any) -> None:
    """For want of memory, say."""
    expressions = [f"unary_forward<OpById<{number}>>" for number in range(5)]
    background.is_compiled("elementwise", expressions, 90, 0)
    (work,) = background._works.values()
    while not (work.compiler and work.compiler._running):
        assert not work.is_done()
        time.sleep(0.001)
    os.kill(work.compiler._running.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="NVRTC's process ended with status -9"):
        background.take("elementwise", expressions, 90, 0)


@needs_nvrtc
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 0", "gave no answer"),
        ("cat; exit 0", "gave no answer"),
        ("echo nothing to say >&2; exit 3", "ended with status 3. nothing to say"),
        ("", "cannot be started"),
    ],
)
def test_a_process_that_is_none_of_ours(
    background: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, words: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    python.chmod(0o755 if script else 0o644)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("DYNET_COMPAT_CACHE", "")
    background.is_compiled("elementwise", ["unary_forward<OpById<3>>"], 90, 0)
    with pytest.raises(RuntimeError, match=words):
        background.take("elementwise", ["unary_forward<OpById<3>>"], 90, 0)


@needs_nvrtc
def test_a_python_whose_forks_run_handlers(background: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """3.9: the engine's handlers would wait for its thread, with the interpreter locked."""
    spawned, spawn = [], os.posix_spawn

    def posix_spawn(*rest: Any, **more: Any) -> int:
        spawned.append(spawn(*rest, **more))
        return spawned[0]

    monkeypatch.setattr(background, "_FORKS_LIGHTLY", False)
    monkeypatch.setattr(os, "posix_spawn", posix_spawn)
    options = ["--gpu-architecture=sm_90", "--std=c++20"]
    process = background._Process(nvrtc.subject())
    assert process.compile(nvrtc.Source(TINY, "tiny.cu", HEADERS, options), ["add<1>"]).lowered
    assert spawned == [process._running.pid]


ENDS = """
import os, signal, sys, time
from dynet_compat import _core, cuda
from dynet_compat.cuda import background
number = next(i for i, row in enumerate(_core.op_table()) if row["name"] == "lstm_cell")
names = [f"node_{way}<OpById<{number}>>" for way in ("forward", "backward")]
assert not cuda.is_compiled("per_node", names, 90, 0)
(work,) = background._works.values()
while not (work.compiler and work.compiler._running):
    time.sleep(0.001)
time.sleep(float(sys.argv[1]))
print(work.compiler._running.pid, flush=True)
exec(sys.argv[2])
"""


@needs_nvrtc
@pytest.mark.parametrize("seconds", [0.0, 0.3, 0.6, 1.0])
def test_a_program_that_ends_meanwhile(tmp_path: Path, seconds: float) -> None:
    """NVRTC in a thread brought it down, wherever it was."""
    done = ends(tmp_path, str(seconds), "")
    assert done.returncode == 0, done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


@needs_nvrtc
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl")
@pytest.mark.parametrize("seconds", [0.0, 0.3])
@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL", "exit"])
def test_a_program_that_is_killed_meanwhile(tmp_path: Path, how: str, seconds: float) -> None:
    last = "os._exit(0)" if how == "exit" else f"os.kill(os.getpid(), signal.{how})"
    done = ends(tmp_path, str(seconds), last)
    assert done.returncode == (0 if how == "exit" else -signal.Signals[how]), done.stderr
    end = time.monotonic() + 1.0
    while is_running(int(done.stdout)):
        assert time.monotonic() < end, "it compiles for seconds"
        time.sleep(0.01)


def ends(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DYNET_COMPAT_CACHE": str(folder)}
    return subprocess.run([sys.executable, "-c", ENDS, *arguments], env=environment, capture_output=True,
                          text=True, timeout=300, check=False)  # fmt: skip


def is_running(process: int) -> bool:
    """One that has ended may wait for a parent who asks."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


# ---------------------------------------------------------------- programs

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
