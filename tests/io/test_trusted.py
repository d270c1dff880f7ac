"""What loads by default from the view of scripts; `run --trust`, DYNET_COMPAT_TRUSTED, and what save says."""

from __future__ import annotations

import collections
import datetime
import os
import pickle
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.models import Tagger
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="additions of ours")

SCRIPT = """
import sys, warnings
import dynet as dy
warnings.simplefilter("error")

class Vocabulary:
    def __init__(self): self.words = ["a"]
{extra}
class Tagger:
    def __init__(self, pc, vocabulary):
        self.spec, self.pc = (vocabulary,), pc.add_subcollection()
        self.W = self.pc.add_parameters(2)
    def param_collection(self): return self.pc
    @classmethod
    def from_spec(cls, spec, pc): return cls(pc, *spec)

try: dy.save("m", [Tagger(dy.ParameterCollection(), Vocabulary())])
except UserWarning as warning: print("warned:", warning)
[t] = dy.load("m", dy.ParameterCollection())
print(type(t.spec[0]).__name__, t.spec[0].words)
"""
WARNING = "load() of other programs, and in the next run of this one, will refuse object 1"
STATE = "    def __setstate__(self, state): self.words = state['words']"


def run(folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dynet_compat", "run", *options, "script.py"]
    environment = {**os.environ, **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_scripts_load_what_they_saved(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.format(extra=""))
    done = run(tmp_path)
    assert (done.returncode, done.stdout) == (0, "Vocabulary ['a']\n"), done.stderr


def test_save_warns_of_what_will_not_load(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.format(extra=STATE))
    done = run(tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "Vocabulary ['a']"), done.stderr
    line = re.escape(f"warned: save(): m.meta is written, but {WARNING}: ")
    line += r".*__main__\.Vocabulary, which has a __setstate__.*trusted=\['__main__\.Vocabulary'\]"
    assert re.match(line, done.stdout), done.stdout
    text = SCRIPT.format(extra=STATE)
    (tmp_path / "script.py").write_text(text[: text.index("try: ")] + text[text.index("[t] = ") :])
    done = run(tmp_path)
    assert done.returncode != 0 and "UnpicklingError" in done.stderr
    for options, variables in ((["--trust", "__main__.Vocabulary"], {}),
                               ([], {"DYNET_COMPAT_TRUSTED": "x.Y,__main__.Vocabulary"})):  # fmt: skip
        done = run(tmp_path, *options, **variables)
        assert (done.returncode, done.stdout) == (0, "Vocabulary ['a']\n"), done.stderr
    done = run(tmp_path, "--trust", "Vocabulary")
    assert (
        done.returncode == 2
        and "--trust: expected names such as 'package.module.Class', got 'Vocabulary'" in done.stderr
    )


class Nested(Tagger):
    """Has from_spec, and is a part of a spec."""

    def __setstate__(self, state: Any) -> None:
        raise AssertionError("the file runs it")


def test_save_warns_of_all_that_load_refuses(
    dy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where all names are plain."""
    from dynet_compat.files import written_here

    monkeypatch.chdir(tmp_path)
    nested = Nested.__new__(Nested)
    nested.spec = (1,)  # type: ignore[assignment]
    refused = [
        nested,
        datetime.date(2020, 1, 1),
        range(3),
        np.array([1, "a", None], dtype=object),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.arange(3, dtype=">f4"),
        np.zeros(2, dtype=[("x", "f4")]),
    ]
    numbers = [np.arange(3), np.float32(1), np.array(["a", "b"]), np.dtype("f4")]
    admitted = [*numbers, "a", {1: [2]}, Tagger, dy.tanh, int, {(1, 2)}]
    for tags in [*refused, *admitted]:
        tagger = Tagger(dy.ParameterCollection(), 2, 2, None, "ab")
        tagger.spec = (2, 2, tags, "ab")  # type: ignore[assignment]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            dy.save(tmp_path / "m", [tagger])
        warned = any(WARNING in str(w.message) for w in caught)
        (again,) = dy.load(tmp_path / "m", dy.ParameterCollection()) if tags is not nested else (tagger,)
        assert type(again.spec[2]) is type(tags)
        written_here.forget()
        try:
            dy.load(tmp_path / "m", dy.ParameterCollection())
            loads = True
        except pickle.UnpicklingError:
            loads = False
        assert loads == (not warned), f"{tags!r} {'loads' if loads else 'is refused'}, warned: {warned}"
        assert loads == any(tags is item for item in admitted), f"{tags!r}: {loads}"


def test_plain_names_need_no_check(dy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written is read again only where load might refuse it: a large vocabulary takes its time."""
    from dynet_compat.files import objects as files

    def fail(*arguments: Any) -> None:
        raise AssertionError("what was written is read again")

    monkeypatch.setattr(files, "load_all", fail)
    tags = collections.OrderedDict(a=[1, 2.5, ("b", None)])
    dy.save(tmp_path / "m", [Tagger(dy.ParameterCollection(), 2, 2, dy.tanh, tags)])
    assert (tmp_path / "m.meta").exists()


def test_the_folder_of_the_script_stays_the_same(tmp_path: Path) -> None:
    """Also if the script was started by a relative path and goes elsewhere."""
    script = "import os; os.mkdir('sub'); os.chdir('sub'); import sys; sys.path[0] = ''\n" + SCRIPT
    (tmp_path / "words.py").write_text("class Vocabulary:\n    def __init__(self): self.words = ['a']\n")
    script = script.replace("import sys;", "import sys, words;")
    (tmp_path / "script.py").write_text(script.format(extra="from words import Vocabulary"))
    done = run(tmp_path)
    assert (done.returncode, done.stdout) == (0, "Vocabulary ['a']\n"), done.stderr
    assert (tmp_path / "sub" / "m.meta").exists()
