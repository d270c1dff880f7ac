"""The `info` command."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="our own command")


def run(*arguments: str) -> str:
    command = [sys.executable, "-m", "dynet_compat", "info", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return result.stdout


def test_info_as_json() -> None:
    facts = json.loads(run("--json"))
    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))
    assert facts["cpu"]["kernels"] in ("baseline", "avx2", "avx512")
    assert facts["cpu"]["threads"] >= 1


def test_info_as_text() -> None:
    lines = run().splitlines()
    assert lines[0].startswith("dynet_compat ")
    assert any(line.split()[0] == "kernels" for line in lines)


def test_reader_that_stops() -> None:
    """`info | head -1` ends without a traceback."""
    command = [sys.executable, "-m", "dynet_compat", "info"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait(60)) == ("", 0)
