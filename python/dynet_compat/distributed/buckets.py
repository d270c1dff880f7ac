"""Gradients on their way: sums over ranks in rank order, in buckets of which one travels while the next is
computed."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .group import Group


class Float16Feedback:
    """Rounds to float16, and adds what rounding has cut off to the next values of the same place.

    Seide et al., 1-bit stochastic gradient descent and its application to data-parallel distributed training
    of speech DNNs, 2014: the errors do not add up, so that float16 is enough.

    Attributes:
        rest: what was cut off, by stage.
    """

    def __init__(self) -> None:
        self.rest: dict[str, NDArray[np.float32]] = {}

    def __call__(self, values: NDArray[np.float32], stage: str) -> NDArray[np.float16]:
        rest = self.rest.get(stage)
        wanted = values + rest if rest is not None and rest.shape == values.shape else values
        limit = np.float32(np.finfo(np.float16).max)
        rounded = np.clip(wanted, -limit, limit).astype(np.float16)
        self.rest[stage] = np.where(np.isfinite(wanted), wanted - rounded, np.float32(0))
        return np.where(np.isfinite(wanted), rounded, wanted.astype(np.float16))


class Bucket:
    """The sum over ranks of some floats: the same bits on all ranks, in every run, under every MPI.

    Each rank owns a contiguous part: it gets that part of all ranks, adds in rank order, and sends the sum.
    Large arrays are slow to get and to give back, so a bucket is used again.

    Args:
        group: the ranks, of which there are others.
        number: names the bucket's stages in `rounding`.
        size: floats.
        rounding: to float16, where gradients travel so.
    Attributes:
        size, ranks: how many floats and ranks there are.
    """

    def __init__(self, group: Group, number: int, size: int, rounding: Optional[Float16Feedback]) -> None:
        self._group, self._number, self._rounding = group, number, rounding
        self.size, self.ranks = size, group.size
        shape = group.size, -(-size // group.size)
        self._padded = np.zeros(shape, np.float32)
        self._own = self._padded.reshape(-1)[:size]
        kind: Any = np.float16 if rounding else np.float32
        self._received, self._every = np.zeros(shape, kind), np.zeros(shape, kind)
        self._total = np.empty(shape[1], np.float32) if rounding else self._every[group.rank]
        self._request: Any = group.mpi.REQUEST_NULL

    def take(self, collection: Any, kinds: NDArray[np.uint8], begin: int, end: int) -> None:
        """This rank's gradients of parameters [begin, end)."""
        _core._take_gradients(collection, kinds, self._own, begin, end)

    def send(self) -> None:
        """Each rank's part, to its owner."""
        self._sent = self._rounding(self._padded, f"sent {self._number}") if self._rounding else self._padded
        if self.size:
            self._request = self._group.comm.Ialltoall(_words(self._sent), _words(self._received))

    def arrived(self) -> bool:
        """Whether what was sent last is there; MPI does its part of the work when it is asked."""
        return bool(self._request.Test())

    def send_sum(self) -> None:
        """The sum of this rank's part, to all."""
        self._group.clock.finish(self._request)
        np.add(self._received[0], self._received[1], out=self._total, dtype=np.float32)
        for contribution in self._received[2:]:
            self._total += contribution
        if self._rounding:
            self._every[self._group.rank] = self._rounding(self._total, f"owned {self._number}")
        if self.size:
            self._request = self._group.comm.Iallgather(self._group.mpi.IN_PLACE, _words(self._every))

    def finish(self) -> None:
        """Waits for the sum."""
        self._group.clock.finish(self._request)

    def put(self, collection: Any, kinds: NDArray[np.uint8], begin: int, end: int) -> None:
        """The sum takes the place of this rank's gradients."""
        values = self._every.astype(np.float32, copy=False).reshape(-1)[: self.size]
        _core._put_gradients(collection, kinds, values, begin, end)


def _words(array: NDArray[Any]) -> NDArray[Any]:
    """As MPI knows them, which has no float16."""
    return array.view(np.uint16) if array.dtype == np.float16 else array
