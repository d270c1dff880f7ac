"""Comparing the files that a script wrote on both sides."""

from __future__ import annotations

import io
import os
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import numpy as np

from .diff import norm_difference, relative_difference
from .runs import Run

_MOST = 64 << 20  # bytes of a file that are read as text or arrays
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b")


_INDEX = "not compared: it describes the .data file"  # a .meta file, in which each library binds the two


@dataclass
class OutputFile:
    """A file that at least one side wrote, or removed."""

    name: str
    sizes: list[Optional[int]]  # on the reference, on ours; None: not there
    verdict: str  # "same bytes", "same numbers", "differs", "varies" from run to run, or where it is missing
    detail: str = ""
    difference: Optional[float] = None  # the largest relative one, of numbers
    is_renamed: bool = False  # the script gives it another name in each run

    @property
    def is_equal(self) -> bool:
        """Nothing in it differs by more than the tolerance, or it differs from itself as well."""
        return self.verdict in ("same bytes", "same numbers", "varies", _INDEX)


def shown_name(path: str) -> str:
    """A path as seen from the current folder, where it is below it."""
    current = os.path.realpath(os.curdir)
    return os.path.relpath(path, current) if path.startswith(current.rstrip(os.sep) + os.sep) else path


def compare(theirs: Run, ours: Run, rtol: float, names: Optional[dict[str, str]] = None) -> list[OutputFile]:
    """All files that the two runs wrote or removed, by name.

    Args:
        names: path of a file of ours -> what the reference called it, where that differs in each run.
    """
    found = []
    sides = (theirs, ours)
    renamed = names or {}
    written = (theirs.files, {renamed.get(path, path): file for path, file in ours.files.items()})
    for path in sorted({*written[0], *written[1]}):
        files = [side.get(path) for side in written]
        sizes = [None if file is None else file.stat().st_size for file in files]
        one = OutputFile(shown_name(path), sizes, "same bytes", is_renamed=path in renamed.values())
        if files[0] is None or files[1] is None:
            one.verdict = f"only on {sides[files[0] is None].side.name}"
        elif path.endswith(".meta") and all(path[:-5] + ".data" in side for side in written):
            one.verdict = _INDEX
        else:
            _fill(one, _content(files[0], theirs), _content(files[1], ours), rtol)
        found.append(one)
    for path in sorted({*theirs.removed} ^ {*ours.removed}):
        if path not in theirs.files and path not in ours.files:
            side = sides[path in ours.removed].side.name
            found.append(OutputFile(shown_name(path), [None, None], f"removed only on {side}"))
    return found


def names_that_vary(theirs: Run, again: Run, other: Run) -> dict[str, str]:
    """Path of a file in the other run -> its path in the first, of files that the script gives a new name in
    each run, such as the time: in the order in which they were written.

    Args:
        again: the first run once more, which tells these files from those that only one side writes.
    """
    unlike = [path for path in theirs.files if path not in again.files and path not in other.files]
    found = [path for path in other.files if path not in theirs.files]
    sides = [
        sorted(paths, key=lambda path: (run.files[path].stat().st_mtime_ns, os.path.splitext(path)[1]))
        for paths, run in ((unlike, theirs), (found, other))
    ]
    endings = [[os.path.splitext(path)[1] for path in paths] for paths in sides]
    return dict(zip(sides[1], sides[0])) if endings[0] == endings[1] else {}


def _content(file: Path, run: Run) -> bytes:
    """A file's bytes, with the originals' paths in the place of the run's own."""
    with open(file, "rb") as stream:
        return stream.read().replace(run.shadow.encode(), b"")


def _fill(one: OutputFile, want: bytes, got: bytes, rtol: float) -> None:
    if want == got:
        return
    compared = None
    if max(len(want), len(got)) <= _MOST:
        compared = _models(want, got, rtol) or _arrays(want, got, rtol) or _texts(want, got, rtol)
    if compared is None:
        pairs = zip(want, got)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(want), len(got)))
        compared = f"from byte {at} on", float("inf")
    one.detail, one.difference = compared
    one.verdict = "same numbers" if one.difference <= rtol else "differs"


_Compared = Optional[tuple[str, float]]  # what differs most, and how much


def _models(want: bytes, got: bytes, rtol: float) -> _Compared:
    """DyNet's text files: the size of a block in its header depends on how numbers are printed."""
    if not all(data.startswith((b"#Parameter#", b"#LookupParameter#")) for data in (want, got)):
        return None
    sides = [data.decode("utf-8", "replace").splitlines() for data in (want, got)]
    if len(sides[0]) != len(sides[1]):
        return f"{len(sides[0])} and {len(sides[1])} lines", float("inf")
    worst, where, name = 0.0, "", ""
    for theirs, ours in zip(*sides):
        if theirs.startswith("#"):
            heads = [line.split()[:2] + re.findall(r"\{[\d,X]*\}|\w+_GRAD", line) for line in (theirs, ours)]
            if heads[0] != heads[1]:
                return f"{theirs} and {ours}", float("inf")
            name = heads[0][1] if len(heads[0]) > 1 else ""
            continue
        try:
            values = [np.array(line.split(), np.float64) for line in (theirs, ours)]
        except ValueError:
            return f"a line of {name}", float("inf")
        same = values[0].size == values[1].size
        difference = norm_difference(values[1], values[0], rtol) if same else float("inf")
        if difference > worst or not where:
            worst, where = max(worst, difference), name
    return where, worst


def _arrays(want: bytes, got: bytes, rtol: float) -> _Compared:
    """Files of NumPy."""
    try:
        sides = [np.load(io.BytesIO(data), allow_pickle=False) for data in (want, got)]
        both = [dict(side) if hasattr(side, "files") else {"array": side} for side in sides]
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, KeyError):
        return None
    if both[0].keys() != both[1].keys():
        return f"arrays {sorted(both[0])} and {sorted(both[1])}", float("inf")
    worst, where = 0.0, ""
    for name, theirs in both[0].items():
        ours = both[1][name]
        if theirs.shape != ours.shape or theirs.dtype.kind not in "biuf":
            difference = 0.0 if theirs.shape == ours.shape and (theirs == ours).all() else float("inf")
        else:
            difference = relative_difference(ours, theirs, rtol)
        if difference >= worst:
            worst, where = difference, name
    return where, worst


def _printed_difference(theirs: str, ours: str, rtol: float) -> float:
    """Of two numbers as they are printed, beyond what few digits round. Whole numbers count something."""
    if all(text.lstrip("+-").isdigit() for text in (theirs, ours)):
        return 0.0 if int(theirs) == int(ours) else float("inf")
    rounding = 10.0 ** (1 - min(len(theirs), 9))
    got, want = (np.array(text, np.float64) for text in (ours, theirs))
    return max(relative_difference(got, want, rtol) - rounding, 0.0)


def _texts(want: bytes, got: bytes, rtol: float) -> _Compared:
    """Text: equal but for numbers, which are close."""
    if b"\0" in want or b"\0" in got:
        return None
    try:
        sides = [data.decode("utf-8").splitlines() for data in (want, got)]
    except UnicodeDecodeError:
        return None
    worst, where = 0.0, ""
    for number, (theirs, ours) in enumerate(zip(*sides), 1):
        if theirs == ours:
            continue
        line = f"line {number}: {theirs.strip()[:60]!r} and {ours.strip()[:60]!r}"
        if _NUMBER.split(theirs) != _NUMBER.split(ours):
            return line, float("inf")
        pairs = zip(_NUMBER.findall(theirs), _NUMBER.findall(ours))
        difference = max(_printed_difference(*pair, rtol) for pair in pairs)
        if difference >= worst:
            worst, where = difference, line
    if len(sides[0]) != len(sides[1]):
        return f"{len(sides[0])} and {len(sides[1])} lines", float("inf")
    return where, worst
