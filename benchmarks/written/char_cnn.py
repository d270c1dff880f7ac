"""Tagger over characters: windows of character embeddings, a maximum over them, and a window of words."""

import data
import dynet_compat as dy


def load(path=None):
    sentences = [s for s in data.load("tags", path) if len(s) <= 20]
    chars = data.Vocab(c for s in sentences for w, _ in s for c in w)
    tags = data.Vocab(t for s in sentences for _, t in s)
    instances = [([[chars[c] for c in w[:12]] for w, _ in s], [tags[t] for _, t in s]) for s in sentences]
    return instances, (len(chars) + 1, len(tags))


class CharTagger:
    def __init__(self, pc, sizes, dim, window=3):
        self.window, self.pad = window, sizes[0] - 1
        self.c = pc.add_lookup_parameters((sizes[0], dim // 2))
        self.filters = pc.add_parameters((dim, window * (dim // 2)))
        self.filter_bias = pc.add_parameters(dim)
        self.hidden = pc.add_parameters((dim, 3 * dim))
        self.hidden_bias = pc.add_parameters(dim)
        self.out = pc.add_parameters((sizes[1], dim))
        self.edge = pc.add_parameters(dim)

    def word_vector(self, chars):
        half = self.window // 2
        padded = [self.pad] * half + chars + [self.pad] * half
        embedded = [self.c[x] for x in padded]
        convolved = []
        for i in range(len(chars)):
            patch = dy.concatenate(embedded[i : i + self.window])
            convolved.append(dy.rectify(self.filters * patch + self.filter_bias))
        return dy.emax(convolved)

    def loss(self, words, tags):
        vectors = [self.word_vector(chars) for chars in words]
        losses = []
        for i, tag in enumerate(tags):
            left = vectors[i - 1] if i > 0 else self.edge
            right = vectors[i + 1] if i + 1 < len(vectors) else self.edge
            h = dy.tanh(
                dy.affine_transform(
                    [self.hidden_bias, self.hidden, dy.concatenate([left, vectors[i], right])]
                )
            )
            losses.append(dy.pickneglogsoftmax(self.out * h, tag))
        return losses


def build(sizes, hidden):
    pc = dy.ParameterCollection()
    return CharTagger(pc, sizes, hidden), dy.AdagradTrainer(pc)


def train_batch(model, trainer, batch):
    dy.renew_cg()
    losses = []
    for words, tags in batch:
        losses.extend(model.loss(words, tags))
    loss = dy.average(losses)
    loss.backward()
    trainer.update()
    return loss.value()
