"""`compile --profile`: runs the script in a process of its own; counts its launches, per place and size.

Work that the CPU can do in several ways, with the same results, is done in all of them by turns and timed;
the ways that are clearly faster than the rule are kept.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from . import hints_file

MOST = 100_000  # counts that are kept
CLEAR = 1.05  # so much faster than the rule, in the whole run and in each third of it
LEAST_ROUNDS = 9  # in which every way ran
LEAST_SAVED = 0.0005  # of the time of all launches: a table is looked into before every launch


def run(script: str, arguments: Sequence[str], sources: Sequence[str]) -> hints_file.Profile:
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
        command = [sys.executable, "-m", "dynet_compat.hints.tune_child", spec, script, *arguments]
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
    counts = [hints_file.LaunchCount(*row) for row in found["launches"][:MOST]]
    graphs, nodes = (min(found[key], hints_file.MAX_INT) for key in ("graphs", "nodes"))
    ways = faster(found["ways"])
    return hints_file.Profile(
        command_line(arguments), graphs, nodes, tuple(counts), found["isa"], found["threads"], ways
    )


def faster(rows: Sequence[dict[str, Any]]) -> tuple[hints_file.Way, ...]:
    """The ways to keep, one of each piece of work, the most useful first.

    Args:
        rows: what `_core._measurements()` returned.
    """
    times: dict[Any, float] = {}
    best: dict[Any, dict[str, Any]] = {}
    for row in rows:
        key = (row["choice"], *row["ops"], *row["extents"], row["size"])
        times[key] = row["seconds"] * row["runs"]
        if row["rounds"] >= LEAST_ROUNDS and row["low"] > best.get(key, {"low": CLEAR})["low"]:
            best[key] = row
    saved = {key: times[key] * (1 - 1 / row["ratio"]) for key, row in best.items()}
    kept = [key for key in best if saved[key] > LEAST_SAVED * sum(times.values())]
    kept.sort(key=lambda key: -saved[key])
    return tuple(_way(best[key]) for key in kept)


def _way(row: dict[str, Any]) -> hints_file.Way:
    percent = min(round(100 * row["ratio"]), hints_file.MAX_INT)
    ops, extents = tuple(row["ops"]), tuple(row["extents"])
    return hints_file.Way(row["choice"], ops, extents, row["size"], row["way"], percent, row["rounds"])


def explanation(profile: hints_file.Profile) -> list[str]:
    """The lines of --explain: what was chosen where."""
    threads = f"{profile.threads} thread{'' if profile.threads == 1 else 's'}"
    lines = [f"ways to run launches that were faster than the rules ({profile.isa}, {threads}):"]
    for way in profile.ways:
        where = sorted(
            {(c.file, c.line) for c in profile.launches if way.ops and c.op in way.ops and c.size == way.size}
        )
        places = ", ".join(f"{file}:{line}" for file, line in where[:3]) + (", ..." if where[3:] else "")
        low, unit = 2**way.size, "members" if way.ops else "columns"
        what = " ".join(
            part
            for part in (
                way.choice,
                ",".join(way.ops[:4]) + (",..." if way.ops[4:] else ""),
                "x".join(map(str, way.extents[:4])) + ("x..." if way.extents[4:] else ""),
            )
            if part
        )
        lines.append(
            f"  {places + ': ' if places else ''}{what}, {low} to {2 * low - 1} {unit}: {way.way}, "
            f"{way.percent / 100:.2f} times as fast ({way.rounds} rounds)"
        )
    return lines if profile.ways else [*lines, "  none, or the run was too short to tell"]


def command_line(arguments: Sequence[str]) -> str:
    """The command line as one text that a hints file may hold."""
    import shlex

    text = " ".join(shlex.quote(argument) for argument in arguments)
    return "".join(c if c.isprintable() else "?" for c in text)[: hints_file.MAX_TEXT]


def with_profile(hints: hints_file.Hints, profile: hints_file.Profile) -> hints_file.Hints:
    """Hints with a profile; of files that are no sources of the hints nothing is kept."""
    launches = tuple(count for count in profile.launches if count.file in hints.sources)
    return dataclasses.replace(hints, profile=dataclasses.replace(profile, launches=launches))
