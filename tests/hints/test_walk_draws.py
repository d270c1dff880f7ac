"""Random numbers that walked functions draw: the same ones, whatever becomes of the walk."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

import numpy as np
import pytest
from support.walks import MODEL, ROUNDS, WORDS, hits, model_of, refusals, remembered

HEAD = (
    """
import random
from random import random as draw
import numpy as np
RNG, STATE, GENERATOR = random.Random(3), np.random.RandomState(4), np.random.default_rng(5)
class Counting(random.Random):
    def random(self):
        LOG.append(1)
        return random.Random.random(self)
COUNTING, LOG = Counting(1), []
"""
    + MODEL
)

DRAWS = {
    "random": "random.random() < 0.3",
    "by its name": "draw() < 0.3",
    "of an object": "RNG.random() < 0.3",
    "uniform": "random.uniform(-1, 2) < 0",
    "uniform of floats": "RNG.uniform(0.5, 0.25) < 0.3",
    "randint": "random.randint(0, 4) == w % 5",
    "randrange": "RNG.randrange(3) == 1 or random.randrange(2, 9) < 4",
    "choice": "random.choice([True, False, w]) or random.choice((1, 0))",
    "choice of a long list": "random.choice(TABLE) > 40",
    "numpy": "np.random.random() < 0.3",
    "numpy, other functions": "np.random.rand() < np.random.uniform(0.2, 0.4)",
    "numpy, an older name": "np.random.random_sample() < 0.1",
    "numpy's integers": "np.random.randint(4) == np.random.randint(1, 3)",
    "a state of numpy": "STATE.random_sample() < 0.3",
    "a generator of numpy": "GENERATOR.random() < 0.3 or GENERATOR.uniform(0, 2) < 0.1",
}
NOT_WALKED = {
    "a class of the script": "COUNTING.random() < 0.3",
    "normal numbers": "random.gauss(0, 1) < 0",
    "an array": "np.random.rand(2)[0] < 0.5",
    "many bits": "random.getrandbits(70) % 2 == 0",
    "normal numbers of numpy": "np.random.normal() < 0",
}
RUN = """
    def word(self, w):
        return self.E[0] if TEST else self.E[w]

    def run(self, words):
        h = self.b
        for w in words:
            h = self(self.word(w), h)
        return [h]
TABLE = list(range(70))
"""


def states(m: ModuleType) -> list:
    bits = m.GENERATOR.bit_generator.state["state"]["state"]
    found = [np.random.get_state()[2], m.STATE.get_state()[2], np.random.get_state()[1].tolist(), bits]
    return [random.getstate(), m.RNG.getstate(), m.COUNTING.getstate(), *found, len(m.LOG)]


def use(m: ModuleType) -> list:
    model = model_of(m)
    random.seed(1)
    np.random.seed(2)
    results: list[Any] = []
    for words in WORDS:
        try:
            results.append(model.run(words))
        except (IndexError, KeyError, ValueError) as error:
            results.append(str(error))
    return [*results, *map(repr, states(m))]


@pytest.mark.parametrize("what", DRAWS)
def test_drawn(pair: Callable, what: str) -> None:
    p = pair(HEAD + RUN.replace("TEST", DRAWS[what]))
    for _ in range(2 * ROUNDS):
        p.agree(use)
    assert hits(p) > 0, refusals(p)
    assert remembered(p) > 0, "calls that draw are walked again, the others are remembered"


@pytest.mark.parametrize("what", NOT_WALKED)
def test_left_to_python(pair: Callable, what: str) -> None:
    p = pair(HEAD + RUN.replace("TEST", NOT_WALKED[what]))
    for _ in range(ROUNDS):
        p.agree(use)
    assert hits(p) <= ROUNDS, "more than the calls without words"


@pytest.mark.parametrize(
    "draw", ["random.random()", "RNG.choice([1, 2])", "np.random.random()", "GENERATOR.random()"]
)
def test_what_a_refused_walk_has_drawn_is_drawn_again(pair: Callable, draw: str) -> None:
    p = pair(
        HEAD
        + f"""
    def run(self, words):
        h = self.b
        for w in words:
            h = h * {draw}
            h = self(self.E[w], h)
        if len(words) == 2:
            raise KeyError(str(h.dim()))
        return [h]
"""
    )
    for _ in range(ROUNDS):
        p.agree(use)
    assert hits(p) > 0
    assert "an exception" in refusals(p)


OF_TWO = """
    def run(self, words):
        h = self.b
        for w in words:
            h = self(self.E[w], h) * (FIRST + SECOND)
        if len(words) == 2:
            raise KeyError(str(h.dim()))
        return [h]
BITS = np.random.MT19937(5)
ONE, TWO = np.random.RandomState(BITS), np.random.Generator(BITS)
"""


@pytest.mark.parametrize("order", [("ONE", "TWO"), ("TWO", "ONE")])
def test_generators_that_share_their_state(pair: Callable, order: tuple[str, str]) -> None:
    first, second = (f"{name}.random()" for name in order)
    p = pair(HEAD + OF_TWO.replace("FIRST", first).replace("SECOND", second))
    for _ in range(ROUNDS):
        p.agree(lambda m: [*use(m), repr(m.BITS.state)])
    assert hits(p) > 0
    assert "an exception" in refusals(p)


def test_a_bit_generator_of_the_script(pair: Callable) -> None:
    """Reading its state may run code."""
    p = pair(
        HEAD
        + RUN.replace("TEST", "OWN.random() < 0.3")
        + """
class Bits(np.random.PCG64):
    @property
    def state(self):
        LOG.append("state")
        return np.random.PCG64.state.__get__(self)
OWN = np.random.Generator(Bits(5))
"""
    )
    for _ in range(ROUNDS):
        p.agree(use)
    assert hits(p) <= ROUNDS, "more than the calls without words"


def test_a_thread_that_draws_meanwhile(pair: Callable) -> None:
    """What it has drawn is not drawn again."""
    source = OF_TWO.replace("FIRST", "ONE.random()").replace("SECOND", "ONE.rand()")
    p = pair(HEAD + source.replace("len(words) == 2", "FAILS") + "FAILS = []")
    for _ in range(ROUNDS):
        p.agree(use)
    assert hits(p) > 0
    p.plain.FAILS, p.other.FAILS = [1], [1]

    def use_both(m: ModuleType) -> list:
        draws, begun = [], threading.Event()

        def draw() -> None:  # beneath ONE, which would wait for the lock: only newer ones are reentrant
            bits = m.BITS.ctypes
            with m.BITS.lock:
                begun.set()
                threading.Event().wait(0.05)
                draws.extend(bits.next_double(bits.state) for _ in range(3))

        thread = threading.Thread(target=draw)
        thread.start()
        begun.wait()
        with pytest.raises(KeyError):
            m.model.run([2, 1])
        thread.join()
        return [*draws, repr(m.BITS.state)]

    for _ in range(5):  # not every call is walked after one that was refused
        p.agree(use_both)


def test_a_call_that_returns_its_argument(pair: Callable) -> None:
    """It is the same object in a replay, too."""
    p = pair(
        HEAD
        + """
    def noisy(self, x):
        return x if random.random() < 0.5 else dy.tanh(x)

    def run(self, words):
        h, out = self.b, []
        for w in words:
            x = dy.logistic(self.E[w])
            y = self.noisy(x)
            out.extend([x, y])
            h = self(y, h)
        return [h, out]
"""
    )
    for seed in range(3 * ROUNDS):

        def use_seed(m: ModuleType, seed: int = seed) -> list:
            model = model_of(m)
            random.seed(seed)
            return [model.run(words) for words in WORDS]

        p.agree(use_seed)
    assert remembered(p) > 0, refusals(p)


@pytest.mark.parametrize(
    "change",
    [
        "module.RNG.random = lambda: 0.1",
        "module.random = __import__('types').SimpleNamespace(choice=lambda xs: xs[0])",
        "module.random.choice = lambda xs: xs[-1]",
        "module.RNG = module.Counting(4)",
        "module.random.Random.random = lambda self: 0.2",
        "module.random.Random.choice.__code__ = (lambda self, seq: seq[-1]).__code__",
        "module.random.Random.__getattribute__ = lambda *a: (SEEN.append(1), object.__getattribute__(*a))[1]",
    ],
)
def test_generators_that_a_script_changes(pair: Callable, change: str) -> None:
    p = pair(HEAD + RUN.replace("TEST", "RNG.random() < 0.3 or random.choice([0, 1])"))
    for _ in range(ROUNDS):
        p.agree(use)
    assert hits(p) > 0
    choice, code = random.choice, random.Random.choice.__code__
    seen: list[int] = []

    def use_and_count(m: ModuleType) -> list:
        seen.clear()
        return [*use(m), len(seen)]

    try:
        for module in (p.plain, p.other):
            exec(change, {"module": module, "SEEN": seen})
        for _ in range(ROUNDS):
            p.agree(use_and_count)
    finally:
        random.choice = choice
        random.Random.choice.__code__ = code
        for name in ("random", "__getattribute__"):
            if name in vars(random.Random):
                delattr(random.Random, name)


def test_a_number_that_comes_out_of_a_call(pair: Callable) -> None:
    """What is recorded afterwards depends on it, so such a call is not remembered."""
    p = pair(
        HEAD
        + """
    def drop(self, w):
        return 0 if random.random() < 0.3 else w

    def run(self, words):
        h = self.E[self.drop(8)]
        for w in words:
            h = self(self.E[self.drop(w)], h)
        return [h]
"""
    )
    for _ in range(ROUNDS):
        p.agree(use)
    assert hits(p) > 0, refusals(p)
    assert remembered(p) == 0


@pytest.mark.parametrize(
    "body",
    [
        "self.last = x",
        "self.scores.append(x)",
        "x = self.last",
        "x = x if random.random() < 0.5 else dy.tanh(x)",
        "xs.append(x)",
        "x = xs[-1] if xs else x",
    ],
)
def test_calls_that_draw_and_do_more(pair: Callable, body: str) -> None:
    p = pair(
        HEAD
        + f"""
    last = None

    def noisy(self, x, xs):
        if random.random() < 0.4:
            x = dy.logistic(x)
        {body}
        return dy.rectify(x) if random.random() < 0.5 else x

    def run(self, words):
        h, xs = self.b, []
        self.last = self.b
        for w in words:
            x = self.noisy(self.E[w], xs)
            h = self(x, h)
            xs.append(h)
        last, self.last = self.last, None
        return [h, xs, last, len(self.scores)]
"""
    )
    for _ in range(2 * ROUNDS):
        p.agree(use)


def test_the_end_of_a_program_that_has_drawn(tmp_path: Path) -> None:
    script = tmp_path / "drawing.py"
    script.write_text(
        "import dynet_compat as dy\n"
        + HEAD
        + RUN.replace("TEST", "random.choice([0, 1])")
        + f"""
model = Model()
for words in {WORDS * ROUNDS}:
    dy.renew_cg()
    model.run(words)
print("done")
"""
    )
    environment = {**os.environ, "DYNET_COMPAT_HINTS": "eager"}
    run = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=300
    )
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr
