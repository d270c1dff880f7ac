"""A small tagger with all that a comparison meets: tables, a builder, dropout on demand, a trainer.

The environment variable SABOTAGE makes dynet_compat differ from the reference in one place.
"""

import os
import random
import sys

import dynet as dy
import numpy as np

UNBATCHED = os.environ.get("DYNET_COMPAT_SCHEDULER") == "none"
OURS = hasattr(dy, "__compat_version__") and not UNBATCHED
SABOTAGE = os.environ.get("SABOTAGE", "") if OURS else ""
STEPS = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 6


if SABOTAGE == "replaced":
    real_tanh = dy.tanh
    dy.tanh = lambda x: real_tanh(x) * 1.01  # replaced here


def network(step, words, tags):
    losses = []
    state = lstm.initial_state()
    for word, tag in zip(words, tags):
        x = embed[word]
        if "dropout" in sys.argv:
            x = dy.dropout(x, 0.3)
        state = state.add_input(x)
        factor = 1.01 if SABOTAGE == "value" and step == 3 else 1.0
        h = dy.tanh(W * state.output() + b)
        h = dy.scale_gradient(h, 1.5 if SABOTAGE == "gradient" and step == 2 else 1.0)
        h = h * factor  # sabotaged here
        if SABOTAGE == "graph" and step == 2:
            h = dy.rectify(h) - dy.rectify(-h)
        bonus = dy.scalarInput(0.5 if SABOTAGE == "input" and step == 1 else 0.25)
        if "dropout" in sys.argv:
            h = dy.dropout(h, 0.2)
        losses.append(dy.pickneglogsoftmax(h, tag) * bonus)
    return dy.esum(losses)


random.seed(5)
model = dy.ParameterCollection()
embed = model.add_lookup_parameters((10, 6))
lstm = dy.LSTMBuilder(1, 6, 5, model)
W = model.add_parameters((4, 5))
b = model.add_parameters(4, init=0)
trainer = dy.SimpleSGDTrainer(model, 0.1)
if SABOTAGE == "initial":
    W.scale(1.5)

for step in range(1, STEPS + 1):
    if SABOTAGE == "early" and step == 4:
        break
    dy.renew_cg()
    words = [random.randrange(10) for _ in range(5)]
    loss = network(step, words, [w % 4 for w in words])
    value = loss.value()
    if SABOTAGE == "crash" and step == 3:
        raise RuntimeError("sabotaged at step 3")
    if SABOTAGE == "kill" and step == 3:
        os.abort()
    loss.backward()
    if SABOTAGE == "update" and step == 2:
        trainer.learning_rate = 0.3
    trainer.update()
    trainer.learning_rate = 0.1
    print(f"loss {value:.3f}")
print(np.asarray(b.as_array()).sum())
