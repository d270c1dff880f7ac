"""What scripts of others are written in is recorded by regions; what is not is named with its line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import dynet_compat as dy
import pytest
from dynet_compat import _core
from dynet_compat.hints.coverage import RewrittenFile
from dynet_compat.hints.rewrite import patch
from support.modules import load
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="our hints")

HEAD = """
import functools
import dynet_compat as dy

EXTRA = 2.0

def scaled(x):
    global EXTRA
    return x * EXTRA

class Model:
    def __init__(self, pc):
        self.dy = dy
        self.activation = dy.tanh
        self.W = pc.add_parameters((3, 3))
        self.b = pc.add_parameters(3)
        self.gates = {g: (pc.add_parameters(3), pc.add_parameters((3, 3))) for g in "iou"}
        self.layers = [pc.add_parameters((3, 3)) for _ in range(3)]
        self.one = pc.add_parameters(3)
        self.n = 2

    @staticmethod
    def joined(x, y):
        return dy.tanh(dy.cmult(x, y)) + x

    def f(self, x, stack, W):
"""

BODIES = {
    "a dict of parameters": """
        pre = {name: b + w * x for name, (b, w) in self.gates.items()}
        i, o = dy.logistic(pre["i"]), dy.tanh(pre["o"])
        return dy.cmult(i, o)""",
    "the package in an attribute": """
        y = self.dy.tanh(self.W * x)
        return self.dy.logistic(y + self.b)""",
    "a function in an attribute": """
        y = self.activation(self.W * x + self.b)
        return y""",
    "expr()": """
        y = self.W.expr() * x + self.b.expr(update=True)
        return dy.tanh(y)""",
    "parameters that the caller has made a node of": """
        y = dy.tanh(W * x)
        return y + x""",
    "a list of layers": """
        y = dy.esum([dy.tanh(w * x) for w in self.layers])
        return y * (1.0 / len(self.layers))""",
    "is the stack empty": """
        top = stack[-1] if stack else self.one
        return dy.tanh(self.W * top) + x""",
    "one expression twice": """
        y = dy.cmult(x, stack[0])
        return y + self.b""",
    "parameter()": """
        b, layers = dy.parameter(self.b), [dy.parameter(w) for w in self.layers]
        y = dy.tanh(layers[1] * x + b)
        while stack is None:
            pass
        return y""",
    "a size in an attribute": """
        y = stack[0][:self.n] + x[:self.n]
        return y""",
    "a sum of lists": """
        y = dy.logistic(self.W * x + self.b)
        found = stack + [y]
        while stack is None:
            pass
        return found[-1]""",
    "a declared global name": """
        global EXTRA
        y = scaled(self.W * x)
        return dy.tanh(EXTRA * y) + self.b""",
    "a cached function": """
        @functools.lru_cache(maxsize=None)
        def encoded(left, right):
            return dy.tanh(self.W * x + self.b) * 2.0
        return encoded(0, 1) + encoded(0, 1)""",
    "a static method": """
        return self.joined(x, stack[0])""",
    "sizes": """
        y = dy.reshape(x, (1, len(self.layers)))
        return dy.tanh(y * 2.0)""",
}


def use(model: Any, renewals: int = 60) -> list[list[float]]:
    values = []
    for i in range(renewals):
        dy.renew_cg()
        x = dy.inputVector([0.1 * i, 0.2, -0.3])
        W = model.W.expr()
        values.append(model.f(x, [x, x] if i % 7 else [x], W).vec_value())
        if i == renewals // 2:
            model.gates["i"] = model.gates["o"]
            model.layers.pop()
            model.layers.append(model.W)
    return values


@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
def test_recorded_by_one_call(tmp_path: Path, body: str) -> None:
    source = HEAD + body + "\n"
    path = tmp_path / "program_of_coverage.py"
    path.write_text(source, encoding="utf-8")
    plain, other = load(path), load(path)
    regions = patch.rewrite_module(other, source).regions
    dy.reset_random_seed(1)
    expected = use(plain.Model(dy.ParameterCollection()))
    dy.reset_random_seed(1)
    assert use(other.Model(dy.ParameterCollection())) == expected
    statistics = [r.statistics() for r in regions.values()]
    assert sum(s["hits"] for s in statistics) > 30, statistics


WALKED = """
import dynet_compat as dy
pc = dy.ParameterCollection()
E = pc.add_lookup_parameters((9, 3))
W = pc.add_parameters((3, 3))
rnn = dy.LSTMBuilder(1, 3, 3, pc)
def states(words):
    return rnn.initial_state().transduce([E[w] for w in words])
def tree(depth, words):
    if depth == 0:
        return dy.tanh(W * states(words)[-1]) + states(words)[0]
    below = tree(depth - 1, words)
    return dy.tanh(W * below) + below
def refused(depth, words):
    if depth == 0:
        return dy.tanh(W * states(words)[-1]) + E[len("".join(map(str, words)))]
    below = refused(depth - 1, words)
    return dy.tanh(W * below) + below
"""


@pytest.mark.parametrize("name", ["tree", "refused"])
def test_nodes_are_counted_once(tmp_path: Path, name: str) -> None:
    path = tmp_path / "program_of_counts.py"
    path.write_text(WALKED, encoding="utf-8")
    module = load(path)
    patch.rewrite_module(module, WALKED)
    dy.renew_cg()
    _core._count_op_lines("/nowhere/")
    before = _core.timing()
    try:
        for i in range(200):
            dy.renew_cg()
            getattr(module, name)(3, [i % 5, 1, i % 7]).value()
        dy.renew_cg()
        one_by_one = sum(n for *_, n in _core._op_lines())
    finally:
        _core._count_op_lines("")
    after = _core.timing()
    kinds = ("recorded_nodes", "region_nodes", "builder_nodes")
    counted = {kind: after[kind] - before[kind] for kind in kinds}
    total = counted["region_nodes"] + counted["builder_nodes"] + one_by_one
    assert total == counted["recorded_nodes"], (counted, one_by_one)


def test_counting_begins_at_zero() -> None:
    """Also where nodes were recorded since it ended: they are those of no line."""
    dy.renew_cg()
    counts = []
    for _ in range(2):
        _core._count_op_lines("/nowhere/")
        try:
            dy.tanh(dy.scalarInput(1))
            counts.append(sum(n for *_, n in _core._op_lines()))
        finally:
            _core._count_op_lines("")
        for _ in range(5):
            dy.ones(2)
    assert counts == [2, 2]


SCRIPT = """
import dynet_compat as dy
pc = dy.ParameterCollection()
W = pc.add_parameters((3, 3))
rnn = dy.LSTMBuilder(1, 3, 3, pc)
def known(x):
    y = dy.tanh(W * x)
    return y + x
def unknown(x):
    print(end="")
    return W * x  # a single op
for _ in range(200):
    dy.renew_cg()
    x = dy.inputVector([1, 2, 3])
    for _ in range(3):
        x = known(x)
        x = unknown(x)
    rnn.initial_state().transduce([x, x])
"""


def test_lines_outside_regions(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "-m", "dynet_compat", "run", "--explain", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    lines = done.stderr.splitlines()
    assert " % by steps of builders outside regions)" in lines[0], lines
    [unknown] = [line for line in lines if "script.py:11 unknown: it records a single op" in line]
    assert int(unknown.split("%")[0].split()[-1]) > 20, lines
    [outside] = [line for line in lines if "recorded one by one:" in line]
    assert 600 <= int(outside.split(":")[1].split()[0]) <= 1200, lines
    single = int(outside.split(" % in statements of one op")[0].split()[-1])
    refused = int(outside.split(" % refused")[0].split()[-1])  # inputs and the loop of the module itself
    assert 30 < single < 70 and 30 < refused + single <= 101, lines


def test_regions_that_are_given_up_are_not_refused(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        """
import dynet_compat as dy
def scaled(x, s):
    z = dy.tanh(x)
    return z * s
def printed(x):
    print(end="") or dy.tanh(x) + x
for _ in range(60):
    dy.renew_cg()
    x = dy.inputVector([1.0, 2.0])
    for s in range(360):
        scaled(x, float(s % 60))
    printed(x)
""",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "dynet_compat", "run", "--explain", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    [outside] = [line for line in done.stderr.splitlines() if "recorded one by one:" in line]
    slower = int(outside.split(" % in regions that took longer than their statements")[0].split()[-1])
    assert slower > 50 and " % refused" in outside, done.stderr


def test_regions_of_functions_that_have_their_code_back(tmp_path: Path) -> None:
    """They are not learned any more, though nothing is wrong with them."""
    script = tmp_path / "script.py"
    script.write_text(
        """
import dynet_compat as dy
def f(x, s, more, *, walked=False):
    z = dy.tanh(x)
    z = z * s
    if not more:
        return z
    y = dy.tanh(z) + z
    return dy.cmult(y, z) + dy.logistic(y)
for more in [True] + 350 * [False] + 50 * [True]:
    dy.renew_cg()
    x = dy.inputVector([1.0, 2.0])
    for s in range(360):
        f(x, float(s % 60), more)
""",
        encoding="utf-8",
    )
    environment = {**os.environ, "DYNET_COMPAT_HINTS": "eager", "DYNET_COMPAT_REPORT": "lines"}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, env=environment)
    [line] = [line for line in done.stderr.splitlines() if "script.py:9 f" in line]
    assert "switched off: it saved less than other regions of its function took" in line, done.stderr
    [outside] = [line for line in done.stderr.splitlines() if "recorded one by one:" in line]
    assert "regions were learned or compared" not in outside.split(", ")[1], done.stderr


def test_lists_of_a_dictionary_are_not_copied(pair: Callable) -> None:
    p = pair(
        """
    class Model:
      def __init__(self):
        self.table = {"a": [1, 2], "b": [3, 4]}

    def f(model, x):
      kept = {name: numbers for name, numbers in model.table.items()}
      y = dy.tanh(x)
      return kept, dy.cmult(y, y) + y
    """
    )
    for module in (p.plain, p.other):
        model = module.Model()
        for _ in range(12):
            dy.renew_cg()
            kept, _ = module.f(model, dy.inputVector([1.0]))
            assert kept["a"] is model.table["a"] and kept["b"] is model.table["b"]


def test_a_line_of_two_regions_is_told_of_the_one_that_ran(pair: Callable) -> None:
    """A statement that follows a branch goes into its arms, of which one may never run."""
    p = pair("""
import numpy as np
W = dy.ParameterCollection().parameters_from_numpy(np.eye(3))
def f(x, train):
    if train:
        y = dy.dropout(W * x, 0.5)
    else:
        y = W * x
    return dy.tanh(y) + x
""")
    p.agree(lambda m: [m.f(dy.inputVector([1, 2, i]), False) for i in range(20)])
    assert " 18 times by one call" in RewrittenFile.of(p.rewriter).reason(10).text
