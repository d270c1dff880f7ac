"""Starting one side of a comparison in a process of its own, and reading what it wrote."""

from __future__ import annotations

import json
import os
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
from .reference import clean_environment

RECORDER = Path(__file__).resolve().parent / "recorder.py"
PACKAGE_PARENT = RECORDER.parent.parent.parent
SHARED_FOLDER = "DYNET_COMPAT_SHARED"  # a folder that all runs of a script share, for data it generates
_TAIL = 4000  # characters of a script's output that are kept
_POLL = 0.05


@dataclass
class Side:
    """One of the two that are compared."""

    name: str  # for people
    python: str
    kind: str  # "ours" or "reference": the library behind `import dynet`
    environment: dict[str, str] = field(default_factory=dict)

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


@dataclass
class Traced:
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
    events: list[Event]
    traced: list[Traced]
    places: dict[int, tuple[str, int]]
    numbers: np.ndarray
    initial: dict[str, np.ndarray]
    final: dict[str, np.ndarray]
    during: dict[str, np.ndarray]
    output: str
    errors: str

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


def _rows(path: Path) -> list[list[Any]]:
    """The complete lines; a process that died may have left half a line at the end."""
    rows = []
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
    return rows


def _died(status: int, errors: str) -> dict[str, Any]:
    """Description of a process that ended without a result."""
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


def read(folder: Path, side: Side, status: int) -> Run:
    """Everything a process left in its folder."""
    output, errors = (
        (folder / name).read_text(encoding="utf-8", errors="replace") for name in ("stdout", "stderr")
    )
    events, traced, places = [], [], {}
    for kind, *rest in _rows(folder / "events.jsonl"):
        if kind == "place":
            places[rest[0]] = (rest[1], rest[2])
        elif kind == "traced":
            traced.append(Traced(*rest))
        else:
            events.append(Event(kind, *rest))
    blob = folder / "values.bin"
    numbers = np.fromfile(blob, dtype=np.float32) if blob.exists() else np.zeros(0, np.float32)
    events = [e for e in events if e.start + e.size <= numbers.size]
    if (folder / "result.json").exists():
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    else:
        updates = [e.step + 1 for e in events if e.kind == "update"]
        shown = (folder / "progress").read_text().strip() if (folder / "progress").exists() else ""
        steps = max([int(shown or 0), *updates])
        result = {
            "how": "crash", "crash": _died(status, errors), "steps": steps, "seconds": {},
            "backwards": sum(e.kind == "loss" for e in events), "random_ops": [], "autobatch": False,
            "losses": [float(numbers[e.start]) for e in events if e.kind == "loss"], "hidden": 0.0,
            "wall": 0.0, "startup": 0.0, "memory": 0, "ops": events[-1].ops if events else 0,
            "imported": bool(events), "step_times": [], "python": "", "numpy": "", "graphs": 0,
        }  # fmt: skip
    return Run(
        side=side, result=result, events=events, traced=traced, places=places, numbers=numbers,
        initial=_parameters(folder / "initial.npz"), final=_parameters(folder / "final.npz"),
        during=_parameters(folder / "trace.npz"), output=output[-_TAIL:], errors=errors[-_TAIL:],
    )  # fmt: skip


@dataclass
class Job:
    """A script with its arguments, and the folder for all its runs."""

    script: str
    args: list[str]
    seed: int
    steps: int
    folder: Path
    timeout: float = 0.0  # seconds per run; 0: no limit

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
        try:
            out = Path(tempfile.mkdtemp(prefix=f"{mode}-", dir=self.folder))
            spec = {
                "mode": mode, "side": side.kind, "script": self.script, "args": self.args, "out": str(out),
                "seed": self.seed, "steps": self.steps if steps is None else steps, "focus": focus,
                "unbatched": unbatched, "sys_path": [str(PACKAGE_PARENT)],
            }  # fmt: skip
            (out / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
            shared = self.folder / "shared"
            shared.mkdir(exist_ok=True)
        except OSError as error:
            raise CannotCompare(
                f"cannot write in {self.folder}: {error.strerror}",
                "free some space, or set TMPDIR to another disk",
            ) from None
        environment = dict(os.environ) if side.is_ours else clean_environment()
        environment.update({"PYTHONHASHSEED": "0", SHARED_FOLDER: str(shared), **side.environment})
        if mode in ("check", "trace"):  # templates record without the calls that are compared
            environment["DYNET_COMPAT_HINTS"] = "off"
        status = self._wait(side, out, environment, watch)
        return read(out, side, status)

    def _wait(self, side: Side, out: Path, environment: dict[str, str], watch: Callable[[int], None]) -> int:
        end = time.monotonic() + self.timeout if self.timeout else float("inf")
        command = [side.python, str(RECORDER), str(out / "spec.json")]
        with open(out / "stdout", "wb") as stdout, open(out / "stderr", "wb") as stderr:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
            )
            try:
                while True:
                    try:
                        return process.wait(_POLL)
                    except subprocess.TimeoutExpired:
                        watch(self._steps_so_far(out))
                    if time.monotonic() > end:
                        raise CannotCompare(
                            f"{os.path.basename(self.script)} on {side.name}: not done in {self.timeout:g} s",
                            "cut the run with --steps N, or raise --timeout",
                        )
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()

    @staticmethod
    def _steps_so_far(out: Path) -> int:
        try:
            return int((out / "progress").read_bytes() or b"0")
        except (OSError, ValueError):
            return 0
