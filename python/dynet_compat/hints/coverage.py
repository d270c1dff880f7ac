"""Which lines of a run recorded ops one by one, and why."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _core

if TYPE_CHECKING:
    from .rewrite.linking import LinkedModule
    from .runtime import Active

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MOST_LINES = 12


class RewrittenFile(NamedTuple):
    """What the rewriter said of one file.

    Attributes:
        regions: with the lines that each stands for.
        refused: lines, the line with the reason, and the reason.
    """

    regions: list[tuple[int, int, Any]]
    refused: list[tuple[int, int, int, str]]

    @classmethod
    def of(cls, module: LinkedModule) -> RewrittenFile:
        found = zip(module.found, module.regions.values())
        refused = [(r.line, r.last_line, r.reason_line, r.reason) for r in module.refused]
        return cls([(f.line, f.last_line, region) for f, region in found], refused)

    def reason(self, line: int) -> str:
        """Why the line is not, or not always, recorded by a region."""
        for first, last, region in self.regions:
            if first <= line <= last:
                return _of_region(region.statistics())
        around = [r for r in self.refused if r[0] <= line <= r[1]]
        if not around:
            return "in a function or a statement that is not looked at"
        _, _, at, reason = min(around, key=lambda r: r[1] - r[0])
        return reason if at == line else f"line {at}: {reason}"


def start() -> None:
    """Count what each line records one by one, from zero. It takes about 0.1 microseconds per op."""
    _core._count_op_lines(_PACKAGE)


def stop() -> None:
    """Count no more."""
    _core._count_op_lines("")


def report(active: Active) -> list[str]:
    """The lines that recorded most ops neither by regions nor by builders since start()."""
    counted: Counter[tuple[str, int, str]] = Counter()
    for *place, n in _core._op_lines():
        counted[tuple(place)] += n
    if not counted:
        return []
    outside = sum(counted.values())
    rows = [f"recorded one by one: {outside} ops, most of them on these lines"]
    for (file, line, function), n in counted.most_common(_MOST_LINES):
        rewritten = active.rewritten.get(os.path.realpath(file))
        waits = (
            "waits to be looked at" if os.path.realpath(file) in active.waiting.files else "is not rewritten"
        )
        reason = rewritten.reason(line) if rewritten else f"the file {waits}"
        rows.append(f"  {100 * n / outside:3.0f} %  {os.path.basename(file)}:{line} {function}: {reason}")
    return rows


def _of_region(region: dict[str, Any]) -> str:
    if region["off"]:
        because = region["off"] + (f" ({region['refusal']})" if region["refusal"] else "")
        return f"a region that is switched off: {because}"
    hits = region["hits"]  # those in loops, too
    ran = region["misses"] + region["reviews"]
    if not hits and region["refusal"]:
        return f"a region that is not learned: {region['refusal']}"
    if not ran:
        return "a region that is recorded otherwise: its values cannot be read, or a debugger is on"
    return f"a region that ran {ran} times as written to be learned or compared, {hits} times by one call"
