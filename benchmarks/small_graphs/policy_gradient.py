"""REINFORCE on a made-up environment: every step reads its policy, and its loss is weighed by a number."""

import random

import dynet as dy
import numpy as np

ACTIONS, STATE, HIDDEN, STEPS = 4, 16, 128, 30


class Policy:
    def __init__(self, model):
        self.W1, self.b1 = model.add_parameters((HIDDEN, STATE)), model.add_parameters(HIDDEN)
        self.W2, self.b2 = model.add_parameters((ACTIONS, HIDDEN)), model.add_parameters(ACTIONS)

    def __call__(self, state):
        return dy.softmax(self.W2 * dy.tanh(self.W1 * dy.inputTensor(state) + self.b1) + self.b2)


def episode(policy, rng, baseline):
    state, losses, sum_of_rewards = rng.randn(STATE), [], 0.0
    for _ in range(STEPS):
        p = policy(state)
        action = min(int((p.npvalue().cumsum() > random.random()).argmax()), ACTIONS - 1)
        state = 0.9 * state + 0.1 * rng.randn(STATE)
        state[action] += 0.1
        reward = -abs(state).sum()
        losses.append(-dy.log(dy.pick(p, action)) * (reward - baseline))
        sum_of_rewards += reward
    return losses, sum_of_rewards / STEPS


def run(steps):
    random.seed(0)
    rng = np.random.RandomState(0)
    model = dy.ParameterCollection()
    policy, trainer, baseline, total = Policy(model), dy.AdamTrainer(model), 0.0, 0.0
    for _ in range(steps):
        dy.renew_cg()
        losses, reward = episode(policy, rng, baseline)
        loss = dy.esum(losses)
        total += loss.value()
        loss.backward()
        trainer.update()
        baseline = 0.95 * baseline + 0.05 * reward
    return total
