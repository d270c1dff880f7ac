"""Kernels of a flush, compiled on all cores."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import nvrtc
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("our kernels", allow_module_level=True)

from dynet_compat.cuda import KernelError

together = importlib.import_module("dynet_compat.cuda.together")
needs_nvrtc = pytest.mark.skipif(nvrtc.found() is None, reason="no NVRTC")


def test_pieces() -> None:
    names = [("a", "1"), ("b", "1"), ("a", "2"), ("a", "3"), ("a", "4"), ("b", "2")]
    found = [together.pieces_of(together.by_file(names), count) for count in range(1, 9)]
    assert found[0] == found[1] == [("a", ["1", "2", "3", "4"]), ("b", ["1", "2"])]
    assert sorted(found[3]) == [("a", ["1", "2"]), ("a", ["3", "4"]), ("b", ["1"]), ("b", ["2"])]
    assert [len(pieces) for pieces in found] == [2, 2, 3, 4, 5, 6, 6, 6]
    for pieces in found:
        assert sorted((file, one) for file, kernels in pieces for one in kernels) == sorted(names)
    assert together.pieces_of({}, 4) == []


class Files:
    """In place of KernelFile: keeps `entries` in its cache, and compiles what `compile` makes."""

    def __init__(self) -> None:
        self.entries: list[list[str]] = []
        self.asked: list[list[str]] = []
        self.compile_one: Any = lambda kernels: None

    def __call__(self, file: str, *_: int) -> Files:
        return self

    def kept(self, wanted: list[str]) -> tuple[list[str], list[str]]:
        found = [entry for entry in self.entries if set(entry) & set(wanted)]
        return [f"kept {entry}" for entry in found], [one for one in wanted if one not in sum(found, [])]

    def compile(self, kernels: list[str]) -> str:
        self.asked.append(kernels)
        self.compile_one(kernels)
        return f"made {kernels}"


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    files = Files()
    monkeypatch.setattr(together, "KernelFile", files)
    monkeypatch.setattr(together, "cores", lambda: 3)
    yield files


def test_kernels_compile_at_the_same_time(files: Files) -> None:
    meet, collected = threading.Barrier(3, timeout=20), []

    def compile_one(kernels: list[str]) -> None:
        meet.wait()
        collected.append(gc.isenabled())
        if kernels == ["bad"]:
            raise KernelError("no such kernel")

    files.compile_one = compile_one
    found = together.compile_together([("a", "1"), ("b", "1"), ("a", "2")], 90, 0)
    assert sorted(found) == [("a", "made ['1']"), ("a", "made ['2']"), ("b", "made ['1']")]
    with pytest.raises(KernelError, match="no such kernel"):
        together.compile_together([("a", "1"), ("b", "1"), ("a", "bad")], 90, 0)
    assert collected == [False] * 6, "a __del__ that wants the device would wait for the thread that waits"
    assert gc.isenabled()


def test_the_cache_is_asked_first(files: Files) -> None:
    """An entry with several kernels is loaded once, and only what is missing is cut into pieces."""
    files.entries = [["1", "2", "3", "4", "5", "6"]]
    assert together.compile_together([("a", str(i)) for i in range(1, 7)], 90, 0) == [
        ("a", "kept ['1', '2', '3', '4', '5', '6']")
    ]
    assert files.asked == []
    together.compile_together([("a", str(i)) for i in range(1, 9)], 90, 0)
    assert sorted(files.asked) == [["7"], ["8"]]


def test_threads_that_cannot_be_started(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of the program, say: this one compiles them in turn."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert len(together.compile_together([("a", "1"), ("b", "1"), ("a", "2")], 90, 0)) == 3


def test_an_interrupt_leaves_out_what_was_not_begun(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_one(_: list[str]) -> None:
        raise KeyboardInterrupt

    files.compile_one = compile_one
    monkeypatch.setattr(together, "pieces_of", lambda files, count: [("a", [str(i)]) for i in range(40)])
    with pytest.raises(KeyboardInterrupt):
        together.compile_together([("a", str(i)) for i in range(40)], 90, 0)
    assert len(files.asked) <= 3 and gc.isenabled()


LAST = """
import atexit, importlib
from dynet_compat import _core
kernels = [(file, name) for file, name in _core._device_kernels() if file in ("lookup", "memory")][:3]
together = importlib.import_module("dynet_compat.cuda.together")
together.cores = lambda: 2
atexit.register(lambda: print(len(together.compile_together(kernels, 90, 0))))
"""


@needs_nvrtc
def test_a_flush_at_the_end_of_the_program(tmp_path: Path) -> None:
    environment = {**os.environ, "DYNET_COMPAT_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", LAST], env=environment, capture_output=True, text=True,
                          timeout=300, check=False)  # fmt: skip
    assert done.stdout == "2\n", done.stderr


def test_the_collector_waits_for_the_last_one() -> None:
    collection = together._Collection()
    with collection:
        with collection:
            assert not gc.isenabled()
        assert not gc.isenabled(), "somebody still compiles"
    assert gc.isenabled()
    gc.disable()
    try:
        with collection:
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


FORKS = """
import gc, importlib, os, sys
together = importlib.import_module("dynet_compat.cuda.together")
with together._collection:
    child = os.fork()
    if not child:
        enabled = gc.isenabled()
        with together._collection:
            inside = gc.isenabled()
        os._exit(0 if (enabled, inside, gc.isenabled()) == (True, False, True) else 1)
    status = os.waitpid(child, 0)[1]
sys.exit(status != 0)
"""


def test_a_fork_while_kernels_compile() -> None:
    subprocess.run([sys.executable, "-c", FORKS], timeout=300, check=True)
