"""Sequence tagger that spells rare words: two character LSTMs stand in for their embeddings."""

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
EMBED, CHAR_EMBED, MLP = 128, 20, 32
RARE = 5  # words seen less often are read character by character


def load(path: str | None = None, limit: int | None = None) -> tuple[list, tuple]:
    """[(words, tag numbers)], a word being its number or a list of character numbers, and vocabularies."""
    sentences = data.load(KIND, path, limit)
    words = data.Vocab((word for sentence in sentences for word, _ in sentence), min_count=RARE)
    chars = data.Vocab(char for sentence in sentences for word, _ in sentence for char in word)
    tags = data.Vocab(tag for sentence in sentences for _, tag in sentence)

    def number(word: str) -> int | list[int]:
        return words[word] if word in words else [0] + [chars[c] for c in word] + [0]

    instances = [([number(w) for w, _ in s], [tags[t] for _, t in s]) for s in sentences]
    return instances, (words, chars, tags)


class Tagger:
    def __init__(self, vocab: tuple, hidden: int) -> None:
        words, chars, tags = vocab
        self.pc = pc = dy.ParameterCollection()
        self.embed = pc.add_lookup_parameters((len(words), EMBED))
        self.char_embed = pc.add_lookup_parameters((len(chars), CHAR_EMBED))
        self.spell = [dy.VanillaLSTMBuilder(1, CHAR_EMBED, EMBED // 2, pc) for _ in range(2)]
        self.context = dy.BiRNNBuilder(1, EMBED, 2 * hidden, pc, dy.VanillaLSTMBuilder)
        self.W1 = pc.add_parameters((MLP, 2 * hidden))
        self.b1 = pc.add_parameters(MLP, init=0)
        self.W2 = pc.add_parameters((len(tags), MLP))
        self.b2 = pc.add_parameters(len(tags), init=0)

    def word(self, word: int | list[int]) -> dy.Expression:
        """Embedding of a frequent word, or both last states of the LSTMs over a rare word's characters."""
        if isinstance(word, int):
            return self.embed[word]
        chars = [self.char_embed[c] for c in word]
        forward, backward = (lstm.initial_state() for lstm in self.spell)
        return dy.concatenate([forward.transduce(chars)[-1], backward.transduce(chars[::-1])[-1]])

    def scores(self, words: list) -> list[dy.Expression]:
        """Tag scores of every word."""
        states = self.context.transduce([self.word(w) for w in words])
        hidden = [dy.tanh(dy.affine_transform([self.b1, self.W1, state])) for state in states]
        return [dy.affine_transform([self.b2, self.W2, h]) for h in hidden]

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
