"""Training on a device that is full, or lost, and processes that are forked from it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.device_training import emulated, on_host, run, same, told
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="the devices are ours")


@emulated
def test_trainers_and_models_come_and_go() -> None:
    """Their memory is given back: 60 models of 40 kB, with 200 kB of gradients, state and so on each."""
    text = """
for k in range(60):
    m = dy.ParameterCollection()
    p = m.add_parameters((100, 100))
    t = dy.AdamTrainer(m)
    for _ in range(2):
        dy.renew_cg()
        dy.squared_norm(p).backward()
        t.update()
    last = p.as_array().sum()
for k in range(200):
    q = dy.ParameterCollection().add_parameters(2)
    dy.renew_cg()
    dy.squared_norm(q).value()
tell(bool(np.isfinite(last)))
"""
    assert told(text, "memory=2500000") == [True]


NO_ROOM = """
m, W, b, E = model()
big = m.add_parameters((300, 300))
trainer = dy.AdamTrainer(m)
losses = []
for step in range(6):
    dy.renew_cg()
    loss = loss_of(W, b, E, step) + dy.squared_norm(big * dy.inputVector([0.1] * 300))
    losses.append(loss.value())
    loss.backward()
    trainer.update()
tell(losses, arrays(W, b, E), float(np.abs(big.as_array()).sum()))
"""


@emulated
@pytest.mark.parametrize("memory", [2_000_000, 2_400_000, 2_800_000, 3_200_000, 3_600_000])
def test_where_the_device_has_no_room_the_host_goes_on(memory: int) -> None:
    """A parameter of 360 kB, its second version, gradient and state, in little memory."""
    same(told(NO_ROOM, f"memory={memory}"), on_host(NO_ROOM), False, str(memory))


LOST = """
import tempfile
m, W, b, E = model()
trainer = dy.MomentumSGDTrainer(m)
history, told_of = [arrays(W, b, E)], []
updates = 0
try:
    for step in range(60):
        dy.renew_cg()
        loss = loss_of(W, b, E, step)
        loss.value()
        loss.backward()
        trainer.update()
        updates += 1
        if %s:
            history.append(arrays(W, b, E))
except RuntimeError as e:
    print(e)
    message = str(e)
again = ""
try:
    dy.renew_cg()
    loss_of(W, b, E, 0).value()
except RuntimeError as e:
    again = str(e)
now = arrays(W, b, E)
path = tempfile.mkdtemp() + "/model"
m.save(path)
m2, W2, b2, E2 = model(4)
m2.populate(path)
tell(message, again, updates, now, arrays(W2, b2, E2) == now, len(history), history[-1])
"""


def trained(updates: int) -> Any:
    text = f"m, W, b, E = model()\nt = dy.MomentumSGDTrainer(m)\ntrain(W, b, E, t, 0, {updates})\n"
    return told(text + "tell(arrays(W, b, E))")[0]


@emulated
@pytest.mark.parametrize("fail", [1, 5, 40, 41, 42, 43, 44, 45, 46, 47, 48, 60])
def test_a_lost_device(fail: int) -> None:
    """All parameters are those after one update, of which the message tells, and can be saved."""
    message, again, updates, now, saved, _, _ = told(LOST % "False", f"fail={fail}", DYNET_COMPAT_KEEP="3")
    assert "the device was lost" in message and "the device was lost" in again and saved
    kept = updates
    if "as they were" not in message:
        words = message.split("the values after update ")[1].split()
        kept = int(words[0])
        assert words[1] == "of" and int(words[2]) in (updates, updates + 1) and updates - kept <= 3
    assert now == trained(kept), message


@emulated
@pytest.mark.parametrize("fail", [40, 44, 47])
def test_a_lost_device_where_the_host_has_read_all(fail: int) -> None:
    message, _, updates, now, saved, count, last = told(LOST % "True", f"fail={fail}")
    assert "as they were" in message and saved and updates == count - 1
    assert now == last


@emulated
def test_a_lost_device_after_the_host_wrote_all() -> None:
    text = """
import tempfile
m, W, b, E = model()
path = tempfile.mkdtemp() + "/model"
m.save(path)
first = arrays(W, b, E)
train(W, b, E, dy.SimpleSGDTrainer(m), 0, 3)
m.populate(path)
try:
    for step in range(100):
        dy.renew_cg()
        loss_of(W, b, E, step).value()
except RuntimeError as e:
    message = str(e)
tell(message, arrays(W, b, E) == first)
"""
    message, kept = told(text, "fail=60")
    assert "as they were" in message and kept


def test_a_forked_process_has_the_parameters() -> None:
    text = """
import os
m, W, b, E = model()
trainer = dy.AdamTrainer(m)
train(W, b, E, trainer, 0, 3)
child = os.fork()
if child == 0:
    tell(arrays(W, b, E))
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
before = dy._core.timing()["device_downloads"]
mine = arrays(W, b, E)
tell(mine, dy._core.timing()["device_downloads"] - before)
"""
    done = run(text)
    assert done.returncode == 0, done.stderr
    child, parent = (json.loads(line) for line in done.stdout.splitlines())
    assert child[0] == parent[0] and parent[1] == 0


def test_shared_parameters_stay_on_the_host() -> None:
    text = """
dy._core.share_parameters(True)
m, W, b, E = model()
tell(train(W, b, E, dy.AdamTrainer(m), 0, 4), arrays(W, b, E))
"""
    same(told(text), on_host(text), True, "as on the host")
