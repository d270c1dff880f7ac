"""BiRNN (models/birnn.py), as a script for DyNet has it."""

import dynet_compat as dy


class BiRNN:
    def __init__(self, pc, size, words=1000, classes=16):
        self.table_words = pc.add_lookup_parameters((words, size))
        for way in "fb":
            setattr(self, f"W_{way}", pc.add_parameters((size, size)))
            setattr(self, f"U_{way}", pc.add_parameters((size, size)))
            setattr(self, f"b_{way}", pc.add_parameters(size))
            setattr(self, f"start_{way}", pc.add_parameters(size))
        self.V_f, self.V_b = pc.add_parameters((classes, size)), pc.add_parameters((classes, size))
        self.c = pc.add_parameters(classes)

    def losses(self, instance):
        xs = [self.table_words[word] for word, _ in instance]
        forward, h = [], self.start_f
        for x in xs:
            h = dy.tanh(dy.affine_transform([self.b_f, self.W_f, x, self.U_f, h]))
            forward.append(h)
        backward, h = [], self.start_b
        for x in reversed(xs):
            h = dy.tanh(dy.affine_transform([self.b_b, self.W_b, x, self.U_b, h]))
            backward.append(h)
        losses = []
        for f, b, (_, label) in zip(forward, reversed(backward), instance):
            scores = dy.affine_transform([self.c, self.V_f, f, self.V_b, b])
            losses.append(dy.pickneglogsoftmax(scores, label))
        return losses
