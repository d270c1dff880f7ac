"""Tree LSTM builders: their equations in NumPy, batching, dropout, and what is refused."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from support import examples
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="not in DyNet's Python API")

NAMES = ("NaryTreeLSTMBuilder", "UnidirectionalTreeLSTMBuilder", "BidirectionalTreeLSTMBuilder")
# children of each node, and whether it has an input
TREE = [([], 1), ([], 1), ([0, 1], 0), ([], 1), ([2, 3], 1), ([], 1), ([4], 0), ([5, 6, 1], 1)]


def make(dy: Any, name: str, pc: Any, layers: int = 1, size: int = 4) -> Any:
    if name == "NaryTreeLSTMBuilder":
        return dy.NaryTreeLSTMBuilder(2, layers, size, size, pc)
    return getattr(dy, name)(layers, size, size, pc)


def fill(pc: Any) -> None:
    rng = np.random.RandomState(3)
    for p in pc.parameters_list():
        p.set_value(0.5 * rng.randn(*p.shape()))


def inputs(dy: Any, size: int = 4, batch: int = 1, seed: int = 1) -> list[Any]:
    rng = np.random.RandomState(seed)
    made: list[Any] = []
    for _, has in TREE:
        x = rng.randn(size, batch)
        made.append(
            (dy.inputTensor(x, batched=True) if batch > 1 else dy.inputTensor(x[:, 0])) if has else None
        )
    return made


def s(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def nary(parameters: list[np.ndarray], n: int, layers: int, xs: list[Any]) -> list[np.ndarray]:
    """The equations, node by node."""
    at = iter(parameters)
    weights = []
    for _ in range(layers):
        layer = {}
        for gate in "ifou":
            count = n * n if gate == "f" else n
            layer[gate] = [next(at), [next(at) for _ in range(count)]]
            layer[gate].append([] if gate == "u" else [next(at) for _ in range(count)])
            layer[gate].append(next(at))
        weights.append(layer)
    nodes: list[list[tuple[np.ndarray, np.ndarray]]] = []
    for (children, _), x in zip(TREE, xs):
        node: list[tuple[np.ndarray, np.ndarray]] = []
        for number, layer in enumerate(weights):
            below = [nodes[child][number] for child in children]

            def gate(name: str, k: int = 0, x: Any = x, below: Any = below, layer: Any = layer) -> np.ndarray:
                W, U, V, b = layer[name]
                total = b + (0 if x is None else W @ x)
                for j, (h, c) in enumerate(below):
                    m = min(j, n - 1)
                    m = m * n + min(k, n - 1) if name == "f" else m
                    total = total + U[m] @ h + (V[m] @ c if V else 0)
                return total

            c = s(gate("i")) * np.tanh(gate("u"))
            for k, (_, c_k) in enumerate(below):
                c = c + s(1 + gate("f", k)) * c_k
            node.append((s(gate("o")) * np.tanh(c), c))
            x = node[-1][0]
        nodes.append(node)
    return [node[-1][0] for node in nodes]


@pytest.mark.parametrize("layers", [1, 2])
def test_nary_equations(dy: Any, layers: int) -> None:
    pc = dy.ParameterCollection()
    builder = make(dy, NAMES[0], pc, layers)
    fill(pc)
    values = [p.as_array() for p in pc.parameters_list()]
    assert len(values) == layers * 26 and builder.param_collection().name() == "/nary-tree-lstm-builder/"
    xs = inputs(dy)
    numbers = [None if x is None else x.npvalue() for x in xs]
    outputs = builder.transduce([children for children, _ in TREE], xs)
    for got, want in zip(outputs, nary(values, 2, layers, numbers)):
        assert np.allclose(got.npvalue(), want, rtol=1e-5, atol=1e-6)
    assert len(builder.h(7)) == len(builder.c(7)) == layers
    assert str(builder.output(7)) == str(outputs[7]) and dy.TreeLSTMBuilder is dy.NaryTreeLSTMBuilder


@pytest.mark.parametrize("name", NAMES[1:])
def test_chains(dy: Any, name: str) -> None:
    pc = dy.ParameterCollection()
    builder = make(dy, name, pc, 2)
    fill(pc)
    xs = inputs(dy)
    outputs = builder.transduce([children for children, _ in TREE], xs)
    size = 4 if name.startswith("Uni") else 2
    for parameters, reverse in zip((pc.parameters_list()[:6], pc.parameters_list()[6:]), (False, True)):
        if not parameters:
            continue
        lstm = dy.VanillaLSTMBuilder(2, 4, size, dy.ParameterCollection())
        for p, q in zip(parameters, lstm.param_collection().parameters_list()):
            q.set_value(p.as_array())
        for node, (children, _) in enumerate(TREE):
            below = [outputs[child] for child in children]
            if reverse:
                below.reverse()
            sequence = ([] if xs[node] is None else [xs[node]]) + below
            want = lstm.initial_state().transduce(sequence)[-1].npvalue()
            got = outputs[node].npvalue()
            assert np.allclose(got[size:] if reverse else got[:size], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_batching_changes_nothing(dy: Any, name: str) -> None:
    """Several trees with and without autobatching, and as one batch: values and gradients."""
    pc = dy.ParameterCollection()
    builder = make(dy, name, pc, 2)
    fill(pc)
    results = []
    for mode in ("single", "auto", "batch"):
        dy.renew_cg(autobatching=mode == "auto")
        losses = []
        for tree in range(1 if mode == "batch" else 3):
            if mode == "batch":
                each = [inputs(dy, seed=seed) for seed in (1, 2, 3)]
                xs = [None if x[0] is None else dy.concatenate_to_batch(list(x)) for x in zip(*each)]
            else:
                xs = inputs(dy, seed=tree + 1)
            out = builder.transduce([children for children, _ in TREE], xs)[-1]
            losses.append(dy.squared_norm(out))
        loss = dy.sum_batches(losses[0]) if mode == "batch" else dy.esum(losses)
        value = loss.value()
        loss.backward()
        results.append([np.array([value])] + [p.grad_as_array() for p in pc.parameters_list()])
        dy.SimpleSGDTrainer(pc, 0.0).update()
    for result in results[1:]:
        for got, want in zip(result, results[0]):
            assert np.allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_dropout(dy: Any, name: str) -> None:
    builder = make(dy, name, dy.ParameterCollection(), 2, 8)

    def output() -> np.ndarray:
        return builder.transduce([children for children, _ in TREE], inputs(dy, 8))[-1].npvalue()

    dy.renew_cg()
    plain = output()
    builder.set_dropout(0.5)
    dy.renew_cg()
    first, same = output(), output()
    dy.renew_cg()
    other = output()
    assert np.array_equal(first, same) and not np.array_equal(first, other)
    assert not np.array_equal(first, plain)
    builder.disable_dropout()
    dy.renew_cg()
    assert np.array_equal(output(), plain)
    for wrong in (-0.1, 1.5):
        with pytest.raises(ValueError):
            builder.set_dropout(wrong)


@pytest.mark.parametrize("name", NAMES)
def test_update_and_spec(dy: Any, name: str) -> None:
    pc = dy.ParameterCollection()
    builder = make(dy, name, pc)
    builder.start_new_sequence(update=False)
    for step in range(2):
        if step:
            dy.renew_cg()
            builder.start_new_sequence()
        leaf = builder.add_input("leaf", [], dy.ones(4))
        root = builder.add_input("root", ["leaf"], None)
        dy.squared_norm(root + leaf).backward()
        assert any(p.grad_as_array().any() for p in pc.parameters_list()) == bool(step)
    again = type(builder).from_spec(builder.spec, pc)
    assert again.spec == builder.spec and again.whoami() == name
    assert again.param_collection().name() == builder.param_collection().name()[:-1] + "_1/"
    shapes = [[p.shape() for p in b.param_collection().parameters_list()] for b in (builder, again)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("name", NAMES)
def test_errors(dy: Any, name: str) -> None:
    builder = make(dy, name, dy.ParameterCollection())
    x = dy.ones(4)
    with pytest.raises(ValueError, match="start_new_sequence"):
        builder.add_input(0, [], x)
    builder.start_new_sequence()
    builder.add_input(0, [], x)
    for children, wrong in (([], x), ([], None), ([7], x), ([], dy.ones(3)), ([], dy.ones((4, 2)))):
        with pytest.raises(ValueError):
            builder.add_input(0 if wrong is x and not children else 1, children, wrong)
    for wrong in (3, np.ones(4)):
        with pytest.raises(TypeError):
            builder.add_input(1, [], wrong)
    with pytest.raises(ValueError):
        builder.output(1)
    with pytest.raises(ValueError, match="one length"):
        builder.transduce([[], []], [x])
    dy.renew_cg()
    with pytest.raises(ValueError):
        builder.output(0)
    builder.start_new_sequence()
    with pytest.raises(ValueError):
        builder.add_input(0, [], x)
    with pytest.raises(TypeError, match="ParameterCollection"):
        make(dy, name, None)
    if name != "NaryTreeLSTMBuilder":
        with pytest.raises(ValueError, match="equal"):
            getattr(dy, name)(1, 3, 4, dy.ParameterCollection())
    if name.startswith("Bi"):
        with pytest.raises(ValueError, match="even"):
            make(dy, name, dy.ParameterCollection(), 1, 3)
    with pytest.raises(OverflowError):
        make(dy, name, dy.ParameterCollection(), 0)


def test_launches(dy: Any, monkeypatch: Any) -> None:
    """A batch of trees takes as many launches as the example that is written with primitive operations."""
    monkeypatch.setattr(sys, "path", [str(examples.EXAMPLES), *sys.path])
    import treelstm

    trees, vocab = treelstm.load(str(examples.TESTS / "apps" / "data" / "trees.txt"), 25)
    model = treelstm.TreeLSTM(vocab, 16)
    pc = dy.ParameterCollection()
    builder = dy.NaryTreeLSTMBuilder(2, 1, 16, 16, pc)
    embed = pc.add_lookup_parameters((len(vocab[0]), 16))
    W, b = pc.add_parameters((vocab[1], 16)), pc.add_parameters(vocab[1])

    def loss(tree: tuple) -> Any:
        builder.start_new_sequence()
        scores: list[Any] = []

        def add(node: tuple) -> int:
            children = [add(child) for child in node[1:]] if len(node) == 3 else []
            number = len(scores)
            h = builder.add_input(number, children, None if children else embed[node[1]])
            scores.append(dy.affine_transform([b, W, h]))
            return number

        add(tree)
        return dy.esum([dy.pickneglogsoftmax(e, n) for e, n in zip(scores, treelstm.all_labels(tree))])

    launches = []
    for make_loss in (model.loss, loss):
        dy.renew_cg()
        total = dy.esum([make_loss(tree) for tree in trees])
        launches.append(dy._core.launch_counts(total)["bucket"])
        assert np.isfinite(total.value())
        total.backward()
    assert launches[1] <= launches[0], launches
