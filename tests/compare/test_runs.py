"""What the runs of a comparison cost, leave behind and say while they last."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.comparing import SELF, both_references, reference_of
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("for dynet_compat", allow_module_level=True)

from dynet_compat.compare import runs, table, temporary_folder  # noqa: E402
from dynet_compat.hints import cli as compiling  # noqa: E402

SCRIPTS = Path(__file__).resolve().parent / "scripts"


@both_references
def test_many_values(kind: str, command: Any) -> None:
    """All numbers are compared, without much more time than the script needs; zeroes is zeros."""
    count = 20_000
    done = command(*reference_of(kind), SCRIPTS / "reads.py", count)
    assert done.status == 0, done.out
    assert done.result["verdict"]["compared"]["value"] == 2 * count and not done.result["sampled"]
    for output in done.result["outputs"]:
        taken = sum(map(float, re.findall(r"seconds (\S+)", output)))
        assert taken / (2 * count) < 15e-6, f"{taken / (2 * count) * 1e6:.1f} us for each value that is read"


def test_very_many_values_are_sampled(command: Any) -> None:
    """Fewer and fewer after the first 50,000, on both sides alike; the script is timed once, as it reads so
    much."""
    done = command(*SELF, SCRIPTS / "reads.py", 60_000, times=True)
    assert done.status == 0, done.out
    assert done.result["sampled"]["numbers"] == [50_000 + 25_000 + 5_000, 120_000]
    assert done.result["verdict"]["compared"]["value"] == 80_000
    assert "sampled: 80000 of 120000 single numbers" in done.out
    assert [len(cost["repeats"]) for cost in done.result["costs"]] == [1, 1]
    assert "timed once, without single calls" in done.out and "recording and script" in done.out


MANY_CALLS = """
import dynet as dy
from dynet import tanh

model = dy.ParameterCollection()
W = model.add_parameters((2, 2))
trainer = dy.SimpleSGDTrainer(model)
seen = []


def counted(op):
    def counts(*arguments):
        seen.append(op)
        return op(*arguments)
    return counts


dy.logistic = counted(dy.logistic)
dy.StandardSoftmaxBuilder.full_logits = counted(dy.StandardSoftmaxBuilder.full_logits)
softmax = dy.StandardSoftmaxBuilder(2, 3, model)
for graph in range(60):
    dy.renew_cg()
    x = dy.inputVector([0.1, 0.2])
    for i in range(900):
        x = tanh(x) + x * 0.5
    y = dy.squared_norm(W * dy.logistic(x)) + dy.squared_norm(softmax.full_logits(x))
    y.backward()
    trainer.update()
print("of the script", len(seen))
print("hooked", "hook" in repr(dy.Expression.__add__), "hook" in repr(dy.squared_norm))
"""


def test_hooks_of_ops_go_after_many_calls(command: Any, tmp_path: Path) -> None:
    script = tmp_path / "calls.py"
    script.write_text(MANY_CALLS)
    done = command(*SELF, script)
    assert done.status == 0, done.out
    assert all("hooked False False" in output for output in done.result["outputs"])
    assert all("of the script 120\n" in output for output in done.result["outputs"])
    assert "sampled: the first 100000 calls were compared" in done.out


COUNTED = """
import sys
import dynet as dy

model = dy.ParameterCollection()
W = model.add_parameters((3, 3))
trainer = dy.SimpleSGDTrainer(model)
y = dy.squared_norm(W)
for _ in range(12000):
    y.value()
calls = 0


def count(frame, event, what):
    global calls
    calls += event in ("call", "c_call")


sys.setprofile(count)
for _ in range(1000):
    y.value()
sys.setprofile(None)
print("calls", calls)
y.backward()
trainer.update()
"""


@both_references
def test_work_for_a_value(kind: str, command: Any, tmp_path: Path) -> None:
    """What writing a number down does, counted in calls of Python and C functions."""
    script = tmp_path / "counted.py"
    script.write_text(COUNTED)
    done = command(*reference_of(kind), script)
    assert done.status == 0, done.out
    for output in done.result["outputs"]:
        (calls,) = map(int, re.findall(r"calls (\d+)", output))
        assert 1000 <= calls <= 12_000, calls


@both_references
def test_many_arrays_are_sampled(kind: str, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides write the same ones down, and the result says how many."""
    monkeypatch.setattr(runs, "ALLOWED", 0.002)
    done = command(*reference_of(kind), SCRIPTS / "reads.py", 3000, "arrays")
    assert done.status == 0, done.out
    taken, seen = done.result["sampled"]["values"]
    assert seen == 6000 and 0 < taken < 3000
    assert done.result["verdict"]["compared"]["value"] == 6000 + taken
    assert f"sampled: {taken} of 6000" in done.out


def test_launches_of_a_graph_that_grows(command: Any) -> None:
    """Each launch counts once, in whatever parts its graph is computed."""
    done = command(*SELF, "--repeats", "1", SCRIPTS / "partial.py", times=True)
    assert done.status == 0, done.out
    launches = sum(number for _, number in done.result["costs"][1]["launches"])
    assert 5 * 11 <= launches <= 5 * 22, launches


def test_lines_where_there_is_no_terminal(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table.Progress, "_QUIET", 0.0)
    done = command(*SELF, SCRIPTS / "small.py", "2", progress=True)
    lines = done.err.splitlines()
    for side in ("dynet_compat", "dynet_compat unbatched"):
        assert any(re.match(rf"small.py: checking {side}.* \(\d+ s\)$", line) for line in lines), done.err
    assert "\r" not in done.err
    assert command(*SELF, SCRIPTS / "small.py", "2").err == ""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_killed(how: signal.Signals, tmp_path: Path) -> None:
    """No folder stays, and no process."""
    (tmp_path / "tmp").mkdir()
    script = tmp_path / "s.py"
    script.write_text(
        "import os, time\nimport dynet\n"
        "open(os.environ['PIDS'], 'a').write(f'{os.getpid()} {os.fork()}\\n')\ntime.sleep(100)\n"
    )
    pids = Path(os.environ.get("XDG_RUNTIME_DIR", "/dev/shm")) / f"dynet_compat-test-{os.getpid()}"
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PIDS": str(pids)}
    line = [sys.executable, "-m", "dynet_compat", "compare", *SELF, "--no-report", str(script)]
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a background job of a shell ignores it
    process = subprocess.Popen(line, env=environment, stderr=subprocess.DEVNULL, preexec_fn=heard)
    try:
        wait_for(lambda: pids.exists() and pids.read_text().count("\n") == 2)
        assert os.listdir(tmp_path / "tmp")
        process.send_signal(how)
        process.wait(20)
        wait_for(lambda: not os.listdir(tmp_path / "tmp"))
        for pid in {int(pid) for pid in pids.read_text().split()} - {0}:
            wait_for(lambda pid=pid: not alive(pid))
    finally:
        process.kill()
        pids.unlink(missing_ok=True)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().split()[2] != "Z"
    except OSError:
        return False


def wait_for(condition: Any) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "not in 60 s"
        time.sleep(0.05)


def test_temporary_folder(tmp_path: Path) -> None:
    """It goes at the end, and what ran last goes with it."""
    with temporary_folder.TemporaryFolder("x-", str(tmp_path)) as folder:
        (folder.path / "deep").mkdir()
        process = subprocess.Popen(["sleep", "100"], start_new_session=True)
        folder.runs(process.pid)
    assert os.listdir(tmp_path) == [] and process.wait(20) == -signal.SIGKILL


def test_options_belong_to_the_script(command: Any, tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.write_text("import sys\nassert sys.argv[1:] == ['--steps', '3', '--rtol=x']\n")
    done = command(*SELF, script, "--steps", "3", "--rtol=x")
    assert "note: --steps goes to the script; options of compare stand before it" in done.err
    assert done.status == 2 and "never calls backward" in done.err


@pytest.mark.parametrize("words", [["--dynet-seed", "3", "--dynet-mem=100"], ["--dynet-gpus", "x"]])
def test_the_library_does_not_start_here(words: list[str], tmp_path: Path) -> None:
    """The script's options are not for the process of compare: no line of DyNet's, no error of its own."""
    line = [sys.executable, "-m", "dynet_compat", "compare", *SELF, "nowhere.py", *words]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False)
    assert done.stderr.splitlines() == [
        "error: nowhere.py: no such script: check the path, from the folder you are in"
    ]


HINTED = """
import dynet as dy

model = dy.ParameterCollection()
W = model.add_parameters((8, 8))
E = model.add_lookup_parameters((9, 8))
trainer = dy.SimpleSGDTrainer(model)


def cell(h, x):
    z = dy.logistic(W * h + x)
    return dy.cmult(z, h) + dy.tanh(W * x)


for step in range(30):
    dy.renew_cg()
    h = E[0]
    for word in range(9):
        h = cell(h, E[word])
    loss = dy.squared_norm(h)
    loss.value()
    loss.backward()
    trainer.update()
"""


def test_hints(command: Any, tmp_path: Path) -> None:
    """With hints against without: the same values, times, and how often templates were used."""
    script = tmp_path / "hinted.py"
    script.write_text(HINTED)
    done = command("--hints", "--repeats", "1", script, times=True)
    assert done.status == 0, done.out
    result = done.result
    assert result["names"] == ["hints off", "hints on"] and result["steps"] == 30
    assert result["hints"]["in_use"] >= 1 and result["hints"]["hits"] > 100
    assert result["verdict"]["compared"]["value"] == 30
    for shown in (done.out, done.report):
        assert "regions in use" in shown and "hints off" in shown


SLOWLY = """
import time
from functools import partial
from dynet_compat.hints.rewrite import patch

found = patch.functions_of
patch.functions_of = lambda modules: time.sleep(3) or found(modules)
"""


def test_rewriting_is_no_step(command: Any, tmp_path: Path) -> None:
    """A script with a hints file: rewriting its functions counts as start-up, and a note names the hints."""
    script = tmp_path / "hinted.py"
    script.write_text(SLOWLY + HINTED)
    assert compiling.main([str(script)]) == 0
    done = command(*SELF, "--repeats", "1", script, times=True)
    cost = done.result["costs"][1]
    assert cost["startup"] > 3 > 1.5 > cost["seconds"] > 0, done.out
    assert any("with hints" in note for note in done.result["notes"])
    script.with_suffix(".dyhints").unlink()
    assert not command(*SELF, "--repeats", "1", script, times=True).result["notes"]
