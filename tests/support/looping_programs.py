"""Random programs of functions with loops over numbers and lists: counters, stacks, sums; and classes, dicts
and functions of the script that do more than they seem to."""

from __future__ import annotations

import random
from typing import Any

from support.recursive_programs import indent

HEAD = """import collections
import random
from random import randint

import dynet_compat as dy
import numpy as np

NOTES = []
TABLE = {0: 3, 1: 1, 2: 0, "a": 4, 5: 2, None: 1, 2.0: 7}
DEFAULT = 2

class Key:
    def __init__(self, number):
        self.number = number
    def __hash__(self):
        return self.number
    def __eq__(self, other):
        NOTES.append(self.number)
        return self.number == other

class Known(dict):
    def __missing__(self, key):
        NOTES.append(key)
        return 2

class Noted(Known):
    def __getitem__(self, key):
        NOTES.append(key)
        return dict.get(self, key, 3)

COUNTS = collections.Counter({1: 3, 2: 0, 5: 1, 7: 2})
SEEN = collections.defaultdict(int, {0: 1, 4: 2})
OWN = Known({1: 2, 3: 0, 8: 1})

KEYS = {Key(1): 2, Key(4): 3, 6: 1}

class Odd:
    rate = 2
    def __init__(self):
        self.own = 1
    @property
    def width(self):
        return self.own + self.rate
    @property
    def noted(self):
        NOTES.append("noted")
        return self.rate
    def __len__(self):
        NOTES.append("len")
        return self.own
    def __contains__(self, item):
        NOTES.append(item)
        return item == 3
    def __getitem__(self, i):
        if i > 3:
            raise IndexError(i)
        return i

class Items(list):
    def append(self, item):
        NOTES.append("append")
        list.append(self, item)

ODD = Odd()
ITEMS = Items([1, 2])

def adder(k):
    def add(n, more=DEFAULT):
        i = k
        while i > 0:
            i -= 1
            n += more
        return n
    return add

add = adder(3)

RNG = random.Random(5)

class Cell:
    kind = 1
    def __init__(self, vec, word=0) -> None:
        self.vec, self.word = vec, word
        self.next = None
    def twice(self):
        return self.vec + self.vec
    @property
    def size(self):
        return self.word + self.kind

class Linked:
    __slots__ = ("vec", "next")
    def __init__(self, vec, next=None):
        self.vec, self.next = vec, next

class Bag:
    pass

class Model:
    def __init__(self):
        pc = self.pc = dy.ParameterCollection()
        self.E = pc.add_lookup_parameters((9, 3))
        self.W = pc.add_parameters((3, 3))
        self.U = pc.add_parameters((3, 6))
        self.V = pc.add_parameters((5, 3))
        self.b = pc.add_parameters(3)
        self.scores = []
        self.rnn = dy.SimpleRNNBuilder(1, 3, 3, pc)
        self.lstm = dy.LSTMBuilder(2, 3, 3, pc)
        self.sides = dy.BiRNNBuilder(2, 3, 6, pc, dy.GRUBuilder)

    @staticmethod
    def mixed(x, y):
        return dy.tanh(x + dy.cmult(y, y))

    @staticmethod
    def more(n, m=2):
        return n + m

    def step(self, x, h):
        return dy.tanh(self.W * x + dy.cmult(h, self.b))

    def top(self, xs):
        return xs[-1] if xs else self.b

    def both(self, x, h=None):
        if h is None:
            h = self.b
        return dy.rectify(self.U * dy.concatenate([x, h]))

    def __call__(self, w):
        return self.E[w] if w != 3 else dy.tanh(self.E[w])

    def apply(self, function, n, h):
        return function(self.apply(dy.logistic, n - 1, h)) if n > 0 else self.W * h

    def take(self, xs, /, n=0):
        while len(xs) > 3:
            xs.pop(n)
        return xs[0] if xs else self.b

    def put(self, xs, x, last=False):
        if last or not xs:
            xs.append(x)
        return xs

    def drop(self, w, p=0.4):
        if RNG.random() < p:
            w = 0
        return self.E[w % 9]

    def maybe(self, x):
        return self.step(x, x) if random.random() < 0.5 else dy.logistic(x)

    def guarded(self, w, h):
        try:
            h = self.step(self.E[w % 3], h)
            if w == 5:
                raise KeyError(w)
            return h
        finally:
            NOTES.append(w)
"""

CHANGES = [
    "module.TABLE = {**(module.TABLE or {}), \"b\": 1}", "module.ODD.rate = 3", "module.Odd.rate = 4",
    "model.b = model.pc.add_parameters(3)", "model.W = model.pc.add_parameters((3, 3))",
    "module.Model.top = lambda self, xs: self.b", "module.add = module.adder(2)", "module.len = lambda x: 2",
    "module.Odd.width = 5", "module.Model.take.__defaults__ = (1,)", "module.DEFAULT = 1",
    "module.range = lambda *a: [1, 2]", "module.KEYS = {1: 2}", "module.zip = lambda *a: []",
    "module.list = lambda x: [h for h in x]", "module.Model.step = module.Model.both",
    "module.dy = type('Api', (), {n: getattr(dy, n) for n in dir(dy) if n[0] != '_'})", "module.TABLE = None",
    "module.Cell.kind = 3", "module.Cell.__init__.__defaults__ = (4,)",
    "module.Cell.twice = lambda self: self.vec",
    "module.Cell = type('Cell', (module.Cell,), {'size': 7})",
    "module.Linked.__init__ = module.Cell.__init__",
    "module.random = type('Other', (), {n: getattr(module.random, n) for n in ('random', 'choice')})",
    "module.RNG.random = lambda: 0.5",
    "module.add.__defaults__ = (7,)", "model.take = lambda xs, n=0: model.b",
    "module.reversed = list", "module.COUNTS[1] += 1", "module.COUNTS.get = lambda key, other=0: 3",
    "module.OWN.__class__ = module.Noted", "module.Known.get = lambda self, key, other=0: 1",
    "module.Known.__bool__ = lambda self: False", "module.SEEN = module.OWN", "module.OWN.clear()",
    "module.sum = lambda items: items[0] if items else 0", "module.Model.mixed = lambda self, x, y: y",
    "model.mixed = lambda x, y: y", "module.Model.more = staticmethod(max)", "model.rnn.set_dropout(0.3)",
    "model.sides._both = lambda f, b, es: [dy.concatenate([e, e]) for e in es]",
    "model.rnn = dy.GRUBuilder(1, 3, 3, model.pc)", "model.sides.set_dropout(0.2)",
    "model.b.set_updated(False)", "model.sides.builder_layers.reverse()",
]  # fmt: skip

# What walks leave to Python.
ODD_TESTS = [
    "WORD in KEYS", "ODD", "WORD in ODD", "h.npvalue()[0] > 0", "len(ITEMS) > n", "TABLE[WORD] > 1",
]  # fmt: skip
ODD_STATEMENTS = [
    "n = KEYS[WORD]", "ITEMS.append(n)", "words[len(words) > 2:] = [3]", "h = self.guarded(WORD, h)",
    "n = len(ITEMS) - n", "f = f / (n - 3)", "n = TABLE[WORD] % 7", "h, *ys = [h, x]",
]  # fmt: skip
DRAWING_STATEMENTS = [
    "h = self.drop(WORD)", "x = self.drop(n, 0.2)", "h = self.maybe(x)",
    "h = self.drop(WORD) + self.drop(WORD)",
    "n = n + 1 if random.random() < 0.5 else n", "n = randint(0, 6)", "n = random.choice((1, 2, 3))",
    "x = random.choice(xs) if xs else x", "f = random.uniform(0, 1.5)", "n = RNG.randrange(4)",
    "f = np.random.random()", "n = int(np.random.randint(3))", "n = np.random.randint(1, 3)",
    "h = random.choice(ys)",
    "f = random.gauss(0, 1)", "xs = [self.drop(e) for e in words]",
]  # fmt: skip
FUEL = ["fuel -= 1", "if fuel < 0:", "    break"]  # lists may grow in loops


class Generator:
    """Writes one module; `seed` decides everything."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.budget = self.rng.randint(6, 16)  # statements
        self.odd = self.rng.random() < 0.3
        self.draws = self.rng.random() < 0.3

    def vector(self, word: str) -> str:
        """An expression of three elements; `word`: the name of a number."""
        r = self.rng
        x = r.choice(["h", "x", f"self.E[{word} % 9]", f"self({word} % 9)", "self.b", "self.top(xs)"])
        y = r.choice(["h", "x", "h", "ys[0] if ys else h"])
        return r.choice([
            f"dy.tanh(self.W * {x} + self.b)", f"self.step({x}, h)", f"self.both({x})", f"self.both({x}, x)",
            f"dy.logistic({x} + ({y}))", f"dy.esum([{x}, h, x])", f"self.U * dy.concatenate([{x}, h])",
            f"dy.cmult({x}, h) * 0.5", f"-{x}", f"dy.dropout(dy.tanh({x}), 0.3)", f"{x} - dy.square(h)",
            f"self.step({x}, self.both(h, x=x))" if r.random() < 0.1 else f"1 - {x} / 2",
            f"dy.average(xs) if xs else {x}", f"dy.max_dim(dy.concatenate_cols([{x}, h, x]), 1)",
        ])  # fmt: skip

    def test(self, word: str) -> str:
        r = self.rng
        return r.choice([
            "xs", "not ys", f"{word} % 2 == 0", "len(xs) > 1", "len(xs) > 2 and ys", f"{word} in (1, 4, 7)",
            f"isinstance({word}, (int, str))", "m % 3 == 1", "f > 0.5", "m in (n, m)", "not f == f",
            "xs is None", f"add({word}) > 3", "ODD.width > n", "ODD.noted == 2",
            "n > 3", "n != len(words)", f"{word} not in words", "xs and n < 5", "n is None",
            f"not {word} or n",
            *(ODD_TESTS if self.odd else ()),
        ]).replace("WORD", word)  # fmt: skip

    def simple(self, word: str) -> list[str]:
        r = self.rng
        v = self.vector(word)
        return r.choice([
            [f"h = {v}"], [f"x = {v}"], [f"h = {v}", f"x = {self.vector(word)}"], [f"xs.append({v})"],
            [f"xs.append({v})"], ["if xs:", "    x = xs.pop()"], ["if ys:", "    h = ys.pop(0)"],
            ["x = xs.pop()"], ["if xs:", f"    xs[{r.choice(['0', '-1', word])}] = {v}"], ["ys = xs"],
            ["ys = list(xs)"], ["ys = xs[1:]"], ["xs = list(reversed(xs))"], ["ys = [h] * 2 + xs"],
            ["xs.extend(ys[:3])"], ["xs += [h]"], ["ys = [self.step(e, h) for e in xs]"],
            ["ys = [e for e in xs if n]"], ["n += 1"], [f"n = (n * 3 + {word}) % 7"], ["n -= 2"],
            [f"self.scores.append(dy.pickneglogsoftmax(self.V * h, {word} % 5))"],
            ["losses.append(dy.pickneglogsoftmax(self.V * x + self.V * h, n % 5))"],
            ["total = total + dy.sum_elems(h)"], ["total += dy.dot_product(h, x)"], ["h, x = x, h"],
            ["if n > 40:", "    raise ValueError(n)"],
            ["m = m * 12345678901 + n"], ["m = -m // 7"], ["f -= 0.25 * n"], ["f = m % 7 / 2"], ["h = h * f"],
            ["n = add(n % 5)"], ["n = add(n % 5, more=1) % 9"], ["n = ODD.width"], ["x = self.take(xs)"],
            [f"h = self.apply(dy.tanh, {word} % 3, h)"], ["x = self.take(ys, n=-1)"],
            ["ys = self.put(xs, h)"], ["self.put(ys, x, last=n > 1)"],
            ["if len(xs) > 1:", "    xs[0], xs[-1] = xs[-1], h"],
            ["if len(xs) == 2:", "    xs[1], xs[0] = xs"], ["ys = xs[-2:n]"], ["ys = xs[:]"],
            ["ys = xs[n:m]"], ["ys = (h, x) + (h,)", "ys = list(ys[:2])"], ["for x in [h, x]:", "    n += 1"],
            ["act = dy.tanh if n % 2 else dy.logistic", "h = act(h)"],
            [f"if {word} in TABLE:", f"    n = TABLE[{word}]"],
            [f"h = dy.esum([self.step(e, self({word} % 9)) for e in xs[:2]] + [h])"],
            *([line.replace("WORD", word)] for line in ODD_STATEMENTS if self.odd),
            [f"cell = Cell({v}, {word})"], ["cell.vec = h", "n += cell.size"], ["h = cell.twice()"],
            [f"n = TABLE.get({word}, n)"], [f"n = max({word}, n, 2) - min(m, 3)"], ["xs.insert(n - 1, h)"],
            ["f = abs(float(n)) / 4", "m = int(f) + round(f, 1)"], ["if 1 < n <= 4:", "    n += 1"],
            ["name = str(n)", "if name.startswith('1') or name.isdigit():", "    n = len(name.upper())"],
            [f"for c in str({word}):", "    n = TABLE.get(c, n + 1)"],
            ["name = 'xyz'[n % 3]", "n += name < 'y'"],
            ["cells.append(Cell(x))"], ["if cells:", "    x = cells.pop().vec"], ["last = Linked(h, last)"],
            ["if last.next is not None:", "    last = last.next", "    x = last.vec"],
            ["bag = Bag()", "bag.h = dy.tanh(x)", "h = bag.h"], ["cell.next = Cell(word=n, vec=x)"],
            *([line.replace("WORD", word)] for line in DRAWING_STATEMENTS if self.draws),
            [f"n = COUNTS[{word}] + COUNTS.get({word}, 1)"], [f"if {word} in SEEN:", f"    n = SEEN[{word}]"],
            [f"n = OWN[{word}]"], [f"n = OWN.get({word}, n) if OWN else len(OWN)"], [f"SEEN[{word} % 9]"],
            [f"n = sum([n, {word}, len(COUNTS)]) % 97"], ["x = sum([h, x])"], ["f = sum([f, n])"],
            ["h = sum(ys[:2]) + h"], ["h = self.mixed(x, h)"], ["n = self.more(n) % 9"],
            ["n = self.more(n, m % 5) % 9"], ["s = self.rnn.initial_state([h])"], ["s = s.add_input(x)"],
            ["s = s.set_s([x])", "x = s.add_input(h).output()"], ["s = s.set_h([h])"], ["x = s.output()"],
            ["ys = self.rnn.initial_state([x]).transduce(xs[:3])"],
            ["ys = s.add_inputs(xs[:2] + [h])[-1].s()"],
            ["t = self.lstm.initial_state([h, x, h, x])", "x = t.add_input(x).output()"],
            ["t = t.set_s(list(t.s())) if t.s() else t.add_input(h)", "ys = list(t.h())"],
            ["ys = [dy.tanh(self.U * y) for y in self.sides.transduce(xs[:4])]"],
            ["if xs:", "    x = self.sides.add_inputs(xs[-3:])[0][1].output()"],
            ["h = h + self.b.expr()"], ["x = dy.cmult(self.b.expr(), x) + self.b"],
            [f"h = {v} if {self.test(word)} else {self.vector(word)}"],
            ["if len(xs) > 3:", "    return [h, xs]"] if r.random() < 0.3 else [f"h = {v}"],
        ])  # fmt: skip

    def loop(self, word: str, depth: int) -> list[str]:
        r = self.rng
        kind = r.randrange(7)
        i = f"i{depth}"
        if kind == 0:
            return [f"for {i} in words:", *indent(self.block(i, depth + 1, True))]
        if kind == 1:
            bounds = r.choice(["len(words)", "1, 4", "3, -1, -1", f"{word} % 4", "len(xs)"])
            return [f"for {i} in range({bounds}):", *indent([*FUEL, *self.block(i, depth + 1, True)])]
        if kind == 2:
            over = r.choice(["enumerate(words)", "zip(words, reversed(words))", "enumerate(reversed(words))"])
            if r.random() < 0.5:
                return [f"for {i}, w in {over}:", *indent(self.block(i, depth + 1, True))]
            over = ["enumerate(xs)", "zip(words, xs)", "enumerate(reversed(xs))", "zip(ys, reversed(xs))"]
            store = r.choice(["xs[-1] = h", "xs.append(xs.pop(0))", "xs[:1]", "ys.append(x)"])
            body = [*FUEL, "if xs:", f"    {store}", *self.block("n", depth + 1, True)]
            return [f"for {i}, x in {r.choice(over)}:", *indent(body)]
        if kind == 3:
            over = r.choice(["xs", "list(xs)", "reversed(ys)", "xs[:3]"])
            return [f"for x in {over}:", *indent([*FUEL, *self.block(word, depth + 1, True)])]
        if kind == 4:
            body = [f"{i} -= 1", *self.block(i, depth + 1, True)]
            return [f"{i} = {r.randrange(2, 6)}", f"while {i} > 0:", *indent(body)]
        if kind == 5:
            body = [*FUEL, *self.block(word, depth + 1, False), "x = xs.pop()", "h = self.both(xs.pop(), x)"]
            return ["while len(xs) > 1:", *indent(body)]
        body = [*FUEL, f"{i} = todo.pop({r.choice(['', '0'])})", *self.block(i, depth + 1, True)]
        return ["todo = list(words)", "while todo:", *indent(body)]

    def block(self, word: str, depth: int, looping: bool) -> list[str]:
        lines: list[str] = []
        for _ in range(self.rng.randint(1, 3)):
            self.budget -= 1
            r = self.rng.random()
            if depth < 3 and r < 0.2 and self.budget > 0:
                lines += self.loop(word, depth)
            elif r < 0.35 and depth < 4:
                lines += [f"if {self.test(word)}:", *indent(self.block(word, depth + 1, looping))]
                if self.rng.random() < 0.5:
                    lines += ["else:", *indent(self.block(word, depth + 1, looping))]
            elif r < 0.4 and looping:
                lines += [f"if {self.test(word)}:", "    " + self.rng.choice(["break", "continue"])]
            else:
                lines += self.simple(word)
        return lines

    def module(self) -> str:
        body = ["h = self.b", "x = self.E[1]", "xs, ys, losses = [], [], []", "n = total = 0"]
        body += ["s, t = self.rnn.initial_state([x]), self.lstm.initial_state()"]
        body += ["m, f = 1, 0.5", "fuel = 30", "cell, last, cells = Cell(h), Linked(x), []"]
        while self.budget > 0:
            body += self.loop("n", 0) if self.rng.random() < 0.6 else self.simple("n")
        seen = self.rng.choice(["cell", "cells", "cell.vec", "last.vec", "len(cells)", "0"])
        loss = "dy.esum(losses) if losses else None"
        body.append(f"return [h, x, xs, ys, n, m, f, total, {loss}, s, t, {seen}]")
        return HEAD + "\n".join(indent(["def loss(self, words):", *indent(body)])) + "\n"


def words(rng: random.Random, strange: float) -> Any:
    """A short list of numbers; with some chance something in it is unusual."""
    made: list[Any] = [rng.randrange(9) for _ in range(rng.choice([0, 1, 2, 3, 3, 4, 5]))]
    if made and rng.random() < strange * 4:
        made[rng.randrange(len(made))] = rng.choice([None, True, -1, "a", 2.0, 99])
    return tuple(made) if rng.random() < strange else made
