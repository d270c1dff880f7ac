"""Loops whose whole body is a region, recorded iteration after iteration by one call."""

from __future__ import annotations

import ast
import gc
from typing import Any, Callable

import dynet_compat as dy
import numpy as np
import pytest
from dynet_compat.hints.rewrite import rewriter
from test_regions import MODEL, vector


def again(p: Any) -> int:
    """Iterations that were recorded as the one before them, without guards."""
    return sum(s["loop_hits"] for s in p.statistics.values())


def model_of(pair: Callable, methods: str) -> Any:
    """A model with the methods, and a builder, in both modules."""
    p = pair(MODEL + methods)
    for module in (p.plain, p.other):
        dy.reset_random_seed(2)
        module.model = module.Model()
        module.model.rnn = dy.VanillaLSTMBuilder(1, 3, 3, module.model.pc)
    return p


# Methods of the model: what they are called with, and whether iterations are recorded without guards.
LOOPS = {
    "a state goes from one to the next": (
        """
    def run(self, words, x):
        s, losses = self.rnn.initial_state(), []
        for w, t in zip(words, [2, 1, 0, 0, 1, 2, 1, 0]):
            s = s.add_input(self.E[w])
            losses.append(dy.pickneglogsoftmax(dy.affine_transform([self.b, self.W, s.output()]), t))
        return losses, s.output(), s.prev().output(), t
""",
        True,
    ),
    "expressions go from one to the next": (
        """
    def run(self, words, x):
        h, c = x, dy.tanh(x)
        for w in words:
            i = dy.logistic(self.W * self.E[w] + self.U * h)
            c = dy.cmult(i, c) + self.b
            h = dy.tanh(c)
        return h, c, i, w
""",
        True,
    ),
    "two names change places": (
        """
    def run(self, words, x):
        a, b = x, dy.tanh(x)
        for w in words:
            a, b = b, dy.tanh(self.W * a) + self.E[w]
        return a, b
""",
        True,
    ),
    "a number goes from one to the next": (
        """
    def run(self, words, x):
        before, h, out = 0, x, []
        for w in words:
            h = dy.tanh(self.W * h + self.E[before] + self.E[w])
            before = w
            out.append((h, before, w))
        return out, before
""",
        True,
    ),
    "an item that is an expression": (
        """
    def run(self, words, x):
        xs, out = [self.E[w] for w in words], []
        h = x
        for y in xs:
            h = dy.tanh(self.W * y + h)
            out.append(h)
        return out
""",
        True,
    ),
    "items that are two expressions": (
        """
    def run(self, words, x):
        xs, out = [self.E[w] for w in words], []
        for y, z in zip(xs, xs[::-1]):
            out.append(dy.tanh(self.W * y + z))
        return out, y, z
""",
        True,
    ),
    "the last of a list that grows": (
        """
    def run(self, words, x):
        seen = [x]
        for w in words:
            seen.append(dy.tanh(self.W * seen[-1]) + self.E[w])
        return seen
""",
        True,
    ),
    "the list that grows is gone over": (
        """
    def run(self, words, x):
        seen = [x]
        for w, y in zip(words, seen):
            y = dy.tanh(self.W * y) + self.E[w]
            seen.append(y)
        more = [x, x + x]
        for w, y in zip(words, more):
            y = dy.tanh(self.W * y) + self.E[w]
            seen.append(y)
        return seen, y
""",
        True,
    ),
    "masks": (
        """
    def run(self, words, x):
        self.rnn.set_dropout(0.5)
        s, out = self.rnn.initial_state(), []
        for w in words:
            s = s.add_input(dy.dropout(self.E[w], 0.3))
            out.append(s.output() + dy.random_normal(3))
        return out
""",
        True,
    ),
    "nested targets": (
        """
    def run(self, words, x):
        out, h = [], x
        for i, (w, [t, u]) in enumerate(zip(words, [(8 - v, v) for v in words])):
            h = dy.tanh(self.W * h + self.E[w]) + self.E[t]
            out.append(h)
        return out, i, w, t, u
""",
        True,
    ),
    "else": (
        """
    def run(self, words, x):
        h = x
        for w in words:
            h = dy.tanh(self.W * h + self.E[w])
        else:
            h = h + x
        return h
""",
        True,
    ),
    "a dict's items, backwards": (
        """
    def run(self, words, x):
        h = x
        for w, v in {w: v for v, w in enumerate(words)}.items():
            h = dy.tanh(self.W * h + self.E[w])
        for w in reversed(words):
            h = dy.tanh(self.U * h + self.E[w])
        return h, w, v
""",
        True,
    ),
    "attention that keeps what it needs of all steps": (
        """
    def attend(self, s, columns, kept):
        q = self.U * dy.concatenate(list(s.s()))[0:3]
        weights = dy.softmax(dy.transpose(dy.colwise_add(kept, q)) * self.b)
        return columns * weights
    def run(self, words, x):
        columns = dy.concatenate_cols([self.E[w] for w in words])
        kept = None
        s, out, last = self.rnn.initial_state().add_input(x), [], x
        for w in words:
            kept = kept or self.W * columns
            s = s.add_input(self.attend(s, columns, kept) + last)
            last = self.E[w]
            out.append(-dy.log(dy.pick(dy.softmax(self.W * s.output()), 1)))
        return out, s.output(), kept, last
""",
        True,
    ),
    "one or the other": (
        """
    def run(self, words, x):
        h, first = None, x
        for w in words:
            h = dy.tanh(self.W * (h or x)) if first is None else dy.tanh(first)
            first = None
            x = (h and self.E[w]) if not first else x
        return h, first, x
""",
        True,
    ),
    "a list of lists": (
        """
    def run(self, words, x):
        rows = [[] for w in words]
        for row, w in zip(rows, words):
            row.append(dy.tanh(self.W * x + self.E[w]))
            row.append(self.E[w])
        return rows
""",
        False,  # each time another list is appended to
    ),
    "an object under two names": (
        """
    def run(self, words, x):
        h, kept = x, []
        for w in words:
            h = last = dy.tanh(self.W * h + self.E[w])
            kept.append([last, h, kept])
        return [k[:2] for k in kept], h, last
""",
        True,
    ),
}


@pytest.mark.parametrize("text, alone", LOOPS.values(), ids=list(LOOPS))
def test_loops(pair: Callable, text: str, alone: bool) -> None:
    p = model_of(pair, text)
    for words in ([3, 4, 5, 6, 7, 8, 2, 4], [8, 7, 6, 5], [2, 2, 2, 2, 3], [1], [0, 1, 5, 6, 8, 4, 3]) * 4:
        p.agree(lambda m, words=words: [m.model.run(words, vector(words[0]))])
    assert p.hits > 15, p.statistics
    if alone:
        assert again(p) > 10, p.statistics


def test_nothing_to_go_over(pair: Callable) -> None:
    p = pair("""
def f(xs, x):
    for n, y in enumerate(xs):
        x = dy.tanh(x + y)
    return [x, n, y]
""")
    for xs in ([1, 2, 3, 4], [], [1], [1, 2, 3]) * 3:
        p.agree(lambda m, xs=xs: [m.f([vector(i) for i in xs], vector(0.5))])
    assert p.hits > 5


def test_names_keep_what_they_were_where_there_is_nothing(pair: Callable) -> None:
    p = pair("""
def f(xs, x):
    n = y = z = None
    for n, y in enumerate(xs):
        z = dy.tanh(x + y)
        x = z + z
    return [x, n, y, z]
""")
    for xs in ([1, 2, 3, 4], [], [1], [1, 2, 3], []) * 3:
        p.agree(lambda m, xs=xs: [m.f([vector(i) for i in xs], vector(0.5))])


@pytest.mark.parametrize("words", [[1, 2, 3, 99, 4], [1, 2, 3, "a", 2], [99], [1, 2, 3, 4, -20]])
def test_an_iteration_that_fails(pair: Callable, words: list) -> None:
    """Where it fails, and what was appended before, is as without."""
    p = model_of(
        pair,
        """
    def run(self, words, x, out):
        h = x
        try:
            for w in words:
                h = dy.tanh(self.W * h + self.E[w])
                out.append(h)
        except Exception as error:
            return [h, w, type(error).__name__]
        return [h, w]
""",
    )

    def use(m: Any) -> list:
        out: list = []
        results = [m.model.run([4, 5, 6, 7, 8], vector(0.3), out) for _ in range(6)]
        return [*results, m.model.run(words, vector(0.2), out), m.model.run([3, 4], vector(0.1), out), out]

    p.agree(use)
    assert again(p) > 5


@pytest.mark.parametrize("items", ["[(1, 2), (5, 6, 7)]", "[(1, 2), [3, 4], 'ab', 5]", "[(1, 2), range(2)]"])
def test_items_of_other_shapes(pair: Callable, items: str) -> None:
    p = model_of(
        pair,
        f"""
    def run(self, x):
        h, n = x, None
        try:
            for w, n in [(1, 2), (3, 4), (2, 2), *{items}]:
                h = dy.tanh(self.W * h + self.E[w])
        except Exception as error:
            return [h, n, str(error)]
        return [h, n]
""",
    )
    for _ in range(4):
        p.agree(lambda m: [m.model.run(vector(0.2))])
    assert p.hits > 5


def test_an_iterator_that_runs_code(pair: Callable) -> None:
    """Between the items it changes what the region reads, and reads what it left behind."""
    p = model_of(
        pair,
        """
    def run(self, words, x):
        out, seen, h = [], [], x
        def items():
            for w in words:
                seen.append((len(out), h))
                self.W, self.U = self.U, self.W
                yield w
        for w in items():
            h = dy.tanh(self.W * h + self.E[w])
            out.append(h)
        for w in map(lambda w: (seen.append(len(out)), w)[1], words):
            h = dy.tanh(self.W * h + self.E[w])
            out.append(h)
        for w, v in zip(items(), words):
            h = dy.tanh(self.W * h + self.E[w])
            out.append(h)
        return out, seen
""",
    )
    for words in ([1, 2, 3, 4, 5], [5, 4, 3], [3, 2, 1, 6]) * 3:
        p.agree(lambda m, words=words: [m.model.run(words, vector(0.2))])
    assert p.hits > 10
    assert again(p) == 0


def test_an_iterator_that_fails(pair: Callable) -> None:
    p = model_of(
        pair,
        """
    def run(self, words, x, sizes):
        h = x
        for w, _ in zip(words, sizes):
            h = dy.tanh(self.W * h + self.E[w])
            self.last = h
        for w, v in sizes.items():
            h = dy.tanh(self.W * h + self.E[w])
            sizes.setdefault(w + v, 1)
        return [h]
    def fail(self, x, sizes):
        h = x
        n = 0
        try:
            for w in sizes:
                h = dy.tanh(self.W * h + self.E[w])
                n = self.grow(sizes, n)
        except RuntimeError as error:
            return [h, str(error)]
    def grow(self, sizes, n):
        return sizes.update({n + 5: 1}) or n + 1
""",
    )
    for _ in range(4):
        p.agree(lambda m: [m.model.run([1, 2, 3, 4], vector(0.1), {1: 1, 2: 1, 3: 1})])
        p.agree(lambda m: [m.model.fail(vector(0.1), {1: 1, 2: 1})])


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
    r.codes()
    assert ast.unparse(r.tree).count(".loop(") == KINDS[loop]
