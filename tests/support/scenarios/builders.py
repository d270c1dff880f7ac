# ruff: noqa: UP031
"""RNN builders: parameters, outputs, states, gradients, dropout under a seed."""

from __future__ import annotations

import functools
from typing import Any, Callable

import numpy as np

from support import records

STEPS = 4
INPUT, HIDDEN = 3, 4
# name -> builder from (dy, layers, pc)
BUILDERS: dict[str, Callable[[Any, int, Any], Any]] = {
    "SimpleRNN": lambda dy, layers, pc: dy.SimpleRNNBuilder(layers, INPUT, HIDDEN, pc),
    "GRU": lambda dy, layers, pc: dy.GRUBuilder(layers, INPUT, HIDDEN, pc),
    "LSTM": lambda dy, layers, pc: dy.LSTMBuilder(layers, INPUT, HIDDEN, pc),
    "VanillaLSTM": lambda dy, layers, pc: dy.VanillaLSTMBuilder(layers, INPUT, HIDDEN, pc, False, 0.25),
    "VanillaLSTM-ln": lambda dy, layers, pc: dy.VanillaLSTMBuilder(layers, INPUT, HIDDEN, pc, ln_lstm=True),
    "BiRNN-LSTM": lambda dy, layers, pc: dy.BiRNNBuilder(layers, INPUT, HIDDEN, pc, dy.VanillaLSTMBuilder),
    "BiRNN-GRU": lambda dy, layers, pc: dy.BiRNNBuilder(layers, INPUT, HIDDEN, pc, dy.GRUBuilder),
    "BiRNN-SimpleRNN": lambda dy, layers, pc: dy.BiRNNBuilder(layers, INPUT, HIDDEN, pc, dy.SimpleRNNBuilder),
}
PLAIN = [name for name in BUILDERS if not name.startswith("BiRNN")]
VARIATIONAL = ("SimpleRNN", "LSTM", "VanillaLSTM")


def fill(pc: Any, seed: int) -> None:
    """Set every parameter of the collection to fixed random values."""
    rng = np.random.RandomState(seed)
    for p in pc.parameters_list():
        p.set_value(0.5 * rng.randn(*p.shape()))


def inputs(dy: Any, batch: int, seed: int = 6, steps: int = STEPS) -> list[Any]:
    """A fixed sequence."""
    rng = np.random.RandomState(seed)
    if batch > 1:
        return [dy.inputTensor(rng.randn(INPUT, batch), batched=True) for _ in range(steps)]
    return [dy.inputTensor(rng.randn(INPUT)) for _ in range(steps)]


def weighted(dy: Any, outs: list[Any]) -> Any:
    """A scalar that depends on every element of every output."""
    rng = np.random.RandomState(7)
    terms = []
    for out in outs:
        dims, batch = out.dim()
        w = rng.randn(*(tuple(dims) + (batch,)))
        weight = dy.inputTensor(w, batched=True) if batch > 1 else dy.inputTensor(w[..., 0])
        term = dy.dot_product(out, weight)
        terms.append(dy.sum_batches(term) if batch > 1 else term)
    return dy.esum(terms)


def finish(dy: Any, pc: Any, xs: list[Any], outs: list[Any], prefix: str = "") -> dict[str, np.ndarray]:
    """Outputs, and gradients of parameters and inputs."""
    arrays = {"%sout%d" % (prefix, n): out.npvalue() for n, out in enumerate(outs)}
    weighted(dy, outs).backward(full=True)
    arrays.update({"%sgrad %d" % (prefix, n): p.grad_as_array() for n, p in enumerate(pc.parameters_list())})
    arrays.update({"%sgrad x%d" % (prefix, n): x.gradient() for n, x in enumerate(xs)})
    return {name: np.asarray(array, dtype=np.float32) for name, array in arrays.items()}


def made(name: str, layers: int, dy: Any) -> dict[str, np.ndarray]:
    """Names, shapes and initial values of a new builder's parameters, in order of creation."""
    dy.reset_random_seed(9)
    pc = dy.ParameterCollection()
    sub = pc.add_subcollection("outer")
    builder = BUILDERS[name](dy, layers, sub)
    BUILDERS[name](dy, layers, sub)
    arrays = {
        "names": records.text("\n".join(p.name() for p in pc.parameters_list())),
        "collection": records.text(builder.param_collection().name()),
    }
    for n, p in enumerate(pc.parameters_list()):
        arrays["initial %d" % n] = p.as_array().astype(np.float32)
    return arrays


def sequence(name: str, layers: int, batch: int, dy: Any) -> dict[str, np.ndarray]:
    """transduce over one sequence."""
    pc = dy.ParameterCollection()
    builder = BUILDERS[name](dy, layers, pc)
    fill(pc, 8)
    dy.renew_cg(autobatching=False)
    xs = inputs(dy, batch)
    if name.startswith("BiRNN"):
        return finish(dy, pc, xs, builder.transduce(xs))
    return finish(dy, pc, xs, builder.initial_state().transduce(xs))


def states(name: str, dy: Any) -> dict[str, np.ndarray]:
    """add_input, branching, h, s, prev, set_s, set_h, initial_state(vecs), a constant builder."""
    pc = dy.ParameterCollection()
    builder = BUILDERS[name](dy, 2, pc)
    fill(pc, 10)
    dy.renew_cg(autobatching=False)
    xs = inputs(dy, 1)
    start = builder.initial_state()
    first = start.add_input(xs[0])
    left = first.add_input(xs[1])
    right = first.add_input(xs[2]).add_input(xs[3])
    count = len(first.s())
    rng = np.random.RandomState(12)
    vecs = [dy.inputTensor(rng.randn(HIDDEN)) for _ in range(count)]
    given = start.set_s(vecs).add_input(xs[1])
    hidden = right.set_h(vecs[:2])
    after = hidden.add_input(xs[0])
    outs = [left.output(), right.output(), given.output(), after.output()]
    for state in (first, left, right, given, hidden, after):
        outs.extend(state.h())
        outs.extend(state.s())
    outs.append(left.prev().output())
    outs.extend(state.output() for state in first.add_inputs(xs[2:]))
    arrays = finish(dy, pc, xs + vecs, outs)
    dy.renew_cg(autobatching=False)
    vecs = [dy.inputTensor(rng.randn(HIDDEN)) for _ in range(count)]
    xs = inputs(dy, 1)
    arrays.update(finish(dy, pc, xs, builder.initial_state(vecs).transduce(xs), "given "))
    dy.renew_cg(autobatching=False)
    xs = inputs(dy, 1)
    arrays.update(finish(dy, pc, xs, builder.initial_state(update=False).transduce(xs), "constant "))
    return arrays


def dropout(name: str, batch: int, dy: Any) -> dict[str, np.ndarray]:
    """set_dropout under a seed: two sequences in one graph, then another graph, then dropout off again."""
    pc = dy.ParameterCollection()
    builder = BUILDERS[name](dy, 2, pc)
    fill(pc, 11)
    dy.reset_random_seed(32)
    builder.set_dropout(0.35)
    arrays: dict[str, np.ndarray] = {}

    def run(prefix: str, sequences: int) -> None:
        dy.renew_cg(autobatching=False)
        xs: list[Any] = []
        outs: list[Any] = []
        for n in range(sequences):
            part = inputs(dy, batch, seed=20 + n)
            xs += part
            outs += (
                builder.transduce(part)
                if name.startswith("BiRNN")
                else builder.initial_state().transduce(part)
            )
        arrays.update(finish(dy, pc, xs, outs, prefix))

    run("two ", 2)
    run("next ", 1)
    if name in VARIATIONAL:
        builder.set_dropouts(0.6, 0.1)
        run("rates ", 1)
    builder.disable_dropout()
    run("off ", 1)
    return arrays


def new_masks(name: str, dy: Any) -> dict[str, np.ndarray]:
    """set_dropout_masks draws masks at once, for a batch size given in advance."""
    pc = dy.ParameterCollection()
    builder = BUILDERS[name](dy, 1, pc)
    fill(pc, 11)
    dy.reset_random_seed(16)
    builder.set_dropouts(0.3, 0.4)
    dy.renew_cg(autobatching=False)
    start = builder.initial_state()
    builder.set_dropout_masks(2)
    xs = inputs(dy, 2)
    return finish(dy, pc, xs, start.transduce(xs))


SCENARIOS: dict[str, Callable[[Any], dict[str, np.ndarray]]] = {}
for _name in BUILDERS:
    for _layers in (1, 2):
        SCENARIOS["builder made %s %d" % (_name, _layers)] = functools.partial(made, _name, _layers)
        for _batch in (1, 3):
            SCENARIOS["builder sequence %s %d b%d" % (_name, _layers, _batch)] = functools.partial(
                sequence, _name, _layers, _batch
            )
    for _batch in (1, 3):
        SCENARIOS["builder dropout %s b%d" % (_name, _batch)] = functools.partial(dropout, _name, _batch)
for _name in PLAIN:
    SCENARIOS["builder states " + _name] = functools.partial(states, _name)
for _name in VARIATIONAL:
    SCENARIOS["builder masks " + _name] = functools.partial(new_masks, _name)
