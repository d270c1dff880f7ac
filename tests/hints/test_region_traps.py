"""Scripts that read, rebind and change things in ways that a region must not be wrong about."""

from __future__ import annotations

import types
from typing import Any, Callable

import dynet_compat as dy
import numpy as np
import pytest
from support.region_models import MODEL, vector


def test_name_assigned_after_append(pair: Callable) -> None:
    p = pair("""
def f(outs, x):
    y = dy.tanh(x)
    outs.append(y)
    outs = []
    z = y + x
    for _ in range(1):
        pass
    return [outs, z]
""")

    def use(m: Any) -> list:
        out: list = []
        return [m.f(out, vector(i)) for i in range(6)] + [out]

    p.agree(use)


def test_parameter_as_input(pair: Callable) -> None:
    p = pair("""
import numpy as np
pc = dy.ParameterCollection()
W = pc.parameters_from_numpy(np.eye(3) * 2)
U = pc.parameters_from_numpy(np.eye(3) * 5)
def f(w, x):
    a = w * x
    return dy.const_parameter(W) * a
""")
    for name in "WWWUWU":
        p.agree(lambda m, name=name: [m.f(dy.const_parameter(getattr(m, name)), vector(1.0))])


def test_bias_as_input_of_a_builder() -> None:
    """Two graphs, in the first of which the input is the builder's own bias."""
    results = []
    for with_bias in (True, False):
        dy.reset_random_seed(3)
        builder = dy.SimpleRNNBuilder(1, 3, 3, dy.ParameterCollection())
        for graph in range(2):
            dy.renew_cg()
            state = builder.initial_state()
            bias = with_bias and graph == 0
            x = builder.get_parameter_expressions()[0][2] if bias else dy.inputVector([1, 2, 3])
            out = state.add_input(x).output().npvalue()
        results.append(out)
    np.testing.assert_array_equal(*results)


def test_other_zip(pair: Callable) -> None:
    p = pair("""
def outer():
    def zip(a, b):
        return [(p, q) for p in a for q in b]
    def inner(xs, ys):
        return [dy.tanh(a) + b for a, b in zip(xs, ys)]
    return inner
def plain(xs, ys):
    return [dy.tanh(a) + b for a, b in zip(xs, ys)]
""")

    def use(m: Any) -> list:
        xs, ys = [vector(i) for i in range(3)], [vector(-i) for i in range(4)]
        return [m.outer()(xs, ys), m.plain(xs, ys)]

    for _ in range(3):
        p.agree(use)
    for module in (p.plain, p.other):
        module.zip = lambda a, b: [(a[0], b[0])] * 2
    p.agree(use)


def test_name_of_an_enclosing_function(pair: Callable) -> None:
    p = pair(
        MODEL
        + """
M = None
def g(x):
    return dy.tanh(M.W * x) + x
def outer(M):
    def inner(x):
        y = g(x)
        return y + M.U * x
    return inner
"""
    )
    for module in (p.plain, p.other):
        module.M, module.N = module.Model(), module.Model()
        module.f = module.outer(module.N)
    for _ in range(4):
        p.agree(lambda m: [m.f(vector(2.0))])
    for module in (p.plain, p.other):
        module.M.W = module.M.U
    p.agree(lambda m: [m.f(vector(2.0))])


def test_element_that_changes_what_the_others_read(pair: Callable) -> None:
    p = pair("""
K = 2.0
class Odd:
    def __mul__(self, other):
        global K
        K += 1.0
        return dy.ones(3)
def f(xs, y):
    return [x * y + K for x in xs]
""")

    def use(m: Any) -> list:
        m.K = 2.0
        one = dy.inputVector([2.0])
        return m.f([one] * 0 + [dy.inputVector([i + 1.0]) for i in range(4)] + [m.Odd()] + [one, one], one)

    for _ in range(4):
        p.agree(use)


def test_append_of_something_that_is_no_list(pair: Callable) -> None:
    p = pair("""
K = 2.0
class Log:
    def append(self, x):
        global K
        K = 5.0
class Bad:
    def append(self, x):
        raise ValueError("no")
def f(l, x):
    y = dy.tanh(x)
    l.append(y)
    z = y * K
    return z
""")

    def use(kind: Callable) -> Callable:
        def run(m: Any) -> list:
            m.K = 2.0
            return [m.f(kind(m), vector(i)) for i in range(4)]

        return run

    for kind in (lambda m: [], lambda m: m.Log(), lambda m: [], lambda m: m.Bad(), lambda m: []):
        p.agree(use(kind))


def test_lists_keep_their_identity(pair: Callable) -> None:
    p = pair("""
def f(xs, e):
    ys = xs + xs
    t = dy.tanh(e)
    a = b = [e] + xs[0]
    for _ in range(1):
        pass
    a.append(dy.exp(t))
    return ys, t, a, b
""")

    def use(m: Any) -> list:
        out = []
        for i in range(5):
            xs = [[vector(i)]]
            ys, t, a, b = m.f(xs, vector(-i))
            assert ys[0] is xs[0] and a is b
            out.append([t, a])
        return out

    p.agree(use)


def test_getters_run_as_often(pair: Callable) -> None:
    p = pair("""
class Plain:
    def __init__(self):
        self.x = dy.ones(3)
class Getter:
    n = 0
    @property
    def x(self):
        self.n += 1
        return dy.inputVector([self.n, 1, 2])
class Missing:
    n = 0
    def __getattr__(self, name):
        self.n += 1
        return dy.inputVector([self.n, 1, 2])
def f(o, u):
    y = dy.tanh(o.x)
    z = y + o.x
    return z + u
def g(pairs):
    return [dy.tanh(b) + a.x for a, b in pairs]
""")

    def use(m: Any) -> list:
        out = []
        for kind in (m.Plain, m.Getter, m.Missing):
            o = kind()
            out += [m.f(o, vector(i)) for i in range(4)]
            out += m.g([(o, vector(i)) for i in range(3)])
            out.append(getattr(kind, "n", None) is not None and vars(o).get("n"))
        return out

    for _ in range(3):
        p.agree(use)


def test_a_class_whose_object_becomes_a_getter(pair: Callable) -> None:
    """It is an attribute of another class, which does not change."""
    p = pair("""
class Layer:
    n = 0
class Model:
    layer = Layer()
    def __init__(self):
        pc = self.pc = dy.ParameterCollection()
        self.layer.W = pc.add_parameters((3, 3), init=0.5)
        self.layer.b = pc.add_parameters(3, init=0.25)
    def f(self, x):
        y = dy.tanh(self.layer.W * x) + self.layer.b
        return dy.cmult(y, y) + self.layer.b
def get(layer, *_):
    layer.n += 1
    return layer
""")
    models = {m: m.Model() for m in (p.plain, p.other)}

    def use(m: Any) -> list:
        return [*(models[m].f(vector(i)) for i in range(4)), vars(m.Model)["layer"].n]

    for _ in range(3):
        p.agree(use)
    for m in models:
        m.Layer.__get__ = m.get
    for _ in range(3):
        p.agree(use)


def test_exception_in_a_run_that_is_compared(pair: Callable) -> None:
    """A region that gives up after a watched run ended with an exception."""
    p = pair("""
def f(l, x, k):
    y = dy.tanh(x)
    l.append(y)
    z = y * k
    return z
""")
    p.agree(lambda m: [m.f([], vector(i), float(i)) for i in range(256)])

    class Bad(list):
        def append(self, x: Any) -> None:
            raise ValueError("no")

    def use(m: Any) -> list:
        for k in (255.0, 1e6, 1e7):
            with pytest.raises(ValueError, match="no"):
                m.f(Bad(), vector(1), k)
        return [m.f([], vector(i), 1e6 + i) for i in range(50)]

    p.agree(use)


def test_functions_changed_after_they_were_learned(pair: Callable) -> None:
    p = pair("""
K = 1.0
def g(x, k=2.0):
    y = dy.tanh(x)
    return y * k + K
def h(x, k=2.0):
    y = dy.exp(x)
    return y * k + K
def f(x):
    y = g(x)
    return y + x
""")

    def use(m: Any) -> list:
        return [m.f(vector(i)) for i in range(4)]

    p.agree(use)
    for change in (
        lambda m: setattr(m.g, "__defaults__", (5.0,)),
        lambda m: setattr(m.g, "__code__", m.h.__code__),
        lambda m: setattr(m, "g", types.FunctionType(m.g.__code__, {"dy": dy, "K": 9.0}, "g", (3.0,))),
    ):
        for module in (p.plain, p.other):
            change(module)
        p.agree(use)


def test_method_of_another_object(pair: Callable) -> None:
    p = pair(
        MODEL
        + """
class Other(Model):
    def g(self, x):
        y = self.W * x
        return dy.tanh(y)
    def f(self, x):
        r = self.g(x)
        return r + self.other.U * x
"""
    )
    for module in (p.plain, p.other):
        module.a, module.b = module.Other(), module.Other()
        module.a.other = module.b
        module.a.g = module.b.g
    p.agree(lambda m: [m.a.f(vector(i)) for i in range(4)])
    for module in (p.plain, p.other):
        module.b.W = module.b.U
    p.agree(lambda m: [m.a.f(vector(i)) for i in range(4)])


def test_private_names_and_docstrings(pair: Callable) -> None:
    p = pair('''
class C:
    def __init__(self):
        self.__v = 2.0
        setattr(self, "__v", 4.0)
        self.x = dy.ones(3)
    def f(self, ns, y):
        return [dy.tanh(n.x) * n.__v + y for n in ns]
def doc(x):
    """Text."""
    y = dy.tanh(x)
    return y + x
''')
    p.agree(lambda m: [m.C().f([m.C(), m.C()], vector(1)) for _ in range(3)])
    assert p.other.doc.__doc__ == "Text."


def test_interrupt_while_reading(pair: Callable) -> None:
    p = pair("""
class Stop:
    @property
    def x(self):
        raise KeyboardInterrupt
def f(o, u):
    y = dy.tanh(o.x)
    return y + u
""")
    for module in (p.plain, p.other):
        with pytest.raises(KeyboardInterrupt):
            module.f(module.Stop(), vector(1))


CHANGES: dict[str, Callable[[Any], object]] = {
    "item": lambda d: d.__setitem__("W", d["V"]),
    "and back": lambda d: d.__setitem__("W", d["U"]),
    "update": lambda d: d.update(W=d["V"], k=3),
    "a number": lambda d: d.__setitem__("k", 2),
    "removed": lambda d: (d.pop("W"), d.setdefault("W", d["V"])),
    "emptied": lambda d: [old := dict(d), d.clear(), d.update(old)],
    "another key": lambda d: d.__setitem__("new", 1),
    "a function": lambda d: d.__setitem__("f", dy.logistic),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_items_of_a_dict_that_changes(pair: Callable, change: Callable[[Any], object]) -> None:
    """Items are not read again while their dict stays as it is."""
    p = pair("""
import numpy as np
pc = dy.ParameterCollection()
W, V, U = (pc.parameters_from_numpy(np.eye(3) * i) for i in (2, 3, 5))
def items():
    return {"W": W, "V": V, "U": U, "k": 1, "f": dy.tanh}
def block(d, x):
    y = d["f"](d["W"] * x) + d["U"] * x
    return dy.concatenate([y, dy.pick(y, d["k"] - d["k"]) + d["k"]])
""")

    def use(m: Any) -> list:
        mine, other = m.items(), m.items()
        other["W"] = m.V
        results = [m.block(mine, vector(i)) for i in range(4)]
        for d in (mine, mine, other):
            change(d)
            results += [m.block(d, vector(i)) for i in range(2)] + [m.block(other, vector(1))]
        other = m.items()  # perhaps where another dict was
        other["W"] = m.V
        return results + [m.block(other, vector(1)), m.block(dict(mine), vector(1))]

    for _ in range(3):
        p.agree(use)
