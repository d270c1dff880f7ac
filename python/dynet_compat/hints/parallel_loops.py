"""Loops and calls whose parts run together while the script runs.

A hints file lists loops over instances and groups of calls, but is not trusted: what it lists is rewritten so
that it can run either way (rewrite/batch_map.py, rewrite/concurrent_calls.py), and runs as it was written
until the proof has been repeated in the sources. That is done when the first iterations or calls were seen to
read values of the graph, and to compute much for each, so that others cost nothing.

Where the iterations of one part of the data cannot be finished together (one fails, or draws random numbers,
of which every instance has its own), their work is discarded and the part runs as it was written: the proof
says that they have left nothing behind. Now and then one iteration is repeated on its own, and a loop whose
results differ is left alone from then on. The same holds for groups of calls, and for loops inside an
iteration or call that runs together with others: their parts are fibers of their own there.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import types
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, Callable, Optional, Union

import numpy as np

from .. import _core
from .hints_file import IndependentCalls, IndependentLoop

_log = logging.getLogger("dynet_compat")

_FIRST = 4  # iterations that run one after another, to see whether they read values
_PART = 64  # iterations that run together
# Bytes of the operands of what is computed for one read of values. Where they are fewer, waiting for the
# other iterations costs more than it saves: a greedy parser gains from a hidden size of 128 on (1 MB), not at
# 64 (0.3 MB).
_WORTH = 1 << 19
# Fibers inside an instance save computations, but cost about 5 us each: less than reading weights that no
# cache holds, more than others. With more instances each computation serves more of them already: a tree
# generator of hidden size 1,024 gains with up to four, one of 512 alone, one of 256 never.
_WORTH_INSIDE = 4  # times _WORTH, for each instance
_MOST_FAILURES = 8  # of a group of calls, before it is left alone
_REPEATED = frozenset((0, 1, 3, 7))  # of which parts one iteration is repeated, and of every 64th
_PLAIN = frozenset((list, tuple, range, dict, set, frozenset, str, bytes, np.ndarray))
_TABLE: dict[int, int] = {}
_VIEWS = frozenset(type(view) for view in (_TABLE.keys(), _TABLE.values(), _TABLE.items()))
_ITERABLES: tuple[Any, ...] = (
    [], (), range(1), range(1 << 70), {}, _TABLE.values(), _TABLE.items(), set(), "", "\xff", b"",
)  # fmt: skip
_REVERSIBLE: tuple[Any, ...] = ([], {}, range(1))
_ITERATORS = frozenset(type(iter(x)) for x in _ITERABLES) | frozenset(type(reversed(x)) for x in _REVERSIBLE)


class Sources:
    """What is proved of the sources of a script; the analysis runs when it is first asked for.

    Args:
        script: its path.
        digests: of all sources: relative path -> sha256, as the hints file has them.
    """

    def __init__(self, script: str, digests: dict[str, str]) -> None:
        self.script = script
        self.digests = digests
        self._proved: Optional[frozenset[Any]] = None

    def proves(self, record: Union[IndependentLoop, IndependentCalls]) -> bool:
        if self._proved is None:
            self._proved = frozenset(self._prove())
        return record in self._proved

    def _prove(self) -> Iterable[Any]:
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        if not isinstance(main, str) or os.path.realpath(main) != os.path.realpath(self.script):
            return ()  # another program has loaded the script, and may have changed what it does
        from .analysis.load import LoadError
        from .analysis.script import ScriptAnalysis
        from .compiler import hints_of

        try:
            hints = hints_of(ScriptAnalysis(self.script))
        except (LoadError, RecursionError, MemoryError) as error:
            _log.warning("hints: the iterations of no loop run together: %s", error)
            return ()
        if hints.sources != self.digests:
            return ()  # they have changed since
        return hints.concurrent


class Concurrent:
    """One loop or group of calls: whether its parts may run together."""

    what = ""

    def __init__(self, record: Any, sources: Sources) -> None:
        self.record = record
        self.sources = sources
        self.off = False  # for good
        self.parts = 0  # how often it, or a part of its data, ran together
        self._asked = 0
        self._before: Optional[tuple[int, int]] = None  # work_done() at the first time

    def gains(self) -> bool:
        """Whether it is to run together: the first times values were read, and much computed for them."""
        if self.off or self._asked < 0:
            return not self.off
        self._asked += 1
        if self._before is None:
            self._before = work_done()
        if self._asked <= _FIRST:
            return False
        flushes, size = (now - before for now, before in zip(work_done(), self._before))
        if flushes < _FIRST:
            return False
        task: Any = _core._batch_task()
        width = task.group.scheduler.width if task is not None else 1
        if size < _WORTH * _WORTH_INSIDE * flushes * width or not self.sources.proves(self.record):
            self.off = True
        self._asked = -1
        return not self.off

    def turn_off(self, reason: str) -> None:
        self.off = True
        where = f"{self.record.file}:{self.record.line}"
        _log.warning("hints: the %s in %s is left as it is: %s", self.what, where, reason)


class CallGroup(Concurrent):
    """Calls that are proved to be independent: what the rewritten code calls."""

    what = "group of calls"
    _failed = 0

    def run(self, *calls: Callable[[], Any]) -> Optional[list[Any]]:
        """The results of all calls, or None where they must be made one after another."""
        if not self.gains():
            return None
        from ..api import batch_map

        results = batch_map.map_unless_drawn(_call, list(calls))
        if results is None:
            self._failed += 1
            self.off = self._failed == _MOST_FAILURES
            return None
        self.parts += 1
        if self.parts in _REPEATED:
            index = self.parts % len(calls)
            if not same(calls[index](), results[index]):
                self.turn_off("a call on its own had other results")
                return None
        return results


def _call(function: Callable[[], Any]) -> Any:
    return function()


def concurrent(record: Union[IndependentLoop, IndependentCalls], sources: Sources) -> Concurrent:
    return (ParallelLoop if isinstance(record, IndependentLoop) else CallGroup)(record, sources)


class ParallelLoop(Concurrent):
    """One loop: what its rewritten code calls."""

    what = "loop"

    def start(self, items: Any) -> PartIterator:
        return PartIterator(self, items)

    def collect(
        self, items: Any, element: Callable[[Any], Any], elements: Callable[[Any], list[Any]]
    ) -> list[Any]:
        """[element for ... in items]"""
        run = PartIterator(self, items)
        found: list[Any] = []
        while run.more():
            found += run.run(element) if run.together else elements(run.part)
        return found


class PartIterator:
    """One run of a loop, part by part.

    Attributes:
        part: the items of the next iterations.
        together: these run together.
    """

    def __init__(self, loop: ParallelLoop, items: Any) -> None:
        self.loop = loop
        self.part: Any = items
        self.together = False
        self._rest: Optional[Iterator[Any]] = None
        self._before = (0, 0)
        inside = _core._batch_task() is not None
        self._state = self._end_after if loop.off else self._inside if inside else self._begin

    def more(self) -> bool:
        return self._state()

    def _end(self) -> bool:
        return False

    def _end_after(self) -> bool:
        self._state = self._end
        return True

    def _inside(self) -> bool:
        """In an instance: all iterations together, or as they were written."""
        if self.loop.record.renew_first or not is_plain(self.part) or not self.loop.gains():
            return self._end_after()
        self._rest = iter(self.part)
        self.part = list(itertools.islice(self._rest, _PART))
        self.together = len(self.part) > 1
        self._state = self._next if self.together else self._end
        return bool(self.part)

    def _begin(self) -> bool:
        """The first iterations one after another."""
        if not is_plain(self.part):
            return self._end_after()
        self._rest = iter(self.part)
        self.part = list(itertools.islice(self._rest, _FIRST))
        self._before = work_done()
        self._state = self._look
        return bool(self.part)

    def _look(self) -> bool:
        """Whether the first iterations have read values, and computed much for them."""
        flushes, size = (now - before for now, before in zip(work_done(), self._before))
        read = flushes >= len(self.part) == _FIRST and size >= _WORTH * flushes
        if read and not self.loop.off and self.loop.sources.proves(self.loop.record):
            return self._next()
        return self._run_as_written(())

    def _run_as_written(self, items: Iterable[Any]) -> bool:
        assert self._rest is not None
        self.part = itertools.chain(items, self._rest)
        self.together = False
        return self._end_after()

    def _next(self) -> bool:
        assert self._rest is not None
        self.part = list(itertools.islice(self._rest, _PART))
        self.together = len(self.part) > 1
        self._state = self._next if self.together else self._end
        return bool(self.part)

    def run(self, body: Callable[[Any], Any], renew: Optional[Callable[[], Any]] = None) -> list[Any]:
        """The results of the body for all of this part; none where it must run as it was written."""
        part = self.part
        if self.loop.record.renew_first:
            if renew is None:
                self._state = lambda: self._run_as_written(part)
                return []
            for _ in part:  # graphs are counted
                renew()
        from ..api import batch_map

        results = batch_map.map_unless_drawn(body, part)
        if results is None or not self._agrees(part, results, body, renew):
            self._state = lambda: self._run_as_written(part)
            return []
        self.loop.parts += 1
        return results

    def _agrees(self, part: list[Any], results: list[Any], body: Any, renew: Any) -> bool:
        """Whether one iteration, repeated on its own, has the same result."""
        number = self.loop.parts
        if renew is None or (number not in _REPEATED and number % 64):
            return True
        index = number * 29 % len(part)
        renew()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again = body(part[index])
        if same(again, results[index]):
            return True
        self.loop.turn_off("an iteration on its own had other results")
        return False


def work_done() -> tuple[int, int]:
    """How often values were computed so far, and the bytes of the operands of that."""
    timing = _core.timing()
    return int(timing["flushes"]), int(timing["operand_bytes"])


def is_plain(items: Any) -> bool:
    """Whether iterating over it runs no code of the script."""
    kind = type(items)
    if kind in _PLAIN or kind in _VIEWS or kind in _ITERATORS:
        return True
    if kind is zip or kind is enumerate:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # copying iterators is deprecated
            try:
                parts = items.__reduce__()[1]
            except TypeError:
                return False
        inner = parts[:1] if kind is enumerate else parts
        return all(type(part) in _ITERATORS or is_plain(part) for part in inner)
    return False


def same(a: Any, b: Any, depth: int = 0) -> bool:
    """Whether two results are equal, numbers up to rounding. What cannot be compared counts as equal."""
    if type(a) is not type(b):
        return False
    if depth > 50:
        return True
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y, depth + 1) for x, y in zip(a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k], depth + 1) for k in a)
    if isinstance(a, np.ndarray):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if a.dtype.kind in "fc":
            return bool(np.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True))
        return a.dtype.kind == "O" or bool((a == b).all())
    if isinstance(a, (float, np.floating)):
        return bool(np.isclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True))
    if isinstance(a, (int, str, bytes, bool, types.FunctionType, np.integer, np.bool_)):
        return bool(a == b)
    return True
