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


@emulated
def test_small_parameters_take_little_memory() -> None:
    """300 of 32 bytes, with a gradient, two states and a second copy each: no large piece for each."""
    text = """
m = dy.ParameterCollection()
all = [m.add_parameters(8) for _ in range(300)]
t = dy.AdamTrainer(m)
for _ in range(3):
    dy.renew_cg()
    dy.esum([dy.squared_norm(p) for p in all]).backward()
    t.update()
before = dy._core.timing()["device_downloads"]
dy.renew_cg()
dy.esum([dy.squared_norm(p) for p in all]).backward()
t.update()
tell(dy._core.timing()["device_downloads"] - before)
"""
    assert told(text, "memory=4000000")[0] < 10, "the device had no room, and the host makes the updates"


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


@emulated
def test_a_device_without_room_gives_back_what_trainers_had() -> None:
    """Gradients, and the state of the trainer that had room, too."""
    text = """
m, W, b, E = model()
first = m.add_parameters((300, 300))
t = dy.AdamTrainer(m)
def step(p, trainer):
    dy.renew_cg()
    dy.squared_norm(p * dy.inputVector([0.1] * p.dim()[0][1])).backward()
    trainer.update()
for _ in range(2):
    step(first, t)
m2 = dy.ParameterCollection()
second = m2.add_parameters((400, 400))
t2 = dy.AdamTrainer(m2)
def in_use():
    try:
        dy.renew_cg()
        dy.sum_elems(dy.inputTensor(np.ones((2000, 2000)))).value()
    except MemoryError as e:
        return int(str(e).split(" are in use")[0].split()[-3])
before = in_use()
for _ in range(2):
    step(second, t2)   # 640 kB, as much for its gradient, and 1.3 MB of state: no room
step(first, t)
after = in_use()
tell(before, after, arrays(W, first, second))
"""
    before, after, there = told(text, "memory=4000000")
    assert after < before + 200_000, f"{before} bytes, then {after}: a state takes 0.7 MB, a gradient 0.4"
    same(there, on_host(text, "memory=8000000")[2], False, "as on the host")


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
    text = LOST % "False"
    message, again, updates, now, saved, _, _ = told(text, f"fail={fail}", DYNET_COMPAT_SNAPSHOT="3")
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


FORKED = """
import os, tempfile
m, W, b, E = model()
trainer = dy.AdamTrainer(m)
train(W, b, E, trainer, 0, 3)
loss_of(W, b, E, 3).backward()
folder = tempfile.mkdtemp()
child = os.fork()
if child == 0:
    before = dy._core.timing()["device_downloads"]
    trainer.save(folder + "/child")
    trainer.update()
    tell(arrays(W, b, E), dy._core.timing()["device_downloads"] - before)
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
trainer.save(folder + "/parent")
trainer.update()
tell(arrays(W, b, E), open(folder + "/child").read() == open(folder + "/parent").read())
"""


def test_a_forked_process_has_the_state_of_trainers() -> None:
    """It saves and updates without the device."""
    done = run(FORKED)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 2, done.stdout + done.stderr
    child, parent = (json.loads(line) for line in done.stdout.splitlines())
    assert parent[1], "the child saved another state than the parent"
    same(child[0], parent[0], False, "updates of child and parent")
    assert child[1] == 0, "the child asked the device"


@emulated
def test_a_process_forked_after_the_device_is_lost() -> None:
    """The child reads what the host falls back on."""
    text = """
import os
m, W, b, E = model()
trainer = dy.MomentumSGDTrainer(m)
try:
    for step in range(60):
        dy.renew_cg()
        loss_of(W, b, E, step).backward()
        trainer.update()
except RuntimeError:
    pass
child = os.fork()
if child:
    os.waitpid(child, 0)
tell(arrays(W, b, E))
sys.stdout.flush()
os._exit(0)
"""
    done = run(text, "fail=44")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == 2 and lines[0] == lines[1], done.stdout + done.stderr


def test_shared_parameters_stay_on_the_host() -> None:
    text = """
dy._core.share_parameters(True)
m, W, b, E = model()
tell(train(W, b, E, dy.AdamTrainer(m), 0, 4), arrays(W, b, E))
"""
    same(told(text), on_host(text), True, "as on the host")
