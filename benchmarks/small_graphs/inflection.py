"""Inflection of words: encoder, attention, decoder; one word per graph, every fifth also decoded greedily."""

import random

import dynet as dy
import numpy as np

LETTERS = "abcdefghijklmnopqrstuvwxyz<>"
NUMBER = {c: i for i, c in enumerate(LETTERS)}
HIDDEN, EMBEDDING, ATTENTION = 100, 50, 100


def words(n):
    random.seed(1)
    stems = ("".join(random.choice(LETTERS[:26]) for _ in range(random.randint(4, 10))) for _ in range(n))
    return [(stem, stem + random.choice(["ed", "ing", "s"])) for stem in stems]


class Inflector:
    def __init__(self):
        m = self.model = dy.ParameterCollection()
        self.letters = m.add_lookup_parameters((len(LETTERS), EMBEDDING))
        self.forwards = dy.LSTMBuilder(1, EMBEDDING, HIDDEN, m)
        self.backwards = dy.LSTMBuilder(1, EMBEDDING, HIDDEN, m)
        self.decoder = dy.LSTMBuilder(1, 2 * HIDDEN + EMBEDDING, HIDDEN, m)
        self.w1 = m.add_parameters((ATTENTION, 2 * HIDDEN))
        self.w2 = m.add_parameters((ATTENTION, 2 * HIDDEN))
        self.v = m.add_parameters((1, ATTENTION))
        self.R, self.bias = m.add_parameters((len(LETTERS), HIDDEN)), m.add_parameters(len(LETTERS))
        self.trainer = dy.AdamTrainer(m)

    def start(self, stem):
        dy.renew_cg()
        xs = [self.letters[NUMBER[c]] for c in "<" + stem + ">"]
        forwards = self.forwards.initial_state().transduce(xs)
        backwards = self.backwards.initial_state().transduce(xs[::-1])[::-1]
        self.columns = dy.concatenate_cols([dy.concatenate([f, b]) for f, b in zip(forwards, backwards)])
        self.keys = self.w1 * self.columns
        first = dy.concatenate([dy.vecInput(2 * HIDDEN), self.letters[NUMBER["<"]]])
        return self.decoder.initial_state().add_input(first)

    def step(self, state, last):
        query = self.w2 * dy.concatenate(list(state.s()))
        weights = dy.softmax(dy.transpose(self.v * dy.tanh(dy.colwise_add(self.keys, query))))
        state = state.add_input(dy.concatenate([self.columns * weights, self.letters[last]]))
        return state, dy.softmax(self.R * state.output() + self.bias)

    def loss(self, stem, form):
        state, last, losses = self.start(stem), NUMBER["<"], []
        for c in form + ">":
            state, p = self.step(state, last)
            last = NUMBER[c]
            losses.append(-dy.log(dy.pick(p, last)))
        return dy.esum(losses)

    def inflect(self, stem):
        state, last, found = self.start(stem), NUMBER["<"], ""
        for _ in range(2 * len(stem)):
            state, p = self.step(state, last)
            last = int(np.argmax(p.npvalue()))
            if LETTERS[last] == ">":
                break
            found += LETTERS[last]
        return found


def run(steps):
    inflector, total = Inflector(), 0.0
    for i, (stem, form) in enumerate(words(steps)):
        loss = inflector.loss(stem, form)
        total += loss.value()
        loss.backward()
        inflector.trainer.update()
        if i % 5 == 0:
            inflector.inflect(stem)
    return total
