"""Bad input: the exception the specification names, a message that names the op, and a graph that goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import oracle, records
from support.errors import ERRORS, BadCall, force, scope
from support.subject import IS_REFERENCE

OURS = pytest.mark.skipif(
    IS_REFERENCE, reason="the recorder runs these on the reference, each in a child process"
)


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    return oracle.recorded("errors")


@OURS
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.id)
def test_raises(dy: Any, error: BadCall) -> None:
    names = scope(dy)
    before = names["v"] * 2
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the type is checked below
        force(dy, eval(error.code, names))  # noqa: S307 - our own text
    kind = type(caught.value).__name__
    kinds = {base.__name__ for base in type(caught.value).__mro__}
    assert kinds & set(error.raises), "{}: {} raised {} ({}), wanted {}".format(
        error.id, error.code, kind, caught.value, " or ".join(error.raises)
    )
    message = str(caught.value)
    assert message or kind == "AssertionError", f"{error.id}: {error.code} raised {kind} without a message"
    assert error.says in message, (
        f"{error.id}: the message of {error.code} does not contain {error.says!r}: {message}"
    )
    if "forward" not in error.code and "backward" not in error.code:
        assert before.value() == [2, 4, 6], f"{error.id}: an earlier node lost its value"
    dy.renew_cg()
    assert (dy.inputVector([1, 2]) * 3).value() == [3, 6], f"{error.id}: the next graph does not work"


@OURS
@pytest.mark.parametrize("error", [e for e in ERRORS if "stale" not in e.code], ids=lambda error: error.id)
def test_graph_goes_on(dy: Any, error: BadCall) -> None:
    """After an eager error the same graph records, computes and differentiates."""
    names = scope(dy)
    eager = True
    try:
        eval(error.code, names)  # noqa: S307 - our own text
        eager = False
    except Exception:  # noqa: S110, BLE001 - which one is test_raises' business
        pass
    if not eager:
        pytest.skip("a lazy error")
    loss = dy.squared_norm(names["W"] * dy.tanh(names["v"]))
    value = loss.value()
    loss.backward()
    w, t = names["W"].as_array(), np.tanh([1, 2, 3])
    assert np.isclose(value, ((w @ t) ** 2).sum(), rtol=1e-4)
    assert np.allclose(names["W"].grad_as_array(), 2 * np.outer(w @ t, t), rtol=1e-4, atol=1e-5)


def test_recordings_agree_with_the_list(recorded: dict[str, np.ndarray]) -> None:
    """What the specification says is what the real DyNet does, wherever it survives."""
    missing = [e.id for e in ERRORS if not e.kills_reference and e.id not in recorded]
    assert not missing, f"run tests/oracle/record.py errors: {missing}"
    for error in ERRORS:
        if error.kills_reference or error.differs:
            continue
        got = records.untext(recorded[error.id])
        assert got in error.raises, (
            f"{error.id}: {error.code} raises {got} in DyNet, the list says {error.raises}"
        )


@OURS
def test_messages_name_shapes(dy: Any) -> None:
    """Shape errors give the shapes that were got."""
    v, v4 = dy.inputVector([1, 2, 3]), dy.inputVector([1, 2, 3, 4])
    m = dy.inputTensor(np.ones((5, 2)))
    for call, wanted in (
        (lambda: v + v4, "34"),
        (lambda: dy.cmult(v, v4), "34"),
        (lambda: m * v, "523"),
        (lambda: dy.concatenate([m, v]), "523"),
        (lambda: dy.affine_transform([v, m, v4]), "352"),
        (lambda: dy.esum([v, v4]), "34"),
        (lambda: dy.dot_product(v, v4), "34"),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        for digit in wanted:
            assert digit in str(caught.value), f"no {digit} in: {caught.value}"
