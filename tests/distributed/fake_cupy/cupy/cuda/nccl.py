"""NCCL by MPI. Addresses, counts, types and ranks are those that NCCL would get."""

import ctypes
import os

import numpy as np
from mpi4py import MPI

NCCL_FLOAT32 = 7
log, operations = [], []


def get_unique_id():
    return (1, 2, 3)


def floats(address, count, kind, stream):
    assert (kind, stream) == (NCCL_FLOAT32, 7)
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))


def groupStart():
    assert not operations


def groupEnd():
    log.append("sent")
    MPI.Request.Waitall(operations)
    operations.clear()


class NcclCommunicator:
    def __init__(self, size, ids, rank):
        assert ids == (1, 2, 3)
        self._comm = MPI.COMM_WORLD.Dup()
        assert (size, rank) == (self._comm.Get_size(), self._comm.Get_rank())

    def send(self, address, count, kind, peer, stream):
        operations.append(self._comm.Isend(floats(address, count, kind, stream).copy(), peer))

    def recv(self, address, count, kind, peer, stream):
        operations.append(self._comm.Irecv(floats(address, count, kind, stream), peer))

    def allGather(self, sent, received, count, kind, stream):
        every = floats(received, count * self._comm.Get_size(), kind, stream)
        assert sent == received + 4 * count * self._comm.Get_rank()
        self._comm.Allgather(MPI.IN_PLACE, every)


if os.environ.get("WITHOUT_NCCL"):
    raise ImportError("libnccl.so.2: cannot open shared object file")
