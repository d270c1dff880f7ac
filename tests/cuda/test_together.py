"""Kernels of a flush, compiled on all cores."""

from __future__ import annotations

import gc
import importlib
import threading
from typing import Any

import pytest
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("our kernels", allow_module_level=True)

from dynet_compat.cuda import KernelError

together = importlib.import_module("dynet_compat.cuda.together")


def test_pieces() -> None:
    names = [("a", "1"), ("b", "1"), ("a", "2"), ("a", "3"), ("a", "4"), ("b", "2")]
    found = [together.pieces_of(names, count) for count in range(1, 9)]
    assert found[0] == found[1] == [("a", ["1", "2", "3", "4"]), ("b", ["1", "2"])]
    assert sorted(found[3]) == [("a", ["1", "2"]), ("a", ["3", "4"]), ("b", ["1"]), ("b", ["2"])]
    assert [len(pieces) for pieces in found] == [2, 2, 3, 4, 5, 6, 6, 6]
    for pieces in found:
        assert sorted((file, one) for file, kernels in pieces for one in kernels) == sorted(names)


def test_kernels_compile_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    meet, collected = threading.Barrier(3, timeout=20), []

    def take(file: str, kernels: list[str], *_: int) -> list[Any]:
        meet.wait()
        collected.append(gc.isenabled())
        if kernels == ["bad"]:
            raise KernelError("no such kernel")
        return [f"{file} {kernels}"]

    monkeypatch.setattr(together, "take", take)
    monkeypatch.setattr(together, "cores", lambda: 3)
    found = together.compile_together([("a", "1"), ("b", "1"), ("a", "2")], 90, 0)
    assert sorted(found) == [("a", "a ['1']"), ("a", "a ['2']"), ("b", "b ['1']")]
    with pytest.raises(KernelError, match="no such kernel"):
        together.compile_together([("a", "1"), ("b", "1"), ("a", "bad")], 90, 0)
    assert collected == [False] * 6, "a __del__ that wants the device would wait for the thread that waits"
    assert gc.isenabled()
