"""What parameter(), declared names, decorators and parts of lists could make a region wrong about."""

from __future__ import annotations

from typing import Any, Callable

import dynet_compat as dy
import numpy as np
from support.region_models import MODEL, vector

NUMBERS = "import numpy as np\nNUMBERS = np.arange(9.0) / 10\n"


def test_parameters_are_the_objects_of_the_list(pair: Callable) -> None:
    """Also of another list, whose parameters are in another order or are twice in it."""
    p = pair(
        NUMBERS
        + MODEL
        + """
def f(model, x):
    one, other = [dy.parameter(w) for w in model.layers]
    y = dy.tanh(one * x)
    return [one, other, y + other * x]
"""
    )
    models = {m: m.Model() for m in (p.plain, p.other)}

    def use(m: Any) -> list:
        model = models[m]
        one, other, y = m.f(model, vector(1.0))
        return [y, one is model.layers[0], other is model.layers[1]]

    for _ in range(5):
        p.agree(use)
    assert p.hits
    for model in models.values():
        model.layers.reverse()
    p.agree(use)
    p.agree(use)
    for model in models.values():
        model.layers = [model.W, model.W]
    for _ in range(4):
        p.agree(use)


def test_parameters_that_other_objects_stand_for(pair: Callable) -> None:
    """Two objects of one parameter: the result is the one in its place."""
    p = pair("""
def f(lists, x):
    ws = [dy.parameter(w) for w in lists.ws]
    return [ws[1], dy.tanh(ws[0] * x) + x, ws[0]]
""")
    pc = dy.ParameterCollection()
    w = pc.add_parameters((3, 3))
    again = pc.parameters_list()[0]

    class Lists:
        pass

    def use(m: Any) -> list:
        first, y, second = m.f(lists, vector(1.0))
        return [y, first is lists.ws[1], second is lists.ws[0]]

    lists = Lists()
    for ws in ([w, again], [again, w], [w, w], [again, again]):
        lists.ws = ws
        for _ in range(4):
            p.agree(use)


def test_parameter_is_rebound(pair: Callable) -> None:
    p = pair("""
def f(w, x):
    v = dy.parameter(w)
    y = dy.tanh(x)
    return [v, y + x]
""")
    w = dy.ParameterCollection().add_parameters(3)

    class Toolkit:
        """dy, but for parameter()."""

        def __init__(self, parameter: Any) -> None:
            self.parameter = parameter

        def __getattr__(self, name: str) -> Any:
            return getattr(dy, name)

    for parameter in (dy.parameter, dy.tanh, lambda w: w * 2.0):
        p.plain.dy = p.other.dy = Toolkit(parameter)
        for _ in range(4):
            p.agree(lambda m: [m.f(w, vector(1.0))[1]])
            p.agree(lambda m: [e for e in m.f(w, vector(1.0)) if e is not w])
    p.plain.dy = p.other.dy = dy
    real, dy.parameter = dy.parameter, dy.tanh  # type: ignore[misc]
    try:
        for _ in range(4):
            p.agree(lambda m: m.f(w, vector(1.0)))
    finally:
        dy.parameter = real  # type: ignore[misc]
    p.agree(lambda m: [e for e in m.f(w, vector(1.0)) if e is not w])


def test_a_global_name_that_is_bound(pair: Callable) -> None:
    p = pair("""
SCALE = 1.0
def set_scale(x):
    global SCALE
    SCALE = SCALE + 1.0
    return dy.tanh(x) * SCALE
def f(x):
    y = set_scale(x) + x
    return [y * SCALE, SCALE]
def g(x):
    global SCALE
    y = dy.tanh(x) * SCALE
    SCALE = 3.0
    return [y + x, SCALE]
def import_it(x):
    global os
    import os.path
    return dy.tanh(x) + x
""")
    for _ in range(5):
        p.agree(lambda m: [m.f(vector(1.0)), m.g(vector(2.0)), m.SCALE])
        p.agree(lambda m: [m.import_it(vector(2.0)), m.os.__name__])


def test_a_global_name_that_is_a_local_one_of_the_caller(pair: Callable) -> None:
    p = pair("""
s = 2.0
def outer(x, s):
    def inner(y):
        global s
        return dy.tanh(y) * s
    z = inner(x) + x
    return [z * s, inner]
def scaled(y):
    global s
    return dy.tanh(y) * s
def f(x, s):
    z = scaled(x) + x
    return z * s
""")
    for i in range(6):
        p.agree(lambda m, i=i: [m.outer(vector(1.0), float(i))[0], m.f(vector(1.0), float(i))])
    for m in (p.plain, p.other):
        m.s = 5.0
    for i in range(4):
        p.agree(lambda m, i=i: [m.outer(vector(1.0), float(i))[0], m.f(vector(1.0), float(i))])


def test_a_name_that_an_inner_function_binds(pair: Callable) -> None:
    p = pair("""
def f(x):
    h = dy.tanh(x)
    def step():
        nonlocal h
        h = dy.tanh(h) + x
    step()
    y = h + x
    step()
    return [y, h * 2.0]
""")
    for i in range(5):
        p.agree(lambda m, i=i: m.f(vector(float(i))))


DECORATED = """
import functools
def doubled(function):
    names = function.__code__.co_names
    @functools.wraps(function)
    def call(*args):
        return [function(*args), names, function.__code__.co_consts]
    return call
def lru_cache(function):
    return lambda x: [function(x), function(x)]
class Model:
    def __init__(self):
        self.seen = []
    @property
    def value(self):
        y = dy.tanh(self.x)
        return y + self.x
    @staticmethod
    def tanh(x):
        y = dy.tanh(x)
        return y * 2.0 + x
    @classmethod
    def made(cls, x):
        y = cls.tanh(x) + x
        return dy.logistic(y)
    @doubled
    def looked_at(self, x):
        y = dy.tanh(x)
        return y + x
@functools.lru_cache(maxsize=2)
def cached(i):
    x = dy.inputVector([float(i), 1.0, 2.0])
    y = dy.tanh(x)
    return y + x * 2.0
@lru_cache
def own(x):
    y = dy.tanh(x)
    return y + x
def f(x, fails=False):
    @functools.lru_cache(maxsize=None)
    def once(i):
        y = dy.tanh(x)
        z = y + x
        return dy.reshape(z, (1, 4 if fails else 3)) * 2.0
    return [once(0), once(0), once(1), once.cache_info().hits]
"""


def test_decorated_functions(pair: Callable) -> None:
    p = pair(DECORATED)
    models = {m: m.Model() for m in (p.plain, p.other)}

    def use(m: Any) -> list:
        m.cached.cache_clear()
        model = models[m]
        model.x = vector(0.5)
        parts = [model.value, model.tanh(model.x), m.Model.made(model.x), model.looked_at(model.x)]
        found = [m.cached(0), m.cached(1), m.cached(0), m.own(model.x)]
        return [*parts, *found, *m.f(model.x), m.cached.cache_info().hits]

    for _ in range(6):
        p.agree(use)
        p.agree(lambda m: m.f(vector(1.0), True))
    names = [s["name"] for s in p.statistics.values() if s["hits"]]
    for name in ("Model.value", "Model.tanh", "f.<locals>.once"):
        assert any(found.startswith(name) for found in names), names
    assert not [n for n in names if "looked_at" in n or n.startswith("own")], names


def test_a_decorator_by_a_local_name(pair: Callable) -> None:
    p = pair("""
import functools
def g(functools, x):
    @functools.lru_cache(maxsize=None)
    def twice(y):
        z = dy.tanh(y)
        return z + y
    return twice(x)
class Fake:
    @staticmethod
    def lru_cache(maxsize):
        def decorate(function):
            code = function.__code__.co_consts
            return lambda x: [function(x), code]
        return decorate
""")
    for _ in range(4):
        p.agree(lambda m: m.g(m.Fake, vector(1.0)))
    assert not p.hits


def test_tracebacks_of_decorated_functions(pair: Callable) -> None:
    import traceback

    p = pair(DECORATED)
    for _ in range(5):
        p.agree(lambda m: m.f(vector(1.0)))
    lines = []
    for m in (p.plain, p.other):
        try:
            m.f(vector(1.0), True)
        except Exception as error:  # noqa: BLE001
            lines.append([(f.name, f.lineno, f.line) for f in traceback.extract_tb(error.__traceback__)])
    assert len(lines) == 2 and lines[0] == lines[1]


def test_parts_between_bounds_that_attributes_hold(pair: Callable) -> None:
    p = pair("""
class Model:
    n = 1
def f(model, xs):
    part = xs[:model.n]
    y = dy.tanh(part[0]) + part[-1]
    return [y, y[:model.n], part]
""")

    def use(m: Any) -> list:
        x = vector(1.0)
        lists = [x, vector(2.0), vector(3.0)]
        return [m.f(m.Model, lists), m.f(m.Model, x), m.f(m.Model, (x, x)), len(lists)]

    for n in (1, 1, 1, 1, 2, 2, 2, 0, 0, np.int64(2), 2.0, True, -1):
        p.plain.Model.n = p.other.Model.n = n
        for _ in range(3):
            p.agree(use)


def test_sums_of_lists(pair: Callable) -> None:
    """A list that was extended in place has other names; a class of its own may add otherwise."""
    p = pair("""
class Many(list):
    def __add__(self, other):
        return [dy.tanh(x) for x in self]
def f(xs, y):
    z = dy.tanh(y)
    more = xs[1:] + [z]
    u = z + more[0]
    xs += [u]
    return [u * 2.0, more, xs]
def g(xs, y):
    z = dy.tanh(y)
    more = xs + [z]
    return [more, z + more[0]]
""")
    for _ in range(5):
        p.agree(lambda m: m.f([vector(1.0), vector(2.0)], vector(3.0)))
        p.agree(lambda m: m.g(m.Many([vector(1.0), vector(2.0)]), vector(3.0)))
        p.agree(lambda m: m.g([vector(1.0), vector(2.0)], vector(3.0)))
        p.agree(lambda m: m.g((vector(1.0), vector(2.0)), vector(3.0)))
        p.agree(lambda m: m.g(vector(1.0), vector(3.0)))


def test_indices_that_are_sums(pair: Callable) -> None:
    p = pair(
        NUMBERS
        + MODEL
        + """
def f(model, xs, i):
    y = dy.tanh(xs[i + 1]) + xs[i - 1]
    z = y + model.E[i + 2]
    return [z, xs[1 + i], dy.cmult(z, model.E[i + 2])]
def g(model, xs, tags):
    out = []
    for i in range(len(tags) - 1):
        y = dy.tanh(xs[i + 1] + model.E[i + 1])
        out.append(dy.pick(y, tags[i + 1]) + y)
    return out
def h(xs, d, k):
    y = dy.tanh(d[k + 1]) + xs[0]
    return [y, d[k + 1]]
"""
    )
    models = {m: m.Model() for m in (p.plain, p.other)}

    class Index(int):
        """Adds otherwise."""

        def __add__(self, other: int) -> int:
            return 0

    for i in (0, 1, 2, 0, 1, 2, 2, 0, 3, -1, True, Index(1), np.int64(1), 1.0, 2**70, -(2**70), 1):
        p.agree(lambda m, i=i: m.f(models[m], [vector(k) for k in range(4)], i))
        p.agree(lambda m, i=i: m.f(models[m], tuple(vector(k) for k in range(5)), i))
    assert p.hits
    hits = p.hits
    for tags in ([0, 1, 2, 1], [1, 1], [2, 0, 1, 1], [0], [0, 1, 2, 5], [1, 2, 0, 0]) * 3:
        p.agree(lambda m, tags=tags: m.g(models[m], [vector(k) for k in range(4)], tags))
    assert p.hits > hits
    for k in (0, 1, 0, 1, 2, 0, "a", 1):
        p.agree(lambda m, k=k: m.h([vector(1.0)], {1: vector(2.0), 2: vector(3.0)}, k))


def test_sums_as_indices_in_walks(pair: Callable) -> None:
    p = pair(
        NUMBERS
        + MODEL
        + """
def both(xs, i):
    y = dy.tanh(xs[i]) + xs[i + 1]
    return y * 2.0
def encode(model, xs, left, right):
    if right - left == 1:
        return both(xs, left)
    middle = (left + right) // 2
    a = encode(model, xs, left, middle)
    b = encode(model, xs, middle, right)
    made = [a, b]
    z = made[left - left - 1] + xs[left + 1]
    return dy.tanh(z + model.E[left + 1])
"""
    )
    models = {m: m.Model() for m in (p.plain, p.other)}
    for n in (2, 5, 8, 3, 5, 5, 8, 7, 6, 4, 8):
        p.agree(lambda m, n=n: [encode(m, models[m], n)])
    p.agree(lambda m: [m.encode(models[m], [vector(k) for k in range(4)], 0, 7)])


def encode(m: Any, model: Any, n: int) -> dy.Expression:
    return m.encode(model, [vector(k) for k in range(n + 1)], 0, n)
