"""From a value that differs to the op that made it: both traces of a graph, compared call by call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Optional

import numpy as np

from .diff import Divergence, at_place, norm_difference, relative_difference, show
from .runs import Run, TracedCall


def focus_of(first: Divergence, reference: Run) -> Optional[dict[str, Any]]:
    """What to trace to find the origin of a divergence; None where a trace cannot help."""
    if first.event < 0 or first.what not in ("value", "gradient", "graph"):
        return None
    if first.what != "gradient":
        return {"graph": first.graph, "event": first.event, "gradients": False}
    for number in range(first.event - 1, -1, -1):
        event = reference.events[number]
        if event.kind == "loss":
            return {"graph": event.graph, "event": number, "gradients": True}
    return None


def _leaves(argument: Any) -> Iterator[Any]:
    if isinstance(argument, list):
        for item in argument:
            yield from _leaves(item)
    else:
        yield argument


def _taken(call: TracedCall) -> tuple[list[int], list[str], list[float]]:
    """Nodes, parameters and numbers among the arguments of a call."""
    nodes, parameters, numbers = [], [], []
    for leaf in _leaves(call.arguments):
        if isinstance(leaf, dict):
            if "node" in leaf:
                nodes.append(int(leaf["node"]))
            parameters += [leaf["parameter"]] if "parameter" in leaf else []
            numbers += leaf.get("numbers", [])
        elif isinstance(leaf, (int, float)):
            numbers.append(float(leaf))
    return nodes, parameters, numbers


class OpLocator:
    """Two traces of the same graph."""

    def __init__(self, first: Divergence, reference: Run, ours: Run, rtol: float) -> None:
        self.first, self.reference, self.ours, self.rtol = first, reference, ours, rtol
        self.pairs = list(zip(reference.traced, ours.traced))

    def origin(self) -> Divergence:
        """The first op that differs, or the divergence as it was if no single op does."""
        found = self._parameters() or self._calls()
        if found is None and self.first.what == "gradient":
            found = self._gradients()
        return found or self.first

    def _made(self, call: TracedCall, what: str, values: list[str], **more: Any) -> Divergence:
        more.setdefault("note", "")
        return replace(
            self.first, what=what, op=call.name, values=values, **at_place(self.reference, call.place), **more
        )

    def _parameters(self) -> Optional[Divergence]:
        """Parameters that differ before the graph is computed."""
        for name, want in self.reference.during.items():
            got = self.ours.during.get(name)
            if got is None or got.shape != want.shape:
                continue
            difference = norm_difference(got, want, self.rtol)
            if difference > self.rtol:
                a, b = want.ravel(), got.ravel()
                note = "the parameter differs already; look at the updates before this step"
                values = [show(a, b), show(b, a)]
                return replace(
                    self.first, what="parameter", op=name, values=values, relative=difference, note=note
                )
        return None

    def _calls(self) -> Optional[Divergence]:
        for theirs, ours in self.pairs:
            places = [self.reference.location(theirs.place), self.ours.location(ours.place)]
            if theirs.name != ours.name or places[0] != places[1]:
                values = [f"calls {c.name} at {p}" for c, p in zip((theirs, ours), places)]
                note = "the script branches differently on the two sides: see the condition before this line"
                run, call = self._extra(theirs.number)
                return replace(
                    self.first, what="graph", op=call.name, values=values, nodes=[None, None], relative=None,
                    note=note, **at_place(run, call.place),
                )  # fmt: skip
            found = self._input(theirs, ours) or self._value(theirs, ours)
            if found:
                return found
        if self.first.what == "graph" and len(self.reference.traced) != len(self.ours.traced):
            runs = (self.reference, self.ours)
            longer = max(runs, key=lambda run: len(run.traced))
            call = longer.traced[len(self.pairs)]
            values = [f"{len(run.traced)} calls in the graph" for run in runs]
            return replace(self.first, op=call.name, values=values, **at_place(longer, call.place))
        return None

    def _extra(self, at: int) -> tuple[Run, TracedCall]:
        """Where the calls part at a position: the call that the other side does not make."""
        runs = (self.reference, self.ours)
        names = [[(c.name, run.location(c.place)) for c in run.traced[at:]] for run in runs]
        for ahead in range(1, max(len(names[0]), len(names[1]))):
            for one, other in ((1, 0), (0, 1)):
                if names[one][ahead : ahead + 1] == names[other][:1]:
                    return runs[one], runs[one].traced[at]
        return self.reference, self.reference.traced[at]

    def _input(self, theirs: TracedCall, ours: TracedCall) -> Optional[Divergence]:
        """Numbers that the script gave to an op."""
        want, got = _taken(theirs)[2], _taken(ours)[2]
        if (
            len(want) == len(got)
            and relative_difference(np.array(got), np.array(want), self.rtol) <= self.rtol
        ):
            return None
        a, b = np.array(want), np.array(got)
        note = (
            "the script itself gave other numbers to the op: data that depend on the Python version, the "
            "order of a set, or a random generator without seed"
        )
        values = [show(a, b), show(b, a)]
        nodes: list[Optional[int]] = [call.rows[0][0] if call.rows else None for call in (theirs, ours)]
        return self._made(theirs, "input", values, nodes=nodes, relative=None, note=note)

    def _value(self, theirs: TracedCall, ours: TracedCall) -> Optional[Divergence]:
        for want_row, got_row in zip(theirs.rows, ours.rows):
            if want_row[2] < 0 or got_row[2] < 0:
                continue
            want = self.reference.values(*want_row[1:3])
            got = self.ours.values(*got_row[1:3])
            difference = relative_difference(got, want, self.rtol)
            if difference > self.rtol:
                nodes: list[Optional[int]] = [want_row[0], got_row[0]]
                values = [show(want, got), show(got, want)]
                return self._made(theirs, "value", values, nodes=nodes, relative=difference)
        return None

    def _gradients(self) -> Optional[Divergence]:
        """The op whose result has the same gradient on both sides, and its argument has not."""
        for theirs, ours in reversed(self.pairs):
            for want_row, got_row in zip(theirs.rows, ours.rows):
                if len(want_row) < 5 or len(got_row) < 5 or want_row[4] < 0 or got_row[4] < 0:
                    continue
                want, got = self.reference.values(*want_row[3:5]), self.ours.values(*got_row[3:5])
                difference = relative_difference(got, want, self.rtol)
                if difference <= self.rtol:
                    continue
                user = self._user_of_node(want_row[0]) or theirs
                nodes: list[Optional[int]] = [want_row[0], got_row[0]]
                values = [show(want, got), show(got, want)]
                note = f"in the backward pass of {user.name}: the gradient of its argument"
                return self._made(user, "gradient", values, nodes=nodes, relative=difference, note=note)
        last = self._user(lambda call: self.first.note in _taken(call)[1])
        if last is None:
            return None
        return self._made(last, "gradient", self.first.values, note=f"in the backward pass of {last.name}")

    def _user_of_node(self, node: int) -> Optional[TracedCall]:
        return self._user(lambda call: node in _taken(call)[0])

    def _user(self, uses: Callable[[TracedCall], bool]) -> Optional[TracedCall]:
        """The last call that uses something."""
        for theirs, _ in reversed(self.pairs):
            if uses(theirs):
                return theirs
        return None
