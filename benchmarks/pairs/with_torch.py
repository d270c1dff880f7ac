"""PyTorch's side of the programs, and what they have in common: layers with given initial values."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .data import RATE, arrays_of, instances_of

Arrays = dict[str, "np.ndarray[Any, Any]"]


def parameter(array: Any) -> nn.Parameter:
    return nn.Parameter(torch.tensor(array))


def embedding(array: Any) -> nn.Embedding:
    return nn.Embedding.from_pretrained(torch.tensor(array), freeze=False)


def linear(weight: Any, bias: Any = None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = parameter(weight)
    if bias is not None:
        layer.bias = parameter(bias)
    return layer


def gates(array: Any) -> Any:
    """From DyNet's order (input, forget, output, update) to PyTorch's."""
    i, f, o, g = np.split(array, 4)
    return np.concatenate([i, f, g, o])


def gate_biases(array: Any) -> Any:
    """DyNet adds 1 to the forget gate itself."""
    size = len(array) // 4
    return gates(array) + np.repeat(np.float32([0, 1, 0, 0]), size)


def fill(layer: nn.Module, ending: str, W: Any, U: Any, b: Any) -> None:
    """Set one direction of a recurrent layer or cell. Its second bias stays 0: DyNet's have one."""
    setattr(layer, "weight_ih" + ending, parameter(W))
    setattr(layer, "weight_hh" + ending, parameter(U))
    setattr(layer, "bias_ih" + ending, parameter(b))
    second = nn.Parameter(torch.zeros(len(b)), requires_grad=False)
    setattr(layer, "bias_hh" + ending, second)


def lstm_values(arrays: Arrays, name: str) -> tuple[Any, Any, Any]:
    return gates(arrays[name + "_x"]), gates(arrays[name + "_h"]), gate_biases(arrays[name + "_b"])


def lstm(arrays: Arrays, *names: str) -> nn.LSTM:
    """Of one direction, or of two."""
    inputs, size = arrays[names[0] + "_x"].shape[1], arrays[names[0] + "_h"].shape[1]
    layer = nn.LSTM(inputs, size, batch_first=True, bidirectional=len(names) == 2)
    for name, ending in zip(names, ("_l0", "_l0_reverse")):
        fill(layer, ending, *lstm_values(arrays, name))
    layer.flatten_parameters()
    return layer


def lstm_cell(arrays: Arrays, name: str) -> nn.LSTMCell:
    cell = nn.LSTMCell(arrays[name + "_x"].shape[1], arrays[name + "_h"].shape[1])
    fill(cell, "", *lstm_values(arrays, name))
    return cell


class Program(nn.Module):
    """What each of them defines."""

    def prepare(self, instance: Any) -> Any:
        """Tensors of an instance, made once when the data are loaded."""
        raise NotImplementedError

    def one(self, instance: Any) -> Tensor:
        """Loss of an instance."""
        raise NotImplementedError

    def batch(self, instances: list[Any]) -> Tensor:
        """Sum of the losses of a minibatch, batched by hand."""
        raise NotImplementedError


class TorchSide:
    def __init__(self, program: str, hidden: int, batched: bool) -> None:
        from . import torch_models, torch_programs

        classes = {**torch_models.CLASSES, **torch_programs.CLASSES}
        self.program, self.hidden, self.batched = program, hidden, batched
        self.model: Program = classes[program](arrays_of(program, hidden))

    def load(self, path: object = None) -> tuple[list[Any], None]:
        return [self.model.prepare(instance) for instance in instances_of(self.program, self.hidden)], None

    def build(self, vocabulary: None, hidden: int) -> tuple[Any, Any]:
        trained = [p for p in self.model.parameters() if p.requires_grad]
        return self.model, torch.optim.SGD(trained, RATE)

    def train_batch(self, model: Program, trainer: Any, batch: list[Any]) -> float:
        if self.batched:
            loss = model.batch(batch)
        else:
            loss = torch.stack([model.one(instance) for instance in batch]).sum()
        trainer.zero_grad()
        loss.backward()
        trainer.step()
        return loss.item()
