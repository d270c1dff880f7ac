"""Exclusive or with a small multi-layer perceptron: one graph, whose inputs are set again and again."""

from __future__ import annotations

import sys

import common

if "--reference" in sys.argv:
    import dynet as dy
else:
    import dynet_compat as dy

KIND = None  # needs no data


def load(path: str | None = None, limit: int | None = None) -> tuple[list, None]:
    """The four cases; true is 1, false is 0, and inputs are -1 and 1."""
    return [((a, b), float(a != b)) for a in (-1.0, 1.0) for b in (-1.0, 1.0)], None


class Xor:
    def __init__(self, hidden: int) -> None:
        self.pc = pc = dy.ParameterCollection()
        self.W = pc.add_parameters((hidden, 2))
        self.b = pc.add_parameters(hidden, init=0)
        self.V = pc.add_parameters((1, hidden))
        self.a = pc.add_parameters(1, init=0)
        # The graph is built once: setting an input makes the next value() compute again.
        dy.renew_cg()
        self.x = dy.vecInput(2)
        self.y = dy.scalarInput(0)
        hidden_layer = dy.tanh(self.W * self.x + self.b)
        self.output = dy.logistic(self.V * hidden_layer + self.a)
        self.loss = dy.binary_log_loss(self.output, self.y)


def build(vocab: None, hidden: int) -> tuple:
    model = Xor(hidden)
    return model, dy.SimpleSGDTrainer(model.pc, 0.1)


def train_batch(model: Xor, trainer: dy.Trainer, batch: list) -> float:
    """One update after each case; returns the sum of the losses."""
    total = 0.0
    for inputs, target in batch:
        model.x.set(inputs)
        model.y.set(target)
        total += model.loss.value()
        model.loss.backward()
        trainer.update()
    return total


def predict_batch(model: Xor, batch: list) -> list[float]:
    answers = []
    for inputs, _ in batch:
        model.x.set(inputs)
        answers.append(model.output.value())
    return answers


def main(argv: list[str] | None = None) -> dict:
    args = common.options(__doc__, argv, hidden=8, batch=4, report=250)
    cases, vocab = load()
    model, trainer = build(vocab, args.hidden)
    if not args.steps:
        args.steps = 1000 * args.epochs
    log = common.Log(args)
    for _ in range(args.steps):
        log.step(train_batch(model, trainer, cases), len(cases), len(cases))
    answers = predict_batch(model, cases)
    right = sum((answer > 0.5) == (target > 0.5) for answer, (_, target) in zip(answers, cases))
    return log.finish(accuracy=right / len(cases))


if __name__ == "__main__":
    main()
