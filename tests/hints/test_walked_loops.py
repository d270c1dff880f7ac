"""Functions with loops recorded by one call: stacks, counters, lists that change; what only Python may do."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Callable

import pytest
from support.walks import MODEL, ROUNDS, WORDS, hits, model_of, refusals, run_all

PARSER = (
    MODEL
    + """
    def state(self, stack, buf):
        s = stack[-1] if stack else self.b
        b = buf[-1] if buf else self.b
        return dy.concatenate([s, b])

    def run(self, words, actions):
        buf = [self.E[w] for w in reversed(words)]
        stack, losses = [], []
        actions = list(actions)
        while actions:
            h = dy.tanh(self.W * self.state(stack, buf) + self.b)
            scores = self.V * h
            action = actions.pop(0)
            if len(stack) > 1 and buf:
                losses.append(dy.pickneglogsoftmax(scores, action))
            if action == 0:
                stack.append(buf.pop())
            else:
                right = stack.pop()
                left = stack.pop()
                stack.append(dy.rectify(self.W * dy.concatenate([left, right]) + self.b))
        return [dy.esum(losses) if losses else None, stack]
"""
)
SENTENCES = [
    ([1, 2, 3], [0, 0, 1, 0, 1]),
    ([4, 5], [0, 0, 1]),
    ([1, 2, 3, 4, 5], [0, 0, 0, 1, 1, 0, 0, 1, 1]),
    ([6, 7, 8, 0], [0, 0, 1, 0, 0, 1, 1]),
]


def run(*inputs: tuple) -> Callable[[ModuleType], list]:
    return lambda module: [model_of(module).run(*each) for each in inputs]


def test_a_shift_reduce_parser_is_recorded_by_one_call(pair: Callable) -> None:
    p = pair(PARSER)
    for _ in range(ROUNDS):
        p.agree(run(*SENTENCES))
    before = hits(p)
    p.agree(run(*SENTENCES))
    assert hits(p) == before + len(SENTENCES), refusals(p)


@pytest.mark.parametrize(
    "change",
    [
        "self.E = self.pc.add_lookup_parameters((4, 3))",
        "self.E = [dy.zeros(3)] * 9",
        "self.W = self.pc.add_parameters((3, 6))",
        "self.W = dy.zeros((3, 6))",
        "self.W = self.pc.add_parameters((3, 5))",
        "self.b = None",
        "self.state = lambda stack, buf: dy.concatenate([self.b, self.b])",
        "module.Model.state = lambda self, stack, buf: dy.zeros(6)",
        "module.dy = type('Api', (), {n: getattr(dy, n) for n in dir(dy) if n[0] != '_'})",
        "module.list = lambda x: [0, 0, 1]",
        "module.reversed = lambda x: x",
        "module.len = lambda x: 3",
    ],
)
def test_what_changes_is_noticed(pair: Callable, change: str) -> None:
    p = pair(PARSER)
    for _ in range(ROUNDS):
        p.agree(run(*SENTENCES))
    assert hits(p)

    def use(module: ModuleType) -> list:
        import dynet_compat as dy

        exec(change, {"dy": dy, "module": module, "self": model_of(module)})
        return run(*SENTENCES)(module)

    p.agree(use)
    p.agree(run(*SENTENCES))


@pytest.mark.parametrize(
    "words, actions",
    [
        ([1, 2], [0, 1]),  # an empty stack: IndexError
        ([1, 99], [0, 0, 1]),  # no such row
        ([1, -1], [0, 0, 1]),
        ([1, "a"], [0, 0, 1]),
        ([1, 2.0], [0, 0, 1]),
        ([1, True], [0, 0, 1]),
        ([], []),
        ((1, 2), (0, 0, 1)),
        ([1, 2, 3, 4], [0, 0, 0, 7, 0]),
        ([1, 2], None),
        (iter([1, 2]), [0, 0, 1]),
    ],
)
def test_inputs_that_fail_or_are_odd(pair: Callable, words: Any, actions: Any) -> None:
    p = pair(PARSER)
    for _ in range(ROUNDS):
        p.agree(run(*SENTENCES))
    p.agree(run(*SENTENCES[:2], (words, actions), *SENTENCES[2:]))


BODIES = {
    "aliases": """
        a = []
        b = a
        for w in words:
            b.append(self(self.E[w], self.b))
        h = dy.tanh(a[-1] + self.b)
        return [h, a is not None, len(a)]
    """,
    "a list that changes after an op has read it": """
        xs = []
        for w in words:
            xs.append(dy.tanh(self.E[w] + self.b))
            self.scores.append(dy.esum(xs))
        return [dy.concatenate(xs)]
    """,
    "a list of the script that changes in a loop": """
        for w in words:
            self.scores.append(dy.tanh(self.E[w] + self.b))
        return [dy.esum(self.scores), len(self.scores)]
    """,
    "items": """
        hs = [self.b] * 3
        for w in words:
            hs[w % 3] = self(self.E[w], hs[w % 3 - 1])
        return hs
    """,
    "an index out of range": """
        hs = [self.b, self.b]
        for w in words:
            hs[w] = self(self.E[w], hs[0])
        return hs
    """,
    "break and continue": """
        h = self.b
        for w in words:
            if w in (2, 5):
                continue
            if w not in KNOWN:
                break
            h = self(self.E[w], h)
        return [h]
    """,
    "while with a counter": """
        h, i = self.b, 0
        while True:
            if i >= len(words):
                break
            h = self(self.E[words[i]], h)
            i += 1
        return [h, i]
    """,
    "sums in place": """
        total, count = 0, 1
        for w in words:
            h = dy.tanh(self.E[w] + self.b)
            total += dy.sum_elems(h)
            count *= 2
        return [total / count, -total, 1 - total, count // 3, count % 3, count / 2]
    """,
    "a list that grows in place": """
        xs = ys = []
        for w in words:
            x = self.step(w)
            if w:
                xs += [x]
        return [len(ys), dy.esum(ys)]
    """,
    "range": """
        xs = [self.E[w] for w in words]
        out = []
        for i in range(0, len(xs), 2):
            for j in range(i):
                out.append(dy.tanh(xs[i] + xs[j] + self.b))
        for i in range(len(xs) - 1, -1, -1):
            out.append(dy.tanh(xs[i] + self.b))
        return out
    """,
    "windows": """
        xs = [self.E[w] for w in [0] * 2 + list(words) + [8] * 2]
        out = []
        for i in range(len(words)):
            if words[i] > 0:
                out.append(dy.rectify(dy.average(xs[i:i + 5]) + self.b))
        return [dy.emax(out)] if out else []
    """,
    "rows": """
        out = []
        for i, (v, w) in enumerate(zip(words, reversed(words))):
            x = self(self.E[v], self.E[w])
            out.append((i, x))
        rows = list(zip(words, out))
        return [r[1][1] for r in rows]
    """,
    "shapes that differ": """
        h = self.b
        for w in words:
            x = dy.concatenate([h, self.E[w]]) if w % 2 else dy.concatenate([self.E[w]])
            h = dy.tanh(self.W * x + self.b) if w % 2 else dy.tanh(self.V * x + self.b)
        return [h]
    """,
    "draws": """
        h = self.b
        for w in words:
            h = dy.dropout(self(self.E[w], h), 0.5)
            if w > 3:
                h = dy.noise(h, 0.1) + dy.random_normal((3,))
        return [h]
    """,
    "an exception of the script": """
        h = self.b
        for w in words:
            if w == 4:
                raise ValueError(w)
            h = self(self.E[w], h)
            assert w != 5, "five"
        return [h]
    """,
    "values": """
        h = self.b
        for w in words:
            h = self(self.E[w], h)
            if h.npvalue().sum() > 0.1:
                h = dy.tanh(h + self.b)
        return [h]
    """,
    "an attribute": """
        self.last = self.b
        for w in words:
            self.last = self(self.E[w], self.last)
        return [self.last]
    """,
    "pop() of what the script has made": """
        left = self.scores
        while left:
            left.pop()
        rest = list(words)
        h = self.b
        while len(rest) > 1:
            h = self(self.E[rest.pop(0)], self.E[rest.pop()])
        rest.extend([1, 2])
        return [h, rest]
    """,
    "picks": """
        out = []
        for w in words:
            y = dy.softmax(self.V * self.E[w] + self.b)
            out.append(-dy.log(dy.pick(y, w % 3)))
            out.append(y[w % 3])
        return [dy.esum(out)]
    """,
    "one expression twice": """
        h = self.b
        for w in words:
            x = self.step(w)
            if w > 2:
                h = self(x, x)
            h = self(h, h)
            x, y = h, h
            h = dy.tanh(dy.cmult(x, y) + x)
        return [h]
    """,
    "a list that holds itself": """
        xs = [self.b]
        for w in words:
            x = self.step(w)
            if w == 3:
                xs.append(xs)
            if w != 4:
                xs.append(x)
            h = dy.esum(xs) if w > 6 else x
        return [len(xs), xs[0]]
    """,
    "classes": """
        out = []
        for w in words:
            x = dy.concatenate([self.E[w]])
            y = -x
            if isinstance(x, dy.Expression) and isinstance(self.E[w], dy.Expression):
                out.append(dy.tanh(self.V * y + self.b))
            if w == 5 and isinstance(y, list):
                out.append(y)
        return out
    """,
    "texts": """
        out = []
        for w in words:
            kind = "even" if w % 2 == 0 else "odd"
            h = dy.tanh(self.E[w] + self.b)
            if kind == "odd" and kind not in ("even", None):
                out.append(h)
        return out
    """,
}
REGION_LOOPS = ("a list of the script that changes in a loop",)
FOR_PYTHON = ("values",)


@pytest.mark.parametrize("what", BODIES)
def test_loops(pair: Callable, what: str) -> None:
    p = pair(MODEL + "\n    def run(self, words):" + BODIES[what])
    for _ in range(ROUNDS):
        p.agree(run_all)
    if what in REGION_LOOPS:
        assert p.hits, p.statistics
    else:
        assert (hits(p) > 0) != (what in FOR_PYTHON), refusals(p)


def test_an_expression_of_an_earlier_graph(pair: Callable) -> None:
    body = BODIES["while with a counter"].replace("self.b, 0", "h, 0")
    p = pair(MODEL + "\n    def run(self, words, h):" + body)

    def use(module: ModuleType) -> list:
        import dynet_compat as dy

        model = model_of(module)
        fine = [model.run(words, dy.zeros(3)) for words in WORDS]
        stale = dy.zeros(3)
        dy.renew_cg()
        return [*fine, model.run([1, 2], stale)]

    for _ in range(ROUNDS):
        p.agree(use)
    assert hits(p)


def test_an_instance_draws_once(pair: Callable) -> None:
    p = pair(MODEL + "\n    def run(self, words, h):" + """
        for w in words:
            x = dy.dropout(self(self.E[w], h), 0.5)
            if w > 1:
                h = dy.tanh(self.V * dy.concatenate([x]) + self.b)
        return h
""")

    def use(module: ModuleType) -> list:
        import dynet_compat as dy

        model = model_of(module)
        found = dy.batch_map(lambda words: model.run(words, model.b), WORDS)
        try:
            found += dy.batch_map(lambda words: model.run(words, dy.zeros(4)), [[1], [2, 3]])
        except ValueError:
            pass
        return [*found, dy.random_normal((3,))]

    for _ in range(ROUNDS):
        p.agree(use)


def test_operators_of_a_class_of_the_script(pair: Callable) -> None:
    p = pair(MODEL + "\n    def run(self, words, h):" + """
        for w in words:
            h = dy.tanh(self.E[w] + self.b) * h
        return [h]
""")
    script = """
class Scale(float):
    calls = 0
    def __rmul__(self, other):
        Scale.calls += 1
        return other * float(self)
"""

    def use(module: ModuleType) -> list:
        exec(script, module.__dict__)
        model = model_of(module)
        return [model.run([1, 2], 2.0), model.run([1, 2], module.Scale(2)), module.Scale.calls]

    for _ in range(ROUNDS):
        p.agree(use)
