"""Comprehensions over items that stand in the source, and getattr(): recorded as if they were written out."""

from __future__ import annotations

from typing import Any, Callable

import pytest
from support.walks import learn, seeded_model_of, walked

GATES = """
class Model:
    def __init__(self):
        pc = self.pc = dy.ParameterCollection()
        self.W = self.Wi = self.W1 = pc.add_parameters((3, 3))
        self.U = self.Wo = self.W0 = pc.add_parameters((3, 3))
        self.b = pc.add_parameters(3)
        self.name = "Wi"
"""


def without_dicts(value: Any) -> Any:
    """The value, with lists of items for dicts."""
    if isinstance(value, dict):
        return ["dict", *without_dicts(list(value.items()))]
    return type(value)(map(without_dicts, value)) if isinstance(value, (list, tuple)) else value


def use(m: Any) -> list:
    m.dy.renew_cg()
    model = seeded_model_of(m)
    return [without_dicts(model.f(m.dy.inputVector([i, 2, 3]), i)) for i in range(3)]


def agrees(pair: Callable, body: str, source: str = GATES) -> Any:
    """A function of these lines records under hints what it records as written."""
    lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
    p = pair(f"{source}\n    def f(self, x, i):\n{lines}\n")
    for _ in range(8):
        p.agree(use)
    return p


@pytest.mark.parametrize(
    "body",
    [
        'g = {k: getattr(self, "W" + k) * x for k in "io"}\nreturn dy.cmult(g["i"], dy.tanh(g["o"]))',
        'g = {k: dy.tanh(getattr(self, f"W{k}") * x) for k in ("i", "o", 0, 1)}\nreturn g["i"] + g[0]',
        'g = [getattr(self, f"W{k}") * x for k in (0, 1)]\nreturn dy.cmult(g[0], g[1]), g',
        'g = {k: W * x for k, W in (("i", self.W), ("o", self.U))}\nreturn g["i"] + g["o"]',
        'g = {k: W * x + self.b for k, W in [("i", self.W), ("o", self.U)]}\nreturn g',
        'g = [dy.tanh(W * x + b) for W, b in ((self.W, self.b), (self.U, x))]\ng.append(g[0] + x)\nreturn g',
        'g = {k: [W * x] for k, W in (("i", self.W), ("o", self.U))}\ng["i"].append(x)\nreturn g',
        'g = h = {k: getattr(self, "W" + k) * x for k in "io"}\nh["i"] = x\nreturn g, h, g["i"] + x',
        'g = {k: W * x for k, W in (("i", self.W), ("i", self.U))}\nreturn g["i"] + x, len(g)',
        'k = self.U\ng = {k: getattr(self, "W" + k) * x for k in "io"}\nreturn k * g["i"], k',
        'k = i\ng = [getattr(self, "W" + k) * x for k in "io"]\nreturn g, k, g[1] + x',
        'g = {k: getattr(self, "W" + k) * x for k in "io"}\nreturn dy.esum([v for v in g.values()]), list(g)',
        'g = {f"{k}{1}": self.W * x for k in "ab"}\nreturn g["a1"] + g["b1"]',
        'y = dy.tanh(getattr(self, "W") * x)\nreturn y + getattr(self, "b")',
        'g = {k: {n: getattr(self, f"W{n}") * x for n in "io"} for k in "ab"}\nreturn g["a"]["i"] + x',
    ],
)
def test_recorded_by_one_call(pair: Callable, body: str) -> None:
    p = agrees(pair, body)
    assert p.hits > 0, p.statistics


@pytest.mark.parametrize(
    "body",
    [
        'g = {k: getattr(self, k) * x for k in (self.name, "U")}\nreturn g["U"] + g["Wi"]',
        'g = {k: self.W * x for k in (1.0, 1)}\nreturn g[1] + x, g',
        'g = {k: self.W * x for k in (True, 1)}\nreturn g[1] + x, g',
        'g = {k: getattr(self, f"W{k!r}", self.W) * x for k in "io"}\nreturn g["i"] + g["o"]',
        'g = {k: getattr(self, f"W{k:>1}") * x for k in "io"}\nreturn g["i"] + g["o"]',
        'g = {k: getattr(self, "nothing" + k) * x for k in "io"}\nreturn g["i"] + g["o"]',
        'g = {k: getattr(self, "W" + k) * x for k in "io"}\nreturn g["u"] + x',
        'g = {k: W * x for k, W in ((1, self.W), (2, 3, 4))}\nreturn g[1] + x',
        'g = {k: x + self.b for k in ""}\nreturn x + self.b, g',
        'a, b = {k: self.W * x for k in "io"}\nreturn a, b, x + x',
        "g = [y for y in (x, x + x) if i]\nreturn g, x + x",
        f"y = x + self.b\nif i > 5: y = y * len(f'{{{10**4400:#x}}}')\nreturn dy.tanh(y) + x",
    ],
)
def test_left_to_the_script(pair: Callable, body: str) -> None:
    agrees(pair, body)


def test_attributes_that_change(pair: Callable) -> None:
    body = 'g = {k: getattr(self, "W" + k) * x for k in "io"}\nreturn g["i"] + dy.tanh(g["o"])'
    p = agrees(pair, body)
    before = p.hits

    def changed(m: Any) -> list:
        model = seeded_model_of(m)
        model.Wi, model.Wo = model.Wo, model.Wi
        found = use(m)
        model.Wi, model.Wo = model.Wo, model.Wi
        return found + use(m)

    for _ in range(4):
        p.agree(changed)
    assert p.hits > before


PRIVATE = """
    def f(self, x, i):
        y = getattr(self, "__Q") * x + x
        g = [getattr(self, "__" + k) * y + x for k in "QQ"]
        return g, self.__Q * y + dy.tanh(x)
"""


def test_private_names(pair: Callable) -> None:
    """Inside a class self.__Q means another attribute, and "__Q" does not."""
    p = pair(GATES + "        self.__Q = self.W\n        setattr(self, '__Q', self.U)\n" + PRIVATE)

    def changing(m: Any) -> list:
        model = seeded_model_of(m)
        found = use(m)
        for name in ("__Q", "_Model__Q"):
            kept = getattr(model, name)
            setattr(model, name, model.b * 2)
            delattr(model, name)
            try:
                found += use(m)
            except AttributeError as e:
                found.append(str(e))
            setattr(model, name, model.Wo)
            found += use(m)
            setattr(model, name, kept)
        return found

    for _ in range(8):
        p.agree(use)
    for _ in range(4):
        p.agree(changing)


def test_another_getattr(pair: Callable) -> None:
    p = agrees(pair, 'return dy.tanh(getattr(self, "W") * x) + self.b')
    assert p.hits > 0

    def other(m: Any) -> list:
        m.getattr = lambda owner, name: owner.U
        found = use(m)
        del m.getattr
        return found + use(m)

    for _ in range(4):
        p.agree(other)


WALKED = """
    def f(self, x, i):
        h = x
        for k in range(2):
            if i % 2:
                h = dy.tanh(getattr(self, f"W{k}") * h)
            else:
                h = getattr(self, "W" + "io"[k]) * h + self.b
        return h
"""


def test_getattr_in_walked_functions(pair: Callable) -> None:
    p = pair(GATES + WALKED)
    learn(p, use)
    assert walked(p, "Model.f")["hits"] > 0


def test_attributes_that_the_walk_assigned(pair: Callable) -> None:
    p = pair(
        GATES
        + """
    def f(self, x, i):
        h = x
        for k in ("s", "t"):
            self.s, self.t = h + x, dy.tanh(h)
            h = dy.tanh(getattr(self, k) + getattr(self, f"W{i % 2}") * x)
        return h
"""
    )
    learn(p, use)


def test_names_that_are_no_text(pair: Callable) -> None:
    p = pair(
        GATES
        + """
    def f(self, x, i):
        h = x
        for k in ("Wi", b"Wo", 2, None)[: i + 1]:
            h = dy.tanh(getattr(self, k) * h)
        return h
"""
    )
    for _ in range(8):
        p.agree(use)
