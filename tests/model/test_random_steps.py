"""Random programs over recurrent builders, which read values and go back to checkpoints in between.

Steps that are recorded again from patterns give what they give when every node runs on its own.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="batching by other rules")

SIZE, ROWS = 6, 9


class Model:
    def __init__(self, dy: Any) -> None:
        dy.reset_random_seed(5)
        self.pc = pc = dy.ParameterCollection()
        self.embed = pc.add_lookup_parameters((ROWS, SIZE))
        self.W = pc.add_parameters((SIZE, SIZE))
        self.builders = [
            dy.VanillaLSTMBuilder(1, SIZE, SIZE, pc),
            dy.GRUBuilder(1, SIZE, SIZE, pc),
            dy.VanillaLSTMBuilder(2, SIZE, SIZE, pc),
            dy.SimpleRNNBuilder(1, SIZE, SIZE, pc),
        ]


def outputs_of(start: Any, inputs: list, whole: bool) -> list:
    """Those after each input, by one call or by one for each step."""
    if whole:
        return start.transduce(inputs)
    outputs = []
    for x in inputs:
        start = start.add_input(x)
        outputs.append(start.output())
    return outputs


def outcome(
    dy: Any, model: Model, seed: int, autobatching: bool = True, whole: bool = True
) -> list[np.ndarray]:
    """What the program reads, its loss, the gradients, and the numbers of nodes and launches."""
    rng = random.Random(seed)
    dy.renew_cg(autobatching=autobatching)
    items = rng.choice((1, 1, 1, *range(2, 12)))  # more kinds of steps than a builder remembers

    def looked_up() -> Any:
        return dy.lookup_batch(model.embed, [rng.randrange(ROWS) for _ in range(items)])

    live = [looked_up() for _ in range(3)]
    states = [builder.initial_state(update=rng.random() < 0.9) for builder in model.builders]
    found, kept = [], None
    for _ in range(rng.randint(5, 60)):
        kind = rng.random()
        k = rng.randrange(len(states))
        if kind < 0.45:
            start = states[k] if rng.random() < 0.7 else model.builders[k].initial_state()
            states[k] = start.add_input(rng.choice(live))
            live.append(states[k].output())
        elif kind < 0.6:
            live.append(looked_up())
        elif kind < 0.7:
            live.append(dy.tanh(model.W * rng.choice(live)))
        elif kind < 0.78:
            live.append(rng.choice(live) + rng.choice(live))
        elif kind < 0.84:
            inputs = [rng.choice(live) for _ in range(rng.randint(1, 7))]
            start = states[k] if rng.random() < 0.5 else model.builders[k].initial_state()
            live += outputs_of(start, inputs, whole)
        elif kind < 0.93:
            found.append(rng.choice(live).npvalue())
        elif kept is None:
            dy.cg_checkpoint()
            kept = list(live), list(states)
        else:
            dy.cg_revert()
            live, states = kept
            kept = None
        live = live[-12:]
    loss = dy.sum_batches(dy.esum([dy.squared_norm(x) for x in live]))
    found.append(np.array(loss.value()))
    loss.backward()
    found += [model.W.grad_as_array(), model.embed.grad_as_array()]
    dy.SimpleSGDTrainer(model.pc, 0.0).update()  # takes the gradients, leaves the values
    return [*found, np.array([dy._core.cg_size(), len(dy._core.plan_table())])]


@pytest.mark.parametrize("part", range(4))
def test_random_steps(dy: Any, fuzz_count: int, part: int) -> None:
    model = Model(dy)
    for seed in range(part, fuzz_count or 120, 4):
        plain = outcome(dy, model, seed, False)
        batched = outcome(dy, model, seed, True)
        assert len(plain) == len(batched)
        for a, b in zip(plain[:-1], batched):
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5, err_msg=f"program {seed}")


def test_transduce_records_what_its_steps_record(dy: Any, fuzz_count: int) -> None:
    """The same nodes in the same launches: bit for bit."""
    model = Model(dy)
    for seed in range(fuzz_count or 120):
        for _ in range(2):  # patterns are learned, then used
            steps, whole = (outcome(dy, model, seed, whole=whole) for whole in (False, True))
        for a, b in zip(steps, whole):
            np.testing.assert_array_equal(b, a, err_msg=f"program {seed}")


@pytest.mark.parametrize("others", range(4, 10))
def test_steps_that_were_forgotten(dy: Any, others: int) -> None:
    """What follows a first step is forgotten while the first step is not; another kind takes its place."""
    builder = dy.SimpleRNNBuilder(1, 2, 2, dy.ParameterCollection())

    def first_step(items: int = 1) -> Any:
        dy.renew_cg()
        return builder.initial_state().add_input(given(items))

    def given(items: int = 1) -> Any:
        return dy.inputTensor(np.ones((2, items)), batched=True)

    for _ in range(3):
        dy.renew_cg()
        builder.initial_state().transduce([given(), given()])
    for items in range(2, 2 + others):
        first_step(items)
        first_step()
    state = first_step()
    state.add_input(state.output())
    dy.renew_cg()
    inputs = [given(), given()]
    steps, whole = (outputs_of(builder.initial_state(), inputs, whole) for whole in (False, True))
    for a, b in zip(steps, whole):
        np.testing.assert_array_equal(b.npvalue(), a.npvalue())
