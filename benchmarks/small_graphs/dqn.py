"""Deep Q-learning on a made-up environment, minibatches of 32 transitions as one batched input."""

import random

import dynet as dy
import numpy as np

ACTIONS, STATE, HIDDEN = 4, 8, 128


class QNetwork:
    def __init__(self, model):
        sizes = [(HIDDEN, STATE), (HIDDEN, HIDDEN), (ACTIONS, HIDDEN)]
        self.layers = [(model.add_parameters(s[0]), model.add_parameters(s)) for s in sizes]

    def __call__(self, states):
        h = dy.inputTensor(states, batched=states.ndim > 1)
        for b, W in self.layers[:-1]:
            h = dy.rectify(dy.affine_transform([b, W, h]))
        b, W = self.layers[-1]
        return dy.affine_transform([b, W, h])

    def copy_from(self, other):
        for mine, theirs in zip(self.layers, other.layers):
            for p, q in zip(mine, theirs):
                p.set_value(q.as_array())


def learn(q, target, trainer, transitions):
    states, actions, rewards, after, done = zip(*transitions)
    dy.renew_cg()
    best = target(np.array(after).T).npvalue().max(axis=0)
    wanted = np.array(rewards) + 0.99 * best * (1 - np.array(done))
    dy.renew_cg()
    found = dy.pick_batch(q(np.array(states).T), list(actions))
    error = dy.squared_distance(found, dy.inputTensor(wanted.reshape(1, -1), batched=True))
    loss = dy.mean_batches(error)
    value = loss.value()
    loss.backward()
    trainer.update()
    return value


def run(steps):
    rng = np.random.RandomState(0)
    random.seed(0)
    model, copy = dy.ParameterCollection(), dy.ParameterCollection()
    q, target = QNetwork(model), QNetwork(copy)
    trainer = dy.AdamTrainer(model)
    memory, total = [], 0.0
    state = rng.randn(STATE)
    for step in range(steps + 64):
        dy.renew_cg()
        action = int(np.argmax(q(state).npvalue())) if random.random() > 0.1 else random.randrange(ACTIONS)
        after = 0.9 * state + 0.1 * rng.randn(STATE)
        after[action] += 0.1
        done = random.random() < 0.02
        memory.append((state, action, -abs(after).sum(), after, done))
        state = rng.randn(STATE) if done else after
        if len(memory) >= 64:
            total += learn(q, target, trainer, random.sample(memory[-1000:], 32))
        if step % 100 == 0:
            target.copy_from(q)
    return total
