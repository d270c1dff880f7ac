"""Instances and initial parameters of the programs, the same for every library."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
from models import MODELS
from models.base import XNLI_LENGTHS, length
from models.ops import initial

COUNT = 640  # instances of a program
RATE = 2e-5  # of learning, of the sum of a minibatch's losses: small, so that rounding stays rounding
WORDS, CHARACTERS, TAGS = 2000, 64, 16


def tokens(rng: random.Random, size: int) -> int:
    return length(rng, XNLI_LENGTHS) if size > 8 else rng.randrange(2, 5)


def lstm(name: str, inputs: int, size: int) -> dict[str, tuple[int, ...]]:
    """Gates in DyNet's order: input, forget, output, update."""
    return {name + "_x": (4 * size, inputs), name + "_h": (4 * size, size), name + "_b": (4 * size,)}


class Tagger:
    """Bidirectional LSTM over words, each with the ends of a bidirectional LSTM over its characters."""

    name = "tagger"

    @staticmethod
    def parameters(size: int) -> dict[str, tuple[int, ...]]:
        tables = {"table_words": (WORDS, size), "table_characters": (CHARACTERS, 32)}
        characters = {**lstm("character_f", 32, size // 2), **lstm("character_b", 32, size // 2)}
        words = {**lstm("word_f", 2 * size, size), **lstm("word_b", 2 * size, size)}
        return {**tables, **characters, **words, "V": (TAGS, 2 * size), "v": (TAGS,)}

    @staticmethod
    def instance(rng: random.Random, size: int) -> Any:
        """(word, its characters, tag) of each token."""

        def token() -> tuple[int, list[int], int]:
            spelling = [rng.randrange(CHARACTERS) for _ in range(rng.randint(2, 10))]
            return rng.randrange(WORDS), spelling, rng.randrange(TAGS)

        return [token() for _ in range(tokens(rng, size))]


class Translator:
    """Bidirectional encoder, additive attention, and a decoder that reads the last word and the context."""

    name = "translator"

    @staticmethod
    def parameters(size: int) -> dict[str, tuple[int, ...]]:
        tables = {"table_source": (WORDS, size), "table_target": (WORDS, size)}
        encoder = {**lstm("encoder_f", size, size), **lstm("encoder_b", size, size)}
        attention = {"A_keys": (size, 2 * size), "A_query": (size, size), "a": (1, size)}
        decoder = {**lstm("decoder", 3 * size, size), "V": (WORDS, size), "v": (WORDS,)}
        return {**tables, **encoder, **attention, **decoder}

    @staticmethod
    def instance(rng: random.Random, size: int) -> Any:
        """Source words, and target words between two marks (0)."""
        source = [rng.randrange(1, WORDS) for _ in range(tokens(rng, size))]
        target = [rng.randrange(1, WORDS) for _ in range(max(1, len(source) + rng.randint(-3, 3)))]
        return source, [0, *target, 0]


class LanguageModel:
    """LSTM over the words of a sentence, and the next word's probability at each."""

    name = "language model"

    @staticmethod
    def parameters(size: int) -> dict[str, tuple[int, ...]]:
        return {"table_words": (WORDS, size), **lstm("lstm", size, size), "V": (WORDS, size), "v": (WORDS,)}

    @staticmethod
    def instance(rng: random.Random, size: int) -> Any:
        """Words between two marks (0)."""
        return [0, *(rng.randrange(1, WORDS) for _ in range(tokens(rng, size))), 0]


MODELS_USED = ("TreeLSTM", "BiRNN", "StackRNN")
PROGRAMS: Mapping[str, Any] = {
    program.name: program
    for program in (*(m for m in MODELS if m.name in MODELS_USED), Tagger, Translator, LanguageModel)
}


def arrays_of(program: str, size: int) -> dict[str, np.ndarray[Any, Any]]:
    """Initial values of the parameters, by name."""
    rng = np.random.default_rng(1)
    return {name: initial(shape, rng) for name, shape in PROGRAMS[program].parameters(size).items()}


def instances_of(program: str, size: int) -> list[Any]:
    rng = random.Random(program)
    return [PROGRAMS[program].instance(rng, size) for _ in range(COUNT)]
