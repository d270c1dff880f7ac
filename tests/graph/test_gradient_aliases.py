"""W x of many steps is computed at once, and each step adds one column of it to U h, as the bias of an
affine_transform: both have the same gradient, which is stored once. backward(full=True) stores each gradient
by itself, so it says what is right."""

import random

import dynet_compat as dy
import numpy as np
import pytest

HIDDEN, STEPS, INSTANCES = 32, 12, 80  # more values than a graph has whose gradients are all zeroed at once


WAYS = "bias bias bias bias twice elsewhere direct part chain unused elsewhere_unused bias_of_bias".split()


class Recurrence:
    """A recurrent network whose steps read W x in one of these ways each."""

    def __init__(self, seed, ways):
        self.seed, self.ways = seed, ways
        self.model = dy.ParameterCollection()
        values = np.random.RandomState(seed)
        shapes = {"W": (HIDDEN, HIDDEN), "W2": (2 * HIDDEN, HIDDEN), "U": (HIDDEN, HIDDEN), "b": (HIDDEN,)}
        drawn = {name: values.randn(*shape) * 0.15 for name, shape in shapes.items()}
        self.parameters = {name: self.model.parameters_from_numpy(drawn[name]) for name in shapes}
        self.parameters["table"] = self.model.lookup_parameters_from_numpy(values.randn(50, HIDDEN))
        self.projected, self.losses = [], []

    def step(self, way, x, h):
        W, W2, U, b = (self.parameters[name] for name in ("W", "W2", "U", "b"))
        wx = dy.affine_transform([b, W, x])
        self.projected.append(wx)
        if way == "direct":
            return dy.tanh(wx)
        if way == "part":
            wx = dy.pick_range(W2 * x, HIDDEN // 2, HIDDEN // 2 + HIDDEN)
        if way == "bias_of_bias":
            wx = dy.affine_transform([wx, U, x])
        y = dy.affine_transform([wx, U, h])
        if way == "twice":
            y = y + dy.affine_transform([wx, U, dy.tanh(h)])
        if way == "chain":
            y = dy.affine_transform([y, U, x])
        if "elsewhere" in way:
            self.losses.append(dy.sum_elems(dy.square(wx)))
        return dy.tanh(y)

    def loss(self, batch):
        dy.renew_cg()
        choices = random.Random(self.seed)
        for _ in range(INSTANCES):
            h = dy.zeros(HIDDEN)
            for _ in range(choices.randint(STEPS // 2, STEPS)):
                way = choices.choice(self.ways)
                words = [choices.randrange(50) for _ in range(batch)]
                new = self.step(way, dy.lookup_batch(self.parameters["table"], words), h)
                h = h if "unused" in way else new
            if choices.random() < 0.8:
                self.losses.append(dy.sum_elems(h))
        return dy.sum_batches(dy.esum(self.losses))

    def gradients(self):
        """Of the parameters, and of W x of some steps."""
        found = {name: p.grad_as_array() for name, p in self.parameters.items()}
        return found | {f"W x {i}": self.projected[i].gradient() for i in range(0, len(self.projected), 7)}


def check(aliased, stored, times=1):
    """Nodes that do not lead to the loss add zeros to `stored`, which moves the blocks of long sums."""
    for name, gradient in stored.items():
        wanted = gradient if name.startswith("W x") else times * gradient
        atol = 1e-6 * np.abs(wanted).max()
        np.testing.assert_allclose(aliased[name], wanted, rtol=0, atol=atol, err_msg=name)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("ways", [["bias"], *(["bias", way] for way in WAYS[4:]), WAYS], ids="-".join)
@pytest.mark.parametrize("seed", range(4))
def test_gradients_are_those_that_are_stored_one_by_one(seed, ways, batch):
    aliased, stored = Recurrence(seed, ways), Recurrence(seed, ways)
    aliased.loss(batch).backward()
    found = aliased.gradients()
    stored.loss(batch).backward(full=True)
    check(found, stored.gradients())


def test_backward_again():
    aliased, stored = Recurrence(0, WAYS), Recurrence(0, WAYS)
    loss = aliased.loss(3)
    loss.backward()
    (2 * loss).backward()
    loss.backward()
    found = aliased.gradients()
    stored.loss(3).backward(full=True)
    check(found, stored.gradients(), times=4)


def test_gradients_are_asked_for_after_other_computations():
    aliased, stored = Recurrence(0, WAYS), Recurrence(0, WAYS)
    loss = aliased.loss(3)
    loss.backward()
    dy.cg_checkpoint()
    (dy.tanh(aliased.projected[0]) + aliased.projected[1]).forward()
    with pytest.raises(ValueError, match="pick"):
        dy.pick(dy.tanh(aliased.projected[2]), 5 * HIDDEN).forward()
    found = aliased.gradients()
    stored.loss(3).backward(full=True)
    check(found, stored.gradients())


def test_the_loss_is_a_product_or_reads_one():
    for last in ("W x", "bias"):
        results = []
        for full in (False, True):
            net = Recurrence(1, ["bias"])
            loss = net.loss(1)
            w = net.model.parameters_from_numpy(np.full((1, HIDDEN), 0.1))
            x = dy.concatenate([loss] * HIDDEN)
            root = w * x if last == "W x" else dy.affine_transform([w * x, w, x])
            root.backward(full=full)
            results.append(net.gradients())
        check(*results)
