"""`compare` changes no file of the user's, whatever the script does, and compares what the script writes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.comparing import SELF, both_references, reference_of
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("for dynet_compat", allow_module_level=True)

from dynet_compat.compare import output_files, redirect, shadow_folders  # noqa: E402

SCRIPTS = Path(__file__).resolve().parent / "scripts"
HAS_LANDLOCK = subprocess.run(
    [sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv[1]); import redirect\n"
     "sys.exit(not redirect.landlock(['/dev']))", os.path.dirname(redirect.__file__)], check=False
).returncode == 0  # fmt: skip


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a script in a folder of its own, models and other files around it, and links."""
    base = tmp_path / "base"
    for folder in ("project/source", "project/data/deep", "models", "other", "outside"):
        (base / folder).mkdir(parents=True)
    project = base / "project"
    files = ["log.txt", "gone.txt", "native.txt", "stamped.txt", "tagger.model", "pair.data", "losses.txt"]
    files += [f"data/deep/{i}.txt" for i in range(5)]
    for path in [*(project / name for name in files), base / "models/abs.model", base / "other/far.txt"]:
        path.write_text("original\n")
    (project / "big.txt").write_text("original\n" * 1000)
    (base / "outside" / "native.txt").write_text("original\n")
    (project / "link.txt").symlink_to("log.txt")
    (project / "abslink.txt").symlink_to(base / "other" / "far.txt")
    (project / "dirlink").symlink_to("../other")
    for name in ("saver.py", "writing.py"):
        (project / "source" / name).write_text((SCRIPTS / name).read_text())
    monkeypatch.chdir(project)
    return base


def state(base: Path) -> dict[str, Any]:
    """Kind, rights, time and content of everything."""
    found: dict[str, Any] = {}
    for path in sorted(base.rglob("*")):
        status = path.lstat()
        content = os.readlink(path) if path.is_symlink() else ""
        if not content and path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path)] = (status.st_mode, status.st_mtime_ns, status.st_size, content)
    return found


@both_references
@pytest.mark.parametrize("largest", ["copied", "linked"])
def test_no_file_is_changed(
    kind: str, largest: str, base: Path, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if largest == "linked":
        if not HAS_LANDLOCK:
            pytest.skip("no Landlock, which stops other programs from writing to linked files")
        monkeypatch.setattr(shadow_folders, "MOST_BYTES", 4000)
        monkeypatch.setattr(shadow_folders, "MOST_ENTRIES", 5)
    before = state(base)
    done = command(
        *reference_of(kind), "source/saver.py", base, *(["and more"] if largest == "copied" else [])
    )
    assert state(base) == before, "compare changed files of the user's"
    assert done.status == 0, done.out + done.err + str(done.result["outputs"])
    found = {file["name"]: file["verdict"] for file in done.result["files"]}
    for name in ("tagger.model", "pair.data", str(base / "models" / "abs.model"), "losses.txt"):
        assert found[name] in ("same bytes", "same numbers"), found
    if largest == "copied":
        assert "all written" in done.result["outputs"][1]
        more = ["log.txt", "native.txt", "hard.txt", str(base / "other" / "far.txt"), "source/beside.txt"]
        assert set(more) <= set(found) and not any("big2" in name for name in found)
    assert "tagger.model" in done.out and "tagger.model" in done.report


@pytest.mark.parametrize("copies", [True, False], ids=["copied", "linked"])
def test_without_the_kernel(
    copies: bool, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's own functions need no Landlock."""
    if not copies:
        monkeypatch.setattr(shadow_folders, "MOST_BYTES", 0)
        monkeypatch.setattr(shadow_folders, "MOST_ENTRIES", 1)
    work = tmp_path / "work"
    (work / "run").mkdir(parents=True)
    before = state(base)
    originals = shadow_folders.Originals.around(str(base / "project/source/writing.py"), work / "originals")
    assert bool(originals.copies) == copies
    shadow = originals.shadow(work / "run" / "files")
    spec = {"shadow": shadow.root, "free": [], "out": str(work / "run")}
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import json, redirect, runpy\n"
        "redirect.landlock = lambda folders: False\n"
        "spec, script = json.loads(sys.argv[2]), sys.argv[3]\n"
        "redirect.install(spec); sys.argv = sys.argv[3:]; runpy.run_path(script, run_name='__main__')"
    )
    script = shadow.of(str(base / "project/source/writing.py"))
    line = [
        sys.executable,
        "-c",
        code,
        os.path.dirname(redirect.__file__),
        json.dumps(spec),
        script,
        str(base),
    ]
    environment = {**os.environ, "TMPDIR": str(work / "run")}
    done = subprocess.run(
        line, cwd=shadow.of(str(base / "project")), env=environment, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.stdout == "all written\n", done.stderr
    assert state(base) == before


@pytest.mark.skipif(not HAS_LANDLOCK, reason="no Landlock")
def test_the_kernel_refuses_other_programs(base: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import redirect, subprocess\n"
        "assert redirect.landlock([sys.argv[2]])\n"
        "for name in sys.argv[2:]: subprocess.run('echo x >> %s/f' % name, shell=True)"
    )
    (tmp_path / "free").mkdir()
    folder = os.path.dirname(redirect.__file__)
    line = [sys.executable, "-c", code, folder, str(tmp_path / "free"), str(base)]
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=300)
    assert (tmp_path / "free" / "f").read_text() == "x\n"
    assert not (base / "f").exists() and "ermission denied" in done.stderr


DIFFERENT = {"model": "tagger.model", "missing": "pair.meta", "text": "losses.txt"}


@pytest.mark.parametrize("how", sorted(DIFFERENT))
def test_what_is_written_differs(how: str, base: Path, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FILES", how)
    done = command(*SELF, "source/saver.py", base)
    assert done.status == 1 and done.result["status"] == "different", done.out
    first = done.result["first"]
    assert first["what"] == "file"
    wrong = {f["name"] for f in done.result["files"] if f["verdict"] not in ("same bytes", "same numbers")}
    assert DIFFERENT[how] in wrong and first["place"] in wrong, wrong
    if how == "model":
        assert first["place"] == str(base / "models" / "abs.model")
        assert 5e-4 < first["relative"] < 2e-3 and "/_0" in first["source"]


def test_what_varies_is_no_difference(base: Path, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FILES", "time")
    done = command(*SELF, "source/saver.py", base)
    assert done.status == 0, done.out
    assert {f["verdict"] for f in done.result["files"] if f["name"] == "log.txt"} == {"varies"}
    assert "differs in each run" in done.out


def test_names_that_vary_are_no_difference(base: Path, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models and logs with the time in their name, of which each run writes others."""
    monkeypatch.setenv("FILES", "named")
    done = command(*SELF, "source/saver.py", base)
    assert done.status == 0, done.out
    renamed = [f for f in done.result["files"] if f["is_renamed"]]
    assert len(renamed) == 7 and all(None not in f["sizes"] for f in renamed), renamed
    assert "another name in each run" in done.report


def test_contents_under_names_that_vary(base: Path, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FILES", "named, other numbers")
    done = command(*SELF, "source/saver.py", base)
    assert done.status == 1, done.out
    assert done.result["first"]["place"].endswith("step2.data")
    monkeypatch.setenv("FILES", "named, one more")
    done = command(*SELF, "source/saver.py", base)
    assert done.status == 1, done.out


CONTENTS = {
    "bytes": (b"\0\1", b"\0\1", 0.0),
    "other bytes": (b"\0\1", b"\0\2", float("inf")),
    "block sizes": (
        b"#Parameter# /a {2} 12 ZERO_GRAD\n1.0 2.0\n", b"#Parameter# /a {2} 10 ZERO_GRAD\n1 2\n", 0.0
    ),
    "names": (b"#Parameter# /a {2} 12 FULL_GRAD\n1 2\n", b"#Parameter# /b {2} 12 FULL_GRAD\n1 2\n",
              float("inf")),
    "digits": (b"loss 1.23456 at 7\n", b"loss 1.23457 at 7\n", 0.0),
    "words": (b"loss 1.2\n", b"cost 1.2\n", float("inf")),
    "numbers": (b"loss 1.200000\n", b"loss 1.300000\n", 0.0833),
    "whole numbers": (b"93 of 100 in 0.931234567 s\n", b"94 of 100 in 0.931234568 s\n", float("inf")),
    "a whole number of digits": (b"loss 1\n", b"loss 1.00001\n", 0.0),
    "each its own digits": (b"loss 5.1234567 and 3.2\n", b"loss 6.1234567 and 3.2\n", 0.1952),
    "lines": (b"a\n", b"a\nb\n", float("inf")),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CONTENTS))
def test_contents(name: str) -> None:
    want, got, difference = CONTENTS[name]
    one = output_files.OutputFile("file", [len(want), len(got)], "same bytes")
    output_files._fill(one, want, got, 1e-4)
    assert (one.difference or 0.0) == pytest.approx(difference, abs=1e-4)
    assert one.is_equal == (difference < 1e-4)


def test_arrays(tmp_path: Path) -> None:
    contents = []
    for factor in (1.0, 1.01):
        np.savez(tmp_path / "x.npz", a=np.ones(3), b=factor * np.arange(3.0))
        contents.append((tmp_path / "x.npz").read_bytes())
    one = output_files.OutputFile("x.npz", [1, 1], "same bytes")
    output_files._fill(one, contents[0], contents[1], 1e-4)
    assert one.verdict == "differs" and one.detail == "b" and one.difference == pytest.approx(0.01)
