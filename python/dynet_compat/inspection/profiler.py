"""`profile()`: where the time goes, as a trace for Perfetto or chrome://tracing, and as a table."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Optional, Union

from .. import _core
from ..files.atomic import NewFile, replacing

# What makes the results is imported when it is needed: the package must be imported fast.
if TYPE_CHECKING:
    from .profile_report import Event, Functions, Thread

__all__ = ["Profile", "profile"]

_LIMIT = 2_000_000
_CHUNK = 5000  # events written at a time


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
        self._functions: Optional[Functions] = None
        self._threads: list[Thread] = []
        self._running = False
        self._begin = self._end = 0
        self._dropped = 0

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
            from .profile_report import Functions

            self._functions = Functions(self._limit)
            self._functions.start()
        _active = self
        self._threads, self._dropped, self._running = [], 0, True
        _count_lines(True)
        self._begin = self._end = _core._profile_clock()
        _core._profile_start(self._limit, os.path.dirname(os.path.abspath(_core.__file__)) + os.sep)
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
        from .profile_report import Thread, by_thread

        traced = _core._profile_stop()
        _count_lines(False)
        self._end = _core._profile_clock()
        self._running, _active = False, None
        self._dropped += sum(dropped for _, _, _, dropped in traced)
        found = [(ident, name, spans) for ident, name, spans, _ in traced]
        if self._functions is not None:
            found += self._functions.stop()
            self._dropped += self._functions.dropped
            self._functions = None
        mine = threading.get_ident(), threading.current_thread().name
        self._threads = [
            Thread(key[1], spans, (self._begin, self._end) if key == mine else None)
            for key, spans in by_thread(found, mine)
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
                import warnings

                warnings.warn(str(failure), RuntimeWarning, stacklevel=2)

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
        from .profile_report import events_of

        return list(events_of(self._threads, self._begin))

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Write the trace as JSON, for https://ui.perfetto.dev or chrome://tracing.

        Args:
            path: the file, which is replaced as a whole.
        Raises:
            OSError: it cannot be written; nothing is left behind.
        Example:
            >>> import os
            >>> with dy.profile() as p:
            ...     value = dy.tanh(dy.scalarInput(1)).value()
            >>> p.save("trace.json")
            >>> os.path.getsize("trace.json") > 0
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

        from .profile_report import events_of, metadata_of

        about = {"dropped_events": self._dropped, "seconds": 1e-9 * (self._end - self._begin)}
        head = json.dumps({"displayTimeUnit": "ns", "otherData": about})
        yield (head[:-1] + ', "traceEvents": [').encode()
        lines: list[str] = []
        separator = "\n"
        for events in (metadata_of(self._threads), events_of(self._threads, self._begin)):
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
        from .profile_report import summary

        return summary(self._threads, self._end - self._begin, self._dropped, self._limit, top)

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(self.summary())}</pre>"

    def __str__(self) -> str:
        return repr(self) if self._running else self.summary()

    def __repr__(self) -> str:
        if self._running:
            return "<profile: running>"
        from .reprs import count

        launches = sum(len(t.of("launch", "back_launch")) for t in self._threads)
        threads = count(len(self._threads), "thread", "threads")
        return f"<profile: {count(launches, 'launch', 'launches')}, {threads}>"


_active: Optional[Profile] = None


def _count_lines(on: bool) -> None:
    """Count which lines record ops outside regions, where hints are in use."""
    runtime = sys.modules.get("dynet_compat.hints.runtime")
    if runtime and runtime.active() and not runtime.counts_lines():
        from ..hints import coverage

        coverage.start() if on else coverage.stop()


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
    their operands are stored, and the kernels of matrix products. A pause of more than 20 microseconds
    between two recorded nodes is no part of recording: it counts as the script's own Python. Operations and
    bytes of a launch are estimates. Measuring takes about 0.1 microseconds per recorded node and per launch,
    and 1 microsecond for each call that asks for something.

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
        OSError: the file cannot be written; raised at the start if it can be known then.
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
