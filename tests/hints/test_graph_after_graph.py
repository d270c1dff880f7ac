"""A small graph for each instance: what a trace has learned of one graph holds in the next ones, and no
longer than it is true. Launches are compared, too: nodes that are appended in bulk join the buckets that they
would have joined one by one."""

from __future__ import annotations

import gc
import random
import threading
from typing import Any, Callable

import dynet_compat as dy
import numpy as np
import pytest
from dynet_compat import _core
from support.subject import IS_REFERENCE
from support.walks import hits

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="our hints")

SOURCE = """
class Model:
    def __init__(self, n=3):
        pc = self.pc = dy.ParameterCollection()
        self.E = pc.add_lookup_parameters((20, n))
        self.W = pc.add_parameters((n, n))
        self.U = pc.add_parameters((n, n))
        self.b = pc.add_parameters(n)
        self.V = pc.add_parameters((2, n))
        self.drop = 0.0

    def cell(self, x, h):
        z = dy.tanh(self.W * x + self.U * h + self.b)
        return dy.cmult(z, h) + x

    def join(self, left, right):
        z = dy.rectify(self.U * dy.cmult(left, right) + self.b)
        return z + left

    def noisy(self, h):
        z = dy.dropout(h, self.drop)
        return dy.cmult(z, h) + z

    def part(self, h):
        z = dy.tanh(h)
        return dy.concatenate([z[0:1], z[1:2]]) + h[0:2]

    def score(self, h, tag):
        s = self.V * dy.tanh(self.W * h + self.b)
        return dy.pickneglogsoftmax(s, tag)
"""
Use = Callable[[Any, random.Random], list[Any]]


def sentence(model: Any, rng: random.Random) -> list[Any]:
    """Recurrences of other lengths and in other orders each time."""
    words = [rng.randrange(20) for _ in range(rng.randrange(2, 9))]
    xs = [model.E[w] for w in words]
    states = [xs[0]]
    for x in xs:
        states.append(model.cell(x, states[-1]))
    stack: list[Any] = []
    for word, state in zip(words, states):
        stack.append(state)
        while len(stack) > 1 and rng.random() < 0.5:
            right, left = stack.pop(), stack.pop()
            stack.append(model.join(left, right))
        if word == 3:
            stack[-1].value()  # what follows reads values that are known
    if model.drop:
        stack = [model.noisy(h) for h in stack]
    parts = [dy.sum_elems(model.part(h)) for h in stack]
    return parts + [model.score(h, i % 2) for i, h in enumerate(stack + states)]


def outcome(model: Any, use: Use, seed: int) -> list[Any]:
    dy.reset_random_seed(1 + seed)
    loss = dy.esum(use(model, random.Random(seed)))
    value = loss.value()
    launches = [(row["op"], row["nodes"]) for row in _core.plan_table()]
    loss.backward()
    gradients = [p.grad_as_array() for p in (model.W, model.U, model.b, model.V)]
    dy.SimpleSGDTrainer(model.pc, 0.0).update()  # which forgets the gradients
    return [value, launches, gradients]


class Sides:
    """A model as it was written, and under hints: with the same parameters, so that their ops have the same
    sites."""

    def __init__(self, pair: Callable) -> None:
        self.pair = pair(SOURCE)
        self.models: list[Any] = []
        self.renew(3)

    def renew(self, n: int) -> None:
        """Other models, with their parameters where those of the last ones were."""
        self.models.clear()
        gc.collect()
        self.models = [self.pair.plain.Model(n), self.pair.other.Model(n)]
        vars(self.models[1]).update(vars(self.models[0]))

    def change(self, **attributes: Callable[[Any], Any]) -> None:
        for name, value in attributes.items():
            changed = value(self.models[0])
            for model in self.models:
                setattr(model, name, changed)

    def agree(self, seeds: range, use: Use = sentence) -> None:
        repeated = False
        for seed in seeds:
            results = self.outcomes(use, seed)
            if results[0][1] != results[1][1] and not repeated:
                # Signatures and sites are given up when they are many, which other tests of the process may
                # have brought about between two runs. That does not happen twice in 64 graphs.
                repeated = True
                results = self.outcomes(use, seed)
            assert_same(*results)

    def outcomes(self, use: Use, seed: int) -> list[list[Any]]:
        results = []
        for model in (self.models[0], *self.models):  # the first run may meet new sites
            dy.renew_cg()
            results.append(outcome(model, use, seed))
        return results[1:]


def assert_same(left: list[Any], right: list[Any]) -> None:
    assert left[0] == right[0]
    assert left[1] == right[1], "other launches"
    for a, b in zip(left[2], right[2]):
        np.testing.assert_array_equal(a, b)


@pytest.fixture
def sides(pair: Callable) -> Sides:
    return Sides(pair)


def test_graphs_of_other_shapes(sides: Sides) -> None:
    sides.agree(range(40))
    assert sides.pair.hits > 200, sides.pair.statistics


def test_parameters_of_other_shapes(sides: Sides) -> None:
    """At the same addresses, as the old ones are gone."""
    for n in (3, 4, 3, 5, 4):
        sides.renew(n)
        sides.agree(range(n, n + 12))


def test_parameters_that_are_exchanged(sides: Sides) -> None:
    sides.agree(range(10))
    for change in (
        {"W": lambda m: m.U},
        {"U": lambda m: m.pc.add_parameters((3, 3), init=0.25)},
        {"b": lambda m: m.pc.add_parameters(3, init=0.5)},
        {"V": lambda m: m.pc.add_parameters((5, 3), init=0.5)},
        {"E": lambda m: m.pc.add_lookup_parameters((30, 3), init=0.5)},
    ):
        sides.change(**change)
        sides.agree(range(10, 20))


def test_dropout_that_is_turned_on_and_off(sides: Sides) -> None:
    for drop in (0.0, 0.5, 0.25, 0.0, 0.5):
        sides.change(drop=lambda _, drop=drop: drop)
        sides.agree(range(12))


def test_constant_parameters(sides: Sides) -> None:
    """The same ops, which take no gradient for a while."""

    def frozen(model: Any, rng: random.Random) -> list[Any]:
        x = dy.lookup(model.E, rng.randrange(20), update=rng.random() < 0.5)
        return [dy.sum_elems(model.cell(x, dy.nobackprop(x))), *sentence(model, rng)]

    sides.agree(range(30), frozen)


def test_nodes_that_are_taken_back(sides: Sides) -> None:
    def reverting(model: Any, rng: random.Random) -> list[Any]:
        first = sentence(model, rng)
        dy.cg_checkpoint()
        lost = dy.esum(sentence(model, rng))
        if rng.random() < 0.5:
            lost.value()
        dy.cg_revert()
        return first + sentence(model, rng)

    sides.agree(range(25), reverting)


def test_errors_in_the_middle(sides: Sides) -> None:
    def failing(model: Any, rng: random.Random) -> list[Any]:
        first = sentence(model, rng)
        with pytest.raises(ValueError):
            model.cell(dy.inputVector([1.0] * 7), first[0])
        with pytest.raises(ValueError):
            model.join(model.E[1], dy.inputVector([1.0] * 5))
        return first + sentence(model, rng)

    sides.agree(range(15), failing)


def test_values_that_are_computed_once(sides: Sides) -> None:
    """Each factor is a value of its own, so that a trace meets more kinds of inputs than it remembers."""

    def scaled(model: Any, rng: random.Random) -> list[Any]:
        h = model.b * float(rng.random())
        return [dy.sum_elems(model.join(model.E[1], model.cell(h, h))), *sentence(model, rng)]

    sides.agree(range(300), scaled)


def test_graphs_of_several_threads(sides: Sides) -> None:
    """Which take turns while they record, and share the traces."""
    plain, other = sides.models
    sides.agree(range(8))

    def results(model: Any, together: bool) -> list[list[Any]]:
        found: dict[int, list[Any]] = {}
        turn = threading.Barrier(2)

        def run(number: int) -> None:
            def use(model: Any, rng: random.Random) -> list[Any]:
                parts = []
                for _ in range(4):
                    if together:
                        turn.wait(60)
                    parts += sentence(model, rng)
                return parts

            losses = []
            for seed in range(6):
                dy.renew_cg()
                dy.reset_random_seed(1)
                loss = dy.esum(use(model, random.Random(10 * number + seed)))
                losses.append(loss.value())
            found[number] = losses

        threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
            if not together:
                thread.join()
        for thread in threads:
            thread.join()
        return [found[0], found[1]]

    assert results(plain, False) == results(other, True)


# ---------------------------------------------------------------- functions that begin with renew_cg()

RENEWING = """
class Model:
    def __init__(self):
        pc = self.pc = dy.ParameterCollection()
        self.E = pc.add_lookup_parameters((20, 3), init=0.5)
        self.Ws = [pc.add_parameters((3, 3), init=0.25) for _ in range(2)]
        self.b = pc.add_parameters(3, init=0.125)
        self.calls = 0

    def scores(self, words):
        "The graph is that of one sentence."
        dy.renew_cg()
        h = dy.esum([dy.lookup(self.E, w) for w in words])
        for W in self.Ws:
            h = dy.tanh(W * h + self.b)
        return dy.cmult(h, h) + self.b

    def checked(self, words):
        dy.renew_cg(immediate_compute=False, check_validity=False)
        hs = []
        for w in words:
            hs.append(dy.tanh(self.Ws[0] * self.E[w] + self.b))
        return dy.esum(hs)

    def counted(self, words):
        dy.renew_cg(self.count())
        return dy.esum([dy.tanh(self.Ws[0] * self.E[w] + self.b) for w in words])

    def count(self):
        self.calls += 1
        return False

    def last(self, sentences):
        "Each call gives up the graph of the one before."
        h = None
        for words in sentences:
            h = self.scores(words)
            h = dy.tanh(h * 2.0) + self.b
        return h
"""
WORDS = [[1, 3, 4], [2, 1], [8, 7, 6, 5], [3], [1, 4, 3, 1, 8], [0, 0]]


@pytest.mark.parametrize("name", ["scores", "checked", "counted"])
def test_a_function_that_starts_the_graph_is_recorded_by_one_call(pair: Callable, name: str) -> None:
    p = pair(RENEWING)
    models = [p.plain.Model(), p.other.Model()]

    def use(module: Any) -> list[Any]:
        model = models[module is p.other]
        values = [getattr(model, name)(words).value() for words in WORDS[:-1]]
        return [values, model.calls, getattr(model, name)(WORDS[-1])]

    for _ in range(12):
        p.agree(use)
    assert (hits(p) > 0) == (name != "counted"), p.statistics


def test_a_caller_of_such_a_function_sees_the_last_graph(pair: Callable) -> None:
    p = pair(RENEWING)
    models = [p.plain.Model(), p.other.Model()]
    for i in range(30):
        sentences = WORDS[i % 4 :]
        p.agree(lambda module, s=sentences: [models[module is p.other].last(s)])
