"""Backward passes and updates in the background, while the script records: the same bits, the same errors."""

from __future__ import annotations

import gc
import os
import random
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
from support.subject import IS_REFERENCE, ON_GPU

pytestmark = [
    pytest.mark.skipif(IS_REFERENCE, reason="the reference computes in the caller's thread"),
    pytest.mark.skipif(ON_GPU, reason="on the CPU only"),
]
USUAL = 16384  # tuning::kBackgroundGraph


@pytest.fixture(autouse=True)
def lending(dy: Any) -> Iterator[None]:
    """Two threads; every graph is lent, although pytest catches errors."""
    from dynet_compat import _core

    threads = _core.threads()
    _core.set_threads(2)
    _core._lend_always(1)
    yield
    dy.renew_cg()
    _core._lend_always(USUAL)
    _core.set_threads(threads)


def is_lent() -> bool:
    from dynet_compat import _core

    return bool(_core._is_lent())


class Net:
    """A tagger with a lookup table, an RNN and dropout; its data are random."""

    def __init__(self, dy: Any, seed: int, trainer: str = "AdamTrainer") -> None:
        self.dy, self.rng = dy, random.Random(seed)
        dy.reset_random_seed(seed + 1)
        self.pc = dy.ParameterCollection()
        self.E = self.pc.add_lookup_parameters((40, 6))
        self.rnn = dy.VanillaLSTMBuilder(1, 6, 8, self.pc)
        self.rnn.set_dropout(0.2)
        self.W = self.pc.add_parameters((5, 8))
        self.b = self.pc.add_parameters(5)
        self.trainer = getattr(dy, trainer)(self.pc)

    def loss(self) -> Any:
        dy, losses = self.dy, []
        for _ in range(self.rng.randint(1, 4)):
            words = [self.rng.randrange(40) for _ in range(self.rng.randint(1, 7))]
            states = self.rnn.initial_state().transduce([self.E[w] for w in words])
            losses += [
                dy.pickneglogsoftmax(dy.affine_transform([self.b, self.W, h]), w % 5)
                for h, w in zip(states, words)
            ]
        return dy.esum(losses)

    def values(self) -> bytes:
        lists = [self.pc.parameters_list(), self.pc.lookup_parameters_list()]
        return b"".join(p.as_array().tobytes() for each in lists for p in each)


# What a script does in a step, after `loss` is recorded. Each returns what it has read.
def usual(net: Net, loss: Any) -> Any:
    value = loss.value()
    loss.backward()
    net.trainer.update()
    return value


def read_after(net: Net, loss: Any) -> Any:
    loss.forward()
    loss.backward()
    net.trainer.update()
    return loss.value(), loss.scalar_value(), loss.npvalue().tolist(), loss.value()


def not_computed(net: Net, loss: Any) -> Any:
    loss.backward()
    net.trainer.update()
    return loss.value(recalculate=False)


def gradients(net: Net, loss: Any) -> Any:
    loss.value()
    loss.backward()
    grads = loss.gradient().tolist(), net.W.grad_as_array().tobytes(), net.E.grad_as_array().tobytes()
    net.trainer.update()
    return grads


def goes_on(net: Net, loss: Any) -> Any:
    loss.value()
    loss.backward()
    more = loss * 2 + net.b[0]
    value = more.value()
    more.backward()
    net.trainer.update()
    again = (more + 1).value()
    return value, again


def twice(net: Net, loss: Any) -> Any:
    loss.value()
    loss.backward()
    loss.backward()
    net.trainer.update()
    net.trainer.update()
    return None


def parameters(net: Net, loss: Any) -> Any:
    loss.value()
    loss.backward()
    before = net.W.as_array().tobytes()
    net.trainer.update()
    after = net.W.as_array().tobytes()
    net.W.scale(0.5)
    net.b.set_value(np.arange(5) / 10)
    net.E.init_row(3, [0.1] * 6)
    return before != after, after


def rates(net: Net, loss: Any) -> Any:
    loss.value()
    loss.backward()
    net.trainer.learning_rate *= 0.9
    net.trainer.update()
    net.trainer.set_clip_threshold(0.1)
    net.trainer.update()
    return net.trainer.learning_rate


def reverts(net: Net, loss: Any) -> Any:
    dy = net.dy
    loss.value()
    dy.cg_checkpoint()
    extra = loss * 3
    extra.value()
    extra.backward()
    dy.cg_revert()
    again = (loss * 4).value()
    loss.backward()
    net.trainer.update()
    return again


def frozen(net: Net, loss: Any) -> Any:
    loss.value()
    loss.backward()
    net.trainer.update()
    net.W.set_updated(not net.W.is_updated())
    return None


def full(net: Net, loss: Any) -> Any:
    loss.value()
    loss.backward(full=True)
    net.trainer.update()
    return None


def grows(net: Net, loss: Any) -> Any:
    p = net.pc.add_parameters((2, 2), init=0.5)
    loss.value()
    loss.backward()
    net.trainer.update()
    return (net.pc.add_parameters(3, init=1) + net.dy.sum_elems(p)).value()


STEPS: list[Callable[[Net, Any], Any]] = [
    usual, read_after, not_computed, gradients, goes_on, twice, parameters, rates, reverts, frozen, full,
    grows,
]  # fmt: skip


def trained(dy: Any, seed: int, steps: list[Callable[[Net, Any], Any]], threads: int) -> Any:
    from dynet_compat import _core

    _core.set_threads(threads)
    net = Net(dy, seed, random.Random(seed).choice(["AdamTrainer", "SimpleSGDTrainer", "AmsgradTrainer"]))
    read = []
    for step in steps:
        dy.renew_cg()
        read.append((step.__name__, step(net, net.loss())))
    return read, net.values()


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_same_bits(dy: Any, step: Callable[[Net, Any], Any]) -> None:
    alone = trained(dy, 5, [step] * 8, 1)
    assert trained(dy, 5, [step] * 8, 2) == alone


def test_random_steps(dy: Any, fuzz_count: int) -> None:
    for seed in range(fuzz_count or 40):
        steps = random.Random(seed).choices(STEPS, k=12)
        assert trained(dy, seed, steps, 2) == trained(dy, seed, steps, 1), f"seed {seed}: {steps}"


def test_the_graph_is_lent(dy: Any) -> None:
    """That the tests of this file test something."""
    net = Net(dy, 1)
    loss = net.loss()
    loss.value()
    loss.backward()
    assert is_lent()
    net.trainer.update()
    assert is_lent()
    loss.value()
    assert is_lent()
    net.W.as_array()
    assert is_lent()
    dy.renew_cg()
    assert not is_lent()


def test_not_where_errors_could_be_caught(dy: Any) -> None:
    from dynet_compat import _core

    _core._lend_always(USUAL)
    x = dy.inputVector([1.0] * USUAL)
    loss = dy.squared_norm(x * dy.scalarInput(2))
    loss.value()
    loss.backward()
    assert not is_lent()


def test_stale_expressions_and_versions(dy: Any) -> None:
    net = Net(dy, 1)
    version = dy.cg_version()
    loss = net.loss()
    loss.value()
    loss.backward()
    net.trainer.update()
    dy.renew_cg()
    assert dy.cg_version() == version + 1
    with pytest.raises(ValueError, match="of an earlier one"):
        loss + 1
    with pytest.raises(RuntimeError):
        loss.value()
    assert net.loss().value() > 0


def test_an_error_comes_from_what_waits(dy: Any) -> None:
    net = Net(dy, 1)
    net.W.set_value(np.full((5, 8), np.inf))
    loss = net.loss()
    loss.value()
    loss.backward()
    net.trainer.update()
    with pytest.raises(RuntimeError, match="Magnitude of gradient is bad"):
        dy.renew_cg()
        net.loss().value()
    dy.renew_cg()
    net.W.set_value(np.zeros((5, 8)))
    assert net.loss().value() > 0


@pytest.mark.parametrize(
    "end", ["print(loss.value())", "pass", "raise SystemExit(3)", "pc.save('model')", "del pc, t"]
)
def test_a_script_ends(tmp_path: Path, end: str) -> None:
    """While its last step is computed; without a handler, that is in the background as usual."""
    (tmp_path / "script.py").write_text(f"""
import dynet_compat as dy
from dynet_compat import _core
_core.set_threads(2)
pc = dy.ParameterCollection()
W = pc.add_parameters((200, 200))
t = dy.SimpleSGDTrainer(pc)
for i in range(5):
    dy.renew_cg()
    x = dy.inputVector([1.0] * 200)
    for _ in range(150):
        x = dy.tanh(W * x)
    loss = dy.squared_norm(x)
    loss.value()
    loss.backward()
    assert _core._is_lent()
    t.update()
    assert _core._is_lent()
{end}
""")
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == (3 if "Exit" in end else 0), done.stderr
    assert "Traceback" not in done.stderr


PROGRAM = """
import contextlib, sys
import numpy as np
import dynet_compat as dy
from dynet_compat import _core
_core.set_threads(2)
pc = dy.ParameterCollection()
W = pc.add_parameters((200, 200), init=np.full((200, 200), np.nan))
t = dy.SimpleSGDTrainer(pc)

BAD = "Magnitude of gradient is bad"
def step():
    dy.renew_cg()
    x = dy.inputVector([1.0] * 200)
    for _ in range(150):
        x = dy.tanh(W * x)
    loss = dy.squared_norm(x)
    loss.backward()
    t.update()
    print(_core._is_lent(), flush=True)
"""
BAD = "Magnitude of gradient is bad"
ENDS = {  # what the script does, and what it prints: whether the graph was lent
    "step(); step()": "True\n",
    "step()": "True\n",
    "step(); sys.exit(0)": "True\n",
    "step(); pc.save('model')": "True\n",
    "step(); print(t)": "True\n",
    "step(); print(len(pc.parameters_list()), pc.name(), pc.parameter_count())": "True\n",
    "step()\ntry:\n    W.as_array()\nexcept Exception:\n    print('caught')": "True\n",
    "step()\ntry:\n    W.as_array()\nexcept:\n    print('caught')\nstep()": "True\ncaught\n",
    "try:\n    step()\nexcept RuntimeError as e:\n    print(str(e)[27:55])\nsys.exit(1)": BAD + "\n",
    "with contextlib.suppress(RuntimeError):\n    step()\nsys.exit(BAD)": "",
    "try:\n    step()\nfinally:\n    print('end')": "end\n",
}


@pytest.mark.parametrize("text", ENDS)
def test_an_error_ends_a_script(tmp_path: Path, text: str) -> None:
    (tmp_path / "script.py").write_text(PROGRAM + text + "\n")
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (1, ENDS[text]), done.stderr
    assert BAD in done.stdout + done.stderr
    if ENDS[text].startswith("True"):
        assert re.search(r'File ".*script.py", line 19, in step\nRuntimeError: ', done.stderr), done.stderr


def test_models_and_trainers_may_die(dy: Any) -> None:
    for _ in range(20):
        net = Net(dy, 3)
        loss = net.loss()
        loss.value()
        loss.backward()
        net.trainer.update()
        del net
        gc.collect()
        dy.renew_cg()
    assert (dy.scalarInput(1) + 1).value() == 2


def test_other_threads_wait(dy: Any) -> None:
    net, alone = Net(dy, 2), Net(dy, 2)
    step(net, dy)
    seen: list[bytes] = []
    thread = threading.Thread(target=lambda: seen.append(net.values()))
    thread.start()
    thread.join()
    from dynet_compat import _core

    _core.set_threads(1)
    step(alone, dy)
    assert seen == [alone.values()] == [net.values()]


@pytest.mark.parametrize("call", ["concatenate(items)", "concatenate(items, d=0)", "esum(items)"])
def test_a_list_that_another_thread_clears(call: str) -> None:
    """While the call waits for the graph: it looks at the list afterwards."""
    code = f"""
import threading, time
import dynet_compat as dy
from dynet_compat import _core
_core.set_threads(2)
_core._lend_always(1)
pc = dy.ParameterCollection()
W = pc.add_parameters((1200, 1200))
def clear():
    time.sleep(0.002)
    items.clear()
    junk = [bytearray(40) for _ in range(1000)]
for _ in range(4):
    dy.renew_cg()
    hs = [dy.tanh(W * dy.inputVector([0.1] * 1200)) for _ in range(60)]
    loss = dy.esum([dy.sum_elems(h) for h in hs])
    loss.value()
    items = [dy.tanh(h) for h in hs[:8]]
    loss.backward()
    assert _core._is_lent()
    thread = threading.Thread(target=clear)
    thread.start()
    try:
        dy.{call}
    except AssertionError:  # it was empty by then
        pass
    thread.join()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def step(net: Net, dy: Any) -> None:
    dy.reset_random_seed(9)
    net.rng.seed(4)
    dy.renew_cg()
    usual(net, net.loss())


def test_a_thread_ends_while_its_graph_is_lent(dy: Any) -> None:
    code = f"""
import sys, threading
sys.path.insert(0, {str(Path(__file__).parent)!r})
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
import dynet_compat as dy
from dynet_compat import _core
from test_background_passes import Net, step
_core.set_threads(2)
_core._lend_always(1)
for _ in range(10):
    t = threading.Thread(target=lambda: step(Net(dy, 2), dy))
    t.start()
    t.join()
print((dy.scalarInput(1) + 1).value())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "2.0\n"), done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_meanwhile(dy: Any) -> None:
    """The child goes on from the updated parameters, in a background of its own."""
    net = Net(dy, 2)
    step(net, dy)
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        answer = b"failed"
        try:
            step(net, dy)
            answer = net.values()
        finally:
            os.write(writable, answer)
            os._exit(0)
    os.close(writable)
    with os.fdopen(readable, "rb") as file:
        answer = file.read()
    os.waitpid(child, 0)
    step(net, dy)
    assert answer == net.values()


def test_counts_of_work(dy: Any) -> None:
    """timing() counts what the background has done."""
    from dynet_compat import _core

    def counts(threads: int) -> dict[str, int]:
        _core.set_threads(threads)
        dy.renew_cg()
        net = Net(dy, 2)
        _core.reset_timing()
        for _ in range(3):
            step(net, dy)
        timing = _core.timing()
        return {
            name: timing[name] for name in ("recorded_nodes", "planned_nodes", "flushes", "launches", "nodes")
        }

    assert counts(2) == counts(1)


def trial(lends: list[bool], turns: int = 32) -> tuple[int, int]:
    """Where the turns of the first trial begin and end: at home for the first time, to the last change."""
    begin = lends.index(False)
    return begin, begin + turns * 4


@pytest.mark.parametrize(
    "home, lent, better, turns",
    [
        (100, 80, True, 10),
        (100, 99, False, 32),
        (100, 105, False, 32),
        (100, 120, False, 12),
        (100, 70, True, 6),
        (100, 150, False, 6),
        (100, 800, False, 2),
    ],
)
def test_what_is_faster_goes_on(home: int, lent: int, better: bool, turns: int) -> None:
    """A trial is shorter, and the next one later, the more it costs."""
    from dynet_compat import _core

    lends = _core._lending(10000, [home], [lent])
    begin, end = trial(lends, turns)
    assert begin == 16 and all(lends[:16]), "graphs are lent until there was a trial"
    assert 0.4 < np.mean(lends[begin:end]) < 0.6, "the ways take turns"
    lost = 2 * turns * (max(home, lent) / min(home, lent) - 1)
    next_trial = end + max(1024, int(256 * lost))
    assert set(lends[end:next_trial]) == {better}
    assert set(lends[next_trial : next_trial + 8]) == {False, True}, "there is another trial"
    assert lends[-1] == better


def test_a_busy_second_core_is_noticed() -> None:
    """Steps in the background that have become slow are tried against others at once, not after the rest."""
    from dynet_compat import _core

    steps, busy = 4000, 500
    lends = _core._lending(steps, [100] * steps, [80] * busy + [800] * (steps - busy))
    assert all(lends[100:busy]), "there is no other trial until then"
    assert not any(lends[busy + 3 * 16 :])


def test_a_few_long_steps_do_not_decide() -> None:
    """Such as those between which a script evaluates."""
    from dynet_compat import _core

    lends = _core._lending(500, [100, 100, 100, 100, 100, 100, 5000], [80, 80, 90, 80, 80, 70, 9000])
    assert all(lends[trial(lends)[1] :])
