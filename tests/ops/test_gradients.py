# ruff: noqa: UP031
"""Gradients of every differentiable case against finite differences of its own value.

Five-point differences with a step of 1/32: the formula's error is of order step^4, rounding in float32 adds
about 1e-7 |out| / step. The sum over w*out is taken in float64 outside the library.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ops.case import Case
from ops.cases import CASES
from support import runner
from support.subject import IS_REFERENCE

STEP = 1 / 32
MOST = 24  # elements of an operand that are checked
CHECKED = [
    case
    for case in CASES
    if case.diff and case.fd and not case.random and not (IS_REFERENCE and case.ref is not None)
]
# the fifth derivative is large near the ends of the domain
SMALL_STEP = {
    "tan",
    "asin",
    "acos",
    "acosh",
    "atanh",
    "log",
    "sqrt",
    "lgamma",
    "cdiv",
    "pow",
    "std_dim",
    "std_elems",
    "std_batches",
    "layer_norm",
    "weight_norm",
    "binary_log_loss",
    "l2_norm",
}


def objective(dy: Any, case: Case, values: list[np.ndarray], w: np.ndarray) -> float:
    """sum(w * out) in float64."""
    return float((w * runner.evaluate(dy, case, values, grads=False).value).sum())


@pytest.mark.parametrize("case", CHECKED, ids=lambda case: case.id)
def test_finite_differences(dy: Any, case: Case) -> None:
    values = case.values()
    result = runner.evaluate(dy, case, values)
    w = case.weights(result.value.shape).astype(np.float64)
    step = STEP / 2 if case.op in SMALL_STEP else STEP
    scale = float(np.abs(w * result.value).sum())
    for n, grad in enumerate(result.grads):
        if grad is None:
            continue
        everywhere = list(np.ndindex(values[n].shape))
        stride = -(-len(everywhere) // MOST)
        norm = float(np.abs(grad).max())
        for at in everywhere[::stride]:
            kept = values[n][at]
            sums = []
            for shift in (-2, -1, 1, 2):
                values[n][at] = kept + np.float32(shift * step)
                sums.append(objective(dy, case, values, w))
            values[n][at] = kept
            want = (sums[0] - 8 * sums[1] + 8 * sums[2] - sums[3]) / (12 * step)
            allowed = 3e-4 * max(1.0, norm) * case.grad_tol + 3e-7 * scale / step
            assert abs(grad[at] - want) <= allowed, (
                "%s: gradient of operand %d at %s is %.7g, finite differences give %.7g "
                "(abs error %.3g, allowed %.3g)"
                % (case.describe(), n, at, grad[at], want, abs(grad[at] - want), allowed)
            )
