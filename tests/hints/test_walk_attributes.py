"""Attributes that walked functions assign: what is read afterwards, what objects hold, who refuses them."""

from __future__ import annotations

import codecs
from types import ModuleType
from typing import Any, Callable

import pytest
from support.walks import MODEL, ROUNDS, model_of, refusals

CLASSES = """

class Token:
    kind = None

    def __init__(self, word):
        self.word, self.vec = word, None


class Slots:
    __slots__ = ("vec", "word")

    def __init__(self, word):
        self.word, self.vec = word, None


class Bare:
    __slots__ = ("word",)

    def __init__(self, word):
        self.word = word


class Property(Token):
    stored = None

    @property
    def vec(self):
        return self.stored

    @vec.setter
    def vec(self, value):
        self.stored = value
        SET.append(1)


class Setter(Token):
    def __setattr__(self, name, value):
        SET.append(name)
        object.__setattr__(self, name, value)


class Getter(Token):
    def __getattr__(self, name):
        return 7


class Dying:
    def __init__(self, notes):
        self.notes = notes

    def __del__(self):
        self.notes.append(len(self.notes))


SET = []


def tokens(words, kind=Token):
    return [kind(w) for w in words]
"""

WALKED = {
    "read again": """
        for t in tokens:
            t.vec = self.E[t.word]
        h = self.b
        for t in tokens:
            h = self(t.vec, h)
            t.vec = h
        for t in reversed(tokens):
            h = self(t.vec, h)
        return [h, [t.vec for t in tokens]]
    """,
    "made where it is missing": """
        h = self.b
        for i in range(len(tokens)):
            for k in range(i, -1, -1):
                if tokens[k].vec is None:
                    tokens[k].vec = self.V * self.E[tokens[k].word]
                h = dy.tanh(h + tokens[k].vec)
        return [h]
    """,
    "of the model": """
        self.last = self.b
        self.count = 0
        for t in tokens:
            self.last = self(self.E[t.word], self.last)
            self.count += 1
        return [self.last, self.count]
    """,
    "of what a call returns": """
        h, calls = self.b, []
        self.count, self.calls = 0, calls
        for t in tokens:
            h = self(self.E[t.word], h)
            self.noted(t).count += t.word
            self.me.count += 1
            self.me.last = self.noted(t).word = h
        return [h, self.count, calls]

    def noted(self, t):
        self.calls.append(t.word)
        return self

    @property
    def me(self):
        self.calls.append("me")
        return self
    """,
    "a list, which grows": """
        self.kept = kept = []
        for t in tokens:
            self.kept.append(self(self.E[t.word], self.b))
        kept.append(self.b)
        return [self.kept, kept, self.kept]
    """,
    "one object by two names": """
        first, last = tokens[0], tokens[-1]
        same = tokens[0]
        h = self.b
        for t in tokens:
            first.vec = self(self.E[t.word], h)
            h = same.vec
            last.kind = same
            last.kind.vec = self(h, h)
        return [h, first.vec, last.vec]
    """,
    "objects that hang on others": """
        h = self.b
        for t in tokens:
            t.kind = tokens[0]
            h = self(self.E[t.kind.word], h)
            t.kind = None
        return [h, [t.kind for t in tokens]]
    """,
}
REFUSED = {
    "then an error": """
        for t in tokens:
            t.vec = self(self.E[t.word], self.b)
        for t in tokens:
            t.kind = t.missing
        return []
    """,
    "a method": """
        h = self.b
        for t in tokens:
            self.step = self.other
            h = self(self.E[t.word], h)
        return [h]

    def other(self, w):
        return self.b
    """,
}
OTHERS = ("Slots", "Bare", "Property", "Setter", "Getter")


def use(kind: str = "Token") -> Callable:
    def run(m) -> list:
        model = model_of(m)
        m.SET.clear()
        results = []
        for words in ([1, 2, 3], [4, 5], [6, 7, 8, 0], [1, 1, 1]):
            tokens = m.tokens(words, getattr(m, kind))
            try:
                results.append(model.run(tokens))
            except AttributeError as error:
                results.append(str(error))
            held = [getattr(t, name, 0) for t in tokens for name in ("vec", "kind")]
            results.append([h for h in held if not isinstance(h, getattr(m, kind))])
        return [*results, list(m.SET)]

    return run


def walked(p: Any) -> int:
    """How often run() was recorded by one call: tokens() only makes objects."""
    found = [f.statistics() for f in p.rewriter.walked_functions.values()]
    return sum(f["hits"] for f in found if f["name"].endswith("run"))


@pytest.mark.parametrize("what", WALKED)
def test_walked(pair: Callable, what: str) -> None:
    p = pair(MODEL + "\n    def run(self, tokens):" + WALKED[what] + CLASSES)
    for _ in range(ROUNDS):
        p.agree(use())
    assert walked(p) > 0, refusals(p)


@pytest.mark.parametrize("what", REFUSED)
def test_refused(pair: Callable, what: str) -> None:
    p = pair(MODEL + "\n    def run(self, tokens):" + REFUSED[what] + CLASSES)
    for _ in range(ROUNDS):
        p.agree(use())
    assert walked(p) == 0, p.statistics


@pytest.mark.parametrize("kind", OTHERS)
def test_classes(pair: Callable, kind: str) -> None:
    p = pair(MODEL + "\n    def run(self, tokens):" + WALKED["read again"] + CLASSES)
    for _ in range(ROUNDS):
        p.agree(use(kind))
    assert (walked(p) > 0) == (kind == "Slots"), refusals(p)


def test_text_methods_that_run_code_of_the_script(pair: Callable) -> None:
    """It runs once, whether or not something else ends the walk."""
    p = pair(
        MODEL
        + """
    def run(self, tokens):
        h = self.b
        for t in tokens:
            h = self(self.E[1], h)
        return [h, "\u20ac".encode("ascii", "walked")]
"""
    )
    seen: list[int] = []

    def handle(error: UnicodeError) -> tuple[str, int]:
        seen.append(1)
        return "?", 1

    def count(m: ModuleType) -> list:
        seen.clear()
        return [*model_of(m).run([1, 2]), len(seen)]

    codecs.register_error("walked", handle)
    for _ in range(ROUNDS):
        p.agree(count)
    assert walked(p) == 0


def test_what_is_replaced_dies_at_once(pair: Callable) -> None:
    """No walk assigns in the place of the last reference to an object whose end runs code of the script."""
    p = pair(
        MODEL
        + """
    def run(self, tokens):
        h = self.b
        for t in tokens:
            t.vec = h = self(self.E[t.word], h)
        return [h]
"""
        + CLASSES
    )

    def dying(m) -> list:
        model = model_of(m)
        notes: list = []
        tokens = m.tokens([1, 2, 3])
        for t in tokens:
            t.vec = m.Dying(notes)
        return [model.run(tokens), notes]

    for _ in range(ROUNDS):
        p.agree(dying)
    assert walked(p) == 0
    assert any("old value" in r for r in refusals(p)), refusals(p)
