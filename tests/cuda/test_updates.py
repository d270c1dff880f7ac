"""The trainers' kernels on the emulated device give what those of the CPU give."""

from __future__ import annotations

import pytest
from support import fake_gpu
from support.kernel_programs import KernelProgram

RULES = ["sgd", "momentum", "adagrad", "adadelta", "rmsprop", "adam", "amsgrad", "eg"]
IDLE = [rule for rule in RULES if rule not in ("sgd", "adagrad")]  # a gradient of 0 moves their state

pytestmark = pytest.mark.skipif(not fake_gpu.available(), reason="no compiler")


@pytest.fixture(scope="module")
def differences(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    sources = ["cuda/emulation/other_kernels.cc", "cpu/isa/updates.cc"]
    options = ["-fno-math-errno", "-DDYC_ISA=baseline"]
    result = KernelProgram(tmp_path_factory.mktemp("updates"), "update_cases", sources, *options)()
    assert result.returncode == 0, result.stdout + result.stderr
    return {name: float(value) for name, value in (line.split() for line in result.stdout.splitlines())}


def test_every_rule_is_compared(differences: dict[str, float]) -> None:
    expected = {f"{rule}-active" for rule in RULES} | {f"{rule}-idle" for rule in IDLE}
    assert set(differences) == expected | {"normalise", "squares", "squares-large", "squares-small"}


def test_rules(differences: dict[str, float]) -> None:
    assert {name: value for name, value in differences.items() if not value < 1e-6} == {}
