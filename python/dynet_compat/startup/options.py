"""The `--dynet-*` options of the command line and the `DYNET_COMPAT_*` variables of the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from . import devices

_MOST_UINT = 2**32 - 1


class _Unset(int):
    """A zero that the user did not write: batching is on unless an explicit 0 turns it off."""


UNSET = _Unset(0)


@dataclass
class StartSettings:
    """What can be configured, in DyNet's names and with its defaults."""

    mem: str = "512"
    seed: int = 0
    autobatch: int = UNSET
    profiling: int = 0
    weight_decay: float = 0.0
    shared_params: bool = False
    requested_gpus: int = 0
    gpu_mask: list[int] = field(default_factory=list)
    gpus: list[int] = field(default_factory=list)  # of the command line: needed

    @classmethod
    def from_mapping(cls, conf: Mapping[str, Any]) -> StartSettings:
        """StartSettings from a dict as `dynet_config.get` returns it; other keys are ignored."""
        known = {f.name for f in fields(cls)}
        settings = cls(**{key: value for key, value in conf.items() if key in known})
        settings.mem = str(settings.mem)
        settings.gpu_mask = list(settings.gpu_mask or [])
        return settings


def _leading(pattern: str, text: str) -> str:
    match = re.match(r"\s*(" + pattern + ")", text)
    return match.group(1) if match else ""


def _integer(text: str) -> int:
    """The integer at the start of the text; 0 where there is none."""
    return int(_leading(r"[+-]?\d+", text) or 0)


def _unsigned(text: str) -> int:
    """As `_integer`, in 32 bits: negative numbers wrap, those too large or too small saturate."""
    number = _integer(text)
    return number % 2**32 if abs(number) <= _MOST_UINT else _MOST_UINT


def _signed(text: str) -> int:
    """As `_integer`, in 32 bits: large numbers saturate."""
    return min(max(_integer(text), -(2**31)), 2**31 - 1)


def _number(text: str) -> float:
    """The number at the start of the text; 0 where there is none, or half of one ("1e")."""
    try:
        return float(_leading(r"[+-]?\d*\.?\d*(?:[eE][+-]?\d*)?", text))
    except ValueError:
        return 0.0


_VALUES = {"seed": "a number", "weight-decay": "a number", "autobatch": "a number", "profiling": "a number",
           "mem": "a number of MB, or four with commas", "devices": "names of devices"}  # fmt: skip


def _option_of(argument: str) -> str:
    """The option an argument begins with ("seed", ...), or "". As in DyNet the name may be longer."""
    for name in _VALUES:
        if argument.startswith((f"--dynet-{name}", f"--dynet_{name.replace('-', '_')}")):
            return name
    return ""


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(option, value) for each `--dynet-*` option, of the forms `--opt value` and `--opt=value`."""
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        position += 1
        option = _option_of(argument)
        if not option:
            continue
        if "=" in argument:
            value = argument.split("=", 1)[1] or None
        elif position < len(arguments) and not arguments[position].startswith("--"):
            value = arguments[position]  # an empty one is a value, as in DyNet
            position += 1
        else:
            value = None
        if value is None:
            raise ValueError(f"{argument}: expected a value ({_VALUES[option]}), got none")
        yield option, value


def gpus_of(arguments: Sequence[str]) -> list[int]:
    """Numbers of the GPUs that the command line asks for."""
    found: list[list[int]] = []
    for position, argument in enumerate(arguments):
        option, equals, value = argument.replace("_", "-").partition("=")
        if not equals:
            value = arguments[position + 1] if position + 1 < len(arguments) else ""
        if option == "--dynet-gpu":
            found.append([0])
        elif option == "--dynet-gpus":
            if not re.fullmatch(r"\s*[+-]?\d+", value, re.ASCII):
                raise ValueError(f"--dynet-gpus: expected a number of GPUs, got {value!r}")
            found.append(devices.numbers_of(_signed(value), []))
        elif option == "--dynet-devices" and value and not value.startswith("--"):
            found.append(devices.parse_names(value))
    if len(found) > 1:
        raise ValueError("--dynet-gpu, --dynet-gpus, --dynet-devices: expected one of them, once")
    return found[0] if found else []


def seed_of(arguments: Sequence[str]) -> int:
    """The seed that the command line asks for; 0, which means one of the operating system's, without."""
    seeds = [_unsigned(value) for option, value in _options(arguments) if option == "seed"]
    return seeds[-1] if seeds else 0


def parse_arguments(arguments: Sequence[str]) -> StartSettings:
    """StartSettings from the `--dynet-*` options among the arguments; other arguments are ignored.

    Raises:
        ValueError: an option without value, or with a value outside its range.
        RuntimeError: a GPU is asked for, and cannot be used.
    Example:
        >>> parse_arguments(["--data", "x.txt", "--dynet-seed", "7", "--dynet-mem=1024"]).seed
        7
    """
    settings = StartSettings(gpus=gpus_of(arguments))
    devices.require(settings.gpus)
    for option, value in _options(arguments):
        if option == "mem":
            settings.mem = value
        elif option == "autobatch":
            settings.autobatch = _signed(value)
        elif option == "profiling":
            settings.profiling = _signed(value)
        elif option == "weight-decay":
            settings.weight_decay = _number(value)
        elif option == "devices":
            devices.parse_names(value)
    settings.seed = seed_of(arguments)
    return settings


def check(settings: StartSettings) -> None:
    """Values that DyNet refuses when it starts."""
    parts = settings.mem.split(",")
    if len(parts) > 1 and not parts[-1]:
        parts.pop()  # DyNet does not mind a comma at the end
    if len(parts) not in (1, 4) or not all(0 < _integer(part) < 2**31 for part in parts):
        raise ValueError(f"memory: expected a number of MB, or four with commas, got {settings.mem}")
    if not 0.0 <= settings.weight_decay < 1.0:
        raise ValueError(f"weight decay: expected 0 <= weight_decay < 1, got {settings.weight_decay}")


_OTHERS = ("gpu", "gpus", "viz")
_REMOVED = ("l2", "gpu-ids")  # options of older versions
_NUMBERS = {"seed": r"[+-]?\d+", "autobatch": r"[+-]?\d+", "profiling": r"[+-]?\d+",
            "weight-decay": r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"}  # fmt: skip


def doubtful(arguments: Sequence[str]) -> list[str]:
    """Sentences about options that DyNet takes without a word and a user hardly means.

    Args:
        arguments: the words of the command line.
    Returns:
        One sentence for each option that does not exist, and for each number that is none.
    Example:
        >>> doubtful(["--dynet-sed", "1"])
        ['--dynet-sed is no option and is ignored; did you mean --dynet-seed?']
    """
    from difflib import get_close_matches

    found = []
    for argument in arguments:
        name = argument.partition("=")[0]
        if not name.startswith(("--dynet-", "--dynet_")) or _option_of(argument):
            continue
        plain = name[8:].replace("_", "-")
        if plain in _REMOVED:
            found.append(f"{name} is no longer an option of DyNet and is ignored")
        elif plain not in _OTHERS:
            close = get_close_matches(plain, [*_VALUES, *_OTHERS], 1)
            hint = f"; did you mean --dynet-{close[0]}?" if close else ""
            found.append(f"{name} is no option and is ignored{hint}")
    for option, value in _options(arguments):
        if option in _NUMBERS and not re.fullmatch(r"\s*" + _NUMBERS[option], value, re.ASCII):
            read = _number(value) if option == "weight-decay" else _integer(value)
            wanted = f"expected {_VALUES[option]}; read as {read}, as DyNet does"
            found.append(f"--dynet-{option} {value}: {wanted}")
    return found


_WHOLE = re.compile(r"[1-9][0-9]{0,8}")
_VARIABLES = {
    "SCHEDULER": ("bucket, depth, agenda or none", re.compile("bucket|depth|agenda|none")),
    "ISA": ("baseline, avx2 or avx512", re.compile("baseline|avx2|avx512")),
    "PRECISION": ("float32, tf32 or bf16", re.compile("float32|tf32|bf16")),
    "THREADS": ("a number of threads, 1 or more", _WHOLE),
    "MEM": ("a number of MB, 1 or more", _WHOLE),
}
_UNCHECKED = ("CACHE", "CHAINS", "CUBLAS", "DEVICE", "EMULATION", "GRAPHS", "HINTS", "LIBCUDA", "MEASURED",
              "PERSISTENT", "REPORT", "SNAPSHOT", "TRUSTED")  # fmt: skip


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The `DYNET_COMPAT_*` variables that are set, checked.

    Args:
        variables: the environment.
    Returns:
        name -> value; empty ones are left out, as if they were not set.
    Raises:
        ValueError: a value that the variable does not take.
    Example:
        >>> environment({"DYNET_COMPAT_THREADS": "2", "HOME": "/"})
        {'DYNET_COMPAT_THREADS': '2'}
    """
    found = {name: v for name, v in variables.items() if name.startswith("DYNET_COMPAT_") and v}
    for short, (wanted, pattern) in _VARIABLES.items():
        value = found.get("DYNET_COMPAT_" + short)
        if value is not None and not pattern.fullmatch(value):
            raise ValueError(f"DYNET_COMPAT_{short}: expected {wanted}, got {value!r}")
    return found


def misspelt(variables: Mapping[str, str]) -> list[str]:
    """Sentences about variables whose names are nearly those of this package.

    Args:
        variables: the environment.
    Returns:
        One sentence for each.
    Example:
        >>> misspelt({"DYNET_COMPAT_HINT": "auto", "DYNET_COMPAT_HINTS": "off"})
        ['DYNET_COMPAT_HINT is no variable and is ignored; did you mean DYNET_COMPAT_HINTS?']
    """
    known = {"DYNET_COMPAT_" + short for short in (*_VARIABLES, *_UNCHECKED)}
    unknown = [name for name in variables if name.startswith("DYNET_COMPAT") and name not in known]
    if not unknown:
        return []
    from difflib import get_close_matches

    close = {name: get_close_matches(name, sorted(known), 1, 0.92) for name in unknown}
    said = "{} is no variable and is ignored; did you mean {}?"
    return [said.format(name, near[0]) for name, near in close.items() if near]
