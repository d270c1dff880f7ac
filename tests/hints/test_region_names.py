"""What names and attributes mean inside functions that a region calls, and code of the script that runs while
a region lets go of its values."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import weakref
from pathlib import Path
from typing import Any, Callable, Optional

import dynet_compat as dy
import pytest
from support.region_models import vector


def test_method_as_a_value(pair: Callable) -> None:
    """Beside a call of it: what is handed out is the method, not the function."""
    p = pair("""
class Block:
    def g(self, x):
        return dy.tanh(x) + x
    def f(self, x):
        y = self.g(x) + x
        h = self.g
        return y, h
block = Block()
""")
    for i in range(8):
        for module in (p.plain, p.other):
            dy.renew_cg()
            y, h = module.block.f(vector(i))
            assert h == module.block.g, f"call {i}: got {h}"
            assert h(y).dim() == y.dim()


GLOBALS = """
k = 2.0
def h(x):
    return dy.tanh(x) * k
def g(x):
    return h(x) + x
"""


@pytest.mark.parametrize(
    "function",
    [
        "def f(x, k):\n    y = g(x) + x\n    return y\n",
        "def f(x, n):\n    y = x\n    for k in range(3):\n        y = g(y) + x\n    return y\n",
        "def f(x, n):\n    return dy.esum([g(x) + k for k in [x, x]])\n",
    ],
    ids=["parameter", "loop", "comprehension"],
)
def test_global_that_is_a_local_name_further_out(pair: Callable, function: str) -> None:
    """The function called by the one that is called reads the global."""
    p = pair(GLOBALS + function)
    for value in (2.0, 2.0, 2.0, 2.0, 5.0, 7.0):
        p.plain.k = p.other.k = value
        p.agree(lambda m: [m.f(vector(1.0), 3.0)])


@pytest.mark.skipif(sys.version_info < (3, 10), reason="match is of Python 3.10")
@pytest.mark.parametrize("case", ["[k, z]", "[z, *k]", "{'z': z, **k}", "[z, _] as k"])
def test_name_bound_by_match(pair: Callable, case: str) -> None:
    p = pair(
        GLOBALS
        + f"""
def f(x, what):
    match what:
        case {case}:
            pass
    y = g(x) + x
    return y
"""
    )
    for value in (2.0, 2.0, 2.0, 2.0, 5.0, 7.0):
        p.plain.k = p.other.k = value
        p.agree(lambda m: [m.f(vector(1.0), {"z": 1} if "{" in case else [1, 2])])


def test_unbound_name_before_a_call(pair: Callable) -> None:
    """Arguments before the one that is taken apart are evaluated before it."""
    p = pair("""
LOG = []
def note(x):
    LOG.append(1)
    return x
def g(a, b):
    return dy.tanh(a) + b
def f(x, bind):
    if bind:
        unset = dy.exp(x)
    y = g(unset, note(x)) + x
    return y
""")
    for bind in (True, True, True, True, False, True, False):
        logs = []
        for module in (p.plain, p.other):
            dy.renew_cg()
            module.LOG.clear()
            try:
                module.f(vector(1.0), bind)
            except UnboundLocalError:
                assert not bind
            logs.append(list(module.LOG))
        assert logs[0] == logs[1], f"bind {bind}: {logs}"


def test_values_whose_end_runs_the_block(tmp_path: Path) -> None:
    """The last reference to an object may be the region's."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
            import dynet_compat as dy
            made = []
            class Thing:
                def __init__(self, v, deep):
                    self.v, self.deep, self.k = v, deep, float(len(made))
                    made.append(1)
                def __del__(self):
                    if self.deep:
                        for _ in range(3):
                            f(Thing(self.v, self.deep - 1), Thing(self.v, 0), self.v)
            def f(x, u, w):
                x = dy.tanh(x.v) * x.k + u.v * u.k + w; u = w
                return x
            for i in range(8):
                dy.renew_cg()
                v = dy.inputVector([1.0, 2.0])
                print(i, f(Thing(v, 2), Thing(v, 3), v).value())
        """)
    )
    compile_it = [sys.executable, "-m", "dynet_compat", "compile", str(script)]
    subprocess.run(compile_it, check=True, capture_output=True, timeout=300)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert len(done.stdout.splitlines()) == 8


DEFAULTS = """
import numpy as np
pc = dy.ParameterCollection()
W, U, V = (pc.parameters_from_numpy(np.eye(3) * i) for i in (2, 3, 5))
gates = {"i": W, "o": U}
E = pc.lookup_parameters_from_numpy(np.arange(27.0).reshape(9, 3))
def g(x, name="i", k=2.0, row=4):
    y = dy.tanh(gates[name] * x) * k + E[row]
    return y + x, k, name
def h(x, *, name="i", k=2.0, row=4):
    y = dy.tanh(gates[name] * x) * k + E[row]
    return y + x, k, name
def h2(x, /, *, name="i", k=2.0, row=4):
    y = dy.tanh(gates[name] * x) * k + E[row]
    return y + x, k, name
class C:
    def m(self, x, *, name="i", k=2.0, row=4):
        y = dy.tanh(gates[name] * x) * k + E[row]
        return y + x, k, name
c = C()
"""
CALLS = {
    "by place": ("g", "(x)"),
    "one given": ("g", "(x, 'o')"),
    "by name": ("h", "(x)"),
    "by name, given": ("h", "(x, name='o', row=n)"),
    "only by place": ("h2", "(x, k=0.5)"),
    "method": ("c.m", "(x)"),
}


def set_defaults(f: Any, name: str, k: Any, row: int) -> None:
    f = getattr(f, "__func__", f)
    if f.__kwdefaults__ is None:
        f.__defaults__ = (name, k, row)
    else:
        f.__kwdefaults__.update(name=name, k=k, row=row)


@pytest.mark.parametrize("function, call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("before", [False, True], ids=["learned before", "changed before"])
@pytest.mark.parametrize("result", ["y, z", "y, z, k, name"])
def test_defaults_that_change(pair: Callable, function: str, call: str, before: bool, result: str) -> None:
    """What a default is when the function is called counts, not what is written."""
    owner = "    def f(self, x, n):" if "." in function else "def f(x, n):"
    body = call if "." not in function else call.replace("c.", "self.")
    name = function.replace("c.", "self.")
    indent = "        " if "." in function else "    "
    lines = [
        owner,
        f"{indent}y, k, name = {name}{body}",
        f"{indent}z = dy.exp(y) + x",
        f"{indent}return {result}",
    ]
    if "." in function:
        text = DEFAULTS.replace("c = C()\n", "\n".join(lines) + "\nc = C()\nf = c.f\n")
    else:
        text = DEFAULTS + "\n".join(lines) + "\n"
    p = pair(text)

    def use(m: Any) -> list:
        return [part for i in range(4) for part in m.f(vector(0.1 * i), i)]

    def change(*values: Any) -> None:
        for m in (p.plain, p.other):
            set_defaults(m.c.m if "." in function else getattr(m, function), *values)

    if not before:
        for _ in range(2):
            p.agree(use)
        assert p.hits > 0, p.statistics
    for values in (("o", 5.0, 4), ("o", 5, 4), ("i", True, 3), ("i", 2.0, 4), ("o", -0.0, 0), ("o", 0.0, 0)):
        change(*values)
        for _ in range(3):
            p.agree(use)
        for m in (p.plain, p.other):
            m.gates["o"] = m.V if m.gates["o"] is m.U else m.U
        p.agree(use)
    change("i", 2.0, 4)
    before_hits = p.hits
    for _ in range(3):
        p.agree(use)
    assert p.hits > before_hits, p.statistics


CLOSURES = """
import numpy as np
pc = dy.ParameterCollection()
W, U, V = (pc.parameters_from_numpy(np.eye(3) * i) for i in (2, 3, 5))
k = 2.0
def act(x):
    return dy.tanh(x) * k
class Model:
    def __init__(self):
        self.W, self.U = W, U
    def act(self, x):
        return dy.rectify(self.U * x)
"""

# A function inside the function that calls it; `x` is an expression, `n` the number of the run.
HELPERS = {
    "global only": """
def f(x, n):
    def h(y):
        return dy.tanh(W * y) + k
    a = dy.exp(x)
    b = h(a)
    return a, b, h(b)
""",
    "a name of the function around": """
def f(x, n):
    M = W if n % 3 else U
    s = 0.5 * n
    def h(y, t=2.0):
        return dy.tanh(M * y) * s * t
    a = dy.exp(x)
    b = h(a) + h(x, 3.0)
    return a, b, h
""",
    "rebound between the calls": """
def f(x, n):
    M = W
    def h(y):
        z = M * y
        return dy.tanh(z)
    a = h(x)
    M = U if n % 2 else V
    b = h(a) + x
    M = dy.const_parameter(W)
    c = h(b) + h(x)
    return a, b, c, M
""",
    "rebound inside the block": """
def f(x, n):
    y = x
    def h(z):
        return dy.cmult(y, z)
    y = dy.tanh(x)
    a = h(y)
    y = dy.exp(a)
    b = h(x)
    return a, b, y
""",
    "in a loop": """
def f(x, n):
    outs = []
    for i in range(1 + n % 3):
        def h(y):
            return dy.tanh(y) * float(1) + x
        x = h(x) + dy.exp(x)
        outs.append(h(x))
    return outs, x
""",
    "of a comprehension": """
def f(x, n):
    w = dy.exp(x)
    def h(y):
        return dy.tanh(W * y) + w
    return [h(a) + b for a, b in zip([x, w], [w, x])], [h(y) for y in [x, w]]
""",
    "with the target's name": """
def f(x, n):
    def h(y):
        return dy.tanh(W * y) + x
    return [h(x) + x for x in [dy.exp(x), x]]
""",
    "with the name of a global": """
def f(x, n):
    def h(y):
        return act(y) + k
    a = dy.exp(x) + k
    return [h(a) + a for k in (1.0, 3.0)], h(a)
""",
    "that hides a global": """
def f(x, n):
    k = 0.25 * n
    def h(y):
        return act(y) + k
    a = dy.exp(x) + k
    return a, h(a)
""",
    "two of one name": """
def f(x, n):
    def h(y):
        return dy.tanh(y) + x
    a = h(x) + x
    if n % 2:
        def h(y):
            return dy.exp(y) + x
    return a, h(a) + x
""",
    "assigned": """
def f(x, n, keep=[]):
    def h(y):
        return dy.tanh(y) * float(len(keep)) + x
    keep.append(h)
    h = keep[n // 2]
    return h(x) + x, h(h(x))
""",
    "of another run": """
def f(x, n, keep=[]):
    s = 0.5 * n
    def h(y):
        return dy.tanh(y) * s + x * s
    keep.append(h)
    g = keep[n // 2]
    a = dy.exp(x)
    return h(a) + a, g(a) + a if n > 2 else None
""",
    "that calls another": """
def f(x, n):
    def g(y):
        return dy.tanh(y) + x
    def h(y):
        return g(y) + dy.exp(y)
    a = dy.exp(x)
    return h(a) + a, g(a) + a
""",
    "that calls itself": """
def f(x, n):
    def h(y, d):
        z = dy.tanh(y) + x
        return h(z, d - 1) if d else z
    a = dy.exp(x) + x
    return h(a, n % 3) + a
""",
    "defaults that are made": """
def f(x, n):
    def h(y, t=x, *, u=0.5 * n):
        return dy.tanh(y) * u + t
    a = dy.exp(x) + x
    return h(a) + a
""",
    "arguments by name": """
def f(x, n):
    def h(y, t=2.0, *, u=None, v=3.0):
        return dy.tanh(y) * t + x * v, u
    a = dy.exp(x) + x
    return h(a, v=0.5 * n) + h(a, t=4.0, u=n)
""",
    "other code": """
def f(x, n):
    def h(y):
        return dy.tanh(y) + x
    def g(y):
        return dy.exp(y) + x
    if n % 3 == 2:
        h.__code__ = g.__code__
    elif n % 3 == 1:
        h.__defaults__ = (x,)
    a = dy.exp(x) + x
    return (h(a) if n % 2 else h(x)) + a, h(a) + x
""",
    "not there yet": """
def f(x, n):
    a = dy.exp(x) + x
    if n > 2:
        b = h(a) + x
    def h(y):
        return dy.tanh(y) + x
    return a, h(a) + x
""",
    "unbound name": """
def f(x, n):
    if n != 5:
        s = dy.exp(x)
    def h(y):
        return dy.tanh(y) + s
    a = dy.exp(x) + x
    return a, h(a) + x
""",
    "of a method": """
class Net(Model):
    def f(self, x, n):
        if n % 3 == 2:
            self.W = U if self.W is W else W
        def h(y):
            z = self.W * y
            return dy.tanh(z) + self.U * y
        def call(y):
            return self.act(y) + y
        a = dy.exp(x)
        return h(a) + h(x), call(a) + a
def f(x, n, net=Net()):
    return net.f(x, n)
""",
    "decorated": """
def twice(g):
    return lambda y: g(g(y))
def f(x, n):
    @twice
    def h(y):
        return dy.tanh(y) + x
    a = dy.exp(x) + x
    return h(a) + x
""",
    "generator": """
def f(x, n):
    def h(y):
        yield dy.tanh(y) + x
    a = dy.exp(x) + x
    return next(h(a)) + x, list(h(a))
""",
}
NOT_FOLLOWED = {"that calls itself", "assigned", "two of one name", "decorated", "generator", "not there yet"}


@pytest.mark.parametrize("name", HELPERS)
def test_functions_inside_the_function(pair: Callable, name: str) -> None:
    """What they take from around them is what it is when they are called."""
    p = pair(CLOSURES + HELPERS[name])

    def use(m: Any) -> list:
        return [m.f(vector(0.1 * i), i) for i in range(7)]

    for _ in range(3):
        p.agree(use)
    for module in (p.plain, p.other):
        module.k = 7.0
        module.W = module.V
    p.agree(use)
    followed = [s for s in p.statistics.values() if s["hits"] > 3]
    assert name in NOT_FOLLOWED or followed, p.statistics


def test_graphs_are_not_kept_by_functions_inside(pair: Callable) -> None:
    """A region keeps the code of a function, not the function with all that it holds."""
    p = pair("""
class Big:
    def __init__(self, x):
        self.x = x
def f(x, big):
    def h(y):
        return dy.tanh(y) + big.x
    a = dy.exp(x)
    return h(a) + h(x)
""")
    dy.renew_cg()
    kept = []
    for i in range(6):
        big = p.other.Big(vector(i))
        kept.append(weakref.ref(big))
        p.other.f(vector(i), big)
    del big
    gc.collect()
    assert p.hits > 2, p.statistics
    assert [r() for r in kept] == [None] * 6


def test_lists_of_lookups_alone_are_left(pair: Callable) -> None:
    """Their checks would cost more than the lookups."""
    p = pair(
        """
        E = dy.ParameterCollection().add_lookup_parameters((9, 3))
        def found(numbers):
            return [E[w] for w in numbers]
        def changed(numbers):
            return [dy.tanh(E[w]) for w in numbers]
        """
    )
    assert [s["name"].split(":")[0] for s in p.statistics.values()] == ["changed"]


COPIES = {
    "lists": ("return dy.esum(list(xs)) + dy.average(tuple(xs))", True),
    "a list of its own": ("return dy.esum(list([xs[0], xs[1]])) + xs[0]", True),
    "pairs": ("return dy.esum([dy.concatenate(list(p))[0:3] for p in zip(xs, xs[::-1])]) + xs[0]", True),
    "a name of the function": ("list = lambda ys: ys[:1]\n    return dy.esum(list(xs)) + xs[0]", True),
    "an iterator": ("ys = iter(xs)\n    z = dy.esum(list(ys))\n    return dy.esum(list(ys) + [z]) + z", None),
    "a result": ("y = xs[0] + xs[1]\n    return dy.esum(list(y)) + dy.esum(list(y))", None),
    "an expression": ("y = xs[0]\n    return dy.esum(list(y)) + dy.esum(tuple(y)) + y[0]", None),
    "kept": ("ys = list(xs)\n    z = dy.esum(ys) + xs[0]\n    ys.append(z)\n    return ys, z", False),
}


@pytest.mark.parametrize("text, learned", COPIES.values(), ids=list(COPIES))
def test_copies_of_lists(pair: Callable, text: str, learned: Optional[bool]) -> None:
    p = pair(f"def f(xs):\n    {text}\n")
    for n in (2, 3, 2, 4, 2, 3):
        p.agree(lambda m, n=n: [m.f([vector(i) for i in range(n)]) for _ in range(3)])
    if learned is not None:
        assert (p.hits > 5) == learned, p.statistics


def test_another_list(pair: Callable) -> None:
    """What the script calls so, from some time on."""
    p = pair("def f(xs):\n    return dy.tanh(dy.esum(list(xs)))\n")
    use = lambda m: [m.f([vector(i), vector(2)]) for i in range(4)]  # noqa: E731
    p.agree(use)
    for module in (p.plain, p.other):
        module.list = lambda xs: xs[:1]
    p.agree(use)
    for module in (p.plain, p.other):
        del module.list
    p.agree(use)
    assert p.hits > 5
