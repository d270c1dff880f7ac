"""Random programs that do more than to record: files, signals, frames, exceptions, threads.

Each is a module with `main()`; `Outcome` has what can be seen of a run from outside.
"""

from __future__ import annotations

import gc
import io
import random
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

HEAD = """
import builtins, os, re, signal, sys, threading, traceback
import numpy as np
import dynet_compat as dy
NUMBERS = np.linspace(-1, 1, 9)
pc = dy.ParameterCollection()
W = pc.parameters_from_numpy(NUMBERS.reshape(3, 3))
E = pc.lookup_parameters_from_numpy(np.linspace(-1, 1, 27).reshape(9, 3))
rnn = dy.GRUBuilder(1, 3, 3, pc)
for p in pc.parameters_list():
    p.set_value(np.cos(np.arange(np.prod(p.shape()))).reshape(p.shape()) * 0.5)
FOLDER = "."
FILES = []
RINGS = []
ev = eval
class Oops(Exception): pass
class Ring(Exception): pass
class Noisy:
    def __init__(self, name): self.name = name
    def __del__(self): note("gone", self.name)
def without_marks(text):
    # Python 3.11 sets other marks below a line when it has run a few times; graphs count what came before.
    lines = (re.sub(r"(version|expression) [0-9/]+", r"\\1", line) for line in text.splitlines())
    return "\\n".join(line for line in lines if line.strip(" ^~"))
def note(*words):
    print(*words, flush=True)
def shown(value):
    if isinstance(value, dy.Expression):
        return [round(float(v), 3) + 0.0 for v in np.ravel(value.npvalue())]
    if isinstance(value, (list, tuple)):
        return [shown(v) for v in value]
    return value if isinstance(value, (int, float, str, type(None))) else type(value).__name__
def names():
    return sorted(sys._getframe(1).f_locals)
def query(text):
    return shown(eval(text, {}, sys._getframe(1).f_locals))
def file(name):
    return open(os.path.join(FOLDER, name), "a")
def on_ring(number, frame):
    RINGS.append(number)
    note("ring", frame.f_back.f_code.co_name, sorted(frame.f_back.f_locals))
    if len(RINGS) % 3 == 0:
        raise Ring("ring %d" % len(RINGS))
def on_alarm(number, frame):
    raise Ring("alarm")
def ring():
    if threading.current_thread() is threading.main_thread():
        signal.raise_signal(signal.SIGUSR1)
def in_thread(function, *arguments):
    found = []
    def run():
        try:
            dy.renew_cg()
            found.append(shown(function(dy.inputVector([1, 0, 1]), E[1], *arguments)))
        except Exception as error:
            found.append(traceback.format_exception_only(type(error), error))
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found
def until_alarm(x):
    if threading.current_thread() is not threading.main_thread():
        return
    signal.setitimer(signal.ITIMER_REAL, 0.002)
    h = x
    try:
        for i in range(10**7):
            h = dy.tanh(W * x + h)
            h = dy.cmult(h, x)
            if i % 50 == 0:
                dy.renew_cg()
                x = h = dy.ones(3)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
def cell(x, h, k=0.5):
    z = dy.tanh(W * x)
    return dy.cmult(z, h) + x * k
def checked(x, n):
    if n == 7:
        raise Oops(n)
    return dy.tanh(x)
def items(n):
    for k in range(n):
        note("item", k, sorted(sys._getframe(1).f_locals))
        yield k
class Guard:
    def __enter__(self):
        note("enter", sorted(sys._getframe(1).f_locals))
    def __exit__(self, kind, error, at):
        note("exit", kind and kind.__name__)
        return kind is Oops
"""

TAIL = """
def main():
    for graph in range({graphs}):
        dy.renew_cg()
        x, h = dy.inputVector([0.1, -0.2, 0.3 * graph]), E[graph]
        for function, n in {calls}:
            try:
                result = function(x, h, (n + graph) % 9, Noisy("argument"))
                note(function.__name__, shown(result))
            except (Ring, Oops, ValueError, NameError) as error:
                if str(error) != "alarm":
                    note(without_marks(traceback.format_exc()))
                else:  # it comes at any line
                    note([at.name for at in traceback.extract_tb(error.__traceback__)])
                    dy.renew_cg()
                    x, h = dy.inputVector([0.1, -0.2, 0.3 * graph]), E[graph]
    {end}
"""

ENDS = ["pass", "sys.exit(3)", "raise Oops('at the end')", "dy.tanh(dy.ones(3) + dy.ones(4)).value()"]


class Writer:
    """Writes one function (x, h, n, noisy)."""

    def __init__(self, rng: random.Random, number: int) -> None:
        self.rng, self.number = rng, number
        self.lines: list[str] = []
        self.vectors = ["x", "h"]
        self.fresh = 0

    def text(self) -> str:
        r = self.rng
        self.lines = [f"def f{self.number}(x, h, n, noisy):", "    xs, s, m = [x], rnn.initial_state(), 2"]
        for _ in range(r.randint(3, 9)):
            self.statement(1)
        self.add(1, r.choice([f"return {self.vector()}", f"return {self.vector()}, xs", "return xs + [n]"]))
        return "\n".join([*self.lines, ""])

    def add(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def vector(self, depth: int = 0) -> str:
        r = self.rng
        if depth > 1 or r.random() < 0.25:
            return r.choice(self.vectors)
        a, b = self.vector(depth + 1), self.vector(depth + 1)
        kinds = [f"dy.tanh({a})", f"({a} + {b})", f"dy.cmult({a}, {b})", f"W * {a}", "E[n]"]
        kinds += [
            f"cell({a}, {b})",
            f"dy.esum([{a}, {b}])",
            f"cell({a}, {b}, k=2.0)",
            f"checked({a}, n)",
            "xs[-1]",
        ]
        kinds += [f"dy.esum([dy.tanh(e) + {a} for e in xs])", f"s.add_input({a}).output()"]
        return r.choice(kinds)

    def record(self, depth: int) -> None:
        r = self.rng
        name = r.choice(["x", "h", "new"])
        if name == "new":
            self.fresh += 1
            name = f"v{self.fresh}"
        lines = [f"{name} = {self.vector()}", f"{name} = {self.vector()}", f"xs.append({self.vector()})"]
        lines += [f"xs = [cell(e, {self.vector(1)}) for e in xs]", f"s = s.add_input({self.vector(1)})"]
        line = r.choice(lines)
        self.add(depth, line)
        if depth == 1 and line.startswith(name + " ") and name not in self.vectors:
            self.vectors.append(name)

    def aside(self, depth: int) -> None:
        r = self.rng
        others = [f"f{i}" for i in range(self.number)] or ["cell"]
        lines = ["note(names())", 'note(query("n + m"))', 'note(shown(ev("h")))', 'note(query("x"))']
        lines += ["note(sorted(builtins.locals()))", "ring()", "ring()", "noisy = Noisy(n)", "m += n"]
        lines += ['FILES.append(file("kept.txt")); FILES[-1].write("%d\\n" % n)', "n = (n + m) % 9"]
        lines += ['out = file("local.txt"); out.write("%d\\n" % m)', "note(shown(h))", "del noisy"]
        lines += [f"xs = xs + [dy.tanh({self.vector(1)} + bad)]", f"xs.append(dy.tanh({self.vector(1)}))"]
        lines += ["bad = dy.ones(4)", f"xs = xs[-2:]; x = {self.vector(1)}"]
        if others != ["cell"]:
            lines += [f"note(in_thread({r.choice(others)}, n, Noisy('thread')))"]
        line = "until_alarm(x)" if r.random() < 0.02 else r.choice(lines)
        for part in line.split("; "):
            self.add(depth, part)

    def statement(self, depth: int) -> None:
        r = self.rng
        kind = r.random()
        if kind < 0.5 or depth > 2:
            self.record(depth)
        elif kind < 0.72:
            self.aside(depth)
        else:
            heads = ["for m in range(n):", "for _ in range(3):", "for m in items(n % 4):", "if n % 2:"]
            heads += [
                "try:",
                "for e in list(xs):",
                "for m, e in enumerate(xs[:]):",
                "while k > 0:",
                "with Guard():",
            ]
            head = r.choice(heads)
            if head.startswith("while"):
                self.fresh += 1
                name = f"k{self.fresh}"
                self.add(depth, f"{name} = 3")
                head = f"while {name} > 0:"
            if not head.endswith(("n % 2:", "Guard():", "try:")):
                self.add(depth, "xs = xs[-3:]")  # loops in loops would make it long
            self.add(depth, head)
            if head.startswith("while"):
                self.add(depth + 1, f"{name} -= 1")
            for _ in range(r.randint(1, 3)):
                inner = r.random()
                self.record(depth + 1) if inner < 0.75 else self.statement(depth + 1)
            if head == "try:":
                self.add(depth, r.choice(["finally:", "except (Oops, ValueError) as error:", "except Ring:"]))
                self.add(depth + 1, "note('caught', names())")


def source(seed: int) -> str:
    """Text of the program."""
    rng = random.Random(seed)
    n = rng.randint(1, 3)
    functions = [Writer(rng, i).text() for i in range(n)]
    calls = ", ".join(f"(f{rng.randrange(n)}, {rng.randrange(9)})" for _ in range(rng.randint(1, 3)))
    end = rng.choice(ENDS[:1] * 3 + ENDS)
    return HEAD + "\n".join(functions) + TAIL.format(graphs=rng.randint(4, 8), calls=f"[{calls}]", end=end)


@dataclass
class Outcome:
    """What a run leaves behind."""

    output: list[str]
    status: Any
    traceback: str
    files: dict[str, str]
    rings: int


def without_marks(text: str) -> str:
    """Tracebacks without marks below the lines: Python 3.11 sets others when code has run a few times."""
    return "\n".join(line for line in text.splitlines() if line.strip(" ^~"))


def run(start: Callable[[], ModuleType], folder: Path) -> Outcome:
    """main() of a program, with its handlers of signals, in this process; the module, which `start` loads,
    goes when it has run."""
    module = start()
    names: Any = vars(module)
    folder.mkdir()
    names["FOLDER"] = str(folder)
    before = [
        (number, signal.signal(number, names[handler]))
        for number, handler in ((signal.SIGUSR1, "on_ring"), (signal.SIGALRM, "on_alarm"))
    ]
    output, status, failed = io.StringIO(), None, ""
    try:
        with redirect_stdout(output):
            try:
                names["main"]()
            except SystemExit as end:
                status = end.code
            except Exception:  # noqa: BLE001 - must be the same on both sides
                failed = without_marks(traceback.format_exc())
            rings = len(names["RINGS"])
            sys.modules.pop(module.__name__, None)
            del names, module
            gc.collect()
    finally:
        for number, handler in before:
            signal.signal(number, handler)
    files = {file.name: file.read_text() for file in sorted(folder.iterdir())}
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    return Outcome(output.getvalue().splitlines(), status, failed, files, rings)
