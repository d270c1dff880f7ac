"""Trains, and saves models over those that are there, as tutorials do; FILES makes the sides differ."""

import os
import sys

import dynet as dy

base = sys.argv[1]
OURS = hasattr(dy, "__compat_version__") and os.environ.get("DYNET_COMPAT_SCHEDULER") != "none"
FILES = os.environ.get("FILES", "")
model = dy.ParameterCollection()
W = model.add_parameters((3, 3))
trainer = dy.SimpleSGDTrainer(model)
for step in range(3):
    dy.renew_cg()
    loss = dy.squared_norm(W * dy.inputVector([1, 2, 3]))
    loss.backward()
    trainer.update()
    with open("losses.txt", "a") as file:
        file.write(f"step {step} loss {loss.value():.6f}\n")
if FILES == "model" and OURS:
    W.scale(1.001)
model.save("tagger.model")
model.save(os.path.join(base, "models", "abs.model"))
if FILES == "model" and OURS:
    W.scale(1 / 1.001)
dy.save("pair", [W])
dy.save(os.path.join(base, "models", "pair"), [W])
other = dy.ParameterCollection()
(V,) = dy.load("pair", other)
(U,) = dy.load(os.path.join(base, "models", "pair"), other)
assert (U.as_array() == V.as_array()).all()
other.populate("two.model") if os.path.exists("two.model") else other.save("two.model")
model.populate(os.path.join(base, "models", "abs.model"))
if FILES == "model" and OURS:
    W.scale(1 / 1.001)
if FILES == "missing" and OURS:
    os.remove("pair.meta")
if FILES == "text" and OURS:
    with open("losses.txt", "a") as file:
        file.write("the end\n")
if FILES == "time":
    import time

    with open("log.txt", "w") as file:
        file.write(f"took {time.time() % 1} s\n")
if FILES.startswith("named"):
    import uuid

    for number in range(3):
        folder = f"runs/{uuid.uuid4().hex}"
        os.makedirs(folder)
        other = 1.01 if FILES == "named, other numbers" and OURS and number == 2 else 1.0
        W.scale(other)
        dy.save(f"{folder}/step{number}", [W])
        W.scale(1 / other)
    with open(f"log-{uuid.uuid4().hex}.txt", "w") as file:
        file.write("done\n")
    if FILES == "named, one more" and OURS:
        open(f"log-{uuid.uuid4().hex}.txt", "w").close()
if "and more" in sys.argv:
    sys.argv = [sys.argv[0], base, "native"]
    import writing

    writing.main()
