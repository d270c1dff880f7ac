"""Sums of a million elements against float64, on every instruction set, alone and in a batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from support.subject import IS_REFERENCE, ON_DEVICE

pytestmark = [
    pytest.mark.skipif(IS_REFERENCE, reason="the reference adds up one by one"),
    pytest.mark.skipif(ON_DEVICE, reason="the CPU's instruction sets"),
]

TOLERANCE = 1e-6  # of the sum of the terms' absolute values

# Prints, by name, the largest error; equal terms are the worst case: their rounding errors add up.
SUMS = """
import json, sys
import numpy as np, dynet_compat as dy
n, errors = 10**6, {}
def check(name, got, terms, axis):
    terms = np.asarray(terms, "f8")
    error = np.abs(np.asarray(got, "f8").ravel(order="F") - terms.sum(axis).ravel(order="F"))
    errors[name] = float((error / np.abs(terms).sum(axis).ravel(order="F")).max())
for kind, x in (("equal", np.full(n, 0.1, "f4")), ("random", np.random.RandomState(0).randn(n).astype("f4"))):
    X, y = x.astype("f8"), np.float32(3) * x[::-1].copy()
    Y = y.astype("f8")
    tall, wide, box = (x.reshape(s, order="F") for s in ((n // 4, 4), (4, n // 4), (2, n // 4, 2)))
    dy.renew_cg()
    ex, ey = dy.inputTensor(x), dy.inputTensor(y)
    eb = dy.inputTensor(wide, batched=True)
    name = (kind + " {}").format
    check(name("sum_elems"), dy.sum_elems(ex).value(), X, 0)
    check(name("mean_elems"), dy.mean_elems(ex).value() * n, X, 0)
    check(name("moment_elems"), dy.moment_elems(ex, 3).value() * n, X**3, 0)
    check(name("squared_norm"), dy.squared_norm(ex).value(), X * X, 0)
    check(name("l2_norm"), dy.l2_norm(ex).value() ** 2, X * X, 0)
    check(name("dot_product"), dy.dot_product(ex, ey).value(), X * Y, 0)
    check(name("l1_distance"), dy.l1_distance(ex, ey).value(), abs(X - Y), 0)
    check(name("squared_distance"), dy.squared_distance(ex, ey).value(), (X - Y) ** 2, 0)
    check(name("cumsum"), dy.cumsum(ex).npvalue()[[9999, n // 2, n - 1]],
          np.stack([np.where(np.arange(n) <= i, X, 0) for i in (9999, n // 2, n - 1)]), 1)
    check(name("sum_dim of a tall matrix"), dy.sum_dim(dy.inputTensor(tall), [0]).npvalue(), tall, 0)
    check(name("sum_dim of a wide matrix"), dy.sum_dim(dy.inputTensor(wide), [1]).npvalue(), wide, 1)
    check(name("sum_dim of a tensor"), dy.sum_dim(dy.inputTensor(box), [1]).npvalue(), box, 1)
    check(name("sum_batches"), dy.sum_batches(eb).npvalue(), wide, 1)
    check(name("mean_batches"), dy.mean_batches(eb).npvalue() * (n // 4), wide, 1)
    check(name("softmax of a wide matrix"), 1 / dy.softmax(dy.inputTensor(wide), 1).npvalue()[:, 7],
          np.exp(wide.astype("f8") - wide[:, 7:8]), 1)
    check(name("loss"), np.exp(dy.pickneglogsoftmax(ex, 5).value() - np.log(n)),
          np.exp(X - X[5]) / n, 0)
    xs = [dy.inputTensor(x[100 * i:100 * i + 100]) for i in range(10000)]
    check(name("esum"), dy.esum(xs).npvalue(), x.reshape(10000, 100), 0)
    check(name("average"), dy.average(xs).npvalue() * 10000, x.reshape(10000, 100), 0)
    v, m = dy.inputTensor(y[:n // 4]), dy.inputTensor(y[:n // 4 * 3].reshape(n // 4, 3, order="F"))
    products = wide.astype("f8") * Y[:n // 4]
    check(name("matrix * vector"), (dy.inputTensor(wide) * v).npvalue(), products, 1)
    check(name("matrix * matrix"), (dy.inputTensor(wide) * m).npvalue()[:, 0], products, 1)
    pc = dy.ParameterCollection()
    b, w, u = pc.add_parameters(4, init=0), pc.add_parameters((4, 2), init=0.5), pc.add_parameters(4, init=0)
    z = y[:n // 2].reshape(2, n // 4, order="F")
    affine = dy.affine_transform([b, w, dy.inputTensor(z, batched=True)])
    dy.sum_batches(dy.dot_product(affine + u, eb)).backward()
    check(name("gradient of a bias"), b.grad_as_array(), wide, 1)
    check(name("gradient of what is broadcast"), u.grad_as_array(), wide, 1)
    check(name("gradient of a weight"), w.grad_as_array(),
          wide.astype("f8")[:, None, :] * z.astype("f8")[None, :, :], 2)
    q = pc.add_parameters(4, init=0)
    dy.renew_cg()
    dy.dot_product(dy.inputTensor(tall) * q, dy.inputTensor(y[:n // 4])).backward()
    check(name("gradient of a long column"), q.grad_as_array(), tall.astype("f8") * Y[:n // 4, None], 0)
print(json.dumps(errors))
"""


def run(script: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **env}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512"])
def test_a_million_terms(isa: str) -> None:
    if json.loads(run(ISA, DYNET_COMPAT_ISA=isa)) != isa:
        pytest.skip(f"this processor has no {isa}")
    errors = json.loads(run(SUMS, DYNET_COMPAT_ISA=isa))
    bad = {name: error for name, error in errors.items() if not error < TOLERANCE}
    assert not bad, f"relative errors on {isa}: {bad}"
    assert len(errors) == 48


ISA = "import json, dynet_compat as dy; print(json.dumps(dy._core.isa()))"

TEN_MILLION = """
import json, numpy as np, dynet_compat as dy
x = dy.inputTensor(np.full(10**7, 0.1, "f4"))
tenth = float(np.float32(0.1))
print(json.dumps([dy.sum_elems(x).value() / (tenth * 1e7), dy.mean_elems(x).value() / tenth,
                  dy.squared_norm(x).value() / (tenth**2 * 1e7)]))
"""


@pytest.mark.parametrize("isa", ["baseline", ""])
def test_ten_million_terms(isa: str) -> None:
    ratios = json.loads(run(TEN_MILLION, DYNET_COMPAT_ISA=isa))
    assert ratios == pytest.approx([1.0, 1.0, 1.0], rel=TOLERANCE), f"sum, mean, squared norm: {ratios}"


# A result of every kind, in one graph of three instances and alone: prints a digest of the bytes.
BITS = """
import hashlib, numpy as np, dynet_compat as dy
r = np.random.RandomState(1)
pc = dy.ParameterCollection()
w, v = pc.parameters_from_numpy(r.randn(37, 5000)), pc.parameters_from_numpy(r.randn(37, 100))
xs = [r.randn(5000).astype("f4") for _ in range(19)]
def each(x):
    e = dy.inputTensor(x)
    h = w * e + v * dy.inputTensor(x[:100])
    terms = [dy.inputTensor(x[i:i + 37]) for i in range(0, 4000, 37)]
    return dy.concatenate([h, dy.esum(terms), dy.average(terms[:40]), dy.sum_elems(e), dy.squared_norm(e),
                           dy.pickneglogsoftmax(e, 17), dy.cumsum(h), dy.logsumexp(terms[:50])])
def values(batching, together):
    out = []
    for k in range(0, len(xs), len(xs) if together else 1):
        dy.renew_cg(autobatching=batching)
        nodes = [each(x) for x in (xs if together else xs[k:k + 1])]
        out += [n.npvalue().astype("f4").tobytes() for n in nodes]
    return hashlib.sha1(b"".join(out)).hexdigest()
print({values(True, True), values(True, False), values(False, True)})
"""


@pytest.mark.parametrize("isa", ["baseline", "avx2", ""])
def test_same_bits_in_a_batch_and_on_any_number_of_threads(isa: str) -> None:
    found = {run(BITS, DYNET_COMPAT_ISA=isa, DYNET_COMPAT_THREADS=n) for n in ("1", "2", "3")}
    assert len(found) == 1 and found.pop().count("'") == 2, f"on {isa or 'the best instruction set'}: {found}"


# Gradients, and parameters after two updates with clipping.
GRADIENTS = """
import hashlib, numpy as np, dynet_compat as dy
r = np.random.RandomState(2)
pc = dy.ParameterCollection()
weights = [pc.parameters_from_numpy(0.1 * r.randn(m, 400)) for m in (1, 2, 5, 8, 9, 64, 300, 1)]
table = pc.lookup_parameters_from_numpy(r.randn(45, 400))
trainer = dy.SimpleSGDTrainer(pc, 0.01)
trainer.set_clip_threshold(2.0)
def loss(i):
    h = dy.tanh(table[i])
    return dy.esum([dy.squared_norm(w * h) for w in weights[:5]] + [dy.sum_elems(w * h) for w in weights[5:]])
found = []
for _ in range(2):
    dy.renew_cg()
    dy.esum([loss(i) for i in range(45)]).backward()
    found += [p.grad_as_array() for p in [table, *weights]]
    trainer.update()
    found += [p.as_array() for p in [table, *weights]]
print(hashlib.sha1(b"".join(a.tobytes() for a in found)).hexdigest())
"""


@pytest.mark.parametrize("isa", ["baseline", "avx2", ""])
def test_gradients_and_updates_have_the_same_bits_on_any_number_of_threads(isa: str) -> None:
    found = {run(GRADIENTS, DYNET_COMPAT_ISA=isa, DYNET_COMPAT_THREADS=n) for n in ("1", "2", "3")}
    assert len(found) == 1, f"on {isa or 'the best instruction set'}: {found}"


# Products with few rows, or with so many that a block of W is copied: values and gradients of columns in a
# batch and alone, against float64.
PRODUCTS = """
import numpy as np, dynet_compat as dy
r = np.random.RandomState(3)
for m, k in ((1, 1), (1, 300), (2, 17), (3, 64), (5, 130), (8, 33), (8, 2500), (9, 40),
             (1024, 130), (4001, 140), (1024, 270), (512, 530)):
    pc = dy.ParameterCollection()
    w, b = r.randn(m, k).astype("f4"), r.randn(m).astype("f4")
    W, B = pc.parameters_from_numpy(w), pc.parameters_from_numpy(b)
    E = pc.lookup_parameters_from_numpy(r.randn(13, k))
    xs, dy_ = E.as_array(), r.randn(m).astype("f4")
    def run(rows):
        dy.renew_cg()
        ys = [dy.affine_transform([B, W, x]) for i in rows for x in [E[i]] * 2]  # each column twice
        dy.esum([dy.dot_product(y, dy.inputTensor(dy_)) for y in ys]).backward()
        values = [y.npvalue().reshape(m).astype("f4").tobytes() for y in ys[::2]]
        return values, [E.grad_as_array()[i].astype("f4").tobytes() for i in rows]
    together = run(range(13))
    for p in (W, B): p.scale_gradient(0)
    E.scale_gradient(0)
    for i in range(13):
        y, g = run([i])
        assert y[0] == together[0][i] and g[0] == together[1][i], (m, k, i)
        E.scale_gradient(0)
        exact = w.astype("f8") @ xs[i].astype("f8") + b
        size = np.abs(w).astype("f8") @ np.abs(xs[i]) + np.abs(b)
        assert np.all(np.abs(np.frombuffer(y[0], "f4") - exact) <= 4e-7 * size), (m, k)
        exact, size = 2 * w.T.astype("f8") @ dy_, 2 * np.abs(w.T) @ np.abs(dy_)
        assert np.all(np.abs(np.frombuffer(g[0], "f4") - exact) <= 4e-7 * size), (m, k)
print("same")
"""


@pytest.mark.parametrize("isa", ["baseline", "avx2", ""])
def test_products_of_few_rows_and_of_many(isa: str) -> None:
    assert run(PRODUCTS, DYNET_COMPAT_ISA=isa) == "same\n"


# The gradient of a weight with few rows, and of one that has the same rows and more: a matrix of few rows is
# computed across.
ROWS = """
import numpy as np, dynet_compat as dy
r = np.random.RandomState(4)
for m, k in ((1, 1), (1, 70), (2, 64), (3, 200), (5, 64), (5, 5), (7, 33), (8, 129)):
    for n in (1, 8, 9, 20, 33, 150, 2100):
        pc = dy.ParameterCollection()
        few, more = pc.add_parameters((m, k), init=0.5), pc.add_parameters((17, k), init=0.5)
        x, d = r.randn(k, n).astype("f4"), r.randn(17, n).astype("f4")
        dy.renew_cg()
        a, b = few * dy.inputTensor(x), more * dy.inputTensor(x)
        (dy.sum_elems(dy.cmult(a, dy.inputTensor(d[:m].copy())))
         + dy.sum_elems(dy.cmult(b, dy.inputTensor(d)))).backward()
        got, want = few.grad_as_array(), more.grad_as_array()[:m]
        assert np.array_equal(got.reshape(m, k), want), (m, k, n)
        exact, size = d[:m].astype("f8") @ x.T, np.abs(d[:m]) @ np.abs(x.T)
        assert np.all(np.abs(want - exact) <= 1e-6 * size), (m, k, n)
print("same")
"""


@pytest.mark.parametrize("isa", ["baseline", "avx2", ""])
def test_gradients_of_weights_of_few_rows(isa: str) -> None:
    assert run(ROWS, DYNET_COMPAT_ISA=isa) == "same\n"


# Columns of a matrix follow one another, and so do matrices: none may touch its neighbours, whose gradients
# are there when the second pass adds to them.
HEIGHTS = """
import numpy as np, dynet_compat as dy
for rows in (*range(1, 42), 63, 65, 100, 130):
    for columns, inner in ((1, 19), (2, 7), (5, 19), (9, 7)):
        r = np.random.RandomState(rows)
        shapes = (rows, inner), (inner, columns), (rows, columns)
        w, x, d = (r.randn(3, *shape).astype("f4") for shape in shapes)
        pc = dy.ParameterCollection()
        matrices, inputs = (pc.lookup_parameters_from_numpy(values) for values in (w, x))
        for passes in (1, 2):
            dy.renew_cg()
            y = [matrices[i] * inputs[i] for i in range(3)]
            dy.esum([dy.sum_elems(dy.cmult(y[i], dy.inputTensor(d[i]))) for i in range(3)]).backward()
            for i in range(3):
                a, b, c = (v[i].astype("f8") for v in (w, x, d))
                for got, want in (
                    (y[i].npvalue().reshape(rows, columns), a @ b),
                    (matrices.grad_as_array()[i], passes * c @ b.T),
                    (inputs.grad_as_array()[i], passes * a.T @ c),
                ):
                    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4, err_msg=f"{rows} {columns}")
print("same")
"""


@pytest.mark.parametrize("isa", ["baseline", "avx2", ""])
def test_gradients_of_matrices_of_any_height(isa: str) -> None:
    assert run(HEIGHTS, DYNET_COMPAT_ISA=isa) == "same\n"


# The gradient of a weight whose operands are copied first, and of its columns, a few at a time, without that.
COPIES = """
import numpy as np, dynet_compat as dy
r = np.random.RandomState(6)
for m, k, n in ((65, 48, 60), (130, 97, 23), (64, 96, 128), (17, 200, 129), (70, 49, 300), (256, 130, 40),
                (33, 111, 2100)):
    x, d = r.randn(k, n).astype("f4"), r.randn(m, n).astype("f4")
    pc = dy.ParameterCollection()
    whole = pc.add_parameters((m, k), init=0.5)
    parts = [pc.add_parameters((m, min(5, k - i)), init=0.5) for i in range(0, k, 5)]
    exact, size = d.astype("f8") @ x.T, np.abs(d) @ np.abs(x.T)
    for passes in (1, 2):
        dy.renew_cg()
        products = [whole * dy.inputTensor(x)]
        products += [p * dy.inputTensor(x[5 * i:5 * i + 5].copy()) for i, p in enumerate(parts)]
        dy.esum([dy.sum_elems(dy.cmult(y, dy.inputTensor(d))) for y in products]).backward()
        got = whole.grad_as_array()
        assert np.array_equal(got, np.hstack([p.grad_as_array() for p in parts])), (m, k, n, passes)
        assert np.all(np.abs(got - passes * exact) <= 2e-6 * size), (m, k, n, passes)
print("same")
"""


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("isa", ["baseline", "avx2", ""])
def test_gradients_of_weights_whose_operands_are_copied(isa: str, threads: str) -> None:
    assert run(COPIES, DYNET_COMPAT_ISA=isa, DYNET_COMPAT_THREADS=threads) == "same\n"


# Columns that do not stay in a cache together, which are fetched ahead.
MANY = """
import numpy as np, dynet_compat as dy
r = np.random.RandomState(5)
for m, k, n in ((64, 64, 9000), (37, 130, 7000), (1024, 130, 950), (1024, 270, 130)):
    w, x, d = r.randn(m, k).astype("f4"), r.randn(n, k).astype("f4"), r.randn(n, m).astype("f4")
    W = dy.ParameterCollection().parameters_from_numpy(w)
    def run(rows):
        dy.renew_cg()
        E = dy.ParameterCollection().lookup_parameters_from_numpy(x[rows])
        y = W * dy.lookup_batch(E, range(len(rows)))
        W.scale_gradient(0)
        dy.sum_batches(dy.dot_product(y, dy.inputTensor(d[rows].T.copy(), batched=True))).backward()
        return y.npvalue().reshape(m, -1).T.copy(), E.grad_as_array().reshape(-1, k)
    y, dx = run(range(n))
    exact, size = d.T.astype("f8") @ x, np.abs(d).T @ np.abs(x)
    assert np.all(np.abs(W.grad_as_array() - exact) <= 1e-6 * size), (m, k)
    for j in (0, 3, n // 2, n - 1):
        for got, want in zip(run([j]), (y, dx)):
            assert np.array_equal(got[0], want[j]), (m, k, j)
    assert np.all(np.abs(y - x.astype("f8") @ w.T) <= 1e-6 * (np.abs(x) @ np.abs(w).T)), (m, k)
    assert np.all(np.abs(dx - d.astype("f8") @ w) <= 1e-6 * (np.abs(d) @ np.abs(w))), (m, k)
print("same")
"""


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("isa", ["baseline", "avx2", ""])
def test_products_of_many_columns(isa: str, threads: str) -> None:
    assert run(MANY, DYNET_COMPAT_ISA=isa, DYNET_COMPAT_THREADS=threads) == "same\n"
