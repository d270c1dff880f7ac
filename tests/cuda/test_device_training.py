"""Parameters and trainers on a device: the same training as on the host, without the copies."""

from __future__ import annotations

import pytest
from support.device_training import flat, on_host, run, same, told
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="the devices are ours")

TRAINERS = {
    "SimpleSGDTrainer": "dy.SimpleSGDTrainer(m, 0.3)",
    "CyclicalSGDTrainer": "dy.CyclicalSGDTrainer(m, 0.1, 0.5, 3)",
    "MomentumSGDTrainer": "dy.MomentumSGDTrainer(m, 0.1)",
    "AdagradTrainer": "dy.AdagradTrainer(m)",
    "AdadeltaTrainer": "dy.AdadeltaTrainer(m)",
    "RMSPropTrainer": "dy.RMSPropTrainer(m, 0.01)",
    "AdamTrainer": "dy.AdamTrainer(m, 0.01)",
    "AmsgradTrainer": "dy.AmsgradTrainer(m, 0.01)",
    "EGTrainer": "dy.EGTrainer(m)",
    "AdamWTrainer": "dy.AdamWTrainer(m, 0.01, weight_decay=0.2)",
}
EXACT = {"SimpleSGDTrainer", "CyclicalSGDTrainer", "MomentumSGDTrainer", "EGTrainer"}  # the same roundings

# One process for all trainers: most of the time goes into starting it.
EVERY_TRAINER = (
    f"TRAINERS = {TRAINERS}\n"
    """
results = {}
for name, make in TRAINERS.items():
    for setting in ("sparse", "dense", "whole", "clipped", "decay", "frozen"):
        m, W, b, E = model()
        if name == "EGTrainer":
            for p in (W, b):
                p.set_value(np.abs(p.as_array()) + 0.1)
            E.init_from_array(np.abs(E.as_array()) + 0.1)
        if setting == "decay":
            m.set_weight_decay_lambda(0.2)
        trainer = eval(make)
        trainer.set_clip_threshold(0.05 if setting == "clipped" else 0)
        trainer.set_sparse_updates(setting != "dense")
        b.set_updated(setting != "frozen")
        losses = train(W, b, E, trainer, 0, 8, setting == "whole")
        results[name + " " + setting] = [losses, arrays(W, b, E), trainer.learning_rate]
tell(results)
"""
)


def test_every_trainer_trains_as_on_the_host() -> None:
    there, here = told(EVERY_TRAINER)[0], on_host(EVERY_TRAINER)[0]
    assert len(there) == 6 * len(TRAINERS)
    for case in there:
        name, setting = case.split()
        same(there[case], here[case], name in EXACT and setting != "clipped", case)


@pytest.mark.parametrize("order", ["forward", "backward"])
def test_threads_may_run_in_either_order(order: str) -> None:
    text = "m, W, b, E = model()\nt = dy.AdamTrainer(m)\ntell(train(W, b, E, t, 0, 6), arrays(W, b, E))"
    same(told(text, f"order={order}"), on_host(text), False, order)


COPIES = """
m, W, b, E = model()
big = m.add_parameters((40, 40))
trainer = dy.AdamTrainer(m)
trainer.set_clip_threshold(%s)
def step(i):
    dy.renew_cg()
    loss = loss_of(W, b, E, i) + dy.squared_norm(big * dy.inputVector([0.1] * 40))
    value = loss.value()
    loss.backward()
    trainer.update()
for i in range(4):
    step(i)
counts = []
for i in range(4, 8):
    dy._core.reset_timing()
    step(i)
    t = dy._core.timing()
    counts.append([t["device_downloads"], t["device_downloaded_bytes"], t["device_uploaded_bytes"]])
W.as_array()
tell(counts)
"""


@pytest.mark.parametrize("clip", [0, 5])
def test_a_step_brings_down_the_loss_alone(clip: int) -> None:
    """And, for the decision whether to clip, the norm of the gradients, a double."""
    counts = told(COPIES % clip)[0]
    assert [c[:2] for c in counts] == [[2, 12] if clip else [1, 4]] * 4
    up = [c[2] for c in counts]
    assert max(up) < 40_000, f"{up} bytes went up: launch records are some 10 kB, parameters 7 kB more each"


def test_uploads_do_not_grow_with_the_parameters() -> None:
    small, large = (told(COPIES.replace("40", str(n)) % 5)[0][-1][2] for n in (40, 80))
    assert large - small < 2000, "a step uploads parameters, of which one is 19 kB larger now"


HOST_READS = """
m, W, b, E = model()
trainer = %s
seen = []
for step in range(6):
    dy.renew_cg()
    loss = loss_of(W, b, E, step)
    loss.backward()
    if step %% 2:
        seen.append(arrays(W, E))
        seen.append(W.grad_as_array().ravel().tolist())
        seen.append(E.grad_as_array().ravel().tolist())
        seen.append(E.rows_grad_as_array([0, 3, 8]).ravel().tolist())
        seen.append(W.gradient().ravel().tolist())
    if step == 2:
        W.scale_gradient(0.5); E.scale_gradient(0.25)
    if step == 3:
        loss_of(W, b, E, step, rows=9).backward()   # one more, with new rows
    trainer.update()
    if step == 3:
        W.scale(0.5); b.clip_inplace(-0.1, 0.1); E.init_row(2, [1, 2, 3, 4])
    if step == 4:
        b.set_value(np.arange(5) / 5)
        seen.append(b.as_array().tolist())
    seen.append([loss.value(), W.value().ravel().tolist(), dy.sum_elems(W).value()])
    seen.append(loss.value(recalculate=True))
    seen.append([W.value().ravel().tolist(), E[1].value(), b.value()])
tell(seen, arrays(W, b, E))
"""


@pytest.mark.parametrize("trainer", ["MomentumSGDTrainer", "AdamTrainer"])
def test_reads_and_writes_of_the_host_between_steps(trainer: str) -> None:
    """A graph keeps seeing the values of its moment; after recalculate=True those of now."""
    text = HOST_READS % f"dy.{trainer}(m)"
    same(told(text), on_host(text), False, trainer)


def test_weight_decay_is_reset() -> None:
    text = """
m, W, b, E = model()
m.set_weight_decay_lambda(0.3)
trainer = dy.MomentumSGDTrainer(m)
trainer.set_clip_threshold(0)
losses = train(W, b, E, trainer, 0, 9)
dy.renew_cg()
tell(losses, arrays(W, b, E), W.value().ravel().tolist(), E[3].value(), dy.sum_elems(W).value())
"""
    same(told(text), on_host(text), True, "as on the host")


@pytest.mark.parametrize("order", ["forward", "backward"])
def test_products_see_decayed_parameters(order: str) -> None:
    """The device multiplies the values it made by the factor of weight decay."""
    text = """
m = dy.ParameterCollection()
m.set_weight_decay_lambda(0.1)
W, V = m.add_parameters((16, 15)), m.add_parameters((10, 16))
x = np.linspace(-1, 1, 15)
trainer = dy.SimpleSGDTrainer(m, 0.01)
for step in range(4):
    dy.renew_cg()
    y = dy.tanh(V * dy.tanh(W * dy.inputVector(x)))
    found = y.npvalue()
    w, v = (p.as_array() * 0.9 ** step for p in (W, V))
    wanted = np.tanh(v @ np.tanh(w @ x))
    assert np.allclose(found, wanted, rtol=1e-4, atol=1e-4), (step, np.abs(found - wanted).max())
    dy.squared_norm(y).backward()
    trainer.update()
tell(True)
"""
    assert told(text, f"order={order}") == [True]


SAVES = """
import tempfile, os
m, W, b, E = model()
trainer = dy.AdamTrainer(m)
trainer.exponential_moving_average(0.9)
losses = train(W, b, E, trainer, 0, 3)
folder = tempfile.mkdtemp()
dy.renew_cg()
loss_of(W, b, E, 3).backward()
m.save(folder + "/model")        # with gradients
trainer.save(folder + "/trainer")
saved = open(folder + "/model").read()
trainer.update()
losses += train(W, b, E, trainer, 4, 6)
after = arrays(W, b, E)
m2, W2, b2, E2 = model(5)
trainer2 = dy.AdamTrainer(m2)
m2.populate(folder + "/model")
trainer2.populate(folder + "/trainer")
dy.renew_cg()
first = arrays(W2, b2, E2)
loss_of(W2, b2, E2, 3).backward()
trainer2.update()
train(W2, b2, E2, trainer2, 4, 6)
trainer.swap_params_to_moving_average()
averaged = arrays(W, b, E)
trainer.swap_params_to_weights()
m.populate(folder + "/model")
again = arrays(W, b, E)
tell(losses, "FULL_GRAD" in saved, after, first, arrays(W2, b2, E2), averaged, again == first)
"""


def test_saving_and_loading_in_the_midst() -> None:
    same(told(SAVES), on_host(SAVES), False, "saves")


@pytest.mark.parametrize("sparse", [True, False])
def test_restored_gradients_of_rows(sparse: bool) -> None:
    """They wait for backward() to touch the row, or for an update of the whole table."""
    text = """
import tempfile
m, W, b, E = model()
trainer = dy.MomentumSGDTrainer(m)
trainer.set_clip_threshold(0)
trainer.set_sparse_updates(%s)
loss_of(W, b, E, 1, rows=7).backward()
path = tempfile.mkdtemp() + "/model"
m.save(path)
m.populate(path)
trainer.update()
m.populate(path)
dy.renew_cg()
loss_of(W, b, E, 1, rows=4).backward()
seen = E.grad_as_array().ravel().tolist()
trainer.update()
tell(seen, train(W, b, E, trainer, 0, 3), arrays(W, b, E))
"""
    same(told(text % sparse), on_host(text % sparse), True, "restored")


def test_the_norm_that_is_no_number() -> None:
    text = """
m, W, b, E = model()
trainer = dy.AdamTrainer(m)
train(W, b, E, trainer, 0, 2)
before = arrays(W, b, E)
dy.renew_cg()
(loss_of(W, b, E, 0) * float("nan")).backward()
try:
    trainer.update()
except RuntimeError as e:
    print(e)
    print("nan" in str(e) and "/_0" in str(e) or "parameter /" in str(e))
tell(arrays(W, b, E) == before)
"""
    done = run(text)
    assert done.stdout.splitlines()[-1] == "[true]", done.stdout + done.stderr
    assert "AdamTrainer.update(): Magnitude of gradient is bad: nan" in done.stdout
    assert "first in parameter /" in done.stdout


def test_clips_are_counted() -> None:
    text = """
m, W, b, E = model()
trainer = dy.SimpleSGDTrainer(m)
trainer.set_clip_threshold(0.5)
train(W, b, E, trainer, 0, 3)
trainer.set_clip_threshold(1e6)
train(W, b, E, trainer, 3, 5)
trainer.status()
"""
    done = run(text)
    assert "clips=3 updates=5" in done.stderr, done.stdout + done.stderr


def test_restart_and_a_second_trainer() -> None:
    text = """
m, W, b, E = model()
first, second = dy.MomentumSGDTrainer(m), dy.AdamTrainer(m)
losses = train(W, b, E, first, 0, 3) + train(W, b, E, second, 3, 6)
first.restart(0.05)
losses += train(W, b, E, first, 6, 9)
late = m.add_parameters(3, init=0.5)
for step in range(3):
    dy.renew_cg()
    (loss_of(W, b, E, step) + dy.squared_norm(late)).backward()
    first.update()
tell(losses, arrays(W, b, E, late))
"""
    same(told(text), on_host(text), False, "restart")


THREADS = """
import threading
m, W, b, E = model()
trainer = dy.SimpleSGDTrainer(m, 0.05)
lock = threading.Lock()
errors = []
def work(number):
    try:
        for step in range(6):
            dy.renew_cg()
            loss = dy.esum([loss_of(W, b, E, step + number + k) for k in range(30)])
            loss.value()
            with lock:
                loss.backward()
                trainer.update()
            if step % 2:
                W.as_array()
                E.row_as_array(number)
    except BaseException as e:
        errors.append(repr(e))
threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
for t in threads: t.start()
for t in threads: t.join()
ok = all(np.isfinite(a).all() for a in (W.as_array(), b.as_array(), E.as_array()))
tell(errors, bool(ok), len(W.grad_as_array().nonzero()[0]))
"""


def test_threads() -> None:
    errors, finite, gradients = told(THREADS)
    assert (errors, finite, gradients) == ([], True, 0)


def test_threads_with_large_graphs() -> None:
    """They compute without the interpreter's lock, while others update what they read, or read it."""
    text = """
import threading
dy.reset_random_seed(1)
m = dy.ParameterCollection()
W, V, E = m.add_parameters((40, 40)), m.add_parameters((40, 40)), m.add_lookup_parameters((20, 40))
m.set_weight_decay_lambda(0.02)
errors, over = [], threading.Event()
def work(number):
    trainer = dy.MomentumSGDTrainer(m, 0.001)
    try:
        for step in range(4):
            dy.renew_cg()
            xs = [dy.tanh(W * dy.tanh(V * E[(i * (number + 1) + step) % 20])) for i in range(700)]
            loss = dy.esum([dy.squared_norm(x) for x in xs])
            first = loss.value()
            for _ in range(3):
                if loss.value(recalculate=False) != first or dy.squared_norm(W).value() < 0:
                    errors.append("the value has changed")
            loss.backward()
            trainer.update()
    except BaseException as e:
        errors.append(repr(e))
def read():
    while not over.is_set():
        for p in (W, V, E):
            if not np.isfinite(p.as_array()).all():
                errors.append("not finite")
threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
reader = threading.Thread(target=read)
for t in threads + [reader]: t.start()
for t in threads: t.join()
over.set()
reader.join()
tell(errors)
"""
    assert told(text) == [[]]


def test_threads_that_add_up_one_gradient() -> None:
    """Each has a graph; what they add to the parameters' gradients is the sum, in whatever order."""
    text = """
import threading
m, W, b, E = model()
def work(number):
    for step in range(3):
        dy.renew_cg()
        dy.esum([loss_of(W, b, E, step + number + k) for k in range(12)]).backward()
threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
for t in threads: t.start()
for t in threads: t.join()
tell(*[p.grad_as_array().ravel().tolist() for p in (W, b, E)])
"""
    one_by_one = text.replace("t.start()", "t.start(), t.join()").replace("t.join()\ntell", "pass\ntell")
    assert flat(told(text)) == pytest.approx(flat(told(one_by_one)), rel=1e-4, abs=1e-4)
