"""Random programs with files, signals, frames, exceptions and threads do the same under hints."""

from __future__ import annotations

import itertools
import linecache
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from dynet_compat.hints.rewrite import patch
from support import busy_programs
from support.modules import load

pytestmark = pytest.mark.trials

_numbers = itertools.count()


def check(folder: Path, seed: int) -> int:
    """Both runs of one program; how many regions were recorded by one call."""
    source = busy_programs.source(seed)
    path = folder / f"busy{next(_numbers)}.py"
    path.write_text(source)
    regions: dict[str, Any] = {}

    def hinted() -> ModuleType:
        module = load(path)
        regions.update(patch.rewrite_module(module, source).regions)
        return module

    plain = busy_programs.run(lambda: load(path), folder / "files")
    other = busy_programs.run(hinted, folder / "files")
    assert plain == other, f"program {seed} under hints (right) does something else:\n{source}"
    for t in regions.values():
        assert "something else" not in t.statistics()["off"], (t.statistics(), source)
    linecache.clearcache()
    path.unlink()
    return sum(t.statistics()["hits"] for t in regions.values())


PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_random_programs(tmp_path: Path, fuzz_count: int, part: int) -> None:
    seeds = range(part, fuzz_count or 40, PARTS)
    hits = [check(tmp_path, seed) for seed in seeds]
    assert sum(h > 0 for h in hits) > len(seeds) / 4  # the test is about something


def outside(folder: Path, seed: int, hints: str) -> tuple[int, str, str, dict[str, str]]:
    """Status, output, errors and files of a program in a process of its own; the folder goes."""
    folder.mkdir()
    start = "\nsignal.signal(signal.SIGUSR1, on_ring)\nsignal.signal(signal.SIGALRM, on_alarm)\nmain()\n"
    (folder / "busy.py").write_text(busy_programs.source(seed) + start)
    done = subprocess.run(
        [sys.executable, "busy.py"],
        cwd=folder,
        env={**os.environ, "DYNET_COMPAT_HINTS": hints},
        capture_output=True,
        text=True,
        timeout=300,
    )
    files = {file.name: file.read_text() for file in sorted(folder.glob("*.txt"))}
    shutil.rmtree(folder)
    return done.returncode, done.stdout, busy_programs.without_marks(done.stderr), files


@pytest.mark.parametrize("seed", range(3))
def test_programs_in_processes(tmp_path: Path, seed: int) -> None:
    plain, other = (outside(tmp_path / "program", 1_000_000 + seed, hints) for hints in ("off", "eager"))
    assert plain == other, busy_programs.source(1_000_000 + seed)
