"""Softmax builders: names, values, draws, and what is refused. Losses are in tests/compat/traces.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.subject import IS_REFERENCE

CLUSTERS = "k0 a 5\nk0 b\nk1 c\nk9 d\nk9 e\nk9 f\n"
PATHS = "000 a 5\n000 b\n01 c\n1 d\n1 e\n1 f\n"
WORDS = {word: n for n, word in enumerate("fabdec")}


@pytest.fixture
def clusters(tmp_path: Path) -> str:
    path = tmp_path / "clusters.txt"
    path.write_text(CLUSTERS)
    return str(path)


@pytest.fixture
def paths(tmp_path: Path) -> str:
    path = tmp_path / "paths.txt"
    path.write_text(PATHS)
    return str(path)


def all_kinds(dy: Any, clusters: str, paths: str, bias: bool = True) -> list[tuple[Any, Any]]:
    """Every builder, with 3 inputs and 6 classes, and its collection; random parameters."""
    made = []
    for build in (
        lambda pc: dy.StandardSoftmaxBuilder(3, 6, pc, bias),
        lambda pc: dy.ClassFactoredSoftmaxBuilder(3, clusters, WORDS, pc, bias),
        lambda pc: dy.HierarchicalSoftmaxBuilder(3, paths, WORDS, pc, bias),
    ):
        pc = dy.ParameterCollection()
        made.append((build(pc), pc))
        rng = np.random.RandomState(3)
        for p in pc.parameters_list():
            p.set_value(rng.randn(*p.shape()))
    return made


def test_parameters(dy: Any, clusters: str) -> None:
    pc = dy.ParameterCollection()
    sub = pc.add_subcollection("o")
    builders = [
        dy.StandardSoftmaxBuilder(3, 4, sub),
        dy.StandardSoftmaxBuilder(3, 4, sub, bias=False),
        dy.ClassFactoredSoftmaxBuilder(3, clusters, WORDS, sub),
        dy.ClassFactoredSoftmaxBuilder(3, clusters, WORDS, sub, False),
    ]
    assert [b.param_collection().name() for b in builders] == [
        "/o/standard-softmax-builder/",
        "/o/standard-softmax-builder_1/",
        "/o/class-factored-softmax-builder/",
        "/o/class-factored-softmax-builder_1/",
    ]
    shapes = [[p.shape() for p in b.param_collection().parameters_list()] for b in builders]
    assert shapes == [
        [(4, 3), (4,)],
        [(4, 3)],
        [(3, 3), (3,), (2, 3), (2,), (3, 3), (3,)],
        [(3, 3), (2, 3), (3, 3)],
    ]
    first = builders[2].param_collection().parameters_list()
    assert first[5].name() == "/o/class-factored-softmax-builder/_5"
    assert not first[1].as_array().any() and first[0].as_array().all()


@pytest.mark.skipif(IS_REFERENCE, reason="ours; DyNet's distribution of class-factored softmax is wrong")
@pytest.mark.parametrize("bias", [True, False])
def test_distributions(dy: Any, clusters: str, paths: str, bias: bool) -> None:
    rng = np.random.RandomState(1)
    for builder, _ in all_kinds(dy, clusters, paths, bias):
        dy.renew_cg()
        values = rng.randn(3, 4)
        x, batch = dy.inputTensor(values[:, 0]), dy.inputTensor(values, batched=True)
        log_p = builder.full_log_distribution(x).npvalue()
        assert np.isclose(np.exp(log_p).sum(), 1, atol=1e-6)
        losses = [builder.neg_log_softmax(x, c).value() for c in range(6)]
        assert np.allclose(losses, -log_p, rtol=1e-5, atol=1e-6)
        assert np.allclose(dy.log_softmax(builder.full_logits(x)).npvalue(), log_p, rtol=1e-5, atol=1e-6)
        batched = builder.full_log_distribution(batch)
        assert batched.dim() == ((6,), 4)
        assert np.allclose(batched.npvalue()[:, 0], log_p, rtol=1e-5, atol=1e-6)
        classes = [5, 0, 2, 3]
        loss = builder.neg_log_softmax_batch(batch, classes)
        assert loss.dim() == ((1,), 4)
        want = [-batched.npvalue()[c, b] for b, c in enumerate(classes)]
        assert np.allclose(loss.npvalue().ravel(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(IS_REFERENCE, reason="in DyNet the latest flag wins for the whole graph")
def test_update_is_honoured_by_each_call(dy: Any, clusters: str, paths: str) -> None:
    for builder, pc in all_kinds(dy, clusters, paths):
        dy.renew_cg()
        x = dy.inputVector([1, 2, -1])
        constant, usual = builder.neg_log_softmax(x, 4, update=False), builder.neg_log_softmax(x, 4)
        constant.backward()
        assert not any(p.grad_as_array().any() for p in pc.parameters_list())
        usual.backward()
        assert pc.parameters_list()[0].grad_as_array().any()


@pytest.mark.skipif(IS_REFERENCE, reason="DyNet draws from the logits where there is no bias")
@pytest.mark.parametrize("bias", [True, False])
def test_samples_have_the_distribution(dy: Any, clusters: str, paths: str, bias: bool) -> None:
    for builder, _ in all_kinds(dy, clusters, paths, bias):
        dy.reset_random_seed(4)
        dy.renew_cg()
        x = dy.inputVector([0.3, 0.1, -0.2])
        p = np.exp(builder.full_log_distribution(x).npvalue())
        counts = np.bincount([builder.sample(x) for _ in range(2000)], minlength=6)
        assert (np.abs(counts - 2000 * p) < 5 * np.sqrt(2000 * p * (1 - p)) + 1).all(), (counts, 2000 * p)
        dy.reset_random_seed(4)
        again = [builder.sample(x) for _ in range(20)]
        dy.reset_random_seed(4)
        assert again == [builder.sample(x) for _ in range(20)]


def test_sample_takes_one_number_of_the_stream(dy: Any) -> None:
    builder = dy.StandardSoftmaxBuilder(2, 4, dy.ParameterCollection())
    builder.param_collection().parameters_list()[0].zero()
    dy.renew_cg()
    x = dy.inputVector([1, 2])
    dy.reset_random_seed(8)
    drawn = [builder.sample(x) for _ in range(50)]
    dy.reset_random_seed(8)
    numbers = dy.random_uniform(50, 0, 1).npvalue()
    assert drawn == [int(4 * u) for u in numbers]


@pytest.mark.skipif(IS_REFERENCE, reason="most of these end DyNet's process")
def test_errors(dy: Any, clusters: str, paths: str) -> None:
    for builder, _ in all_kinds(dy, clusters, paths):
        dy.renew_cg()
        x, short = dy.inputVector([1, 2, 3]), dy.inputVector([1, 2])
        batch = dy.inputTensor(np.ones((3, 2)), batched=True)
        for call in (
            lambda: builder.neg_log_softmax(short, 0),  # noqa: B023
            lambda: builder.neg_log_softmax(x, 6),  # noqa: B023
            lambda: builder.neg_log_softmax(batch, 1),  # noqa: B023
            lambda: builder.neg_log_softmax_batch(batch, [1]),  # noqa: B023
            lambda: builder.neg_log_softmax_batch(batch, [1, 6]),  # noqa: B023
            lambda: builder.sample(batch),  # noqa: B023
            lambda: builder.full_logits(short),  # noqa: B023
            lambda: builder.full_log_distribution(short),  # noqa: B023
        ):
            with pytest.raises(ValueError):
                call()
        with pytest.raises(OverflowError):
            builder.neg_log_softmax(x, -1)
        for wrong in (None, "a"):
            with pytest.raises(TypeError):
                builder.neg_log_softmax(wrong, 0)
            with pytest.raises(TypeError):
                builder.neg_log_softmax(x, wrong)
        dy.renew_cg()
        with pytest.raises(ValueError):
            builder.full_logits(x)  # of the last graph
        assert builder.neg_log_softmax(dy.inputVector([1, 2, 3]), 1.7).dim() == ((1,), 1)
    factored = all_kinds(dy, clusters, paths)[1][0]
    x = dy.inputVector([1, 2, 3])
    assert factored.class_logits(x).dim() == ((3,), 1)
    assert factored.class_log_distribution(x).dim() == ((3,), 1)
    assert factored.subclass_logits(x, 2).dim() == ((3,), 1)
    assert np.isclose(np.exp(factored.subclass_log_distribution(x, 0).npvalue()).sum(), 1)
    for wrong in (1, 3):
        with pytest.raises(ValueError):
            factored.subclass_logits(x, wrong)
    base = dy.SoftmaxBuilder()
    calls = {
        "neg_log_softmax": (x, 1),
        "neg_log_softmax_batch": (x, [1]),
        "sample": (x,),
        "full_logits": (x,),
    }
    for method, arguments in {**calls, "full_log_distribution": (x,), "param_collection": ()}.items():
        with pytest.raises(NotImplementedError, match=method):
            getattr(base, method)(*arguments)


@pytest.mark.skipif(IS_REFERENCE, reason="most of these end DyNet's process")
@pytest.mark.parametrize("name", ["ClassFactoredSoftmaxBuilder", "HierarchicalSoftmaxBuilder"])
def test_bad_cluster_files(dy: Any, name: str, tmp_path: Path) -> None:
    cases = [
        (CLUSTERS + "k1 z\n", WORDS, RuntimeError, "'z'"),
        (CLUSTERS.replace("k1 c\n", ""), WORDS, ValueError, "'c'"),
        (CLUSTERS + "k0 f\n", WORDS, ValueError, ":7: expected each word once"),
        ("\n" + CLUSTERS, WORDS, ValueError, ":1:"),
        (CLUSTERS.replace("k1 c", "k1"), WORDS, ValueError, ":3:"),
        (CLUSTERS.replace("k1 c", "k1 c 3 4"), WORDS, ValueError, ":3:"),
        (CLUSTERS, {w: n + 1 for w, n in WORDS.items()}, ValueError, "0 to 5"),
        (CLUSTERS, {w: min(n, 4) for w, n in WORDS.items()}, ValueError, "0 to 5"),
        ("", {}, ValueError, "dic"),
        (CLUSTERS, {n: n for n in range(6)}, TypeError, "str"),
        (CLUSTERS, list("abcdef"), TypeError, "dict"),
    ]
    pc = dy.ParameterCollection()
    for n, (text, words, error, message) in enumerate(cases):
        path = tmp_path / str(n)
        path.write_text(text)
        with pytest.raises(error, match=message):
            getattr(dy, name)(3, str(path), words, pc)
    with pytest.raises(ValueError, match="nowhere"):
        getattr(dy, name)(3, str(tmp_path / "nowhere"), WORDS, pc)
    with pytest.raises(TypeError):
        getattr(dy, name)(3, None, WORDS, pc)
    with pytest.raises(TypeError, match="ParameterCollection"):
        getattr(dy, name)(3, str(tmp_path / "0"), WORDS, None)
    with pytest.raises(OverflowError):
        getattr(dy, name)(0, str(tmp_path / "0"), WORDS, pc)
    assert pc.parameters_list() == [], "nothing is added by a call that fails"


@pytest.mark.skipif(IS_REFERENCE, reason="ours")
def test_hierarchical(dy: Any, tmp_path: Path) -> None:
    path = tmp_path / "paths"
    path.write_text("0 a\n10 b\n110 c\n111 d\n")
    words = {"a": 0, "b": 1, "c": 2, "d": 3}
    pc = dy.ParameterCollection()
    builder = dy.HierarchicalSoftmaxBuilder(2, str(path), words, pc)
    assert builder.param_collection().name() == "/hierarchical-softmax-builder/"
    assert [p.shape() for p in pc.parameters_list()] == [(1, 2), (1,)] * 3
    dy.renew_cg()
    x = dy.inputVector([0.5, -1])
    W = [p.as_array() for p in pc.parameters_list()[::2]]
    z = [float((w @ [0.5, -1])[0]) for w in W]
    left = [1 / (1 + np.exp(-v)) for v in z]
    want = [left[0], (1 - left[0]) * left[1], (1 - left[0]) * (1 - left[1]) * left[2]]
    want.append(1 - sum(want))
    assert np.allclose(np.exp(builder.full_log_distribution(x).npvalue()), want, rtol=1e-5)
    path.write_text("north/a a\nnorth/b b\nsouth c\nwest d\n")
    builder = dy.HierarchicalSoftmaxBuilder(2, str(path), words, dy.ParameterCollection(), bias=False)
    assert [p.shape() for p in builder.param_collection().parameters_list()] == [(3, 2), (1, 2)]


@pytest.mark.skipif(IS_REFERENCE, reason="softmax builders have no spec in DyNet")
def test_from_spec(dy: Any, clusters: str, paths: str) -> None:
    for builder, _ in all_kinds(dy, clusters, paths, bias=False):
        pc = dy.ParameterCollection()
        again = type(builder).from_spec(builder.spec, pc)
        assert again.whoami() == type(builder).__name__
        for p, q in zip(builder.param_collection().parameters_list(), pc.parameters_list()):
            assert p.shape() == q.shape()
            q.set_value(p.as_array())
        dy.renew_cg()
        x = dy.inputVector([1, 0, -1])
        assert builder.full_logits(x).value() == again.full_logits(x).value()


@pytest.mark.skipif(IS_REFERENCE, reason="ours")
def test_draw_of_an_index(dy: Any) -> None:
    from dynet_compat import _core

    assert {_core.choose([0.0, 1.0, 0.0]) for _ in range(20)} == {1}
    assert {_core.choose([0.0, 0.0]) for _ in range(5)} == {1}, "what rounding leaves goes to the last"
    with pytest.raises(ValueError):
        _core.choose([])
