"""What hints did is visible: at exit on request, in profile(), in info."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="our hints")

SCRIPT = """
import dynet_compat as dy
model = dy.ParameterCollection()
W, b = model.add_parameters((4, 4)), model.add_parameters(4)

def step(h):
    g = dy.logistic(W * h + b)
    return dy.tanh(W * dy.cmult(g, h) + b)

def run(n):
    for _ in range(n):
        dy.renew_cg()
        h = dy.inputVector([1.0] * 4)
        for _ in range(10):
            h = step(h)
        h.value()
run(150)  # too few for a region to be given up
with dy.profile() as profile:
    run(2)
print(profile)
"""


def run(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(SCRIPT, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DYNET_COMPAT_HINTS")}
    command = [sys.executable, "-m", "dynet_compat", *arguments]
    done = subprocess.run(
        command, env={**environment, **settings}, capture_output=True, text=True, timeout=300, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done


def test_one_line_at_exit_on_request(tmp_path: Path) -> None:
    done = run(tmp_path, "run", "script.py", DYNET_COMPAT_HINTS="eager", DYNET_COMPAT_REPORT="1")
    [line] = [line for line in done.stderr.splitlines() if line.startswith("[dynet] hints: ")]
    found = re.fullmatch(
        r"\[dynet\] hints: (\d+) regions? recorded (\d+) times by one call, (\d+) % of all ops "
        r"\(0 % by steps of builders outside regions\); about \d+ ms saved",
        line,
    )
    assert found, line
    regions, times, share = map(int, found.groups())
    assert regions >= 1 and 1250 < times <= 1520 and 80 < share <= 100, line
    of_profile = done.stdout.rstrip().splitlines()
    assert any(line.startswith("hints: ") for line in of_profile)
    assert any("script.py:13 run: it calls inputVector()" in line for line in of_profile)


def test_silent_otherwise(tmp_path: Path) -> None:
    assert run(tmp_path, "run", "script.py", DYNET_COMPAT_HINTS="eager").stderr == ""
    plain = run(tmp_path, "run", "script.py", DYNET_COMPAT_HINTS="off", DYNET_COMPAT_REPORT="1")
    assert plain.stderr == "" and "hints:" not in plain.stdout


def test_hints_without_use_say_so(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("import dynet_compat as dy\ndy.renew_cg()\n", encoding="utf-8")
    done = run(tmp_path, "run", "empty.py", DYNET_COMPAT_HINTS="auto", DYNET_COMPAT_REPORT="1")
    # "1 module" on a slow machine, where starting took so long that scripts were looked for.
    found = re.fullmatch(
        r"\[dynet\] hints: no region was recorded by one call; (the script|1 module) waits for \d\.\d s of "
        r"processor time \(\d\.\d s used\)\n",
        done.stderr,
    )
    assert found, done.stderr
    done = run(tmp_path, "run", "empty.py", DYNET_COMPAT_HINTS="eager", DYNET_COMPAT_REPORT="1")
    assert done.stderr == "[dynet] hints: no region was recorded by one call\n"


def test_info_says_which_hints_are_used(tmp_path: Path) -> None:
    assert re.search(r"^hints +auto$", run(tmp_path, "info", DYNET_COMPAT_HINTS="auto").stdout, re.M)
    assert re.search(r"^hints .*script\.dyhints", run(tmp_path, "info").stdout, re.M)
