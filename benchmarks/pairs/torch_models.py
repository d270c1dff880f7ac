"""The models of ../models as they are written for PyTorch: gates in one product, sequences by nn.RNN."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from models.stack_rnn import SHIFT
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from .with_torch import Arrays, Program, embedding, fill, linear, parameter


class BiRNN(Program):
    def __init__(self, arrays: Arrays) -> None:
        super().__init__()
        a = arrays
        size = len(a["b_f"])
        self.words = embedding(a["table_words"])
        self.rnn = nn.RNN(size, size, batch_first=True, bidirectional=True)
        fill(self.rnn, "_l0", a["W_f"], a["U_f"], a["b_f"])
        fill(self.rnn, "_l0_reverse", a["W_b"], a["U_b"], a["b_b"])
        self.start = parameter(np.stack([a["start_f"], a["start_b"]]))
        self.top = linear(np.concatenate([a["V_f"], a["V_b"]], 1), a["c"])

    def prepare(self, instance: Any) -> Any:
        words, labels = zip(*instance)
        return torch.tensor(words), torch.tensor(labels)

    def one(self, instance: Any) -> Tensor:
        words, labels = instance
        states, _ = self.rnn(self.words(words), self.start)
        return F.cross_entropy(self.top(states), labels, reduction="sum")

    def batch(self, instances: list[Any]) -> Tensor:
        words = pack_sequence([words for words, _ in instances], enforce_sorted=False)
        labels = pack_sequence([labels for _, labels in instances], enforce_sorted=False)
        start = self.start[:, None].expand(-1, len(instances), -1).contiguous()
        states, _ = self.rnn(words._replace(data=self.words(words.data)), start)
        return F.cross_entropy(self.top(states.data), labels.data, reduction="sum")


class TreeLSTM(Program):
    def __init__(self, arrays: Arrays) -> None:
        super().__init__()
        a = arrays
        self.words = embedding(a["table_words"])
        self.leaf = parameter(np.concatenate([a["W_i"], a["W_o"], a["W_u"]]))
        left = np.concatenate([a[name] for name in ("l_i", "l_o", "l_u", "ll", "rl")])
        right = np.concatenate([a[name] for name in ("r_i", "r_o", "r_u", "lr", "rr")])
        self.inner = parameter(np.concatenate([left, right], 1))
        self.bias = parameter(np.concatenate([a["b_i"], a["b_o"], a["b_u"]]))
        self.forget = parameter(a["b_f"])
        self.top = linear(a["V"], a["c"])

    def leaf_states(self, x: Tensor) -> tuple[Tensor, Tensor]:
        i, o, u = F.linear(x, self.leaf, self.bias).chunk(3, -1)
        c = i.sigmoid() * u.tanh()
        return o.sigmoid() * c.tanh(), c

    def inner_states(self, children: Tensor, cl: Tensor, cr: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        i, o, u, fl, fr = F.linear(children, self.inner, bias).chunk(5, -1)
        c = i.sigmoid() * u.tanh() + fl.sigmoid() * cl + fr.sigmoid() * cr
        return o.sigmoid() * c.tanh(), c

    def inner_bias(self) -> Tensor:
        return torch.cat([self.bias, self.forget, self.forget])

    def prepare(self, instance: Any) -> Any:
        """The tree with tensors for its words; and its nodes, children first: height, left, right, word."""
        tree, label = instance
        nodes: list[tuple[int, int, int, int]] = []

        def visit(tree: Any) -> tuple[Any, int]:
            if isinstance(tree, int):
                nodes.append((0, 0, 0, tree))
                return torch.tensor(tree), len(nodes) - 1
            (left, at_left), (right, at_right) = visit(tree[0]), visit(tree[1])
            nodes.append((1 + max(nodes[at_left][0], nodes[at_right][0]), at_left, at_right, 0))
            return (left, right), len(nodes) - 1

        return visit(tree)[0], torch.tensor(label), np.array(nodes)

    def state(self, tree: Any, bias: Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(tree, Tensor):
            return self.leaf_states(self.words(tree))
        (hl, cl), (hr, cr) = self.state(tree[0], bias), self.state(tree[1], bias)
        return self.inner_states(torch.cat([hl, hr]), cl, cr, bias)

    def one(self, instance: Any) -> Tensor:
        tree, label, _ = instance
        h, _ = self.state(tree, self.inner_bias())
        return F.cross_entropy(self.top(h), label)

    def batch(self, instances: list[Any]) -> Tensor:
        """Level by level: all leaves of all trees, then the nodes of height 1, and so on."""
        nodes = np.concatenate([nodes for _, _, nodes in instances])
        sizes = np.array([len(nodes) for _, _, nodes in instances])
        first = np.cumsum(sizes) - sizes
        nodes[:, 1:3] += np.repeat(first, sizes)[:, None]
        order = np.argsort(nodes[:, 0], kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        heights = np.bincount(nodes[:, 0]).tolist()
        nodes = nodes[order]
        children = torch.from_numpy(place[nodes[:, 1:3]])
        bias = self.inner_bias()
        leaves = torch.cat(self.leaf_states(self.words(torch.from_numpy(nodes[: heights[0], 3]))), 1)
        size = leaves.shape[1] // 2
        states = leaves.new_empty(len(nodes), 2 * size)
        states[: heights[0]] = leaves
        begin = heights[0]
        for count in heights[1:]:
            level = slice(begin, begin + count)
            h, c = states[children[level]].chunk(2, -1)
            states[level] = torch.cat(self.inner_states(h.flatten(1), *c.unbind(1), bias), 1)
            begin += count
        roots = torch.from_numpy(place[first + sizes - 1])
        labels = torch.stack([label for _, label, _ in instances])
        return F.cross_entropy(self.top(states[roots, :size]), labels, reduction="sum")


class StackRNN(Program):
    def __init__(self, arrays: Arrays) -> None:
        super().__init__()
        a = arrays
        size = len(a["b_s"])
        self.words = embedding(a["table_words"])
        self.ahead = nn.RNN(size, size, batch_first=True)
        fill(self.ahead, "_l0", a["W_b"], a["U_b"], a["b_b"])
        self.reduce = linear(np.concatenate([a["R_l"], a["R_r"]], 1), a["b_r"])
        self.push = linear(np.concatenate([a["W_s"], a["U_s"]], 1), a["b_s"])
        self.hidden = linear(np.concatenate([a["H_s"], a["H_b"]], 1), a["b_h"])
        self.top = linear(a["A"], a["a"])
        self.empty, self.end = parameter(a["empty"]), parameter(a["end"])

    def prepare(self, instance: Any) -> Any:
        words, actions = instance
        return torch.tensor(words[::-1]), actions

    def one(self, instance: Any) -> Tensor:
        words, actions = instance
        xs = self.words(words)
        buffer = list(xs)
        aheads = [self.end, *self.ahead(xs, self.end[None])[0]]
        stack: list[tuple[Any, Tensor]] = [(None, self.empty)]
        scores = []
        for action in actions:
            score = self.top(self.hidden(torch.cat([stack[-1][1], aheads[len(buffer)]])).relu())
            score.tolist()  # would decide; `action` does
            scores.append(score)
            if action == SHIFT:
                x = buffer.pop()
            else:
                right, left = stack.pop()[0], stack.pop()[0]
                x = self.reduce(torch.cat([left, right])).tanh()
            stack.append((x, self.push(torch.cat([x, stack[-1][1]])).tanh()))
        return F.cross_entropy(torch.stack(scores), torch.tensor(actions), reduction="sum")

    def batch(self, instances: list[Any]) -> Tensor:
        """All parsers take a step at once; those that reduce are computed together, as those that shift."""
        instances = sorted(instances, key=lambda instance: -len(instance[1]))
        packed = pack_sequence([words for words, _ in instances], enforce_sorted=False)
        packed = packed._replace(data=self.words(packed.data))
        start = self.end.expand(1, len(instances), -1).contiguous()
        outputs, _ = pad_packed_sequence(self.ahead(packed, start)[0], batch_first=True)
        aheads = [[self.end, *row] for row in (row.unbind() for row in outputs)]
        xs, _ = pad_packed_sequence(packed, batch_first=True)
        buffers = [list(row[: len(words)].unbind()) for row, (words, _) in zip(xs, instances)]
        stacks: list[list[tuple[Any, Tensor]]] = [[(None, self.empty)] for _ in instances]
        scores, actions = [], []
        for step in range(len(instances[0][1])):
            active = sum(step < len(instance[1]) for instance in instances)
            tops = torch.stack([stack[-1][1] for stack in stacks[:active]])
            ahead = torch.stack([aheads[i][len(buffers[i])] for i in range(active)])
            score = self.top(self.hidden(torch.cat([tops, ahead], 1)).relu())
            score.tolist()  # would decide; the instances' actions do
            scores.append(score)
            chosen = [instance[1][step] for instance in instances[:active]]
            actions += chosen
            xs_new = self.take(chosen, buffers, stacks)
            below = torch.stack([stack[-1][1] for stack in stacks[:active]])
            states = self.push(torch.cat([torch.stack(xs_new), below], 1)).tanh()
            for stack, x, state in zip(stacks, xs_new, states.unbind()):
                stack.append((x, state))
        return F.cross_entropy(torch.cat(scores), torch.tensor(actions), reduction="sum")

    def take(self, actions: list[int], buffers: list[Any], stacks: list[Any]) -> list[Tensor]:
        """What each parser pushes: the next word, or what it has made of two entries of its stack."""
        reducing = [i for i, action in enumerate(actions) if action != SHIFT]
        made: dict[int, Tensor] = {}
        if reducing:
            right = torch.stack([stacks[i].pop()[0] for i in reducing])
            left = torch.stack([stacks[i].pop()[0] for i in reducing])
            made = dict(zip(reducing, self.reduce(torch.cat([left, right], 1)).tanh().unbind()))
        return [buffers[i].pop() if i not in made else made[i] for i in range(len(actions))]


CLASSES = {"BiRNN": BiRNN, "TreeLSTM": TreeLSTM, "StackRNN": StackRNN}
