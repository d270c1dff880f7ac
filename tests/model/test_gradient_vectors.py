"""Gradients of a collection as one array and back, functions before an update, and hashes."""

from __future__ import annotations

import gc
import json
import time
import timeit
import weakref
from pathlib import Path
from typing import Any

import dynet_compat as dy
import numpy as np
import pytest


class Model:
    def __init__(self) -> None:
        self.pc = dy.ParameterCollection()
        self.W = self.pc.add_parameters((3, 4), init="normal", name="W")
        self.unused = self.pc.add_parameters(2, name="unused")
        self.inner = self.pc.add_subcollection("inner").add_parameters(4, init="normal", name="W")
        self.E = self.pc.add_lookup_parameters((10, 2, 3), init="normal", name="E")

    def every(self) -> list[Any]:
        return [self.W, self.unused, self.inner, self.E]

    def gradients(self) -> list[Any]:
        return [p.grad_as_array().tolist() for p in self.every()]

    def accumulate(self, rows: tuple[int, ...] = (7, 2)) -> None:
        dy.renew_cg()
        h = dy.squared_norm(self.W * dy.inputVector([1, -2, 3, 4])) + dy.squared_norm(self.inner)
        dy.esum([h, *(dy.squared_norm(dy.transpose(self.E[row])) for row in rows)]).backward()


def test_gradients_come_back_bit_for_bit() -> None:
    model = Model()
    model.accumulate()
    wanted = model.gradients()
    vector, contents = model.pc.gradients_to_vector()
    assert [(e.name, e.offset, e.shape) for e in contents] == [
        ("/W", 0, (3, 4)), ("/inner/W", 12, (4,)), ("/E", 16, (2, 2, 3))
    ]  # fmt: skip
    assert contents[2].rows is not None and contents[2].rows.tolist() == [2, 7]
    assert vector.dtype == np.float32 and vector.shape == (28,)
    model.accumulate((1,))
    model.unused.set_gradient([1, 2])
    model.pc.vector_to_gradients(vector, contents)
    assert model.gradients() == wanted and model.E.touched_rows().tolist() == [2, 7]
    assert not model.unused.has_gradient(), "it is not in the vector"


def test_views_have_the_shapes_of_gradients() -> None:
    model = Model()
    model.accumulate()
    vector, contents = model.pc.gradients_to_vector()
    W, inner, E = (entry.view(vector) for entry in contents)
    assert W.tolist() == model.W.grad_as_array().tolist()
    assert E.tolist() == model.E.rows_grad_as_array([2, 7]).tolist()
    W[1, 2] = 5  # in the vector
    E[1, 0, 2] = 6
    model.pc.vector_to_gradients(vector, contents)
    assert model.W.grad_as_array()[1, 2] == 5 and model.E.row_grad_as_array(7)[0, 2] == 6


def test_dense_contents_depend_on_the_model_only() -> None:
    models = [Model(), Model()]
    models[0].accumulate((1, 9))
    models[1].accumulate((3,))
    sums = [model.pc.gradients_to_vector(dense=True) for model in models]
    for one, other in zip(sums[0][1], sums[1][1]):
        assert one[:3] == other[:3] and np.array_equal(one.rows, other.rows)
    wanted = np.add(models[0].E.grad_as_array(), models[1].E.grad_as_array()).tolist()
    models[0].pc.vector_to_gradients(sums[0][0] + sums[1][0], sums[0][1])
    assert models[0].E.grad_as_array().tolist() == wanted
    assert models[0].unused.has_gradient() and len(models[0].E.touched_rows()) == 10


def test_a_collection_without_gradients() -> None:
    model = Model()
    vector, contents = model.pc.gradients_to_vector()
    assert vector.shape == (0,) and contents == []
    model.accumulate()
    model.pc.vector_to_gradients(vector, contents)
    assert not any(p.has_gradient() for p in model.every())
    empty = dy.ParameterCollection()
    empty.vector_to_gradients(*empty.gradients_to_vector(dense=True))


def test_a_sum_over_workers_is_the_update_of_one() -> None:
    """Two workers with half of the instances each, and one with all: the same step."""
    workers, alone = [Model(), Model()], Model()
    for model in (workers[1], alone):
        model.pc.load_state_dict(workers[0].pc.state_dict())
    workers[0].accumulate((1, 4))
    workers[1].accumulate((4, 6))
    alone.accumulate((1, 4, 4, 6))
    for p in (alone.W, alone.inner):  # the instances of both
        p.set_gradient(2 * p.grad_as_array())
    parts = [worker.pc.gradients_to_vector(dense=True) for worker in workers]
    for worker in workers:
        worker.pc.vector_to_gradients(parts[0][0] + parts[1][0], parts[0][1])
        dy.SimpleSGDTrainer(worker.pc).update()
    dy.SimpleSGDTrainer(alone.pc).update()
    assert workers[0].pc.values_hash() == workers[1].pc.values_hash()
    for name, wanted in alone.pc.state_dict().items():
        np.testing.assert_allclose(workers[0].pc.state_dict()[name], wanted, rtol=1e-6, atol=1e-7)


def changes_nothing(error: type[Exception], change: Any, says: str) -> None:
    """`vector_to_gradients()` of the changed vector and contents raises this error."""
    model = Model()
    model.accumulate()
    before = model.gradients()
    with pytest.raises(error, match=says):
        model.pc.vector_to_gradients(*change(*model.pc.gradients_to_vector()))
    assert model.gradients() == before


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda v, c: (v[:-1], c), r"28 elements.*\(27,\)"),
        (lambda v, c: (v.reshape(4, 7), c), r"28 elements.*\(4, 7\)"),
        (lambda v, c: (v, [c[0]._replace(name="/V"), *c[1:]]), "names of parameters.*'/V'"),
        (lambda v, c: (v, [*c, c[0]]), "each parameter once.*'/W'"),
        (lambda v, c: (v, [c[0]._replace(shape=(4, 3)), *c[1:]]), r"/W, parameters of \(3, 4\); got \(4"),
        (lambda v, c: (v, [*c[:2], c[2]._replace(rows=None)]), r"/E, a table of \(10, 2, 3\); got"),
        (lambda v, c: (v, [*c[:2], c[2]._replace(rows=np.uint32([2, 10]))]), "rows below 10 of /E"),
        (lambda v, c: (v, [*c[:2], c[2]._replace(rows=np.uint32([7, 2]))]), "ascending rows"),
        (lambda v, c: (v, [*c[:2], c[2]._replace(rows=[-1, 2])]), "rows below 10 of /E; got .-1, 2"),
        (lambda v, c: (v, [*c[:2], c[2]._replace(rows=[1.5, 2.0])]), "ascending rows.*1.5"),
        (lambda v, c: (v, [*c[:2], c[2]._replace(rows=[[2], [7]])]), "ascending rows"),
        (lambda v, c: (v, [c[0]._replace(number=1), *c[1:]]), "'/W', number 1 of this name"),
        (lambda v, c: (v, [c[0]._replace(offset=20), *c[1:]]), "the contents that came with it"),
        (lambda v, c: (v, [c[0], c[1]._replace(offset=0), c[2]]), "the contents that came with it"),
    ],
)
def test_what_does_not_fit_changes_nothing(change: Any, says: str) -> None:
    changes_nothing(ValueError, change, says)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda v, c: (v * 1j, c), "array of real numbers, got one of complex64"),
        (lambda v, c: (["1"] * 28, c), "array of real numbers, got one of <U1"),
        (lambda v, c: (None, c), "array of real numbers, got one of object"),
        (lambda v, c: (v, ["/W"]), "entries of gradients_to_vector.., got '/W'"),
        (lambda v, c: (v, [c[0]._replace(offset=0.5), *c[1:]]), "entries of gradients_to_vector.., got Grad"),
    ],
)
def test_what_is_no_gradient_changes_nothing(change: Any, says: str) -> None:
    changes_nothing(TypeError, change, says)


def test_contents_may_travel_as_text() -> None:
    model = Model()
    model.accumulate()
    wanted = model.gradients()
    vector, contents = model.pc.gradients_to_vector()
    lists = [e._replace(rows=None if e.rows is None else e.rows.tolist()) for e in contents]
    sent = json.dumps([vector.tolist(), lists])
    model.accumulate((1,))
    model.pc.vector_to_gradients(*json.loads(sent))
    assert model.gradients() == wanted


def test_parameters_of_one_name(tmp_path: Path) -> None:
    """As two files of one collection's name give them; only the second has a gradient."""
    path = str(tmp_path / "model")
    saved = dy.ParameterCollection()
    dy.save(path, [saved.add_parameters(2, name="W"), saved.add_lookup_parameters((4, 2), name="E")])
    pc = dy.ParameterCollection()
    (_, F), (V, E) = dy.load(path, pc), dy.load(path, pc)
    assert (F.name(), F.name()) == (E.name(), E.name())
    V.set_gradient([1, 2])
    E.set_row_gradients([3], [[5, 6]])
    vector, contents = pc.gradients_to_vector()
    assert [entry.number for entry in contents] == [1, 1]
    for parameter in (V, E, F):
        parameter.set_gradient(None)
    pc.vector_to_gradients(vector, contents)
    assert V.grad_as_array().tolist() == [1, 2] and E.touched_rows().tolist() == [3]
    assert not F.has_gradient()


def test_whole_tables_between_tables_with_some_rows() -> None:
    pc = dy.ParameterCollection()
    tables = [pc.add_lookup_parameters((4, 2)) for _ in range(4)]
    tables[0].set_gradient(np.arange(8).reshape(4, 2))
    tables[2].set_gradient(10 + np.arange(8).reshape(4, 2))
    tables[3].set_row_gradients([3], [[20, 21]])
    vector, contents = pc.gradients_to_vector()
    assert vector.size == 18 and [entry.offset for entry in contents] == [0, 8, 16]
    for entry, table in zip(contents, (tables[0], tables[2], tables[3])):
        assert entry.name == table.name()
        assert entry.view(vector).tolist() == table.rows_grad_as_array(entry.rows).tolist()


def test_time_grows_with_the_number_of_parameters() -> None:
    def seconds(count: int) -> float:
        pc = dy.ParameterCollection()
        for _ in range(count):
            pc.add_parameters(1)
        # timeit: without collections of garbage, which look at the objects of all tests
        return min(timeit.repeat(lambda: pc.gradients_to_vector(dense=True), time.process_time, number=1))

    seconds(100)
    assert seconds(8000) < 25 * seconds(1000), "8 times as many; 64 times if each looked at all"


# ------------------------------------------------------------------------------- before an update


def test_functions_are_called_in_order_before_clipping() -> None:
    model, seen = Model(), []
    trainer = dy.SimpleSGDTrainer(model.pc, 1)
    trainer.set_clip_threshold(1e-3)
    trainer.before_update.append(lambda t: seen.append((t is trainer, model.W.grad_as_array().max() > 1)))
    trainer.before_update.append(lambda t: model.W.set_gradient(np.zeros((3, 4))))
    trainer.before_update.append(lambda t: seen.append(model.W.grad_as_array().any()))
    model.W.set_value(np.ones((3, 4)))
    model.accumulate()
    trainer.update()
    assert seen == [(True, True), False]
    assert (model.W.as_array() == 1).all(), "the rule used the gradient from before"


def test_an_exception_stops_the_update() -> None:
    model = Model()
    trainer = dy.AdamTrainer(model.pc)
    before = model.pc.values_hash(), trainer.state_hash()

    def refuse(_: dy.Trainer) -> None:
        raise KeyError("not now")

    trainer.before_update.append(refuse)
    model.accumulate()
    gradients = model.gradients()
    with pytest.raises(KeyError, match="not now"):
        trainer.update()
    assert (model.pc.values_hash(), trainer.state_hash()) == before and model.gradients() == gradients
    trainer.before_update.remove(refuse)
    trainer.update()
    assert model.pc.values_hash() != before[0] and trainer.state_hash() != before[1]


def test_a_function_may_take_itself_out() -> None:
    model, calls = Model(), []

    def once(trainer: dy.Trainer) -> None:
        calls.append(1)
        trainer.before_update.remove(once)

    class Own(dy.MomentumSGDTrainer):
        pass

    trainer = Own(model.pc)
    trainer.before_update.extend([once, lambda t: calls.append(2)])
    for _ in range(2):
        model.accumulate()
        trainer.update()
    assert calls == [1, 2, 2]
    with pytest.raises(AttributeError):
        trainer.before_update = []


@pytest.mark.parametrize("subclass", [False, True])
def test_a_function_that_holds_its_trainer_is_collected(subclass: bool) -> None:
    kind = type("Own", (dy.SimpleSGDTrainer,), {}) if subclass else dy.SimpleSGDTrainer
    trainer = kind(dy.ParameterCollection())

    class Noise:
        def __init__(self, trainer: dy.Trainer) -> None:
            self.trainer = trainer

        def __call__(self, _: dy.Trainer) -> None:
            pass

    noise = Noise(trainer)
    trainer.before_update.append(noise)
    gone = weakref.ref(noise)
    del noise, trainer
    gc.collect()
    assert gone() is None


def test_hashes_tell_of_every_bit() -> None:
    model = Model()
    first = model.pc.values_hash()
    value = model.W.as_array()
    changed = value.astype(np.float32)
    changed[1, 2] = np.nextafter(changed[1, 2], np.float32(9))
    model.W.set_value(changed)
    assert model.pc.values_hash() != first and len(first) == 16
    model.W.set_value(value)
    assert model.pc.values_hash() == first
