"""Calls with the same arguments, which are recorded from memory: all that a walk has read is read again."""

from __future__ import annotations

import gc
import sys
import weakref
from types import ModuleType
from typing import Any, Callable

import dynet_compat as dy
import pytest
from support.walks import remembered, seeded_model_of

MODEL = """
class Tree:
    count = 0
    def __init__(self, word, kids=()):
        self.word, self.kids = word, list(kids)
    def isleaf(self):
        return not self.kids
    @property
    def size(self):
        return len(self.kids)

class Slots:
    __slots__ = ("word", "kids", "__weakref__")
    isleaf, size = Tree.isleaf, Tree.size
    def __init__(self, word, kids=()):
        self.word, self.kids = word, list(kids)

SCALE = 2.0
def squash(x, times=1):
    for _ in range(times):
        x = dy.tanh(x)
    return x
def closed(extra):
    def add(h):
        return h + extra
    def change(other):
        nonlocal extra
        extra = other
    return add, change

class Model:
    def __init__(self):
        pc = self.pc = dy.ParameterCollection()
        self.E = pc.add_lookup_parameters((2000, 3))
        self.W = pc.add_parameters((3, 3))
        self.b = pc.add_parameters(3)
        self.gates = {"i": (pc.add_parameters((3, 3)), self.b), "o": (self.W, pc.add_parameters(3))}
        self.rnn = dy.VanillaLSTMBuilder(1, 3, 3, pc)
        self.squash = squash
        self.options = {"twice": False}
        self.add, self.change = closed(1.0)
        self.seen = []

    def leaf(self, tree):
        return dy.tanh(self.W * self.E[tree.word] + self.b)

    def encode(self, tree):
        if tree.isleaf():
            return self.leaf(tree)
        kids = [self.encode(k) for k in tree.kids]
        total = dy.esum(kids) * SCALE
        (wi, bi), (wo, bo) = self.gates["i"], self.gates["o"]
        h = dy.cmult(dy.logistic(wi * total + bi), dy.tanh(wo * total + bo))
        if self.options["twice"] or tree.size > 2:
            h = h + self.squash(h)
        return self.add(h)

    def read(self, words, scores):
        state = self.rnn.initial_state()
        hs = []
        for w in words:
            state = state.add_input(self.E[w])
            h = squash(state.output())
            hs.append(h)
            scores.append(dy.cmult(h, self.b) + h)
        self.last = hs
        return hs, state, (hs, hs[:1]), len(words)
"""
TIMES = 60  # until regions have learned and walks are remembered


def tree(m: ModuleType, kind: str = "Tree") -> Any:
    make = getattr(m, kind)
    kids = [make(1), make(1200), make(3, [make(4), make(1200, [make(5), make(6)])])]
    return make(0, [make(7), make(8, kids), make(2)])


def model_of(m: ModuleType) -> Any:
    model = seeded_model_of(m)
    if not hasattr(m, "tree"):
        m.tree, m.slots = tree(m), tree(m, "Slots")
        m.words = [3, 1500, 4, 1, 1500]
    return model


def encode(m: ModuleType) -> list:
    model = model_of(m)
    return [model.encode(m.tree), model.encode(m.slots), len(model.seen)]


def read(m: ModuleType) -> list:
    model, scores = model_of(m), []
    results = model.read(m.words, scores)
    return [results[0], results[2], results[3], scores, model.last, results[1].output()]


def change_parameters(m: ModuleType) -> None:
    m.model.b = m.model.pc.add_parameters(3, init=0.5)


def change_table(m: ModuleType) -> None:
    m.model.E = m.model.pc.add_lookup_parameters((2000, 3), init=0.25)


def change_property(m: ModuleType) -> None:
    m.Tree.size = m.Slots.size = property(lambda self: 3)


def change_getattr(m: ModuleType) -> None:
    m.Tree.__getattribute__ = lambda self, name: 5 if name == "word" else object.__getattribute__(self, name)


def change_class(m: ModuleType) -> None:
    class Other(m.Tree):
        def isleaf(self) -> bool:
            return True

    m.tree.kids[1].__class__ = Other


def change_method_of_object(m: ModuleType) -> None:
    m.tree.kids[1].isleaf = lambda: True


def change_gate(m: ModuleType) -> None:
    gates = m.model.gates
    gates["i"] = (m.model.W, m.model.b)


def add_gate(m: ModuleType) -> None:
    m.model.gates["more"] = m.model.gates["i"]


def change_builder(m: ModuleType) -> None:
    m.model.rnn = dy.GRUBuilder(1, 3, 3, m.model.pc)
    for p in m.model.rnn.param_collection().parameters_list():
        p.set_value(p.as_array() * 0 + 0.25)


def replace(m: ModuleType, name: str, value: Any) -> None:
    setattr(m, name, value)


def change_keys(m: ModuleType) -> None:
    class Key:
        def __hash__(self) -> int:
            return hash("twice")

        def __eq__(self, other: object) -> bool:
            m.model.seen.append(type(other))
            return False

    m.model.options = {Key(): True, "twice": False}


CHANGES: dict[str, Callable[[Any], Any]] = {
    "an attribute": lambda m: [setattr(t.kids[1].kids[2], "word", 9) for t in (m.tree, m.slots)],
    "an equal number": lambda m: [setattr(t.kids[1].kids[1], "word", int("1200")) for t in (m.tree, m.slots)],
    "an attribute of a leaf": lambda m: [setattr(t.kids[0], "word", 1999) for t in (m.tree, m.slots)],
    "an item": lambda m: m.tree.kids.__setitem__(0, m.Tree(11)),
    "order": lambda m: [t.kids.reverse() for t in (m.tree, m.slots)],
    "length": lambda m: [t.kids[1].kids.append(type(t)(2)) for t in (m.tree, m.slots)],
    "a list": lambda m: [setattr(t.kids[1], "kids", list(t.kids[1].kids[:1])) for t in (m.tree, m.slots)],
    "a tuple": lambda m: [setattr(t, "kids", tuple(t.kids)) for t in (m.tree, m.slots)],
    "a leaf's children": lambda m: [t.kids[0].kids.append(type(t)(2)) for t in (m.tree, m.slots)],
    "the option": lambda m: m.model.options.update(twice=True),
    "another option": lambda m: m.model.options.update(other=True),
    "keys that compare": change_keys,
    "a gate": change_gate,
    "one gate more": add_gate,
    "parameters": change_parameters,
    "a table": change_table,
    "their values": lambda m: m.model.b.set_value([0.5, 0.25, 1.0]),
    "a global number": lambda m: replace(m, "SCALE", 3.0),
    "a global function": lambda m: replace(m, "squash", lambda x, times=1: dy.exp(x)),
    "a default": lambda m: replace(m.squash, "__defaults__", (2,)),
    "code": lambda m: replace(m.squash, "__code__", (lambda x, times=1: dy.exp(x)).__code__),
    "an attribute that is a function": lambda m: replace(m.model, "squash", lambda x: dy.exp(x)),
    "a cell": lambda m: m.model.change(2.0),
    "a method": lambda m: replace(m.Model, "leaf", lambda self, tree: self.E[tree.word]),
    "a property": change_property,
    "an attribute of a class": lambda m: replace(m.Tree, "count", 1),
    "how attributes are looked up": change_getattr,
    "a class": change_class,
    "a method of an object": change_method_of_object,
    "the module": lambda m: replace(m, "dy", type("Api", (), {**vars(dy), "tanh": staticmethod(dy.exp)})),
    "a builder": change_builder,
    "dropout": lambda m: m.model.rnn.set_dropout(0.5),
    "words": lambda m: m.words.__setitem__(1, 1501),
    "more words": lambda m: m.words.append(1500),
    "True for 1": lambda m: m.words.__setitem__(3, True),
    "equal words": lambda m: replace(m, "words", [int(str(w)) for w in m.words]),
}


@pytest.mark.parametrize("use", [encode, read])
@pytest.mark.parametrize("what", CHANGES)
def test_changes_are_seen(pair: Callable, use: Callable, what: str) -> None:
    p = pair(MODEL)
    for _ in range(TIMES):
        p.agree(use)
    assert remembered(p) > 10, {n: f.statistics() for n, f in p.rewriter.walked_functions.items()}
    for module in (p.plain, p.other):
        dy.reset_random_seed(5)
        CHANGES[what](module)
    for _ in range(8):
        p.agree(use)


def test_equal_arguments_need_not_be_the_same(pair: Callable) -> None:
    """New lists of equal words are remembered; equal numbers of other types are other words."""
    p = pair(MODEL)

    def use(words: list) -> Callable:
        def run(m: ModuleType) -> list:
            model_of(m)
            m.words = [type(w)(w) for w in words]
            return read(m)

        return run

    for _ in range(2 * TIMES):
        p.agree(use([1, 1500, 3]))
        p.agree(use([1500, 1, 3]))
    before = remembered(p)
    p.agree(use([1, 1500, 3]))
    assert remembered(p) > before
    for other in ([True, 1500, 3], [1.0, 1500, 3], [1, 1500], [1, 1500, 3, 3], []):
        for _ in range(4):
            p.agree(use(other))


def test_inputs_are_expressions_of_each_graph(pair: Callable) -> None:
    """Of other values and shapes, one for two, and of two graphs ago."""
    p = pair("""
    pc = dy.ParameterCollection()
    W = pc.add_parameters((3, 3), init=0.5)
    def mix(xs, y):
        h = y
        for x in xs:
            h = dy.tanh(dy.cmult(x, h) + x)
            h = h + dy.logistic(h)
        return h
    """)

    def use(n: int, same: bool) -> Callable:
        def run(m: ModuleType) -> list:
            results = []
            for k in range(3):
                xs = [dy.inputVector([0.1 * (i + k)] * n) for i in range(4)]
                results.append(m.mix(xs, xs[1] if same else dy.inputVector([0.3] * n)))
            return results

        return run

    for k in range(4 * TIMES):
        p.agree(use(2 + k // TIMES % 2, k // TIMES == 3 and k % 5 == 0))
    assert remembered(p) > 20

    def stale(m: ModuleType) -> list:
        old = dy.inputVector([1.0])
        dy.renew_cg()
        return [m.mix([dy.inputVector([1.0])] * 4, old)]

    p.agree(stale)


def test_trees_are_not_kept_alive(pair: Callable) -> None:
    p = pair(MODEL)
    for _ in range(TIMES):
        p.agree(encode)
    assert remembered(p) > 10
    for module in (p.plain, p.other):
        watched = [weakref.ref(t) for t in (module.slots, module.slots.kids[1], module.tree.kids[0])]
        module.tree = module.slots = None
        dy.renew_cg()
        gc.collect()
        assert [w() for w in watched] == [None] * 3
        module.tree, module.slots = tree(module), tree(module, "Slots")
    for _ in range(4):
        p.agree(encode)


def test_new_trees_at_old_addresses(pair: Callable) -> None:
    """Trees are made and freed all the time; two words are most of the difference."""
    p = pair(MODEL)
    for k in range(6 * TIMES):

        def use(m: ModuleType, k: int = k) -> list:
            model = model_of(m)
            results = []
            for i in range(3):
                t = m.Tree(0, [m.Tree(1000 + k % 2), m.Tree(3 + (k + i) % 3, [m.Tree(9)] * (i % 2))])
                results.append(model.encode(t))
                del t
            return results

        p.agree(use)


def test_limit_of_recursion(pair: Callable) -> None:
    """A call that is recorded from memory needs as many levels as it did."""
    p = pair(MODEL)
    trees: dict[int, Any] = {}

    def limited(limit: int) -> Callable:
        def run(m: ModuleType) -> list:
            model = model_of(m)
            if id(m) not in trees:
                t = m.Tree(1)
                for _ in range(30):
                    t = m.Tree(0, [t])
                trees[id(m)] = t
            before = sys.getrecursionlimit()
            depth, frame = 0, sys._getframe()
            while frame:
                depth, frame = depth + 1, frame.f_back
            sys.setrecursionlimit(depth + limit)
            try:
                return [model.encode(trees[id(m)]) for _ in range(4)]
            finally:
                sys.setrecursionlimit(before)

        return run

    for _ in range(TIMES):
        p.agree(encode)
    before = remembered(p)
    for _ in range(TIMES):
        p.agree(limited(900))
    assert remembered(p) > before + 10, [f.statistics() for f in p.rewriter.walked_functions.values()]
    for limit in (20, 40, 45, 50, 55, 60, 65, 70, 80, 90, 120):
        p.agree(limited(limit))


TRAPS = """
class Place:
    def __init__(self, words=(), step=None, rate=None):
        self.words, self.step, self.rate, self.notes = words, step, rate, []

class Step:
    def __init__(self, k):
        self.k = k
    def __call__(self, h):
        return dy.tanh(h) if self.k else dy.exp(h)
    def apply(self, h):
        return dy.tanh(h) if self.k else dy.exp(h)

pc = dy.ParameterCollection()
E = pc.add_lookup_parameters((50, 3), init=0.25)
b = pc.add_parameters(3, init=0.5)

def two_ways(words, place):
    h = b + b
    for w in words:
        h = dy.tanh(h + E[w])
    for w in place.words:
        h = dy.logistic(h + E[w])
    return h, place.words

def bound(words, place):
    h = b + b
    for w in words:
        h = place.step(dy.tanh(h + E[w]))
    return h, place.step

def numbers(words, place):
    h = b + b
    for w in words:
        h = dy.tanh(h + E[w])
        if place.rate in place.words:
            h = dy.exp(h)
    return h

def few_of_many(words, place):
    h = b + b
    for w in words:
        h = dy.tanh(h + E[place.words[w]])
    return h, len(place.words)

def of_class(words, place):
    h, apply = b + b, place.step.apply
    for w in words:
        h = apply(dy.tanh(h + E[w]))
    return h

def text(words, place):
    h = b + b
    for w in words:
        h = dy.tanh(h + E[w])
        if place.rate == "x" or place.rate == place.step:
            h = dy.exp(h)
    return h
"""


def trap(p: Any, name: str, make: Callable, change: Callable) -> int:
    """Calls with the same two arguments, and after a change of them; how many were remembered before that."""
    arguments: dict[str, Any] = {}

    def run(m: ModuleType) -> list:
        which = "plain" if m is p.plain else "other"
        if which not in arguments:
            arguments[which] = make(m)
        results = []
        for k in range(4):
            found = getattr(m, name)(*arguments[which])
            results += [found[0], found[1] is arguments[which][1].words] if type(found) is tuple else [found]
            results.append(getattr(m, name)([3 + k % 2, 4], arguments[which][1]))  # regions learn
        results[:] = [r[0] if type(r) is tuple else r for r in results]
        return results

    for _ in range(TIMES):
        p.agree(run)
    before = remembered(p)
    for module, which in ((p.plain, "plain"), (p.other, "other")):
        arguments[which] = change(module, arguments[which]) or arguments[which]
    for _ in range(6):
        p.agree(run)
    return before


def another_list(m: ModuleType, arguments: tuple) -> tuple:
    """The list that is in two places is another one in one of them."""
    words, place = arguments
    copy = list(words)
    words[:] = [4, 5, 6]
    return copy, place


def rebind(m: ModuleType, arguments: tuple) -> None:
    place = arguments[1]
    place.step = None
    place.step = m.Step(0).apply


def change_apply(m: ModuleType, arguments: tuple) -> None:
    m.Step.apply.__code__ = (lambda self, h: dy.exp(h)).__code__.replace(co_name="apply")


def change_own_apply(m: ModuleType, arguments: tuple) -> None:
    arguments[1].step.apply = dy.logistic


@pytest.mark.parametrize(
    ("name", "make", "change", "is_remembered"),
    [
        ("two_ways", lambda m: (w := [1, 2, 3], m.Place(w)), another_list, False),
        ("two_ways", lambda m: ([1, 2, 3], m.Place([1, 2, 3])), lambda m, a: (a[1].words, a[1]), True),
        ("two_ways", lambda m: ([1, 2], m.Place([3])), lambda m, a: a[1].words.append(5), True),
        ("bound", lambda m: ([1, 2], m.Place(step=m.Step(1).apply)), rebind, False),
        ("bound", lambda m: ([1, 2], m.Place(step=m.Step(1))), lambda m, a: setattr(a[1].step, "k", 0), True),
        (
            "of_class",
            lambda m: ([1, 2], m.Place(step=m.Step(1))),
            lambda m, a: setattr(a[1].step, "k", 0),
            True,
        ),
        ("of_class", lambda m: ([1, 2], m.Place(step=m.Step(1))), change_apply, True),
        ("of_class", lambda m: ([1, 2], m.Place(step=m.Step(1))), change_own_apply, True),
        (
            "numbers",
            lambda m: ([1, 2], m.Place([1.0, float("nan")], rate=2.0)),
            lambda m, a: setattr(a[1], "rate", a[1].words[1]),
            True,
        ),
        (
            "few_of_many",
            lambda m: ([1, 2], m.Place(list(range(45)))),
            lambda m, a: a[1].words.__setitem__(2, 9),
            True,
        ),
        (
            "few_of_many",
            lambda m: ([1, 2], m.Place(list(range(45)))),
            lambda m, a: a[1].words.append(9),
            True,
        ),
        ("text", lambda m: ([1, 2], m.Place(rate="x")), lambda m, a: setattr(a[1], "rate", "y" * 9999), True),
    ],
)
def test_traps(pair: Callable, name: str, make: Callable, change: Callable, is_remembered: bool) -> None:
    p = pair(TRAPS)
    assert (trap(p, name, make, change) > 20) >= is_remembered


def test_a_class_attribute_that_becomes_computed(pair: Callable) -> None:
    """Its code runs as often as in Python."""
    p = pair(
        TRAPS
        + """
class Rate:
    pass
class WithRate(Place):
    factor = Rate()
def rated(words, place):
    h = b + b
    for w in words:
        h = dy.tanh(h + E[w])
        if place.factor is None:
            h = dy.exp(h)
    return h, place.words
"""
    )

    def change(m: ModuleType, arguments: tuple) -> None:
        def get(self: Any, of: Any, kind: Any = None) -> None:
            of.notes.append(1)

        m.Rate.__get__ = get

    trap(p, "rated", lambda m: ([1, 2], m.WithRate([1])), change)


def test_epochs_of_many_calls(pair: Callable) -> None:
    """More than the keys that are kept: a part of them tells that calls come again."""
    p = pair(
        """
E = dy.ParameterCollection().add_lookup_parameters((300, 3), init=0.25)

class Model:
    def run(self, words):
        x = E[words[0]]
        for w in words[1:]:
            x = dy.tanh(x + E[w])
        return x
        """
    )
    model = seeded_model_of(p.other)
    sentences = [(i % 300, i // 300, 0) for i in range(40000)]
    for _ in range(3):
        before = remembered(p)
        for i, words in enumerate(sentences):
            if i % 1000 == 0:
                dy.renew_cg()
            model.run(words)
    assert remembered(p) > before + 10000, [f.statistics() for f in p.rewriter.walked_functions.values()]
    p.agree(lambda m: [seeded_model_of(m).run(words) for words in sentences[::4000]])
