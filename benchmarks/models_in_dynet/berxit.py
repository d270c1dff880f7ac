"""BERxiT (models/berxit.py), as a script for DyNet has it."""

import dynet_compat as dy
from models.berxit import SHAPES


class Berxit:
    def __init__(self, pc, size, words=1000, classes=3):
        self.size = size
        self.heads, inner, _, _ = SHAPES[size]
        self.table_words = pc.add_lookup_parameters((words, size))
        self.Q, self.K, self.M, self.O = [pc.add_parameters((size, size)) for _ in range(4)]
        self.b_q, self.b_k, self.b_m, self.b_o, self.b_2 = [pc.add_parameters(size) for _ in range(5)]
        self.g_1, self.n_1, self.g_2, self.n_2 = [pc.add_parameters(size) for _ in range(4)]
        self.F, self.b_1 = pc.add_parameters((inner, size)), pc.add_parameters(inner)
        self.G = pc.add_parameters((size, inner))
        self.E, self.e = pc.add_parameters((1, size)), pc.add_parameters(1)
        self.V, self.c = pc.add_parameters((classes, size)), pc.add_parameters(classes)

    def norm(self, x, gain, bias):
        (rows, columns), _ = x.dim()
        as_batch = dy.reshape(x, (rows,), batch_size=columns)
        return dy.reshape(dy.layer_norm(as_batch, gain, bias), (rows, columns))

    def layer(self, x):
        width = self.size // self.heads
        q = dy.colwise_add(self.Q * x, self.b_q)
        k = dy.colwise_add(self.K * x, self.b_k)
        v = dy.colwise_add(self.M * x, self.b_m)
        out = []
        for head in range(self.heads):
            first, last = head * width, (head + 1) * width
            keys, queries = dy.pick_range(k, first, last), dy.pick_range(q, first, last)
            weights = dy.softmax(dy.transpose(keys) * queries * width**-0.5)
            out.append(dy.pick_range(v, first, last) * weights)
        attended = dy.colwise_add(self.O * dy.concatenate(out), self.b_o)
        x = self.norm(x + attended, self.g_1, self.n_1)
        inner = dy.rectify(dy.colwise_add(self.F * x, self.b_1))
        return self.norm(x + dy.colwise_add(self.G * inner, self.b_2), self.g_2, self.n_2)

    def losses(self, instance):
        words, left_after, label = instance
        x = dy.concatenate_cols([self.table_words[word] for word in words])
        for _ in range(left_after):
            x = self.layer(x)
            leaves = dy.logistic(dy.affine_transform([self.e, self.E, dy.pick(x, 0, 1)]))
            leaves.value()  # would decide; `left_after` does
        return [dy.pickneglogsoftmax(dy.affine_transform([self.c, self.V, dy.pick(x, 0, 1)]), label)]
