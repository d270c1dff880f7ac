"""Objects of classes of the script that walked functions make, and who refuses to be made by a walk."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Callable

import dynet_compat as dy
import pytest
from support.walks import MODEL, ROUNDS, WORDS, hits, model_of, refusals, remembered

pytestmark = pytest.mark.usefixtures("without_collection")

CLASSES = """
import collections, enum

class Token:
    kind = 1
    def __init__(self, word, vec=None):
        self.word, self.vec = word, vec
        self.head = None
    def both(self, other):
        return self.vec + other.vec
    @property
    def size(self):
        return self.word + self.kind

class Slots:
    __slots__ = ("word", "vec", "head")
    both = Token.both
    kind = size = 1
    def __init__(self, word, vec=None):
        self.word, self.vec, self.head = word, vec, None

class Derived(Token):
    kind = 2

class Bare(Token):
    size = 3
    def __init__(self, word, vec=None):
        pass
    word, vec, head = 1, None, None

LOG = []
class Made(Token):
    def __new__(cls, word, vec=None):
        LOG.append("new")
        return object.__new__(cls)

class Meta(type):
    def __call__(cls, *args):
        LOG.append("call")
        return type.__call__(cls, *args)

class OfMeta(Token, metaclass=Meta):
    pass

class Noted(Token):
    def __init__(self, word, vec=None):
        LOG.append(word)
        Token.__init__(self, word, vec)

class Setter(Token):
    def __setattr__(self, name, value):
        LOG.append(name)
        object.__setattr__(self, name, value)

class Dying(Token):
    def __del__(self):
        LOG.append("del")

class Returning(Token):
    def __init__(self, word, vec=None):
        self.word = word
        return 3

class Failing(Token):
    def __init__(self, word, vec=None):
        self.word, self.vec, self.head = word, vec, None
        if word == 7:
            raise ValueError(word)

class OfList(list):
    kind = size = 1
    both = Token.both
    def __init__(self, word, vec=None):
        self.word, self.vec, self.head = word, vec, None
"""
WALKED = ("Token", "Slots", "Derived", "Bare", "Failing")
REFUSED = ("Made", "OfMeta", "Setter", "Dying", "Returning", "OfList")

BODIES = {
    "not seen by others": """
        tokens = [KIND(w, self.E[w]) for w in words]
        for t in tokens:
            t.vec = dy.tanh(t.vec or self.b)
            t.head = tokens[0]
        h = self.b
        for t in tokens:
            h = self(t.head.vec, h) * t.size
        return [h, len(tokens)]
    """,
    "returned": """
        h, made = self.b, []
        for w in words:
            made.append(KIND(w, vec=h))
            made[-1].head = made[0]
            h = self(self.E[w], h)
        return [h, [(m.word, m.vec, m.head is made[0], isinstance(m, Token)) for m in made], made]
    """,
    "put into what others see": """
        h = self.b
        for w in words:
            h = self(self.E[w], h)
            self.last = KIND(w, h)
            self.scores.append(self.last)
        return [h, self.last and self.last.both(self.last)]
    """,
    "linked": """
        h, last = self.b, None
        for w in words:
            t = KIND(w, h)
            t.head, last = last, t
            h = self(self.E[w], h)
        while last is not None and last.head is not None:
            h = h + last.both(last.head) if last.vec else h
            last = last.head
        return [h]
    """,
}


@pytest.fixture
def without_collection() -> Iterator[None]:
    """Objects that hold themselves do not end in the midst of what is compared."""
    gc.disable()
    yield
    gc.enable()


def shown(found: Any) -> Any:
    """Results with the attributes of objects, in their order."""
    if isinstance(found, (list, tuple)) and type(found).__name__ != "OfList":
        return [shown(f) for f in found]
    if isinstance(found, dy.Expression) or type(found).__module__ == "builtins":
        return found
    names = [n for n in getattr(found, "__slots__", None) or vars(found) if n != "head"]
    return [type(found).__name__, *((n, getattr(found, n, 0)) for n in names)]


def use(m: ModuleType) -> list:
    model = model_of(m)
    model.last = None
    model.scores.clear()
    m.LOG.clear()
    results: list[Any] = []
    for words in WORDS:
        try:
            results.append(shown(model.run(words)))
        except (TypeError, ValueError) as error:
            results.append(f"{type(error).__name__}: {error}")
    return [*results, shown(model.scores), list(m.LOG)]


def program(pair: Callable, body: str, kind: str) -> Any:
    return pair(MODEL + "    last = None\n\n    def run(self, words):" + body.replace("KIND", kind) + CLASSES)


@pytest.mark.parametrize("what", BODIES)
@pytest.mark.parametrize("kind", WALKED)
def test_made(pair: Callable, what: str, kind: str) -> None:
    p = program(pair, BODIES[what], kind)
    for _ in range(2 * ROUNDS):
        p.agree(use)
    if kind != "Bare" or what != "put into what others see":
        assert hits(p) > 0, refusals(p)
    if what in ("not seen by others", "linked"):
        assert remembered(p) > 0, "objects that nobody sees need not be made again"


@pytest.mark.parametrize("what", BODIES)
@pytest.mark.parametrize("kind", REFUSED)
def test_left_to_python(pair: Callable, what: str, kind: str) -> None:
    p = program(pair, BODIES[what], kind)
    for _ in range(ROUNDS):
        p.agree(use)
    assert hits(p) <= ROUNDS, "more than the calls without words"


@pytest.mark.parametrize("what", ["not seen by others", "linked"])
def test_an_init_that_does_more(pair: Callable, what: str) -> None:
    p = program(pair, BODIES[what], "Noted")
    for _ in range(ROUNDS):
        p.agree(use)


CHANGES = [
    "module.Token.kind = 5", "module.Token.__init__ = module.Bare.__init__", "module.Token = module.Bare",
    "module.Token.__init__.__defaults__ = (module.model.b,)", "module.Token.size = 4",
    "module.Token.__init__ = lambda self, word, vec=None: self.__dict__.update(word=1, vec=vec, head=None)",
    "module.Token.__del__ = lambda self: module.LOG.append('del')",
    "module.Token.__setattr__ = module.Setter.__setattr__",
    "module.Token.both = lambda self, other: self.vec",
    "module.Token.__init__.__code__ = module.Failing.__init__.__code__",
    "module.Token.__new__ = module.Made.__new__", "del module.Token.__init__",
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("what", ["not seen by others", "linked"])
def test_classes_that_change(pair: Callable, what: str, change: str) -> None:
    p = program(pair, BODIES[what], "Token")
    for _ in range(2 * ROUNDS):
        p.agree(use)
    before = remembered(p)
    assert before > 0
    for module in (p.plain, p.other):
        exec(change, {"module": module})
    for _ in range(4):
        p.agree(use)


@pytest.mark.parametrize(
    "change",
    ["module.Flag.__bool__ = lambda self: False", "module.Flag.__get__ = lambda self, made, of: None"],
)
def test_classes_of_what_a_class_has(pair: Callable, change: str) -> None:
    p = program(
        pair,
        """
        h = self.b
        for w in words:
            t = KIND(w, h)
            h = self(self.E[w], h) if t.flag else self(h, h)
        return [h]
""",
        "Flagged",
    )
    for module in (p.plain, p.other):
        exec("class Flag: pass\nclass Flagged(Token):\n    flag = Flag()", vars(module))
    for _ in range(ROUNDS):
        p.agree(use)
    assert remembered(p) > 0, refusals(p)
    for module in (p.plain, p.other):
        exec(change, {"module": module})
    for _ in range(4):
        p.agree(use)


def test_a_class_that_is_called_and_whose_attribute_is(pair: Callable) -> None:
    p = pair(
        MODEL
        + """
    def run(self, words):
        h = self.b
        for w in words:
            for each in [HOLDER, Holder]:
                h = self(h, h) if each.kind(w) is None else self(self.E[w], h)
        return [h]
class Holder:
    def __init__(self, word=0):
        pass
class Other:
    pass
HOLDER = Other()
HOLDER.kind = Holder.kind = Holder
"""
        + CLASSES
    )
    for _ in range(ROUNDS):
        p.agree(use)


def test_what_begins_is_taken_back(pair: Callable) -> None:
    """An object of a walk that ends early is not seen by anybody."""
    p = pair(
        MODEL
        + """
    def run(self, words):
        h = self.b
        for w in words:
            t = Token(w, h)
            t.vec = self(self.E[w], h)
            h = t.vec
        if len(words) == 2:
            raise ValueError(t.word)
        return [h]
"""
        + CLASSES
    )
    for _ in range(ROUNDS):
        p.agree(use)
    assert hits(p) > 0
    assert "an exception" in refusals(p)
