"""Regions recorded by one call: what is recorded is what the script would have recorded, whatever it does."""

from __future__ import annotations

import itertools
from types import ModuleType
from typing import Any, Callable

import dynet_compat as dy
import numpy as np
import pytest
from support.region_models import MODEL, repeated_function


def repeated(n: int, f: Callable[[Any, list], Any], size: int = 3) -> Callable[[ModuleType], Any]:
    """f(model, inputs) n times, with two new inputs each time."""

    def use(module: ModuleType) -> Any:
        model = module.model = getattr(module, "model", None) or module.Model()
        for i in range(n):
            rng = np.random.default_rng(i)
            yield f(model, [dy.inputTensor(rng.normal(size=size)) for _ in range(2)])

    return use


def test_method_with_two_results(pair: Callable) -> None:
    p = pair(MODEL)
    for _ in range(3):
        p.agree(repeated(10, lambda m, x: m.cell(*x)))
    assert p.hits > 15


def test_arguments_by_name(pair: Callable) -> None:
    p = pair(MODEL)
    p.agree(repeated(10, lambda m, x: m.cell(h=x[0], x=x[1])))
    assert p.hits > 5


def test_functions_called_by_a_block_are_part_of_it(pair: Callable) -> None:
    p = pair(MODEL)
    p.agree(repeated(10, lambda m, x: m.both(x[0])))
    both = next(s for s in p.statistics.values() if s["name"].startswith("Model.both"))
    assert both["hits"] > 5


def test_indices_differ(pair: Callable) -> None:
    p = pair(MODEL)
    words = itertools.cycle([5, 7, 2, 0, 1, 8, 3])
    p.agree(repeated(14, lambda m, x: m.word(next(words), x[0])))
    assert p.hits > 8
    p.agree(repeated(3, lambda m, x: m.word(np.int64(4), x[0])))


@pytest.mark.parametrize("word", [9, -1, -9, -10, 1 << 40, True, 2.0, "a", None])
def test_bad_indices_fail_as_without(pair: Callable, word: Any) -> None:
    p = pair(MODEL)
    p.agree(repeated(8, lambda m, x: m.word(5, x[0])))
    p.agree(repeated(1, lambda m, x: m.word(word, x[0])))


def test_one_expression_as_both_arguments(pair: Callable) -> None:
    p = pair(MODEL)
    p.agree(repeated(6, lambda m, x: m.cell(x[0], x[0])))
    p.agree(repeated(6, lambda m, x: m.cell(x[0], x[1])))
    p.agree(repeated(6, lambda m, x: m.cell(x[0], x[0])))


def test_other_extents(pair: Callable) -> None:
    p = pair("class Model:\n  def f(self, x, y):\n    z = dy.tanh(x) + y\n    return dy.cmult(z, y)\n")
    for size in (3, 4, 3, 5, 1):
        p.agree(repeated(5, lambda m, x: m.f(*x), size))
    p.agree(lambda m: [m.Model().f(dy.inputTensor(np.ones((3, 2)), batched=True), dy.inputVector([1, 2, 3]))])
    p.agree(lambda m: [m.Model().f(dy.inputVector([1, 2]), dy.inputVector([1, 2, 3]))])


def test_what_the_object_holds_changes(pair: Callable) -> None:
    p = pair(MODEL)
    use = repeated(6, lambda m, x: [*m.cell(*x), m.gate("i", x[0])])
    p.agree(use)
    for change in (
        lambda m: setattr(m, "W", m.U),
        lambda m: m.gates.update(i=m.U),
        lambda m: setattr(m, "gates", {"i": m.W, "o": m.W}),
        lambda m: setattr(m, "b", m.E[3]),  # an expression of a graph that is gone, then
    ):
        for module in (p.plain, p.other):
            change(module.model)
        p.agree(use)


def test_global_function_replaced(pair: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    p = pair(MODEL)
    use = repeated(6, lambda m, x: m.cell(*x))
    p.agree(use)
    monkeypatch.setattr(dy, "tanh", dy.logistic)
    p.agree(use)
    monkeypatch.setattr(dy, "tanh", lambda x: dy.exp(x) + 1)
    p.agree(use)


def test_method_replaced_and_overridden(pair: Callable) -> None:
    p = pair(MODEL + "\nclass Child(Model):\n    def gate(self, name, x):\n        return dy.exp(x)\n")
    p.agree(repeated(6, lambda m, x: m.both(x[0])))

    def child(module: ModuleType) -> list:
        return [module.Child().both(dy.inputVector([0.1 * i, 2, 3])) for i in range(5)]

    p.agree(child)
    for module in (p.plain, p.other):
        module.Model.gate = lambda self, name, x: dy.sqrt(dy.square(x))
    p.agree(repeated(6, lambda m, x: m.both(x[0])))


def test_loops_and_appends(pair: Callable) -> None:
    p = pair(
        MODEL
        + """
    def run(self, words, tags):
        h = self.E[0]
        losses = []
        for w, t in zip(words, tags):
            h = dy.tanh(dy.affine_transform([self.b, self.W, self.E[w], self.U, h]))
            losses.append(dy.pickneglogsoftmax(self.U * h, t))
        return dy.esum(losses), h
"""
    )
    for module in (p.plain, p.other):
        module.model = module.Model()
    for words in ([3, 4, 5, 6, 7, 8], [8, 7, 6, 5], [2] * 5, [0, 1]):
        p.agree(lambda m, words=words: [m.model.run(words, [2 for _ in words])])
        p.agree(lambda m, words=words: [m.model.run(words, [w % 3 for w in words])])
    assert p.hits > 3


def test_a_list_that_is_read_after_it_was_appended_to(pair: Callable) -> None:
    p = pair("""
def f(x, xs, ys):
    y = dy.tanh(x)
    xs.append(y)
    z = dy.esum(ys)
    return dy.cmult(z, ys[-1])
""")

    def same_list(module: ModuleType) -> list:
        xs = [dy.inputVector([1, 2])]
        return [module.f(dy.inputVector([i, 3]), xs, xs) for i in range(5)]

    def other_list(module: ModuleType) -> list:
        return [module.f(dy.inputVector([i, 3]), [], [dy.inputVector([4, i])]) for i in range(5)]

    for use in (other_list, same_list, other_list):
        p.agree(use)


def test_lists_that_the_block_makes(pair: Callable) -> None:
    p = pair("""
def f(x, y):
    parts = [dy.tanh(x)]
    parts.append(y)
    parts.append(dy.exp(parts[0]))
    both = (parts, dy.concatenate(parts))
    parts.append(both[1])
    return parts
def g(x, y):
    a = [dy.tanh(x), dy.exp(y)]
    b = a
    return a, b
""")
    p.agree(repeated_function("f"))

    def identity(module: ModuleType) -> list:
        for i in range(5):
            a, b = module.g(dy.inputVector([i]), dy.inputVector([1]))
            assert a is b
        return []

    p.agree(identity)


def test_arguments_that_are_tuples(pair: Callable) -> None:
    p = pair("""
def f(left, right):
    (h, c), (g, d) = left, right
    z = dy.tanh(h + g)
    return z, dy.cmult(c, d), left[0]
""")

    def use(module: ModuleType) -> list:
        states = [(dy.inputVector([i]), dy.inputVector([2 * i])) for i in range(8)]
        return [module.f(a, b) for a, b in zip(states, states[1:])]

    p.agree(use)
    assert p.hits > 3
    p.agree(lambda m: [m.f([dy.zeros(1), dy.inputVector([2])], (dy.inputVector([3]), dy.ones(1)))])
    p.agree(lambda m: [m.f((dy.inputVector([1]),), (dy.inputVector([3]), dy.ones(1)))])
    p.agree(lambda m: [m.f(5, None)])


def test_results_of_other_kinds(pair: Callable) -> None:
    p = pair("""
def f(x, y):
    a = dy.tanh(x)
    b = dy.exp(y)
    return a, None, 3, x, "text", (b, (y, 2.5)), [a]
def nothing(x, y):
    a = dy.tanh(x)
    return None, dy.exp(a)
""")
    p.agree(repeated_function("f"))
    p.agree(repeated_function("nothing"))
    assert p.hits > 6


def test_random_draws(pair: Callable) -> None:
    p = pair("""
def f(x, y):
    z = dy.dropout(dy.tanh(x), 0.5)
    return dy.noise(z, 0.1) + dy.random_normal((2,))
""")
    for _ in range(2):
        p.agree(repeated_function("f", 9))
    assert p.hits > 8


def test_values_equal_for_all_instances(pair: Callable) -> None:
    p = pair(
        MODEL
        + """
    def zero(self, x):
        z = dy.zeros(3) + 1.0
        return dy.tanh(self.W * z) + x
"""
    )
    p.agree(repeated(9, lambda m, x: m.zero(x[0])))
    assert p.hits > 5


def test_lookups_and_items_as_results(pair: Callable) -> None:
    p = pair(
        MODEL
        + """
    def f(self, w, h, extra):
        x = self.E[w]
        first = extra[0]
        y = dy.tanh(h)
        z = y[1]
        for i in range(2):
            y = y + x
        return x, y, first, z, extra[1], self.layers[0]
"""
    )

    def use(m: Any, x: list, numbers: Any = itertools.cycle([3, 4, 5, 6])) -> list:  # noqa: B008
        a, b, c, d, e, f = m.f(next(numbers), x[0], [x[1], None])
        assert c is x[1] and e is None and f is m.W
        return [a, b, d]

    p.agree(repeated(12, use))
    assert p.hits > 6


def test_views(pair: Callable) -> None:
    p = pair("""
def f(x, y):
    z = dy.reshape(dy.tanh(x), (1, 2))
    return dy.transpose(z) + y, z[0], y[0:1]
""")
    p.agree(repeated_function("f"))
    assert p.hits > 3


def test_picked_elements_can_be_set(pair: Callable) -> None:
    p = pair("def f(x, i):\n  y = dy.exp(dy.tanh(x))\n  return dy.pick(y, i)\n")

    def use(module: ModuleType) -> list:
        out = []
        for i in (3, 2, 4, 3, 2, 5, 6):
            e = module.f(dy.inputVector(np.arange(7) + i), i)
            e.set_index(0)
            out.append(e)
        return out

    p.agree(use)
    assert p.hits > 2


def test_gates_of_lstms(pair: Callable) -> None:
    p = pair("""
class Cell:
    def __init__(self):
        pc = self.pc = dy.ParameterCollection()
        self.Wx, self.Wh, self.b = (pc.add_parameters(shape) for shape in ((12, 6), (12, 3), 12))

    def step(self, parts, h, c, mask=None):
        if mask is None:
            gates = dy.vanilla_lstm_gates_concat(parts, h, self.Wx, self.Wh, self.b)
            c = dy.vanilla_lstm_c(c, gates)
            return dy.vanilla_lstm_h(c, gates), c
        gates = dy.vanilla_lstm_gates_dropout(parts[0], h, self.Wx, self.Wh, self.b, parts[0], h, 0.5)
        c = dy.vanilla_lstm_c(c, gates)
        return dy.vanilla_lstm_h(c, gates), c
""")

    def use(m: Any) -> list:
        if not hasattr(m, "cell"):
            dy.reset_random_seed(1)
            m.cell = m.Cell()
        dy.renew_cg()
        dy.reset_random_seed(2)
        h = c = dy.inputVector([1, 2, 3])
        for i in range(4):
            h, c = m.cell.step([dy.tanh(h), c + i], h, c)
            h, c = m.cell.step([dy.concatenate([h, c])], h, c, mask=1)
        return [h, c]

    for _ in range(6):
        p.agree(use)
    assert p.hits > 20, p.statistics
