"""What programs write that know other libraries: it works, or the error says what to write."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
from support.subject import IS_REFERENCE

ROOT = Path(__file__).resolve().parents[2]
ours = pytest.mark.skipif(IS_REFERENCE, reason="DyNet's messages are its own")


def message(error: type[Exception], call: Callable[[], Any]) -> str:
    with pytest.raises(error) as raised:
        call()
    return str(raised.value)


@ours
def test_matrix_product(dy: Any) -> None:
    pc = dy.ParameterCollection()
    W, x = pc.parameters_from_numpy(np.array([[1.0, 2.0], [3.0, 4.0]])), dy.inputVector([1, -1])
    assert (W @ x).value() == (W * x).value() == [-1, -1]
    assert (np.eye(2) @ x).value() == [1, -1] and (W @ np.eye(2)).npvalue().tolist() == [[1, 2], [3, 4]]
    V = W
    V @= x
    assert V.value() == [-1, -1] and W.shape() == (2, 2), "in place is a new expression"
    with pytest.raises(TypeError, match="unsupported operand"):
        W @ 2
    assert message(ValueError, lambda: W @ dy.inputVector([1, 2, 3]))


@ours
def test_other_names(dy: Any) -> None:
    x = dy.inputVector([-1, 0.5])
    assert dy.relu(x).value() == dy.rectify(x).value() and dy.sigmoid(x).value() == dy.logistic(x).value()
    far = dy.gelu(dy.inputVector([-1e30, -np.inf, -20, 0, 20, np.inf])).value()
    assert far == [0, 0, 0, 0, 20, np.inf]
    names: dict[str, Any] = {}
    exec("from dynet_compat import *", names)
    assert not {"relu", "sigmoid", "gelu", "AdamWTrainer"} & set(names), "a script may have its own"


@pytest.mark.parametrize("name", ["shape", "T", "item", "numpy", "detach", "sum", "mean"])
def test_expressions_are_told_from_arrays(dy: Any, name: str) -> None:
    """As DyNet: programs ask hasattr() and make object arrays."""
    x = dy.inputVector([1, 2])
    assert not hasattr(x, name)
    if not IS_REFERENCE:
        assert re.search(r"'(\w+)': (write |x\.)\w+\(", message(AttributeError, lambda: getattr(x, name)))


@pytest.mark.parametrize("name", ["shape", "T", "item", "numpy", "detach", "sum", "mean"])
def test_subclasses_may_have_such_attributes(dy: Any, name: str) -> None:
    class Own(dy.Expression):
        def __init__(self) -> None:
            setattr(self, name, 3)

    assert getattr(Own(), name) == 3
    assert not hasattr(dy.Expression, name)


def test_arrays_of_expressions(dy: Any) -> None:
    x, y = dy.inputVector([1, 2]), dy.inputVector([3, 4])
    held = np.array([x, y])
    assert held.dtype == object and held.shape == (2,) and held[1] is y
    W = dy.ParameterCollection().add_parameters((2, 3))
    assert W.shape() == (2, 3)


def test_bounds_of_slices_may_be_floats(dy: Any) -> None:
    """`h[:dim / 2]` of programs for Python 2: truncated, as extents are."""
    x = dy.inputVector([1, 2, 3, 4, 5])
    assert x[: 5 / 2].value() == [1, 2] and x[4 / 2 :].value() == [3, 4, 5]
    assert x[0.5:3.99:1.2].value() == [1, 2, 3] and x[::2.9].value() == [1, 3, 5]
    y = dy.inputTensor(np.arange(6.0).reshape(2, 3))
    assert y[:1.5, 1.0:3.0].npvalue().tolist() == [[1, 2]]
    for bound, error in ((float("nan"), ValueError), (float("inf"), OverflowError), ("2", TypeError)):
        with pytest.raises(error):
            x[:bound]
    with pytest.raises((OverflowError, ValueError)):
        x[: 2**70]
    with pytest.raises(ValueError):
        x[::0.5]


@ours
def test_names_of_other_libraries(dy: Any) -> None:
    """The guide's table names what there is. (Advice by __getattr__ of the module costs every `dy.f` 8 %.)"""
    assert "__getattr__" not in vars(dy), "CPython looks names up slowly in modules that have one"
    guide = (ROOT / "migration_guide" / "recipes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.*) \| (.*) \|$", guide.split("## Names of other libraries")[1], re.M)
    assert len(rows) > 20
    for there, here in rows[1:]:
        called = re.findall(r"(?<![.\w])(\w+)\(", " ".join(re.findall(r"`([^`]*)`", here)))
        lost = [name for name in called if not hasattr(dy, name)]
        assert not lost, f"the guide names {lost} for {there}, which dynet_compat does not have"


@ours
def test_keywords(dy: Any) -> None:
    pc = dy.ParameterCollection()
    said = message(TypeError, lambda: dy.AdamTrainer(pc, lr=0.1))
    assert said == "AdamTrainer(): got an unknown argument 'lr'; say alpha"
    assert "say learning_rate" in message(TypeError, lambda: dy.SimpleSGDTrainer(pc, lr=0.1))
    assert message(TypeError, lambda: dy.AdadeltaTrainer(pc, lr=0.1)).endswith("; wanted m, eps, rho")
    said = message(TypeError, lambda: pc.add_parameters((2,), shape=3))
    assert said.endswith("'shape'; wanted dim, init, name, device, scale, mean, std")


@ours
def test_messages_name_dynet_and_the_position(dy: Any) -> None:
    x = dy.inputVector([1, 2])
    said = message(TypeError, lambda: dy.concatenate([x, None, x]))
    assert said == "concatenate(): expected Expressions, got NoneType at position 1 of 3 (counted from 0)"
    for call in (lambda: dy.lookup(x, 1), lambda: dy.pick(x, x[0]), lambda: dy.inputVector(x)):
        said = message(TypeError, call)
        assert "dynet.Expression" in said and "_dynet" not in said
    said = message(TypeError, lambda: dy.one_hot(x, 1))
    assert said == "one_hot(): expected an int for d, got Expression"


@ours
def test_advice(dy: Any) -> None:
    pc = dy.ParameterCollection()
    p = pc.parameters_from_numpy(np.array([-1.0]))
    dy.renew_cg()
    y = dy.sqrt(p)
    y.backward()
    said = message(RuntimeError, dy.AdamTrainer(pc).update)
    assert "renew_cg(immediate_compute=True, check_validity=True)" in said
    dy.renew_cg()
    assert "record it again after renew_cg()" in message(Exception, y.value)
