"""LSTM language model over sentences of unequal lengths, without padding or masks."""

from __future__ import annotations

import math
import sys

import common
import data

if "--reference" in sys.argv:
    import dynet as dy
else:
    import dynet_compat as dy

KIND = "text"
EMBED = 128
END = "</s>"


def load(path: str | None = None, limit: int | None = None) -> tuple[list, data.Vocab]:
    """Sentences as word numbers, between two end marks, and the vocabulary."""
    sentences = [[END] + words + [END] for words in data.load(KIND, path, limit)]
    words = data.Vocab((word for sentence in sentences for word in sentence), min_count=2)
    return [[words[w] for w in sentence] for sentence in sentences], words


class LanguageModel:
    def __init__(self, words: data.Vocab, hidden: int) -> None:
        self.pc = pc = dy.ParameterCollection()
        self.embed = pc.add_lookup_parameters((len(words), EMBED))
        self.lstm = dy.VanillaLSTMBuilder(1, EMBED, hidden, pc)
        self.W = pc.add_parameters((len(words), hidden))
        self.b = pc.add_parameters(len(words), init=0)

    def loss(self, sentence: list[int]) -> dy.Expression:
        """Negative log-likelihood of the words after the first."""
        state = self.lstm.initial_state()
        losses = []
        for word, following in zip(sentence, sentence[1:]):
            state = state.add_input(self.embed[word])
            scores = dy.affine_transform([self.b, self.W, state.output()])
            losses.append(dy.pickneglogsoftmax(scores, following))
        return dy.esum(losses)


def build(words: data.Vocab, hidden: int) -> tuple:
    model = LanguageModel(words, hidden)
    return model, dy.AdamTrainer(model.pc)


def train_batch(model: LanguageModel, trainer: dy.Trainer, batch: list) -> float:
    dy.renew_cg()
    loss = dy.esum([model.loss(sentence) for sentence in batch])
    value = loss.value()
    loss.backward()
    trainer.update()
    return value


def predict_batch(model: LanguageModel, batch: list) -> list[float]:
    """Negative log-likelihood of each sentence."""
    dy.renew_cg()
    losses = [model.loss(sentence) for sentence in batch]
    dy.forward(losses)
    return [loss.value() for loss in losses]


def main(argv: list[str] | None = None) -> dict:
    args = common.options(__doc__, argv, hidden=128, batch=16)
    sentences, vocab = load(args.data, args.limit)
    training, held_out = common.split(sentences)
    model, trainer = build(vocab, args.hidden)
    log = common.Log(args)
    for batch in common.batches(training, args):
        log.step(train_batch(model, trainer, batch), sum(len(s) - 1 for s in batch), len(batch))
    words = sum(len(s) - 1 for s in held_out)
    loss = sum(sum(predict_batch(model, held_out[i : i + 16])) for i in range(0, len(held_out), 16))
    return log.finish(perplexity=math.exp(loss / words))


if __name__ == "__main__":
    main()
