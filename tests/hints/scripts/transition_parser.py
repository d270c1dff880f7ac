"""Stack LSTM transition parser that pops states, with losses collected in a list and decoding by value()."""

import random

import dynet as dy


class TransitionParser:
    SHIFT, LEFT, RIGHT = 0, 1, 2

    def __init__(self, model, vocab, dim=6, hidden=7):
        self.stackRNN = dy.GRUBuilder(1, dim, hidden, model)
        self.E = model.add_lookup_parameters((vocab, dim))
        self.pW_comp = model.add_parameters((dim, 2 * dim))
        self.pb_comp = model.add_parameters(dim)
        self.pW_act = model.add_parameters((3, hidden))
        self.pb_act = model.add_parameters(3)
        self.empty = model.add_parameters(dim)

    def compose(self, head, modifier):
        return dy.rectify(self.pW_comp * dy.concatenate([head, modifier]) + self.pb_comp)  #: region

    def parse(self, tokens, oracle=None):
        buffer = [self.E[t] for t in reversed(tokens)]  #: map
        stack = []
        top = self.stackRNN.initial_state().add_input(self.empty)
        losses = []
        actions = list(oracle) if oracle is not None else None
        while len(stack) > 1 or buffer:  #: recurrence buffer stack top
            valid = []
            if buffer:
                valid.append(self.SHIFT)
            if len(stack) > 1:
                valid += [self.LEFT, self.RIGHT]
            action = valid[0]
            if len(valid) > 1:
                scores = dy.log_softmax(self.pW_act * top.output() + self.pb_act, valid)  #: region
                if actions is None:
                    values = scores.vec_value()  #: read
                    action = max(valid, key=lambda a: values[a])
                else:
                    action = actions.pop(0) if actions else valid[0]
                    action = action if action in valid else valid[0]
                    losses.append(dy.pick(scores, action))
            if action == self.SHIFT:
                token = buffer.pop()
                stack.append((top, token))
                top = top.add_input(token)
            else:
                right_state, right = stack.pop()
                left_state, left = stack.pop()
                head, modifier = (left, right) if action == self.LEFT else (right, left)
                both = self.compose(head, modifier)  #: region
                top = left_state.add_input(both)
                stack.append((left_state, both))
        return -dy.esum(losses) if losses else None  #: region


def main():
    random.seed(5)
    model = dy.ParameterCollection()
    trainer = dy.AdamTrainer(model)
    parser = TransitionParser(model, 10)
    data = [[random.randrange(10) for _ in range(5)] for _ in range(6)]
    for tokens in data:  #: graph
        dy.renew_cg()
        loss = parser.parse(tokens, [0, 0, 1, 0, 2, 0, 0, 1, 1])
        if loss is not None:
            print(loss.scalar_value())  #: read
            loss.backward()
            trainer.update()
    dy.renew_cg()
    for tokens in data:  #: map rewrite
        parser.parse(tokens)


if __name__ == "__main__":
    main()
