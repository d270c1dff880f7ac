"""Functions of one number are within two units in the last place of float64, on every instruction set, and
softmax of long columns, an exponential times the inverse of a sum, within five."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from support.subject import IS_REFERENCE, ON_DEVICE

pytestmark = [
    pytest.mark.skipif(IS_REFERENCE, reason="the reference is less accurate"),
    pytest.mark.skipif(ON_DEVICE, reason="the CPU's functions; CUDA's are within 3 ulp"),
]

# Prints the instruction set, and of each function its largest error, and where. The numbers are every 2,003rd
# of all floats in the range, so that each binary exponent has as many.
SCRIPT = """
import json, numpy as np, dynet_compat as dy
FUNCTIONS = {
    "tanh": (dy.tanh, np.tanh, -12, 12),
    "logistic": (dy.logistic, lambda x: 1 / (1 + np.exp(-x)), -80, 20),
    "exp": (dy.exp, np.exp, -80, 80),
    "log": (dy.log, np.log, 0, 3e38),
    "log_sigmoid": (dy.log_sigmoid, lambda x: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))), -80, 80),
}
errors = {"isa": dy._core.isa()}
for name, (function, exact, low, high) in FUNCTIONS.items():
    smallest, largest = np.array([2.0**-126, max(-low, high)], "f4").view("i4")
    x = np.arange(smallest, largest, 2003, dtype="i4").view("f4")
    x = np.concatenate([x[x < high], -x[x < -low]])
    dy.renew_cg()
    got, want = function(dy.inputTensor(x)).npvalue().astype("f8"), exact(x.astype("f8"))
    ulp = np.ldexp(1.0, np.maximum(np.frexp(want)[1] - 24, -149))
    error = np.abs(got - want) / ulp
    errors[name] = float(error.max()), float(x[error.argmax()])
print(json.dumps(errors))
"""


# The same of softmax: columns whose greatest element comes early, late, or grows from block to block.
SOFTMAX = """
import json, numpy as np, dynet_compat as dy
r = np.random.RandomState(2)
errors = {"isa": dy._core.isa()}
for n in (512, 600, 1024, 5003):
    usual, line = 4 * r.randn(n), np.linspace(0, 1, n)
    late = usual.copy()
    late[-1] = 50
    for name, x in (("usual", usual), ("below 0", usual - 40), ("far above 0", usual + 1000), ("late", late),
                    ("far below 0", usual - 30000), ("rising", 80 * line), ("rising far", 70 * line - 1020),
                    ("falling", -80 * line), ("wide", 20 * r.randn(n)), ("equal", 0 * line + 7.3),
                    ("masked", np.where(line < 0.7, -np.inf, usual))):
        x = x.astype("f4")
        dy.renew_cg()
        want = np.exp(x.astype("f8") - x.max())
        got, want = dy.softmax(dy.inputTensor(x)).npvalue().astype("f8"), want / want.sum()
        ulp = np.ldexp(1.0, np.maximum(np.frexp(want)[1] - 24, -149))
        error = np.abs(got - want) / ulp
        errors[f"{n} rows, {name}"] = float(error.max()), float(x[error.argmax()])
print(json.dumps(errors))
"""


@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512"])
@pytest.mark.parametrize("script, most", [(SCRIPT, 2), (SOFTMAX, 5)], ids=["functions", "softmax"])
def test_units_in_the_last_place(isa: str, script: str, most: float) -> None:
    environment = {**os.environ, "DYNET_COMPAT_ISA": isa}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    errors = json.loads(done.stdout)
    if errors.pop("isa") != isa:
        pytest.skip(f"this processor has no {isa}")
    bad = {name: f"{error:.2f} ulp at {x!r}" for name, (error, x) in errors.items() if not error <= most}
    assert not bad, f"errors on {isa}: {bad}"
