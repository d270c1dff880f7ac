"""Gradients that are sent while others are computed, and updates that go on while the script does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dynet_compat as dy
import numpy as np
import pytest
from dynet_compat import _core
from support.jobs import SCRIPTS, alone, job, started

# What `distribute` runs: gradients of each parameter travel for themselves.
BUCKETS = """
import runpy, sys
from dynet_compat.distributed import exchange
exchange._BUCKET, exchange._MOST_BUCKETS = 1, 1000
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    ("model", "ranks", "mpi", "options"),
    [
        ("tagger", 2, "mpich", ()), ("tree", 3, "openmpi", ()), ("seq2seq", 3, "mpich", ()),
        ("tagger", 2, "mpich", ("--compress", "float16")), ("tree", 2, "mpich", ("--gradients", "mean")),
    ],
)  # fmt: skip
def test_the_same_bits(tmp_path: Path, model: str, ranks: int, mpi: str, options: tuple[str, ...]) -> None:
    """As without, on all ranks, also where a rank has no instance."""
    (tmp_path / "buckets.py").write_text(BUCKETS)
    for overlap in ("no", "yes"):
        words = [tmp_path / "buckets.py", SCRIPTS / "train.py", model, "AdamTrainer", 2, 40]
        words += [tmp_path / overlap, "--dynet-seed", 4]
        result = job(words, ranks, mpi, ("--overlap", overlap, *options), tmp_path)
        assert result.returncode == 0, result.stderr
    every = [np.load(tmp_path / f"{o}{rank}.npy") for o in ("no", "yes") for rank in range(ranks)]
    assert all((values == every[0]).all() for values in every[1:])


def test_the_same_on_a_device(tmp_path: Path) -> None:
    """Where another thread than the one that trains makes the updates."""
    for overlap in ("no", "yes"):
        words = [SCRIPTS / "train.py", "tagger", "AdamTrainer", 4, 10, tmp_path / overlap, "--dynet-seed", 4]
        options = ("--overlap", overlap)
        result = job(words, options=options, cwd=tmp_path, DYNET_COMPAT_DEVICE="emulation")
        assert result.returncode == 0, result.stderr
    every = [np.load(tmp_path / f"{overlap}{rank}.npy") for overlap in ("no", "yes") for rank in range(2)]
    assert all((values == every[0]).all() for values in every[1:])
    assert alone([*words[:5], tmp_path / "one", "--dynet-seed", 4], tmp_path).returncode == 0
    np.testing.assert_allclose(every[0], np.load(tmp_path / "one0.npy"), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("overlap", ["no", "yes"])
def test_functions_before_an_update_see_the_sum(tmp_path: Path, overlap: str) -> None:
    """In the script's own thread, and what they write is what all ranks update by."""
    (tmp_path / "script.py").write_text("""
import sys, threading
import dynet_compat as dy
import numpy as np

pc = dy.ParameterCollection()
W, E = pc.add_parameters((3, 3), init=1), pc.add_lookup_parameters((6, 3), init=1)
trainer = dy.SimpleSGDTrainer(pc, 1)
trainer.set_clip_threshold(0)
seen = []


def halve(trainer):
    assert threading.current_thread() is threading.main_thread()
    seen.append((W.grad_as_array().sum().item(), E.touched_rows().tolist()))
    W.set_gradient(W.grad_as_array() / 2)


trainer.before_update.append(halve)
for step in range(3):
    if step == 2:
        trainer.before_update.remove(halve)
    dy.renew_cg()
    batch = dy.distributed.shard([0, 1, 2, 3])
    dy.esum([dy.sum_elems(W) + dy.sum_elems(E[i]) for i in batch]).backward()
    trainer.update()
print(seen, W.as_array()[0, 0], pc.values_hash(), trainer.state_hash())
""")
    script = tmp_path / "script.py"
    outputs = [job([script], 2, options=("--overlap", overlap), cwd=tmp_path), alone([script], tmp_path)]
    for output in outputs:
        assert output.returncode == 0, output.stderr
    rows = [0, 1, 2, 3]
    said = [output.stdout.splitlines()[-1] for output in outputs]
    assert said[0].startswith(f"[(36.0, {rows}), (36.0, {rows})] {1 - 2 - 2 - 4.0} ")
    assert said[0] == said[1], "not what one process does"


# ------------------------------------------------------------------------------------------ products


class Model:
    def __init__(self) -> None:
        dy.reset_random_seed(3)
        self.pc = dy.ParameterCollection()
        self.W, self.V = self.pc.add_parameters((4, 3)), self.pc.add_parameters((2, 4))
        self.b, self.E = self.pc.add_parameters(4), self.pc.add_lookup_parameters((5, 3))
        self.trainer = dy.MomentumSGDTrainer(self.pc, 0.1)
        self.record()

    def record(self) -> None:
        dy.renew_cg()
        self.x = dy.inputVector([1, -2, 3])
        self.h = [dy.tanh(self.W * x + self.b) for x in (self.x, self.E[1], self.E[2])]
        self.loss = dy.esum([dy.squared_norm(self.V * h) for h in self.h])

    def again(self) -> None:
        self.record()
        self.loss.backward()

    def revert(self) -> None:
        dy.cg_revert()
        dy.squared_norm(self.V * dy.inputVector([9, 9, 9, 9])).value()

    def in_a_thread(self) -> None:
        thread = threading.Thread(target=self.W.grad_as_array)
        thread.start()
        thread.join()


BETWEEN: dict[str, Callable[[Model], Any]] = {
    "nothing": lambda m: None,
    "renew_cg": lambda m: dy.renew_cg(),
    "another graph": lambda m: (dy.renew_cg(), dy.squared_norm(dy.inputVector([5] * 500)).value()),
    "set": lambda m: m.x.set([7, 7, 7]),
    "recalculate": lambda m: m.loss.value(recalculate=True),
    "backward of the same": lambda m: m.loss.backward(),
    "backward of another": Model.again,
    "more of the graph": lambda m: dy.squared_norm(m.V * dy.inputVector([9, 9, 9, 9])).value(),
    "revert": Model.revert,
    "gradient of a node": lambda m: m.h[0].gradient(),
    "scale": lambda m: m.W.scale_gradient(0.5),
    "set_gradient": lambda m: m.V.set_gradient(np.ones((2, 4))),
    "a thread": Model.in_a_thread,
    "update": lambda m: m.trainer.update(),
    "an error": lambda m: pytest.raises(ValueError, m.h[0].backward),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_products_that_are_kept_are_computed_in_time(name: str) -> None:
    found = []
    for keep in (False, True):
        model = Model()
        _core._keep_products(keep)
        try:
            dy.cg_checkpoint()
            model.loss.backward()
            BETWEEN[name](model)
        finally:
            _core._keep_products(False)
        gradients = [p.grad_as_array() for p in (model.W, model.V, model.b, model.E)]
        model.trainer.update()
        found.append(np.concatenate([a.ravel() for a in (*gradients, _core._take_values(model.pc))]))
    assert (found[0] == found[1]).all()


def test_products_are_computed_range_by_range() -> None:
    model, seen = Model(), []
    _core._keep_products(True)
    try:
        model.loss.backward()
        kinds = _core._gradient_kinds(model.pc)
        wanted = [False, False, True]  # the bias is added to in backward
        for k in range(2):

            def look() -> None:  # as the thread of a job's updates, which does not wait
                _core._make_updates_here()
                for i, size in enumerate((12, 8, 4)):
                    flat = np.empty(size, np.float32)
                    _core._take_gradients(model.pc, kinds, flat, i, i + 1)
                    seen[-1].append(bool(flat.any()))

            _core._finish_gradients(model.pc, k, k + 1)
            wanted[k] = True
            seen.append([])
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
            assert seen[-1] == wanted, "memory of new gradients is zero until they are computed"
    finally:
        _core._keep_products(False)


# ------------------------------------------------------------------------------------------- updates

IN_FLIGHT = """
import sys, time
import dynet as dy
import numpy as np
from dynet_compat.distributed.exchange import Exchange

sums = Exchange.sum_gradients
def slow(self, step):
    time.sleep(0.3)
    sums(self, step)
Exchange.sum_gradients = slow
pc = dy.ParameterCollection()
p, E = pc.add_parameters(2, init=1), pc.add_lookup_parameters((3, 2), init=1)
t = dy.SimpleSGDTrainer(pc, 1.0)
t.set_clip_threshold(0)
for k, look in enumerate([
    lambda: p.as_array(), lambda: p.value(), lambda: (p + 0).value(), lambda: E[1].value(),
    lambda: p.has_gradient(), lambda: E.row_as_array(1), lambda: p.set_value([1, 1]), lambda: p.scale(1),
    lambda: p.set_updated(True), lambda: pc.add_parameters(1), lambda: pc.set_weight_decay(0),
    lambda: t.learning_rate, lambda: setattr(t, "learning_rate", 1.0), lambda: t.set_clip_threshold(0),
    lambda: t.status(), lambda: pc.save(sys.argv[1]), lambda: t.update(), lambda: dy.distributed.sum(1),
    lambda: dy.AdamTrainer(pc), lambda: dy.esum([dy.squared_norm(p)]).backward(),
]):
    dy.renew_cg()
    p.set_value([1, 1])
    batch = dy.distributed.shard([1, 2])
    dy.esum([dy.squared_norm(p * 0.25) + dy.squared_norm(E[1] * 0.01) for _ in batch]).backward()
    start = time.monotonic()
    t.update()
    dy.renew_cg()
    h = dy.tanh(p + 0)
    returned = time.monotonic() - start
    dy.distributed.shard([3])
    look()
    waited = time.monotonic() - start
    assert returned < 0.25 < 0.3 <= waited, (k, returned, waited)
print("ok")
"""


def test_what_reads_or_changes_waits(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(IN_FLIGHT)
    result = job([tmp_path / "script.py", tmp_path / "model"], options=("--overlap", "yes"), cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "ok\n"), result.stderr


def test_an_error_is_raised_by_the_first_read(tmp_path: Path) -> None:
    """It says of which update."""
    (tmp_path / "script.py").write_text(
        "import dynet as dy, math\n"
        "pc = dy.ParameterCollection(); p = pc.add_parameters(2, init=1); t = dy.SimpleSGDTrainer(pc)\n"
        "for factor in (1, math.nan):\n"
        "    dy.distributed.shard([1, 2])\n"
        "    dy.renew_cg(); dy.squared_norm(p * factor).backward(); t.update()\n"
        "print('returned')\n"
        "try: p.as_array()\n"
        "except RuntimeError as error: print(str(error)[:9])\n"
        "print(p.as_array()[0] < 1)\n"
    )
    result = job([tmp_path / "script.py"], options=("--overlap", "yes"), cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "returned\nupdate 2:\nTrue\n"), result.stderr


FORK = """
import os, math
import dynet as dy
pc = dy.ParameterCollection(); p = pc.add_parameters(2, init=1); t = dy.SimpleSGDTrainer(pc, 1.0)
def update(factor):
    dy.distributed.shard([1, 2])
    dy.renew_cg(); dy.squared_norm(p * factor).backward(); t.update()
update(0.1)
read, write = os.pipe()
if os.fork() == 0:
    update(0.1)
    os.write(write, str(p.as_array()[0]).encode())
    os._exit(0)
os.wait()
seen = float(os.read(read, 100))
before = p.as_array()[0]
print(seen < before < 1, dy.distributed.sum(1))
update(math.nan)
if os.fork() == 0: os._exit(0)
os.wait()
try: p.as_array()
except RuntimeError as error: print(str(error)[:9])
"""


def test_a_process_that_is_forked_sees_the_whole_update(tmp_path: Path) -> None:
    """It is no rank, and takes no error of the update away."""
    (tmp_path / "script.py").write_text(FORK)
    result = job([tmp_path / "script.py"], options=("--overlap", "yes"), cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "True 2\nupdate 2:\n"), result.stderr


def test_an_error_that_nothing_reads_ends_the_job(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import dynet_compat as dy, math\n"
        "dy.distributed.start(overlap=True)\n"
        "pc = dy.ParameterCollection(); p = pc.add_parameters(2, init=1); t = dy.SimpleSGDTrainer(pc)\n"
        "dy.squared_norm(p * math.nan).backward(); t.update()\n"
    )
    result = started(tmp_path / "script.py")
    assert result.returncode != 0 and "update 1: " in result.stderr, result.stderr


def test_an_update_that_is_interrupted_ends_the_job(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import dynet as dy\n"
        "from dynet_compat import _core\n"
        "def interrupted(*_): raise KeyboardInterrupt('between two gradients')\n"
        "_core._finish_gradients = interrupted\n"
        "pc = dy.ParameterCollection(); p = pc.add_parameters(2); t = dy.SimpleSGDTrainer(pc)\n"
        "dy.squared_norm(p).backward()\n"
        "try: t.update()\n"
        "except KeyboardInterrupt: p.as_array()\n"
    )
    start = time.monotonic()
    result = job([tmp_path / "script.py"], options=("--overlap", "yes"), cwd=tmp_path)
    assert result.returncode != 0 and "it was interrupted" in result.stderr, result.stderr
    assert time.monotonic() - start < 10
