"""A process may fork after import: the child records, computes, trains, and has threads of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
from support.subject import IS_REFERENCE, ON_GPU

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.skipif(ON_GPU, reason="CUDA does not survive fork"),
    pytest.mark.skipif(IS_REFERENCE, reason="the reference has one graph for all threads"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
TESTS = Path(__file__).resolve().parent.parent


def forked(work: Callable[[], Any]) -> str:
    """repr(work()) in a forked child; its traceback if it raises, an error if it dies or hangs."""
    readable, writable = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            answer = repr(work())
        except BaseException:  # noqa: BLE001 - reported by the parent
            answer = traceback.format_exc()
        os.write(writable, answer.encode())
        os._exit(0)
    os.close(writable)
    timer = threading.Timer(60, os.kill, (child, 9))
    timer.start()
    with os.fdopen(readable) as stream:
        answer = stream.read()
    status = os.waitpid(child, 0)[1]
    timer.cancel()
    assert status == 0, f"the child ended with status {status}: {answer}"
    return answer


def test_child_computes_and_trains(dy: Any) -> None:
    """The same numbers as the parent would get, in the graph that was there and in new ones."""
    before = dy._core.threads()
    dy._core.set_threads(2)
    dy.reset_random_seed(2)
    pc = dy.ParameterCollection()
    w, table = pc.add_parameters((300, 300)), pc.add_lookup_parameters((10, 300))
    trainer = dy.AdamTrainer(pc)
    open_graph = dy.squared_norm(w * table[3])

    def step() -> list[float]:
        out = [open_graph.value()]
        for i in range(4):
            dy.renew_cg()
            loss = dy.squared_norm(dy.tanh(w * dy.lookup_batch(table, [i, i + 1] * 50)))
            loss = dy.sum_batches(loss)
            loss.backward()
            trainer.update()
            out.append(loss.value())
        return out + [dy.random_uniform(1, 0, 1).value(), dy._core.threads()]

    try:
        (w * w).value()  # the pool has threads
        in_child = forked(step)
        assert in_child == repr(step())
    finally:
        dy._core.set_threads(before)


def test_fork_beside_computing_threads(dy: Any) -> None:
    """Whatever other threads of the parent were doing: computing, drawing, adding gradients, starting."""
    pc = dy.ParameterCollection()
    w = pc.add_parameters((200, 200))
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            dy.renew_cg()
            x = dy.dropout(w * dy.random_normal((200, 400)), 0.5)
            dy.squared_norm(x).backward()

    def come_and_go() -> None:
        while not over.is_set():
            thread = threading.Thread(target=lambda: dy.squared_norm(w).value())
            thread.start()
            thread.join()

    def child() -> bool:
        trainer = dy.SimpleSGDTrainer(pc)
        for _ in range(2):
            dy.renew_cg()
            loss = dy.squared_norm(w * dy.random_normal((200, 400)))
            loss.backward()
            trainer.update()
        return bool(np.isfinite(loss.value()) and np.isfinite(w.as_array()).all())

    threads = [threading.Thread(target=f) for f in (work, work, come_and_go)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(25):
            assert forked(child) == "True"
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_fork_in_a_thread(dy: Any) -> None:
    """The child's only thread is that one, with its graph; the main thread's graph is gone."""
    x = dy.inputVector([1, 2])
    out: list[str] = []

    def work() -> None:
        y = dy.inputVector([3, 4])

        def child() -> tuple[Any, str]:
            value = (y * 2).value()
            try:
                x + y  # noqa: B018
            except ValueError as error:
                return value, str(error)
            return value, "no error"

        out.append(forked(child))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert out[0].startswith("([6.0, 8.0], ") and "a thread that has ended" in out[0]
    assert (x * 2).value() == [2, 4]


def test_alarms_reach_the_child_of_another_thread(dy: Any) -> None:
    """That thread is the main one there, and calls handlers in the middle of a long computation."""
    out: list[str] = []

    def work() -> None:
        w = dy.ParameterCollection().add_parameters((500, 500), init=dy.UniformInitializer(0.05))

        def long() -> Any:
            dy.renew_cg()
            x = dy.inputTensor(np.ones((500, 8)), batched=True)
            for _ in range(2000):
                x = dy.tanh(w * x)
            return dy.sum_batches(dy.sum_elems(x))

        long().value()

        def child() -> list[str]:
            said = []

            def handler(*_: Any) -> None:
                try:
                    (dy.scalarInput(1) + 1).value()
                except RuntimeError as error:
                    said.append(str(error)[:23])

            signal.signal(signal.SIGALRM, handler)
            last = long()
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            last.value()
            return said

        out.append(forked(child))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert out == ["['the handler of a signal']"]


def test_multiprocessing(dy: Any) -> None:
    """A pool of forked workers, as scripts for DyNet use it."""
    script = (
        "import multiprocessing, sys\n"
        "import dynet_compat as dy\n"
        "pc = dy.ParameterCollection()\n"
        "w = pc.add_parameters((2, 2))\n"
        "w.set_value([[1, 2], [3, 4]])\n"
        "def work(n):\n"
        "    dy.renew_cg()\n"
        "    return (w * dy.inputVector([n, 1])).value()\n"
        "if __name__ == '__main__':\n"
        "    work(0)\n"
        "    with multiprocessing.get_context('fork').Pool(3) as pool:\n"
        "        print(pool.map(work, range(4)))\n"
    )
    result = run_script(script)
    assert result.stdout == "[[2.0, 4.0], [3.0, 7.0], [4.0, 10.0], [5.0, 13.0]]\n", result.stderr


def run_script(script: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *args]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=TESTS, check=False)
    assert result.returncode == 0, result.stderr
    return result


SHARED = """
import os, sys
import dynet_config
dynet_config.set(random_seed=1, shared_parameters=int(sys.argv[1]))
import dynet_compat as dy
import numpy as np
pc = dy.ParameterCollection()
w, table = pc.add_parameters((1, 2), init=0.0), pc.add_lookup_parameters((3, 2), init=0.0)
trainer = dy.SimpleSGDTrainer(pc, 0.05)
true = np.array([[2.0, -3.0]])

def train(seed):
    rng = np.random.RandomState(seed)
    for _ in range(400):
        dy.renew_cg()
        x = rng.randn(2)
        row = table[seed % 3]
        loss = dy.squared_norm(w * dy.inputVector(x) - dy.inputVector(true @ x))
        (loss + dy.squared_norm(row - dy.inputVector([seed, 1.0]))).backward()
        trainer.update()

children = []
for seed in (1, 2):
    child = os.fork()
    if child == 0:
        train(seed)
        os._exit(0)
    children.append(child)
print([os.waitpid(child, 0)[1] for child in children])
print(np.round(w.as_array(), 3).tolist(), np.round(table.as_array(), 3).tolist())
"""


@pytest.mark.parametrize("shared", [0, 1])
def test_shared_parameters(dy: Any, shared: int) -> None:
    """With the option, what forked processes learn is in the parent's parameters, without it not."""
    script = SHARED.replace("import dynet_config\n", "from dynet_compat import dynet_config\n")
    status, values = run_script(script, str(shared)).stdout.splitlines()
    assert status == "[0, 0]"
    learnt = "[[2.0, -3.0]] [[0.0, 0.0], [1.0, 1.0], [2.0, 1.0]]"
    assert values == (learnt if shared else "[[0.0, 0.0]] [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]")


def test_shared_parameters_are_written_in_place(dy: Any) -> None:
    """They have one buffer: a later product in the same graph sees the change, else it keeps what it read."""
    dy._core.share_parameters(True)
    try:
        w = dy.ParameterCollection().add_parameters((1, 2), init=dy.ConstInitializer(1.0))
    finally:
        dy._core.share_parameters(False)
    own = dy.ParameterCollection().add_parameters((1, 2), init=dy.ConstInitializer(1.0))
    y = w * dy.inputVector([1, 2])
    assert y.value() == (own * dy.inputVector([1, 2])).value() == 3
    for each in (w, own):
        each.set_value([[5, 5]])
    assert y.value() == 3
    assert (w * dy.inputVector([3, 4])).value() == 35
    assert (own * dy.inputVector([3, 4])).value() == 7
    w.zero()
    dy.renew_cg()
    assert (w * dy.inputVector([3, 4])).value() == 0


DAEMONS = """
import threading, time
import dynet_compat as dy
w = dy.ParameterCollection().add_parameters((200, 200))
started = [threading.Event() for _ in range(3)]
def work(n):
    while True:
        dy.renew_cg()
        loss = dy.squared_norm(w * dy.random_normal((200, 400)))
        if n: loss.value()
        else: loss.backward()
        started[n].set()
for n in range(3):
    threading.Thread(target=work, args=(n,), daemon=True).start()
for event in started:
    event.wait()
time.sleep(0.05)
print("end")
"""


@pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="g++ 12: it fails at threads that end by unwinding")
def test_exit_beside_daemon_threads(dy: Any) -> None:
    """The process ends well while threads compute."""
    for _ in range(5):
        assert run_script(DAEMONS).stdout == "end\n"
