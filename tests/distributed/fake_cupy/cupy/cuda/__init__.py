import contextlib
import os

from . import nccl


class Device(contextlib.AbstractContextManager):
    def __init__(self, number):
        rank = os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"]
        self.pci_bus_id = f"0000:{int(rank) // int(os.environ.get('RANKS_OF_A_GPU', '1'))}"

    def __exit__(self, *_):
        pass


class Stream(contextlib.AbstractContextManager):
    """What is asked for is done at once, but by NCCL, which waits for other ranks."""

    ptr = 7

    def __init__(self, non_blocking):
        pass

    @property
    def done(self):
        nccl.log.append("done")
        return True

    def __exit__(self, *_):
        pass


__all__ = ["Device", "Stream", "nccl"]
