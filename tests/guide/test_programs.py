"""The page of programs that were run says in its text what its table shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("our own documentation", allow_module_level=True)

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "programs.md").read_text(encoding="utf-8")
HEAD = "| program | what it is | verdict | difference | wall | CPU | hints | what it needed |"


def rows() -> list[list[str]]:
    table = PAGE.split(HEAD)[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_counts_are_those_of_the_table() -> None:
    found = rows()
    assert all(len(row) == 8 for row in found), [row for row in found if len(row) != 8]
    repositories = {re.findall(r"https://github\.com/([\w.-]+/[\w.-]+)\)", row[0])[0] for row in found}
    said = re.search(r"^(\d+) programs of (\d+) public repositories", PAGE, re.M)
    assert said is not None, "the page starts with the numbers of programs and repositories"
    assert (int(said[1]), int(said[2])) == (len(found), len(repositories))
    assert len(found) >= 30, "the project promises at least 30 programs"
    verdicts = dict(re.findall(r"^\| ([\w ,]+) \| (\d+) \| ", PAGE.split(HEAD)[0], re.M))
    counted = [row[2] for row in found]
    assert {name: int(n) for name, n in verdicts.items()} == {v: counted.count(v) for v in set(counted)}


def test_no_program_is_slower_than_on_dynet() -> None:
    """Where both end, there are two ratios; the page says that none is below 1."""
    for row in rows():
        both = row[2].startswith("equal")
        assert bool(row[4]) == both and bool(row[5]) == both, f"{row[0]}: times without a verdict, or none"
        if both and float(row[5]) < 1:
            assert "No program is slower" not in PAGE, f"{row[0]}: {row[5]} times DyNet's speed"
