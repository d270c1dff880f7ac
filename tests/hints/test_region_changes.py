"""Objects, lists and classes that change between the executions of a region."""

from __future__ import annotations

import gc
import sys
from types import ModuleType
from typing import Any, Callable

import dynet_compat as dy
import numpy as np
import pytest
from support.modules import flat
from support.region_models import MODEL, outcome, vector

SAME_OBJECTS = {
    "twice in a tuple": ("h, h", "h, h"),
    "under two names": ("y = h", "(h, y)"),
    "nested": ("pair = (h, [h, e])", "(pair, e, pair, h)"),
    "appended and returned": ("seen.append(h)", "h"),
    "appended twice": ("seen.append(h)\n    seen.append(h)", "(e, h)"),
    "an input": ("y = x", "(y, h, x)"),
    "an input appended": ("seen.append(x)", "(h, x)"),
    "in a set": ("y, z = h, e", "(y, e, h, z)"),
    "equal but apart": ("g = dy.tanh(x) + x", "(h, g, h)"),
    "a slice of all": ("y = x[0:3]", "(x, y, h, y)"),
    "by an op that does nothing": ("y = dy.reshape(x, (3,))\n    z = dy.dropout(x, 0.0)", "(x, y, z, y)"),
    "sum of one": ("y = dy.esum([x])\n    z = dy.concatenate([h])", "(x, y, z, h)"),
}


# As a region that is a whole function, and as one before a loop.
BOTH_WAYS = """
def f(seen, x):
    h = dy.tanh(x) + x
    e = dy.exp(h){start}
    {statement}
    return {result}
def g(seen, x):
    h = dy.tanh(x) + x
    e = dy.exp(h){start}
    {statement}
    for _ in range(1):
        pass
    return {result}
"""


@pytest.mark.parametrize("statement, result", SAME_OBJECTS.values(), ids=SAME_OBJECTS)
def test_same_object_twice(pair: Callable, statement: str, result: str) -> None:
    """One expression under two names, or in two places, is one object, and an input is itself."""
    p = pair(BOTH_WAYS.format(start="", statement=statement, result=result))

    def use(m: Any) -> list:
        out: list = []
        for i in range(8):
            for f in (m.f, m.g):
                x, seen = vector(i), [vector(-i)]
                result = f(seen, x)
                parts = flat([result])
                found = {part: n for n, part in enumerate(parts)}
                out += [x, seen, result, len(found), [found[part] for part in parts]]
                out += [[part in seen for part in parts], [parts.index(part) for part in parts]]
                out += [part is x for part in parts]
        return out

    for _ in range(3):
        p.agree(use)
    assert p.hits > 20, p.statistics


def test_same_state_twice(pair: Callable) -> None:
    p = pair("""
pc = dy.ParameterCollection()
builder = dy.LSTMBuilder(1, 3, 3, pc)
def f(seen, s, x):
    y = dy.tanh(x)
    t = s.add_input(y)
    seen.append(t)
    u = t.add_input(x)
    o, again, before = u.output(), u.output(), s.output()
    return s, t, t, u, (u, o), o, again, before
""")

    def use(m: Any) -> list:
        out: list = []
        s, seen = m.builder.initial_state().add_input(vector(1)), []
        for i in range(8):
            s0, t, t1, u, *rest = m.f(seen, s, vector(i))
            assert s0 is s and t is t1 is seen[-1] and u.prev() is t and t.prev() is s
            out += [[s0, t, t1, u, *rest], seen[-1]]
            s = u
        return out

    for module in (p.plain, p.other):
        for q in module.pc.parameters_list():
            q.set_value(np.linspace(-1, 1, np.prod(q.shape())).reshape(q.shape()))
    for _ in range(3):
        p.agree(use)
    assert p.hits > 10, p.statistics


@pytest.mark.parametrize("same_first", [True, False])
def test_review_sees_other_objects(same_first: bool) -> None:
    """A region that returned one object twice and then two of one node, or the other way, is left alone."""
    state_slot = (0, 0, None, 0, 0, *(i == 3 for i in range(8)), 0, 0, [], None, False, False)
    input_slot = (0, 0, None, 0, 0, *[False] * 8, 0, 1, [], None, False, False)
    recorded = (2, None)
    spec = ("here", 2, (state_slot, input_slot), (), (3, (recorded, recorded)), None)
    region = dy._core._Region(spec, set())
    builder = dy.SimpleRNNBuilder(1, 3, 3, dy.ParameterCollection())
    dy.renew_cg()
    for run in range(2):
        start, x = builder.initial_state(), vector(run)
        assert region(start, x) is None, f"run {run} is watched"
        state = start.add_input(x)
        out = state.output()
        region(done=(out, out if (run == 0) == same_first else state.output()))
        off = region.statistics()["off"]
        assert ("other results" in off) == (run == 1), f"run {run}: {region.statistics()}"


def test_none_in_the_place_of_what_has_died(pair: Callable) -> None:
    p = pair("""
def f(x, kind):
    y = dy.tanh(x)
    z = dy.exp(y) if kind is None else dy.sin(y)
    return z + x
""")

    def use(m: Any) -> list:
        kind: Any = type("Kind", (), {})
        out = [m.f(vector(i), kind) for i in range(6)]
        kind = None
        gc.collect()  # a class is in cycles
        return out + [m.f(vector(i), kind) for i in range(6)]

    p.agree(use)
    assert p.hits > 3, p.statistics


def test_counters(pair: Callable) -> None:
    """Numbers that are counted between ops stop no region from being learned, whatever they become."""
    p = pair("""
def f(xs, n, one, first=0):
    count, steps, loss = 0, 0.5, 0
    other = first
    outs = []
    for x in xs:
        y = dy.tanh(x) + x
        count += n
        z = dy.cmult(y, y) + y
        steps += one
        other += one
        outs.append(z)
        loss += dy.sum_elems(z)
    return outs, loss, count, steps, other
def g(x, y):
    h, k = 0, 0
    a = dy.tanh(x) + x
    h += a
    k += y
    return h, k, dy.exp(a) + k
def swap(x, n):
    c = 0
    y = dy.tanh(x) + x
    c += n
    c = [c]
    c += [n]
    return y, c
""")

    def use(m: Any) -> list:
        out: list = []
        for i in range(8):
            xs = [vector(i), vector(-i)]
            out += [m.f(xs, i, 0.1 * i), m.f(xs, 0.1, i, 2), m.f(xs, [i] * 0 or i, vector(1), vector(2))]
            out += [m.g(vector(i), vector(2)), m.g(vector(i), 3), m.swap(vector(i), i)]
        return out

    for _ in range(3):
        p.agree(use)
    assert p.hits > 60, p.statistics


def test_class_that_changes_while_numbers_of_classes_start_again(pair: Callable) -> None:
    """Before Python 3.11 a class that changed may get the number back that it had."""
    p = pair(
        MODEL
        + """
class Other:
    def f(self, x):
        y = self.W * x
        return dy.tanh(y) + x
o = Other()
"""
    )
    for module in (p.plain, p.other):
        module.m = module.Model()
        module.Other.W = module.m.W
    for turn in range(12):
        for module in (p.plain, p.other):
            getattr(sys, "_clear_type_cache", lambda: None)()
            module.Other.W = (module.m.W, module.m.U)[turn % 2]
            for _ in range(turn // 4):
                type("Odd", (), {}).W = 1
        p.agree(lambda m: [m.o.f(vector(i)) for i in range(4)])
        if turn == 0:
            p.agree(lambda m: [m.o.f(vector(i)) for i in range(4)])
    assert p.hits > 20, p.statistics


SAME_LISTS = {
    "two names": ("b = a", "a, b"),
    "in a tuple twice": ("b = (a, a)", "a, b"),
    "nested": ("b = [a, [a], (a, h)]\n    c = b[1]\n    c.append(a)", "b, a, c"),
    "changed under the other name": ("b = a\n    b.append(e)\n    a.append(h)", "a, b"),
    "appended and kept": ("seen.append(a)\n    a.append(e)", "a"),
    "appended twice": ("seen.append(a)\n    seen.append((a, h))", "h"),
    "equal but apart": ("b = [h, x]\n    c = a", "a, b, c"),
    "by a function": ("b, c = both(a, h)", "a, b, c"),
    "in an op": ("b = a\n    e = e + dy.esum(b)\n    b.append(e)", "a, b"),
    "in itself": ("a.append(a)\n    b = h", "len(a), b"),
    "in itself, deeper": ("b = [a]\n    a.append((h, b))", "len(a), len(b), h"),
    "empty": ("a = []\n    b = a", "a, b"),
}


@pytest.mark.parametrize("statement, result", SAME_LISTS.values(), ids=SAME_LISTS)
def test_same_list_twice(pair: Callable, statement: str, result: str) -> None:
    """A list that a region makes is one list, however many names it has."""
    both = "def both(a, h):\n    c = [h]\n    return a, (c, c)\n"
    p = pair(both + BOTH_WAYS.format(start="\n    a = [h, x]", statement=statement, result=result))

    def use(m: Any) -> list:
        out: list = []
        for i in range(8):
            for f in (m.f, m.g):
                x, seen = vector(i), [vector(-i)]
                out += [x, seen, f(seen, x)]
        return out

    for _ in range(3):
        p.agree(use)
    assert p.hits > 20, p.statistics


def test_list_changed_after_the_block(pair: Callable) -> None:
    """Each run of a region makes a list of its own, under all its names."""
    p = pair("""
def f(x):
    a = b = [dy.tanh(x), dy.exp(x)]
    both = (a, b)
    return both
def g(x, n):
    a = b = [dy.tanh(x), dy.exp(x)]
    for i in range(n):
        a.append(i)
        b = b if i else [7]
        y = a[0] + a[1]
        b.append(y)
    return a, b
""")

    def use(m: Any) -> list:
        out: list = []
        for i in range(8):
            a, b = m.f(vector(i))
            a.append(i)
            b.insert(0, None)
            out += [a, b, m.g(vector(i), i % 3)]
        return out

    for _ in range(3):
        p.agree(use)
    assert p.hits > 10, p.statistics


LISTS_READ = {
    "before": ("s.append(dy.tanh(s[-1]) + x)", "x"),
    "result": ("s.append(dy.tanh(s[-1]) + x)", "s[0]"),
    "before, into itself": ("s.append((s[-1] + x, dy.exp(s[0])))", "len(s)"),
    "after": ("s.append(dy.tanh(x) + x)\n    y = s[-1] + x", "y"),
    "before and after": ("y = s[-1] + x\n    s.append(dy.tanh(y))\n    z = s[-1] + y", "y, z"),
    "through another name": ("s.append(dy.tanh(x) + x)\n    y = t[-1] + x", "y"),
    "an item that was read before": ("a = s[-1]\n    s.append(dy.tanh(a) + x)\n    y = a + x", "y, a"),
    "a list in the list": ("a = n[0]\n    n[0].append(dy.tanh(x) + x)\n    y = a[-1] + x", "y"),
    "the list's list": ("a = n[0]\n    a.append(dy.tanh(a[-1]) + x)\n    n.append(a)", "x"),
    "as a whole, before": ("s.append(dy.esum(s) + x)", "s[-1]"),
    "as a whole, after": ("s.append(dy.tanh(x) + x)\n    y = dy.esum(s) + x", "y"),
    "taken apart after": ("q.append(dy.tanh(x) + x)\n    a, b = q[0], q[1]\n    y = a + b", "y"),
    "counted before": ("a, b = q\n    q.append(dy.tanh(a) + b)", "a"),
    "counted after": ("y = dy.tanh(x) + x\n    q.append(y)\n    a, b = q", "a, b"),
    "twice": ("s.append(dy.tanh(s[-1]) + x)\n    s.append(dy.exp(s[-1]))", "s"),
    "two lists": ("y = t[-1] + s[0]\n    s.append(y)\n    q.append(dy.exp(x) + y)", "y"),
    "two lists, after": ("s.append(dy.tanh(t[-1]) + x)\n    q.append(dy.exp(x) + s[-2])", "q[-1]"),
}


LISTS_LEARNED = {
    "before",
    "before, into itself",
    "an item that was read before",
    "counted before",
    "two lists",
}


@pytest.mark.parametrize("name", LISTS_READ)
@pytest.mark.parametrize("same", [False, True], ids=["other lists", "one list"])
def test_lists_that_are_read_and_appended_to(pair: Callable, name: str, same: bool) -> None:
    """What is read of a list before something is appended to it is as it was; after that it is not."""
    statements, result = LISTS_READ[name]
    p = pair(f"""
def f(s, t, q, n, x):
    {statements}
    return {result}
""")

    def use(m: Any) -> list:
        out: list = []
        for i in range(8):
            x = vector(0.1 * i)
            s = [dy.exp(x), dy.tanh(x)]
            t, q = (s, s) if same else ([dy.sqrt(vector(2.0))], [vector(0.1), vector(0.2)])
            n = [s, t]
            try:
                out.append(m.f(s, t, q, n, x))
            except Exception as e:  # noqa: BLE001 - must be the same on both sides
                out.append(type(e).__name__)
            out += [s, t, q, len(n)]
        return out

    for _ in range(3):
        p.agree(use)
    assert p.hits > 10 or same or name not in LISTS_LEARNED, p.statistics


def test_parameters_that_a_revert_took_back(pair: Callable) -> None:
    """A region whose place among the launches is known, in a graph that has its parameters no longer."""
    p = pair(
        MODEL
        + """
m = Model()
def f(x):
    y = dy.tanh(m.W * x)
    z = dy.reshape(y, (3,)) + y[0:3]
    return dy.dropout(z + m.U * y, 0.5) + dy.zeros(3), y
"""
    )

    def use(module: Any) -> list:
        out: list = []
        x = vector(0.5)
        for turn in range(4):
            dy.cg_checkpoint()
            for _ in range(turn + 2):
                module.f(x)
            dy.cg_revert()
            if turn % 2:
                out += [module.f(x), module.f(dy.exp(x))]
        return out

    for turn in range(4):
        left, right = outcome(use, p.plain), outcome(use, p.other)
        for key in ("nodes", "ops", "others", "identities", "error"):
            assert left[key] == right[key], f"graph {turn}: other {key}"
        np.testing.assert_array_equal(left["values"], right["values"])
        # After a revert gradients may be added up in another order, with regions and without.
        np.testing.assert_allclose(left["gradients"], right["gradients"], rtol=1e-5)
    assert p.hits > 20, p.statistics


def test_numbers_that_nodes_keep(pair: Callable) -> None:
    """Their bits may be those of an index: 0.0 and row 0."""
    p = pair("""
def f(x, n, r):
    y = dy.tanh(x)
    return dy.pick(y, n) * r + dy.sum_elems(y) * 0.0
""")

    def use(module: ModuleType) -> list:
        return [module.f(dy.inputVector([4, 5, i]), i % 3, (0.0, 2.5, -1.5)[i // 3 % 3]) for i in range(24)]

    p.agree(use)
    (statistics,) = p.statistics.values()
    assert (statistics["specialisations"], statistics["refusals"]) == (3, 0), statistics


def test_numbers_beside_parameters(pair: Callable) -> None:
    """Equal values are recorded once in a graph, but not where a node keeps a number."""
    p = pair("""
def f(a, x):
    g = dy.logistic(a)
    return dy.cmult(1 - g, dy.sum_elems(x)) + g * 0.5
""")

    def use(module: ModuleType) -> list:
        a = dy.ParameterCollection().add_parameters(1, init=0.3)
        return [module.f(a, dy.inputVector([i, 2])) for i in range(20)]

    p.agree(use)
    (statistics,) = p.statistics.values()
    assert statistics["hits"] > 10 and statistics["refusals"] == 0, statistics
