"""Functions that use builders, recorded by one call: initial states, steps, what is read of a state."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Callable

import pytest
from support.walks import hits, model_of, refusals

MODEL = """
class Model:
    def __init__(self):
        pc = self.pc = dy.ParameterCollection()
        self.E = pc.add_lookup_parameters((9, 3))
        self.W = pc.add_parameters((3, 3))
        self.b = pc.add_parameters(3)
        self.pair = pc.add_parameters((3, 6))
        self.lstm = dy.VanillaLSTMBuilder(2, 3, 3, pc)
        self.back = dy.GRUBuilder(1, 3, 3, pc)
        self.rnn = dy.SimpleRNNBuilder(1, 3, 3, pc)
        self.shared = self.rnn.initial_state
        self.both = dy.BiRNNBuilder(2, 3, 6, pc, dy.LSTMBuilder)

    def cell(self, x, h):
        return dy.tanh(self.W * x + dy.cmult(h, self.b))

    def score(self, words, hs):
        losses = []
        for w, h in zip(words, hs):
            scores = self.W * h + self.b
            losses.append(dy.pickneglogsoftmax(scores, w % 3))
        return losses
"""

BODIES = {
    "transduce": """
        xs = [self.E[w] for w in words]
        f = self.lstm.initial_state().transduce(xs)
        b = self.back.initial_state().transduce(xs[::-1])
        out = []
        for x, y in zip(f, reversed(b)):
            out.append(dy.tanh(self.pair * dy.concatenate([x, y]) + self.b))
        return [out, self.score(words, f), len(f), f]
    """,
    "reversed inputs": """
        xs = [self.E[w] for w in words]
        hs, out = self.rnn.initial_state().transduce(reversed(xs)), []
        for h in hs:
            out.append(self.cell(h, self.b))
        return self.score(words, hs) + out
    """,
    "a list that changes after a step has read it": """
        xs = [self.E[w] for w in words]
        hs = self.rnn.initial_state().transduce(xs)
        first = list(hs)
        while len(hs) > 1:
            xs.pop()
            hs.pop()
        hs.append(self.b)
        return [self.score(words, hs), self.score(words, first), len(xs)]
    """,
    "steps": """
        s = self.lstm.initial_state()
        empty = s.output() is None and len(s.h()) == 0 and len(s.s()) == 0
        losses = []
        while len(losses) < len(words):
            s = s.add_input(self.E[words[len(losses)]])
            losses.append(self.cell(s.output(), s.h()[0]))
        return [losses, empty, list(s.s()), s.h(), s]
    """,
    "states in a list": """
        states = [self.rnn.initial_state()]
        for w in words:
            if w % 2:
                states.append(states[-1].add_input(self.E[w]))
            elif len(states) > 1:
                states.pop()
        last = states[-1].output()
        if last is None:
            return [len(states), states]
        return [self.cell(last, self.b), states]
    """,
    "states of all inputs": """
        xs = [self.E[w] for w in words]
        states, out = self.back.initial_state().add_inputs(xs), []
        while len(out) < len(states):
            s = states[len(out)]
            out.append(self.cell(s.output(), s.s()[-1]))
        return [out, states]
    """,
    "bidirectional": """
        self.both.set_dropout(0.5 if len(words) > 9 else 0)
        xs = [self.E[w] for w in words]
        out = []
        for h in self.both.transduce(xs):
            out.append(dy.tanh(self.pair * h + self.b))
        states = self.both.add_inputs(xs)
        return [out, states, states[0][1].output() if states else 0]
    """,
    "a decoder": """
        xs = [self.E[w] for w in words]
        h = self.rnn.initial_state().add_inputs([self.b] + xs)[-1].output()
        g = dy.tanh(self.W * h)
        s = self.lstm.initial_state([h, dy.tanh(h), g, g + h])
        t = self.back.initial_state().set_h([h]) if len(words) % 2 else self.back.initial_state(None)
        out = []
        for x in xs:
            s, t = s.add_input(x), t.add_input(x)
            out.append(self.cell(s.output(), t.output()))
        u = s.set_s([g, self.b] + list(s.h()))
        return [out, s, t, t.s(), u, u.output(), u.add_input(self.b).h(), u.h()]
    """,
    "parameters as constants": """
        xs, out = [self.E[w] for w in words], []
        for h in self.rnn.initial_state().transduce(xs):
            out.append(dy.tanh(self.W.expr() * h + self.b.expr()))
        return out
    """,
    "a state of the script": """
        if self.state is None:
            return [self.lstm.initial_state()]
        s, out = self.state, []
        while len(out) < len(words):
            out.append(self.cell(self.E[words[len(out)]], s.output() or self.b))
            s = s.add_input(out[-1])
        return [s, out, s.h(), self.state.h()]
    """,
    "one start": """
        a, b = self.lstm.initial_state(), self.lstm.initial_state()
        out = []
        while len(out) < len(words):
            a = a.add_input(self.E[words[len(out)]])
            out.append(self.cell(a.output(), self.b))
        c = b.add_input(self.E[words[0]]) if words else b
        return [a, b, c, out]
    """,
    "lists that are turned round": """
        xs = [self.E[w] for w in words]
        xs.reverse()
        hs, order = self.rnn.initial_state().transduce(xs), list(words)
        order.reverse()
        hs.reverse()
        out = []
        for x, h in zip(xs, hs):
            out.append(self.cell(x, h))
        return [out, order]
    """,
    "dropout that stays": """
        if len(words) < 9:
            self.lstm.set_dropouts(0.25, 0)
            self.back.disable_dropout()
            self.rnn.set_dropout(0.5)
        else:
            self.lstm.disable_dropout()
        xs, out = [self.E[w] for w in words], []
        hs = self.lstm.initial_state().transduce(xs)
        for h, g in zip(hs, self.rnn.initial_state().transduce(xs)):
            out.append(self.cell(g, h))
        return [out, self.back.initial_state().transduce(hs)]
    """,
    "no inputs": """
        none = self.lstm.initial_state().transduce([])
        for w in words:
            none.append(self.cell(self.E[w], self.b))
        return none
    """,
    "numbers that become inputs": """
        start = [0.0] * 3
        start[1] = 1
        h, total = dy.inputVector(start), dy.scalarInput(len(words))
        for w in words:
            h = self.cell(self.E[w], h)
            total = total + dy.sum_elems(h)
        return [h, total / 2]
    """,
    "parts with a step": """
        xs, out = [self.E[w] for w in words], []
        for x in xs[::2] + xs[-1:0:-2] + xs[5:1:-1] + xs[:2:-1] + xs[-2::3]:
            out.append(self.cell(x, self.b))
        return out
    """,
    "windows": """
        xs = [self.E[w] for w in [0] + list(words) + [8]]
        out = []
        for i in range(len(words)):
            patch = dy.esum(xs[i : i + 3])
            out.append(dy.tanh(self.W * patch + self.b))
        return [dy.emax(out)] if out else out
    """,
}  # fmt: skip
SENTENCES = ([1, 2, 3], [4], [5, 6, 7, 8], [1, 1, 2], [3, 0, 5, 7, 2, 4])
ROUNDS = 20


def run(module: ModuleType, words: Any) -> Any:
    model = model_of(module)
    model.state = model.lstm.initial_state()
    if len(words) % 2:
        model.state = model.state.add_input(model.E[1])
    return model.run(words)


def use(*inputs: Any) -> Callable[[ModuleType], list]:
    return lambda module: [run(module, words) for words in inputs]


@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
def test_a_function_is_recorded_by_one_call(pair: Callable, body: str) -> None:
    p = pair(f"{MODEL}\n    def run(self, words):{body}")
    for _ in range(ROUNDS):
        p.agree(use(*SENTENCES))
    before = hits(p)
    p.agree(use(*SENTENCES))
    assert hits(p) >= before + len(SENTENCES), refusals(p)
    p.agree(use([], [99], [1, 99, 2], ["a"], [True, 2], (1, 2, 3), [-1]))
    p.agree(use(*SENTENCES))


@pytest.mark.parametrize(
    "change",
    [
        "model.lstm.set_dropout(0.5); model.rnn.set_dropout(0.3); model.back.set_dropout(0.2)",
        "model.lstm = model.rnn; model.back = dy.LSTMBuilder(1, 3, 3, model.pc)",
        "model.lstm = model.rnn = model.back = dy.BiRNNBuilder(2, 3, 4, model.pc, dy.LSTMBuilder)",
        "model.lstm = dy.LSTMBuilder(1, 4, 3, model.pc)",  # inputs do not fit
        "model.lstm = Own(1, 3, 3, model.pc)",
        "model.lstm.__class__ = Own",
        "model.rnn.initial_state(update=False); model.lstm.initial_state(update=False)",
        "model.rnn.initial_state = lambda: model.back.initial_state()",
        "model.lstm = None",
        "model.both = dy.BiRNNBuilder(1, 3, 6, model.pc, dy.GRUBuilder)",
        "model.both.builder_layers.reverse()",
        "model.both.set_dropout(0.5)",
        "model.both._both = lambda forward, backward, xs: xs",
        "model.both.__class__ = type('Other', (dy.BiRNNBuilder,), {'_both': lambda self, f, b, xs: xs})",
        "model.lstm.set_dropouts(0.25, 0.5)",
        "model.rnn.set_dropout = lambda rate: model.lstm.set_dropout(rate)",
        "Base = type(model.rnn); model.rnn.__class__ = type('Other', (Base,), {'set_dropout': lambda *_: 0})",
    ],
)
@pytest.mark.parametrize("name", ["transduce", "steps", "dropout that stays", "bidirectional", "a decoder"])
def test_what_changes_is_noticed(pair: Callable, name: str, change: str) -> None:
    p = pair(f"{MODEL}\n    def run(self, words):{BODIES[name]}")
    for _ in range(ROUNDS):
        p.agree(use(*SENTENCES))
    assert hits(p)

    def other(module: ModuleType) -> list:
        import dynet_compat as dy

        class Own(dy.LSTMBuilder):
            def initial_state(self, *args: Any) -> Any:
                dy.tanh(dy.zeros(2))
                return super().initial_state(*args)

        exec(change, {"dy": dy, "Own": Own, "model": module.model})
        return use(*SENTENCES)(module)

    p.agree(other)
    p.agree(use(*SENTENCES))


@pytest.mark.parametrize(
    "member",
    [
        "set_dropout = dy.SimpleRNNBuilder.disable_dropout",
        "set_dropout = dy.SimpleRNNBuilder.set_dropouts",
        "disable_dropout = dy.SimpleRNNBuilder.set_dropout",
        "set_dropout = property(lambda self: seen.append(1) or super(Own, self).set_dropout)",
        "initial_state = property(lambda self: seen.append(1) or super(Own, self).initial_state)",
    ],
)
def test_methods_of_a_subclass_run_as_often_as_they_are_called(pair: Callable, member: str) -> None:
    own = f"seen = []\n\nclass Own(dy.SimpleRNNBuilder):\n    {member}\n"
    call = "disable_dropout()" if member.startswith("disable") else "set_dropout(0)"
    body = f"""
        self.rnn.{call}
        xs, out = [self.E[w] for w in words], []
        for h in self.rnn.initial_state().transduce(xs):
            out.append(self.cell(h, h))
        return out
    """
    source = MODEL.replace("dy.SimpleRNNBuilder(", "Own(").replace("self.shared = self.rnn.initial_state", "")
    p = pair(f"{own}{source}\n    def run(self, words):{body}")
    for _ in range(ROUNDS):
        for words in SENTENCES:
            p.agree(lambda m, words=words: [*use(words)(m), len(m.seen)])


OWN_STATES = """
class Start:
    def __init__(self, x):
        self.x = x

    def initial_state(self):
        return Start(self.x)

    def transduce(self, xs):
        out = [dy.tanh(x + self.x) for x in xs]
        if len(xs) == 4:
            out.append(None)
        return out
"""
PAIRS = """
    def run(self, words):
        out = []
        for h in self.both.transduce([self.E[w] for w in words]):
            out.append(dy.tanh(self.pair * h + self.b))
        return out
"""


def test_builders_of_the_script_in_a_bidirectional_one(pair: Callable) -> None:
    """What one of them puts out more than the other one is in no pair, but must be an expression, too."""
    p = pair(MODEL + PAIRS + OWN_STATES)

    def run(module: ModuleType) -> list:
        model, out = model_of(module), []
        for words in ([1, 3], [4, 5, 1], [2], [1, 2, 3, 4]):
            try:
                out.append(model.run(words))
            except TypeError as error:
                out.append(str(error))
        return out

    def first(module: ModuleType) -> list:
        model = model_of(module)
        model.both.builder_layers = [(module.Start(model.b), model.back)]
        return run(module)

    p.agree(first)
    for _ in range(ROUNDS):
        p.agree(run)
    assert hits(p), refusals(p)
