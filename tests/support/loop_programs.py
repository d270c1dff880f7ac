"""Helpers of the tests of loops."""

from __future__ import annotations

from typing import Any, Callable

import dynet_compat as dy

from support.region_models import MODEL


def again(p: Any) -> int:
    """Iterations that were recorded as the one before them, without guards."""
    return sum(s["loop_hits"] for s in p.statistics.values())


def model_of(pair: Callable, methods: str) -> Any:
    """A model with the methods, and a builder, in both modules."""
    p = pair(MODEL + methods)
    for module in (p.plain, p.other):
        dy.reset_random_seed(2)
        module.model = module.Model()
        module.model.rnn = dy.VanillaLSTMBuilder(1, 3, 3, module.model.pc)
    return p
