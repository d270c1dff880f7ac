"""Small perceptron that classifies sentences, trained online: one example, one graph, one update."""

from __future__ import annotations

import sys
import zlib

import common
import data
import numpy as np

if "--reference" in sys.argv:
    import dynet as dy
else:
    import dynet_compat as dy

KIND = "classes"
FEATURES = 16


def features(words: list[str]) -> list[float]:
    """A bag of words hashed into FEATURES numbers, scaled to length about 1."""
    counts = [0.0] * FEATURES
    for word in words:
        counts[zlib.crc32(word.encode("utf-8")) % FEATURES] += 1.0
    norm = max(1.0, sum(c * c for c in counts)) ** 0.5
    return [c / norm for c in counts]


def load(path: str | None = None, limit: int | None = None) -> tuple[list, int]:
    """[(features, label)] and the number of classes."""
    pairs = data.load(KIND, path, limit)
    return [(features(words), label) for label, words in pairs], 1 + max(label for label, _ in pairs)


class Perceptron:
    def __init__(self, classes: int, hidden: int) -> None:
        self.pc = pc = dy.ParameterCollection()
        self.W1 = pc.add_parameters((hidden, FEATURES))
        self.b1 = pc.add_parameters(hidden, init=0)
        self.W2 = pc.add_parameters((classes, hidden))
        self.b2 = pc.add_parameters(classes, init=0)

    def scores(self, x: list[float]) -> dy.Expression:
        hidden = dy.tanh(self.W1 * dy.inputVector(x) + self.b1)
        return self.W2 * hidden + self.b2


def build(classes: int, hidden: int) -> tuple:
    model = Perceptron(classes, hidden)
    return model, dy.SimpleSGDTrainer(model.pc, 0.1)


def train_batch(model: Perceptron, trainer: dy.Trainer, batch: list) -> float:
    """One graph and one update for each example; returns the sum of the losses."""
    total = 0.0
    for x, label in batch:
        dy.renew_cg()
        loss = dy.pickneglogsoftmax(model.scores(x), label)
        total += loss.value()
        loss.backward()
        trainer.update()
    return total


def predict_batch(model: Perceptron, batch: list) -> list[int]:
    dy.renew_cg()
    scores = [model.scores(x) for x, _ in batch]
    dy.forward(scores)
    return [int(np.argmax(s.npvalue())) for s in scores]


def main(argv: list[str] | None = None) -> dict:
    args = common.options(__doc__, argv, hidden=32, batch=100)
    examples, classes = load(args.data, args.limit)
    training, held_out = common.split(examples)
    model, trainer = build(classes, args.hidden)
    log = common.Log(args)
    for batch in common.batches(training, args):
        log.step(train_batch(model, trainer, batch), len(batch), len(batch))
    guesses = predict_batch(model, held_out)
    right = sum(guess == label for guess, (_, label) in zip(guesses, held_out))
    return log.finish(accuracy=right / len(held_out))


if __name__ == "__main__":
    main()
