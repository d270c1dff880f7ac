"""Nanoseconds that recording one operation takes from Python, per kind of operation and per example.

Nothing is computed: every statement below runs a few thousand times in one fresh graph, inside a loop
whose own cost is measured and taken off. What is timed is the processor time of the recording thread;
a figure is the median over graphs, the best of several such medians. With a Python that has the
original dynet, a process of it takes turns with one of this package, operation by operation. The examples
are recorded without hints and, by a process for each, with hints; both take turns, too.
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
import timeit
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REFERENCE = "--reference" in sys.argv

SETUP = """
dy.renew_cg()
x = dy.inputVector(values)
y = dy.inputVector(values)
ten = [dy.inputVector(values) for _ in range(10)]
s = builder.initial_state() if builder else None
"""

# name: (statement, statement of the empty loop, target in ns)
OPERATIONS: dict[str, tuple[str, str, int | None]] = {
    "tanh(x)": ("z = dy.tanh(x)", "z = x", 80),
    "tanh, a chain": ("x = dy.tanh(x)", "x = y", 80),
    "-x": ("z = -x", "z = x", 80),
    "x + y": ("z = x + y", "z = x", 80),
    "x + 1": ("z = x + 1", "z = x", 80),
    "cmult(x, y)": ("z = dy.cmult(x, y)", "z = x", 80),
    "W * x": ("z = W * x", "z = x", 80),
    "affine_transform([b, W, x])": ("z = dy.affine_transform([b, W, x])", "z = x", 150),
    "E[i]": ("z = E[3]", "z = x", 150),
    "pick(x, i)": ("z = dy.pick(x, 3)", "z = x", None),
    "concatenate([x, y])": ("z = dy.concatenate([x, y])", "z = x", None),
    "esum of 10": ("z = dy.esum(ten)", "z = x", None),
    "pickneglogsoftmax(x, i)": ("z = dy.pickneglogsoftmax(x, 3)", "z = x", None),
    "inputVector of 16": ("z = dy.inputVector(short)", "z = x", None),
    "scalarInput(1.0)": ("z = dy.scalarInput(1.0)", "z = x", None),
    "VanillaLSTM add_input": ("s = s.add_input(x)", "s = x", 600),
    "GRU add_input": ("s = s.add_input(x)", "s = x", None),
    "SimpleRNN add_input": ("s = s.add_input(x)", "s = x", None),
    "renew_cg()": ("dy.renew_cg()", "", None),
}
BUILDERS = {"VanillaLSTM": "VanillaLSTMBuilder", "GRU": "GRUBuilder", "SimpleRNN": "SimpleRNNBuilder"}
EXAMPLES = ("bilstm_tagger", "bilstm_char_tagger", "treelstm", "rnnlm", "seq2seq", "parser")


def median(statement: str, setup: str, names: dict[str, Any], count: int, graphs: int) -> float:
    """Median nanoseconds of one statement over that many graphs."""
    timer = timeit.Timer(statement or "pass", setup, timer=time.thread_time, globals=names)
    return statistics.median(timer.timeit(count) / count * 1e9 for _ in range(graphs))


class Worker:
    """What runs in the process of one side: the models, and one measurement per request."""

    def __init__(self, count: int, graphs: int) -> None:
        if REFERENCE:
            import dynet as dy
        else:
            import dynet_compat as dy
        self.dy, self.count, self.graphs = dy, count, graphs
        self.loaded: dict[str, tuple[Any, list]] = {}
        pc = dy.ParameterCollection()
        self.builders = {name: getattr(dy, cls)(1, 64, 64, pc) for name, cls in BUILDERS.items()}
        self.names = {
            "dy": dy,
            "W": pc.add_parameters((64, 64)),
            "b": pc.add_parameters(64),
            "E": pc.add_lookup_parameters((100, 64)),
            "values": [0.1] * 64,
            "short": [0.1] * 16,
        }

    def operation(self, name: str) -> dict[str, float]:
        statement, empty, _ = OPERATIONS[name]
        names = dict(self.names, builder=self.builders.get(name.split()[0]))
        full = median(statement, SETUP, names, self.count, self.graphs)
        result = {"ns": full - median(empty, SETUP, names, self.count, self.graphs)}
        if not REFERENCE and name != "renew_cg()":
            scope = dict(names)
            exec(SETUP, scope)
            before = self.dy._core.cg_size()
            for _ in range(100):
                exec(statement, scope)
            result["nodes"] = (self.dy._core.cg_size() - before) / 100
        return result

    def load(self, name: str) -> tuple[Any, list]:
        """The example's model and a batch; loaded once, as templates learn from the first graphs."""
        from worker import load_example, make_batches

        if name not in self.loaded:
            example = load_example(name)
            instances, vocab = example.load(None, limit=1000)
            self.loaded[name] = example.build(vocab, 64)[0], make_batches(instances, 64, 1)[0]
        return self.loaded[name]

    def example(self, name: str) -> dict[str, float]:
        """Recording the loss of 64 instances, the example's own Python included, per node of the graph."""
        model, batch = self.load(name)
        spent = []
        for _ in range(self.graphs):
            self.dy.renew_cg()
            start = time.thread_time()
            self.dy.esum([model.loss(instance) for instance in batch])
            spent.append(time.thread_time() - start)
        nodes = self.dy._core.cg_size()
        return {"ns": statistics.median(spent) / nodes * 1e9, "nodes": nodes}

    def serve(self) -> None:
        for line in sys.stdin:
            kind, name = line.strip().split(" ", 1)
            answer = self.example(name) if kind == "example" else self.operation(name)
            print(json.dumps(answer), flush=True)


class Side:
    """A process with a Worker in it; keeps the best answer to every request."""

    def __init__(self, python: str, args: argparse.Namespace, *options: str, hints: str = "off") -> None:
        command = [python, str(Path(__file__).resolve()), "--worker", *options]
        command += ["--count", str(args.count), "--graphs", str(args.graphs)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if "--reference" in options else None,  # it greets on stderr
            text=True,
            env={**os.environ, "DYNET_COMPAT_HINTS": hints},
        )
        self.best: dict[str, dict[str, float]] = {}

    def ask(self, kind: str, name: str) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{kind} {name}\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("{"):
                answer = json.loads(line)
                if name not in self.best or answer["ns"] < self.best[name]["ns"]:
                    self.best[name] = answer
                return
        raise SystemExit(f"record.py: the worker stopped at {name}, exit status {self.process.wait()}")

    def close(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Sides:
    """This package without and with hints, and the original if there is one."""

    def __init__(self, args: argparse.Namespace, reference: str | None, folder: str) -> None:
        from vs_dynet import write_hints

        hints = write_hints(folder, EXAMPLES, sys.executable)
        self.plain = Side(sys.executable, args)
        self.hinted = {name: Side(sys.executable, args, hints=hints["hints " + name]) for name in EXAMPLES}
        self.reference = Side(reference, args, "--reference") if reference else None

    def measure(self) -> None:
        for name in OPERATIONS:
            self.plain.ask("operation", name)
            if self.reference:
                self.reference.ask("operation", name)
        for name in EXAMPLES:
            self.plain.ask("example", name)
            self.hinted[name].ask("example", name)

    def operation(self, name: str) -> dict[str, Any]:
        target = OPERATIONS[name][2]
        row: dict[str, Any] = {"kind": "operation", "name": name, "target": target, **self.plain.best[name]}
        if self.reference:
            row["reference_ns"] = self.reference.best[name]["ns"]
        row["missed"] = target is not None and row["ns"] > target
        return row

    def example(self, name: str) -> dict[str, Any]:
        plain, hinted = self.plain.best[name], self.hinted[name].best[name]["ns"]
        return {"kind": "example", "name": name, **plain, "hinted_ns": hinted, "ratio": plain["ns"] / hinted}

    def close(self) -> None:
        for side in (self.plain, self.reference, *self.hinted.values()):
            if side:
                side.close()


def print_operation(row: dict[str, Any]) -> None:
    target = "-" if row["target"] is None else f"<= {row['target']}"
    reference = f"{row['reference_ns']:9.0f}" if "reference_ns" in row else f"{'-':>9}"
    nodes = f"{row['nodes']:7g}" if "nodes" in row else f"{'-':>7}"
    print(f"{row['name']:32} {row['ns']:7.1f} {target:>7} {nodes} {reference}{'  over' * row['missed']}")


def print_example(row: dict[str, Any]) -> None:
    print(f"{row['name']:32} {row['ns']:7.1f} {row['hinted_ns']:7.1f} {row['nodes']:7g} {row['ratio']:9.2f}")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference-python", metavar="PATH", help="a Python that has the original dynet")
    parser.add_argument("--no-reference", action="store_true", help="measure only this package")
    parser.add_argument("--count", type=int, default=4000, help="repetitions of a statement in one graph")
    parser.add_argument("--graphs", type=int, default=9, help="graphs per median")
    parser.add_argument("--repeats", type=int, default=5, help="medians per figure")
    parser.add_argument("--check", action="store_true", help="exit status 1 when a target is missed")
    parser.add_argument("--output", metavar="FILE", help="write the numbers as JSON")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--reference", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.worker:
        Worker(args.count, args.graphs).serve()
        return 0

    from turns import machine
    from vs_dynet import find_reference

    reference = None if args.no_reference else find_reference(args.reference_python)
    with tempfile.TemporaryDirectory() as folder:
        sides = Sides(args, reference, folder)
        # The medians of one figure lie far apart in time: other work on the machine comes and goes.
        for _ in range(args.repeats):
            sides.measure()
        operations = [sides.operation(name) for name in OPERATIONS]
        examples = [sides.example(name) for name in EXAMPLES]
        sides.close()
    print(f"{'ns per recorded operation':32} {'ns':>7} {'target':>7} {'nodes':>7} {'reference':>9}")
    for row in operations:
        print_operation(row)
    missed = sum(row["missed"] for row in operations)
    print(f"{missed} of {sum(row['target'] is not None for row in operations)} targets missed")
    print(f"\n{'ns per node of an example':32} {'plain':>7} {'hints':>7} {'nodes':>7} {'ratio':>9}")
    for row in examples:
        print_example(row)
    if args.output:
        result = {"machine": machine(), "rows": operations + examples}
        Path(args.output).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if args.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
