"""`profile()` where it cannot go on: errors, limits, full disks."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from support.subject import IS_REFERENCE
from test_profile import Program, check_tracks, of

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="not in DyNet")


def test_error_in_the_block(dy: Any, tmp_path: Path) -> None:
    program, path = Program(dy), tmp_path / "trace.json"
    with pytest.raises(KeyError, match="mine"), dy.profile(path) as p:
        program.step()
        raise KeyError("mine")
    assert len(json.loads(path.read_text())["traceEvents"]) > len(p.events) > 10
    with dy.profile():  # the one before is over
        pass


def test_flush_that_fails(dy: Any) -> None:
    dy.renew_cg()
    x = dy.inputVector([1, 2])
    good = dy.exp(x)
    bad = dy.pick(dy.tanh(good), 7)
    with dy.profile() as p:
        with pytest.raises(ValueError, match="pick"):
            bad.value()
        assert good.value() == pytest.approx([2.71828, 7.38906], rel=1e-4)
    check_tracks(p.events)
    failed = [e["cat"] for e in p.events if e["args"].get("failed")]
    assert sorted(failed) == ["call", "forward"]
    assert not any(e["args"].get("failed") for e in of(p.events, "call")[1:])
    assert sum(p._threads[0].seconds().values()) > 0


def test_one_at_a_time(dy: Any) -> None:
    with dy.profile() as p:
        with pytest.raises(RuntimeError, match="another profile is running"):
            dy.profile().start()
        assert repr(p) == "<profile: running>"
    with pytest.raises(RuntimeError, match="without start"):
        p.stop()
    assert p.start().stop() is p


@pytest.mark.parametrize(
    ("path", "error"), [("no/such/folder/t.json", FileNotFoundError), (".", IsADirectoryError)]
)
def test_path_is_checked_before(dy: Any, tmp_path: Path, path: str, error: type[OSError]) -> None:
    with pytest.raises(error, match="cannot write the trace") as caught:
        with dy.profile(tmp_path / path):
            pytest.fail("the block must not run")
    assert caught.value.filename == str(tmp_path / path) and os.listdir(tmp_path) == []
    with dy.profile():
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_rights(dy: Any, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PermissionError, match="cannot write the trace"):
            dy.profile(tmp_path / "t.json").start()
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_disk_full(dy: Any, tmp_path: Path) -> None:
    program = Program(dy)
    p = dy.profile("/dev/full").start()
    program.step()
    with pytest.raises(OSError, match="cannot write the trace: No space left on device"):
        p.stop()
    assert p.events  # nothing is lost
    p.save(tmp_path / "t.json")
    assert os.listdir(tmp_path) == ["t.json"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(KeyError), dy.profile("/dev/full"):
            raise KeyError
    assert ["cannot write the trace" in str(w.message) for w in caught] == [True]


def test_disk_full_leaves_the_old_file(dy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.json"
    path.write_text("old")
    p = dy.profile(path).start()
    Program(dy).step()

    def full(*args: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.write", full)
    with pytest.raises(OSError, match="No space left"):
        p.stop()
    monkeypatch.undo()
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["t.json"]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"path": 3}, TypeError, "expected a str or a path, got int"),
        ({"path": b"x"}, TypeError, "expected a str or a path, got bytes"),
        ({"limit": 0}, ValueError, "limit >= 1, got 0"),
        ({"limit": 1.5}, TypeError, "expected an int for limit, got float"),
        ({"limit": True}, TypeError, "expected an int for limit, got bool"),
    ],
)
def test_arguments(dy: Any, arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        dy.profile(**arguments)


def test_limit(dy: Any) -> None:
    program = Program(dy)
    with dy.profile(limit=7) as p:
        program.step()
    spans = sum(len(t.spans) for t in p._threads)
    assert spans == 7
    assert "the limit of 7 events was reached" in p.summary()
