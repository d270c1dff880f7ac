"""Gradients that stay on the GPUs of a job: NCCL sends them, by CuPy, and CuPy adds them up."""

from __future__ import annotations

import socket
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .group import Group, JobError


class Nccl:
    """NCCL's communicator of the ranks of a job. All ranks make theirs together.

    Args:
        group: the ranks, of which there are others.
    Attributes:
        comm, stream: of NCCL; what is asked for is done in the order of the stream.
        device: this rank's GPU.
        cupy, api: the modules of CuPy and of its NCCL.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        problem, here = self._import()
        every = group.gather_objects((problem, here))
        for rank, (said, _) in enumerate(every):
            if said:
                raise JobError(f"nccl: rank {rank}: {said}")
        places = [place for _, place in every]
        for rank, place in enumerate(places):
            if place in places[:rank]:
                raise JobError(
                    f"nccl: ranks {places.index(place)} and {rank} have the same GPU, {place[1]} of "
                    f"{place[0]}; give each its own (CUDA_VISIBLE_DEVICES)"
                )
        ids = group.from_rank(self.api.get_unique_id() if group.rank == 0 else None, 0)
        with self.device:
            self.comm = self.api.NcclCommunicator(group.size, ids, group.rank)
            self.stream = self.cupy.cuda.Stream(non_blocking=True)

    def _import(self) -> tuple[str, tuple[str, str]]:
        """What is missing, and where this rank computes."""
        name = _core._device_options()["device"]
        if name == "cpu":
            return "this process computes on the CPU; choose a GPU by --dynet-gpu", ("", "")
        try:
            import cupy
            from cupy.cuda import nccl
        except ImportError as error:
            return f"CuPy with NCCL cannot be imported: pip install cupy-cuda12x ({error})", ("", "")
        self.cupy, self.api = cupy, nccl
        self.device = cupy.cuda.Device(int(name.partition(":")[2] or 0))
        return "", (socket.gethostname(), str(self.device.pci_bus_id))


class _Rows:
    """Floats of the device as CuPy reads them, a row for each rank."""

    def __init__(self, floats: _core._DeviceFloats, ranks: int, part: int) -> None:
        self.floats = floats  # lives as long
        self.__cuda_array_interface__ = {
            "shape": (ranks, part), "typestr": "<f4", "data": (floats.address, False), "version": 3,
        }  # fmt: skip


class DeviceBucket:
    """As `Bucket`, on the device."""

    def __init__(self, nccl: Nccl, size: int) -> None:
        self._nccl, self.size = nccl, size
        self.ranks = nccl.group.size
        self._part = -(-size // self.ranks)
        self._own, self._received, self._every = (
            _core._DeviceFloats(self._part * self.ranks) for _ in range(3)
        )

    def _array(self, floats: Any) -> Any:
        return self._nccl.cupy.asarray(_Rows(floats, self.ranks, self._part))

    def take(self, collection: Any, kinds: NDArray[np.uint8], begin: int, end: int) -> None:
        self._own.take(collection, kinds, begin, end)

    def send(self) -> None:
        api, comm = self._nccl.api, self._nccl.comm
        with self._nccl.device:
            api.groupStart()
            for rank in range(self.ranks):
                at = 4 * rank * self._part
                what = self._part, api.NCCL_FLOAT32, rank, self._nccl.stream.ptr
                comm.send(self._own.address + at, *what)
                comm.recv(self._received.address + at, *what)
            api.groupEnd()

    def arrived(self) -> bool:
        return bool(self._nccl.stream.done)

    def send_sum(self) -> None:
        rank = self._nccl.group.rank
        with self._nccl.device, self._nccl.stream:
            received, total = self._array(self._received), self._array(self._every)[rank]
            self._nccl.cupy.add(received[0], received[1], out=total)
            for contribution in received[2:]:
                total += contribution
            self._nccl.comm.allGather(
                self._every.address + 4 * rank * self._part, self._every.address, self._part,
                self._nccl.api.NCCL_FLOAT32, self._nccl.stream.ptr,
            )  # fmt: skip

    def finish(self) -> None:
        self._nccl.group.clock.wait(self.arrived, "gradients")

    def put(self, collection: Any, kinds: NDArray[np.uint8], begin: int, end: int) -> None:
        self._every.put(collection, kinds, begin, end)
