"""Part-of-speech tagger: two LSTMs over word embeddings, a hidden layer, a softmax for every word."""

import random

import data
import dynet_compat as dy

DROP_WORD = 0.1


def load(path=None):
    sentences = data.load("tags", path)
    words = data.Vocab((w for s in sentences for w, _ in s), min_count=2)
    tags = data.Vocab(t for s in sentences for _, t in s)
    return [([words[w] for w, _ in s], [tags[t] for _, t in s]) for s in sentences], (len(words), len(tags))


class Tagger:
    def __init__(self, sizes, dim):
        self.model = dy.ParameterCollection()
        self.trainer = dy.SimpleSGDTrainer(self.model, 0.05)
        self.lookup = self.model.add_lookup_parameters((sizes[0], dim))
        self.fwd = dy.VanillaLSTMBuilder(1, dim, dim, self.model)
        self.bwd = dy.VanillaLSTMBuilder(1, dim, dim, self.model)
        self.pH = self.model.add_parameters((dim, 2 * dim))
        self.pO = self.model.add_parameters((sizes[1], dim))
        self.rng = random.Random(7)

    def word_rep(self, w, train=True):
        if train and self.rng.random() < DROP_WORD:
            w = 0
        return self.lookup[w]

    def build_tagging_graph(self, words):
        f_init, b_init = self.fwd.initial_state(), self.bwd.initial_state()
        wembs = [self.word_rep(w) for w in words]
        fws = f_init.transduce(wembs)
        bws = b_init.transduce(reversed(wembs))
        bi = [dy.concatenate([f, b]) for f, b in zip(fws, reversed(bws))]
        H = dy.parameter(self.pH)
        O = dy.parameter(self.pO)
        outs = [O * (dy.tanh(H * x)) for x in bi]
        return outs

    def sent_loss(self, words, tags):
        vecs = self.build_tagging_graph(words)
        errs = []
        for v, t in zip(vecs, tags):
            err = dy.pickneglogsoftmax(v, t)
            errs.append(err)
        return dy.esum(errs)


def build(sizes, hidden):
    tagger = Tagger(sizes, hidden)
    return tagger, tagger.trainer


def train_batch(tagger, trainer, batch):
    dy.renew_cg()
    losses = [tagger.sent_loss(words, tags) for words, tags in batch]
    loss = dy.average(losses)
    value = loss.scalar_value()
    loss.backward()
    trainer.update()
    return value
