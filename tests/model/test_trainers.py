"""Trainers against the recorded trajectories, and their rules in NumPy."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from support import oracle
from support.compare import difference
from support.scenarios import ALL as SCENARIOS
from support.scenarios import SECTIONS, trainers
from support.subject import IS_REFERENCE, ON_DEVICE


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    return oracle.recorded("trainers")


@pytest.mark.parametrize("name", SECTIONS["trainers"])
def test_trajectory(dy: Any, name: str, recorded: dict[str, np.ndarray]) -> None:
    for key, got in SCENARIOS[name](dy).items():
        found = difference(got, recorded[name + "|" + key], 2e-5, 5e-6)
        assert found is None, f"{name}: step|array {key} differs from DyNet: {found}"


@pytest.mark.oracle
def test_live(dy: Any, oracle_python: str) -> None:
    live = oracle.live("trainers")
    for name in SECTIONS["trainers"]:
        for key, got in SCENARIOS[name](dy).items():
            found = difference(got, live[name + "|" + key], 2e-5, 5e-6)
            assert found is None, f"{name}: {key} differs from DyNet: {found}"


def sgd(grads: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    for g in grads:
        x = x - 0.1 * g
    return x


def momentum(grads: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    v = np.zeros_like(x)
    for g in grads:
        v = 0.9 * v - 0.1 * g
        x = x + v
    return x


def adagrad(grads: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    v = np.zeros_like(x)
    for g in grads:
        v = v + g * g
        x = x - 0.1 * g / np.sqrt(v + 1e-20)
    return x


def adam(grads: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    m, v = np.zeros_like(x), np.zeros_like(x)
    for t, g in enumerate(grads, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        x = x - 0.1 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-8)
    return x


@pytest.mark.parametrize(
    "make, rule",
    [
        (lambda dy, pc: dy.SimpleSGDTrainer(pc, 0.1), sgd),
        (lambda dy, pc: dy.MomentumSGDTrainer(pc, 0.1), momentum),
        (lambda dy, pc: dy.AdagradTrainer(pc, 0.1), adagrad),
        (lambda dy, pc: dy.AdamTrainer(pc, 0.1), adam),
    ],
    ids=["sgd", "momentum", "adagrad", "adam"],
)
def test_rule(dy: Any, make: Any, rule: Any) -> None:
    rng = np.random.RandomState(2)
    start, grads = rng.randn(5), [0.3 * rng.randn(5) for _ in range(7)]
    pc = dy.ParameterCollection()
    p = pc.parameters_from_numpy(start)
    trainer = make(dy, pc)
    for grad in grads:
        dy.renew_cg()
        dy.dot_product(p, dy.inputTensor(grad)).backward()
        trainer.update()
    found = difference(p.as_array(), rule(grads, start), 1e-5, 1e-6)
    assert found is None, found


@pytest.mark.parametrize("name", ["adagrad", "rmsprop", "adam"])
def test_quotients_of_zero_and_infinity_are_those_of_a_division(dy: Any, name: str) -> None:
    """Zero by zero, and gradients whose squares are beyond float or 0; whole vectors and a rest."""
    if IS_REFERENCE:
        pytest.skip("only here is a quotient made of an estimate")
    grads = np.tile(np.float32([0.0, 1e-3, -2.0, 1e24, 1e-30]), 8)[:37]
    start = np.full(37, 0.5, np.float32)
    pc = dy.ParameterCollection()
    p = pc.parameters_from_numpy(start)
    trainer = {
        "adagrad": lambda: dy.AdagradTrainer(pc, 0.1, eps=0.0),
        "rmsprop": lambda: dy.RMSPropTrainer(pc, 0.1, eps=0.0, rho=0.9),
        "adam": lambda: dy.AdamTrainer(pc, 0.1, eps=0.0),
    }[name]()
    trainer.set_clip_threshold(0)
    dy.renew_cg()
    dy.dot_product(p, dy.inputTensor(grads)).backward()
    trainer.update()
    with np.errstate(all="ignore"):
        share = {"adagrad": 1.0, "rmsprop": 0.1, "adam": 0.001}[name]
        first, rate = (0.1 * grads, np.sqrt(0.001)) if name == "adam" else (grads, 0.1)
        want = start - np.float32(rate) * first / np.sqrt(np.float32(share) * (grads * grads))
    np.testing.assert_allclose(p.as_array(), want, rtol=1e-5)
    assert np.isnan(want[0]) and want[3] == start[3] and want[4] == -np.inf


SMALL_DECAYS: dict[str, tuple[str, tuple[float, ...]]] = {
    "RMSProp, rho 0": ("RMSPropTrainer", (0.1, 1e-8, 0.0)),
    "RMSProp, rho 0.001": ("RMSPropTrainer", (0.1, 1e-8, 0.001)),
    "Adam, beta_2 0": ("AdamTrainer", (0.1, 0.9, 0.0, 1e-8)),
    "Adam, both 0": ("AdamTrainer", (0.1, 0.0, 0.0, 1e-8)),
    "Adam, beta_1 0": ("AdamTrainer", (0.1, 0.0, 0.999, 1e-8)),
    "Adadelta, rho 0": ("AdadeltaTrainer", (1e-6, 0.0)),
}


def steps_in_double(name: str, numbers: tuple[float, ...], grads: list[float]) -> list[float]:
    """What updates add to a value, with numbers as the trainers keep them."""
    numbers = tuple(float(np.float32(number)) for number in numbers)
    steps, m, v, d = [], 0.0, 0.0, 0.0
    for t, g in enumerate(grads, 1):
        if name == "AdamTrainer":
            rate, beta_1, beta_2, eps = numbers
            m, v = beta_1 * m + (1 - beta_1) * g, beta_2 * v + (1 - beta_2) * g * g
            steps.append(-rate * np.sqrt(1 - beta_2**t) / (1 - beta_1**t) * m / (np.sqrt(v) + eps))
            continue
        eps, rho = numbers[-2:]
        v = rho * v + (1 - rho) * g * g
        if name == "RMSPropTrainer":
            steps.append(-numbers[0] * g / np.sqrt(v + eps))
        else:
            steps.append(-g * np.sqrt(d + eps) / np.sqrt(v + eps))
            d = rho * d + (1 - rho) * steps[-1] ** 2
    return steps


@pytest.mark.parametrize("case", SMALL_DECAYS)
def test_small_gradients_after_a_large_one_count_where_means_forget_soon(dy: Any, case: str) -> None:
    """Whole vectors and a rest."""
    name, numbers = SMALL_DECAYS[case]
    grads = [float(np.float32(g)) for g in (1e2, 1e-2, 2e-2, 1e-2)]
    pc = dy.ParameterCollection()
    p = pc.parameters_from_numpy(np.zeros(37, np.float32))
    trainer = getattr(dy, name)(pc, *numbers)
    trainer.set_clip_threshold(0)
    for grad, want in zip(grads, steps_in_double(name, numbers, grads)):
        p.set_value(np.zeros(37))  # or steps are rounded to what the value has
        dy.renew_cg()
        dy.dot_product(p, dy.inputTensor(np.full(37, grad))).backward()
        trainer.update()
        np.testing.assert_allclose(p.as_array(), want, rtol=1e-5)


@pytest.mark.parametrize("name", ["AdamTrainer", "AmsgradTrainer", "RMSPropTrainer", "AdadeltaTrainer"])
def test_a_mean_square_beyond_float_stops_its_element_only(dy: Any, name: str) -> None:
    start = np.full(37, 0.5, np.float32)
    pc = dy.ParameterCollection()
    p = pc.parameters_from_numpy(start)
    trainer = getattr(dy, name)(pc)
    trainer.set_clip_threshold(0)
    for large in (1e24, 1.0, 1.0):
        dy.renew_cg()
        grads = np.where(np.arange(37) % 5 == 3, large, 1.0)
        dy.dot_product(p, dy.inputTensor(grads)).backward()
        trainer.update()
    stopped = p.as_array()[3::5]
    np.testing.assert_allclose(stopped, 0.5, rtol=0.02)
    assert (np.delete(p.as_array(), np.s_[3::5]) < stopped.max()).all()


# All rows of a table are updated one by one, or as a whole: the places of elements in vectors differ. Prints
# the trainers whose elements differ.
PLACES = """
import numpy as np, dynet_compat as dy, sys
def table(name, numbers, sparse):
    r = np.random.RandomState(0)
    pc = dy.ParameterCollection()
    rows = pc.lookup_parameters_from_numpy(np.abs(r.randn(50, 20)).astype("f4"))
    trainer = getattr(dy, name)(pc, *numbers)
    trainer.set_sparse_updates(sparse)
    for _ in range(10):
        dy.renew_cg()
        grads = r.randn(50, 20).astype("f4")
        dy.esum([dy.dot_product(rows[i], dy.inputTensor(g)) for i, g in enumerate(grads)]).backward()
        trainer.update()
    return rows.as_array()
kinds = [(name + "Trainer", ()) for name in ("SimpleSGD", "CyclicalSGD", "MomentumSGD", "Adagrad", "Adadelta",
                                             "RMSProp", "Adam", "AdamW", "Amsgrad", "EG")]
kinds += [("AdadeltaTrainer", (1e-6, 0.1)), ("RMSPropTrainer", (0.1, 1e-8, 0.1)),
          ("AmsgradTrainer", (0.1, 0.1, 0.2))]  # means of which a small part is kept
different = [kind for kind in kinds if (table(*kind, True) != table(*kind, False)).any()]
print(different if dy._core.isa() == sys.argv[1] else "another processor")
"""


@pytest.mark.skipif(IS_REFERENCE, reason="about instruction sets")
@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512"])
def test_bits_of_an_element_do_not_depend_on_its_place(isa: str) -> None:
    program = [sys.executable, "-c", PLACES, isa]
    environment = {**os.environ, "DYNET_COMPAT_ISA": isa}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=300)
    if done.stdout == "another processor\n":
        pytest.skip(f"this processor has no {isa}")
    assert done.stdout == "[]\n", done.stdout + done.stderr


def test_properties(dy: Any) -> None:
    pc = dy.ParameterCollection()
    pc.add_parameters(2)
    trainer = dy.SimpleSGDTrainer(pc)
    assert trainer.learning_rate == float(np.float32(0.1))
    trainer.learning_rate = 0.25
    assert trainer.learning_rate == 0.25
    trainer.set_learning_rate(0.5)
    assert trainer.learning_rate == 0.5
    assert trainer.get_clip_threshold() == 5.0
    trainer.set_clip_threshold(2.5)
    assert trainer.get_clip_threshold() == 2.5
    trainer.set_clip_threshold(-1)
    assert trainer.get_clip_threshold() == 0
    trainer.restart(0.75)
    assert trainer.learning_rate == 0.75
    assert [t(pc).learning_rate for t in (dy.MomentumSGDTrainer, dy.AdagradTrainer, dy.AdamTrainer)] == [
        float(np.float32(v)) for v in (0.01, 0.1, 0.001)
    ]


def test_nan_gradient_is_refused_and_nothing_changes(dy: Any) -> None:
    pc = dy.ParameterCollection()
    p = pc.parameters_from_numpy(np.array([1.0, 4.0]))
    q = pc.parameters_from_numpy(np.array([2.0]))
    trainer = dy.SimpleSGDTrainer(pc)
    dy.renew_cg()
    (dy.sum_elems(dy.sqrt(p - 2)) + q).backward()
    with pytest.raises(RuntimeError):
        trainer.update()
    assert p.as_array().tolist() == [1, 4] and q.as_array().tolist() == [2]


@pytest.mark.parametrize("threshold", [0.0, 5.0])
def test_gradients_whose_squares_are_no_floats_are_not_clipped(dy: Any, threshold: float) -> None:
    pc = dy.ParameterCollection()
    p = pc.add_parameters(1, init=dy.ConstInitializer(1))
    trainer = dy.SimpleSGDTrainer(pc, 1e-30)
    trainer.set_clip_threshold(threshold)
    dy.renew_cg()
    (p * 1e20).backward()
    if not threshold:
        trainer.update()
        return
    with pytest.raises(RuntimeError, match="Magnitude of gradient is bad"):
        trainer.update()
    assert p.as_array() == [1]


def test_clipping_is_by_the_norm_of_everything(dy: Any) -> None:
    pc = dy.ParameterCollection()
    p = pc.parameters_from_numpy(np.zeros(2))
    table = pc.lookup_parameters_from_numpy(np.zeros((3, 1)))
    trainer = dy.SimpleSGDTrainer(pc, 1.0)
    trainer.set_clip_threshold(1.0)
    dy.renew_cg()
    (dy.dot_product(p, dy.inputVector([2, 3])) + table[1] * 6).backward()  # norm 7
    trainer.update()
    assert np.allclose(p.as_array(), [-2 / 7, -3 / 7], rtol=1e-6)
    assert np.allclose(table.as_array().ravel(), [0, -6 / 7, 0], rtol=1e-6)


def test_sparse_updates_leave_other_rows_alone(dy: Any) -> None:
    for sparse in (True, False):
        pc = dy.ParameterCollection()
        table = pc.lookup_parameters_from_numpy(np.ones((4, 2)))
        trainer = dy.MomentumSGDTrainer(pc, 0.1)
        trainer.set_sparse_updates(sparse)
        for row in (1, 2):
            dy.renew_cg()
            dy.sum_elems(table[row]).backward()
            trainer.update()
        moved = table.as_array()[1, 0]
        assert np.isclose(moved, 0.9 if sparse else 0.81, rtol=1e-6), (
            "momentum of row 1 moves on only when dense"
        )
        assert table.as_array()[0].tolist() == [1, 1] and table.as_array()[3].tolist() == [1, 1]


@pytest.mark.skipif(IS_REFERENCE, reason="states of trainers are ours to see")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="others compute denormals as fast")
@pytest.mark.skipif(ON_DEVICE, reason="so do GPUs")
@pytest.mark.parametrize("name", ["MomentumSGDTrainer", "AdamTrainer", "AmsgradTrainer", "RMSPropTrainer"])
def test_moments_that_decay_end_at_zero(dy: Any, name: str) -> None:
    """0.9 times the least denormal number is that number, for ever, and takes ten times as long."""
    pc = dy.ParameterCollection()
    p = pc.parameters_from_numpy(np.ones(37))
    trainer = getattr(dy, name)(pc, 0.1)
    for step in range(1100):
        dy.renew_cg()
        dy.sum_elems(p * (1.0 if step == 0 else 0.0)).backward()
        trainer.update()
    moments = np.concatenate(trainer.state_dict()["state"]["_0"]["arrays"])
    least = np.finfo(np.float32).tiny
    assert ((moments == 0) | (np.abs(moments) >= least)).all()
    assert (moments[:37] == 0).all() or name == "RMSPropTrainer"


def test_frozen_parameters(dy: Any) -> None:
    pc = dy.ParameterCollection()
    p = pc.parameters_from_numpy(np.array([1.0]))
    p.set_updated(False)
    assert not p.is_updated()
    trainer = dy.SimpleSGDTrainer(pc, 0.1)
    dy.renew_cg()
    (p * 3).backward()
    trainer.update()
    assert p.as_array().tolist() == [1] and p.grad_as_array().tolist() == [3], "its gradient stays"
    p.set_updated(True)
    trainer.update()
    assert np.allclose(p.as_array(), [0.7])


def test_parameters_added_after_the_trainer(dy: Any) -> None:
    pc = dy.ParameterCollection()
    first = pc.parameters_from_numpy(np.array([1.0]))
    trainer = dy.AdamTrainer(pc, 0.1)
    dy.renew_cg()
    (first * 1).backward()
    trainer.update()
    second = pc.add_subcollection("later").parameters_from_numpy(np.array([1.0, 2.0]))
    dy.renew_cg()
    dy.sum_elems(second).backward()
    trainer.update()
    assert (second.as_array() < [1, 2]).all()


def test_trainer_of_a_subcollection(dy: Any) -> None:
    pc = dy.ParameterCollection()
    sub = pc.add_subcollection("sub")
    inside, outside = sub.parameters_from_numpy(np.array([1.0])), pc.parameters_from_numpy(np.array([1.0]))
    trainer = dy.SimpleSGDTrainer(sub, 0.1)
    dy.renew_cg()
    (inside + outside).backward()
    trainer.update()
    assert np.allclose(inside.as_array(), [0.9]) and outside.as_array().tolist() == [1]


@pytest.mark.skipif(IS_REFERENCE, reason="no decay happens in the reference (specification, section 20)")
def test_weight_decay_with_a_trainer_on_a_subcollection(dy: Any) -> None:
    pc = dy.ParameterCollection()
    pc.set_weight_decay_lambda(0.1)
    sub = pc.add_subcollection("sub")
    p = sub.parameters_from_numpy(np.array([1.0]))
    trainer = dy.SimpleSGDTrainer(sub, 0.1)
    want = 1.0
    for _ in range(3):
        dy.renew_cg()
        (p * 1).backward()
        trainer.update()
        want = 0.9 * (want - 0.1)
    dy.renew_cg()
    assert np.isclose(p.value(), want, rtol=1e-5)


def test_trainer_keeps_what_it_needs(dy: Any) -> None:
    pc = dy.ParameterCollection()
    p = pc.parameters_from_numpy(np.array([1.0]))
    trainer = dy.SimpleSGDTrainer(pc, 0.1)
    if not IS_REFERENCE:
        del pc
    dy.renew_cg()
    (p * 1).backward()
    trainer.update()
    assert np.allclose(p.as_array(), [0.9])


def test_status_counts(dy: Any, capfd: Any) -> None:
    pc = dy.ParameterCollection()
    p = pc.parameters_from_numpy(np.array([1.0]))
    trainer = dy.SimpleSGDTrainer(pc, 0.5)
    trainer.set_clip_threshold(1)
    for factor in (0.5, 3.0):
        dy.renew_cg()
        (p * factor).backward()
        trainer.update()
    capfd.readouterr()
    trainer.status()
    trainer.status()
    assert capfd.readouterr().err == "[lr=0.5 clips=1 updates=2] [lr=0.5 clips=0 updates=0] "


def test_scenarios_cover_the_settings() -> None:
    assert len(SECTIONS["trainers"]) == len(trainers.TRAINERS) * len(trainers.SETTINGS) + 3
