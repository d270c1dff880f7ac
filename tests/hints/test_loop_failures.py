"""Loops recorded by one call whose items, iterators or iterations fail."""

from __future__ import annotations

import ast
import gc
from typing import Any, Callable

import dynet_compat as dy
import numpy as np
import pytest
from dynet_compat.hints.rewrite import rewriter
from support.loop_programs import again, model_of
from support.region_models import vector


def test_many_iterations(pair: Callable) -> None:
    """More than one call records, and more than it takes until what was learned is looked at again."""
    p = model_of(
        pair,
        """
    def run(self, words, x):
        h, out = x, []
        for n, w in enumerate(words):
            h = dy.tanh(self.W * h + self.E[w])
            out.append((h, n))
        return out, n, w
""",
    )
    words = [int(w) for w in np.random.default_rng(1).integers(0, 9, 2500)]
    p.agree(lambda m: [m.model.run(words, vector(0.2))])
    (s,) = (s for s in p.statistics.values() if s["hits"])
    assert s["hits"] > 2400 and s["loop_hits"] > 2300
    assert s["reviews"] >= 2
    p.agree(lambda m: [m.model.run(words[:256], vector(0.2)), m.model.run(words[:257], vector(0.1))])


def test_objects_are_let_go(pair: Callable) -> None:
    """One by one where the script could notice, and none is kept."""
    p = pair("""
gone = []
class Item:
    def __init__(self, x):
        self.x = x
    def __del__(self):
        gone.append(1)
def f(items, x):
    for item in items:
        x = dy.tanh(x) + item.x
        last = (item, x)
    del items
    return x
def run(n, x):
    gone.clear()
    y = f([Item(x) for _ in range(n)], x)
    return [y, len(gone)]
""")
    for n in (5, 3, 8, 1):
        p.agree(lambda m, n=n: [m.run(n, vector(0.3))])
    assert p.hits > 5


def test_the_same_function_inside_an_iteration(pair: Callable) -> None:
    p = pair("""
class Twice:
    def __init__(self, x):
        self.x, self.depth = x, 0
    @property
    def value(self):
        self.depth += 1
        return f([self, self], self.x) if self.depth < 3 else self.x
def f(items, x):
    for item in items:
        x = dy.tanh(x) + item.value
        x = dy.rectify(x) + x
    return x
class Plain:
    def __init__(self, x):
        self.value = x
""")

    def use(m: Any) -> list:
        out = []
        for _ in range(4):
            plain = [m.Plain(vector(i)) for i in range(5)]
            out.append(m.f(plain, vector(0.1)))
            out.append(m.f([*plain[:3], m.Twice(vector(0.2)), *plain], vector(0.1)))
        return out

    p.agree(use)
    assert p.hits > 5


def test_side_by_side(pair: Callable) -> None:
    p = model_of(
        pair,
        """
    def run(self, words):
        h = self.E[words[0]]
        while True:
            for w in words:
                h = dy.tanh(self.W * h + self.E[w])
            if dy.sum_elems(h).scalar_value() < 10.0 or len(words) > 20:
                return h
""",
    )
    words = [[1, 2, 3], [4, 5, 6, 7, 8], [2], [3, 3, 3, 3]]
    for _ in range(3):
        p.agree(lambda m: dy.batch_map(m.model.run, words))
    assert again(p) > 5


BROKEN_ITEMS = {
    "an attribute that is not there": ("item.v", "Item(None)"),
    "a slot that is not set": ("item.v", "Slots()"),
    "an index beyond all lists": ("few[item.n]", "Item(few[0], 10**30)"),
    "a key that cannot be compared": ("table[item.key]", "Item(few[0], key=Key())"),
}


@pytest.mark.parametrize("read, broken", BROKEN_ITEMS.values(), ids=list(BROKEN_ITEMS))
def test_an_item_that_cannot_be_read(pair: Callable, read: str, broken: str) -> None:
    """It fails once, where the script does; what was recorded before it stands, and nothing else."""
    p = pair(f"""
class Item:
    def __init__(self, v, n=0, key="a"):
        if v is not None:
            self.v = v
        self.n, self.key = n, key
class Slots:
    __slots__ = ["v", "n", "key"]
class Key(str):
    def __eq__(self, other):
        raise ValueError("not comparable")
    __hash__ = str.__hash__
def f(items, few, table, x, out):
    for item in items:
        y = dy.tanh(x)
        x = y + {read}
        out.append(x)
    return x
def g(items, few, table, x, out):
    return [dy.dropout(x, 0.5) + {read} for item in items]
def broken(few):
    return {broken}
""")

    def use(m: Any) -> Any:
        few = [vector(5), vector(6)]
        table = {"a": vector(7), "b": vector(8)}
        for bad in (None, None, 4, 0, 2, None):
            items = [m.Item(vector(i), i % 2, "ab"[i % 2]) for i in range(6)]
            if bad is not None:
                items[bad] = m.broken(few)
            for function in (m.f, m.g):
                out: list = []
                try:
                    yield function(items, few, table, vector(0.5), out)
                except (AttributeError, IndexError, ValueError, KeyError) as error:
                    yield str(error)
                yield out

    for _ in range(3):
        p.agree(use)
    assert p.hits > 10, p.statistics


def test_an_iterator_goes_when_the_loop_fails(pair: Callable) -> None:
    p = model_of(
        pair,
        """
    def run(self, words, x, log):
        def items():
            try:
                yield from words
            finally:
                log.append("closed")
        h = x
        try:
            for w in items():
                h = dy.tanh(self.W * h + self.E[w])
        except Exception:
            log.append("failed")
        log.append("after")
        return [h]
""",
    )
    logs: list = [[], []]
    for words in ([1, 2, 3], [4, 5, "a", 6], [1, 2]) * 3:
        for log, module in zip(logs, (p.plain, p.other)):
            dy.renew_cg()
            module.model.run(words, vector(0.1), log)
    assert logs[0] == logs[1]


def test_nothing_is_kept_after_a_loop(pair: Callable) -> None:
    p = pair("""
import gc, weakref
class Item:
    def __init__(self, v):
        self.v = v
def f(n, x):
    items = [Item(x) for _ in range(n)]
    first, last = weakref.ref(items[0]), weakref.ref(items[-1])
    for item in items:
        y = dy.tanh(x)
        x = y + item.v
    del items
    before = last() is None
    del item
    return [x, before, first() is None, last() is None]
def fail(n, x):
    items = [Item(x) for _ in range(n)]
    items.append(Item(None))
    first = weakref.ref(items[0])
    try:
        for item in items:
            y = dy.tanh(x)
            x = y + item.v
    except Exception as error:
        items[0].error = error
    return first
def failed(n, x):
    first = fail(n, x)
    gc.collect()
    return [first() is None]
""")
    for n in (3, 5, 2, 6):
        p.agree(lambda m, n=n: [m.f(n, vector(0.2))])
        p.agree(lambda m, n=n: [m.failed(n, vector(0.2))])
    assert p.hits > 8


def test_garbage_that_begins_a_graph(pair: Callable) -> None:
    """Collected while iterations are recorded: the expressions are of a graph that is gone."""
    p = pair("""
import gc
class Garbage:
    def __init__(self):
        self.me = self
    def __del__(self):
        dy.renew_cg()
def f(n, x):
    for i in range(n):
        y = dy.tanh(x) + x
        x = dy.rectify(y)
        k = (x, y, [x])
    return k
""")
    gc.collect()
    gc.freeze()  # what other tests have left would be looked through 640 times
    for module in (p.plain, p.other):
        for n in [*range(1, 41)] * 4:
            dy.renew_cg()
            module.f(5, vector(0.1))
            dy.renew_cg()
            x = vector(0.1)
            gc.collect()
            gc.disable()
            module.Garbage()
            gc.set_threshold(n)
            gc.enable()
            try:
                module.f(6, x)[0].npvalue()
            except (ValueError, RuntimeError) as error:
                assert "graph" in str(error)  # noqa: PT017 - it depends on when garbage is collected
            finally:
                gc.set_threshold(700)
            gc.collect()


def test_a_list_that_is_cleared_by_what_is_let_go(pair: Callable) -> None:
    """When a run is watched, what the one before it read is let go."""
    p = pair("""
lists = []
class Clears:
    def __init__(self, v):
        self.v = v
    def __del__(self):
        for one in lists or ():
            one.clear()
class Item:
    def __init__(self, v):
        self.v = v
def f(xs, ks, x, b):
    k = None
    for o, k in zip(xs, ks):
        y = dy.tanh(x) + o.v
        x = y + b.v
    return [x, str(k)]
def use(vectors, other):
    rows = lambda: ([Item(v) for v in vectors], [str(i) * 50 for i in range(6)])
    for _ in range(4):
        f(*rows(), vectors[0], Item(vectors[1]))
    xs, ks = rows()
    xs[0].v = "bad"
    try:
        f(xs, ks, vectors[0], Clears(vectors[1]))
    except Exception:
        pass
    xs, ks = rows()
    xs[3].v = other
    lists[:] = [xs, ks]
    try:
        f(xs, ks, vectors[0], Item(vectors[1]))
    finally:
        lists.clear()
""")
    for _ in range(3):
        dy.renew_cg()
        p.other.use([vector(i) for i in range(6)], dy.scalarInput(2.0))
    assert p.hits > 10


KINDS = {
    "for w in words: h = f(h, w)": 1,
    "for i, (w, v) in words: h = f(h, w)": 1,
    "for w, w in words: h = f(h, w)": 0,
    "for self.w in words: h = f(h, h)": 0,
    "for w[0] in words: h = f(h, h)": 0,
    "for w, *v in words: h = f(h, w)": 0,
    "for () in words: h = f(h, h)": 0,
    "for w in words:\n  h = f(h, w)\n  if h: break": 0,
    "for w in words:\n  h = f(h, w)\n  print(w)": 0,
    "for w in words: return f(h, w)": 0,
}


@pytest.mark.parametrize("loop", KINDS)
def test_which_loops(loop: str) -> None:
    source = "def f(h, w): return dy.tanh(h) + w\ndef g(self, words, h):\n" + "".join(
        f" {line}\n" for line in loop.splitlines()
    )
    r = rewriter.Rewriter(source, "script.py", {"dy": dy})
    r.rewritten()
    assert ast.unparse(r.tree).count(".loop(") == KINDS[loop]
