"""Rows of a table that are looked up, but that the loss does not depend on: sparse updates visit them, too.

Found by comparing examples/parser.py with the real DyNet: momentum went on in its table of labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

# Trainer -> row 1 after three updates, used in the first only; recorded with DyNet 2.1.2.
VISITED = {"MomentumSGDTrainer": 0.9458, "AdamTrainer": 0.997812, "SimpleSGDTrainer": 0.8}
NOT_VISITED = {"MomentumSGDTrainer": 0.98, "AdamTrainer": 0.999, "SimpleSGDTrainer": 0.8}


def row_after(dy: Any, trainer: str, before: bool, lookup: Any) -> tuple[float, float]:
    """Row 1 and row 2; row 1 is looked up in each graph, before or after the loss."""
    model = dy.ParameterCollection()
    table = model.add_lookup_parameters((4, 2), init=1.0)
    other = model.add_parameters(2, init=1.0)
    steps = getattr(dy, trainer)(model)
    for step in range(3):
        dy.renew_cg()
        used = table[1 if step == 0 else 0]
        if before:
            dy.tanh(lookup(table))
        loss = dy.squared_norm(dy.concatenate([other, used]))
        if not before:
            dy.tanh(lookup(table))
        loss.backward()
        steps.update()
    values = table.as_array()
    return float(values[1, 0]), float(values[2, 0])


@pytest.mark.parametrize("trainer", sorted(VISITED))
def test_rows_before_the_loss(dy: Any, trainer: str) -> None:
    one, never = row_after(dy, trainer, True, lambda table: table[1])
    assert one == pytest.approx(VISITED[trainer], abs=2e-6) and never == 1.0
    one, _ = row_after(dy, trainer, True, lambda table: dy.lookup_batch(table, [1, 0]))
    assert one == pytest.approx(VISITED[trainer], abs=2e-6)


@pytest.mark.parametrize("trainer", sorted(VISITED))
def test_rows_after_the_loss(dy: Any, trainer: str) -> None:
    one, _ = row_after(dy, trainer, False, lambda table: table[1])
    assert one == pytest.approx(NOT_VISITED[trainer], abs=2e-6)
    one, _ = row_after(dy, trainer, True, lambda table: dy.lookup(table, 1, update=False))
    assert one == pytest.approx(NOT_VISITED[trainer], abs=2e-6)


def test_gradient_is_zero(dy: Any) -> None:
    model = dy.ParameterCollection()
    table = model.add_lookup_parameters((4, 2), init=1.0)
    dy.renew_cg()
    dy.tanh(table[1])
    dy.squared_norm(table[2]).backward()
    assert np.array_equal(table.grad_as_array(), [[0, 0], [0, 0], [2, 2], [0, 0]])
