"""The result in the terminal: with rich where it is installed, else as plain text."""

from __future__ import annotations

import sys
import time
from typing import Any, Optional, TextIO

from .side_by_side import KINDS, Result

Row = list[str]
_MOST_FILES = 40  # in a table
MARKS = {"equal": "equal", "different": "DIFFERS", "crashed": "CRASHED", "failed": "not compared"}
COLOURS = {"equal": "green", "different": "red", "crashed": "red", "failed": "yellow", "skipped": "dim"}


def rich_parts() -> Optional[Any]:
    """The modules of rich; None where it is not installed."""
    try:
        import rich.box
        import rich.console
        import rich.progress
        import rich.table
    except ImportError:
        return None
    return rich


def seconds(value: float) -> str:
    """A time with a fitting unit."""
    if value >= 1:
        return f"{value:.2f} s"
    return f"{value * 1e3:.2f} ms" if value >= 1e-3 else f"{value * 1e6:.1f} us"


def _ratio(a: float, b: float) -> str:
    return f"{a / b:.2f}x" if a > 0 and b > 0 else ""


def comparison_rows(result: Result) -> list[Row]:
    """What was compared: kind, how often, largest relative difference."""
    verdict = result.verdict
    return [[kind, str(n), f"{verdict.largest[kind]:.2g}"] for kind, n in verdict.compared.items()]


def part_name(kind: str, result: Result) -> str:
    """A part of a step, for people."""
    if kind != "script":
        return kind
    return "script's own Python" if result.tells_recording else "recording and script"


def steps(count: int) -> str:
    """So many steps from the first on, for people."""
    return f"first {count} steps" if count > 1 else "first step"


def speed_line(result: Result) -> str:
    """The speed-up as a sentence."""
    if not result.speedup:
        return ""
    theirs, ours = result.costs
    times = f"{seconds(theirs.per_step)} and {seconds(ours.per_step)} per step"
    which = result.names[0]
    if which == "DyNet" and result.is_batched:
        which = "DyNet with autobatching"
    elif which == "DyNet":
        which = "DyNet without autobatching (`--dynet-autobatch 1` after the script turns it on)"
    ratio = result.speedup
    if 0.95 < ratio < 1.05:
        return f"{result.names[1]} is as fast as {which}: {times}."
    faster = (
        f"{ratio:.2g} times as fast as"
        if ratio > 1
        else f"slower than {which}, by a factor of {1 / ratio:.2g}"
    )
    return f"{result.names[1]} is {faster}{f' {which}' if ratio > 1 else ''}: {times}."


def hints_line(result: Result) -> str:
    """With --hints: what was in use."""
    found = result.hints
    if found is None:
        return ""
    runs = found["hits"] + found["misses"]
    return (
        f"hints: {found['in_use']} of {found['regions']} regions in use; {found['hits']} of {runs} runs "
        "of them were replayed by one call instead of the statements"
    )


def file_rows(result: Result) -> list[Row]:
    """Files that the script wrote: name, bytes on each side, verdict."""
    rows = []
    for file in result.files[:_MOST_FILES]:
        verdict = "differs in each run" if file.verdict == "varies" else file.verdict
        if file.verdict == "same numbers":
            verdict += f", {file.difference:.1g}"
        if file.verdict == "differs":
            verdict += f": {file.detail}"
        if file.is_renamed:
            verdict += "; another name in each run"
        rows.append([file.name, *("-" if size is None else f"{size:,}" for size in file.sizes), verdict])
    if len(result.files) > _MOST_FILES:
        rows.append([f"and {len(result.files) - _MOST_FILES} more", "", "", ""])
    return rows


def cost_rows(result: Result) -> list[Row]:
    """Times and memory: what, reference, ours, ratio."""
    if len(result.costs) != 2:
        return []
    theirs, ours = result.costs
    known = KINDS if result.tells_recording else [kind for kind in KINDS if kind != "recording"]
    rows = [
        ["per step", seconds(theirs.per_step), seconds(ours.per_step), _ratio(theirs.seconds, ours.seconds)]
    ]
    for kind in known:
        a, b = theirs.parts[kind] / max(1, theirs.steps), ours.parts[kind] / max(1, ours.steps)
        rows.append(
            [
                "  " + part_name(kind, result),
                seconds(a),
                seconds(b),
                _ratio(a, b),
            ]
        )
    start = "start-up" if result.hints is None else "start-up and analysis"
    rows.append([start, seconds(theirs.startup), seconds(ours.startup), ""])
    memory = [f"{cost.memory / 2**20:.0f} MB" for cost in (theirs, ours)]
    rows.append(["peak memory", *memory, _ratio(theirs.memory, ours.memory)])
    launches = [sum(n for _, n in cost.launches) for cost in (theirs, ours)]
    if any(launches):
        nodes = [sum(size * n for size, n in cost.launches) for cost in (theirs, ours)]
        rows.append(
            [
                "launches per step",
                *(f"{n / max(1, c.launch_steps):.1f}" if n else "-" for n, c in zip(launches, result.costs)),
                "",
            ]
        )
        mean = [f"{a / b:.1f}" if b else "-" for a, b in zip(nodes, launches)]
        rows.append(["nodes per launch", *mean, ""])
    return rows


def hook_line(result: Result) -> str:
    """What the measuring itself cost."""
    if len(result.costs) != 2 or not any(cost.hook_calls for cost in result.costs):
        return ""
    parts = [
        f"{cost.hook_per_call * 1e6:.2f} us for each of {cost.hook_calls} calls on {name} "
        f"({cost.hook_share:.0%} of that run)"
        for name, cost in zip(result.names, result.costs)
    ]
    return "cost of measuring, already subtracted: " + "; ".join(parts)


def divergence_rows(result: Result) -> list[Row]:
    """The first divergence, item by item."""
    first = result.first
    if first is None:
        return []
    node = "-"
    if first.nodes[0] is not None:
        same = first.nodes[0] == first.nodes[1]
        node = (
            str(first.nodes[0]) if same else f"{first.nodes[0]} (reference), {first.nodes[1]} (dynet_compat)"
        )
    rows = [["step", str(first.step)], ["node", node], ["op", first.op]]
    rows.append(["script line", f"{first.place}  {first.source}".strip()])
    rows.append([f"{first.what}, reference", first.values[0]])
    rows.append([f"{first.what}, dynet_compat", first.values[1]])
    if first.relative is not None:
        rows.append(["relative difference", f"{first.relative:.3g}"])
    seen = result.seen
    if seen is not None and (seen.op, seen.place) != (first.op, first.place):
        rows.append(["first seen at", f"step {seen.step}, {seen.op}, {seen.place}"])
    return rows


def summary_rows(results: list[Result]) -> list[Row]:
    """One row per script."""
    rows = []
    for result in results:
        speed = f"{result.speedup:.2f}x" if result.speedup else ""
        largest = max(result.verdict.largest.values(), default=0.0)
        compared = sum(result.verdict.compared.values())
        size = f"{largest:.1g}" if compared else ""
        name = result.script.rsplit("/", 1)[-1]
        mark = MARKS.get(result.status, result.status)
        first = result.first if result.status == "different" else None
        why = f"step {first.step}, {first.op}, {first.place}" if first else ""
        if result.status in ("skipped", "failed", "crashed"):
            why = result.message
        rows.append([name, mark, str(result.steps or ""), str(compared or ""), size, speed, why])
    return rows


class Printer:
    """Prints tables and lines to a stream."""

    def __init__(self, stream: Optional[TextIO] = None, plain: bool = False) -> None:
        self.stream = stream or sys.stdout
        self.rich = None if plain else rich_parts()
        self.console = None
        if self.rich:
            width = None if self.stream.isatty() else 110
            self.console = self.rich.console.Console(file=self.stream, width=width, highlight=False)

    def line(self, text: str, style: str = "") -> None:
        """One line."""
        if self.console is not None:
            self.console.print(text, style=style or None, markup=False, soft_wrap=True)
        else:
            print(text, file=self.stream, flush=True)

    def table(self, title: str, headers: Row, rows: list[Row], styles: Optional[list[str]] = None) -> None:
        """A table; numbers are aligned to the right where rich is missing, too."""
        if not rows:
            return
        if self.rich and self.console is not None:
            box = self.rich.box.SIMPLE_HEAD
            table = self.rich.table.Table(title=title, box=box, title_justify="left", title_style="bold")
            for number, header in enumerate(headers):
                table.add_column(
                    header, justify="left" if number == 0 else "right" if len(headers) > 2 else "left"
                )
            for number, row in enumerate(rows):
                cells = [
                    self.rich.console.escape(c) if hasattr(self.rich.console, "escape") else c for c in row
                ]
                table.add_row(*cells, style=styles[number] if styles else None)
            self.console.print(table, markup=False)
            return
        widths = [max(len(row[i]) for row in [headers, *rows]) for i in range(len(headers))]
        print(title, file=self.stream)
        for row in [headers, *rows] if any(headers) else rows:
            cells = [
                c.ljust(w) if i == 0 or len(headers) == 2 else c.rjust(w)
                for i, (c, w) in enumerate(zip(row, widths))
            ]
            print("  " + "  ".join(cells).rstrip(), file=self.stream)
        self.stream.flush()

    def result(self, result: Result) -> None:
        """Everything about one script."""
        name = result.script.rsplit("/", 1)[-1]
        title = (
            f"{name}: {MARKS.get(result.status, result.status)}, {result.steps} steps, rtol {result.rtol:g}"
        )
        self.line(title, "bold " + COLOURS[result.status])
        self.table("compared", ["", "number", "largest relative difference"], comparison_rows(result))
        self.table("first divergence", ["", ""], divergence_rows(result))
        headers = ["", *(f"bytes, {name}" for name in result.names), ""]
        self.table("files written (kept apart from yours)", headers, file_rows(result))
        self.table("cost", ["", *result.names, "ratio"], cost_rows(result))
        for note in result.notes:
            self.line("note: " + note)
        hooks = hook_line(result)
        if hooks:
            self.line(hooks, "dim")
        for side, crash in zip(result.names, result.crashes):
            if crash:
                self.line(f"traceback of {side}:\n{crash['traceback'].rstrip()}")
        for sentence in (hints_line(result), speed_line(result)):
            if sentence:
                self.line(sentence, "bold")
        self.line(result.message, COLOURS[result.status])

    def summary(self, results: list[Result]) -> None:
        """All scripts."""
        headers = ["script", "result", "steps", "compared", "largest diff.", "speed", ""]
        styles = [COLOURS[result.status] for result in results]
        self.table("summary", headers, summary_rows(results), styles)


class Progress:
    """A progress bar on stderr, when that is a terminal; elsewhere a line now and then, in long runs."""

    _QUIET = 5.0  # seconds before the first line, and between two about one thing
    _PAUSE = 15.0

    def __init__(self, wanted: Optional[bool] = None, plain: bool = False) -> None:
        self.on = sys.stderr.isatty() if wanted is None else wanted
        self.in_lines = wanted is None and not self.on
        self.begun = self.said = time.monotonic()
        self.rich = rich_parts() if self.on and not plain else None
        self.bar: Any = None
        self.task: Any = None
        self.title = ""

    def __call__(self, title: str, done: int, total: int) -> None:
        """Show a state."""
        if not self.on:
            if self.in_lines:
                self._line(title, done, total)
            return
        if self.rich:
            if self.bar is None:
                console = self.rich.console.Console(stderr=True)
                self.bar = self.rich.progress.Progress(console=console, transient=True)
                self.bar.start()
                self.task = self.bar.add_task(title, total=total or None)
            self.bar.update(self.task, description=title, completed=done, total=total or None)
            return
        filled = 20 * done // total if total else 0
        bar = "#" * min(20, filled) + "." * (20 - min(20, filled))
        print(
            f"\r\033[K{title} [{bar}] {done}{f'/{total}' if total else ''}",
            end="",
            file=sys.stderr,
            flush=True,
        )

    def _line(self, title: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self.begun < self._QUIET or (title == self.title and now - self.said < self._PAUSE):
            return
        self.title, self.said = title, now
        steps = f", step {done}{f' of {total}' if total else ''}" if done else ""
        print(f"{title}{steps} ({now - self.begun:.0f} s)", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
        elif self.on:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
