"""What a profile shows: spans as events of a trace, sums and tables; and spans of the script's functions."""

from __future__ import annotations

import bisect
import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, Optional

from .. import _core
from .reprs import count

FOLDER = os.path.dirname(os.path.abspath(_core.__file__)) + os.sep

# Tracks of a thread, in the order in which they are shown, and the spans that lie on them.
_TRACKS = ("script", "functions", "record", "plan", "launches", "kernels", "update")
_TRACK_OF = {"call": "script", "record": "record", "plan": "plan", "forward": "launches",
             "backward": "launches", "launch": "launches", "back_launch": "launches", "weights": "launches",
             "kernel": "kernels", "function": "functions"}  # fmt: skip
_PHASES = ("record", "plan", "forward", "backward", "update", "rest of the calls", "own Python")

_PARTS = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))  # no functions of their own

Event = dict[str, Any]
Span = dict[str, Any]
Key = tuple[int, str]  # of a thread: its number, which another one may get later, and its name


def fused_name(ops: Iterable[str]) -> str:
    """Launches that run together, as one name: "matmul x4", "tanh + cmult"."""
    return " + ".join(op if n == 1 else f"{op} x{n}" for op, n in Counter(ops).items())


# ---------------------------------------------------------------- functions of the script


class Functions:
    """Spans of the script's own functions, through `sys.setprofile`, of all threads that begin meanwhile."""

    def __init__(self, limit: int) -> None:
        self.spans: dict[Key, list[Span]] = defaultdict(list)
        self.dropped = 0
        self._limit, self._stopped = limit, False
        self._open = threading.local()
        self._offset = _core._profile_clock() - time.perf_counter_ns()
        import sysconfig  # not at the start: the package must be imported fast

        paths = sysconfig.get_paths()
        library = {
            os.path.realpath(paths[k]) + os.sep for k in ("stdlib", "platstdlib", "purelib", "platlib")
        }
        self._others = tuple(library)
        self._known: dict[str, bool] = {}

    def start(self) -> None:
        if sys.getprofile() is not None:
            raise RuntimeError("profile(functions=True): another profiler is active in this thread")
        threading.setprofile(self._hook)
        sys.setprofile(self._hook)

    def stop(self) -> list[tuple[int, str, list[Span]]]:
        """Per thread: its number, its name, its spans."""
        sys.setprofile(None)
        threading.setprofile(None)
        for frame, begin in reversed(getattr(self._open, "stack", [])):  # of functions that called stop()
            self._add(self._open.key, frame, begin)
        self._stopped = True  # other threads take the hook away when it is called there
        return [(ident, name, list(spans)) for (ident, name), spans in list(self.spans.items())]

    def _is_script(self, file: str) -> bool:
        known = self._known.get(file)
        if known is None:
            other = file.startswith(("<frozen", FOLDER)) or os.path.realpath(file).startswith(self._others)
            known = self._known[file] = not other
        return known

    def _add(self, thread: Key, frame: FrameType, begin: int) -> None:
        code = frame.f_code
        end = time.perf_counter_ns() + self._offset
        site = (code.co_filename, code.co_firstlineno, code.co_name)
        spans = self.spans[thread]
        if len(spans) >= self._limit:
            self.dropped += 1
            return
        spans.append({"kind": "function", "name": code.co_name, "begin": begin, "end": end, "site": site})

    def _hook(self, frame: FrameType, event: str, argument: Any) -> None:
        if self._stopped:
            sys.setprofile(None)
            return
        code = frame.f_code
        if event not in ("call", "return") or code.co_name in _PARTS or not self._is_script(code.co_filename):
            return
        try:
            stack = self._open.stack
        except AttributeError:
            stack = self._open.stack = []
            self._open.key = (threading.get_ident(), threading.current_thread().name)
        if event == "call":
            stack.append((frame, time.perf_counter_ns() + self._offset))
        elif stack and stack[-1][0] is frame:
            self._add(self._open.key, *stack.pop())


# ---------------------------------------------------------------- spans to events


class Thread:
    """What one thread has done: its spans, on one clock, and the sums that the summary shows."""

    def __init__(self, name: str, spans: list[Span], wall: Optional[tuple[int, int]]) -> None:
        self.name = name
        self.spans = sorted(spans, key=lambda s: (s["begin"], -s["end"]))
        if wall is None:
            wall = (min(s["begin"] for s in spans), max(s["end"] for s in spans)) if spans else (0, 0)
        self.begin, self.end = wall

    def of(self, *kinds: str) -> list[Span]:
        return [s for s in self.spans if s["kind"] in kinds]

    def seconds(self) -> dict[str, float]:
        """Of each phase; together they are the time that the thread was watched."""
        total = dict.fromkeys(_PHASES, 0)
        calls: list[Span] = []
        for span in self.of("call"):
            if not calls or span["begin"] >= calls[-1]["end"]:  # not inside another one
                calls.append(span)
        begins = [s["begin"] for s in calls]
        for span in self.of("record", "plan", "forward", "backward"):
            length = span["end"] - span["begin"]
            total[span["kind"]] += length
            at = bisect.bisect_right(begins, span["begin"]) - 1
            if at >= 0 and span["end"] <= calls[at]["end"]:
                total["rest of the calls"] -= length
        for span in calls:
            length = span["end"] - span["begin"]
            total["update" if span["name"] == "update" else "rest of the calls"] += length
        total["own Python"] = max(0, self.end - self.begin - sum(total.values()))
        return {phase: 1e-9 * ns for phase, ns in total.items()}


def by_thread(found: list[tuple[int, str, list[Span]]], first: Key) -> list[tuple[Key, list[Span]]]:
    """The spans of each thread, that of `first` before the others."""
    spans: dict[Key, list[Span]] = {}
    for ident, name, part in found:
        spans.setdefault((ident, name), []).extend(part)
    return sorted(spans.items(), key=lambda item: item[0] != first)


def _name_of(span: Span) -> str:
    if span["kind"] in ("launch", "back_launch"):
        return fused_name(span["ops"])
    if span["kind"] == "kernel":
        rows, columns, inner = span["sizes"]
        return f"{span['name']} {rows}x{columns}x{inner}"
    if span["kind"] == "call" and "site" in span:
        return f"{span['name']}  {os.path.basename(span['site'][0])}:{span['site'][1]}"
    return str(span["name"])


def _arguments_of(span: Span) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    if "site" in span:
        arguments["file"], arguments["line"], arguments["function"] = span["site"]
    if span["kind"] in ("launch", "back_launch"):
        arguments["direction"] = "forward" if span["kind"] == "launch" else "backward"
        arguments["batch"] = span["nodes"]
        for key in ("ops", "shapes", "mixed", "operands", "floats"):
            arguments[key] = span[key]
    elif span["kind"] == "kernel":
        arguments["rows"], arguments["columns"], arguments["inner"] = span["sizes"]
    elif "nodes" in span:
        arguments["nodes"] = span["nodes"]
    for key in ("flops", "bytes", "graph", "failed"):
        if key in span:
            arguments[key] = span[key]
    return arguments


def events_of(threads: list[Thread], start: int) -> Iterator[Event]:
    for number, thread in enumerate(threads, 1):
        for span in thread.spans:
            tracks = {span["kind"]: _TRACK_OF[span["kind"]]}
            if span["kind"] == "call" and span["name"] == "update":
                tracks["update"] = "update"
            for category, track in tracks.items():
                yield {
                    "name": _name_of(span) if category != "update" else "update",
                    "cat": category,
                    "ph": "X",
                    "ts": (span["begin"] - start) / 1000,
                    "dur": (span["end"] - span["begin"]) / 1000,
                    "pid": number,
                    "tid": _TRACKS.index(track) + 1,
                    "args": _arguments_of(span),
                }


def metadata_of(threads: list[Thread]) -> Iterator[Event]:
    """Names and order of the tracks."""
    for number, thread in enumerate(threads, 1):
        common = {"ph": "M", "pid": number, "ts": 0}
        yield {**common, "name": "process_name", "tid": 0, "args": {"name": thread.name}}
        yield {**common, "name": "process_sort_index", "tid": 0, "args": {"sort_index": number}}
        used = {_TRACK_OF[s["kind"]] for s in thread.spans}
        used |= {"update"} if any(s["name"] == "update" for s in thread.of("call")) else set()
        for at, track in enumerate(_TRACKS, 1):
            if track in used:
                yield {**common, "name": "thread_name", "tid": at, "args": {"name": track}}
                yield {**common, "name": "thread_sort_index", "tid": at, "args": {"sort_index": at}}


# ---------------------------------------------------------------- tables


def table(head: list[str], rows: list[list[str]], left: int = 1) -> list[str]:
    """Lines of a table; the first `left` columns are aligned left, the others right."""
    every = [head, *rows]
    widths = [max(len(row[i]) for row in every) for i in range(len(head))]
    lines = []
    for row in every:
        cells = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines


def share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "-"


def histogram(sizes: Iterable[int]) -> list[str]:
    """Launches by the number of their nodes, in classes that double."""
    classes = Counter(max(1, size).bit_length() - 1 for size in sizes)
    most = max(classes.values(), default=1)
    rows = []
    for at in range(max(classes, default=-1) + 1):
        low, high = 2**at, 2 ** (at + 1) - 1
        bar = "#" * -(-40 * classes[at] // most)
        rows.append(f"  {str(low) if low == high else f'{low}-{high}':>13}  {classes[at]:>8}  {bar}".rstrip())
    return rows


def launch_table(launches: list[Span], top: int) -> list[str]:
    groups: dict[tuple[str, str], list[Span]] = defaultdict(list)
    for span in launches:
        direction = "forward" if span["kind"] == "launch" else "backward"
        groups[fused_name(span["ops"]), direction].append(span)

    def ns(spans: list[Span]) -> int:
        return sum(s["end"] - s["begin"] for s in spans)

    whole = ns(launches)
    rows = []
    for (name, direction), spans in sorted(groups.items(), key=lambda item: -ns(item[1]))[:top]:
        time_ns = ns(spans) or 1
        rate = sum(s.get("flops", 0) for s in spans) / time_ns
        rows.append(
            [name, direction, f"{len(spans)}", f"{sum(s['nodes'] for s in spans)}", f"{1e-6 * time_ns:.3f}",
             share(time_ns, whole), f"{rate:.2f}" if rate else "-"]
        )  # fmt: skip
    lines = table(["op", "direction", "launches", "nodes", "ms", "share", "Gflop/s"], rows, left=2)
    return lines + ([f"  and {len(groups) - top} more"] if len(groups) > top else [])


def call_table(calls: list[Span], top: int) -> list[str]:
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for span in calls:
        groups[(*span["site"], span["name"])].append(span["end"] - span["begin"])
    rows = [
        [f"{os.path.basename(file)}:{line}", name, f"{len(times)}", f"{1e-6 * sum(times):.3f}"]
        for (file, line, _, name), times in sorted(groups.items(), key=lambda item: -sum(item[1]))[:top]
    ]
    lines = table(["line", "call", "times", "ms"], rows, left=2)
    return lines + ([f"  and {len(groups) - top} more"] if len(groups) > top else [])


def summary(threads: list[Thread], wall: int, dropped: int, limit: int, top: int) -> str:
    """See `Profile.summary`; `wall` in nanoseconds."""
    launches = [s for t in threads for s in t.of("launch", "back_launch")]
    nodes = sum(s["nodes"] for s in launches)
    title = f"profile of {1e-6 * wall:.3f} ms: {count(len(launches), 'launch', 'launches')} of "
    title += count(nodes, "node", "nodes")
    lines = [title + (f", {nodes / len(launches):.1f} per launch" if len(launches) > 1 else "")]
    if dropped:
        lines.append(f"the limit of {limit} events was reached: {dropped} are missing")
    for thread in threads:
        whole = 1e-9 * (thread.end - thread.begin)
        rows = [[p, f"{1e3 * s:.3f}", share(s, whole)] for p, s in thread.seconds().items()]
        lines += ["", *table([thread.name if len(threads) > 1 else "phase", "ms", "share"], rows)]
    if launches:
        lines += ["", *launch_table(launches, top)]
        lines += ["", "  nodes in a launch, launches", *histogram(s["nodes"] for s in launches)]
    calls = [s for t in threads for s in t.of("call") if "site" in s]
    if calls:
        lines += ["", *call_table(calls, top)]
    return "\n".join(lines + _hints())


def _hints() -> list[str]:
    """What hints did since the program began; nothing where none are in use."""
    runtime = sys.modules.get("dynet_compat.hints.runtime")
    active = runtime.active() if runtime else None
    if not active:
        return []
    from ..hints import coverage

    return ["", active.summary(), *coverage.report(active)]
