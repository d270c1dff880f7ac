"""What tests of walks share: a model, sentences, and how often functions were recorded by one call."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Callable

import dynet_compat as dy

MODEL = """
KNOWN = {1: 0, 3: 0, 4: 0, 8: 0}
PATHS = []

class Model:
    def __init__(self):
        pc = self.pc = dy.ParameterCollection()
        self.E = pc.add_lookup_parameters((9, 3))
        self.W = pc.add_parameters((3, 6))
        self.V = pc.add_parameters((3, 3))
        self.b = pc.add_parameters(3)
        self.scores = []

    def step(self, w):
        return dy.tanh(self.E[w] + self.b)

    def __call__(self, x, h):
        return dy.tanh(self.V * x + dy.cmult(h, self.b))
"""
ROUNDS = 30  # until all regions have learned
WORDS = [[1, 3, 4], [2, 1], [8, 7, 6, 5], [3], [], [1, 4, 3, 1, 8], [0, 0]]


def model_of(module: ModuleType) -> Any:
    if not hasattr(module, "model"):
        module.model = module.Model()
    return module.model


def run_all(module: ModuleType) -> list:
    """What the model's run() returns or raises for each sentence, and what it has appended to `scores`."""
    model_of(module).scores.clear()
    results = []
    for words in WORDS:
        try:
            results.append(module.model.run(words))
        except (AssertionError, IndexError, TypeError, ValueError) as e:
            results.append(f"{type(e).__name__}: {e}")
    return [*results, *module.model.scores]


def remembered(pair: Any) -> int:
    """How many calls were recorded from memory."""
    return sum(f.statistics()["remembered"] for f in pair.rewriter.walked_functions.values())


def walked(pair: Any, name: str) -> dict[str, Any]:
    """Statistics of the walked function of this name."""
    (found,) = [s for f in pair.rewriter.walked_functions.values() if (s := f.statistics())["name"] == name]
    return found


def seeded_model_of(module: ModuleType) -> Any:
    if not hasattr(module, "model"):
        dy.reset_random_seed(3)
        module.model = module.Model()
    return module.model


def hits(pair: Any) -> int:
    return sum(r.statistics()["hits"] for r in pair.rewriter.walked_functions.values())


TIMES = 40  # until regions have learned and walks are remembered


def learn(pair: Any, use: Callable[[ModuleType], list]) -> None:
    """After TIMES runs, calls are recorded at once."""
    for _ in range(TIMES):
        pair.agree(use)
    before = hits(pair)
    pair.agree(use)
    assert hits(pair) > before, refusals(pair)


def refusals(pair: Any) -> list:
    return [r.statistics()["refusal"] for r in pair.rewriter.walked_functions.values()]
