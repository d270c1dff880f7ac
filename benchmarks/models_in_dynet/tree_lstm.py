"""TreeLSTM (models/tree_lstm.py), as a script for DyNet has it."""

import dynet_compat as dy


class TreeLSTM:
    def __init__(self, pc, size, words=1000, classes=5):
        self.table_words = pc.add_lookup_parameters((words, size))
        for gate in "iou":
            for kind in "Wlr":
                setattr(self, f"{kind}_{gate}", pc.add_parameters((size, size)))
        self.ll, self.lr, self.rl, self.rr = [pc.add_parameters((size, size)) for _ in range(4)]
        self.b_i, self.b_o, self.b_u, self.b_f = [pc.add_parameters(size) for _ in range(4)]
        self.V, self.c = pc.add_parameters((classes, size)), pc.add_parameters(classes)

    def leaf(self, word):
        x = self.table_words[word]
        i = dy.logistic(dy.affine_transform([self.b_i, self.W_i, x]))
        u = dy.tanh(dy.affine_transform([self.b_u, self.W_u, x]))
        o = dy.logistic(dy.affine_transform([self.b_o, self.W_o, x]))
        c = dy.cmult(i, u)
        return dy.cmult(o, dy.tanh(c)), c

    def node(self, left, right):
        hl, cl = left
        hr, cr = right
        i = dy.logistic(dy.affine_transform([self.b_i, self.l_i, hl, self.r_i, hr]))
        u = dy.tanh(dy.affine_transform([self.b_u, self.l_u, hl, self.r_u, hr]))
        fl = dy.logistic(dy.affine_transform([self.b_f, self.ll, hl, self.lr, hr]))
        fr = dy.logistic(dy.affine_transform([self.b_f, self.rl, hl, self.rr, hr]))
        o = dy.logistic(dy.affine_transform([self.b_o, self.l_o, hl, self.r_o, hr]))
        c = dy.cmult(i, u) + dy.cmult(fl, cl) + dy.cmult(fr, cr)
        return dy.cmult(o, dy.tanh(c)), c

    def encode(self, tree):
        if isinstance(tree, int):
            return self.leaf(tree)
        return self.node(self.encode(tree[0]), self.encode(tree[1]))

    def losses(self, instance):
        tree, label = instance
        h, _ = self.encode(tree)
        return [dy.pickneglogsoftmax(dy.affine_transform([self.c, self.V, h]), label)]
