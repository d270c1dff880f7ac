"""Tensor-dependent decoding: `dy.batch_map` against the plain loop, in one run, the two taking turns.

    python benchmarks/fibers.py [--hidden 64,256] [--batch 64] [--data trees=FILE] [--json FILE]
                                [--dynet PYTHON]

Four programs whose control flow reads values: a greedy transition parser (examples/parser.py), top-down tree
generation, the same with sibling subtrees generated together (a batch_map inside), and a classifier that
leaves a stack of layers early. The plain loop is the same function called for one instance after another,
each in a graph of its own, as DyNet's scripts do; with --dynet also on the real DyNet, which that
interpreter has. Medians; results of both must be equal.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

if "--as-reference" in sys.argv:
    import dynet as dy

    sys.argv.append("--reference")  # for the examples
else:
    import dynet_compat as dy

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


# ---------------------------------------------------------------- programs


class GreedyParser:
    """The greedy stack-LSTM parser of examples/parser.py on sentences of a treebank."""

    name = "transition parser"
    target = 5.0

    def __init__(self, hidden: int, path: str | None = None, count: int = 64) -> None:
        from worker import load_example

        sys.path.insert(0, str(EXAMPLES))
        example = load_example("parser")
        instances, vocab = example.load(path)
        self.model, _ = example.build(vocab, hidden)
        step = max(1, len(instances) // count)
        self.instances = [words for words, _ in instances[::step][:count]]

    def save(self, path: str) -> None:
        self.model.pc.save(path)

    def load(self, path: str) -> None:
        self.model.pc.populate(path)

    def __call__(self, words: list[int]) -> list[int]:
        actions: list[int] = self.model.parse(words)[0]
        return actions


class TreeGenerator:
    """Generates a tree from the root down: at each node a score decides whether it has two children.

    `together`: subtrees are generated together, by a batch_map inside the outer one.
    """

    name = "top-down tree generation"
    target = 3.0
    together = False
    MOST = 6  # levels

    def __init__(self, hidden: int, count: int = 64) -> None:
        rng = np.random.RandomState(3)
        pc = dy.ParameterCollection()
        scale = 1.2 / np.sqrt(hidden)
        normal = lambda *shape: rng.normal(0, scale, shape)  # noqa: E731
        self.gates = [pc.parameters_from_numpy(normal(2 * hidden, hidden)) for _ in range(2)]
        self.states = [pc.parameters_from_numpy(normal(hidden, hidden)) for _ in range(2)]
        self.biases = [pc.parameters_from_numpy(normal(2 * hidden)) for _ in range(2)]
        self.inner = pc.parameters_from_numpy(normal(hidden, hidden))
        self.score = pc.parameters_from_numpy(rng.normal(0, 4 * scale, (1, hidden)))
        self.hidden = hidden
        self.instances = [rng.normal(0, 1, hidden) for _ in range(count)]

    def __call__(self, vector: np.ndarray) -> tuple:
        return self.grow(dy.inputTensor(vector), 0)

    def child(self, state: dy.Expression, side: int) -> dy.Expression:
        gates = dy.logistic(dy.affine_transform([self.biases[side], self.gates[side], state]))
        keep, use = gates[: self.hidden], gates[self.hidden :]
        return dy.cmult(keep, state) + dy.cmult(use, dy.tanh(self.states[side] * state))

    def grow(self, state: dy.Expression, level: int) -> tuple:
        score = self.score * dy.tanh(self.inner * state)
        if level == self.MOST or score.scalar_value() < -1.0 + 0.4 * level:
            return ()
        if self.together:
            return tuple(dy.batch_map(lambda side: self.grow(self.child(state, side), level + 1), (0, 1)))
        return tuple(self.grow(self.child(state, side), level + 1) for side in (0, 1))


class TreeGeneratorTogether(TreeGenerator):
    name = "the same, siblings together"
    together = True


class EarlyExit:
    """Residual layers with a classifier after each; a sure one ends the computation."""

    name = "early exit"
    target = 3.0
    LAYERS, CLASSES = 12, 5

    def __init__(self, hidden: int, count: int = 64) -> None:
        rng = np.random.RandomState(4)
        pc = dy.ParameterCollection()
        normal = lambda *shape: rng.normal(0, 1.0 / np.sqrt(shape[-1]), shape)  # noqa: E731
        self.up = [pc.parameters_from_numpy(normal(2 * hidden, hidden)) for _ in range(self.LAYERS)]
        self.down = [pc.parameters_from_numpy(normal(hidden, 2 * hidden)) for _ in range(self.LAYERS)]
        self.bias = [pc.parameters_from_numpy(rng.normal(0, 0.1, 2 * hidden)) for _ in range(self.LAYERS)]
        self.out = pc.parameters_from_numpy(normal(self.CLASSES, hidden))
        self.instances = [rng.normal(0, rng.uniform(0.1, 1.5), hidden) for _ in range(count)]

    def __call__(self, vector: np.ndarray) -> tuple[int, int]:
        x = dy.inputTensor(vector)
        for layer in range(self.LAYERS):
            inside = dy.rectify(dy.affine_transform([self.bias[layer], self.up[layer], x]))
            x = x + self.down[layer] * inside
            sure = dy.softmax(self.out * x).npvalue()
            if sure.max() > 0.9:
                break
        return layer, int(sure.argmax())


PROGRAMS: list[Any] = [GreedyParser, TreeGenerator, TreeGeneratorTogether, EarlyExit]


# ---------------------------------------------------------------- measuring


def plain_loop(program: Any) -> list[Any]:
    outputs = []
    for instance in program.instances:
        dy.renew_cg()
        outputs.append(program(instance))
    return outputs


def batched(program: Any, backend: str | None = None) -> list[Any]:
    dy.renew_cg()
    return dy.batch_map(program, program.instances, backend=backend)


def plain_program(program: Any) -> Any:
    """The same for the plain loop: without a batch_map inside."""
    if not program.together:
        return program
    plain = TreeGenerator.__new__(TreeGenerator)
    plain.__dict__.update(program.__dict__)
    return plain


def counts(work: Callable[[], Any]) -> dict[str, int]:
    dy._core.reset_timing()
    work()
    timing = dy._core.timing()
    return {name: timing[name] for name in ("flushes", "launches", "nodes")}


def longest(program: Any) -> int:
    """The most flushes that one instance takes alone."""
    most = 0
    for instance in program.instances:
        dy.renew_cg()
        most = max(most, counts(lambda x=instance: program(x))["flushes"])
    return most


class Reference:
    """The plain loop on the real DyNet, in another process, one pass at a time."""

    def __init__(self, python: str, program: Any, args: argparse.Namespace) -> None:
        with tempfile.TemporaryDirectory() as folder:
            command = [python, __file__, "--as-reference", type(program).__name__, str(program.size)]
            command += ["--batch", str(args.batch), *(f"--data={item}" for item in args.data)]
            if hasattr(program, "save"):
                program.save(os.path.join(folder, "weights"))
                command += ["--weights", os.path.join(folder, "weights")]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.outputs = json.loads(self.answer())

    def answer(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline()

    def seconds(self) -> float:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.answer())

    def close(self) -> None:
        self.process.communicate()


def serve(args: argparse.Namespace) -> None:
    """The other end: prints the outputs, then for each line that comes the seconds of one pass."""
    kind = {kind.__name__: kind for kind in PROGRAMS}[args.as_reference[0]]
    program = make(kind, int(args.as_reference[1]), args)
    if args.weights:
        program.load(args.weights)
    print(json.dumps(plain_loop(program)), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        plain_loop(program)
        print(time.perf_counter() - start, flush=True)


def measure(program: Any, args: argparse.Namespace) -> dict[str, Any]:
    plain = plain_program(program) if hasattr(program, "together") else program
    sides: dict[str, Callable[[], Any]] = {
        "loop": lambda: plain_loop(plain),
        "batch_map": lambda: batched(program),
        "threads": lambda: batched(program, "threads"),
    }
    outputs = {name: side() for name, side in sides.items()}
    if not outputs["loop"] == outputs["batch_map"] == outputs["threads"]:
        raise SystemExit(f"{program.name}: outputs differ")
    reference = Reference(args.reference, plain, args) if args.reference else None
    times: dict[str, list[float]] = {name: [] for name in [*sides, "reference"]}
    for turn in range(args.repeats):
        for name, side in sides.items():
            if name == "threads" and turn % 4:
                continue
            start = time.perf_counter()
            side()
            times[name].append(time.perf_counter() - start)
        if reference:
            times["reference"].append(reference.seconds())
    row: dict[str, Any] = {"program": program.name, "target": program.target, "longest": longest(plain)}
    for name, side in sides.items():
        row[name] = {"ms": 1e3 * statistics.median(times[name]), **counts(side)}
    row["ratio"] = row["loop"]["ms"] / row["batch_map"]["ms"]
    row["ratio_threads"] = row["loop"]["ms"] / row["threads"]["ms"]
    if reference:
        reference.close()
        same = json.loads(json.dumps(outputs["loop"]))
        row["reference"] = {
            "ms": 1e3 * statistics.median(times["reference"]),
            "same_outputs": sum(a == b for a, b in zip(same, reference.outputs)) / len(same),
        }
        row["ratio_reference"] = row["reference"]["ms"] / row["batch_map"]["ms"]
    return row


def make(kind: Any, hidden: int, args: argparse.Namespace) -> Any:
    data = dict(item.split("=", 1) for item in args.data)
    extra = {"path": data.get("trees")} if kind is GreedyParser else {}
    program = kind(hidden, count=args.batch, **extra)
    program.size = hidden
    return program


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--hidden", default="64,256")
    options.add_argument("--batch", type=int, default=64)
    options.add_argument("--repeats", type=int, default=15)
    options.add_argument("--data", action="append", default=[], metavar="trees=FILE")
    options.add_argument("--threads", type=int, help="of the kernels; on a busy machine 1 is steadier")
    options.add_argument("--json")
    options.add_argument("--dynet", dest="reference", metavar="PYTHON", help="one that has the real DyNet")
    options.add_argument("--as-reference", nargs=2, help=argparse.SUPPRESS)
    options.add_argument("--weights", help=argparse.SUPPRESS)
    if "--as-reference" in sys.argv:
        return serve(options.parse_args(sys.argv[1:-1]))
    args = options.parse_args()
    if args.threads:
        dy._core.set_threads(args.threads)
    rows = []
    print(f"batch {args.batch}; medians of {args.repeats}; flushes and launches of one pass over the batch")
    print(f"{'program':28}{'hidden':>7}{'loop ms':>9}{'map ms':>9}{'ratio':>7}{'wanted':>7}{'threads':>8}"
          f"{'DyNet':>7}{'flushes':>15}{'longest':>8}{'launches':>16}")  # fmt: skip
    for hidden in map(int, args.hidden.split(",")):
        for kind in PROGRAMS:
            row = {"hidden": hidden, **measure(make(kind, hidden, args), args)}
            rows.append(row)
            loop, mapped = row["loop"], row["batch_map"]
            print(f"{row['program']:28}{hidden:7}{loop['ms']:9.2f}{mapped['ms']:9.2f}{row['ratio']:7.2f}"
                  f"{row['target']:7.1f}{row['ratio_threads']:8.2f}{row.get('ratio_reference', 0):7.1f}"
                  f"{loop['flushes']:9} ->{mapped['flushes']:4}{row['longest']:8}"
                  f"{loop['launches']:9} ->{mapped['launches']:5}", flush=True)  # fmt: skip
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
