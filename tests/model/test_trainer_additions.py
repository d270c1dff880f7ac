"""What trainers have beyond DyNet's Python API: EG, AdamW, moving averages, state in files and dicts."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="not in DyNet's Python API")

KINDS = {
    "SimpleSGDTrainer": (0.1,),
    "CyclicalSGDTrainer": (0.01, 0.3, 3, 0.9),
    "MomentumSGDTrainer": (0.1,),
    "AdagradTrainer": (0.1,),
    "AdadeltaTrainer": (1e-4,),
    "RMSPropTrainer": (0.02,),
    "AdamTrainer": (0.02,),
    "AmsgradTrainer": (0.02,),
    "EGTrainer": (0.1,),
    "AdamWTrainer": (0.02, 0.9, 0.999, 1e-8, 0.3),
}


class Model:
    """A matrix, a table and a frozen vector, all positive."""

    def __init__(self, dy: Any, decay: float = 0.0, seed: int = 1) -> None:
        rng = np.random.RandomState(seed)
        self.dy = dy
        self.pc = dy.ParameterCollection()
        if decay:
            self.pc.set_weight_decay(decay)
        self.W = self.pc.parameters_from_numpy(rng.rand(3, 2) + 0.1, name="W")
        self.E = self.pc.add_subcollection("s").lookup_parameters_from_numpy(rng.rand(5, 2) + 0.1, name="E")
        self.frozen = self.pc.parameters_from_numpy(rng.rand(3) + 0.1)
        self.frozen.set_updated(False)

    def train(self, trainer: Any, first: int, last: int) -> list[float]:
        """Losses of the steps."""
        losses = []
        for step in range(first, last):
            self.dy.renew_cg()
            loss = self.dy.pickneglogsoftmax(3 * (self.W * self.E[step % 4]) + self.frozen, step % 3)
            losses.append(loss.value())
            loss.backward()
            trainer.update()
        return losses

    def values(self) -> list[np.ndarray]:
        """What a graph sees."""
        self.dy.renew_cg()
        return [np.array(p.npvalue()) for p in (self.W, self.E, self.frozen)]


# ---------------------------------------------------------------- exponentiated gradient


def test_exponentiated_gradient(dy: Any) -> None:
    pc = dy.ParameterCollection()
    rng = np.random.RandomState(2)
    x, table = rng.rand(4) + 0.1, rng.rand(3, 2) + 0.1
    p, rows = pc.parameters_from_numpy(x), pc.lookup_parameters_from_numpy(table)
    trainer = dy.EGTrainer(pc, 0.5, 0.7)
    trainer.set_clip_threshold(0)
    v, w = np.zeros(4), np.zeros((3, 2))
    for step in range(5):
        g, h, row = rng.randn(4), rng.randn(2), step % 2
        dy.renew_cg()
        (dy.dot_product(p, dy.inputTensor(g)) + dy.dot_product(rows[row], dy.inputTensor(h))).backward()
        trainer.update()
        v = 0.7 * v - 0.5 * g
        x = x * np.exp(v) / (x * np.exp(v)).sum()
        w[row] = 0.7 * w[row] - 0.5 * h
        table[row] = table[row] * np.exp(w[row]) / (table[row] * np.exp(w[row])).sum()
        assert np.allclose(p.as_array(), x, rtol=1e-5)
        assert np.allclose(rows.as_array(), table, rtol=1e-5), "rows without a gradient stay"
    assert trainer.whoami() == "EGTrainer" and trainer.learning_rate == 0.5


def test_exponentiated_gradient_stays_on_the_simplex(dy: Any) -> None:
    for size in (3, 200_000):  # the larger one is shared among threads
        pc = dy.ParameterCollection()
        pc.set_weight_decay(0.1)
        p = pc.add_parameters(size, init=1.0 / size)
        trainer = dy.EGTrainer(pc, 1e4)
        trainer.set_clip_threshold(0)
        for step in range(3):
            dy.renew_cg()
            (p[step] * 10 - p[2] * 9).backward()
            trainer.update()
        dy.renew_cg()
        value = p.npvalue()
        assert (value > 0).all() and np.isfinite(value).all()
        assert np.isclose(value.sum(), 0.9, rtol=1e-4), "1 less the weight decay"


def test_exponentiated_gradient_wants_positive_values(dy: Any) -> None:
    for bad in (0.0, -0.5, np.nan):
        pc = dy.ParameterCollection()
        good = pc.parameters_from_numpy(np.array([0.5, 0.5]))
        p = pc.parameters_from_numpy(np.array([1.0, bad]))
        trainer = dy.EGTrainer(pc)
        dy.renew_cg()
        (good[0] + p[0]).backward()
        with pytest.raises(ValueError, match="positive"):
            trainer.update()
        assert good.as_array().tolist() == [0.5, 0.5]
        p.set_updated(False)
        trainer.update()
        assert good.as_array()[0] < 0.5


# ---------------------------------------------------------------- AdamW


class AdamW:
    """The rule in float64; epsilon is outside the bias correction, as in DyNet's Adam."""

    def __init__(self, values: np.ndarray, alpha: float, decay: float) -> None:
        self.x, self.alpha, self.decay = values.astype(np.float64), alpha, decay
        self.m, self.v = np.zeros_like(self.x), np.zeros_like(self.x)

    def update(self, gradient: np.ndarray, t: int, rows: Any = slice(None)) -> None:
        """`rows`: the part that changes."""
        m, v = 0.9 * self.m + 0.1 * gradient, 0.999 * self.v + 0.001 * gradient**2
        step = self.alpha * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-8)
        x = self.x - self.alpha * self.decay * self.x - step
        self.m[rows], self.v[rows], self.x[rows] = m[rows], v[rows], x[rows]


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
@pytest.mark.parametrize("size", [5, 70_000])  # the larger one is shared among threads
def test_adamw(dy: Any, sparse: bool, size: int) -> None:
    rng = np.random.RandomState(3)
    pc = dy.ParameterCollection()
    start, rows = rng.randn(size), rng.randn(4, size)
    p, unused = pc.parameters_from_numpy(start), pc.parameters_from_numpy(start)
    frozen = pc.parameters_from_numpy(start)
    frozen.set_updated(False)
    table = pc.lookup_parameters_from_numpy(rows)
    trainer = dy.AdamWTrainer(pc, alpha=0.05, weight_decay=0.4)
    trainer.set_clip_threshold(0)
    trainer.set_sparse_updates(sparse)
    want_p, want_unused, want_table = AdamW(start, 0.05, 0.4), AdamW(start, 0.05, 0.4), AdamW(rows, 0.05, 0.4)
    for t in range(1, 6):
        g, row = rng.randn(size), t % 3  # row 3 never
        dy.renew_cg()
        x = dy.inputTensor(g)
        (dy.dot_product(p, x) + dy.dot_product(table[row], x) + frozen[0]).backward()
        trainer.update()
        want_p.update(g, t)
        want_unused.update(np.zeros(size), t)
        of_rows = np.zeros_like(rows)
        of_rows[row] = g
        want_table.update(of_rows, t, [row] if sparse else slice(None))
    for what, got, want in (("Parameters", p, want_p), ("without a gradient", unused, want_unused),
                            ("LookupParameters", table, want_table)):  # fmt: skip
        assert np.allclose(got.as_array(), want.x, rtol=1e-5, atol=1e-6), f"{what} differ from the formula"
    assert np.allclose(frozen.as_array(), start, atol=1e-7), "a frozen parameter changed"
    assert trainer.whoami() == "AdamWTrainer"


def test_adamw_decay_is_neither_clipped_nor_scaled(dy: Any) -> None:
    pc = dy.ParameterCollection()
    pc.set_weight_decay(0.1)  # of the collection: multiplied into the values after each update
    p = pc.parameters_from_numpy(np.array([100.0]))
    trainer = dy.AdamWTrainer(pc, alpha=0.1, weight_decay=0.5)
    trainer.set_clip_threshold(1e-3)
    dy.renew_cg()
    (p * 1000).backward()
    trainer.update()
    dy.renew_cg()
    assert np.isclose(p.value(), 0.9 * (100 * (1 - 0.1 * 0.5) - 0.1), rtol=1e-5)


def test_adamw_without_decay_is_adam(dy: Any) -> None:
    trained = []
    for make in (lambda pc: dy.AdamTrainer(pc, 0.02), lambda pc: dy.AdamWTrainer(pc, 0.02, weight_decay=0)):
        model = Model(dy)
        model.train(make(model.pc), 0, 6)
        trained.append(model.values())
    for adam, adamw in zip(*trained):
        assert np.array_equal(adam, adamw)
    for bad in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="weight_decay"):
            dy.AdamWTrainer(dy.ParameterCollection(), weight_decay=bad)


# ---------------------------------------------------------------- moving averages


@pytest.mark.parametrize("decay", [0.0, 0.05])
@pytest.mark.parametrize("kind", ["cumulative", "exponential"])
def test_means(dy: Any, kind: str, decay: float) -> None:
    model = Model(dy, decay)
    trainer = dy.MomentumSGDTrainer(model.pc, 0.2)
    assert trainer.moving_average() == "none"
    if kind == "cumulative":
        trainer.cumulative_moving_average()
    else:
        trainer.exponential_moving_average(0.6)
    assert trainer.moving_average() == kind
    seen = []
    for step in range(6):
        model.train(trainer, step, step + 1)
        seen.append(model.values())
    before = model.values()
    weights = np.ones(6) if kind == "cumulative" else 0.6 ** np.arange(5, -1, -1)
    weights /= weights.sum()
    trainer.swap_params_to_moving_average()
    for n, got in enumerate(model.values()):
        assert np.allclose(got, sum(w * s[n] for w, s in zip(weights, seen)), rtol=1e-5, atol=1e-6)
    with pytest.raises(RuntimeError, match="swap_params_to_weights"):
        trainer.update()
    with pytest.raises(RuntimeError, match="already"):
        trainer.swap_params_to_moving_average()
    trainer.swap_params_to_weights()
    for got, want in zip(model.values(), before):
        assert np.array_equal(got, want)
    with pytest.raises(RuntimeError):
        trainer.swap_params_to_weights()
    model.train(trainer, 6, 8)
    if kind == "exponential" and not decay:
        trainer.swap_params_to_moving_average(bias_correction=False)
        assert np.allclose(model.values()[2], before[2] * (1 - 0.6**8), rtol=1e-5)


def test_update_frequency_and_new_parameters(dy: Any) -> None:
    pc = dy.ParameterCollection()
    p = pc.parameters_from_numpy(np.zeros(1))
    trainer = dy.SimpleSGDTrainer(pc, 1.0)
    trainer.cumulative_moving_average(update_freq=2)
    late = None
    for step in range(5):
        if step == 2:
            late = pc.parameters_from_numpy(np.ones(1))
        dy.renew_cg()
        (p * -1.0).backward()
        trainer.update()
    last = pc.parameters_from_numpy(np.full(1, 7.0))
    trainer.swap_params_to_moving_average(save_weights=False)
    assert p.as_array().tolist() == [3.0], "of 2 and 4"
    assert late.as_array().tolist() == [1.0] and last.as_array().tolist() == [7.0]
    dy.renew_cg()
    (p * -1.0).backward()
    trainer.update()  # goes on from there: the weights were not kept
    assert p.as_array().tolist() == [4.0]


def test_wrong_use_of_means(dy: Any) -> None:
    trainer = dy.SimpleSGDTrainer(Model(dy).pc)
    for call in (trainer.swap_params_to_moving_average, trainer.swap_params_to_weights):
        with pytest.raises(RuntimeError, match="no moving average"):
            call()
    for beta in (1.0, -0.1, float("nan")):
        with pytest.raises(ValueError):
            trainer.exponential_moving_average(beta)
    with pytest.raises(ValueError):
        trainer.cumulative_moving_average(0)
    with pytest.raises(TypeError):
        trainer.exponential_moving_average()
    assert trainer.moving_average() == "none"
    trainer.cumulative_moving_average()
    trainer.update()
    trainer.swap_params_to_moving_average()
    for call in (lambda: trainer.exponential_moving_average(0.5), lambda: trainer.save("nowhere")):
        with pytest.raises(RuntimeError, match="swap_params_to_weights"):
            call()


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_training_goes_on_as_if_never_stopped(dy: Any, kind: str, average: bool, tmp_path: Path) -> None:
    def make(model: Model) -> Any:
        return getattr(dy, kind)(model.pc, *KINDS[kind])

    first, path = Model(dy), tmp_path / "trainer"
    trainer = make(first)
    if average:
        trainer.exponential_moving_average(0.8)
    trainer.set_sparse_updates(False)
    trainer.set_clip_threshold(2.5)
    first.train(trainer, 0, 4)
    trainer.learning_rate = 0.07
    trainer.save(path)
    first.frozen.scale_gradient(0)  # a frozen parameter's gradient grows, counts in the norm and is not state
    second = Model(dy, seed=2)
    for p, q in zip((first.W, first.frozen), (second.W, second.frozen)):
        q.set_value(p.as_array())
    second.E.init_from_array(first.E.as_array())
    again = make(second)
    again.populate(str(path))
    assert again.learning_rate == trainer.learning_rate and again.get_clip_threshold() == 2.5
    assert again.moving_average() == trainer.moving_average()
    assert np.allclose(first.train(trainer, 4, 10), second.train(again, 4, 10), rtol=1e-6)
    trainer.save(path)
    again.save(tmp_path / "again")
    if kind not in ("AdamTrainer", "AmsgradTrainer", "AdamWTrainer"):  # beta^t by power or by product
        assert path.read_bytes() == (tmp_path / "again").read_bytes()
    if average:
        trainer.swap_params_to_moving_average()
        again.swap_params_to_moving_average()
        for got, want in zip(second.values(), first.values()):
            assert np.allclose(got, want, rtol=1e-6)
    again = make(Model(dy))
    again.populate(path, learning_rate=0.5)
    assert again.learning_rate == 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_state_dict(dy: Any, kind: str) -> None:
    def make(model: Model) -> Any:
        return getattr(dy, kind)(model.pc, *KINDS[kind])

    first = Model(dy)
    trainer = make(first)
    trainer.exponential_moving_average(0.8)
    trainer.set_clip_threshold(2.5)
    first.train(trainer, 0, 4)
    trainer.learning_rate = 0.07
    state = {"model": first.pc.state_dict(), "trainer": trainer.state_dict()}
    state = pickle.loads(pickle.dumps(state))
    assert state["trainer"]["updates"] == 4 and set(state["trainer"]["state"]) == {"W", "s/E", "_0"}
    first.frozen.scale_gradient(0)
    second = Model(dy, seed=2)
    second.pc.load_state_dict(state["model"])
    again = make(second)
    again.load_state_dict(state["trainer"])
    assert again.learning_rate == trainer.learning_rate and again.get_clip_threshold() == 2.5
    assert again.moving_average() == "exponential"
    assert np.allclose(first.train(trainer, 4, 10), second.train(again, 4, 10), rtol=1e-6)
    for t in (trainer, again):
        t.swap_params_to_moving_average()
    for got, want in zip(second.values(), first.values()):
        assert np.allclose(got, want, rtol=1e-6)


def test_state_dict_has_the_layout_of_the_parameters(dy: Any) -> None:
    pc = dy.ParameterCollection()
    p = pc.parameters_from_numpy(np.zeros((2, 3)), name="p")
    table = pc.add_lookup_parameters((4, 2, 3), init=0, name="t")
    trainer = dy.MomentumSGDTrainer(pc, 1.0)
    trainer.set_clip_threshold(0)
    assert trainer.state_dict()["state"]["p"] == {"arrays": [], "mean": None, "mean_count": 0}
    weights = np.arange(6.0).reshape(2, 3)
    (dy.sum_elems(dy.cmult(p, dy.inputTensor(weights)))
     + dy.sum_elems(dy.cmult(table[1], dy.inputTensor(weights)))).backward()  # fmt: skip
    trainer.update()
    state = trainer.state_dict()["state"]
    assert state["p"]["arrays"][0].tolist() == (-weights).tolist() == p.as_array().tolist()
    assert state["t"]["arrays"][0].tolist() == table.as_array().tolist()


def test_wrong_state_dicts(dy: Any) -> None:
    model = Model(dy)
    trainer = dy.AdamTrainer(model.pc, 0.5)
    model.train(trainer, 0, 2)
    good, again = trainer.state_dict(), dy.AdamTrainer(Model(dy).pc)
    fresh = pickle.dumps(again.state_dict())

    def refused(error: Any, match: str, **changed: Any) -> None:
        with pytest.raises(error, match=match):
            again.load_state_dict({**good, **changed})
        assert pickle.dumps(again.state_dict()) == fresh, "a refused state has changed something"

    own = good["state"]["W"]
    refused(ValueError, "the state of AdagradTrainer for AdamTrainer", trainer="AdagradTrainer")
    refused(ValueError, "missing +W", state={k: v for k, v in good["state"].items() if k != "W"})
    refused(ValueError, "unexpected +x", state={**good["state"], "x": own})
    refused(ValueError, r"mismatching +W: got \(2, 2\)",
            state={**good["state"], "W": {**own, "arrays": [np.zeros((2, 2))] * 2}})  # fmt: skip
    refused(ValueError, "mismatching +W: got 1 arrays, wanted 2", state={
        **good["state"], "W": {**own, "arrays": own["arrays"][:1]}})  # fmt: skip
    refused(ValueError, "average none, cumulative, exponential", average="sometimes")
    refused(ValueError, "moving_average", average="exponential", average_beta=2.0)
    refused(TypeError, "expected a dict", state=3)
    refused(ValueError, "could not convert", learning_rate="fast")
    with pytest.raises(ValueError, match="lacks updates"):
        again.load_state_dict({k: v for k, v in good.items() if k != "updates"})
    again.load_state_dict(good)
    assert again.learning_rate == 0.5


def test_wrong_files(dy: Any, tmp_path: Path) -> None:
    model, path = Model(dy), tmp_path / "t"
    trainer = dy.AdamTrainer(model.pc)
    trainer.cumulative_moving_average()
    model.train(trainer, 0, 3)
    trainer.save(path)
    text = path.read_text()
    again = dy.AdamTrainer(Model(dy).pc, 0.5)
    again.save(tmp_path / "fresh")
    fresh = (tmp_path / "fresh").read_text()
    lines = text.split("\n")
    bad = [text[:n] for n in range(0, len(text), 7)]  # cut off anywhere
    bad += ["\n".join(lines[:n] + [line + " 1"] + lines[n + 1 :]) for n, line in enumerate(lines)]
    bad += ["\n".join(lines[:n] + lines[n + 1 :]) for n in range(len(lines) - 1)]
    bad += [
        text.replace("/W", "/V"),
        text.replace("{3,2}", "{2,3}"),
        text.replace("Adam", "Amsgrad"),
        text + "x",
    ]
    bad += [
        text.replace("#Trainer# 1", "#Trainer# 2"),
        text.replace("updates 3", "updates -3"),
        "",
        "\x00" * 99,
    ]
    bad += [text.replace("average 1", "average 9"), text.replace("average_every 1", "average_every 0")]
    for content in bad:
        path.write_text(content)
        with pytest.raises(RuntimeError, match=r"populate\(\): .*:\d+: expected .*, found "):
            again.populate(path)
    again.save(path)
    assert path.read_text() == fresh, "a refused file has changed nothing"
    with pytest.raises(RuntimeError, match="nowhere"):
        again.populate(tmp_path / "nowhere")
    with pytest.raises(RuntimeError, match="cannot write"):
        again.save(tmp_path / "no" / "such" / "folder")
    with pytest.raises(TypeError):
        again.save(3)
    other = dy.ParameterCollection()
    other.add_parameters((3, 2), name="W")
    with pytest.raises(RuntimeError, match="expected parameters 1, found 'parameters 2'"):
        dy.AdamTrainer(other).populate(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fresh", "t"], "no rests of files"
