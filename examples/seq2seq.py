"""Encoder-decoder with attention over characters: puts back the vowels that were taken out of a text."""

from __future__ import annotations

import sys

import common
import data
import numpy as np

if "--reference" in sys.argv:
    import dynet as dy
else:
    import dynet_compat as dy

KIND = "text"
EMBED, WORDS = 32, 4  # words per instance
END = "</s>"


def load(path: str | None = None, limit: int | None = None) -> tuple[list, data.Vocab]:
    """[(consonants, full text)] as character numbers, each with an end mark, and the characters."""
    pairs = []
    for words in data.load(KIND, path, limit):
        text = " ".join(word for word in words[:WORDS] if word != data.UNKNOWN)
        consonants = "".join(char for char in text if char not in "aeiou")
        if 2 <= len(text) <= 40:
            pairs.append((list(consonants) + [END], list(text) + [END]))
    chars = data.Vocab(char for pair in pairs for char in pair[1])
    return [([chars[c] for c in a], [chars[c] for c in b]) for a, b in pairs], chars


class Translator:
    def __init__(self, chars: data.Vocab, hidden: int) -> None:
        self.end = chars[END]
        self.pc = pc = dy.ParameterCollection()
        self.embed = pc.add_lookup_parameters((len(chars), EMBED))
        self.encoder = [dy.LSTMBuilder(1, EMBED, hidden, pc) for _ in range(2)]
        self.decoder = dy.LSTMBuilder(1, EMBED + 2 * hidden, hidden, pc)
        self.key = pc.add_parameters((hidden, 2 * hidden))
        self.query = pc.add_parameters((hidden, hidden))
        self.v = pc.add_parameters((1, hidden))
        self.W = pc.add_parameters((len(chars), hidden))
        self.b = pc.add_parameters(len(chars), init=0)

    def encode(self, source: list[int]) -> tuple:
        """Matrix of encoder states, one column per character, and its projection for the attention."""
        inputs = [self.embed[c] for c in source]
        forward, backward = (lstm.initial_state() for lstm in self.encoder)
        pairs = zip(forward.transduce(inputs), backward.transduce(inputs[::-1])[::-1])
        columns = dy.concatenate_cols([dy.concatenate(list(pair)) for pair in pairs])
        return columns, self.key * columns

    def start(self) -> tuple:
        """Decoder state before the first character, and that character."""
        blank = dy.zeros(self.decoder.spec[2])
        return self.decoder.initial_state([blank, blank]), self.end

    def step(self, state: dy.RNNState, last: int, columns: dy.Expression, keys: dy.Expression) -> tuple:
        """Attend with the present state, read the last character; the new state and its scores."""
        match = self.v * dy.tanh(dy.colwise_add(keys, self.query * state.output()))
        weights = dy.softmax(dy.transpose(match))
        state = state.add_input(dy.concatenate([self.embed[last], columns * weights]))
        return state, dy.affine_transform([self.b, self.W, state.output()])

    def loss(self, instance: tuple) -> dy.Expression:
        source, target = instance
        columns, keys = self.encode(source)
        state, last = self.start()
        losses = []
        for char in target:
            state, scores = self.step(state, last, columns, keys)
            losses.append(dy.pickneglogsoftmax(scores, char))
            last = char
        return dy.esum(losses)

    def generate(self, source: list[int]) -> list[int]:
        """Greedy decoding: every character is read before the next step is built."""
        columns, keys = self.encode(source)
        state, last = self.start()
        output: list[int] = []
        while len(output) <= 2 * len(source) + 10:
            state, scores = self.step(state, last, columns, keys)
            last = int(np.argmax(scores.npvalue()))
            output.append(last)
            if last == self.end:
                break
        return output


def build(chars: data.Vocab, hidden: int) -> tuple:
    model = Translator(chars, hidden)
    return model, dy.AdamTrainer(model.pc, 0.003)


def train_batch(model: Translator, trainer: dy.Trainer, batch: list) -> float:
    dy.renew_cg()
    loss = dy.esum([model.loss(instance) for instance in batch])
    value = loss.value()
    loss.backward()
    trainer.update()
    return value


def predict_batch(model: Translator, batch: list) -> list[list[int]]:
    outputs = []
    for source, _ in batch:
        dy.renew_cg()
        outputs.append(model.generate(source))
    return outputs


def main(argv: list[str] | None = None) -> dict:
    args = common.options(__doc__, argv, hidden=64, batch=16)
    instances, vocab = load(args.data, args.limit)
    training, held_out = common.split(instances)
    model, trainer = build(vocab, args.hidden)
    log = common.Log(args)
    for batch in common.batches(training, args):
        log.step(train_batch(model, trainer, batch), sum(len(t) for _, t in batch), len(batch))
    guesses = predict_batch(model, held_out)
    pairs = [pair for guess, (_, target) in zip(guesses, held_out) for pair in zip(guess, target)]
    total = sum(max(len(guess), len(target)) for guess, (_, target) in zip(guesses, held_out))
    return log.finish(character_accuracy=sum(g == t for g, t in pairs) / total)


if __name__ == "__main__":
    main()
