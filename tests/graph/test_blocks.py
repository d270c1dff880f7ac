"""Launches that run together: products and what follows them instance by instance (blocks).

Each network is computed with batching and without it: values and gradients agree. The same launches on one
thread and on several agree to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.subject import IS_REFERENCE, ON_DEVICE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="our launches")
on_the_cpu = pytest.mark.skipif(ON_DEVICE, reason="how the CPU's threads share launches")

Results = dict[str, Any]  # arrays
Lists = tuple[list[Any], list[Any]]
Build = Callable[["Network"], Lists]


class Network:
    """Parameters for the networks below. `build` returns the expressions of the loss, and some to look at."""

    def __init__(self, dy: Any, hidden: int, count: int) -> None:
        self.dy, self.hidden, self.count = dy, hidden, count
        rng = np.random.RandomState(5)
        self.pc = pc = dy.ParameterCollection()

        def made(*shape: int) -> Any:
            return pc.parameters_from_numpy(rng.uniform(-0.4, 0.4, shape).astype(np.float32))

        self.W = [made(hidden, hidden) for _ in range(10)]
        self.b = [made(hidden) for _ in range(5)]
        self.wide = made(4 * hidden, hidden)
        self.row = made(1, hidden)
        self.table = pc.lookup_parameters_from_numpy(rng.uniform(-1, 1, (9, hidden)).astype(np.float32))
        self.forth, self.back = (dy.VanillaLSTMBuilder(1, hidden, hidden, pc) for _ in range(2))
        for p in pc.parameters_list():
            p.set_value(rng.uniform(-0.4, 0.4, p.shape()).astype(np.float32))

    def x(self, i: int) -> Any:
        return self.table[i % 9]

    def run(self, build: Build, autobatch: bool, full: bool = False) -> Results:
        dy = self.dy
        dy.renew_cg(autobatching=autobatch)
        losses, others = build(self)
        loss = dy.esum([dy.squared_norm(r) for r in losses])
        dy._core.reset_timing()
        found = {"loss": np.array(loss.value())}
        self.forward_launches = dy._core.timing()["launches"]
        for i, r in enumerate(losses + others):
            found[f"value {i}"] = np.array(r.npvalue())
        loss.backward(full=full)
        for i, r in enumerate(losses):
            found[f"gradient {i}"] = np.array(r.gradient())
        for i, p in enumerate([*self.pc.parameters_list(), self.table]):
            found[f"parameter {i}"] = np.array(p.grad_as_array())
            p.scale_gradient(0)
        return found


def agree(found: Results, want: Results, exact: bool = False) -> None:
    assert found.keys() == want.keys()
    for key, array in want.items():
        if exact:
            assert np.array_equal(found[key], array), key
        else:
            scale = max(1.0, float(np.abs(array).max()))
            assert np.allclose(found[key], array, rtol=1e-4, atol=1e-5 * scale), key


# ---------------------------------------------------------------- networks


def gate(n: Network, k: int, h1: Any, h2: Any) -> Any:
    return n.dy.affine_transform([n.b[k], n.W[k], h1, n.W[5 + k], h2])


def cell(n: Network, left: tuple[Any, Any], right: tuple[Any, Any]) -> tuple[Any, Any]:
    dy = n.dy
    (h1, c1), (h2, c2) = left, right
    i, o = dy.logistic(gate(n, 0, h1, h2)), dy.logistic(gate(n, 1, h1, h2))
    u = dy.tanh(gate(n, 2, h1, h2))
    f, g = dy.logistic(gate(n, 3, h1, h2) + 1.0), dy.logistic(gate(n, 4, h1, h2) + 1.0)
    c = dy.cmult(i, u) + dy.cmult(f, c1) + dy.cmult(g, c2)
    return dy.cmult(o, dy.tanh(c)), c


def trees(n: Network) -> Lists:
    level = [(n.x(i), n.x(i + 4)) for i in range(2 * n.count)]
    while len(level) > n.count // 4 + 1:
        level = [cell(n, level[2 * i], level[2 * i + 1]) for i in range(len(level) // 2)]
    return [h for h, _ in level], [c for _, c in level]


def equal_children(n: Network) -> Lists:
    """Both children are one node; some instances share a child."""
    states = [(n.x(i), n.x(i + 4)) for i in range(n.count)]
    cells = [cell(n, states[i // 2], states[i // 2]) for i in range(n.count)]
    return [h for h, _ in cells], []


def shared_operand(n: Network) -> Lists:
    dy = n.dy
    common = dy.tanh(n.W[0] * n.x(3))
    return [dy.cmult(dy.tanh(n.W[1] * n.x(i)), common) + common for i in range(n.count)], [common]


def neighbours(n: Network) -> Lists:
    """An instance reads what its neighbour has of the same launch."""
    dy = n.dy
    y = [dy.tanh(dy.affine_transform([n.b[0], n.W[0], n.x(i)])) for i in range(n.count)]
    return [dy.cmult(y[i], y[i - 1]) + y[(i * 3) % n.count] for i in range(n.count)], []


def overlapping_targets(n: Network) -> Lists:
    """Instances add to each other's inputs."""
    dy = n.dy
    x = [dy.tanh(n.x(i) * (1.0 + i)) for i in range(n.count)]
    y = [dy.cmult(dy.logistic(n.W[0] * x[i]), x[i - 1]) for i in range(n.count)]
    return [dy.cmult(y[i], x[(i * 5) % n.count]) + x[i] for i in range(n.count)], []


def some_live(n: Network) -> Lists:
    """Not every instance is of the loss."""
    made = [n.dy.logistic(gate(n, 0, n.x(i), n.x(i + 1))) for i in range(n.count)]
    return made[::3], made


def some_gates_live(n: Network) -> Lists:
    """Not every launch of a block is of the loss."""
    dy = n.dy
    first = [dy.tanh(gate(n, 0, n.x(i), n.x(i + 1))) for i in range(n.count)]
    second = [dy.logistic(gate(n, 1, n.x(i), n.x(i + 1))) for i in range(n.count)]
    return second, first


def layers(n: Network) -> Lists:
    """A product of what a block makes."""
    dy = n.dy
    hidden = [dy.tanh(dy.affine_transform([n.b[0], n.W[0], n.x(i)])) for i in range(n.count)]
    return [dy.pickneglogsoftmax(n.W[1] * h, i % n.hidden) for i, h in enumerate(hidden)], hidden


def parts(n: Network) -> Lists:
    """Rows of a product."""
    dy, h = n.dy, n.hidden
    found = []
    for i in range(n.count):
        g = n.wide * n.x(i)
        a, b, c = dy.logistic(g[:h]), dy.tanh(g[h : 2 * h]), g[h // 2 : h // 2 + h]
        found.append(dy.cmult(a, b) + c)
    return found, []


def column_bias(n: Network) -> Lists:
    dy = n.dy
    before = [dy.affine_transform([n.b[0], n.W[0], n.x(i)]) for i in range(n.count)]
    state = [n.x(i + 2) for i in range(n.count)]
    for _ in range(3):
        state = [dy.tanh(dy.affine_transform([b, n.W[1], s])) for b, s in zip(before, state)]
    return state, before


def rows_of_a_parameter(n: Network) -> Lists:
    """Instances read rows of a parameter, their own and their neighbour's; its copy is behind all results."""
    dy, h = n.dy, n.hidden
    found = []
    for i in range(n.count):
        own, next_one = (n.wide[(i + j) % (4 * h - 1) : (i + j) % (4 * h - 1) + 1] for j in range(2))
        x = dy.tanh(n.W[0] * n.x(i))
        found.append(dy.cmult(x, dy.transpose(own)) + dy.cmult(x, dy.transpose(next_one)))
    return found, []


def columns_of_a_parameter(n: Network) -> Lists:
    """The same, with columns: they lie without gaps."""
    dy, h = n.dy, n.hidden
    found = []
    for i in range(n.count):
        own, next_one = (dy.pick(n.W[1], (i + j) % h, 1) for j in range(2))
        x = dy.tanh(n.W[0] * n.x(i))
        found.append(dy.cmult(x, own) + dy.cmult(x, next_one))
    return found, []


def computed_weights(n: Network) -> Lists:
    dy = n.dy
    w, b = dy.tanh(n.W[0]), dy.tanh(n.b[0])
    return [dy.tanh(dy.affine_transform([b, w, n.x(i), n.W[2], n.x(i + 1)])) for i in range(n.count)], [w]


def scores(n: Network) -> Lists:
    """One float for each instance times a vector: extents differ."""
    dy = n.dy
    return [dy.tanh(n.W[0] * n.x(i)) * dy.logistic(n.row * n.x(i)) for i in range(n.count)], []


def matrices(n: Network) -> Lists:
    """Several columns for each instance."""
    dy = n.dy
    found = []
    for i in range(n.count):
        x = dy.concatenate_cols([n.x(i), n.x(i + 1), n.x(i + 2)])
        found.append(dy.cmult(dy.tanh(n.W[0] * x), dy.logistic(n.W[1] * x)))
    return found, []


def tagger(n: Network) -> Lists:
    dy = n.dy
    found = []
    for i in range(n.count):
        words = [n.x(i + j) for j in range(2 + i % 5)]
        forth = n.forth.initial_state().transduce(words)
        back = n.back.initial_state().transduce(words[::-1])[::-1]
        found += [dy.tanh(n.W[0] * f + n.W[1] * b) for f, b in zip(forth, back)]
    return found, []


NETWORKS = [
    trees,
    equal_children,
    shared_operand,
    neighbours,
    overlapping_targets,
    some_live,
    some_gates_live,
    layers,
    parts,
    column_bias,
    rows_of_a_parameter,
    columns_of_a_parameter,
    computed_weights,
    scores,
    matrices,
    tagger,
]


@pytest.mark.parametrize("count", [1, 3, 30])
@pytest.mark.parametrize("hidden", [5, 16])
@pytest.mark.parametrize("build", NETWORKS)
def test_as_without_batching(dy: Any, build: Build, hidden: int, count: int) -> None:
    network = Network(dy, hidden, count)
    want = network.run(build, False)
    agree(network.run(build, True), want)
    agree(network.run(build, True), want)  # from a remembered plan, with gradients of the last time


@pytest.mark.parametrize("build", NETWORKS)
def test_full_gradients(dy: Any, build: Build) -> None:
    network = Network(dy, 8, 12)
    agree(network.run(build, True, full=True), network.run(build, False, full=True))


def on_threads(network: Network, build: Build) -> list[Results]:
    """From one thread, from two and from five."""
    core = network.dy._core
    before = core.threads()
    try:
        results = []
        for threads in (1, 2, 5):
            core.set_threads(threads)
            results.append(network.run(build, True))
    finally:
        core.set_threads(before)
    return results


@on_the_cpu
@pytest.mark.parametrize(("hidden", "count"), [(64, 300), (300, 20)])
@pytest.mark.parametrize("build", NETWORKS)
def test_threads_change_no_bit(dy: Any, build: Build, hidden: int, count: int) -> None:
    network = Network(dy, hidden, count)
    network.run(build, True)  # the first graph also teaches the recorder its sites
    one, two, five = on_threads(network, build)
    agree(two, one, exact=True)
    agree(five, one, exact=True)


@on_the_cpu
@pytest.mark.parametrize(("hidden", "count"), [(600, 4), (300, 80), (300, 1)])
@pytest.mark.parametrize("build", [trees, parts, tagger])
def test_many_weights(dy: Any, build: Build, hidden: int, count: int) -> None:
    """Sums longer than what is summed at once, and weights that not every thread should read."""
    network = Network(dy, hidden, count)
    want = network.run(build, False)
    for found in on_threads(network, build):
        agree(found, want)


@on_the_cpu
@pytest.mark.parametrize("rows", [5, 100, 256, 300])
def test_sum_over_gates(dy: Any, rows: int) -> None:
    """The gradient of what all gates read is one sum over their weights, in parts if there are many rows."""
    r = np.random.RandomState(rows)
    pc = dy.ParameterCollection()
    weights = [pc.parameters_from_numpy(r.randn(rows, 77).astype("f4") / 9) for _ in range(6)]
    xs = [dy.inputTensor(r.randn(77)) for _ in range(20)]
    gates = [[dy.tanh(W * x) for W in weights] for x in xs]
    dy.esum([dy.squared_norm(dy.esum(of)) for of in gates]).backward(full=True)
    for x in xs:
        w = [np.array(W.as_array(), "f8") for W in weights]
        y = [np.tanh(one @ np.array(x.npvalue(), "f8")) for one in w]
        want = sum(one.T @ ((1 - v * v) * 2 * sum(y)) for one, v in zip(w, y))
        np.testing.assert_allclose(x.gradient(), want, rtol=2e-5, atol=2e-5 * np.abs(want).max())


@pytest.mark.parametrize(
    ("build", "most"),
    [(trees, 8), (layers, 4), (column_bias, 7), (tagger, 15)],
)
def test_launches(dy: Any, build: Build, most: int) -> None:
    """A level of trees, a step of both LSTMs, a layer: one launch each."""
    network = Network(dy, 16, 30)
    for _ in range(2):
        network.run(build, True)
    assert network.forward_launches <= most


def test_values_again(dy: Any) -> None:
    """An input that changes: the blocks run again."""
    n = Network(dy, 8, 6)
    dy.renew_cg(autobatching=True)
    inputs = [dy.vecInput(8) for _ in range(6)]
    outputs = [dy.tanh(gate(n, 0, x, n.x(i))) for i, x in enumerate(inputs)]
    total = dy.esum(outputs)
    for x in inputs:
        x.set([0.5] * 8)
    first = np.array(total.npvalue())
    for x in inputs:
        x.set([0.0] * 8)
    second = np.array(total.npvalue(recalculate=True))
    assert not np.allclose(first, second)
    for x in inputs:
        x.set([0.5] * 8)
    assert np.array_equal(total.npvalue(recalculate=True), first)


def test_wrong_index_in_a_block(dy: Any) -> None:
    """What a kernel cannot do is said before any of the block runs; the graph goes on."""
    n = Network(dy, 8, 4)
    dy.renew_cg(autobatching=True)
    hidden = [dy.tanh(n.W[0] * n.x(i)) for i in range(4)]
    bad = dy.esum([dy.pickneglogsoftmax(n.W[1] * h, 8 if i == 2 else 1) for i, h in enumerate(hidden)])
    with pytest.raises(Exception, match="8"):
        bad.value()
    assert np.isfinite(dy.esum([dy.sum_elems(h) for h in hidden]).value())
