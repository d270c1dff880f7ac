"""Where the ranks of a job compute, and what must be alike there."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from .. import _core
from ..startup import config, devices, options
from .cores import UsableCores, usable_cores
from .group import JobError


class Place(NamedTuple):
    """Of one rank.

    Attributes:
        cores: with the machine's name.
        device: the engine's name of it.
        isa: instruction set that its kernels are asked to have.
        word: the hash of a word, which the order of sets depends on.
    """

    cores: UsableCores
    device: str
    isa: str
    word: int

    @property
    def host(self) -> str:
        return self.cores[0]


def here() -> Place:
    isa = os.environ.get("DYNET_COMPAT_ISA") or _core._best_isa()
    return Place(usable_cores(), _device(), isa, hash("a word"))


def _device() -> str:
    """That in use, or, before the script is run, that which its command line asks for."""
    if config.is_initialised():
        return devices.current().device
    return devices.choose(options.gpus_of(sys.argv[1:])).device


def kind(device: str) -> str:
    return device.partition(":")[0]


def refuse_mix(places: Sequence[Place]) -> None:
    """CPUs and GPUs round differently: each rank's own update would lead its parameters elsewhere."""
    if len({kind(place.device) for place in places}) > 1:
        lines = [f"rank {rank} on {place.host}: {place.device}" for rank, place in enumerate(places)]
        raise JobError(
            "ranks compute on unlike devices, whose results differ in their last bits; give all of them a "
            "GPU or none (DYNET_COMPAT_DEVICE=cpu, or gpu):\n  " + "\n  ".join(lines)
        )
