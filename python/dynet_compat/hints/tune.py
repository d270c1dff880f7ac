"""`compile --profile`: runs the script in a process of its own, and makes the tuning table.

Work for which the CPU has several variants, with the same results, is done in all of them by turns and timed;
the variants that are clearly faster than the rule's are kept. Launches are counted per place and size, so
that --explain can say where in the script such work is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .hints_file import MAX_INT, TuningEntry, TuningTable

CLEAR = 1.05  # so much faster than the rule, in the whole run and in each third of it
LEAST_ROUNDS = 9  # in which every variant ran
LEAST_SAVED = 0.0005  # of the time of all launches: a table is looked into before every launch


class LaunchLine(NamedTuple):
    """A line of the script that recorded nodes of launches with 2**size to 2**(size+1)-1 nodes."""

    file: str
    line: int
    op: str
    size: int


@dataclass(frozen=True)
class Profile:
    """What a run has launched, and what was measured."""

    graphs: int
    launches: tuple[LaunchLine, ...]
    table: TuningTable


def run(script: str, arguments: Sequence[str], sources: Sequence[str]) -> Profile:
    """Run a script and measure.

    Args:
        script: the Python file.
        arguments: its command line.
        sources: the files whose lines are noted, relative to the script's folder.
    Returns:
        What was found.
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
    table = TuningTable(found["isa"], found["threads"], faster(found["measurements"]))
    return Profile(found["graphs"], tuple(LaunchLine(*row) for row in found["launches"]), table)


def faster(rows: Sequence[dict[str, Any]]) -> tuple[TuningEntry, ...]:
    """The variants to keep, one of each piece of work, the most useful first.

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
    return tuple(_entry(best[key]) for key in kept)


def _entry(row: dict[str, Any]) -> TuningEntry:
    percent = min(round(100 * row["ratio"]), MAX_INT)
    ops, dims = tuple(row["ops"]), tuple(row["extents"])
    return TuningEntry(row["choice"], ops, dims, row["size"], row["way"], percent, row["rounds"])


def explanation(profile: Profile) -> list[str]:
    """The lines of --explain: which variant was chosen where."""
    table = profile.table
    threads = f"{table.threads} thread{'' if table.threads == 1 else 's'}"
    lines = [f"variants that were faster than the rules' ({table.isa}, {threads}):"]
    for e in table.entries:
        where = sorted({(c.file, c.line) for c in profile.launches if c.op in e.ops and c.size == e.size})
        places = ", ".join(f"{file}:{line}" for file, line in where[:3]) + (", ..." if where[3:] else "")
        low, unit = 2**e.size, "nodes" if e.ops else "columns"
        ops = ",".join(e.ops[:4]) + (",..." if e.ops[4:] else "")
        shape = "x".join(map(str, e.dims[:4])) + ("x..." if e.dims[4:] else "")
        what = " ".join(part for part in (e.knob, ops, shape) if part)
        lines.append(
            f"  {places + ': ' if places else ''}{what}, {low} to {2 * low - 1} {unit}: {e.variant}, "
            f"{e.percent / 100:.2f} times as fast ({e.rounds} rounds)"
        )
    return lines if table.entries else [*lines, "  none, or the run was too short to tell"]
