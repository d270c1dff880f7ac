"""StackRNN (models/stack_rnn.py), as a script for DyNet has it."""

import dynet_compat as dy

SHIFT = 0


class StackRNN:
    def __init__(self, pc, size, words=1000):
        self.table_words = pc.add_lookup_parameters((words, size))
        self.W_b, self.U_b, self.b_b = self.cell(pc, size)
        self.W_s, self.U_s, self.b_s = self.cell(pc, size)
        self.R_l, self.R_r, self.b_r = self.cell(pc, size)
        self.H_s, self.H_b, self.b_h = self.cell(pc, size)
        self.A, self.a = pc.add_parameters((2, size)), pc.add_parameters(2)
        self.empty, self.end = pc.add_parameters(size), pc.add_parameters(size)

    def cell(self, pc, size):
        return pc.add_parameters((size, size)), pc.add_parameters((size, size)), pc.add_parameters(size)

    def push(self, x, state):
        return dy.tanh(dy.affine_transform([self.b_s, self.W_s, x, self.U_s, state]))

    def read_ahead(self, words):
        h, buffer = self.end, []
        for word in reversed(words):
            x = self.table_words[word]
            h = dy.tanh(dy.affine_transform([self.b_b, self.W_b, x, self.U_b, h]))
            buffer.append((x, h))
        return buffer

    def losses(self, instance):
        words, actions = instance
        buffer = self.read_ahead(words)
        stack = [(None, self.empty)]  # what lies there, state of the stack with it
        losses = []
        for action in actions:
            ahead = buffer[-1][1] if buffer else self.end
            hidden = dy.rectify(dy.affine_transform([self.b_h, self.H_s, stack[-1][1], self.H_b, ahead]))
            scores = dy.affine_transform([self.a, self.A, hidden])
            scores.value()  # would decide; `action` does
            losses.append(dy.pickneglogsoftmax(scores, action))
            if action == SHIFT:
                x, _ = buffer.pop()
            else:
                right, _ = stack.pop()
                left, _ = stack.pop()
                x = dy.tanh(dy.affine_transform([self.b_r, self.R_l, left, self.R_r, right]))
            stack.append((x, self.push(x, stack[-1][1])))
        return losses
