"""Statements of functions that could be recorded by one call: what they tell the core is not seen."""

from __future__ import annotations

import contextlib
import sys
import traceback
from typing import Any, Callable

import dynet_compat as dy
import pytest
from support.walks import walked

TREE = """
import numpy as np
W = dy.ParameterCollection().parameters_from_numpy(np.linspace(-1, 1, 9).reshape(3, 3))
class Tree:
    def __init__(self, *kids):
        self.kids = kids
        self.seen = 0
def chain(n):
    nodes = [Tree()]
    for _ in range(n):
        nodes.append(Tree(nodes[-1]))
    return nodes
"""


DEEP = """
class Model:
    def __init__(self):
        self.E = dy.ParameterCollection().lookup_parameters_from_numpy([[0.5, 1.0], [2.0, 0.25]])
    def run(self, depth, x):
        if depth == 0:
            return dy.tanh(self.E[0] + x)
        h = self.run(depth - 1, x)
        return dy.tanh(h + x) if depth < 5 else h
"""


def near_the_limit(run: Callable, p: Any, room: int) -> tuple:
    """What run(module) finds without and with walks, `room` levels below the limit of recursion."""
    for _ in range(300):
        dy.renew_cg()  # what the package does in time runs now
    depth = len(traceback.extract_stack())
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + room)
    try:
        return run(p.plain), run(p.other)
    finally:
        sys.setrecursionlimit(limit)


def x() -> dy.Expression:
    return dy.inputVector([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    "returned",
    ["z", "(\n        z)", "z + h", "h + z", "(\n        (\n        z) + h).dim()", "dy.tanh(z)", "(z, h)"],
)
@pytest.mark.parametrize("before", ["", "    h = dy.tanh(W * h) + h\n"])
def test_names_without_values_are_where_they_were_written(pair: Callable, returned: str, before: str) -> None:
    p = pair(
        TREE
        + f"""
def go(tree, x, last):
    h = dy.tanh(W * x)
    h = dy.tanh(W * h) + x
    for kid in tree.kids:
        z = go(kid, h, True)
    if last: return h
{before}    return {returned}
"""
    )
    for _ in range(12):
        dy.renew_cg()
        p.other.go(p.other.chain(2)[-1], x(), True)
    assert walked(p, "go")["hits"] > 3

    def place(module: Any) -> tuple:
        with pytest.raises(NameError) as error:
            module.go(module.Tree(), x(), False)
        (frame,) = (f for f in traceback.extract_tb(error.value.__traceback__) if f.name == "go")
        return str(error.value), *(
            getattr(frame, a, None) for a in ("lineno", "end_lineno", "colno", "end_colno")
        )

    assert place(p.other) == place(p.plain)


@pytest.mark.trials
@pytest.mark.parametrize("last", ["dy.tanh(W * h)", "dy.strided_select(W * h, [1], [0], [3])"])
def test_nothing_fails_earlier_at_the_limit_of_recursion(pair: Callable, last: str) -> None:
    """In each turn of a trial; between the region and the next call there is a statement that is seen.
    A region needs no levels for its calls, so that more fits below the limit: calls of functions in Python
    need some, and up to 3.10 all do."""
    p = pair(
        TREE
        + f"""
def go(tree, x, note):
    h = dy.tanh(W * x)
    h = {last} + x
    if note: tree.seen = 1
    for kid in tree.kids: h = go(kid, h, note)
    return h
"""
    )

    def errors(module: Any) -> list:
        found, short = [], module.chain(3)[-1]
        for i in range(1200):
            dy.renew_cg()
            module.go(short, x(), False)
            if i % 12:
                continue
            nodes = module.chain(320)
            with pytest.raises(RecursionError) as error:
                module.go(nodes[-1], x(), True)
            *_, (frame, line) = traceback.walk_tb(error.value.__traceback__)
            found.append((i, sum(n.seen for n in nodes), str(error.value), frame.f_code.co_name, line))
        return found

    plain, other = near_the_limit(errors, p, 250)
    if "tanh" in last and sys.version_info >= (3, 11):
        assert other == plain
    for (_, seen, *_), (_, seen_with_hints, *_) in zip(plain, other):
        assert seen <= seen_with_hints <= seen + 5
    assert walked(p, "go")["hits"] > 128, (walked(p, "go"), p.statistics)


ENDS = {
    "branches": """
    if tree.kids:
        for kid in tree.kids:
            go(kid, h, out)
        out.append(dy.tanh(h))
    else:
        out.append(h)
""",
    "a branch that is not taken": """
    for kid in tree.kids:
        go(kid, h, out)
    if (len(out) < 50 and
            len(out) > 1):
        if not tree.kids:
            out.append(h)
""",
    "a loop": """
    for kid in tree.kids:
        go(kid, h, out)
        if len(out) > 1:
            break
""",
    "a loop with a test": """
    for kid in tree.kids:
        go(kid, h, out)
    n = 0
    while (n < 2 and
            n < len(out)):
        n = n + 1
        if n == 1:
            break
""",
    "a value": """
    for kid in tree.kids:
        go(kid, h, out)
    out.append(h)
    return (
        dy.tanh(
            h))
""",
}


@pytest.mark.skipif(sys.version_info < (3, 10), reason="each instruction has a line")
@pytest.mark.parametrize("end", ENDS)
def test_tracers_see_the_lines_that_were_written(pair: Callable, end: str) -> None:
    p = pair(
        TREE
        + """
def go(tree, x, out):
    h = dy.tanh(W * x)
    h = dy.tanh(W * h) + x
"""
        + ENDS[end]
    )

    def events(module: Any) -> list:
        found = []

        def tracer(frame: Any, event: str, argument: Any) -> Any:
            if frame.f_code.co_name == "go":
                found.append((event, frame.f_lineno))
            return tracer

        tree = module.Tree
        for t in (tree(), tree(tree()), tree(tree(), tree()), tree(tree(), tree(tree()))):
            dy.renew_cg()
            start = x()
            sys.settrace(tracer)
            module.go(t, start, [])
            sys.settrace(None)
        return found

    for i in range(400):
        if i % 10 == 0:
            dy.renew_cg()
        p.other.go(p.other.chain(2)[-1], x(), [])
    assert walked(p, "go")["hits"] > 128 or walked(p, "go")["refusal"], walked(p, "go")
    before = sys.gettrace()
    try:
        plain, other = events(p.plain), events(p.other)
    finally:
        sys.settrace(before)
    assert other == plain


def test_a_timed_run_that_fails_does_not_stop_other_hints(pair: Callable) -> None:
    p = pair(
        DEEP
        + """
def f(x):
  z = dy.tanh(x)
  return z * 2.0
"""
    )
    model = p.other.Model()
    for i in range(2000):  # runs are timed after the first ones, fewer where noise makes walks look slow
        if i % 10 == 0:
            dy.renew_cg()
        model.run(3, dy.inputVector([1.0, 2.0]))
        p.other.f(dy.inputVector([1.0, 2.0]))
        if walked(p, "Model.run")["hits"] > 128:
            break
    assert walked(p, "Model.run")["hits"] > 128, walked(p, "Model.run")
    (name,) = (n for n, s in p.statistics.items() if s["name"].startswith("f:"))

    def fail(depth: int) -> None:
        with contextlib.suppress(Exception):
            fail(depth - 1) if depth else model.run(3, None)

    for _ in range(12):
        dy.renew_cg()
        before = p.statistics[name]["hits"]
        fail(3)
        for _ in range(6):
            p.other.f(dy.inputVector([1.0, 2.0]))
        assert p.statistics[name]["hits"] > before or p.statistics[name]["off"], p.statistics[name]


def test_functions_that_always_compute_are_not_walked(pair: Callable) -> None:
    p = pair(
        """
class State:
    def __init__(self):
        self.W = dy.ParameterCollection().parameters_from_numpy([[0.5, 1.0], [2.0, 0.25]])
    def value(self, x):
        return dy.tanh(self.W * x)
    def read(self, xs):
        h = xs[0]
        for x in xs:
            h = dy.cmult(self.value(x), h) + x
        return h
    def calls_its_own_value(self, xs):
        h = self.value(xs[0])
        for x in xs:
            h = dy.cmult(self.value(x), h) + x
        return h
    def may_compute(self, xs, train):
        h = self.calls_its_own_value(xs)
        for x in xs:
            h = dy.cmult(dy.tanh(self.W * x), h) + x
        if not train:
            return h
        h.backward()
        return h.scalar_value()
    def computes(self, batch):
        total = dy.squared_norm(self.read(batch[0]))
        for xs in batch:
            total = dy.tanh(total + dy.squared_norm(self.read(xs)))
        total.backward()
        return total.scalar_value()
state = State()
"""
    )
    for _ in range(3):
        dy.renew_cg()
        xs = [dy.inputVector([1.0, 2.0]), dy.inputVector([3.0, 1.0])]
        state = p.other.state
        state.may_compute(xs, False), state.calls_its_own_value(xs), state.computes([xs, xs])
    names = {f.statistics()["name"] for f in p.rewriter.walked_functions.values()}
    assert names == {"State.read", "State.calls_its_own_value", "State.may_compute"}


def test_comprehensions_take_a_level_of_recursion(pair: Callable) -> None:
    """Of their own, before Python 3.12."""
    p = pair(
        DEEP
        + """
    def nested(self, depth, x):
        h = dy.tanh(self.E[0] + x)
        h = dy.tanh(h) + x
        if depth == 0:
            return h
        return [self.nested(depth - 1, h) for _ in (1,)][0]
"""
    )

    def deepest(module: Any) -> int:
        model, depth = module.Model(), 0
        while True:
            dy.renew_cg()
            try:
                model.nested(depth, dy.inputVector([1.0, 2.0]))
            except RecursionError:
                return depth
            depth += 1

    def recorded(module: Any) -> int:
        for i in range(400):
            if i % 10 == 0:
                dy.renew_cg()
            module.Model().nested(3, dy.inputVector([1.0, 2.0]))
        return deepest(module)

    plain, other = near_the_limit(recorded, p, 200)
    assert other == plain
    assert walked(p, "Model.nested")["hits"] > 128, (walked(p, "Model.nested"), p.statistics)
