"""Graphs of a structure that came before get the plan of that one: the same bits, the same launches."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest
from support.in_thread import with_new_graph
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
@with_new_graph
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


@with_new_graph
def test_other_words_of_one_length(dy: Any, copied: Callable) -> None:
    net = Net(dy)
    sentences = [[0, 1, 2, 3], [3, 3, 0, 1], [2, 0, 2, 0], [1, 1, 1, 1], [0, 3, 2, 1]]
    want = [Net(dy).step(words) for words in sentences]
    for _ in range(3):
        got, n = copied(lambda: [net.step(words) for words in sentences])
        assert got == want
    assert n >= 4  # equal lookups are one node in some of them


@with_new_graph
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


@with_new_graph
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


@with_new_graph
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


@with_new_graph
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


@with_new_graph
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


@with_new_graph
def test_launches_are_those_of_a_new_plan(dy: Any, copied: Callable) -> None:
    net, counts = Net(dy), []
    for _ in range(5):
        before = dy._core.timing()
        _, n = copied(lambda: net.step([0, 1, 2, 3]))
        after = dy._core.timing()
        counts.append([after[k] - before[k] for k in ("launches", "planned_nodes", "flushes")])
    assert n == 1 and counts[1:] == counts[1:2] * 4, counts


def test_graphs_that_differ_in_one_argument(dy: Any) -> None:
    """Where equal expressions are one node, which keeps the arguments of all."""
    net = Net(dy)

    def value(i: int) -> float:
        dy.renew_cg()
        states = [dy.tanh(net.W * dy.inputVector([k, 1.0, 2.0]) + dy.tanh(net.b)) for k in range(6)]
        return dy.dot_product(states[i], dy.esum(states)).value()

    want = [value(i) for i in range(6)]
    assert len(set(want)) == 6, want
    for _ in range(4):
        assert [value(i) for i in range(6)] == want


KINDS = ("tanh", "sum", "cmult", "affine", "esum", "lookup", "constant")


def random_steps(rng: np.random.RandomState, n: int) -> list[tuple[str, list[int]]]:
    """Each an op, and the steps before it that it reads, or a number."""
    steps: list[tuple[str, list[int]]] = [("lookup", [0]), ("constant", [0])]
    while len(steps) < n:
        kind = KINDS[rng.randint(len(KINDS))]
        width = {"sum": 2, "cmult": 2, "esum": rng.randint(1, 6)}.get(kind, 1)
        most = 4 if kind == "lookup" else 3 if kind == "constant" else len(steps)
        steps.append((kind, [int(i) for i in rng.randint(max(0, most - 9), most, size=width)]))
    return steps


def another(rng: np.random.RandomState, steps: list[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
    """The same ops, one of which reads something else."""
    at = int(rng.randint(2, len(steps)))
    kind, read = steps[at]
    most = 4 if kind == "lookup" else 3 if kind == "constant" else at
    changed = list(read)
    changed[rng.randint(len(read))] = int(rng.randint(most))
    return [*steps[:at], (kind, changed), *steps[at + 1 :]]


def outcome(net: Net, steps: list[tuple[str, list[int]]], batched: bool) -> list[np.ndarray]:
    dy = net.dy
    dy.renew_cg(autobatching=batched)
    made: list[Any] = []
    for kind, read in steps:
        x = [made[i] for i in read] if kind not in ("lookup", "constant") else []
        if kind == "lookup":
            made.append(net.E[read[0]])
        elif kind == "constant":  # equal ones are one node
            made.append(dy.tanh(net.b) * float(1 + read[0]))
        elif kind == "affine":
            made.append(dy.tanh(dy.affine_transform([net.b, net.W, x[0]])))
        elif kind == "esum":
            made.append(dy.tanh(dy.esum(x)))
        else:
            made.append(x[0] + x[1] if kind == "sum" else getattr(dy, kind)(*x))
    loss = dy.squared_norm(made[-1]) + dy.squared_norm(made[len(made) // 2])
    found = [np.asarray(loss.value())]
    loss.backward()
    for p in (net.W, net.b, net.E):
        found.append(p.grad_as_array().copy())
        p.scale_gradient(0)
    return found


@pytest.mark.parametrize("size", [9, 16, 40])
@with_new_graph
def test_random_graphs_that_nearly_agree(dy: Any, copied: Callable, size: int) -> None:
    net, hits = Net(dy), 0
    for seed in range(40):
        rng = np.random.RandomState(1000 * size + seed)
        graphs = [random_steps(rng, size)]
        for _ in range(6):
            graphs.append(another(rng, graphs[rng.randint(len(graphs))]))
        want = [outcome(net, steps, batched=False) for steps in graphs]
        for _ in range(3):
            for i in rng.permutation(len(graphs)):
                got, n = copied(lambda steps=graphs[i]: outcome(net, steps, batched=True))
                hits += n
                for a, b in zip(got, want[i]):
                    assert np.allclose(a, b, rtol=1e-4, atol=1e-5), f"seed {seed}, copied {n}: {graphs[i]}"
    assert hits > 100, hits
