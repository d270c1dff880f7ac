"""train.py MODEL TRAINER MINIBATCH UPDATES OUT: trains a small model; parameters of rank r go to OUTr.npy.

Runs on the real DyNet, too: the one added line is `shard`, which is the identity there.
"""

import random
import sys

import dynet as dy
import numpy as np

distributed = getattr(dy, "distributed", None)
shard = distributed.shard if distributed else lambda items: items
add_up = distributed.sum if distributed else lambda x: x

name, trainer_name, minibatch, updates, out = sys.argv[1:6]
random.seed(5)
pc = dy.ParameterCollection()
words = pc.add_lookup_parameters((40, 6))
W, b = pc.add_parameters((4, 8)), pc.add_parameters(4)


class Tagger:
    def __init__(self):
        self.forward, self.backward = dy.LSTMBuilder(1, 6, 4, pc), dy.LSTMBuilder(1, 6, 4, pc)

    def instance(self):
        n = random.randint(1, 7)
        return [random.randrange(40) for _ in range(n)], [random.randrange(4) for _ in range(n)]

    def loss(self, instance):
        xs = [words[w] for w in instance[0]]
        there = self.forward.initial_state().transduce(xs)
        back = self.backward.initial_state().transduce(xs[::-1])[::-1]
        hs = [dy.concatenate(list(pair)) for pair in zip(there, back)]
        return dy.esum([dy.pickneglogsoftmax(W * h + b, y) for h, y in zip(hs, instance[1])])


class Tree:
    def __init__(self):
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
            return dy.tanh(self.leaf * words[node])
        return dy.tanh(self.U * dy.concatenate([self.encode(child) for child in node]))

    def loss(self, instance):
        return dy.pickneglogsoftmax(W * self.encode(instance[0]) + b, instance[1])


class Seq2seq:
    def __init__(self):
        self.encoder, self.decoder = dy.GRUBuilder(1, 6, 8, pc), dy.GRUBuilder(1, 6, 8, pc)
        self.output = pc.add_lookup_parameters((40, 8))
        self.rate = pc.add_parameters((1, 8))

    def instance(self):
        return [[random.randrange(40) for _ in range(random.randint(1, 6))] for _ in range(2)]

    def loss(self, instance):
        source, target = instance
        hs = self.encoder.initial_state().transduce([words[w] for w in source])
        state, losses = self.decoder.initial_state([hs[-1]]), []
        for w in target:
            h = state.output() if state.output() is not None else hs[-1]
            weights = dy.softmax(dy.concatenate([dy.dot_product(h, x) for x in hs]))
            context = dy.esum([x * dy.pick(weights, i) for i, x in enumerate(hs)])
            losses.append(dy.pickneglogsoftmax(W * context + b, w % 4))
            losses.append(dy.squared_distance(self.output[w], context) * dy.logistic(self.rate * h))
            state = state.add_input(words[w])
        return dy.esum(losses)


model = {"tagger": Tagger, "tree": Tree, "seq2seq": Seq2seq}[name]()
trainer = getattr(dy, trainer_name)(pc)
trainer.set_clip_threshold(1.0)
data = [model.instance() for _ in range(30)]
done, size = 0, int(minibatch)
while done < int(updates):
    random.shuffle(data)
    for first in range(0, len(data) - size + 1, size):
        batch = shard(data[first : first + size])
        dy.renew_cg()
        loss = dy.esum([model.loss(x) for x in batch])
        total = add_up(loss.value())
        loss.backward()
        trainer.update()
        done += 1
        if done == int(updates):
            break
every = [p.as_array().ravel() for p in pc.parameters_list() + pc.lookup_parameters_list()]
np.save(f"{out}{distributed.rank if distributed else 0}.npy", np.concatenate([*every, [total]]))
