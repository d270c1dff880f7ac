"""Scripts that read, rebind and change things in ways that a region must not be wrong about."""

from __future__ import annotations

import gc
import sys
import types
from typing import Any, Callable

import dynet_compat as dy
import numpy as np
import pytest
from support.modules import flat
from test_regions import MODEL, outcome, vector


def test_name_assigned_after_append(pair: Callable) -> None:
    p = pair("""
def f(outs, x):
    y = dy.tanh(x)
    outs.append(y)
    outs = []
    z = y + x
    for _ in range(1):
        pass
    return [outs, z]
""")

    def use(m: Any) -> list:
        out: list = []
        return [m.f(out, vector(i)) for i in range(6)] + [out]

    p.agree(use)


def test_parameter_as_input(pair: Callable) -> None:
    p = pair("""
import numpy as np
pc = dy.ParameterCollection()
W = pc.parameters_from_numpy(np.eye(3) * 2)
U = pc.parameters_from_numpy(np.eye(3) * 5)
def f(w, x):
    a = w * x
    return dy.const_parameter(W) * a
""")
    for name in "WWWUWU":
        p.agree(lambda m, name=name: [m.f(dy.const_parameter(getattr(m, name)), vector(1.0))])


def test_bias_as_input_of_a_builder() -> None:
    """Two graphs, in the first of which the input is the builder's own bias."""
    results = []
    for with_bias in (True, False):
        dy.reset_random_seed(3)
        builder = dy.SimpleRNNBuilder(1, 3, 3, dy.ParameterCollection())
        for graph in range(2):
            dy.renew_cg()
            state = builder.initial_state()
            bias = with_bias and graph == 0
            x = builder.get_parameter_expressions()[0][2] if bias else dy.inputVector([1, 2, 3])
            out = state.add_input(x).output().npvalue()
        results.append(out)
    np.testing.assert_array_equal(*results)


def test_other_zip(pair: Callable) -> None:
    p = pair("""
def outer():
    def zip(a, b):
        return [(p, q) for p in a for q in b]
    def inner(xs, ys):
        return [dy.tanh(a) + b for a, b in zip(xs, ys)]
    return inner
def plain(xs, ys):
    return [dy.tanh(a) + b for a, b in zip(xs, ys)]
""")

    def use(m: Any) -> list:
        xs, ys = [vector(i) for i in range(3)], [vector(-i) for i in range(4)]
        return [m.outer()(xs, ys), m.plain(xs, ys)]

    for _ in range(3):
        p.agree(use)
    for module in (p.plain, p.other):
        module.zip = lambda a, b: [(a[0], b[0])] * 2
    p.agree(use)


def test_name_of_an_enclosing_function(pair: Callable) -> None:
    p = pair(
        MODEL
        + """
M = None
def g(x):
    return dy.tanh(M.W * x) + x
def outer(M):
    def inner(x):
        y = g(x)
        return y + M.U * x
    return inner
"""
    )
    for module in (p.plain, p.other):
        module.M, module.N = module.Model(), module.Model()
        module.f = module.outer(module.N)
    for _ in range(4):
        p.agree(lambda m: [m.f(vector(2.0))])
    for module in (p.plain, p.other):
        module.M.W = module.M.U
    p.agree(lambda m: [m.f(vector(2.0))])


def test_element_that_changes_what_the_others_read(pair: Callable) -> None:
    p = pair("""
K = 2.0
class Odd:
    def __mul__(self, other):
        global K
        K += 1.0
        return dy.ones(3)
def f(xs, y):
    return [x * y + K for x in xs]
""")

    def use(m: Any) -> list:
        m.K = 2.0
        one = dy.inputVector([2.0])
        return m.f([one] * 0 + [dy.inputVector([i + 1.0]) for i in range(4)] + [m.Odd()] + [one, one], one)

    for _ in range(4):
        p.agree(use)


def test_append_of_something_that_is_no_list(pair: Callable) -> None:
    p = pair("""
K = 2.0
class Log:
    def append(self, x):
        global K
        K = 5.0
class Bad:
    def append(self, x):
        raise ValueError("no")
def f(l, x):
    y = dy.tanh(x)
    l.append(y)
    z = y * K
    return z
""")

    def use(kind: Callable) -> Callable:
        def run(m: Any) -> list:
            m.K = 2.0
            return [m.f(kind(m), vector(i)) for i in range(4)]

        return run

    for kind in (lambda m: [], lambda m: m.Log(), lambda m: [], lambda m: m.Bad(), lambda m: []):
        p.agree(use(kind))


def test_lists_keep_their_identity(pair: Callable) -> None:
    p = pair("""
def f(xs, e):
    ys = xs + xs
    t = dy.tanh(e)
    a = b = [e] + xs[0]
    for _ in range(1):
        pass
    a.append(dy.exp(t))
    return ys, t, a, b
""")

    def use(m: Any) -> list:
        out = []
        for i in range(5):
            xs = [[vector(i)]]
            ys, t, a, b = m.f(xs, vector(-i))
            assert ys[0] is xs[0] and a is b
            out.append([t, a])
        return out

    p.agree(use)


def test_getters_run_as_often(pair: Callable) -> None:
    p = pair("""
class Plain:
    def __init__(self):
        self.x = dy.ones(3)
class Getter:
    n = 0
    @property
    def x(self):
        self.n += 1
        return dy.inputVector([self.n, 1, 2])
class Missing:
    n = 0
    def __getattr__(self, name):
        self.n += 1
        return dy.inputVector([self.n, 1, 2])
def f(o, u):
    y = dy.tanh(o.x)
    z = y + o.x
    return z + u
def g(pairs):
    return [dy.tanh(b) + a.x for a, b in pairs]
""")

    def use(m: Any) -> list:
        out = []
        for kind in (m.Plain, m.Getter, m.Missing):
            o = kind()
            out += [m.f(o, vector(i)) for i in range(4)]
            out += m.g([(o, vector(i)) for i in range(3)])
            out.append(getattr(kind, "n", None) is not None and vars(o).get("n"))
        return out

    for _ in range(3):
        p.agree(use)


def test_exception_in_a_run_that_is_compared(pair: Callable) -> None:
    """A region that gives up after a watched run ended with an exception."""
    p = pair("""
def f(l, x, k):
    y = dy.tanh(x)
    l.append(y)
    z = y * k
    return z
""")
    p.agree(lambda m: [m.f([], vector(i), float(i)) for i in range(256)])

    class Bad(list):
        def append(self, x: Any) -> None:
            raise ValueError("no")

    def use(m: Any) -> list:
        for k in (255.0, 1e6, 1e7):
            with pytest.raises(ValueError, match="no"):
                m.f(Bad(), vector(1), k)
        return [m.f([], vector(i), 1e6 + i) for i in range(50)]

    p.agree(use)


def test_functions_changed_after_they_were_learned(pair: Callable) -> None:
    p = pair("""
K = 1.0
def g(x, k=2.0):
    y = dy.tanh(x)
    return y * k + K
def h(x, k=2.0):
    y = dy.exp(x)
    return y * k + K
def f(x):
    y = g(x)
    return y + x
""")

    def use(m: Any) -> list:
        return [m.f(vector(i)) for i in range(4)]

    p.agree(use)
    for change in (
        lambda m: setattr(m.g, "__defaults__", (5.0,)),
        lambda m: setattr(m.g, "__code__", m.h.__code__),
        lambda m: setattr(m, "g", types.FunctionType(m.g.__code__, {"dy": dy, "K": 9.0}, "g", (3.0,))),
    ):
        for module in (p.plain, p.other):
            change(module)
        p.agree(use)


def test_method_of_another_object(pair: Callable) -> None:
    p = pair(
        MODEL
        + """
class Other(Model):
    def g(self, x):
        y = self.W * x
        return dy.tanh(y)
    def f(self, x):
        r = self.g(x)
        return r + self.other.U * x
"""
    )
    for module in (p.plain, p.other):
        module.a, module.b = module.Other(), module.Other()
        module.a.other = module.b
        module.a.g = module.b.g
    p.agree(lambda m: [m.a.f(vector(i)) for i in range(4)])
    for module in (p.plain, p.other):
        module.b.W = module.b.U
    p.agree(lambda m: [m.a.f(vector(i)) for i in range(4)])


def test_private_names_and_docstrings(pair: Callable) -> None:
    p = pair('''
class C:
    def __init__(self):
        self.__v = 2.0
        setattr(self, "__v", 4.0)
        self.x = dy.ones(3)
    def f(self, ns, y):
        return [dy.tanh(n.x) * n.__v + y for n in ns]
def doc(x):
    """Text."""
    y = dy.tanh(x)
    return y + x
''')
    p.agree(lambda m: [m.C().f([m.C(), m.C()], vector(1)) for _ in range(3)])
    assert p.other.doc.__doc__ == "Text."


def test_interrupt_while_reading(pair: Callable) -> None:
    p = pair("""
class Stop:
    @property
    def x(self):
        raise KeyboardInterrupt
def f(o, u):
    y = dy.tanh(o.x)
    return y + u
""")
    for module in (p.plain, p.other):
        with pytest.raises(KeyboardInterrupt):
            module.f(module.Stop(), vector(1))


CHANGES: dict[str, Callable[[Any], object]] = {
    "item": lambda d: d.__setitem__("W", d["V"]),
    "and back": lambda d: d.__setitem__("W", d["U"]),
    "update": lambda d: d.update(W=d["V"], k=3),
    "a number": lambda d: d.__setitem__("k", 2),
    "removed": lambda d: (d.pop("W"), d.setdefault("W", d["V"])),
    "emptied": lambda d: [old := dict(d), d.clear(), d.update(old)],
    "another key": lambda d: d.__setitem__("new", 1),
    "a function": lambda d: d.__setitem__("f", dy.logistic),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_items_of_a_dict_that_changes(pair: Callable, change: Callable[[Any], object]) -> None:
    """Items are not read again while their dict stays as it is."""
    p = pair("""
import numpy as np
pc = dy.ParameterCollection()
W, V, U = (pc.parameters_from_numpy(np.eye(3) * i) for i in (2, 3, 5))
def items():
    return {"W": W, "V": V, "U": U, "k": 1, "f": dy.tanh}
def block(d, x):
    y = d["f"](d["W"] * x) + d["U"] * x
    return dy.concatenate([y, dy.pick(y, d["k"] - d["k"]) + d["k"]])
""")

    def use(m: Any) -> list:
        mine, other = m.items(), m.items()
        other["W"] = m.V
        results = [m.block(mine, vector(i)) for i in range(4)]
        for d in (mine, mine, other):
            change(d)
            results += [m.block(d, vector(i)) for i in range(2)] + [m.block(other, vector(1))]
        other = m.items()  # perhaps where another dict was
        other["W"] = m.V
        return results + [m.block(other, vector(1)), m.block(dict(mine), vector(1))]

    for _ in range(3):
        p.agree(use)


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
    state_slot = (0, 0, None, 0, 0, False, False, False, True, False, 0, 0, [], None, False, False)
    input_slot = (0, 0, None, 0, 0, False, False, False, False, False, 0, 1, [], None, False, False)
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
        region.done((out, out if (run == 0) == same_first else state.output()))
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
