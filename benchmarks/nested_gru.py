"""A recurrence inside a recurrence: what the launches of nested loops are counted with.

A tagger that reads each word with a GRU over its characters. That GRU starts from the state of another one
over the words so far, which takes its last state in. So no two words of a sentence can be read at the same
time, and words and sentences differ in length: which loops of which instances to run together is up to
the scheduler. Same interface as the examples.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import dynet_compat as dy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

import data  # noqa: E402

KIND = "tags"
EMBED = 20

State = dy.Expression


def load(path: str | None = None, limit: int | None = None) -> tuple[list, tuple]:
    """[(words as lists of character numbers, tag numbers)] and vocabularies."""
    sentences = data.load(KIND, path, limit)
    chars = data.Vocab(char for sentence in sentences for word, _ in sentence for char in word)
    tags = data.Vocab(tag for sentence in sentences for _, tag in sentence)
    instances = [([[chars[c] for c in w] for w, _ in s], [tags[t] for _, t in s]) for s in sentences]
    return instances, (chars, tags)


class Gru:
    """A GRU cell from primitive operations."""

    def __init__(self, inputs: int, hidden: int, pc: dy.ParameterCollection) -> None:
        self.weights = [
            [pc.add_parameters(d) for d in (hidden, (hidden, inputs), (hidden, hidden))] for _ in "zru"
        ]

    def step(self, x: dy.Expression, h: State) -> State:
        (bz, Wz, Uz), (br, Wr, Ur), (bu, Wu, Uu) = self.weights
        z = dy.logistic(dy.affine_transform([bz, Wz, x, Uz, h]))
        r = dy.logistic(dy.affine_transform([br, Wr, x, Ur, h]))
        u = dy.tanh(dy.affine_transform([bu, Wu, x, Uu, dy.cmult(r, h)]))
        return dy.cmult(1 - z, u) + dy.cmult(z, h)


class Tagger:
    """`cells`: builder (dy.GRUBuilder) or primitive (the cell above)."""

    def __init__(self, vocab: tuple, hidden: int, cells: str = "builder") -> None:
        chars, tags = vocab
        self.pc = pc = dy.ParameterCollection()
        self.embed = pc.add_lookup_parameters((len(chars), EMBED))
        self.inner = self.cell(cells, EMBED, hidden)
        self.outer = self.cell(cells, hidden, hidden)
        self.first = pc.add_parameters(hidden)
        self.down = pc.add_parameters((hidden, hidden))
        self.W = pc.add_parameters((len(tags), hidden))
        self.b = pc.add_parameters(len(tags), init=0)

    def cell(self, kind: str, inputs: int, hidden: int) -> Callable[[dy.Expression, State], State]:
        """One step: input and state to state."""
        if kind == "primitive":
            return Gru(inputs, hidden, self.pc).step
        builder = dy.GRUBuilder(1, inputs, hidden, self.pc)
        return lambda x, h: builder.initial_state([h]).add_input(x).output()

    def loss(self, instance: tuple) -> dy.Expression:
        words, tags = instance
        state, losses = self.first, []
        for word, tag in zip(words, tags):
            inner = dy.tanh(self.down * state)
            for char in word:
                inner = self.inner(self.embed[char], inner)
            state = self.outer(inner, state)
            losses.append(dy.pickneglogsoftmax(dy.affine_transform([self.b, self.W, state]), tag))
        return dy.esum(losses)


def build(vocab: tuple, hidden: int, cells: str = "builder") -> tuple:
    model = Tagger(vocab, hidden, cells)
    return model, dy.AdamTrainer(model.pc)


def build_primitive(vocab: tuple, hidden: int) -> tuple:
    return build(vocab, hidden, "primitive")
