"""Regions that do not pay are given up, and their functions get the code back that was written."""

from __future__ import annotations

from typing import Any, Callable

import dynet_compat as dy

# Recorded by one call for each of 60 factors: the call has to find the right one of 60 traces of two ops.
SOURCE = """
def f(x, s):
  z = dy.tanh(x)
  return z * s
"""
LOST = "it takes longer than the statements"


def call_often(function: Callable[[Any, float], Any], factors: int) -> None:
    for _ in range(100):
        dy.renew_cg()
        x = dy.inputVector([1.0, 2.0])
        for _ in range(5):
            for s in range(factors):
                function(x, float(s))


def test_a_region_that_takes_longer_than_its_statements_is_given_up(pair: Callable) -> None:
    p = pair(SOURCE)
    rewritten = p.other.f.__code__
    call_often(p.other.f, factors=60)
    (s,) = p.statistics.values()
    assert s["off"] == LOST, s
    assert p.other.f.__code__ is not rewritten and p.other.f.__code__ == p.plain.f.__code__
    p.agree(lambda m: [m.f(dy.inputVector([1.0]), float(i)) for i in range(9)])


def test_code_stays_rewritten_while_a_region_in_it_is_in_use(pair: Callable) -> None:
    p = pair(
        """
    class Model:
      def __init__(self):
        self.pc = dy.ParameterCollection()
        self.W = self.pc.add_parameters((2, 2))

    def f(x, s, model, *, walked=False):  # no function with such parameters is
      z = dy.tanh(x)
      z = z * s
      if model is None:
        return z
      for _ in range(2):
        z = dy.tanh(model.W * dy.cmult(z, z) + model.W * dy.tanh(z) + dy.logistic(model.W * z))
      return z
    """
    )
    rewritten = p.other.f.__code__
    call_often(lambda x, s: p.other.f(x, s, None), factors=60)
    assert [s["off"] for s in p.statistics.values()].count(LOST) == 1, p.statistics
    assert p.other.f.__code__ is rewritten
    p.agree(lambda m: [m.f(dy.inputVector([1.0, 2.0]), float(i), m.Model()) for i in range(9)])


def test_functions_are_not_kept_alive(pair: Callable) -> None:
    import gc
    import weakref

    p = pair(SOURCE)
    call_often(p.other.f, factors=60)
    dead = weakref.ref(p.other.f)
    del p.other.f
    gc.collect()
    assert dead() is None
