"""The command as a fixture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.comparing import Outcome


@pytest.fixture(autouse=True)
def folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder is part of what `compare` copies."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `compare` in this process (the scripts run in theirs), with a report and JSON."""

    from dynet_compat import compare

    def run(*arguments: Any, times: bool = False, outputs: bool = True, progress: bool = False) -> Outcome:
        extra = [] if times else ["--repeats", "0"]
        extra += [] if progress else ["--no-progress"]
        if outputs:
            extra += ["--report", str(tmp_path / "report.html"), "--json", str(tmp_path / "out.json")]
        status = compare.main([*extra, *map(str, arguments)])
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err, tmp_path)

    return run
