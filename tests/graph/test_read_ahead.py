"""Values read one by one that were all recorded before the first read are computed together."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest
from support.subject import ON_DEVICE


@pytest.fixture
def chart(dy: Any) -> tuple[Any, Any, Any]:
    """A collection with a scorer of pairs, and a table."""
    model = dy.ParameterCollection()
    return model, model.add_parameters((6, 12)), model.add_lookup_parameters((8, 6))


def scores(dy: Any, chart: tuple[Any, Any, Any], n: int = 8) -> list[Any]:
    """n * n scores of pairs of rows, the rows computed already."""
    _, W, table = chart
    words = [dy.tanh(table[i % 8]) for i in range(n)]
    dy.concatenate(words).value()
    return [dy.sum_elems(dy.tanh(W * dy.concatenate([x, y]))) for x in words for y in words]


def flushes(dy: Any) -> int:
    return int(dy._core.timing()["flushes"])


def test_scores_of_a_chart_take_few_flushes(dy: Any, chart: tuple[Any, Any, Any]) -> None:
    dy.renew_cg()
    alone = []
    for i in range(64):
        dy.renew_cg()
        alone.append(scores(dy, chart)[i].value())
    dy.renew_cg()
    recorded = scores(dy, chart)
    before = flushes(dy)
    together = [s.value() for s in recorded]
    if ON_DEVICE:  # products of few columns add up in another order
        assert together == pytest.approx(alone, rel=1e-5, abs=1e-6)
    else:
        assert together == alone
    assert flushes(dy) - before <= 4  # the first, the second with 32 more, the rest


def test_a_single_read_computes_one_score(dy: Any, chart: tuple[Any, Any, Any]) -> None:
    dy.renew_cg()
    recorded = scores(dy, chart)
    before = dy._core.timing()["planned_nodes"]
    recorded[5].value()
    assert dy._core.timing()["planned_nodes"] - before <= 5


def test_gradients_are_those_of_reading_nothing(dy: Any, chart: tuple[Any, Any, Any]) -> None:
    _, W, _ = chart
    found = []
    for read in (False, True):
        dy.renew_cg()
        recorded = scores(dy, chart)
        if read:
            for s in recorded:
                s.value()
        W.scale_gradient(0)
        dy.esum(recorded[3::7]).backward()
        found.append(W.grad_as_array().copy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-6)


def test_a_parameter_that_changes_between_reads_counts(dy: Any) -> None:
    """A graph keeps the values that a parameter has when it is first needed, which reading ahead is not."""
    model = dy.ParameterCollection()
    first, other = (model.add_parameters((1, 1), init=1.0) for _ in range(2))
    dy.renew_cg()
    xs = [dy.inputVector([float(i)]) for i in range(6)]
    mixed = [dy.tanh((first if i < 3 else other) * x) for i, x in enumerate(xs)]
    assert [mixed[i].value() for i in range(2)] == [np.tanh(np.float32(i)) for i in range(2)]
    other.set_value([[10.0]])
    assert mixed[5].value() == pytest.approx(np.tanh(50.0))


def test_a_row_that_changes_between_reads_counts(dy: Any) -> None:
    model = dy.ParameterCollection()
    table = model.add_lookup_parameters((4, 1), init=1.0)
    dy.renew_cg()
    doubled = [table[i] * 2 for i in range(4)]
    assert [doubled[0].value(), doubled[1].value()] == [2.0, 2.0]
    for i in range(4):
        table.init_row(i, [10.0])
    assert [d.value() for d in doubled] == [2.0, 2.0, 20.0, 20.0]


def test_rows_looked_up_before_the_first_read_are_those_of_then(dy: Any) -> None:
    """DyNet computes what was recorded before the value that is read; so these are read ahead."""
    model = dy.ParameterCollection()
    table = model.add_lookup_parameters((64, 1), init=1.0)
    dy.renew_cg()
    rows = [table[i] for i in range(64)]
    doubled = [row * 2 for row in rows]
    before = flushes(dy)
    assert [doubled[0].value(), doubled[1].value()] == [2.0, 2.0]
    for i in range(64):
        table.init_row(i, [10.0])
    assert [d.value() for d in doubled[2:33]] == [2.0] * 31
    assert flushes(dy) - before == 2


def test_random_draws_keep_their_order(dy: Any) -> None:
    """The third noise is not drawn when the second is read: a parameter drawn in between would differ."""

    def draws(recorded_before: int) -> list[float]:
        dy.reset_random_seed(7)
        dy.renew_cg()
        noisy = [dy.sum_elems(dy.noise(dy.ones(3) * i, 1.0)) for i in range(recorded_before)]
        read = [n.value() for n in noisy[:2]]
        return read + dy.ParameterCollection().add_parameters(3).as_array().tolist()

    assert draws(recorded_before=5) == draws(recorded_before=2)


def test_memory_for_values_that_nobody_asked_for_may_be_missing() -> None:
    """Each value takes a third of the arena, so that three together do not fit."""
    program = """
        import dynet_compat as dy
        x = dy.inputVector([1.0]) * dy.ones(1)
        wide = [dy.concatenate([x * i] * 1_300_000) for i in range(8)]
        assert [wide[i].npvalue()[0] for i in range(2)] == [0.0, 1.0]
    """
    environment = dict(os.environ, DYNET_COMPAT_MEM="16")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_reads_between_recordings_do_not_look_ahead(dy: Any, chart: tuple[Any, Any, Any]) -> None:
    _, W, table = chart
    dy.renew_cg()
    state = dy.tanh(table[0])
    before = dy._core.timing()["planned_nodes"]
    for i in range(20):
        unread = dy.tanh(W * dy.concatenate([state, state]))
        state = dy.tanh(W * dy.concatenate([state, table[i % 8]]))
        state.value()
    assert dy._core.timing()["planned_nodes"] - before <= 20 * 4 + 2
    assert np.isfinite(unread.npvalue()).all()


def test_a_site_whose_reads_seldom_help(dy: Any) -> None:
    dy.renew_cg()
    for i in range(100):
        read, left = (dy.tanh(dy.inputVector([0.01 * i, k])) for k in (1.0, 2.0))
        np.testing.assert_allclose(read.npvalue(), np.tanh([0.01 * i, 1.0]), rtol=1e-6)
        assert left.dim() == read.dim()
