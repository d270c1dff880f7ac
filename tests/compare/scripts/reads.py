"""Reads many values: arguments are how many, and "arrays" for more than numbers."""

import sys
import time

import dynet as dy

count = int(sys.argv[1])
model = dy.ParameterCollection()
W = model.add_parameters((60, 3))
big = model.add_parameters((300, 300))
trainer = dy.SimpleSGDTrainer(model)
for step in range(2):
    dy.renew_cg()
    y = W * dy.inputVector([1, 2, step])
    z = dy.squared_norm(y) + dy.squared_norm(big) + dy.sum_elems(dy.zeroes(3))
    begin = time.process_time()
    for _ in range(count):
        z.value()
        if "arrays" in sys.argv:
            y.npvalue()
    print("seconds", time.process_time() - begin)
    z.backward()
    trainer.update()
