"""The tagger, the translator and the language model for PyTorch: nn.LSTM over packed or padded sequences."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence, pad_sequence

from .with_torch import Arrays, Program, embedding, linear, lstm, lstm_cell


def packed(sequences: list[Tensor]) -> PackedSequence:
    return pack_sequence(sequences, enforce_sorted=False)


class Tagger(Program):
    def __init__(self, arrays: Arrays) -> None:
        super().__init__()
        self.words = embedding(arrays["table_words"])
        self.characters = embedding(arrays["table_characters"])
        self.speller = lstm(arrays, "character_f", "character_b")
        self.lstm = lstm(arrays, "word_f", "word_b")
        self.top = linear(arrays["V"], arrays["v"])

    def prepare(self, instance: Any) -> Any:
        words, spellings, tags = zip(*instance)
        return torch.tensor(words), [torch.tensor(spelling) for spelling in spellings], torch.tensor(tags)

    def one(self, instance: Any) -> Tensor:
        words, spellings, tags = instance
        ends = torch.stack([self.speller(self.characters(s))[1][0].flatten() for s in spellings])
        states, _ = self.lstm(torch.cat([self.words(words), ends], 1))
        return F.cross_entropy(self.top(states), tags, reduction="sum")

    def batch(self, instances: list[Any]) -> Tensor:
        spellings = packed([spelling for _, spellings, _ in instances for spelling in spellings])
        ends = self.speller(spellings._replace(data=self.characters(spellings.data)))[1][0]
        words = self.words(torch.cat([words for words, _, _ in instances]))
        inputs = torch.cat([words, ends[0], ends[1]], 1).split([len(words) for words, _, _ in instances])
        states, _ = self.lstm(packed(list(inputs)))
        tags = packed([tags for _, _, tags in instances])
        return F.cross_entropy(self.top(states.data), tags.data, reduction="sum")


class Translator(Program):
    def __init__(self, arrays: Arrays) -> None:
        super().__init__()
        self.source, self.target = embedding(arrays["table_source"]), embedding(arrays["table_target"])
        self.encoder = lstm(arrays, "encoder_f", "encoder_b")
        self.decoder = lstm_cell(arrays, "decoder")
        self.keys, self.query = linear(arrays["A_keys"]), linear(arrays["A_query"])
        self.score = linear(arrays["a"])
        self.top = linear(arrays["V"], arrays["v"])
        self.size = len(arrays["A_query"])

    def prepare(self, instance: Any) -> Any:
        source, target = instance
        return torch.tensor(source), torch.tensor(target)

    def one(self, instance: Any) -> Tensor:
        source, target = instance
        states, _ = self.encoder(self.source(source))
        keys = self.keys(states)
        h = c = torch.zeros(self.size)
        outputs = []
        for word in self.target(target[:-1]).unbind():
            weights = self.score((keys + self.query(h)).tanh()).squeeze(1).softmax(0)
            h, c = self.decoder(torch.cat([word, weights @ states]), (h, c))
            outputs.append(h)
        return F.cross_entropy(self.top(torch.stack(outputs)), target[1:], reduction="sum")

    def batch(self, instances: list[Any]) -> Tensor:
        source = packed([source for source, _ in instances])
        encoded, _ = self.encoder(source._replace(data=self.source(source.data)))
        states, lengths = pad_packed_sequence(encoded, batch_first=True)
        absent = torch.arange(states.shape[1]) >= lengths[:, None]
        target = pad_sequence([target for _, target in instances], batch_first=True, padding_value=-1)
        keys = self.keys(states)
        h = c = torch.zeros(len(instances), self.size)
        outputs = []
        for word in self.target(target[:, :-1].clamp(min=0)).unbind(1):
            scores = self.score((keys + self.query(h)[:, None]).tanh()).squeeze(2)
            weights = scores.masked_fill(absent, -torch.inf).softmax(1)
            context = torch.bmm(weights[:, None], states).squeeze(1)
            h, c = self.decoder(torch.cat([word, context], 1), (h, c))
            outputs.append(h)
        wanted = target[:, 1:]
        kept = wanted >= 0
        return F.cross_entropy(self.top(torch.stack(outputs, 1)[kept]), wanted[kept], reduction="sum")


class LanguageModel(Program):
    def __init__(self, arrays: Arrays) -> None:
        super().__init__()
        self.words = embedding(arrays["table_words"])
        self.lstm = lstm(arrays, "lstm")
        self.top = linear(arrays["V"], arrays["v"])

    def prepare(self, instance: Any) -> Any:
        return torch.tensor(instance[:-1]), torch.tensor(instance[1:])

    def one(self, instance: Any) -> Tensor:
        words, following = instance
        states, _ = self.lstm(self.words(words))
        return F.cross_entropy(self.top(states), following, reduction="sum")

    def batch(self, instances: list[Any]) -> Tensor:
        words = packed([words for words, _ in instances])
        following = packed([following for _, following in instances])
        states, _ = self.lstm(words._replace(data=self.words(words.data)))
        return F.cross_entropy(self.top(states.data), following.data, reduction="sum")


CLASSES = {"tagger": Tagger, "translator": Translator, "language model": LanguageModel}
