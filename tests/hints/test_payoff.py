"""Regions that do not pay are given up, and their functions get the code back that was written."""

from __future__ import annotations

import cProfile
import pstats
import textwrap
from typing import Any, Callable

import dynet_compat as dy
import pytest
from dynet_compat import _core
from support.walks import walked

pytestmark = pytest.mark.trials

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


# The second one saves nearly half of what its iterations take, as other processes slow down replays more than
# the fastest run of the statements.
TWO_REGIONS = """
class Model:
  def __init__(self):
    self.pc = dy.ParameterCollection()
    self.W = self.pc.add_parameters((2, 2))

def f(x, s, model, *, walked=False):  # no function with such parameters is
  z = dy.tanh(x)
  z = z * s
  if model is None:
    return z
  for _ in range(40):
    z = dy.tanh(model.W * dy.cmult(z, z) + model.W * dy.tanh(z) + dy.logistic(model.W * z))
    z = dy.tanh(model.W * dy.square(z) + dy.cmult(z, dy.logistic(z)) + dy.rectify(model.W * z))
  return z
"""


@pytest.mark.parametrize("trained", [True, False])
def test_code_stays_rewritten_while_a_region_in_it_saves_more(pair: Callable, trained: bool) -> None:
    """Than calls of the one that is given up take. The old code comes back where it does nothing for long."""
    p = pair(TWO_REGIONS)
    rewritten = p.other.f.__code__
    call_often(lambda x, s: p.other.f(x, s, None), factors=60)
    assert [s["off"] for s in p.statistics.values()].count(LOST) == 1, p.statistics
    assert p.other.f.__code__ is rewritten
    p.agree(lambda m: [m.f(dy.inputVector([1.0, 2.0]), float(i), m.Model()) for i in range(9)])
    model = p.other.Model() if trained else None
    for _ in range(3):
        call_often(lambda x, s: p.other.f(x, s, None if s % 10 else model), factors=60)
    assert (p.other.f.__code__ is rewritten) == trained, p.statistics
    assert trained or p.other.f.__code__ == p.plain.f.__code__
    p.agree(lambda m: [m.f(dy.inputVector([1.0, 2.0]), float(i), m.Model()) for i in range(9)])


def test_code_stays_rewritten_where_regions_have_saved_more_in_another_part_of_the_run(
    pair: Callable,
) -> None:
    """As where a script tests between its epochs."""
    p = pair(TWO_REGIONS)
    rewritten, model = p.other.f.__code__, p.other.Model()
    call_often(lambda x, s: p.other.f(x, s, None), factors=60)
    call_often(lambda x, s: p.other.f(x, s, model), factors=6)
    for _ in range(4):
        call_often(lambda x, s: p.other.f(x, s, None), factors=60)
    assert p.other.f.__code__ is rewritten, p.statistics
    p.agree(lambda m: [m.f(dy.inputVector([1.0, 2.0]), float(i), m.Model()) for i in range(9)])


@pytest.mark.parametrize("graphs", [300, 4000])
def test_what_a_region_saves_that_was_never_met_is_not_known(pair: Callable, graphs: int) -> None:
    """A script may test before it trains; not forever."""
    p = pair(TWO_REGIONS)
    rewritten = p.other.f.__code__
    for _ in range(graphs // 100):
        call_often(lambda x, s: p.other.f(x, s, None), factors=60)
    assert (p.other.f.__code__ is rewritten) == (graphs == 300), p.statistics


def test_a_region_that_runs_seldom_may_save_more(pair: Callable) -> None:
    """So seldom that no call of it was timed."""
    p = pair(TWO_REGIONS.replace("range(40)", "range(250)"))
    rewritten, model = p.other.f.__code__, p.other.Model()
    call_often(lambda x, s: p.other.f(x, s, None), factors=60)
    for _ in range(14):
        dy.renew_cg()
        p.other.f(dy.inputVector([1.0, 2.0]), 1.0, model)
    for _ in range(2):
        call_often(lambda x, s: p.other.f(x, s, None), factors=60)
    assert p.other.f.__code__ is rewritten, p.statistics


def test_a_region_is_given_up_once(pair: Callable) -> None:
    """One that has lost before, and runs in too many ways in the very call in which it would lose again."""
    p = pair(TWO_REGIONS)
    rewritten = p.other.f.__code__
    region = next(iter(p.rewriter.regions.values()))
    others, window, timed = 0, 2048, 16
    x: Any = None
    for call in range(1, 4000):
        if call % 300 == 1:
            dy.renew_cg()
            x = dy.inputVector([1.0, 2.0])
        s = region.statistics()
        if s["off"]:
            break
        hits, ways, runs = s["hits"], s["misses"], s["hits"] + s["misses"] + s["reviews"]
        left = -call % timed
        near = left < 10 and runs + left + 1 >= window
        another = hits >= 4 * (ways + 1) if near else hits > 4 * (ways + 5)
        another = another or (left == 0 and runs + 1 >= window)
        others += another
        p.other.f(x, 100.0 + others if another else float(call % 48), None)
    assert region.statistics()["off"] == "it runs in too many ways"
    assert p.other.f.__code__ is rewritten, p.statistics


def test_functions_of_one_code_get_it_back_together(pair: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are: a call of a region that is given up takes no longer for it."""
    restored, restore = [], _core._restore_code
    monkeypatch.setattr(_core, "_restore_code", lambda *a: (restored.append(a[0]), restore(*a)))
    p = pair(f"def make():\n{textwrap.indent(SOURCE, '  ')}\n  return f\nfs = [make() for _ in range(20)]\n")
    assert sorted(map(len, restored)) == [1, 20]
    call_often(p.other.fs[0], factors=60)
    assert all(f.__code__ == p.plain.fs[0].__code__ for f in p.other.fs)


def test_profilers_see_one_function(pair: Callable) -> None:
    p = pair(TWO_REGIONS)
    rewritten = p.other.f.__code__
    call_often(lambda x, s: p.other.f(x, s, None), factors=60)
    p.agree(lambda m: [m.f(dy.inputVector([1.0, 2.0]), float(i), m.Model()) for i in range(9)])
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(3):
        call_often(lambda x, s: p.other.f(x, s, None), factors=60)
    profile.disable()
    [calls] = [s[0] for (_, _, name), s in pstats.Stats(profile).stats.items() if name == "f"]  # type: ignore
    assert calls == 90000 and p.other.f.__code__ is rewritten
    call_often(lambda x, s: p.other.f(x, s, None), factors=60)
    call_often(lambda x, s: p.other.f(x, s, None), factors=60)
    assert p.other.f.__code__ is not rewritten, p.statistics


def test_functions_are_not_kept_alive(pair: Callable) -> None:
    import gc
    import weakref

    p = pair(SOURCE)
    call_often(p.other.f, factors=60)
    dead = weakref.ref(p.other.f)
    del p.other.f
    gc.collect()
    assert dead() is None


# Walks call max() more slowly than Python does.
COUNTING = """
class Model:
  def __init__(self):
    pc = dy.ParameterCollection()
    self.W = pc.parameters_from_numpy([[0.5, 1.0], [0.25, 0.5]])
    self.E = pc.lookup_parameters_from_numpy([[0.5, 1.0], [2.0, 0.25]])

  def cell(self, h, w):
    return dy.tanh(self.W * h + self.E[w])

  def run(self, words, count):
    h, n = self.E[0], 0
    while n < count:
      n = max(n, n + 1)
    for w in words:
      h = self.cell(h, w)
    return h, n
"""


def run_often(p: Any, count: int, calls: int = 1000) -> None:
    model = p.other.Model()
    for i in range(calls):
        if i % 20 == 0:
            dy.renew_cg()
        model.run([0, 1, 1], count + i)  # never the same again


def agree(p: Any) -> None:
    p.agree(lambda m: list(m.Model().run([0, 1, 0, 1], 7)))


def test_a_walk_that_takes_longer_than_the_statements_is_made_no_more(pair: Callable) -> None:
    """But to be remembered: here no arguments come again."""
    p = pair(COUNTING)
    run_often(p, 500)
    s = walked(p, "Model.run")
    assert s["hits"] >= 128 and s["only_remembered"], s
    run_often(p, 500)
    assert walked(p, "Model.run")["hits"] == s["hits"]
    agree(p)


def test_remembered_calls_are_timed_too(pair: Callable) -> None:
    """Loops without ops take longer in a walk, and no time when the call is remembered."""
    p = pair(COUNTING)
    model = p.other.Model()
    for i in range(1000):
        if i % 20 == 0:
            dy.renew_cg()
        model.run([0, 1, 1], 500)
    s = walked(p, "Model.run")
    assert s["remembered"] > 500 and not s["only_remembered"] and not s["off"], s
    agree(p)


def test_a_function_that_is_never_recorded_by_one_call_gets_its_code_back(pair: Callable) -> None:
    p = pair(COUNTING.replace("h, n = self.E[0], 0", "h, n = self.E[0], ord('a') - 97"))
    run_often(p, 3, calls=1500)
    s = walked(p, "Model.run")
    assert s["hits"] == 0 and s["off"] == "it is always refused", s
    agree(p)


def test_walks_go_on_through_functions_that_have_their_code_back(pair: Callable) -> None:
    p = pair(
        COUNTING
        + """
  def all(self, sentences, count):
    found = []
    for words in sentences:
      h, n = self.run(words, count)
      found.append(dy.tanh(h + h))
    return found
"""
    )
    run_often(p, 500)
    assert walked(p, "Model.run")["only_remembered"]
    sentences = [[0, 1], [1, 1, 0]]
    models = {m: m.Model() for m in (p.plain, p.other)}
    for _ in range(120):
        p.agree(lambda m: models[m].all(sentences, 2))
    assert walked(p, "Model.all")["hits"] > 20, walked(p, "Model.all")["refusal"]


DEEP = """
class Model:
  def __init__(self):
    self.E = dy.ParameterCollection().lookup_parameters_from_numpy([[0.5, 1.0], [2.0, 0.25]])

  def run(self, depth, x):
    if depth == 0:
      return dy.tanh(self.E[0] + x)
    h = self.run(depth - 1, x)
    return dy.tanh(h + x) if depth < 5 else h
"""


def test_statements_that_are_timed_fail_as_they_were_written(pair: Callable) -> None:
    """In each turn of a trial, at the limit of recursion and elsewhere."""
    p = pair(DEEP)

    def errors(module: Any) -> list:
        model, found = module.Model(), []
        for i in range(900):
            if i % 10 == 0:
                dy.renew_cg()
            x = dy.inputVector([1.0, 2.0])
            try:
                model.run(2000 if i % 60 == 59 else 3, None if i % 60 == 9 else x)
            except (RecursionError, TypeError) as error:
                depth, frame = 0, error.__traceback__
                while frame:
                    depth, frame = depth + 1, frame.tb_next
                found.append((i, f"{type(error).__name__}: {error}", depth))
        return found

    assert errors(p.other) == errors(p.plain)
    assert walked(p, "Model.run")["hits"] > 128, (walked(p, "Model.run"), p.statistics)
