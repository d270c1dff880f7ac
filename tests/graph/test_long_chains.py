"""Lists of expressions that depend on one another, and computations long enough to be interrupted."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
from support.subject import IS_REFERENCE, ON_GPU

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="about how long this takes")
FAST = pytest.mark.skipif(ON_GPU, reason="a GPU computes all of it before the signal comes")


@pytest.mark.parametrize("name", ["esum", "average", "concatenate", "logsumexp", "emax"])
def test_list_of_dependent_expressions_takes_linear_time(dy: Any, name: str) -> None:
    def recording(n: int) -> float:
        dy.renew_cg()
        x, xs = dy.ones(2), []
        for _ in range(n):
            x = x + 1
            xs.append(x)
        start = time.process_time()
        getattr(dy, name)(xs)
        return time.process_time() - start

    recording(1000)
    short, long = min(recording(5000) for _ in range(3)), min(recording(40000) for _ in range(2))
    assert long < 24 * short + 0.05, f"{name}() of 5,000: {short:.4f} s, of 40,000: {long:.4f} s"


def test_edges_of_long_lists_are_kept(dy: Any) -> None:
    """Two readers take turns on the same chain: each edge is found again, and every value is right."""
    dy.renew_cg(autobatching=True)
    x, xs, sums = dy.ones(2), [], []
    for i in range(200):
        x = dy.tanh(x) + 1
        xs.append(x)
        if i % 3 == 0:
            sums += [dy.esum(xs), dy.average(xs)]
    got = [s.npvalue() for s in sums]
    v, values = np.ones(2), []
    want = []
    for i in range(200):
        v = np.tanh(v) + 1
        values.append(v)
        if i % 3 == 0:
            want += [np.sum(values, axis=0), np.mean(values, axis=0)]
    np.testing.assert_allclose(got, want, rtol=1e-5)


# The handler notes when the signal came; value() or backward() of the graph takes seconds.
INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np, dynet_compat as dy
what = sys.argv[1]
pc = dy.ParameterCollection()
w = pc.add_parameters((1000, 1000), init=dy.UniformInitializer(0.05))
def network():
    dy.renew_cg()
    x = dy.inputTensor(np.ones((1000, 8)), batched=True)
    for _ in range(SIZE):
        x = dy.tanh(w * x)
    return dy.sum_batches(dy.sum_elems(x))
SIZE = 4
loss = network()
loss.backward()
small = w.grad_as_array().copy()
w.scale_gradient(0)
SIZE = 6000
loss = network()
if what == "backward":
    loss.value()
pressed = []
def press():
    pressed.append(time.time())
    os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(0.2, press).start()
try:
    loss.backward() if what == "backward" else loss.value()
    print("no interrupt")
except KeyboardInterrupt:
    waited = time.time() - pressed[0]
    SIZE = 4
    untouched = not w.grad_as_array().any()
    network().backward()
    print("waited", waited, untouched, np.array_equal(w.grad_as_array(), small))
"""


@FAST
@pytest.mark.parametrize("what", ["value", "backward"])
def test_control_c_in_a_long_call(what: str) -> None:
    program = [sys.executable, "-c", INTERRUPTED, what]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    assert words[0] == "waited", f"Ctrl-C during {what}(): {done.stdout}"
    assert float(words[1]) < 0.5, f"Ctrl-C arrived {words[1]} s after it was pressed, during {what}()"
    assert words[2] == "True", "gradients were left half added"
    assert words[3] == "True", "the next graph has other gradients"


HANDLED = """
import os, signal, sys, threading, time
import numpy as np, dynet_compat as dy
pc = dy.ParameterCollection()
w = pc.add_parameters((1000, 1000), init=dy.UniformInitializer(0.05))
x = dy.inputTensor(np.ones((1000, 8)), batched=True)
for _ in range(3000):
    x = dy.tanh(w * x)
seen = []
def handler(*_):
    seen.append(dy.scalarInput(len(seen)) + 1)
    try:
        seen[-1].value()
    except RuntimeError as error:
        seen.append(str(error))
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
got = dy.sum_batches(dy.sum_elems(x)).value()
signal.setitimer(signal.ITIMER_REAL, 0, 0)
again = dy.sum_batches(dy.sum_elems(x)).value()
print(got == again, any("handler of a signal" in s for s in seen if isinstance(s, str)))
"""


@FAST
def test_handler_that_returns_lets_the_computation_go_on() -> None:
    done = subprocess.run([sys.executable, "-c", HANDLED], capture_output=True, text=True, timeout=300)
    assert done.stdout == "True True\n", done.stdout + done.stderr


# Determinants: much work, and a number each. Prints how many launches ran before the handler, and in all.
FEW_RESULTS = """
import signal
import numpy as np, dynet_compat as dy
dy._core.set_threads(1)
def launches():
    return dy._core.timing()["launches"]
def determinants():
    dy.renew_cg(autobatching=False)
    return dy.esum([dy.logdet(dy.inputTensor(np.eye(n) + 0.5 / n)) for n in range(1000, 1015)])
class Stop(Exception):
    pass
def handler(*_):
    raise Stop
signal.signal(signal.SIGALRM, handler)
last, start = determinants(), launches()
last.value()
all = launches() - start
last, start = determinants(), launches()
signal.setitimer(signal.ITIMER_REAL, 0.001)
try:
    last.value()
except Stop:
    pass
print(launches() - start, all)
"""


@FAST
def test_signals_come_between_large_launches_of_small_results() -> None:
    done = subprocess.run([sys.executable, "-c", FEW_RESULTS], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    ran, launches = map(int, done.stdout.split())
    assert 0 < ran <= launches // 2 and launches == 16, done.stdout


REFUSED = """
import signal, sys
import numpy as np, dynet_compat as dy
pc = dy.ParameterCollection()
w = pc.add_parameters((1000, 1000), init=dy.UniformInitializer(0.05))
start = dy.inputVector([0.5] * 1000)
row = pc.add_lookup_parameters((3, 1000))[0]
x = start + row
for _ in range(4000):
    x = dy.tanh(w * x)
loss, said = dy.sum_elems(x), []
def handler(*_):
    try:
        eval(sys.argv[1])
    except RuntimeError as error:
        said.append("handler of a signal" in str(error))
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.06)
value = loss.value()
print(said, value == loss.value(recalculate=True))
"""


@FAST
@pytest.mark.parametrize(
    "call",
    [
        "start.set([0.25] * 1000)",
        "row.set(1)",
        "start.value(recalculate=True)",
        "start.forward(recalculate=True)",
        "dy.cg_checkpoint()",
        "dy.renew_cg()",
        "dy._core._batch_plan(None)",
        "loss.gradient()",
    ],
)
def test_handler_changes_nothing_of_a_computation(call: str) -> None:
    """All of these would take away what the computation reads, or begin another one inside it."""
    program = [sys.executable, "-c", REFUSED, call]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "[True] True\n"), done.stdout + done.stderr
