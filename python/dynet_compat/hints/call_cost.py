"""What the code around a region takes on this machine and Python, for decisions that compare times."""

from __future__ import annotations

import time
from typing import Any, Callable

_CALLS = 64
_RUNS = 16  # of which the fastest counts: nothing has interrupted it


# What replaces a region, whose statements run: `y = x`.
def _region(call: Callable[[Any], Any], x: Any) -> None:
    for _ in range(_CALLS):
        try:
            results = call(x)
        except NameError:
            raise
        if results is None:
            del results
            try:
                y = x
            except BaseException:
                raise
            call((y,))


def _statements(call: Callable[[Any], Any], x: Any) -> None:
    for _ in range(_CALLS):
        y = x  # noqa: F841


def resting_region() -> float:
    """Nanoseconds that a region whose statements run takes beside these."""

    def least(run: Callable[[Callable[[Any], Any], Any], None]) -> int:
        times = []
        for _ in range(_RUNS):
            start = time.perf_counter_ns()
            run({}.get, 1)
            times.append(time.perf_counter_ns() - start)
        return min(times)

    return max(least(_region) - least(_statements), 1) / _CALLS
