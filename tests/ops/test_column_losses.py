"""A product and the loss that alone reads it are computed in blocks. All that a script can see has the bits
of two launches, which run where the script has read the product's values before it recorded the loss."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.subject import IS_REFERENCE, ON_DEVICE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="about how this package computes")
CPU = pytest.mark.skipif(ON_DEVICE, reason="on a device, products of few columns add up in another order")


@pytest.fixture(params=[1, 3])
def pool(request: pytest.FixtureRequest, dy: Any) -> Iterator[int]:
    before = dy._core.threads()
    dy._core.set_threads(request.param)
    yield request.param
    dy._core.set_threads(before)


class Model:
    """n columns of scores for `words` words, and a loss of each."""

    def __init__(
        self, dy: Any, words: int, n: int, inner: int = 9, kind: str = "affine", loss: str = "one op"
    ) -> None:
        self.dy, self.n, self.kind, self.loss = dy, n, kind, loss
        r = np.random.RandomState(words + n)
        pc = dy.ParameterCollection()
        self.w = pc.parameters_from_numpy(r.randn(words, inner).astype("f4"))
        self.other = pc.parameters_from_numpy(r.randn(words, inner).astype("f4"))
        self.b = pc.parameters_from_numpy(r.randn(words).astype("f4"))
        self.table = pc.lookup_parameters_from_numpy(r.randn(n, inner).astype("f4"))
        self.ids = r.randint(0, words, n).tolist()
        self.factors = r.randn(n).astype("f4")

    def scores(self) -> list:
        """Recorded; one expression, or one per column. Each input of kind "shared" belongs to two of them."""
        dy = self.dy
        dy.renew_cg()
        if self.kind == "batched":
            self.x = [dy.lookup_batch(self.table, range(self.n))]
        else:
            self.x = [self.table[i // 2 if self.kind == "shared" else i] for i in range(self.n)]
        if self.kind == "shared":
            self.x = [self.x[i - i % 2] for i in range(self.n)]
        if self.kind == "matmul":
            return [self.w * x for x in self.x]
        if self.kind in ("matmul + b", "batched"):
            return [self.w * x + self.b for x in self.x]
        if self.kind == "b + matmul":
            return [self.b + self.w * x for x in self.x]
        if self.kind == "computed b":
            b = dy.tanh(self.b)
            return [self.w * x + b for x in self.x]
        if self.kind in ("sum", "same weight"):
            w = self.other if self.kind == "sum" else self.w
            return [dy.affine_transform([self.b, self.w, x, w, dy.tanh(x)]) for x in self.x]
        return [dy.affine_transform([self.b, self.w, x]) for x in self.x]

    def loss_of(self, s: Any, v: int) -> Any:
        dy = self.dy
        if self.loss == "one op":
            return dy.pickneglogsoftmax(s, v)
        if self.loss == "hinge":
            return dy.hinge(s, v, 2.5)
        self.mapped.append(dy.log_softmax(s) if self.loss == "log_softmax" else dy.softmax(s))
        picked = dy.pick(self.mapped[-1], v)
        return -picked if self.loss == "log_softmax" else -dy.log(picked)

    def loss_of_batch(self, s: Any) -> Any:
        dy = self.dy
        if self.loss == "one op":
            return dy.pickneglogsoftmax_batch(s, self.ids)
        if self.loss == "hinge":
            return dy.hinge_batch(s, self.ids, 2.5)
        if self.loss == "log_softmax":
            return -dy.pick_batch(dy.log_softmax(s), self.ids)
        return -dy.log(dy.pick_batch(dy.softmax(s), self.ids))

    def losses(self, scores: list) -> Any:
        dy = self.dy
        self.mapped: list = []
        if self.kind == "batched":
            self.each = [self.loss_of_batch(scores[0])]
            return dy.sum_batches(dy.cmult(self.each[0], dy.inputTensor(self.factors[None], batched=True)))
        self.each = [self.loss_of(s, v) for s, v in zip(scores, self.ids)]
        return dy.esum([loss * float(f) for loss, f in zip(self.each, self.factors)])

    def backward(self, total: Any, full: bool = False) -> dict[str, np.ndarray]:
        for p in (self.w, self.b, self.other):
            p.scale_gradient(0)
        total.backward(full)
        return {
            "loss": np.array([loss.npvalue() for loss in self.each]),
            "dx": np.array([x.gradient() for x in self.x]),
            "dw": self.w.grad_as_array().copy(),
            "dw of other": self.other.grad_as_array().copy(),
            "db": self.b.grad_as_array().copy(),
        }

    def together(self) -> dict[str, np.ndarray]:
        return self.backward(self.losses(self.scores()))

    def separately(self) -> dict[str, np.ndarray]:
        scores = self.scores()
        self.dy.forward(scores)
        values = [s.npvalue() for s in scores]
        results = self.backward(self.losses(scores))
        return {**results, "scores": np.array(values), "dscores": np.array([s.gradient() for s in scores])}


def assert_same(got: dict, expected: dict) -> None:
    for name, value in got.items():
        if name == "db":  # summed in other parts
            np.testing.assert_allclose(
                value, expected[name], rtol=0, atol=1e-6 * np.abs(expected[name]).max()
            )
        else:
            np.testing.assert_array_equal(value, expected[name], name)


# Rows: one block; several, with a rest; so many that the input's gradient is summed in pieces. Columns: a few
# blocks with a rest; so many that the weight's gradient is summed in pieces.
SHAPES = [(1000, 280), (1801, 150), (4100, 67), (1500, 2200)]


LOSSES = ["one op", "log_softmax", "softmax", "hinge"]


@pytest.mark.parametrize("words, n", SHAPES)
@pytest.mark.parametrize("loss", LOSSES)
def test_bits_are_those_of_two_launches(dy: Any, pool: int, words: int, n: int, loss: str) -> None:
    model = Model(dy, words, n, loss=loss)
    assert_same(model.together(), model.separately())


@pytest.mark.parametrize(
    "kind", ["matmul", "sum", "batched", "shared", "matmul + b", "b + matmul", "computed b"]
)
@pytest.mark.parametrize("loss", LOSSES)
def test_forms_of_the_product(dy: Any, pool: int, kind: str, loss: str) -> None:
    model = Model(dy, 2100, 200, kind=kind, loss=loss)
    assert_same(model.together(), model.separately())


@pytest.mark.parametrize(
    "words, n, kind", [(1500, 600, "same weight"), (4100, 600, "sum"), (1500, 2200, "batched")]
)
def test_bits_are_those_of_one_thread(dy: Any, pool: int, words: int, n: int, kind: str) -> None:
    model = Model(dy, words, n, kind=kind)
    got = model.together()
    dy._core.set_threads(1)
    for name, value in model.together().items():
        np.testing.assert_array_equal(got[name], value, name)


@CPU
@pytest.mark.parametrize("loss", LOSSES)
def test_a_column_alone_has_the_bits_it_has_in_a_batch(dy: Any, loss: str) -> None:
    model = Model(dy, 3000, 130, loss=loss)
    batch = model.together()
    for i in (0, 77, 129):
        scores = model.scores()
        alone = model.loss_of(scores[i], model.ids[i])
        (alone * float(model.factors[i])).backward()
        assert alone.npvalue() == batch["loss"][i]
        np.testing.assert_array_equal(model.x[i].gradient(), batch["dx"][i])


def test_values_and_gradients_of_the_product_are_there_when_asked_for(dy: Any) -> None:
    model = Model(dy, 1200, 300)
    expected = model.separately()
    for first in ("value", "gradient", "set"):
        scores = model.scores()
        number = dy.scalarInput(2.0)
        total = model.losses(scores) + number
        value = total.value()
        if first == "value":
            np.testing.assert_array_equal([s.npvalue() for s in scores], expected["scores"])
        assert_same(model.backward(total), expected)
        if first == "set":  # gradients stay those of before
            number.set(3.0)
        np.testing.assert_array_equal([s.gradient() for s in scores], expected["dscores"])
        np.testing.assert_array_equal([s.npvalue() for s in scores], expected["scores"])
        assert_same(model.backward(total), expected)
        assert total.value() == value + (first == "set")


@pytest.mark.parametrize("loss", ["log_softmax", "softmax"])
@pytest.mark.parametrize("kind", ["affine", "matmul + b"])
def test_what_is_between_is_there_when_asked_for(dy: Any, loss: str, kind: str) -> None:
    model = Model(dy, 1200, 300, kind=kind, loss=loss)
    expected = model.separately()
    values = [m.npvalue() for m in model.mapped]
    gradients = [m.gradient() for m in model.mapped]
    for first in ("value", "gradient", "reader"):
        scores = model.scores()
        total = model.losses(scores)
        total.value()
        if first == "value":
            np.testing.assert_array_equal([m.npvalue() for m in model.mapped], values)
        if first == "reader":
            assert dy.sum_elems(model.mapped[5] * 2.0).value() == pytest.approx(2 * values[5].sum(), rel=1e-5)
        assert_same(model.backward(total), expected)
        np.testing.assert_array_equal([m.gradient() for m in model.mapped], gradients)
        np.testing.assert_array_equal([s.gradient() for s in scores], expected["dscores"])
        np.testing.assert_array_equal([m.npvalue() for m in model.mapped], values)
        assert_same(model.backward(total), expected)


@pytest.mark.parametrize("loss", ["log_softmax", "softmax"])
def test_full_gradients_of_what_is_between(dy: Any, loss: str) -> None:
    model = Model(dy, 1200, 150, kind="matmul + b", loss=loss)
    expected = model.separately()
    scores = model.scores()
    assert_same(model.backward(model.losses(scores), full=True), expected)
    np.testing.assert_array_equal([s.gradient() for s in scores], expected["dscores"])


@pytest.mark.parametrize("loss", ["one op", "softmax", "hinge"])
def test_a_number_for_each_column_is_no_vector(dy: Any, loss: str) -> None:
    """As many columns as rows: the sizes of what is added do not tell which it is."""
    model = Model(dy, 1024, 1024, kind="batched", loss=loss)
    numbers = 3 * np.random.RandomState(3).randn(1, 1024).astype("f4")

    def losses(first: bool) -> Any:
        dy.renew_cg()
        model.x = [dy.lookup_batch(model.table, range(1024))]
        product = model.w * model.x[0]
        if first:
            product.forward()
        return model.losses([product + dy.inputTensor(numbers, batched=True)])

    assert_same(model.backward(losses(False)), model.backward(losses(True)))


@pytest.mark.parametrize("join", ["cmult", "add"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_product_whose_reader_is_no_loss(dy: Any, loss: str, join: str) -> None:
    """The scores that the losses read have other shapes than expected; a launch that reads parameters stands
    between the product and its reader."""
    model = Model(dy, 1100, 260, kind="matmul", loss=loss)

    def losses(first: bool) -> Any:
        products = model.scores()
        if first:
            dy.forward(products)
        if join == "cmult":
            t = dy.tanh(model.b)
            return model.losses([dy.cmult(p, t) for p in products])
        return model.losses([p + dy.tanh(model.b * float(i)) for i, p in enumerate(products)])

    got, expected = model.backward(losses(False)), model.backward(losses(True))
    assert np.any(expected["dw"])
    assert_same(got, expected)


def test_a_softmax_that_others_read_too(dy: Any) -> None:
    model = Model(dy, 1100, 260, loss="log_softmax")

    def losses(first: bool) -> Any:
        scores = model.scores()
        if first:
            dy.forward(scores)
        total = model.losses(scores)
        other = dy.tanh(dy.tanh(model.b))
        return total + dy.esum([dy.dot_product(m, other) for m in model.mapped])

    assert_same(model.backward(losses(False)), model.backward(losses(True)))


def test_readers_recorded_later(dy: Any) -> None:
    model = Model(dy, 1200, 300)
    expected = model.separately()
    scores = model.scores()
    total = model.losses(scores)
    total.value()
    again = dy.esum([dy.pick(s, 3) for s in scores]) + dy.pickneglogsoftmax(scores[5], 7)
    assert again.value() == pytest.approx(
        sum(s[3] for s in expected["scores"])
        - expected["scores"][5][7]
        + np.log(np.exp(expected["scores"][5].astype("f8")).sum()),
        rel=1e-5,
    )
    model.backward(total + again)
    gradients = expected["dscores"].copy()
    gradients[:, 3] += 1
    np.testing.assert_allclose(scores[0].gradient(), gradients[0], rtol=1e-6)
    p = np.exp(expected["scores"][5].astype("f8"))
    np.testing.assert_allclose(scores[5].gradient(), gradients[5] + p / p.sum() - np.eye(1200)[7], atol=1e-5)


def test_two_losses_of_the_same_product(dy: Any) -> None:
    model = Model(dy, 1200, 100)
    expected = model.separately()
    total = dy.esum([model.losses(scores := model.scores()), model.losses(scores)])
    got = model.backward(total)
    np.testing.assert_array_equal(got["dx"], 2 * expected["dx"])


def test_full_gradients(dy: Any, pool: int) -> None:
    model = Model(dy, 1200, 150)
    expected = model.separately()
    scores = model.scores()
    assert_same(model.backward(model.losses(scores), full=True), expected)
    np.testing.assert_array_equal([s.gradient() for s in scores], expected["dscores"])


@CPU
def test_backward_from_some_of_the_losses(dy: Any) -> None:
    model = Model(dy, 1200, 100)
    expected = model.together()
    total = model.losses(model.scores())
    total.value()
    part = model.each[3] * float(model.factors[3])
    part.backward()
    np.testing.assert_array_equal(model.x[3].gradient(), expected["dx"][3])
    assert not np.any(model.x[4].gradient())


def test_changed_inputs_are_seen(dy: Any) -> None:
    r = np.random.RandomState(0)
    pc = dy.ParameterCollection()
    w = pc.parameters_from_numpy(r.randn(1500, 8).astype("f4"))
    dy.renew_cg()
    x = dy.vecInput(8)
    x.set(r.randn(8))
    ids = list(range(200))
    loss = dy.esum([dy.pickneglogsoftmax(w * (x * float(i)), i) for i in ids])
    loss.value()
    loss.backward()
    values = r.randn(8).astype("f4")
    x.set(values)
    scores = w.as_array().astype("f8") @ np.outer(values, ids)
    expected = np.log(np.exp(scores - scores.max(0)).sum(0)) + scores.max(0) - scores[ids, ids]
    assert loss.value() == pytest.approx(expected.sum(), rel=1e-5)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.filterwarnings("ignore")
def test_infinite_scores(dy: Any, value: float, loss: str) -> None:
    model = Model(dy, 1100, 300, loss=loss)
    bias = model.b.as_array()
    bias[1050] = value
    bias[model.ids[7]] = -value
    model.b.set_value(bias)
    got, expected = model.together(), model.separately()
    np.testing.assert_array_equal(got["loss"], expected["loss"])
    np.testing.assert_array_equal(got["dx"], expected["dx"])


def test_an_index_out_of_range_is_an_error(dy: Any) -> None:
    model = Model(dy, 1100, 100)
    scores = model.scores()
    losses = [dy.pickneglogsoftmax(s, 1100 if i == 50 else 3) for i, s in enumerate(scores)]
    with pytest.raises(ValueError, match="expected id < 1100, got 1100"):
        dy.esum(losses).value()
    assert dy.pickneglogsoftmax(scores[0], 3).value() > 0


def test_revert(dy: Any) -> None:
    model = Model(dy, 1200, 100)
    expected = model.separately()
    scores = model.scores()
    dy.cg_checkpoint()
    model.losses(scores).value()
    dy.cg_revert()
    assert_same(model.backward(model.losses(scores)), expected)
    assert_same(model.together(), expected)


def test_small_losses_keep_their_digits(dy: Any) -> None:
    r = np.random.RandomState(1)
    scores, ids = r.randn(200, 3000).astype("f4"), r.randint(0, 3000, 200)
    rows = np.arange(200)
    scores[rows, ids] += r.uniform(10, 30, 200).astype("f4")
    dy.renew_cg()
    got = [dy.pickneglogsoftmax(dy.inputTensor(s), int(v)).value() for s, v in zip(scores, ids)]
    others = np.exp(scores.astype("f8") - scores[rows, ids].astype("f8")[:, None])
    others[rows, ids] = 0
    np.testing.assert_allclose(got, np.log1p(others.sum(1)), rtol=5 * 2.0**-24)


# Prints the megabytes that a step needs beyond what was there before it.
STEP = """
import resource, sys, numpy as np, dynet_compat as dy
loss = eval(sys.argv[1])
words, n = 30000, 600
pc = dy.ParameterCollection()
w = pc.add_parameters((words, 8))
b = pc.add_parameters(words)
x = pc.add_lookup_parameters((n, 8))
def step(n):
    dy.renew_cg()
    dy.esum([loss(w * x[i], i) for i in range(n)]).backward()
step(2)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
for size in (n, n - 100, n - 50, n):
    step(size)
print(peak() - before)
"""


@pytest.mark.skipif(ON_DEVICE, reason="the memory of the host")
@pytest.mark.parametrize(
    "loss, results",
    [
        ("dy.pickneglogsoftmax", 1),
        ("lambda s, v: dy.pickneglogsoftmax(s + b, v)", 2),
        ("lambda s, v: -dy.pick(dy.log_softmax(b + s), v)", 3),
        ("lambda s, v: -dy.pick_batch(dy.log_softmax(s), [v])", 2),
        ("lambda s, v: -dy.log(dy.softmax(s + b)[v])", 3),
        ("dy.hinge", 1),
    ],
)
def test_memory_of_a_step(loss: str, results: int) -> None:
    environment = {**os.environ, "DYNET_COMPAT_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", STEP, loss], capture_output=True, text=True, env=environment, check=True
    )
    # values and gradients would be 144 for each result of the size of the scores
    assert float(done.stdout) < min(40 * results, 85)
