"""`compile --profile`: runs the script in a process of its own; counts its launches, per place and size."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from . import emit

MOST = 100_000  # counts that are kept


def run(script: str, arguments: Sequence[str], sources: Sequence[str]) -> emit.Profile:
    """Run a script and count.

    Args:
        script: the Python file.
        arguments: its command line.
        sources: the files whose lines are told apart, relative to the script's folder.
    Returns:
        What was launched.
    Raises:
        ValueError: the script failed, with its exit status.
    """
    folder = os.path.dirname(os.path.abspath(script))
    with tempfile.TemporaryDirectory() as temporary:
        report = os.path.join(temporary, "profile.json")
        spec = os.path.join(temporary, "spec.json")
        with open(spec, "w", encoding="utf-8") as file:
            json.dump({"report": report, "folder": folder, "sources": list(sources)}, file)
        command = [sys.executable, "-m", "dynet_compat.hints.profile_child", spec, script, *arguments]
        package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        path = os.pathsep.join(p for p in (package, os.environ.get("PYTHONPATH")) if p)
        status = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}).returncode
        try:
            with open(report, encoding="utf-8") as file:
                found: dict[str, Any] = json.load(file)
        except (OSError, ValueError):
            found = {}
    if status != 0:
        raise ValueError(f"--profile: the script ended with status {status}; no hints were written")
    if not found:
        raise ValueError("--profile: the script ended without a report; no hints were written")
    counts = [emit.LaunchCount(*row) for row in found["launches"][:MOST]]
    text = emit_text(arguments)
    return emit.Profile(
        text, min(found["graphs"], emit.MAX_INT), min(found["nodes"], emit.MAX_INT), tuple(counts)
    )


def emit_text(arguments: Sequence[str]) -> str:
    """The command line as one text that a hints file may hold."""
    import shlex

    text = " ".join(shlex.quote(argument) for argument in arguments)
    return "".join(c if c.isprintable() else "?" for c in text)[: emit.MAX_TEXT]


def with_profile(hints: emit.Hints, profile: emit.Profile) -> emit.Hints:
    """Hints with a profile; of files that are no sources of the hints nothing is kept."""
    launches = tuple(count for count in profile.launches if count.file in hints.sources)
    return dataclasses.replace(hints, profile=dataclasses.replace(profile, launches=launches))
