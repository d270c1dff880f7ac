"""Sentiment over trees: a child-sum TreeLSTM whose gates are kept in dictionaries and whose toolkit is an
attribute."""

import data
import dynet_compat


class Tree:
    def __init__(self, label, word=None, children=()):
        self.label, self.word, self.children = label, word, list(children)

    def isleaf(self):
        return self.word is not None


def load(path=None):
    raw = data.load("trees", path)
    words = data.Vocab(word for tree in raw for word in data.leaves(tree))

    def make(tree):
        if len(tree) == 2:
            return Tree(tree[0], word=words[tree[1]])
        return Tree(tree[0], children=[make(child) for child in tree[1:]])

    return [make(tree) for tree in raw], (len(words), 5)


class TreeLSTM(object):
    def __init__(self, model, dy, n_words, dim):
        self.dy = dy
        self.E = model.add_lookup_parameters((n_words, dim))
        self.leaf = {
            g: (model.add_parameters(dim), model.add_parameters((dim, dim))) for g in ("i", "o", "u")
        }
        self.W = {g: model.add_parameters((dim, dim)) for g in ("i", "o", "u", "f")}
        self.b = {g: model.add_parameters(dim) for g in ("i", "o", "u", "f")}

    def gate(self, model, dim):
        return model.add_parameters(dim), model.add_parameters((dim, dim))

    def expr_for_leaf(self, tree):
        dy = self.dy
        x = self.E[tree.word]
        pre = {name: b + w * x for name, (b, w) in self.leaf.items()}
        i, o, u = dy.logistic(pre["i"]), dy.logistic(pre["o"]), dy.tanh(pre["u"])
        c = dy.cmult(i, u)
        return dy.cmult(o, dy.tanh(c)), c

    def expr_for_tree(self, tree):
        if tree.isleaf():
            return self.expr_for_leaf(tree)
        dy = self.dy
        states = [self.expr_for_tree(child) for child in tree.children]
        total = dy.esum([h for h, _ in states])
        i = dy.logistic(self.b["i"] + self.W["i"] * total)
        o = dy.logistic(self.b["o"] + self.W["o"] * total)
        u = dy.tanh(self.b["u"] + self.W["u"] * total)
        forgotten = [dy.cmult(dy.logistic(self.b["f"] + self.W["f"] * h), c) for h, c in states]
        c = dy.cmult(i, u) + dy.esum(forgotten)
        return dy.cmult(o, dy.tanh(c)), c


class Classifier(object):
    def __init__(self, model, dy, n_words, n_labels, dim):
        self.dy = dy
        self.encoder = TreeLSTM(model, dy, n_words, dim)
        self.out = model.add_parameters((n_labels, dim))

    def loss(self, tree):
        h, _ = self.encoder.expr_for_tree(tree)
        return self.dy.pickneglogsoftmax(self.out * h, tree.label)


def build(sizes, hidden):
    dy = dynet_compat
    pc = dy.ParameterCollection()
    return Classifier(pc, dy, sizes[0], sizes[1], hidden), dy.AdamTrainer(pc)


def train_batch(model, trainer, batch):
    dy = model.dy
    dy.renew_cg()
    losses = []
    for tree in batch:
        losses.append(model.loss(tree))
    loss = dy.esum(losses)
    value = loss.value()
    loss.backward()
    trainer.update()
    return value
