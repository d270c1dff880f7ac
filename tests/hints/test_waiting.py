"""Modules whose text is new are looked at when the process has run for long enough to pay for it."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
import time
import warnings
import weakref
from pathlib import Path
from typing import Any

import dynet_compat as dy
import pytest
from dynet_compat.hints import runtime, tuning, waiting
from dynet_compat.hints.rewrite import code_objects, patch
from support.hinted_programs import F, environment


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNET_COMPAT_CACHE", str(tmp_path / "cache"))


class Clock:
    """Processor time of the process, set by the test; by the other clock every pause is over at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.used = self.now = 0.0
        monkeypatch.setattr(waiting, "time", self)

    def process_time(self) -> float:
        return self.used

    def perf_counter(self) -> float:
        self.now += 1000.0
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def patient(own_modules: Any, monkeypatch: pytest.MonkeyPatch) -> runtime.Active:
    """Looking at F takes 0.05 s, whatever else the process holds."""
    monkeypatch.setattr(tuning, "LOOKING_AT_A_LINE", 0.01)
    monkeypatch.setattr(tuning, "SEARCHING_A_BLOCK", 0.0)
    return runtime.Active(None, {}, {}, patient=True)


def test_a_new_text_waits_for_many_times_what_looking_takes(
    own_modules: Any, patient: Any, clock: Clock
) -> None:
    module = own_modules("new", F + "\n" * 1000)
    code = module.f.__code__
    patient.on_renew()
    assert not patient.found and "the script waits for 0.4 s of processor time" in patient.summary()
    clock.used = 0.4
    for _ in range(300):
        patient.on_renew()
    assert "1 module waits for " in patient.summary()
    patient.waiting.spent = 1.0  # as if what was done up to now had taken that
    clock.used = 49 * (1.0 + 1000 * tuning.LOOKING_AT_A_LINE)
    patient.on_renew()
    assert module.f.__code__ is code
    clock.used += 20.0
    patient.on_renew()
    assert module.f.__code__ is not code and not patient.waiting.files and "wait" not in patient.summary()
    assert len(patient.regions()) == 1


def test_what_was_kept_waits_for_less(own_modules: Any, patient: Any, clock: Clock) -> None:
    own_modules("kept", F + "#\n" * 1000)
    runtime.Active(None, {}, {}).apply()
    kept, new = own_modules("kept", F + "#\n" * 1000), own_modules("new", F + "#\n" * 1000)
    codes = kept.f.__code__, new.f.__code__
    clock.used = 0.4
    patient.on_renew()
    assert kept.f.__code__ is codes[0] and new.f.__code__ is codes[1]
    patient.waiting.spent = 0.0
    clock.used = 2.5
    patient.on_renew()
    assert kept.f.__code__ is not codes[0] and new.f.__code__ is codes[1]


def test_each_pays_for_those_before(own_modules: Any, patient: Any, clock: Clock) -> None:
    """The shortest comes first."""
    long, short = own_modules("long", F + "#\n" * 400), own_modules("short", F)
    codes = long.f.__code__, short.f.__code__
    clock.used = 0.4
    patient.on_renew()
    patient.waiting.spent = 0.0
    clock.used = 4.0
    patient.on_renew()
    assert short.f.__code__ is not codes[1] and long.f.__code__ is codes[0]
    patient.waiting.spent = 1.0
    clock.used = 51.0
    patient.on_renew()
    assert long.f.__code__ is codes[0]
    clock.used = 300.0
    patient.on_renew()
    assert long.f.__code__ is not codes[0]


def start(patient: Any, clock: Clock) -> None:
    """The script's modules are found, and it is time to look at them."""
    clock.used = 0.4
    patient.on_renew()
    patient.waiting.spent = 1.0
    assert patient.waiting.files
    clock.used = 1e9


def test_no_look_while_a_tracer_is_on(own_modules: Any, patient: Any, clock: Clock) -> None:
    module = own_modules("traced", F)
    code = module.f.__code__
    start(patient, clock)
    sys.setprofile(lambda *_: None)
    try:
        patient.on_renew()
        assert module.f.__code__ is code
    finally:
        sys.setprofile(None)
    patient.on_renew()
    assert module.f.__code__ is not code


def test_modules_that_wait_may_end(own_modules: Any, patient: Any, clock: Clock) -> None:
    module = own_modules("ending", F)
    clock.used = 0.4
    patient.on_renew()
    assert patient.waiting.files
    gone = weakref.ref(module)
    del sys.modules["ending"], module
    gc.collect()
    assert gone() is None
    clock.used = 1e9
    patient.on_renew()
    assert not patient.waiting.files


def test_an_exception_of_a_signal_handler_leaves_it_waiting(
    own_modules: Any, patient: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = own_modules("interrupted", F)
    code = module.f.__code__
    start(patient, clock)

    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(patch, "rewrite_module", interrupt)
        with pytest.raises(KeyboardInterrupt):
            patient.on_renew()
    assert module.f.__code__ is code and patient.waiting.files and gc.isenabled()
    patient.on_renew()
    assert module.f.__code__ is not code


def test_renewals_meanwhile_do_not_look_twice(
    own_modules: Any, patient: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a handler of a signal, or in another thread."""
    own_modules("once", F)
    start(patient, clock)
    rewrite, looks = patch.rewrite_module, []

    def meanwhile(*arguments: Any) -> Any:
        looks.append(arguments)
        thread = threading.Thread(target=patient.on_renew)
        thread.start()
        thread.join()
        patient.on_renew()
        return rewrite(*arguments)

    monkeypatch.setattr(patch, "rewrite_module", meanwhile)
    patient.on_renew()
    assert len(looks) == 1


def test_the_hook_rests_for_what_it_returns(active: Any) -> None:
    calls: list[float] = []
    rests = [0.0, None, 0.1]

    def hook() -> Any:
        calls.append(time.perf_counter())
        return rests[len(calls) - 1] if len(calls) <= len(rests) else 1e6

    dy._core._on_renew(hook)
    end = time.perf_counter() + 60  # other processes may be using the machine
    while len(calls) < 4 and time.perf_counter() < end:
        dy.renew_cg()
    for _ in range(1000):
        dy.renew_cg()
    assert len(calls) == 4 and calls[3] - calls[2] >= 0.1
    dy._core._on_renew(hook)  # rests no more
    dy.renew_cg()
    assert len(calls) == 5


def test_the_hook_goes_when_nothing_waits(own_modules: Any, patient: Any, clock: Clock) -> None:
    own_modules("waiting", F)
    clock.used = 0.4
    renewals = []
    patient_renew = patient.on_renew

    def hook() -> Any:
        renewals.append(1)
        patient_renew()

    dy._core._on_renew(hook)
    for _ in range(400):
        dy.renew_cg()
    assert len(renewals) == 400
    clock.used = 1e9
    for _ in range(400):
        dy.renew_cg()
    assert len(renewals) == 401 and not patient.waiting.files


def test_warnings_of_other_threads_are_shown() -> None:
    """While a text is compiled again, only the compiler's own warnings about it are not."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")

        def compiles() -> None:
            compile("x is 1\n'\\d'", "/folder/script.py", "exec")
            compile("x is 2", "/folder/other.py", "exec")
            thread = threading.Thread(target=lambda: warnings.warn("of another thread", stacklevel=1))
            thread.start()
            thread.join()

        code_objects.silently("/folder/script.py", compiles)
    assert len(seen) == 2 and "of another thread" in str(seen[1].message) and "is" in str(seen[0].message)


def test_functions_that_libraries_make_do_not_name_the_file(own_modules: Any, active: Any) -> None:
    """Those of dataclasses have the module's dict, and come from no file."""
    text = "from dataclasses import dataclass\n@dataclass\nclass First:\n    x: int\n"
    module = own_modules("records", text + F)
    file, code = module.f.__code__.co_filename, module.f.__code__
    active.apply()
    assert module.f.__code__ is not code and module.f.__code__.co_filename == file


# ---------------------------------------------------------------- in the middle of a run

MIDDLE = """
    import functools, sys, threading, traceback
    from dynet_compat.hints import runtime, tuning
    W = dy.ParameterCollection().parameters_from_numpy(__import__("numpy").linspace(-1, 1, 9).reshape(3, 3))
    PLACE = sys.argv[1]
    active = runtime.active()
    if active:  # which finds the modules, and then waits
        tuning.FINDING, tuning.LOADING = 0.0, 1e6

    def renew(place):
        if place == PLACE and active and active.waiting.files:
            tuning.USED_FOR_HINTS = active.waiting._next_check = 0.0
            before = cell.__code__
            dy.renew_cg()
            print("exchanged", before is not cell.__code__, file=sys.stderr)
        dy.renew_cg()
        return dy.inputVector([1, 2, 3])
    def cell(x, h):
        z = dy.tanh(W * x)
        g = dy.logistic(W * h + z)
        return dy.cmult(g, z) + h
    def counted(f):
        @functools.wraps(f)
        def inner(*args):
            calls[f.__name__] = calls.get(f.__name__, 0) + 1
            return f(*args)
        return inner
    calls = {}
    class Model:
        def step(self, x):
            h = dy.tanh(W * x)
            h = dy.tanh(W * h + x)
            return dy.logistic(W * h) + x
        def down(self, x, n):
            if n == 2:
                x = renew("recursion")
            if n:
                x = self.down(x, n - 1)
            y = dy.tanh(W * x)
            return y + x
    def states(x):
        while True:
            x = cell(x, dy.tanh(x))
            x = dy.tanh(x) + x
            x = (yield x) or x
    def fails(x):
        y = dy.tanh(W * x)
        z = renew("failure") + y
        return z * y
    def inner_function(n):
        def shifted(x):
            z = dy.tanh(W * x)
            return z + x + n
        return shifted
    def show(name, value):
        print(name, [round(v, 6) for v in value.vec_value()])
    def work(made):
        x = renew("thread")
        for _ in range(5):
            x = cell(x, x)
        show("thread", made(x))
    def main():
        model, made = Model(), [inner_function(1), inner_function(2)]
        partial, bound, captured, wrapped = functools.partial(cell, h=None), Model().step, cell, counted(cell)
        for i in range(60):
            x = renew("loop" if i == 20 else "")
            values = [captured(x, x), partial(x, h=x), wrapped(x, x), bound(x), made[i % 2](x)]
            show("values", dy.esum([*values, model.down(x, 1), inner_function(3)(x)]))
            if i % 20 == 10:
                generator = states(x)
                show("first", next(generator))
                x = renew("generator")
                show("sent", generator.send(x))
                show("next", next(generator))
                show("down", model.down(x, 4))
                try:
                    fails(renew(""))
                except ValueError as error:
                    frames = traceback.extract_tb(error.__traceback__)
                    print(type(error).__name__, [(f.name, f.lineno, f.line) for f in frames])
                thread = threading.Thread(target=work, args=(made[0],))
                thread.start()
                thread.join()
        print(calls)
    main()
    if active:
        print("hits", sum(region["hits"] for region in active.regions()) > 20, file=sys.stderr)
    """


def run(folder: Path, text: str, hints: str, *arguments: str) -> tuple[str, str]:
    """Output and errors."""
    folder.mkdir(exist_ok=True)
    (folder / "main.py").write_text("import dynet_compat as dy\n" + textwrap.dedent(text), encoding="utf-8")
    command = [sys.executable, "main.py", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment(hints), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("place", ["loop", "recursion", "generator", "failure", "thread"])
def test_functions_are_exchanged_in_the_middle_of_a_run(tmp_path: Path, place: str) -> None:
    """Those that run, that generators wait in, that others hold, and that another thread calls."""
    plain, _ = run(tmp_path, MIDDLE, "off", place)
    hinted, errors = run(tmp_path, MIDDLE, "auto", place)
    assert hinted == plain
    assert errors == "exchanged True\nhits True\n"


SHORT = """
    def step(x):
        h = dy.tanh(x)
        return dy.tanh(h) + x
    for _ in range(50):
        dy.renew_cg()
        step(dy.ones(3)).value()
    import sys
    from dynet_compat.hints import runtime
    print(runtime.active().summary(), "dynet_compat.hints.rewrite.rewriter" in sys.modules)
    """


LONGER = """
    import time
    from dynet_compat.hints import runtime
    def steps():
        while not runtime.active().rewritten and time.process_time() < 30:
            yield
        yield from range(50)
    """ + SHORT.replace("range(50)", "steps()")


def test_short_programs_do_not_pay(tmp_path: Path) -> None:
    said, _ = run(tmp_path, SHORT, "auto")
    assert said.startswith("hints: no region was recorded by one call; ") and " s of processor time (" in said
    assert said.endswith(" False\n")
    said, _ = run(tmp_path, SHORT, "eager")
    assert "by one call, " in said and "wait" not in said and said.endswith(" True\n")
    said, _ = run(tmp_path, LONGER, "auto")
    assert "by one call, " in said and "wait" not in said


EDGES = """
    import sys
    seen = set()
    sys.setprofile(lambda frame, event, argument: seen.add(frame.f_code.co_name))
    for _ in range(5):
        dy.renew_cg()
    sys.setprofile(None)
    print(sorted(seen))
    def deep(n):
        return deep(n - 1) if n else dy.renew_cg() and "ok"
    sys.setrecursionlimit(200)
    for n in (100, 120, 140, 160, 180):
        print(deep(n))
    class Last:
        def __del__(self):
            dy.renew_cg()
            print(dy.ones(2).value())
    sys.last = Last()
    """


@pytest.mark.parametrize("hints", ["auto", "eager"])
def test_tracers_depths_and_the_end(tmp_path: Path, hints: str) -> None:
    """Profilers do not see hints, which need no levels of recursion either, nor an interpreter that ends."""
    plain, _ = run(tmp_path, EDGES, "off")
    assert run(tmp_path, EDGES, hints)[0] == plain and plain.count("ok") == 5
