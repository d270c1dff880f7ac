import os

import dynet as dy

model = dy.ParameterCollection()
w = model.add_parameters(3, init=1)
trainer = dy.SimpleSGDTrainer(model)
for _ in range(3):
    dy.renew_cg()
    loss = dy.squared_norm(w + (1 + os.urandom(1)[0]))
    loss.backward()
    trainer.update()
