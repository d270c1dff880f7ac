"""What is written down while a script runs. Runs under Python 3.8 as well; see `recorder.py`.

Files in the folder of a run: those of `event_files.py`, `initial.npz` and `final.npz` (parameters),
`result.json` (times and counts; missing when the process died).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from typing import Any, Callable, Optional

import numpy as np
import reading  # type: ignore[import-not-found,unused-ignore]
from event_files import EventFiles  # type: ignore[import-not-found,unused-ignore]

clock = time.perf_counter
READ, LOSS, UPDATE = range(3)  # kinds of events
MOST_CALLS = 100000
ALL_READS = 50000  # of single numbers; then every second one is written down, every fourth, ...
_COUNTING = 0.1  # seconds in which launches are counted
_NUMBERED = 10000  # events whose expression's number is written down


class LastStepReached(BaseException):
    """Ends a script after --steps, or where a trace ends."""


class RunCounts:
    """What the script has done so far.

    Attributes:
        inside: is a call of the library running?
        calls: number of ops, up to MOST_CALLS; hash of their names, lines and whole numbers.
        reads: how often a single number was read; up to how many reads one of so many is written down; this
            number. It depends on the number of reads alone, so that both sides take the same ones.
        taken: how many were written down.
        numbering: have events the numbers of their expressions, which take time?
        cut: did the log end the script?
    """

    def __init__(self) -> None:
        self.inside = [False]
        self.calls = [0, 0]
        self.step = self.graph = self.backwards = self.events = self.trainers = 0
        self.reads = [0, ALL_READS, 1]
        self.taken = 0
        self.random_ops: list[str] = []
        self.losses: list[float] = []
        self.autobatch = self.cut = False
        self.numbering = True


class Times:
    """Clocks of a run, and the file that says how far it is.

    Attributes:
        seconds: kind of call -> [seconds, calls].
        hidden: seconds spent in the log, not in the script.
    """

    def __init__(self, out: str) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.started = self.first_use = 0.0
        self.hidden = 0.0
        self.next_shown = 0.0
        self.progress = os.open(os.path.join(out, "progress"), os.O_WRONLY | os.O_CREAT)

    def cell(self, kind: str) -> list[float]:
        """What calls of this kind add their time to."""
        return self.seconds.setdefault(kind, [0.0, 0])

    def show(self, step: int, now: bool = False) -> None:
        """Say how far the script is: now, or from time to time."""
        time_ = clock()
        if now or time_ >= self.next_shown:
            self.next_shown = time_ + 0.2
            os.pwrite(self.progress, f"{step:<12d}".encode(), 0)


class ParameterLog:
    """The parameters of the script.

    Attributes:
        collections: of the script, in the order in which it makes them.
        saved: were the initial values written?
    """

    def __init__(self, out: str) -> None:
        self.out = out
        self.collections: list[Any] = []
        self.saved = False

    def all(self) -> list[tuple[str, Any]]:
        """Names and parameters."""
        found = []
        for number, collection in enumerate(self.collections):
            prefix = "" if number == 0 else f"model {number + 1}: "
            both = list(collection.parameters_list()) + list(collection.lookup_parameters_list())
            found += [(prefix + p.name(), p) for p in both]
        return found

    def norms(self) -> np.ndarray:
        """Of gradients and parameters."""
        both: np.ndarray = np.concatenate([self.norms_of("grad_as_array"), self.norms_of("as_array")])
        return both

    def norms_of(self, method: str) -> np.ndarray:
        """The l2 norm of each parameter or gradient."""
        each = [np.linalg.norm(getattr(p, method)().ravel()) for _, p in self.all()]
        norms: np.ndarray = np.array(each, dtype=np.float32)
        return norms

    def save(self, name: str) -> None:
        """Write the values to a file."""
        arrays = {n: np.asarray(p.as_array(), dtype=np.float32) for n, p in self.all()}
        numbered = {f"p{i}": array for i, array in enumerate(arrays.values())}
        np.savez(os.path.join(self.out, name), names=np.array(list(arrays)), **numbered)

    def save_initial(self) -> None:
        """Values before the first one is computed."""
        if not self.saved:
            self.saved = True
            self.save("initial.npz")


class Launches:
    """Launches of our engine in the graphs of the first steps: as many as can be counted in a moment.

    Attributes:
        core: the engine; None on the other side.
        steps: how many are counted; None: all.
        sizes: nodes in a launch -> how many launches.
        of_ops: op -> [nodes, launches].
    """

    def __init__(self) -> None:
        self.core: Any = None
        self.steps: Optional[int] = None
        self.spent = 0.0
        self.last_step = 0
        self.sizes: dict[int, int] = {}
        self.of_ops: dict[str, list[int]] = {}

    def count(self, step: int) -> None:
        """Those of the graph that ends now, in this step."""
        if self.steps is not None or self.core is None:
            return
        if step > self.last_step and self.spent > _COUNTING:
            self.steps = step
            return
        self.last_step = step
        begun = clock()
        for row in self.core.plan_table():
            members = int(row["members"])
            self.sizes[members] = self.sizes.get(members, 0) + 1
            of_op = self.of_ops.setdefault(row["op"], [0, 0])
            of_op[0] += members
            of_op[1] += 1
        self.spent += clock() - begun


class EventLog:
    """What one run did and what is written of it.

    Attributes:
        toolkit: the library that the script has imported.
        shadow: takes what the script writes; see redirect.py.
        kept: of a trace: name, place, result and arguments of the calls of its graph.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.mode: str = spec["mode"]
        self.toolkit: Any = None
        self.shadow: Any = None
        self.files = EventFiles(spec["out"])
        self.counts = RunCounts()
        self.times = Times(spec["out"])
        self.parameters = ParameterLog(spec["out"])
        self.launches = Launches()
        self.kept: list[tuple[str, int, Any, tuple[Any, ...]]] = []
        self.samplers = {name: reading.Sampler(name, self) for name in ("arrays", "updates")}
        self.pid = os.getpid()
        os.register_at_fork(after_in_child=self.stop)

    @property
    def focus(self) -> dict[str, Any]:
        """Of a trace: which graph and event."""
        return self.spec.get("focus") or {}

    def writes(self) -> bool:
        """Are events written?"""
        return self.mode in ("check", "trace")

    def begin(self) -> None:
        """The script starts now."""
        if self.writes():
            self.files.begin()
        self.times.started = clock()

    def stop(self) -> None:
        """In a child that the script forks: hooks see nothing, and nothing is written."""
        self.counts.inside[0] = True

    def event(self, kind: int, name: str, frame: Any, numbers: np.ndarray, expression: Any) -> None:
        """One more event, with its numbers."""
        files, counts = self.files, self.counts
        start = files.next_number
        size = files.store(numbers)
        row = (kind, files.number_of(name), files.place(frame), counts.step, counts.graph)
        self.add_event((*row, *counts.calls, start, size), expression)

    def add_event(self, row: Iterable[int], expression: Any) -> None:
        """One more event: its row without the number of the expression."""
        tracing, counts = self.mode == "trace", self.counts
        node = reading.node_of(expression)
        counts.numbering = tracing or counts.events < _NUMBERED
        self.files.rows.extend(row)
        self.files.rows.append(-1 if node is None else node)
        if tracing and counts.events == self.focus["event"]:
            self.write_trace(node)
        counts.events += 1
        self.files.flush_full()

    def end_of_step(self, step: int) -> None:
        self.counts.step = step
        self.times.show(step)
        most = int(self.spec.get("steps") or 0)
        if most and step >= most:
            self.counts.cut = True
            raise LastStepReached

    # ------------------------------------------------------------ traces

    def write_trace(self, last: Optional[int]) -> None:
        """Every expression of the graph up to the event's, with its value (and gradient)."""
        self.parameters.save("trace.npz")
        for number, (name, place, out, args) in enumerate(self.kept):
            results = reading.expressions_of(out)
            rows = []
            for expression in results:
                node = reading.node_of(expression)
                if node is None or (last is not None and node > last):
                    continue
                rows.append([node, *self.measured(expression, "npvalue")])
                if self.focus.get("gradients"):
                    rows[-1] += self.measured(expression, "gradient")
            taken = [reading.describe_argument(arg) for arg in args]
            self.files.write(["traced", number, name, place, rows, taken])
        self.files.flush()
        self.counts.cut = True
        raise LastStepReached

    def measured(self, expression: Any, method: str) -> list[int]:
        """Where the numbers begin in values.bin, and how many there are: -1 for none."""
        start = self.files.next_number
        try:
            return [start, self.files.store(reading.flat(getattr(expression, method)()))]
        except Exception:  # an expression that cannot be read any more has no part in the trace
            return [0, -1]

    # ------------------------------------------------------------ end

    def finish(
        self, how: str, crash: Optional[dict[str, Any]], start: float, cost: Callable[[], dict[str, float]]
    ) -> None:
        """Writes everything that is not written yet. `cost`: measures what a hook of an op costs."""
        end = clock()
        self.counts.inside[0] = True
        if self.writes():
            if self.toolkit is not None and self.mode == "check":
                try:
                    self.parameters.save_initial()
                    self.parameters.save("final.npz")
                except Exception as error:  # a crashed library may refuse; the rest is written
                    crash = crash or {"error": str(error), "line": None, "traceback": ""}
            self.files.flush()
            self.files.stream.close()
        counts, times = self.counts, self.times
        result: dict[str, Any] = {
            "how": how, "crash": crash, "steps": counts.step, "backwards": counts.backwards,
            "graphs": counts.graph, "ops": counts.calls[0], "random_ops": counts.random_ops,
            "autobatch": counts.autobatch, "seconds": times.seconds, "hidden": times.hidden,
            "wall": end - times.started, "processor": time.process_time(),
            "startup": (times.first_use or end) - times.started,
            "interpreter": times.started - start, "losses": counts.losses,
            "imported": self.toolkit is not None,
            "most_calls": MOST_CALLS,
            "counts": {
                "numbers": [counts.taken, counts.reads[0]],
                **{name: sampler.counts() for name, sampler in self.samplers.items()},
            },
            "library": reading.toolkit_version(self.toolkit),
            "hints": reading.hints(),
            "memory": reading.peak_memory(), "python": sys.version.split()[0], "numpy": np.__version__,
        }  # fmt: skip
        if self.mode == "profile":
            self.launches.count(counts.step)
            result["launch_steps"] = counts.step if self.launches.steps is None else self.launches.steps
            result["launches"] = sorted(self.launches.sizes.items())
            result["launched_ops"] = self.launches.of_ops
            core = self.launches.core
            result["engine"] = dict(core.timing()) if core is not None else {}
            result["hook"] = cost()
        temporary = os.path.join(self.spec["out"], "result.part")
        with open(temporary, "w", encoding="utf-8") as stream:
            json.dump(result, stream)
        os.replace(temporary, os.path.join(self.spec["out"], "result.json"))
        times.show(counts.step, now=True)
