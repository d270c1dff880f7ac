"""Greedy shift-reduce parser with a stack LSTM: trained on oracle actions, decodes by reading scores."""

from __future__ import annotations

import sys

import common
import data
import numpy as np

if "--reference" in sys.argv:
    import dynet as dy
else:
    import dynet_compat as dy

KIND = "trees"
EMBED = 64
SHIFT = 0  # action 1 + label combines the two topmost subtrees under that label


def load(path: str | None = None, limit: int | None = None) -> tuple[list, tuple]:
    """[(word numbers, actions)]; the vocabulary and the number of actions."""
    trees = data.load(KIND, path, limit)
    words = data.Vocab((word for tree in trees for word in data.leaves(tree)), min_count=2)
    instances = [([words[w] for w in data.leaves(tree)], actions(tree)) for tree in trees]
    return instances, (words, 1 + max(max(acts) for _, acts in instances))


def actions(tree: tuple) -> list[int]:
    """The shift and reduce actions that build the tree."""
    if len(tree) == 2:
        return [SHIFT]
    return actions(tree[1]) + actions(tree[2]) + [1 + tree[0]]


class Parser:
    def __init__(self, vocab: tuple, hidden: int) -> None:
        words, n_actions = vocab
        self.pc = pc = dy.ParameterCollection()
        self.embed = pc.add_lookup_parameters((len(words), EMBED))
        self.buffer = dy.VanillaLSTMBuilder(1, EMBED, hidden, pc)
        self.stack = dy.VanillaLSTMBuilder(1, EMBED, hidden, pc)
        self.empty_buffer = pc.add_parameters(hidden)
        self.bottom = pc.add_parameters(EMBED)  # below the first subtree
        self.labels = pc.add_lookup_parameters((n_actions, EMBED))
        self.compose = pc.add_parameters((EMBED, 3 * EMBED))
        self.compose_bias = pc.add_parameters(EMBED, init=0)
        self.W1 = pc.add_parameters((hidden, 2 * hidden))
        self.b1 = pc.add_parameters(hidden, init=0)
        self.W2 = pc.add_parameters((n_actions, hidden))
        self.b2 = pc.add_parameters(n_actions, init=0)

    def reduce(self, action: int, left: dy.Expression, right: dy.Expression) -> dy.Expression:
        parts = dy.concatenate([self.labels[action], left, right])
        return dy.tanh(dy.affine_transform([self.compose_bias, self.compose, parts]))

    def parse(self, words: list[int], oracle: list[int] | None = None) -> tuple:
        """Actions taken and their losses: the oracle's actions, or the best-scored legal ones."""
        leaves = [self.embed[w] for w in words]
        # rest[i] summarises words i.. of the buffer, which the LSTM reads from the right.
        rest = self.buffer.initial_state().transduce(leaves[::-1])[::-1] + [self.empty_buffer]
        stack = [(self.stack.initial_state().add_input(self.bottom), self.bottom)]
        taken: list[int] = []
        losses: list[dy.Expression] = []
        at = 0
        while at < len(words) or len(stack) > 2:
            can_shift, can_reduce = at < len(words), len(stack) > 2
            if can_shift and not can_reduce:
                action = SHIFT  # nothing to decide
            else:
                state = dy.concatenate([stack[-1][0].output(), rest[at]])
                hidden = dy.tanh(dy.affine_transform([self.b1, self.W1, state]))
                scores = dy.affine_transform([self.b2, self.W2, hidden])
                if oracle is not None:
                    action = oracle[len(taken)]
                    losses.append(dy.pickneglogsoftmax(scores, action))
                else:
                    values = np.array(scores.value())
                    action = int(np.argmax(values)) if can_shift else 1 + int(np.argmax(values[1:]))
            taken.append(action)
            if action == SHIFT:
                subtree = leaves[at]
                at += 1
            else:
                right, left = stack.pop()[1], stack.pop()[1]
                subtree = self.reduce(action, left, right)
            stack.append((stack[-1][0].add_input(subtree), subtree))
        return taken, losses

    def loss(self, instance: tuple) -> dy.Expression:
        losses = self.parse(*instance)[1]
        return dy.esum(losses) if losses else dy.scalarInput(0.0)


def build(vocab: tuple, hidden: int) -> tuple:
    model = Parser(vocab, hidden)
    return model, dy.MomentumSGDTrainer(model.pc, 0.01)


def train_batch(model: Parser, trainer: dy.Trainer, batch: list) -> float:
    dy.renew_cg()
    loss = dy.esum([model.loss(instance) for instance in batch])
    value = loss.value()
    loss.backward()
    trainer.update()
    return value


def predict_batch(model: Parser, batch: list) -> list[list[int]]:
    outputs = []
    for words, _ in batch:
        dy.renew_cg()
        outputs.append(model.parse(words)[0])
    return outputs


def spans(acts: list[int]) -> set[tuple]:
    """The (start, end, label) of every inner node that the actions build."""
    stack: list[tuple[int, int]] = []
    found = set()
    at = 0
    for action in acts:
        if action == SHIFT:
            stack.append((at, at + 1))
            at += 1
        else:
            right, left = stack.pop(), stack.pop()
            stack.append((left[0], right[1]))
            found.add((left[0], right[1], action))
    return found


def main(argv: list[str] | None = None) -> dict:
    args = common.options(__doc__, argv, hidden=64, batch=16)
    instances, vocab = load(args.data, args.limit)
    training, held_out = common.split(instances)
    model, trainer = build(vocab, args.hidden)
    log = common.Log(args)
    for batch in common.batches(training, args):
        log.step(train_batch(model, trainer, batch), sum(len(acts) for _, acts in batch), len(batch))
    # In a binary tree both sides have equally many nodes, so precision, recall and F1 are the same.
    right = total = 0
    for guess, (_, gold) in zip(predict_batch(model, held_out), held_out):
        right += len(spans(guess) & spans(gold))
        total += len(spans(gold))
    return log.finish(f1=right / max(1, total))


if __name__ == "__main__":
    main()
