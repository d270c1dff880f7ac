"""A job that was killed finds the files of its checkpoint again, and takes nobody's file away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dynet_compat.distributed.kept_files import KeptFiles
from support.jobs import job

CHECKPOINT = ["run", 6, "shard()"]

# Update 7 goes on from what update 3 has saved, and saves over it; the checkpoint is of update 6. Files that
# were not there then must not be there again when update 7 asks for them.
LOADS = """
import os, sys
import dynet as dy

pc = dy.ParameterCollection()
p, q = pc.add_parameters(3, init=1), pc.add_parameters(3, init=1)
trainer = dy.AdamTrainer(pc)
for k in range(1, int(sys.argv[1]) + 1):
    batch = dy.distributed.shard([1, 2, 3])
    dy.renew_cg()
    dy.esum([dy.squared_norm(p - x) + dy.squared_norm(q + x) for x in batch]).backward()
    trainer.update()
    if k == 7:
        p.populate("one", "/_0")
        trainer.populate("trainer")
        q.set_value(dy.load("pair", dy.ParameterCollection())[0].as_array() / 2)
        p.set_value(p.as_array() / (3 if os.path.exists("new") else 2))
        trainer.learning_rate /= 2
        dy.distributed.sum(0)  # every rank has read what rank 0 saves over
    if k in (3, 7):
        p.save("one", "/_0")
        trainer.save("trainer")
        dy.save("pair", [q])
    if k == 7:
        p.save("new")
    if k == int(sys.argv[2]):
        dy.distributed.sum(0)
        os._exit(9)
print(pc.values_hash(), trainer.state_hash())
"""


def alone(folder: Path, *words: Any) -> subprocess.CompletedProcess[str]:
    """A job of one process, without an MPI."""
    start = [sys.executable, "-m", "dynet_compat", "distribute", *map(str, words)]
    return subprocess.run(start, capture_output=True, text=True, timeout=300, cwd=folder)


def run(folder: Path, updates: int, dies_at: int, saved: str, ranks: int) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(LOADS)
    words = [folder / "script.py", updates, dies_at]
    options = ("--every", 3, "--checkpoint", folder / saved, "--seed", 7, "--timeout", 5)
    if ranks == 1:
        return alone(folder, *options, *words)
    return job(words, ranks, options=options, cwd=folder)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_killed_job_finds_the_files_of_its_checkpoint(tmp_path: Path, ranks: int) -> None:
    """As often as it is started again. Copies of older ones do not stay."""
    for dies_at in (7, 8):
        killed = run(tmp_path, 10, dies_at, "a", ranks)
        assert killed.returncode != 0, killed.stderr
    again = run(tmp_path, 10, 0, "a", ranks)
    assert again.returncode == 0 and "resuming after update 6" in again.stderr, again.stderr
    for name in ("one", "trainer", "pair.data", "pair.meta", "new"):
        assert name in again.stderr.split("as at the checkpoint again: ")[1], again.stderr
        later = [path.name for path in (tmp_path / "a" / ".dynet-kept").glob(f"later-*-{name}")]
        assert len(later) == 2, "of either killed job"
    (tmp_path / "new").unlink()
    whole = run(tmp_path, 10, 0, "b", ranks)
    assert again.stdout == whole.stdout != "", whole.stderr
    assert not list((tmp_path / "a" / ".dynet-kept").glob("copy*")), "the last checkpoint is of update 9"


def test_a_job_that_has_ended_puts_nothing_back(tmp_path: Path) -> None:
    assert run(tmp_path, 8, 0, "a", 1).returncode == 0
    assert not (tmp_path / "a" / ".dynet-kept").exists()
    again = run(tmp_path, 8, 0, "a", 1)
    assert again.returncode == 0 and "resuming after update 6" in again.stderr, again.stderr
    assert "as at the checkpoint" not in again.stderr and "left" not in again.stderr, again.stderr


@pytest.mark.parametrize("end", ["raise KeyError", "sys.exit(3)"])
def test_an_exception_is_no_end(tmp_path: Path, end: str) -> None:
    """Of one process, which ends as Python does."""
    (tmp_path / "script.py").write_text(LOADS.replace("os._exit(9)", end))
    options = ("--every", 3, "--checkpoint", tmp_path / "a")
    failed = alone(tmp_path, *options, tmp_path / "script.py", 9, 8)
    assert failed.returncode != 0
    assert list((tmp_path / "a" / ".dynet-kept").glob("copy-*"))


# ------------------------------------------------------------------------------ without a job


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c").mkdir()
    return tmp_path


def kept(checkpoint: Any = CHECKPOINT) -> KeptFiles:
    """Of a job that has just written that checkpoint."""
    files = KeptFiles("c")
    files.restart(checkpoint)
    return files


def replace(path: Path, text: str) -> None:
    """As savers do."""
    path.with_name("part").write_text(text)
    os.replace(path.with_name("part"), path)


def save(files: KeptFiles, path: Path, text: str) -> None:
    files.keep(str(path))
    replace(path, text)
    files.saved(str(path))


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


def aside(place: Path) -> list[str]:
    return sorted(path.read_text() for path in (place / "c" / ".dynet-kept").glob("later-*"))


def test_the_later_file_is_moved_aside(place: Path, capfd: Any) -> None:
    (place / "best").write_text("old")
    files = kept()
    for text in ("later", "last"):
        save(files, place / "best", text)
        save(files, place / "new", text)
    for _ in range(2):
        KeptFiles("c").begin(CHECKPOINT)
        assert contents(place) == {"best": "old"} and aside(place) == ["last", "last"]
    assert capfd.readouterr().err.count("\n") == 1
    again = KeptFiles("c")
    again.begin(CHECKPOINT)
    save(again, place / "best", "second")
    again.restart(["run", 9, "shard()"])
    KeptFiles("c").begin(["run", 9, "shard()"])
    assert contents(place) == {"best": "second"} and aside(place) == ["last", "last"]


def test_a_file_of_the_user_is_left(place: Path, capfd: Any) -> None:
    """Which was put there, written into, or taken away after the job was killed."""
    files = kept()
    for name in ("put", "written", "gone"):
        (place / name).write_text("old")
    for name in ("put", "written", "gone", "new"):
        save(files, place / name, "later")
    replace(place / "put", "mine!")
    replace(place / "new", "mine!")
    (place / "written").write_text("mine!")
    (place / "gone").unlink()
    again = KeptFiles("c")
    again.begin(CHECKPOINT)
    assert contents(place) == dict.fromkeys(("put", "written", "new"), "mine!")
    errors = capfd.readouterr().err.splitlines()
    assert len(errors) == 4 and all("left as it is" in line for line in errors), errors
    save(again, place / "put", "second")
    KeptFiles("c").begin(CHECKPOINT)
    assert (place / "put").read_text() == "mine!"


@pytest.mark.parametrize("now", [None, ["other", 6, "shard()"], ["run", 9, "shard()"]])
def test_a_list_of_another_checkpoint_is_not_used(place: Path, now: Any) -> None:
    (place / "best").write_text("old")
    save(kept(), place / "best", "later")
    KeptFiles("c").begin(now)
    assert contents(place) == {"best": "later"} and not (place / "c" / ".dynet-kept").exists()


def test_without_a_checkpoint_nothing_goes_back(place: Path) -> None:
    (place / "best").write_text("old")
    save(kept(None), place / "best", "later")
    KeptFiles("c").begin(None)
    assert contents(place) == {"best": "later"}


def test_a_copied_folder_changes_no_other(place: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    (place / "best").write_text("old")
    save(kept(), place / "best", "later")
    (place / "copied").mkdir()
    os.link(place / "best", place / "copied" / "best")  # even the file itself
    (place / "c").rename(place / "copied" / "c")
    monkeypatch.chdir(place / "copied")
    KeptFiles("c").begin(CHECKPOINT)
    assert (place / "best").read_text() == (place / "copied" / "best").read_text() == "later"
    assert f"the killed job ran in {place}" in capfd.readouterr().err


def test_files_beside_the_checkpoint_stay(place: Path) -> None:
    """Whatever they are called."""
    own = place / "c" / ".dynet-kept"
    (place / "c" / "kept_models").mkdir()
    (own / "copy-0").mkdir(parents=True)
    for path in (place / "c" / "kept_results.txt", own / "copy-1.txt", own / "later-x"):
        path.write_text("mine")
    kept()
    assert sorted(contents(place / "c")) == ["kept_results.txt"]
    assert sorted(contents(own)) == ["copy-1.txt", "later-x"] and (own / "copy-0").is_dir()
    assert (place / "c" / "kept_models").is_dir()


def test_what_cannot_be_put_back_is_said(place: Path, capfd: Any) -> None:
    """A folder or a copy is gone: the others go back, and no copy is lost."""
    files, folder = kept(), place / "models"
    folder.mkdir()
    for path in (folder / "a", place / "b", place / "best"):
        path.write_text("old")
        save(files, path, "later")
    own = place / "c" / ".dynet-kept"
    folder.rename(place / "moved")
    (own / json.loads((own / "list").read_text())["files"]["b"][0]).unlink()
    KeptFiles("c").begin(CHECKPOINT)
    assert contents(place) == {"b": "later", "best": "old"} and aside(place) == ["later"]
    assert len(list(own.glob("copy-*"))) == 2 and (place / "moved" / "a").read_text() == "later"
    errors = capfd.readouterr().err
    assert "models/a is" in errors and "b is left as it was saved" in errors, errors


def test_saves_go_on_where_nothing_can_be_kept(place: Path, capfd: Any) -> None:
    """A warning is enough. What is first kept later is not the file of the checkpoint."""
    (place / "best").write_text("old")
    files = kept()
    (place / "c" / ".dynet-kept").write_text("no folder")
    for text in ("later", "last"):
        save(files, place / "best", text)
        save(files, place / "new", text)
    assert contents(place) == {"best": "last", "new": "last"}
    assert capfd.readouterr().err.count("a killed job may resume with files") == 1
    (place / "c" / ".dynet-kept").unlink()
    save(files, place / "best", "at the end")
    KeptFiles("c").begin(CHECKPOINT)
    assert contents(place) == {"best": "at the end", "new": "last"}
