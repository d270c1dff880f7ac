"""Every code block and command of the README, CONTRIBUTING.md and the migration guide runs.

What the info string of a block says: `python` runs, together with the page's other ones, in one process;
`python NAME` is written to a file of that name, for the commands that follow; `sh` runs; `sh dry-run` needs a
network, the real DyNet or many minutes: its commands are only looked at; `text` is output or a table.
`diff FILE` and `sh walkthrough` are run by test_contributing.py.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="our documentation")

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "migration_guide").glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.M | re.S)


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """(language, rest of the info string, text) of each fenced block."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [(language, rest.strip(), text) for language, rest, text in found]


def run(text: str, folder: Path, shell: bool) -> None:
    """Run a shell script (whose `python` is this interpreter) or a Python program in the folder."""
    if shell:
        command, text = ["bash", "-e"], f'python() {{ {shlex.quote(sys.executable)} "$@"; }}\n{text}'
    else:
        command = [sys.executable, "-"]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    environment["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    result = subprocess.run(
        command, input=text, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, f"this fails:\n{text}\n{result.stdout}\n{result.stderr}"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_page(page: Path, tmp_path: Path) -> None:
    program = ""
    for language, rest, text in blocks(page):
        if language == "python" and rest:
            (tmp_path / rest).write_text(text, encoding="utf-8")
        elif language == "python":
            program += text + "\n"
        elif language == "sh" and rest == "dry-run":
            dry_run(text)
        elif language == "sh" and not rest:
            run(text, tmp_path, shell=True)
        else:
            assert done_elsewhere(page, language, rest) or language == "text", f"```{language} {rest}: {text}"
    if program:
        run(program, tmp_path, shell=False)


def done_elsewhere(page: Path, language: str, rest: str) -> bool:
    """True for what test_contributing.py runs."""
    walkthrough = language == "diff" or (language, rest) == ("sh", "walkthrough")
    return walkthrough and page.name == "CONTRIBUTING.md"


def test_no_block_is_forgotten() -> None:
    """All of the pages' blocks are run, but for output and the few commands that cannot run in a test."""
    kinds: Counter[str] = Counter()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        fences = re.findall(r"^[ \t]*(?:```|~~~).*$", text, re.M)
        assert len(fences) == 2 * len(blocks(page)), f"{name_of(page)}: a block that says no language"
        outside = BLOCK.sub("", text)
        # four spaces make code of a paragraph, but not of what belongs to an item of a list
        indented = re.findall(r"(?:\A|\n)(?![ \t]*(?:[-*]|\d+\.) ).*\n\n(    .*)", outside)
        assert indented == [], f"{name_of(page)}: code by indentation, which no test runs: {indented}"
        for language, rest, _ in blocks(page):
            if done_elsewhere(page, language, rest) or (language in ("python", "sh") and rest != "dry-run"):
                kinds["run"] += 1
            else:
                kinds[f"{language} {rest}".strip()] += 1
    assert set(kinds) == {"run", "text", "sh dry-run"}, kinds
    assert kinds["run"] >= 35 and kinds["sh dry-run"] <= 8, kinds


def dry_run(text: str) -> None:
    """Commands that cannot run here: each must be a pip, venv, make or compare command that exists."""
    for line in text.strip().splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "make":
            subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, check=True, capture_output=True)
        elif words[0].split("/")[-1] == "pip":
            assert words[1] == "install" and len(words) > 2, line
        elif words[1:4] == ["-m", "dynet_compat", "compare"]:  # tests/compare runs it
            run(f"{' '.join(words[:4])} --help", ROOT, shell=True)
            assert (ROOT / next(word for word in words if word.endswith(".py"))).exists(), line
        else:
            assert words[1:3] == ["-m", "venv"], line


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
