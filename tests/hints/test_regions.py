"""Regions recorded by one call: what is recorded is what the script would have recorded, whatever it does."""

from __future__ import annotations

import gc
import importlib
import itertools
import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Callable

import dynet_compat as dy
import numpy as np
import pytest
from dynet_compat.hints.rewrite import patch, recording, rewriter, values
from support.modules import flat, identities, load, recorded_nodes, recorded_ops

_numbers = itertools.count()


def vector(i: float) -> Any:
    return dy.inputVector([i, 1.0, -i])


class Pair:
    """A module as it was written, and the same with its regions recorded by one call."""

    def __init__(self, folder: Path, source: str) -> None:
        self.source = "import dynet_compat as dy\n" + textwrap.dedent(source)
        path = folder / f"script{next(_numbers)}.py"
        path.write_text(self.source)
        self.plain, self.other = load(path), load(path)
        self.rewriter = patch.rewrite_module(self.other, self.source)

    @property
    def statistics(self) -> dict[str, dict]:
        return {name: t.statistics() for name, t in self.rewriter.regions.items()}

    @property
    def hits(self) -> int:
        return sum(s["hits"] for s in self.statistics.values())

    def agree(self, use: Callable[[ModuleType], list]) -> None:
        """`use` records with the module's functions; the same values, objects, nodes, gradients and
        draws follow."""
        left, right = outcome(use, self.plain), outcome(use, self.other)
        assert left["nodes"] == right["nodes"]
        assert left["ops"] == right["ops"], "other ops, or in another order"
        assert re.sub(r"\d+", "#", str(left["error"])) == re.sub(r"\d+", "#", str(right["error"]))
        assert left["others"] == right["others"], "other results that are no expressions"
        assert left["identities"] == right["identities"], "other results are the same object"
        for a, b in zip(left["values"], right["values"]):
            np.testing.assert_array_equal(a, b)
        assert len(left["values"]) == len(right["values"])
        for a, b in zip(left["gradients"], right["gradients"]):
            np.testing.assert_array_equal(a, b)


def outcome(use: Callable[[ModuleType], Any], module: ModuleType) -> dict[str, Any]:
    dy.renew_cg()
    dy.reset_random_seed(7)
    results, error = [], None
    try:
        for result in use(module):
            results.append(result)
    except Exception as e:  # noqa: BLE001 - any error must be the same on both sides
        error = f"{type(e).__name__}: {e}"
    expressions = [r for r in flat(results) if isinstance(r, dy.Expression)]
    others = [compared(r) for r in flat(results) if not isinstance(r, dy.Expression)]
    same = {
        "nodes": recorded_nodes(),
        "ops": recorded_ops(),
        "others": others,
        "identities": identities(results),
    }
    try:
        values = [e.npvalue() for e in expressions]
    except Exception as e:  # noqa: BLE001
        return {**same, "values": [], "gradients": [], "error": f"{type(e).__name__}: {e}"}
    gradients = []
    if expressions:
        loss = dy.sum_batches(dy.esum([dy.squared_norm(e) for e in expressions]))
        loss.value()
        loss.backward(full=True)
        gradients = [e.gradient() for e in expressions]
    return {**same, "values": values, "gradients": gradients, "error": error}


def compared(result: Any) -> Any:
    """A result that is no expression as something that is equal on both sides."""
    if isinstance(result, np.ndarray):
        return "array", result.tolist()
    # Objects of the two modules' own classes, and states, are never equal.
    by_identity = type(result).__eq__ is object.__eq__
    return type(result).__name__, None if by_identity and result is not None else result


@pytest.fixture
def pair(tmp_path: Path) -> Callable[[str], Pair]:
    return lambda source: Pair(tmp_path, source)


@pytest.fixture
def vectors() -> Callable[..., list]:
    def make(n: int, size: int = 3) -> list:
        rng = np.random.default_rng(n)
        return [dy.inputTensor(rng.normal(size=size)) for _ in range(n)]

    return make


MODEL = """
class Model:
    def __init__(self):
        pc = self.pc = dy.ParameterCollection()
        self.W = pc.parameters_from_numpy(NUMBERS.reshape(3, 3))
        self.U = pc.parameters_from_numpy(NUMBERS.reshape(3, 3) * 0.5)
        self.b = pc.parameters_from_numpy(NUMBERS[:3])
        self.E = pc.lookup_parameters_from_numpy(NUMBERS.reshape(9, 1).repeat(3, 1))
        self.gates = {"i": self.W, "o": self.U}
        self.layers = [self.W, self.U]
        self.scale = 2.0

    def cell(self, x, h):
        z = dy.affine_transform([self.b, self.W, x, self.U, h])
        return dy.tanh(z) + x, z

    def gate(self, name, x):
        return dy.logistic(self.gates[name] * x + self.b)

    def word(self, w, h):
        x = self.E[w]
        return dy.cmult(dy.tanh(x), h) + self.scale

    def both(self, x):
        i = self.gate("i", x)
        o = self.gate("o", x)
        return dy.cmult(i, o)
"""
MODEL = "import numpy as np\nNUMBERS = np.linspace(-1, 1, 9)\n" + MODEL


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


def repeated_function(name: str, n: int = 6) -> Callable[[ModuleType], list]:
    def use(module: ModuleType) -> list:
        f = getattr(module, name)
        return [f(dy.inputVector([i, 2.5]), dy.inputVector([0.5, i])) for i in range(n)]

    return use


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


def test_closures(pair: Callable) -> None:
    p = pair("""
def make(W):
    def f(x, y):
        z = dy.tanh(x) + y
        return dy.cmult(z, W)
    return f
f1 = None
""")

    def use(module: ModuleType) -> list:
        f, g = module.make(dy.inputVector([1, 2])), module.make(dy.inputVector([3, 4]))
        return [h(dy.inputVector([i, 1]), dy.inputVector([1, 1])) for i in range(6) for h in (f, g)]

    p.agree(use)
    assert p.hits > 5


def test_names_left_behind(pair: Callable) -> None:
    p = pair("""
def f(x, y):
    for i in range(4):
        t = dy.tanh(x)
        x = t + y
        if i == 2:
            y = t
    return t, x, y
""")
    p.agree(repeated_function("f"))
    assert p.hits > 10


def test_in_place(pair: Callable) -> None:
    p = pair("""
def f(x, y):
    for i in range(3):
        z = dy.tanh(x)
        x += dy.exp(z)
    return x
""")
    p.agree(repeated_function("f"))

    def lists(module: ModuleType) -> list:
        x = [dy.inputVector([1])]
        with pytest.raises((TypeError, ValueError, AttributeError, AssertionError)):
            module.f(x, None)
        return [x]

    p.agree(lists)


def test_mutated_by_an_earlier_statement_of_the_block(pair: Callable) -> None:
    p = pair("""
def f(x, stack):
    y = dy.tanh(x)
    stack.append(y)
    return dy.exp(stack[-1]) + y
""")

    def use(module: ModuleType) -> list:
        stack = [dy.inputVector([9])]
        return [module.f(dy.inputVector([i]), stack) for i in range(6)] + stack

    p.agree(use)


def test_property_and_getattr_run_as_often_as_without(pair: Callable) -> None:
    p = pair("""
class Model:
    seen = 0
    @property
    def W(self):
        self.seen += 1
        return dy.inputVector([self.seen, 1])
    def __getattr__(self, name):
        self.seen += 10
        return dy.inputVector([1, self.seen])
    def f(self, x):
        y = dy.tanh(x)
        z = y + self.W
        return dy.cmult(z, self.other) + self.W
""")

    def use(module: ModuleType) -> list:
        m = module.Model()
        return [m.f(dy.inputVector([i, 1])) for i in range(6)] + [m.seen]

    # What runs code of its own is left to the script, but for the reads before it was found out.
    outcome(use, p.other)
    for t in p.rewriter.regions.values():
        assert t.statistics()["hits"] == 0


def test_errors_in_the_middle(pair: Callable) -> None:
    p = pair("def f(x, y):\n  z = dy.tanh(x)\n  return z + dy.cmult(x, y)\n")
    p.agree(lambda m: [m.f(dy.inputVector([1, 2]), dy.inputVector([1, 2, 3]))])
    p.agree(repeated_function("f"))
    p.agree(lambda m: [m.f(dy.inputVector([1, 2]), dy.inputVector([1, 2, 3]))])
    p.agree(lambda m: [m.f(dy.inputVector([1, 2]), "text")])
    p.agree(repeated_function("f"))
    assert p.hits > 5


def test_expression_of_an_earlier_graph(pair: Callable) -> None:
    p = pair("def f(x, y):\n  z = dy.tanh(x)\n  return z + dy.cmult(x, y)\n")
    p.agree(repeated_function("f"))
    old = dy.inputVector([1, 2])
    p.agree(lambda m: [m.f(old, dy.inputVector([1, 2]))])


def test_graph_reverted(pair: Callable) -> None:
    p = pair("def f(x, y):\n  z = dy.tanh(x)\n  return z + dy.cmult(x, y)\n")

    def use(module: ModuleType) -> list:
        x, y = dy.inputVector([1, 2]), dy.inputVector([3, 4])
        out = []
        for _ in range(5):
            dy.cg_checkpoint()
            module.f(x, y).value()
            dy.cg_revert()
            out.append(module.f(x, y))
        return out

    p.agree(use)
    assert p.hits > 3


def test_immediate_mode_records_node_by_node(pair: Callable) -> None:
    p = pair("def f(x, y):\n  z = dy.log(x)\n  return z + dy.cmult(x, y)\n")
    p.agree(repeated_function("f"))
    before = p.hits
    dy.renew_cg(immediate_compute=True, check_validity=True)
    with pytest.raises(RuntimeError, match="log"):
        p.other.f(dy.inputVector([-1, 2]), dy.inputVector([3, 4]))
    assert p.hits == before


def test_a_running_function_keeps_its_code(tmp_path: Path) -> None:
    source = (
        "import dynet_compat as dy\ndef f(x, swap):\n  swap()\n  y = dy.tanh(x)\n  return dy.exp(y) + 1\n"
    )
    path = tmp_path / "running.py"
    path.write_text(source)
    module = load(path)
    dy.renew_cg()
    x = dy.inputVector([1.0])
    first = module.f(x, lambda: patch.rewrite_module(module, source)).value()
    assert [module.f(x, lambda: None).value() for _ in range(4)] == [first] * 4


def test_a_source_that_is_not_the_one_that_runs_changes_nothing(tmp_path: Path) -> None:
    source = "import dynet_compat as dy\ndef f(x):\n    y = dy.tanh(x)\n    return dy.exp(y) + 1\n"
    path = tmp_path / "edited.py"
    path.write_text(source)
    module = load(path)
    code = module.f.__code__
    patch.rewrite_module(module, source.replace("exp", "tanh"))
    assert module.f.__code__ is code


def test_left_alone(pair: Callable) -> None:
    p = pair("""
def generator(x):
    y = dy.tanh(x)
    yield dy.exp(y)
async def coroutine(x):
    y = dy.tanh(x)
    return dy.exp(y)
def decorator(f):
    return f
@decorator
def decorated(x):
    y = dy.tanh(x)
    return dy.exp(y)
def looks(x):
    y = dy.tanh(x)
    z = dy.exp(y)
    return locals()
""")
    assert not p.rewriter.found


def test_values_are_not_kept_alive_by_results(pair: Callable) -> None:
    p = pair("def f(x, y):\n  z = dy.tanh(x)\n  return z + dy.cmult(x, y)\n")
    p.agree(repeated_function("f"))
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(20):
        p.agree(repeated_function("f"))
    gc.collect()
    assert len(gc.get_objects()) < before + 200


def test_models_are_not_kept_alive(pair: Callable) -> None:
    p = pair(
        MODEL
        + """
    def run(self, s, w):
        s = s.add_input(self.E[w])
        return dy.tanh(self.W * s.output() + self.b), s
"""
    )
    model = p.other.Model()
    builder = dy.LSTMBuilder(1, 3, 3, model.pc)
    watched = [model.W, model.E, builder]
    before = [sys.getrefcount(x) for x in watched]
    for w in (3, 4, 5, 6, 7, 8):
        dy.renew_cg()
        model.cell(model.E[w], model.run(builder.initial_state(), w)[0])
    assert p.hits > 3
    dy.renew_cg()
    builder.initial_state()  # its states of earlier graphs are gone
    gc.collect()
    assert [sys.getrefcount(x) for x in watched] == before


def test_many_ways_of_running_are_given_up(pair: Callable) -> None:
    p = pair("def f(x, s):\n  z = dy.tanh(x)\n  return z * s\n")
    p.agree(lambda m: [m.f(dy.inputVector([1, 2]), float(i)) for i in range(400)])
    assert next(iter(p.statistics.values()))["off"]
    p.agree(lambda m: [m.f(dy.inputVector([1, 2]), float(i)) for i in range(5)])


def test_review_finds_a_template_that_is_wrong(pair: Callable) -> None:
    """A function that the table of recording functions is wrong about: its ops depend on hidden state."""
    state = [0]

    def hidden(x: Any) -> Any:
        state[0] += 1
        return dy.tanh(x) if state[0] < 100 else dy.exp(x)

    known = recording.recording()
    dy.hidden = hidden  # type: ignore[attr-defined]
    known.add(hidden)
    try:
        p = pair("def f(x, y):\n  z = dy.hidden(x)\n  return z + y\n")
        for _ in range(1200):
            dy.renew_cg()
            p.other.f(dy.inputVector([1]), dy.inputVector([2]))
            state[0] += 1
    finally:
        known.remove(hidden)
        del dy.hidden  # type: ignore[attr-defined]
    (s,) = p.statistics.values()
    assert "something else" in s["off"]


def test_blocks_found_in_examples() -> None:
    folder = Path(__file__).resolve().parents[2] / "examples"
    found = {}
    sys.path.insert(0, str(folder))
    try:
        for name in ("treelstm", "parser"):
            module = importlib.import_module(name)
            source = (folder / f"{name}.py").read_text()
            r = rewriter.Rewriter(source, str(module.__file__), vars(module))
            r.codes()
            found[name] = {f.qualname for f in r.found}
    finally:
        sys.path.remove(str(folder))
    assert {"TreeLSTM.inner_state", "TreeLSTM.leaf_state", "TreeLSTM.gate"} <= found["treelstm"]
    assert {"Parser.reduce", "Parser.parse"} <= found["parser"]


LISTS = (
    MODEL
    + """
    def words(self, numbers):
        return [dy.rectify(self.E[w]) for w in numbers]

    def pairs(self, xs, ys):
        return [dy.tanh(x) + y for x, y in zip(xs, ys)]

    def tagged(self, xs):
        return [dy.pickneglogsoftmax(self.W * x, t) for x, t in xs]

    def counted(self, xs):
        return [dy.pick(self.W * x, i) + self.b for i, x in enumerate(xs)]

    def objects(self, items):
        return [dy.tanh(item.x) + self.b for item in items]

    def nested(self, xss):
        return [dy.esum([dy.tanh(x) for x in xs]) for xs in xss]

    def outer(self, xs):
        x = 5
        ys = [dy.tanh(x) * self.scale for x in xs]
        return ys, x

    def lambdas(self, xs):
        return (lambda k: [dy.tanh(x) + k for x in xs])(self.b)
"""
)


@pytest.mark.parametrize(
    "use",
    [
        lambda m: [m.words([5, 4, 3, 2, 1, 0, 8])],
        lambda m: [m.words(range(9))],
        lambda m: [m.words(iter([3, 4, 5]))],
        lambda m: [m.words([])],
        lambda m: [m.words([3, 4, -1, 2])],
        lambda m: [m.words([3, 4, 9])],
        lambda m: [m.words("abc")],
        lambda m: [m.words(None)],
        lambda m: [m.words({3: 1, 4: 1})],
        lambda m: [m.words(np.array([3, 4, 5]))],
        lambda m: [m.pairs(m.words([3, 4, 5, 6]), m.words([7, 8, 2]))],
        lambda m: [m.pairs(iter(m.words([3, 4, 5, 6])), m.words([7, 8, 2]))],
        lambda m: [m.pairs(m.words([3, 4]), None)],
        lambda m: [m.pairs((), [])],
        lambda m: [m.tagged([(x, 2) for x in m.words([3, 4, 5])])],
        lambda m: [m.tagged([[x, i % 3] for i, x in enumerate(m.words([3, 4, 5, 6, 7]))])],
        lambda m: [m.tagged(zip(m.words([3, 4, 5]), (0, 1, 2)))],
        lambda m: [m.tagged([(m.words([3])[0], 2, 3)])],
        lambda m: [m.tagged([5])],
        lambda m: [m.counted(m.words([3, 4, 5]))],
        lambda m: [m.counted(m.words([3, 4, 5, 6]))],
        lambda m: [m.objects([SimpleNamespace(x=x) for x in m.words([3, 4, 5])])],
        lambda m: [m.objects([SimpleNamespace()])],
        lambda m: [m.nested([m.words([3, 4, 5]), m.words([6]), m.words([7, 8])])],
        lambda m: [m.outer(m.words([3, 4, 5]))],
        lambda m: [m.lambdas(m.words([3, 4, 5]))],
    ],
)
def test_lists(pair: Callable, use: Callable) -> None:
    p = pair(LISTS)
    for module in (p.plain, p.other):
        module.model = module.Model()
    for _ in range(4):
        p.agree(lambda m: use(m.model))


def test_lists_are_recorded_by_calls(pair: Callable) -> None:
    p = pair(LISTS)
    for module in (p.plain, p.other):
        module.model = module.Model()
    for _ in range(4):
        p.agree(lambda m: [m.model.words([5, 4, 3, 2, 8]), m.model.pairs(*(m.model.words([5, 4, 3]),) * 2)])
        p.agree(lambda m: [m.model.tagged([(x, 2 - i) for i, x in enumerate(m.model.words([5, 4, 3]))])])
    hits = {s["name"].split(":")[0]: s["hits"] for s in p.statistics.values()}
    assert hits["Model.words"] > 20 and hits["Model.tagged"] > 3
    # Both lists are the same expressions: x and y of one pair are one node, which cannot be learned from.
    assert hits["Model.pairs"] == 0


def test_iterables_that_run_code_between_items(pair: Callable) -> None:
    p = pair(LISTS)

    def use(module: ModuleType) -> list:
        model = module.model

        def words() -> Any:
            for i in range(9):
                model.b = model.E[i]  # read by the element
                yield SimpleNamespace(x=model.E[8 - i])

        return [model.objects(words())]

    for module in (p.plain, p.other):
        module.model = module.Model()
    for _ in range(3):
        p.agree(use)


def test_what_ends_a_region() -> None:
    source = "def f(x):\n  a = dy.tanh(x)\n  b = a.value()\n  c = dy.exp(a)\n  return dy.tanh(c)\n"
    r = rewriter.Rewriter(source, "script.py", {"dy": dy})
    r.codes()
    assert [f.line for f in r.found] == [4]
    assert isinstance(r.found[0].region.returned, values.Recorded)
