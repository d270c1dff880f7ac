"""Random loops: where independence is proved, running the iterations backwards changes nothing.

The loop's body becomes a function of one instance; instances run last to first; what they append and add is
put together in the order of the instances. That is what running them together may do.
"""

from __future__ import annotations

import ast
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("our own command", allow_module_level=True)
sys.path.insert(0, str(Path(__file__).resolve().parent))
from dynet_compat.hints.analysis.script import ScriptAnalysis  # noqa: E402

COUNT = 200

SETUP = """
import dynet_compat as dy
dy.renew_cg()
pc = dy.ParameterCollection()
W = pc.add_parameters((2, 2), init=0.5)
E = pc.add_lookup_parameters((9, 2), init=0.25)
batch = [[1, 2], [3], [4, 5, 6], [7], [1, 2]]
results, more, seen, table, total, last, flag = [], [], [0], {}, 0, 0, False
a = b = 0

class Box:
    count = 0
    def __init__(self):
        self.items = []
        self.n = 1
    def put(self, v):
        self.items.append(v)
        return len(self.items)
    def bump(self):
        self.n += 1
        return self.n
    def size(self):
        return self.n + len(self.items)

shared = Box()

def read(x):
    return float((W * E[x[0]]).npvalue()[0]) + len(x)
def fill(to, v):
    to.append(v)
    return len(to)
def peek():
    return len(results) + len(seen)
def note(v):
    seen.append(v)
    return v
def deep(n, to):
    if n > 0:
        to.append(n)
        return deep(n - 1, to)
    return read([n])
def remember(k):
    if k not in table:
        table[k] = len(table)
    return table[k]
def last_of(x, memory=[]):
    memory.append(x[0])
    return memory[0]
"""

FINAL = (
    "final = results, more, seen, table, total, last, flag, batch, shared.n, shared.items, Box.count, "
    "peek(), last_of([0])\n"
)

# {v}: an expression that is a number; {l}: a name of a list; {n}: a name that is assigned
STATEMENTS = [
    "{n} = {v}", "{n} = {v}", "{n} += {v}", "total += {v}", "total = total + {v}", "last = {v}",
    "{l}.append({v})", "results.append({v})", "results.append({v})", "more.append(({v}, {v}))", "mine = []",
    "mine = [{v}]", "box = Box()", "box = shared", "box.put({v})", "box.n = {v}", "other = {l}",
    "if {v} > 3:\n    {s}", "if {v} > 3:\n    {s}\nelse:\n    {s}", "for y in list(x)[:3]:\n    {s}",
    "if {v} > 6:\n    continue", "table[int({v})] = {v}", "x[0] = 1", "fill({l}, {v})",
    "for y in list({l})[:4]:\n    {s}", "flag = not flag", "{l}.sort()", "{l}.extend([{v}])",
    "while len(mine) < 2:\n    mine.append({v})", "pass", "Box.count += 1",
    "def inner():\n    return {v}\n", "{n} = [z for z in {l}]", "results += [{v}]",
]  # fmt: skip
VALUES = [
    "len(x)", "x[0]", "read(x)", "a", "b", "last", "total", "len({l})", "peek()", "note({v})", "3",
    "remember(x[0])", "deep(2, {l})", "last_of(x)", "box.size()", "box.bump()", "shared.size()",
    "shared.bump()", "fill({l}, 1)", "max({v}, {v})", "sum([{v}, {v}])", "(1 if flag else 2)", "abs({v})",
    "len(table)", "min(len(q) for q in batch)", "sorted([{v}, {v}])[0]", "(lambda q: q + 1)({v})",
    "Box.count", "float({v})",
]  # fmt: skip


def grow(rng: random.Random, text: str, depth: int = 0) -> str:
    """Fills the places of a pattern."""
    out = text
    while "{" in out:
        at = out.index("{")
        what = out[at + 1]
        if what == "v":
            new = grow(rng, rng.choice(VALUES if depth < 3 else VALUES[:6]), depth + 1)
        elif what == "l":
            new = rng.choice(["results", "more", "mine", "mine", "mine", "seen", "other", "x"])
        elif what == "n":
            new = rng.choice("ab")
        else:
            line = out[:at].rsplit("\n", 1)[-1]
            new = grow(rng, rng.choice(STATEMENTS[:17]), depth + 1).replace("\n", "\n" + line)
        out = out[:at] + new + out[at + 3 :]
    return out


def program(rng: random.Random) -> str:
    body = ["a = b = 0", "mine = []", "box = Box()", "other = mine", "v = read(x)"]
    body = [line for line in body if rng.random() < 0.93]
    body += [grow(rng, rng.choice(STATEMENTS)) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.8:
        body.append("results.append(v)")
    head = rng.choice(
        ["for x in batch:", "for x in batch:", "for i, x in enumerate(batch):", "for x in list(batch):"]
    )
    text = "\n".join(body).replace("\n", "\n    ")
    return f"{SETUP}\n{head}\n    {text}\n{FINAL}"


def run(text: str, proof: Any) -> Any:
    """What the program has computed; `proof`: with the iterations run backwards."""
    tree = ast.parse(text)
    if proof is not None:
        loop, final = tree.body[-2:]
        assert isinstance(loop, ast.For)
        names = [*proof.appends, *proof.sums]
        head = ast.parse(
            "def one(__item):\n    pass\n"
            + "__items = list(__iterable)\n__all = [one(i) for i in reversed(__items)][::-1]\n"
            + "for __r in __all:\n    pass\n"
        )
        function: Any = head.body[0]
        start = [f"{n} = []" for n in proof.appends] + [f"{n} = 0" for n in proof.sums]
        once = ast.parse("\n".join(start) + "\nfor __once in [0]:\n    pass\n")
        inner: Any = once.body[-1]
        assign = ast.Assign([loop.target], ast.Name("__item", ast.Load()))
        inner.body = [assign, *loop.body]  # a loop of one iteration, so that `continue` has one
        end = ast.parse(f"def f():\n    return [{', '.join(names)}]").body[0].body  # type: ignore[attr-defined]
        function.body = [*once.body, *end]
        merge: Any = head.body[-1]
        merge.body = ast.parse(
            "\n".join(
                [f"{n}.extend(__r[{i}])" for i, n in enumerate(proof.appends)]
                + [f"{n} += __r[{len(proof.appends) + i}]" for i, n in enumerate(proof.sums)]
            )
            or "pass"
        ).body
        first = ast.Assign([ast.Name("__iterable", ast.Store())], loop.iter)
        tree.body = [*tree.body[:-2], function, first, *head.body[1:], final]
        ast.fix_missing_locations(tree)
    space: dict[str, Any] = {"__name__": "program"}
    try:
        exec(compile(tree, "program", "exec"), space)
    except Exception as error:
        return type(error).__name__
    return space["final"]


def test_random_loops(tmp_path: Path, fuzz_count: int) -> None:
    rng = random.Random(31)
    proved = refused = 0
    for _ in range(fuzz_count or COUNT):
        text = program(rng)
        path = tmp_path / "x.py"
        path.write_text(text, encoding="utf-8")
        found = ScriptAnalysis(str(path))
        proofs = [r for r in found.independence.proved() if r.loop.form == "for"]
        proofs = [r for r in proofs if not found.program.loops_around[r.loop.node]]
        want = run(text, None)
        if isinstance(want, str):
            continue  # it raises
        if not proofs:
            refused += 1
            continue
        assert len(proofs) == 1
        proved += 1
        got = run(text, proofs[0])
        assert repr(got) == repr(want), text[len(SETUP) :]
    assert proved > 20 and refused > 20, (proved, refused)
