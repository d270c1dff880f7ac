"""Sentence classifier: a GRU written out, read in both directions, with dropout and a hidden layer."""

import data
import dynet_compat as dy


def load(path=None):
    raw = data.load("classes", path)
    words = data.Vocab((w for _, sentence in raw for w in sentence), min_count=2)
    return [(label, [words[w] for w in sentence]) for label, sentence in raw], (len(words), 5)


class GRUCell(object):
    def __init__(self, pc, n_in, n_out):
        self.n_out = n_out
        self.Wz, self.Uz, self.bz = self.gate(pc, n_in, n_out)
        self.Wr, self.Ur, self.br = self.gate(pc, n_in, n_out)
        self.Wh, self.Uh, self.bh = self.gate(pc, n_in, n_out)

    def gate(self, pc, n_in, n_out):
        return pc.add_parameters((n_out, n_in)), pc.add_parameters((n_out, n_out)), pc.add_parameters(n_out)

    def start(self):
        return dy.zeros(self.n_out)

    def step(self, x, h):
        z = dy.logistic(self.Wz * x + self.Uz * h + self.bz)
        r = dy.logistic(self.Wr * x + self.Ur * h + self.br)
        new = dy.tanh(self.Wh * x + self.Uh * dy.cmult(r, h) + self.bh)
        return dy.cmult(1 - z, h) + dy.cmult(z, new)


class Model(object):
    def __init__(self, pc, sizes, dim, dropout=0.2):
        self.embedding = pc.add_lookup_parameters((sizes[0], dim))
        self.cells = [GRUCell(pc, dim, dim), GRUCell(pc, dim, dim)]
        self.W1, self.b1 = pc.add_parameters((dim, 2 * dim)), pc.add_parameters(dim)
        self.W2, self.b2 = pc.add_parameters((sizes[1], dim)), pc.add_parameters(sizes[1])
        self.dropout, self.training = dropout, True

    def read(self, cell, xs):
        h = cell.start()
        for x in xs:
            h = cell.step(x, h)
        return h

    def scores(self, sentence):
        xs = [dy.lookup(self.embedding, w) for w in sentence]
        both = dy.concatenate([self.read(self.cells[0], xs), self.read(self.cells[1], xs[::-1])])
        if self.training and self.dropout > 0:
            both = dy.dropout(both, self.dropout)
        hidden = dy.rectify(dy.affine_transform([self.b1, self.W1, both]))
        return dy.affine_transform([self.b2, self.W2, hidden])


def build(sizes, hidden):
    pc = dy.ParameterCollection()
    return Model(pc, sizes, hidden), dy.AdamTrainer(pc)


def train_batch(model, trainer, batch):
    dy.renew_cg()
    losses = []
    for label, sentence in batch:
        losses.append(dy.pickneglogsoftmax(model.scores(sentence), label))
    total = dy.esum(losses)
    total.backward()
    trainer.update()
    return total.value()
