"""Ranks of one machine divide its cores."""

from __future__ import annotations

import os
import socket
import sys
from collections import Counter
from collections.abc import Sequence

from .. import _core
from ..startup import devices

UsableCores = tuple[str, frozenset[int]]  # a machine, and the cores of it that a rank may use


def usable_cores() -> UsableCores:
    return socket.gethostname(), frozenset(devices.usable_cores())


def share_cores(rank: int, every: Sequence[UsableCores]) -> None:
    """Sets the number of threads of this rank, unless DYNET_COMPAT_THREADS does.

    Args:
        every: what each rank may use.
    """
    if "DYNET_COMPAT_THREADS" not in os.environ:
        _core.set_threads(threads_of(rank, every))
    name, _ = every[rank]
    here = [place for place in every if place[0] == name]
    cores = frozenset[int]().union(*(mine for _, mine in here))
    if len(here) > len(cores) and [place[0] for place in every].index(name) == rank:
        say = f"{len(here)} ranks share {len(cores)} cores of {name}; fewer ranks are faster"
        print(f"dynet_compat: {say}", file=sys.__stderr__)


def threads_of(rank: int, every: Sequence[UsableCores]) -> int:
    """A rank's part of the cores that it may use; launchers give ranks the same cores, or each its own."""
    name, mine = every[rank]
    users = Counter(core for place, cores in every if place == name for core in cores)
    return max(1, int(sum(1 / users[core] for core in mine) + 1e-6))
