"""`profile()`: what is in the trace, and that measuring neither changes nor breaks anything."""

from __future__ import annotations

import inspect
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Callable

import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="not in DyNet")

Event = dict[str, Any]
OPERANDS = {"shared", "contiguous", "strided", "gathered", "weight"}
EPSILON = 2e-3  # microseconds: times are written with three decimals of them


class Program:
    """A small tagger: one training step."""

    def __init__(self, dy: Any) -> None:
        self.dy = dy
        dy.reset_random_seed(3)
        pc = dy.ParameterCollection()
        self.rnn = dy.VanillaLSTMBuilder(1, 4, 6, pc)
        self.table = pc.add_lookup_parameters((10, 4))
        self.W = pc.add_parameters((5, 6), name="W")
        self.trainer = dy.SimpleSGDTrainer(pc)

    def loss(self) -> Any:
        dy = self.dy
        losses = []
        for length in (2, 3, 5):
            words = [self.table[i] for i in range(length)]
            for h in self.rnn.initial_state().transduce(words):
                losses.append(dy.pickneglogsoftmax(self.W * dy.tanh(h + 1) * 0.5, length - 1))
        return dy.esum(losses)

    def step(self) -> float:
        self.dy.renew_cg()
        loss = self.loss()
        value = loss.value()
        loss.backward()
        self.trainer.update()
        return float(value)


def of(events: list[Event], *categories: str) -> list[Event]:
    return [e for e in events if e["cat"] in categories]


def inside(inner: Event, outer: Event) -> bool:
    begin, end = outer["ts"] - EPSILON, outer["ts"] + outer["dur"] + EPSILON
    return inner["pid"] == outer["pid"] and begin <= inner["ts"] and inner["ts"] + inner["dur"] <= end


def check_tracks(events: list[Event]) -> None:
    """On each track events are in order, and each lies inside the one it overlaps."""
    tracks: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in events:
        tracks[event["pid"], event["tid"]].append(event)
    for track in tracks.values():
        assert [e["ts"] for e in track] == sorted(e["ts"] for e in track)
        around: list[Event] = []
        for event in track:
            while around and around[-1]["ts"] + around[-1]["dur"] <= event["ts"] + EPSILON:
                around.pop()
            assert not around or inside(event, around[-1]), (event, around[-1])
            around.append(event)


# ---------------------------------------------------------------- what is in it


def test_file(dy: Any, tmp_path: Path) -> None:
    program, path = Program(dy), tmp_path / "trace.json"
    with dy.profile(path) as p:
        for _ in range(3):
            program.step()
    assert os.listdir(tmp_path) == ["trace.json"]
    trace = json.loads(path.read_text())
    metadata = [e for e in trace["traceEvents"] if e["ph"] == "M"]
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert len(metadata) + len(events) == len(trace["traceEvents"])
    assert events == p.events
    for event in events:
        assert set(event) == {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"}
        assert isinstance(event["name"], str) and event["name"]
        assert event["ts"] >= 0 and event["dur"] >= 0
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in metadata if e["name"] == "thread_name"}
    assert set(tracks.values()) == {"script", "record", "plan", "launches", "kernels", "update"}
    assert {(e["pid"], e["tid"]) for e in events} == set(tracks)
    assert [e["args"]["name"] for e in metadata if e["name"] == "process_name"] == ["MainThread"]
    check_tracks(events)


def test_spans_lie_inside_one_another(dy: Any) -> None:
    program = Program(dy)
    program.step()
    with dy.profile() as p:
        program.step()
        program.step()
    events = p.events
    for categories, outer in (
        (("launch",), ("forward",)),
        (("back_launch", "weights"), ("backward",)),
        (("kernel",), ("launch", "back_launch", "weights")),
        (("plan", "forward", "backward"), ("call",)),
    ):
        found = of(events, *categories)
        assert found
        for event in found:
            assert any(inside(event, o) for o in of(events, *outer)), event
    for record in of(events, "record"):  # recording is what happens outside
        for call in of(events, "call"):
            assert record["ts"] + record["dur"] <= call["ts"] + EPSILON or (
                call["ts"] + call["dur"] <= record["ts"] + EPSILON
            )
    assert len({e["args"]["graph"] for e in of(events, "launch")}) == 2


def test_launches_tell_what_they_did(dy: Any) -> None:
    pc = dy.ParameterCollection()
    W = pc.add_parameters((3, 4))
    dy.renew_cg()
    xs = [dy.inputVector([1, 2, 3, i]) for i in range(7)]
    loss = dy.esum([dy.sum_elems(dy.tanh(W * x)) for x in xs])
    with dy.profile() as p:
        loss.backward()
    launches = {e["name"]: e["args"] for e in of(p.events, "launch")}
    product = launches["matmul"]
    assert (product["batch"], product["direction"], product["mixed"]) == (7, "forward", False)
    assert product["flops"] == 2 * 3 * 4 * 7
    assert product["floats"] == [7 * (3 * 4 + 4)]
    assert product["bytes"] == 4 * (3 * 4 + 7 * 4 + 7 * 3)  # the weight is read once
    assert product["shapes"] == "{3,4} {4} -> {3}"
    assert product["operands"][0] == "weight" and set(product["operands"]) <= OPERANDS
    assert launches["tanh"]["operands"] == ["contiguous"] and launches["tanh"]["batch"] == 7
    assert launches["esum"]["operands"] == ["gathered"]
    back = {e["name"]: e["args"] for e in of(p.events, "back_launch")}
    assert set(back) == set(launches) and back["tanh"]["direction"] == "backward"
    kernels = {e["name"]: e["args"] for e in of(p.events, "kernel")}
    assert set(kernels) == {"W x 3x7x4", "dy x' 3x4x7"}  # inputs take no gradient
    assert "flops" not in back["matmul"] and kernels["dy x' 3x4x7"]["flops"] == 2 * 3 * 4 * 7
    assert back["tanh"]["bytes"] == 4 * (2 * 21 + 2 * 21)  # result, its gradient; gradient of x twice


def test_launches_that_run_together_are_one(dy: Any) -> None:
    dy.renew_cg()
    xs = [dy.tanh(dy.exp(dy.inputVector([0.1, i]))) for i in range(5)]
    with dy.profile() as p:
        dy.values(xs)
    assert [(e["name"], e["args"]["batch"]) for e in of(p.events, "launch")] == [("exp + tanh", 10)]


def test_members_of_several_extents(dy: Any) -> None:
    dy.renew_cg()
    xs = [dy.tanh(dy.inputVector(list(range(n)))) for n in (1, 2, 3)]
    with dy.profile() as p:
        dy.values(xs)
    (event,) = of(p.events, "launch")
    assert event["args"]["mixed"] and event["args"]["bytes"] == 2 * 4 * 6


def line_of(function: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


def test_lines_of_the_script(dy: Any) -> None:
    program = Program(dy)

    def script() -> None:
        dy.renew_cg()
        loss = program.loss()
        loss.npvalue()
        dy.values([loss * 2])
        loss.backward()
        dy.cg().forward(3)
        program.trainer.update()

    with dy.profile() as p:
        script()
    calls = [(e["name"].split()[0], e["args"]["line"]) for e in of(p.events, "call")]
    wanted = [
        ("renew_cg", "renew_cg"),
        ("npvalue", "npvalue"),
        ("forward", "dy.values"),
        ("backward", "backward"),
    ]
    wanted += [("forward", "cg().forward"), ("update", "update")]
    assert calls == [(name, line_of(script, text)) for name, text in wanted]
    for event in of(p.events, "call"):
        assert event["args"]["file"] == __file__ and event["args"]["function"] == "script"
    (update,), script_line = of(p.events, "update"), of(p.events, "call")[-1]  # on its own track, too
    assert (update["ts"], update["dur"]) == (script_line["ts"], script_line["dur"])
    assert update["tid"] != script_line["tid"]


def test_sums_agree_with_the_clock(dy: Any) -> None:
    program = Program(dy)
    program.step()
    before = dy._core.timing()
    start = time.perf_counter()
    with dy.profile() as p:
        for _ in range(20):
            program.step()
        time.sleep(0.05)
    wall = time.perf_counter() - start
    after = dy._core.timing()
    (thread,) = p._threads
    seconds = thread.seconds()
    assert abs(sum(seconds.values()) - 1e-9 * (thread.end - thread.begin)) < 1e-6
    assert 0.8 * wall < sum(seconds.values()) <= wall
    assert all(s >= 0 for s in seconds.values()) and seconds["own Python"] >= 0.05
    for phase in ("plan", "forward", "backward"):  # measured by other clocks in the same places
        other = after[phase] - before[phase]
        assert abs(seconds[phase] - other) < 0.2 * other + 1e-3, phase
    launches = sum(e["dur"] for e in of(p.events, "launch"))
    assert 0 < launches <= 1e6 * seconds["forward"] + 1
    nodes = sum(e["args"]["batch"] for e in of(p.events, "launch"))
    assert nodes == after["planned_nodes"] - before["planned_nodes"]
    assert nodes == sum(e["args"]["nodes"] for e in of(p.events, "plan"))


def test_recording_counts_nodes(dy: Any) -> None:
    dy.renew_cg()
    early = dy.inputVector([1, 2])  # before it begins
    with dy.profile() as p:
        x = dy.tanh(early)
        y = x + 1
        y.value()
        z = dy.exp(y)
        time.sleep(0.002)
        (z + 1).value()
    # A stretch ends at a flush and at a pause: here, and where other work has the processor.
    stretches = of(p.events, "record")
    so_far = list(itertools.accumulate(e["args"]["nodes"] for e in stretches))
    assert {2, 3, 4} <= set(so_far) and so_far[-1] == 4
    assert all(e["dur"] < 2000 for e in stretches)  # the pause is the script's own


def test_recording_without_a_flush(dy: Any) -> None:
    with dy.profile() as p:
        dy.renew_cg()
        dy.tanh(dy.scalarInput(1))
    assert sum(e["args"]["nodes"] for e in of(p.events, "record")) == 2


def test_immediate_mode(dy: Any) -> None:
    with dy.profile() as p:
        dy.renew_cg(immediate_compute=True)
        x = dy.inputVector([1, 2])
        for _ in range(5):
            x = dy.tanh(x)
    check_tracks(p.events)
    assert len(of(p.events, "launch")) == 5
    busy = sorted(of(p.events, "record", "plan", "forward"), key=lambda e: e["ts"])
    for first, second in zip(busy, busy[1:]):
        assert first["ts"] + first["dur"] <= second["ts"] + EPSILON
    dy.renew_cg()


def test_checkpoints(dy: Any) -> None:
    with dy.profile() as p:
        dy.renew_cg()
        x = dy.tanh(dy.scalarInput(1))
        dy.cg_checkpoint()
        dy.exp(x).value()
        dy.cg_revert()
        dy.exp(x).value()
    check_tracks(p.events)
    assert [e["name"] for e in of(p.events, "launch")] == ["tanh", "exp", "exp"]


# ---------------------------------------------------------------- off


def test_nothing_outside(dy: Any) -> None:
    program = Program(dy)
    with dy.profile() as first:
        program.step()
    counted = len(first.events)
    program.step()
    assert dy._core._profile_stop() == []
    with dy.profile() as second:
        pass
    assert second.events == [] and len(first.events) == counted
    assert repr(second) == "<profile: 0 launches, 1 thread>"
    assert "0 launches of 0 nodes" in second.summary()


def test_same_results(dy: Any) -> None:
    plain = [Program(dy).step() for _ in range(2)]
    program = Program(dy)
    with dy.profile(functions=True):
        first = program.step()
    assert first == plain[0] == plain[1]


# ---------------------------------------------------------------- threads


def test_threads_have_tracks_of_their_own(dy: Any, tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def work(count: int) -> None:
        try:
            program = Program(dy)
            for _ in range(count):
                program.step()
        except BaseException as error:  # noqa: B036 - told below
            errors.append(error)

    path = tmp_path / "trace.json"
    with dy.profile(path) as p:
        threads = [threading.Thread(target=work, args=(n,), name=f"worker {n}") for n in (2, 3)]
        for thread in threads:
            thread.start()
        work(1)
        for thread in threads:
            thread.join()
    assert not errors
    metadata = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "M"]
    names = {e["pid"]: e["args"]["name"] for e in metadata if e["name"] == "process_name"}
    assert names[1] == "MainThread" and set(names.values()) == {"MainThread", "worker 2", "worker 3"}
    check_tracks(p.events)
    for number, name in names.items():
        backward = [e for e in of(p.events, "backward") if e["pid"] == number]
        assert len(backward) == (1 if name == "MainThread" else int(name[-1]))
    assert all(name in p.summary() for name in names.values())


def test_a_thread_that_goes_on(dy: Any) -> None:
    """It is computing when the profile ends, and afterwards belongs to none, or to the next one."""
    done, ready = threading.Event(), threading.Event()

    def work() -> None:
        program = Program(dy)
        while not done.is_set():
            program.step()
            ready.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(6):
            ready.clear()
            with dy.profile() as p:
                assert ready.wait(60)
                ready.clear()
                assert ready.wait(60)
            check_tracks(p.events)
            assert of(p.events, "launch")
    finally:
        done.set()
        thread.join()


# ---------------------------------------------------------------- instances on fibers


@pytest.mark.parametrize("steps", [[3], [1, 2, 3, 4]])
def test_batch_map(dy: Any, steps: list[int]) -> None:
    """Instances that wait for values are no calls inside one another; one flush serves all that wait."""
    pc = dy.ParameterCollection()
    W = pc.add_parameters((2, 2))

    def decode(count: int) -> float:
        h = dy.inputVector([count, 1])
        for _ in range(count):
            h = dy.tanh(W * h)
            if h.npvalue()[0] > 9:
                break
        return float(dy.sum_elems(h).value())

    dy.renew_cg()
    with dy.profile() as p:
        dy.batch_map(decode, steps)
    check_tracks(p.events)
    assert len(of(p.events, "plan")) == max(steps) + 1
    nodes = sum(e["args"]["nodes"] for e in of(p.events, "plan"))
    assert nodes == sum(e["args"]["batch"] for e in of(p.events, "launch")) == 2 * sum(steps) + len(steps)
    assert sum(e["args"]["nodes"] for e in of(p.events, "record")) == dy._core.cg_size()
    busy = sorted(of(p.events, "record", "call"), key=lambda e: e["ts"])
    for first, second in zip(busy, busy[1:]):
        assert first["ts"] + first["dur"] <= second["ts"] + EPSILON
    plan = dy.cg().batch_plan()
    assert len(plan.flushes) == max(steps) + 1 and all(line for line in plan.flushes)


def test_nodes_recorded_by_the_dozen(dy: Any) -> None:
    """Builders and templates record several nodes at once: all are counted."""
    program = Program(dy)
    with dy.profile() as p:
        for _ in range(3):
            dy.renew_cg()
            program.loss().value()
    sizes = [0] * 4
    for event in of(p.events, "record"):
        sizes[event["args"]["graph"] - p.events[0]["args"]["graph"]] += event["args"]["nodes"]
    assert [s for s in sizes if s] == [dy._core.cg_size()] * 3


# ---------------------------------------------------------------- functions of the script


def test_functions(dy: Any) -> None:
    program = Program(dy)

    def inner() -> None:
        program.step()

    def numbers() -> Any:
        yield 1
        yield 2

    def outer() -> None:
        inner()
        json.dumps({"a": 1})  # the library's functions are left out
        assert sum(numbers()) == 3
        with pytest.raises(ZeroDivisionError):
            fails()

    def fails() -> None:
        raise ZeroDivisionError

    with dy.profile(functions=True) as p:
        outer()
    assert sys.getprofile() is None
    check_tracks(p.events)
    found = [e["name"] for e in of(p.events, "function")]
    assert found == ["outer", "inner", "step", "loss", "numbers", "numbers", "numbers", "fails"]
    step = next(e for e in of(p.events, "function") if e["name"] == "step")
    assert step["args"]["file"] == __file__ and step["args"]["line"] == line_of(Program.step, "def step")
    assert all(inside(e, step) for e in of(p.events, "call"))


def test_functions_of_threads(dy: Any) -> None:
    def work() -> None:
        Program(dy).step()

    with dy.profile(functions=True) as p:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    check_tracks(p.events)
    assert {e["name"] for e in of(p.events, "function")} >= {"work", "step"}
    assert len({e["pid"] for e in of(p.events, "function") if e["name"] in ("work", "step")}) == 1


def test_functions_of_a_thread_that_goes_on(dy: Any) -> None:
    """The hook goes away there, too, when it is called next."""
    done, ready = threading.Event(), threading.Event()
    hooks: list[Any] = []

    def step() -> None:
        ready.set()

    def work() -> None:
        while not done.is_set():
            step()
        step()
        hooks.append(sys.getprofile())

    with dy.profile(functions=True) as p:
        thread = threading.Thread(target=work)
        thread.start()
        assert ready.wait(60)
    count = len(p.events)
    done.set()
    thread.join()
    assert hooks == [None] and len(p.events) == count
    check_tracks(p.events)


def test_limit_of_functions(dy: Any) -> None:
    def f() -> None: ...

    with dy.profile(functions=True, limit=5) as p:
        for _ in range(8):
            f()
    assert len(of(p.events, "function")) == 5 and "3 are missing" in p.summary()


def test_functions_and_another_profiler(dy: Any) -> None:
    def other(*args: Any) -> None: ...

    sys.setprofile(other)
    try:
        with pytest.raises(RuntimeError, match="another profiler is active"):
            dy.profile(functions=True).start()
        assert sys.getprofile() is other
    finally:
        sys.setprofile(None)
    with dy.profile():  # it has not begun
        pass


def test_left_by_a_function_that_began_inside(dy: Any) -> None:
    p = dy.profile(functions=True)

    def begins() -> None:
        p.start()

    def ends() -> None:
        p.stop()

    begins()
    ends()
    assert [e["name"] for e in of(p.events, "function")] == ["ends"]


# ---------------------------------------------------------------- the summary


def test_summary(dy: Any) -> None:
    program = Program(dy)
    with dy.profile() as p:
        for _ in range(4):
            program.step()
    text = p.summary()
    for word in ("record", "plan", "forward", "backward", "update", "own Python", "matmul", "Gflop/s"):
        assert word in text
    assert "nodes in a launch, launches" in text and f"{os.path.basename(__file__)}:" in text
    shares = [float(line.split()[-1][:-1]) for line in text.split("\n\n")[1].splitlines()[1:]]
    assert abs(sum(shares) - 100) < 0.5
    rows = text.split("nodes in a launch, launches\n")[1].split("\n\n")[0].splitlines()
    launches = len(of(p.events, "launch", "back_launch"))
    assert sum(int(row.split()[1]) for row in rows) == launches
    assert f"{launches} launches of" in text
    assert len(p.summary(top=1).splitlines()) < len(text.splitlines())
    assert p._repr_html_().startswith("<pre>profile of")


# ---------------------------------------------------------------- its place in the package


def test_not_in_a_star_import() -> None:
    code = "profile = 1\nfrom dynet_compat import *\nassert profile == 1\n"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_public_path(dy: Any) -> None:
    from dynet_compat import profiler

    assert profiler.profile is dy.profile and profiler.Profile is dy.Profile


def test_not_in_model_files(dy: Any, tmp_path: Path) -> None:
    import pickle

    for name in ("profile", "Profile"):
        (tmp_path / "m.meta").write_bytes(b"cdynet_compat\n" + name.encode() + b"\n.")
        (tmp_path / "m.data").write_bytes(b"")
        with pytest.raises(pickle.UnpicklingError, match="no class or function"):
            dy.load(str(tmp_path / "m"), dy.ParameterCollection())
