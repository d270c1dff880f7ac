"""Graph-based dependency parser: BiLSTM states, a score for every pair of words, an update per batch."""

import random

import dynet as dy


class Parser:
    def __init__(self, words, tags, dim=8, hidden=10):
        self.model = dy.ParameterCollection()
        self.trainer = dy.AdamTrainer(self.model)
        self.wlookup = self.model.add_lookup_parameters((words, dim))
        self.plookup = self.model.add_lookup_parameters((tags, dim))
        self.builders = [
            dy.VanillaLSTMBuilder(1, 2 * dim, hidden, self.model),
            dy.VanillaLSTMBuilder(1, 2 * dim, hidden, self.model),
        ]
        self.hid_head = self.model.add_parameters((hidden, 2 * hidden))
        self.hid_mod = self.model.add_parameters((hidden, 2 * hidden))
        self.bias = self.model.add_parameters(hidden)
        self.out = self.model.add_parameters((1, hidden))

    def expr(self, head, mod):
        a = self.hid_head * head  #: region
        b = self.hid_mod * mod
        return self.out * dy.tanh(a + b + self.bias)

    def evaluate(self, states, n):
        table = [  #: map
            [self.expr(states[i], states[j]) for i in range(n)]  #: map
            for j in range(n)
        ]
        return table, [[e.scalar_value() for e in row] for row in table]  #: read

    def states(self, sentence):
        vectors = []
        for word, tag, _ in sentence:  #: map  #: region
            vectors.append(dy.concatenate([self.wlookup[word], self.plookup[tag]]))
        forward = self.builders[0].initial_state()
        backward = self.builders[1].initial_state()
        fw, bw = [], []
        for vector in vectors:  #: recurrence forward
            forward = forward.add_input(vector)
            fw.append(forward.output())
        for vector in reversed(vectors):  #: recurrence backward
            backward = backward.add_input(vector)
            bw.append(backward.output())
        return [dy.concatenate([f, b]) for f, b in zip(fw, reversed(bw))]  #: map  #: region

    def train(self, sentences):
        dy.renew_cg()
        errs, total = [], 0.0
        for i, sentence in enumerate(sentences):  #: graph instance
            states = self.states(sentence)
            exprs, scores = self.evaluate(states, len(sentence))
            for mod, (_, _, gold) in enumerate(sentence):  #: map
                best = max(range(len(sentence)), key=lambda h: scores[mod][h])
                if best != gold:
                    errs.append(exprs[mod][best] - exprs[mod][gold] + 1.0)  #: region
            if i % 4 == 3 and errs:
                loss = dy.esum(errs)
                total += loss.scalar_value()  #: read
                loss.backward()
                self.trainer.update()
                dy.renew_cg()
                errs = []
        return total


def main():
    random.seed(1)
    sentences = []
    for _ in range(8):
        n = random.randint(3, 6)
        sentences.append([(random.randrange(20), random.randrange(5), random.randrange(n)) for _ in range(n)])
    parser = Parser(20, 5)
    for epoch in range(2):  #: graph
        print(epoch, parser.train(sentences))


if __name__ == "__main__":
    main()
