"""Regions that go on in the arms of branches and begin with split calls, and what they read of objects:
what is recorded is what the script would have recorded, in its order."""

from __future__ import annotations

import types
from typing import Any, Callable

import dynet_compat as dy
import pytest
from support.region_models import MODEL, vector

TREE = (
    MODEL
    + """
class Tree(Model):
    def encode(self, tree, seen):
        if isinstance(tree, int):
            h = self.cell(self.E[tree], self.E[tree + 1])
        else:
            h = self.cell(self.encode(tree[0], seen)[0], self.encode(tree[1], seen)[1])
        seen.append(dy.tanh(self.U * h[0]))
        return h
"""
)


def test_recursion_over_trees(pair: Callable) -> None:
    p = pair("import numpy as np\nNUMBERS = np.linspace(-1, 1, 9)\n" + TREE)
    trees = [((1, 2), (3, (4, 5))), (6, 2), 3, ((2, (1, 0)), 7)]

    def use(m: Any) -> list:
        model, seen = m.Tree(), []
        return [model.encode(tree, seen) for tree in trees] + seen

    for _ in range(8):
        p.agree(use)
    regions = {name: s for s in p.statistics.values() if "encode" in (name := s["name"])}
    assert len(regions) == 2, f"one region in each arm, got {regions}"
    assert all(s["hits"] > 20 and not s["off"] for s in regions.values()), regions


def test_order_of_what_arguments_do(pair: Callable) -> None:
    p = pair("""
LOG = []
def note(x, n):
    LOG.append(n)
    return dy.exp(x) if n % 2 else x
def add(x, y, z, k=2.0):
    u = dy.tanh(x) + y * k
    return dy.cmult(u, z)
def f(x, y):
    a = add(dy.tanh(x), note(y, 1), z=note(x, 2))
    b = add(note(x, 3), dy.cmult(x, note(y, 4)) + dy.tanh(x), note(a, 5)) + dy.cmult(a, x)
    c = [add(x, x, note(x, 6)), (note(x, 7), dy.tanh(a))]
    d = dy.esum([note(x, 8), add(note(x, 9), x, x), y]) - dy.tanh(note(y, 10))
    return [a, b, c, d]
""")

    def use(m: Any) -> list:
        m.LOG.clear()
        results = [m.f(vector(i), vector(1)) for i in range(9)]
        return [*results, *m.LOG]

    for _ in range(3):
        p.agree(use)
    assert p.hits > 10, p.statistics


REBINDS = {
    "a method in the object": "self.g = self.h",
    "a function in the object": "self.g = lambda x, y: y",
    "a method in the class": "type(self).g = type(self).h",
    "a static method": "type(self).g = staticmethod(lambda x, y: x * y)",
    "a property": "type(self).g = property(lambda self: self.h)",
    "a global function": "globals().update(free=other)",
    "a parameter": "self.W, self.U = self.U, self.W",
    "an item": "self.gates['i'] = self.U",
    "a class": "self.__class__ = Odd",
    "defaults": "free.__defaults__ = (5.0,)",
    "code": "free.__code__ = other.__code__",
}


@pytest.mark.parametrize("change", REBINDS.values(), ids=REBINDS)
def test_argument_that_rebinds_the_function(pair: Callable, change: str) -> None:
    """A function is the one that its name meant before the arguments were evaluated; what it reads is read
    after."""
    p = pair(
        "import numpy as np\nNUMBERS = np.linspace(-1, 1, 9)\n"
        + MODEL
        + f"""
def free(x, k=2.0):
    return dy.tanh(x) * k
def other(x, k=3.0):
    return dy.exp(x) * k + x
ORIGINAL = [free, free.__code__, free.__defaults__]
class Mine(Model):
    when = ()
    n = 0
    def g(self, x, y):
        return dy.tanh(self.W * x) + y
    def h(self, x, y):
        return dy.exp(self.U * x) - y
    def slow(self, x):
        global free
        self.n += 1
        if self.n in self.when:
            {change}
        return x + x
    def f(self, x):
        a = self.g(x, self.slow(x))
        b = free(self.slow(a))
        return a, b, self.gates["i"] * b
class Odd(Mine):
    def g(self, x, y):
        return y
"""
    )

    def use(m: Any) -> list:
        before = vars(m.Mine)["g"]
        m.free = m.ORIGINAL[0]
        m.free.__code__, m.free.__defaults__ = m.ORIGINAL[1:]
        results = []
        for when in ((), (5,), (6,)):
            m.Mine.g = before
            one = m.Mine()
            one.when = when
            results += [one.f(vector(i)) for i in range(6)]
        m.Mine.g = before
        return results

    for _ in range(4):
        p.agree(use)


def replaced_dict(o: Any) -> None:
    o.__dict__ = {**vars(o), "W": o.U}


def shared_dict(o: Any) -> None:
    other = type(o)()
    other.W = o.U
    o.__dict__ = vars(other)


ATTRIBUTES: dict[str, Callable[[Any], object]] = {
    "set": lambda o: setattr(o, "W", o.U),
    "in the dict": lambda o: vars(o).update(W=o.U),
    "removed": lambda o: (delattr(o, "W"), setattr(type(o), "W", o.U)),
    "another dict": replaced_dict,
    "a shared dict": shared_dict,
    "a number": lambda o: setattr(o, "scale", 3.0),
    "a property of the class": lambda o: setattr(type(o), "W", property(lambda self: self.U)),
    "a getter of the class": lambda o: setattr(type(o), "__getattribute__", lambda s, n: dy.ones(3)),
    "a base": lambda o: setattr(type(o).__mro__[1], "g", lambda self, x: x + self.b),
    "a method": lambda o: setattr(o, "g", types.MethodType(lambda self, x: x, o)),
    "a function that is no method": lambda o: setattr(o, "g", lambda x: x),
    "method of another": lambda o: setattr(o, "g", type(o)().g),
    "its own method": lambda o: setattr(o, "g", o.g),
    "a new class": lambda o: setattr(o, "__class__", type("New", type(o).__mro__[1:2], {"W": 1})),
    "a getter of a part": lambda o: setattr(
        type(o.part), "__get__", lambda part, o, kind: types.SimpleNamespace(k=7.0)
    ),
    "a setter of a part": lambda o: (
        setattr(type(vars(type(o))["hidden"]), "__get__", lambda part, o, kind: 9.0),
        setattr(type(vars(type(o))["hidden"]), "__set__", lambda part, o, value: None),
    ),
    "nothing": lambda o: setattr(o, "new", 1),
}


@pytest.mark.parametrize("change", ATTRIBUTES.values(), ids=ATTRIBUTES)
@pytest.mark.parametrize("slots", ["", "__slots__ = ('W', 'U', 'b')"], ids=["dict", "slots"])
def test_attributes_that_change(pair: Callable, change: Callable[[Any], object], slots: str) -> None:
    """Attributes are not read again while the object and its class stay as they are."""
    p = pair(f"""
import numpy as np
pc = dy.ParameterCollection()
W, U = (pc.parameters_from_numpy(np.eye(3) * i) for i in (2, 5))
b = pc.parameters_from_numpy(np.arange(3))
class Block:
    __slots__ = ()
    def g(self, x):
        return dy.tanh(x) + self.b
    def f(self, x):
        return [self.W * self.g(x), self.U * x * self.scale]
def make():
    class Base(Block):
        {slots}
        __module__ = "x"
    class Part:
        k = 0.5
    class Model(Base):
        scale = 2.0
        part = Part()
        hidden = type("Hidden", (), {{}})()
        def __init__(self):
            self.W, self.U, self.b = W, U, b
            self.hidden = 4.0
    return Model
def block(o, x):
    return [dy.tanh(o.W * x), o.U * x * o.scale + o.b * o.part.k * o.hidden]
""")

    def use(m: Any) -> list:
        kind = m.make()
        mine, other = kind(), kind()
        results: list = []
        for o in (mine, mine, mine, other, mine, mine):
            results += [m.block(o, vector(2)), o.f(vector(1))]
        change(mine)
        for o in (mine, other, mine, mine, kind()):
            results += [m.block(o, vector(3)), o.f(vector(4))]
        return results

    for _ in range(3):
        p.agree(use)
    hits = {s["name"].split(":")[0]: s["hits"] for s in p.statistics.values()}
    assert hits["Block.f"] > 3 and hits["block"] > 3, hits


FIELDS = {
    "nothing": lambda kind: kind(3.0, vector(2), 0),
    "another class": lambda kind: type("Other", (), {"scale": 5.0, "x": vector(3)})(),
    "a subclass": lambda kind: type("Sub", (kind,), {"scale": 7.0})(3.0, vector(2), 0),
    "a property": lambda kind: setattr(kind, "scale", property(lambda self: 9.0)),
    "another field": lambda kind: setattr(kind, "scale", vars(kind)["other"]),
    "no tuple": lambda kind: type("Not", (), {"scale": vars(kind)["scale"], "x": vector(3)})(),
}


@pytest.mark.parametrize("change", FIELDS.values(), ids=FIELDS)
def test_fields_of_named_tuples(pair: Callable, change: Callable[[Any], Any]) -> None:
    p = pair("""
from collections import namedtuple
def make():
    return namedtuple("State", "scale x other")
def f(state, y):
    return dy.tanh(state.x * state.scale) + y
""")

    def use(m: Any) -> list:
        kind = m.make()
        results = [m.f(kind(k % 3 + 1.0, vector(k % 4), 11.0), vector(1)) for k in range(8)]
        changed = change(kind)
        try:
            results.append(m.f(changed or kind(2.0, vector(2), 11.0), vector(1)))
        except TypeError as error:
            results.append(str(error))
        return results

    for _ in range(3):
        p.agree(use)
    assert p.hits > 5, p.statistics


@pytest.mark.parametrize("function", ["exp", "logistic", None])
def test_attributes_of_modules_that_change(pair: Callable, function: str) -> None:
    p = pair("""
import types
ops = types.ModuleType("ops")
ops.f, ops.k = dy.tanh, 2.0
def f(x):
    return ops.f(x) * ops.k + x
""")

    def use(m: Any) -> list:
        m.ops.f = dy.tanh
        vars(m.ops).pop("__getattr__", None)
        results = [m.f(vector(i)) for i in range(4)]
        if function:
            m.ops.f = getattr(dy, function)
        else:
            del m.ops.f
            m.ops.__getattr__ = lambda name: dy.square
        return results + [m.f(vector(i)) for i in range(4)]

    for _ in range(3):
        p.agree(use)


def test_arms_that_end_early(pair: Callable) -> None:
    p = pair("""
def f(xs, mode):
    out = []
    for i, x in enumerate(xs):
        if mode == i:
            continue
        elif mode == i + 1:
            y = dy.tanh(x)
            out.append(y)
            break
        elif mode < 0:
            if mode == -2:
                raise ValueError("no")
            y = dy.exp(x)
        else:
            y = dy.logistic(x) + x
        z = dy.cmult(y, x)
        out.append(z + y)
        if i > 1:
            z = dy.tanh(z)
        out.append(z)
    return out
""")

    def use(mode: int) -> Callable:
        return lambda m: [m.f([vector(i) for i in range(4)], mode) for _ in range(4)]

    for mode in (9, -1, 1, 2, 4, -2, 9):
        p.agree(use(mode))
    assert p.hits > 20, p.statistics


def test_errors_of_arguments(pair: Callable) -> None:
    """They come where they came, and after the same ops."""
    p = pair("""
def g(x, y):
    return dy.tanh(x) + y
def fails(x, n):
    if n > 2:
        raise ValueError("too many")
    return dy.exp(x)
def f(x, n):
    if n > 4:
        unset = x
    a = g(dy.tanh(x), fails(x, n))
    b = g(fails(a, n - 2), unset)
    return b
def late(x, n):
    b = g(fails(x, n), missing)
    return b
""")
    for function in ("f", "late"):
        for n in (0, 1, 3, 5, 1):
            p.agree(lambda m, f=function, n=n: [getattr(m, f)(vector(i), n) for i in range(3)])


def test_states_with_equal_nodes(pair: Callable) -> None:
    """The run that is compared is one of a state whose cell and output are one node."""
    p = pair("""
pc = dy.ParameterCollection()
rnn = dy.VanillaLSTMBuilder(1, 3, 3, pc)
def f(state, x):
    y = dy.tanh(x) + dy.cmult(x, dy.logistic(x)) - dy.rectify(dy.cmult(x, x) + x)  # enough to pay
    y = dy.cmult(y, dy.tanh(y)) + dy.logistic(-y)
    state = state.add_input(y)
    return state, state.output() + y
""")

    for to, of in zip(p.other.pc.parameters_list(), p.plain.pc.parameters_list()):
        to.set_value(of.as_array())

    def use(m: Any) -> list:
        zero, x = dy.inputVector([0.0] * 3), vector(1)
        results = []
        for _ in range(40):
            state = m.rnn.initial_state([zero, zero])
            for _ in range(29):
                state, out = m.f(state, x)
                results.append(out)
        return results[::50]

    for _ in range(4):
        p.agree(use)
    for s in p.statistics.values():
        assert not s["off"] and s["reviews"] > 2, s


def test_append_to_a_list_under_other_names(pair: Callable) -> None:
    p = pair("""
class Net:
    def __init__(self):
        self.outs, self.__private = [], []
        self.other = self
    def f(self, x, shared):
        y = dy.tanh(x)
        self.outs.append(y)
        self.other.outs.append(y + x)
        shared.append(dy.exp(y))
        return y
    def alias(self, x):
        outs = self.outs
        y = dy.tanh(x)
        outs.append(y + x)
        return y
    def local(self, x, given):
        here = given
        y = dy.tanh(x)
        here.append(y + x)
        return y
    def read(self, x):
        y = dy.tanh(x)
        self.outs.append(y + x)
        z = dy.esum(self.outs) + self.outs[-1]
        return z
    def private(self, x):
        y = dy.tanh(x)
        self.__private.append(y + x)
        return self.__scale(y) + x
    def __scale(self, y):
        return dy.exp(y) + dy.tanh(y)
class More(Net):
    def both(self, x):
        y = self.f(x, self.outs)
        z = self._Net__scale(y)
        return z + y
    def __scale(self, y):
        return y
""")

    def use(m: Any) -> list:
        results: list = []
        for kind in (m.Net, m.More):
            net, shared = kind(), []
            for i in range(5):
                results += [net.f(vector(i), shared), net.alias(vector(i)), net.local(vector(i), shared)]
                results += [net.f(vector(i), net.outs), net.read(vector(i)), net.private(vector(i))]
                if kind is m.More:
                    results.append(net.both(vector(i)))
            results += [*net.outs, *shared, *net._Net__private]
            assert all(results)
        return results

    for _ in range(3):
        p.agree(use)
    hits = {s["name"].split(":")[0]: s["hits"] for s in p.statistics.values()}
    assert all(hits[f"Net.{name}"] > 5 for name in ("f", "alias", "local", "private")), hits


def test_list_that_is_replaced_while_a_value_is_made(pair: Callable) -> None:
    p = pair("""
class Net:
    def __init__(self):
        self.outs = []
    def f(self, x):
        y = dy.tanh(x)
        self.outs.append(make(y))
        return y + x
def make(x):
    return dy.exp(x) + x
""")

    def use(m: Any) -> list:
        net = m.Net()
        results = [net.f(vector(i)) for i in range(4)] + net.outs
        before, make = net.outs, m.make

        def other(x: Any) -> Any:
            net.outs = []
            return make(x)

        m.make = other
        results += [net.f(vector(i)) for i in range(4)] + net.outs + before
        m.make = make
        return results

    for _ in range(3):
        p.agree(use)


@pytest.mark.parametrize(
    "body", ["return dy.tanh(x)", "return x", "y = -x\n    return y", "'''Text.'''\n    return x, x"]
)
def test_helpers_of_hardly_any_ops(pair: Callable, body: str) -> None:
    """A helper that is too short to be a region of its own is part of those that call it."""
    p = pair(f"""
def helper(x):
    {body}
def f(x):
    y = dy.exp(x) + x
    z = helper(y)
    return z, y
""")
    for _ in range(3):
        p.agree(lambda m: [m.f(vector(i)) for i in range(4)])
    assert p.hits > 5, p.statistics
