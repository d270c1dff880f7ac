# ruff: noqa: UP031
"""Programs of traces.py with softmax builders, initialisers, dropout and noise. Runs on Python 3.8, too."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:
    sys.path.insert(0, str(HERE.parent))

from trace_programs import CLASSES, HIDDEN, SIZE, Step, layer, program, vectors  # noqa: E402

# ---------------------------------------------------------------- softmax builders


def cluster_file() -> tuple[str, dict]:
    """Path of a file of 9 words in 4 clusters, one of them of a single word, and the words' numbers."""
    words = "one two three red green blue cat dog the".split()
    clusters = dict(zip(words, "number number number colour colour colour animal animal single".split()))
    order = "cat red one the two green dog blue three".split()
    path = os.path.join(tempfile.mkdtemp(), "clusters.txt")
    with open(path, "w") as stream:
        stream.writelines("%s %s %d\n" % (clusters[word], word, 3 + n) for n, word in enumerate(order))
    return path, {word: n for n, word in enumerate(words)}


def standard(bias: bool) -> Any:
    """A StandardSoftmaxBuilder of 9 classes."""
    return lambda dy, pc: dy.StandardSoftmaxBuilder(SIZE, 9, pc, bias)


def class_factored(bias: bool) -> Any:
    """A ClassFactoredSoftmaxBuilder of 9 words."""
    return lambda dy, pc: dy.ClassFactoredSoftmaxBuilder(SIZE, *cluster_file(), pc, bias)


SOFTMAXES = {
    "StandardSoftmax": standard(True),
    "StandardSoftmax without bias": standard(False),
    "ClassFactoredSoftmax": class_factored(True),
    "ClassFactoredSoftmax without bias": class_factored(False),
}


def add_softmax(name: str, build: Any) -> None:
    """The programs about one softmax builder."""
    factored = name.startswith("Class")

    @program("softmax %s" % name)
    def _single(dy: Any, pc: Any) -> Step:
        softmax, A, xs = build(dy, pc), pc.add_parameters((SIZE, SIZE)), vectors(6)
        return lambda step: softmax.neg_log_softmax(dy.tanh(A * dy.inputVector(next(xs))), 4 * step % 9)

    @program("softmax %s batch" % name)
    def _batch(dy: Any, pc: Any) -> Step:
        softmax, A, xs = build(dy, pc), pc.add_parameters((SIZE, SIZE)), vectors(6, SIZE, 3)

        def step_loss(step: int) -> Any:
            x = dy.tanh(A * dy.inputTensor(next(xs), batched=True))
            return dy.sum_batches(softmax.neg_log_softmax_batch(x, [step % 9, 8, 2 * step % 9]))

        return step_loss

    @program("softmax %s constant" % name)
    def _constant(dy: Any, pc: Any) -> Step:
        softmax, A, xs = build(dy, pc), pc.add_parameters((SIZE, SIZE)), vectors(6)
        return lambda step: softmax.neg_log_softmax(A * dy.inputVector(next(xs)), step % 9, update=False)

    @program("softmax %s distribution" % name)
    def _distribution(dy: Any, pc: Any) -> Step:
        softmax, xs = build(dy, pc), vectors(6)

        def step_loss(step: int) -> Any:
            x = dy.inputVector(next(xs))
            if not factored:  # DyNet's distribution of a class-factored softmax is wrong
                return -dy.pick(softmax.full_log_distribution(x), step % 9) + dy.squared_norm(
                    softmax.full_logits(x)
                )
            loss = dy.squared_norm(softmax.class_logits(x)) - dy.pick(
                softmax.class_log_distribution(x), step % 4
            )
            return (
                loss
                + dy.squared_norm(softmax.subclass_logits(x, 1))
                - softmax.subclass_log_distribution(x, 0)[1]
            )

        return step_loss

    if "Standard" in name and "without" in name:
        return  # DyNet draws from the logits

    @program("softmax %s sample" % name)
    def _sample(dy: Any, pc: Any) -> Step:
        softmax, xs = build(dy, pc), vectors(6)

        def step_loss(step: int) -> Any:
            x = dy.inputVector(next(xs))
            return dy.esum([softmax.neg_log_softmax(x, softmax.sample(x)) for _ in range(3)])

        return step_loss


for _name, _build in SOFTMAXES.items():
    add_softmax(_name, _build)

# ---------------------------------------------------------------- initialisers

SQUARE, MATRIX = (SIZE, SIZE), (4, SIZE)
INITIALISERS = {
    "default": (MATRIX, lambda dy: {}),
    "Glorot": (MATRIX, lambda dy: {"init": dy.GlorotInitializer()}),
    "Glorot gain": (MATRIX, lambda dy: {"init": dy.GlorotInitializer(False, gain=0.6)}),
    "Uniform": (MATRIX, lambda dy: {"init": dy.UniformInitializer(0.4)}),
    "Normal": (MATRIX, lambda dy: {"init": dy.NormalInitializer(0.1, 0.3)}),
    "Const": (MATRIX, lambda dy: {"init": dy.ConstInitializer(0.2)}),
    "Identity": (SQUARE, lambda dy: {"init": dy.IdentityInitializer()}),
    "Saxe": (SQUARE, lambda dy: {"init": dy.SaxeInitializer()}),
    "Saxe gain": (SQUARE, lambda dy: {"init": dy.SaxeInitializer(0.8)}),
    "Numpy": (
        MATRIX,
        lambda dy: {"init": dy.NumpyInitializer(np.linspace(-1, 1, 4 * SIZE).reshape(4, SIZE))},
    ),
    "FromFile": (MATRIX, lambda dy: {"init": dy.FromFileInitializer(number_file(4 * SIZE))}),
    "array": (MATRIX, lambda dy: {"init": np.linspace(-1, 1, 4 * SIZE).reshape(4, SIZE)}),
    "number": (MATRIX, lambda dy: {"init": 0.3}),
    "string glorot": (MATRIX, lambda dy: {"init": "glorot", "scale": 2.0}),
    "string uniform": (MATRIX, lambda dy: {"init": "uniform", "scale": 0.5}),
    "string normal": (MATRIX, lambda dy: {"init": "normal", "mean": 0.1, "std": 0.2}),
    "string he": (MATRIX, lambda dy: {"init": "he"}),
    "string identity": (SQUARE, lambda dy: {"init": "identity"}),
}


def number_file(count: int) -> bytes:
    """Path of a file of numbers, in the form DyNet wants."""
    path = os.path.join(tempfile.mkdtemp(), "numbers.txt")
    with open(path, "w") as stream:
        stream.write(" ".join("%.6f" % np.sin(n) for n in range(count)) + "\n")
    return path.encode()


def add_initialiser(name: str, dim: tuple[int, ...], options: Any, table: bool) -> None:
    """The program about one initialiser, of a matrix or of a table."""

    @program("initialiser %s%s" % (name, " table" if table else ""))
    def _initialiser(dy: Any, pc: Any) -> Step:
        add = pc.add_lookup_parameters if table else pc.add_parameters
        p, xs = add(dim, **options(dy)), vectors(7)

        def step_loss(step: int) -> Any:
            x = dy.inputVector(next(xs))
            y = dy.dot_product(p[step % dim[0]], x) if table else dy.sum_elems(dy.tanh(p * x))
            return dy.square(y - 0.5) + 0.1

        return step_loss


for _name, (_dim, _options) in INITIALISERS.items():
    add_initialiser(_name, _dim, _options, False)
    if _name not in ("Identity", "string identity", "Saxe", "Saxe gain", "Numpy"):
        add_initialiser(_name, _dim, _options, True)

# ---------------------------------------------------------------- dropout and noise

RANDOM = {
    "dropout": lambda dy, h: dy.dropout(h, 0.4),
    "dropout twice": lambda dy, h: dy.dropout(dy.dropout(h, 0.2), 0.3),
    "dropout_dim": lambda dy, h: dy.dropout_dim(h, 0, 0.4),
    "dropout_batch": lambda dy, h: dy.dropout_batch(h, 0.4),
    "noise": lambda dy, h: dy.noise(h, 0.3),
    "random_bernoulli": lambda dy, h: dy.cmult(h, dy.random_bernoulli(HIDDEN, 0.6, 2.0, batch_size=3)),
    "random_normal": lambda dy, h: h + dy.random_normal(HIDDEN, batch_size=3),
    "random_uniform": lambda dy, h: h + dy.random_uniform(HIDDEN, -1, 1),
    "random_gumbel": lambda dy, h: h + 0.1 * dy.random_gumbel(HIDDEN, batch_size=3),
}


def add_random(name: str, change: Any) -> None:
    """The program about one kind of noise on a hidden layer."""

    @program("random %s" % name)
    def _random(dy: Any, pc: Any) -> Step:
        V, W, xs = (
            pc.add_parameters((HIDDEN, SIZE)),
            pc.add_parameters((CLASSES, HIDDEN)),
            vectors(8, SIZE, 3),
        )

        def step_loss(step: int) -> Any:
            h = change(dy, dy.tanh(V * dy.inputTensor(next(xs), batched=True)))
            return dy.sum_batches(dy.pickneglogsoftmax_batch(W * h, [step % 5, 3, 2]))

        return step_loss


for _name, _change in RANDOM.items():
    add_random(_name, _change)


@program("random block_dropout")
def _block(dy: Any, pc: Any) -> Step:
    net, xs = layer(dy, pc), vectors(8)
    return lambda step: dy.squared_norm(net(dy.block_dropout(dy.inputVector(next(xs)), 0.4)) - 1)
