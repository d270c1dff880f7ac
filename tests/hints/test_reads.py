"""np.argmax(x.npvalue()) as one call: the index is NumPy's, and what is no plain vector goes the long way."""

from __future__ import annotations

import traceback
import tracemalloc
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

import dynet_compat as dy
import numpy as np
import pytest
from dynet_compat.compare import instrument
from dynet_compat.hints import cli, runtime
from support.modules import load, recorded_nodes
from support.vectors import vectors

read_argmax = dy._core._read_argmax

METHODS = ("npvalue", "value", "vec_value")
SIZES = (1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 65, 100, 257, 1000, 4999, 5000)

FORMS = """
    import numpy
    import numpy as np
    from numpy import argmax

    def module(x): return np.argmax(x.npvalue())
    def other_name(x): return numpy.argmax(x.npvalue())
    def bare(x): return argmax(x.npvalue())
    def as_int(x): return int(np.argmax(x.npvalue()))
    def of_value(x): return np.argmax(x.value())
    def of_list(x): return np.argmax(x.vec_value())
    def method(x): return x.npvalue().argmax()
    def in_a_lambda(x): return (lambda y: np.argmax(y.npvalue()))(x)
    def in_a_list(x): return [int(np.argmax(y.npvalue())) for y in [x]][0]
    def in_a_generator(x): return next(np.argmax(y.npvalue()) for y in [x])
    def of_what_it_records(x): return np.argmax(dy.cube(x * 2).npvalue())
    def inside(x):
        def f(y): return np.argmax(y.npvalue())
        return f(x)
"""
NAMES = ("module other_name bare as_int of_value of_list method in_a_lambda in_a_list in_a_generator "
         "of_what_it_records inside").split()  # fmt: skip


@pytest.fixture(autouse=True)
def graph() -> None:
    dy.renew_cg()


def attempt(f: Callable[..., Any], *arguments: Any) -> Any:
    """What it returns or raises, as something that can be compared."""
    try:
        result = f(*arguments)
    except Exception as e:  # noqa: BLE001 - any error must be the same on both sides
        return type(e), str(e)
    return type(result), repr(result)


def agree(p: Any, use: Callable[[ModuleType], list[Any]]) -> None:
    """The same results, objects of the same types, and graphs."""
    told = []
    for m in (p.plain, p.other):
        dy.renew_cg()
        told.append((attempt(use, m), recorded_nodes()))
    assert told[0] == told[1]
    assert told[0][0][0] is list


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("method", METHODS)
def test_the_index_is_numpys(method: str, n: int) -> None:
    for v in vectors(n, np.random.default_rng(n)):
        given = dy.inputVector(v)
        for x in (given, given + dy.zeros(n), dy.nobackprop(given)):
            found = read_argmax(np.argmax, x, method)
            wanted = np.argmax(getattr(x, method)())
            assert found == wanted and type(found) is type(wanted)
        assert read_argmax(given, "npvalue") == given.npvalue().argmax()


def test_a_list_has_no_argmax() -> None:
    x = dy.inputVector([1, 2])
    for method in ("value", "vec_value"):
        with pytest.raises(AttributeError, match="'list' object has no attribute 'argmax'"):
            read_argmax(x, method)
    for wrong in ((), (x,), (np.argmax, x, "npvalue", 1)):
        with pytest.raises(TypeError, match="expected 2 or 3 arguments"):
            read_argmax(*wrong)


@pytest.mark.parametrize("name", NAMES)
def test_every_form_is_one_call(pair: Callable[[str], Any], name: str) -> None:
    """Which makes no array of the values."""
    p = pair(FORMS)
    assert p.rewriter.argmax_calls == len(NAMES)
    x = dy.inputVector(np.arange(5000.0)) + 0
    x.forward()
    sizes = []
    for module in (p.plain, p.other):
        f = getattr(module, name)
        f(x)
        tracemalloc.start()
        assert f(x) == 4999
        sizes.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert sizes[0] > 40_000 > 20_000 > sizes[1]
    agree(
        p,
        lambda m: [
            attempt(getattr(m, name), dy.inputVector(v)) for v in vectors(9, np.random.default_rng(9))
        ],
    )


@pytest.mark.parametrize(
    "text",
    [
        "np.argmax(x.npvalue(), axis=0)",
        "np.argmax(x.npvalue(), 0)",
        "np.argmax(a=x.npvalue())",
        "np.argmax(x.npvalue(), keepdims=True)",
        "np.argmax(x.npvalue(recalculate=True))",
        "np.argmax(x.npvalue(True))",
        "np.argmax(*[x.npvalue()])",
        "np.argmax(x.npvalue()[1:])",
        "np.argmax(-x.npvalue())",
        "np.argmin(x.npvalue())",
        "x.npvalue().argmax(0)",
        "x.tensor_value().argmax().as_numpy()",
        "np.argmax",
    ],
)
def test_other_calls_stay(pair: Callable[[str], Any], text: str) -> None:
    p = pair(f"import numpy as np\ndef f(x): return {text}")
    assert p.rewriter.argmax_calls == 0
    agree(p, lambda m: [m.f(dy.inputVector([1, 3, 2]))])


def test_what_is_no_plain_vector(pair: Callable[[str], Any]) -> None:
    pc = dy.ParameterCollection()
    W, E = pc.add_parameters((4, 3)), pc.add_lookup_parameters((5, 3))

    def things() -> list[Any]:
        rng = np.random.default_rng(1)
        matrix, batch = rng.normal(size=(3, 4)), rng.normal(size=(6, 5))
        made = [
            dy.inputTensor(matrix),
            dy.inputTensor(batch, batched=True),
            dy.scalarInput(2) + 1,
            dy.ones((4, 1)),
        ]
        made += [dy.inputTensor(matrix) * dy.ones(4), E[2], dy.parameter(W), W, dy.lookup_batch(E, [1, 2])]
        return made + [dy.inputTensor(rng.normal(size=(2, 3, 2))), dy.inputVector([7])]

    def use(m: ModuleType) -> list[Any]:
        return [attempt(getattr(m, name), x) for name in NAMES for x in things()]

    agree(pair(FORMS), use)


def test_other_objects_and_functions(pair: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    p = pair(
        FORMS
        + """
    class Fake:
        def __init__(self, log): self.log = log
        def npvalue(self): self.log.append("read"); return np.array([1, 5, 2])
        value = vec_value = npvalue
    class Shadow:
        def __init__(self, log): self.log = log
        @property
        def argmax(self): self.log.append("argmax"); return lambda v: ("mine", list(v))
    def shadowed(np, x): return np.argmax(x.npvalue())
    def order(log):
        def made(): log.append("x"); return Fake(log)
        return [np.argmax(made().npvalue()), shadowed(Shadow(log), made()), log]
    """
    )
    agree(p, lambda m: [m.order([])])
    agree(p, lambda m: [m.shadowed(m.Shadow([]), dy.inputVector([2, 1]))])
    for name in NAMES:
        agree(p, lambda m: [attempt(getattr(m, name), m.Fake([]))])  # noqa: B023 - called here
        agree(p, lambda m: [attempt(getattr(m, name), [3, 4])])  # noqa: B023
    monkeypatch.setattr(np, "argmax", lambda v: -7)
    agree(p, lambda m: [m.module(dy.inputVector([2, 1]))])
    assert p.other.module(dy.inputVector([2, 1])) == -7


def test_a_class_of_its_own_and_a_method_in_place_of_ours(
    pair: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mine(type(dy.inputVector([1.0]))):  # type: ignore[misc]
        def npvalue(self) -> np.ndarray:
            return np.array([0.0, 9.0, 0.0])

    class Asked(type(dy.inputVector([1.0]))):  # type: ignore[misc]
        __slots__ = ()

        def __getattribute__(self, name: str) -> Any:
            return lambda: [0.0, 0.0, 5.0]

    class Empty(type(dy.inputVector([1.0]))):  # type: ignore[misc]
        pass

    p = pair(FORMS)
    own = Empty(dy.cg(), [3.0, 2.0, 1.0])
    assert p.other.module(own) == p.plain.module(own) == 0
    own.npvalue = lambda: [0.0, 0.0, 5.0]
    for x, index in ((Mine(dy.cg(), [3.0, 2.0, 1.0]), 1), (Asked(dy.cg(), [3.0, 2.0, 1.0]), 2), (own, 2)):
        assert p.other.module(x) == p.plain.module(x) == index
    before = dy.Expression.npvalue
    instrument.patch(dy.Expression, "npvalue", lambda e: before(e)[::-1])
    try:
        for m in (p.plain, p.other):
            assert m.module(dy.inputVector([3, 2, 1])) == m.method(dy.inputVector([3, 2, 1])) == 2
    finally:
        instrument.patch(dy.Expression, "npvalue", before)
    assert p.other.module(dy.inputVector([3, 2, 1])) == 0


ERRORS = """
    import numpy as np
    def stale(log):
        x = dy.inputVector([1, 2]); dy.renew_cg(); dy.ones(2); return np.argmax(x.npvalue())
    def stale_value(log):
        x = dy.inputVector([1, 2]); dy.renew_cg(); dy.ones(2); return np.argmax(x.value())
    def none(log): return np.argmax(None.npvalue())
    def nothing(log): return np.argmax(log.append(1).npvalue())
    def no_numpy(log): return pn.argmax(log.append(1).npvalue())
    def no_such(log): return np.max.argmax(log.append(1).npvalue())
    def not_called(log): return argmax(dy.inputVector([log.append(1) or 1, 2]).npvalue())
    def wrong(log): return np.argmax(dy.pick(dy.inputVector([1, 2]), 5).npvalue())
    def row(log): return np.argmax(E[99].npvalue())
    def deleted(log): x = 1; del x; return np.argmax(x.npvalue())
    argmax = 3
    E = dy.ParameterCollection().add_lookup_parameters((4, 2))
"""


@pytest.mark.parametrize(
    "name", "stale stale_value none nothing no_numpy no_such not_called wrong row deleted".split()
)
def test_the_same_errors(pair: Callable[[str], Any], name: str) -> None:
    p = pair(ERRORS)
    told = []
    for m in (p.plain, p.other):
        dy.renew_cg()
        log: list[int] = []
        with pytest.raises(Exception) as info:  # noqa: PT011 - whichever the plain function raises
            getattr(m, name)(log)
        frames = traceback.extract_tb(info.value.__traceback__)[1:]
        words = str(info.value).replace(f"version {dy.cg_version()}", "version now")
        told.append((info.type, words.split("(version")[0], [(f.lineno, f.name) for f in frames], log))
    assert p.rewriter.argmax_calls >= 10
    assert told[0] == told[1]


def test_values_that_change(pair: Callable[[str], Any]) -> None:
    """Inputs that are set, reverted graphs, renewed graphs."""

    def use(m: ModuleType) -> list[Any]:
        x = dy.vecInput(3)
        y = dy.tanh(x) * 2
        found = []
        for v in ([1, 2, 3], [3, 2, 1], [np.nan, 9, 9]):
            x.set(v)
            found += [m.module(y), m.module(x), m.of_list(y + 1), list(y.vec_value()[1:])]
        dy.cg_checkpoint()
        found.append(m.module(y * -1))
        dy.cg_revert()
        found.append(m.module(dy.inputVector([0, 4, 1])))
        dy.renew_cg()
        return [*found, m.module(dy.inputVector([0, 1, 4]))]

    agree(pair(FORMS), use)


# ---------------------------------------------------------------- instances side by side


@pytest.mark.parametrize("backend", ["greenlet", "threads"])
def test_instances(pair: Callable[[str], Any], backend: str) -> None:
    if backend == "greenlet":
        pytest.importorskip("greenlet")
    p = pair("""
        import numpy as np
        def decode(args):
            W, E, first = args
            out, last = [], first
            for step in range(2 + first % 3):
                scores = W * dy.tanh(E[last])
                last = int(np.argmax(scores.npvalue()))
                out.append(last)
                if step == first % 2:
                    out.append(round(scores.npvalue()[0], 5))
                    out.append((scores * 2).value()[1] > 0)
            if first == 5:
                np.argmax((scores * 1).npvalue(), axis=3)
            if first == 6:
                np.argmax(dy.pick(E[0], 99).npvalue())
            return out
    """)
    pc = dy.ParameterCollection()
    W, E = pc.add_parameters((30, 8)), pc.add_lookup_parameters((30, 8))
    results, counts = [], []
    for m in (p.plain, p.other):
        dy.renew_cg()
        dy._core.reset_timing()
        found = dy.batch_map(m.decode, [(W, E, i) for i in range(9)], return_exceptions=True, backend=backend)
        results.append([r if isinstance(r, list) else (type(r), str(r)) for r in found])
        counts.append(dy._core.timing()["flushes"])
    assert p.rewriter.argmax_calls == 2
    assert results[0] == results[1] and counts[0] == counts[1] < 20
    assert [type(r) for r in results[0]] == [list] * 5 + [tuple] * 2 + [list] * 2


def test_an_input_that_another_instance_sets(pair: Callable[[str], Any]) -> None:
    """After all have been computed, and before this one goes on."""
    p = pair("""
        import numpy as np
        shared = {}
        def function(i):
            if i == 0:
                x = dy.vecInput(3)
                x.set([3, 2, 1])
                shared["y"] = dy.tanh(x) * 1
                first = (shared["y"] * 1).value()
                x.set([1, 2, 3])
                return first
            return np.argmax(shared["y"].npvalue())
    """)
    found = []
    for m in (p.plain, p.other):
        dy.renew_cg()
        found.append(dy.batch_map(m.function, range(3), backend="threads"))
    assert found[0] == found[1] and found[0][1:] == [2, 2]


# ---------------------------------------------------------------- a program with its hints

PROGRAM = """
import numpy as np
import dynet_compat as dy

pc = dy.ParameterCollection()
W = pc.add_parameters((4, 3))

def scores(data):
    dy.renew_cg()
    return [W * dy.inputVector(x) for x in data]

def best(all):
    dy.forward(all)
    return [int(np.argmax(s.npvalue())) for s in all]

def unused(x):
    return len(x)

def main():
    return best(scores([[1, 2, 3], [3, 2, 1]]))

if __name__ == "__main__":
    main()
"""


def test_functions_that_only_read_are_rewritten(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    assert cli.main([str(script)]) == 0
    module = load(script)
    before = {name: getattr(module, name).__code__ for name in ("best", "unused")}
    plain = module.main()
    runtime.load(str(tmp_path / "program.dyhints"))
    try:
        assert module.main() == plain
        runtime.active().apply()
        assert module.best.__code__ is not before["best"] and module.unused.__code__ is before["unused"]
        assert module.main() == plain
    finally:
        runtime.deactivate()
