"""`or`, `and` and `a if b else c` inside a region: what decides is told by what the region reads."""

from __future__ import annotations

from typing import Any, Callable

import dynet_compat as dy
import pytest
from support.region_models import vector

EXPRESSIONS = {
    "or": "(c or x)",
    "and": "(c and x)",
    "if": "(x if c else y)",
    "if not": "(x if not c else y)",
    "is None": "(x if c is None else y)",
    "is not None": "(x + y if c is not None else y)",
    "three": "(c and d or x)",
    "inside one another": "((x if d else y) if c else (c or x))",
    "made here": "(c or x + y)",
    "a number": "(x * (c or 2.0))",
}


class Truth:
    """Its truth is asked by running code of the script, and is another one each time."""

    asked = 0

    def __bool__(self) -> bool:
        Truth.asked += 1
        return Truth.asked % 3 == 0


def values(kind: str) -> list:
    return {
        "none": [None, None],
        "numbers": [0, 5, 0.0, 1.5, True, False, -1],
        "text": ["", "a", "bc"],
        "lists": [[], [1], (), (0,), [vector(3)], [[]]],
        "expressions": [vector(3), vector(4), None],
        "objects": [Truth(), Truth(), Truth()],
        "others": [{}, {1: 2}, set(), dy.tanh, dy, Truth],
    }[kind]


@pytest.mark.parametrize("kind", ["none", "numbers", "text", "lists", "expressions", "objects", "others"])
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_what_decides(pair: Callable, expression: str, kind: str) -> None:
    result = EXPRESSIONS[expression]
    p = pair(f"def f(c, d, x, y):\n    z = dy.tanh(y) + x\n    return z, {result}, dy.rectify(z)\n")

    def use(m: Any) -> Any:
        Truth.asked = 0
        both = values(kind)
        for i in range(6 * len(both)):
            c, d = both[i % len(both)], both[(i // 3) % len(both)]
            try:
                yield m.f(c, d, vector(i), vector(-i))
            except (TypeError, ValueError) as error:
                yield str(error)

    for _ in range(2):
        p.agree(use)
    if kind == "none" and expression not in ("and", "a number"):
        assert p.hits > 10, p.statistics


NOT_TAKEN = [
    "(x if x is y else z)",
    "(x if c == 1 else z)",
    "(x if c < 1 else z)",
    "(x if c in d else z)",
    "([x] or z)",
]


@pytest.mark.parametrize("expression", NOT_TAKEN)
def test_other_conditions_end_a_block(pair: Callable, expression: str) -> None:
    """Whether two expressions are one object is not told by what they are."""
    p = pair(f"def f(c, d, x, y):\n    z = dy.tanh(y) + x\n    return z, {expression}\n")
    for _ in range(3):
        p.agree(lambda m: [m.f(i % 2, [1], vector(i), vector(i)) for i in range(6)])
        p.agree(lambda m: [m.f(i % 2, [1], v, v) for i in range(6) for v in [vector(i)]])
    assert [s["name"] for s in p.statistics.values()] == ["f:3"]


def test_what_is_not_evaluated_is_not_needed(pair: Callable) -> None:
    """A part that would fail, and one that runs code of the script."""
    p = pair("""
class Model:
    calls = 0
    @property
    def counted(self):
        Model.calls += 1
        return self.x
def f(m, x, kept):
    y = dy.tanh(x)
    kept = kept or y + m.missing
    z = y if kept else m.counted
    return y + kept + z
""")

    def use(module: Any) -> Any:
        m = module.Model()
        for i in range(8):
            yield module.f(m, vector(i), vector(2))
        yield module.Model.calls
        try:
            module.f(m, vector(0), None)
        except AttributeError as error:
            yield str(error)

    p.agree(use)


def test_what_was_read_may_be_of_any_kind(pair: Callable) -> None:
    p = pair("def f(c, x, y):\n    z = dy.tanh(y)\n    return z + y, c and x, dy.rectify(z)\n")
    xs = [lambda: vector(1), lambda: dy.tanh(vector(2)), lambda: dy.zeros(3)]
    for _ in range(3):
        p.agree(lambda m: [m.f(True, xs[i % 3](), vector(i)) for i in range(6)])
    assert p.hits > 12, p.statistics


SAME_OBJECTS = {
    "added in place": "a = c or d\n    a += d\n    return [dy.tanh(x) + x, a is c, a is d, len(c or [])]",
    "multiplied in place": "a = c if d else x\n    a *= 2\n    return [dy.tanh(x) + x, a is c, len(c or [])]",
    "in a function": "a = pick(c, d)\n    a += d\n    return [dy.tanh(x) + x, a is c, len(c or [])]",
    "a tuple": "z = dy.tanh(x) + x\n    a = c or d\n    return [z, a, c, d]",
    "a tuple of a function": "z = dy.tanh(x) + x\n    return [z, pick(c, d), c]",
    "appended": "z = dy.tanh(x) + x\n    out.append(c or d)\n    out.append(c)\n    return [z]",
    "a part": "z = dy.tanh(x) + x\n    a = (c or d)[0]\n    return [z, a, c, d]",
    "nothing added": "z = dy.tanh(x) + x\n    return [z, c + (), c]",
}


@pytest.mark.parametrize("text", SAME_OBJECTS.values(), ids=list(SAME_OBJECTS))
@pytest.mark.parametrize("kind", [list, tuple])
def test_what_was_there_before_stays_what_it_is(pair: Callable, text: str, kind: Callable) -> None:
    p = pair(f"def pick(c, d):\n    return c if c is not None else d\ndef f(c, d, x, out):\n    {text}\n")

    def use(m: Any) -> Any:
        out: list = []
        for n in (1, 2, 2, 2, 3, 3, 3, 1):
            for c in (kind([1] * n), kind([[0]] * n), kind([vector(n)] * n), None):
                try:
                    yield [m.f(c, kind([1]), vector(n), out), c, out]
                except TypeError as error:
                    yield str(error)

    for _ in range(2):
        p.agree(use)
