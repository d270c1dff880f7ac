"""Names and forms of DyNet 1.x and 2.0: what they meant, and one line in the log for each."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="the reference has them no more")

X = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]])
F = np.array([[1.0, 10.0], [2.0, -1.0]])


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """The log, as in a program that has used no old name yet."""
    from dynet_compat.api import legacy

    monkeypatch.setattr(legacy, "_warned", set())
    caplog.set_level(logging.WARNING, logger="dynet_compat")
    return caplog


def one_line(log: pytest.LogCaptureFixture, name: str) -> None:
    assert len(log.records) == 1
    record = log.records[0]
    assert (record.name, record.levelno) == ("dynet_compat", logging.WARNING)
    assert record.getMessage().startswith(f"dynet_compat: {name} is deprecated: ")


# ---------------------------------------------------------------- functions


@pytest.mark.parametrize(
    ("name", "code", "wanted"),
    [
        ("sum_cols", "dy.sum_cols(x)", X.sum(axis=1)),
        ("sum_rows", "dy.sum_rows(x)", X.sum(axis=0)),
        ("average_cols", "dy.average_cols(x)", X.mean(axis=1)),
        ("cwise_multiply", "dy.cwise_multiply(x, x)", X * X),
        (
            "conv1d_narrow",
            "dy.conv1d_narrow(x, f)",
            np.array([np.correlate(X[i], F[i], "valid") for i in (0, 1)]),
        ),
        ("conv1d_wide", "dy.conv1d_wide(x, f)", np.array([np.convolve(X[i], F[i], "full") for i in (0, 1)])),
        ("flip_gradient(lambd)", "dy.flip_gradient(x, 2.5)", X),
        ("poisson_loss(x, y)", "dy.poisson_loss(x=dy.scalarInput(2), y=3)", [np.exp(2) + np.log(6) - 6]),
        ("poisson_loss(x, y)", "dy.poisson_loss(dy.scalarInput(2), y=3)", [np.exp(2) + np.log(6) - 6]),
    ],
)
def test_function(dy: Any, log: pytest.LogCaptureFixture, name: str, code: str, wanted: Any) -> None:
    """The value, and one line however often it is called."""
    names = {"dy": dy, "x": dy.inputTensor(X), "f": dy.inputTensor(F)}
    for _ in range(3):
        value = eval(code, names).npvalue()  # noqa: S307 - our own text
        np.testing.assert_allclose(value, wanted, rtol=1e-5)
    one_line(log, name)


def test_gradients(dy: Any) -> None:
    x, f = dy.inputTensor(X), dy.inputTensor(F)
    dy.sum_elems(dy.flip_gradient(x, 2.5)).backward(full=True)
    np.testing.assert_allclose(x.gradient(), -2.5 * np.ones_like(X))
    dy.sum_elems(dy.conv1d_wide(x, f)).backward(full=True)
    np.testing.assert_allclose(x.gradient(), np.repeat(F.sum(axis=1)[:, None], 3, axis=1))
    np.testing.assert_allclose(f.gradient(), np.repeat(X.sum(axis=1)[:, None], 2, axis=1))


@pytest.mark.parametrize(
    "code",
    ["dy.conv1d_narrow(x, dy.transpose(x))", "dy.conv1d_wide(x, dy.transpose(x))", "dy.conv1d_narrow(f, x)"],
)
def test_function_errors(dy: Any, code: str) -> None:
    with pytest.raises(ValueError, match="as many rows"):
        eval(code, {"dy": dy, "x": dy.inputTensor(X), "f": dy.inputTensor(F)})  # noqa: S307 - our own text


def test_new_forms_say_nothing(dy: Any, log: pytest.LogCaptureFixture) -> None:
    x = dy.inputVector([1, 2])
    dy.flip_gradient(x).value()
    dy.poisson_loss(dy.scalarInput(1), 3).value()
    pc = dy.ParameterCollection()
    dy.SimpleSGDTrainer(pc, learning_rate=0.5).update()
    assert log.records == []


def test_graph_parameters(dy: Any, log: pytest.LogCaptureFixture) -> None:
    p = dy.ParameterCollection().add_parameters(2)
    assert dy.cg().parameters(p) is p
    one_line(log, "ComputationGraph.parameters")


@pytest.mark.parametrize(("update", "gradient"), [(True, [1.0, 1.0]), (False, [0.0, 0.0])])
def test_parameter_update(dy: Any, update: bool, gradient: list[float]) -> None:
    p = dy.ParameterCollection().add_parameters(2)
    e = dy.parameter(p, update=update)
    (dy.sum_elems(e) + dy.sum_elems(dy.inputVector([1, 2]))).backward()
    assert p.grad_as_array().tolist() == gradient


# ---------------------------------------------------------------- models


def test_model(dy: Any, log: pytest.LogCaptureFixture) -> None:
    m = dy.Model()
    p = m.add_parameters(2)
    m.add_parameters((2, 2))
    assert m.pl() == m.pl() == 2
    one_line(log, "ParameterCollection.pl")
    p.load_array(np.array([3.0, 4.0]))
    assert p.as_array().tolist() == [3.0, 4.0]
    with pytest.raises(ValueError, match="set_value"):
        p.load_array(np.zeros(3))


def test_subclass_of_model_may_have_its_own(dy: Any) -> None:
    class Mine(dy.Model):  # type: ignore[misc,name-defined]
        def load(self, fname: str) -> str:
            return "mine " + fname

    assert Mine().load("x") == "mine x"


def test_files(dy: Any, tmp_path: Any, log: pytest.LogCaptureFixture) -> None:
    """Model.save(fname, objects), load, save_all, load_all, from_file: by today's files."""
    m = dy.Model()
    p, lstm = m.add_parameters((2, 3)), dy.LSTMBuilder(1, 2, 2, m)
    m.save(str(tmp_path / "objects"), [p, lstm])
    other = dy.Model()
    q, rnn = other.load(str(tmp_path / "objects"))
    assert q.as_array().tolist() == p.as_array().tolist() and rnn.spec == lstm.spec
    model, (r, _) = dy.Model.from_file(str(tmp_path / "objects"))
    assert r.as_array().tolist() == p.as_array().tolist() and model.pl() == other.pl() > 1
    m.save_all(str(tmp_path / "all"))
    kept = p.as_array()
    p.zero()
    m.load_all(str(tmp_path / "all"))
    assert p.as_array().tolist() == kept.tolist()
    m.save(str(tmp_path / "new"), "/key")
    assert "/key/" in (tmp_path / "new").read_text()
    assert len(log.records) == 6


def test_saveable(dy: Any) -> None:
    class Mine(dy.Saveable):  # type: ignore[misc,name-defined]
        pass

    with pytest.raises(NotImplementedError):
        Mine().get_components()
    with pytest.raises(NotImplementedError):
        Mine().restore_components([])


# ---------------------------------------------------------------- trainers


def step(dy: Any, p: Any, trainer: Any, *scale: float) -> list[float]:
    """Values after an update with the gradient [1, 2]."""
    dy.renew_cg()
    dy.dot_product(p, dy.inputVector([1, 2])).backward()
    trainer.update(*scale)
    return [float(v) for v in p.as_array()]


def parameters(dy: Any) -> tuple[Any, Any]:
    m = dy.ParameterCollection()
    return m, m.parameters_from_numpy(np.zeros(2))


@pytest.mark.parametrize(
    ("code", "rate", "line"),
    [
        ("dy.SimpleSGDTrainer(m, e0=0.5)", 0.5, "SimpleSGDTrainer(e0=)"),
        ("dy.MomentumSGDTrainer(m, e0=0.5, mom=0.1)", 0.5, "MomentumSGDTrainer(e0=)"),
        ("dy.AdagradTrainer(m, e0=0.5, eps=1e-6)", 0.5, "AdagradTrainer(e0=)"),
        ("dy.RMSPropTrainer(m, e0=0.5)", 0.5, "RMSPropTrainer(e0=)"),
        ("dy.CyclicalSGDTrainer(m, e0_min=0.5, learning_rate_max=2)", 0.5, "CyclicalSGDTrainer(e0_min=)"),
        ("dy.AdamTrainer(m, edecay=0.1)", 0.001, "AdamTrainer(edecay=)"),
        ("dy.AdadeltaTrainer(m, edecay=0.1)", 1.0, "AdadeltaTrainer(edecay=)"),
    ],
)
def test_trainer_arguments(dy: Any, log: pytest.LogCaptureFixture, code: str, rate: float, line: str) -> None:
    m, _ = parameters(dy)
    for _ in range(2):
        trainer = eval(code, {"dy": dy, "m": m})  # noqa: S307 - our own text
        assert trainer.learning_rate == pytest.approx(rate)
    one_line(log, line)


@pytest.mark.parametrize(
    "code",
    [
        "dy.SimpleSGDTrainer(m, e0=1, learning_rate=2)",
        "dy.SimpleSGDTrainer(m, e1=1)",
        "dy.SimpleSGDTrainer(m, edecay='a')",
        "dy.AmsgradTrainer(m, e0=0.1)",
    ],
)
def test_trainer_argument_errors(dy: Any, code: str) -> None:
    m, _ = parameters(dy)
    with pytest.raises(TypeError):
        eval(code, {"dy": dy, "m": m})  # noqa: S307 - our own text


@pytest.mark.parametrize("code", ["dy.SimpleSGDTrainer(m, 1, 0.2)", "dy.MomentumSGDTrainer(m, 1, 0.9, 0.2)"])
def test_positional_decay(dy: Any, code: str) -> None:
    """1.x took it as the last argument, where 2.1.2 has none."""
    m, _ = parameters(dy)
    with pytest.raises(TypeError, match=r"at most \d arguments, got \d; if the last one is edecay of"):
        eval(code, {"dy": dy, "m": m})  # noqa: S307 - our own text


def test_decay_by_epoch(dy: Any, log: pytest.LogCaptureFixture) -> None:
    """1.x: learning rate = first one / (1 + epochs * edecay)."""
    m, p = parameters(dy)
    trainer = dy.SimpleSGDTrainer(m, e0=0.5, edecay=0.2)
    rates = []
    for _ in range(3):
        trainer.update_epoch()
        rates.append(trainer.learning_rate)
    assert rates == pytest.approx([0.5 / 1.2, 0.5 / 1.4, 0.5 / 1.6])
    trainer.update_epoch(2)
    trainer.update_epoch(r=0.5)
    assert trainer.learning_rate == pytest.approx(0.5 / (1 + 5.5 * 0.2))
    assert step(dy, p, trainer) == pytest.approx([-0.5 / 2.1, -1.0 / 2.1])
    trainer.learning_rate = 1.0  # and on from there
    trainer.update_epoch(1)
    assert trainer.learning_rate == pytest.approx(2.1 / 2.3)
    assert len(log.records) == 3  # e0, edecay, update_epoch


def test_epochs_without_decay(dy: Any) -> None:
    m, _ = parameters(dy)
    trainer = dy.SimpleSGDTrainer(m, 0.3)
    trainer.update_epoch()
    trainer.update_epoch(1.0)
    assert trainer.learning_rate == pytest.approx(0.3)


def test_scaled_update(dy: Any, log: pytest.LogCaptureFixture) -> None:
    """1.0: gradients times s, and the threshold of clipping is compared with the product."""
    m, p = parameters(dy)
    trainer = dy.SimpleSGDTrainer(m, 0.1)
    assert step(dy, p, trainer, 0.5) == pytest.approx([-0.05, -0.1])
    one_line(log, "Trainer.update(s)")
    p.zero()
    trainer.set_clip_threshold(1.0)
    norm = np.sqrt(5.0)
    assert step(dy, p, trainer, 0.25) == pytest.approx([-0.025, -0.05])  # 0.25 norm < 1
    p.zero()
    assert step(dy, p, trainer, 2.0) == pytest.approx([-0.1 / norm, -0.2 / norm])
    p.zero()
    cyclical = dy.CyclicalSGDTrainer(m, 0.1, 0.1)
    assert step(dy, p, cyclical, 0.5) == pytest.approx([-0.05, -0.1])
    p.zero()
    assert step(dy, p, dy.AdagradTrainer(m, 0.1), 0.5) == pytest.approx([-0.1, -0.1])
    with pytest.raises(TypeError):
        trainer.update("a")
