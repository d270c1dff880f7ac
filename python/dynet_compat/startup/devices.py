"""Where a program computes: the device that is asked for, by the command line, `dynet_config` or the
environment.

A process computes on one device. `DYNET_COMPAT_DEVICE` (`cpu`, `gpu`, `cuda:N`, `emulation`) goes before
what the program asks for; without either it is the CPU. Device names in the program (`device="GPU:0"`,
`to_device`) are checked against the devices asked for, as in DyNet, and change nothing else: no copy
between devices has to be asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from .. import _core

VARIABLE = "DYNET_COMPAT_DEVICE"
ERRMSG = (
    "no GPU can be used; `python -m dynet_compat info` says what is missing. Leave --dynet-gpu(s) away to "
    "compute on the CPU."
)


class Choice(NamedTuple):
    """The engine's name of a device, and the names that the program may use."""

    device: str
    names: list[str]


def usable_cores() -> set[int]:
    """The numbers of the cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return set(affinity(0)) if affinity else set(range(os.cpu_count() or 1))


def cores() -> int:
    """How many cores this process may use."""
    return len(usable_cores())


def gpus() -> dict[str, Any]:
    """What the driver reports: `missing` ("" if there is a GPU), `version` of CUDA, `devices`."""
    found: dict[str, Any] = _core._find_gpus()
    return found


def missing(numbers: Sequence[int]) -> str:
    """What these GPUs lack to be used: a driver, a device, NVRTC; "" if nothing."""
    found = gpus()
    if found["missing"]:
        return str(found["missing"])
    count = len(found["devices"])
    if max(numbers, default=0) >= count:
        names = ", ".join(f"GPU:{i} ({device['name']})" for i, device in enumerate(found["devices"]))
        return f"there is no GPU:{max(numbers)}: this machine has {names}"
    from ..cuda.nvrtc import find_nvrtc

    try:
        find_nvrtc(found["version"])
    except RuntimeError as error:
        return str(error)
    return ""


def require(numbers: Sequence[int]) -> None:
    """Raises RuntimeError where a GPU that the program asks for cannot be used."""
    if not numbers or from_environment() in ("cpu", "emulation"):
        return
    reason = missing(numbers)
    if reason:
        raise RuntimeError(reason)


def from_environment() -> Optional[str]:
    """The engine's name of the device that the environment asks for: "cpu", "emulation", "cuda:0" ...

    Raises:
        ValueError: DYNET_COMPAT_DEVICE is none of them.
    """
    value = os.environ.get(VARIABLE, "").strip().lower()
    if not value:
        return None
    if value in ("cpu", "emulation"):
        return value
    match = re.fullmatch(r"(?:gpu|cuda)(?::(\d{1,4}))?", value)
    if not match:
        raise ValueError(f"{VARIABLE}: expected cpu, gpu, cuda:N or emulation, got {value}")
    return f"cuda:{int(match.group(1) or 0)}"


def parse_names(text: str) -> list[int]:
    """Numbers of the GPUs in a list of `--dynet-devices`: "CPU,GPU:0" gives [0].

    Raises:
        ValueError: a name that no device has, or one twice.
    """
    names = text.split(",")
    for name in names:
        if name != "CPU" and not re.fullmatch(r"GPU:\d{1,4}", name):
            raise ValueError(
                f"--dynet-devices: expected names among CPU, GPU:0, GPU:1 ..., got {name!r} in {text!r}"
            )
    if len(set(names)) < len(names):
        raise ValueError(f"--dynet-devices: expected each device once, got {text!r}")
    return [int(name[4:]) for name in names if name != "CPU"]


def numbers_of(requested: int, mask: Sequence[int]) -> list[int]:
    """Numbers of the GPUs that a count selects, or a mask (1: this one) if there is one."""
    if any(mask):
        return [i for i, use in enumerate(mask) if use]
    return list(range(min(max(requested, 0), 1024)))


def choose(numbers: Sequence[int]) -> Choice:
    """The device for a program that asks for these GPUs.

    Raises:
        ValueError: DYNET_COMPAT_DEVICE is no device.
    """
    named = from_environment()
    device = named or (f"cuda:{numbers[0]}" if numbers else "cpu")
    names = [f"GPU:{i}" for i in numbers]
    if device == "emulation" and not names:
        names = ["GPU:0"]
    elif device.startswith("cuda:"):
        own = f"GPU:{device[5:]}"
        names = [own, *(name for name in names if name != own)]
    return Choice(device, [*names, "CPU"])


_current = Choice("cpu", ["CPU"])


def use(choice: Choice) -> None:
    """Computes there from now on.

    Raises:
        RuntimeError: the device cannot be used.
    """
    global _current
    if choice.device.startswith("cuda:"):
        reason = missing([int(choice.device[5:])])
        if reason:
            raise RuntimeError(reason)
    if choice.device != _current.device:
        _core._use_device(choice.device)
    _core._set_device_names(choice.names)
    _current = choice


def current() -> Choice:
    """The choice in force."""
    return _current


def is_gpu() -> bool:
    """Whether this process computes on a GPU."""
    return _current.device.startswith("cuda:")
