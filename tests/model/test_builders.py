"""RNN builders against recordings of the real DyNet, and their protocol."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import oracle, records
from support.compare import difference, ulps
from support.scenarios import ALL, SECTIONS
from support.subject import IS_REFERENCE


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    return oracle.recorded("builders")


@pytest.mark.parametrize("name", SECTIONS["builders"])
def test_recorded(dy: Any, name: str, recorded: dict[str, np.ndarray]) -> None:
    for key, got in ALL[name](dy).items():
        want = recorded[name + "|" + key]
        if key in ("names", "collection"):
            assert records.untext(got) == records.untext(want), f"{name}: {key}"
        elif key.startswith("initial"):
            assert got.shape == want.shape, f"{name}: shape of parameter {key}"
            assert not ulps(got, want).any(), f"{name}: parameter {key} does not start from DyNet's values"
        else:
            # where a tanh saturates, 1 - y^2 has lost digits: its rounding is in all gradients behind it
            found = difference(got, want, 2e-5, 1e-5 if "grad" in key else 2e-6)
            assert found is None, f"{name}: {key} differs from DyNet: {found}"


BUILDERS = ("SimpleRNNBuilder", "GRUBuilder", "LSTMBuilder", "VanillaLSTMBuilder")


@pytest.mark.parametrize("name", BUILDERS)
def test_protocol(dy: Any, name: str) -> None:
    pc = dy.ParameterCollection()
    builder = getattr(dy, name)(2, 3, 4, pc)
    dy.renew_cg()
    start = builder.initial_state()
    assert start.output() is None and start.h() == () and start.s() == () and start.prev() is None
    xs = [dy.inputVector([n, 1, 2]) for n in range(3)]
    states = start.add_inputs(xs)
    assert len(states) == 3
    outs = builder.initial_state().transduce(xs)
    for state, out in zip(states, outs):
        assert np.allclose(state.output().npvalue(), out.npvalue(), rtol=1e-6)
    assert len(states[0].h()) == 2 and len(states[0].s()) == (4 if "LSTM" in name else 2)
    assert np.array_equal(states[2].prev().output().npvalue(), states[1].output().npvalue())
    assert states[0].b() is not None
    assert builder.whoami() in (name, "VanillaLSTMBuilder")
    assert builder.initial_state().transduce([]) == []
    layers = builder.get_parameters()
    expressions = builder.get_parameter_expressions()
    assert len(layers) == len(expressions) == 2
    for layer, exprs in zip(layers, expressions):
        assert [p.shape() for p in layer] == [e.dim()[0] for e in exprs]


@pytest.mark.parametrize("name", BUILDERS)
def test_state_of_an_old_graph(dy: Any, name: str) -> None:
    builder = getattr(dy, name)(1, 2, 3, dy.ParameterCollection())
    dy.renew_cg()
    state = builder.initial_state().add_input(dy.inputVector([1, 2]))
    dy.renew_cg()
    x = dy.inputVector([1, 2])
    for call in (lambda: state.add_input(x), lambda: state.transduce([x]), state.h, state.s):
        with pytest.raises(ValueError):
            call()
    assert builder.initial_state().add_input(x).output().dim() == ((3,), 1)


@pytest.mark.parametrize("name", BUILDERS)
def test_wrong_input_size(dy: Any, name: str) -> None:
    builder = getattr(dy, name)(1, 2, 3, dy.ParameterCollection())
    dy.renew_cg()
    with pytest.raises(ValueError):
        builder.initial_state().add_input(dy.inputVector([1, 2, 3])).output().value()
    dy.renew_cg()
    assert builder.initial_state().add_input(dy.inputVector([1, 2])).output().dim() == ((3,), 1)


@pytest.mark.parametrize("name", BUILDERS)
def test_batched_equals_unbatched(dy: Any, name: str) -> None:
    """Sequences of unequal lengths in one graph: values and gradients."""
    pc = dy.ParameterCollection()
    dy.reset_random_seed(6)
    builder = getattr(dy, name)(2, 5, 6, pc)
    rng = np.random.RandomState(3)
    sentences = [rng.randn(length, 5) for length in (4, 1, 7, 4, 2)]

    def grads() -> Any:
        losses = []
        for sentence in sentences:
            for out in builder.initial_state().transduce([dy.inputTensor(x) for x in sentence]):
                losses.append(dy.pickneglogsoftmax(out * 4, len(losses) % 6))
        loss = dy.esum(losses)
        value = loss.value()
        loss.backward()
        return value, [p.grad_as_array() for p in pc.parameters_list()]

    dy.renew_cg(autobatching=False)
    value, want = grads()
    dy.SimpleSGDTrainer(pc, 0.0).update()
    dy.renew_cg(autobatching=True)
    batched, got = grads()
    assert np.isclose(value, batched, rtol=1e-6)
    for p, a, b in zip(pc.parameters_list(), got, want):
        found = difference(a, b, 1e-5, 1e-5)
        assert found is None, f"{name}: gradient of {p.name()}: {found}"


def test_two_builders_do_not_mix(dy: Any) -> None:
    pc = dy.ParameterCollection()
    first, second = dy.LSTMBuilder(1, 2, 3, pc), dy.LSTMBuilder(1, 2, 3, pc)
    dy.renew_cg()
    x = dy.inputVector([1, 2])
    a, b = first.initial_state().add_input(x), second.initial_state().add_input(x)
    assert not np.allclose(a.output().npvalue(), b.output().npvalue())


@pytest.mark.parametrize("layer_norm", (False, True))
@pytest.mark.parametrize("columns", ("c", "h", "x", "ch", "chx", ""))
def test_states_that_are_matrices_of_one_column(dy: Any, columns: str, layer_norm: bool) -> None:
    """A cell {H,1} makes states {H,1}; with layer norm h and x do, too. Scripts read rows of their values."""
    pc = dy.ParameterCollection()
    builder = dy.VanillaLSTMBuilder(2, 3, 4, pc, layer_norm)
    table = pc.add_lookup_parameters((5, 3))
    dy.renew_cg()
    x = dy.reshape(table[1], (3, 1)) if "x" in columns else table[1]
    given = [dy.zeros((4, 1) if part in columns else (4,)) for part in "cchh"]
    state = builder.initial_state(given).add_input(x)
    want = (4, 1) if "c" in columns or (layer_norm and columns) else (4,)
    assert [e.dim()[0] for e in state.s()] == [want] * 4
    assert [e.dim()[0] for e in state.transduce([table[2], table[3]])] == [want] * 2
    assert state.add_input(table[2]).output().npvalue().shape == want
    vectors = builder.initial_state([dy.zeros(4)] * 4).add_input(table[1])
    np.testing.assert_array_equal(state.output().npvalue().ravel(), vectors.output().npvalue())


def test_from_spec(dy: Any) -> None:
    pc = dy.ParameterCollection()
    for name in BUILDERS:
        builder = getattr(dy, name)(2, 3, 4, pc)
        again = getattr(dy, name).from_spec(builder.spec, pc)
        assert again.spec == builder.spec
        shapes = [[p.shape() for p in layer] for layer in builder.get_parameters()]
        assert shapes == [[p.shape() for p in layer] for layer in again.get_parameters()]


@pytest.mark.parametrize("name", ("SimpleRNNBuilder", "GRUBuilder", "CoupledLSTMBuilder", "FastLSTMBuilder"))
def test_subclass_need_not_call_init(dy: Any, name: str) -> None:
    base = getattr(dy, name)

    class Mine(base):
        def __init__(self, layers: int, size: int, hidden: int, model: Any) -> None:
            self.note = "mine"

    pc = dy.ParameterCollection()
    builder = Mine(1, 3, 4, pc)
    assert builder.note == "mine" and builder.whoami() == name
    assert len(pc.parameters_list()) == len(builder.get_parameters()[0])
    dy.renew_cg()
    assert builder.initial_state().add_input(dy.ones(3)).output().dim() == ((4,), 1)
    with pytest.raises(TypeError):
        Mine(1, 3, 4)
    if not IS_REFERENCE:

        class Usual(base):
            def __init__(self, size: int, model: Any) -> None:
                super().__init__(1, size, size, model)

        usual = Usual(3, pc)
        assert len(pc.parameters_list()) == 2 * len(usual.get_parameters()[0])


def test_dropout_is_a_new_mask_per_graph(dy: Any) -> None:
    pc = dy.ParameterCollection()
    builder = dy.LSTMBuilder(1, 8, 8, pc)
    builder.set_dropout(0.5)

    def output() -> np.ndarray:
        return builder.initial_state().transduce([dy.ones(8)])[-1].npvalue()

    dy.renew_cg()
    first, same = output(), output()
    dy.renew_cg()
    other = output()
    assert np.array_equal(first, same) and not np.array_equal(first, other)
    builder.disable_dropout()
    dy.renew_cg()
    plain = output()
    assert np.array_equal(plain, output())


def test_birnn(dy: Any) -> None:
    pc = dy.ParameterCollection()
    birnn = dy.BiRNNBuilder(2, 3, 4, pc, dy.LSTMBuilder)
    dy.renew_cg()
    xs = [dy.inputVector([n, 1, 0]) for n in range(4)]
    outs = birnn.transduce(xs)
    assert [out.dim() for out in outs] == [((4,), 1)] * 4
    pairs = birnn.add_inputs(xs)
    assert len(pairs) == 4
    for (fwd, bwd), out in zip(pairs, outs):
        both = np.concatenate([fwd.output().npvalue(), bwd.output().npvalue()])
        assert np.allclose(both, out.npvalue(), rtol=1e-5)
    assert birnn.transduce([]) == []
    given = dy.BiRNNBuilder(
        1, 3, 4, pc, None, builder_layers=[(dy.LSTMBuilder(1, 3, 2, pc), dy.LSTMBuilder(1, 3, 2, pc))]
    )
    assert given.transduce(xs)[0].dim() == ((4,), 1)
    if not IS_REFERENCE:
        sizes = []

        def factory(layers: int, size: int, hidden: Any, model: Any) -> Any:
            sizes.append(hidden)
            return dy.GRUBuilder(layers, size, hidden, model)

        dy.BiRNNBuilder(1, 3, 4, pc, factory)
        assert sizes == [2, 2]


@pytest.mark.skipif(IS_REFERENCE, reason="its constructor fails in the reference")
def test_stacked_state(dy: Any) -> None:
    pc = dy.ParameterCollection()
    low, high = dy.GRUBuilder(2, 3, 5, pc), dy.LSTMBuilder(1, 5, 4, pc)
    dy.renew_cg()
    xs = [dy.inputVector([n, 1, -1]) for n in range(3)]
    want = high.initial_state().transduce(low.initial_state().transduce(xs))
    start = dy.StackedRNNState([low.initial_state(), high.initial_state()])
    assert start.output() is None and start.prev() is None and start.h() == [(), ()]
    states = start.add_inputs(iter(xs))
    assert len(states) == 3 and states[1].prev() is states[0] and states[0].prev() is start
    for state, out in zip(states, want):
        assert np.allclose(state.output().npvalue(), out.npvalue(), rtol=1e-6)
    assert [len(h) for h in states[0].h()] == [2, 1] and [len(s) for s in states[0].s()] == [2, 2]
    with pytest.raises(ValueError):
        dy.StackedRNNState([])
    with pytest.raises(ValueError):
        start.add_input(dy.ones(4))


@pytest.mark.skipif(IS_REFERENCE, reason="takes the nodes that have the numbers now")
def test_cells_of_a_step_that_was_taken_back(dy: Any) -> None:
    """set_h() takes those of the latest step that is still there, whatever has the numbers of later ones."""
    builder = dy.VanillaLSTMBuilder(1, 2, 2, dy.ParameterCollection())
    dy.renew_cg()
    x = dy.inputVector([1, 2])
    start = builder.initial_state()
    first = start.add_input(x)
    dy.cg_checkpoint()
    first.add_input(x).add_input(x)
    dy.cg_revert()
    others = [dy.tanh(dy.inputVector([5, 6])) for _ in range(12)]
    cell, _ = start.set_h([dy.inputVector([0.5, 0.5])]).s()
    np.testing.assert_array_equal(cell.npvalue(), first.s()[0].npvalue())
    assert others[-1].npvalue().shape == (2,)
