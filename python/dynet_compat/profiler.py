"""`profile()`: where the time goes, as a trace for Perfetto or chrome://tracing, and as a table."""

from __future__ import annotations

import bisect
import os
import sys
import threading
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
from typing import Any, Optional, Union

from . import _core
from ._atomic import NewFile, replacing

__all__ = ["Profile", "profile"]

_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LIMIT = 2_000_000
_CHUNK = 5000  # events written at a time

# Tracks of a thread, in the order in which they are shown, and the spans that lie on them.
_TRACKS = ("script", "functions", "record", "plan", "launches", "kernels", "update")
_TRACK_OF = {"call": "script", "record": "record", "plan": "plan", "forward": "launches",
             "backward": "launches", "launch": "launches", "back_launch": "launches", "weights": "launches",
             "kernel": "kernels", "function": "functions"}  # fmt: skip
_PHASES = ("record", "plan", "forward", "backward", "update", "rest of the calls", "own Python")

_PARTS = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))  # no functions of their own

Event = dict[str, Any]
_Span = dict[str, Any]
_Key = tuple[int, str]  # of a thread: its number, which another one may get later, and its name


def fused_name(ops: Iterable[str]) -> str:
    """Launches that run together, as one name: "matmul x4", "tanh + cmult"."""
    return " + ".join(op if n == 1 else f"{op} x{n}" for op, n in Counter(ops).items())


# ---------------------------------------------------------------- functions of the script


class _Functions:
    """Spans of the script's own functions, through `sys.setprofile`, of all threads that begin meanwhile."""

    def __init__(self) -> None:
        self.spans: dict[_Key, list[_Span]] = defaultdict(list)
        self._open = threading.local()
        self._offset = _core._trace_clock() - time.perf_counter_ns()
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

    def stop(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        for frame, begin in reversed(getattr(self._open, "stack", [])):  # of functions that called stop()
            self._add(self._open.key, frame, begin)
        self._open = threading.local()

    def _is_script(self, file: str) -> bool:
        known = self._known.get(file)
        if known is None:
            other = file.startswith(("<frozen", _FOLDER)) or os.path.realpath(file).startswith(self._others)
            known = self._known[file] = not other
        return known

    def _add(self, thread: _Key, frame: FrameType, begin: int) -> None:
        code = frame.f_code
        end = time.perf_counter_ns() + self._offset
        site = (code.co_filename, code.co_firstlineno, code.co_name)
        self.spans[thread].append(
            {"kind": "function", "name": code.co_name, "begin": begin, "end": end, "site": site}
        )

    def _hook(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or code.co_name in _PARTS or not self._is_script(code.co_filename):
            return
        try:
            stack = self._open.stack
        except AttributeError:
            stack = self._open.stack = []
            self._open.key = (threading.get_ident(), _name_of_thread())
        if event == "call":
            stack.append((frame, time.perf_counter_ns() + self._offset))
        elif stack and stack[-1][0] is frame:
            self._add(self._open.key, *stack.pop())


# ---------------------------------------------------------------- spans to events


class _Thread:
    """What one thread has done: its spans, on one clock, and the sums that the summary shows."""

    def __init__(self, name: str, spans: list[_Span], wall: Optional[tuple[int, int]]) -> None:
        self.name = name
        self.spans = sorted(spans, key=lambda s: (s["begin"], -s["end"]))
        if wall is None:
            wall = (min(s["begin"] for s in spans), max(s["end"] for s in spans)) if spans else (0, 0)
        self.begin, self.end = wall

    def of(self, *kinds: str) -> list[_Span]:
        return [s for s in self.spans if s["kind"] in kinds]

    def seconds(self) -> dict[str, float]:
        """Of each phase; together they are the time that the thread was watched."""
        total = dict.fromkeys(_PHASES, 0)
        calls = self.of("call")
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


def _name_of(span: _Span) -> str:
    if span["kind"] in ("launch", "back_launch"):
        return fused_name(span["ops"])
    if span["kind"] == "kernel":
        rows, columns, inner = span["sizes"]
        return f"{span['name']} {rows}x{columns}x{inner}"
    if span["kind"] == "call" and "site" in span:
        return f"{span['name']}  {os.path.basename(span['site'][0])}:{span['site'][1]}"
    return str(span["name"])


def _arguments_of(span: _Span) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    if "site" in span:
        arguments["file"], arguments["line"], arguments["function"] = span["site"]
    if span["kind"] in ("launch", "back_launch"):
        arguments["direction"] = "forward" if span["kind"] == "launch" else "backward"
        arguments["batch"] = span["nodes"]
        for key in ("ops", "shapes", "mixed", "operands", "bytes"):
            arguments[key] = span[key]
    elif span["kind"] == "kernel":
        arguments["rows"], arguments["columns"], arguments["inner"] = span["sizes"]
    elif "nodes" in span:
        arguments["nodes"] = span["nodes"]
    for key in ("flops", "graph", "failed"):
        if key in span:
            arguments[key] = span[key]
    return arguments


def _events(threads: list[_Thread], start: int) -> Iterator[Event]:
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


def _metadata(threads: list[_Thread]) -> Iterator[Event]:
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


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "-"


def _histogram(sizes: Iterable[int]) -> list[str]:
    """Launches by the number of their nodes, in classes that double."""
    classes = Counter(max(1, size).bit_length() - 1 for size in sizes)
    most = max(classes.values(), default=1)
    rows = []
    for at in range(max(classes, default=-1) + 1):
        low, high = 2**at, 2 ** (at + 1) - 1
        bar = "#" * -(-40 * classes[at] // most)
        rows.append(f"  {str(low) if low == high else f'{low}-{high}':>13}  {classes[at]:>8}  {bar}".rstrip())
    return rows


class Profile:
    """What `profile()` returns: a context manager, or `start()` and `stop()`, and afterwards the result.

    Attributes:
        path: where the trace is written at the end; None: nowhere.

    Example:
        >>> with dy.profile() as result:
        ...     value = dy.tanh(dy.scalarInput(1)).value()
        >>> result
        <profile: 1 launch, 1 thread>
    """

    def __init__(self, path: Optional[str], functions: bool, limit: int) -> None:
        self.path = path
        self._functions_wanted, self._limit = functions, limit
        self._functions: Optional[_Functions] = None
        self._threads: list[_Thread] = []
        self._running = False
        self._begin = self._end = 0
        self._dropped = 0

    # ------------------------------------------------------------ life

    def start(self) -> Profile:
        """Begin; what was measured before is forgotten.

        Returns:
            The profile.
        Raises:
            RuntimeError: another profile is running.
            OSError: the file cannot be written.
        Example:
            >>> p = dy.profile().start()
            >>> value = dy.tanh(dy.scalarInput(1)).value()
            >>> p.stop()
            <profile: 1 launch, 1 thread>
        """
        global _active
        if _active is not None:
            raise RuntimeError("profile(): another profile is running; stop() it first")
        if self.path is not None:
            _check_writable(self.path)
        if self._functions_wanted:
            self._functions = _Functions()
            self._functions.start()
        _active = self
        self._threads, self._dropped, self._running = [], 0, True
        self._begin = self._end = _core._trace_clock()
        _core._trace_start(self._limit, _FOLDER)
        return self

    def stop(self) -> Profile:
        """End, and write the trace if there is a path.

        Returns:
            The profile.
        Raises:
            RuntimeError: it is not running.
            OSError: the file cannot be written; the result is there, and `save()` may write it elsewhere.
        Example:
            >>> p = dy.profile().start()
            >>> p.stop().events
            []
        """
        self._collect()
        if self.path is not None:
            self.save(self.path)
        return self

    def _collect(self) -> None:
        global _active
        if not self._running:
            raise RuntimeError("profile(): stop() without start()")
        traced = _core._trace_stop()
        self._end = _core._trace_clock()
        self._running, _active = False, None
        spans: dict[_Key, list[_Span]] = {}
        for ident, name, found, dropped in traced:
            spans.setdefault((ident, name), []).extend(found)
            self._dropped += dropped
        if self._functions is not None:
            self._functions.stop()
            for thread, found in self._functions.spans.items():
                spans.setdefault(thread, []).extend(found)
            self._functions = None
        mine = (threading.get_ident(), _name_of_thread())
        self._threads = [
            _Thread(key[1], spans[key], (self._begin, self._end) if key == mine else None)
            for key in sorted(spans, key=lambda key: key != mine)  # this thread comes first
        ]

    def __enter__(self) -> Profile:
        return self.start()

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if error is None:
            self.stop()
            return
        self._collect()
        if self.path is not None:
            try:
                self.save(self.path)
            except OSError as failure:  # the error of the block is the one to see
                warnings.warn(str(failure), RuntimeWarning, stacklevel=2)

    # ------------------------------------------------------------ results

    @property
    def events(self) -> list[Event]:
        """Spans as complete events of the trace-event format, times in microseconds since `start()`.

        Example:
            >>> with dy.profile() as p:
            ...     value = dy.tanh(dy.scalarInput(1)).value()
            >>> sorted({event["cat"] for event in p.events})
            ['call', 'forward', 'launch', 'plan', 'record']
            >>> [event["args"]["batch"] for event in p.events if event["cat"] == "launch"]
            [1]
        """
        return list(_events(self._threads, self._begin))

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Write the trace as JSON, for https://ui.perfetto.dev or chrome://tracing.

        Args:
            path: the file, which is replaced as a whole.
        Raises:
            OSError: it cannot be written; nothing is left behind.
        Example:
            >>> import os, tempfile
            >>> with dy.profile() as p:
            ...     value = dy.tanh(dy.scalarInput(1)).value()
            >>> path = os.path.join(tempfile.mkdtemp(), "trace.json")
            >>> p.save(path)
            >>> os.path.getsize(path) > 0
            True
        """
        path = os.fspath(path)
        try:
            with replacing(path) as file:
                for chunk in self._json():
                    file.write(chunk)
        except OSError as error:
            raise _cannot_write(path, error) from None

    def _json(self) -> Iterator[bytes]:
        import json

        about = {"dropped_events": self._dropped, "seconds": 1e-9 * (self._end - self._begin)}
        head = json.dumps({"displayTimeUnit": "ns", "otherData": about})
        yield (head[:-1] + ', "traceEvents": [').encode()
        lines: list[str] = []
        separator = "\n"
        for events in (_metadata(self._threads), _events(self._threads, self._begin)):
            for event in events:
                lines.append(separator + json.dumps(event))
                separator = ",\n"
                if len(lines) >= _CHUNK:
                    yield "".join(lines).encode()
                    lines.clear()
        yield ("".join(lines) + "\n]}\n").encode()

    def summary(self, top: int = 10) -> str:
        """Tables: the share of each phase, the kinds of launches that take most time, the script's lines.

        Args:
            top: rows of each table at most.
        Returns:
            The text.
        Example:
            >>> with dy.profile() as p:
            ...     value = dy.tanh(dy.scalarInput(1)).value()
            >>> print(p.summary())  # doctest: +ELLIPSIS
            profile of ... ms: 1 launch of 1 node
            ...
        """
        launches = [s for t in self._threads for s in t.of("launch", "back_launch")]
        nodes = sum(s["nodes"] for s in launches)
        average = f", {nodes / len(launches):.1f} per launch" if len(launches) > 1 else ""
        time_ms = 1e-6 * (self._end - self._begin)
        lines = [
            f"profile of {time_ms:.3f} ms: {_count(len(launches), 'launch', 'launches')}"
            f" of {_count(nodes, 'node', 'nodes')}{average}"
        ]
        if self._dropped:
            lines.append(f"the limit of {self._limit} events was reached: {self._dropped} are missing")
        for thread in self._threads:
            seconds = thread.seconds()
            whole = 1e-9 * (thread.end - thread.begin)
            rows = [[p, f"{1e3 * s:.3f}", _share(s, whole)] for p, s in seconds.items()]
            lines += ["", *table([thread.name if len(self._threads) > 1 else "phase", "ms", "share"], rows)]
        if launches:
            lines += ["", *_launch_table(launches, top)]
            lines += ["", "  nodes in a launch, launches", *_histogram(s["nodes"] for s in launches)]
        calls = [s for t in self._threads for s in t.of("call") if "site" in s]
        if calls:
            lines += ["", *_call_table(calls, top)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(self.summary())}</pre>"

    def __repr__(self) -> str:
        if self._running:
            return "<profile: running>"
        launches = sum(len(t.of("launch", "back_launch")) for t in self._threads)
        return (
            f"<profile: {_count(launches, 'launch', 'launches')}, "
            f"{_count(len(self._threads), 'thread', 'threads')}>"
        )


def _name_of_thread() -> str:
    return threading.current_thread().name


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _launch_table(launches: list[_Span], top: int) -> list[str]:
    groups: dict[tuple[str, str], list[_Span]] = defaultdict(list)
    for span in launches:
        direction = "forward" if span["kind"] == "launch" else "backward"
        groups[fused_name(span["ops"]), direction].append(span)

    def ns(spans: list[_Span]) -> int:
        return sum(s["end"] - s["begin"] for s in spans)

    whole = ns(launches)
    rows = []
    for (name, direction), spans in sorted(groups.items(), key=lambda item: -ns(item[1]))[:top]:
        time_ns = ns(spans) or 1
        rate = sum(s.get("flops", 0) for s in spans) / time_ns
        rows.append(
            [name, direction, f"{len(spans)}", f"{sum(s['nodes'] for s in spans)}", f"{1e-6 * time_ns:.3f}",
             _share(time_ns, whole), f"{rate:.2f}" if rate else "-"]
        )  # fmt: skip
    lines = table(["op", "direction", "launches", "nodes", "ms", "share", "Gflop/s"], rows, left=2)
    return lines + ([f"  and {len(groups) - top} more"] if len(groups) > top else [])


def _call_table(calls: list[_Span], top: int) -> list[str]:
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for span in calls:
        groups[(*span["site"], span["name"])].append(span["end"] - span["begin"])
    rows = [
        [f"{os.path.basename(file)}:{line}", name, f"{len(times)}", f"{1e-6 * sum(times):.3f}"]
        for (file, line, _, name), times in sorted(groups.items(), key=lambda item: -sum(item[1]))[:top]
    ]
    lines = table(["line", "call", "times", "ms"], rows, left=2)
    return lines + ([f"  and {len(groups) - top} more"] if len(groups) > top else [])


# ---------------------------------------------------------------- the function

_active: Optional[Profile] = None


def _cannot_write(path: str, error: OSError) -> OSError:
    return OSError(error.errno, f"profile(): cannot write the trace: {error.strerror}", path)


def _check_writable(path: str) -> None:
    """Before hours of work and not after them."""
    try:
        NewFile(path).discard()
    except OSError as error:
        raise _cannot_write(path, error) from None


def profile(
    path: Union[str, os.PathLike[str], None] = None, *, functions: bool = False, limit: int = _LIMIT
) -> Profile:
    """Measure what the package does meanwhile: recording, planning, launches forward and backward, updates.

    The trace has a group of tracks for each thread: the lines of the script that asked for something
    (value(), backward(), update(), renew_cg()), recording, planning, launches with their sizes and the way
    their operands lie in memory, and the kernels of matrix products. A pause of more than 20 microseconds
    between two recorded nodes is no part of recording: it counts as the script's own Python. Operations and
    bytes of a launch are estimates. Measuring takes about 0.1 microseconds per recorded node and per launch.

    Args:
        path: a JSON file for https://ui.perfetto.dev or chrome://tracing, written at the end; None: none.
        functions: a track with the script's own functions, too. That takes time at each call of a function.
        limit: events that are kept, in each thread.
    Returns:
        A `Profile`, for `with` or for `start()` and `stop()`.
    Raises:
        TypeError: path is no path, or limit no int.
        ValueError: limit is less than 1.
        RuntimeError: at its start, another profile is running; with functions, another profiler.
        OSError: the file cannot be written; told at the start if it can be known then.
    Example:
        >>> with dy.profile() as p:
        ...     x = [dy.inputVector([1, 2]) for _ in range(8)]
        ...     value = dy.esum([dy.tanh(v) for v in x]).value()
        >>> [(e["name"], e["args"]["batch"]) for e in p.events if e["cat"] == "launch"]
        [('tanh', 8), ('esum', 1)]
    """
    if path is not None:
        try:
            path = os.fspath(path)
        except TypeError:
            pass
        if not isinstance(path, str):
            raise TypeError(f"profile(): expected a str or a path, got {type(path).__name__}")
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise TypeError(f"profile(): expected an int for limit, got {type(limit).__name__}")
    if limit < 1:
        raise ValueError(f"profile(): expected limit >= 1, got {limit}")
    return Profile(path, bool(functions), limit)
