"""Policy gradient: actions are sampled from what the network says, episode by episode, with a baseline."""

import random

import dynet as dy


class Policy:
    def __init__(self, model, hidden):
        self.W1 = model.add_parameters((hidden, 3))
        self.b1 = model.add_parameters(hidden)
        self.W2 = model.add_parameters((2, hidden))
        self.rnn = dy.SimpleRNNBuilder(1, 3, 3, model)

    def probs(self, x):
        return dy.softmax(self.W2 * dy.tanh(self.W1 * x + self.b1))  #: region

    def start(self):
        self.state = self.rnn.initial_state()

    def step(self, observation):
        self.state = self.state.add_input(dy.inputVector(observation))
        return self.probs(self.state.output())  #: region


def sample(numbers):
    return 0 if random.random() < numbers[0] else 1


def episode(policy, length):
    policy.start()
    observation = [1.0, 0.0, 0.0]
    log_probs, reward = [], 0.0
    for t in range(length):  #: recurrence Policy.state
        p = policy.step(observation)
        action = sample(p.npvalue())  #: read
        log_probs.append(dy.log(dy.pick(p, action)))  #: region
        reward += 1.0 if action == t % 2 else -1.0
        observation = [float(action), float(t % 2), 1.0]
    return log_probs, reward


def main():
    random.seed(2)
    model = dy.ParameterCollection()
    trainer = dy.RMSPropTrainer(model)
    policy = Policy(model, 5)
    baseline = 0.0
    for _ in range(3):  #: graph
        dy.renew_cg()
        losses = []
        for _ in range(4):  #: map instance
            log_probs, reward = episode(policy, 6)
            losses.append(-(reward - baseline) * dy.esum(log_probs))  #: region
            baseline = 0.9 * baseline + 0.1 * reward
        loss = dy.average(losses)
        print(loss.value())  #: read
        loss.backward()
        trainer.update()


main()
