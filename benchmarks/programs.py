"""Ten models on random data, whose sizes are free: what kernels and planner are measured on (roofline.py).

The scripts of written/ are for the analysis of source text: complete, and on data of examples/. Sentences
and trees have the sizes of common corpora. `--reference` on the command line: the original DyNet. A `Side`
has the functions of a script: `load`, `build` and `train_batch`.
"""

from __future__ import annotations

import random
import sys
from types import SimpleNamespace
from typing import Any

if "--reference" in sys.argv:
    import dynet as dy
else:
    import dynet_compat as dy

WORDS, CLASSES, INSTANCES, RATE = 2000, 5, 256, 2e-4

Instance = Any


def words(rng: random.Random, least: int = 4, most: int = 30) -> list[int]:
    return [rng.randrange(WORDS) for _ in range(rng.randint(least, most))]


def binary_tree(rng: random.Random, leaves: list[int]) -> Any:
    if len(leaves) == 1:
        return leaves[0]
    at = rng.randrange(1, len(leaves))
    return binary_tree(rng, leaves[:at]), binary_tree(rng, leaves[at:])


class Program:
    """Parameters by name (those that begin with E are lookup tables), data, and the losses of an instance."""

    builder: str | None = None  # of a pair of networks: forward and backward

    def __init__(self, pc: Any, size: int) -> None:
        self.pc, self.size = pc, size  # DyNet frees parameters with their collection
        self.p = SimpleNamespace()
        for name, shape in self.shapes(size).items():
            add = pc.add_lookup_parameters if name.startswith("E") else pc.add_parameters
            setattr(self.p, name, add(shape, init=dy.UniformInitializer(0.7 / shape[-1] ** 0.5)))
        cls = getattr(dy, self.builder) if self.builder else None
        self.rnns = [cls(1, size, size, pc) for _ in range(2)] if cls else []

    def shapes(self, n: int) -> dict[str, tuple[int, ...]]:
        return {"E": (WORDS, n), "V": (CLASSES, n), "c": (CLASSES,)}

    def instance(self, rng: random.Random) -> Instance:
        return words(rng), rng.randrange(CLASSES)

    def losses(self, instance: Instance) -> list[Any]:
        raise NotImplementedError

    def output(self, h: Any, label: int) -> Any:
        return dy.pickneglogsoftmax(dy.affine_transform([self.p.c, self.p.V, h]), label)

    def both_ways(self, xs: list[Any]) -> list[Any]:
        one, other = self.rnns
        before = one.initial_state().transduce(xs)
        after = other.initial_state().transduce(xs[::-1])[::-1]
        return [dy.concatenate([b, a]) for b, a in zip(before, after)]


class Mlp(Program):
    def shapes(self, n: int) -> dict[str, tuple[int, ...]]:
        layers = {f"W{i}": (n, n) for i in range(3)}
        return {**layers, **{f"b{i}": (n,) for i in range(3)}, "V": (CLASSES, n), "c": (CLASSES,)}

    def instance(self, rng: random.Random) -> Instance:
        return [rng.gauss(0, 1) for _ in range(self.size)], rng.randrange(CLASSES)

    def losses(self, instance: Instance) -> list[Any]:
        p, h = self.p, dy.inputVector(instance[0])
        for W, b in ((p.W0, p.b0), (p.W1, p.b1), (p.W2, p.b2)):
            h = dy.rectify(W * h + b)
        return [self.output(h, instance[1])]


class EarlyExit(Mlp):
    """A classifier after every layer, all of them trained."""

    def losses(self, instance: Instance) -> list[Any]:
        p, h, losses = self.p, dy.inputVector(instance[0]), []
        for W, b in ((p.W0, p.b0), (p.W1, p.b1), (p.W2, p.b2)):
            h = h + dy.tanh(dy.affine_transform([b, W, h]))
            losses.append(self.output(h, instance[1]))
        return losses


class LstmClassifier(Program):
    builder = "VanillaLSTMBuilder"

    def shapes(self, n: int) -> dict[str, tuple[int, ...]]:
        return {"E": (WORDS, n), "V": (CLASSES, 2 * n), "c": (CLASSES,)}

    def losses(self, instance: Instance) -> list[Any]:
        sentence, label = instance
        states = self.both_ways([self.p.E[word] for word in sentence])
        return [self.output(dy.average(states), label)]


class GruTagger(LstmClassifier):
    builder = "GRUBuilder"

    def instance(self, rng: random.Random) -> Instance:
        sentence = words(rng)
        return sentence, [rng.randrange(CLASSES) for _ in sentence]

    def losses(self, instance: Instance) -> list[Any]:
        states = self.both_ways([self.p.E[word] for word in instance[0]])
        return [self.output(h, tag) for h, tag in zip(states, instance[1])]


class OwnLstm(Program):
    """A recurrent cell of the user's own ops."""

    def shapes(self, n: int) -> dict[str, tuple[int, ...]]:
        gates = {f"W{g}": (n, 2 * n) for g in "ifou"}
        return {**super().shapes(n), **gates, **{f"b{g}": (n,) for g in "ifou"}}

    def losses(self, instance: Instance) -> list[Any]:
        p, (sentence, label) = self.p, instance
        h = c = dy.zeros(self.size)
        for word in sentence[:12]:
            x = dy.concatenate([p.E[word], h])
            i = dy.logistic(dy.affine_transform([p.bi, p.Wi, x]))
            f = dy.logistic(dy.affine_transform([p.bf, p.Wf, x]))
            o = dy.logistic(dy.affine_transform([p.bo, p.Wo, x]))
            u = dy.tanh(dy.affine_transform([p.bu, p.Wu, x]))
            c = dy.cmult(f, c) + dy.cmult(i, u)
            h = dy.cmult(o, dy.tanh(c))
        return [self.output(h, label)]


class TreeLstm(Program):
    """Binary; the gates of the user's own ops."""

    def shapes(self, n: int) -> dict[str, tuple[int, ...]]:
        gates = {f"{side}{g}": (n, n) for g in "iflou" for side in "UW"}
        return {**super().shapes(n), **gates, **{f"b{g}": (n,) for g in "iflou"}}

    def instance(self, rng: random.Random) -> Instance:
        return binary_tree(rng, words(rng)), rng.randrange(CLASSES)

    def node(self, tree: Any) -> tuple[Any, Any]:
        p = self.p
        if isinstance(tree, int):
            return p.E[tree], dy.zeros(self.size)
        (a, ca), (b, cb) = self.node(tree[0]), self.node(tree[1])
        gate = {g: dy.affine_transform([getattr(p, "b" + g), getattr(p, "U" + g), a,
                                        getattr(p, "W" + g), b]) for g in "iflou"}  # fmt: skip
        c = dy.cmult(dy.logistic(gate["i"]), dy.tanh(gate["u"]))
        c = c + dy.cmult(dy.logistic(gate["f"]), ca) + dy.cmult(dy.logistic(gate["l"]), cb)
        return dy.cmult(dy.logistic(gate["o"]), dy.tanh(c)), c

    def losses(self, instance: Instance) -> list[Any]:
        return [self.output(self.node(instance[0])[0], instance[1])]


class MatrixVector(Program):
    """MV-RNN: every phrase is a vector and a matrix."""

    def shapes(self, n: int) -> dict[str, tuple[int, ...]]:
        rest = {"EM": (300, n, n), "W": (n, 2 * n), "b": (n,), "L": (n, n), "R": (n, n)}
        return {**super().shapes(n), **rest}

    def instance(self, rng: random.Random) -> Instance:
        return binary_tree(rng, [rng.randrange(300) for _ in range(rng.randint(3, 9))]), rng.randrange(
            CLASSES
        )

    def node(self, tree: Any) -> tuple[Any, Any]:
        p = self.p
        if isinstance(tree, int):
            return p.E[tree], p.EM[tree]
        (a, A), (b, B) = self.node(tree[0]), self.node(tree[1])
        return dy.tanh(p.W * dy.concatenate([B * a, A * b]) + p.b), p.L * A + p.R * B

    def losses(self, instance: Instance) -> list[Any]:
        return [self.output(self.node(instance[0])[0], instance[1])]


class Reader(Program):
    """Three hops of attention of a query over a sentence, dot products and additive ones."""

    def shapes(self, n: int) -> dict[str, tuple[int, ...]]:
        return {**super().shapes(n), "K": (n, n), "Q": (n, n), "v": (1, n), "W": (n, n), "b": (n,)}

    def losses(self, instance: Instance) -> list[Any]:
        p, (sentence, label) = self.p, instance
        memory = dy.concatenate_cols([p.E[word] for word in sentence])
        keys, q = p.K * memory, p.E[sentence[0]]
        for _ in range(3):
            dots = dy.softmax(dy.transpose(memory) * q)
            q = dy.tanh(p.W * (q + memory * dots) + p.b)
            scores = dy.transpose(p.v * dy.tanh(dy.colwise_add(keys, p.Q * q)))
            q = q + memory * dy.softmax(scores)
        return [self.output(q, label)]


class Biaffine(LstmClassifier):
    """Scores of all pairs of words of a sentence; a head for each word."""

    builder = "VanillaLSTMBuilder"

    def shapes(self, n: int) -> dict[str, tuple[int, ...]]:
        return {"E": (WORDS, n), "D": (n, 2 * n), "H": (n, 2 * n), "U": (n, n)}

    def instance(self, rng: random.Random) -> Instance:
        sentence = words(rng, 4, 20)
        return sentence, [rng.randrange(len(sentence)) for _ in sentence]

    def losses(self, instance: Instance) -> list[Any]:
        p, (sentence, heads) = self.p, instance
        states = dy.concatenate_cols(self.both_ways([p.E[word] for word in sentence]))
        dependents, candidates = dy.rectify(p.D * states), dy.rectify(p.H * states)
        scores = dy.transpose(candidates) * (p.U * dependents)
        return [dy.pickneglogsoftmax(dy.pick(scores, i, 1), head) for i, head in enumerate(heads)]


class Siamese(Program):
    """Two bags of words through gates and differences: element-wise work for the most part."""

    def shapes(self, n: int) -> dict[str, tuple[int, ...]]:
        return {"E": (WORDS, n), "g": (n,), "W": (n, 4 * n), "b": (n,), "V": (CLASSES, n), "c": (CLASSES,)}

    def instance(self, rng: random.Random) -> Instance:
        return words(rng), words(rng), rng.randrange(CLASSES)

    def bag(self, sentence: list[int]) -> Any:
        xs = [self.p.E[word] for word in sentence]
        return dy.esum([dy.cmult(dy.logistic(dy.cmult(self.p.g, x)), dy.tanh(x)) for x in xs])

    def losses(self, instance: Instance) -> list[Any]:
        a, b = self.bag(instance[0]), self.bag(instance[1])
        joined = dy.concatenate([a, b, dy.abs(a - b), dy.cmult(a, b)])
        return [self.output(dy.tanh(self.p.W * joined + self.p.b), instance[2])]


PROGRAMS = {"MLP": Mlp, "early exit": EarlyExit, "LSTM classifier": LstmClassifier, "GRU tagger": GruTagger,
            "own LSTM": OwnLstm, "TreeLSTM of ops": TreeLstm, "matrix-vector": MatrixVector,
            "reader": Reader, "biaffine": Biaffine, "siamese": Siamese}  # fmt: skip


class Side:
    def __init__(self, program: str, hidden: int) -> None:
        self.program, self.hidden = PROGRAMS[program], hidden

    def load(self, path: object = None) -> tuple[list[Instance], None]:
        rng = random.Random(1)
        made = self.program.__new__(self.program)
        made.size = self.hidden
        return [made.instance(rng) for _ in range(INSTANCES)], None

    def build(self, vocabulary: None, hidden: int) -> tuple[Program, Any]:
        pc = dy.ParameterCollection()
        trainer = dy.SimpleSGDTrainer(pc, RATE)
        trainer.set_clip_threshold(-1)
        return self.program(pc, hidden), trainer

    def train_batch(self, model: Program, trainer: Any, batch: list[Instance]) -> float:
        dy.renew_cg()
        loss = dy.esum([one for instance in batch for one in model.losses(instance)])
        value = float(loss.value())
        loss.backward()
        trainer.update()
        return value
