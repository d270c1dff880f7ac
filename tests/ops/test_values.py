# ruff: noqa: UP031
"""Values and gradients of every case against the real DyNet's (or a NumPy formula where it is wrong)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ops.case import Case
from ops.cases import CASES
from support import oracle, records, runner
from support.compare import difference
from support.subject import IS_REFERENCE

AGAINST_REFERENCE = [case for case in CASES if case.ref is None]
AGAINST_FORMULA = [case for case in CASES if case.ref is not None]


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    return oracle.recorded("ops")


@pytest.fixture(scope="module")
def live(oracle_python: str) -> dict[str, np.ndarray]:
    return oracle.live("ops")


def compare(case: Case, result: runner.Result, wanted: dict[str, np.ndarray], source: str) -> None:
    """Fail with the case, the operand and the error if `result` is not what `source` says."""
    assert case.id + "|key" in wanted, f"{case.describe()} has no recording: run tests/oracle/record.py ops"
    key = records.untext(wanted[case.id + "|key"])
    assert key == case.key, (
        f"{case.describe()} has changed since it was recorded: run tests/oracle/record.py ops"
    )
    dim = list(result.dim[0]) + [result.dim[1]]
    assert dim == wanted[case.id + "|dim"].tolist(), "{}: dim {}, {} has {}".format(
        case.describe(), dim, source, wanted[case.id + "|dim"].tolist()
    )
    found = difference(result.value, wanted[case.id + "|value"], case.rtol, case.atol)
    assert found is None, f"{case.describe()}: value differs from {source}: {found}"
    for n, grad in enumerate(result.grads):
        if grad is None:
            continue
        want = wanted["%s|grad%d" % (case.id, n)]
        found = difference(grad, want, 2 * case.rtol * case.grad_tol, 2 * case.atol * case.grad_tol)
        assert found is None, "%s: gradient of operand %d differs from %s: %s" % (
            case.describe(),
            n,
            source,
            found,
        )


@pytest.mark.parametrize("case", AGAINST_REFERENCE, ids=lambda case: case.id)
def test_recorded(dy: Any, case: Case, recorded: dict[str, np.ndarray]) -> None:
    compare(case, runner.evaluate(dy, case), recorded, "the recording of DyNet 2.1.2")


@pytest.mark.oracle
def test_live(dy: Any, live: dict[str, np.ndarray]) -> None:
    """The same on a DyNet that runs now: the recordings are not out of date."""
    faults = []
    for case in AGAINST_REFERENCE:
        try:
            compare(case, runner.evaluate(dy, case), live, "DyNet")
        except AssertionError as error:
            faults.append(str(error).split("\n")[0])
    assert not faults, "%d of %d cases:\n%s" % (len(faults), len(AGAINST_REFERENCE), "\n".join(faults[:40]))


@pytest.mark.skipif(IS_REFERENCE, reason="the reference is wrong or refuses here")
@pytest.mark.parametrize("case", AGAINST_FORMULA, ids=lambda case: case.id)
def test_formula(dy: Any, case: Case) -> None:
    values = case.values()
    result = runner.evaluate(dy, case)
    want = runner.reference_value(case, values)
    found = difference(result.value, want, case.rtol, case.atol)
    assert found is None, f"{case.describe()}: value differs from {case.ref}: {found}"
    if not case.diff:
        return
    wanted = runner.reference_grads(case, values, case.weights(want.shape))
    for n, (grad, want_grad) in enumerate(zip(result.grads, wanted)):
        if grad is None or want_grad is None:
            continue
        found = difference(grad, want_grad, 1e-4 * case.grad_tol, 1e-5 * case.grad_tol)
        assert found is None, "%s: gradient of operand %d differs from the derivative of %s: %s" % (
            case.describe(),
            n,
            case.ref,
            found,
        )


def test_ids_unique() -> None:
    assert len({case.id for case in CASES}) == len(CASES)
    assert len({case.key for case in CASES}) == len(CASES), "two cases are the same"
