"""Models and helpers of the tests of regions."""

from __future__ import annotations

import contextlib
import itertools
import linecache
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

import dynet_compat as dy
import numpy as np
import pytest
from dynet_compat.hints.rewrite import patch

from support.modules import flat, identities, load, recorded_nodes, recorded_ops

_numbers = itertools.count()


class Pair:
    """A module as it was written, and the same with its regions recorded by one call."""

    def __init__(self, folder: Path, source: str) -> None:
        self.source = "import dynet_compat as dy\n" + textwrap.dedent(source)
        path = folder / f"script{next(_numbers)}.py"
        path.write_text(self.source)
        self.plain, self.other = load(path), load(path)
        self.rewriter = patch.rewrite_module(self.other, self.source)

    @property
    def statistics(self) -> dict[str, dict]:
        return {name: t.statistics() for name, t in self.rewriter.regions.items()}

    @property
    def hits(self) -> int:
        return sum(s["hits"] for s in self.statistics.values())

    def agree(self, use: Callable[[ModuleType], list]) -> None:
        """`use` records with the module's functions; the same values, objects, nodes, gradients and
        draws follow."""
        left, right = outcome(use, self.plain), outcome(use, self.other)
        assert left["nodes"] == right["nodes"]
        assert left["ops"] == right["ops"], "other ops, or in another order"
        assert re.sub(r"\d+", "#", str(left["error"])) == re.sub(r"\d+", "#", str(right["error"]))
        assert left["others"] == right["others"], "other results that are no expressions"
        assert left["identities"] == right["identities"], "other results are the same object"
        for a, b in zip(left["values"], right["values"]):
            np.testing.assert_array_equal(a, b)
        assert len(left["values"]) == len(right["values"])
        for a, b in zip(left["gradients"], right["gradients"]):
            np.testing.assert_array_equal(a, b)


@contextlib.contextmanager
def two_models(
    path: Path, source: str, name: str
) -> Iterator[tuple[list[ModuleType], list[Any], patch.LinkedModule]]:
    """A random program as it was written and under hints, and a model of each from the same random numbers.
    At the end no region may have recorded something else than it had learned."""
    path.write_text(source)
    modules = [load(path), load(path)]
    rewriter = patch.rewrite_module(modules[1], source)
    models = []
    for module in modules:
        dy.reset_random_seed(1)
        models.append(module.Model())
    yield modules, models, rewriter
    for t in rewriter.regions.values():
        assert "something else" not in t.statistics()["off"], f"{t.statistics()} {name}:\n{source}"
    linecache.clearcache()
    path.unlink()


def outcome(use: Callable[[ModuleType], Any], module: ModuleType) -> dict[str, Any]:
    dy.renew_cg()
    dy.reset_random_seed(7)
    results, error = [], None
    try:
        for result in use(module):
            results.append(result)
    except Exception as e:  # noqa: BLE001 - any error must be the same on both sides
        error = f"{type(e).__name__}: {e}"
    expressions = [r for r in flat(results) if isinstance(r, dy.Expression)]
    others = [compared(r) for r in flat(results) if not isinstance(r, dy.Expression)]
    same = {
        "nodes": recorded_nodes(),
        "ops": recorded_ops(),
        "others": others,
        "identities": identities(results),
    }
    try:
        values = [e.npvalue() for e in expressions]
    except Exception as e:  # noqa: BLE001
        return {**same, "values": [], "gradients": [], "error": f"{type(e).__name__}: {e}"}
    gradients = []
    if expressions:
        loss = dy.sum_batches(dy.esum([dy.squared_norm(e) for e in expressions]))
        loss.value()
        loss.backward(full=True)
        gradients = [e.gradient() for e in expressions]
    return {**same, "values": values, "gradients": gradients, "error": error}


def compared(result: Any) -> Any:
    """A result that is no expression as something that is equal on both sides."""
    if isinstance(result, np.ndarray):
        return "array", result.tolist()
    # Objects of the two modules' own classes, and states, are never equal.
    by_identity = type(result).__eq__ is object.__eq__
    return type(result).__name__, None if by_identity and result is not None else result


@pytest.fixture
def pair(tmp_path: Path) -> Callable[[str], Pair]:
    return lambda source: Pair(tmp_path, source)


MODEL = """
class Model:
    def __init__(self):
        pc = self.pc = dy.ParameterCollection()
        self.W = pc.parameters_from_numpy(NUMBERS.reshape(3, 3))
        self.U = pc.parameters_from_numpy(NUMBERS.reshape(3, 3) * 0.5)
        self.b = pc.parameters_from_numpy(NUMBERS[:3])
        self.E = pc.lookup_parameters_from_numpy(NUMBERS.reshape(9, 1).repeat(3, 1))
        self.gates = {"i": self.W, "o": self.U}
        self.layers = [self.W, self.U]
        self.scale = 2.0

    def cell(self, x, h):
        z = dy.affine_transform([self.b, self.W, x, self.U, h])
        return dy.tanh(z) + x, z

    def gate(self, name, x):
        return dy.logistic(self.gates[name] * x + self.b)

    def word(self, w, h):
        x = self.E[w]
        return dy.cmult(dy.tanh(x), h) + self.scale

    def both(self, x):
        i = self.gate("i", x)
        o = self.gate("o", x)
        return dy.cmult(i, o)
"""


MODEL = "import numpy as np\nNUMBERS = np.linspace(-1, 1, 9)\n" + MODEL


def repeated_function(name: str, n: int = 6) -> Callable[[ModuleType], list]:
    def use(module: ModuleType) -> list:
        f = getattr(module, name)
        return [f(dy.inputVector([i, 2.5]), dy.inputVector([0.5, i])) for i in range(n)]

    return use


def vector(i: float) -> Any:
    return dy.inputVector([i, 1.0, -i])
