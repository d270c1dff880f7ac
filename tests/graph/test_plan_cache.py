"""Graphs of a structure that came before get the plan of that one: the same bits, the same launches."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest
from support.programs import PATTERNS, Models, Outcome, Program, run
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="ours")


@pytest.fixture
def copied(dy: Any) -> Callable[[Callable[[], Any]], tuple[Any, int]]:
    """Calls a function; what it returns, and how many plans were copied meanwhile."""

    def call(f: Callable[[], Any]) -> tuple[Any, int]:
        before = dy._core.timing()["copied_plans"]
        result = f()
        return result, dy._core.timing()["copied_plans"] - before

    return call


def assert_same(program: Program, got: Outcome, want: Outcome) -> None:
    where = f"Program({program.seed}, {program.size}, {program.pattern!r}, random={program.random})"
    assert got.loss == want.loss, f"{where}: loss {got.loss!r}, planned {want.loss!r}"
    assert got.dims == want.dims, where
    for i, (value, planned) in enumerate(zip(got.values, want.values)):
        assert np.array_equal(value, planned, equal_nan=True), f"{where}: value {i} differs"
    for n, grad in want.grads.items():
        assert np.array_equal(got.grads[n], grad, equal_nan=True), f"{where}: gradient of v{n} differs"


@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_random_graphs(dy: Any, copied: Callable, pattern: str, random: bool) -> None:
    models, hits = Models(dy), 0
    programs = [Program(seed, 60, pattern, random=random) for seed in range(12)]
    for _ in range(2):  # sites are learned, structures are seen
        for program in programs:
            run(dy, program, True, models=models)
    planned = [run(dy, program, True, models=models) for program in programs]
    for _ in range(2):
        for program, want in zip(programs, planned):
            got, n = copied(lambda program=program: run(dy, program, True, models=models))
            hits += n
            assert_same(program, got, want)
    assert hits >= 12, f"{hits} plans of 24 graphs were copied"


class Net:
    def __init__(self, dy: Any) -> None:
        self.dy = dy
        pc = dy.ParameterCollection()
        self.W = pc.parameters_from_numpy(np.arange(9.0).reshape(3, 3) / 10)
        self.b = pc.parameters_from_numpy(np.array([0.5, -0.5, 1.0]))
        self.E = pc.lookup_parameters_from_numpy(np.arange(12.0).reshape(4, 3) / 7)

    def states(self, words: list[int]) -> list[Any]:
        dy, h, found = self.dy, self.b, []
        for word in words:
            h = dy.tanh(self.W * h + self.E[word] + self.b)
            found.append(h)
        return found

    def loss(self, words: list[int]) -> Any:
        return self.dy.pickneglogsoftmax(self.states(words)[-1], 1)

    def step(self, words: list[int]) -> list[Any]:
        """Loss and all gradients."""
        self.dy.renew_cg()
        loss = self.loss(words)
        value = loss.value()
        loss.backward()
        grads = [p.grad_as_array().tolist() for p in (self.W, self.b, self.E)]
        for p in (self.W, self.b, self.E):
            p.scale_gradient(0)
        return [value, *grads]


def test_other_words_of_one_length(dy: Any, copied: Callable) -> None:
    net = Net(dy)
    sentences = [[0, 1, 2, 3], [3, 3, 0, 1], [2, 0, 2, 0], [1, 1, 1, 1], [0, 3, 2, 1]]
    want = [Net(dy).step(words) for words in sentences]
    for _ in range(3):
        got, n = copied(lambda: [net.step(words) for words in sentences])
        assert got == want
    assert n >= 4  # equal lookups are one node in some of them


def test_what_the_root_does_not_need_is_computed_later(dy: Any, copied: Callable) -> None:
    net = Net(dy)

    def values() -> list[float]:
        dy.renew_cg()
        states = net.states([0, 1, 2, 3])
        others = [dy.sum_elems(dy.exp(s)) for s in states]
        first = dy.sum_elems(states[1]).value()
        return [first, *(o.value() for o in others), *(s.npvalue().sum().item() for s in states)]

    want = values()
    for _ in range(4):
        got, _ = copied(values)
        assert got == want


def test_another_root(dy: Any, copied: Callable) -> None:
    net = Net(dy)

    def value(root: int) -> list[float]:
        dy.renew_cg()
        states = net.states([0, 1, 2, 3, 0, 1, 2, 3])
        return states[root].npvalue().tolist()

    want = {root: value(root) for root in (5, 6, 7)}
    hits = 0
    for root in (5, 6, 7) * 4:
        got, n = copied(lambda root=root: value(root))
        hits += n
        assert got == want[root], root
    assert hits >= 6


def test_inputs_that_are_set(dy: Any, copied: Callable) -> None:
    net = Net(dy)

    def values() -> list[float]:
        dy.renew_cg()
        x = dy.vecInput(3)
        h = x
        for _ in range(9):
            h = dy.tanh(net.W * h + net.b)
        loss = dy.squared_norm(h)
        found = []
        for number in (1.0, 2.0, -3.0):
            x.set([number, 0.5, 0.25])
            found.append(loss.value())
        loss.backward()
        return found + x.gradient().tolist()

    want = values()
    for _ in range(4):
        got, n = copied(values)
        assert got == want
    assert n == 1


def test_constant_parameters(dy: Any, copied: Callable) -> None:
    """Whether a parameter takes a gradient is part of the structure."""
    net = Net(dy)
    W = net.W

    def step(constant: bool) -> list[Any]:
        dy.renew_cg()
        net.W = dy.const_parameter(W) if constant else W
        loss = net.loss([0, 1, 2, 3])
        loss.backward()
        grad = W.grad_as_array()
        W.scale_gradient(0)
        return [loss.value(), bool(np.any(grad))]

    for _ in range(4):
        assert step(False)[1] and not step(True)[1]
    assert copied(lambda: [step(False), step(True)])[1] == 2


def test_reverted_graphs(dy: Any) -> None:
    net = Net(dy)

    def values() -> list[float]:
        dy.renew_cg()
        first = dy.sum_elems(net.states([0, 1, 2, 3])[-1])
        found = [first.value()]
        dy.cg_checkpoint()
        for words in ([3, 2, 1], [3, 2, 1], [0, 0, 0]):
            found.append(net.loss(words).value())
            dy.cg_revert()
            dy.cg_checkpoint()
        return [*found, first.value()]

    want = values()
    for _ in range(5):
        assert values() == want


def test_values_after_new_parameters(dy: Any, copied: Callable) -> None:
    """A plan says where values are, not what they are."""
    numbers, want = (0.25, -0.75), []
    for number in numbers:
        fresh = Net(dy)
        fresh.W.set_value(np.full((3, 3), number))
        want.append(fresh.step([0, 1, 2, 3]))
    net = Net(dy)
    for _ in range(4):
        net.step([0, 1, 2, 3])
    for number, each in zip(numbers, want):
        net.W.set_value(np.full((3, 3), number))
        got, n = copied(lambda: net.step([0, 1, 2, 3]))
        assert n == 1 and got == each


def test_launches_are_those_of_a_new_plan(dy: Any, copied: Callable) -> None:
    net, counts = Net(dy), []
    for _ in range(5):
        before = dy._core.timing()
        _, n = copied(lambda: net.step([0, 1, 2, 3]))
        after = dy._core.timing()
        counts.append([after[k] - before[k] for k in ("launches", "planned_nodes", "flushes")])
    assert n == 1 and counts[1:] == counts[1:2] * 4, counts
