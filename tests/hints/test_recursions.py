"""Recursive functions recorded by one call: what scripts write, and what only Python may do."""

from __future__ import annotations

import gc
import sys
import weakref
from types import ModuleType
from typing import Any, Callable

import dynet_compat as dy
import pytest
from support.walks import hits

SOURCE = """
class Tree:
    def __init__(self, word, kids=()):
        self.word, self.kids = word, list(kids)

    def isleaf(self):
        return not self.kids

class Model:
    def __init__(self):
        self.pc = dy.ParameterCollection()
        self.E = self.pc.add_lookup_parameters((9, 3))
        self.W = self.pc.add_parameters((3, 3))

    def encode(self, tree):
        if tree.isleaf():
            return dy.tanh(self.E[tree.word])
        left = self.encode(tree.kids[0])
        right = self.encode(tree.kids[-1])
        return dy.tanh(self.W * left + right)

class Squared(Model):
    def encode(self, tree):
        return dy.square(super().encode(tree))
"""


def balanced(module: ModuleType, depth: int, word: int = 0) -> Any:
    if depth == 0:
        return module.Tree(word % 9)
    return module.Tree(None, [balanced(module, depth - 1, 2 * word + i) for i in range(2)])


def chain(module: ModuleType, depth: int) -> Any:
    tree = module.Tree(1)
    for i in range(depth):
        tree = module.Tree(None, [module.Tree(i % 9), tree])
    return tree


def encode(*depths: int, kind: str = "Model", prepare: Callable[[Any, Any], None] = lambda m, t: None) -> Any:
    def use(module: ModuleType) -> list:
        model = module.model = getattr(module, "model", None) or getattr(module, kind)()
        trees = [balanced(module, depth, seed) for seed, depth in enumerate(depths)]
        for tree in trees:
            prepare(module, tree)
        return [model.encode(tree) for tree in trees]

    return use


def test_a_tree_is_recorded_by_one_call(pair: Callable) -> None:
    p = pair(SOURCE)
    for _ in range(4):
        p.agree(encode(3, 4, 2, 5))
    before = hits(p)
    p.agree(encode(3, 4, 2, 5))
    assert hits(p) == before + 4


@pytest.mark.parametrize(
    "change",
    [
        "module.Tree.isleaf = lambda self: self.word == 1 or not self.kids",
        "module.Model.encode = lambda self, tree: dy.tanh(self.E[3])",
        "module.model.encode = lambda tree: dy.tanh(self.E[3])",
        "module.Tree.kids = property(lambda self: [Tree(1), Tree(2)])",
        "module.Tree.__getattribute__ = lambda t, n: 2 if n == 'word' else object.__getattribute__(t, n)",
        "module.model.W = module.model.pc.add_parameters((3, 3))",
        "module.model.E = module.model.pc.add_lookup_parameters((2, 3))",
        "tree.kids[0].isleaf = lambda: False",
        "tree.kids[1].kids = ()",
        "tree.kids[1].word = 'a'; tree.kids[1].kids = []",
        "tree.kids[1].word = 77; tree.kids[1].kids = []",
        "del tree.kids[1].kids",
        "tree.kids[1] = None",
        "tree.kids.clear()",
        "tree.kids[0] = tree",
    ],
)
def test_what_changes_is_noticed(pair: Callable, change: str) -> None:
    p = pair(SOURCE)
    for _ in range(4):
        p.agree(encode(3, 4, 2, 5))
    assert hits(p)

    def prepare(module: ModuleType, tree: Any) -> None:
        exec(change, {"dy": dy, "module": module, "tree": tree, "self": module.model, "Tree": module.Tree})

    p.agree(encode(3, 4, prepare=prepare))
    p.agree(encode(3, 4))


def test_method_of_a_subclass(pair: Callable) -> None:
    p = pair(SOURCE)
    for _ in range(4):
        p.agree(encode(3, 4, 2, 5, kind="Squared"))


def test_depth_is_that_of_python(pair: Callable) -> None:
    p = pair(SOURCE)
    for _ in range(4):
        p.agree(encode(3, 4, 2, 5))

    def use(module: ModuleType) -> list:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(400)
        try:
            return [module.model.encode(chain(module, n)) for n in (20, 200, 300, 1000)]
        finally:
            sys.setrecursionlimit(limit)

    p.agree(use)


def test_deep_trees(pair: Callable) -> None:
    p = pair(SOURCE)
    for _ in range(5):
        p.agree(lambda m: [encode(3)(m)] + [m.model.encode(chain(m, n)) for n in (2, 40, 240, 600)])


def test_a_tracer_sees_the_script(pair: Callable) -> None:
    p = pair(SOURCE)
    for _ in range(4):
        p.agree(encode(3, 4, 2, 5))
    called = []

    def use(module: ModuleType) -> list:
        called.clear()
        tree = balanced(module, 3)
        sys.setprofile(lambda f, event, _: called.append(f.f_code.co_name) if event == "call" else None)
        try:
            return [module.model.encode(tree)]
        finally:
            sys.setprofile(None)

    p.agree(use)
    assert called.count("encode") == 15 and called.count("isleaf") == 15


def test_closures(pair: Callable) -> None:
    p = pair("""
def build(pc):
    W, E = pc.add_parameters((3, 3)), pc.add_lookup_parameters((9, 3))
    scores = []
    def encode(tree):
        if isinstance(tree, int):
            return E[tree]
        hs = [encode(t) for t in tree]
        h = dy.tanh(W * dy.esum(hs))
        scores.append(dy.sum_elems(h))
        return h
    return encode, scores
def early():
    def encode(tree):
        return late if tree == 0 else dy.tanh(dy.tanh(encode(0)))
    first = encode(1)
    late = dy.zeros(3)
    return first
""")

    def use(module: ModuleType) -> list:
        built = module.built = getattr(module, "built", None) or module.build(dy.ParameterCollection())
        encode, scores = built
        scores.clear()
        return [encode(t) for t in (((1, 2), 3), ((4, 5), (6, (7, 8))), (1, (2, 3)), (2, 2))] + scores

    for _ in range(8):
        p.agree(use)
    assert hits(p)
    p.agree(lambda m: [m.early()])


def test_lists_that_are_read_again(pair: Callable) -> None:
    p = pair("""
class Model:
    def __init__(self):
        self.W = dy.ParameterCollection().add_parameters((3, 3))
        self.stack = []
    def encode(self, tree):
        if tree[0] == "leaf":
            h = dy.tanh(self.W * dy.constant(3, tree[1]))
        else:
            self.encode(tree[1])
            self.encode(tree[2])
            h = dy.tanh(self.W * self.stack[-1] + self.stack[-2])
        self.stack.append(h)
        if len(self.stack) > 5:
            return h
""")
    leaf = ("leaf", 1.0)
    tree = ("node", ("node", leaf, leaf), leaf)

    def use(module: ModuleType) -> list:
        model = module.model = getattr(module, "model", None) or module.Model()
        model.stack.clear()
        return [model.encode(tree) for _ in range(3)] + model.stack

    for _ in range(6):
        p.agree(use)


def test_extra_arguments(pair: Callable) -> None:
    p = pair("""
class Tree:
    def __init__(self, *kids):
        self.kids = kids
class Model:
    def __init__(self):
        self.W = dy.ParameterCollection().add_parameters((3, 3))
    def walk(self, t, depth, *, seen=None):
        return None
    def encode(self, t, depth, scale=1.0):
        if isinstance(t, str):
            return dy.constant(3, scale) * 0.5
        total = dy.zeros(3)
        for k in t.kids:
            total = total + self.encode(k, depth + 1)
        if depth > 1:
            total = dy.tanh(self.W * total)
        return total
""")

    def use(module: ModuleType) -> list:
        model = module.model = getattr(module, "model", None) or module.Model()
        T = module.Tree
        tree = T(T("a", T("b", T("c"))), "d", T("e", "f"))
        return [model.encode(tree, 0), model.encode(tree, depth=1), model.encode(tree, 0, 2.0)]

    for _ in range(12):
        p.agree(use)
    assert hits(p)


def test_modules_are_freed(pair: Callable) -> None:
    p = pair(SOURCE)
    for _ in range(4):
        p.agree(encode(3, 4, 2, 5))
    assert hits(p)
    names = weakref.ref(p.other.Model)
    del sys.modules[p.other.__name__], p.plain, p.other
    gc.collect()
    assert names() is None


def test_truth_of_a_list_that_is_appended_to(pair: Callable) -> None:
    p = pair("""
class Model:
    def __init__(self):
        pc = dy.ParameterCollection()
        self.W, self.E = pc.add_parameters((3, 3)), pc.add_lookup_parameters((9, 3))
    def encode(self, t, out):
        if isinstance(t, int):
            x = self.E[t]
            y = dy.tanh(self.W * x) if out else dy.logistic(self.W * x + x)
            for _ in (1,):
                out.append(y)
            return y
        left = self.encode(t[0], out)
        right = self.encode(t[1], out)
        return dy.tanh(self.W * left + right)
""")

    def use(module: ModuleType) -> list:
        model = module.model = getattr(module, "model", None) or module.Model()
        lists: list = [[] for _ in range(5)]
        trees = (((1, 2), 3), ((4, 5), (6, (7, 8))), (1, (2, 3)), 5, (2, 2))
        return [model.encode(t, out) for t, out in zip(trees, lists)] + lists

    for _ in range(12):
        p.agree(use)
    assert hits(p)


BESIDE = """
import numpy as np
pc = dy.ParameterCollection()
W = pc.parameters_from_numpy(np.eye(3) * 0.5)
E = pc.lookup_parameters_from_numpy(np.eye(9, 3))
class Tree:
    def __init__(self, word, kids=()):
        self.word, self.kids = word, list(kids)
def build(t, x):
    if not t.kids:
        return dy.tanh(E[t.word] + E[0])
    left = build(t.kids[0], x)
    right = build(t.kids[1], x)
    return dy.tanh(W * left + right) + left
def first(t, x):
    if not t.kids:
        return 1
    if x:
        return np.argmax(x.npvalue())
    for kid in t.kids:
        if kid.word > 100:
            return 0
    return first(t.kids[0], x)
"""


def test_a_recursion_that_records_nothing_is_not_run_in_the_place_of_another(pair: Callable) -> None:
    """`first` is compiled again, for its index, and no call records it."""
    p = pair(BESIDE)

    def use(module: ModuleType) -> list:
        tree = module.Tree(1, [module.Tree(2, [module.Tree(3), module.Tree(4)]), module.Tree(5)])
        return [module.build(tree, None), module.first(tree, None)]

    for _ in range(4):
        p.agree(use)
    before = hits(p)
    p.agree(use)
    assert hits(p) == before + 1 and len(p.rewriter.walked_functions) == 1
