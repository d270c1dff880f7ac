"""The programs for this package: written for one instance, nothing in them batches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import dynet_compat as dy
import models_in_dynet
import numpy as np

from .data import PROGRAMS, RATE, arrays_of, instances_of

Arrays = dict[str, "np.ndarray[Any, Any]"]


def parameters(pc: Any, arrays: Arrays) -> SimpleNamespace:
    """Those that no builder has, by name."""
    made = SimpleNamespace()
    for name, array in arrays.items():
        lookup = name.startswith("table_")
        setattr(made, name, (pc.lookup_parameters_from_numpy if lookup else pc.parameters_from_numpy)(array))
    return made


def lstm(pc: Any, arrays: Arrays, name: str) -> Any:
    """A builder with the values of `name_x`, `name_h` and `name_b`, which are taken out of the arrays."""
    values = [arrays.pop(f"{name}_{part}") for part in "xhb"]
    size, inputs = values[1].shape[1], values[0].shape[1]
    builder = dy.VanillaLSTMBuilder(1, inputs, size, pc)
    for parameter, value in zip(builder.get_parameters()[0], values):
        parameter.set_value(value)
    return builder


def both_ways(forward: Any, backward: Any, inputs: list[Any]) -> tuple[list[Any], list[Any]]:
    return (
        forward.initial_state().transduce(inputs),
        backward.initial_state().transduce(inputs[::-1])[::-1],
    )


class Tagger:
    def __init__(self, pc: Any, arrays: Arrays) -> None:
        self.characters = lstm(pc, arrays, "character_f"), lstm(pc, arrays, "character_b")
        self.words = lstm(pc, arrays, "word_f"), lstm(pc, arrays, "word_b")
        self.p = parameters(pc, arrays)

    def embed(self, word: int, spelling: list[int]) -> Any:
        before, after = both_ways(*self.characters, [self.p.table_characters[c] for c in spelling])
        return dy.concatenate([self.p.table_words[word], before[-1], after[0]])

    def losses(self, sentence: list[Any]) -> list[Any]:
        p = self.p
        before, after = both_ways(*self.words, [self.embed(word, spelling) for word, spelling, _ in sentence])
        return [
            dy.pickneglogsoftmax(p.V * dy.concatenate([b, a]) + p.v, tag)
            for b, a, (_, _, tag) in zip(before, after, sentence)
        ]


class Translator:
    def __init__(self, pc: Any, arrays: Arrays) -> None:
        self.encoder = lstm(pc, arrays, "encoder_f"), lstm(pc, arrays, "encoder_b")
        self.decoder = lstm(pc, arrays, "decoder")
        self.p = parameters(pc, arrays)
        self.size = arrays["A_query"].shape[1]

    def losses(self, instance: Any) -> list[Any]:
        p = self.p
        source, target = instance
        before, after = both_ways(*self.encoder, [p.table_source[word] for word in source])
        states = dy.concatenate_cols([dy.concatenate([b, a]) for b, a in zip(before, after)])
        keys = p.A_keys * states
        state, h, losses = self.decoder.initial_state(), dy.zeros(self.size), []
        for last, word in zip(target, target[1:]):
            scores = p.a * dy.tanh(dy.colwise_add(keys, p.A_query * h))
            context = states * dy.softmax(dy.transpose(scores))
            state = state.add_input(dy.concatenate([p.table_target[last], context]))
            h = state.output()
            losses.append(dy.pickneglogsoftmax(p.V * h + p.v, word))
        return losses


class LanguageModel:
    def __init__(self, pc: Any, arrays: Arrays) -> None:
        self.lstm = lstm(pc, arrays, "lstm")
        self.p = parameters(pc, arrays)

    def losses(self, words: list[int]) -> list[Any]:
        p = self.p
        states = self.lstm.initial_state().transduce([p.table_words[word] for word in words[:-1]])
        return [dy.pickneglogsoftmax(p.V * h + p.v, word) for h, word in zip(states, words[1:])]


WRITTEN = {"tagger": Tagger, "translator": Translator, "language model": LanguageModel}


class OurSide:
    def __init__(self, program: str, hidden: int) -> None:
        self.program, self.hidden = program, hidden

    def load(self, path: object = None) -> tuple[list[Any], None]:
        return instances_of(self.program, self.hidden), None

    def build(self, vocabulary: None, hidden: int) -> tuple[Any, Any]:
        pc = dy.ParameterCollection()
        arrays = arrays_of(self.program, hidden)
        if self.program in WRITTEN:
            model = WRITTEN[self.program](pc, arrays)
        else:
            model = models_in_dynet.build(PROGRAMS[self.program], pc, hidden, arrays)
        trainer = dy.SimpleSGDTrainer(pc, RATE)
        trainer.set_clip_threshold(-1)
        return model, trainer

    def train_batch(self, model: Any, trainer: Any, batch: list[Any]) -> float:
        dy.renew_cg()
        if getattr(PROGRAMS[self.program], "decides", False):  # reads values on its way
            parts = dy.batch_map(model.losses, batch)
        else:
            parts = [model.losses(instance) for instance in batch]
        loss = dy.esum([one for part in parts for one in part])
        value = float(loss.value())
        loss.backward()
        trainer.update()
        return value
