"""Deep bag of words for sentences, a graph for each: the sum of the embeddings, then hidden layers."""

import data
import dynet_compat as dy


def load(path=None):
    raw = data.load("classes", path)
    words = data.Vocab((w for _, sentence in raw for w in sentence), min_count=2)
    return [([words[w] for w in sentence], label) for label, sentence in raw], (len(words), 5)


class DeepCBoW:
    def __init__(self, model, sizes, dim, n_layers=2):
        nwords, ntags = sizes
        self.n_layers = n_layers
        self.W_emb = model.add_lookup_parameters((nwords, dim))
        self.W_h = []
        self.b_h = []
        for _ in range(n_layers):
            self.W_h.append(model.add_parameters((dim, dim)))
            self.b_h.append(model.add_parameters((dim)))
        self.W_sm = model.add_parameters((ntags, dim))
        self.b_sm = model.add_parameters((ntags))

    def calc_scores(self, words):
        dy.renew_cg()
        h = dy.esum([dy.lookup(self.W_emb, x) for x in words])
        for W, b in zip(self.W_h, self.b_h):
            h = dy.tanh(W * h + b)
        return self.W_sm * h + self.b_sm


def build(sizes, hidden):
    model = dy.Model()
    return DeepCBoW(model, sizes, hidden), dy.AdamTrainer(model)


def train_batch(model, trainer, batch):
    train_loss = 0.0
    for words, tag in batch:
        my_loss = dy.pickneglogsoftmax(model.calc_scores(words), tag)
        train_loss += my_loss.value()
        my_loss.backward()
        trainer.update()
    return train_loss
