"""Q-learning where each transition of a minibatch is an expression of its own."""

import random

import dynet as dy

ACTIONS, STATE, HIDDEN = 4, 8, 64


def run(steps):
    random.seed(0)
    model = dy.ParameterCollection()
    W1, b1 = model.add_parameters((HIDDEN, STATE)), model.add_parameters(HIDDEN)
    W2, b2 = model.add_parameters((ACTIONS, HIDDEN)), model.add_parameters(ACTIONS)
    trainer = dy.RMSPropTrainer(model, 1e-3)

    def q(state):
        return W2 * dy.tanh(W1 * dy.inputVector(state) + b1) + b2

    memory, total = [], 0.0
    state = [random.gauss(0, 1) for _ in range(STATE)]
    for _ in range(steps + 64):
        dy.renew_cg()
        values = q(state).value()
        action = values.index(max(values)) if random.random() > 0.1 else random.randrange(ACTIONS)
        after = [0.9 * x + 0.1 * random.gauss(0, 1) for x in state]
        done = random.random() < 0.02
        memory.append((state, action, -sum(map(abs, after)), after, done))
        state = [random.gauss(0, 1) for _ in range(STATE)] if done else after
        if len(memory) < 64:
            continue
        dy.renew_cg()
        losses = []
        for before, chosen, reward, then, over in random.sample(memory, 32):
            wanted = reward if over else reward + 0.99 * max(q(then).value())
            losses.append(dy.squared_distance(dy.pick(q(before), chosen), dy.scalarInput(wanted)))
        loss = dy.average(losses)
        total += loss.value()
        loss.backward()
        trainer.update()
    return total
