"""What is written down while a script runs. Runs under Python 3.8 as well; see `recorder.py`.

Files in the folder of a run: `events.bin` (ten int64 of each event), `values.bin` (float32), `texts.jsonl`
(lines, names, traced calls: one list per line), `initial.npz` and `final.npz` (parameters), `result.json`
(times and counts; missing when the process died).
"""

from __future__ import annotations

import json
import os
import sys
import time
import types
from array import array
from collections.abc import Iterable
from typing import Any, Callable, Optional

import instrument  # type: ignore[import-not-found,unused-ignore]
import numpy as np
import reading  # type: ignore[import-not-found,unused-ignore]

_clock = time.perf_counter
_getframe = sys._getframe
_MASK = (1 << 61) - 1
READ, LOSS, UPDATE = range(3)  # kinds of events
_FULL = 1 << 16  # numbers in a buffer
_NUMBERED = 10000  # events whose expression's number is written down


class LastStepReached(BaseException):
    """Ends a script after --steps, or where a trace ends."""


class EventLog:
    """Hooks of one run and what they wrote."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.mode: str = spec["mode"]
        self.out: str = spec["out"]
        self.most_steps = int(spec.get("steps") or 0)
        self.focus: dict[str, Any] = spec.get("focus") or {}
        self.toolkit: Any = None
        self.core: Any = None  # ours: the engine, which counts launches
        self.autobatch = self.cut = False
        self.random_ops: list[str] = []
        self.inside = [False]
        self.calls = [0, 0]  # ops so far, hash of their names, lines and whole numbers
        self.step = self.graph = self.backwards = self.events = self.trainers = 0
        self.collections: list[Any] = []
        self.seconds: dict[str, list[float]] = {}  # kind -> [seconds, calls]
        self.launches: dict[int, int] = {}  # nodes in a launch -> how many launches
        self.launched_ops: dict[str, list[int]] = {}
        self.losses: list[float] = []
        self.places: dict[tuple[str, int], int] = {}
        self.wrapped: dict[int, Any] = {}
        self.kept: list[tuple[str, int, Any, tuple[Any, ...]]] = []
        self.started = self.first_use = self.first_step = 0.0
        self.hidden = 0.0  # seconds spent in the log, not in the script
        self.next_progress = 0.0
        self.stream: Any = None
        self.rows, self.numbers = array("q"), array("f")  # of events, and their values, not written yet
        self.written = 0  # numbers in values.bin
        self.names: dict[str, int] = {}
        self.codes: list[Any] = []  # keeps the numbers of code objects their own
        self.numbering = True  # whether events have the numbers of their expressions, which take time
        self.samplers = {name: reading.Sampler(name, self) for name in ("arrays", "updates")}
        self.pid = os.getpid()
        os.register_at_fork(after_in_child=self.stop)
        self.own_code: dict[Any, bool] = {}
        self.shadow: Any = None  # takes what the script writes; see redirect.py
        self.progress = os.open(os.path.join(self.out, "progress"), os.O_WRONLY | os.O_CREAT)
        self.initial_saved = False

    def begin(self) -> None:
        """The script starts now."""
        if self.mode in ("check", "trace"):
            self.stream = open(os.path.join(self.out, "texts.jsonl"), "w", encoding="utf-8")
            for name, number in self.names.items():  # of a library that was imported before
                self.write(["name", number, name])
        self.started = _clock()

    def stop(self) -> None:
        """In a child that the script forks: hooks see nothing, and nothing is written."""
        self.inside[0] = True

    # ------------------------------------------------------------ hooks

    def instrument(self, modules: list[types.ModuleType], side: str) -> None:
        """Hook the functions and classes of the modules."""
        if side == "ours" and self.core is None:
            self.core = getattr(sys.modules["dynet_compat"], "_core", None)
        for module in modules:
            space = vars(module)
            for name, value in list(space.items()):
                if isinstance(value, type):
                    self.hook_class(value)
                elif callable(value) and not isinstance(value, types.ModuleType):
                    kind = instrument.kind_of_function(name)
                    if kind and str(getattr(value, "__module__", "") or "_dynet").startswith(
                        ("_dynet", "dynet", "_gdynet")
                    ):
                        space[name] = self.hook(value, kind, name, None)
        inner = [v for v in vars(modules[0]).values() if isinstance(v, type)]
        for cls in inner:
            for base in cls.__mro__[1:-1]:
                self.hook_class(base)

    def hook_class(self, cls: Any) -> None:
        if id(cls) in self.wrapped:
            return
        self.wrapped[id(cls)] = cls
        for name, kind in instrument.kinds_of_class(cls).items():
            original = cls.__dict__.get(name)
            if original is None and kind == instrument.TRAINER and cls.__name__ == "Trainer":
                original = nothing  # DyNet's trainers are complete after __new__
            if original is not None and not isinstance(original, (classmethod, staticmethod)):
                hook = self.hook(original, kind, name, cls)
                if hook is not original:
                    instrument.patch(cls, name, hook)

    def hook(self, original: Any, kind: str, name: str, cls: Any) -> Any:
        """What to put in the place of a function: the same function where nothing is to be seen."""
        if id(original) in self.wrapped:
            return self.wrapped[id(original)]
        shown = instrument.display_name(instrument.common_name(name), cls)
        made = original
        if kind == instrument.OP:
            if self.spec.get("hints"):
                return original  # a region takes the place of such calls
            if self.mode == "profile":
                made = self.timed(original, "record")
            elif self.mode in ("check", "trace"):
                made = self.op_hook(original, instrument.common_name(name), shown)
        elif kind == instrument.COLLECT:
            made = self.collect_hook(original)
        elif kind == instrument.TRAINER:
            made = self.trainer_hook(original)
        elif kind == instrument.RANDOM:
            made = self.random_hook(original, shown)
        elif kind == instrument.FORWARD:
            made = self.around(original, "forward", nothing)
        elif kind == instrument.FILE:
            made = self.file_hook(original, name.startswith("save"), 0 if cls is None else 1)
        else:
            maker = {instrument.READ: self.read_hook, instrument.BACKWARD: self.backward_hook}
            maker.update({instrument.UPDATE: self.update_hook, instrument.RENEW: self.renew_hook})
            made = maker[kind](original, shown)
        if made is not original:
            made.__name__ = getattr(original, "__name__", name)
            made.__doc__ = getattr(original, "__doc__", None)
            self.wrapped[id(made)] = made
        self.wrapped[id(original)] = made
        self.wrapped[-id(original)] = original  # keeps it alive, and its id its own
        return made

    def timed(self, original: Any, kind: str) -> Callable[..., Any]:
        """Adds the time of the calls that the script makes to a kind."""
        inside, cell = self.inside, self.seconds.setdefault(kind, [0.0, 0])

        def hook(*args: Any, **kwargs: Any) -> Any:
            if inside[0]:
                return original(*args, **kwargs)
            inside[0] = True
            start = _clock()
            try:
                return original(*args, **kwargs)
            finally:
                cell[0] += _clock() - start
                cell[1] += 1
                inside[0] = False

        return hook

    def around(
        self,
        original: Any,
        kind: str,
        after: Callable[..., None],
        before: Optional[Callable[..., Any]] = None,
    ) -> Callable[..., Any]:
        """A timed call with something to do before and after, whose time is not the script's."""
        inside, cell = self.inside, self.seconds.setdefault(kind, [0.0, 0])

        def hook(*args: Any, **kwargs: Any) -> Any:
            if inside[0]:
                return original(*args, **kwargs)
            inside[0] = True
            if not self.first_use:
                self.first_use = _clock()
            try:
                if before:
                    entered = _clock()
                    kwargs = before(args, kwargs) or kwargs
                    self.hidden += _clock() - entered
                start = _clock()
                try:
                    out = original(*args, **kwargs)
                finally:
                    end = _clock()
                    cell[0] += end - start
                    cell[1] += 1
                after(out, args, kwargs)
                self.hidden += _clock() - end
                return out
            finally:
                inside[0] = False

        return hook

    def op_hook(self, original: Any, name: str, shown: str) -> Callable[..., Any]:
        inside, calls = self.inside, self.calls
        code = sum(ord(c) * 257**i for i, c in enumerate(name)) & _MASK
        is_random, tracing = name in instrument.RANDOM_OPS, self.mode == "trace"

        def hook(*args: Any, **kwargs: Any) -> Any:
            if inside[0]:
                return original(*args, **kwargs)
            inside[0] = True
            try:
                out = original(*args, **kwargs)
                digest = calls[1] * 1000003 + code + _getframe(1).f_lineno
                for arg in args:
                    if type(arg) is int:
                        digest = digest * 31 + arg
                    elif type(arg) is list and arg and type(arg[0]) is int:
                        digest = digest * 31 + hash(tuple(arg))
                calls[1] = digest & _MASK
                calls[0] += 1
                if is_random and shown not in self.random_ops:
                    self.random_ops.append(shown)
                if tracing and self.graph == self.focus["graph"]:
                    self.kept.append((shown, self.place(_getframe(1)), out, args))
                return out
            finally:
                inside[0] = False

        return hook

    def random_hook(self, original: Any, shown: str) -> Callable[..., Any]:
        def hook(*args: Any, **kwargs: Any) -> Any:
            if any(args[1:]) or any(kwargs.values()):
                name = type(args[0]).__name__ + "." + shown
                if name not in self.random_ops:
                    self.random_ops.append(name)
            return original(*args, **kwargs)

        return hook

    def collect_hook(self, original: Any) -> Callable[..., Any]:
        def hook(collection: Any, *args: Any, **kwargs: Any) -> Any:
            done = original(collection, *args, **kwargs)
            if not any(a is not None for a in args) and not any(v is not None for v in kwargs.values()):
                self.collections.append(collection)
            return done

        return hook

    def file_hook(self, original: Any, saves: bool, at: int) -> Callable[..., Any]:
        """Leads the library's own files, which Python does not see, into the shadow."""
        shadow = self.shadow
        if shadow is None:
            return original  # type: ignore[no-any-return]

        def hook(*args: Any, **kwargs: Any) -> Any:
            given = list(args)
            named = [key for key in ("fname", "basename", "path") if key in kwargs]
            if len(given) > at:
                given[at] = shadow.for_library(given[at], saves)
            elif named:
                kwargs[named[0]] = shadow.for_library(kwargs[named[0]], saves)
            return original(*given, **kwargs)

        return hook

    def trainer_hook(self, original: Any) -> Callable[..., Any]:
        def hook(*args: Any, **kwargs: Any) -> Any:
            self.trainers += 1
            return original(*args, **kwargs)

        return hook

    def renew_hook(self, original: Any, shown: str) -> Callable[..., Any]:
        def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
            self.count_launches()
            self.graph += 1
            if kwargs.get("autobatching"):
                self.autobatch = True
                if self.spec.get("unbatched"):
                    return {**kwargs, "autobatching": False}
            return kwargs

        return self.around(original, "record", lambda *_: None, before)

    def read_hook(self, original: Any, shown: str) -> Callable[..., Any]:
        if self.mode not in ("check", "trace"):
            return self.timed(original, "forward")
        inside, calls, rows, numbers = self.inside, self.calls, self.rows, self.numbers
        known: dict[tuple[int, int], array[int]] = {}  # number of a code object, line -> row of its reads
        name, sampler = self.number_of(shown), self.samplers["arrays"]

        def hook(*args: Any, **kwargs: Any) -> Any:
            if inside[0]:
                return original(*args, **kwargs)
            inside[0] = True
            try:
                if not self.initial_saved:
                    self.save_initial()
                out = original(*args, **kwargs)
                start, size = self.written + len(numbers), 1
                if type(out) is float:
                    numbers.append(out)
                else:
                    size = sampler.take(lambda: self.store(reading.flat(out)))
                    if size is None or size < 0:
                        return out
                frame = _getframe(1)
                row = known.get((id(frame.f_code), frame.f_lineno))
                if row is None:
                    row = self.row_of_line(frame, name, known)
                row[3], row[4], row[5], row[6] = self.step, self.graph, calls[0], calls[1]
                row[7], row[8] = start, size
                if self.numbering:
                    self.add_event(row[:-1], args[0] if args else None)
                    return out
                rows.extend(row)  # an array, which is copied as a whole
                self.events += 1
                if len(rows) > _FULL or len(numbers) > _FULL:
                    self.flush()
                return out
            finally:
                inside[0] = False

        return hook

    def backward_hook(self, original: Any, shown: str) -> Callable[..., Any]:
        def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Optional[dict[str, Any]]:
            self.save_initial()
            if self.focus.get("gradients") and self.events == self.focus["event"]:
                return {**kwargs, "full": True}
            return None

        def after(out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self.backwards += 1
            if hasattr(args[0], "scalar_value"):
                loss = float(args[0].scalar_value())
            else:
                loss = float(args[0].inc_forward_scalar(args[1]))
            if len(self.losses) < 1000000:
                self.losses.append(loss)
            if self.stream:
                frame = _getframe(2)
                self.event(LOSS, "backward", frame, np.float32([loss]), args[0])
                norms = None if self.trainers else self.samplers["updates"].take(self.norms)
                if norms is not None:  # no update shows the gradients
                    self.event(UPDATE, "backward", frame, norms, None)
                self.flush()
            if not self.trainers:
                self.end_of_step(self.backwards)

        return self.around(original, "backward", after, before)

    def update_hook(self, original: Any, shown: str) -> Callable[..., Any]:
        norms: list[np.ndarray] = []
        sampler = self.samplers["updates"]

        def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            norms.clear()
            if self.stream:
                gradients = sampler.take(lambda: self.norms_of("grad_as_array"))
                norms.extend([] if gradients is None else [gradients])

        def after(out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self.stream:
                if norms:
                    begun = _clock()
                    both = np.concatenate([norms[0], self.norms_of("as_array")])
                    self.event(UPDATE, type(args[0]).__name__ + ".update", _getframe(2), both, None)
                    sampler.spent += _clock() - begun
                self.flush()
            self.end_of_step(self.step + 1)

        return self.around(original, "update", after, before)

    # ------------------------------------------------------------ writing

    def place(self, frame: Any) -> int:
        """Number of the line of the script that called the library."""
        here = os.path.dirname(os.path.abspath(__file__))
        while frame is not None:
            code = frame.f_code
            known = self.own_code.get(code)
            if known is None:
                known = os.path.dirname(os.path.abspath(code.co_filename)) == here
                known = known or "site-packages" in code.co_filename or "dynet_compat" in os.path.dirname(
                    os.path.dirname(code.co_filename)).split(os.sep)[-1:]  # fmt: skip
                self.own_code[code] = known
            if not known:
                break
            frame = frame.f_back
        key = (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("?", 0)
        number = self.places.get(key)
        if number is None:
            number = self.places[key] = len(self.places)
            if self.stream:
                self.write(["place", number, key[0], key[1]])
        return number

    def row_of_line(self, frame: Any, name: int, known: dict[tuple[int, int], array[int]]) -> array[int]:
        """A row for the reads of a line, without what differs, and remembers it."""
        row = array("q", [READ, name, self.place(frame), 0, 0, 0, 0, 0, 0, -1])
        if not self.own_code.get(frame.f_code):  # of the library's lines each has many callers
            self.codes.append(frame.f_code)
            known[id(frame.f_code), frame.f_lineno] = row
        return row

    def write(self, row: list[Any]) -> None:
        self.stream.write(json.dumps(row) + "\n")

    def number_of(self, name: str) -> int:
        """Number of a name in the events."""
        number = self.names.get(name)
        if number is None:
            number = self.names[name] = len(self.names)
            if self.stream:
                self.write(["name", number, name])
        return number

    def store(self, numbers: Optional[np.ndarray]) -> int:
        """Appends numbers to those of values.bin; how many, -1 if they are none."""
        if numbers is None:
            return -1
        self.numbers.frombytes(np.ascontiguousarray(numbers, dtype=np.float32).tobytes())
        return int(numbers.size)

    def event(self, kind: int, name: str, frame: Any, numbers: np.ndarray, expression: Any) -> None:
        start = self.written + len(self.numbers)
        size = self.store(numbers)
        place = self.place(frame)
        row = (kind, self.number_of(name), place, self.step, self.graph, *self.calls, start, size)
        self.add_event(row, expression)

    def add_event(self, row: Iterable[int], expression: Any) -> None:
        """One more event: its row without the number of the expression."""
        tracing = self.mode == "trace"
        node = reading.node_of(expression)
        self.numbering = tracing or self.events < _NUMBERED
        self.rows.extend(row)
        self.rows.append(-1 if node is None else node)
        if tracing and self.events == self.focus["event"]:
            self.write_trace(node)
        self.events += 1
        if len(self.rows) > _FULL or len(self.numbers) > _FULL:
            self.flush()

    def flush(self) -> None:
        """Writes what is in the buffers: what a crash must not lose."""
        self.stream.flush()
        for name, buffer in (("values.bin", self.numbers), ("events.bin", self.rows)):
            with open(os.path.join(self.out, name), "ab") as file:
                buffer.tofile(file)
        self.written += len(self.numbers)
        del self.numbers[:], self.rows[:]

    def end_of_step(self, step: int) -> None:
        self.step = step
        now = _clock()
        if now >= self.next_progress:
            self.next_progress = now + 0.2
            os.pwrite(self.progress, f"{step:<12d}".encode(), 0)
        if self.most_steps and step >= self.most_steps:
            self.cut = True
            raise LastStepReached

    def parameters(self) -> list[tuple[str, Any]]:
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
        each = [np.linalg.norm(getattr(p, method)().ravel()) for _, p in self.parameters()]
        norms: np.ndarray = np.array(each, dtype=np.float32)
        return norms

    def save_parameters(self, name: str) -> None:
        arrays = {n: np.asarray(p.as_array(), dtype=np.float32) for n, p in self.parameters()}
        numbered = {f"p{i}": array for i, array in enumerate(arrays.values())}
        np.savez(os.path.join(self.out, name), names=np.array(list(arrays)), **numbered)

    def save_initial(self) -> None:
        """Parameters before the first value is computed."""
        if self.stream and not self.initial_saved:
            self.initial_saved = True
            self.save_parameters("initial.npz")

    def count_launches(self) -> None:
        """Ours: the launches of the graph that ends now."""
        if self.mode != "profile" or self.core is None:
            return
        for row in self.core.plan_table():
            members = int(row["members"])
            self.launches[members] = self.launches.get(members, 0) + 1
            of_op = self.launched_ops.setdefault(row["op"], [0, 0])
            of_op[0] += members
            of_op[1] += 1

    # ------------------------------------------------------------ traces

    def write_trace(self, last: Optional[int]) -> None:
        """Every expression of the graph up to the event's, with its value (and gradient)."""
        self.save_parameters("trace.npz")
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
            self.write(["traced", number, name, place, rows, taken])
        self.flush()
        self.cut = True
        raise LastStepReached

    def measured(self, expression: Any, method: str) -> list[int]:
        """Where the numbers begin in values.bin, and how many there are: -1 for none."""
        start = self.written + len(self.numbers)
        try:
            return [start, self.store(reading.flat(getattr(expression, method)()))]
        except Exception:  # an expression that cannot be read any more has no part in the trace
            return [0, -1]

    # ------------------------------------------------------------ end

    def hook_cost(self) -> dict[str, float]:
        """Seconds per call that the hook of an op adds, and that it counts as the library's."""
        cell = self.seconds.setdefault("record", [0.0, 0])
        saved = list(cell)
        self.inside[0] = False
        added, counted = instrument.cost_per_call(lambda bare: self.timed(bare, "record"), cell)
        self.inside[0] = True
        cell[:] = saved
        return {"per_call": added, "counted": counted}

    def finish(self, how: str, crash: Optional[dict[str, Any]], start: float) -> None:
        """Writes everything that is not written yet."""
        end = _clock()
        self.inside[0] = True
        self.count_launches()
        if self.stream:
            if self.toolkit is not None and self.mode == "check":
                try:
                    self.save_initial()
                    self.save_parameters("final.npz")
                except Exception as error:  # a crashed library may refuse; the rest is written
                    crash = crash or {"error": str(error), "line": None, "traceback": ""}
            self.flush()
            self.stream.close()
        result: dict[str, Any] = {
            "how": how, "crash": crash, "steps": self.step, "backwards": self.backwards,
            "graphs": self.graph, "ops": self.calls[0], "random_ops": self.random_ops,
            "autobatch": self.autobatch, "seconds": self.seconds, "hidden": self.hidden,
            "wall": end - self.started, "startup": (self.first_use or end) - self.started,
            "interpreter": self.started - start, "losses": self.losses, "imported": self.toolkit is not None,
            "counts": {name: sampler.counts() for name, sampler in self.samplers.items()},
            "library": reading.toolkit_version(self.toolkit),
            "hints": reading.hints(),
            "memory": reading.peak_memory(), "python": sys.version.split()[0], "numpy": np.__version__,
        }  # fmt: skip
        if self.mode == "profile":
            result["hook"] = self.hook_cost()
            result["launches"] = sorted(self.launches.items())
            result["launched_ops"] = self.launched_ops
            result["engine"] = dict(self.core.timing()) if self.core is not None else {}
        temporary = os.path.join(self.out, "result.part")
        with open(temporary, "w", encoding="utf-8") as stream:
            json.dump(result, stream)
        os.replace(temporary, os.path.join(self.out, "result.json"))
        os.pwrite(self.progress, f"{self.step:<12d}".encode(), 0)


def nothing(*args: Any, **kwargs: Any) -> None:
    """A function that does nothing."""
