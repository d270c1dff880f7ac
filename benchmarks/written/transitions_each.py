"""Shift-reduce parser, a graph for each sentence: stack LSTMs over the stack and the buffer, gold actions."""

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


class TransitionParser:
    def __init__(self, model, n_words, dim):
        self.WORDS_LOOKUP = model.add_lookup_parameters((n_words, dim))
        self.W_comp = model.add_parameters((dim, dim * 2))
        self.b_comp = model.add_parameters((dim,))
        self.W_s2h = model.add_parameters((dim, dim * 2))
        self.b_s2h = model.add_parameters((dim,))
        self.W_act = model.add_parameters((2, dim))
        self.b_act = model.add_parameters((2,))
        self.buffRNN = dy.VanillaLSTMBuilder(1, dim, dim, model)
        self.stackRNN = dy.VanillaLSTMBuilder(1, dim, dim, model)
        self.pempty_buffer_emb = model.add_parameters((dim,))

    def parse(self, tokens, oracle_actions):
        oracle_actions = list(oracle_actions)
        oracle_actions.reverse()
        stack_top = self.stackRNN.initial_state()
        toks = list(tokens)
        toks.reverse()
        stack = []
        cur = self.buffRNN.initial_state()
        buffer = []
        for tok in toks:
            tok_embedding = self.WORDS_LOOKUP[tok]
            cur = cur.add_input(tok_embedding)
            buffer.append((cur.output(), tok_embedding))
        losses = []
        while not (len(stack) == 1 and len(buffer) == 0):
            valid_actions = []
            if len(buffer) > 0:
                valid_actions += [SHIFT]
            if len(stack) >= 2:
                valid_actions += [REDUCE]
            action = valid_actions[0]
            if len(valid_actions) > 1:
                buffer_embedding = buffer[-1][0] if buffer else self.pempty_buffer_emb
                stack_embedding = stack[-1][0].output()
                parser_state = dy.concatenate([buffer_embedding, stack_embedding])
                h = dy.tanh(self.W_s2h * parser_state + self.b_s2h)
                logits = self.W_act * h + self.b_act
                log_probs = dy.log_softmax(logits)
                action = oracle_actions.pop()
                losses.append(dy.pick(log_probs, action))
            else:
                oracle_actions.pop()
            if action == SHIFT:
                _, tok_embedding = buffer.pop()
                stack_state, _ = stack[-1] if stack else (stack_top, None)
                stack_state = stack_state.add_input(tok_embedding)
                stack.append((stack_state, tok_embedding))
            else:
                right = stack.pop()[1]
                left = stack.pop()[1]
                composed = dy.rectify(self.W_comp * dy.concatenate([left, right]) + self.b_comp)
                stack_state, _ = stack[-1] if stack else (stack_top, None)
                stack_state = stack_state.add_input(composed)
                stack.append((stack_state, composed))
        return -dy.esum(losses) if losses else None


def build(n_words, hidden):
    model = dy.Model()
    return TransitionParser(model, n_words, hidden), dy.AdamTrainer(model)


def train_batch(parser, trainer, batch):
    total = 0.0
    for tokens, actions in batch:
        dy.renew_cg()
        loss = parser.parse(tokens, actions)
        if loss is not None:
            total += loss.scalar_value()
            loss.backward()
            trainer.update()
    return total
