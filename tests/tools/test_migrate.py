"""The `migrate` command."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("our own command", allow_module_level=True)
from dynet_compat import migrate

CHANGES = [
    ("import dynet as dy", "import dynet_compat as dy"),
    ("import dynet", "import dynet_compat as dynet"),
    ("import _dynet as dy", "import dynet_compat as dy"),
    ("import _gdynet as pc", "import dynet_compat as pc"),
    ("from dynet import *", "from dynet_compat import *"),
    ("import os, dynet as dy, sys", "import os, dynet_compat as dy, sys"),
    ("from dynet import Model, tanh", "from dynet_compat import ParameterCollection as Model, tanh"),
    ("import dynet_config", "from dynet_compat import dynet_config"),
    ("import dynet as dy\nm = dy.Model()", "import dynet_compat as dy\nm = dy.ParameterCollection()"),
    ("import dynet as dy\nz = dy.zeroes(3)  # none", "import dynet_compat as dy\nz = dy.zeros(3)  # none"),
    ("import dynet as dy\nW = dy.parameter(pW)", "import dynet_compat as dy\nW = pW"),
    (
        "import dynet as dy\nt = dy.SimpleSGDTrainer(m, e0=0.2)",
        "import dynet_compat as dy\nt = dy.SimpleSGDTrainer(m, learning_rate=0.2)",
    ),
    ("import numpy as np\nx = np.Model()", "import numpy as np\nx = np.Model()"),
    ("import other\nother.zeroes(3)", "import other\nother.zeroes(3)"),
    ("import dynet as dy\ny = dy.parameter(a + b) * 2", "import dynet_compat as dy\ny = (a + b) * 2"),
    (
        "from dynet import (Model as M, # é\n  zeroes)",
        "from dynet_compat import (ParameterCollection as M, # é\n  zeros as zeroes)",
    ),
    ("import _dynet as d; z = 'é', d.zeroes(3)", "import dynet_compat as d; z = 'é', d.zeros(3)"),
    ("import a.b as dynet, dynet as dy", "import a.b as dynet, dynet_compat as dy"),
    (
        "import dynet as d\rd.zeroes(1)\r\nd.Model()",
        "import dynet_compat as d\rd.zeros(1)\r\nd.ParameterCollection()",
    ),
]


@pytest.mark.parametrize(("old", "new"), CHANGES, ids=[old.splitlines()[-1] for old, _ in CHANGES])
def test_change(old: str, new: str) -> None:
    result = migrate.migrate(old)
    assert result.new == new
    assert bool(result.diff("x.py")) == (old != new)


NOTES = [
    ("import dynet as dy\nW = pW.expr()", 2, "expr()"),
    ("import dynet as dy\nt = dy.AdagradTrainer(m, edecay=0.1)", 2, "edecay"),
    ("import dynet as dy\n\nt.update_epoch(1.0)", 3, "update_epoch()"),
    ("import dynet_config, os", 1, "dynet_config"),
]


@pytest.mark.parametrize(("source", "line", "word"), NOTES, ids=[word for *_, word in NOTES])
def test_note(source: str, line: int, word: str) -> None:
    notes = migrate.migrate(source).notes
    assert [note.line for note in notes] == [line]
    assert word in notes[0].text


def test_updatable_parameters_need_no_note() -> None:
    assert migrate.migrate("import dynet as dy\nW = pW.expr(update=True)").notes == []


def test_migrated_script_runs(tmp_path: Path, dy) -> None:
    source = "import dynet as d\nm = d.Model()\np = d.parameter(m.add_parameters(2, init=3))\nv = p.value()\n"
    names: dict = {}
    exec(migrate.migrate(source).new, names)
    assert list(names["v"]) == [3.0, 3.0]


def test_command(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_bytes(b"import dynet as dy\r\nprint(dy.__version__)  # caf\xc3\xa9\r\n")
    out = io.StringIO()
    assert migrate.main(str(script), write=False, out=out) == 0
    assert "+import dynet_compat as dy" in out.getvalue()
    assert script.read_bytes().startswith(b"import dynet as dy")
    assert migrate.main(str(script), write=True, out=out) == 0
    assert script.read_bytes() == b"import dynet_compat as dy\r\nprint(dy.__version__)  # caf\xc3\xa9\r\n"
    out = io.StringIO()
    assert migrate.main(str(script), write=True, out=out) == 0
    assert "nothing to change" in out.getvalue()


@pytest.mark.parametrize(
    ("content", "word"), [(b"print 1\n", "line 1"), (b"\xff\xfe", "utf-8"), (None, "No such file")]
)
def test_bad_input_is_one_line(tmp_path: Path, capsys, content, word: str) -> None:
    script = tmp_path / "a.py"
    if content is not None:
        script.write_bytes(content)
    assert migrate.main(str(script), write=True) == 2
    error = capsys.readouterr().err
    assert word in error
    assert error.count("\n") == 1


HARD = {
    "parentheses": ("x = " + "(" * 5000 + "1" + ")" * 5000, 2, "nested"),
    "signs": ("x = " + "-" * 100000 + "1", 2, "nested"),
    "sum of 600 terms": ("import dynet as dy\nx = " + "1+" * 600 + "dy.zeroes(3)", 0, "dy.zeros(3)"),
    "4 MB in a line": (f"import dynet as dy\nx = [{'12345, ' * 600000}dy.zeroes(3)]", 0, "dy.zeros(3)"),
    "60,000 lines": ("import dynet as dy\n" + "x = 3\n" * 60000 + "dy.zeroes(3)", 0, "dy.zeros(3)"),
}


@pytest.mark.parametrize(("source", "status", "word"), HARD.values(), ids=list(HARD))
def test_hard_sources(tmp_path: Path, source: str, status: int, word: str) -> None:
    """An answer or one line, soon, in a process of its own: a parser may crash it."""
    (tmp_path / "a.py").write_text(source, encoding="utf-8")
    start = time.monotonic()
    line = [sys.executable, "-m", "dynet_compat", "migrate", "a.py"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False)
    assert done.returncode == status and word in (done.stderr if status else done.stdout)
    assert done.stderr.count("\n") == (1 if status else 0), done.stderr[-500:]
    assert time.monotonic() - start < 30


ENCODED = {
    "latin-1": b"# coding: latin-1\nimport dynet as dy  # caf\xe9\n",
    "UTF-8 mark": b"\xef\xbb\xbfimport dynet as dy  # caf\xc3\xa9\r\n",
}


@pytest.mark.parametrize("data", ENCODED.values(), ids=list(ENCODED))
def test_the_rest_stays_byte_for_byte(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.py").write_bytes(data)
    assert migrate.main(str(tmp_path / "a.py"), write=True, out=io.StringIO()) == 0
    assert (tmp_path / "a.py").read_bytes() == data.replace(b"import dynet", b"import dynet_compat")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "a.py")
    assert migrate.main(str(tmp_path / "a.py"), write=False) == 2
    assert "not a regular file" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["migrate", "compile"])
def test_a_reader_that_stops(tmp_path: Path, command: str) -> None:
    """As in `| head -0`: nothing on stderr."""
    (tmp_path / "a.py").write_text("import dynet as dy\n" + "x = dy.zeroes(3)\n" * 9000, encoding="utf-8")
    line = [sys.executable, "-m", "dynet_compat", command, "a.py"]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(line, stdout=write, stderr=subprocess.PIPE, cwd=tmp_path, timeout=300, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
