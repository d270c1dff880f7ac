"""Launches that come again as they were, as graphs of the driver: the same work in the same order."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import fake_gpu, nvrtc
from support.subject import IS_REFERENCE

pytestmark = [
    pytest.mark.skipif(IS_REFERENCE, reason="the devices are ours"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="libcuda is opened with dlopen"),
    pytest.mark.skipif(not fake_gpu.available(), reason="no compiler"),
]

GRAPHS = ("cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch")
WARNING = "[dynet] WARNING: GPU:0 (Fake 0), while "
FILL, COPY, CLEAR = 0, 1, 2
Operation = tuple[int, int, int, int, int]


class Flush:
    """A flush in small: records go up, memory is cleared, kernels read their records, a copy is made."""

    def __init__(self, gpu: fake_gpu.Driver) -> None:
        self.gpu = gpu
        self.records, self.memory = gpu.allocate(64), gpu.allocate(256)
        at, record = self.memory, self.records
        self.list: list[Operation] = [
            (CLEAR, at, 0, 256, 0), (FILL, record, 0, 0, 1), (FILL, record + 16, 0, 0, 3),
            (COPY, at + 128, at, 128, 0), (FILL, record + 32, 0, 0, 2),
        ]  # fmt: skip

    def run(self, value: float, change: list[Operation] | None = None) -> bool:
        """Whether it was one graph; checks what it left in memory."""
        at = self.memory
        fills = [(at, 32, value), (at + 16, 4, value + 1), (at + 240, 4, value + 2)]
        self.gpu.upload(self.records, b"".join(struct.pack("Qif", *fill) for fill in fills))
        again = self.gpu.replay(change or self.list)
        found = np.frombuffer(self.gpu.download(at, 256), np.float32)
        half = [value] * 4 + [value + 1] * 4 + [value] * 24
        expected = [*half, *half[:28], *[value + 2] * 4]
        assert change or found.tolist() == expected, f"replayed: {again}"
        return again


def test_a_list_that_comes_again(gpu: fake_gpu.Driver, fake: fake_gpu.Fake) -> None:
    """The third time it is one graph, which reads what the records say now."""
    flush, told, counted = Flush(gpu), [], []
    for value in range(6):
        before = gpu.counters()
        fake.ran()
        again = flush.run(value)
        told.append((again, fake.ran()))
        counted.append([b - a for a, b in zip(before, gpu.counters(), strict=True)])
    assert [again for again, _ in told] == [False] * 2 + [True] * 4 and gpu.replays() == 4
    assert len(told[0][1]) == 5 and all(work == told[0][1] for _, work in told), told
    assert all(counts == counted[0] for counts in counted), counted
    assert [fake.calls(name) for name in GRAPHS] == [1, 1, 1, 4]
    gpu.close()
    assert fake.graphs() == 0 and fake.loaded.fake_blocks() == 0


def test_a_list_that_differs(gpu: fake_gpu.Driver, fake: fake_gpu.Fake) -> None:
    """In anything but the contents of memory: it is another list, which runs as it is."""
    flush = Flush(gpu)
    assert [flush.run(1.0) for _ in range(3)] == [False, False, True]
    kind, to, start, size, blocks = flush.list[3]
    others = [
        flush.list[:-1], [*flush.list, flush.list[1]], flush.list[::-1],
        [*flush.list[:3], (kind, to + 4, start, size, blocks), flush.list[4]],
        [*flush.list[:3], (kind, to, start + 4, size, blocks), flush.list[4]],
        [*flush.list[:3], (kind, to, start, size - 4, blocks), flush.list[4]],
        [*flush.list[:4], (*flush.list[4][:4], 9)],
    ]  # fmt: skip
    for other in others:
        fake.ran()
        assert not flush.run(2.0, other)
        assert len(fake.ran()) == len(other)
    assert flush.run(3.0)


def test_few_graphs_are_kept(gpu: fake_gpu.Driver, fake: fake_gpu.Fake) -> None:
    """Those that were used last; the device's memory is finite."""
    flush = Flush(gpu)
    lists = [[*flush.list, *[flush.list[4]] * i] for i in range(1, 21)]
    for _ in range(3):
        told = [flush.run(1.0, one) for one in lists]
    assert all(told) and fake.graphs() == 16
    made = fake.calls("cuGraphInstantiateWithFlags")
    assert all(flush.run(1.0, one) for one in lists[-16:])
    assert fake.calls("cuGraphInstantiateWithFlags") == made == 20
    assert flush.run(1.0, lists[0]) and fake.graphs() == 16, "captured again"
    assert fake.calls("cuGraphInstantiateWithFlags") == made + 1


def test_graphs_do_not_outlive_memory(gpu: fake_gpu.Driver, fake: fake_gpu.Fake) -> None:
    fake.set("memory", 64 << 20)
    flush = Flush(gpu)
    assert [flush.run(1.0) for _ in range(3)] == [False, False, True]
    gpu.release(gpu.allocate(40 << 20))
    gpu.allocate(60 << 20)  # the kept memory goes back to the driver
    assert flush.run(2.0) and fake.calls("cuGraphInstantiateWithFlags") == 2 and fake.graphs() == 1


def test_operations_that_are_timed_run_one_by_one(gpu: fake_gpu.Driver) -> None:
    flush = Flush(gpu)
    assert [flush.run(1.0) for _ in range(3)] == [False, False, True]
    gpu.measure(True)
    assert not flush.run(2.0)
    gpu.wait()
    assert gpu.seconds(False) == pytest.approx(1.5e-3)
    gpu.measure(False)
    assert flush.run(3.0)


@pytest.mark.parametrize(
    ("call", "number"),
    [*((name, 1) for name in GRAPHS), ("cuGraphLaunch", 2),
     *(("cuLaunchKernel", i) for i in (7, 9)), ("cuMemcpyDtoDAsync_v2", 3), ("cuMemsetD8Async", 3)],
)  # fmt: skip
@pytest.mark.parametrize("code", [1, 2, 801, 901])
def test_graphs_that_fail(
    gpu: fake_gpu.Driver,
    fake: fake_gpu.Fake,
    capfd: pytest.CaptureFixture[str],
    call: str,
    number: int,
    code: int,
) -> None:
    """The list runs one by one, once; graphs are not tried again."""
    flush = Flush(gpu)
    fake.fail(call, number, code)
    told = [flush.run(value) for value in range(3 + number // 2 if call in GRAPHS else 3)]
    assert not told[-1]
    tried = [fake.calls(name) for name in GRAPHS]
    fake.ran()
    for value in range(4):
        assert not flush.run(value)
    assert len(fake.ran()) == 4 * 5
    assert [fake.calls(name) for name in GRAPHS] == tried, "tried again"
    told_by = capfd.readouterr().err
    assert told_by.count(WARNING) == 1 and "launches run one by one" in told_by, told_by
    gpu.close()
    assert fake.graphs() == 0


@pytest.mark.parametrize("call", [*GRAPHS, "cuMemcpyDtoDAsync_v2"])
def test_a_device_that_is_lost_meanwhile(gpu: fake_gpu.Driver, fake: fake_gpu.Fake, call: str) -> None:
    flush = Flush(gpu)
    fake.fail(call, 1 if call in GRAPHS else 3, 700)
    assert [flush.run(1.0), flush.run(1.0)] == [False, False]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="is lost"):
            flush.run(1.0)
    gpu.close()


def test_a_driver_without_graphs(
    built: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path = fake_gpu.build_fake(tmp_path, "FAKE_WITHOUT_GRAPHS")
    monkeypatch.setenv("DYNET_COMPAT_LIBCUDA", str(path))
    gpu = fake_gpu.Driver(Path(shutil.copy(built[1], tmp_path / "shim.so")))
    gpu.open()
    flush = Flush(gpu)
    assert not any(flush.run(value) for value in range(5))
    assert not capfd.readouterr().err
    gpu.close()


# ---------------------------------------------------------------- whole programs

TRAINING = """
import numpy as np
import dynet_compat as dy
dy.reset_random_seed(1)
pc = dy.ParameterCollection()
lstm = dy.VanillaLSTMBuilder(1, 5, 6, pc)
E = pc.add_lookup_parameters((7, 5))
trainer = dy.AdamTrainer(pc)
trainer.set_clip_threshold(0)  # which reads the norm of the gradients
def train(turn):
    dy.renew_cg()
    ends = [lstm.initial_state().transduce([E[(i + j + turn) % 7] for j in range(n)])[-1]
            for i, n in enumerate([3, 5, 4])]
    loss = dy.sum_elems(dy.esum([dy.dropout(dy.square(e), 0.1) for e in ends]))
    value = loss.value()
    loss.backward()
    trainer.update()
    return value
"""


def output(text: str, **settings: str) -> list[str]:
    environment = {**os.environ, "DYNET_COMPAT_PERSISTENT": "0", **settings}
    command = [sys.executable, "-c", TRAINING + text]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and not fake_gpu.complaints(done.stderr), done.stdout + done.stderr
    return done.stdout.splitlines()


def test_training_is_the_same_with_graphs() -> None:
    """Each sentence differs, and each update; the launches are the same from the third turn on."""
    text = """
for turn in range(6):
    print(np.float32(train(turn)).tobytes().hex())
print(E.as_array().tobytes().hex())
print(dy._core.timing()["device_graph_launches"])
"""
    with_graphs = output(text, DYNET_COMPAT_DEVICE="emulation")
    without = output(text, DYNET_COMPAT_DEVICE="emulation", DYNET_COMPAT_GRAPHS="0")
    assert with_graphs[:-1] == without[:-1] and len(set(without)) == 8
    assert [with_graphs[-1], without[-1]] == ["8", "0"], "forward and backward, four times"


@pytest.mark.skipif(nvrtc.found() is None, reason="no NVRTC")
def test_the_driver_is_given_the_same_work(tmp_path: Path) -> None:
    """Kernels with their grids and records, copies and clears: in the same order, at the same places."""
    text = """
import ctypes, os
fake = ctypes.CDLL(os.environ["DYNET_COMPAT_LIBCUDA"])
fake.fake_ran.restype = ctypes.c_char_p
told = []
for turn in range(8):
    dy._core._device_options(graphs=turn < 6)
    fake.fake_clear_ran()
    before = dy._core.timing()["device_graph_launches"]
    train(turn)
    told.append((fake.fake_ran(), dy._core.timing()["device_graph_launches"] - before))
print(*(replays for _, replays in told))
print(told[5][0].count(b"\\n") > 30, len({work for work, _ in told[3:]}))
"""
    machine = {
        "DYNET_COMPAT_LIBCUDA": str(fake_gpu.build_fake(tmp_path)),
        "DYNET_COMPAT_CACHE": str(tmp_path / "cache"),
        "DYNET_COMPAT_DEVICE": "gpu",
        "DYNET_COMPAT_MEASURED": "0",
        "FAKE_CUDA": "version=13000",
    }
    assert output(text, **machine) == ["0 0 2 2 2 2 0 0", "True 1"]
