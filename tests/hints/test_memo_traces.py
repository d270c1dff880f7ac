"""What memos record in bulk: stretches between calls, which memos of equal structure share."""

from __future__ import annotations

import gc
import time
from functools import partial
from types import ModuleType
from typing import Any, Callable

import dynet_compat as dy
import pytest
from dynet_compat import _core
from support.walks import TIMES, remembered, walked
from support.walks import seeded_model_of as model_of

MODEL = """
class Model:
    def __init__(self):
        pc = self.pc = dy.ParameterCollection()
        self.E = pc.add_lookup_parameters((300, 3))
        self.W = pc.add_parameters((3, 3))
        self.b = pc.add_parameters(3)
        self.rnn = dy.VanillaLSTMBuilder(1, 3, 3, pc)
        self.frozen = False
        self.n = 2

    def row(self, word):
        if self.frozen:
            return dy.lookup(self.E, word, update=False)
        return dy.lookup(self.E, word)

    def score(self, x, h):
        for _ in range(self.n):
            h = dy.tanh(self.W * h + self.b)
            h = dy.cmult(h, x) + h
        return h

    def read(self, words):
        state = self.rnn.initial_state()
        total = []
        for w in words:
            x = self.row(w)
            state = state.add_input(x)
            total.append(self.score(x, state.output()))
            total.append(self.score(state.h()[-1], state.output()))
        return dy.esum(total), state

    def sums(self, words, start):
        h = start
        for w in words:
            h = self.score(self.row(w), h)
            h = dy.cmult(h, dy.logistic(self.b + h))
        return h

def both(model, words, others):
    first = model.rnn.initial_state()
    for w in words:
        first = first.add_input(model.E[w])
    second = model.rnn.initial_state()
    for w in others:
        second = second.add_input(model.E[w])
    return dy.dot_product(first.output(), second.output())

def tagged(model, words, train, first, second):
    if train:
        model.rnn.set_dropouts(first, second)
    else:
        model.rnn.disable_dropout()
    outputs, state = [], model.rnn.initial_state()
    for x in [model.E[w] for w in words]:
        state = state.add_input(x)
        outputs.append(state.output())
    outputs += model.rnn.initial_state().transduce(outputs)
    return model.score(outputs[0], outputs[-1])

def scored(model, x):
    h = x
    for w in [3, 2]:
        h = dy.tanh(model.W * h) + model.E[w]
    state = model.rnn.initial_state()
    for w in [3, 2]:
        state = state.add_input(model.E[w] + h)
    return state.output()

def last_h(rnn, x):
    return rnn.initial_state().add_inputs([x, x])[1].h()[0]

def last(model, words):
    state = model.rnn.initial_state()
    for w in words:
        state = state.add_input(model.E[w])
    return state.output()

def last_of_both(model, words, others):
    return dy.dot_product(last(model, words), last(model, others))
"""


def read(m: ModuleType, words: tuple = (3, 150, 4, 1, 150)) -> list:
    total, state = model_of(m).read(list(words))
    return [total, state.output(), *state.s()]


def sums(m: ModuleType, words: tuple = (3, 150, 4), start: Callable | None = None) -> list:
    first = start(m) if start else dy.inputVector([0.1, 0.2, 0.3])
    return [model_of(m).sums(list(words), first)]


def learn(p: Any, *uses: Callable) -> None:
    before = remembered(p)
    for _ in range(TIMES):
        for use in uses:
            p.agree(use)
    assert remembered(p) > before + 5 * len(uses)


def memory() -> tuple[int, int]:
    """Bytes of all memos, and how many traces they share."""
    return _core._memo_memory()


def test_memos_share_traces(pair: Callable) -> None:
    """Sentences of one length differ in their indices only."""
    p = pair(MODEL)
    learn(p, read, sums)
    _, traces = memory()
    others = [lambda m, k=k: [*read(m, (k, 2, 7, k + 1, 9)), *sums(m, (k, 5, k))] for k in range(20, 40)]
    before = remembered(p)
    for _ in range(4):
        for use in others:
            p.agree(use)
    assert remembered(p) > before + 20
    assert memory()[1] <= traces + 2


def test_traces_end_with_their_memos(pair: Callable) -> None:
    """Memos that are written again leave no traces of before."""
    p = pair(MODEL)
    uses = [lambda m, n=n: sums(m, tuple(range(n))) for n in range(1, 12)]
    before = memory()
    learn(p, *uses)
    first = memory()
    assert first[0] > before[0] and first[1] > before[1] + 10
    for n in (3, 2, 3):
        for m in (p.plain, p.other):
            m.model.n = n
        learn(p, *uses)
        assert memory()[1] <= first[1] + 2 and memory()[0] < 3 * first[0]


def test_new_builder_at_an_old_address(pair: Callable) -> None:
    p = pair(MODEL)

    def renew(m: ModuleType, hidden: int) -> None:
        model = model_of(m)
        model.rnn = None
        gc.collect()
        dy.reset_random_seed(hidden)
        model.rnn = dy.VanillaLSTMBuilder(1 + hidden % 2, 3, 3, model.pc)

    learn(p, read)
    for k in range(3 * TIMES):
        if k % 3 == 0:
            for m in (p.plain, p.other):
                renew(m, k)
        p.agree(read)


def test_update_false(pair: Callable) -> None:
    """Also after replays that ended half-way: the last input has another shape."""
    p = pair(MODEL)
    uses = [read, sums]
    learn(p, *uses)

    def wrong(m: ModuleType) -> list:
        try:
            return sums(m, start=lambda m: dy.inputVector([1.0, 2.0]))
        except ValueError:
            return [dy.inputVector([0.0])]

    for frozen in (True, False, True, False):
        for m in (p.plain, p.other):
            m.model.frozen = frozen
        for k in range(TIMES // 2):
            if k % 3 == 0:
                p.agree(lambda m: [*wrong(m), *sums(m), *read(m)])
            for use in uses:
                p.agree(use)


def test_latest_step_of_a_builder(pair: Callable) -> None:
    """The builder goes on from what a replay has made."""
    p = pair(MODEL)

    def go_on(m: ModuleType) -> list:
        _, *results = read(m)
        model = model_of(m)
        state = model.rnn.initial_state().set_h([dy.inputVector([0.1, 0.2, 0.3])])
        again = model.rnn.initial_state().add_input(model.E[4])
        return [*results, *state.s(), *again.s(), *again.set_s([results[0], results[1]]).s()]

    learn(p, go_on)


@pytest.mark.parametrize("name", ["both", "last_of_both"])
def test_a_builder_that_starts_twice_in_a_call(pair: Callable, name: str) -> None:
    """It has one initial state in a graph, however often it is asked for it."""
    p = pair(MODEL)
    learn(p, lambda m: [getattr(m, name)(model_of(m), [3, 150, 4], [1, 2])])


@pytest.mark.parametrize("rates", [(0.5, 0.0), (0.0, 0.5), (0.3, 0.3)])
def test_dropout_on_and_off(pair: Callable, rates: tuple) -> None:
    """With masks, output() and h() may be other nodes, and there are more of them."""
    p = pair(MODEL)
    learn(p, read)
    for k in range(6):
        for m in (p.plain, p.other):
            if k % 2 == 0:
                m.model.rnn.set_dropouts(*rates)
            else:
                m.model.rnn.disable_dropout()
        for _ in range(TIMES // 4):
            p.agree(read)
        before = remembered(p)
        for _ in range(TIMES // 4):
            p.agree(read)
        assert remembered(p) > before or k % 2 == 0


def test_what_was_learned_without_dropout_stays(pair: Callable) -> None:
    """Training with dropout and evaluation without take turns."""
    p = pair(MODEL)
    for turn in range(4):
        for m in (p.plain, p.other):
            model_of(m).rnn.set_dropout(0.5)
        for _ in range(TIMES):
            p.agree(read)
        for m in (p.plain, p.other):
            m.model.rnn.disable_dropout()
        before = remembered(p)
        for _ in range(TIMES if turn == 0 else 3):
            p.agree(lambda m: read(m, (5, 6, 7)))
        assert remembered(p) >= before + 3


def test_steps_of_builders_are_recorded_in_bulk(pair: Callable) -> None:
    """A function of nothing but look-ups and steps leaves a trace."""
    p = pair(MODEL)
    before = memory()
    learn(p, lambda m: [m.last(model_of(m), [3, 150, 4])])
    assert memory()[1] > before[1]


def test_sequences_longer_than_a_stretch(pair: Callable) -> None:
    """A step that goes on from a state of the stretch before."""
    p = pair(MODEL)
    words = list(range(150)) * 11
    learn(p, lambda m: [m.last(model_of(m), words)])


@pytest.mark.parametrize("rates", [(0.5, 0.0), (0.3, 0.3)])
def test_rates_that_a_function_sets(pair: Callable, rates: tuple) -> None:
    """It is remembered with dropout and without; where a rate changes, its statements run. The first step in
    a graph draws the masks that the others read."""
    p = pair(MODEL)

    def use(train: bool, *sentences: list) -> Callable:
        return lambda m: [m.tagged(model_of(m), words, train, *rates) for words in sentences]

    def count() -> int:
        return walked(p, "tagged")["remembered"]

    sentences = [[3, 150, 4, 1], [5, 6], [3, 3, 3]]
    for turn in range(4):
        for train in (True, False):
            p.agree(use(train, [9], [9], [9]))  # the first one changes the rates
            for _ in range(TIMES if turn == 0 else 2):
                before = count()
                p.agree(use(train, *sentences))
            assert count() == before + 3


def attempt(call: Callable) -> Any:
    try:
        return call()
    except ValueError as e:
        return str(e)


def test_a_walk_that_ends_early_leaves_nothing_with_the_builder(pair: Callable) -> None:
    """No sequence that the statements do not start, and no steps."""
    p = pair(MODEL)

    def use(m: ModuleType, shapes: tuple = (3, 3)) -> list:
        model = model_of(m)
        xs = [dy.inputVector([0.1 * k for k in range(n)]) for n in shapes]
        told = [attempt(lambda x=x: m.scored(model, x)) for x in xs]
        started = attempt(lambda: len(model.rnn.get_parameter_expressions()))
        return [*told, started, attempt(lambda: dy.RNNState(model.rnn, 99))]

    learn(p, use)
    for shapes in ((2,), (2, 3), (3, 2, 3), (2, 2, 3)):
        for _ in range(4):
            p.agree(partial(use, shapes=shapes))


@pytest.mark.parametrize("kind", ["GRUBuilder", "SimpleRNNBuilder", "VanillaLSTMBuilder"])
def test_dropout_between_calls(pair: Callable, kind: str) -> None:
    """h() and output() are one node without, and may be two with it."""
    p = pair(MODEL)
    for m in (p.plain, p.other):
        model = model_of(m)
        model.rnn = getattr(dy, kind)(1, 3, 3, model.pc)
    for rate in (0.0, 0.5, 0.0, 0.5):
        for m in (p.plain, p.other):
            m.model.rnn.set_dropout(rate)
        for _ in range(TIMES // 4):
            p.agree(lambda m: [m.last_h(m.model.rnn, m.model.b), m.last_h(m.model.rnn, m.model.E[1])])


STARTS: list[Callable] = [
    lambda m: dy.inputVector([0.1, 0.2, 0.3]),
    lambda m: dy.zeros(3),
    lambda m: dy.parameter(m.model.b),
    lambda m: m.model.b,
    lambda m: m.model.W * m.model.b,
    lambda m: dy.tanh(m.model.W)[0],
    lambda m: m.model.E[7],
    lambda m: dy.dropout(m.model.E[7], 0.5),
]


@pytest.mark.parametrize("first", range(len(STARTS)))
def test_inputs_of_all_kinds(pair: Callable, first: int) -> None:
    """Also parameters and constants, which a trace must not take for its own."""
    p = pair(MODEL)

    def use(start: Callable) -> Callable:
        return lambda m: (model_of(m), sums(m, start=start))[1]

    for _ in range(TIMES):
        p.agree(use(STARTS[first]))
    for _ in range(6):
        for start in STARTS:
            p.agree(use(start))


def test_constants(pair: Callable) -> None:
    """Made in regions and by calls, equal and not, before and in stretches."""
    p = pair("""
    pc = dy.ParameterCollection()
    W = pc.add_parameters((3, 3), init=0.5)
    E = pc.add_lookup_parameters((9, 3), init=0.25)
    def mix(words, big):
        h = dy.zeros(3)
        for w in words:
            x = E[w] * 2.0 + dy.ones(3)
            h = dy.tanh(W * x + h) + dy.zeros(3)
            h = dy.cmult(h, dy.ones(3) * 0.5) - big
            h = h / len(words)
        return h, dy.zeros(3)
    """)
    for k in range(2 * TIMES):
        p.agree(lambda m: [*m.mix([1, 2, 3], 2.0), *m.mix([1, 2], 2.0), *m.mix([4, 2, 3], 0.5)])
        if k % 7 == 0:
            p.agree(lambda m: [dy.zeros(3), *m.mix([1, 2, 3], 2.0), dy.ones(3)])
    assert remembered(p) > 10


def test_one_object_in_two_places(pair: Callable) -> None:
    p = pair(MODEL)
    learn(p, sums)
    for _ in range(TIMES):
        p.agree(lambda m: [*sums(m, (1, 1, 1)), *sums(m, (1, 1, 1))])

    def same(m: ModuleType) -> list:
        x = dy.inputVector([0.1, 0.2, 0.3])
        return [*sums(m, start=lambda m: x), *sums(m, start=lambda m: x)]

    for _ in range(TIMES):
        p.agree(same)


def test_values_read_between_calls(pair: Callable) -> None:
    """Inputs that were computed before, and graphs that are reverted."""
    p = pair(MODEL)

    def computed(m: ModuleType) -> list:
        x = dy.tanh(dy.inputVector([0.1, 0.2, 0.3]))
        first = sums(m, start=lambda m: x)
        first[0].value()
        second = sums(m, start=lambda m: first[0])
        dy.cg_checkpoint()
        sums(m, start=lambda m: second[0])[0].value()
        dy.cg_revert()
        return [*first, *second, *sums(m, start=lambda m: second[0])]

    learn(p, computed)


STARTED: list[Callable] = [dy.tanh, dy.exp, dy.logistic, dy.rectify, dy.square, dy.softsign, dy.sin, dy.cos]


def sums_after(ops: tuple) -> Callable:
    """Of an input that these have made: traces learn a layout for each kind of it."""

    def start(m: ModuleType) -> Any:
        x = dy.inputVector([0.1, 0.2, 0.3])
        for op in ops:
            x = op(x)
        return x

    return lambda m: sums(m, start=start)


def test_layouts_that_are_learned_later_count(pair: Callable) -> None:
    p = pair(MODEL)
    others, _ = memory()
    learn(p, sums)
    before = memory()[0] - others
    for _ in range(3):
        for first in STARTED:
            p.agree(sums_after((first, first)))
    assert memory()[0] - others > 2 * before


def test_no_layouts_are_learned_beyond_the_limit(pair: Callable) -> None:
    """What is recorded stays the same."""
    p = pair(MODEL)
    learn(p, sums)
    most = _core._limit_memos(0)
    try:
        before, _ = memory()
        for _ in range(3):
            for first in STARTED:
                for second in STARTED:
                    p.agree(sums_after((first, second)))
        assert memory()[0] < before + (1 << 16)
    finally:
        _core._limit_memos(most)


def test_writing_down_is_linear(pair: Callable) -> None:
    p = pair(MODEL)
    learn(p, sums)

    def seconds(n: int) -> float:
        words = [k % 300 for k in range(n)]
        fastest = float("inf")
        for at in range(3):
            words[0] = 200 + at
            for _ in range(2):
                dy.renew_cg()
                start = time.thread_time()
                sums(p.other, tuple(words))
                elapsed = time.thread_time() - start
            fastest = min(fastest, elapsed)  # of the second call, which is written down
        return fastest

    seconds(100)
    assert seconds(4000) < 20 * seconds(500)  # 8 times as long


def test_calls_from_deeper_in_the_stack(pair: Callable) -> None:
    """After the one that ended before them in the same graph."""
    p = pair(MODEL)

    def deeper(levels: int, m: ModuleType) -> list:
        if levels:
            return deeper(levels - 1, m)
        return [m.last_of_both(model_of(m), [1, 4], [3, 150])]

    def use(m: ModuleType) -> list:
        first = m.last_of_both(model_of(m), [3, 150, 4], [1, 2])
        return [first, *deeper(3, m), *deeper(2, m)]

    learn(p, use)
    before = walked(p, "last_of_both")["remembered"]
    for _ in range(TIMES):
        p.agree(use)
    assert walked(p, "last_of_both")["remembered"] >= before + 3 * TIMES - 3
