"""Which lines of a run recorded ops one by one, and why."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _core
from .rewrite.linking import SINGLE_OP

if TYPE_CHECKING:
    from .rewrite.linking import LinkedModule
    from .runtime import Active

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MOST_LINES = 12

# Why ops came one by one, in short.
SLOWER = "in regions that took longer than their statements"
SINGLE = "in statements of one op, which a region does not make faster"
LEARNING = "while regions were learned or compared"
REFUSED = "refused"

_SLOWER = ("it takes longer than the statements", "it saved less than other regions of its function took")


class Reason(NamedTuple):
    """Why a line is not, or not always, recorded by a region: one of the kinds above, and the details."""

    kind: str
    text: str


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

    def reason(self, line: int) -> Reason:
        """Why the line is not, or not always, recorded by a region: of several regions with the line, as in
        the arms of a branch, the one that ran most."""
        found = [region.statistics() for first, last, region in self.regions if first <= line <= last]
        if found:
            return _of_region(max(found, key=lambda s: s["hits"] + s["misses"] + s["reviews"]))
        around = [r for r in self.refused if r[0] <= line <= r[1]]
        if not around:
            return Reason(REFUSED, "in a function or a statement that is not looked at")
        _, _, at, reason = min(around, key=lambda r: r[1] - r[0])
        kind = SINGLE if reason == SINGLE_OP else REFUSED
        return Reason(kind, reason if at == line else f"line {at}: {reason}")


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
    reasons = {(file, line): _reason(active, file, line) for file, line, _ in counted}
    kinds: Counter[str] = Counter()
    for (file, line, _), n in counted.items():
        kinds[reasons[file, line].kind] += n
    shares = (f"{100 * n / outside:.0f} % {kind}" for kind, n in kinds.most_common())
    rows = [f"recorded one by one: {outside} ops, {', '.join(shares)}; most of them on these lines"]
    for (file, line, function), n in counted.most_common(_MOST_LINES):
        place = f"{os.path.basename(file)}:{line} {function}"
        rows.append(f"  {100 * n / outside:3.0f} %  {place}: {reasons[file, line].text}")
    return rows


def _reason(active: Active, file: str, line: int) -> Reason:
    path = os.path.realpath(file)
    rewritten = active.rewritten.get(path)
    if rewritten:
        return rewritten.reason(line)
    waits = path in active.waiting.files
    return Reason(REFUSED, f"the file {'waits to be looked at' if waits else 'is not rewritten'}")


def _of_region(region: dict[str, Any]) -> Reason:
    if region["off"]:
        because = region["off"] + (f" ({region['refusal']})" if region["refusal"] else "")
        slower = region["off"] in _SLOWER
        return Reason(SLOWER if slower else REFUSED, f"a region that is switched off: {because}")
    hits = region["hits"]  # those in loops, too
    ran = region["misses"] + region["reviews"]
    if not hits and region["refusal"]:
        return Reason(REFUSED, f"a region that is not learned: {region['refusal']}")
    if not ran:
        text = "a region that is recorded otherwise: its values cannot be read, or a debugger is on"
        return Reason(REFUSED, text)
    text = f"a region that ran {ran} times as written to be learned or compared, {hits} times by one call"
    return Reason(LEARNING, text)
