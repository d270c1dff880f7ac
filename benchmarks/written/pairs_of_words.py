"""Dependency scorer: a BiLSTM, and a small network that scores every pair of head and modifier."""

import data
import dynet_compat as dy


def load(path=None):
    sentences = [s for s in data.load("tags", path) if len(s) <= 12]
    words = data.Vocab((w for s in sentences for w, _ in s), min_count=2)
    tags = data.Vocab(t for s in sentences for _, t in s)
    instances = []
    for sentence in sentences:
        heads = [max(0, i - 1 - i % 3) for i in range(len(sentence))]  # any heads will do
        instances.append(([(words[w], tags[t]) for w, t in sentence], heads))
    return instances, (len(words), len(tags))


class Token:
    def __init__(self, word, tag):
        self.word, self.tag, self.vec = word, tag, None
        self.headvec = self.modvec = None


class GraphParser(object):
    def __init__(self, sizes, dim):
        self.model = dy.ParameterCollection()
        self.wlookup = self.model.add_lookup_parameters((sizes[0], dim))
        self.plookup = self.model.add_lookup_parameters((sizes[1], dim // 2))
        self.rnns = [dy.VanillaLSTMBuilder(1, dim + dim // 2, dim // 2, self.model) for _ in range(2)]
        self.hidLayerFOH = self.model.add_parameters((dim, dim))
        self.hidLayerFOM = self.model.add_parameters((dim, dim))
        self.hidBias = self.model.add_parameters((dim))
        self.outLayer = self.model.add_parameters((1, dim))
        self.activation = dy.tanh

    def getExpr(self, sentence, i, j):
        if sentence[i].headvec is None:
            sentence[i].headvec = self.hidLayerFOH * sentence[i].vec
        if sentence[j].modvec is None:
            sentence[j].modvec = self.hidLayerFOM * sentence[j].vec
        return self.outLayer * self.activation(sentence[i].headvec + sentence[j].modvec + self.hidBias)

    def loss(self, pairs, heads):
        sentence = [Token(word, tag) for word, tag in pairs]
        ivecs = [dy.concatenate([self.wlookup[t.word], self.plookup[t.tag]]) for t in sentence]
        fwd = self.rnns[0].initial_state().transduce(ivecs)
        bwd = self.rnns[1].initial_state().transduce(ivecs[::-1])[::-1]
        for token, f, b in zip(sentence, fwd, bwd):
            token.vec = dy.concatenate([f, b])
        errs = []
        for m in range(len(sentence)):
            scores = dy.concatenate([self.getExpr(sentence, h, m) for h in range(len(sentence))])
            errs.append(dy.hinge(scores, heads[m]))
        return dy.esum(errs)


def build(sizes, hidden):
    parser = GraphParser(sizes, hidden)
    return parser, dy.AdamTrainer(parser.model)


def train_batch(parser, trainer, batch):
    dy.renew_cg()
    loss = dy.esum([parser.loss(pairs, heads) for pairs, heads in batch])
    value = loss.npvalue()
    loss.backward()
    trainer.update()
    return float(value[0]) if value.shape else float(value)
