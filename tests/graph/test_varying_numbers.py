"""Operators on a number that differs from node to node: sums divided by lengths, inputs with weights."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from support.in_thread import with_new_graph
from support.subject import IS_REFERENCE

OPERATORS = {  # value, derivative by x
    "x * r": (lambda x, r: x * r, lambda x, r: r + 0 * x),
    "r * x": (lambda x, r: x * r, lambda x, r: r + 0 * x),
    "x / r": (lambda x, r: x / r, lambda x, r: 1 / r + 0 * x),
    "x + r": (lambda x, r: x + r, lambda x, r: 1 + 0 * x),
    "x - r": (lambda x, r: x - r, lambda x, r: 1 + 0 * x),
    "r - x": (lambda x, r: r - x, lambda x, r: -1 + 0 * x),
    "r / x": (lambda x, r: r / x, lambda x, r: -r / x**2),
}


class Layer:
    """f(x, r), then tanh(W f), for instances with numbers of their own."""

    def __init__(self, dy: Any, form: str, shape: tuple[int, ...], batch: int) -> None:
        self.dy, self.form, self.batch = dy, form, batch
        self.model = dy.ParameterCollection()
        self.E = self.model.lookup_parameters_from_numpy(np.linspace(0.4, 1.6, 9 * 6).reshape(9, 6))
        self.shape = shape
        self.W = self.model.parameters_from_numpy(np.linspace(-1, 1, 2 * shape[0]).reshape(2, shape[0]))

    def run(self, numbers: list[float]) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """Values, gradients of the table and of W, launches."""
        dy = self.dy
        dy.renew_cg(autobatching=True)
        for p in (self.E, self.W):
            p.scale_gradient(0)
        before = dy._core.timing()["launches"]
        results = []
        for i, r in enumerate(numbers):
            rows = [(i + b) % 9 for b in range(self.batch)]
            x = dy.lookup_batch(self.E, rows) if self.batch > 1 else self.E[rows[0]]
            x = dy.reshape(x, self.shape)
            results.append(dy.tanh(self.W * eval(self.form, {"x": x, "r": r})))
        loss = dy.esum([dy.sum_batches(dy.sum_elems(y)) for y in results])
        loss.forward()
        loss.backward()
        launches = dy._core.timing()["launches"] - before
        values = np.concatenate([y.npvalue().reshape(-1) for y in results])
        return values, self.E.grad_as_array(), self.W.grad_as_array(), launches

    def expected(self, numbers: list[float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same by NumPy."""
        value, slope = OPERATORS[self.form]
        table, W = self.E.as_array().astype(float), self.W.as_array().astype(float)
        values, dE, dW = [], np.zeros_like(table), np.zeros_like(W)
        for i, r in enumerate(numbers):
            ys = []
            for row in [(i + b) % 9 for b in range(self.batch)]:
                x = table[row].reshape(self.shape, order="F")
                y = np.tanh(W @ value(x, r))
                dz = 1 - y**2
                dW += (dz @ value(x, r).T) if y.ndim == 2 else np.outer(dz, value(x, r))
                dE[row] += ((W.T @ dz) * slope(x, r)).reshape(-1, order="F")
                ys.append(y)
            values.append(np.stack(ys, axis=-1).reshape(-1) if self.batch > 1 else ys[0].reshape(-1))
        return np.concatenate(values), dE, dW


@pytest.mark.skipif(IS_REFERENCE, reason="our launches")
@pytest.mark.parametrize("shape, batch", [((6,), 1), ((3, 2), 1), ((6,), 3)])
@pytest.mark.parametrize("form", OPERATORS)
@with_new_graph
def test_launches_are_shared_after_the_first_graphs(
    dy: Any, form: str, shape: tuple[int, ...], batch: int
) -> None:
    draw = random.Random(form)
    layer = Layer(dy, form, shape, batch)
    together = layer.run([1.5] * 12)[3]
    for graph in range(5):
        numbers = [draw.choice((-1, 1)) * draw.uniform(0.3, 2) for _ in range(12)]
        *found, launches = layer.run(numbers)
        for mine, theirs in zip(found, layer.expected(numbers)):
            np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=1e-5)
        if graph:
            assert launches <= together


@pytest.mark.skipif(IS_REFERENCE, reason="our graph")
@with_new_graph
def test_few_numbers_stay_attributes(dy: Any) -> None:
    """What is always halved, or subtracted from one, can be computed with what follows."""
    for _ in range(4):
        dy.renew_cg()
        h = dy.inputVector([0.1, 0.2])
        for i in range(40):
            h = dy.tanh(h * (0.5, 2.0, 3.0, -1.0)[i % 4]) + (1 - h)
        size = dy._core._node_number(h) + 1
        names = {dy._core._graph_node(node)[0] for node in range(size)}
        assert {"scale", "const_minus"} <= names and not [name for name in names if "own" in name]


@pytest.mark.skipif(IS_REFERENCE, reason="our graph")
@with_new_graph
def test_many_numbers_are_the_nodes_own_from_the_next_graph_on(dy: Any) -> None:
    def names() -> list[str]:
        dy.renew_cg()
        x = dy.inputVector([0.1, 0.2])
        results = [dy._core._node_number(x * (i + 2)) for i in range(6)]
        return [dy._core._graph_node(node)[0] for node in results]

    assert names() == ["scale"] * 6
    assert names() == ["scale_by_own"] * 6


NUMBERS = """
import random
import numpy as np
import dynet_compat as dy

H = 6
dy.reset_random_seed(3)
model = dy.ParameterCollection()
E, W = model.add_lookup_parameters((9, H)), model.add_parameters((H, H))
lstm = dy.LSTMBuilder(1, H, H, model)
draw = random.Random(3)


def weighed(word, weight):
    x = E[word] * weight
    return dy.tanh(W * x) + (1 - x) / (2 + weight)


def scaled(word, weight):
    return dy.tanh((W * weight) * E[word]) * dy.squared_norm(W) * weight


def encode(words, weights):
    state = lstm.initial_state()
    for word, weight in zip(words, weights):
        state = state.add_input(weighed(word, weight))
    return state.output()


def loss_of(words, weights):
    mean = dy.esum([E[word] for word in words]) / len(words)
    return dy.squared_distance(encode(words, weights) + scaled(words[0], weights[0]), dy.tanh(W * mean))


corpus = [[draw.randrange(9) for _ in range(draw.randrange(2, 9))] for _ in range(12)]
for epoch in range(8):
    dy.renew_cg()
    weights = [[draw.choice((0.5, 0.25, 1.0) if epoch < 2 else (0.1, 0.2, 0.3, 0.4, 0.6, 0.7)) for _ in words]
               for words in corpus]
    losses = [loss_of(words, weight) for words, weight in zip(corpus, weights)]
    loss = dy.esum(losses)
    values = [each.value() for each in losses]
    loss.backward()
    print(np.float32(values).tobytes().hex())
    for parameter in (W, E):
        print(parameter.grad_as_array().tobytes().hex())
        parameter.scale_gradient(0)
"""


# The same words and weights in each epoch, and so many signatures that the tables begin again.
TABLES = NUMBERS.replace("range(8)", "range(30)").replace("if epoch < 2 else", "if epoch < 0 else")
TABLES = TABLES.replace("draw.choice((0.5", "random.Random(len(words)).choice((0.5").replace(
    "loss = dy.esum(losses)",
    "loss = dy.esum(losses + [dy.sum_elems((W * draw.random()) * E[1]) for _ in range(300)])",
)

WEIGHTS = """
import random
import numpy as np
import dynet_compat as dy

model = dy.ParameterCollection()
W = [model.parameters_from_numpy(np.eye(2) * (i + 1) * 0.1) for i in range(6)]
v = [model.parameters_from_numpy(np.array([0.1, 0.1 * i])) for i in range(8)]
draw = random.Random(0)


def sums_of_two(x):
    A = W[0] + W[1]
    y = dy.tanh(A * x)
    return dy.tanh(A * y) + y


def sums_of_others(x, i):
    B = W[i] + W[5]
    return dy.tanh(dy.tanh(B * x) + x)


functions = [sums_of_two, lambda x: sums_of_others(x, 2), lambda x: sums_of_others(x, 3)]
for graph in range(60):
    dy.renew_cg()
    inputs = [dy.inputVector([draw.random(), 0.1]) for _ in range(20)]
    draw.shuffle(functions)
    results = [f(x) for f in functions for x in inputs]
    h = v[0]
    for _ in range(1500):
        h = dy.tanh(h + v[draw.randrange(8)])
    results.append(h)
    loss = dy.sum_elems(dy.esum(results))
    loss.backward()
    print(np.float32([r.npvalue() for r in results]).tobytes().hex())
    for w in W:
        print(w.grad_as_array().tobytes().hex())
        w.scale_gradient(0)
"""


@pytest.mark.skipif(IS_REFERENCE, reason="our hints")
@pytest.mark.parametrize("hints", ["auto", "eager"])
@pytest.mark.parametrize("script", [NUMBERS, TABLES, WEIGHTS], ids=["numbers", "tables", "weights"])
def test_hints_change_no_bit(tmp_path: Any, hints: str, script: str) -> None:
    """Also of graphs that are recorded after numbers were found to vary, after numbers of computed values or
    tables of signatures began again, from what was learned before."""
    path = tmp_path / "script.py"
    path.write_text(script)

    def run(hints: str) -> str:
        env = {**os.environ, "DYNET_COMPAT_HINTS": hints}
        return subprocess.run(
            [sys.executable, path], env=env, capture_output=True, text=True, check=True, timeout=300
        ).stdout

    assert run(hints) == run("off")
