"""Language model with an LSTM cell written as a function of packed gates."""

import data
import dynet_compat as dy


def load(path=None):
    sentences = data.load("text", path)
    words = data.Vocab((w for s in sentences for w in s), min_count=3)
    end = len(words)
    return [[words[w] for w in s] + [end] for s in sentences], len(words) + 1


class LSTMCell:
    def __init__(self, pc, in_dim, out_dim):
        self.dim = out_dim
        self.params = {
            "W": pc.add_parameters((4 * out_dim, in_dim)),
            "U": pc.add_parameters((4 * out_dim, out_dim)),
            "b": pc.add_parameters(4 * out_dim, init=dy.ConstInitializer(0)),
        }

    def __call__(self, x, state):
        h, c = state
        d = self.dim
        gates = self.params["W"] * x + self.params["U"] * h + self.params["b"]
        i = dy.logistic(dy.pick_range(gates, 0, d))
        f = dy.logistic(dy.pick_range(gates, d, 2 * d) + 1.0)
        o = dy.logistic(dy.pick_range(gates, 2 * d, 3 * d))
        g = dy.tanh(dy.pick_range(gates, 3 * d, 4 * d))
        c = dy.cmult(f, c) + dy.cmult(i, g)
        h = dy.cmult(o, dy.tanh(c))
        return h, c


class LanguageModel:
    def __init__(self, vocab_size, dim, layers=2):
        self.pc = dy.ParameterCollection()
        self.E = self.pc.add_lookup_parameters((vocab_size, dim))
        self.cells = [LSTMCell(self.pc, dim, dim) for _ in range(layers)]
        self.W = self.pc.add_parameters((vocab_size, dim))
        self.b = self.pc.add_parameters(vocab_size)

    def initial(self):
        return [(dy.zeros(cell.dim), dy.zeros(cell.dim)) for cell in self.cells]

    def sentence_loss(self, sentence):
        states = self.initial()
        losses = []
        previous = sentence[-1]
        for word in sentence:
            x = self.E[previous]
            for k, cell in enumerate(self.cells):
                states[k] = cell(x, states[k])
                x = states[k][0]
            losses.append(dy.pickneglogsoftmax(self.W * x + self.b, word))
            previous = word
        return dy.esum(losses)


def build(vocab_size, hidden):
    lm = LanguageModel(vocab_size, hidden)
    return lm, dy.SimpleSGDTrainer(lm.pc, learning_rate=0.1)


def train_batch(lm, trainer, batch):
    dy.renew_cg()
    loss = dy.esum([lm.sentence_loss(sentence) for sentence in batch])
    words = sum(len(sentence) for sentence in batch)
    value = loss.value() / words
    loss.backward()
    trainer.update()
    return value
