"""Scripts that run under the real DyNet (the recorder) and under ours (the tests), and return named arrays.

A scenario takes the library and returns a dict. It must draw all its numbers from NumPy or from the library
under a seed, so that two runs differ only by what the library does.
"""

from __future__ import annotations

from typing import Any, Callable

from support.scenarios import builders, initialisers, randoms, tensors, trainers

Scenario = Callable[[Any], Any]  # the library -> named arrays

_FAMILIES: dict[str, dict[str, Scenario]] = {
    "initialisers": initialisers.SCENARIOS,
    "random": randoms.SCENARIOS,
    "trainers": trainers.SCENARIOS,
    "builders": builders.SCENARIOS,
    "tensors": tensors.SCENARIOS,
}
ALL: dict[str, Scenario] = {name: run for family in _FAMILIES.values() for name, run in family.items()}
SECTIONS: dict[str, list[str]] = {section: list(family) for section, family in _FAMILIES.items()}
