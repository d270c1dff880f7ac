"""MV-RNN (models/mv_rnn.py), as a script for DyNet has it."""

import dynet_compat as dy


class MVRNN:
    def __init__(self, pc, size, words=1000, classes=5):
        self.table_vectors = pc.add_lookup_parameters((words, size))
        self.table_matrices = pc.add_lookup_parameters((words, size, size))
        self.W_l, self.W_r = pc.add_parameters((size, size)), pc.add_parameters((size, size))
        self.M_l, self.M_r = pc.add_parameters((size, size)), pc.add_parameters((size, size))
        self.b = pc.add_parameters(size)
        self.V, self.c = pc.add_parameters((classes, size)), pc.add_parameters(classes)

    def encode(self, tree):
        if isinstance(tree, int):
            return self.table_vectors[tree], self.table_matrices[tree]
        a, A = self.encode(tree[0])
        b, B = self.encode(tree[1])
        vector = dy.tanh(dy.affine_transform([self.b, self.W_l, B * a, self.W_r, A * b]))
        return vector, self.M_l * A + self.M_r * B

    def losses(self, instance):
        tree, label = instance
        vector, _ = self.encode(tree)
        return [dy.pickneglogsoftmax(dy.affine_transform([self.c, self.V, vector]), label)]
