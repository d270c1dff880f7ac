"""The batch plan of a graph: which nodes are computed together, which are not, and why."""

from __future__ import annotations

import bisect
import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Optional

from .. import _core
from .._core import Expression
from .profile_report import table
from .reprs import count

__all__ = ["BatchPlan", "batch_plan"]

_SHOWN = 60  # launches in the table
_WIDEST = 44  # characters of shapes in it


@dataclass(frozen=True)
class Reason:
    """Why a launch is not part of an earlier one of the same op.

    `kind`: "dependence", "read", "parameter", "attributes", "shapes", "order" or "off".
    """

    kind: str
    text: str
    earlier: int  # the launch it might have been part of
    line: Optional[str] = None  # script line that read a value in between, if known


@dataclass(frozen=True)
class Launch:
    """Nodes of one op that are computed together."""

    number: int  # from 1, in running order
    op: str
    nodes: tuple[int, ...]
    arguments: tuple[str, ...]  # shapes of the first node's arguments
    result: str
    mixed: bool  # other nodes have other shapes
    operands: tuple[str, ...]  # per argument: weight, shared, contiguous, strided or gathered
    weights: tuple[str, ...]  # parameters that all of them read
    attributes: tuple[str, ...]
    flush: int  # from 1; 0: pending
    runs_with: int  # the first of the launches that run as one kernel; its own number if alone
    apart: Optional[Reason]

    @property
    def shapes(self) -> str:
        """Extents: "{3,4} {4} -> {3}"."""
        text = f"{' '.join(self.arguments)} -> {self.result}".lstrip()
        if len(text) > _WIDEST:
            text = f"{self.arguments[0]} .. ({len(self.arguments)}) -> {self.result}"
        return text + (" and others" if self.mixed else "")


@dataclass(frozen=True)
class Apart:
    """Launches of one op that are not one launch, for one reason."""

    op: str
    kind: str
    launches: int  # that might have been part of an earlier one
    nodes: int  # in them
    text: str
    line: Optional[str]


# ---------------------------------------------------------------- reasons


def _joined(words: list[str]) -> str:
    return ", ".join(words) if words else "none"


def _difference(row: dict[str, Any], other: dict[str, Any]) -> list[tuple[str, str]]:
    """What keeps nodes of two classes of one op apart, as (kind, words)."""
    found = []
    if row["weights"] != other["weights"]:
        if not row["weights"] or not other["weights"]:
            found.append(("parameter", "a weight that is not the same for all nodes, and one that is"))
        else:
            found.append(
                ("parameter", f"other parameters: {_joined(row['weights'])}, not {_joined(other['weights'])}")
            )
    if row["attributes"] != other["attributes"]:
        here = [a for a in row["attributes"] if a not in other["attributes"]]
        there = [a for a in other["attributes"] if a not in row["attributes"]]
        found.append(("attributes", f"other attributes: {_joined(here)}, not {_joined(there)}"))
    if len(row["arguments"]) != len(other["arguments"]):
        found.append(("shapes", f"{len(row['arguments'])} arguments, not {len(other['arguments'])}"))
    elif row["columns"] != other["columns"] and bool(row["weights"]) == bool(other["weights"]):
        shapes = " ".join(row["arguments"]), " ".join(other["arguments"])
        found.append(("shapes", f"a product of another form: {shapes[0]}, not {shapes[1]}"))
    return found or [("attributes", "another class of nodes")]


class _Earlier:
    """The launches of an op so far, by class."""

    def __init__(self) -> None:
        self.last = 0
        self.by_class: dict[int, list[int]] = {}
        self.most: dict[int, int] = {}  # highest level of a class so far

    def add(self, number: int, row: dict[str, Any]) -> None:
        self.last = number
        cls = row["class"]
        self.by_class.setdefault(cls, []).append(number)
        self.most[cls] = max(row["most"], self.most.get(cls, 0))


def _closest(row: dict[str, Any], rows: list[dict[str, Any]], earlier: _Earlier) -> tuple[int, str, str]:
    """Of the launches of other classes the one that differs least, and how."""

    def rank(number: int) -> tuple[bool, int, int]:
        other = rows[number]
        return bool(row["weights"]) != bool(other["weights"]), len(_difference(row, other)), -number

    at = min((members[-1] for members in earlier.by_class.values()), key=rank)
    differences = _difference(row, rows[at])
    return at, differences[0][0], "; ".join(words for _, words in differences)


def _reason(
    row: dict[str, Any],
    rows: list[dict[str, Any]],
    earlier: _Earlier,
    flush: list[int],
    now: int,
    lines: list[Optional[str]],
    batching: bool,
) -> Reason:
    last = earlier.last + 1
    if not batching:
        return Reason("off", "batching is off", last)
    same = earlier.by_class.get(row["class"])
    if same is None:
        at, kind, words = _closest(row, rows, earlier)
        return Reason(kind, words, at + 1)
    # Nodes of one class and level are independent of each other (plan/critical_path.h).
    if earlier.most[row["class"]] < row["least"]:
        return Reason("dependence", "each needs a result of the one before", same[-1] + 1)
    at = next(i for i in reversed(same) if rows[i]["most"] >= row["least"])
    if flush[at] == now:
        return Reason("order", "independent, but in this order other launches stay whole", at + 1)
    line = lines[flush[at] - 1]
    where = f" at {line}" if line else " (run it inside profile() to see the line)"
    return Reason("read", f"a value was read in between{where}", at + 1, line)


def _reasons(
    rows: list[dict[str, Any]], flush: list[int], lines: list[Optional[str]], batching: bool
) -> list[Optional[Reason]]:
    """Of each launch; `flush` numbers them, what is pending comes last."""
    found: list[Optional[Reason]] = []
    ops: dict[str, _Earlier] = {}
    for number, row in enumerate(rows):
        earlier = ops.setdefault(row["op"], _Earlier())
        if not earlier.by_class or row["rule"] == "none":
            found.append(None)
        else:
            found.append(_reason(row, rows, earlier, flush, flush[number], lines, batching))
        earlier.add(number, row)
    return found


# ---------------------------------------------------------------- the plan


class BatchPlan:
    """What `cg().batch_plan()` returns: `str()` is a table for people, the attributes are the same as data.

    Attributes:
        launches: all launches in running order; each has number, op, nodes, arguments, result, mixed,
            operands, weights, attributes, flush, runs_with and apart (why it is not part of an earlier one).
        flushes: for each flush that ran, the script's line that asked for it, or None if it is not known:
            lines are noted while a `profile()` runs.
        apart: per op and reason, launches that are not one launch.

    Example:
        >>> W = dy.ParameterCollection().add_parameters((2, 2), name="W")
        >>> h = dy.inputVector([1, 2])
        >>> for _ in range(3):
        ...     h = dy.tanh(W * h)
        >>> plan = dy.cg().batch_plan()
        >>> for row in plan.apart:
        ...     print(row.op, row.launches, row.text)
        matmul 2 each needs a result of the one before
        tanh 2 each needs a result of the one before
    """

    def __init__(self, of: Optional[Expression] = None) -> None:
        rows, ran, flushes, batching = _core._batch_plan(of)  # those of Launch, as dicts
        firsts = [first for first, _ in flushes]
        self.flushes: list[Optional[str]] = [site and f"{site[0]}:{site[1]}" for _, site in flushes]
        flush = [bisect.bisect_right(firsts, i) if i < ran else 0 for i in range(len(rows))]
        pending = len(firsts) + 1
        order = [f or pending for f in flush]
        reasons = _reasons(rows, order, self.flushes, batching)
        self.launches: list[Launch] = []
        head = until = 0
        for i, row in enumerate(rows):
            if i > until or i == 0:
                head, until = i, i + row["together"]
            self.launches.append(
                Launch(
                    i + 1, row["op"], tuple(row["nodes"]), tuple(row["arguments"]), row["result"],
                    row["mixed"], tuple(row["operands"]), tuple(row["weights"]), tuple(row["attributes"]),
                    flush[i], head + 1, reasons[i],
                )
            )  # fmt: skip
        self.apart = list(_apart(self.launches))

    # ------------------------------------------------------------ text

    def _title(self) -> str:
        nodes = sum(len(launch.nodes) for launch in self.launches)
        ran = sum(launch.flush > 0 for launch in self.launches)
        flushes = f" in {len(self.flushes)} flushes" if len(self.flushes) > 1 else ""
        pending = count(len(self.launches) - ran, "is", "are")
        launches = count(len(self.launches), "launch", "launches")
        return f"{count(nodes, 'node')} in {launches}: {ran:,} ran{flushes}, {pending} pending"

    def _launch_rows(self) -> tuple[list[str], list[list[str]]]:
        head = ["#", "op", "nodes", "shapes", "operands", "flush"]
        together = any(launch.runs_with != launch.number for launch in self.launches)
        rows = []
        for launch in self.launches[:_SHOWN]:
            flush = str(launch.flush or "pending")
            operands = ", ".join(launch.operands)
            names = f" {', '.join(launch.weights)}" if launch.weights else ""
            row = [
                str(launch.number),
                launch.op + names,
                str(len(launch.nodes)),
                launch.shapes,
                operands,
                flush,
            ]
            if together:
                row.append(f"with {launch.runs_with}" if launch.runs_with != launch.number else "")
            rows.append(row)
        return head + ["runs"] * together, rows

    def _left_out(self) -> str:
        rest = self.launches[_SHOWN:]
        if not rest:
            return ""
        return f"and {len(rest):,} more of {sum(len(launch.nodes) for launch in rest):,} nodes: see .launches"

    def _apart_rows(self) -> tuple[list[str], list[list[str]]]:
        rows = [[row.op, str(row.launches), str(row.nodes), row.text] for row in self.apart]
        return ["op", "launches", "nodes", "why"], rows

    def _flush_rows(self) -> tuple[list[str], list[list[str]]]:
        rows = []
        for number, line in enumerate(self.flushes, 1):
            mine = [launch for launch in self.launches if launch.flush == number]
            nodes = sum(len(launch.nodes) for launch in mine)
            rows.append([str(number), str(len(mine)), str(nodes), line or "not known"])
        return ["flush", "launches", "nodes", "asked for at"], rows[:_SHOWN]

    def __str__(self) -> str:
        lines = [self._title()]
        if self.launches:
            lines += ["", *_aligned(*self._launch_rows())]
            if self._left_out():
                lines.append("  " + self._left_out())
            lines += ["", "Launches of one op that are not one launch:" + ("" if self.apart else " none")]
            lines += _aligned(*self._apart_rows()) if self.apart else []
        if any(self.flushes) or len(self.flushes) > 1:
            lines += ["", "What was computed at once:", *_aligned(*self._flush_rows())]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<batch plan: {self._title()}>"

    def _repr_html_(self) -> str:
        parts = [f"<p>{html.escape(self._title())}</p>"]
        if self.launches:
            parts += [_html_table(*self._launch_rows()), f"<p>{html.escape(self._left_out())}</p>"]
        if self.apart:
            parts += ["<p>Launches of one op that are not one launch:</p>", _html_table(*self._apart_rows())]
        if any(self.flushes) or len(self.flushes) > 1:
            parts += ["<p>What was computed at once:</p>", _html_table(*self._flush_rows())]
        return "".join(parts)


_NUMBERS = ("#", "nodes", "launches")


def _aligned(head: list[str], rows: list[list[str]]) -> list[str]:
    """As `table`, but every column that is no number is aligned left."""
    columns = []
    for i, name in enumerate(head):
        width = max(len(row[i]) for row in [head, *rows])
        columns.append([c.rjust(width) if name in _NUMBERS else c.ljust(width)
                        for c in [name, *(row[i] for row in rows)]])  # fmt: skip
    return [line.rstrip() for line in table(*_rows_of(columns), left=0)]


def _rows_of(columns: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    head, *rows = (list(row) for row in zip(*columns))
    return head, rows


def _html_table(head: list[str], rows: list[list[str]]) -> str:
    def cells(row: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"

    return "<table>" + cells(head, "th") + "".join(cells(row, "td") for row in rows) + "</table>"


def _apart(launches: list[Launch]) -> Iterator[Apart]:
    groups: dict[tuple[str, str, str, Optional[str]], list[Launch]] = {}
    for launch in launches:
        if launch.apart is not None:
            key = (launch.op, launch.apart.kind, launch.apart.text, launch.apart.line)
            groups.setdefault(key, []).append(launch)
    for (op, kind, text, line), members in groups.items():
        yield Apart(op, kind, len(members), sum(len(m.nodes) for m in members), text, line)


def batch_plan(of: Optional[Expression] = None) -> BatchPlan:
    """See `ComputationGraph.batch_plan`."""
    return BatchPlan(of)
