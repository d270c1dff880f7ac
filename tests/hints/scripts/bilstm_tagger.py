"""Tagger whose network is a closure; a batch in one graph; values read in one go."""

import dynet as dy
from dynet import AdamTrainer, BiRNNBuilder, ParameterCollection, VanillaLSTMBuilder


def make_tagger(words, tags, dim=6):
    pc = ParameterCollection()
    embed = pc.add_lookup_parameters((words, dim))
    birnn = BiRNNBuilder(1, dim, 8, pc, VanillaLSTMBuilder)
    W = pc.add_parameters((tags, 8))
    b = pc.add_parameters(tags, init=0)

    def score(h):
        return dy.affine_transform([b, W, h])

    def loss_of(sentence, gold):
        total = dy.scalarInput(0)
        states = birnn.transduce([embed[w] for w in sentence])  #: map
        for h, g in zip(states, gold):  #: map
            total += dy.pickneglogsoftmax(score(h), g)
        return total

    return pc, loss_of


def main():
    pc, loss_of = make_tagger(12, 3)
    trainer = AdamTrainer(pc)
    batch = [([1, 2, 3], [0, 1, 2]), ([4, 5], [2, 0]), ([6, 7, 8, 9], [1, 1, 0, 2])]
    for _ in range(3):  #: graph
        dy.renew_cg()
        loss = dy.scalarInput(0)
        for sentence, gold in batch:  #: map instance
            loss = loss + loss_of(sentence, gold)
        loss.backward()
        trainer.update()
        print(loss.scalar_value())  #: read


if __name__ == "__main__":
    main()
