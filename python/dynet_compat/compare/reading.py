"""What is written down of a value, and how often; facts about the process.

Runs under Python 3.8 as well; see `event_log.py`.
"""

from __future__ import annotations

import re
import sys
import time
from typing import Any, Callable, Optional

import numpy as np

_clock = time.perf_counter
_LARGEST = 1 << 16  # elements of a value that are kept; of larger ones a sample
_NODE = re.compile(r"expression (\d+)/")


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


class Sampler:
    """Which of many things are written down: all, until writing takes longer than the script itself.

    From then on every second one, every fourth, ... The second side of a comparison takes those that the
    first one took: the spec has its decisions.
    """

    def __init__(self, name: str, log: Any) -> None:
        self.name, self.log = name, log
        given = log.spec.get("sampling")
        self.given: Optional[list[list[int]]] = list(given.get(name, [])) if given is not None else None
        self.allowed = float(log.spec.get("allowed", 2.0))
        self.count = 0
        self.stride = 1
        self.taken = 0
        self.spent = 0.0  # seconds

    def is_next(self) -> bool:
        """Whether the thing that comes now is written."""
        self.count += 1
        if self.given is not None:
            while self.given and self.given[0][0] <= self.count:
                self.stride = self.given.pop(0)[1]
        elif self.count % self.stride == 0:
            script = _clock() - self.log.times.started - self.log.times.hidden
            if self.spent > self.allowed * (script + 0.25):
                self.stride *= 2
                self.log.files.write(["sampling", self.name, self.count, self.stride])
        return self.count % self.stride == 0

    def take(self, write: Callable[[], Any]) -> Any:
        """Write the thing that comes now, and note the time; None where it is left out."""
        if not self.is_next():
            return None
        self.taken += 1
        begun = _clock()
        done = write()
        self.spent += _clock() - begun
        return done

    def counts(self) -> list[int]:
        """How many were written, of how many."""
        return [self.taken, self.count]


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


def toolkit_version(toolkit: Any) -> str:
    """Name and version of the toolkit that the script has imported."""
    ours = getattr(sys.modules.get("dynet_compat"), "__compat_version__", None)
    if ours is not None:  # on the other side, the script's `import dynet_compat` gives DyNet
        return f"dynet_compat {ours}"
    try:
        from importlib.metadata import version

        return f"DyNet {version('dynet')}"
    except Exception:  # not installed as a package
        return f"DyNet {getattr(toolkit, '__version__', '')}".strip()


def hints() -> Optional[dict[str, Any]]:
    """How many regions are in use, how often one was replayed, or could not be, and how long the functions
    were rewritten; None without hints."""
    runtime = sys.modules.get("dynet_compat.hints.runtime")
    active = runtime.active() if runtime is not None else None
    if active is None:
        return None
    found = active.regions()
    counts = {name: sum(int(t.get(name, 0)) for t in found) for name in ("hits", "misses")}
    in_use = sum(bool(t.get("hits")) for t in found)
    return {"regions": len(found), "in_use": in_use, "seconds": active.seconds, **counts}


def peak_memory() -> int:
    """Bytes of memory that the process had at most."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
