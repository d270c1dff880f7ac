"""Gradients do not depend on what was read while the graph was recorded, and so planned by itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import numpy as np
import pytest
from support.subject import IS_REFERENCE

STEPS = 12
Losses = Callable[[Any, bool], list]


class Model:
    def __init__(self, dy: Any) -> None:
        dy.reset_random_seed(7)
        self.collection = dy.ParameterCollection()
        self.table = self.collection.add_lookup_parameters((9, 10))
        self.hidden = self.collection.add_parameters((20, 20))
        self.bias = self.collection.add_parameters(20)
        self.out = self.collection.add_parameters((5, 20))
        self.lstm = dy.VanillaLSTMBuilder(1, 10, 10, self.collection)

    def gradients(self) -> list[np.ndarray]:
        parameters = [*self.collection.parameters_list(), *self.collection.lookup_parameters_list()]
        return [np.array(p.grad_as_array()) for p in parameters]

    def clear(self) -> None:
        for p in [*self.collection.parameters_list(), *self.collection.lookup_parameters_list()]:
            p.scale_gradient(0)


@pytest.fixture
def model(dy: Any) -> Model:
    dy.renew_cg()
    return Model(dy)


def read_if(read: bool, e: Any) -> None:
    if read:
        e.value()


def steps_apart(dy: Any, m: Model, read: bool) -> list[Any]:
    """Scores of every step, as a parser has them; every third one is no part of the loss."""
    losses = []
    for i in range(STEPS):
        x = dy.concatenate([m.table[i % 9], m.table[(i * 5 + 1) % 9]])
        scores = m.out * dy.tanh(m.hidden * x + m.bias)
        read_if(read, scores)
        if i % 3:
            losses.append(dy.pick(scores, i % 5) - dy.pick(scores, (i + 1) % 5))
    return losses


def steps_in_turn(dy: Any, m: Model, read: bool) -> list[Any]:
    """Each step reads the state that the one before has left; sentences of different lengths."""
    losses = []
    for length in (3, 7, 5):
        state = m.lstm.initial_state()
        for i in range(length):
            state = state.add_input(m.table[(i + length) % 9])
            loss = dy.pickneglogsoftmax(m.out * dy.concatenate([state.output(), state.h()[0]]), i % 5)
            read_if(read, loss)
            losses.append(loss)
    return losses


def lists_of_any_length(dy: Any, m: Model, read: bool) -> list[Any]:
    losses = []
    for i in range(STEPS):
        rows = [m.table[(i + k) % 9] for k in range(1 + i % 3)]
        joined = dy.concatenate([dy.esum(rows), dy.average(rows)])
        loss = dy.squared_norm(dy.cmult(joined, joined)) + dy.dot_product(joined, m.bias)
        read_if(read, loss)
        losses.append(loss)
    return losses


def computed_weights(dy: Any, m: Model, read: bool) -> list[Any]:
    """A weight that is itself a product: its gradient is complete before its own launch runs."""
    weight = m.out * dy.tanh(m.hidden)
    losses = []
    for i in range(STEPS):
        loss = dy.sum_elems(dy.tanh(weight * dy.concatenate([m.table[i % 9], m.table[i % 4]])))
        read_if(read, loss)
        losses.append(loss)
    return losses


PROGRAMS: list[Losses] = [steps_apart, steps_in_turn, lists_of_any_length, computed_weights]


def backward(dy: Any, m: Model, program: Losses, read: bool) -> list[np.ndarray]:
    dy.renew_cg()
    m.clear()
    loss = dy.esum(program(dy, m, read))
    loss.value()
    loss.backward()
    return m.gradients()


def backward_launches(dy: Any, loss: Any) -> int:
    """How many launches its backward pass takes."""
    if IS_REFERENCE or "device_launches" in dy._core.timing():
        pytest.skip("a GPU runs launches in reverse order")
    loss.value()
    before = dy._core.timing()["launches"]
    loss.backward()
    found: int = dy._core.timing()["launches"] - before
    return found


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_are_those_of_reading_nothing(dy: Any, model: Model, program: Losses) -> None:
    read = backward(dy, model, program, True)
    unread = backward(dy, model, program, False)
    for got, want in zip(read, unread):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * max(abs(want).max(), 1e-3))


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_have_the_same_bits_every_time(dy: Any, model: Model, program: Losses) -> None:
    once, again = (backward(dy, model, program, True) for _ in range(2))
    for got, want in zip(once, again):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("program", PROGRAMS)
def test_steps_that_were_read_one_by_one_share_launches(dy: Any, model: Model, program: Losses) -> None:

    def launches(read: bool, batching: bool = True) -> int:
        dy.renew_cg(autobatching=batching)
        return backward_launches(dy, dy.esum(program(dy, model, read)))

    unread, read, alone = launches(False), launches(True), launches(True, batching=False)
    assert read < alone / 2
    assert program is not steps_apart or read <= 2 * unread


def test_parameters_that_are_read_like_values_are_no_rows_of_tables(dy: Any) -> None:
    """Batch keys are numbered from 0 in each thread, and the first one here is that of the lookups."""

    def gradients(read: bool) -> list[np.ndarray]:
        dy.renew_cg()
        pc = dy.ParameterCollection()
        table = pc.lookup_parameters_from_numpy(np.linspace(-1, 1, 40).reshape(10, 4))
        b = pc.parameters_from_numpy(np.linspace(0.5, 2, 4))
        losses = []
        for i in range(10):
            losses.append(dy.squared_norm(dy.tanh(table[i] + b)))
            read_if(read, losses[-1])
        dy.esum(losses).backward(full=True)
        return [table.grad_as_array(), b.grad_as_array()]

    for read in (True, False):
        with ThreadPoolExecutor(1) as thread:
            found = thread.submit(gradients, read).result()
        for got, want in zip(found, gradients(False)):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_one_read_leaves_groups_of_launches_as_they_are(dy: Any, model: Model) -> None:
    """Where little can be joined, fused and element-wise groups still run at once."""

    def launches(read: bool) -> int:
        dy.renew_cg()
        xs = [model.table[i % 9] for i in range(STEPS)]
        first = dy.squared_norm(model.table[0])
        read_if(read, first)
        losses = [dy.squared_norm(model.out * dy.tanh(model.hidden * dy.concatenate([x, x]))) for x in xs]
        return backward_launches(dy, dy.esum([first, *losses]))

    assert launches(True) <= launches(False) + 2


def test_a_product_with_its_loss_after_reads(dy: Any) -> None:
    """A large softmax runs with its product, whose bias others read, too."""
    pc = dy.ParameterCollection()
    rng = np.random.RandomState(1)
    W = pc.parameters_from_numpy(rng.randn(6000, 16) / 4)
    V = pc.parameters_from_numpy(rng.randn(16, 16) / 4)
    b = pc.parameters_from_numpy(rng.randn(6000))
    table = pc.lookup_parameters_from_numpy(rng.randn(400, 16))

    def gradients(read: bool) -> list[np.ndarray]:
        dy.renew_cg()
        for p in (W, V, b):
            p.scale_gradient(0)
        bias, losses = dy.tanh(b * 0.5), []
        for i in range(400):
            h = dy.tanh(V * table[i])
            if i % 80 == 0:
                losses.append(dy.squared_norm(h))
                read_if(read, losses[-1])
            losses.append(dy.pickneglogsoftmax(W * h + bias, i))
        loss = dy.esum(losses)
        loss.value()
        loss.backward()
        return [p.grad_as_array() for p in (W, V, b)]

    for got, want in zip(gradients(True), gradients(False)):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * abs(want).max())


def test_full_gradients_of_nodes(dy: Any, model: Model) -> None:
    found = []
    for read in (True, False):
        dy.renew_cg()
        xs = [dy.inputVector([0.1 * i, 1.0, -0.2]) for i in range(STEPS)]
        ys = []
        for x in xs:
            ys.append(dy.squared_norm(dy.tanh(x)))
            read_if(read, ys[-1])
        dy.esum(ys[1:]).backward(full=True)
        found.append([x.gradient() for x in xs])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)
    assert not np.any(found[0][0]) and np.all(found[0][1])


def test_nodes_that_were_recorded_after_the_loss_take_no_part(dy: Any, model: Model) -> None:
    """A read computes later nodes, too, in launches that the earlier ones are in."""
    dy.renew_cg()  # most nodes of a larger graph have taken part before
    dy.esum(steps_apart(dy, model, True) * 2).backward()
    found = []
    for read in (True, False):
        dy.renew_cg()
        model.clear()
        scores = [
            dy.sum_elems(
                dy.tanh(model.out * dy.tanh(model.hidden * dy.concatenate([model.table[i % 9]] * 2)))
            )
            for i in range(40)
        ]
        if read:
            assert len({s.value() for s in scores}) == 9
        scores[2].backward()
        found.append(model.gradients())
    for got, want in zip(*found):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [16, 1024], ids=["in the cache", "larger"])
def test_gradients_of_a_part_read_nothing_that_an_earlier_graph_left(dy: Any, size: int) -> None:
    """Gradients of graphs share memory, of which only what takes part is zeroed."""

    def record() -> tuple[Any, list[Any], list[Any]]:
        dy.renew_cg()
        rng = np.random.RandomState(3)
        pc = dy.ParameterCollection()
        table = pc.lookup_parameters_from_numpy(rng.randn(40, size))
        weight = pc.parameters_from_numpy(rng.randn(size, size) / size)
        states = [dy.tanh(weight * table[i]) for i in range(40)]
        sums = [a + b for a, b in zip(states, states[1:])]
        scores = [dy.squared_norm(dy.concatenate([a, b])) for a, b in zip(sums, states[::-1])]
        return pc, states + sums, scores

    def gradients(full: bool) -> list[np.ndarray]:
        pc, nodes, scores = record()
        dy.esum(scores).value()
        dy.esum([scores[i] for i in (3, 17, 18, 30)]).backward(full=full)
        parameters = [*pc.parameters_list(), *pc.lookup_parameters_list()]
        return [e.gradient() for e in nodes[3:5] + nodes[43:44]] + [p.grad_as_array() for p in parameters]

    want = gradients(full=True)
    pc, nodes, scores = record()
    all_of_it = dy.esum([e * np.nan for e in scores] + [dy.sum_elems(e) for e in nodes])
    all_of_it.value()
    all_of_it.backward(full=True)
    assert np.isnan(nodes[0].gradient()).all() and np.isnan(scores[0].gradient()).all()
    for got, wanted in zip(gradients(full=False), want):
        np.testing.assert_array_equal(got, wanted)
        assert np.isfinite(wanted).all() and wanted.any()
