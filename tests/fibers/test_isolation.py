"""Each instance comes out as if it had been alone: random numbers, and what builders remember."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Map = Callable[..., list[Any]]


def wait(dy: Any, times: int) -> None:
    for _ in range(times):
        (dy.scalarInput(1) + 1).value()


# ---------------------------------------------------------------- random numbers


def draws(dy: Any) -> dict[str, Callable[[], Any]]:
    x = dy.inputVector([1.0] * 6)
    pc = dy.ParameterCollection()
    gru, lstm = dy.GRUBuilder(1, 6, 6, pc), dy.LSTMBuilder(2, 6, 6, pc)
    compact = dy.CompactVanillaLSTMBuilder(1, 6, 6, pc)
    tree = dy.NaryTreeLSTMBuilder(2, 1, 6, 6, pc)
    gru.set_dropout(0.5)
    lstm.set_dropout(0.5)
    compact.set_weightnoise(0.5)
    tree.set_dropout(0.5)
    softmax = dy.StandardSoftmaxBuilder(6, 9, pc)

    def sample() -> int:
        tensor = dy.random_uniform(40, 0, 1).tensor_value()
        return int(tensor.categorical_sample_log_prob().as_numpy()[0])

    def after_new_masks() -> Any:
        state = lstm.initial_state()
        lstm.set_dropout_masks(1)
        return state.add_input(x).output().value()

    def leaf() -> Any:
        tree.start_new_sequence()
        return tree.add_input(0, [], x)

    return {
        "dropout": lambda: dy.dropout(x, 0.5).value(),
        "dropout_dim": lambda: dy.dropout_dim(dy.reshape(x, (2, 3)), 1, 0.5).value().tolist(),
        "dropout_batch": lambda: dy.dropout_batch(x, 0.5).value(),
        "block_dropout": lambda: dy.block_dropout(x, 0.5).value(),
        "noise": lambda: dy.noise(x, 1.0).value(),
        "random_normal": lambda: dy.random_normal(3).value(),
        "random_uniform": lambda: dy.random_uniform(3, 0, 1).value(),
        "random_bernoulli": lambda: dy.random_bernoulli(9, 0.5).value(),
        "random_gumbel": lambda: dy.random_gumbel(3).value(),
        "sample of a tensor": sample,
        "sample of a softmax": lambda: softmax.sample(x),
        "GRU": lambda: gru.initial_state().add_input(x).output().value(),
        "LSTM masks": lambda: lstm.initial_state().transduce([x, x])[-1].value(),
        "LSTM masks drawn again": after_new_masks,
        "weight noise": lambda: compact.initial_state().add_input(x).output().value(),
        "tree masks": lambda: leaf().value(),
        "instance_rng": lambda: dy.instance_rng().random(3).tolist(),
    }  # fmt: skip


@pytest.mark.parametrize("what", list(draws(pytest.importorskip("dynet_compat"))))
def test_random_numbers_do_not_depend_on_interleaving(dy: Any, batch_map: Map, what: str) -> None:
    def run(waits: list[int], extra: int = 0) -> tuple[list[Any], list[float]]:
        dy.renew_cg(autobatching=True)
        dy.reset_random_seed(11)
        function = draws(dy)[what]

        def instance(i: int) -> Any:
            wait(dy, waits[i])
            first = function()
            wait(dy, waits[-1 - i])
            return [first, function(), dy.random_uniform(2, 0, 1).value()]

        results = batch_map(instance, range(3 + extra))[:3]
        return results, dy.random_uniform(4, 0, 1).value()

    results, after = run([0, 0, 0])
    if what not in ("dropout_batch",):  # one number for each batch item: may well be equal
        assert results[0][0] != results[1][0] or results[1][0] != results[2][0]
    for waits in ([0, 1, 2], [5, 0, 3], [2, 1, 0]):
        assert run(waits) == (results, after)
    assert run([0, 1, 2, 3, 4], extra=2)[0] == results  # nor on how many others there are


def test_order_of_draws_is_that_of_the_calls(dy: Any, batch_map: Map) -> None:
    """Whatever another instance has computed in between."""

    def run(second: int) -> Any:
        dy.reset_random_seed(3)
        dy.renew_cg(autobatching=True)

        def instance(i: int) -> Any:
            if i == 1:
                wait(dy, second)
                return None
            e = dy.inputVector([1, 2]) * 2
            kept = dy.random_normal(3)
            e.value()
            sampled = dy.instance_rng().integers(1 << 30)
            return kept.value(), sampled, dy.random_normal(2).value()

        return batch_map(instance, range(2))[0]

    assert run(0) == run(1) == run(4)


def test_the_main_stream_goes_on_by_one_number_if_any_was_drawn(dy: Any, batch_map: Map) -> None:
    def after(function: Callable[[int], Any], calls: int = 1) -> list[float]:
        dy.reset_random_seed(4)
        for _ in range(calls):
            batch_map(function, range(3))
        return list(dy.random_uniform(3, 0, 1).value())

    dy.reset_random_seed(4)
    untouched = list(dy.random_uniform(4, 0, 1).value())
    assert after(lambda i: wait(dy, i)) == untouched[:3]
    assert after(lambda i: dy.random_normal(5).value()) == untouched[1:]
    assert after(lambda i: [dy.random_normal(5).value() for _ in range(i)]) == untouched[1:]
    assert after(lambda i: batch_map(lambda j: dy.random_normal(i + 1).value(), [1, 2])) == untouched[1:]


def test_each_batch_map_has_its_own_numbers(dy: Any, batch_map: Map) -> None:
    def inner(_: int) -> Any:
        return tuple(dy.random_normal(2).value())

    first, second = batch_map(inner, range(50)), batch_map(inner, range(50))
    nested = batch_map(lambda _: batch_map(inner, range(5)) + batch_map(inner, range(5)), range(5))
    numbers = first + second + [n for ns in nested for n in ns]
    assert len(set(numbers)) == len(numbers)


def test_draws_before_it_come_from_the_main_stream(dy: Any, batch_map: Map) -> None:
    dy.reset_random_seed(8)
    expected = dy.random_normal(3).value()
    dy.reset_random_seed(8)
    mask = dy.random_normal(3)

    def instance(i: int) -> Any:
        own = dy.random_normal(3)
        return mask.value(), own.value()

    results = batch_map(instance, range(2))
    assert [r[0] for r in results] == [expected] * 2
    assert results[0][1] != results[1][1] != expected


def test_reset_random_seed_inside(dy: Any, batch_map: Map) -> None:
    """It is the instance's stream that starts again."""

    def instance(i: int) -> Any:
        dy.reset_random_seed(5)
        wait(dy, i)
        return dy.random_normal(3).value()

    results = batch_map(instance, range(3))
    dy.reset_random_seed(5)
    assert results == [dy.random_normal(3).value()] * 3


def test_drawn_again_afterwards(dy: Any, batch_map: Map) -> None:
    def run(order: list[int]) -> Any:
        dy.reset_random_seed(6)
        dy.renew_cg(autobatching=True)

        def instance(i: int) -> Any:
            wait(dy, order[i])
            e = dy.random_normal(2)
            e.value()
            return e

        es = batch_map(instance, range(3))
        first = [e.value() for e in es]
        es[0].value(recalculate=True)
        again = [e.value() for e in es]
        assert all(a != b for a, b in zip(first, again))
        return first, again

    assert run([0, 0, 0]) == run([2, 0, 1])


def test_instance_rng(dy: Any, batch_map: Map) -> None:
    def instance(i: int) -> Any:
        a = dy.instance_rng()
        wait(dy, i)
        assert dy.instance_rng() is a
        inner = batch_map(lambda _: dy.instance_rng().integers(1 << 40), range(2))
        return [a.integers(1 << 40), *inner]

    dy.reset_random_seed(2)
    numbers = batch_map(instance, range(3))
    assert len({n for ns in numbers for n in ns}) == 9
    dy.reset_random_seed(2)
    assert batch_map(instance, range(3)) == numbers
    dy.reset_random_seed(2)
    outside = dy.instance_rng().integers(1 << 40)
    assert outside != dy.instance_rng().integers(1 << 40)
    dy.reset_random_seed(2)
    assert outside == dy.instance_rng().integers(1 << 40)


# ---------------------------------------------------------------- builders


def alone(dy: Any, function: Callable[[Any], Any], instances: Any) -> list[Any]:
    """The plain loop with a graph for each."""
    results = []
    for x in instances:
        dy.renew_cg(autobatching=True)
        results.append(function(x))
    dy.renew_cg(autobatching=True)
    return results


BUILDERS = ["LSTMBuilder", "CompactVanillaLSTMBuilder", "CoupledLSTMBuilder", "FastLSTMBuilder"]


@pytest.mark.parametrize("name", [*BUILDERS, "SparseLSTMBuilder", "GRUBuilder", "SimpleRNNBuilder"])
def test_builders_state_is_the_instances_own(dy: Any, batch_map: Map, name: str) -> None:
    """set_h() takes cells, and set_s() outputs, from the latest step of the builder."""
    rnn = getattr(dy, name)(2, 3, 3, dy.ParameterCollection())

    def instance(x: float) -> list[float]:
        state = rnn.initial_state()
        out: list[float] = []
        vector = dy.inputVector([x, -x, 0.5])
        hs = [dy.inputVector([0.1 * x, 0.2, 0.3])] * 2
        out += state.set_h(hs).add_input(vector).output().value()
        for k in range(2):
            state = state.add_input(vector)
            out += state.output().value()
            out += state.set_h(hs).add_input(vector).output().value()
            if k:
                out += rnn.initial_state().set_s(hs).add_input(vector).output().value()
        return out

    xs = [0.3, 0.6, 0.9]
    np.testing.assert_allclose(batch_map(instance, xs), alone(dy, instance, xs), rtol=1e-5, atol=1e-6)


def test_builders_take_the_arguments_of_their_own_call(dy: Any, batch_map: Map) -> None:
    """Other instances make builders, too, between the call of a class and that of its base."""
    pc = dy.ParameterCollection()

    class Own(dy.LSTMBuilder):
        def __init__(self, *args: Any) -> None:
            (dy.scalarInput(1) + 1).value()  # the others run
            super().__init__()

    errors = batch_map(lambda hidden: Own(1, 2, hidden, pc), [0, 3, 0], return_exceptions=True)
    assert [str(e).split(":")[0] for e in errors] == [
        "VanillaLSTMBuilder()",  # 0 is no size
        "values of parameter /vanilla-lstm-builder/_0",  # none are made inside
        "VanillaLSTMBuilder()",
    ]


def test_what_was_before_is_seen(dy: Any, batch_map: Map) -> None:
    lstm = dy.LSTMBuilder(1, 2, 2, dy.ParameterCollection())
    x = dy.inputVector([1, 2])
    first = lstm.initial_state(update=False).add_input(x)

    def instance(i: int) -> Any:
        state = first.add_input(x * (i + 1))
        wait(dy, i)
        nested = batch_map(lambda _: lstm.initial_state().set_h([x]).add_input(x).output().value(), [0, 0])
        own = lstm.initial_state().set_h([x]).add_input(x).output().value()
        assert nested == [own, own]
        return state.output().value(), own

    def expected(i: int) -> Any:
        state = first.add_input(x * (i + 1))
        return state.output().value(), lstm.initial_state().set_h([x]).add_input(x).output().value()

    np.testing.assert_allclose(batch_map(instance, range(3)), [expected(i) for i in range(3)], rtol=1e-5)
    after = lstm.initial_state().set_h([x]).add_input(x).output().value()
    lstm2 = lstm.initial_state().set_s([first.add_input(x).s()[0], x]).add_input(x).output().value()
    assert len(after) == len(lstm2) == 2


def test_update_flag_is_the_instances_own(dy: Any, batch_map: Map) -> None:
    pc = dy.ParameterCollection()
    rnn = dy.SimpleRNNBuilder(1, 2, 2, pc)

    def instance(i: int) -> Any:
        wait(dy, 2 - i)
        return dy.squared_norm(rnn.initial_state(update=i == 1).add_input(dy.inputVector([i, 1])).output())

    losses = batch_map(instance, range(3))

    def gradients(es: list[Any]) -> list[float]:
        dy.esum(es).backward()
        grads = [p.grad_as_array().sum() for p in pc.parameters_list()]
        dy.SimpleSGDTrainer(pc, 0.0).update()
        return grads

    together, second = gradients(losses), gradients([losses[1]])
    assert together == second and any(together)


@pytest.mark.parametrize("name", ["NaryTreeLSTMBuilder", "BidirectionalTreeLSTMBuilder"])
def test_tree_builders(dy: Any, batch_map: Map, name: str) -> None:
    pc = dy.ParameterCollection()
    builder = getattr(dy, name)(*([2] if "Nary" in name else []), 1, 4, 4, pc)

    def instance(n: int) -> list[float]:
        builder.start_new_sequence()
        value = builder.add_input(0, [], dy.inputVector([0.1 * n] * 4)).value()
        for k in range(1, n):
            value = builder.add_input(k, [k - 1], dy.inputVector([value[0], k, 0, 1])).value()
        assert builder.output(0).value()[0] != 9
        return list(value)

    ns = [1, 4, 2, 3]
    np.testing.assert_allclose(batch_map(instance, ns), alone(dy, instance, ns), rtol=1e-5, atol=1e-6)


def test_tree_builder_goes_on_with_what_was_before(dy: Any, batch_map: Map) -> None:
    builder = dy.NaryTreeLSTMBuilder(2, 1, 4, 4, dy.ParameterCollection())
    builder.start_new_sequence()
    builder.add_input("leaf", [], dy.inputVector([1, 2, 3, 4]))

    def instance(i: int) -> Any:
        wait(dy, i)
        own = builder.add_input("own", ["leaf"], dy.inputVector([i] * 4)).value()
        inner = batch_map(lambda k: builder.add_input(k, ["own", "leaf"], None).value(), [0, 0])
        assert inner[0] == inner[1]
        return own

    results = batch_map(instance, range(3))
    assert len({tuple(r) for r in results}) == 3
    with pytest.raises(ValueError, match="'own'"):
        builder.output("own")


def test_shared_python_objects_are_shared(dy: Any, batch_map: Map) -> None:
    """A cache of expressions works: what one instance recorded others may read."""
    table = dy.ParameterCollection().add_lookup_parameters((5, 3))
    cache: dict[int, Any] = {}

    def embed(i: int) -> Any:
        if i not in cache:
            cache[i] = dy.tanh(table[i])
        return cache[i]

    def instance(i: int) -> list[float]:
        first = embed(i % 3).value()
        return first + embed((i + 1) % 3).value()

    together = batch_map(instance, range(6))
    cache.clear()
    np.testing.assert_allclose(together, [instance(i) for i in range(6)], rtol=1e-6)


def test_python_random_is_taken_in_turns(dy: Any, batch_map: Map) -> None:
    """Documented: such numbers depend on the interleaving."""
    random.seed(1)
    batch_map(lambda i: [random.random(), wait(dy, 1), random.random()], range(2))
    state = random.getstate()
    random.seed(1)
    [random.random() for _ in range(4)]
    assert random.getstate() == state
