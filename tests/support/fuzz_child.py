"""Random calls into every public function, class and method. Run as a child: `fuzz_child.py SEED COUNT`.

Half of the calls are expressions of ops/cases.py with numbers changed and operands exchanged: nearly right
arguments reach further than nonsense does. The rest are public functions and methods with anything.

The text of each call goes to stderr's file descriptor before the call is made: the parent can say which
call killed the process. Python exceptions are fine; the end of the process is not.
"""

from __future__ import annotations

import ast
import os
import random
import re
import resource
import sys
from pathlib import Path
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np  # noqa: E402
from ops.cases import CASES  # noqa: E402

from support.subject import subject  # noqa: E402

SANITIZED = "asan" in os.environ.get("LD_PRELOAD", "")  # which reserves terabytes of addresses
SKIPPED = {
    "init",
    "init_from_params",
    "np",
    "os",
    "sys",
    "pickle",
    "dynet_config",
    "print_function",
    "annotations",
}
MODULES = type(sys)


NUMBERS = [0, 1, 2, 3, 4, 7, -1, -2, 0.5, -0.5, 1e30, 100000, 2**31, 2**32 + 1]


class Change(ast.NodeTransformer):
    """Replaces some of the numbers of an expression."""

    def __init__(self, rng: random.Random, chance: float) -> None:
        self.rng, self.chance = rng, chance

    def visit_Constant(self, node: ast.Constant) -> ast.AST:  # noqa: N802 - ast's name
        if isinstance(node.value, (int, float)) and self.rng.random() < self.chance:
            return ast.copy_location(ast.Constant(self.rng.choice(NUMBERS)), node)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:  # noqa: N802 - ast's name
        if isinstance(node.value, ast.Name) and node.value.id == "x":
            return node  # the number of an operand
        return self.generic_visit(node)


class Fuzzer:
    """A pool of values, and calls with arguments from it."""

    def __init__(self, dy: Any, seed: int) -> None:
        self.dy = dy
        self.rng = random.Random(seed)
        self.functions: list[tuple[str, Callable[..., Any]]] = sorted(
            (name, value)
            for name, value in vars(dy).items()
            if callable(value)
            and not name.startswith("__")
            and name not in SKIPPED
            and not isinstance(value, MODULES)
            and not (isinstance(value, type) and issubclass(value, BaseException))
        )
        self.pc = dy.ParameterCollection()
        self.kept: dict[str, Any] = {
            "W": self.pc.add_parameters((3, 3)),
            "b": self.pc.add_parameters(3),
            "E": self.pc.add_lookup_parameters((4, 3)),
            "lstm": dy.LSTMBuilder(1, 3, 3, self.pc),
            "gru": dy.GRUBuilder(2, 3, 3, self.pc),
            "sgd": dy.SimpleSGDTrainer(self.pc),
            "adam": dy.AdamTrainer(self.pc),
        }
        self.exprs: list[Any] = []
        self.fresh()

    def fresh(self) -> None:
        """A new graph with some operands; old ones stay in the pool as stale."""
        dy = self.dy
        self.exprs = self.rng.sample(self.exprs, min(3, len(self.exprs)))
        if self.rng.random() < 0.2:
            self.pc = dy.ParameterCollection()  # the old one's parameters stay in use in self.kept
        dy.renew_cg(autobatching=self.rng.random() < 0.5)
        self.exprs += [
            dy.inputVector([1, 2, 3]),
            dy.inputVector([0.5]),
            dy.inputTensor(np.ones((3, 2))),
            dy.inputTensor(np.ones((3, 3))),
            dy.inputTensor(np.ones((3, 2)), batched=True),
            dy.inputTensor(np.ones((3, 3, 2)), batched=True),
            dy.inputTensor(np.ones((2, 3, 2))),
        ]

    def value(self, depth: int = 0) -> Any:
        """A random argument: mostly what fits somewhere, sometimes nonsense."""
        rng = self.rng
        kind = rng.random()
        if kind < 0.45:
            return rng.choice(self.exprs)
        if kind < 0.60:
            return rng.choice([0, 1, 2, 3, 1, 0, 5, -1, True])
        if kind < 0.66:
            return rng.choice([0.5, 1.0, -2.5, 1e-8, 1e30, float("nan"), float("inf"), -0.0])
        if kind < 0.72 and depth < 3:
            return tuple(rng.choice([1, 2, 3, 0, -1, 7]) for _ in range(rng.randrange(4)))
        if kind < 0.84 and depth < 3:
            if rng.random() < 0.6:
                return [rng.choice(self.exprs) for _ in range(rng.randrange(5))]
            return [self.value(depth + 1) for _ in range(rng.randrange(4))]
        if kind < 0.92:
            return rng.choice(list(self.kept.values()) + [self.pc])
        if kind < 0.96:
            return rng.choice(
                [
                    np.ones(3),
                    np.ones((3, 3)),
                    np.zeros((0,)),
                    np.array(2),
                    np.float32(1.5),
                    np.int64(1),
                    np.arange(6).reshape(3, 2),
                    np.array(["x"]),
                    np.ones((1,) * 9),
                ]
            )
        return rng.choice(
            [
                None,
                "x",
                "zero_gradient",
                b"y",
                object(),
                {},
                slice(0, 2),
                2**31,
                2**32,
                2**64,
                -(2**63),
                range(3),
                lambda: 1,
                float,
                "CPU",
                "glorot",
                (x for x in (0, 1)),
                Ellipsis,
            ]
        )

    def operand(self, spec: Any) -> Any:
        """What a case wants as an operand, or something else."""
        rng = self.rng
        if rng.random() < 0.25:
            return rng.choice(self.exprs)
        if rng.random() < 0.04:
            return self.value()
        values = spec.values(rng.randrange(10**6))
        if spec.kind in ("param", "lookup"):
            lookup = spec.kind == "lookup"
            made = self.pc.lookup_parameters_from_numpy if lookup else self.pc.parameters_from_numpy
            return made(values[..., 0])
        return self.dy.inputTensor(values, batched=True)

    def nearly_right(self) -> None:
        """A case of the case list, changed."""
        rng = self.rng
        case = rng.choice(CASES)
        tree = Change(rng, 0.25).visit(ast.parse(case.expr, mode="eval"))
        x = [self.operand(spec) for spec in case.inputs]
        k = rng.choice([0, 1, 2, 5, -1])
        shown = ", ".join(self.show(e) for e in x)
        text = f"{ast.unparse(tree)} with k={k}, x=[{shown}]\n"
        os.write(2, text.encode("utf-8", "replace"))
        if SANITIZED and re.search(r"range\(\d{8}", text):
            return  # nothing limits the memory that Python's own lists take
        code = compile(ast.fix_missing_locations(tree), "<call>", "eval")
        self.use(eval(code, {"dy": self.dy, "np": np, "x": x, "k": k}))  # noqa: S307 - our own text

    def call(self) -> None:
        """One random call, and perhaps what a script does with its result."""
        rng = self.rng
        if rng.random() < 0.5:
            self.nearly_right()
            return
        if rng.random() < 0.72:
            name, function = rng.choice(self.functions)
        else:
            thing = rng.choice([*self.exprs, *self.kept.values(), self.pc, self.dy.cg()])
            methods = [
                m
                for m in dir(thing)
                if not m.startswith("__")
                or m
                in (
                    "__getitem__",
                    "__add__",
                    "__mul__",
                    "__truediv__",
                    "__pow__",
                    "__sub__",
                    "__iter__",
                    "__len__",
                    "__call__",
                )
            ]
            name = rng.choice(methods)
            function = getattr(thing, name)
            name = type(thing).__name__ + "." + name
            if not callable(function):
                return
        if "dump" in name or "graphviz" in name:
            self.fresh()  # there may be millions of nodes to print
        args = [self.value() for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5]))]
        os.write(
            2, ("{}({})\n".format(name, ", ".join(self.show(a) for a in args))).encode("utf-8", "replace")
        )
        result = function(*args)
        self.use(result)

    def show(self, value: Any) -> str:
        """An argument in short, with dims for expressions."""
        if isinstance(value, (list, tuple)):
            return "[{}]".format(", ".join(self.show(v) for v in value))
        try:
            if isinstance(value, self.dy.Expression):
                return f"expr{value.dim()}"
        except Exception:
            return "stale"
        return repr(value)[:60].replace("\n", " ")

    def use(self, result: Any) -> None:
        """Read, index or differentiate what came back."""
        rng = self.rng
        if isinstance(result, self.dy.Expression):
            self.exprs.append(result)
            choice = rng.random()
            os.write(2, b"  ... and its value\n")
            if choice < 0.4:
                result.npvalue()
            elif choice < 0.6:
                self.dy.sum_batches(self.dy.sum_elems(result)).backward(full=rng.random() < 0.5)
                result.gradient()
            elif choice < 0.7:
                result[rng.choice([0, 1, -1, 5])].value()
        elif isinstance(result, list) and result and isinstance(result[0], self.dy.Expression):
            self.dy.esum(result).value()


def main() -> int:
    """COUNT calls from SEED; ends with a line that says so."""
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    if not SANITIZED:
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))  # absurd sizes must raise, not swap
    fuzzer = Fuzzer(subject(), seed)
    for n in range(count):
        try:
            if n % 25 == 24:
                fuzzer.fresh()
            fuzzer.call()
        except Exception:  # noqa: S110, BLE001 - any Python exception is an answer
            pass
    fuzzer.dy.renew_cg()
    if (fuzzer.dy.inputVector([1, 2]) * 2).value() != [2, 4]:
        os.write(2, b"the library computes nonsense afterwards\n")
        return 3
    os.write(2, b"survived\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
