"""What is put in the place of the library's functions: hooks that call them and tell the log.

Runs under Python 3.8 as well; see `recorder.py`.
"""

from __future__ import annotations

import sys
import types
from array import array
from typing import Any, Callable, Optional

import event_files  # type: ignore[import-not-found,unused-ignore]
import event_log  # type: ignore[import-not-found,unused-ignore]
import instrument  # type: ignore[import-not-found,unused-ignore]
import numpy as np
import reading  # type: ignore[import-not-found,unused-ignore]

_clock = event_log.clock
_getframe = sys._getframe


class Hooks:
    """Makes hooks.

    Attributes:
        wrapped: number of a function -> its hook; of a class -> the class.
        of_ops: hooks of ops: the class or dict that they are in, name, what was there, the hook.
        codes: of the lines that read; keeps the numbers of code objects their own.
    """

    def __init__(self, log: Any) -> None:
        self.log = log
        self.wrapped: dict[int, Any] = {}
        self.of_ops: list[tuple[Any, str, Any, Any]] = []
        self.codes: list[Any] = []

    def instrument(self, modules: list[types.ModuleType], side: str) -> None:
        """Hook the functions and classes of the modules."""
        if side == "ours" and self.log.launches.core is None:
            self.log.launches.core = getattr(sys.modules["dynet_compat"], "_core", None)
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
                        space[name] = made = self.hook(value, kind, name, None)
                        if kind == instrument.OP and made is not value:
                            self.of_ops.append((space, name, value, made))
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
                    if kind == instrument.OP:
                        self.of_ops.append((cls, name, original, hook))

    def remove_op_hooks(self) -> None:
        """Give ops their functions back. Names that the script has imported keep their hooks, and those that
        it has assigned to keep what it put there."""
        for owner, name, original, hook in self.of_ops:
            if isinstance(owner, dict):
                if owner.get(name) is hook:
                    owner[name] = original
            elif owner.__dict__.get(name) is hook:
                instrument.patch(owner, name, original)
        self.of_ops.clear()

    def hook(self, original: Any, kind: str, name: str, cls: Any) -> Any:
        """What to put in the place of a function: the same function where nothing is to be seen."""
        if id(original) in self.wrapped:
            return self.wrapped[id(original)]
        shown = instrument.display_name(instrument.common_name(name), cls)
        made = original
        if kind == instrument.OP:
            if self.log.spec.get("hints"):
                return original  # a region takes the place of such calls
            if self.log.mode == "profile":
                made = self.timed(original, "record")
            elif self.log.writes():
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
        inside, cell = self.log.counts.inside, self.log.times.cell(kind)

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
        inside, times = self.log.counts.inside, self.log.times
        cell = times.cell(kind)

        def hook(*args: Any, **kwargs: Any) -> Any:
            if inside[0]:
                return original(*args, **kwargs)
            inside[0] = True
            if not times.first_use:
                times.first_use = _clock()
            try:
                if before:
                    entered = _clock()
                    kwargs = before(args, kwargs) or kwargs
                    times.hidden += _clock() - entered
                start = _clock()
                try:
                    out = original(*args, **kwargs)
                finally:
                    end = _clock()
                    cell[0] += end - start
                    cell[1] += 1
                after(out, args, kwargs)
                times.hidden += _clock() - end
                return out
            finally:
                inside[0] = False

        return hook

    def op_hook(self, original: Any, name: str, shown: str) -> Callable[..., Any]:
        log, counts = self.log, self.log.counts
        inside, calls = counts.inside, counts.calls
        code = sum(ord(c) * 257**i for i, c in enumerate(name))
        is_random, tracing = name in instrument.RANDOM_OPS, log.mode == "trace"
        most = -1 if tracing else event_log.MOST_CALLS
        last_code: Any = None  # of the line that called last
        last_at = site = 0

        def hook(*args: Any, **kwargs: Any) -> Any:
            nonlocal last_code, last_at, site
            if inside[0] or calls[0] == most:
                return original(*args, **kwargs)
            inside[0] = True
            try:
                out = original(*args, **kwargs)
                frame = _getframe(1)
                if frame.f_lasti != last_at or frame.f_code is not last_code:
                    last_code, last_at = frame.f_code, frame.f_lasti
                    site = code + frame.f_lineno  # which takes time
                digest = hash((calls[1], site))
                for arg in args:
                    kind = type(arg)
                    if kind is int:
                        digest = hash((digest, arg))
                    elif kind is list and arg and type(arg[0]) is int:
                        digest = hash((digest, tuple(arg)))
                calls[1] = digest
                calls[0] += 1
                if is_random and shown not in counts.random_ops:
                    counts.random_ops.append(shown)
                if calls[0] == most:
                    self.remove_op_hooks()
                if tracing and counts.graph == log.focus["graph"]:
                    log.kept.append((shown, log.files.place(frame), out, args))
                return out
            finally:
                inside[0] = False

        return hook

    def random_hook(self, original: Any, shown: str) -> Callable[..., Any]:
        def hook(*args: Any, **kwargs: Any) -> Any:
            if any(args[1:]) or any(kwargs.values()):
                name = type(args[0]).__name__ + "." + shown
                if name not in self.log.counts.random_ops:
                    self.log.counts.random_ops.append(name)
            return original(*args, **kwargs)

        return hook

    def collect_hook(self, original: Any) -> Callable[..., Any]:
        def hook(collection: Any, *args: Any, **kwargs: Any) -> Any:
            done = original(collection, *args, **kwargs)
            if not any(a is not None for a in args) and not any(v is not None for v in kwargs.values()):
                self.log.parameters.collections.append(collection)
            return done

        return hook

    def file_hook(self, original: Any, saves: bool, at: int) -> Callable[..., Any]:
        """Leads the library's own files, which Python does not see, into the shadow."""
        shadow = self.log.shadow
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
            self.log.counts.trainers += 1
            return original(*args, **kwargs)

        return hook

    def renew_hook(self, original: Any, shown: str) -> Callable[..., Any]:
        log = self.log

        def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
            if log.mode == "profile":
                log.launches.count(log.counts.step)
            log.counts.graph += 1
            if kwargs.get("autobatching"):
                log.counts.autobatch = True
                if log.spec.get("unbatched"):
                    return {**kwargs, "autobatching": False}
            return kwargs

        return self.around(original, "record", lambda *_: None, before)

    def read_hook(self, original: Any, shown: str) -> Callable[..., Any]:
        log = self.log
        if not log.writes():
            return self.timed(original, "forward")
        counts, files, parameters = log.counts, log.files, log.parameters
        inside, calls, reads = counts.inside, counts.calls, counts.reads
        rows, numbers = files.rows, files.numbers
        known: dict[tuple[int, int], array[int]] = {}  # number and place in a code object -> row of its reads
        name, sampler = files.number_of(shown), log.samplers["arrays"]
        last_code: Any = None  # of the line that read last
        last_at = 0
        row = array("q")

        def hook(*args: Any, **kwargs: Any) -> Any:
            nonlocal last_code, last_at, row
            if inside[0]:
                return original(*args, **kwargs)
            inside[0] = True
            try:
                if not parameters.saved:
                    parameters.save_initial()
                out = original(*args, **kwargs)
                start, size = files.written + len(numbers), 1
                if type(out) is float:
                    reads[0] += 1
                    if reads[0] > reads[1]:
                        reads[1:] = 2 * reads[1], 2 * reads[2]
                    if reads[0] % reads[2]:
                        return out
                    counts.taken += 1
                    numbers.append(out)
                else:
                    size = sampler.take(lambda: files.store(reading.flat(out)))
                    if size is None or size < 0:
                        return out
                frame = _getframe(1)
                if frame.f_lasti != last_at or frame.f_code is not last_code:
                    row, last_code = self.row_of_line(frame, name, known)
                    last_at = frame.f_lasti
                row[3], row[4], row[5], row[6] = counts.step, counts.graph, calls[0], calls[1]
                row[7], row[8] = start, size
                if counts.numbering:
                    log.add_event(row[:-1], args[0] if args else None)
                    return out
                rows.extend(row)  # an array, which is copied as a whole
                counts.events += 1
                if len(rows) > event_files.FULL or len(numbers) > event_files.FULL:
                    files.flush()
                return out
            finally:
                inside[0] = False

        return hook

    def row_of_line(
        self, frame: Any, name: int, known: dict[tuple[int, int], array[int]]
    ) -> tuple[array[int], Any]:
        """A row for the reads of a line, without what differs; the line's code, or None for the library's,
        whose lines have many callers each."""
        key = id(frame.f_code), frame.f_lasti
        row = known.get(key)
        if row is not None:
            return row, frame.f_code
        files = self.log.files
        row = array("q", [event_log.READ, name, files.place(frame), 0, 0, 0, 0, 0, 0, -1])
        if files.is_own(frame.f_code):
            return row, None
        self.codes.append(frame.f_code)
        known[key] = row
        return row, frame.f_code

    def backward_hook(self, original: Any, shown: str) -> Callable[..., Any]:
        log, counts, parameters = self.log, self.log.counts, self.log.parameters

        def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Optional[dict[str, Any]]:
            if log.writes():
                parameters.save_initial()
            if log.focus.get("gradients") and counts.events == log.focus["event"]:
                return {**kwargs, "full": True}
            return None

        def after(out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            counts.backwards += 1
            if hasattr(args[0], "scalar_value"):
                loss = float(args[0].scalar_value())
            else:
                loss = float(args[0].inc_forward_scalar(args[1]))
            if len(counts.losses) < 1000000:
                counts.losses.append(loss)
            if log.writes():
                frame = _getframe(2)
                log.event(event_log.LOSS, "backward", frame, np.float32([loss]), args[0])
                norms = None if counts.trainers else log.samplers["updates"].take(parameters.norms)
                if norms is not None:  # no update shows the gradients
                    log.event(event_log.UPDATE, "backward", frame, norms, None)
                log.files.flush()
            if not counts.trainers:
                log.end_of_step(counts.backwards)

        return self.around(original, "backward", after, before)

    def update_hook(self, original: Any, shown: str) -> Callable[..., Any]:
        norms: list[np.ndarray] = []
        log, sampler, norms_of = self.log, self.log.samplers["updates"], self.log.parameters.norms_of

        def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            norms.clear()
            if log.writes():
                gradients = sampler.take(lambda: norms_of("grad_as_array"))
                norms.extend([] if gradients is None else [gradients])

        def after(out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if log.writes():
                if norms:
                    begun = _clock()
                    both = np.concatenate([norms[0], norms_of("as_array")])
                    name = type(args[0]).__name__ + ".update"
                    log.event(event_log.UPDATE, name, _getframe(2), both, None)
                    sampler.spent += _clock() - begun
                log.files.flush()
            log.end_of_step(log.counts.step + 1)

        return self.around(original, "update", after, before)

    def cost(self) -> dict[str, float]:
        """Seconds per call that the hook of an op adds, and that it counts as the library's."""
        inside, cell = self.log.counts.inside, self.log.times.cell("record")
        saved, before = list(cell), inside[0]
        inside[0] = False
        added, counted = instrument.cost_per_call(lambda bare: self.timed(bare, "record"), cell)
        inside[0] = before
        cell[:] = saved
        return {"per_call": added, "counted": counted}


def nothing(*args: Any, **kwargs: Any) -> None:
    """A function that does nothing."""
