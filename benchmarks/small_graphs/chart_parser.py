"""Graph-based dependency parser: scores of all pairs of words are read one by one, updates are rare."""

import random

import dynet as dy
import numpy as np

HIDDEN, EMBEDDING, MLP, WORDS, LABELS = 125, 100, 100, 500, 12


def sentences(n):
    random.seed(1)
    lengths = [random.randint(8, 25) for _ in range(n)]
    return [[(random.randrange(WORDS), random.randrange(i + 1)) for i in range(length)] for length in lengths]


class Parser:
    def __init__(self):
        m = self.model = dy.ParameterCollection()
        self.trainer = dy.AdamTrainer(m)
        self.words = m.add_lookup_parameters((WORDS, EMBEDDING))
        self.forwards = dy.VanillaLSTMBuilder(1, EMBEDDING, HIDDEN, m)
        self.backwards = dy.VanillaLSTMBuilder(1, EMBEDDING, HIDDEN, m)
        self.head, self.modifier = m.add_parameters((MLP, 2 * HIDDEN)), m.add_parameters((MLP, 2 * HIDDEN))
        self.bias, self.out = m.add_parameters(MLP), m.add_parameters((1, MLP))
        self.label_head = m.add_parameters((MLP, 2 * HIDDEN))
        self.label_modifier = m.add_parameters((MLP, 2 * HIDDEN))
        self.label_bias, self.label_out = m.add_parameters(MLP), m.add_parameters((LABELS, MLP))

    def encode(self, sentence):
        xs = [self.words[word] for word, _ in sentence]
        forwards = self.forwards.initial_state().transduce(xs)
        backwards = self.backwards.initial_state().transduce(xs[::-1])[::-1]
        return [dy.concatenate([f, b]) for f, b in zip(forwards, backwards)]

    def chart(self, vectors):
        heads = [self.head * v for v in vectors]
        modifiers = [self.modifier * v for v in vectors]
        return [[self.out * dy.tanh(h + m + self.bias) for m in modifiers] for h in heads]

    def labels(self, head, modifier):
        hidden = self.label_head * head + self.label_modifier * modifier + self.label_bias
        return self.label_out * dy.tanh(hidden)


def errors_of(parser, sentence):
    vectors = parser.encode(sentence)
    chart = parser.chart(vectors)
    scores = np.array([[score.scalar_value() for score in row] for row in chart])
    errors = []
    for j in range(1, len(sentence)):
        gold = sentence[j][1]
        scores[gold, j] -= 1.0
        head = int(scores[:, j].argmax())
        if head != gold:
            errors.append(chart[head][j] - chart[gold][j])
        labels, right = parser.labels(vectors[gold], vectors[j]), j % LABELS
        values = labels.value()
        wrong = max((x, i) for i, x in enumerate(values) if i != right)[1]
        if values[right] < values[wrong] + 1.0:
            errors.append(labels[wrong] - labels[right])
    return errors


def run(steps):
    parser, total, errors = Parser(), 0.0, []
    dy.renew_cg()
    for sentence in sentences(steps):
        errors += errors_of(parser, sentence)
        if len(errors) > 50:
            loss = dy.esum(errors) / len(errors)
            total += loss.scalar_value()
            loss.backward()
            parser.trainer.update()
            dy.renew_cg()
            errors = []
    return total
