"""train.py MODEL TRAINERS MINIBATCH UPDATES OUT: trains a small model with each of the trainers.

Parameters and losses of rank r go to OUTr.npy, a row for each trainer. Runs on the real DyNet, too: the one
added line is `shard`, which is the identity there.
"""

import random
import sys

import dynet as dy
import numpy as np

distributed = getattr(dy, "distributed", None)
shard = distributed.shard if distributed else lambda items: items
add_up = distributed.sum if distributed else lambda x: x


class Model:
    def __init__(self, pc):
        self.words = pc.add_lookup_parameters((40, 6))
        self.W, self.b = pc.add_parameters((4, 8)), pc.add_parameters(4)

    def scores(self, h):
        return self.W * h + self.b


class Tagger(Model):
    def __init__(self, pc):
        super().__init__(pc)
        self.forward, self.backward = dy.LSTMBuilder(1, 6, 4, pc), dy.LSTMBuilder(1, 6, 4, pc)

    def instance(self):
        n = random.randint(1, 7)
        return [random.randrange(40) for _ in range(n)], [random.randrange(4) for _ in range(n)]

    def loss(self, instance):
        xs = [self.words[w] for w in instance[0]]
        there = self.forward.initial_state().transduce(xs)
        back = self.backward.initial_state().transduce(xs[::-1])[::-1]
        hs = [dy.concatenate(list(pair)) for pair in zip(there, back)]
        return dy.esum([dy.pickneglogsoftmax(self.scores(h), y) for h, y in zip(hs, instance[1])])


class Tree(Model):
    def __init__(self, pc):
        super().__init__(pc)
        self.U = pc.add_parameters((8, 16))
        self.leaf = pc.add_parameters((8, 6))

    def instance(self):
        return self.node(random.randint(0, 3)), random.randrange(4)

    def node(self, depth):
        if depth == 0:
            return random.randrange(40)
        return self.node(depth - 1), self.node(random.randint(0, depth - 1))

    def encode(self, node):
        if isinstance(node, int):
            return dy.tanh(self.leaf * self.words[node])
        return dy.tanh(self.U * dy.concatenate([self.encode(child) for child in node]))

    def loss(self, instance):
        return dy.pickneglogsoftmax(self.scores(self.encode(instance[0])), instance[1])


class Seq2seq(Model):
    def __init__(self, pc):
        super().__init__(pc)
        self.encoder, self.decoder = dy.GRUBuilder(1, 6, 8, pc), dy.GRUBuilder(1, 6, 8, pc)
        self.output = pc.add_lookup_parameters((40, 8))
        self.rate = pc.add_parameters((1, 8))

    def instance(self):
        return [[random.randrange(40) for _ in range(random.randint(1, 6))] for _ in range(2)]

    def loss(self, instance):
        source, target = instance
        hs = self.encoder.initial_state().transduce([self.words[w] for w in source])
        state, losses = self.decoder.initial_state([hs[-1]]), []
        for w in target:
            h = state.output() if state.output() is not None else hs[-1]
            weights = dy.softmax(dy.concatenate([dy.dot_product(h, x) for x in hs]))
            context = dy.esum([x * dy.pick(weights, i) for i, x in enumerate(hs)])
            losses.append(dy.pickneglogsoftmax(self.scores(context), w % 4))
            losses.append(dy.squared_distance(self.output[w], context) * dy.logistic(self.rate * h))
            state = state.add_input(self.words[w])
        return dy.esum(losses)


MODELS = {"tagger": Tagger, "tree": Tree, "seq2seq": Seq2seq}


def train(name, trainer_name, size, updates):
    """Parameters at the end, then the loss of each update."""
    random.seed(5)
    pc = dy.ParameterCollection()
    model = MODELS[name](pc)
    parameters = pc.parameters_list() + pc.lookup_parameters_list()
    if trainer_name == "EGTrainer":  # whose values are positive
        for p in pc.parameters_list():
            p.set_value(np.abs(p.as_array()) + 0.1)
        for p in pc.lookup_parameters_list():
            p.init_from_array(np.abs(p.as_array()) + 0.1)
    rate = [0.01] if trainer_name == "AdagradTrainer" else []  # steps of 0.1 enlarge what rounding changes
    trainer = getattr(dy, trainer_name)(pc, *rate)
    trainer.set_clip_threshold(1.0)
    data = [model.instance() for _ in range(30)]
    losses = []
    while True:
        random.shuffle(data)
        for first in range(0, len(data) - size + 1, size):
            batch = shard(data[first : first + size])
            dy.renew_cg()
            loss = dy.esum([model.loss(x) for x in batch])
            losses.append(add_up(loss.value()))
            loss.backward()
            trainer.update()
            if len(losses) == updates:
                return np.concatenate([*(p.as_array().ravel() for p in parameters), losses])


name, trainers, minibatch, updates, out = sys.argv[1:6]
rows = [train(name, trainer, int(minibatch), int(updates)) for trainer in trainers.split(",")]
np.save(f"{out}{distributed.rank if distributed else 0}.npy", rows)
