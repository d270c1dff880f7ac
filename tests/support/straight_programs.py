"""Random modules with functions that record ops, in the ways that scripts are written in."""

from __future__ import annotations

import random

HEAD = """
import functools
import numpy as np
import dynet_compat as dy
NUMBERS = np.linspace(-1, 1, 9)
SCALE = 0.5
HALF, TWO = np.float32(0.5), np.int64(2)
def free(x, k=3):
    y = dy.tanh(x)
    return y * SCALE + dy.cmult(x, y)
def one(x):
    return dy.rectify(x)
def swapped(a, b, *, k=2.0, flip=True):
    return b, dy.cmult(a, one(b)) * k
def declared(x):
    global SCALE
    w = dy.parameter(x)
    return dy.tanh(w) * SCALE
@functools.lru_cache(maxsize=3)
def remembered(x, y):
    z = dy.tanh(x)
    return z + y
class Model:
    dy = dy
    size = 2
    @staticmethod
    def joined(x, y):
        z = dy.concatenate([x[:Model.size], y[Model.size:]])
        return z + dy.cmult(x, y)
    def __init__(self):
        pc = self.pc = dy.ParameterCollection()
        self.W = pc.parameters_from_numpy(NUMBERS.reshape(3, 3))
        self.U = pc.parameters_from_numpy(NUMBERS.reshape(3, 3) * 0.5)
        self.b = pc.parameters_from_numpy(NUMBERS[:3])
        self.E = pc.lookup_parameters_from_numpy(np.linspace(-2, 2, 27).reshape(9, 3))
        self.gates = {"i": self.W, "o": self.U}
        self.pairs = {name: (self.b, w) for name, w in self.gates.items()}
        self.dy = dy
        self.activation = dy.tanh
        self.layers = [self.W, self.U]
        self.rnn = dy.VanillaLSTMBuilder(1, 3, 3, pc)
        self.h = None
        self.outs = []
        self.count = 0
        self.k = 0.5
    def slow(self, x):
        # Does more than to record: the numbers of its calls tell their order.
        self.count += 1
        if self.count % 2:
            return dy.tanh(x) * (1.0 / self.count)
        return x
    def swap(self, x):
        self.W, self.U = self.U, self.W
        self.gates["o"] = self.W
        return x + x
    def down(self, x, depth, seen):
        if depth == 0:
            y = self.W * x
        else:
            y = self.two(self.down(x, depth - 1, seen), self.slow(x))[1]
        seen.append(dy.tanh(self.U * y))
        return y
    def helper(self, x, name="i"):
        return dy.logistic(self.gates[name] * x + self.b)
    def two(self, x, y):
        z = dy.tanh(x + y)
        return z, dy.cmult(x, z)
"""


CHANGES = [
    "self.gates['i'] = self.U",
    "self.layers.reverse()",
    "self.size = 3 - self.size",
    "self.layers[0] = self.layers[1]",
    "self.pairs['i'] = self.pairs['o'][0], self.U",
    "self.pairs['o'] = self.pairs.pop('i', (self.b, self.W)); self.pairs['i'] = self.b, self.layers[0]",
    "self.layers = [*self.layers, self.W][-3:]",
    "self.activation = dy.rectify if n % 2 else dy.tanh",
    "self.outs.clear()",
    "xs = xs[:n]",
    "self.count += 1",
    "self.W, self.U = self.U, self.W",
    "n = (n * 2 + 1) % 9",
    "m = n",
    "xs, self.outs = self.outs[-3:], xs",
    "self.outs = [dy.tanh(x) for x in self.outs[-2:]]",
    "self.k += 0.25",
    "self.two, self.k = lambda x, y, f=self.two: f(y, x), 1.5",
    "vars(self).pop('two', None)",
    "swapped.__kwdefaults__['k'] = 0.5 * n",
    "swapped.__kwdefaults__.update(k=2.0)",
    "free.__defaults__ = (n,)",
    "c += n",
    "c += m",
    "t += self.k",
    "t = t + n",
]


# What loops iterate over: some run code of the script between the items, some have items that are no pairs.
LOOPS = [
    ("n", "range(n)"),
    ("n", "range(9)"),
    ("_", "range(m + 1)"),
    ("m", "[3, 1, n, 4, 1, 5, 2, 6]"),
    ("n", "reversed([2, m, 5, n, 3, 3])"),
    ("x", "list(xs)"),
    ("x", "[x, h, x, h, h, x]"),
    ("x, n", "zip(xs, [3, 4, n, 8, 2])"),
    ("i, (x, n)", "enumerate(zip(list(xs), [m, 4, n, 2]))"),
    ("i, n", "enumerate((m, 2, n, 7, 0, 1))"),
    ("n", "(k % 9 for k in [3, n + 1, 5, m, 7])"),
    ("h", "map(self.slow, list(xs))"),
    ("n, m", "[(1, 2), (3, n), [m, 5], (2, 2), (n, m)]"),
    ("n, m", "{1: 2, n: 4, m: 3, 0: n}.items()"),
    ("m, n", "zip(range(n), range(3, 9))"),
]


class Writer:
    """Writes one function: `vectors` are names of Expressions {3}, `ints` of numbers, `lists` of lists."""

    def __init__(self, rng: random.Random, name: str) -> None:
        self.rng = rng
        self.name = name
        self.lines: list[str] = []
        self.vectors = ["x", "h"]
        self.ints = ["n", "m"]
        self.lists = ["xs"]
        self.states = ["s"]
        self.fresh = 0
        self.inner = rng.random() < 0.4  # is there a function inside the function?

    def text(self) -> str:
        self.block(1, self.rng.randint(2, 7))
        a, b = self.vector(), self.vector()
        result = self.rng.choice([a, f"({a}, {b})", f"[{a}, n, None, c, t, kept]"])
        self.lines.append(f"        return {result}")
        head = [f"    def {self.name}(self, x, h, n, m, xs, pair, s):", "        c, t, kept = 0, 0.5, []"]
        if self.inner:
            s = self.rng.choice(["y", "x", "self.b"])
            head += ["        def inner(y, t=2.0):", f"            z = self.U * y + {s}"]
            head += ["            h0 = dy.tanh(z) * t", "            return dy.cmult(h, h0) + x"]
        return "\n".join([*head, *self.lines, ""])

    def new(self) -> str:
        self.fresh += 1
        return f"v{self.fresh}"

    def vector(self, depth: int = 0) -> str:
        r = self.rng
        v = r.choice(self.vectors)
        if depth > 2 or r.random() < 0.2:
            return v
        a, b = self.vector(depth + 1), self.vector(depth + 1)
        n = self.number()
        inner = [f"inner({a})", f"inner({a}, self.k)", f"inner({a}, t=0.5) + {b}"] if self.inner else []
        return r.choice(
            [
                *inner,
                f"declared({a})",
                f"remembered({a}, {b})",
                f"self.joined({a}, {b})",
                f"dy.parameter({a})",
                f"dy.concatenate([{a}[:self.size], {b}[self.size:]])",
                f"dy.parameter({r.choice(['self.W', 'self.layers[1]'])}) * {a}",
                f"[dy.parameter(w) for w in self.layers][{r.choice('01')}] * {a}",
                *inner,
                f"dy.tanh({a})",
                f"dy.logistic({a})",
                f"({a} + {b})",
                f"dy.cmult({a}, {b})",
                f"self.W * {a}",
                f"dy.affine_transform([self.b, self.W, {a}, self.U, {b}])",
                f"self.E[{n}]",
                f"dy.lookup(self.E, {n})",
                f"self.gates['{r.choice('io')}'] * {a}",
                f"self.layers[{r.choice('01')}] * {a}",
                f"self.helper({a})",
                f"self.helper({a}, 'o')",
                f"free({a})",
                f"one({a})",
                f"swapped({a}, {b}{r.choice(['', ', k=SCALE', ', k=self.k'])})[{r.choice('01')}]",
                f"self.two({a}, {b})[{r.choice('01')}]",
                f"({a} * {r.choice(['2.0', '0.5', 'SCALE'])})",
                f"dy.dropout({a}, 0.5)",
                f"pair[{r.choice('01')}]",
                f"dy.concatenate([{a}, {b}])[0:3]",
                f"dy.esum([{a}, {b}])",
                "dy.esum(xs)",
                "xs[-1]",
                "xs[0]",
                f"({a} + {a}[{n} % 3])",
                f"({a} + dy.pick({b}, {r.choice(['2', '0'])}))",
                "self.b + dy.zeros(3)",
                f"s.add_input({a}).output()",
                f"dy.noise({a}, 0.1)",
                f"-{a}",
                f"dy.max_dim(dy.reshape({a}, (3, 1)), 1)",
                f"({a} * self.k)",
                f"dy.esum([b + w * {a} for b, w in self.pairs.values()])",
                f"{{k: b + w * {a} for k, (b, w) in self.pairs.items()}}['{r.choice('io')}']",
                f"[w * {a} for w in self.layers][{r.choice('01')}]",
                f"{{k: getattr(self, k) * {a} for k in 'WU'}}['{r.choice('WU')}']",
                f"[w * {a} + {b} for w in (self.W, self.layers[{n} % 2])][{r.choice('01')}]",
                f"(getattr(self, f'{r.choice('WU')}') * {a})",
                f"({r.choice(['HALF', 'TWO', 'np.float64(-0.0)'])} * {a} + self.E[TWO])",
                f"dy.esum([self.gates[k] * {a} * (i + 0.5) for i, k in enumerate(self.gates) if i < 3])",
                f"({a} * len(self.layers))",
                f"({a} if len(self.layers) > 2 else {b})",
                f"(xs[0] if xs else {a})",
                f"(self.outs[-1] if self.outs and n else {a})",
                f"self.dy.tanh({a})",
                f"self.activation({a} + {b})",
                f"(self.W.expr(update={r.choice(['True', 'False'])}) * {a})",
                f"(dy.parameter(self.U) * {a})",
                f"({a} + dy.random_normal(n % 3 + 1)[0])",
                f"({r.choice(['x', 'None', 'self.k and x', 'pair and h'])} or {a})",
                f"({a} if {r.choice(['c', 'not t', 'x is None', 'pair', 'self.h is not None'])} else {b})",
                f"dy.esum({r.choice(['list', 'tuple'])}([{a}, {b}]))",
                f"self.slow({a})",
                f"self.swap({a})",
                f"dy.cmult({a}, self.slow({b}))",
                f"self.two(self.slow({a}), self.swap({b}))[0]",
                f"self.down({a}, {n} % 3, [])",
            ]
        )

    def alias(self, depth: int) -> None:
        """A list under two names, perhaps one that is known outside."""
        r, a, b = self.rng, self.new(), self.new()
        self.add(depth, f"{a} = {b} = [{self.vector(1)}, {self.vector(1)}]")
        self.add(depth, f"{r.choice([a, b])}.append({self.vector(1)})")
        self.add(depth, f"{r.choice(['xs', 'self.outs'])}.append({r.choice([a, b])}[{r.choice('01')}])")
        self.add(depth, f"kept.append(({a}, {b}, {r.choice(['x', 'xs', 'h', a])}))")
        self.add(depth, f"{r.choice([a, b])}.append({self.vector(1)})")

    def loop(self, depth: int) -> None:
        """A loop whose body may be a region: what follows reads its names."""
        r = self.rng
        target, over = r.choice(LOOPS)
        self.add(depth, f"for {target} in {over}:")
        for _ in range(r.randint(1, 4)):
            lines = [f"x = {self.vector(1)}", f"h = {self.vector(1)}", f"s = s.add_input({self.vector(1)})"]
            lines += [f"{r.choice(['xs', 'self.outs', 'kept'])}.append({self.vector(1)})"]
            lines += [f"x, h = h, {self.vector(1)}", f"kept.append((x, {self.vector(1)}, n))"]
            lines += ["pair = (h, x)"]
            rare = ["if n == 5: break", r.choice(CHANGES), f"if m > 4: h = {self.vector(1)}"]
            self.add(depth + 1, r.choice(lines if r.random() < 0.93 else rare))
        if r.random() < 0.3:
            self.add(depth, f"kept.append({r.choice(['n', 'm', 'x', 's.output()'])})")

    def number(self) -> str:
        return self.rng.choice([*self.ints, "5", "2"])

    def block(self, depth: int, n: int) -> None:
        for _ in range(n):
            self.statement(depth)

    def add(self, depth: int, line: str) -> None:
        self.lines.append("    " * (depth + 1) + line)

    def statement(self, depth: int) -> None:
        r = self.rng
        kind = r.random()
        if kind < 0.45 or depth > 3:
            name = r.choice(["x", "h", self.new()])
            self.add(depth, f"{name} = {self.vector()}")
            if depth == 1 and name not in self.vectors:
                self.vectors.append(name)
        elif kind < 0.52:
            self.add(depth, f"{r.choice(self.vectors)} += {self.vector()}")
        elif kind < 0.60:
            self.add(depth, f"{r.choice(['xs', 'xs', 'self.outs'])}.append({self.vector()})")
        elif kind < 0.65:
            both = f"({self.vector()}, {self.vector()})"
            self.add(depth, f"x, h = {r.choice(['self.two(x, h)', '(h, x)', 'pair', both])}")
        elif kind < 0.70 and depth < 3:
            self.loop(depth)
        elif kind < 0.74:
            self.add(depth, f"for {r.choice(['_', 'n', 'i'])} in range({r.choice(['2', '3', 'n % 4'])}):")
            self.block(depth + 1, r.randint(1, 3))
        elif kind < 0.80:
            test = r.choice(["n % 2", "m > 4", "len(xs) > 3", "dy.sum_elems(x).scalar_value() > 0"])
            self.add(depth, f"if {test}:")
            self.block(depth + 1, r.randint(1, 2))
            if r.random() < 0.5:
                self.add(depth, "elif n > 6:" if r.random() < 0.3 else "else:")
                self.block(depth + 1, r.randint(1, 2))
        elif kind < 0.85:
            self.add(depth, f"xs = [{self.vector(1)} for x in xs]")
        elif kind < 0.88:
            self.add(depth, f"xs = [{self.vector(1)} for x, n in zip(xs, [3, 4, n])] + [h]")
        elif kind < 0.90:
            lines = ["kept = [w * x for w in self.layers] + kept[:2]", "c = len(self.layers) * 0.5"]
            lines += ["g = {k: w * h for k, w in self.gates.items()}; x = g['o']; kept.append(g['i'])"]
            lines += ["kept.append([(w * x, k) for k, w in self.gates.items()])"]
            lines += ["e = self.U.expr(); x = e * x"]
            lines += ["g = {k: (getattr(self, k) * x, x) for k in 'WU'}; x = g['W'][0]; kept.append(g)"]
            lines += ["g = [w * x for w in (self.W, self.U)]; g.append(x); kept.append(g); x = g[0]"]
            lines += ["i = n % 2; x = pair[i - 1] + self.layers[i - 1] * x + self.E[i + 2]"]
            lines += ["kept.append([pair[i - 1] + self.E[i + 1] for i in range(2)])"]
            lines += [
                "w = dy.parameter(self.W); x = w * x",
                "kept.append([dy.parameter(w) for w in self.layers])",
            ]
            lines += [
                f"xs = xs[1:] + [{self.vector(1)}]",
                "w, u = [dy.parameter(w) for w in self.layers]; h = u * h",
            ]
            self.add(depth, r.choice(lines))
        elif kind < 0.92:
            self.add(depth, f"s = s.add_input({self.vector()})")
        elif kind < 0.93 and depth == 1:
            self.alias(depth)
        elif kind < 0.96:
            self.add(depth, r.choice(CHANGES))
        else:
            self.add(depth, f"self.h = {self.vector()}")


def module(seed: int) -> str:
    """Source text of a module with a class Model whose methods f0... record."""
    rng = random.Random(seed)
    methods = [Writer(rng, f"f{i}").text() for i in range(rng.randint(1, 3))]
    return HEAD + "\n".join(methods)


def use(model: object, dy: object, seed: int) -> list:
    """Call the methods in an order that the seed gives, in the graph as it is; what they return."""
    rng = random.Random(seed)
    out = []
    model.outs = []  # type: ignore[attr-defined]
    functions = [getattr(model, f) for f in dir(model) if f[0] == "f" and f[1:].isdigit()]
    start = model.rnn.initial_state()  # type: ignore[attr-defined]
    x = dy.inputVector([0.1, -0.2, 0.3])  # type: ignore[attr-defined]
    h = model.E[rng.randrange(9)]  # type: ignore[attr-defined]
    for _ in range(rng.randint(2, 6)):
        xs = [x, h] if rng.random() < 0.5 else [h]
        pair = (x, h) if rng.random() < 0.7 else [h, x]
        state = start if rng.random() < 0.5 else start.add_input(x)
        result = rng.choice(functions)(x, h, rng.randrange(9), rng.randrange(9), xs, pair, state)
        out.append(result)
        out.extend(xs)
        first = result[0] if isinstance(result, (list, tuple)) else result
        x, h = (first, x) if rng.random() < 0.5 else (dy.inputVector([rng.random()] * 3), x)  # type: ignore[attr-defined]
    return out + list(model.outs)  # type: ignore[attr-defined]
