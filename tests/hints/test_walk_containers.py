"""Dicts of classes derived from dict, static methods and sums in functions that are recorded by one call."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Callable

import pytest
from support.walks import MODEL, TIMES, hits, learn, model_of, refusals, walked

CLASSES = """
import collections
import functools


class Plain(dict):
    pass


class Missing(dict):
    def __missing__(self, key):
        ASKED.append(key)
        return 0


class Item(dict):
    def __getitem__(self, key):
        ASKED.append(key)
        return dict.__getitem__(self, key)


class Get(dict):
    def get(self, key, otherwise=None):
        ASKED.append(key)
        return dict.get(self, key, otherwise)


class Contains(dict):
    def __contains__(self, key):
        ASKED.append(key)
        return dict.__contains__(self, key)


class Length(dict):
    def __len__(self):
        ASKED.append("length")
        return 1


class Truth(dict):
    def __bool__(self):
        ASKED.append("truth")
        return False


class Iterates(dict):
    def __iter__(self):
        ASKED.append("iterates")
        return iter([1, 2])


class Reversed(dict):
    def __reversed__(self):
        ASKED.append("reversed")
        return iter([1, 2])


class Attribute(dict):
    def __getattribute__(self, name):
        ASKED.append(name)
        return dict.__getattribute__(self, name)


def of_class(kind):
    if kind == "defaultdict":
        made = collections.defaultdict(int)
    else:
        made = (globals().get(kind) or getattr(collections, kind))()
    made.update({1: 1, 3: 2, 4: 0, 8: 3})
    return made


ASKED = []
"""
DICTS = {
    "items": """
        h = self.b
        for w in words:
            h = self(self.E[self.known[w] if w in self.known else 0], h)
        return [h, len(self.known)]
    """,
    "get": """
        h = self.b
        for w in words:
            h = self(self.E[self.known.get(w, 5)], h)
            if self.known.get(w) is None:
                h = h + self.b
        return [h, 1 if self.known else 0]
    """,
    "missing": """
        h = self.b
        for w in words:
            h = self(self.E[self.known[w]], h)
        return [h]
    """,
    "none": """
        h, keys = self.b, list(self.none)
        for w in words:
            h = self(self.E[w], h)
        for w in self.none:
            h = self(self.E[w], h)
        for w in reversed(self.none):
            h = self(self.E[w], h)
        keys.extend(self.none)
        return [h, keys, sum(self.none), 1 if self.none else 0]
    """,
}
STATIC = """

    @staticmethod
    def both(x, y):
        return dy.tanh(x + dy.cmult(y, y))

    def run(self, words):
        h = self.b
        for w in words:
            h = self.both(self(self.E[w], h), h)
        return [h]
"""
SUMS = """
    def run(self, words):
        h, masks = self.b, []
        for i in range(len(words)):
            masks.append([1 if w > i else 0 for w in words])
        for w, mask in zip(words, masks):
            h = self(self.E[w % 9], h) * (1 + sum(mask))
        parts = [dy.sum_elems(self.E[w % 9]) for w in words]
        return [h, sum(words), sum(parts), sum([]), sum([1, dy.sum_elems(h), 2])]
"""
WORDS = ([1, 3, 4], [4, 3], [8, 1, 1], [3])


def use(module: ModuleType, kind: str, words: tuple = WORDS) -> list:
    model = model_of(module)
    if not isinstance(getattr(model, "known", None), dict):
        model.known, model.none = module.of_class(kind), module.of_class(kind)
        model.none.clear()
    module.ASKED.clear()
    results = []
    for each in words:
        try:
            results.append(model.run(each))
        except KeyError as error:
            results.append(str(error))
    return [*results, list(module.ASKED), list(model.known.items())]


def learned(pair: Callable, body: str) -> Any:
    """A pair whose run() is recorded by one call, of dicts of the class Plain."""
    p = pair(MODEL + body + CLASSES)
    learn(p, lambda m: use(m, "Plain"))
    return p


def agree_after(p: Any, change: str) -> None:
    def changed(module: ModuleType) -> list:
        exec(change, {"model": module.model, "Model": module.Model, "module": module})
        return use(module, "Plain")

    p.agree(changed)
    for _ in range(TIMES):
        p.agree(lambda m: use(m, "Plain"))


@pytest.mark.parametrize("what", DICTS)
@pytest.mark.parametrize(
    ("kind", "refuses"),
    [
        ("Plain", ""), ("Counter", ""), ("defaultdict", ""), ("OrderedDict", ""), ("Missing", ""),
        ("Item", "items missing get none"), ("Get", "get"), ("Contains", "items missing get none"),
        ("Length", "items missing get none"), ("Truth", "items missing get none"),
        ("Iterates", "items missing get none"), ("Reversed", "items missing get none"), ("Attribute", "get"),
    ],
)  # fmt: skip
def test_dicts(pair: Callable, kind: str, refuses: str, what: str) -> None:
    p = pair(MODEL + "\n    def run(self, words):" + DICTS[what] + CLASSES)
    for _ in range(TIMES):
        p.agree(lambda m: use(m, kind))
    before = hits(p)
    p.agree(lambda m: use(m, kind))
    assert (hits(p) == before) == (what in refuses), refusals(p)
    p.agree(lambda m: use(m, kind, ([2, 1], [7], [1, 2], [2])))  # a defaultdict gets these
    p.agree(lambda m: use(m, kind, ([2, 1], [7], *WORDS)))


@pytest.mark.parametrize(
    "change",
    [
        "model.known[3] = 5",
        "model.known.clear()",
        "del model.known[3]",
        "model.known.get = lambda key, otherwise=None: 2",
        "type(model.known).get = lambda self, key, otherwise=None: 2",
        "type(model.known).__getitem__ = lambda self, key: 2",
        "type(model.known).__contains__ = lambda self, key: False",
        "type(model.known).__len__ = lambda self: 0",
        "type(model.known).__bool__ = lambda self: False",
        "type(model.known).__iter__ = lambda self: iter([1])",
        "type(model.known).__getattribute__ = lambda self, name: lambda *key: 1",
        "model.known.__class__ = module.Item",
        "model.known.__class__ = module.Get",
        "model.known = {1: 1, 3: 3}",
    ],
)
@pytest.mark.parametrize("what", DICTS)
def test_dicts_that_change(pair: Callable, change: str, what: str) -> None:
    agree_after(learned(pair, "\n    def run(self, words):" + DICTS[what]), change)


@pytest.mark.parametrize(
    "change",
    [
        "model.both = lambda x, y: x",
        "Model.both = staticmethod(lambda x, y: y)",
        "Model.both = lambda self, x, y: x + self.b",
        "Model.both = classmethod(lambda cls, x, y: x)",
        "vars(Model)['both'].__init__(lambda x, y: x)",
        "Model.both.__code__ = (lambda x, y: x).__code__",
        "Model.both = property(lambda self: lambda x, y: y)",
    ],
)
def test_static_methods(pair: Callable, change: str) -> None:
    agree_after(learned(pair, STATIC), change)


def test_sums(pair: Callable) -> None:
    p = learned(pair, SUMS)
    p.agree(lambda m: use(m, "Plain", ([True, 2], [1.5, 2], [2**70, 9 * 2**70], ())))
    p.agree(lambda m: setattr(m, "sum", lambda items: 3) or use(m, "Plain"))


def test_loops_of_single_ops(pair: Callable) -> None:
    """They are no regions, as an op takes no longer than the checks of one."""
    p = pair(
        """
E = dy.ParameterCollection().add_lookup_parameters((9, 3), init=0.25)

def score(words, tags):
    return dy.esum([dy.pickneglogsoftmax(x, t) for x, t in zip([E[w] for w in words], tags)])

def total(words):
    xs = []
    for w in words:
        xs.append(dy.square(E[w]))
    return dy.esum(xs)
"""
    )
    for _ in range(TIMES):
        p.agree(lambda m: [f for words in WORDS for f in (m.score(words, [0, 1, 2]), m.total(words))])
    assert [walked(p, name)["remembered"] > 0 for name in ("score", "total")] == [True, True], refusals(p)
