# ruff: noqa: UP031
"""The op table is complete: every row has a shape rule, a gradient, a batch rule, documentation and cases."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Any

import pytest
from ops.cases import CASES
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="the table is ours")

# Rows that are recorded by functions of other names: what their cases are filed under. Rows not named here
# have cases under their own or their public name.
TESTED_AS = {
    "input": (
        "scalarInput",
        "vecInput",
        "inputVector",
        "inputTensor",
        "inputTensorTranspose",
        "sparse_inputTensor",
        "one_hot",
    ),
    "constant": ("zeros", "ones", "constant"),
    "random": ("random_normal", "random_bernoulli", "random_uniform", "random_gumbel"),
    "lookup": ("lookup", "lookup_batch", "lookup_table"),
    "part": ("pick_range", "pick"),
    "lstm_activate": ("vanilla_lstm_gates", "vanilla_lstm_gates_dropout"),
    "lstm_cell": ("vanilla_lstm_c", "vanilla_lstm_h"),
    "user_op": ("cupy_op",),
    "moment_dim": ("moment_dim", "mean_dim", "moment_elems", "mean_elems"),
}
# Hidden rows that are recorded by a public function of another name, whose docstring documents them.
RECORDED_BY = {"restricted_log_softmax": "log_softmax", "part": "pick_range"}
# Rows whose extents the recorder knows without a rule, and from where.
GIVEN_EXTENTS = {"lookup": "the row dims of the table", "part": "the range that is asked for"}
ENOUGH = 2


def rows() -> list[dict[str, Any]]:
    return list(importlib.import_module("dynet_compat._core").op_table())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "row" in metafunc.fixturenames:
        found = [] if IS_REFERENCE else rows()
        metafunc.parametrize("row", found, ids=[row["name"] for row in found])


def test_table_is_not_empty() -> None:
    names = [row["name"] for row in rows()]
    assert len(names) > 80
    assert [name for name, count in Counter(names).items() if count > 1] == []


def filed_under(row: dict[str, Any]) -> set[str]:
    """The ops of cases.py that exercise a row."""
    public = row.get("public")
    named = {public} if isinstance(public, str) else set()
    return {row["name"], *named, *TESTED_AS.get(row["name"], ())}


def test_row(row: dict[str, Any]) -> None:
    name = row["name"]
    assert row.get("shape") or row.get("leaf") or name in GIVEN_EXTENTS, f"op {name} has no shape rule"
    assert row.get("gradient") or row.get("nondiff"), f"op {name} has neither a gradient nor `nondiff`"
    assert not (row.get("gradient") and row.get("nondiff")), f"op {name}: gradient and `nondiff`"
    assert row.get("batch"), f"op {name} has no batch rule"


def test_documentation(row: dict[str, Any]) -> None:
    """A row has a docstring with an example, or, when hidden, the functions that record it have.

    tests/test_docs.py runs the examples.
    """
    core = importlib.import_module("dynet_compat")
    docs = [row.get("doc") or ""]
    if not row.get("public"):
        functions = filed_under(row) | {RECORDED_BY.get(row["name"], "")}
        docs += [getattr(core, name).__doc__ or "" for name in functions if hasattr(core, name)]
        docs += [core.Expression.__doc__ or ""]
    assert any(">>> " in doc for doc in docs), f"op {row['name']}: no docstring with an example"


def test_cases(row: dict[str, Any]) -> None:
    name = row["name"]
    found = [case for case in CASES if case.op in filed_under(row)]
    assert len(found) >= ENOUGH, f"op {name} has {len(found)} cases in tests/ops/cases.py, wanted {ENOUGH}"
    if row.get("gradient"):
        assert any(case.diff for case in found), f"op {name}: no case checks its gradient"


def test_mapping_is_not_stale() -> None:
    known, filed = {row["name"] for row in rows()}, {case.op for case in CASES}
    assert set(TESTED_AS) <= known, "no such row: %s" % (set(TESTED_AS) - known)
    missing = {op for ops in TESTED_AS.values() for op in ops} - filed
    assert not missing, f"no such cases: {missing}"
