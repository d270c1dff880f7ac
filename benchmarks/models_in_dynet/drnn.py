"""DRNN (models/drnn.py), as a script for DyNet has it."""

import dynet_compat as dy


class DRNN:
    def __init__(self, pc, size, classes=32):
        self.root, self.first = pc.add_parameters(size), pc.add_parameters(size)
        self.W_a, self.b_a = pc.add_parameters((size, size)), pc.add_parameters(size)
        self.W_f, self.b_f = pc.add_parameters((size, size)), pc.add_parameters(size)
        self.U_a, self.U_f = pc.add_parameters((size, size)), pc.add_parameters((size, size))
        self.b_h = pc.add_parameters(size)
        self.D, self.d = pc.add_parameters((2, size)), pc.add_parameters(2)
        self.V, self.c = pc.add_parameters((classes, size)), pc.add_parameters(classes)

    def cell(self, ancestor, sibling):
        a = dy.tanh(dy.affine_transform([self.b_a, self.W_a, ancestor]))
        f = dy.tanh(dy.affine_transform([self.b_f, self.W_f, sibling]))
        h = dy.tanh(dy.affine_transform([self.b_h, self.U_a, a, self.U_f, f]))
        return h, dy.logistic(dy.affine_transform([self.d, self.D, h]))

    def grow(self, tree, ancestor, sibling, losses):
        label, children = tree
        h, scores = self.cell(ancestor, sibling)
        scores.value()  # would decide; `children` does
        losses.append(dy.pickneglogsoftmax(dy.affine_transform([self.c, self.V, h]), label))
        before = self.first
        for child in children:
            before = self.grow(child, h, before, losses)
        return h

    def losses(self, tree):
        losses = []
        self.grow(tree, self.root, self.first, losses)
        return losses
