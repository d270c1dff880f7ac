"""Nanoseconds of planning per node, at about 40,000 nodes.

Graphs of 64 instances: TreeLSTMs over binary trees of unequal size, and LSTMs over sequences of
unequal length, both from primitive operations. "cold" is the first graph of its shape in this
process; "same" builds that graph again, so that its plan can be remembered; "new" builds a graph
that was never seen, from other trees and lengths, after warming up. Only planning is counted
(`timing()["plan"]`): from the demand for the loss to the finished list of launches.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dynet_compat as dy
from turns import machine

TARGET = 10.0  # ns per node
HIDDEN, WORDS, LABELS = 16, 100, 5  # planning does not depend on them
INSTANCES = 64


class Lstm:
    """LSTM with one matrix per gate, and a loss at every step."""

    def __init__(self) -> None:
        self.pc = pc = dy.ParameterCollection()
        self.embed = pc.add_lookup_parameters((WORDS, HIDDEN))
        self.gates = {
            gate: (
                pc.add_parameters(HIDDEN),
                pc.add_parameters((HIDDEN, HIDDEN)),
                pc.add_parameters((HIDDEN, HIDDEN)),
            )
            for gate in "ifog"
        }
        self.first = pc.add_parameters(HIDDEN)
        self.W = pc.add_parameters((LABELS, HIDDEN))

    def gate(self, name: str, x: dy.Expression, h: dy.Expression) -> dy.Expression:
        b, W, U = self.gates[name]
        return dy.affine_transform([b, W, x, U, h])

    def step(self, x: dy.Expression, h: dy.Expression, c: dy.Expression) -> tuple:
        i, f, o = (dy.logistic(self.gate(name, x, h)) for name in "ifo")
        c = dy.cmult(i, dy.tanh(self.gate("g", x, h))) + dy.cmult(f, c)
        return dy.cmult(o, dy.tanh(c)), c

    def loss(self, words: list[int]) -> dy.Expression:
        h = c = self.first
        losses = []
        for word in words:
            h, c = self.step(self.embed[word], h, c)
            losses.append(dy.pickneglogsoftmax(self.W * h, word % LABELS))
        return dy.esum(losses)

    def instance(self, rng: random.Random) -> list[int]:
        return [rng.randrange(WORDS) for _ in range(rng.randint(21, 63))]


class TreeLstm(Lstm):
    """Binary TreeLSTM, and a loss at every node."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs = {
            gate: (
                self.pc.add_parameters(HIDDEN),
                self.pc.add_parameters((HIDDEN, HIDDEN)),
                self.pc.add_parameters((HIDDEN, HIDDEN)),
            )
            for gate in "ioulr"
        }

    def join(self, left: tuple, right: tuple) -> tuple:
        (h1, c1), (h2, c2) = left, right
        sums = {g: dy.affine_transform([b, L, h1, R, h2]) for g, (b, L, R) in self.pairs.items()}
        i, o, keep_left, keep_right = (dy.logistic(sums[gate]) for gate in "iolr")
        c = dy.cmult(i, dy.tanh(sums["u"])) + dy.cmult(keep_left, c1) + dy.cmult(keep_right, c2)
        return dy.cmult(o, dy.tanh(c)), c

    def encode(self, tree: Any, losses: list) -> tuple:
        if isinstance(tree, int):
            state = self.step(self.embed[tree], self.first, self.first)
        else:
            state = self.join(self.encode(tree[0], losses), self.encode(tree[1], losses))
        losses.append(dy.pickneglogsoftmax(self.W * state[0], 1))
        return state

    def loss(self, tree: Any) -> dy.Expression:
        losses: list[dy.Expression] = []
        self.encode(tree, losses)
        return dy.esum(losses)

    def instance(self, rng: random.Random) -> Any:
        def grow(leaves: int) -> Any:
            if leaves == 1:
                return rng.randrange(WORDS)
            left = rng.randint(1, leaves - 1)
            return grow(left), grow(leaves - left)

        return grow(rng.randint(10, 31))


def plan_once(model: Lstm, instances: list) -> dict[str, float]:
    """Record, compute and forget one graph; what planning it took."""
    dy.renew_cg()
    loss = dy.esum([model.loss(instance) for instance in instances])
    dy._core.reset_timing()
    loss.value()
    timing = dy._core.timing()
    nodes = timing["planned_nodes"]
    return {"nodes": nodes, "launches": timing["launches"], "ns": timing["plan"] / nodes * 1e9}


def best(work: Callable[[], list[dict[str, float]]], repeats: int) -> dict[str, float]:
    """The median graph of the best repeat."""
    medians = []
    for _ in range(repeats):
        graphs = sorted(work(), key=lambda graph: graph["ns"])
        medians.append(graphs[len(graphs) // 2])
    return min(medians, key=lambda graph: graph["ns"])


def measure(model: Lstm, args: argparse.Namespace) -> dict[str, dict[str, float]]:
    rng = random.Random(1)

    def fresh() -> list:
        return [model.instance(rng) for _ in range(INSTANCES)]

    same = fresh()
    result = {"cold": plan_once(model, same)}
    result["same"] = best(lambda: [plan_once(model, same) for _ in range(args.graphs)], args.repeats)
    result["new"] = best(lambda: [plan_once(model, fresh()) for _ in range(args.graphs)], args.repeats)
    return result


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=7, help="graphs per median")
    parser.add_argument("--repeats", type=int, default=3, help="medians per figure")
    parser.add_argument("--check", action="store_true", help="exit status 1 when the target is missed")
    parser.add_argument("--output", metavar="FILE", help="write the numbers as JSON")
    args = parser.parse_args(argv)
    header = f"{'planning':12} {'graph':6} {'nodes':>7} {'launches':>8} {'us':>8} {'ns/node':>8}"
    print(f"{header}   target <= {TARGET:g}")
    rows = []
    for name, model in (("treelstm", TreeLstm()), ("lstm", Lstm())):
        for graph, figures in measure(model, args).items():
            missed = graph != "cold" and figures["ns"] > TARGET
            rows.append({"model": name, "graph": graph, **figures, "missed": missed})
            microseconds = figures["ns"] * figures["nodes"] / 1e3
            print(
                f"{name:12} {graph:6} {figures['nodes']:7} {figures['launches']:8} {microseconds:8.0f}"
                f" {figures['ns']:8.1f}{'   over' * missed}",
                flush=True,
            )
    ns = statistics.mean(row["ns"] for row in rows if row["graph"] != "cold")
    print(f"mean of the warm graphs: {ns:.1f} ns per node")
    if args.output:
        result = {"machine": machine(), "target": TARGET, "rows": rows}
        Path(args.output).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if args.check and any(row["missed"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
