"""Binary TreeLSTM built from primitive operations, with a label to predict at every node of the tree."""

from __future__ import annotations

import sys

import common
import data
import numpy as np

if "--reference" in sys.argv:
    import dynet as dy
else:
    import dynet_compat as dy

KIND = "trees"


def load(path: str | None = None, limit: int | None = None) -> tuple[list, tuple]:
    """Trees of (label, word number) and (label, left, right); the vocabulary and the number of labels."""
    trees = data.load(KIND, path, limit)
    words = data.Vocab((word for tree in trees for word in data.leaves(tree)), min_count=2)
    labels = 1 + max(label for tree in trees for label in all_labels(tree))

    def number(tree: tuple) -> tuple:
        if len(tree) == 2:
            return tree[0], words[tree[1]]
        return tree[0], number(tree[1]), number(tree[2])

    return [number(tree) for tree in trees], (words, labels)


def all_labels(tree: tuple) -> list[int]:
    """Labels of the nodes, in the order in which the network visits them: children first."""
    if len(tree) == 2:
        return [tree[0]]
    return all_labels(tree[1]) + all_labels(tree[2]) + [tree[0]]


class TreeLSTM:
    def __init__(self, vocab: tuple, hidden: int) -> None:
        words, labels = vocab
        self.pc = pc = dy.ParameterCollection()
        self.embed = pc.add_lookup_parameters((len(words), hidden))
        # Leaves have input, output and update gates; inner nodes also forget each child on its own.
        self.leaf = {gate: pc.add_parameters((hidden, hidden)) for gate in "iou"}
        self.left = {gate: pc.add_parameters((hidden, hidden)) for gate in "ioulr"}
        self.right = {gate: pc.add_parameters((hidden, hidden)) for gate in "ioulr"}
        self.bias = {gate: pc.add_parameters(hidden, init=0) for gate in "iouf"}
        self.W = pc.add_parameters((labels, hidden))
        self.b = pc.add_parameters(labels, init=0)

    def leaf_state(self, word: int) -> tuple:
        x = self.embed[word]
        i = dy.logistic(dy.affine_transform([self.bias["i"], self.leaf["i"], x]))
        o = dy.logistic(dy.affine_transform([self.bias["o"], self.leaf["o"], x]))
        u = dy.tanh(dy.affine_transform([self.bias["u"], self.leaf["u"], x]))
        c = dy.cmult(i, u)
        return dy.cmult(o, dy.tanh(c)), c

    def gate(self, gate: str, bias: str, left: dy.Expression, right: dy.Expression) -> dy.Expression:
        return dy.affine_transform([self.bias[bias], self.left[gate], left, self.right[gate], right])

    def inner_state(self, left: tuple, right: tuple) -> tuple:
        (h1, c1), (h2, c2) = left, right
        i = dy.logistic(self.gate("i", "i", h1, h2))
        o = dy.logistic(self.gate("o", "o", h1, h2))
        u = dy.tanh(self.gate("u", "u", h1, h2))
        keep_left = dy.logistic(self.gate("l", "f", h1, h2) + 1.0)
        keep_right = dy.logistic(self.gate("r", "f", h1, h2) + 1.0)
        c = dy.cmult(i, u) + dy.cmult(keep_left, c1) + dy.cmult(keep_right, c2)
        return dy.cmult(o, dy.tanh(c)), c

    def encode(self, tree: tuple, scores: list) -> tuple:
        """State (h, c) of the node; appends the label scores of all its nodes, children first."""
        if len(tree) == 2:
            state = self.leaf_state(tree[1])
        else:
            state = self.inner_state(self.encode(tree[1], scores), self.encode(tree[2], scores))
        scores.append(dy.affine_transform([self.b, self.W, state[0]]))
        return state

    def loss(self, tree: tuple) -> dy.Expression:
        scores: list[dy.Expression] = []
        self.encode(tree, scores)
        return dy.esum([dy.pickneglogsoftmax(s, label) for s, label in zip(scores, all_labels(tree))])


def build(vocab: tuple, hidden: int) -> tuple:
    model = TreeLSTM(vocab, hidden)
    return model, dy.AdagradTrainer(model.pc, 0.05)


def train_batch(model: TreeLSTM, trainer: dy.Trainer, batch: list) -> float:
    dy.renew_cg()
    loss = dy.esum([model.loss(tree) for tree in batch])
    value = loss.value()
    loss.backward()
    trainer.update()
    return value


def predict_batch(model: TreeLSTM, batch: list) -> list[int]:
    """Label of each tree's root."""
    dy.renew_cg()
    roots = []
    for tree in batch:
        scores: list[dy.Expression] = []
        model.encode(tree, scores)
        roots.append(scores[-1])
    dy.forward(roots)
    return [int(np.argmax(root.npvalue())) for root in roots]


def main(argv: list[str] | None = None) -> dict:
    args = common.options(__doc__, argv, hidden=64, batch=25)
    trees, vocab = load(args.data, args.limit)
    training, held_out = common.split(trees)
    model, trainer = build(vocab, args.hidden)
    log = common.Log(args)
    for batch in common.batches(training, args):
        log.step(train_batch(model, trainer, batch), sum(len(all_labels(t)) for t in batch), len(batch))
    guesses = predict_batch(model, held_out)
    right = sum(guess == tree[0] for guess, tree in zip(guesses, held_out))
    return log.finish(root_accuracy=right / len(held_out))


if __name__ == "__main__":
    main()
