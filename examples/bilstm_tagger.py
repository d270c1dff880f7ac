"""Sequence tagger: word embeddings, a bidirectional LSTM, and a perceptron on every word."""

from __future__ import annotations

import sys

import common
import data
import numpy as np

if "--reference" in sys.argv:
    import dynet as dy
else:
    import dynet_compat as dy

KIND = "tags"
EMBED, MLP = 128, 32


def load(path: str | None = None, limit: int | None = None) -> tuple[list, tuple]:
    """[(word numbers, tag numbers)] and the two vocabularies."""
    sentences = data.load(KIND, path, limit)
    words = data.Vocab((word for sentence in sentences for word, _ in sentence), min_count=2)
    tags = data.Vocab(tag for sentence in sentences for _, tag in sentence)
    instances = [([words[w] for w, _ in s], [tags[t] for _, t in s]) for s in sentences]
    return instances, (words, tags)


class Tagger:
    def __init__(self, vocab: tuple, hidden: int) -> None:
        words, tags = vocab
        self.pc = pc = dy.ParameterCollection()
        self.embed = pc.add_lookup_parameters((len(words), EMBED))
        self.W1 = pc.add_parameters((MLP, 2 * hidden))
        self.W2 = pc.add_parameters((len(tags), MLP))
        self.left_to_right = dy.VanillaLSTMBuilder(1, EMBED, hidden, pc)
        self.right_to_left = dy.VanillaLSTMBuilder(1, EMBED, hidden, pc)

    def scores(self, words: list[int]) -> list[dy.Expression]:
        """Tag scores of every word."""
        inputs = [self.embed[w] for w in words]
        before = self.left_to_right.initial_state().transduce(inputs)
        after = self.right_to_left.initial_state().transduce(inputs[::-1])[::-1]
        return [self.W2 * dy.tanh(self.W1 * dy.concatenate([b, a])) for b, a in zip(before, after)]

    def loss(self, instance: tuple) -> dy.Expression:
        words, tags = instance
        return dy.esum([dy.pickneglogsoftmax(s, t) for s, t in zip(self.scores(words), tags)])


def build(vocab: tuple, hidden: int) -> tuple:
    model = Tagger(vocab, hidden)
    return model, dy.AdamTrainer(model.pc)


def train_batch(model: Tagger, trainer: dy.Trainer, batch: list) -> float:
    dy.renew_cg()
    loss = dy.esum([model.loss(instance) for instance in batch])
    value = loss.value()
    loss.backward()
    trainer.update()
    return value


def predict_batch(model: Tagger, batch: list) -> list[list[int]]:
    dy.renew_cg()
    scores = [model.scores(words) for words, _ in batch]
    dy.forward([s for sentence in scores for s in sentence])
    return [[int(np.argmax(s.npvalue())) for s in sentence] for sentence in scores]


def main(argv: list[str] | None = None) -> dict:
    args = common.options(__doc__, argv, hidden=50, batch=16)
    instances, vocab = load(args.data, args.limit)
    training, held_out = common.split(instances)
    model, trainer = build(vocab, args.hidden)
    log = common.Log(args)
    for batch in common.batches(training, args):
        log.step(train_batch(model, trainer, batch), sum(len(words) for words, _ in batch), len(batch))
    guesses = predict_batch(model, held_out)
    pairs = [pair for guess, (_, tags) in zip(guesses, held_out) for pair in zip(guess, tags)]
    return log.finish(accuracy=sum(g == t for g, t in pairs) / len(pairs))


if __name__ == "__main__":
    main()
