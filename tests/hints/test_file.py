"""The hints file: what is written is read, and whatever else is there is refused in one line."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import random
import sys
from pathlib import Path
from typing import Any, Callable

import pytest
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("our own command", allow_module_level=True)
sys.path.insert(0, str(Path(__file__).resolve().parent))
from dynet_compat.hints import hints_file  # noqa: E402
from dynet_compat.hints.analysis.script import ScriptAnalysis  # noqa: E402
from dynet_compat.hints.compiler import compile_script, hints_of  # noqa: E402
from sources import EXAMPLES, SCRIPTS, analysed, written  # noqa: E402

FUZZED = 300


@pytest.fixture(scope="module")
def text() -> str:
    """A file that has a record of every sort."""
    loop = hints_file.IndependentLoop("treelstm.py", "main", 3, 4, False, ("results",), ())
    hints = hints_of(ScriptAnalysis(str(EXAMPLES / "treelstm.py")))
    return hints_file.to_text(dataclasses.replace(hints, independent_loops=(loop,)))


def put(folder: Path, data: bytes) -> Path:
    path = folder / "treelstm.dyhints"
    path.write_bytes(data)
    return path


def refused(folder: Path, data: bytes) -> str:
    """The reason, which must be one line."""
    with pytest.raises(hints_file.HintsError) as caught:
        hints_file.read(str(put(folder, data)), str(EXAMPLES))
    reason = str(caught.value)
    assert reason and "\n" not in reason and len(reason) < 300
    return reason


@pytest.mark.parametrize(
    "path", sorted([*EXAMPLES.glob("*.py"), *SCRIPTS.glob("*.py")]), ids=lambda p: p.stem
)
def test_what_is_written_is_read(path: Path, tmp_path: Path) -> None:
    hints = hints_of(ScriptAnalysis(str(path)))
    file = tmp_path / "x.dyhints"
    hints_file.write(hints, str(file))
    assert hints_file.read(str(file), str(path.parent)) == hints
    assert [p.name for p in tmp_path.iterdir()] == ["x.dyhints"]


def test_one_line_per_record(text: str) -> None:
    contents = json.loads(text)
    assert len(text.splitlines()) > len(contents["functions"]) + len(contents["independent_loops"])
    assert text.isascii()


def test_sources_are_found_from_the_file(tmp_path: Path) -> None:
    """Written elsewhere, the file says where the script is."""
    script = written(tmp_path, "y = W * b\n")
    elsewhere = tmp_path / "a" / "b"
    elsewhere.mkdir(parents=True)
    output = str(elsewhere / "x.dyhints")
    hints = compile_script(str(script), output).hints
    hints_file.write(hints, output)
    assert hints_file.read(output).script == "script.py"
    moved = tmp_path / "moved.dyhints"
    moved.write_bytes(Path(output).read_bytes())
    with pytest.raises(hints_file.HintsError):
        hints_file.read(str(moved))
    assert hints_file.read(str(moved), str(tmp_path)) == hints


def test_stale(tmp_path: Path) -> None:
    script = written(tmp_path, "import helper\ny = W * b\n")
    helper = tmp_path / "helper.py"
    helper.write_text("x = 1\n", encoding="utf-8")
    file = str(tmp_path / "script.dyhints")
    hints_file.write(hints_of(ScriptAnalysis(str(script))), file)
    hints_file.read(file)
    helper.write_text("x = 2\n", encoding="utf-8")
    with pytest.raises(hints_file.HintsError, match="stale: helper.py has changed"):
        hints_file.read(file)
    helper.unlink()
    with pytest.raises(hints_file.HintsError, match="helper.py is not there"):
        hints_file.read(file)
    helper.write_text("x = 1\n", encoding="utf-8")
    hints_file.read(file)


def test_missing_and_special_files(tmp_path: Path) -> None:
    with pytest.raises(hints_file.HintsError, match="not there"):
        hints_file.read(str(tmp_path / "none"))
    with pytest.raises(hints_file.HintsError, match="not a regular file"):
        hints_file.read(str(tmp_path))
    with pytest.raises(hints_file.HintsError):
        hints_file.read("a\0b")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(hints_file.HintsError, match="not a regular file"):
            hints_file.read(str(tmp_path / "pipe"))


def test_a_source_that_became_a_pipe(tmp_path: Path) -> None:
    """A hostile folder may not make the reader hang."""
    if not hasattr(os, "mkfifo"):
        pytest.skip("no pipes")
    script = written(tmp_path, "y = W * b\n")
    file = str(tmp_path / "script.dyhints")
    hints_file.write(hints_of(ScriptAnalysis(str(script))), file)
    script.unlink()
    os.mkfifo(script)
    with pytest.raises(hints_file.HintsError, match="not a regular file"):
        hints_file.read(file)


def change(*path: Any, to: Any) -> Callable[[Any], Any]:
    def apply(contents: Any) -> Any:
        at = contents
        for key in path[:-1]:
            at = at[key]
        if to is KeyError:
            del at[path[-1]]
        else:
            at[path[-1]] = to
        return contents

    return apply


BAD: dict[str, tuple[Callable[[Any], Any], str]] = {
    "other format": (change("format", to="x"), "foreign"),
    "no format": (change("format", to=KeyError), "foreign"),
    "version": (change("version", to=2), "stale: the file has format 2"),
    "version true": (change("version", to=True), "stale"),
    "a list": (lambda c: [c], "foreign"),
    "a number": (lambda c: 3, "foreign"),
    "missing key": (change("functions", to=KeyError), "functions"),
    "unknown key": (change("code", to="import os"), "code"),
    "unknown key inside": (change("functions", 0, "code", to="x"), "code"),
    "text for a list": (change("functions", to="x"), "functions"),
    "number for a text": (change("functions", 0, "qualname", to=3), "qualname"),
    "text for a number": (change("independent_loops", 0, "line", to="3"), "line"),
    "true for a number": (change("independent_loops", 0, "line", to=True), "line"),
    "number for true": (change("independent_loops", 0, "renew_first", to=1), "renew_first"),
    "negative": (change("independent_loops", 0, "line", to=-5), "line"),
    "large": (change("independent_loops", 0, "line", to=2**31), "line"),
    "huge": (change("independent_loops", 0, "line", to=10**30), "damaged"),
    "fraction": (change("independent_loops", 0, "line", to=1.5), "damaged"),
    "null": (change("independent_loops", 0, "line", to=None), "line"),
    "infinite": (change("independent_loops", 0, "line", to=float("inf")), "damaged"),
    "line break": (change("functions", 0, "qualname", to="a\nb"), "qualname"),
    "long text": (change("functions", 0, "qualname", to="a" * 2000), "qualname"),
    "nested": (change("independent_loops", 0, "appends", to=[["x"]]), "appends"),
    "absolute source": (change("sources", to={"/etc/passwd": "0" * 64}), "no file of"),
    "source above": (change("sources", to={"../x.py": "0" * 64}), "no file of"),
    "drive": (change("sources", to={"c:x.py": "0" * 64}), "damaged"),
    "no hash": (change("sources", "treelstm.py", to="x"), "hash"),
    "other hash": (change("sources", "treelstm.py", to="0" * 64), "stale"),
    "no sources": (change("sources", to={}), "script"),
    "absolute root": (change("root", to="/"), "root"),
    "foreign file": (change("functions", 0, "file", to="other.py"), "other.py"),
    "foreign file of a loop": (change("independent_loops", 0, "file", to="other.py"), "other.py"),
}


@pytest.mark.parametrize(("edit", "word"), BAD.values(), ids=list(BAD))
def test_damaged(text: str, tmp_path: Path, edit: Callable[[Any], Any], word: str) -> None:
    contents = edit(copy.deepcopy(json.loads(text)))
    assert word in refused(tmp_path, json.dumps(contents).encode())


RAW = {
    "empty": b"",
    "binary": bytes(range(256)),
    "not UTF-8": b'{"format": "\xff"}',
    "truncated": b'{"format": "dynet_compat hints", "version": 4,',
    "nested lists": b"[" * 200_000,
    "nested tables": b'{"a":' * 200_000,
    "nested lists inside": b'{"format": "dynet_compat hints", "version": 4, "functions": ' + b"[" * 100_000,
    "long number": b'{"version": ' + b"9" * 100_000 + b"}",
    "not a number": b'{"format": "dynet_compat hints", "version": NaN}',
    "python": b"import os\n",
}


@pytest.mark.parametrize("data", RAW.values(), ids=list(RAW))
def test_raw(tmp_path: Path, data: bytes) -> None:
    refused(tmp_path, data)


def test_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(hints_file, "MAX_FILE", 100)
    assert "too large" in refused(tmp_path, text.encode())


def test_fuzzed_bytes(tmp_path: Path, text: str, fuzz_count: int) -> None:
    """Bytes changed, removed, doubled: an error in one line, or hints that pass every check."""
    rng = random.Random(11)
    data = text.encode()
    kept = 0
    for _ in range(fuzz_count or FUZZED):
        mutated = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(mutated))
            what = rng.randrange(4)
            if what == 0:
                mutated[at] = rng.randrange(256)
            elif what == 1:
                del mutated[at : at + rng.randint(1, 50)]
            elif what == 2:
                mutated[at:at] = mutated[at : at + rng.randint(1, 50)]
            else:
                mutated[at : at + 1] = rng.choice([b"[", b"{", b'"', b"-", b"0", b"null", b"true"])
        try:
            hints_file.read(str(put(tmp_path, bytes(mutated))), str(EXAMPLES))
            kept += 1
        except hints_file.HintsError as error:
            assert "\n" not in str(error)
    assert kept < (fuzz_count or FUZZED)


def test_fuzzed_values(tmp_path: Path, text: str, fuzz_count: int) -> None:
    """Values of other types and sizes anywhere."""
    rng = random.Random(12)
    values: list[Any] = [
        None,
        True,
        -1,
        0,
        2**31,
        10**12,
        1.5,
        "",
        "x",
        "../x",
        [],
        [[]],
        {},
        {"a": 1},
        "a" * 5000,
    ]
    for _ in range(fuzz_count or FUZZED):
        contents = json.loads(text)
        at: Any = contents
        while True:
            keys = list(at) if isinstance(at, dict) else range(len(at))
            key = rng.choice(list(keys))
            if not isinstance(at[key], (dict, list)) or not at[key] or rng.random() < 0.2:
                at[key] = rng.choice(values)
                break
            at = at[key]
        try:
            hints_file.read(str(put(tmp_path, json.dumps(contents).encode())), str(EXAMPLES))
        except hints_file.HintsError as error:
            assert "\n" not in str(error)


def test_names_of_the_script_that_a_file_cannot_hold(tmp_path: Path) -> None:
    """Texts of the program are made fit to be written, so that what is written can be read."""
    name = "y" * 1500
    text = f"{name} = []\ndef read(x): return (W * x).value()\n"
    text += f"def é():\n    for x in [1]: {name}.append(read(b))\n"
    hints = hints_of(analysed(tmp_path, text))
    assert [f.qualname for f in hints.functions] == ["read"]
    assert [(loop.qualname, len(loop.appends[0])) for loop in hints.independent_loops] == [("é", 1000)]
    assert hints_file.parse(hints_file.to_text(hints).encode()) == hints
