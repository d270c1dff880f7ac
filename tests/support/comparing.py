"""What the tests of `compare` share: the command in this process, and what it did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support import oracle

SELF = ["--reference", "self:none"]


class Outcome:
    """What one command did."""

    def __init__(self, status: int, out: str, err: str, folder: Path) -> None:
        self.status, self.out, self.err, self.folder = status, out, err, folder
        written = folder / "out.json"
        self.all: Any = json.loads(written.read_text()) if written.exists() else {"results": []}

    @property
    def result(self) -> Any:
        return self.all["results"][0]

    @property
    def report(self) -> str:
        return (self.folder / "report.html").read_text(encoding="utf-8")


def reference_of(kind: str) -> list[str]:
    if kind == "self":
        return SELF
    found = oracle.interpreter()
    if found is None:
        pytest.skip("no Python 3.8 with dynet 2.1.2")
    return ["--reference-python", found]


both_references = pytest.mark.parametrize("kind", ["self", pytest.param("dynet", marks=pytest.mark.oracle)])
