"""The `migrate` command."""

from __future__ import annotations

import io
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
