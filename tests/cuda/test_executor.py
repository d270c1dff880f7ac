"""The CUDA executor on the emulated GPU: what the CPU computes, the device computes, too."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.emulated import START, TESTS, passes, program
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="the devices are ours")


@pytest.mark.parametrize("order", ["forward", "backward"])
def test_every_case_of_every_op(order: str) -> None:
    """Values and gradients against the recordings of DyNet; threads run in either order."""
    passes("tests/ops/test_values.py", "-m", "not oracle", settings=f"order={order}")


def test_batches() -> None:
    """Every 24th case, so that the kinds of ops are among them."""
    passes("tests/ops/test_batching.py", "--every=24")


def test_models() -> None:
    """Builders, softmaxes, initialisers, parameters, trainers."""
    passes("tests/model", "-m", "not oracle and not slow")


@pytest.mark.parametrize("order", ["forward", "backward"])
def test_random_graphs(order: str) -> None:
    """Batched as one by one: values and gradients, whenever they are read, and as graphs grow."""
    passes("tests/graph/test_random_graphs.py", "-m", "not oracle and not slow", settings=f"order={order}")


def test_blocks() -> None:
    """What the CPU runs together, and what a persistent kernel of the device does."""
    passes("tests/graph/test_blocks.py")


def test_fibers() -> None:
    passes("tests/fibers/test_batch_map.py", "tests/fibers/test_isolation.py", "--every=4")


def test_the_device_is_chosen_before_the_first_graph() -> None:
    told = program(
        START
        + """
print(dy._core._device_options()['device'])
dy.scalarInput(1.0).value()
try:
    dy._core._use_device("cpu")
except RuntimeError as e:
    print(e)
"""
    )
    assert told.splitlines()[0] == "emulation"
    assert "before anything is recorded" in told


def test_options_of_the_device() -> None:
    told = program(
        START
        + """
options = dy._core._device_options
before = options()
print([name for name, value in before.items() if value is True])
print(options(matmul="large", graphs=False) == {**before, "matmul": "large", "graphs": False})
print(options(matmul="", graphs=True) == before)
try:
    options(streams=True)
except ValueError as e:
    print(e)
"""
    )
    on = ["persistent", "keep_weights", "skip_barriers", "chains", "graphs", "measured", "library", "update"]
    unknown = "_device_options(): unknown option streams"
    assert told.splitlines() == [str(on), "True", "True", unknown]


def test_the_cpu_has_no_options() -> None:
    text = "from dynet_compat._core import _device_options as o\nprint(o())\no(graphs=False)"
    environment = {k: v for k, v in os.environ.items() if k != "DYNET_COMPAT_DEVICE"}
    told = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True,
                          cwd=TESTS.parent, timeout=300)  # fmt: skip
    assert told.stdout == "{'device': 'cpu', 'gemm_library': ''}\n", told.stderr
    assert "the process computes on the CPU" in told.stderr


def test_launches_as_dynet_makes_them() -> None:
    """The baseline of benchmarks/gpu.py: the same numbers, by more launches and copies."""
    told = program(
        START
        + """
pc = dy.ParameterCollection()
rng = np.random.default_rng(2)
W, b = (pc.parameters_from_numpy(rng.normal(size=s).astype(np.float32)) for s in ((6, 6), 6))
E = pc.lookup_parameters_from_numpy(rng.normal(size=(5, 6)).astype(np.float32))
def run(unfused):
    dy._core._device_options(unfused=unfused)
    dy._core.reset_timing()
    dy.renew_cg()
    hs = [E[i % 5] for i in range(6)]
    for step in range(3):
        hs = [dy.tanh(dy.affine_transform([b, W, hs[(i * 5 + step) % 6]]) + hs[i - 1]) for i in range(6)]
    loss = dy.pickneglogsoftmax(dy.esum([dy.concatenate([h, hs[0]]) for h in hs]), 3)
    made = [loss.npvalue()]
    loss.backward()
    made += [p.grad_as_array().copy() for p in (W, b, E)]
    for p in (W, b, E):
        p.scale_gradient(0)
    timing = dy._core.timing()
    return made, timing["device_launches"], timing["gathered_bytes"]
(fused, few, none), (unfused, many, copied) = run(False), run(True)
same = all(np.allclose(x, y, rtol=1e-4, atol=1e-5) for x, y in zip(fused, unfused))
print(same, many > 3 * few, copied > none)
"""
    )
    assert told == "True True True\n"


def test_an_unknown_device() -> None:
    text = (
        START
        + """
try:
    dy._core._use_device("tpu")
except ValueError as e:
    print(e)
"""
    )
    environment = {k: v for k, v in os.environ.items() if k != "DYNET_COMPAT_DEVICE"}
    told = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True,
                          cwd=TESTS.parent, timeout=300)  # fmt: skip
    assert "expected cpu, emulation or cuda:N, got 'tpu'" in told.stdout, told.stderr


TRAINED = (
    START
    + """
dy.reset_random_seed(3)
m = dy.ParameterCollection()
W, b, E = m.add_parameters((5, 4)), m.add_parameters(5), m.add_lookup_parameters((7, 4))
t = dy.AdamTrainer(m)
for step in range(4):
    dy.renew_cg()
    losses = []
    for i in range(6):
        x = E[i]
        for k in range(i % 3 + 1):
            x = dy.tanh(x + E[(i + k) % 7])
        losses.append(dy.pickneglogsoftmax(W * dy.dropout(x, 0.3) + b, i % 5))
    loss = dy.esum(losses)
    print(f"{loss.value():.6f}")
    loss.backward()
    t.update()
print(np.round(W.as_array().sum(), 5), np.round(E.as_array().sum(), 5))
"""
)


def test_training_goes_as_on_the_cpu() -> None:
    there = program(TRAINED)
    here = subprocess.run([sys.executable, "-c", TRAINED], env={**os.environ, "DYNET_COMPAT_DEVICE": "cpu"},
                          capture_output=True, text=True, cwd=TESTS.parent, timeout=300)  # fmt: skip
    numbers = [[float(word) for word in text.split()] for text in (there, here.stdout)]
    assert len(numbers[0]) == 6 and numbers[0] == pytest.approx(numbers[1], rel=1e-4)


def test_out_of_memory_names_arena_request_and_size() -> None:
    told = program(
        START
        + """
try:
    dy.esum([dy.inputTensor(np.ones((1000, 1000))) * 2 for _ in range(8)]).npvalue()
except MemoryError as e:
    print(e)
dy.renew_cg()
print(dy.scalarInput(2.0).value() * 2, (dy.scalarInput(2.0) * 3).value())
""",
        settings="memory=8000000",
    )
    first, last = told.splitlines()
    assert "on the device" in first and "value arena" in first and "requested" in first and "in use" in first
    assert last == "4.0 6.0"


def test_a_lost_device_leaves_parameters_as_they_were() -> None:
    told = program(
        START
        + """
m = dy.ParameterCollection()
W = m.add_parameters((3, 3))
before = last = W.as_array()
t = dy.SimpleSGDTrainer(m)
try:
    for _ in range(20):
        dy.renew_cg()
        loss = dy.squared_norm(W * dy.inputVector([1.0, 2.0, 3.0]))
        loss.value()
        loss.backward()
        t.update()
        last = W.as_array()
except RuntimeError as e:
    print(e)
print((W.as_array() == last).all(), np.isfinite(last).all(), (before != last).any())
m.save("/dev/null")
""",
        settings="fail=30",
    )
    assert "the device was lost" in told and told.splitlines()[-1] == "True True True"


def test_values_are_kept_until_something_changes() -> None:
    told = program(
        START
        + """
x = dy.vecInput(3)
x.set([1.0, 2.0, 3.0])
y = dy.sum_elems(dy.square(x))
print(y.value())
before = dy._core.timing()["device_downloads"]
y.value()
print(dy._core.timing()["device_downloads"] - before)
x.set([2.0, 2.0, 3.0])
print(y.value())
dy.cg_checkpoint()
z = y * 2.0
print(z.value())
dy.cg_revert()
print((y * 3.0).value(), y.value(recalculate=True))
"""
    )
    assert told.split() == ["14.0", "0", "17.0", "34.0", "51.0", "17.0"]


def test_a_chain_waits_for_what_else_it_reads() -> None:
    """tanh() and cmult() are a chain, which begins while other blocks still make the product."""
    program(
        START
        + """
pc = dy.ParameterCollection()
rng = np.random.default_rng(1)
for shape in ((16, 200, 8), (32, 200, 8), (40, 200, 6)):
    m, k, n = shape
    w, x, c = pc.add_parameters((m, k)), rng.random((k, n)), rng.random((m, n))
    product, other = w * dy.inputTensor(x), dy.tanh(dy.inputTensor(c))
    value = dy.cmult(other, product).npvalue()
    assert np.allclose(value, np.tanh(c) * (w.as_array() @ x), rtol=1e-4, atol=1e-4), shape
    dy.renew_cg()
"""
    )


def test_persistent_kernels_are_made_for_what_comes_back() -> None:
    """A kernel for launches as one takes a compiler seconds: not for what runs once."""
    text = (
        START
        + """
w = dy.ParameterCollection().add_parameters((4, 3))
told, values = [], []
for _ in range(4):
    dy.renew_cg()
    dy._core.reset_timing()
    values.append(dy.sum_elems(dy.softmax(w * dy.inputVector([1, 2, 3]))).value())
    told.append(dy._core.timing()["device_launches"])
assert len(set(values)) == 1
print(*told)
"""
    )
    one_by_one = os.environ | {"DYNET_COMPAT_DEVICE": "emulation", "DYNET_COMPAT_PERSISTENT": "3"}
    done = subprocess.run([sys.executable, "-c", text], env=one_by_one, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3", "3", "1", "1"]
