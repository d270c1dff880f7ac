"""What hints do in the mode `auto` waits until the process has run for long enough to pay for it."""

from __future__ import annotations

import sys
import time
import weakref
from types import ModuleType
from typing import NamedTuple, Optional

from . import tuning


class WaitingModule(NamedTuple):
    """A module to be rewritten, which may end before, its text, and whether what becomes of it was kept."""

    module: weakref.ref[ModuleType]
    text: bytes
    kept: bool

    def seconds(self) -> float:
        """What rewriting it takes, estimated."""
        lines = self.text.count(b"\n") + 1
        searching = sys.getallocatedblocks() * tuning.SEARCHING_A_BLOCK
        if self.kept:
            return searching + lines * tuning.USING_A_KEPT_LINE
        loaded = f"{__package__}.rewrite.rewriter" in sys.modules
        return searching + lines * tuning.LOOKING_AT_A_LINE + (0.0 if loaded else tuning.LOADING)


class Waiting:
    """Modules that wait.

    Attributes:
        files: path -> the module.
        spent: processor time that hints took up to now.
    """

    def __init__(self) -> None:
        self.spent = 0.0
        self.files: dict[str, WaitingModule] = {}
        self._next_check = 0.0

    def add(self, path: str, module: ModuleType, text: bytes, kept: bool) -> None:
        self.files[path] = WaitingModule(weakref.ref(module), text, kept)
        self._next_check = 0.0

    def may_take(self, seconds: float) -> bool:
        """May hints take so long now? False, too, where it is not yet time to ask again."""
        if self.pause():
            return False
        left = self._start(seconds) - time.process_time()
        self._next_check = time.perf_counter() + max(left * tuning.PAUSE, tuning.LEAST_PAUSE)
        return left <= 0

    def due(self) -> Optional[str]:
        """The path of a module whose time has come."""
        if not self.files or self.pause():
            return None
        path, seconds = self._first()
        return path if self.may_take(seconds) else None

    def _start(self, seconds: float) -> float:
        """The processor time from which on hints may take so long."""
        return tuning.USED_FOR_HINTS * (self.spent + seconds)

    def _first(self) -> tuple[str, float]:
        """The module that takes least, and how long."""
        takes = [(each.seconds(), path) for path, each in list(self.files.items())]
        seconds, path = min(takes)
        return path, seconds

    def pause(self) -> float:
        """Seconds until it is time to ask again."""
        return max(self._next_check - time.perf_counter(), 0.0)

    def until(self) -> str:
        """What they wait for."""
        start = self._start(self._first()[1] if self.files else tuning.FINDING)
        return f"{start:.1f} s of processor time ({time.process_time():.1f} s used)"
