"""Texts of objects: `str` is DyNet's, `repr` has sizes and computed values, and itself computes nothing."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from support.subject import IS_REFERENCE

ours = pytest.mark.skipif(IS_REFERENCE, reason="DyNet's repr() says nothing of these")


def test_str_is_dynets(dy: Any) -> None:
    pc = dy.ParameterCollection()
    W, E = pc.add_parameters((2, 3), name="W"), pc.add_lookup_parameters((5, 2), name="E")
    dy.renew_cg()
    x = dy.inputVector([1, 2, 3])
    assert str(x) == f"{x}" == f"expression 0/{dy.cg_version()}"
    assert (str(W), str(E)) == ("Parameter /W", "LookupParameter /E")
    assert str(x.tensor_value()) == "<Dynet Tensor:float>"


@ours
def test_expressions(dy: Any) -> None:
    dy.renew_cg()
    x = dy.inputVector([0.5, -2, 3])
    y, total = dy.tanh(x), dy.sum_elems(dy.inputTensor(np.arange(24.0).reshape(2, 12)))
    many = dy.inputTensor(np.arange(12.0).reshape(2, 3, 2), batched=True)
    assert repr(x) == f"{x}: {{3}}, value [ 0.5, -2. , 3. ]"
    assert repr(y) == f"{y}: {{3}}"
    y.value()
    said = r"expression \d+/\d+: \{3\}, value \[ ?0\.4621, -0\.964 ?, 0\.9951 ?\]"
    assert re.fullmatch(said, repr(y))
    assert repr(many).startswith(f"{many}: {{2,3}}x2, value [[[")
    assert total.value() == 276 and repr(total) == f"{total}: {{1}}, value 276"
    dy.renew_cg()
    assert repr(y) == f"{y} of an earlier graph or of another thread's"


@ours
def test_repr_changes_nothing(dy: Any) -> None:
    pc = dy.ParameterCollection()
    W, lstm = pc.add_parameters((4, 3)), dy.LSTMBuilder(1, 3, 4, pc)
    dy.renew_cg()
    dy.reset_random_seed(3)
    state = lstm.initial_state().add_input(W[0] * 0 + dy.random_normal(3))
    items = [W * dy.random_normal(3), dy.dropout(state.output(), 0.5), state, lstm, pc, W, dy.AdamTrainer(pc)]
    before, drawn = dy._core.cg_size(), []
    texts = [repr(item) for item in items]
    assert dy._core.cg_size() == before, "repr() recorded nodes"
    assert texts == [repr(item) for item in items], "the first repr() has computed something"
    assert "value" not in texts[0] and "value" not in texts[1]
    drawn.append(items[0].npvalue())
    dy.renew_cg()
    dy.reset_random_seed(3)
    lstm.initial_state().add_input(W[0] * 0 + dy.random_normal(3))
    drawn.append((W * dy.random_normal(3)).npvalue())
    assert np.array_equal(*drawn), "repr() has drawn random numbers"


@ours
def test_parameters_and_collections(dy: Any) -> None:
    pc = dy.ParameterCollection()
    assert repr(pc) == "<ParameterCollection /: empty>"
    W, E = pc.add_parameters((2, 3), name="W"), pc.add_lookup_parameters((5, 2), name="E")
    E.set_updated(False)
    assert repr(W) == "Parameter /W: {2,3}"
    assert repr(E) == "LookupParameter /E: 5 rows of {2}, not updated"
    assert repr(pc) == "<ParameterCollection /: 16 numbers in W {2,3}, E 5 rows of {2}>"
    for _ in range(20):
        pc.add_parameters(1)
    assert repr(pc).endswith(", and 14 more>")


@ours
def test_trainers_builders_states(dy: Any) -> None:
    pc = dy.ParameterCollection()
    p = pc.add_parameters(2)
    trainer = dy.AdamTrainer(pc, 0.25)
    (dy.sum_elems(p)).backward()
    trainer.update()
    assert repr(trainer) == "<AdamTrainer: learning rate 0.25, clipping 5, 1 update>"
    trainer.set_clip_threshold(0)
    assert "clipping off" in repr(trainer)
    lstm = dy.LSTMBuilder(2, 3, 4, pc)
    assert repr(lstm) == "<VanillaLSTMBuilder: 2 layers, 3 -> 4, in /vanilla-lstm-builder/>"
    assert repr(dy.FastLSTMBuilder(1, 3, 4, pc)).startswith("<FastLSTMBuilder: in /")
    birnn = dy.BiRNNBuilder(1, 3, 4, pc, dy.GRUBuilder)
    assert repr(birnn).startswith("<BiRNNBuilder: 1 layer, 3 -> 4")

    class Mine(dy.GRUBuilder):  # type: ignore[misc,name-defined]
        pass

    assert repr(Mine(1, 3, 4, pc)).startswith("<Mine: 1 layer, 3 -> 4, in ")
    state = lstm.initial_state()
    assert repr(state) == "<RNNState of VanillaLSTMBuilder: before the first input>"
    state = state.add_inputs([dy.inputVector([1, 2, 3])] * 3)[-1]
    assert repr(state) == "<RNNState of VanillaLSTMBuilder: after 3 inputs, output {4}>"
    dy.renew_cg()
    assert "earlier graph" in repr(state)


@ours
def test_builders_and_states_written_in_python(dy: Any) -> None:
    pc = dy.ParameterCollection()
    assert repr(dy.NaryTreeLSTMBuilder(2, 1, 3, 4, pc)) == (
        "<NaryTreeLSTMBuilder: 1 layer, 3 -> 4, in /nary-tree-lstm-builder/>"
    )
    assert repr(dy.UnidirectionalTreeLSTMBuilder(1, 3, 3, pc)).startswith(
        "<UnidirectionalTreeLSTMBuilder: 1 layer, 3 -> 3, in /"
    )
    assert repr(dy.StandardSoftmaxBuilder(3, 4, pc)) == (
        "<StandardSoftmaxBuilder: 3 -> 4 classes, in /standard-softmax-builder/>"
    )
    assert repr(dy.SoftmaxBuilder()) == "<SoftmaxBuilder: 0 -> 0 classes>"
    state = dy.StackedRNNState([dy.GRUBuilder(1, n, n + 1, pc).initial_state() for n in (2, 3)])
    assert repr(state.add_input(dy.inputVector([1, 2]))) == (
        "<StackedRNNState: <RNNState of GRUBuilder: after 1 input, output {3}>, "
        "<RNNState of GRUBuilder: after 1 input, output {4}>>"
    )


@ours
def test_tensors_and_initialisers(dy: Any) -> None:
    assert repr(dy.inputVector([1, 2]).tensor_value()) == "<Dynet Tensor:float {2}, [1., 2.]>"
    assert repr(dy.inputVector([1, 2]).tensor_value().argmax()) == "<Dynet Tensor:int {1}, 1>"
    assert repr(dy.Tensor()) == "<Dynet Tensor: empty>"
    for text in (
        "ConstInitializer(0.5)", "UniformInitializer(0.25)", "NormalInitializer(mean=1, var=0.25)",
        "GlorotInitializer(is_lookup=True, gain=2)", "SaxeInitializer(scale=1)", "IdentityInitializer()",
        "FromFileInitializer('values.txt')",
    ):  # fmt: skip
        assert repr(eval(text, vars(dy))) == text
    assert repr(dy.NumpyInitializer(np.zeros((2, 3)))) == "NumpyInitializer(6 values)"


@ours
def test_profile(dy: Any) -> None:
    with dy.profile() as result:
        dy.tanh(dy.inputVector([1])).value()
    assert str(result) == result.summary() and repr(result).startswith("<profile: 1 launch")
