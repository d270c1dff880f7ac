"""What the case list cannot say of the ops on matrices, simplex, convolution and contractions: large and
singular matrices, batches item by item, bad calls, and the gradient that arrives at nobackprop."""

from __future__ import annotations

import time
from typing import Any, Callable

import numpy as np
import pytest
from support.subject import IS_REFERENCE

OURS = pytest.mark.skipif(IS_REFERENCE, reason="an addition, or an error the reference does not give")


def random_matrix(n: int, seed: int = 0) -> np.ndarray:
    """Well-conditioned, not symmetric, with a positive determinant."""
    rng = np.random.RandomState(seed)
    q = np.linalg.qr(rng.randn(n, n))[0]
    if np.linalg.det(q) < 0:
        q[:, 0] = -q[:, 0]
    return q * rng.uniform(0.5, 2, n)


@pytest.mark.parametrize("n", [1, 7, 8, 9, 16, 31, 64, 100, 256, 512])
def test_inverse_of_any_size(dy: Any, n: int) -> None:
    matrix = random_matrix(n).astype(np.float32)
    dy.renew_cg()
    got = dy.inverse(dy.inputTensor(matrix)).npvalue()
    np.testing.assert_allclose(got, np.linalg.inv(matrix.astype(np.float64)), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("n", [1, 7, 8, 9, 64, 200, 512])
def test_logdet_of_any_size(dy: Any, n: int) -> None:
    matrix = random_matrix(n, 1).astype(np.float32)
    dy.renew_cg()
    x = dy.inputTensor(matrix)
    y = dy.logdet(x)
    assert y.value() == pytest.approx(np.linalg.slogdet(matrix.astype(np.float64))[1], rel=1e-4, abs=1e-3)
    y.backward(full=True)
    np.testing.assert_allclose(x.gradient(), np.linalg.inv(matrix.astype(np.float64)).T, rtol=1e-4, atol=1e-5)


def test_gradient_of_a_large_inverse(dy: Any) -> None:
    matrix, w = random_matrix(130).astype(np.float32), np.random.RandomState(5).randn(130, 130)
    dy.renew_cg()
    x = dy.inputTensor(matrix)
    dy.dot_product(dy.inverse(x), dy.inputTensor(w)).backward(full=True)
    y = np.linalg.inv(matrix.astype(np.float64))
    want = -y.T @ w.astype(np.float32) @ y.T
    np.testing.assert_allclose(x.gradient(), want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


@OURS
def test_512_takes_less_than_a_second(dy: Any) -> None:
    matrix = random_matrix(512)
    dy.renew_cg()
    x = dy.inputTensor(matrix)
    start = time.process_time()
    y = dy.inverse(x)
    dy.sum_elems(y).backward(full=True)
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
    "matrix", [[[0.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [2.0, 4.0]], np.zeros((9, 9)), np.ones((17, 17))]
)
def test_singular_matrices_have_no_finite_inverse(dy: Any, matrix: Any) -> None:
    dy.renew_cg()
    x = dy.inputTensor(np.array(matrix))
    y = dy.inverse(x)
    assert not np.isfinite(y.npvalue()).all()
    assert not np.isfinite(dy.logdet(x).value())
    dy.sum_elems(y).backward(full=True)
    assert not np.isfinite(x.gradient()).all()


@pytest.mark.parametrize("place", [(0, 0), (0, 1), (1, 1), (1, 0)])
def test_nan_comes_through(dy: Any, place: tuple[int, int]) -> None:
    matrix = np.array([[0.0, 0.0], [0.0, 1.0]])
    matrix[place] = np.nan
    dy.renew_cg()
    x = dy.inputTensor(matrix)
    assert np.isnan(dy.logdet(x).value())
    assert np.isnan(dy.inverse(x).npvalue()).any()


# ---------------------------------------------------------------- batches

# (function, shapes of one item): every argument is in turn the one that has no batch
BATCHED: list[tuple[str, tuple[tuple[int, ...], ...]]] = [
    ("inverse", ((3, 3),)),
    ("inverse", ((9, 9),)),
    ("logdet", ((4, 4),)),
    ("circ_conv", ((5,), (5,))),
    ("circ_corr", ((5,), (5,))),
    ("sparsemax", ((6,),)),
    ("sparsemax", ((6, 1),)),
    ("constrained_softmax", ((5,), (5,))),
    ("constrained_softmax", ((5, 1), (5,))),
    ("contract3d_1d", ((2, 3, 4), (4,))),
    ("contract3d_1d_bias", ((2, 3, 4), (4,), (2, 3))),
    ("contract3d_1d_1d", ((2, 3, 4), (4,), (3,))),
    ("contract3d_1d_1d_bias", ((2, 3, 4), (4,), (3,), (2,))),
    ("contract3d_1d_1d_bias", ((17, 3, 5), (5, 1), (3, 1), (17,))),
]


def operand(dy: Any, name: str, n: int, values: np.ndarray) -> Any:
    """Argument n of a function, made of values in [0, 1): matrices are far from singular, bounds add up."""
    if name in ("inverse", "logdet"):
        values = values + 3 * np.eye(values.shape[0])[..., None]
    elif name == "constrained_softmax" and n == 1:
        values = 0.2 + values / 3
    return dy.inputTensor(values, batched=True) if values.shape[-1] > 1 else dy.inputTensor(values[..., 0])


MIXTURES = [
    (name, shapes, single)
    for name, shapes in BATCHED
    for single in range(-1, len(shapes) if len(shapes) > 1 else 0)  # -1: all have a batch
]


@OURS
@pytest.mark.parametrize(("name", "shapes", "single"), MIXTURES)
def test_batch_is_its_items(dy: Any, name: str, shapes: tuple[tuple[int, ...], ...], single: int) -> None:
    batch = 3
    rng = np.random.RandomState(len(shapes) + single + 1)
    values = [rng.rand(*shape, 1 if n == single else batch) for n, shape in enumerate(shapes)]

    def run(arrays: list[np.ndarray], weight: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        dy.renew_cg()
        x = [operand(dy, name, n, a) for n, a in enumerate(arrays)]
        y = getattr(dy, name)(*x)
        w = operand(dy, "", 0, weight)
        loss = dy.sum_elems(dy.cmult(y, w))
        (dy.sum_batches(loss) if weight.shape[-1] > 1 else loss).backward(full=True)
        gradients = [e.gradient().reshape(a.shape, order="F") for e, a in zip(x, arrays)]
        return y.npvalue().reshape(weight.shape, order="F"), gradients

    dy.renew_cg()
    extents = getattr(dy, name)(*[operand(dy, name, n, a[..., :1]) for n, a in enumerate(values)]).dim()[0]
    weight = rng.randn(*extents, batch)
    together, gradients = run(values, weight)
    totals = [np.zeros(a.shape) for a in values]
    for b in range(batch):
        items = [a[..., min(b, a.shape[-1] - 1)][..., None] for a in values]
        alone, item_gradients = run(items, weight[..., b : b + 1])
        np.testing.assert_allclose(together[..., b : b + 1], alone, rtol=1e-5, atol=1e-6)
        for total, gradient in zip(totals, item_gradients):
            total[..., min(b, total.shape[-1] - 1)] += gradient[..., 0]
    for gradient, total in zip(gradients, totals):
        np.testing.assert_allclose(gradient, total, rtol=2e-5, atol=2e-6)


def test_hinge_dim_with_a_list_per_batch_item(dy: Any) -> None:
    if IS_REFERENCE:
        pytest.skip("an addition")
    values = np.random.RandomState(3).randn(4, 3, 2)
    x = dy.inputTensor(values, batched=True)
    ids = [[0, 3, 1], [2, 2, 0]]
    got = dy.hinge_dim(x, ids).npvalue()
    for b in range(2):
        want = dy.hinge_dim(dy.inputTensor(values[..., b]), ids[b]).npvalue()
        np.testing.assert_allclose(got[..., b], want, rtol=1e-6)
    np.testing.assert_array_equal(dy.hinge_dim(x, np.array(ids)).npvalue(), got)
    with pytest.raises(ValueError, match="hinge_dim"):
        dy.hinge_dim(x, [[0, 3], [2, 2]]).value()


# ---------------------------------------------------------------- sparsemax loss


def test_sparsemax_loss_is_zero_at_its_target_and_convex(dy: Any) -> None:
    if IS_REFERENCE:
        pytest.skip("the reference has it in C++ only")
    rng = np.random.RandomState(4)
    for n in (2, 5, 40):
        for labels in ([0], [n - 1, 0]):
            target = np.bincount(labels, minlength=n) / len(labels)
            x = dy.inputVector(target + 7)
            assert abs(dy.sparsemax_loss(x, labels).value()) < 1e-6
            other = dy.inputVector(rng.randn(n))
            loss = dy.sparsemax_loss(other, labels)
            assert loss.value() >= 0
            loss.backward(full=True)
            np.testing.assert_allclose(
                other.gradient(), np.array(dy.sparsemax(other).vec_value()) - target, atol=1e-6
            )


# ---------------------------------------------------------------- bad calls

VECTORS = "two vectors of equal length"
BAD: list[tuple[Callable[[Any], Any], str, str]] = [
    (lambda dy: dy.inverse(dy.zeros((2, 3))), "inverse", "{2,3}"),
    (lambda dy: dy.inverse(dy.zeros((3,))), "inverse", "square"),
    (lambda dy: dy.inverse(dy.zeros((2, 2, 2))), "inverse", "square"),
    (lambda dy: dy.logdet(dy.zeros((3, 2))), "logdet", "square"),
    (lambda dy: dy.logdet(dy.zeros((3,))), "logdet", "square"),
    (lambda dy: dy.logdet(dy.zeros((2, 2, 2))), "logdet", "square"),
    (lambda dy: dy.circ_conv(dy.zeros(3), dy.zeros(4)), "circ_conv", VECTORS),
    (lambda dy: dy.circ_conv(dy.zeros((3, 1)), dy.zeros((3, 1))), "circ_conv", VECTORS),
    (lambda dy: dy.circ_conv(dy.zeros(3, 2), dy.zeros(3, 4)), "circ_conv", "batch"),
    (lambda dy: dy.circ_corr(dy.zeros(3), dy.zeros(4)), "circ_corr", VECTORS),
    (lambda dy: dy.circ_corr(dy.zeros((2, 2)), dy.zeros((2, 2))), "circ_corr", VECTORS),
    (lambda dy: dy.sparsemax(dy.zeros((2, 2))), "sparsemax", "column vector"),
    (lambda dy: dy.sparsemax(dy.zeros((1, 3))), "sparsemax", "column vector"),
    (lambda dy: dy.sparsemax_loss(dy.zeros((2, 2)), [0]), "sparsemax_loss", "column vector"),
    (lambda dy: dy.sparsemax_loss(dy.zeros(3), []).value(), "sparsemax_loss", "at least one"),
    (lambda dy: dy.sparsemax_loss(dy.zeros(3), [0, 3]).value(), "sparsemax_loss", "< 3, got 3"),
    (lambda dy: dy.constrained_softmax(dy.zeros(3), dy.zeros(4)), "constrained_softmax", "equal length"),
    (lambda dy: dy.constrained_softmax(dy.zeros((2, 2)), dy.zeros((2, 2))), "constrained_softmax", "column"),
    (lambda dy: dy.constrained_softmax(dy.zeros(3, 2), dy.zeros(3, 4)), "constrained_softmax", "batch"),
    (lambda dy: dy.contract3d_1d(dy.zeros((3, 4)), dy.zeros(4)), "contract3d_1d", "3 dimensions"),
    (lambda dy: dy.contract3d_1d(dy.zeros((2, 3, 4)), dy.zeros(3)), "contract3d_1d", "y with one"),
    (lambda dy: dy.contract3d_1d(dy.zeros((2, 3, 4)), dy.zeros((1, 4))), "contract3d_1d", "y with one"),
    (lambda dy: dy.contract3d_1d(dy.zeros((2, 3, 4), 2), dy.zeros(4, 3)), "contract3d_1d", "batch"),
    (
        lambda dy: dy.contract3d_1d_bias(dy.zeros((2, 3, 4)), dy.zeros(4), dy.zeros(6)),
        "contract3d_1d_bias",
        "b of the shape",
    ),
    (
        lambda dy: dy.contract3d_1d_bias(dy.zeros((2, 3, 4)), dy.zeros(4), dy.zeros((3, 2))),
        "contract3d_1d_bias",
        "b of the shape",
    ),
    (
        lambda dy: dy.contract3d_1d_1d(dy.zeros((3, 4)), dy.zeros(4), dy.zeros(3)),
        "contract3d_1d_1d",
        "3 dimensions",
    ),
    (
        lambda dy: dy.contract3d_1d_1d(dy.zeros((2, 3, 4)), dy.zeros(3), dy.zeros(4)),
        "contract3d_1d_1d",
        "y with one",
    ),
    (
        lambda dy: dy.contract3d_1d_1d(dy.zeros((2, 3, 4)), dy.zeros(4), dy.zeros(4)),
        "contract3d_1d_1d",
        "z with one",
    ),
    (
        lambda dy: dy.contract3d_1d_1d_bias(dy.zeros((2, 3, 4)), dy.zeros(4), dy.zeros(3), dy.zeros(3)),
        "contract3d_1d_1d_bias",
        "b a vector",
    ),
]


@OURS
@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_call(dy: Any, number: int) -> None:
    call, op, says = BAD[number]
    dy.renew_cg()
    with pytest.raises(ValueError, match=op) as caught:
        call(dy)
    assert says in str(caught.value)


# ---------------------------------------------------------------- gradients that stop

W = np.array([0.5, 0.25, 2.0])


def through(dy: Any, p: Any, build: Callable[[Any], list[Any]]) -> list[np.ndarray]:
    """Gradients of the expressions `build` gives, after backward() of the last one weighted by W."""
    nodes = build(p)
    dy.dot_product(dy.inputVector(W), nodes[-1]).backward()
    return [np.asarray(node.gradient()) for node in nodes]


@pytest.mark.parametrize("autobatching", [False, True])
def test_nobackprop_shows_the_gradient_that_arrives(dy: Any, autobatching: bool) -> None:
    """Nodes behind nobackprop that descend from a parameter have a gradient, though none leaves them."""
    pc = dy.ParameterCollection()
    p = pc.parameters_from_numpy(np.array([1.0, -2.0, 3.0]))
    table = pc.lookup_parameters_from_numpy(np.arange(6.0).reshape(2, 3))

    def check(build: Callable[[Any], list[Any]], *want: Any) -> None:
        dy.renew_cg(autobatching=autobatching)
        for got, expected in zip(through(dy, p, build), want):
            np.testing.assert_allclose(got, np.broadcast_to(expected, got.shape), rtol=1e-5, atol=1e-7)

    def chain(x: Any) -> list[Any]:
        t = dy.tanh(x)
        stopped = dy.nobackprop(t)
        return [t, stopped, stopped * 2]

    def beside(x: Any) -> list[Any]:
        stopped = dy.nobackprop(x)
        return [stopped, stopped + x]

    def with_input(x: Any) -> list[Any]:
        stopped, plain = dy.nobackprop(x), dy.inputVector([1.0, 2.0, 3.0])
        return [stopped, plain, dy.cmult(stopped, plain)]

    def of_input(_: Any) -> list[Any]:
        stopped = dy.nobackprop(dy.inputVector([1.0, 2.0, 3.0]))
        return [stopped, stopped * 2]

    check(lambda x: [dy.nobackprop(x)], W)
    check(chain, 0, 2 * W, W)
    check(beside, W, W)
    check(with_input, W * [1, 2, 3], 0, W)
    check(of_input, 0, 0)
    check(lambda x: (lambda c: [c, c * 2])(dy.const_parameter(x)), 2 * W, W)
    check(lambda x: (lambda c: [c, c * 2])(x.expr()), 0, 0)
    check(lambda x: (lambda c: [c, c * 2])(dy.argmax(x, "zero_gradient")), 2 * W, W)
    check(lambda x: (lambda c: [c, c * 2])(dy.round(x, "zero_gradient")), 2 * W, W)
    check(lambda x: (lambda c: [c, c * 2])(dy.scale_gradient(x, 0)), 2 * W, W)
    check(lambda x: (lambda c: [c, dy.concatenate([c[0], c[1], c[2]])])(dy.nobackprop(x)), W, W)
    check(lambda x: (lambda c: [c, c * 2])(dy.nobackprop(dy.lookup(table, 1))), 2 * W, W)
    check(lambda x: (lambda c: [c, c * 2])(dy.nobackprop(dy.lookup(table, 1, update=False))), 0, 0)


def test_nobackprop_changes_no_parameter(dy: Any) -> None:
    """Asking for such a gradient adds nothing to the parameters', and works after several backward()."""
    pc = dy.ParameterCollection()
    p = pc.parameters_from_numpy(np.array([1.0, -2.0, 3.0]))
    dy.renew_cg()
    stopped = dy.nobackprop(dy.tanh(p))
    loss = dy.dot_product(stopped, p)
    for n in (1, 2):
        loss.backward()
        np.testing.assert_allclose(stopped.gradient(), [1, -2, 3], rtol=1e-6)
        np.testing.assert_allclose(p.grad_as_array(), n * np.tanh([1, -2, 3]), rtol=1e-5)
        np.testing.assert_allclose(p.gradient(), np.tanh([1, -2, 3]), rtol=1e-5)
