# ruff: noqa: UP031
"""Small training programs, written once, that run under the real DyNet and under ours: their losses agree.

    python traces.py --library dynet --out traces.npz --seed 5

Each program makes a model, trains it for STEPS steps under one seed, without autobatching, and gives the loss
of each step and, last, one number of the random stream: two libraries that give the same number have drawn
equally often. Programs run on Python 3.8, too.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any, Callable

import numpy as np

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:
    sys.path.insert(0, str(HERE.parent))

import trace_layers  # noqa: E402, F401 - registers its programs
from support import records  # noqa: E402
from trace_programs import (  # noqa: E402
    CLASSES,
    HIDDEN,
    PROGRAMS,
    SEED,
    SIZE,
    WORDS,
    Step,
    layer,
    program,
    run,
    sentences,
    vectors,
)

# ---------------------------------------------------------------- recurrent builders


def classify(dy: Any, pc: Any, transduce: Callable[[list], list], hidden: int = HIDDEN) -> Step:
    """Sentences of words to classes, through any function from vectors to vectors."""
    embed = pc.add_lookup_parameters((WORDS, SIZE), init=dy.NormalInitializer(0, 1))
    W, b = pc.add_parameters((CLASSES, hidden)), pc.add_parameters(CLASSES, init=0)
    data = sentences()

    def step_loss(step: int) -> Any:
        losses = []
        for _ in range(2):
            words, label = next(data)
            outs = transduce([embed[w] for w in words])
            losses.append(dy.pickneglogsoftmax(dy.affine_transform([b, W, outs[-1]]), label))
            losses.append(dy.squared_norm(outs[0]) * 0.1)
        return dy.esum(losses)

    return step_loss


CELLS = {
    "SimpleRNN": lambda dy, pc, layers: dy.SimpleRNNBuilder(layers, SIZE, HIDDEN, pc),
    "GRU": lambda dy, pc, layers: dy.GRUBuilder(layers, SIZE, HIDDEN, pc),
    "LSTM": lambda dy, pc, layers: dy.LSTMBuilder(layers, SIZE, HIDDEN, pc),
    "VanillaLSTM": lambda dy, pc, layers: dy.VanillaLSTMBuilder(layers, SIZE, HIDDEN, pc, False, 0.3),
    "VanillaLSTM-ln": lambda dy, pc, layers: dy.VanillaLSTMBuilder(layers, SIZE, HIDDEN, pc, ln_lstm=True),
    "CompactVanillaLSTM": lambda dy, pc, layers: dy.CompactVanillaLSTMBuilder(layers, SIZE, HIDDEN, pc),
    "SparseLSTM": lambda dy, pc, layers: dy.SparseLSTMBuilder(layers, SIZE, HIDDEN, pc),
    "SparseLSTM-ln": lambda dy, pc, layers: dy.SparseLSTMBuilder(layers, SIZE, HIDDEN, pc, True, 0.5),
    "CoupledLSTM": lambda dy, pc, layers: dy.CoupledLSTMBuilder(layers, SIZE, HIDDEN, pc),
    "FastLSTM": lambda dy, pc, layers: dy.FastLSTMBuilder(layers, SIZE, HIDDEN, pc),
    "BiRNN-LSTM": lambda dy, pc, layers: dy.BiRNNBuilder(layers, SIZE, HIDDEN, pc, dy.LSTMBuilder),
    "BiRNN-GRU": lambda dy, pc, layers: dy.BiRNNBuilder(layers, SIZE, HIDDEN, pc, dy.GRUBuilder),
    "BiRNN-SimpleRNN": lambda dy, pc, layers: dy.BiRNNBuilder(layers, SIZE, HIDDEN, pc, dy.SimpleRNNBuilder),
    "BiRNN-CoupledLSTM": lambda dy, pc, layers: dy.BiRNNBuilder(
        layers, SIZE, HIDDEN, pc, dy.CoupledLSTMBuilder
    ),
    "BiRNN-CompactVanillaLSTM": lambda dy, pc, layers: dy.BiRNNBuilder(
        layers, SIZE, HIDDEN, pc, dy.CompactVanillaLSTMBuilder
    ),
}
TWO_RATES = ("SimpleRNN", "LSTM", "VanillaLSTM", "VanillaLSTM-ln", "CompactVanillaLSTM", "SparseLSTM")


def transducer(builder: Any) -> Callable[[list], list]:
    """BiRNNBuilder.transduce, or that of a new sequence."""
    if hasattr(builder, "initial_state"):
        return lambda xs: builder.initial_state().transduce(xs)
    return builder.transduce


def add_cells(cell: str, build: Any) -> None:
    """The programs about one kind of cell."""

    def trainer(dy: Any, pc: Any) -> Any:
        # large steps make a normalised network chaotic: rounding grows by orders of magnitude
        return dy.SimpleSGDTrainer(pc, 0.01 if cell.endswith("-ln") else 0.1)

    for layers in (1, 2):

        @program("builder %s %d" % (cell, layers), trainer)
        def _plain(dy: Any, pc: Any, layers: int = layers) -> Step:
            return classify(dy, pc, transducer(build(dy, pc, layers)))

    @program("builder %s dropout" % cell, trainer)
    def _dropout(dy: Any, pc: Any) -> Step:
        builder = build(dy, pc, 2)
        builder.set_dropout(0.3)
        return classify(dy, pc, transducer(builder))

    @program("builder %s dropout off and on" % cell, trainer)
    def _switched(dy: Any, pc: Any) -> Step:
        builder = build(dy, pc, 1)
        step_loss = classify(dy, pc, transducer(builder))

        def switched(step: int) -> Any:
            # a layer all of whose inputs are dropped has no norm
            rate = 0.15 if cell.endswith("-ln") else 0.5
            builder.set_dropout(rate) if step % 3 == 0 else builder.disable_dropout()
            return step_loss(step)

        return switched

    if cell in TWO_RATES:

        @program("builder %s two rates" % cell, trainer)
        def _rates(dy: Any, pc: Any) -> Step:
            builder = build(dy, pc, 2)
            builder.set_dropouts(0.2, 0.6)

            def transduce(xs: list) -> list:
                state = builder.initial_state()
                if len(xs) % 2:
                    builder.set_dropout_masks(batch_size=1)
                return state.transduce(xs)

            return classify(dy, pc, transduce)

    if cell.startswith("BiRNN"):
        return

    @program("builder %s states" % cell, trainer)
    def _states(dy: Any, pc: Any) -> Step:
        builder = build(dy, pc, 2)
        start = [pc.add_parameters(HIDDEN, init=0.1 * n) for n in range(4)]

        def transduce(xs: list) -> list:
            count = len(builder.initial_state().add_input(xs[0]).s())
            state = builder.initial_state().set_s(start[:count])
            states = state.add_inputs(xs)
            branch = states[0].add_input(xs[-1]).set_h(start[2:]).add_input(xs[1])
            return [states[1].prev().output(), branch.output(), states[-1].h()[0] + branch.s()[-1]]

        return classify(dy, pc, transduce)

    @program("builder %s batch" % cell, trainer)
    def _batch(dy: Any, pc: Any) -> Step:
        builder = build(dy, pc, 2)
        W, data = pc.add_parameters((CLASSES, HIDDEN)), vectors(3, SIZE, 3)
        builder.set_dropout(0.25)

        def step_loss(step: int) -> Any:
            xs = [dy.inputTensor(next(data), batched=True) for _ in range(3)]
            out = builder.initial_state(update=step % 4 != 3).transduce(xs)[-1]
            return dy.sum_batches(dy.pickneglogsoftmax_batch(W * out, [step % CLASSES, 1, 2]))

        return step_loss


for _cell, _build in CELLS.items():
    add_cells(_cell, _build)


@program("builder SparseLSTM sparsity")
def _sparsity(dy: Any, pc: Any) -> Step:
    builder = dy.SparseLSTMBuilder(2, SIZE, HIDDEN, pc)
    step_loss = classify(dy, pc, transducer(builder))

    def pruned(step: int) -> Any:
        if step in (3, 9):
            builder.set_sparsity(0.1 * step)
        return step_loss(step)

    return pruned


@program("builder raw vectors")
def _raw(dy: Any, pc: Any) -> Step:
    builder = dy.LSTMBuilder(1, SIZE, HIDDEN, pc)
    vecs = [np.linspace(-1, 1, HIDDEN), np.linspace(0, 1, HIDDEN)]
    return classify(dy, pc, lambda xs: builder.initial_state_from_raw_vectors(vecs).transduce(xs))


@program("builder of given layers")
def _given(dy: Any, pc: Any) -> Step:
    pairs = [
        (dy.GRUBuilder(1, n, HIDDEN // 2, pc), dy.LSTMBuilder(1, n, HIDDEN // 2, pc)) for n in (SIZE, HIDDEN)
    ]
    return classify(dy, pc, dy.BiRNNBuilder(2, SIZE, HIDDEN, pc, None, pairs).transduce)


# ---------------------------------------------------------------- trainers

TRAINERS = {
    "SimpleSGD": lambda dy, pc: dy.SimpleSGDTrainer(pc),
    "SimpleSGD-rate": lambda dy, pc: dy.SimpleSGDTrainer(pc, learning_rate=0.3),
    "CyclicalSGD": lambda dy, pc: dy.CyclicalSGDTrainer(pc),
    "CyclicalSGD-rate": lambda dy, pc: dy.CyclicalSGDTrainer(pc, 0.02, 0.3, 4, 0.95),
    "MomentumSGD": lambda dy, pc: dy.MomentumSGDTrainer(pc),
    "MomentumSGD-rate": lambda dy, pc: dy.MomentumSGDTrainer(pc, 0.05, mom=0.8),
    "Adagrad": lambda dy, pc: dy.AdagradTrainer(pc),
    "Adagrad-rate": lambda dy, pc: dy.AdagradTrainer(pc, 0.05, eps=1e-4),
    "Adadelta": lambda dy, pc: dy.AdadeltaTrainer(pc),
    "Adadelta-rate": lambda dy, pc: dy.AdadeltaTrainer(pc, eps=1e-4, rho=0.9),
    "RMSProp": lambda dy, pc: dy.RMSPropTrainer(pc),
    "RMSProp-rate": lambda dy, pc: dy.RMSPropTrainer(pc, 0.02, eps=1e-4, rho=0.8),
    "Adam": lambda dy, pc: dy.AdamTrainer(pc),
    "Adam-rate": lambda dy, pc: dy.AdamTrainer(pc, 0.02, beta_1=0.8, beta_2=0.95, eps=1e-6),
    "Amsgrad": lambda dy, pc: dy.AmsgradTrainer(pc),
    "Amsgrad-rate": lambda dy, pc: dy.AmsgradTrainer(pc, 0.02, beta_1=0.8, beta_2=0.95, eps=1e-6),
}


def tagger(dy: Any, pc: Any) -> Step:
    """A bag of words: sparse rows of a table, a dense layer, a frozen vector."""
    embed = pc.add_lookup_parameters((WORDS, SIZE), init=dy.NormalInitializer(0, 1), name="E")
    W, b = pc.add_parameters((CLASSES, SIZE), name="W"), pc.add_parameters(CLASSES, init="normal", std=0.3)
    frozen = pc.add_parameters(SIZE, init=0.7)
    frozen.set_updated(False)
    data = sentences(2)

    def step_loss(step: int) -> Any:
        words, label = next(data)
        total = dy.cmult(dy.esum([embed[w] for w in words]), frozen)
        loss = dy.pickneglogsoftmax(dy.affine_transform([b, W, dy.tanh(total)]), label)
        return loss + 0.01 * dy.squared_norm(embed) if step % 7 == 6 else loss

    return step_loss


def set_up(name: str, prepare: Any) -> Callable[[Any, Any], Any]:
    """A trainer to which something was done."""

    def make(dy: Any, pc: Any) -> Any:
        trainer = TRAINERS[name](dy, pc)
        prepare(trainer)
        return trainer

    return make


def decaying(dy: Any) -> Any:
    """A collection with weight decay, strong enough for the factor to be folded into the weights."""
    pc = dy.ParameterCollection()
    pc.set_weight_decay(0.12)
    return pc


def restarted(dy: Any, trainer: Any, step: int) -> None:
    """restart, with and without a rate; the rate set by hand."""
    if step == 4:
        trainer.restart()
    if step == 9:
        trainer.restart(0.04)
    if step == 13:
        trainer.learning_rate = 0.01
    if step == 16:
        trainer.set_learning_rate(0.02)


for _name in TRAINERS:
    program("trainer %s" % _name, TRAINERS[_name])(tagger)
    program("trainer %s clipped" % _name, set_up(_name, lambda t: t.set_clip_threshold(0.2)))(tagger)
    program("trainer %s not clipped" % _name, set_up(_name, lambda t: t.set_clip_threshold(0)))(tagger)
    program("trainer %s dense" % _name, set_up(_name, lambda t: t.set_sparse_updates(False)))(tagger)
    program("trainer %s decay" % _name, TRAINERS[_name], collection=decaying)(tagger)
    program("trainer %s decay dense" % _name, set_up(_name, lambda t: t.set_sparse_updates(False)),
            collection=decaying)(tagger)  # fmt: skip
    program("trainer %s restart" % _name, TRAINERS[_name], between=restarted)(tagger)


@program("trainer of a sub-collection", lambda dy, pc: dy.AdamTrainer(pc.inner, 0.05))
def _sub(dy: Any, pc: Any) -> Step:
    outer = pc.outer.add_parameters(SIZE, init=0.3)
    step_loss = tagger(dy, pc.inner)
    return lambda step: step_loss(step) + dy.squared_norm(outer)


class Nested:
    """A root collection and one of its sub-collections."""

    def __init__(self, dy: Any) -> None:
        self.outer = dy.ParameterCollection()
        self.inner = self.outer.add_subcollection("inner")


PROGRAMS["trainer of a sub-collection"] = PROGRAMS["trainer of a sub-collection"]._replace(collection=Nested)

# ---------------------------------------------------------------- losses

# name -> loss from (dy, y, step): y {5} is a layer's output, t {5} a target in (0,1), label a class
LOSSES = {
    "pickneglogsoftmax": lambda dy, y, t, n: dy.pickneglogsoftmax(y, n),
    "log_softmax": lambda dy, y, t, n: -dy.pick(dy.log_softmax(y), n),
    "log_softmax restrict": lambda dy, y, t, n: -dy.pick(dy.log_softmax(y, [n, (n + 2) % 5]), n),
    "softmax": lambda dy, y, t, n: -dy.log(dy.pick(dy.softmax(y), n)),
    "hinge": lambda dy, y, t, n: dy.hinge(y, n),
    "hinge margin": lambda dy, y, t, n: dy.hinge(y, n, 0.3) * 2,
    "hinge_dim": lambda dy, y, t, n: dy.sum_elems(
        dy.hinge_dim(dy.reshape(dy.concatenate([y, y * 2]), (5, 2)), [n, (n + 1) % 5], d=0, m=0.7)
    ),
    "binary_log_loss": lambda dy, y, t, n: dy.binary_log_loss(dy.logistic(y), t),
    "squared_distance": lambda dy, y, t, n: dy.squared_distance(y, t),
    "l1_distance": lambda dy, y, t, n: dy.l1_distance(y, t),
    "huber_distance": lambda dy, y, t, n: dy.huber_distance(y, t * 3),
    "huber_distance c": lambda dy, y, t, n: dy.huber_distance(y, t * 3, c=0.4),
    "pairwise_rank_loss": lambda dy, y, t, n: dy.pairwise_rank_loss(y[n], y[(n + 1) % 5]),
    "pairwise_rank_loss margin": lambda dy, y, t, n: dy.pairwise_rank_loss(y[n], dy.max_dim(y), m=0.4),
    "poisson_loss": lambda dy, y, t, n: dy.poisson_loss(y[0], n) + dy.poisson_loss(y[1], 3),
    "squared_norm": lambda dy, y, t, n: dy.squared_norm(y - t),
    "l2_norm": lambda dy, y, t, n: dy.l2_norm(y - t),
    "dot_product": lambda dy, y, t, n: dy.exp(-dy.dot_product(y, t)),
    "logsumexp": lambda dy, y, t, n: dy.logsumexp([y[0], y[n], y[4]]) - y[n],
    "logsumexp_dim": lambda dy, y, t, n: dy.logsumexp_dim(y, d=0) - y[n],
    "cosine": lambda dy, y, t, n: 1 - dy.cdiv(dy.dot_product(y, t), dy.l2_norm(y) * dy.l2_norm(t)),
    "log_sigmoid": lambda dy, y, t, n: -dy.sum_elems(dy.log_sigmoid(dy.cmult(y, t - 0.5))),
    "sparsemax": lambda dy, y, t, n: dy.squared_distance(dy.sparsemax(y), t),
    "constrained_softmax": lambda dy, y, t, n: dy.squared_distance(
        dy.constrained_softmax(y, dy.logistic(t) * 0.7), t
    ),
    "trace_of_product": lambda dy, y, t, n: dy.square(dy.trace_of_product(y, t) - 1) + 0.1,
    "mean and std": lambda dy, y, t, n: dy.square(dy.mean_elems(y) - 0.3) + dy.std_elems(y),
    "average": lambda dy, y, t, n: dy.squared_norm(dy.average([y, t, y * 2])),
    "emax": lambda dy, y, t, n: dy.squared_norm(dy.emax([y, t, -y])),
}


def add_loss(name: str, loss: Any) -> None:
    """The program about one loss."""
    needs = (name,) if name in ("sparsemax", "constrained_softmax", "l1_distance", "trace_of_product") else ()

    @program("loss %s" % name, needs=needs)
    def _loss(dy: Any, pc: Any) -> Step:
        net, xs, ts = layer(dy, pc), vectors(4), vectors(5, CLASSES)

        def step_loss(step: int) -> Any:
            t = 1 / (1 + np.exp(-next(ts)))
            return loss(dy, net(dy.inputVector(next(xs))), dy.inputVector(t), step % CLASSES)

        return step_loss


for _name, _loss in LOSSES.items():
    add_loss(_name, _loss)

BATCHED = {
    "pickneglogsoftmax_batch": lambda dy, y, t, ns: dy.pickneglogsoftmax_batch(y, ns),
    "hinge_batch": lambda dy, y, t, ns: dy.hinge_batch(y, ns, 0.8),
    "pick_batch": lambda dy, y, t, ns: -dy.pick_batch(dy.log_softmax(y), ns),
    "squared_distance batch": lambda dy, y, t, ns: dy.squared_distance(y, t),
    "dot_product batch": lambda dy, y, t, ns: dy.exp(dy.dot_product(y, t)),
    "pairwise_rank_loss batch": lambda dy, y, t, ns: dy.pairwise_rank_loss(
        dy.pick_batch(y, ns), dy.pick_batch(y, ns[::-1])
    ),
    "moments": lambda dy, y, t, ns: dy.square(dy.moment_elems(y - t, 3)) + dy.mean_elems(dy.square(y)),
}


def add_batched_loss(name: str, loss: Any, reduce: str) -> None:
    """The program about one loss of a batch."""

    @program("loss %s %s" % (name, reduce))
    def _loss(dy: Any, pc: Any) -> Step:
        net, xs, ts = layer(dy, pc), vectors(4, SIZE, 4), vectors(5, CLASSES, 4)

        def step_loss(step: int) -> Any:
            x, t = (dy.inputTensor(next(source), batched=True) for source in (xs, ts))
            ns = [(step + n) % CLASSES for n in range(4)]
            return getattr(dy, reduce)(loss(dy, net(x), t, ns))

        return step_loss


for _name, _loss in BATCHED.items():
    for _reduce in ("sum_batches", "mean_batches"):
        add_batched_loss(_name, _loss, _reduce)


def main() -> None:
    """Write the traces of all programs that the library can run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", dest="module", default="dynet")
    parser.add_argument("--out", required=True)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", default="", help="part of the names of the programs")
    options = parser.parse_args()
    dy = importlib.import_module(options.module)
    names = [name for name in PROGRAMS if options.only in name]
    records.save(options.out, {name: run(dy, name, options.seed) for name in names})
    print("%d traces" % len(names))


if __name__ == "__main__":
    main()
