"""What walks must do as Python does it: iterators, aliases, keys, builtins, limits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Callable

import pytest
from support.walks import MODEL, ROUNDS, WORDS, hits, model_of, refusals, run_all

BODIES = {
    "items stored ahead of a loop": """
        xs, ys, zs = [[self.step(w) for w in words] for _ in (1, 2, 3)]
        for i, x in enumerate(xs):
            if i + 1 < len(xs):
                xs[i + 1] = self(x, xs[i + 1])
        for i, (y, z) in enumerate(zip(ys, reversed(zs))):
            if i + 1 < len(ys):
                ys[i + 1], zs[-2 - i] = self(y, z), self(z, y)
        rest = list(words)
        h = self.b
        for i, w in enumerate(rest):
            h = self(self.E[w], h)
            if i < 3:
                rest.append(rest.pop(0))
        return [h, xs, ys, zs]
    """,
    "items stored by unpacking": """
        xs = [self.b, self.b]
        for w in words:
            xs[0] = self.step(w)
            xs[1], xs[0] = xs
            for xs[0], (xs[1], x) in [(xs[1], xs)]:
                xs.append(x)
                xs.pop()
        return xs
    """,
    "numbers that are compared": """
        h = self.b
        numbers = [len(words), 4611686018427387904, -1180591620717411303424, 9223372036854775808, True, 2.0]
        numbers += [9223372036854775807, -1]
        for w in words:
            for a in numbers:
                if w < a or a <= -w:
                    h = self(self.E[w], h)
                elif a == w or a != 9223372036854775808:
                    h = dy.tanh(h)
                if a >= 9223372036854775808 or a > 4611686018427387904:
                    h = h + self.b
        return [h, len(words) < 18446744073709551616, len(words) > -18446744073709551616, len(words) == True]
    """,
    "arguments that have defaults": """
        n, y = 0, dy.tanh(self.b)
        for w in words:
            y = dy.tanh(y)
            if n > 99:
                y = self(self.E[w], y)
            n += 1
            k = n % 3
            ys = [y, self.b]
            self.scores.append(dy.softmax(y))
            n += 1  # so that each is recorded alone
            self.scores.append(dy.softmax(y, 0))
            n += 1  # so that each is recorded alone
            self.scores.append(dy.softmax(y, d=0))
            n += 1  # so that each is recorded alone
            self.scores.append(dy.max_dim(y))
            n += 1  # so that each is recorded alone
            self.scores.append(dy.max_dim(y, 0))
            n += 1  # so that each is recorded alone
            self.scores.append(dy.concatenate(ys))
            n += 1  # so that each is recorded alone
            self.scores.append(dy.concatenate(ys, 1))
            n += 1  # so that each is recorded alone
            self.scores.append(dy.concatenate(ys, d=1))
            n += 1  # so that each is recorded alone
            self.scores.append(dy.pick(y, k))
            n += 1  # so that each is recorded alone
            self.scores.append(dy.pick(y, k, 0))
            n += 1  # so that each is recorded alone
            self.scores.append(dy.pick(y, index=k, dim=0))
            n += 1  # so that each is recorded alone
            self.scores.append(dy.hinge(y, k))
            n += 1  # so that each is recorded alone
            self.scores.append(dy.hinge(y, k, 2.0))
            n += 1  # so that each is recorded alone
            self.scores.append(dy.hinge(y, k, m=0.5))
            n += 1  # so that each is recorded alone
            self.scores.append(dy.log_softmax(y))
            n += 1  # so that each is recorded alone
            self.scores.append(dy.log_softmax(y, [0, 2]))
            n += 1  # so that each is recorded alone
            self.scores.append(dy.pickneglogsoftmax(y, k))
            n += 1  # so that each is recorded alone
            self.scores.append(dy.average(ys))
            n += 1  # so that each is recorded alone
            self.scores.append(dy.sum_elems(y))
            n += 1  # so that each is recorded alone
        return [y]
    """,
    "lists in calls": """
        h = self.b
        for w in words:
            x = self(self.E[w], h)
            if w < 7:  # so that each call is recorded alone
                h = dy.esum([x, dy.average([h, x, dy.esum([x])]), h])
            if w > 2:
                h = dy.esum([h, x, h, x, h, x, h, x, h, x])
            if w == 0:
                h = dy.esum([h, [x], w])
            if w == 7:
                h = dy.esum([])
        return [h]
    """,
    "numbers of several digits": """
        n, h, notes = 1073741823, self.b, []
        for w in words:
            h = self(self.E[w], h)
            n *= w - 2 if w != 2 else -1073741825
            for m in (0, -1, 1073741823, 1073741824, -1073741824, 1152921504606846976, 1.5):
                notes.append((n < m, n >= m, n == m, m != w, -m > w, m <= w))
            if w == 8:
                h = self.E[n]
            if w == 7:
                h = [h, h][n]
        return [h, n, notes]
    """,
    "a function in an object, which changes": """
        h = self.b
        for w in words:
            y = self(self.E[w], h)
            h = G.act(y)
            G.act = dy.logistic if w > 2 else dy.rectify
        G.act = dy.tanh
        return [h]

class Globals:
    pass

G = Globals()
G.act = dy.tanh
    """,
    "an iterator is not reversible": """
        h = self.b
        for w in words:
            h = self(self.E[w], h)
        for v, w in reversed(zip(words, words)) if len(words) == 3 else []:
            h = self(self.E[w], h)
        for w in reversed(range(len(words))):
            h = self(self.E[w], h)
        if len(words) > 3:
            for w in reversed(reversed(words)):
                h = self(self.E[w], h)
        return [h]
    """,
    "a function passed as a value": """
        h = self.b
        for w in words:
            h = self.apply(dy.tanh, w % 4, h)
        return [h]

    def apply(self, function, n, h):
        if n == 0:
            return self.V * h
        return function(self.apply(dy.logistic, n - 1, h))
    """,
    "a parameter without a name": """
        h = self.b
        for w in words:
            h = self.plain(self.E[w], h=h) if w != 8 else self.plain(x=self.E[w], h=h)
        return [h]

    def plain(self, x, /, h):
        return dy.tanh(self.V * x + h)
    """,
    "texts in texts": """
        h = self.b
        for w in words:
            h = self(self.E[w], h)
        kind = "" if len(words) > 2 else "a"
        if kind == "" and kind in "":
            h = self(h, h)
        if len(words) > 4 and words[0] in "":
            h = self(h, h)
        return [h]
    """,
    "one tuple": """
        h = self.b
        for w in words:
            h = self(self.E[w], h)
        pair = (h, words)
        parts, n = [], 0
        while n < 4:
            parts.append(pair[:n])
            n += 1
            if n == 2:
                parts.append(pair + ())
            if n == 3:
                parts.append(() + pair)
            if n == 4:
                parts.append(pair * 1)
        return [pair, parts]
    """,
    "an ellipsis": """
        h = self.b
        for w in words:
            h = self(self.E[w], h)
            self.scores.append(h)
        return [h] if len(words) != 5 else self.mark

    mark = ...
    """,
    "pairs in pairs": """
        h, path = self.b, None
        for w in words * 500:
            path = (path, w)
        for w in words:
            h = self(self.E[w], h)
        PATHS.append(path)
        return [h]
    """,
}


@pytest.mark.parametrize("what", BODIES)
def test_bodies(pair: Callable, what: str) -> None:
    p = pair(MODEL + "\n    def run(self, words):" + BODIES[what])
    for _ in range(ROUNDS):
        p.agree(run_all)
    assert hits(p), refusals(p)


def test_keys_of_a_class_of_the_script(pair: Callable) -> None:
    p = pair(
        """
class Key:
    asked = 0
    def __init__(self, number):
        self.number = number
    def __hash__(self):
        return self.number
    def __eq__(self, other):
        Key.asked += 1
        if self.number == 5:
            raise ValueError("five")
        return self.number == other
"""
        + MODEL
        + """
    def run(self, words):
        h = self.b
        for w in words:
            h = self(self.E[w], h)
            if w in KNOWN:
                h = self(self.E[KNOWN[w]], h)
            if w == 7:
                h = self(self.E[0], h[7])
        return [h]
"""
    )

    def use(module: ModuleType) -> list:
        model = model_of(module)
        module.Key.asked = 0
        results = []
        for words in WORDS:
            try:
                results.append(model.run(words))
            except ValueError as e:
                results.append(str(e))
        return [*results, module.Key.asked]

    def with_keys(module: ModuleType) -> list:
        of_class = {module.Key(1): 0, module.Key(3): 0, module.Key(5): 1}
        module.KNOWN = {**of_class, 4: 0, **dict.fromkeys("abcdefghij")}
        return use(module)

    for _ in range(ROUNDS):
        p.agree(use)
    assert hits(p)
    for _ in range(ROUNDS):
        p.agree(with_keys)
    for _ in range(ROUNDS):
        p.agree(use)


def test_loops_that_never_record_are_given_up(pair: Callable) -> None:
    p = pair(
        MODEL
        + """
    def run(self, words, n):
        i, rest = 0, [1]
        while i < n:
            j = 0
            while j < n:
                j += 1
            i += 1
        for x in rest:
            if len(rest) < n * n:
                rest.append(x)
        h = self.b
        for w in words:
            h = self(self.E[w], h)
        return [h, i]
"""
    )

    def use(module: ModuleType) -> list:
        return [model_of(module).run(words, 3) for words in WORDS]

    for _ in range(ROUNDS):
        p.agree(use)
    assert hits(p)
    for n in range(1100, 1120):  # after one that is refused, some run as they are written
        p.agree(lambda module, n=n: model_of(module).run([1, 2], n))
    assert refusals(p) == ["a long loop"]


def test_deep_calls_of_long_expressions(pair: Callable) -> None:
    """Stack of C++: 240 calls in the middle of 150 parentheses each."""
    inner = "-" * 150 + "self.deep(n - 1)"
    p = pair(
        MODEL
        + f"""
    def run(self, words):
        h = self.b
        for w in words:
            h = self(self.E[w], h)
        return [h, self.deep(len(words) * 48)]

    def deep(self, n):
        if n == 0:
            return 1
        return {inner}
"""
    )
    for _ in range(ROUNDS):
        p.agree(lambda module: [model_of(module).run(words) for words in WORDS])


def test_asserts_that_do_not_run(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    body = (
        MODEL
        + """
    def run(self, words):
        rest, h = list(words), self.b
        for w in words:
            h = self(self.E[w], h)
            assert rest.pop() is not None
        return [h, rest]

model = Model()
for _ in range(100):
    dy.renew_cg()
    found = [model.run([1, 2, 3])[1], model.run([3])[1]]
print(found)
"""
    )
    script.write_text("import dynet_compat as dy\n" + body)
    environment = {**os.environ, "DYNET_COMPAT_HINTS": "eager"}
    for flags, expected in (["-O"], "[[1, 2, 3], [3]]"), ([], "[[], []]"):
        command = [sys.executable, *flags, str(script)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected
