"""`python -m dynet_compat compare`: whole runs, on our unbatched mode and on the real DyNet when found."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support import examples
from support.comparing import SELF, Outcome, both_references, reference_of
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("for dynet_compat", allow_module_level=True)

from dynet_compat import compare  # noqa: E402
from dynet_compat.compare import reference as references  # noqa: E402

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE / "scripts"
EXAMPLES = HERE.parent.parent / "examples"
DATA = HERE.parent / "apps" / "data"


def line_of(script: str, text: str) -> int:
    """Number of the line of a script with a text in it."""
    lines = (SCRIPTS / script).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


# ---------------------------------------------------------------- equal


@both_references
def test_equal(kind: str, command: Any) -> None:
    done = command(*reference_of(kind), "--repeats", "1", SCRIPTS / "small.py", "4", times=True)
    assert done.status == 0, done.out + done.err
    result = done.result
    assert result["status"] == "equal" and result["first"] is None and result["steps"] == 4
    compared = result["verdict"]["compared"]
    # A value a step and the array at the end; losses and norms a step; 6 parameters.
    norms = {"gradient norm": 4, "parameter norm": 4}
    assert compared == {"initial parameter": 6, "value": 5, "loss": 4, "parameter": 6, **norms}
    assert max(result["verdict"]["largest"].values()) < 1e-5
    assert len(result["losses"][0]) == len(result["losses"][1]) == 4
    for cost in result["costs"]:
        assert set(cost["parts"]) == {"recording", "forward", "backward", "update", "script"}
        assert sum(cost["parts"].values()) == pytest.approx(cost["seconds"], rel=1e-3)
        assert cost["parts"]["forward"] > 0 and cost["parts"]["recording"] > 0 and cost["memory"] > 2**20
        assert 0 < cost["hook_per_call"] < 1e-4 and cost["hook_calls"] > 4 * 20
    assert sum(size * n for size, n in result["costs"][1]["launches"]) > 100
    assert "equal within" in done.out and "cost of measuring, already subtracted" in done.out
    for plot in ("losses", "differences", "times", "batches"):
        assert f'<svg xmlns="http://www.w3.org/2000/svg" class="{plot}"' in done.report


@both_references
@pytest.mark.parametrize("script", ["without_trainer.py", "builders.py"])
def test_surface(kind: str, script: str, command: Any) -> None:
    done = command(*reference_of(kind), SCRIPTS / script)
    assert done.status == 0, done.out + done.err
    compared = done.result["verdict"]["compared"]
    assert compared["loss"] == compared["gradient norm"] == 4
    if script == "without_trainer.py":
        assert compared["value"] == 7 * 4  # values(), npvalue() ... each


IMPORTS = {
    "dynet_compat": "import dynet_compat as dy",
    "from": "from dynet_compat import *\nimport dynet_compat as dy",
    "config": "import dynet_config\ndynet_config.set(mem='300', random_seed=77)\nimport dynet as dy",
    "config_no_seed": "import dynet_config\ndynet_config.set(autobatch=0)\nimport dynet as dy",
    "_dynet": "import _dynet as dy\ndy.init()",
    "params": "import _dynet as dy\np = dy.DynetParams()\np.from_args()\np.set_mem(300)\np.init()",
    "params_no_seed": "import _dynet as dy\np = dy.DynetParams()\np.set_mem(300)\np.init()",
}


@both_references
@pytest.mark.parametrize("name", sorted(IMPORTS))
def test_imports(kind: str, name: str, command: Any, tmp_path: Path) -> None:
    """Each way to import and to start the library, unmodified, with the same seed on both sides."""
    if kind == "self" and name in ("from", "config_no_seed", "params", "_dynet"):
        pytest.skip("the same code as the other ways here")
    text = (SCRIPTS / "small.py").read_text()
    script = tmp_path / "script.py"
    script.write_text(text.replace("import dynet as dy", IMPORTS[name]))
    done = command(*reference_of(kind), script, "2")
    assert done.status == 0, done.out + done.err
    first = {"config": 77}.get(name, 1)  # the seed
    other = command(*SELF, "--seed", str(first), script, "2") if kind == "self" else done
    assert other.result["losses"] == done.result["losses"]


def test_seed(command: Any) -> None:
    """--seed is the default; --dynet-seed of the script wins; the script's sys.argv stays its own."""
    one, two, three = (
        command(*SELF, *options, SCRIPTS / "small.py", *args).result["losses"][1]
        for options, args in (
            (["--seed", "5"], ["1"]),
            ([], ["1", "--dynet-seed", "5"]),
            (["--seed", "6"], ["1"]),
        )
    )
    assert one == two != three


def test_steps(command: Any) -> None:
    done = command(*SELF, "--steps", "2", SCRIPTS / "small.py", "5")
    assert done.status == 0 and done.result["steps"] == 2
    assert len(done.result["losses"][0]) == 2
    assert done.result["verdict"]["compared"]["value"] == 2  # what comes after the cut is not run


# ---------------------------------------------------------------- not equal

SABOTAGED = {
    # kind -> (what, step, op, text in the line, the reference's and our value)
    "value": ("input", 3, "*", "# sabotaged here", "1", "1.01"),
    "replaced": ("graph", 1, "tanh", "dy.tanh(W", None, None),
    "gradient": ("input", 2, "scale_gradient", "dy.scale_gradient", "1", "1.5"),
    "graph": ("graph", 2, "rectify", "dy.rectify(h)", None, None),
    "input": ("input", 1, "scalarInput", "dy.scalarInput", "0.25", "0.5"),
    "update": ("parameter", 2, "SimpleSGDTrainer.update", "trainer.update()", None, None),
}


@pytest.mark.parametrize("sabotage", sorted(SABOTAGED))
def test_sabotaged_script(sabotage: str, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SABOTAGE", sabotage)
    done = command(*SELF, SCRIPTS / "small.py", "4")
    assert done.status == 1, done.out + done.err
    what, step, op, text, theirs, ours = SABOTAGED[sabotage]
    first = done.result["first"]
    assert (first["what"], first["step"], first["op"]) == (what, step, op)
    assert first["place"] == f"small.py:{line_of('small.py', text)}"
    assert text in first["source"]
    if theirs:
        assert first["values"] == [theirs, ours] and first["nodes"][0] is not None
    for shown in (done.out, done.report):
        assert first["place"] in shown and op in shown


# The library itself is wrong: a module that Python loads before any script replaces a function.
SITE = """
import os
if os.environ.get("DYNET_COMPAT_SCHEDULER") != "none":
    import dynet_compat as dy
    real = dy.{op}
    def {op}(x):
        {op}.calls += 1
        return {wrong} if {op}.calls == 8 else real(x)
    {op}.calls = 0
    {op}.__module__ = "dynet_compat"
    dy.{op} = {op}
"""


@pytest.mark.parametrize("what", ["value", "gradient"])
def test_sabotaged_op(what: str, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One op of the library gives a wrong value, or a wrong gradient, at its 8th call: in step 2."""
    wrong = "real(x) * 1.01" if what == "value" else "dy.scale_gradient(real(x), 1.5)"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE.format(op="tanh", wrong=wrong))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    done = command(*SELF, SCRIPTS / "small.py", "4")
    assert done.status == 1, done.out + done.err
    first = done.result["first"]
    place = f"small.py:{line_of('small.py', 'dy.tanh(W')}"
    assert (first["what"], first["step"], first["op"], first["place"]) == (what, 2, "tanh", place)
    numbers = [float(value.split()[0]) for value in first["values"]]
    assert numbers[1] / numbers[0] == pytest.approx(1.01 if what == "value" else 1.5, rel=1e-4)
    assert None not in first["nodes"] and first["relative"] > 1e-4
    assert "tanh" in done.out.splitlines()[-2] and place in done.out


def test_sabotaged_start_and_end(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SABOTAGE", "initial")
    done = command(*SELF, SCRIPTS / "small.py", "2")
    assert done.status == 1
    assert (done.result["first"]["what"], done.result["first"]["op"]) == ("initial parameter", "/_1")
    monkeypatch.setenv("SABOTAGE", "early")
    done = command(*SELF, SCRIPTS / "small.py", "5")
    assert done.status == 1 and done.result["first"]["step"] == 4


def test_hints_are_off(command: Any, tmp_path: Path) -> None:
    """Templates record without the calls that are compared."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, dynet as dy\n"
        "p = dy.Model().add_parameters(2)\n"
        "dy.squared_norm(p).backward()\n"
        "print('hints', os.environ.get('DYNET_COMPAT_HINTS'))\n"
        "assert os.environ.get('DYNET_COMPAT_HINTS') == 'off'\n"
    )
    outcome = command(*SELF, script)
    assert outcome.status == 0, outcome


def test_rtol(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sabotage of 1% is within a tolerance of 5%; the numbers still tell."""
    monkeypatch.setenv("SABOTAGE", "value")
    done = command(*SELF, "--rtol", "0.05", SCRIPTS / "small.py", "3")
    assert done.status == 0
    assert done.result["verdict"]["largest"]["loss"] > 1e-4


# ---------------------------------------------------------------- crashes, nothing lost


@pytest.mark.parametrize("how", ["crash", "kill"])
def test_crash_on_one_side(how: str, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SABOTAGE", how)
    done = command(*SELF, SCRIPTS / "small.py", "5")
    assert done.status == 1 and done.result["status"] == "crashed"
    theirs, ours = done.result["crashes"]
    assert theirs is None
    expected = "RuntimeError: sabotaged at step 3" if how == "crash" else "killed by SIGABRT"
    assert expected in ours["error"] and expected in done.out and expected in done.report
    assert "small.py" in ours["traceback"]  # of a killed process too: where it was
    assert "after 2 steps" in done.result["message"]
    # What both sides did until then is kept and compared.
    assert [len(losses) for losses in done.result["losses"]] == [5, 2]
    assert done.result["verdict"]["compared"]["loss"] == 2
    assert any("up to the crash the two sides are equal" in note for note in done.result["notes"])
    assert 'class="losses"' in done.report


# ---------------------------------------------------------------- bad input


def one_line(done: Outcome, *parts: str) -> None:
    """Exit status 2 and one line on stderr, with all these parts."""
    assert done.status == 2, done.out + done.err
    lines = done.err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: "), done.err
    for part in parts:
        assert part in lines[0], lines[0]


def test_no_script(command: Any, tmp_path: Path) -> None:
    one_line(command(*SELF, "nowhere.py"), "nowhere.py: no such script", "check the path")
    one_line(command(*SELF, tmp_path), "no .py file", "name a script")


@both_references
def test_crash_at_import(kind: str, command: Any) -> None:
    done = command(*reference_of(kind), SCRIPTS / "crash_at_import.py")
    one_line(
        done, "crash_at_import.py crashes at import", "a_module_that_nobody_has", "line 3", "by itself first"
    )
    assert done.report.count("ModuleNotFoundError") >= 1


def test_crash_before_backward(command: Any) -> None:
    done = command(*SELF, SCRIPTS / "crash_early.py")
    one_line(done, "crashes before its first backward()", "line 4", "by itself first")


def test_no_backward(command: Any) -> None:
    one_line(command(*SELF, SCRIPTS / "no_backward.py"), "never calls backward()", "train")


def test_not_repeatable(command: Any) -> None:
    one_line(
        command(*SELF, SCRIPTS / "not_repeatable.py"), "not repeatable", "step 1", "seed its random numbers"
    )


def test_reference_without_dynet(command: Any) -> None:
    done = command("--reference-python", sys.executable, SCRIPTS / "small.py")
    one_line(done, "has no DyNet", "pip install dynet==2.1.2", "--reference self:none")
    done = command("--reference-python", "/nowhere/python", SCRIPTS / "small.py")
    one_line(done, "no such interpreter", "--reference self:none")
    one_line(command("--reference", "torch", SCRIPTS / "small.py"), "expected dynet or self:none")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_disk(command: Any, tmp_path: Path) -> None:
    script = [SCRIPTS / "small.py", "1"]
    done = command(*SELF, "--report", "/dev/full", *script, outputs=False)
    one_line(done, "cannot write the report /dev/full: No space left", "free some space")
    done = command(*SELF, "--no-report", "--json", "/dev/full", *script, outputs=False)
    one_line(done, "cannot write the JSON file /dev/full: No space left", "free some space")


def test_report_place(command: Any, tmp_path: Path) -> None:
    done = command(*SELF, "--report", tmp_path / "no" / "r.html", SCRIPTS / "small.py", outputs=False)
    one_line(done, "cannot write the report", "name a file in a folder")


def test_work_disk(command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    one_line(command(*SELF, SCRIPTS / "small.py"), "cannot work in", "TMPDIR")


def test_timeout(command: Any, tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text("import time\nimport dynet\ntime.sleep(60)\n")
    one_line(command(*SELF, "--timeout", "1", script), "not done in 1 s", "--steps N")


@pytest.mark.parametrize("options", [["--rtol", "0"], ["--steps", "x"], ["--nothing"], [], ["--seed", "0"]])
def test_options(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        compare.main(options)
    assert caught.value.code == 2
    assert "error:" in capsys.readouterr().err


# ---------------------------------------------------------------- several scripts, terminal, report


def test_several(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SABOTAGE", "value")
    names = ["small.py", "without_trainer.py", "no_backward.py"]
    done = command(*SELF, "--plain", *(SCRIPTS / name for name in names), EXAMPLES / "common.py", "3")
    assert done.status == 1  # one differs, one cannot be compared
    assert [r["status"] for r in done.all["results"]] == ["different", "equal", "failed", "skipped"]
    summary = done.out[done.out.index("summary") :]
    assert re.search(r"small.py +DIFFERS +3 .*step 3, \*, small.py", summary)
    assert re.search(r"without_trainer.py +equal", summary) and "not compared" in summary
    assert "never calls backward()" in done.err
    for name in names:
        assert name in done.report


def test_json_to_stdout(command: Any) -> None:
    done = command(*SELF, "--json", "-", "--no-report", SCRIPTS / "small.py", "1", outputs=False)
    assert done.status == 0 and json.loads(done.out)["results"][0]["status"] == "equal"


def test_default_report(command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = command(*SELF, SCRIPTS / "small.py", "1", outputs=False)
    assert done.status == 0 and "report: compare-small.html" in done.out
    assert (tmp_path / "compare-small.html").exists() and os.listdir(tmp_path) == ["compare-small.html"]


def test_rich_and_plain(command: Any) -> None:
    """The same content with rich and without."""
    plain = command(*SELF, "--plain", SCRIPTS / "small.py", "1").out
    assert "largest relative difference" in plain and "\x1b" not in plain
    pytest.importorskip("rich")
    fancy = command(*SELF, SCRIPTS / "small.py", "1").out
    assert "largest relative difference" in fancy and "━" in fancy + "━"
    assert "initial parameter" in fancy and "equal within" in fancy


def test_progress(command: Any) -> None:
    done = command(*SELF, "--progress", "--plain", SCRIPTS / "small.py", "1", progress=True)
    assert done.status == 0 and "small.py: checking dynet_compat" in done.err


def test_command_line(tmp_path: Path) -> None:
    """As users call it; the script's folder is where its imports come from."""
    names = "event_files event_log hooks instrument recorder runs diff"  # that our modules have, too
    own = tuple(names.split())
    for name in own:
        (tmp_path / f"{name}.py").write_text("mine = 1\n")
    lines = "".join(f"import {name}\n{name}.mine\n" for name in own)
    text = (SCRIPTS / "small.py").read_text().replace("import random\n", "import random\n" + lines, 1)
    (tmp_path / "s.py").write_text(text)
    command = [sys.executable, "-m", "dynet_compat", "compare", *SELF, "--repeats", "0", "s.py", "1"]
    environment = {**os.environ, "SABOTAGE": ""}
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "s.py: equal, 1 steps" in done.stdout and (tmp_path / "compare-s.html").exists()


# ---------------------------------------------------------------- with the real DyNet


@pytest.mark.oracle
def test_example(command: Any) -> None:
    """The issue's own example, on the tests' small data."""
    real = reference_of("dynet")
    script, data, small = EXAMPLES / "treelstm.py", DATA / "trees.txt", ["--hidden", "16", "--batch", "4"]
    done = command(*real, "--steps", "20", script, "--epochs", "2", "--data", data, *small)
    assert done.status == 0, done.out + done.err
    assert done.result["steps"] == 20 and "report:" in done.out


@pytest.mark.slow
@both_references
def test_all_examples(kind: str, command: Any) -> None:
    """No example differs; their default data are the same for both Pythons."""
    scripts = sorted(EXAMPLES.glob("*.py"))
    done = command(*reference_of(kind), "--steps", "5", "--plain", *scripts, "--limit", "300")
    assert done.status == 0, done.out + done.err
    found = {Path(r["script"]).stem: r["status"] for r in done.all["results"]}
    skipped = {"common", "data", "demo", "export_weights"}
    assert {name for name, status in found.items() if status == "skipped"} == skipped
    assert {name for name, status in found.items() if status == "equal"} == set(examples.SCRIPTS)
    assert len(done.out[done.out.index("summary") :].splitlines()) >= 2 + len(found)


@pytest.mark.oracle
def test_randomness_that_cannot_agree(command: Any) -> None:
    """Dropout with autobatching on the reference: said, and not blamed. Without it: the same numbers."""
    real = reference_of("dynet")
    done = command(*real, SCRIPTS / "small.py", "3", "dropout", "--dynet-autobatch", "1")
    assert done.status == 0, done.out + done.err
    notes = " ".join(done.result["notes"])
    assert "randomness: with autobatching" in notes and "dropout" in notes and "autobatching off" in notes
    done = command(*real, SCRIPTS / "small.py", "3", "dropout")
    assert done.status == 0 and done.result["notes"] == []


@pytest.mark.oracle
def test_sabotage_on_the_real_dynet(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SABOTAGE", "value")
    done = command(*reference_of("dynet"), SCRIPTS / "small.py", "4")
    assert done.status == 1
    first = done.result["first"]
    line = line_of("small.py", "# sabotaged here")
    assert (first["step"], first["op"], first["place"]) == (3, "*", f"small.py:{line}")


# ---------------------------------------------------------------- the reference's interpreter

FAKE = """#!/bin/sh
# A Python 3.8 whose pip "installs" DyNet by making a folder; everything else is for the real interpreter.
case "$*" in
  *version_info*) exit {is_38} ;;
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pip install"*) echo "$@" >> "{log}"; {install} ;;
  *dynet_config*) exit {has_dynet} ;;
esac
"""


def fake_python(folder: Path, **how: Any) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "python3.8"
    text = FAKE
    for key, value in {"is_38": 0, "install": "true", "has_dynet": 0, "log": folder / "log", **how}.items():
        text = text.replace("{" + key + "}", str(value))
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No DyNet known, an empty cache, nothing but tmp_path/bin before the system's programs."""
    monkeypatch.delenv("DYNET_COMPAT_ORACLE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (tmp_path / "bin").mkdir()
    return tmp_path


def test_environment_is_made_once(bare_machine: Path) -> None:
    fake_python(bare_machine / "bin")
    said: list[str] = []
    first = references.find(None, said.append)
    assert first == str(bare_machine / "cache" / "dynet_compat" / "reference-py38" / "bin" / "python")
    assert len(said) == 1 and "dynet==2.1.2" in said[0] and "numpy<1.25" in said[0]
    assert "dynet==2.1.2 numpy<1.25" in (bare_machine / "bin" / "log").read_text()
    assert references.find(None, said.append) == first and len(said) == 1
    assert len(os.listdir(bare_machine / "cache" / "dynet_compat")) == 1


def test_environment_from_pyenv(bare_machine: Path) -> None:
    """A shim that can start nothing is passed over."""
    fake_python(bare_machine / "bin", is_38=127)
    folder = bare_machine / "pyenv" / "versions" / "3.8.18" / "bin"
    folder.mkdir(parents=True)
    fake_python(folder)
    assert list(references.pythons_38()) == [str(folder / "python3.8")]


def test_environment_cannot_be_made(bare_machine: Path, command: Any) -> None:
    script = SCRIPTS / "small.py"
    one_line(command(script), "no Python 3.8 found", "--reference-python PATH", "self:none")
    fake_python(bare_machine / "bin", install="echo 'no network' >&2; exit 1")
    line = command(script).err.strip().splitlines()[-1]
    assert "cannot install dynet==2.1.2" in line and "no network" in line and "self:none" in line
    assert os.listdir(bare_machine / "cache" / "dynet_compat") == []


def test_killed_set_up_leaves_nothing(bare_machine: Path) -> None:
    """And while it lasts, it says what it does."""
    said = bare_machine / "said"
    fake_python(bare_machine / "bin", install=f"echo Collecting dynet; echo $$ > {said}; sleep 100")
    line = [sys.executable, "-m", "dynet_compat", "compare", str(SCRIPTS / "small.py")]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, cwd=bare_machine)
    cache = bare_machine / "cache" / "dynet_compat"
    assert process.stderr is not None
    with process.stderr:
        lines = [process.stderr.readline(), process.stderr.readline()]
        assert "making a reference environment" in lines[0] and lines[1] == "  Collecting dynet\n"
        assert [path.name[:10] for path in cache.iterdir()] == ["reference-"]
        process.kill()
    assert process.wait(20) == -9
    end = time.monotonic() + 60
    while os.listdir(cache):
        assert time.monotonic() < end, "the folder stays"
        time.sleep(0.05)


def test_clean_environment(tmp_path: Path) -> None:
    """What belongs to this interpreter does not reach the other one; the user's own folders do."""
    (tmp_path / "site" / "numpy").mkdir(parents=True)
    mine = str(tmp_path / "mine")
    given = {"PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), mine]), "PYTHONHOME": "/x", "A": "b"}
    assert references.clean_environment(given) == {"PYTHONPATH": mine, "A": "b"}
