"""Every code block and command of the README and the migration guide runs.

What the info string of a block says: `python` runs, together with the page's other ones, in one process;
`python NAME` is written to a file of that name, for the commands that follow; `sh` runs; `sh dry-run` needs a
network or minutes: its commands are only looked at.
Other languages are output and tables.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="our documentation")

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "migration_guide").glob("*.md"))
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
    result = subprocess.run(
        command, input=text, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, f"this fails:\n{text}\n{result.stdout}\n{result.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(page: Path, tmp_path: Path) -> None:
    program = ""
    for language, rest, text in blocks(page):
        if language == "python" and rest:
            (tmp_path / rest).write_text(text, encoding="utf-8")
        elif language == "python":
            program += text + "\n"
        elif language == "sh" and rest == "dry-run":
            dry_run(text)
        elif language == "sh":
            run(text, tmp_path, shell=True)
    if program:
        run(program, tmp_path, shell=False)


def dry_run(text: str) -> None:
    """Commands that cannot run here: each must be a pip, venv or make command that exists."""
    for line in text.strip().splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "make":
            subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, check=True, capture_output=True)
        elif words[0].split("/")[-1] == "pip":
            assert words[1] == "install" and len(words) > 2, line
        elif words[1:3] == ["-m", "dynet_compat"]:
            run(f"{' '.join(words[:4])} --help", ROOT, shell=True)
        else:
            assert words[1:3] == ["-m", "venv"], line


def test_readme_commands_exist() -> None:
    for language, _, text in blocks(ROOT / "README.md"):
        if language == "sh":
            dry_run(text)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
