"""Files that rank 0 saves for all: the others wait for them before they load one."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .group import Group

_Save = tuple[str, int, int]


class Saves:
    """What rank 0 has saved, and what other ranks have passed over.

    A save is known by its path, by the meetings there were before it, and by its number among those of this
    path since the last one; so a save below `if is_main:` is not taken for the next one of all ranks.

    Args:
        group: the ranks, which make their Saves together.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._comm: Any = group.comm.Dup() if group.size > 1 else None
        self._met = 0
        self._counts: Counter[str] = Counter()  # of paths, since then
        self._sent: list[Any] = []  # requests
        self._awaited: set[_Save] = set()
        self._heard: set[_Save] = set()

    def add(self, path: str) -> None:
        """Rank 0 has saved a file; another rank would have."""
        if self._met != self._group.meetings.count:
            self._met = self._group.meetings.count
            self._counts.clear()
        self._counts[path] += 1
        save = path, self._met, self._counts[path]
        if self._group.rank:
            self._awaited.add(save)
            return
        self._sent = [r for r in self._sent if not r.Test()]
        self._sent += [self._comm.isend(save, dest=rank) for rank in range(1, self._group.size)]

    def wait(self) -> None:
        """Until rank 0 has saved what this rank has passed over."""
        while missing := self._awaited - self._heard:
            path = min(missing, key=lambda save: save[1:])[0]
            try:
                self._group.clock.wait(self._is_there, f"a load, for rank 0 to save {path}")
                self._heard.add(self._comm.recv(source=0))
            except Exception as error:
                if not self._group.is_loss(error):
                    raise
                break  # rank 0 is lost, and with it what it has not saved
        self._heard -= self._awaited
        self._awaited.clear()

    def _is_there(self) -> bool:
        return bool(self._comm.Iprobe(source=0))
