"""Scalars of NumPy among what regions and walks read: numbers and indices like those of Python."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest
from support.walks import learn, seeded_model_of, walked

MODEL = """
import numpy as np

class Model:
    def __init__(self):
        pc = self.pc = dy.ParameterCollection()
        self.W = pc.add_parameters((3, 3))
        self.b = pc.add_parameters(3)
        self.E = pc.add_lookup_parameters((9, 3))
"""
REGION = """
    def f(self, i, k):
        h = dy.tanh(self.W * self.E[i] * k + self.b)
        return dy.pick(h, 1) + dy.pickneglogsoftmax(h * k, 2)
"""
INTS = [np.int64(5), np.int32(4), np.uint8(7), np.int64(3), 6, np.uint64(8), np.int16(0)]
HALVES = [0.5, np.float64(0.5), np.float32(0.5), np.float16(0.5)]
NUMBERS = [*HALVES, 2, np.int64(2), np.float64(-0.0), np.float64(0.0)]


def uses(calls: list[tuple[Any, ...]]) -> Callable[[Any], list]:
    def use(m: Any) -> list:
        m.dy.renew_cg()
        found: list[Any] = []
        for args in calls:
            try:
                found.append(seeded_model_of(m).f(*args))
            except (IndexError, OverflowError, TypeError, ValueError) as e:
                found.append(f"{type(e).__name__}: {e}")
        return found

    return use


def test_indices(pair: Callable) -> None:
    p = pair(MODEL + REGION)
    for _ in range(8):
        p.agree(uses([(i, np.float64(0.5)) for i in INTS]))
    (region,) = [s for s in p.statistics.values() if s["name"].startswith("Model.f")]
    assert region["hits"] > 20 and region["specialisations"] == 1, region


@pytest.mark.parametrize("wrong", [np.int64(-1), np.int64(9), np.uint64(2**64 - 1), np.float64(1), np.True_])
def test_what_is_no_index(pair: Callable, wrong: Any) -> None:
    p = pair(MODEL + REGION)
    for _ in range(8):
        p.agree(uses([(np.int64(5), 0.5), (wrong, 0.5), (np.int64(4), 0.5)]))


def test_numbers_of_equal_values(pair: Callable) -> None:
    """The sign of zero, and the class, make another number."""
    p = pair(MODEL + REGION)
    for _ in range(8):
        for k in NUMBERS:
            p.agree(uses([(1, k), (2, k)]))
    assert p.hits > 0


@pytest.mark.parametrize(
    "k", [np.float64("nan"), np.float32("inf"), np.longdouble(0.5), np.int8(-3), np.True_]
)
def test_numbers_of_other_kinds(pair: Callable, k: Any) -> None:
    p = pair(MODEL + REGION)
    for _ in range(8):
        p.agree(uses([(1, k), (2, 0.5), (1, k)]))


WALK = """
    def f(self, words, k):
        if len(words) == 1:
            return self.E[words[0]] * k
        h = self.f(words[1:], k)
        return dy.tanh(k * (self.W * h) + self.E[words[0]] / k)
"""


def test_walks(pair: Callable) -> None:
    p = pair(MODEL + WALK)
    words = [np.int64(3), np.int32(1), 2, np.uint8(7)]
    half = np.float64(0.5)
    learn(p, uses([(words, half), (words[1:], half), (words[::-1], half), (words[::2], half)]))
    assert walked(p, "Model.f")["hits"] > 0


def test_memos_know_numbers_by_their_value(pair: Callable) -> None:
    """A number that was freed may have the address of another."""
    p = pair(MODEL + WALK)
    learn(p, uses([([1, 2, 3], np.float64(k / 4)) for k in (1, 2, -3)]))
    for k in range(1, 60):
        p.agree(uses([([1, 2, 3], np.float64(k / 4)), ([np.int64(k % 9), 2, 3], np.float64(-0.0 * k))]))


BRANCHES = """
    def f(self, words, k):
        total = self.b
        for w in words:
            if k:
                total = total + self.E[w]
            if k > 1 or w in (1, 2):
                total = dy.tanh(total) * max(k, 0.5) + float(k)
        return total
"""


def test_tests_and_functions_of_numbers(pair: Callable) -> None:
    p = pair(MODEL + BRANCHES)
    calls = [([1, 4], np.float64(0)), ([np.int64(2)], np.int64(3)), ([5], 0.5), ([5], np.float32(1.5))]
    for _ in range(20):
        p.agree(uses(calls))
