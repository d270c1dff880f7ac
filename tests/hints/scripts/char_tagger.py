"""BiLSTM tagger with character states for rare words, written without classes, one sentence per graph."""

import random

import dynet as dy
import numpy as np

rng = random.Random(3)
VOCAB, CHARS, TAGS = 30, 12, 4
data = [
    [(rng.randrange(VOCAB), [rng.randrange(CHARS) for _ in range(3)], rng.randrange(TAGS)) for _ in range(5)]
    for _ in range(6)
]
counts = {w: rng.randrange(10) for w in range(VOCAB)}

model = dy.Model()
trainer = dy.SimpleSGDTrainer(model)
WORDS = model.add_lookup_parameters((VOCAB, 8))
LETTERS = model.add_lookup_parameters((CHARS, 4))
p_H = model.add_parameters((8, 12))
p_O = model.add_parameters((TAGS, 8))
fwd = dy.LSTMBuilder(1, 8, 6, model)
bwd = dy.LSTMBuilder(1, 8, 6, model)
c_fwd = dy.LSTMBuilder(1, 4, 4, model)
c_bwd = dy.LSTMBuilder(1, 4, 4, model)


def word_rep(word, letters, cf, cb):
    if counts[word] > 5:
        return WORDS[word]
    embedded = [LETTERS[c] for c in letters]  #: map
    return dy.concatenate([cf.transduce(embedded)[-1], cb.transduce(reversed(embedded))[-1]])


def score(h):
    H = dy.parameter(p_H)  #: region
    O = dy.parameter(p_O)  # noqa: E741
    return O * dy.tanh(H * h)


def build(sentence):
    cf, cb = c_fwd.initial_state(), c_bwd.initial_state()
    embedded = [word_rep(w, letters, cf, cb) for w, letters, _ in sentence]  #: map
    f_exps = fwd.initial_state().transduce(embedded)
    b_exps = bwd.initial_state().transduce(reversed(embedded))
    states = [dy.concatenate([f, b]) for f, b in zip(f_exps, reversed(b_exps))]  #: map  #: region
    return [score(h) for h in states]  #: map  #: region


def sent_loss(sentence):
    dy.renew_cg()
    errs = []
    for vector, (_, _, tag) in zip(build(sentence), sentence):  #: map
        errs.append(dy.pickneglogsoftmax(vector, tag))
    return dy.esum(errs)


def tag_sent(sentence):
    dy.renew_cg()
    tags = []
    for vector in build(sentence):  #: map
        tags.append(int(np.argmax(dy.softmax(vector).npvalue())))  #: read
    return tags


loss = 0.0
for sent in data:  #: graph
    err = sent_loss(sent)
    loss += err.scalar_value()  #: read
    err.backward()
    trainer.update()
print(loss, [tag_sent(s) for s in data])  #: graph
