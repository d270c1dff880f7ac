"""Docstrings of the functions and methods for files: complete, and their examples run."""

from __future__ import annotations

from typing import Any

import pytest
from support.subject import IS_REFERENCE
from test_docs import run_examples

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="our documentation")

NAMES = [
    "save",
    "load",
    "load_generator",
    "ParameterCollection.save",
    "ParameterCollection.populate",
    "ParameterCollection.load_param",
    "ParameterCollection.load_lookup_param",
    "Parameters.save",
    "Parameters.populate",
    "LookupParameters.save",
]
SHORT = [
    "ParameterCollection.write_to_textfile",
    "ParameterCollection.populate_from_textfile",
    "ParameterCollection.load",
    "ParameterCollection.save_all",
    "ParameterCollection.load_all",
    "Parameters.write_to_textfile",
    "Parameters.populate_from_textfile",
    "LookupParameters.populate",
    "LookupParameters.write_to_textfile",
    "LookupParameters.populate_from_textfile",
]


def named(dy: Any, name: str) -> Any:
    found = dy
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_example(dy: Any, name: str) -> None:
    doc = named(dy, name).__doc__
    for section in ("Args:", "Raises:", "Source: DyNet 2.1", "Example:"):
        assert section in doc or (section == "Raises:" and name == "load_generator"), (
            f"{name} has no {section}"
        )
    assert run_examples(dy, name, doc) > 0


@pytest.mark.parametrize("name", SHORT)
def test_is_documented(dy: Any, name: str) -> None:
    assert named(dy, name).__doc__
