"""Shift-reduce parser over gold trees: stack and buffer are Python lists, REDUCE composes two items."""

import data
import dynet_compat as dy

SHIFT, REDUCE = 0, 1


def load(path=None):
    raw = data.load("trees", path)
    words = data.Vocab(word for tree in raw for word in data.leaves(tree))

    def oracle(tree):
        if len(tree) == 2:
            return [SHIFT]
        return oracle(tree[1]) + oracle(tree[2]) + [REDUCE]

    return [([words[w] for w in data.leaves(tree)], oracle(tree)) for tree in raw], len(words)


class Parser:
    def __init__(self, model, n_words, dim):
        self.WORDS = model.add_lookup_parameters((n_words, dim))
        self.p_comp = model.add_parameters((dim, dim * 2))
        self.p_comp_bias = model.add_parameters((dim,))
        self.p_s2h = model.add_parameters((dim, dim * 3))
        self.p_s2h_bias = model.add_parameters((dim,))
        self.p_act = model.add_parameters((2, dim))
        self.p_act_bias = model.add_parameters((2,))
        self.empty = model.add_parameters((dim,))

    def state_of(self, stack, buf):
        s0 = stack[-1] if stack else self.empty
        s1 = stack[-2] if len(stack) > 1 else self.empty
        b0 = buf[-1] if buf else self.empty
        return dy.concatenate([s0, s1, b0])

    def parse(self, tokens, oracle_actions):
        buf = [self.WORDS[t] for t in reversed(tokens)]
        stack = []
        losses = []
        actions = list(oracle_actions)
        while actions:
            h = dy.tanh(self.p_s2h * self.state_of(stack, buf) + self.p_s2h_bias)
            logits = self.p_act * h + self.p_act_bias
            action = actions.pop(0)
            if len(stack) > 1 and buf:
                losses.append(dy.pickneglogsoftmax(logits, action))
            if action == SHIFT:
                stack.append(buf.pop())
            else:
                right = stack.pop()
                left = stack.pop()
                composed = dy.rectify(self.p_comp * dy.concatenate([left, right]) + self.p_comp_bias)
                stack.append(composed)
        return dy.esum(losses) if losses else None


def build(n_words, hidden):
    model = dy.Model()
    return Parser(model, n_words, hidden), dy.AdamTrainer(model)


def train_batch(parser, trainer, batch):
    dy.renew_cg()
    losses = []
    for tokens, actions in batch:
        loss = parser.parse(tokens, actions)
        if loss is not None:
            losses.append(loss)
    batch_loss = dy.esum(losses) / len(batch)
    batch_loss.backward()
    trainer.update()
    return batch_loss.value()
