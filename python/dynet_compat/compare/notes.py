"""What is written down while a script runs. Runs under Python 3.8 as well; see `recorder.py`.

Files in the folder of a run: `events.jsonl` (one list per line), `values.bin` (float32), `initial.npz` and
`final.npz` (parameters), `result.json` (times and counts; missing when the process died).
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import types
from typing import Any, Callable, Optional

import hooks  # type: ignore[import-not-found,unused-ignore]
import numpy as np

_clock = time.perf_counter
_getframe = sys._getframe
_MASK = (1 << 61) - 1
_LARGEST = 1 << 16  # elements of a value that are kept; of larger ones a sample
_NODE = re.compile(r"expression (\d+)/")


class Cut(BaseException):
    """Ends a script after --steps, or where a trace ends."""


def flat(value: Any) -> Optional[np.ndarray]:
    """Numbers of what a reading function returned, float32 and flat; None if it is no number."""
    numbers: np.ndarray
    try:
        if isinstance(value, (list, tuple)) and value and not isinstance(value[0], (int, float)):
            parts = [flat(v) for v in value]
            known = [p for p in parts if p is not None]
            numbers = np.concatenate(known)
            return numbers
        with np.errstate(all="ignore"):
            numbers = np.asarray(value, dtype=np.float32).ravel(order="F")
    except (TypeError, ValueError):
        return None
    if numbers.size > _LARGEST:
        numbers = numbers[:: numbers.size // _LARGEST + 1]
    return numbers


class Notebook:
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
        self.step_times: list[float] = []
        self.hidden = 0.0  # seconds spent in the notebook, not in the script
        self.next_progress = 0.0
        self.stream: Any = None
        self.blob: Any = None
        self.blob_size = 0
        self.pid = os.getpid()
        self.own_code: dict[Any, bool] = {}
        self.progress = os.open(os.path.join(self.out, "progress"), os.O_WRONLY | os.O_CREAT)
        self.initial_saved = False

    def begin(self) -> None:
        """The script starts now."""
        if self.mode in ("check", "trace"):
            self.stream = open(os.path.join(self.out, "events.jsonl"), "w", encoding="utf-8")
            self.blob = open(os.path.join(self.out, "values.bin"), "wb")
        self.started = _clock()

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
                    kind = hooks.kind_of_function(name)
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
        for name, kind in hooks.kinds_of_class(cls).items():
            original = cls.__dict__.get(name)
            if original is None and kind == hooks.TRAINER and cls.__name__ == "Trainer":
                original = nothing  # DyNet's trainers are complete after __new__
            if original is not None and not isinstance(original, (classmethod, staticmethod)):
                hook = self.hook(original, kind, name, cls)
                if hook is not original:
                    hooks.patch(cls, name, hook)

    def hook(self, original: Any, kind: str, name: str, cls: Any) -> Any:
        """What to put in the place of a function: the same function where nothing is to be seen."""
        if id(original) in self.wrapped:
            return self.wrapped[id(original)]
        shown = hooks.display_name(hooks.common_name(name), cls)
        made = original
        if kind == hooks.OP:
            if self.mode == "profile":
                made = self.timed(original, "record")
            elif self.mode in ("check", "trace"):
                made = self.op_hook(original, hooks.common_name(name), shown)
        elif kind == hooks.COLLECT:
            made = self.collect_hook(original)
        elif kind == hooks.TRAINER:
            made = self.trainer_hook(original)
        elif kind == hooks.RANDOM:
            made = self.random_hook(original, shown)
        else:
            maker = {hooks.READ: self.read_hook, hooks.FORWARD: self.forward_hook}
            maker.update({hooks.BACKWARD: self.backward_hook, hooks.UPDATE: self.update_hook})
            maker[hooks.RENEW] = self.renew_hook
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
            if inside[0] or os.getpid() != self.pid:
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
        is_random, tracing = name in hooks.RANDOM_OPS, self.mode == "trace"

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

    def trainer_hook(self, original: Any) -> Callable[..., Any]:
        def hook(*args: Any, **kwargs: Any) -> Any:
            self.trainers += 1
            return original(*args, **kwargs)

        return hook

    def renew_hook(self, original: Any, shown: str) -> Callable[..., Any]:
        def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
            self.graph += 1
            if kwargs.get("autobatching"):
                self.autobatch = True
                if self.spec.get("unbatched"):
                    return {**kwargs, "autobatching": False}
            return kwargs

        return self.around(original, "record", lambda *_: None, before)

    def forward_hook(self, original: Any, shown: str) -> Callable[..., Any]:
        return self.around(original, "forward", lambda *_: self.count_launches())

    def read_hook(self, original: Any, shown: str) -> Callable[..., Any]:
        def after(out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self.count_launches()
            if self.stream:
                numbers = flat(out)
                if numbers is not None:
                    self.event("read", shown, _getframe(2), numbers, args[0] if args else None)

        return self.around(original, "forward", after, lambda *_: self.save_initial())

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
            self.count_launches()
            if self.stream:
                self.event("loss", "backward", _getframe(2), np.float32([loss]), args[0])
                if not self.trainers:  # no update will show the gradients
                    both = np.concatenate([self.norms("grad_as_array"), self.norms("as_array")])
                    self.event("update", "backward", _getframe(2), both, None)
                self.stream.flush()
                self.blob.flush()
            if not self.trainers:
                self.end_of_step(self.backwards)

        return self.around(original, "backward", after, before)

    def update_hook(self, original: Any, shown: str) -> Callable[..., Any]:
        norms: list[np.ndarray] = []

        def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self.stream:
                norms[:] = [self.norms("grad_as_array")]

        def after(out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self.stream:
                both = np.concatenate([norms[0], self.norms("as_array")])
                self.event("update", type(args[0]).__name__ + ".update", _getframe(2), both, None)
                self.stream.flush()
                self.blob.flush()
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

    def write(self, row: list[Any]) -> None:
        self.stream.write(json.dumps(row) + "\n")

    def store(self, numbers: np.ndarray) -> tuple[int, int]:
        """Appends numbers to values.bin; (where they begin, how many)."""
        data = np.ascontiguousarray(numbers, dtype=np.float32)
        self.blob.write(data.tobytes())
        start = self.blob_size
        self.blob_size += data.size
        return start, int(data.size)

    def event(self, kind: str, name: str, frame: Any, numbers: np.ndarray, expression: Any) -> None:
        place = self.place(frame)
        start, size = self.store(numbers)
        node = node_of(expression)
        self.write([kind, name, place, self.step, self.graph, *self.calls, start, size, node])
        if self.mode == "trace" and self.events == self.focus["event"]:
            self.write_trace(node)
        self.events += 1

    def end_of_step(self, step: int) -> None:
        self.step = step
        now = _clock()
        if self.mode in ("light", "profile") and len(self.step_times) < 200000:
            self.step_times.append(now)
        if now >= self.next_progress:
            self.next_progress = now + 0.2
            os.pwrite(self.progress, f"{step:<12d}".encode(), 0)
        if self.most_steps and step >= self.most_steps:
            self.cut = True
            raise Cut

    def parameters(self) -> list[tuple[str, Any]]:
        found = []
        for number, collection in enumerate(self.collections):
            prefix = "" if number == 0 else f"model {number + 1}: "
            both = list(collection.parameters_list()) + list(collection.lookup_parameters_list())
            found += [(prefix + p.name(), p) for p in both]
        return found

    def norms(self, method: str) -> np.ndarray:
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
        """Ours: the launches of the latest plan."""
        if self.mode != "profile" or self.core is None:
            return
        planned = self.core.timing()["planned_nodes"]
        if planned == getattr(self, "planned", 0):
            return
        self.planned = planned
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
            results = expressions_of(out)
            rows = []
            for expression in results:
                node = node_of(expression)
                if node is None or (last is not None and node > last):
                    continue
                rows.append([node, *self.measured(expression, "npvalue")])
                if self.focus.get("gradients"):
                    rows[-1] += self.measured(expression, "gradient")
            taken = [describe_argument(arg) for arg in args]
            self.write(["traced", number, name, place, rows, taken])
        self.stream.flush()
        self.cut = True
        raise Cut

    def measured(self, expression: Any, method: str) -> list[Any]:
        try:
            numbers = flat(getattr(expression, method)())
        except Exception:  # an expression that cannot be read any more has no part in the trace
            numbers = None
        return list(self.store(numbers)) if numbers is not None else [0, -1]

    # ------------------------------------------------------------ end

    def hook_cost(self) -> dict[str, float]:
        """Seconds per call that the hook of an op adds, and that it counts as the library's."""
        cell = self.seconds.setdefault("record", [0.0, 0])
        saved = list(cell)
        self.inside[0] = False
        added, counted = hooks.cost_per_call(lambda bare: self.timed(bare, "record"), cell)
        self.inside[0] = True
        cell[:] = saved
        return {"per_call": added, "counted": counted}

    def finish(self, how: str, crash: Optional[dict[str, Any]], start: float) -> None:
        """Writes everything that is not written yet."""
        end = _clock()
        self.inside[0] = True
        if self.stream:
            if self.toolkit is not None and self.mode == "check":
                try:
                    self.save_initial()
                    self.save_parameters("final.npz")
                except Exception as error:  # a crashed library may refuse; the rest is written
                    crash = crash or {"error": str(error), "line": None, "traceback": ""}
            self.stream.close()
            self.blob.close()
        result: dict[str, Any] = {
            "how": how, "crash": crash, "steps": self.step, "backwards": self.backwards,
            "graphs": self.graph, "ops": self.calls[0], "random_ops": self.random_ops,
            "autobatch": self.autobatch, "seconds": self.seconds, "hidden": self.hidden,
            "wall": end - self.started, "startup": (self.first_use or end) - self.started,
            "interpreter": self.started - start, "losses": self.losses, "imported": self.toolkit is not None,
            "step_times": [t - self.started for t in self.step_times],
            "memory": peak_memory(), "python": sys.version.split()[0], "numpy": np.__version__,
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
    """An __init__ that does nothing."""


def node_of(expression: Any) -> Optional[int]:
    """Number of an expression in its graph."""
    match = _NODE.match(str(expression)) if hasattr(expression, "npvalue") else None
    return int(match.group(1)) if match else None


def expressions_of(out: Any) -> list[Any]:
    """The expressions in what an op returned."""
    if hasattr(out, "npvalue"):
        return [out]
    if isinstance(out, (list, tuple)):
        return [e for item in out for e in expressions_of(item)]
    if hasattr(out, "add_input") and hasattr(out, "s"):
        try:
            return expressions_of(out.s())
        except Exception:  # the state before the first input has none
            return []
    return []


def describe_argument(arg: Any) -> Any:
    """An argument for the trace: node numbers, parameters by name, numbers as they are."""
    if hasattr(arg, "as_array") and hasattr(arg, "name"):
        return {"parameter": arg.name()}
    node = node_of(arg)
    if node is not None:
        return {"node": node}
    if isinstance(arg, (bool, int, float)) or arg is None:
        return arg
    if isinstance(arg, np.generic):
        return arg.item()
    if isinstance(arg, np.ndarray):
        return {"numbers": [float(v) for v in arg.ravel()[:1000]]} if arg.dtype.kind in "biuf" else None
    if isinstance(arg, (list, tuple)):
        return [describe_argument(a) for a in arg[:1000]]
    states = expressions_of(arg)
    return [describe_argument(e) for e in states] if states else str(type(arg).__name__)


def peak_memory() -> int:
    """Bytes of memory that the process had at most."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
