"""Reads values while a graph grows: each read plans and runs only what is new."""

import dynet as dy

model = dy.ParameterCollection()
W = model.add_parameters((4, 4))
trainer = dy.SimpleSGDTrainer(model)
for _ in range(5):
    dy.renew_cg()
    h = dy.inputVector([1, 2, 3, 4])
    for _ in range(10):
        h = dy.tanh(W * h)
        h.npvalue()
    loss = dy.squared_norm(h)
    loss.value()
    loss.backward()
    trainer.update()
