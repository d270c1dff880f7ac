"""np.argmax(x.npvalue()) as one call, on the emulated GPU: indices come down, and they are NumPy's."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
from support.emulated import START, on_device, program
from support.subject import IS_REFERENCE
from support.vectors import vectors

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="the devices are ours")

FOUND = (
    START
    + """
rng = np.random.default_rng(3)

def read(x, method="npvalue"):
    return dy._core._read_argmax(np.argmax, x, method)

def downloads():
    told = dy._core.timing()
    return told["device_downloads"], told["device_downloaded_bytes"]

def check(xs):
    '''Downloads and bytes of all indices.'''
    dy.forward(xs)
    before = downloads()
    found = [read(x) for x in xs]
    after = downloads()
    wanted = [np.argmax(x.npvalue()) for x in xs]
    assert found == wanted, [(f, w) for f, w in zip(found, wanted) if f != w]
    assert [read(x) for x in xs] == wanted
    return after[0] - before[0], after[1] - before[1]

"""
    + inspect.getsource(vectors)
)


@pytest.mark.parametrize("order", ["forward", "backward"])
def test_the_index_is_numpys(order: str) -> None:
    """Vectors of one size, and of many sizes in one launch."""
    told = program(
        FOUND
        + """
for n in (320, 321, 1000, 4999, 5000):
    dy.renew_cg()
    print(check([-dy.inputVector(v) for v in vectors(n, rng)]))
dy.renew_cg()
print(check([-dy.inputVector(v) for n in (1, 2, 7, 8, 9, 63, 64, 65, 66, 700) for v in vectors(n, rng)]))
""",
        settings=f"order={order}",
    )
    assert told.splitlines() == [f"(1, {16 * 4})"] * 5 + [f"(1, {160 * 4})"]


def test_small_results_come_down_themselves() -> None:
    """Which takes no longer, and needs no launch."""
    told = program(FOUND + "print(check([-dy.inputVector([1, 2, 3]) for _ in range(9)]))")
    assert told == "(1, 108)\n"


def test_what_is_there_already() -> None:
    told = program(
        FOUND
        + """
x = -dy.inputVector(rng.normal(size=9000))
x.npvalue()
before = downloads()
print(read(x) == np.argmax(x.npvalue()), downloads()[0] - before[0])
y = dy.inputVector(rng.normal(size=9000))
print(read(y) == np.argmax(y.npvalue()), downloads()[0] - before[0])
"""
    )
    assert told == "True 0\nTrue 0\n"


def test_parts_of_results_and_equal_ones() -> None:
    program(
        FOUND
        + """
for again in range(3):
    dy.renew_cg()
    xs = [dy.inputVector(v) for v in vectors(6000, rng)[again::3]]
    ys = [-x for x in xs]
    parts = [dy.pickrange(y, 100, 5900) for y in ys] + [y[5000:] for y in ys]
    parts += [dy.reshape(y, (6000,)) for y in ys]
    parts += [-x for x in xs] + [dy.reshape(dy.reshape(y, (60, 100)), (6000,)) for y in ys]
    parts += [dy.nobackprop(y) for y in ys]
    W = dy.ParameterCollection().add_parameters((500, 4))
    steps = [W * dy.inputVector(rng.normal(size=4)) for _ in range(20)]
    lstm = dy.VanillaLSTMBuilder(1, 4, 900, dy.ParameterCollection())
    states = [lstm.initial_state().add_input(dy.inputVector(rng.normal(size=4))) for _ in range(7)]
    cells = [c for s in states for c in (*s.s(), s.output())]
    check(steps + parts + ys + cells)
"""
    )


def test_values_that_change() -> None:
    program(
        FOUND
        + """
def same(*xs):
    for x in xs:
        assert read(x) == np.argmax(x.npvalue())

x = dy.vecInput(5000)
y, z = -x, None
for step in range(4):
    x.set(rng.normal(size=5000))
    found = read(y)
    x.set(rng.normal(size=5000))
    same(y)
    z = dy.tanh(y) * 2
    same(z, y, x)
    dy.cg_checkpoint()
    more = [z * k + dy.inputVector(rng.normal(size=5000)) for k in range(3)]
    same(*more)
    dy.cg_revert()
    more = [dy.cube(z) * k + dy.inputVector(rng.normal(size=5000)) for k in range(4)]
    same(*more)
    dy.sum_elems(more[1]).backward()
    same(*more)
    assert y.value(recalculate=True) == y.value()
    same(y, z, *more)
for again in range(3):
    dy.renew_cg()
    same(*[-dy.inputVector(v) for v in vectors(4500, rng)])
"""
    )


GREEDY = (
    START
    + """
pc = dy.ParameterCollection()
V, H = 3000, 16
E, W, b = pc.add_lookup_parameters((V, H)), pc.add_parameters((V, H)), pc.add_parameters(V)
rnn = dy.GRUBuilder(1, H, H, pc)

def decode(first):
    state, last, out = rnn.initial_state(), first, []
    for step in range(4):
        state = state.add_input(E[last])
        scores = W * state.output() + b
        last = int(np.argmax(scores.npvalue()))
        out.append(last)
        if MIXED and first == 3:
            out.append(round(scores[7].value(), 4))
        if MIXED and first == 5:
            out.append([round(v, 4) for v in scores.npvalue()[:3]])
    return out

def main():
    dy.renew_cg()
    before = dy._core.timing()
    for line in dy.batch_map(decode, range(8)):
        print(line)
    after = dy._core.timing()
    print([after[k] - before[k] for k in ("flushes", "device_downloads", "device_downloaded_bytes")])
"""
)


@pytest.mark.parametrize("mixed", [False, True])
def test_greedy_decoding_side_by_side(tmp_path: Path, mixed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush has one launch for the indices of all instances, and one download."""
    script = tmp_path / "greedy.py"
    script.write_text(GREEDY.replace("MIXED", str(mixed)) + "\nmain()\n")
    told = []
    for hints in ("off", "eager"):
        monkeypatch.setenv("DYNET_COMPAT_HINTS", hints)
        done = on_device(str(script), "--dynet-seed", "5")
        assert done.returncode == 0, done.stderr
        told.append(done.stdout.splitlines())
    assert told[0][:8] == told[1][:8]
    if mixed:
        plain, one_call = (json.loads(lines[8]) for lines in told)
        assert one_call[0] == plain[0] and one_call[2] < plain[2] / 4
    else:
        assert told[0][8] == f"[4, 4, {4 * 8 * 3000 * 4}]"
        assert told[1][8] == f"[4, 4, {4 * 8 * 4}]"


# ---------------------------------------------------------------- devices at their limits

TIGHT = (
    FOUND
    + """
xs = [-dy.inputVector(rng.normal(size=100)) for _ in range(2000)]  # 8 kB of indices
dy.forward(xs)
try:
    print([int(FIND) for x in xs])
except (MemoryError, RuntimeError) as e:
    print(type(e).__name__, e)
"""
)
ONE_CALL, PLAIN = "read(x)", "np.argmax(x.npvalue())"


def test_no_memory_for_indices() -> None:
    """Then the values are taken, as without hints."""

    def told(find: str, memory: int) -> str:
        done = on_device("-c", TIGHT.replace("FIND", find), settings=f"memory={memory}")
        return done.stdout if done.returncode == 0 else ""

    low, high = 100_000, 6_400_000
    wanted = told(PLAIN, high)
    assert wanted.startswith("[")
    while high - low > 1000:
        middle = (low + high) // 2
        low, high = (low, middle) if told(PLAIN, middle) == wanted else (middle, high)
    assert told(ONE_CALL, high) == wanted


def test_a_device_that_is_lost() -> None:
    done = on_device("-c", TIGHT.replace("FIND", ONE_CALL), settings="fail=2")
    assert done.stdout.startswith("RuntimeError") and "the device was lost" in done.stdout
