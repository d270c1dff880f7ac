"""What tests of templates share: modules from files, and what a graph holds."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import dynet_compat as dy


def load(path: Path) -> ModuleType:
    """The file as a new module at each call."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def flat(value: Any) -> list:
    """The items of lists and tuples, however nested."""
    if isinstance(value, (list, tuple)):
        return [x for item in value for x in flat(item)]
    return [value]


def identities(results: list) -> list[int]:
    """For each object among the results, lists and tuples too, the place of the first that is the same one.
    Numbers and the like have no identity to rely on."""
    places: dict[int, int] = {}
    out = []

    def walk(value: Any) -> None:
        if value is None or value == () or isinstance(value, (bool, int, float, str, bytes)):
            return
        out.append(places.setdefault(id(value), len(places)))
        if isinstance(value, (list, tuple)):
            for item in value:
                walk(item)

    walk(results)
    return out


def recorded_ops() -> list:
    """The ops in the order in which they were recorded. Parameters and constants are left out: they are
    recorded when they are first used."""
    nodes = map(dy._core._graph_node, range(dy._core.cg_size()))
    return [(name, sizes, batch) for name, args, sizes, batch, _ in nodes if args]


def recorded_nodes() -> Counter:
    """How many nodes there are of each op, number of arguments and extents."""
    nodes = map(dy._core._graph_node, range(dy._core.cg_size()))
    return Counter((name, len(args), sizes, batch) for name, args, sizes, batch, _ in nodes)
