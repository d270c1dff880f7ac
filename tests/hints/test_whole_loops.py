"""Loops whose whole body is a region, recorded iteration after iteration by one call."""

from __future__ import annotations

from typing import Any, Callable

import pytest
from support.loop_programs import again, model_of
from support.region_models import vector

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
    "the list that grows is iterated over": (
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


WORDS = ([3, 4, 5, 6, 7, 8, 2, 4], [8, 7, 6, 5], [2, 2, 2, 2, 3], [1], [0, 1, 5, 6, 8, 4, 3])


@pytest.mark.usefixtures("only_regions")
@pytest.mark.parametrize("text, alone", LOOPS.values(), ids=list(LOOPS))
def test_loops(pair: Callable, text: str, alone: bool) -> None:
    p = model_of(pair, text)
    for words in WORDS * 4:
        p.agree(lambda m, words=words: [m.model.run(words, vector(words[0]))])
    assert p.hits > 15, p.statistics
    if alone:
        assert again(p) > 10, p.statistics


@pytest.mark.parametrize("text", [text for text, _ in LOOPS.values()], ids=list(LOOPS))
def test_walked_loops(pair: Callable, text: str) -> None:
    p = model_of(pair, text)
    for words in WORDS * 12:
        p.agree(lambda m, words=words: [m.model.run(words, vector(words[0]))])
    assert p.hits > 15, p.statistics


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
