"""Expressions and states whose nodes are gone: an error at every use, never another node's value."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any, Callable

import numpy as np
import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="the reference gives other nodes' values, or dies")

# Every way to use an expression `z`, of which `w` is a current neighbour.
USES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "value": lambda dy, z, w: z.value(),
    "npvalue": lambda dy, z, w: z.npvalue(),
    "vec_value": lambda dy, z, w: z.vec_value(),
    "scalar_value": lambda dy, z, w: z.scalar_value(),
    "tensor_value": lambda dy, z, w: z.tensor_value(),
    "forward": lambda dy, z, w: z.forward(),
    "backward": lambda dy, z, w: z.backward(),
    "gradient": lambda dy, z, w: z.gradient(),
    "dim": lambda dy, z, w: z.dim(),
    "z + w": lambda dy, z, w: z + w,
    "w + z": lambda dy, z, w: w + z,
    "z + 1": lambda dy, z, w: z + 1,
    "-z": lambda dy, z, w: -z,
    "z[0]": lambda dy, z, w: z[0],
    "z[0:1]": lambda dy, z, w: z[0:1],
    "tanh": lambda dy, z, w: dy.tanh(z),
    "esum": lambda dy, z, w: dy.esum([w, z]),
    "concatenate": lambda dy, z, w: dy.concatenate([z, w]),
    "forward()": lambda dy, z, w: dy.forward([w, z]),
    "values()": lambda dy, z, w: dy.values([w, z]),
    "transduce": lambda dy, z, w: builder_of(dy).initial_state().transduce([z]),
    "set_s": lambda dy, z, w: builder_of(dy).initial_state().set_s([z]),
}


def builder_of(dy: Any) -> Any:
    return dy.SimpleRNNBuilder(1, 2, 2, dy.ParameterCollection())


def reverted(dy: Any) -> tuple[Any, Any]:
    """An expression that was taken back, and another one that has its number now."""
    dy.cg_checkpoint()
    z = dy.exp(dy.ones(2))
    dy.cg_revert()
    dy.zeros(2)
    return z, dy.log(dy.zeros(2) + 3)


def renewed(dy: Any) -> tuple[Any, Any]:
    z = dy.exp(dy.ones(2))
    dy.renew_cg()
    return z, dy.log(dy.zeros(2) + 3)


@pytest.mark.parametrize("gone", [reverted, renewed])
@pytest.mark.parametrize("use", USES)
def test_every_use_is_refused(dy: Any, use: str, gone: Callable[[Any], tuple[Any, Any]]) -> None:
    z, w = gone(dy)
    with pytest.raises(ValueError, match=r"expected expressions of this graph.*record it again") as caught:
        USES[use](dy, z, w)
    assert isinstance(caught.value, RuntimeError), "DyNet's value() raises RuntimeError: programs catch that"
    assert ("cg_revert()" in str(caught.value)) == (gone is reverted), str(caught.value)
    assert np.allclose(w.value(), np.log(3)), "the graph does not go on after the error"


def test_inputs_that_were_taken_back(dy: Any) -> None:
    m = dy.ParameterCollection()
    table = m.add_lookup_parameters((4, 2))
    dy.cg_checkpoint()
    x, v, row = dy.scalarInput(1), dy.vecInput(2), table[1]
    dy.cg_revert()
    kept = [dy.scalarInput(7), dy.vecInput(2), table[2]]
    for stale, value in ((x, 5), (v, [5, 5]), (row, 3)):
        with pytest.raises(dy.StaleExpressionError, match=r"set\(\).*cg_revert\(\) took back"):
            stale.set(value)
    assert kept[0].value() == 7
    assert np.allclose(kept[2].value(), table.row_as_array(2))


def test_what_is_older_than_the_checkpoint_stays(dy: Any) -> None:
    x = dy.inputVector([1, 2])
    dy.cg_checkpoint()
    y = x * 2
    dy.cg_checkpoint()
    z = y * 2
    dy.cg_revert()
    assert (x + y).value() == [3, 6]
    with pytest.raises(dy.StaleExpressionError):
        z.value()
    newer = y * 3
    dy.cg_revert()
    for stale in (y, z, newer):
        with pytest.raises(dy.StaleExpressionError):
            stale.value()
    assert (x * 5).value() == [5, 10]
    assert dy.concatenate([x, x]).value() == [1, 2, 1, 2]


def test_states_that_were_taken_back(dy: Any) -> None:
    m = dy.ParameterCollection()
    builder = dy.LSTMBuilder(1, 2, 2, m)
    start = builder.initial_state()
    first = start.add_input(dy.ones(2))
    dy.cg_checkpoint()
    second = first.add_input(dy.ones(2))
    mixed = first.set_s([dy.ones(2) * 2, first.h()[0]])  # its output is older than the checkpoint
    dy.cg_revert()
    third = first.add_input(dy.zeros(2))
    for stale in (second, mixed):
        for use in (stale.h, stale.s, lambda s=stale: s.add_input(dy.ones(2)), stale.set_h):
            with pytest.raises(ValueError, match=r"cg_revert\(\) took back"):
                use()
    with pytest.raises(dy.StaleExpressionError):
        second.output().value()
    assert len(third.output().value()) == 2
    assert builder.initial_state() is start


def test_dropped_cells_are_not_used_again(dy: Any) -> None:
    """set_h() takes the cells of the latest step; one that has a reverted cell does not count."""
    builder = dy.LSTMBuilder(1, 2, 2, dy.ParameterCollection())
    h = dy.inputVector([0.25, 0.5])
    first = builder.initial_state().set_s([dy.ones(2), h])
    dy.cg_checkpoint()
    first.set_s([dy.ones(2) * 7, h])
    dy.cg_revert()
    dy.zeros(2)
    assert first.set_h([h]).s()[0].value() == [1, 1]


def test_revert_in_another_thread_changes_nothing(dy: Any) -> None:
    x = dy.inputVector([1, 2])

    def other() -> None:
        dy.renew_cg()
        for _ in range(3):
            dy.cg_checkpoint()
            dy.ones(3)
            dy.cg_revert()

    dy.cg_checkpoint()
    stale = x + 1
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    dy.cg_revert()
    assert x.value() == [1, 2]
    with pytest.raises(dy.StaleExpressionError):
        stale.value()


def test_many_reverts(dy: Any) -> None:
    """An old expression is recognised among 20,000 reverts without a look at each of them."""
    x = dy.inputVector([1, 2])
    stale = []
    for _ in range(20000):
        dy.cg_checkpoint()
        stale.append(x + 1)
        dy.cg_revert()
    assert (x * 2).value() == [2, 4]
    for z in stale[::100]:
        with pytest.raises(dy.StaleExpressionError):
            z.dim()


def test_objects_made_by_their_class(dy: Any) -> None:
    """_inputExpression(cg, 3) is of its graph like scalarInput(3)."""
    x = dy._inputExpression(dy.cg(), 3)
    dy.renew_cg()
    with pytest.raises(dy.StaleExpressionError, match=r"got expression 0/\d+ of an earlier one"):
        x.value()


def test_the_error_can_be_sent(dy: Any) -> None:
    z, _ = renewed(dy)
    with pytest.raises(dy.StaleExpressionError) as caught:
        z.value()
    for again in (pickle.loads(pickle.dumps(caught.value)), copy.copy(caught.value)):
        assert type(again) is dy.StaleExpressionError
        assert str(again) == str(caught.value)
