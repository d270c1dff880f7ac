"""How lists of launches run: what the device's time says, the same bits in any case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import fake_gpu, nvrtc
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="the devices are ours")

NO_DRIVER = not sys.platform.startswith("linux") or not fake_gpu.available() or nvrtc.found() is None
WAYS = ("plain", "graph", "persistent")

# A recurrence of `steps`, `times` times; told: how each flush ran, and its values.
PROGRAM = """
import json
import numpy as np
import dynet_compat as dy
dy.reset_random_seed(1)
pc = dy.ParameterCollection()
lstm, E = dy.VanillaLSTMBuilder(1, 20, 24, pc), pc.add_lookup_parameters((7, 20))
NAMES = ("device_launches", "device_graph_launches", "device_grid_syncs", "device_persistent_products")
def way(before):
    told = dy._core.timing()
    launches, graphs, syncs, _ = (told[name] - before[name] for name in NAMES)
    return "graph" if graphs and not syncs else "persistent" if launches < 4 else "plain"
def flush(lengths):
    dy.renew_cg()
    before = dict(dy._core.timing())
    ends = [lstm.initial_state().transduce([E[(i + j) % 7] for j in range(n)])[-1]
            for i, n in enumerate(lengths)]
    values = dy.concatenate(ends).npvalue()
    return way(before), values.tobytes().hex()
def settled():
    return [(one["order"], one["microseconds"]) for one in dy._core._launch_choices() if one["order"]]
"""
REPEATED = (
    PROGRAM
    + """
told = [flush([4, 5, 3]) for _ in range(20)]
print(json.dumps([[way for way, _ in told], sorted({bits for _, bits in told}), settled()]))
"""
)


def run(text: str, **settings: str) -> Any:
    environment = {name: value for name, value in os.environ.items() if name != "DYNET_COMPAT_PERSISTENT"}
    done = subprocess.run([sys.executable, "-c", text], env={**environment, **settings}, capture_output=True,
                          text=True, timeout=300, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def on_emulation(text: str, times: str, **settings: str) -> Any:
    return run(text, DYNET_COMPAT_DEVICE="emulation", DYNET_COMPAT_EMULATION=f"times={times}", **settings)


# ---------------------------------------------------------------- on the emulation, which computes


@pytest.mark.parametrize(
    ("times", "order"),
    [("4:2:90", ["graph", "plain"]), ("2:3:90", ["plain"]), ("4:9:1", ["persistent", "plain"]),
     ("5:3:1", ["persistent", "graph", "plain"])],
)  # fmt: skip
def test_the_fastest_way_is_used(times: str, order: list[str]) -> None:
    """Each way is tried four times; all of them give the same bits."""
    ways, bits, settled = on_emulation(REPEATED, times)
    assert len(bits) == 1 and [found for found, _ in settled] == [order]
    assert set(ways[-6:]) == {order[0]}, ways
    assert all(ways[:-6].count(way) >= 4 for way in WAYS), ways
    plain, graph, together = map(float, times.split(":"))
    assert settled[0][1]["plain"] == pytest.approx(1e6 * plain)
    assert settled[0][1]["graph"] == pytest.approx(1e6 * graph)
    assert settled[0][1]["persistent"] < 1e6 * together, "of a list that is one launch"


def test_nothing_is_measured_where_there_is_no_choice() -> None:
    for option in ({"DYNET_COMPAT_MEASURED": "0"},
                   {"DYNET_COMPAT_GRAPHS": "0", "DYNET_COMPAT_PERSISTENT": "0"}):  # fmt: skip
        ways, _, settled = on_emulation(REPEATED, "4:2:90", **option)
        assert settled == [] and set(ways) == ({"plain"} if len(option) == 2 else {"persistent"})
    ways, _, settled = on_emulation(REPEATED, "4:2:1", DYNET_COMPAT_PERSISTENT="0")
    assert [order for order, _ in settled] == [["graph", "plain"]] and "persistent" not in ways


LISTS_THAT_DIFFER = (
    PROGRAM
    + """
told = [flush([5 + turn, 3])[0] for turn in range(90)]
print(json.dumps([told[:8], told[-20:], settled()]))
"""
)


def test_lists_that_never_repeat_do_not_wait_for_graphs() -> None:
    """The faster of the two other ways is used while a graph may still come, and then."""
    first, last, settled = on_emulation(LISTS_THAT_DIFFER, "4:2:9")
    assert sorted(first) == ["persistent"] * 4 + ["plain"] * 4, first
    assert set(last) == {"persistent"} and settled[0][0] == ["persistent", "plain"], (last, settled)


def test_persistent_kernels_that_are_refused_are_no_way() -> None:
    ways, bits, settled = run(REPEATED, DYNET_COMPAT_DEVICE="emulation",
                              DYNET_COMPAT_EMULATION="times=4:2:1,cooperative=1")  # fmt: skip
    assert len(bits) == 1 and settled[0][0] in (["graph", "plain"], ["persistent", "graph", "plain"])
    assert set(ways[-4:]) <= {"graph", "plain"}


# ---------------------------------------------------------------- on a driver with made-up times of events


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    if NO_DRIVER:
        pytest.skip("libcuda is opened with dlopen; needs a compiler and NVRTC")
    return {
        "DYNET_COMPAT_LIBCUDA": str(fake_gpu.build_fake(tmp_path)),
        "DYNET_COMPAT_CACHE": str(tmp_path / "cache"),
        "DYNET_COMPAT_DEVICE": "gpu",
    }


STEPS = """
import ctypes, json, os
import dynet_compat as dy
fake = ctypes.CDLL(os.environ["DYNET_COMPAT_LIBCUDA"])
W = dy.ParameterCollection().add_parameters((8, 8))
CALLS = (b"cuLaunchKernel", b"cuGraphLaunch", b"cuLaunchCooperativeKernel")
def flush():
    before = [fake.fake_calls(name) for name in CALLS]
    dy.renew_cg()
    h = dy.inputVector(range(8))
    for _ in range(12):
        h = dy.tanh(W * h)
    h.npvalue()
    made = [fake.fake_calls(name) - n for name, n in zip(CALLS, before)]
    return "persistent" if made[2] else "graph" if made[1] else "plain"
told = [flush() for _ in range(20)]
orders = [one["order"] for one in dy._core._launch_choices()]
print(json.dumps([told, orders, fake.fake_calls(b"cuModuleLoadData")]))
"""


@pytest.mark.parametrize(
    ("times", "order"),
    [((50, 20, 999), ["graph", "plain"]), ((20, 50, 999), ["plain"]),
     ((50, 40, 90), ["persistent", "graph", "plain"])],
)  # fmt: skip
def test_the_winner_is_kept_for_later_processes(
    machine: dict[str, str], times: tuple[int, int, int], order: list[str]
) -> None:
    clock = "us_plain={} us_graph={} us_together={}".format(*times)
    settings = {**machine, "FAKE_CUDA": f"version=13000 {clock}"}
    told, orders, _ = run(STEPS, **settings, DYNET_COMPAT_PERSISTENT="1")
    assert orders == [order] and set(told[-6:]) == {order[0]}, told
    assert all(told.count(way) >= 4 for way in WAYS), told
    again, orders, modules = run(STEPS, **settings, DYNET_COMPAT_PERSISTENT="1")
    assert orders == [order]
    expected = ["plain", "plain"] if order[0] == "graph" else [order[0]] * 2  # until a list has come often
    assert again == expected + [order[0]] * 18, "nothing is tried again"
    assert modules == 1 + ("persistent" in order), "what is not used is not compiled"


def test_a_note_holds_for_its_device(machine: dict[str, str]) -> None:
    """Another driver's devices are measured by themselves, and without a cache every process is."""
    graph = "us_plain=50 us_graph=20 us_together=999"
    run(STEPS, **machine, FAKE_CUDA=f"version=13000 {graph}", DYNET_COMPAT_PERSISTENT="1")
    slow_graphs = "us_plain=20 us_graph=50 us_together=999"
    settings = {**machine, "FAKE_CUDA": f"version=13010 {slow_graphs}"}
    _, orders, _ = run(STEPS, **settings, DYNET_COMPAT_PERSISTENT="1")
    assert orders == [["plain"]]


def test_notes_of_others_are_not_believed(machine: dict[str, str], tmp_path: Path) -> None:
    clock = "version=13000 us_plain=50 us_graph=20 us_together=999"
    run(STEPS, **machine, FAKE_CUDA=clock, DYNET_COMPAT_PERSISTENT="1")
    (note,) = (tmp_path / "cache" / "kernels" / "notes").iterdir()
    note.write_bytes(note.read_bytes().replace(b"graph plain", b"plain graph"))
    told, orders, _ = run(STEPS, **machine, FAKE_CUDA=clock, DYNET_COMPAT_PERSISTENT="1")
    assert orders == [["graph", "plain"]] and told.count("persistent") >= 4, "measured again"


TIMED = """
import json
import dynet_compat as dy
core, pc = dy._core, dy.ParameterCollection()
W, trainer = pc.add_parameters((8, 8)), dy.SimpleSGDTrainer(pc)
trainer.set_clip_threshold(-1)  # nothing computes here: gradients are any numbers
core._measure_device(True)
told = []
for _ in range(3):
    core.reset_timing()
    dy.renew_cg()
    dy.sum_elems(W * dy.inputVector(range(8))).backward()
    trainer.update()
    told.append(core.timing())
print(json.dumps([[one["device_launches"], one["device_launch_seconds"]] for one in told]))
"""


def test_times_of_launches_are_there_when_they_are_asked_for(machine: dict[str, str]) -> None:
    """Without a wait of the program's own, and those of an update, after which nothing is read."""
    told = run(TIMED, **machine, FAKE_CUDA="version=13000 us_plain=7")
    for launches, seconds in told:
        assert launches >= 4 and seconds == pytest.approx(7e-6 * launches, rel=1e-3), told
