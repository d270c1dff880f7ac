"""The trainers' kernels on the emulated device give what those of the CPU give."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SRC = HERE.parents[1] / "src"
COMPILER = os.environ.get("CXX", "g++")
RULES = ["sgd", "momentum", "adagrad", "adadelta", "rmsprop", "adam", "amsgrad", "eg"]
IDLE = [rule for rule in RULES if rule not in ("sgd", "adagrad")]  # a gradient of 0 moves their state

pytestmark = pytest.mark.skipif(shutil.which(COMPILER.split()[0]) is None, reason=f"no compiler {COMPILER}")


@pytest.fixture(scope="module")
def differences(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    program = tmp_path_factory.mktemp("updates") / "cases"
    files = [
        "cuda/emulation.cc",
        "cuda/emulation_grid.cc",
        "cuda/replay.cc",
        "cuda/emulation_updates.cc",
        "cpu/isa/updates.cc",
    ]
    options = ["-std=c++20", "-O1", "-fno-math-errno", "-DDYC_ISA=baseline", f"-I{SRC}"]
    sources = [str(HERE / "update_cases.cc"), *(str(SRC / file) for file in files)]
    command = [*COMPILER.split(), *options, *sources, "-o", str(program)]
    subprocess.run(command, check=True, timeout=300)
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    result = subprocess.run([str(program)], capture_output=True, text=True, timeout=120, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    return {name: float(value) for name, value in (line.split() for line in result.stdout.splitlines())}


def test_every_rule_is_compared(differences: dict[str, float]) -> None:
    expected = {f"{rule}-active" for rule in RULES} | {f"{rule}-idle" for rule in IDLE}
    assert set(differences) == expected | {"normalise", "squares", "squares-large", "squares-small"}


def test_rules(differences: dict[str, float]) -> None:
    assert {name: value for name, value in differences.items() if not value < 1e-6} == {}
