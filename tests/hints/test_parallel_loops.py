"""Loops over instances that read values: with hints their iterations run together, and no program sees it.

Programs print everything they compute; with and without hints the output must be the same.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.subject import IS_REFERENCE, ON_DEVICE

if IS_REFERENCE:
    pytest.skip("our own command", allow_module_level=True)
from dynet_compat.hints import cli, parallel_loops  # noqa: E402
from dynet_compat.hints.analysis.script import ScriptAnalysis  # noqa: E402
from dynet_compat.hints.rewrite import batch_map  # noqa: E402

if not batch_map.possible():
    pytest.skip("needs greenlet", allow_module_level=True)

MODEL = """
import random
import sys
import numpy as np
import dynet_compat as dy
import dynet_compat.hints.parallel_loops

dynet_compat.hints.parallel_loops._WORTH = 0  # so small a model is not worth it
pc = dy.ParameterCollection()
W, U = pc.add_parameters((5, 5)), pc.add_parameters((5, 5))
score = pc.add_parameters((1, 5))
E = pc.add_lookup_parameters((20, 5))
trainer = dy.SimpleSGDTrainer(pc, 0.1)
data = [[(7 * i + j * j) % 20 for j in range(1 + i * 5 % 7)] for i in range(150)]


def decide(words):
    h, taken = E[words[0]], []
    for w in words:
        h = dy.tanh(W * h + U * E[w])
        taken.append((score * h).value() > 0.02)
        if taken[-1]:
            h = dy.rectify(h)
    return h, taken


def show(x):
    print("%.4g" % x if isinstance(x, float) else x)
"""
END = """

def report():
    runtime = sys.modules.get("dynet_compat.hints.runtime")
    active = runtime and runtime.active()
    print("maps", [(m["parts"], m["off"]) for m in active.maps()] if active else None)

warm = dy.renew_cg()
for _ in range(2):
    show(main())
    show(float(dy.random_uniform(1, 0, 1).value()))
report()
"""

TOGETHER = {
    "appends": """
def main():
    results = []
    for words in data:
        dy.renew_cg()
        results.append(decide(words)[1])
    return results
""",
    "expressions, by a region that is not always there": """
def main():
    dy.renew_cg()
    results = []
    for i, words in enumerate(data):
        h, taken = decide(words)
        k = 1.0 if i < 20 else 2.0
        a = dy.tanh(W * h) * k
        results.append(dy.cmult(a, a) + k)
    print(len(results))
    return [int(r.npvalue()[0] * 1000) for r in results]
""",
    "sums": """
def main():
    right, total = 0, 0.0
    for words in data:
        dy.renew_cg()
        h, taken = decide(words)
        if len(words) == 3:
            continue
        right += sum(taken)
        total = total + dy.sum_elems(h).value()
    print(right)
    return float(total)
""",
    "counters among ops": """
def main():
    count, steps, loss, weight = 0, 0.5, 0, 0.25
    found = []
    dy.renew_cg()
    for words in data:
        n = len(words)
        x = 0.1 * n
        h, taken = decide(words)
        h = dy.tanh(W * h)
        count += n
        a = dy.cmult(h, h) + h
        steps += x
        found.append(a)
        loss += dy.sum_elems(a)
        weight = weight + n
    print(count, repr(steps), repr(weight), len(found))
    loss = loss * (1.0 / count)
    loss.backward()
    print("%.4g" % W.grad_as_array().sum())
    return [loss.value()] + [int(a.npvalue()[0] * 1000) for a in found]
""",
    "several lists, in their order": """
def main():
    out, longer = [], []
    for i, words in enumerate(data):
        dy.renew_cg()
        taken = decide(words)[1]
        for k, t in enumerate(taken):
            if t:
                longer.append((i, k))
                continue
            if k > 4:
                break
            longer.append(-i)
        out.append(len(taken))
    return out, longer
""",
    "comprehension": """
def main():
    dy.renew_cg()
    return [decide(words)[1] for words in data]
""",
    "pairs": """
def main():
    found = []
    for words, other in zip(data, reversed(data)):
        dy.renew_cg()
        found.append(decide(words)[1] + other)
    return found
""",
    "gradients": """
def main():
    dy.renew_cg()
    losses = []
    for words in data:
        h, taken = decide(words)
        losses.append(dy.squared_norm(h) * (1 + sum(taken)))
    loss = dy.esum(losses)
    loss.backward()
    for p in (W, U, score):
        for x in p.grad_as_array().ravel():
            print("%.4g" % x)
    trainer.update()
    return loss.value()
""",
    "method and closure": """
class Decoder:
    def __init__(self, scale):
        self.scale = scale

    def run(self, batch):
        scale, results = self.scale, []

        def inner():
            return scale
        for words in batch:
            dy.renew_cg()
            h, taken = decide(words)
            results.append((scale, self.scale, dy.sum_elems(h * scale).value() > 0, taken))
        return results, inner()

def main():
    return Decoder(2.5).run(data)
""",
}
# Programs whose loops must run as they are written, and why.
ONE_BY_ONE = {
    "prints": """
def main():
    for words in data:
        dy.renew_cg()
        print(decide(words)[1])
""",
    "draws": """
def main():
    found = []
    for words in data:
        dy.renew_cg()
        found.append((decide(words)[1], float(dy.dropout(E[words[0]], 0.5).npvalue()[0])))
    return found
""",
    "python's random": """
def main():
    found = []
    for words in data:
        dy.renew_cg()
        found.append((decide(words)[1], random.Random(3).random(), random.random() < 2))
    return found
""",
    "carries": """
def main():
    last, found = 0, []
    for words in data:
        dy.renew_cg()
        last = last + sum(decide(words[last % 2:] or [1])[1])
        found.append(last)
    return found
""",
    "a generator": """
def source():
    for words in data:
        show(len(words))
        yield words

def main():
    found = []
    for words in source():
        dy.renew_cg()
        found.append(decide(words)[1])
    return found
""",
    "few": """
def main():
    found = []
    for words in data[:4]:
        dy.renew_cg()
        found.append(decide(words)[1])
    return found
""",
    "reads nothing": """
def main():
    dy.renew_cg()
    losses = []
    for words in data:
        losses.append(decide(words)[0] if len(words) < 0 else dy.squared_norm(E[words[0]]))
    return dy.esum(losses).value()
""",
}
# Proved, but they do at run time what stops them.
STOPPED = {
    "an error": """
def main():
    results = []
    try:
        for i, words in enumerate(data):
            dy.renew_cg()
            results.append((decide(words)[1], 1 / (90 - i)))
    except ZeroDivisionError as error:
        print("stopped", error, getattr(error, "instance", None), getattr(error, "__notes__", None))
    return results
""",
    "an iterator given from outside": """
def numbers():
    for words in data:
        print(len(words))
        yield words

def run(batch):
    results = []
    for words in batch:
        dy.renew_cg()
        results.append(decide(words)[1])
    return results

def main():
    return run([[1, 2]]), [run(x) for x in [numbers()]]
""",
}


def environment(**more: str) -> dict[str, str]:
    return {**{k: v for k, v in os.environ.items() if k != "DYNET_COMPAT_HINTS"}, **more}


def run(script: Path, **more: str) -> tuple[list[str], str, str]:
    """Lines of output, the last one apart, and what was logged."""
    done = subprocess.run(
        [sys.executable, str(script), "--dynet-seed", "3"],
        capture_output=True, text=True, env=environment(**more), timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    return lines[:-1], lines[-1], done.stderr


def assert_same(hinted: list[str], plain: list[str]) -> None:
    if not ON_DEVICE:
        assert hinted == plain
        return
    # A loop that computes together has products of more columns, which add up in another order.
    number = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
    assert [number.sub("#", line) for line in hinted] == [number.sub("#", line) for line in plain]
    for one, other in zip(number.findall("\n".join(hinted)), number.findall("\n".join(plain))):
        rounded = one.lstrip("-").isdigit()  # by the program
        assert float(one) == pytest.approx(float(other), rel=1e-4, abs=1 if rounded else 1e-5)


def both(tmp_path: Path, text: str) -> tuple[str, str]:
    """Runs a program with and without hints; what its loops did, and what was logged."""
    script = tmp_path / "program.py"
    script.write_text(MODEL + text + END)
    plain, _, _ = run(script)
    assert cli.main([str(script)]) == 0
    hinted, loops, log = run(script)
    assert_same(hinted, plain)
    return loops, log


@pytest.mark.parametrize("text", TOGETHER.values(), ids=list(TOGETHER))
def test_together(tmp_path: Path, text: str) -> None:
    loops, log = both(tmp_path, text)
    assert loops == "maps [(6, False)]", (loops, log)  # 4 + 64 + 64 + 18 iterations, twice
    assert "hints" not in log


@pytest.mark.parametrize("text", ONE_BY_ONE.values(), ids=list(ONE_BY_ONE))
def test_apart(tmp_path: Path, text: str) -> None:
    loops, _ = both(tmp_path, text)
    assert loops in ("maps []", "maps [(0, False)]"), loops


@pytest.mark.parametrize("text", STOPPED.values(), ids=list(STOPPED))
def test_stopped(tmp_path: Path, text: str) -> None:
    loops, _ = both(tmp_path, text)
    assert "True" not in loops


def test_small_models_are_left_alone(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(MODEL.replace("_WORTH = 0", "_WORTH") + TOGETHER["appends"] + END)
    assert cli.main([str(script)]) == 0
    _, loops, _ = run(script)
    assert loops == "maps [(0, False)]"


def test_hidden_draws(tmp_path: Path) -> None:
    """Dropout that the proof does not see: the part is thrown away, the numbers are those of a plain loop."""
    text = """
rnn = dy.LSTMBuilder(1, 5, 5, pc)
setup = {"set_dropout": 0.4}

def main():
    for name, rate in setup.items():
        getattr(rnn, name)(rate)
    found = []
    for words in data:
        dy.renew_cg()
        s = rnn.initial_state()
        for w in words:
            s = s.add_input(E[w])
        found.append([round(x, 5) for x in s.output().value()])
    return found
"""
    loops, log = both(tmp_path, text)
    assert "(0," in loops or loops == "maps []", (loops, log)


def test_without_greenlet(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    hide = "import sys\nsys.modules['greenlet'] = None\n"
    script.write_text(hide + MODEL + TOGETHER["appends"] + END)
    plain, _, _ = run(script)
    assert cli.main([str(script)]) == 0
    hinted, loops, _ = run(script)
    assert hinted == plain and loops == "maps []"


def test_a_file_that_lies(tmp_path: Path) -> None:
    """Loops that a hints file claims to be independent are proved again in the sources before they are."""
    script = tmp_path / "program.py"
    text = "".join(ONE_BY_ONE[name].replace("main()", f"f{i}()") for i, name in enumerate(ONE_BY_ONE))
    calls = ", ".join(f"f{i}()" for i in range(len(ONE_BY_ONE)))
    script.write_text(MODEL + text + f"\ndef main():\n    return {calls}\n" + END)
    plain, _, _ = run(script)
    assert cli.main([str(script)]) == 0
    path = tmp_path / "program.dyhints"
    hints = json.loads(path.read_text())
    found = ScriptAnalysis(str(script))
    for loop in (facts.loop for facts in found.loops.found.values()):
        if loop.form != "while":
            name = found.program.functions[loop.function].qualname
            lie = {"file": "program.py", "qualname": name, "line": loop.line, "col": loop.col}
            lie.update(renew_first=loop.form == "for", appends=["found", "losses"], sums=["last", "data"])
            hints["independent_loops"].append(lie)
    path.write_text(json.dumps(hints))
    hinted, loops, _ = run(script)
    assert hinted == plain and loops.count("(") > 5
    assert all(parts == "0" for parts in [part.split(",")[0] for part in loops.split("(")[1:]])


def test_another_main_program(tmp_path: Path) -> None:
    """A program that imports the script may have changed what it does: nothing is proved of that."""
    (tmp_path / "program.py").write_text(MODEL + TOGETHER["appends"])
    assert cli.main([str(tmp_path / "program.py")]) == 0
    other = tmp_path / "other.py"
    other.write_text(
        "import sys\nimport dynet_compat as dy\nimport program\nfrom program import *\n"
        "old = program.decide\n"
        "def louder(words):\n    print(words)\n    return old(words)\nprogram.decide = louder\n" + END
    )
    plain, _, _ = run(other)
    hinted, loops, _ = run(other, DYNET_COMPAT_HINTS=str(tmp_path / "program.dyhints"))
    assert hinted == plain and loops == "maps [(0, False)]"


def test_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "program.py"
    text = TOGETHER["appends"] + "\nresults = []\nfor words in data:\n    results.append(decide(words)[1])\n"
    script.write_text(MODEL + text)
    assert cli.main([str(script), "--explain"]) == 0
    out = capsys.readouterr().out
    assert "with hints and greenlet they run together" in out
    assert "hints alone do not: the loop is not in a function" in out


def test_what_may_be_gone_over() -> None:
    def generator() -> Any:
        yield 1

    class Mine(list):
        pass

    plain: list[Any] = [[1], (1,), "ab", range(3), {1: 2}, {1: 2}.items(), {1}, zip([1], "a"), enumerate([1])]
    plain += [iter([1]), reversed([1]), zip([1], zip((2,), {3: 4})), enumerate(zip([1], [2]))]
    assert all(parallel_loops.is_plain(x) for x in plain)
    odd: list[Any] = [generator(), Mine(), zip([1], generator()), enumerate(generator()), map(str, [1]), None]
    odd += [zip(Mine([1]), map(str, [1])), filter(None, [1]), iter(int, 1)]
    assert not any(parallel_loops.is_plain(x) for x in odd)
    pairs = zip([1, 2, 3], "abc")
    assert parallel_loops.is_plain(pairs) and list(pairs) == [(1, "a"), (2, "b"), (3, "c")]


# ---------------------------------------------------------------- random programs


def statement(rng: random.Random, depth: int, wild: bool) -> list[str]:
    """A statement of the body of a loop; `wild`: also some that order shows in."""
    kinds = ["read", "append", "sum", "record", "if", "if", "for", "continue", "own"]
    if wild:
        kinds += ["print", "draw", "carry", "store"]
    kind = rng.choice(kinds)
    k = rng.randrange(3)
    if kind == "read":
        return [f"v = (score * h).value() * {rng.randrange(1, 4)}", f"a{k} = int(v * 10)"]
    if kind == "append":
        return [rng.choice([f"out.append((n, a{k}))", "more.append(round(v, 4))", f"out.append(a{k})"])]
    if kind == "sum":
        return [rng.choice([f"total += a{k}", "amount = amount + round(v, 4)"])]
    if kind == "record":
        return [rng.choice(["h = dy.tanh(W * h)", "h = dy.rectify(h + U * E[n % 20])", "h = h * 2"])]
    if kind == "own":
        return [f"mine = [a{k}]", "mine.append(v)", "out.append(mine)"]
    if kind == "continue":
        return [f"if a{k} % 3 == 1:", "    continue"]
    if kind == "print":
        return ["print(n, round(v, 3))"]
    if kind == "draw":
        return ["h = dy.dropout(h, 0.3)"]
    if kind == "carry":
        return [f"state = state + a{k}", "out.append(state)"]
    if kind == "store":
        return [f"table[n % 5] = a{k}"]
    body = ["    " + line for _ in range(rng.randrange(1, 3)) for line in block(rng, depth + 1, wild)]
    if depth > 2:
        return [f"a{k} += 1"]
    if kind == "if":
        return [f"if v > {rng.randrange(-1, 2) / 10}:", *body]
    return [f"for n in range({rng.randrange(1, 4)}):", *body]


def block(rng: random.Random, depth: int, wild: bool) -> list[str]:
    return [line for _ in range(rng.randrange(1, 4)) for line in statement(rng, depth, wild)]


def program(seed: int) -> str:
    rng = random.Random(seed)
    wild = rng.random() < 0.4
    renew = rng.random() < 0.7
    lines = [line for _ in range(rng.randrange(2, 6)) for line in statement(rng, 0, wild)]
    start = ["h, taken = decide(words)", "a0, a1, a2, v, n = len(words), 1, 2, 0.5, len(taken)"]
    body = (["dy.renew_cg()"] if renew else []) + start + lines
    over = rng.choice(["data[:90]", "zip(data)", "tuple(data[:40])"])
    target = "(words,)" if over.startswith("zip") else "words"
    inside = "".join(f"        {line}\n" for line in body)
    return f"""
def main():
    out, more, total, amount, state, table = [], [], 0, 0.0, 0, {{}}
    dy.renew_cg()
    for {target} in {over}:
{inside}
    return out, more, total, round(amount, 3), state, table
"""


COUNT = int(os.environ.get("DYNET_COMPAT_FUZZ", 0)) // 100 or 25


def test_random_programs(tmp_path: Path) -> None:
    """The same output with and without hints."""
    together = 0
    for seed in range(COUNT):
        folder = tmp_path / str(seed)
        folder.mkdir()
        loops, _ = both(folder, program(seed))
        together += loops not in ("maps []", "maps [(0, False)]")
    assert together > COUNT // 5
