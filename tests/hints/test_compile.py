"""The command: what it says, what it writes, what it never does."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("our own command", allow_module_level=True)
sys.path.insert(0, str(Path(__file__).resolve().parent))
from dynet_compat.hints import cli, compiler, hints_file  # noqa: E402
from dynet_compat.hints.analysis import interpreter, load  # noqa: E402
from dynet_compat.hints.analysis.script import ScriptAnalysis  # noqa: E402
from sources import EXAMPLES, MODEL, generated, written  # noqa: E402


def command(*arguments: Any, folder: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "dynet_compat", "compile", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=300, cwd=folder)


def test_command(tmp_path: Path) -> None:
    written(tmp_path, "def cell(x): return dy.tanh(W * x)\ny = cell(b)\n")
    done = command("script.py", "--explain", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "script.dyhints: 2 sites, 0 loops (0 recurrent), 1 region, 0 batch_map loops; "
    )
    assert "what prevents batching:\n  nothing that can be seen\n" in done.stdout
    assert "  script.py:9: cell(): line 9" in done.stdout
    hints = hints_file.read(str(tmp_path / "script.dyhints"))
    assert [f.qualname for f in hints.functions] == ["cell"]


def test_output(tmp_path: Path) -> None:
    written(tmp_path, "y = W * b\n")
    (tmp_path / "deep").mkdir()
    assert command("script.py", "-o", "deep/h", folder=tmp_path).returncode == 0
    assert hints_file.read(str(tmp_path / "deep" / "h")).root == ".."
    assert not (tmp_path / "script.dyhints").exists()


@pytest.mark.parametrize(
    ("script", "name"), [("a/x.py", "a/x.dyhints"), ("x.pyw", "x.dyhints"), ("x.5", "x.5.dyhints")]
)
def test_default_output(script: str, name: str) -> None:
    assert cli.default_output(script) == name


def test_the_script_is_not_run(tmp_path: Path) -> None:
    """Neither it nor its modules, whatever they do when they are imported."""
    (tmp_path / "helper.py").write_text("open('ran2', 'w')\nraise SystemExit(3)\n", encoding="utf-8")
    written(tmp_path, "import helper\nopen('ran1', 'w')\nx = W * b\nraise SystemExit(3)\n")
    assert command("script.py", "--explain", folder=tmp_path).returncode == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["helper.py", "script.dyhints", "script.py"]
    assert hints_file.read(str(tmp_path / "script.dyhints")).functions


# ---------------------------------------------------------------- what cannot be compiled


@pytest.mark.parametrize(("name", "words"), [("none.py", "no such file"), ("folder", "is a directory")])
def test_no_script(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, words: str) -> None:
    (tmp_path / "folder").mkdir()
    assert cli.main([str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("compile: ") and words in error and error.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_special_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("no pipes")
    os.mkfifo(tmp_path / "x.py")
    assert cli.main([str(tmp_path / "x.py")]) == 2
    assert "not a regular file" in capsys.readouterr().err


DEFEATED = {
    "syntax": (b"import dynet as dy\nx = = 3\n", ":2: not Python 3"),
    "python 2": (b"import dynet as dy\nprint 'loss', 3\n", ":2: not Python 3"),
    "python 2 hint": (b"print 'x'\n", "Python 2?"),
    "indentation": (b"if 1:\nx = 3\n", ":2: not Python 3"),
    "binary": (bytes(range(256)) * 4, ":1: "),
    "null bytes": (b"x = 1\n\0\n", ": not"),
    "encoding": (b"x = '\xff\xfe'\n", ": not Python 3"),
    "unknown encoding": (b"# coding: klingon\nx = 1\n", "not Python 3"),
    "deep": (b"x = " + b"(" * 5000 + b"1" + b")" * 5000 + b"\n", ":1: "),
    "eval": (MODEL.encode() + b"x = eval('W * b')\n", ":9: eval() can do anything"),
    "exec": (MODEL.encode() + b"def f():\n    exec('x = 1')\ny = W * b\n", ":10: exec() can do anything"),
    "star": (MODEL.encode() + b"from torch.nn import *\ny = W * b\n", ":9: from torch.nn import *"),
}


@pytest.mark.parametrize(("data", "words"), DEFEATED.values(), ids=list(DEFEATED))
def test_defeated(tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes, words: str) -> None:
    """One line that says why, and an empty file that is valid."""
    (tmp_path / "x.py").write_bytes(data)
    assert cli.main([str(tmp_path / "x.py"), "--explain"]) == 0
    errors = capsys.readouterr().err
    assert "x.py:" in errors and words in errors and errors.count("\n") == 1
    hints = hints_file.read(str(tmp_path / "x.dyhints"))
    assert (hints.functions, hints.independent_loops) == ((), ())
    assert list(hints.sources) == ["x.py"]


def test_too_large(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "MAX_BYTES", 1000)
    (tmp_path / "x.py").write_text("x = 1\n" * 1000, encoding="utf-8")
    assert cli.main([str(tmp_path / "x.py")]) == 0
    assert "x.py:1: too large" in capsys.readouterr().err


def test_a_module_that_cannot_be_parsed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The script's own facts stay."""
    (tmp_path / "old.py").write_text("print 'x'\n", encoding="utf-8")
    script = written(tmp_path, "import old\ny = dy.tanh(W * b)\nold.f(y)\n")
    assert cli.main([str(script)]) == 0
    assert "old.py:1: not Python 3" in capsys.readouterr().err
    assert hints_file.read(str(tmp_path / "script.dyhints")).functions


def test_computed_names_cost_their_function_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        "def f(x, name): setattr(dy, name, W * x)\ndef g(x): return dy.tanh(W * x)\n"
        "def h(x, name): return getattr(dy, name)(W * x)\n"
        "f(b, input())\ng(h(b, input()))\n"
    )
    script = written(tmp_path, text)
    assert cli.main([str(script)]) == 0
    said = capsys.readouterr().err
    assert "script.py:9: setattr() with a computed name" in said
    assert "script.py:11: getattr() with a computed name" in said
    hints = hints_file.read(str(tmp_path / "script.dyhints"))
    assert [f.qualname for f in hints.functions] == ["g", "h"]


def test_cyclic_imports(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.py").write_text(
            f"import {other}\nimport script\nx = {other}.x\n", encoding="utf-8"
        )
    script = written(tmp_path, "import a\nimport script\nclass A(A): pass\nclass B(B, A): pass\ny = B().y\n")
    assert cli.main([str(script)]) == 0


def test_other_files_are_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = written(tmp_path, "y = W * b\n")
    before = script.read_bytes()
    for output in (script, tmp_path / "notes.txt"):
        (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
        assert cli.main([str(script), "-o", str(output)]) == 2
        assert "is no hints file and is not replaced" in capsys.readouterr().err
    assert script.read_bytes() == before and (tmp_path / "notes.txt").read_text(encoding="utf-8") == "mine"


def test_unwritable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = written(tmp_path, "y = W * b\n")
    assert cli.main([str(script), "-o", str(tmp_path / "no" / "folder" / "x")]) == 2
    assert "cannot write" in capsys.readouterr().err
    assert cli.main([str(script), "-o", str(tmp_path)]) == 2


def test_a_fault_of_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception inside costs the hints and nothing more."""

    def broken(*_: Any) -> Any:
        raise KeyError("oh")

    monkeypatch.setattr(compiler, "ScriptAnalysis", broken)
    script = written(tmp_path, "y = W * b\n")
    assert cli.main([str(script)]) == 0
    assert "the analysis failed (KeyError" in capsys.readouterr().err
    assert hints_file.read(str(tmp_path / "script.dyhints")).functions == ()


# ---------------------------------------------------------------- time, depth, order

NESTED = {
    "sum of 3000": "x = W * b" + " + b" * 3000 + "\n",
    "product of 500": "x = " + "(W * " * 80 + "b" + ")" * 80 + "\n",
    "calls": "x = " + "dy.tanh(" * 90 + "b" + ")" * 90 + "\n",
    "attributes": "x = b" + ".a" * 500 + "\n",
    "not": "x = " + "not " * 500 + "b\n",
    "branches": "".join("    " * i + "if b:\n" for i in range(90)) + "    " * 90 + "x = W * b\n",
    "elif": "if b: pass\n" + "elif b: x = W * b\n" * 800,
    "functions": "".join("    " * i + f"def f{i}():\n" for i in range(90)) + "    " * 90 + "return W * b\n",
    "loops": "".join("    " * i + f"for i{i} in b:\n" for i in range(18)) + "    " * 18 + "b = W * b\n",
    "lists": "x = " + "[" * 90 + "b" + "]" * 90 + "\n",
    "mutual recursion": "f0 = 0\n"
    + "".join(f"def f{i}(x): return f{(i + 1) % 300}(W * x)\n" for i in range(300)) + "f0(b)\n",
    "many calls": "def f(x): return dy.tanh(x)\n" + "f(b)\n" * 1000,
    "many weights": "".join(f"W{i} = pc.add_parameters(3)\n" for i in range(400)) + "x = ["
    + ", ".join(f"W{i} * b" for i in range(400)) + "]\nfor y in x: b = y * b\n",
    "one long line": "x = [" + ", ".join(["W * b"] * 5000) + "]\n",
    "growing tuples": "x = b\nwhile x: x = (x, x)\n",
    "growing strings": "x = ''\nwhile 1:\n    x += 'a'\n",
    "self call": "f = lambda g: g(g)\nf(f)\n",
    "decorators": "@f\n" * 500 + "def f(): return W * b\n",
    "lambdas": "x = " + "lambda: " * 90 + "b\n",
}  # fmt: skip


@pytest.mark.parametrize("text", NESTED.values(), ids=list(NESTED))
def test_nested(tmp_path: Path, text: str) -> None:
    """Depth and size of any kind: an answer, in a time that is proportional to the text."""
    script = written(tmp_path, text)
    start = time.process_time()
    hints = compiler.hints_of(ScriptAnalysis(str(script)))
    assert time.process_time() - start < 20
    assert hints_file.parse(hints_file.to_text(hints).encode()) == hints


def test_many_branches(tmp_path: Path) -> None:
    """Each elif lies inside the one before: more than the analysis can descend, and no fault to report."""
    branches = "".join(f"elif b == {i}: x = W * b\n" for i in range(1500))
    script = written(tmp_path, "if b == 0: pass\n" + branches)
    found = compiler.compile_script(str(script), str(tmp_path / "script.dyhints"))
    assert len(found.problems) == 1 and "nested too deeply" in found.problems[0], found.problems


@pytest.mark.parametrize("element", ["(1, 'a')", "'word': [-1.0, 2]"])
def test_data_in_the_source(tmp_path: Path, element: str) -> None:
    """A line of a megabyte is read in seconds, not in minutes, and what uses it is analysed."""
    begin, end = ("{", "}") if ":" in element else ("[", "]")
    data = f"data = {begin}{', '.join([element] * (1_000_000 // (len(element) + 2)))}{end}\n"
    script = written(tmp_path, data + "for x in data: y = dy.tanh(W * b)\n")
    start = time.process_time()
    found = ScriptAnalysis(str(script))
    assert time.process_time() - start < 20
    assert sorted(found.facts.ops.values()) == ["mul", "tanh"] and len(found.loops.found) == 1


def test_mixed_data_stay() -> None:
    """Only what has the shape of something before it is left out, and nothing where a name is among it."""
    many = ", ".join(["1", "'a'", "(1, 2)", "('a', 1)", "[1, 2]", "-1"] * 300)
    tree = load.shorten(ast.parse(f"[{many}]\n[{many}, f()]"))
    sizes = [len(node.value.elts) for node in tree.body]
    assert sizes == [5, 1801]


@pytest.mark.parametrize(("lines", "seconds"), [(1_000, 2.0), (10_000, 25.0)])
def test_time(tmp_path: Path, lines: int, seconds: float) -> None:
    script = written(tmp_path, generated(lines), model=False)
    taken = []
    for _ in range(3):  # other processes may be using the machine
        start = time.process_time()
        found = compiler.compile_script(str(script), "x")
        taken.append(time.process_time() - start)
        if taken[-1] < seconds:
            break
    assert min(taken) < seconds and not found.problems
    assert len(found.hints.functions) >= lines // 40


def test_limits_are_met_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a small budget the analysis ends and says so."""
    monkeypatch.setattr(interpreter, "MAX_STEPS", 1000)
    found = ScriptAnalysis(str(written(tmp_path, generated(1000), model=False)))
    assert not found.state.complete
    assert any("not analysed to the end" in problem.text for problem in found.program.problems)


def test_the_same_every_time(tmp_path: Path) -> None:
    """In processes with different hash seeds, too."""
    texts = set()
    for seed in ("1", "2", "3"):
        for name in ("parser", "treelstm", "seq2seq"):
            output = tmp_path / f"{name}-{seed}"
            line = [
                sys.executable,
                "-m",
                "dynet_compat",
                "compile",
                str(EXAMPLES / f"{name}.py"),
                "-o",
                str(output),
            ]
            subprocess.run(line, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed})
            texts.add(output.read_text(encoding="utf-8"))
    assert len(texts) == 3


# ---------------------------------------------------------------- progress and profile


def test_progress(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = [0.0]
    monkeypatch.setattr(cli.time, "perf_counter", lambda: clock[0])
    bar = cli.Bar(True)
    bar.update(1, 9)
    assert capsys.readouterr().err == ""  # nothing in the first second
    clock[0] = 1.5
    bar.update(5, 5)
    clock[0] = 2.0
    bar.update(6, 94)  # more work was found: the bar does not go back
    shown = capsys.readouterr().err
    assert shown.count("50%") == 2 and "###############..............." in shown
    bar.done()
    assert capsys.readouterr().err.endswith("\r")
    quiet = cli.Bar(False)
    clock[0] = 9.0
    quiet.update(1, 1)
    quiet.done()
    assert capsys.readouterr().err == ""


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0 and "--explain" in capsys.readouterr().out


def test_the_page_shows_what_is_printed(tmp_path: Path) -> None:
    """The output in the migration guide is the command's, its time apart."""
    page = (EXAMPLES.parent / "migration_guide" / "hints.md").read_text(encoding="utf-8")
    script = re.search(r"^```python tagger.py\n(.*?)^```$", page, re.M | re.S)
    shown = re.search(r"^```text\n(.*?)^```$", page, re.M | re.S)
    assert script and shown
    (tmp_path / "tagger.py").write_text(script.group(1), encoding="utf-8")
    printed = command("tagger.py", "--explain", folder=tmp_path).stdout
    without_time = [re.sub(r"[0-9.]+ s$", "", text, flags=re.M) for text in (printed, shown.group(1))]
    assert without_time[0] == without_time[1]
