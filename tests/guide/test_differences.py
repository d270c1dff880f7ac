"""The page of differences: up to date, and its examples give what it says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("our own documentation", allow_module_level=True)
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import differences
import make_differences

ENTRIES = [entry for entries in differences.TOPICS.values() for entry in entries]
EXAMPLES = [entry for entry in ENTRIES if entry.example]


def test_page_is_up_to_date() -> None:
    assert make_differences.TARGET.read_text(encoding="utf-8") == make_differences.page()


def test_every_entry_is_told_once() -> None:
    assert len({entry.names for entry in ENTRIES}) == len(ENTRIES)
    assert all(entry.names and entry.dynet and entry.here for entry in ENTRIES)
    assert len(EXAMPLES) > 20


@pytest.mark.parametrize("entry", EXAMPLES, ids=[entry.names[:40] for entry in EXAMPLES])
def test_example(dy: Any, entry: differences.Difference) -> None:
    def old_expression() -> Any:
        e = dy.zeros(1)
        dy.renew_cg()
        return e

    names = {"dy": dy, "np": np, "old_expression": old_expression}
    if entry.gives.endswith("Error"):
        with pytest.raises(Exception) as raised:
            eval(entry.example, names)
        assert type(raised.value).__name__ == entry.gives
    else:
        assert repr(eval(entry.example, names)) == entry.gives
