"""Part-of-speech tagger, a graph for each sentence: two LSTMs with dropout, an MLP for every word."""

import data
import dynet_compat as dy


def load(path=None):
    sentences = data.load("tags", path)
    words = data.Vocab((w for s in sentences for w, _ in s), min_count=2)
    tags = data.Vocab(t for s in sentences for _, t in s)
    return [([words[w] for w, _ in s], [tags[t] for _, t in s]) for s in sentences], (len(words), len(tags))


class BiLSTMTagger:
    def __init__(self, sizes, dim, dropout=0.1):
        self.model = dy.ParameterCollection()
        self.lookup = self.model.add_lookup_parameters((sizes[0], dim))
        self.fwd_lstm = dy.LSTMBuilder(1, dim, dim // 2, self.model)
        self.bwd_lstm = dy.LSTMBuilder(1, dim, dim // 2, self.model)
        self.W1 = self.model.add_parameters((dim, dim))
        self.b1 = self.model.add_parameters(dim)
        self.W2 = self.model.add_parameters((sizes[1], dim))
        self.b2 = self.model.add_parameters(sizes[1])
        self.dropout = dropout

    def features(self, sentence, train):
        if train:
            self.fwd_lstm.set_dropout(self.dropout)
            self.bwd_lstm.set_dropout(self.dropout)
        else:
            self.fwd_lstm.disable_dropout()
            self.bwd_lstm.disable_dropout()
        embeddings = [self.lookup[w] for w in sentence]
        fw = self.fwd_lstm.initial_state()
        bw = self.bwd_lstm.initial_state()
        fw_exps = []
        for e in embeddings:
            fw = fw.add_input(e)
            fw_exps.append(fw.output())
        bw_exps = []
        for e in reversed(embeddings):
            bw = bw.add_input(e)
            bw_exps.append(bw.output())
        bw_exps.reverse()
        return [dy.concatenate([f, b]) for f, b in zip(fw_exps, bw_exps)]

    def score(self, x):
        h = dy.tanh(self.W1 * x + self.b1)
        return self.W2 * h + self.b2

    def loss(self, sentence, tags):
        dy.renew_cg()
        errs = []
        for x, t in zip(self.features(sentence, True), tags):
            err = dy.pickneglogsoftmax(self.score(x), t)
            errs.append(err)
        return dy.esum(errs)


def build(sizes, hidden):
    tagger = BiLSTMTagger(sizes, hidden)
    return tagger, dy.SimpleSGDTrainer(tagger.model, 0.05)


def train_batch(tagger, trainer, batch):
    total = 0.0
    for sentence, tags in batch:
        loss = tagger.loss(sentence, tags)
        total += loss.scalar_value()
        loss.backward()
        trainer.update()
    return total
