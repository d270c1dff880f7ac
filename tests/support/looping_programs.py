"""Random programs of functions with loops over numbers and lists: counters, stacks, sums."""

from __future__ import annotations

import random
from typing import Any

from support.recursive_programs import indent

HEAD = """import dynet_compat as dy

class Model:
    def __init__(self):
        pc = self.pc = dy.ParameterCollection()
        self.E = pc.add_lookup_parameters((9, 3))
        self.W = pc.add_parameters((3, 3))
        self.U = pc.add_parameters((3, 6))
        self.V = pc.add_parameters((5, 3))
        self.b = pc.add_parameters(3)
        self.scores = []

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
"""

FUEL = ["fuel -= 1", "if fuel < 0:", "    break"]  # lists may grow in loops


class Generator:
    """Writes one module; `seed` decides everything."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.budget = self.rng.randint(6, 16)  # statements

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
            "n > 3", "n != len(words)", f"{word} not in words", "xs and n < 5", "n is None",
            f"not {word} or n",
        ])  # fmt: skip

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
            return [f"for {i}, w in {over}:", *indent(self.block(i, depth + 1, True))]
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
        body = ["h = self.b", "x = self.E[1]", "xs, ys, losses = [], [], []", "n = total = 0", "fuel = 30"]
        while self.budget > 0:
            body += self.loop("n", 0) if self.rng.random() < 0.6 else self.simple("n")
        body.append("return [h, x, xs, ys, n, total, dy.esum(losses) if losses else None]")
        return HEAD + "\n".join(indent(["def loss(self, words):", *indent(body)])) + "\n"


def words(rng: random.Random, strange: float) -> Any:
    """A short list of numbers; with some chance something in it is unusual."""
    made: list[Any] = [rng.randrange(9) for _ in range(rng.choice([0, 1, 2, 3, 3, 4, 5]))]
    if made and rng.random() < strange * 4:
        made[rng.randrange(len(made))] = rng.choice([None, True, -1, "a", 2.0, 99])
    return tuple(made) if rng.random() < strange else made
