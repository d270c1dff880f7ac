"""The case list is what a claim of completeness rests on: ten cases of every op, most of them recorded."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from ops.cases import CASES
from support.subject import IS_REFERENCE

NAMES = Counter(name for case in CASES for name in set(re.findall(r"\bdy\.([A-Za-z_0-9]+)\(", case.expr)))


def test_number_of_comparisons() -> None:
    """Values and gradients that the real DyNet gave."""
    recorded = [case for case in CASES if case.ref is None]
    arrays = sum(1 + sum(leaf.kind != "const" for leaf in case.inputs) for case in recorded)
    assert len(recorded) > 1700
    assert arrays > 3000


@pytest.mark.skipif(IS_REFERENCE, reason="our op table")
def test_every_op_has_ten_cases() -> None:
    from dynet_compat import _core

    few = {}
    for row in _core.op_table():
        name = row["name"]
        if row["public"] and not row["leaf"] and name in dir(_core) and NAMES[name] < 10:
            few[name] = NAMES[name]
    assert not few, f"fewer than 10 cases: {few}"
