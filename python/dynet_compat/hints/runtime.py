"""Hints in the running script: finding the file, and rewriting the functions of the modules that are loaded.

It is beside the script (`script.dyhints`), or `DYNET_COMPAT_HINTS` names it; `off` there means no hints,
`auto` that all functions of the script's own modules are rewritten without a file, once the process has run
for long enough to pay for it, and `eager` that this is done at once. A file that does not fit the script's
sources is not used, which one line in the log reports. A file only names functions and loops: what replaces
them is derived from the script's own source, so that a file can cost speed and nothing else.
"""

from __future__ import annotations

import ast
import atexit
import functools
import gc
import logging
import math
import os
import sys
import threading
import time
import types
from typing import TYPE_CHECKING, Any, Callable, Optional

from .. import _core
from ..files.own_classes import START_FOLDER, is_foreign
from . import tuning
from .waiting import Waiting

if TYPE_CHECKING:
    from .coverage import RewrittenFile
    from .hints_file import Hints
    from .parallel_loops import Concurrent

OFF = ("off", "0", "none", "")
AUTO = "auto"
EAGER = "eager"
LINES = "lines"  # of DYNET_COMPAT_REPORT: with the lines that recorded ops outside regions

# The first renew_cg() finds the functions defined by then; these find those of modules imported later.
_AT = (0, 1, 3, 15, 63, 255)

_OWN_FOLDER = os.path.dirname(os.path.realpath(__file__)) + os.sep
_LIBRARY = os.path.dirname(os.path.realpath(os.__file__)) + os.sep
_MODULE_ATTRIBUTE = types.ModuleType.__getattribute__

_log = logging.getLogger("dynet_compat")
_active: Optional[Active] = None


class Active:
    """Hints in use.

    Attributes:
        path: of the hints file; None in the modes `auto` and `eager`.
        wanted: path of each source file -> the functions in it that record ops or read values; None: all.
        found: path of a source file -> its regions; None: it is not rewritten.
        rewritten: path of a source file -> what the rewriter said of its lines.
        loops: path of a source file -> loops in it that may run side by side.
        patient: does all that hints do wait until the process has run for long enough?
        waiting: modules that wait for that.
        seconds: that rewriting took, by the clock.
    """

    def __init__(
        self,
        path: Optional[str],
        wanted: dict[str, Optional[set[str]]],
        digests: dict[str, str],
        loops: Optional[dict[str, list[Concurrent]]] = None,
        patient: bool = False,
    ) -> None:
        self.path = path
        self.wanted = wanted
        self.digests = digests
        self.found: dict[str, Optional[list[Any]]] = {}
        self.rewritten: dict[str, RewrittenFile] = {}
        self.loops = loops or {}
        self.patient = patient
        self.waiting = Waiting()
        self.renewals = 0
        self.seconds = 0.0
        self._others: set[str] = set()  # files of modules, as these name them, that are not looked at
        self._free = threading.Lock()

    def on_renew(self) -> float:
        """Called at the start of renew_cg(); returns for how many seconds it need not be called again."""
        locked = False
        try:
            locked = self._free.acquire(blocking=False)
            if not locked:
                return 0.0  # another thread looks at modules, or a handler of a signal renews meanwhile
            if self.patient and not self.renewals and not self.waiting.may_take(tuning.FINDING):
                return self.waiting.pause()
            if self.renewals in _AT:
                self._do(self.apply)
            self.renewals += 1
            due = self.waiting.due()
            if due and not _is_traced():
                self._do(self._look_at_waiting, due)
        except BaseException as error:  # by a handler of a signal: its traceback is that of the script
            # Both without attributes of the exception, which its class may compute or forbid to set.
            BaseException.with_traceback(error, _of_handler(sys.exc_info()[2]))
            raise error
        finally:
            if locked:
                self._free.release()
        if self.renewals <= _AT[-1]:
            return 0.0
        if not self.waiting.files:
            _core._on_renew(None)
        return self.waiting.pause()

    def _do(self, work: Callable[..., None], *arguments: str) -> None:
        """Timed, and without garbage collection: syntax trees are many objects, and searching them takes a
        third of the time. Like silently(), no @contextmanager."""
        begin, used = time.perf_counter(), time.thread_time()
        collects = gc.isenabled()
        try:
            gc.disable()
            work(*arguments)
        finally:
            if collects:
                gc.enable()
            self.seconds += time.perf_counter() - begin
            self.waiting.spent += time.thread_time() - used

    def apply(self) -> None:
        """Rewrite the modules that were loaded since; none while a debugger or profiler is on."""
        if _is_traced():
            return
        folder = _script_folder()
        modules: dict[str, tuple[types.ModuleType, bytes]] = {}
        for module in list(sys.modules.values()):
            file = _file_of(module)
            if file is None or file in self._others:
                continue
            path = _real_path(file)
            if not self._is_wanted(path, folder):
                self._others.add(file)
            elif path not in self.found and path not in modules:
                data = _read(path)
                if data is not None and self._is_the_one(path, data):
                    modules[path] = module, data
        if modules:
            self._rewrite(modules)

    def _rewrite(self, modules: dict[str, tuple[types.ModuleType, bytes]]) -> None:
        from .rewrite import kept, recording

        if self.path is None:
            for path in [p for p, (module, _) in modules.items() if not recording.uses_dynet(vars(module))]:
                self.found[path] = None
                del modules[path]
        if self.patient:
            for path, (module, data) in modules.items():
                self.waiting.add(path, module, data, kept.exists(module, data))
                self.found[path] = None
            return
        from .rewrite import patch

        functions = patch.functions_of([module for module, _ in modules.values()])
        for (path, (module, data)), own in zip(modules.items(), functions):
            self._look_at(path, module, data, own)

    def _look_at_waiting(self, path: str) -> None:
        from .rewrite import patch

        waiting = self.waiting.files[path]
        module = waiting.module()
        if module is not None:
            [own] = patch.functions_of([module])
            self._look_at(path, module, waiting.text, own)
        del self.waiting.files[path]  # and not before: a handler of a signal may raise meanwhile

    def _look_at(
        self, path: str, module: types.ModuleType, data: bytes, own: list[types.FunctionType]
    ) -> None:
        from . import coverage
        from .call_cost import resting_region
        from .rewrite import patch

        if not self.rewritten:
            _core._set_region_cost(resting_region())
        loops = [(m.record, m) for m in self.loops.get(path, ())]
        try:
            rewritten = patch.rewrite_module(module, data, self.wanted.get(path), loops, own, True)
            self.found[path] = list(rewritten.regions.values())
            self.rewritten[path] = coverage.RewrittenFile.of(rewritten)
        except Exception as error:
            if not _is_of_analysis(error):
                raise  # by a signal handler
            self.found[path] = None
            _log.warning("hints: %s is left as it is: %s", os.path.basename(path), error)

    def _is_the_one(self, path: str, data: bytes) -> bool:
        from hashlib import sha256

        return path not in self.digests or sha256(data).hexdigest() == self.digests[path]

    def _is_wanted(self, path: str, folder: Optional[str]) -> bool:
        if self.path is not None:
            return path in self.wanted
        return folder is not None and is_own(path, folder) and not path.startswith(_OWN_FOLDER)

    def maps(self) -> list[dict[str, Any]]:
        """How many parts of the data of each loop ran side by side."""
        return [
            {"where": f"{m.record.file}:{m.record.line}", "parts": m.parts, "off": m.off}
            for loops in self.loops.values() for m in loops
        ]  # fmt: skip

    def regions(self) -> list[dict[str, Any]]:
        """How often each region was recorded by one call."""
        return [t.statistics() for found in self.found.values() for t in found or ()]

    def summary(self) -> str:
        """A sentence: regions in use, calls, shares of the ops that this thread recorded, time saved; what
        still waits."""
        n = len(self.waiting.files)
        waits = f"{n} modules wait" if n > 1 else "1 module waits" if n else ""
        if self.patient and not self.renewals:
            waits = "the script waits"
        if waits:
            waits = f"; {waits} for {self.waiting.until()}"
        return f"hints: {self._use()}{waits}"

    def _use(self) -> str:
        used = [t for t in self.regions() if t["hits"]]
        if not used:
            return "no region was recorded by one call"
        timing = _core.timing()
        of_regions, of_builders = (
            100 * min(timing[f"{by}_nodes"] / max(timing["recorded_nodes"], 1), 1.0)
            for by in ("region", "builder")
        )
        saved = [t["saved"] for t in used if not math.isnan(t["saved"])]
        time = f"about {max(1e3 * sum(saved), 0):.0f} ms saved" if saved else "too few calls to time them"
        regions = f"{len(used)} region{'s' * (len(used) > 1)}"
        hits = sum(t["hits"] for t in used)
        share = f"{of_regions:.0f} % of all ops ({of_builders:.0f} % by steps of builders outside regions)"
        return f"{regions} recorded {hits} times by one call, {share}; {time}"


def _is_traced() -> bool:
    """Is a debugger, profiler or the like on? It would see code that the script does not have."""
    monitoring = getattr(sys, "monitoring", None)  # from Python 3.12 on
    tools = monitoring and any(map(monitoring.get_tool, range(6)))
    return bool(tools or sys.gettrace() or sys.getprofile())


def _is_of_analysis(error: Exception) -> bool:
    """Was the error raised by the rewriter? Code of the modules runs only in signal handlers."""
    if type(error).__module__ != "builtins" or isinstance(error, OSError):
        return False
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    file = frame.tb_frame.f_code.co_filename if frame else ""
    return file == ast.__file__ or _real_path(file).startswith(_OWN_FOLDER)


def _of_handler(at: Optional[types.TracebackType]) -> Optional[types.TracebackType]:
    """What of a traceback lies below hints and the standard library's functions that they call."""
    while at is not None and _is_of_hints(at.tb_frame.f_code.co_filename) and not _handles(at.tb_frame):
        at = at.tb_next
    return at


def _handles(frame: types.FrameType) -> bool:
    """Is it a signal handler's, of the standard library? These get the frame that they interrupt."""
    return frame.f_back is not None and any(value is frame.f_back for value in frame.f_locals.values())


def _is_of_hints(file: str) -> bool:
    path = _real_path(file)
    if file.startswith("<frozen ") or path.startswith(os.path.dirname(os.path.dirname(_OWN_FOLDER)) + os.sep):
        return True
    return path.startswith(_LIBRARY) and "site-packages" not in path and "dist-packages" not in path


def is_own(path: str, folder: str) -> bool:
    """Is the file the script's own: below its folder, and not part of a package that is installed there?

    Args:
        path: of the file, without links.
        folder: of the script, with a separator at its end.
    """
    return path.startswith(folder) and not is_foreign(path, folder)


def _file_of(module: Any) -> Optional[str]:
    """The file that a module names. Runs no code of the module, so that lazy modules are not loaded."""
    kind = type(module)
    if not issubclass(kind, types.ModuleType) or kind.__getattribute__ is not _MODULE_ATTRIBUTE:
        return None
    file = _MODULE_ATTRIBUTE(module, "__dict__").get("__file__")
    return file if isinstance(file, str) and file.endswith((".py", ".pyw")) else None


def _real_path(file: str) -> str:
    """Without links. Folders are asked once: hundreds of modules are in a few."""
    folder, name = os.path.split(os.path.join(START_FOLDER, file))
    path = os.path.join(_real_folder(folder), name)
    return os.path.realpath(path) if os.path.islink(path) else path


_real_folder = functools.cache(os.path.realpath)


def _read(path: str) -> Optional[bytes]:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _script_folder() -> Optional[str]:
    """Of the script that runs, with a separator; None in an interactive session."""
    script = _file_of(sys.modules.get("__main__"))
    return None if script is None else os.path.dirname(_real_path(script)) + os.sep


def prepare(setting: str) -> None:
    """Use the hints that the setting names: `off`, `auto`, `eager`, or a file."""
    if setting.lower() in OFF:
        return
    if setting in (AUTO, EAGER):
        activate(Active(None, {}, {}, patient=setting == AUTO))
    else:
        load(setting)


def load(path: str) -> None:
    """Use a hints file; what is wrong with it is one line in the log."""
    from . import hints_file

    try:
        hints = hints_file.read(path)
    except hints_file.HintsError as error:
        _log.warning("hints not used: %s; run `python -m dynet_compat compile` again", error)
        return
    root = os.path.join(os.path.dirname(os.path.abspath(path)), hints.root)
    wanted: dict[str, Optional[set[str]]] = {}
    digests = {}
    for name, digest in hints.sources.items():
        source = os.path.realpath(os.path.join(root, name))
        wanted[source] = {function.qualname for function in hints.functions if function.file == name}
        digests[source] = digest
    activate(Active(path, wanted, digests, _loops(hints, root)))


def _loops(hints: Hints, root: str) -> dict[str, list[Concurrent]]:
    """The loops and calls that may run side by side, by file."""
    from . import parallel_loops
    from .rewrite import batch_map

    if not hints.concurrent or not batch_map.possible():
        return {}
    sources = parallel_loops.Sources(os.path.join(root, hints.script), hints.sources)
    found: dict[str, list[Concurrent]] = {}
    for record in hints.concurrent:
        path = os.path.realpath(os.path.join(root, record.file))
        found.setdefault(path, []).append(parallel_loops.concurrent(record, sources))
    return found


def activate(active: Active) -> None:
    """Use hints from the next renew_cg() on."""
    global _active
    _active = active
    _core._on_renew(active.on_renew)
    if os.environ.get("DYNET_COMPAT_REPORT", "0") not in ("", "0"):
        atexit.register(_report, active)
    if counts_lines():
        from . import coverage

        coverage.start()


def counts_lines() -> bool:
    """Are lines that record ops outside regions to be shown at the end?"""
    return os.environ.get("DYNET_COMPAT_REPORT") == LINES


def _report(active: Active) -> None:
    from . import coverage

    lines = coverage.report(active) if counts_lines() else []
    for line in [active.summary(), *lines]:
        print(f"[dynet] {line}", file=sys.stderr)


def deactivate() -> None:
    """Rewrite no more modules. Functions that are rewritten stay so."""
    global _active
    _active = None
    _core._on_renew(None)


def active() -> Optional[Active]:
    """The hints in use."""
    return _active
