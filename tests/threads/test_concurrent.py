"""Threads that compute at the same time, the interpreter lock released: `make tsan` runs these, too.

Graphs of more than 65,536 numbers are computed without the lock; WIDE makes a graph that large.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
from support.subject import IS_REFERENCE, ON_DEVICE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="DyNet has one graph for all threads")

WIDE = 70_000
THREADS = 4


def together(works: list[Callable[[], Any]]) -> list[Any]:
    """Results of all works, started at one time in threads of their own."""
    barrier = threading.Barrier(len(works))
    results: list[Any] = [None] * len(works)
    errors: list[BaseException] = []

    def run(n: int) -> None:
        try:
            barrier.wait(60)
            results[n] = works[n]()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


@pytest.fixture(params=[1, 2])
def pool(request: pytest.FixtureRequest, dy: Any) -> Iterator[int]:
    """The number of threads that share one loop."""
    before = dy._core.threads()
    dy._core.set_threads(request.param)
    yield request.param
    dy._core.set_threads(before)


class Tagger:
    """A small network with everything that threads share: weights, biases, a table, a builder."""

    def __init__(self, dy: Any) -> None:
        self.dy = dy
        self.pc = dy.ParameterCollection()
        self.table = self.pc.add_lookup_parameters((40, 24))
        self.builder = dy.VanillaLSTMBuilder(1, 24, 24, self.pc)
        self.w, self.b = self.pc.add_parameters((7, 24)), self.pc.add_parameters(7)

    def losses(self, words: list[int]) -> list[Any]:
        outs = self.builder.initial_state().transduce([self.table[i] for i in words])
        scores = [self.dy.affine_transform([self.b, self.w, out]) for out in outs]
        return [self.dy.pickneglogsoftmax(s, i % 7) for s, i in zip(scores, words)]

    def loss(self, seed: int, sentences: int = 16) -> Any:
        """Of a batch that is computed without the interpreter lock."""
        rng = np.random.RandomState(seed)
        all_losses = [
            loss
            for _ in range(sentences)
            for loss in self.losses(rng.randint(0, 40, size=rng.randint(20, 40)).tolist())
        ]
        return self.dy.esum(all_losses)


def test_inference(dy: Any, pool: int) -> None:
    """The same bits as in one thread, whatever other threads compute."""
    dy.reset_random_seed(5)
    model = Tagger(dy)

    def values(n: int) -> list[float]:
        out = []
        for i in range(6):
            dy.renew_cg(autobatching=True)
            out.append(model.loss(10 * n + i).value())
        return out

    alone = [values(n) for n in range(THREADS)]
    assert together([lambda n=n: values(n) for n in range(THREADS)]) == alone


def test_readers_beside_a_writer(dy: Any) -> None:
    """A graph reads each parameter as it was at one moment, and the same until it is renewed."""
    pc = dy.ParameterCollection()
    w = pc.add_parameters(WIDE, init=dy.ConstInitializer(0.0))
    table = pc.add_lookup_parameters((3, 50), init=dy.ConstInitializer(0.0))
    over = threading.Event()

    def write() -> None:
        for n in range(1, 60):
            w.set_value(np.full(WIDE, n))
            table.init_from_array(np.full((3, 50), n))
            w.scale(2.0)
        over.set()

    def read() -> int:
        graphs = 0
        while not over.is_set() or graphs == 0:
            dy.renew_cg()
            rows = dy.concatenate([table[0], table[1], table[2]])
            first = (w + 0.0).npvalue()
            assert first.min() == first.max()
            assert ((w - 0.0).npvalue() == first).all()
            seen = rows.npvalue()
            assert seen.min() == seen.max()
            graphs += 1
        return graphs

    assert min(together([write] + [read] * 3)[1:]) > 0
    assert w.as_array().max() == 2 * 59 == 2 * table.as_array().max()


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("trainer", ["one", "each"])
def test_no_gradient_is_lost(dy: Any, wide: bool, trainer: str) -> None:
    """The loss is linear and all numbers are whole: the sum of all steps is exact in any order."""
    n, rounds = (WIDE if wide else 20), 25
    pc = dy.ParameterCollection()
    w = pc.add_parameters(n, init=dy.ConstInitializer(0.0))
    table = pc.add_lookup_parameters((4, n), init=dy.ConstInitializer(0.0))

    def new_trainer() -> Any:
        sgd = dy.SimpleSGDTrainer(pc, learning_rate=1.0)
        sgd.set_clip_threshold(0.0)
        return sgd

    shared = new_trainer()

    def work(k: int) -> None:
        mine = shared if trainer == "one" else new_trainer()
        for i in range(rounds):
            dy.renew_cg()
            parts = [w * float(k + 1), table[(i + k) % 4] * 2.0, table[0]]
            dy.esum([dy.sum_elems(part) for part in parts]).backward()
            # its own gradient, whatever others have added by now
            assert (w.gradient() == k + 1).all()
            mine.update()

    together([lambda k=k: work(k) for k in range(THREADS)])
    shared.update()
    assert (w.as_array() == -rounds * sum(range(1, THREADS + 1))).all()
    every = np.zeros(4)
    for k in range(THREADS):
        for i in range(rounds):
            every[(i + k) % 4] -= 2.0
    every[0] -= THREADS * rounds
    assert (table.as_array() == every[:, None]).all()


@pytest.mark.parametrize("alone", [True, False])
def test_files_of_a_table_that_is_not_updated(dy: Any, tmp_path: Path, alone: bool) -> None:
    """Its gradient is written where one of the threads has read a row on its own."""
    pc = dy.ParameterCollection()
    table = pc.add_lookup_parameters((3, 2))
    table.set_updated(False)

    def work(k: int) -> None:
        for _ in range(3):
            dy.renew_cg()
            read = table[1] if alone and k == 0 else dy.lookup_batch(table, [0, 2])
            dy.sum_batches(dy.sum_elems(read)).backward()

    together([lambda k=k: work(k) for k in range(THREADS)])
    pc.save(tmp_path / "f")
    assert ("FULL_GRAD" in (tmp_path / "f").read_text()) == alone


def test_training(dy: Any, pool: int) -> None:
    """Four threads with one Adam trainer learn what there is to learn."""
    dy.reset_random_seed(7)
    model = Tagger(dy)
    trainer = dy.AdamTrainer(model.pc, 0.01)

    def loss_of(seed: int) -> float:
        dy.renew_cg(autobatching=True)
        return model.loss(seed).value()  # type: ignore[no-any-return]

    def work(k: int) -> None:
        for i in range(15):
            dy.renew_cg(autobatching=True)
            model.loss(100 + THREADS * i + k).backward()
            trainer.update()

    before = loss_of(0)
    together([lambda k=k: work(k) for k in range(THREADS)])
    assert loss_of(0) < 0.2 * before


def test_random_numbers(dy: Any) -> None:
    """Draws of all threads together are one stream, in parts."""
    rounds, n = 40, 2000
    dy.reset_random_seed(11)
    alone = np.concatenate([dy.random_uniform(n, 0, 1).npvalue() for _ in range(THREADS * rounds)])

    def work() -> list[np.ndarray]:
        dy.renew_cg()
        filler = dy.inputTensor(np.zeros(WIDE))  # so that the lock is released
        return [(dy.random_uniform(n, 0, 1) + filler[0]).npvalue() for _ in range(rounds)]

    dy.reset_random_seed(11)
    parts = [part for parts in together([work] * THREADS) for part in parts]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.sort(alone))
    starts = {tuple(part[:3]) for part in alone.reshape(-1, n)}
    assert {tuple(part[:3]) for part in parts} == starts


def test_pool_beside_its_own_changes(dy: Any) -> None:
    """Loops of several graphs, and the number of threads changing meanwhile: no result depends on it."""
    w = dy.ParameterCollection().add_parameters((300, 300))
    x = np.random.RandomState(1).randn(300, 300)
    over = threading.Event()

    def product() -> np.ndarray:
        dy.renew_cg()
        return dy.tanh(w * dy.inputTensor(x)).npvalue()  # type: ignore[no-any-return]

    def change() -> None:
        for n in range(30):
            dy._core.set_threads(1 + n % 3)
        over.set()

    def work() -> bool:
        same = True
        while not over.is_set():
            same = same and np.array_equal(product(), alone)
        return same

    before = dy._core.threads()
    alone = product()
    try:
        assert together([change, work, work])[1:] == [True, True]
    finally:
        dy._core.set_threads(before)


def test_gradients_are_read_beside_backward(dy: Any) -> None:
    """A thread without a graph reads and scales gradients while another one adds to them."""
    w = dy.ParameterCollection().add_parameters(WIDE, init=dy.ConstInitializer(1.0))
    over = threading.Event()

    def work() -> None:
        for _ in range(40):
            dy.renew_cg()
            dy.sum_elems(dy.tanh(w) * 0.0 + w).backward()
        over.set()

    def watch() -> None:
        while not over.is_set():
            seen = w.grad_as_array()
            assert seen.min() == seen.max()
            w.scale_gradient(1.0)

    together([work, watch])
    assert (w.grad_as_array() == 40).all()


def test_gradient_of_a_parameter_once_another_thread_records(dy: Any) -> None:
    """A thread that was alone kept it where all threads now add theirs: said, not guessed.

    On a device each graph has its own.
    """
    w = dy.ParameterCollection().add_parameters((2, 3), init=dy.ConstInitializer(1.0))
    loss = dy.sum_elems(w * dy.inputVector([1, 2, 3]))
    loss.backward()
    assert w.gradient().tolist() == [[1, 2, 3], [1, 2, 3]]
    together([lambda: dy.renew_cg()])
    if not ON_DEVICE:
        with pytest.raises(RuntimeError, match="another thread has begun to record"):
            w.gradient()
        loss.backward()
    assert w.gradient().tolist() == [[1, 2, 3], [1, 2, 3]]


def test_weight_decay_and_rescaling(dy: Any) -> None:
    """The running factor and the raw values are read at one moment."""
    pc = dy.ParameterCollection()
    pc.set_weight_decay(0.5)  # rescales at every second or third update
    w = pc.add_parameters(WIDE, init=dy.ConstInitializer(2.0**60))
    trainer = dy.SimpleSGDTrainer(pc)
    over = threading.Event()

    def train() -> None:
        for _ in range(60):
            trainer.update()
        over.set()

    def read() -> None:
        while not over.is_set():
            dy.renew_cg()
            seen = (w * 1.0).npvalue()
            assert seen.min() == seen.max()
            assert np.log2(seen[0]) == round(np.log2(seen[0])), "a factor of one moment, values of another"

    together([train, read, read])


def test_new_parameters_and_models_beside_training(dy: Any) -> None:
    """Collections of one thread grow while others compute with theirs."""

    def work(k: int) -> float:
        value = 0.0
        for i in range(8):
            model = Tagger(dy)
            dy.renew_cg(autobatching=True)
            loss = model.loss(k + i, 4)
            loss.backward()
            dy.AdamTrainer(model.pc).update()
            value = loss.value()
        return value

    assert all(value > 0 for value in together([lambda k=k: work(k) for k in range(THREADS)]))
