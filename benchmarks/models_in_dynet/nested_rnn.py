"""NestedRNN (models/nested_rnn.py), as a script for DyNet has it."""

import dynet_compat as dy


class NestedRNN:
    def __init__(self, pc, size, words=1000, classes=16):
        self.table_words = pc.add_lookup_parameters((words, size))
        for gate in "zrni":
            setattr(self, f"W_{gate}", pc.add_parameters((size, size)))
            setattr(self, f"U_{gate}", pc.add_parameters((size, size)))
            setattr(self, f"b_{gate}", pc.add_parameters(size))
        self.V, self.c = pc.add_parameters((classes, size)), pc.add_parameters(classes)
        self.start = pc.add_parameters(size)

    def inner(self, words, x):
        for word in words:
            x = dy.tanh(dy.affine_transform([self.b_i, self.W_i, self.table_words[word], self.U_i, x]))
        return x

    def outer(self, x, h):
        z = dy.logistic(dy.affine_transform([self.b_z, self.W_z, x, self.U_z, h]))
        r = dy.logistic(dy.affine_transform([self.b_r, self.W_r, x, self.U_r, h]))
        n = dy.tanh(dy.affine_transform([self.b_n, self.W_n, x, self.U_n, dy.cmult(r, h)]))
        return n + dy.cmult(z, h - n)

    def losses(self, instance):
        sentences, label = instance
        h = self.start
        for words in sentences:
            h = self.outer(self.inner(words, h), h)
        return [dy.pickneglogsoftmax(dy.affine_transform([self.c, self.V, h]), label)]
