"""Gradients that scripts write, and gradients, values and hashes of whole collections as flat arrays."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import dynet_compat as dy
import numpy as np
import pytest
from dynet_compat import _core


def model() -> tuple[dy.ParameterCollection, dy.Parameters, dy.Parameters, dy.LookupParameters]:
    pc = dy.ParameterCollection()
    W, unused = pc.add_parameters((3, 4), init="normal"), pc.add_parameters(2)
    return pc, W, unused, pc.add_lookup_parameters((10, 5), init="normal")


def accumulate(W: dy.Parameters, E: dy.LookupParameters, rows: tuple[int, ...] = (7, 2)) -> None:
    dy.renew_cg()
    h = W * dy.inputVector([1, -2, 3, 4])
    dy.esum([dy.squared_norm(h), *(dy.squared_norm(E[row]) for row in rows)]).backward()


def taken(pc: dy.ParameterCollection, kinds: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    flat = np.empty(_core._gradient_size(pc, kinds), np.float32)
    _core._take_gradients(pc, kinds, flat)
    return flat


def test_a_gradient_is_replaced() -> None:
    pc, W, unused, _ = model()
    before = W.as_array()
    wanted = np.arange(12.0).reshape(3, 4)
    dy.sum_elems(W).backward()
    W.set_gradient(wanted)
    assert W.grad_as_array().tolist() == wanted.tolist() and W.has_gradient() and not unused.has_gradient()
    trainer = dy.SimpleSGDTrainer(pc, 0.5)
    trainer.set_clip_threshold(0)
    trainer.update()
    np.testing.assert_allclose(W.as_array(), before - 0.5 * wanted, rtol=1e-6)
    assert not W.has_gradient()


def test_none_takes_a_gradient_away() -> None:
    pc, W, _, E = model()
    accumulate(W, E)
    W.set_gradient(None)
    E.set_gradient(None)
    before = W.as_array().tolist(), E.as_array().tolist()
    dy.SimpleSGDTrainer(pc, 0.5).update()
    assert (W.as_array().tolist(), E.as_array().tolist()) == before


def test_rows_are_replaced_and_others_left_alone() -> None:
    pc, W, _, E = model()
    accumulate(W, E, (1,))
    E.set_row_gradients([5, 3], np.arange(10.0).reshape(2, 5))
    assert E.touched_rows().tolist() == [3, 5]
    assert E.rows_grad_as_array([5, 3, 1]).tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [0] * 5]
    before = E.as_array()
    dy.AdamTrainer(pc).update()
    assert np.flatnonzero((E.as_array() != before).any(axis=1)).tolist() == [3, 5]


def test_rows_of_matrices_keep_their_layout() -> None:
    table = dy.ParameterCollection().add_lookup_parameters((4, 2, 3))
    rows = np.arange(12.0).reshape(2, 2, 3)
    table.set_row_gradients([3, 0], rows)
    assert table.rows_grad_as_array([3, 0]).tolist() == rows.tolist()
    whole = np.arange(24.0).reshape(4, 2, 3)
    table.set_gradient(whole)
    assert table.grad_as_array().tolist() == whole.tolist() and table.touched_rows().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda W, E: W.set_gradient([1.0]), ValueError, r"\(1,\).*\{3,4\}"),
        (lambda W, E: E.set_gradient(np.zeros((9, 5))), ValueError, r"\(9, 5\).*10 rows"),
        (lambda W, E: E.set_row_gradients([1, 1], np.zeros((2, 5))), ValueError, "twice"),
        (lambda W, E: E.set_row_gradients([10], np.zeros((1, 5))), IndexError, "row 10.*10 rows"),
        (lambda W, E: E.set_row_gradients([1], np.zeros((2, 5))), ValueError, "1 rows"),
    ],
)
def test_refused(call: object, error: type[Exception], says: str) -> None:
    _, W, _, E = model()
    accumulate(W, E)
    before = W.grad_as_array().tolist(), E.grad_as_array().tolist()
    with pytest.raises(error, match=says):
        call(W, E)  # type: ignore[operator]
    assert (W.grad_as_array().tolist(), E.grad_as_array().tolist()) == before, "a refused call changed it"


def test_flat_arrays_come_back_bit_for_bit() -> None:
    pc, W, unused, E = model()
    accumulate(W, E)
    kinds = _core._gradient_kinds(pc)
    assert kinds.tolist() == [2, 0, 1]
    wanted = W.grad_as_array(), E.grad_as_array()
    flat, rows = taken(pc, kinds), np.empty(_core._row_bytes(pc, kinds), np.uint8)
    sizes = _core._take_rows(pc, kinds, rows)
    assert rows.view(np.int64)[:3].tolist() == [2, 2 << 32 | 2, 2 << 32 | 7] and sizes.tolist() == [64]
    accumulate(W, E, (9,))
    _core._put_gradients(pc, kinds, flat)
    _core._add_rows(pc, rows, sizes)
    assert (W.grad_as_array() == wanted[0]).all() and (E.grad_as_array() == wanted[1]).all()
    assert not unused.has_gradient() and E.touched_rows().tolist() == [2, 7]


def message(rows: dict[int, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Rows of the table of model(), which is storage 2, as ranks send them."""
    values = np.concatenate([*rows.values(), np.zeros(sum(map(len, rows.values())) % 2)]).astype(np.float32)
    head = np.int64([len(rows), *(2 << 32 | row for row in rows)])
    return np.concatenate([head.view(np.uint8), values.view(np.uint8)])


def test_rows_are_added_in_the_order_given() -> None:
    """(a + b) + c in float32, by ranks that get all rows and by owners that sum them first; and a table of
    rows can become a whole one."""
    pc, W, _, E = model()
    a, b, c = (np.full(5, x, np.float32) for x in (1e8, 1.0, -1e8))
    messages = [message({1: a, 4: a}), message({4: b}), message({}), message({4: c, 6: b})]
    every, sizes = np.concatenate(messages), np.int64([len(m) for m in messages])
    total = _core._sum_rows(pc, every, sizes)
    for received in ((every, sizes), (total, np.int64([len(total)]))):
        _core._put_gradients(pc, np.uint8([0, 0, 1]), np.float32([]))
        _core._add_rows(pc, *received)
        assert E.touched_rows().tolist() == [1, 4, 6]
        wanted = [a.tolist(), ((a + b) + c).tolist(), b.tolist()]
        assert [E.row_grad_as_array(row).tolist() for row in (1, 4, 6)] == wanted
    flat = taken(pc, np.uint8([0, 0, 2]))
    assert flat.reshape(10, 5)[4].tolist() == E.row_grad_as_array(4).tolist() and np.count_nonzero(flat) <= 15


def test_rows_are_dealt_to_owners() -> None:
    pc, W, _, E = model()
    accumulate(W, E, (7, 2, 4))
    kinds = _core._gradient_kinds(pc)
    rows = np.empty(_core._row_bytes(pc, kinds) + 3 * 16, np.uint8)
    sizes = _core._take_rows(pc, kinds, rows, 3)
    parts = [part.view(np.int64) for part in np.split(rows, np.cumsum(sizes))[:-1]]
    with pytest.raises(ValueError, match=f"wanted an array of {sum(sizes)} bytes or more; got 40"):
        _core._take_rows(pc, kinds, np.empty(40, np.uint8), 3)
    assert [(part[1 : 1 + part[0]] - (2 << 32)).tolist() for part in parts] == [[], [4, 7], [2]]
    values = parts[2][2:].view(np.float32)
    assert values.tolist() == [*E.row_grad_as_array(2).astype(np.float32).tolist(), 0]


def test_sizes_are_checked() -> None:
    pc, *_ = model()
    with pytest.raises(ValueError, match="3 kinds"):
        _core._gradient_size(pc, np.uint8([1]))
    with pytest.raises(ValueError, match="12 float32"):
        _core._take_gradients(pc, np.uint8([2, 0, 0]), np.zeros(11, np.float32))
    with pytest.raises(TypeError):
        _core._take_gradients(pc, np.uint8([2, 0, 0]), np.zeros(12))
    with pytest.raises(ValueError, match="12 float32"):
        _core._put_gradients(pc, np.uint8([2, 0, 0]), np.zeros(11, np.float32))
    with pytest.raises(ValueError, match="does not exist"):
        _core._add_rows(pc, message({10: np.zeros(5)}), np.int64([40]))
    with pytest.raises(ValueError, match="1 rows has 48 bytes"):
        _core._add_rows(pc, np.zeros(48, np.uint8) | message({4: np.zeros(7)})[:48], np.int64([48]))
    for size, count in ((48, 0), (-8, 0), (4, 0), (40, -1), (40, 9)):
        rows = message({4: np.zeros(5)})
        rows.view(np.int64)[0] = count or 1
        with pytest.raises(ValueError, match=f"a message of {size} bytes with rows; 40 bytes are left"):
            _core._add_rows(pc, rows, np.int64([size]))
    with pytest.raises(ValueError, match="64 float32"):
        _core._put_values(pc, np.zeros(3, np.float32))


def test_hashes_differ_where_bits_differ() -> None:
    pc, W, _, E = model()
    first, values = _core._value_hashes(pc), _core._take_values(pc)
    for at in (0, 11, len(values) - 1):
        changed = values.copy()
        changed[at] = np.nextafter(changed[at], np.float32(np.inf))
        _core._put_values(pc, changed)
        assert (_core._value_hashes(pc) != first).sum() == 1, f"element {at}"
    _core._put_values(pc, values)
    assert (_core._value_hashes(pc) == first).all()
    trainer = dy.AdamTrainer(pc)
    seen = {_core._trainer_hash(trainer)}
    for rate in (0.001, 0.002):
        accumulate(W, E)
        trainer.learning_rate = rate
        trainer.update()
        seen.add(_core._trainer_hash(trainer))
    assert len(seen) == 3


def test_hooks_see_trainers_and_updates() -> None:
    pc, W, _, E = model()
    seen: list[tuple[str, bool]] = []
    before = W.as_array().tolist()

    def update(trainer: object, scale: float) -> None:
        seen.append((f"update by {scale}", W.has_gradient()))

    def refuse(*_: object) -> None:
        raise KeyError("no update")

    try:
        _core._set_trainer_hooks(
            made=lambda t: seen.append((type(t).__name__, True)),
            update=update,
        )
        trainer = dy.SimpleSGDTrainer(pc)
        accumulate(W, E)
        trainer.update()
        changed = W.as_array().tolist()
        assert seen == [("SimpleSGDTrainer", True), ("update by 1.0", True)] and changed != before
        _core._set_trainer_hooks(update=refuse)
        accumulate(W, E)
        with pytest.raises(KeyError, match="no update"):
            trainer.update()
        _core._set_trainer_hooks(update=lambda t, scale: False)
        trainer.update()
        assert W.as_array().tolist() == changed and W.has_gradient(), "updated although the hook refused"
    finally:
        _core._set_trainer_hooks()
    trainer.update()
    assert W.as_array().tolist() != changed


def test_the_random_stream_comes_back() -> None:
    state = _core._random_state()
    drawn = dy.random_normal(5).value()
    other = dy.random_normal(5).value()
    _core._set_random_state(state)
    assert dy.random_normal(5).value() == drawn != other
    with pytest.raises(ValueError, match="wanted"):
        _core._set_random_state(b"short")


def test_sums_of_nothing_only_where_a_job_allows_them() -> None:
    pc, W, *_ = model()
    with pytest.raises(AssertionError, match="empty list"):
        dy.esum([])
    try:
        _core._allow_empty_sums(True)
        dy.renew_cg()
        loss = dy.esum([])
        assert loss.value() == 0 and dy.average([]).value() == 0
        loss.backward()
        assert not W.has_gradient()
        with pytest.raises(AssertionError, match="empty list"):
            dy.concatenate([])
    finally:
        _core._allow_empty_sums(False)


@pytest.mark.parametrize("device", ["cpu", "emulation"])
def test_a_loss_counts_for_a_share(device: str) -> None:
    """In gradients of parameters, rows, merged expressions, and of a parameter that is the loss itself."""
    text = f"""
import dynet_compat as dy, numpy as np
from dynet_compat import _core
_core._use_device("{device}")
pc = dy.ParameterCollection()
W, s, E = pc.add_parameters((3, 4)), pc.add_parameters(1), pc.add_lookup_parameters((10, 4))
found = []
for share in (1.0, 0.25):
    _core._set_loss_share(share)
    dy.renew_cg()
    x = dy.tanh(E[7])
    y, again = W * x, W * x
    norms = [dy.squared_norm(x) for x in (again, E[2], E[7])]
    dy.esum([dy.pickneglogsoftmax(y, 1), *norms]).backward()
    dy.parameter(s).backward()
    dy.squared_norm(W * E[1]).backward()
    found.append([g.ravel() for g in (W.grad_as_array(), E.grad_as_array(), s.grad_as_array())])
    dy.squared_norm(y + again).backward()
    found[-1] += [g.gradient().ravel() for g in (x, y, again)]
    pc.parameters_list()[0].set_gradient(None), s.set_gradient(None), E.set_gradient(None)
whole, part = map(np.concatenate, found)
assert np.count_nonzero(whole) > 30, whole
np.testing.assert_allclose(part, whole / 4, rtol=1e-6)
"""
    result = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_a_skipped_backward_computes_nothing_until_asked() -> None:
    pc, W, _, E = model()
    dy.renew_cg()
    x = dy.tanh(E[3])
    loss = dy.squared_norm(dy.dropout(x, 0.5))
    stream = _core._random_state()
    try:
        _core._skip_backward(True)
        loss.backward()
        assert _core._random_state() == stream and not E.has_gradient()
        (loss * 3).backward()
        skipped = x.gradient()
        assert np.abs(skipped).max() > 0 and not E.has_gradient()
        stream = _core._random_state()
        (loss + dy.sum_elems(dy.dropout(x, 0.5))).backward()
    finally:
        _core._skip_backward(False)
    assert _core._random_state() == stream
    _core._forward_skipped()
    drawn = _core._random_state()
    assert drawn != stream
    _core._forward_skipped()
    (loss * 3).backward()
    assert _core._random_state() == drawn and E.has_gradient() and not W.has_gradient()
    np.testing.assert_array_equal(x.gradient(), skipped)
