"""Models leave and come back: array interfaces of parameters, dicts of arrays, safetensors files."""

from __future__ import annotations

import builtins
import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="additions")
KNOWS_READ_ONLY = tuple(map(int, np.__version__.split(".")[:2])) >= (2, 1)
# A device hands out its own memory: tests/cuda/test_exchange_on_device.py.
on_the_cpu = pytest.mark.skipif(
    os.environ.get("DYNET_COMPAT_DEVICE", "cpu") != "cpu", reason="parameters are on a device"
)
ROOT = Path(__file__).resolve().parent.parent.parent


def model(dy: Any, seed: int = 1) -> Any:
    """Parameters of several shapes, tables, sub-collections."""
    dy.reset_random_seed(seed)
    pc = dy.ParameterCollection()
    pc.add_parameters((2, 3), name="W")
    pc.add_parameters(4, name="b")
    pc.add_parameters((2, 3, 2))
    words = pc.add_subcollection("words")
    words.add_lookup_parameters((5, 3), name="E")
    words.add_lookup_parameters((4, 2, 3), name="T")
    dy.LSTMBuilder(1, 3, 2, pc)
    return pc


def everything(pc: Any) -> list[Any]:
    return [*pc.parameters_list(), *pc.lookup_parameters_list()]


# ---------------------------------------------------------------- views


@on_the_cpu
def test_views_are_no_copies(dy: Any) -> None:
    for p in everything(model(dy)):
        view = np.asarray(p)
        assert view.dtype == np.float32 and view.shape == p.shape() and np.array_equal(view, p.as_array())
        again = p.__array__()
        taken = np.from_dlpack(p)  # NumPy before 2.1 cannot be told that memory is read-only
        assert np.array_equal(view, taken) and np.shares_memory(view, taken) == KNOWS_READ_ONLY
        for other in (np.asarray(p), again, np.asarray(Interface(p))):
            assert np.shares_memory(view, other) and np.array_equal(view, other)
            assert other.shape == view.shape
        for array in (view, again):
            assert not array.flags.writeable
            with pytest.raises(ValueError):
                array[...] = 0
            with pytest.raises(ValueError):
                array.flags.writeable = True
        own = np.array(p)
        assert own.flags.writeable and not np.shares_memory(own, view)
        assert p.__dlpack_device__() == (1, 0)


class Interface:
    """Something that has `__array_interface__` alone."""

    def __init__(self, owner: Any) -> None:
        self.__array_interface__ = owner.__array_interface__


def test_a_view_shows_its_moment(dy: Any) -> None:
    """Changes of every kind go elsewhere; the next view shows them."""
    for writer in (
        lambda p, pc: p.zero(),
        lambda p, pc: p.scale(2),
        lambda p, pc: p.set_value(np.ones(p.shape())),
        lambda p, pc: p.clip_inplace(-0.1, 0.1),
        lambda p, pc: pc.load_state_dict({"W": np.zeros((2, 3))}, strict=False),
        train,
    ):
        pc = model(dy)
        p = pc.parameters_list()[0]
        view, before = np.asarray(p), p.as_array()
        writer(p, pc)
        assert np.array_equal(view, before)
        assert not np.array_equal(p.as_array(), before)
        now = np.asarray(p)
        assert np.array_equal(now, p.as_array()) and not np.shares_memory(now, view)
        writer(p, pc)
        assert np.array_equal(view, before)


def train(p: Any, pc: Any) -> None:
    import dynet_compat as dy

    dy.renew_cg()
    loss = dy.squared_norm(p) + dy.squared_norm(pc.lookup_parameters_list()[0][1])
    loss.backward()
    dy.AdamTrainer(pc, 0.1).update()


def test_views_of_tables_while_rows_change(dy: Any) -> None:
    pc = model(dy)
    table = pc.lookup_parameters_list()[0]
    views, copies = [], []
    for step in range(6):
        if step % 2:
            table.init_row(step % 5, [step, step, step])
        else:
            train(pc.parameters_list()[0], pc)
        views.append(np.asarray(table))
        copies.append(table.as_array())
        if step > 3:  # let some go, so that their memory is used again
            del views[0], copies[0]
            gc.collect()
        for view, copy in zip(views, copies):
            assert np.array_equal(view, copy)


def test_views_outlive_everything(dy: Any) -> None:
    pc = model(dy)
    views = [np.asarray(p) for p in everything(pc)]
    copies = [p.as_array() for p in everything(pc)]
    interfaces = [p.__array_interface__ for p in everything(pc)]
    train(pc.parameters_list()[0], pc)
    del pc
    gc.collect()
    dy.renew_cg()
    noise = [np.ones(1000) for _ in range(100)]
    for view, copy, interface in zip(views, copies, interfaces):
        assert np.array_equal(view, copy)
        holder = type("Holder", (), {"__array_interface__": interface})()
        assert np.array_equal(np.asarray(holder), copy)
    assert len(noise) == 100


def test_a_graph_and_a_view_hold_the_same_values(dy: Any) -> None:
    pc = model(dy)
    p = pc.parameters_list()[0]
    dy.renew_cg()
    y = p * 1
    first = y.npvalue()
    view = np.asarray(p)
    train_value = np.full((2, 3), 7.0)
    p.set_value(train_value)
    del view
    gc.collect()
    p.set_value(train_value * 2)
    assert np.array_equal(y.npvalue(), first)
    assert np.array_equal(p.npvalue(recalculate=True), train_value * 2)


@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer keeps what is freed")
def test_memory_does_not_grow(dy: Any) -> None:
    """A view per step, as a logger takes: at most the current buffer, a spare and what is viewed."""
    import resource

    pc = dy.ParameterCollection()
    p = pc.add_parameters((1000, 1000))
    value = np.ones((1000, 1000), dtype=np.float32)

    def step() -> None:
        view = np.asarray(p)
        p.set_value(value)
        assert view.shape == (1000, 1000)

    for _ in range(5):
        step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(100):
        step()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000  # KiB; a leak takes 400,000


@on_the_cpu
def test_copy_argument_of_parameters(dy: Any) -> None:
    p = dy.ParameterCollection().add_parameters((2, 3))
    view = p.__array__(copy=False)
    assert np.shares_memory(view, p.__array__(np.float32))
    assert not np.shares_memory(view, p.__array__(copy=True)) and p.__array__(copy=True).flags.writeable
    assert p.__array__(dtype="f8").dtype == np.float64
    with pytest.raises(ValueError, match="copy=False"):
        p.__array__(np.float64, copy=False)
    with pytest.raises(BufferError):
        p.__dlpack__(copy=False)
    if KNOWS_READ_ONLY:
        assert np.shares_memory(np.from_dlpack(p, copy=False), view)
        assert not np.shares_memory(np.from_dlpack(p, copy=True), view)


@on_the_cpu
def test_weight_decay(dy: Any) -> None:
    """Views and dicts have the values that graphs see; as_array() has not, as in DyNet."""
    pc = dy.ParameterCollection()
    p = pc.parameters_from_numpy(np.array([1.0, 2.0]), name="p")
    table = pc.lookup_parameters_from_numpy(np.array([[1.0], [2.0]]), name="t")
    pc.set_weight_decay(0.25)
    dy.renew_cg()
    (dy.squared_norm(p) * 0).backward()
    dy.SimpleSGDTrainer(pc, 0.1).update()
    dy.renew_cg()
    assert p.value() == [0.75, 1.5] and p.as_array().tolist() == [1, 2]
    view = np.asarray(p)
    assert view.tolist() == [0.75, 1.5] == np.from_dlpack(p).tolist() == np.array(p).tolist()
    assert np.asarray(table).tolist() == [[0.75], [1.5]]
    with pytest.raises(ValueError, match="copy=False"):
        p.__array__(copy=False)
    with pytest.raises(BufferError, match="weight decay"):
        p.__dlpack__(max_version=(1, 0), copy=False)
    state = pc.state_dict()
    assert state["p"].tolist() == [0.75, 1.5] and state["t"].tolist() == [[0.75], [1.5]]
    other = dy.ParameterCollection()
    q = other.add_parameters(2, name="p")
    other.load_state_dict(state, strict=False)
    pc.load_state_dict(state)
    dy.renew_cg()
    assert q.value() == [0.75, 1.5] and np.allclose(p.value(), [0.75, 1.5])
    assert np.allclose(table.npvalue(), [[0.75, 1.5]])


# ---------------------------------------------------------------- dicts


def test_state_dict(dy: Any) -> None:
    pc = model(dy)
    state = pc.state_dict()
    lstm = ["vanilla-lstm-builder/_0", "vanilla-lstm-builder/_1", "vanilla-lstm-builder/_2"]
    assert list(state) == ["W", "b", "_0", *lstm, "words/E", "words/T"]
    for p, (name, array) in zip(everything(pc), state.items()):
        assert p.name() == "/" + name
        assert array.dtype == np.float32 and array.flags.c_contiguous and array.flags.writeable
        assert np.array_equal(array, p.as_array())
        array[...] = 0  # a copy
        assert np.abs(p.as_array()).max() > 0 or name.endswith("_2")
    words = pc.add_subcollection("words")  # another one of that name
    words.add_parameters(2, name="x")
    assert list(words.state_dict()) == ["x"] and "words_1/x" in pc.state_dict()
    assert dy.ParameterCollection().state_dict() == {}


def test_round_trip(dy: Any) -> None:
    pc, other = model(dy, 1), model(dy, 2)
    state = pc.state_dict()
    assert any(not np.array_equal(state[n], a) for n, a in other.state_dict().items())
    assert other.load_state_dict(state) == ([], [])
    for name, array in other.state_dict().items():
        assert np.array_equal(array, state[name])
    # A part under another name: names are relative.
    part, whole = dy.ParameterCollection(), dy.ParameterCollection()
    a = dy.GRUBuilder(1, 3, 2, part)
    dy.GRUBuilder(1, 3, 2, whole)
    b = dy.GRUBuilder(1, 3, 2, whole)
    b.param_collection().load_state_dict(a.param_collection().state_dict())
    for left, right in zip(a.get_parameters()[0], b.get_parameters()[0]):
        assert np.array_equal(left.as_array(), right.as_array())


@pytest.mark.parametrize("dtype", ["f2", "f8", ">f4", "i4", "?"])
def test_other_types_are_converted(dy: Any, dtype: str) -> None:
    pc = dy.ParameterCollection()
    p = pc.add_parameters((2, 3), name="W")
    table = pc.add_lookup_parameters((2, 2, 3), name="T")
    array = np.arange(6).reshape(2, 3).astype(dtype)
    rows = np.asfortranarray(np.arange(12).reshape(2, 2, 3).astype(dtype))
    pc.load_state_dict({"W": array[:, ::-1], "T": rows})
    assert p.as_array().tolist() == array[:, ::-1].astype(float).tolist()
    assert np.array_equal(table.as_array(), rows.astype(float))
    pc.load_state_dict({"W": array.tolist(), "T": table.tensor_value().as_numpy().transpose(2, 0, 1)})
    assert p.as_array().tolist() == array.astype(float).tolist()
    assert np.array_equal(table.as_array(), rows.astype(float))


def test_swap_through_views(dy: Any) -> None:
    pc = dy.ParameterCollection()
    a = pc.parameters_from_numpy(np.array([1.0, 2.0]), name="a")
    b = pc.parameters_from_numpy(np.array([3.0, 4.0]), name="b")
    pc.load_state_dict({"a": b, "b": a})
    assert a.as_array().tolist() == [3, 4] and b.as_array().tolist() == [1, 2]


def test_load_checks_everything_first(dy: Any) -> None:
    pc = model(dy)
    before = pc.state_dict()
    state = {name: array + 1 for name, array in before.items()}
    wrong: dict[str, Any] = {
        **state,
        "b": np.ones(5),
        "words/T": "text",
        "words/E": np.ones((5, 3), dtype=complex),
        "extra": np.ones(2),
    }
    del wrong["_0"]
    with pytest.raises(ValueError) as caught:
        pc.load_state_dict(wrong)
    text = str(caught.value)
    assert text.splitlines() == [
        "load_state_dict(): nothing was loaded into /, which does not fit:",
        "  missing      _0: wanted (2, 3, 2)",
        "  unexpected   extra",
        "  mismatching  b: got (5,), wanted (4,)",
        "  mismatching  words/E: got an array of complex128, wanted numbers (5, 3)",
        "  mismatching  words/T: got an array of <U4, wanted numbers (4, 2, 3)",
    ]
    with pytest.raises(ValueError, match=r"mismatching  b") as caught:
        pc.load_state_dict(wrong, strict=False)
    assert "missing" not in str(caught.value)
    for name, array in pc.state_dict().items():
        assert np.array_equal(array, before[name]), f"{name} was loaded"
    for not_a_dict in (None, [("b", np.ones(4))], "b", 3):
        with pytest.raises(TypeError, match="load_state_dict"):
            pc.load_state_dict(not_a_dict)

    class Broken:
        def __array__(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("no")

    with pytest.raises(ValueError, match="gives no array"):
        pc.load_state_dict({**state, "b": Broken()})
    for name, array in pc.state_dict().items():
        assert np.array_equal(array, before[name])


def test_load_without_strict(dy: Any) -> None:
    pc = model(dy)
    before = pc.state_dict()
    result = pc.load_state_dict({"b": np.arange(4), "other": np.ones(3)}, strict=False)
    assert result.missing == [name for name in before if name != "b"] and result.unexpected == ["other"]
    after = pc.state_dict()
    assert after["b"].tolist() == [0, 1, 2, 3]
    assert all(np.array_equal(after[name], before[name]) for name in before if name != "b")
    many = {f"extra{n}": np.ones(1) for n in range(100)}
    with pytest.raises(ValueError, match=r"and \d+ more") as caught:
        pc.load_state_dict(many)
    assert len(str(caught.value).splitlines()) < 50


def test_training_goes_on_after_a_load(dy: Any) -> None:
    """Values change, accumulated gradients and what trainers keep do not."""
    pc = dy.ParameterCollection()
    p = pc.parameters_from_numpy(np.array([1.0, 2.0]), name="p")
    trainer = dy.SimpleSGDTrainer(pc, 0.5)
    dy.renew_cg()
    dy.squared_norm(p).backward()
    pc.load_state_dict({"p": np.array([10.0, 20.0])})
    assert p.grad_as_array().tolist() == [2, 4]
    trainer.update()
    assert np.allclose(p.as_array(), [9, 18])


# ---------------------------------------------------------------- safetensors


def test_safetensors(dy: Any, tmp_path: Path) -> None:
    numpy_api = pytest.importorskip("safetensors.numpy")
    pc, other = model(dy, 1), model(dy, 2)
    path = tmp_path / "model.safetensors"
    dy.save_safetensors(path, pc)
    assert os.listdir(tmp_path) == ["model.safetensors"]
    stored = numpy_api.load_file(str(path))
    assert stored.keys() == pc.state_dict().keys()
    for name, array in pc.state_dict().items():
        assert np.array_equal(stored[name], array) and stored[name].dtype == np.float32
    assert dy.load_safetensors(str(path), other) == ([], [])
    for name, array in other.state_dict().items():
        assert np.array_equal(stored[name], array)
    dy.save_safetensors(path, other)  # replaces
    builder = dy.LSTMBuilder(1, 3, 2, dy.ParameterCollection())
    with pytest.raises(ValueError, match="nothing was loaded") as caught:
        dy.load_safetensors(path, builder)
    assert str(path) in str(caught.value)
    numpy_api.save_file({"b": np.arange(4)}, str(path))
    assert dy.load_safetensors(path, pc, strict=False).missing[0] == "W"
    assert pc.state_dict()["b"].tolist() == [0, 1, 2, 3]


def test_damaged_files(dy: Any, tmp_path: Path) -> None:
    """Errors that name the file; nothing is loaded."""
    pytest.importorskip("safetensors.numpy")
    pc = model(dy)
    before = pc.state_dict()
    path = tmp_path / "model.safetensors"
    dy.save_safetensors(path, model(dy, 2))
    data = path.read_bytes()
    rng = np.random.RandomState(5)
    refused = 0
    for trial in range(300):
        bad = bytearray(data)
        if trial < 60:
            bad = bad[: len(bad) * trial // 60]
        elif trial < 240:
            bad[rng.randint(0, 200)] = rng.randint(0, 256)
        else:
            bad += bytes(trial)
        path.write_bytes(bytes(bad))
        try:
            dy.load_safetensors(path, pc)
        except ValueError as error:
            refused += 1
            assert str(path) in str(error)
            for name, array in pc.state_dict().items():
                assert np.array_equal(array, before[name])
        else:
            pc.load_state_dict(before)
    assert refused > 200
    with pytest.raises(FileNotFoundError):
        dy.load_safetensors(tmp_path / "none", pc)
    for wrong in (None, 3, {}, "model"):
        with pytest.raises(TypeError, match="ParameterCollection"):
            dy.load_safetensors(path, wrong)
        with pytest.raises(TypeError, match="ParameterCollection"):
            dy.save_safetensors(path, wrong)


def test_saving_is_all_or_nothing(dy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("safetensors.numpy")
    pc = model(dy)
    path = tmp_path / "model.safetensors"
    dy.save_safetensors(path, pc)
    data = path.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError("no space")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fail)
            with pytest.raises(OSError, match="no space"):
                dy.save_safetensors(path, model(dy, 2))
        assert path.read_bytes() == data and os.listdir(tmp_path) == [path.name]
    with pytest.raises(OSError):
        dy.save_safetensors(tmp_path / "no folder" / "x", pc)


def test_missing_package(dy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.split(".")[0] == "safetensors":
            raise ModuleNotFoundError("No module named 'safetensors'")
        return original(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    path = tmp_path / "x"
    path.write_bytes(b"")
    with pytest.raises(ImportError, match="pip install safetensors"):
        dy.save_safetensors(path, dy.ParameterCollection())
    with pytest.raises(ImportError, match="pip install safetensors"):
        dy.load_safetensors(path, dy.ParameterCollection())


# ---------------------------------------------------------------- the example


@pytest.mark.parametrize("arguments", [[], ["--layers", "1", "--hidden", "5"], ["--save"]])
def test_example(dy: Any, arguments: list[str], tmp_path: Path) -> None:
    if "--save" in arguments:
        pytest.importorskip("safetensors.numpy")
        arguments = ["--save", str(tmp_path / "lstm.safetensors")]
    command = [sys.executable, str(ROOT / "examples" / "export_weights.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "NumPy: largest difference of" in done.stdout
