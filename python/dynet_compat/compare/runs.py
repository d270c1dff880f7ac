"""Starting one side of a comparison in a process of its own, and reading what it wrote."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

import numpy as np

from .errors import CannotCompare
from .redirect import Shadow
from .reference import clean_environment, free_folders
from .shadow_folders import Originals

RECORDER = Path(__file__).resolve().parent / "recorder.py"
PACKAGE_PARENT = RECORDER.parent.parent.parent
SHARED_FOLDER = "DYNET_COMPAT_SHARED"  # a folder that all runs of a script share, for data it generates
_HINTS = "DYNET_COMPAT_HINTS"
ALLOWED = 2.0  # seconds of writing arrays and norms down, for each second of the script itself
_TAIL = 4000  # characters of a script's output that are kept
_POLL = 0.05


@dataclass
class Side:
    """One of the two that are compared."""

    name: str  # for people
    python: str
    kind: str  # "ours" or "reference": the library behind `import dynet`
    environment: dict[str, str] = field(default_factory=dict)
    hints: str = ""  # with --hints: "on" or "off"; the script's calls are not hooked then

    @property
    def is_ours(self) -> bool:
        """Whether it runs dynet_compat."""
        return self.kind == "ours"


@dataclass
class Event:
    """Something that both sides do: a value read, a backward, an update."""

    kind: str
    name: str
    place: int
    step: int
    graph: int
    ops: int
    digest: int
    start: int
    size: int
    node: Optional[int]


KINDS = ("read", "loss", "update")
_COLUMNS = ("kind", "name", "place", "step", "graph", "ops", "digest", "start", "size", "node")


@dataclass
class Events:
    """All events of a run: an array for each item, of one number for each event."""

    rows: np.ndarray  # in the order of _COLUMNS
    names: dict[int, str]

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> np.ndarray:
        """One item of all events."""
        column: np.ndarray = self.rows[:, _COLUMNS.index(name)]
        return column

    def __getitem__(self, number: int) -> Event:
        items: dict[str, Any] = dict(zip(_COLUMNS, map(int, self.rows[number])))
        items.update(kind=KINDS[items["kind"]], name=self.names.get(items["name"], "?"))
        items["node"] = None if items["node"] < 0 else items["node"]
        return Event(**items)


@dataclass
class TracedCall:
    """A call that made expressions: [node, start, size(, start, size of the gradient)] of each."""

    number: int
    name: str
    place: int
    rows: list[list[int]]
    arguments: list[Any]


@dataclass
class Run:
    """What one process wrote."""

    side: Side
    result: dict[str, Any]
    events: Events
    traced: list[TracedCall]
    places: dict[int, tuple[str, int]]
    numbers: np.ndarray
    initial: dict[str, np.ndarray]
    final: dict[str, np.ndarray]
    during: dict[str, np.ndarray]
    output: str
    errors: str
    sampling: dict[str, list[list[int]]]  # what was written down: see reading.Sampler
    files: dict[str, Path] = field(
        default_factory=dict
    )  # that the script wrote: original path -> where it is
    removed: list[str] = field(default_factory=list)
    shadow: str = ""  # the folder in which it ran

    @property
    def crash(self) -> Optional[dict[str, Any]]:
        """How the script crashed; None if it did not."""
        crash: Optional[dict[str, Any]] = self.result["crash"]
        return crash

    @property
    def steps(self) -> int:
        """Updates made (or calls of backward, in a script without trainer)."""
        return int(self.result["steps"])

    def values(self, start: int, size: int) -> np.ndarray:
        """Numbers of an event or a traced expression."""
        return self.numbers[start : start + size]

    def location(self, place: int) -> str:
        """file:line"""
        file, line = self.places.get(place, ("?", 0))
        return f"{os.path.basename(file)}:{line}"


def _parameters(path: Path) -> dict[str, np.ndarray]:
    if not path.exists():
        return {}
    with np.load(path) as stored:
        return {str(name): stored[f"p{i}"] for i, name in enumerate(stored["names"])}


def _rows(text: str) -> list[list[Any]]:
    """The complete lines; a process that died may have left half a line at the end."""
    rows = []
    for line in text.splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def _died(status: int, errors: str) -> dict[str, Any]:
    """Description of a process that ended without a result."""
    errors = "".join(line for line in errors.splitlines(True) if not line.startswith("[dynet]"))
    if status < 0:
        try:
            how = f"killed by {signal.Signals(-status).name}"
        except ValueError:
            how = f"killed by signal {-status}"
        if status == -signal.SIGKILL:
            how += " (out of memory?)"
    else:
        how = f"the process ended with exit status {status} before the script did"
    lines = [line for line in errors.splitlines() if "Error" in line]
    return {"error": how + (f": {lines[-1]}" if lines else ""), "line": None, "traceback": errors[-_TAIL:]}


def _array(path: Path, kind: Any) -> np.ndarray:
    found: np.ndarray = np.fromfile(path, dtype=kind) if path.exists() else np.zeros(0, kind)
    return found


def _events(folder: Path, names: dict[int, str], numbers: int) -> Events:
    """The complete events; the last of a process that died may lack its values."""
    rows = _array(folder / "events.bin", np.int64)
    rows = rows[: len(rows) // len(_COLUMNS) * len(_COLUMNS)].reshape(-1, len(_COLUMNS))
    events = Events(rows, names)
    return Events(rows[events.column("start") + events.column("size") <= numbers], names)


def _without_result(folder: Path, status: int, events: Events, numbers: np.ndarray, errors: str) -> Any:
    """What can be said of a process that died."""
    shown = (folder / "progress").read_text().strip() if (folder / "progress").exists() else ""
    updates = events.column("step")[events.column("kind") == KINDS.index("update")]
    losses = events.column("start")[events.column("kind") == KINDS.index("loss")]
    return {
        "how": "crash", "crash": _died(status, errors), "steps": max([int(shown or 0), *(updates + 1)]),
        "seconds": {}, "backwards": len(losses), "random_ops": [], "autobatch": False,
        "losses": [float(v) for v in numbers[losses]], "hidden": 0.0, "wall": 0.0, "startup": 0.0,
        "memory": 0, "ops": events[-1].ops if len(events) else 0, "imported": bool(len(events)),
        "python": "", "numpy": "", "library": "", "graphs": 0, "reads": 0,
    }  # fmt: skip


def read(folder: Path, side: Side, status: int, shadow: Optional[Shadow] = None) -> Run:
    """Everything a process left in its folder; paths of its shadow as those of the originals."""

    def text(name: str) -> str:
        path = folder / name
        found = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        return found.replace(shadow.root, "") if shadow else found

    output, errors = text("stdout"), text("stderr")
    traced, places, names = [], {}, {}
    sampling: dict[str, list[list[int]]] = {"arrays": [], "updates": []}
    for kind, *rest in _rows(text("texts.jsonl")):
        if kind == "place":
            places[rest[0]] = (rest[1], rest[2])
        elif kind == "name":
            names[rest[0]] = rest[1]
        elif kind == "sampling":
            sampling[rest[0]].append(rest[1:])
        else:
            traced.append(TracedCall(*rest))
    numbers = _array(folder / "values.bin", np.float32)
    events = _events(folder, names, numbers.size)
    if (folder / "result.json").exists():
        result = json.loads(text("result.json"))
    else:
        result = _without_result(folder, status, events, numbers, errors)
    return Run(
        side=side, result=result, events=events, traced=traced, places=places, numbers=numbers,
        initial=_parameters(folder / "initial.npz"), final=_parameters(folder / "final.npz"),
        during=_parameters(folder / "trace.npz"), output=output[-_TAIL:], errors=errors[-_TAIL:],
        sampling=sampling, shadow=shadow.root if shadow else "",
    )  # fmt: skip


@dataclass
class ScriptRunner:
    """A script with its arguments, and the folder for all its runs."""

    script: str
    args: list[str]
    seed: int
    steps: int
    folder: Path
    timeout: float = 0.0  # seconds per run; 0: no limit
    started: Callable[[int], None] = lambda pid: None  # takes the number of each process
    originals: Optional[Originals] = None  # the files around the script; copied before the first run
    sampling: Optional[dict[str, list[list[int]]]] = None  # what the first checked run wrote down

    def start(
        self,
        side: Side,
        mode: str,
        watch: Callable[[int], None],
        focus: Optional[dict[str, Any]] = None,
        unbatched: bool = False,
        steps: Optional[int] = None,
    ) -> Run:
        """Run the script once on one side.

        Args:
            side: which library.
            mode: one of the modes of `recorder`.
            watch: takes the number of steps made so far, from time to time.
            focus: of a trace: {"graph": number, "event": number, "gradients": bool}.
            unbatched: turn the reference's autobatching off.
            steps: stop after this many.
        """
        shared = self.folder / "shared"
        try:
            out = Path(tempfile.mkdtemp(prefix=f"{mode}-", dir=self.folder))
            for folder in (shared, out / "tmp"):
                folder.mkdir(exist_ok=True)
            if self.originals is None:
                self.originals = Originals.around(self.script, self.folder / "originals")
            shadow = self.originals.shadow(out / "files")
            spec = {
                "mode": mode, "side": side.kind, "script": shadow.of(os.path.realpath(self.script)),
                "args": self.args, "out": str(out), "seed": self.seed,
                "steps": self.steps if steps is None else steps, "focus": focus, "unbatched": unbatched,
                "allowed": ALLOWED, "sys_path": [str(PACKAGE_PARENT)], "hints": side.hints,
                "sampling": self.sampling,
                "shadow": shadow.root, "free": [str(shared), *map(str, free_folders())],
            }  # fmt: skip
            (out / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
        except OSError as error:
            raise CannotCompare(
                f"cannot write in {self.folder}: {error.strerror}",
                "free some space, or set TMPDIR to another disk",
            ) from None
        environment = dict(os.environ) if side.is_ours else clean_environment()
        current = shadow.of(os.path.realpath(os.curdir))
        environment.update({"PYTHONHASHSEED": "0", SHARED_FOLDER: str(shared), "TMPDIR": str(out / "tmp")})
        self._choose_hints(environment, side, mode)
        environment.update({"PWD": current, **side.environment})
        status = self._wait(side, out, environment, current, watch)
        run = read(out, side, status, shadow)
        files, run.removed = self.originals.written(shadow), self.originals.removed(shadow)
        if mode == "check":
            run.files = files
            self.sampling = self.sampling if self.sampling is not None else run.sampling
        else:
            shutil.rmtree(out, ignore_errors=True)
        return run

    def _choose_hints(self, environment: dict[str, str], side: Side, mode: str) -> None:
        if side.hints == "on":
            chosen = environment.get(_HINTS, "off").lower()
            without = chosen in ("off", "0", "none", "")
            if without and os.path.exists(os.path.splitext(self.script)[0] + ".dyhints"):
                environment.pop(_HINTS, None)
            elif without or chosen == "auto":
                environment[_HINTS] = "eager"  # what looking takes is start-up, and not a part of some step
        elif side.hints or mode in ("check", "trace"):  # regions record without the calls that are compared
            environment[_HINTS] = "off"

    def _wait(
        self, side: Side, out: Path, environment: dict[str, str], current: str, watch: Callable[[int], None]
    ) -> int:
        end = time.monotonic() + self.timeout if self.timeout else float("inf")
        command = [side.python, str(RECORDER), str(out / "spec.json")]
        with open(out / "stdout", "wb") as stdout, open(out / "stderr", "wb") as stderr:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd=current,
                start_new_session=True,
            )  # fmt: skip
            self.started(process.pid)
            try:
                while not has_ended(process):
                    watch(self._steps_so_far(out))
                    if time.monotonic() > end:
                        raise CannotCompare(
                            f"{os.path.basename(self.script)} on {side.name}: not done in {self.timeout:g} s",
                            "cut the run with --steps N, or raise --timeout",
                        )
            finally:
                end_group(process)
                self.started(0)
        return int(process.returncode)

    @staticmethod
    def _steps_so_far(out: Path) -> int:
        try:
            return int((out / "progress").read_bytes() or b"0")
        except (OSError, ValueError):
            return 0


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has ended within a moment; its number stays its own until somebody waits for it."""
    if not hasattr(os, "waitid"):
        time.sleep(_POLL)
        return process.poll() is not None
    end = time.monotonic() + _POLL
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > end:
            return False
        time.sleep(_POLL / 10)
    return True


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that nobody has waited for, and what it has started and left behind."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()
