"""Copies and pickles of collections with their parameters."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
from typing import Any, Callable

import numpy as np
import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="DyNet copies no collection")


def pickled(item: Any) -> Any:
    return pickle.loads(pickle.dumps(item))


WAYS = [pytest.param(copy.deepcopy, id="deepcopy"), pytest.param(pickled, id="pickle")]


class Net:
    """A model as programs write them: a collection, a part of it, and their parameters."""

    def __init__(self, dy: Any) -> None:
        self.pc = dy.ParameterCollection()
        self.pc.set_weight_decay(0.125)
        self.W = self.pc.add_parameters((2, 3))
        self.part = self.pc.add_subcollection("part")
        self.E = self.part.add_lookup_parameters((5, 3, 2), name="E")
        self.b = self.part.add_parameters(2, name="b")
        self.inner = self.part.add_subcollection()
        self.b.set_updated(False)


@pytest.mark.parametrize("again", WAYS)
def test_whole_model(dy: Any, again: Callable[[Any], Any]) -> None:
    net = Net(dy)
    trainer = dy.SimpleSGDTrainer(net.pc)
    trainer.update()  # a factor of weight decay
    made = again(net)
    for mine, its in ((net.W, made.W), (net.E, made.E), (net.b, made.b)):
        assert its.name() == mine.name() and its.shape() == mine.shape()
        assert np.array_equal(its.as_array(), mine.as_array())
        dy.renew_cg()
        assert np.array_equal(np.asarray(its), np.asarray(mine)), "the factor of weight decay is lost"
    assert not made.b.is_updated() and made.W.is_updated()
    assert made.pc.get_weight_decay() == made.part.get_weight_decay() == 0.125
    made.W.set_value(np.zeros((2, 3)))
    assert net.W.as_array().any(), "the copy shares its values with the original"
    assert not made.pc.parameters_list()[0].as_array().any(), "the copy's parameter is not its collection's"
    assert [p.name() for p in made.part.parameters_list()] == ["/part/b"]
    made.part.add_parameters(4, name="b")
    assert [p.name() for p in made.pc.parameters_list()] == ["/_0", "/part/b", "/part/b_1"]
    assert made.part.add_subcollection().name() == "/part/_1/", "the names go on where they were"
    assert made.inner.add_parameters(1).name() == "/part/_0/_0"
    assert len(net.pc.parameters_list()) == 2


@pytest.mark.parametrize("again", WAYS)
def test_parts_stand_for_their_tree(dy: Any, again: Callable[[Any], Any]) -> None:
    net = Net(dy)
    b, part = again([net.b, net.part])
    b.set_value(np.ones(2))
    assert part.parameters_list()[0].as_array().tolist() == [1, 1]
    lstm = dy.GRUBuilder(1, 2, 3, net.pc)
    one, same = again((lstm.param_collection(), lstm.param_collection()))
    one.add_parameters(1, name="late")
    assert same.parameters_list()[-1].name().endswith("/late"), "one sub-collection became two"
    W = again(net.W)
    assert np.array_equal(W.as_array(), net.W.as_array())
    dy.renew_cg()
    (dy.sum_elems(W)).backward()
    assert W.grad_as_array().any() and not net.W.grad_as_array().any()


@pytest.mark.parametrize("again", WAYS)
def test_copy_trains_like_the_original(dy: Any, again: Callable[[Any], Any]) -> None:
    def losses(net: Net) -> list[float]:
        trainer, found = dy.AdamTrainer(net.pc), []
        for step in range(4):
            dy.renew_cg()
            loss = dy.squared_norm(net.W * net.E[step] - 1)
            found.append(loss.value())
            loss.backward()
            trainer.update()
        return found

    net = Net(dy)
    made = again(net)
    assert losses(made) == losses(net)


def test_subclass_keeps_class_and_attributes(dy: Any) -> None:
    class Named(dy.ParameterCollection):  # type: ignore[misc,name-defined]
        def __init__(self, label: str) -> None:
            self.label = label

    pc = Named("mine")
    pc.add_parameters(3)
    for again in (copy.deepcopy, copy.copy):
        made = again(pc)
        assert type(made) is Named and made.label == "mine" and made.parameter_count() == 3


def test_shallow_copy_is_the_same_collection(dy: Any) -> None:
    net = Net(dy)
    pc, W = copy.copy(net.pc), copy.copy(net.W)
    W.set_value(np.zeros((2, 3)))
    pc.add_parameters(1)
    assert not net.W.as_array().any() and len(net.pc.parameters_list()) == 3


def test_parameter_without_its_collection(dy: Any) -> None:
    W = dy.ParameterCollection().add_parameters(2)
    gc.collect()
    with pytest.raises(TypeError, match="ParameterCollection of Parameter /_0 is gone"):
        copy.deepcopy(W)


def test_another_process_reads_the_pickle(dy: Any, tmp_path: Any) -> None:
    net = Net(dy)
    (tmp_path / "net.pickle").write_bytes(pickle.dumps((net.pc, net.E)))
    program = (
        "import pickle, sys; sys.path[:] = {!r}\n"
        "pc, E = pickle.load(open({!r}, 'rb'))\n"
        "print(pc.parameter_count(), E.name(), float(E.as_array().sum()))\n"
    ).format(sys.path, str(tmp_path / "net.pickle"))
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    count, name, total = said.stdout.split() or [said.stderr] * 3
    assert (int(count), name) == (net.pc.parameter_count(), "/part/E")
    assert np.isclose(float(total), net.E.as_array().sum(), rtol=1e-12)
