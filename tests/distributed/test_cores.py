"""Ranks of one machine divide its cores, however they were started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from dynet_compat.distributed.cores import threads_of
from support.jobs import started

A, B = frozenset(range(8)), frozenset(range(8, 16))


@pytest.mark.parametrize(
    ("every", "threads"),
    [
        ([("a", A)] * 2, [4, 4]),  # mpiexec leaves all cores to each
        ([("a", A), ("a", B)], [8, 8]),  # srun --cpus-per-task=8 gives each its own
        ([("a", A), ("b", A), ("b", A)], [8, 4, 4]),
        ([("a", A), ("a", A), ("a", A | B)], [2, 2, 10]),
        ([("a", frozenset({0}))] * 3, [1, 1, 1]),
        ([("a", A)] * 3, [2, 2, 2]),
    ],
)
def test_threads_of_ranks(every: list[tuple[str, frozenset[int]]], threads: list[int]) -> None:
    assert [threads_of(rank, every) for rank in range(len(every))] == threads


def test_a_script_that_starts_the_job_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DYNET_COMPAT_THREADS", raising=False)
    script = tmp_path / "script.py"
    script.write_text(
        "import dynet_compat as dy\nfrom dynet_compat import _core\n"
        "dy.distributed.start()\nprint(f'threads {_core.threads()}\\n', end='')\n"  # one write
    )
    result = started(script)
    cores = len(os.sched_getaffinity(0))
    assert result.stdout.count(f"threads {max(1, cores // 2)}\n") == 2, result.stdout + result.stderr
