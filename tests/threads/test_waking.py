"""Which loops wake threads of the pool that sleep: by a rule of times alone, which no result depends on."""

from __future__ import annotations

import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="threads of this package")
LEAST = 8  # tuning::kWorthWaking
SOON, LATER = 5_000, 100_000  # nanoseconds: before and after threads that look for work fall asleep

Loop = tuple[int, int, bool]


def waking(loops: list[Loop]) -> list[bool]:
    from dynet_compat import _core

    return list(_core._waking(loops))


def test_a_long_loop_wakes_threads() -> None:
    assert waking([(LATER, LEAST, True), (LATER, LEAST - 1, True)] * 20) == [True, False] * 20


def test_short_loops_are_counted_together() -> None:
    """Two of four chunks are as one of eight, but not where threads would be asleep again at the second."""
    assert waking([(SOON, LEAST // 2, True)] * 20) == [False, True] * 10
    assert not any(waking([(LATER, LEAST // 2, True)] * 1000))


def test_threads_that_come_too_late_are_woken_seldom() -> None:
    """And again for each loop soon after they come."""
    late, early = [(LATER, 4 * LEAST, False)] * 1000, [(LATER, 4 * LEAST, True)] * 1000
    wakes = waking(late + early)
    assert wakes[0]
    assert 60 < sum(wakes[:1000]) < 70
    assert all(wakes[1015:])
    assert waking([*late[:1], *early[:10]]) == [True, False, *[True] * 9]
