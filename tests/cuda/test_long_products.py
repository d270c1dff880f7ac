"""Products with a long inner index, which are made in parts, and convolutions: as exact as on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.subject import IS_REFERENCE

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="the devices are ours")

# The largest error of each product, as a share of the sum of the terms' absolute values. Equal terms are the
# worst case: their rounding errors add up.
PROGRAM = """
import json, sys
import numpy as np
import dynet_compat as dy
core, n, kind = dy._core, int(sys.argv[1]), sys.argv[2]
r = np.random.RandomState(1)
def data(*dims):
    return np.full(dims, 0.1, "f4") if kind == "equal" else r.randn(*dims).astype("f4")
wide, tall, x, xs, b = data(5, n), data(n, 5), data(n), data(n, 20), data(5)
small, columns = data(5, 3), data(3, n)
targets = data(5, n)
def error(got, a, b):
    a, b = np.asarray(a, "f8"), np.asarray(b, "f8")
    return float((abs(got - a @ b) / (abs(a) @ abs(b))).max())
def run():
    pc = dy.ParameterCollection()
    W, T, S, p = (pc.parameters_from_numpy(a) for a in (wide, tall, small, b))
    told, bits = {}, []
    dy.renew_cg()
    y, ys = W * dy.inputTensor(x), W * dy.inputTensor(xs)
    t = dy.tanh(dy.affine_transform([p, W, dy.inputTensor(x / n)]))
    told["few columns"], told["many columns"] = (error(e.npvalue(), wide, v) for e, v in ((y, x), (ys, xs)))
    exact = np.tanh(b + wide.astype("f8") @ (x / n).astype("f8"))
    told["activated"] = float(abs(t.npvalue() - exact).max())
    bits += [e.npvalue().tobytes() for e in (y, ys, t)]
    dy.renew_cg()
    one = dy.dot_product(T * p, dy.inputTensor(x))
    many = dy.sum_batches(dy.dot_product(S * dy.inputTensor(columns, batched=True),
                                         dy.inputTensor(targets, batched=True)))
    (one + many).backward()
    told["gradient of a column"] = error(p.grad_as_array(), tall.T, x)
    told["gradient of a weight"] = error(S.grad_as_array(), targets, columns.T)
    bits += [q.grad_as_array().tobytes() for q in (p, S, T)]
    return told, bits
found = []
for persistent in (False, True):
    core._device_options(persistent=persistent)
    found += [run() for _ in range(3)]
assert all(bits == found[0][1] for _, bits in found), "not the same bits each time"
print(json.dumps(found[0][0]))
"""


def run(text: str, *arguments: str, **settings: str) -> Any:
    environment = {
        **os.environ,
        "DYNET_COMPAT_DEVICE": "emulation",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]),
        **settings,
    }
    done = subprocess.run([sys.executable, "-c", text, *arguments], env=environment, capture_output=True,
                          text=True, timeout=600, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


MOST = {"equal": 3e-5, "random": 5e-7}  # of 2,000 terms that one thread adds up


@pytest.mark.parametrize("kind", ["equal", "random"])
@pytest.mark.parametrize(("terms", "processors"), [(1023, 2), (1024, 2), (4097, 8), (50000, 2), (50000, 132)])
def test_errors_do_not_grow_with_the_number_of_terms(terms: int, processors: int, kind: str) -> None:
    found = run(PROGRAM, str(terms), kind, DYNET_COMPAT_EMULATION=f"processors={processors}")
    assert all(error < MOST[kind] for error in found.values()), found


@pytest.mark.parametrize("way", ["few", "middle", "large"])
def test_each_way_of_making_products(way: str) -> None:
    found = run(PROGRAM, "20000", "equal", DYNET_COMPAT_PRODUCTS=way)
    assert all(error < MOST["equal"] for error in found.values()), found


NEIGHBOURS = """
import json
import numpy as np, dynet_compat as dy
core, r, told = dy._core, np.random.RandomState(0), []
core._device_options(persistent=False)
for second in (60, 5000):
    dy.renew_cg()
    factors = [(r.randn(6, n), r.randn(n)) for n in (50, second)]
    short, other = [dy.inputTensor(a) * dy.inputTensor(x) for a, x in factors]
    core.reset_timing()
    found = dy.npvalues([dy.tanh(short), other])
    told.append(core.timing()["device_launches"])
    (a, x), (b, y) = factors
    np.testing.assert_allclose(found[0], np.tanh(a @ x), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1], b @ y, rtol=1e-4, atol=1e-3)
print(json.dumps(told))
"""


def test_products_beside_one_in_parts_are_activated_at_once() -> None:
    """A launch of both products, and one that adds up the parts of the second."""
    assert run(NEIGHBOURS) == [1, 2]


CONVOLUTIONS = """
import json
import numpy as np, dynet_compat as dy
from ops.test_precision import convolution
print(json.dumps(np.array([convolution(dy, seed) for seed in range(5)]).mean(0).tolist()))
"""


def test_convolutions() -> None:
    """Distances of the value, of gradients of the input and the filters; DyNet's are 4.23, 3.55 and 1.76."""
    found = run(CONVOLUTIONS)
    assert all(a <= b for a, b in zip(found, [3.0, 3.0, 1.76])), found


FULL = """
import json
import numpy as np, dynet_compat as dy
n = 8192
W = dy.ParameterCollection().parameters_from_numpy(np.full((400, n), 0.1, "f4"))
dy.renew_cg()
y = (W * dy.inputTensor(np.full((n, 100), 0.1, "f4"))).npvalue()
print(json.dumps([float(abs(y / (0.01 * n) - 1).max()), y.tobytes().hex()[:8]]))
"""


def test_no_room_for_parts() -> None:
    """Four parts need 480 kB more; without them the product is made whole."""
    much, little = (
        run(FULL, DYNET_COMPAT_EMULATION=f"memory={memory}") for memory in (20_000_000, 16_850_000)
    )
    assert much[0] < MOST["equal"] and little[0] < MOST["equal"]
    assert much[1] != little[1], "both were made in parts"
