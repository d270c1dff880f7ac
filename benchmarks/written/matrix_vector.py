"""Matrix-vector recursion over trees: every word has a vector and a matrix, children change each other."""

import data
import dynet_compat as dy


class Node:
    __slots__ = ("label", "word", "left", "right")

    def __init__(self, label, word, left, right):
        self.label, self.word, self.left, self.right = label, word, left, right


def load(path=None):
    raw = data.load("trees", path)
    words = data.Vocab((word for tree in raw for word in data.leaves(tree)), min_count=3)

    def make(tree):
        if len(tree) == 2:
            return Node(tree[0], words[tree[1]], None, None)
        return Node(tree[0], None, make(tree[1]), make(tree[2]))

    return [make(tree) for tree in raw], len(words)


class MVRNN(object):
    def __init__(self, pc, n_words, dim):
        self.vectors = pc.add_lookup_parameters((n_words, dim))
        self.matrices = pc.add_lookup_parameters((n_words, dim, dim))
        self.W = pc.add_parameters((dim, 2 * dim))
        self.WM = pc.add_parameters((dim, 2 * dim))
        self.Ws = pc.add_parameters((5, dim))

    def compose(self, node, losses):
        if node.left is None:
            a, A = self.vectors[node.word], self.matrices[node.word]
        else:
            a1, A1 = self.compose(node.left, losses)
            a2, A2 = self.compose(node.right, losses)
            a = dy.tanh(self.W * dy.concatenate([A2 * a1, A1 * a2]))
            A = self.WM * dy.concatenate([A1, A2])
        losses.append(dy.pickneglogsoftmax(self.Ws * a, node.label))
        return a, A


def build(n_words, hidden):
    pc = dy.ParameterCollection()
    return MVRNN(pc, n_words, hidden), dy.SimpleSGDTrainer(pc, learning_rate=0.01)


def train_batch(model, trainer, batch):
    dy.renew_cg()
    losses = []
    for tree in batch:
        model.compose(tree, losses)
    loss = dy.average(losses)
    value = loss.value()
    loss.backward()
    trainer.update()
    return value
