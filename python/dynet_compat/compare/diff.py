"""Comparing two runs event by event: are they equal, and where do they first differ?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

import numpy as np

from .runs import KINDS, Event, Run

_AT_ONCE = 1 << 22  # numbers that are compared at once
FLOOR = 1e-6  # smallest absolute difference that counts, times the largest number nearby if that is > 1


@dataclass
class Divergence:
    """A place where the two runs differ. Lists of both sides hold the reference's first, then ours."""

    what: str  # "value", "gradient", "parameter", "initial parameter", "graph", "input" or "end"
    step: int  # counted from 1
    op: str
    place: str  # file:line
    source: str  # the text of that line
    values: list[str]
    nodes: list[Optional[int]] = field(default_factory=lambda: [None, None])
    graph: int = 0
    relative: Optional[float] = None
    event: int = -1
    note: str = ""

    def line(self) -> str:
        """All of it in one line."""
        node = ""
        if self.nodes[0] is not None:
            same = self.nodes[0] == self.nodes[1]
            node = f", node {self.nodes[0]}" + ("" if same else f" (ours {self.nodes[1]})")
        size = "" if self.relative is None else f", relative difference {self.relative:.2g}"
        return (
            f"step {self.step}{node}, op {self.op}, {self.place}: {self.what} {self.values[0]} on the "
            f"reference, {self.values[1]} on dynet_compat{size}"
        )


@dataclass
class DiffResult:
    """What the comparison of two runs found."""

    first: Optional[Divergence] = None
    largest: dict[str, float] = field(default_factory=dict)  # kind -> largest relative difference
    compared: dict[str, int] = field(default_factory=dict)  # kind -> how many
    per_step: list[tuple[int, float]] = field(default_factory=list)  # of the losses: (step, difference)

    @property
    def equal(self) -> bool:
        """Nothing differs by more than the tolerance."""
        return self.first is None


def relative_difference(got: np.ndarray, want: np.ndarray, rtol: float) -> float:
    """Largest difference of two arrays, relative to the largest number of the wanted one.

    Differences of tiny numbers are taken relative to FLOOR / rtol, so that rounding is not blamed.
    """
    got, want = np.asarray(got, np.float64).ravel(), np.asarray(want, np.float64).ravel()
    if got.size != want.size:
        return float("inf")
    if got.size == 0:
        return 0.0
    odd = ~np.isfinite(got) | ~np.isfinite(want)
    if odd.any():
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        if not same[odd].all():
            return float("inf")
        got, want = got[~odd], want[~odd]
        if got.size == 0:
            return 0.0
    largest = float(np.abs(want).max())
    floor = FLOOR * max(1.0, largest) / rtol if rtol > 0 else 0.0
    difference = float(np.abs(got - want).max())
    return difference / max(largest, floor, 1e-38) if difference else 0.0


def segment_differences(got: np.ndarray, want: np.ndarray, starts: np.ndarray, rtol: float) -> np.ndarray:
    """`relative_difference` of each of several parts of two arrays; none of the parts is empty."""
    got, want = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        gap, largest = np.abs(got - want), np.abs(want)
    odd = ~np.isfinite(got) | ~np.isfinite(want)
    if odd.any():
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        gap[odd], largest[odd] = np.where(same[odd], 0.0, np.inf), 0.0
    gaps, most = np.maximum.reduceat(gap, starts), np.maximum.reduceat(largest, starts)
    floor = FLOOR * np.maximum(1.0, most) / rtol if rtol > 0 else 0.0
    found: np.ndarray = gaps / np.maximum(np.maximum(most, floor), 1e-38)
    return found


def norm_difference(got: np.ndarray, want: np.ndarray, rtol: float) -> float:
    """Norm of the difference of two arrays, relative to the wanted one's norm.

    For trained parameters: trainers that divide by the size of the gradient (Adam, Adagrad) make large
    steps of gradients that are zero but for rounding, so single elements say nothing.
    """
    got, want = np.asarray(got, np.float64).ravel(), np.asarray(want, np.float64).ravel()
    if not (np.isfinite(got).all() and np.isfinite(want).all()):
        return relative_difference(got, want, rtol)
    norm, difference = float(np.linalg.norm(want)), float(np.linalg.norm(got - want))
    floor = FLOOR * max(1.0, norm) / rtol
    return difference / max(norm, floor) if difference else 0.0


def element_difference(got: np.ndarray, want: np.ndarray, rtol: float) -> np.ndarray:
    """As `relative_difference`, for each of several numbers by itself (norms of parameters)."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        finite = np.isfinite(want)
        largest = float(np.abs(want[finite]).max()) if finite.any() else 0.0
        floor = FLOOR * max(1.0, largest) / rtol if rtol > 0 else 0.0
        each: np.ndarray = np.abs(got - want) / np.maximum(np.maximum(np.abs(want), floor), 1e-38)
        each[(got == want) | (np.isnan(got) & np.isnan(want))] = 0.0
    each[np.isnan(each)] = np.inf
    return each


def show(numbers: np.ndarray, other: Optional[np.ndarray] = None) -> str:
    """A value for people: one number, or the element that differs most from the other side's."""
    if numbers.size == 0:
        return "nothing"
    if numbers.size == 1:
        return f"{float(numbers[0]):.8g}"
    if other is None or other.size != numbers.size:
        head = ", ".join(f"{float(v):.6g}" for v in numbers[:4])
        return f"[{head}{', ...' if numbers.size > 4 else ''}] ({numbers.size} numbers)"
    gap = np.nan_to_num(np.abs(numbers.astype(np.float64) - other), nan=np.inf)
    at = int(gap.argmax())
    return f"{float(numbers[at]):.8g} (element {at} of {numbers.size})"


def source_line(path: str, number: int) -> str:
    """Text of a line of the script."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            for at, text in enumerate(stream, 1):
                if at == number:
                    return text.strip()
    except OSError:
        pass
    return ""


def at_place(run: Run, place: int) -> dict[str, Any]:
    """Keyword arguments of `Divergence` for a place of a run."""
    file, line = run.places.get(place, ("?", 0))
    return {"place": run.location(place), "source": source_line(file, line)}


class RunDiff:
    """Compares the checked runs of both sides."""

    def __init__(self, reference: Run, ours: Run, rtol: float) -> None:
        self.reference, self.ours, self.rtol = reference, ours, rtol
        self.verdict = DiffResult()

    def decide(self) -> DiffResult:
        """Compare everything; the first divergence in the order of time is kept."""
        self._initial()
        same = self._same_way()
        differences = self._differences(same)
        self._note(differences)
        kinds = self.reference.events.column("kind")[:same]
        unlike: np.ndarray = np.zeros(same, bool)
        for item in ("ops", "digest"):
            unlike |= self.reference.events.column(item)[:same] != self.ours.events.column(item)[:same]
        unlike &= kinds != KINDS.index("update")
        wrong = (differences > self.rtol) | unlike
        first = int(wrong.argmax()) if wrong.any() else same
        updates = np.flatnonzero(kinds == KINDS.index("update")).tolist()
        for number in [n for n in updates if n < first]:
            self._update(number)
        if first < same:
            self._first_value(first, float(differences[first]))
        for number in [n for n in updates if n > first]:
            self._update(number)
        if same < min(len(self.reference.events), len(self.ours.events)):
            self._other_way(same)
        else:
            self._lengths()
            if len(self.reference.events) == len(self.ours.events):
                self._final()
        return self.verdict

    def _same_way(self) -> int:
        """How many events, from the first on, both sides have at the same line and in the same graph."""
        runs = (self.reference, self.ours)
        shared = min(len(run.events) for run in runs)
        numbers: dict[Any, int] = {}
        columns = []
        for run in runs:
            events = run.events
            named = {number: numbers.setdefault(name, len(numbers)) for number, name in events.names.items()}
            lines = {place: numbers.setdefault((run.location(place),), len(numbers)) for place in run.places}
            column = [events.column("kind")[:shared], events.column("graph")[:shared]]
            for item, known in (("name", named), ("place", lines)):
                table = np.full(max(known, default=0) + 1, -1)
                table[list(known)] = list(known.values())
                column.append(table[events.column(item)[:shared]])
            columns.append(np.stack(column) if shared else np.zeros((4, 0)))
        other = (columns[0] != columns[1]).any(axis=0)
        return int(other.argmax()) if other.any() else shared

    def _differences(self, count: int) -> np.ndarray:
        """Relative difference of the value of each of the first events; 0 of updates."""
        found: np.ndarray = np.zeros(count)
        starts, sizes = ([run.events.column(name)[:count] for run in (self.reference, self.ours)]
                         for name in ("start", "size"))  # fmt: skip
        values = self.reference.events.column("kind")[:count] != KINDS.index("update")
        found[values & (sizes[0] != sizes[1])] = np.inf
        usual = np.flatnonzero(values & (sizes[0] == sizes[1]) & (sizes[0] > 0))
        ends = np.cumsum(sizes[0][usual])
        at = 0
        while at < len(usual):
            before = int(ends[at - 1]) if at else 0
            end = max(at + 1, int(np.searchsorted(ends, before + _AT_ONCE)))
            part = usual[at:end]
            offsets = ends[at:end] - sizes[0][part] - before
            inner = np.arange(int(ends[end - 1]) - before) - np.repeat(offsets, sizes[0][part])
            want, got = (
                run.numbers[np.repeat(start[part], sizes[0][part]) + inner]
                for run, start in zip((self.reference, self.ours), starts)
            )
            found[part] = segment_differences(got, want, offsets, self.rtol)
            at = end
        return found

    def _note(self, differences: np.ndarray) -> None:
        """Count values and losses, and their largest differences."""
        events, verdict = self.reference.events, self.verdict
        kinds = events.column("kind")[: len(differences)]
        for kind, shown in (("read", "value"), ("loss", "loss")):
            of_kind = differences[kinds == KINDS.index(kind)]
            if len(of_kind):
                verdict.compared[shown] = len(of_kind)
                verdict.largest[shown] = float(of_kind.max())
        losses = kinds == KINDS.index("loss")
        steps = events.column("step")[: len(differences)][losses] + 1
        verdict.per_step = list(zip(steps.tolist(), differences[losses].tolist()))

    def _common(self, number: int) -> tuple[Event, Event, dict[str, Any]]:
        theirs, ours = self.reference.events[number], self.ours.events[number]
        common: dict[str, Any] = dict(step=theirs.step + 1, graph=theirs.graph, event=number)
        common.update(at_place(self.reference, theirs.place))
        return theirs, ours, common

    def _other_way(self, number: int) -> None:
        """The event where the two scripts went different ways."""
        theirs, ours, common = self._common(number)
        sides = ((theirs, self.reference), (ours, self.ours))
        ways = [f"{event.name} at {run.location(event.place)}" for event, run in sides]
        self._first(Divergence("graph", op=theirs.name, values=ways, **common))

    def _first_value(self, number: int, difference: float) -> None:
        """An event with another value, or with other calls before it."""
        if self.verdict.first is not None:
            return
        theirs, ours, common = self._common(number)
        if difference > self.rtol:
            want = self.reference.values(theirs.start, theirs.size)
            got = self.ours.values(ours.start, ours.size)
            values, nodes = [show(want, got), show(got, want)], [theirs.node, ours.node]
            common.update(nodes=nodes, relative=difference)
            self._first(Divergence("value", op=theirs.name, values=values, **common))
            return
        counts = [f"{event.ops} calls so far" for event in (theirs, ours)]
        if theirs.ops == ours.ops:
            counts = ["other arguments or lines" for _ in counts]
        self._first(Divergence("graph", op=theirs.name, values=counts, **common))

    def _count(self, kind: str, difference: float) -> None:
        verdict = self.verdict
        verdict.compared[kind] = verdict.compared.get(kind, 0) + 1
        verdict.largest[kind] = max(verdict.largest.get(kind, 0.0), difference)

    def _first(self, divergence: Divergence) -> None:
        if self.verdict.first is None:
            self.verdict.first = divergence

    def _initial(self) -> None:
        self._parameters(self.reference.initial, self.ours.initial, "initial parameter", 1)

    def _final(self) -> None:
        if self.reference.final and self.ours.final:
            step = max(1, self.reference.steps)
            self._parameters(self.reference.final, self.ours.final, "parameter", step)

    def _parameters(
        self, theirs: dict[str, np.ndarray], ours: dict[str, np.ndarray], what: str, step: int
    ) -> None:
        common = dict(step=step, place="at the start" if what[0] == "i" else "at the end", source="")
        for name, want in theirs.items():
            got = ours.get(name)
            if got is None or got.shape != want.shape:
                shapes = [str(want.shape), "missing" if got is None else str(got.shape)]
                self._count(what, float("inf"))
                self._first(Divergence(what, op=name, values=shapes, **common))  # type: ignore[arg-type]
                continue
            measure = relative_difference if what == "initial parameter" else norm_difference
            difference = measure(got, want, self.rtol)
            self._count(what, difference)
            if difference > self.rtol:
                a, b = want.ravel(), got.ravel()
                self._first(
                    Divergence(what, op=name, values=[show(a, b), show(b, a)], relative=difference, **common)  # type: ignore[arg-type]
                )
        for name in ours:
            if name not in theirs:
                self._count(what, float("inf"))
                self._first(Divergence(what, op=name, values=["missing", str(ours[name].shape)], **common))  # type: ignore[arg-type]

    def _update(self, number: int) -> None:
        """Norms of gradients and parameters at an update."""
        event, ours, common = self._common(number)
        want = self.reference.values(event.start, event.size)
        got = self.ours.values(ours.start, ours.size)
        if want.size != got.size:
            sizes = [f"{v.size // 2} parameters" for v in (want, got)]
            self._first(Divergence("graph", op=event.name, values=sizes, **common))
            return
        names = list(self.reference.final) or list(self.reference.initial)
        half = want.size // 2
        for what, part in (("gradient", slice(0, half)), ("parameter", slice(half, None))):
            each = element_difference(got[part], want[part], self.rtol)
            if not each.size:
                continue
            self._count("gradient norm" if what == "gradient" else "parameter norm", float(each.max()))
            if each.max() > self.rtol:
                at = int(each.argmax())
                name = names[at] if at < len(names) else f"number {at}"
                values = [f"norm {float(v[part][at]):.8g} of {name}" for v in (want, got)]
                common.update(relative=float(each[at]), note=name)
                self._first(Divergence(what, op=event.name, values=values, **common))

    def _lengths(self) -> None:
        """One script stopped earlier than the other one."""
        runs = (self.reference, self.ours)
        counts = [len(run.events) for run in runs]
        if counts[0] == counts[1] or any(run.crash for run in runs):
            return
        longer = runs[0] if counts[0] > counts[1] else runs[1]
        event = longer.events[min(counts)]
        values = [f"{count} values, losses and updates" for count in counts]
        place = at_place(longer, event.place)
        self._first(
            Divergence("end", step=event.step + 1, op=event.name, values=values, event=min(counts), **place)
        )


def repeatable(first: Run, second: Run, rtol: float) -> Optional[Divergence]:
    """Where a library differs from itself in a second run; None if it does not."""
    return RunDiff(first, second, rtol).decide().first
