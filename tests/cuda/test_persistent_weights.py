"""Weights that blocks of a persistent kernel keep in shared memory: values and gradients are the same."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import fake_gpu, nvrtc
from support.kernel_programs import KernelProgram
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="the devices are ours")


NETWORK = """
import numpy as np
import dynet_compat as dy
rng = np.random.RandomState(3)

class Chain:
    '''h = tanh(b + W h + U x), `steps` times, of `n` sequences that begin anywhere.'''

    def __init__(self, m, k, n, steps):
        self.steps = steps
        self.pc = pc = dy.ParameterCollection()
        shapes = [(m,), (m, m), (m, k)]
        made = [rng.randn(*s) * 0.6 / np.sqrt(s[-1]) for s in shapes]
        self.P = [pc.parameters_from_numpy(p.astype(np.float32)) for p in made]
        self.h, self.x = rng.randn(n, m), rng.randn(steps, n, k)

    def run(self, keep):
        '''Values, gradients, and products whose weights were kept.'''
        dy._core._device_options(keep_weights=keep)
        dy._core.reset_timing()
        dy.renew_cg()
        b, W, U = self.P
        hs = [dy.inputVector(h) for h in self.h]
        for x in self.x:
            hs = [dy.tanh(dy.affine_transform([b, W, h, U, dy.inputVector(x[j])])) for j, h in enumerate(hs)]
        loss = dy.squared_norm(dy.esum(hs))
        loss.value()
        loss.backward()
        results = [np.array([h.npvalue() for h in hs]), *(p.grad_as_array().copy() for p in self.P)]
        for p in self.P:
            p.scale_gradient(0)
        return results, dy._core.timing()["device_persistent_products"]

    def check(self, kept=None):
        results, some = self.run(True)
        expected, none = self.run(False)
        b, W, U = [p.as_array() for p in self.P]
        h = self.h.T
        for x in self.x:
            h = np.tanh(b[:, None] + W @ h + U @ x.T)
        assert none == 0 and (kept is None or some == kept), (some, none)
        assert np.allclose(results[0], h.T, rtol=1e-5, atol=1e-5)
        for found, wanted in zip(results, expected):
            assert np.array_equal(found, wanted)  # products add up in the same order
        return some
"""


def run(text: str, settings: str = "", **more: str) -> str:
    device = {
        "DYNET_COMPAT_DEVICE": "emulation",
        "DYNET_COMPAT_EMULATION": settings,
        "DYNET_COMPAT_PERSISTENT": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", NETWORK + text],
        env={**os.environ, **device, **more},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def numbers(told: str) -> list[float]:
    return [float(word) for word in told.split()]


# ---------------------------------------------------------------- on the emulation


@pytest.mark.parametrize("order", ["forward", "backward"])
def test_random_shapes(order: str) -> None:
    """Rows that do not divide among blocks, columns among warps, an inner index shorter than a warp."""
    text = """
total = 0
for _ in range(60):
    shape = [int(rng.choice(n)) for n in ([1, 2, 3, 7, 8, 9, 16, 17, 31, 33, 40], [1, 2, 7, 8, 9, 31, 33, 40],
                                          [1, 2, 3, 4, 5, 8, 15, 16, 17], [3, 4, 6])]
    total += Chain(*shape).check()
print(total)
"""
    assert int(run(text, f"order={order}")) > 200, "weights were hardly ever kept"


def test_which_weights_are_kept() -> None:
    """Those used three times or more, of few columns: forward both, backward W but in the first step."""
    text = """
Chain(8, 7, 5, 5).check(kept=5 + 4)
Chain(8, 7, 5, 4).check(kept=4 + 3)
Chain(8, 7, 5, 3).check(kept=3)
Chain(8, 7, 5, 2).check(kept=0)
Chain(8, 7, 17, 4).check(kept=0)
"""
    run(text)


@pytest.mark.parametrize(
    ("room", "kept"),
    [(0, 0), (8, 0), (20, 3), (1000, 7)],
    ids=["none", "no weight fits", "one orientation", "all"],
)
def test_shared_memory_that_is_too_small(room: int, kept: int) -> None:
    """Bytes of a block beyond what other tasks have. What does not fit is read as before."""
    run(f"Chain(2, 7, 5, 4).check(kept={kept})", f"shared={(48 << 10) + room}")


def test_some_weights_fit() -> None:
    """A block keeps what is used most often."""
    text = """
pc = dy.ParameterCollection()
often = pc.parameters_from_numpy(rng.uniform(-0.4, 0.4, (4, 4)).astype(np.float32))
large = pc.parameters_from_numpy(rng.uniform(-0.4, 0.4, (4, 60)).astype(np.float32))
x = rng.uniform(-1, 1, 60)
def run(keep):
    dy._core._device_options(keep_weights=keep)
    dy._core.reset_timing()
    dy.renew_cg()
    h = dy.inputVector(rng.uniform(-1, 1, 4)) if keep is None else dy.inputVector(x[:4])
    for i in range(6):
        h = dy.tanh(often * h)
        if i < 3:
            h = dy.tanh(large * dy.concatenate([h] * 15))
    return h.npvalue(), dy._core.timing()["device_persistent_products"]
with_room, without = run(True), run(False)
assert np.array_equal(with_room[0], without[0]), (with_room, without)
print(with_room[1], without[1])
"""
    assert run(text, f"shared={(48 << 10) + 100}") == "6 0"
    assert run(text) == "9 0"


def test_weights_that_are_computed_are_not_kept() -> None:
    text = """
p = dy.ParameterCollection().parameters_from_numpy(rng.uniform(-0.4, 0.4, (4, 4)).astype(np.float32))
W = dy.tanh(p + 1)
h = dy.inputVector([1, 2, 3, 4])
for _ in range(4):
    h = dy.tanh(W * h)
wanted = np.array([1.0, 2, 3, 4])
for _ in range(4):
    wanted = np.tanh(np.tanh(p.as_array() + 1) @ wanted)
assert np.allclose(h.npvalue(), wanted, rtol=1e-5)
print(dy._core.timing()["device_persistent_products"])
"""
    assert run(text) == "0"


def test_updates_are_seen() -> None:
    """Weights are loaded again in each persistent kernel, with their weight decay."""
    text = """
def train(keep):
    dy._core._device_options(keep_weights=keep)
    rng.seed(3)
    chain = Chain(6, 5, 4, 5)
    trainer = dy.SimpleSGDTrainer(chain.pc, 0.1)
    trainer.set_clip_threshold(0)
    chain.pc.set_weight_decay_lambda(0.1)
    told = []
    for _ in range(4):
        told.append(chain.run(keep)[0][0])
        dy.renew_cg()
        dy.squared_norm(chain.P[1] * dy.inputVector(range(6))).backward()
        trainer.update()
    return np.array(told)
a, b = train(True), train(False)
assert np.array_equal(a, b) and not np.allclose(a[0], a[1], rtol=1e-2)
"""
    run(text)


@pytest.mark.skipif(not fake_gpu.available(), reason="no compiler")
@pytest.mark.parametrize("options", [[], ["-fsanitize=address,undefined", "-fno-omit-frame-pointer"]])
def test_kernels_alone(options: list[str], tmp_path: Path) -> None:
    """Units, blocks, columns and inner indices of all sizes; no access to memory beyond what is named."""
    sources = ["cuda/emulation/persistent.cc"]
    done = KernelProgram(tmp_path, "persistent_weights_cases", sources, *options)()
    assert done.stdout == "300\n" and not done.stderr, done.stdout + done.stderr


# ---------------------------------------------------------------- steps that do not wait for other blocks

COMPARED = """
def compared(model, build, shape):
    # Products with kept weights, sliced steps, how often blocks wait for others with and without
    # these: of what `build` returns.
    told = []
    for keep, join in ((True, True), (True, False), (False, True)):
        dy._core._device_options(keep_weights=keep)
        dy._core._device_options(skip_barriers=join)
        dy._core.reset_timing()
        dy.renew_cg()
        made = build()
        dy.squared_norm(dy.esum(made[-1])).backward()
        all = model.parameters_list() + model.lookup_parameters_list()
        gradients = [p.grad_as_array().copy() for p in all]
        for p in all:
            p.scale_gradient(0)
        timing = dy._core.timing()
        names = ("persistent_products", "sliced_steps", "grid_syncs")
        counts = [timing["device_" + name] for name in names]
        told.append(([x.npvalue() for one in made for x in one] + gradients, counts))
    (joined, counts), (apart, fewer), (wanted, none) = told
    # Weights of products with unlike periods are kept apart, or not at all.
    assert none[:2] == [0, 0] and fewer[0] >= counts[0] and fewer[1] == 0, (counts, fewer, none)
    assert counts[2] <= fewer[2], (counts, fewer)
    for found, same, right in zip(joined, apart, wanted):
        assert np.array_equal(found, same, equal_nan=True), shape
        assert np.array_equal(found, right, equal_nan=True), shape
    return np.array([*counts, fewer[2]])
"""


@pytest.mark.parametrize("order", ["forward", "backward"])
@pytest.mark.parametrize("builder", ["VanillaLSTM", "GRU", "SimpleRNN", "CoupledLSTM", "CompactVanillaLSTM"])
def test_cells(builder: str, order: str) -> None:
    """What follows products in a cell is computed by the blocks that made them, in both directions."""
    text = f"""
counts = np.zeros(4)
for trial in range(10):
    i, h, n = (int(rng.choice(some)) for some in ([1, 8, 20], [1, 3, 8, 9, 16, 17, 24, 33], [1, 2, 3, 5]))
    pc = dy.ParameterCollection()
    layers = 1 + trial % 2
    cell, xs = dy.{builder}Builder(layers, i, h, pc), rng.randn(n, 5, i)
    E = pc.add_lookup_parameters((7, i))
    def build():
        def inputs(j):
            rows = [E[(3 * j + t) % 7] if trial % 3 else dy.inputVector(x) for t, x in enumerate(xs[j])]
            return rows[j % 2:]
        ends = [cell.initial_state().transduce(inputs(j)) for j in range(n)]
        return [*ends, [end[-1] for end in ends] + (ends[0] if trial % 4 == 3 else [])]
    counts += compared(pc, build, (i, h, n))
print(*counts)
"""
    told = residents, unit_steps, waits, without = numbers(run(COMPARED + text, f"order={order}"))
    # Fewer where element-wise ops follow in the launches of products.
    assert residents > 12 and unit_steps > 20 and waits < without - 40, told


@pytest.mark.parametrize(
    ("builder", "forward", "backward"),
    [("VanillaLSTM", (1, 2), (1, 3)), ("SimpleRNN", (1, 1), (1, 1)), ("GRU", (2, 2), (2, 3))],
)
def test_how_often_a_step_waits(builder: str, forward: Any, backward: Any) -> None:
    """A step of a recurrence, with row slices and without."""
    text = f"""
pc = dy.ParameterCollection()
cell, E = dy.{builder}Builder(1, 6, 16, pc), pc.add_lookup_parameters((7, 6))
def waits(steps, join):
    dy._core._device_options(skip_barriers=join)
    told = []
    dy.renew_cg()
    dy._core.reset_timing()
    last = [cell.initial_state().transduce([E[(t + j) % 7] for t in range(steps)])[-1] for j in (0, 1)]
    loss = dy.squared_norm(dy.esum(last))
    for compute in loss.value, loss.backward:
        compute()
        told.append(dy._core.timing()["device_grid_syncs"])
        dy._core.reset_timing()
    return np.array(told)
print(*((waits(12, join) - waits(8, join)) / 4 for join in (True, False)))
"""
    joined, apart = (words.split() for words in run(text).strip("[]").split("] ["))
    assert [float(w) for w in joined + apart] == [forward[0], backward[0], forward[1], backward[1]]


@pytest.mark.parametrize("builder", ["VanillaLSTM", "GRU", "SimpleRNN"])
def test_training(builder: str) -> None:
    """Parameters after some updates, with row slices and without, and with blocks in either order. Blocks do
    not wait more often where ops follow in the launches of products."""
    text = f"""
def waits():
    return dy._core.timing()["device_grid_syncs"]
def train(join, chains=True):
    dy._core._device_options(skip_barriers=join, chains=chains)
    dy.reset_random_seed(1)
    pc = dy.ParameterCollection()
    cell, E = dy.{builder}Builder(2, 6, 9, pc), pc.add_lookup_parameters((11, 6))
    trainer = dy.AdamTrainer(pc, 0.01)
    for word in range(6):
        dy.renew_cg()
        words = [[(word * j + 3 * t) % 11 for t in range(4 + j)] for j in range(4)]
        ends = [cell.initial_state().transduce([E[w] for w in one]) for one in words]
        all = [h for end in ends for h in end]
        dy.esum([dy.pickneglogsoftmax(h, k % 9) for k, h in enumerate(all)]).backward()
        trainer.update()
    return b"".join(p.as_array().tobytes() for p in pc.parameters_list() + pc.lookup_parameters_list())
joined = train(True)
steps, followed = dy._core.timing()["device_sliced_steps"], waits()
assert joined == train(False) and dy._core.timing()["device_sliced_steps"] == steps > 50, steps
before = waits()
assert joined == train(True, chains=False) and followed <= waits() - before, (followed, waits() - before)
import hashlib
print(hashlib.sha256(joined).hexdigest())
"""
    assert run(text, "order=forward") == run(text, "order=backward")


@pytest.mark.parametrize("order", ["forward", "backward"])
@pytest.mark.parametrize("items", [1, 2])
def test_a_cell_of_more_units(items: int, order: str) -> None:
    """The period of an LSTM's cell is its size, whatever that of the steps before it."""
    text = f"""
pc = dy.ParameterCollection()
W = pc.parameters_from_numpy((rng.randn(64, 16) * 0.2).astype(np.float32))
start, n = rng.randn(16, {items}), 16 * {items}
def build():
    h = c = dy.inputTensor(start, batched=True)
    for _ in range(5):
        gates = dy.tanh(dy.reshape(W * h, (8, 8), batch_size={items}))
        both = dy._core.record("lstm_cell", (dy.reshape(gates, (64,), batch_size={items}), c), (1.0,))
        c, h = (dy.reshape(dy.pickrange(both, n * k, n * k + n), (16,), batch_size={items}) for k in (0, 1))
    return [[dy.sum_batches(h)]]
print(*compared(pc, build, {items}))
"""
    residents, unit_steps, _, _ = numbers(run(COMPARED + text, f"order={order}"))
    assert residents == 5 + 4 and unit_steps >= 5, (residents, unit_steps)


@pytest.mark.parametrize("order", ["forward", "backward"])
@pytest.mark.parametrize("seed", range(3))
def test_random_recurrences(seed: int, order: str) -> None:
    """Steps that read slices of other blocks, of another size, of results before the last product, or of all;
    and whose gradients meet: of one result that several read, or parts of it."""
    text = f"""
rng.seed({seed})
counts = np.zeros(4)
for trial in range(40):
    h, n = int(rng.choice([2, 15, 16, 17, 33, 40])), int(rng.choice([1, 2, 3, 17 if trial % 8 == 7 else 3]))
    items = int(rng.choice([1, 1, 2]))
    pc = dy.ParameterCollection()
    def made(*shape):
        return pc.parameters_from_numpy((rng.randn(*shape) * 0.6 / np.sqrt(shape[-1])).astype(np.float32))
    square, wide, b = [made(h, h) for _ in range(2)], made(2 * h, h), made(h)
    start, program = rng.randn(n, h, items), rng.randint(0, 1 << 30, 24)
    def one(x):
        xs = [x, dy.tanh(x)]
        for word in program:
            recent, any_one = xs[-1 - word % 2], xs[-1 - word // 2 % min(len(xs), 5)]
            kind = word // 64 % 13
            if kind < 3:
                xs.append(square[kind % 2] * recent if kind else dy.affine_transform([b, square[0], recent]))
            elif kind == 3:
                y = wide * recent
                xs.append(dy.cmult(y[:h], dy.logistic(y[h:])))
            elif kind == 4:
                y = wide * recent
                xs.append(y[1:h + 1] + y[:h])  # rows of other slices
            elif kind == 5:
                xs.append(dy.tanh(recent))
            elif kind == 6:
                xs.append(recent - 0.5 * any_one)
            elif kind == 7:
                xs.append(dy.cmult(recent, dy.sum_elems(any_one)))  # one element for all
            elif kind == 8:
                xs.append(dy.concatenate([recent[1:], any_one[:1]]))
            elif kind == 9:
                xs.append(dy.tanh(dy.cmult(recent, recent)))
            elif kind == 10 and h % 2 == 0:  # half the period
                pairs = dy.tanh(dy.reshape(recent, (h // 2, 2), batch_size=items))
                xs.append(dy.reshape(pairs, (h,), batch_size=items))
            elif kind == 11:
                xs.append(dy.affine_transform([any_one, square[1], recent]))  # a bias that is computed
            else:
                xs.append(dy.tanh(square[0] * recent) + dy.logistic(square[1] * any_one))
        return xs[2:]
    def build():
        all = [one(dy.inputTensor(x, batched=True) if items > 1 else dy.inputVector(x[:, 0])) for x in start]
        return [*all, [dy.sum_batches(xs[-1]) for xs in all]]
    counts += compared(pc, build, (h, n, items, list(program)))
print(*counts)
"""
    told = residents, unit_steps, waits, without = numbers(run(COMPARED + text, f"order={order}"))
    assert residents > 300 and unit_steps > 100 and waits < without - 100, told


@pytest.mark.parametrize("order", ["forward", "backward"])
@pytest.mark.parametrize("autobatch", [0, 1])
def test_a_bias_of_other_units(autobatch: int, order: str) -> None:
    """A product reads all of a bias that steps before it have made with half the period."""
    text = """
h, pc = 16, dy.ParameterCollection()
W, V, p = (pc.parameters_from_numpy((rng.randn(*s) * 0.2).astype(np.float32)) for s in
           ((2 * h, 2 * h), (2 * h, 2 * h), (2 * h,)))
start = rng.randn(2 * h)
def build(join):
    dy._core._device_options(skip_barriers=join)
    dy.renew_cg(autobatching=AUTOBATCH)
    b, x = dy.tanh(p * 1.0), dy.inputVector(start)
    for _ in range(4):
        b = dy.reshape(dy.tanh(dy.reshape(W * b, (h, 2))), (2 * h,))
    for _ in range(4):
        x = dy.affine_transform([b, V, x])
    return x.npvalue()
assert (build(True) == build(False)).all()
""".replace("AUTOBATCH", str(autobatch))
    run(text, f"order={order}")


# ---------------------------------------------------------------- what is counted


def test_refused_persistent_kernels_keep_nothing() -> None:
    """Their launches run one by one, with the records that the kernel would have read."""
    text = """
pc = dy.ParameterCollection()
cell, xs = dy.VanillaLSTMBuilder(1, 8, 17, pc), rng.randn(5, 8)
def run():
    dy.renew_cg()
    dy._core.reset_timing()
    loss = dy.squared_norm(cell.initial_state().transduce([dy.inputVector(x) for x in xs])[-1])
    told = [loss.value()]
    loss.backward()
    for p in pc.parameters_list():
        told.append(p.grad_as_array().copy())
        p.scale_gradient(0)
    timing = dy._core.timing()
    return told, [timing["device_" + name] for name in ("persistent_products", "sliced_steps", "grid_syncs")]
refused, counts = run()
dy._core._device_options(persistent=False)
apart, none = run()
assert all(np.array_equal(a, b) for a, b in zip(refused, apart))
print(*counts, *none)
"""
    assert run(text, "cooperative=1") == "0 0 0 0 0 0"
    joined = numbers(run(text))
    assert all(joined[:3]) and not any(joined[3:])


def test_replayed_persistent_kernels_count() -> None:
    text = """
W = dy.ParameterCollection().parameters_from_numpy(rng.uniform(-0.4, 0.4, (16, 16)).astype(np.float32))
for _ in range(5):
    dy.renew_cg()
    dy._core.reset_timing()
    h, one = dy.inputVector(range(16)), dy.inputTensor(np.ones((1, 1, 1, 1)))
    for _ in range(6):
        for _ in range(4):
            h = dy.sin(W * h)  # a step of its own
        h = dy.reshape(dy.conv2d(dy.reshape(h, (4, 4, 1)), one, (1, 1)), (16,))  # never in one
    h.value()
    timing = dy._core.timing()
    names = ("persistent_products", "sliced_steps", "grid_syncs", "graph_launches")
    print(*(timing["device_" + name] for name in names))
"""
    told = [numbers(line) for line in run(text).splitlines()]
    assert [counts[3] for counts in told] == [0, 0, 1, 1, 1], "graphs are used from the third time on"
    assert all(counts[:3] == [24, 24, 18] for counts in told), told


# ---------------------------------------------------------------- for a GPU

OTHERS = 48 << 10  # bytes that kStaticShared (exec/cuda/tuning.h) leaves to the other steps


@pytest.mark.skipif(nvrtc.found() is None, reason="no NVRTC")
@pytest.mark.parametrize("architecture", [80, 90, 100])
def test_other_tasks_leave_room(architecture: int) -> None:
    """All tasks without a row, and rows that take scratch memory, in one persistent kernel."""
    rows = importlib.import_module("dynet_compat._core").op_table()
    header = (nvrtc.SRC / "cuda" / "abi" / "persistent.h").read_text(encoding="utf-8")
    listed = header.split("enum KernelId")[1]
    others_listed = re.findall(r"^  k\w+,", listed.split("kLastPersistent")[0], re.MULTILINE)
    others = [3 * len(rows) + i for i in range(len(others_listed))]
    taking_rooms = [3 * i for i, row in enumerate(rows) if row["name"] in ("inverse", "logdet", "softmax")]
    name = f"persistent<{', '.join(map(str, taking_rooms + others))}>"
    file = "cuda/kernels/persistent.cu"
    source = (nvrtc.SRC / file).read_text(encoding="utf-8")
    source += "\nusing namespace dyc;\nusing namespace dyc::cuda;\n"
    cubin, lowered, log = nvrtc.compile_cubin(source, file, f"sm_{architecture}", [name])
    assert "warning" not in log, log
    assert 0 < nvrtc.usage(cubin)[lowered[name]].shared <= OTHERS


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="libcuda is opened with dlopen")
@pytest.mark.skipif(not fake_gpu.available() or nvrtc.found() is None, reason="no compiler")
@pytest.mark.parametrize(
    "fault", ["", "cuOccupancyMaxActiveBlocksPerMultiprocessor 2 1", "cuFuncSetAttribute 1 1"]
)
def test_the_driver_gives_the_memory(tmp_path_factory: pytest.TempPathFactory, fault: str) -> None:
    """A persistent kernel is launched with the memory it asks for, or without where the driver has less."""
    folder: Path = tmp_path_factory.getbasetemp() / "resident"
    folder.mkdir(exist_ok=True)
    library = folder / "libcuda_fake.so"
    text = """
import ctypes, os
fake = ctypes.CDLL(os.environ["DYNET_COMPAT_LIBCUDA"])
fake.fake_ran.restype = ctypes.c_char_p
chain = Chain(200, 2001, 4, 6)
print(*(chain.run(True)[1] for _ in range(2)))
kernels = [line.split(b",") for line in fake.fake_ran().split() if b"persistentIJ" in line]
print(*(int(kernel[2]) for kernel in kernels), *(int(kernel[-1]) for kernel in kernels))
print(fake.fake_calls(b"cuOccupancyMaxActiveBlocksPerMultiprocessor"))
"""
    more = {
        "DYNET_COMPAT_LIBCUDA": str(library if library.exists() else fake_gpu.build_fake(folder)),
        "DYNET_COMPAT_CACHE": str(folder / "cache"),
        "DYNET_COMPAT_DEVICE": "gpu",
        "DYNET_COMPAT_MEASURED": "0",
        "FAKE_CUDA": "version=13000",
        "FAKE_CUDA_FAIL": fault,
    }
    rows, again = (7, 16) if fault else (16, 16)  # of a block; the next number of blocks is tried
    memory = [4 * n * (2004 + 204) for n in (rows, again)]
    blocks = [-(-200 // n) if n == 16 else 32 for n in (rows, again)]
    backward = 13, 4 * 16 * 204
    expected = [
        blocks[0],
        backward[0],
        blocks[1],
        backward[0],
        memory[0],
        backward[1],
        memory[1],
        backward[1],
    ]
    # For two kernels without memory, and once for each size that the driver has an answer for.
    asked = 2 + 2 + (("cuFunc" in fault) + 2 * ("cuOcc" in fault))
    assert run(text, **more).splitlines() == ["11 11", " ".join(map(str, expected)), str(asked)]
