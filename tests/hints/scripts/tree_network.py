"""Binary tree LSTM as a class with recursion, reading its values after the loop over the batch."""

import dynet as dy


class Node:
    def __init__(self, label, children=()):
        self.label = label
        self.children = children

    def is_leaf(self):
        return not self.children


class TreeLSTMBuilder:
    def __init__(self, model, vocab, dim):
        self.WS = [model.add_parameters((dim, dim)) for _ in "iou"]
        self.UL = [model.add_parameters((dim, dim)) for _ in "ioulr"]
        self.UR = [model.add_parameters((dim, dim)) for _ in "ioulr"]
        self.BS = [model.add_parameters(dim) for _ in "ioulr"]
        self.E = model.add_lookup_parameters((vocab, dim))

    def expr_for_tree(self, tree):
        if tree.is_leaf():
            return self.leaf(tree.label)
        left = self.expr_for_tree(tree.children[0])
        right = self.expr_for_tree(tree.children[1])
        return self.combine(left, right)

    def leaf(self, word):
        x = self.E[word]  #: region
        i = dy.logistic(self.WS[0] * x + self.BS[0])
        o = dy.logistic(self.WS[1] * x + self.BS[1])
        u = dy.tanh(self.WS[2] * x + self.BS[2])
        c = dy.cmult(i, u)
        h = dy.cmult(o, dy.tanh(c))
        return h, c

    def combine(self, left, right):
        e1, c1 = left  #: region
        e2, c2 = right
        i = dy.logistic(self.UL[0] * e1 + self.UR[0] * e2 + self.BS[0])
        o = dy.logistic(self.UL[1] * e1 + self.UR[1] * e2 + self.BS[1])
        u = dy.tanh(self.UL[2] * e1 + self.UR[2] * e2 + self.BS[2])
        f1 = dy.logistic(self.UL[3] * e1 + self.UR[3] * e2 + self.BS[3])
        f2 = dy.logistic(self.UL[4] * e1 + self.UR[4] * e2 + self.BS[4])
        c = dy.cmult(i, u) + dy.cmult(f1, c1) + dy.cmult(f2, c2)
        h = dy.cmult(o, dy.tanh(c))
        return h, c


def trees(n):
    for k in range(n):
        left = Node(0, (Node(k % 7), Node((k + 3) % 7)))
        yield Node(0, (left, Node(k % 5))), k % 3


def main():
    model = dy.ParameterCollection()
    trainer = dy.AdamTrainer(model)
    builder = TreeLSTMBuilder(model, 7, 6)
    W = model.add_parameters((3, 6))
    batch = list(trees(8))
    for _ in range(3):  #: graph
        dy.renew_cg()
        losses = []
        for tree, gold in batch:  #: map instance
            h, _c = builder.expr_for_tree(tree)
            losses.append(dy.pickneglogsoftmax(W * h, gold))  #: region
        loss = dy.esum(losses) / len(losses)
        print(loss.value())  #: read
        loss.backward()
        trainer.update()


main()
