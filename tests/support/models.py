# ruff: noqa: UP031
"""Models that are saved: every builder, many shapes. They run in the real DyNet (Python 3.8) and in ours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable

import numpy as np

from support.subject import subject

INPUT, HIDDEN = 2, 2


class Tagger:
    """A class of a user, with DyNet's protocol for saving."""

    def __init__(self, model: Any, words: int, hidden: int, activation: Any, tags: Any) -> None:
        dy = subject()
        self.spec = (words, hidden, activation, tags)
        self.pc = model.add_subcollection("tagger")
        self.embeddings = self.pc.add_lookup_parameters((words, INPUT))
        self.lstm = dy.LSTMBuilder(1, INPUT, hidden, self.pc)
        self.W = self.pc.add_parameters((len(tags), hidden), name="W")
        self.activation = activation
        self.tags = tags

    def param_collection(self) -> Any:
        return self.pc

    @classmethod
    def from_spec(cls, spec: Any, model: Any) -> Tagger:
        return cls(model, *spec)


def _parameters(dy: Any, pc: Any) -> list[Any]:
    sub = pc.add_subcollection("inner")
    return [
        pc.add_parameters(1),
        pc.add_parameters(5, name="b"),
        pc.add_parameters((3, 4), name="W"),
        pc.add_parameters((2, 3, 2)),
        pc.add_parameters((2, 1, 3, 1)),
        sub.add_parameters((1, 1), name="W"),
        sub.add_parameters((7, 1)),
    ]


def _lookups(dy: Any, pc: Any) -> list[Any]:
    sub = pc.add_subcollection("inner")
    return [
        pc.add_lookup_parameters((6, 3), name="E"),
        pc.add_lookup_parameters((4, 2, 3)),
        pc.add_lookup_parameters((1, 5)),
        pc.add_lookup_parameters((3, 1)),
        sub.add_lookup_parameters((2, 2, 1, 2), name="E"),
    ]


def _mixed(dy: Any, pc: Any) -> list[Any]:
    W = pc.add_parameters((2, 2))
    lstm = dy.LSTMBuilder(1, INPUT, HIDDEN, pc)
    E = pc.add_lookup_parameters((3, 2))
    tagger = Tagger(pc, 4, 2, dy.tanh, ("N", "V", "é"))
    return [W, lstm, E, tagger, dy.BiRNNBuilder(1, INPUT, 4, pc, dy.GRUBuilder)]


def _builder(name: str, layers: int, *extra: Any) -> Callable[[Any, Any], list[Any]]:
    return lambda dy, pc: [getattr(dy, name)(layers, INPUT, HIDDEN, pc, *extra)]


def _birnn(name: str, layers: int) -> Callable[[Any, Any], list[Any]]:
    return lambda dy, pc: [dy.BiRNNBuilder(layers, INPUT, 4, pc, getattr(dy, name))]


_PLAIN = "SimpleRNNBuilder GRUBuilder LSTMBuilder VanillaLSTMBuilder CompactVanillaLSTMBuilder".split()
_PLAIN += "CoupledLSTMBuilder SparseLSTMBuilder".split()
# name -> the objects given to save(); those without a spec are saved by their collection only
MODELS: dict[str, Callable[[Any, Any], list[Any]]] = {
    "parameters": _parameters,
    "lookups": _lookups,
    "mixed": _mixed,
    "user": lambda dy, pc: [Tagger(pc, 3, 2, dy.rectify, ["a", "b"])],
    "nothing": lambda dy, pc: [],
    **{"%s-%d" % (name, layers): _builder(name, layers) for name in _PLAIN for layers in (1, 2)},
    "VanillaLSTMBuilder-bias": _builder("VanillaLSTMBuilder", 1, False, 0.25),
    "VanillaLSTMBuilder-ln": _builder("VanillaLSTMBuilder", 1, True),
    **{
        "BiRNNBuilder-%s-%d" % (name, layers): _birnn(name, layers)
        for name in _PLAIN + ["FastLSTMBuilder"]
        for layers in (1, 2)
    },
}
# saved with ParameterCollection.save() only: DyNet gives these classes no spec
COLLECTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "FastLSTMBuilder": lambda dy, pc: dy.FastLSTMBuilder(2, INPUT, HIDDEN, pc),
    "StandardSoftmaxBuilder": lambda dy, pc: dy.StandardSoftmaxBuilder(3, 4, pc),
    "VanillaLSTMBuilder": lambda dy, pc: dy.VanillaLSTMBuilder(2, INPUT, HIDDEN, pc, True),
}


def values_of(p: Any) -> np.ndarray:
    """The float32 values in memory order."""
    array = np.asarray(p.as_array(), dtype=np.float32)
    if type(p).__name__ == "LookupParameters":
        return np.concatenate([row.reshape(-1, order="F") for row in array])
    return array.reshape(-1, order="F")


def unbound(meta: Path) -> bytes:
    """The contents of a .meta file without what binds it to its .data: DyNet does not write that."""
    binding = rb"(?s)\A(\x80\x04)\x8c.dynet_compat: [.]data has \d+ bytes, crc32 [0-9a-f]{8}0"
    contents, count = re.subn(binding, rb"\1", meta.read_bytes())
    assert count == 1 or not contents, "%s does not say which .data file belongs to it" % meta
    return contents


def unbind(base: Path) -> None:
    """Lets a pair be changed by hand."""
    meta = base.with_name(base.name + ".meta")
    meta.write_bytes(unbound(meta))


def fill(pc: Any, seed: int) -> None:
    """Fixed values of many magnitudes."""
    rng = np.random.RandomState(seed)
    for p in pc.parameters_list():
        p.set_value(_numbers(rng, p.shape()))
    for p in pc.lookup_parameters_list():
        shape = p.shape()
        for row in range(shape[0]):
            p.init_row(row, [float(x) for x in _numbers(rng, (int(np.prod(shape[1:])),))])


def _numbers(rng: Any, shape: Any) -> np.ndarray:
    values = rng.randn(*shape) * 10.0 ** rng.randint(-12, 8, size=shape)
    values[rng.rand(*shape) < 0.1] = 0.0
    return values.astype(np.float32)


def made(dy: Any, name: str) -> tuple[Any, list[Any]]:
    """A new collection and the objects of a model, with fixed values."""
    pc = dy.ParameterCollection()
    objects = MODELS[name](dy, pc)
    fill(pc, sum(map(ord, name)))
    return pc, objects


def write_texts(dy: Any, folder: str) -> None:
    """Text files of every kind: keys, appending, gradients, weight decay, infinite values."""
    pc, objects = made(dy, "parameters")
    pc.save(folder + "/key.txt", "/some/key")
    pc.save(folder + "/append.txt")
    objects[2].save(folder + "/append.txt", "key", True)
    objects[1].save(folder + "/append.txt", append=True)
    pc, objects = made(dy, "mixed")
    dy.renew_cg()
    table = objects[2]
    loss = dy.sum_elems(objects[0]) + dy.dot_product(table[1], table[2]) + dy.sum_elems(table[1])
    loss.backward()
    pc.save(folder + "/gradients.txt")
    trainer = dy.SimpleSGDTrainer(pc, 0.25)
    trainer.set_clip_threshold(0)  # a norm is rounded in another order
    trainer.update()
    pc.save(folder + "/updated.txt")
    decaying = dy.ParameterCollection()
    decaying.set_weight_decay(0.125)
    p = decaying.add_parameters((2, 3))
    fill(decaying, 4)
    dy.renew_cg()
    dy.sum_elems(p).backward()
    dy.SimpleSGDTrainer(decaying, 0.5).update()
    decaying.save(folder + "/decay.txt")
    for name in COLLECTIONS:
        if hasattr(dy, name):
            pc = dy.ParameterCollection()
            COLLECTIONS[name](dy, pc)
            fill(pc, 6)
            pc.save("%s/%s.txt" % (folder, name))


def write_special(dy: Any, folder: str) -> None:
    """Values that are no numbers. Their byte count is wrong in DyNet's file."""
    pc = dy.ParameterCollection()
    p = pc.add_parameters((2, 2))
    pc.add_parameters(2)
    fill(pc, 3)
    p.set_value(np.array([[np.inf, 1.5], [-np.inf, np.nan]]))
    pc.save(folder + "/special.txt")
