# ruff: noqa: UP031
"""Every case five times with different values in one graph: batched, and each alone without batching.

Then the same with all cases of an op together, so that one batch meets many sizes (ragged), under one seed
for the ops that draw random numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ops.case import Case
from ops.cases import CASES
from support import runner
from support.compare import difference
from support.subject import IS_REFERENCE

COPIES = 5
# the real DyNet's autobatching is wrong for many of these (it even corrupts memory): there, only this logic
BATCHED = not IS_REFERENCE
USABLE = [case for case in CASES if not (IS_REFERENCE and case.ref is not None)]
FIXED = [case for case in USABLE if not case.random]
BY_OP: dict[str, list[Case]] = {}
for _case in USABLE:
    BY_OP.setdefault(_case.op, []).append(_case)


def check(case: Case, what: str, got: np.ndarray, want: np.ndarray, factor: float = 1.0) -> None:
    found = difference(got, want, case.rtol * factor, case.atol * factor)
    assert found is None, f"{case.describe()}: {what}: {found}"


@pytest.mark.parametrize("case", FIXED, ids=lambda case: case.id)
def test_copies(dy: Any, case: Case) -> None:
    batched = runner.evaluate_together(dy, [(case, COPIES)], autobatching=BATCHED, grads=case.diff)
    shared: dict[int, np.ndarray] = {}
    for copy in range(COPIES):
        alone = runner.evaluate(dy, case, copy=copy)
        together = batched.results[copy]
        assert together.dim == alone.dim, "%s: copy %d: dim %s batched, %s alone" % (
            case.describe(),
            copy,
            together.dim,
            alone.dim,
        )
        check(case, "value of copy %d in a batch" % copy, together.value, alone.value)
        for n, (got, want) in enumerate(zip(together.grads, alone.grads)):
            if case.inputs[n].kind in ("param", "lookup"):
                shared[n] = shared.get(n, 0) + want[..., 0]
            elif want is not None:
                check(
                    case,
                    "gradient of operand %d of copy %d in a batch" % (n, copy),
                    got,
                    want,
                    2 * case.grad_tol,
                )
    for n, want in shared.items():
        check(case, "gradient of shared parameter %d" % n, batched.shared[0][n], want, 5 * case.grad_tol)


def compare_whole(dy: Any, cases: list[Case], copies: int) -> None:
    """One graph with all `cases`, batching on and off: the random draws agree too (in order of creation)."""
    grads = all(case.diff for case in cases)
    jobs = [(case, copies) for case in cases]
    on = runner.evaluate_together(dy, jobs, autobatching=BATCHED, grads=grads)
    off = runner.evaluate_together(dy, jobs, autobatching=False, grads=grads)
    order = [case for copy in range(copies) for case in cases]
    for case, got, want in zip(order, on.results, off.results):
        assert got.dim == want.dim, case.describe()
        check(
            case, "value with batching on, beside %d other graphs" % (len(order) - 1), got.value, want.value
        )
        for n, (got_grad, want_grad) in enumerate(zip(got.grads, want.grads)):
            if want_grad is not None:
                check(
                    case,
                    "gradient of operand %d with batching on" % n,
                    got_grad,
                    want_grad,
                    2 * case.grad_tol,
                )
    for case, got_pool, want_pool in zip(cases, on.shared, off.shared):
        for n, want_grad in want_pool.items():
            check(
                case,
                "gradient of parameter %d with batching on" % n,
                got_pool[n],
                want_grad,
                5 * case.grad_tol,
            )


@pytest.mark.parametrize("op", sorted(BY_OP))
def test_ragged(dy: Any, op: str) -> None:
    """All sizes of one op in one graph, three copies each."""
    for diff in (True, False):
        cases = [case for case in BY_OP[op] if case.diff is diff]
        if IS_REFERENCE and any(case.random for case in cases):
            continue  # the reference draws in another order when it batches
        if cases:
            compare_whole(dy, cases, 3)


@pytest.mark.parametrize("part", range(12))
def test_mixture(dy: Any, part: int) -> None:
    """Cases of many ops in one graph."""
    cases = [case for case in FIXED if case.diff][part::12]
    compare_whole(dy, cases, 2)
