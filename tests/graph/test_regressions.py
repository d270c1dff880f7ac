"""Mistakes the core once made, each with the smallest script that showed it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest
from support.subject import IS_REFERENCE

OURS = pytest.mark.skipif(IS_REFERENCE, reason="the reference cannot do this (specification, section 20)")
W = np.array([[0.1, 0.2], [0.3, 0.4]])


def matrix(dy: Any, values: Any = W) -> Any:
    return dy.ParameterCollection().parameters_from_numpy(np.asarray(values, dtype=float))


def run_apart(script: str, **env: str) -> str:
    """What a script prints in a process of its own; a crash is a failure."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout


@pytest.mark.parametrize("full", [False, True])
def test_const_parameter_of_an_expression_stops_gradients(dy: Any, full: bool) -> None:
    """Also when a neighbour in the same launch takes one: the copy shared the gradient of its source."""
    p = matrix(dy)
    dy.renew_cg(autobatching=True)
    x = dy.inputVector([1.0, 2.0])
    e = dy.tanh(p * x)
    c = dy.const_parameter(e)
    dy.esum([dy.squared_norm(p * c), dy.squared_norm(p * e)]).backward(full)
    y = np.tanh(W @ [1.0, 2.0])
    through = 2 * W.T @ (W @ y)  # of squared_norm(W y) with respect to y
    want = 2 * 2 * np.outer(W @ y, y) + np.outer(through * (1 - y**2), [1.0, 2.0])
    np.testing.assert_allclose(e.gradient(), through, rtol=1e-5)
    np.testing.assert_allclose(p.grad_as_array(), want, rtol=1e-5)


def test_equal_expressions_of_equal_expressions_have_their_own_gradients(dy: Any) -> None:
    p = matrix(dy)
    a, c = dy.tanh(p), dy.tanh(p)
    (dy.sum_elems(dy.square(a)) + dy.sum_elems(dy.square(c)) * 2).backward()
    np.testing.assert_allclose(a.gradient(), 2 * np.tanh(W), rtol=1e-5)
    np.testing.assert_allclose(c.gradient(), 4 * np.tanh(W), rtol=1e-5)
    first, second = p[0], p[0]
    (dy.squared_norm(first) + dy.squared_norm(second) * 3).backward()
    np.testing.assert_allclose(first.gradient(), 2 * W[0], rtol=1e-5)
    np.testing.assert_allclose(second.gradient(), 6 * W[0], rtol=1e-5)


def test_set_index_changes_one_of_two_equal_picks(dy: Any) -> None:
    p = matrix(dy, [1.0, 2.0, 3.0])
    a, b = dy.pick(p, 0), dy.pick(p, 0)
    a.set_index(1)
    assert (a.value(), b.value(), dy.pick(p, 0).value()) == (2.0, 1.0, 1.0)
    b.set_index(2)
    assert (a.value(), b.value()) == (2.0, 3.0)
    c, d = (dy.pick_batch(p, [0, 1]) for _ in range(2))
    d.set_index([2, 2])
    assert (c.value(), d.value()) == ([1.0, 2.0], [3.0, 3.0])


def test_every_random_node_is_drawn_again_after_set(dy: Any) -> None:
    """Those behind the value that was asked first kept their old numbers."""
    x = dy.scalarInput(1.0)
    y, z = (dy.exp(dy.random_uniform((4,), 0, 1) + x) for _ in range(2))
    before = y.value(), z.value()
    x.set(1.0)
    after = y.value(), z.value()
    assert before[0] != after[0]
    assert before[1] != after[1]
    again = y.value(recalculate=True), z.value()
    assert after[0] != again[0]
    assert after[1] != again[1]


@OURS
def test_revert_takes_back_copies_of_parameters(dy: Any) -> None:
    """A parameter read like a value is copied into the graph; after the revert the copy's place is free."""
    p = matrix(dy)
    dy.renew_cg()
    x = dy.inputVector([1.0, 1.0])
    (p * x).value()
    view = dy.reshape(p, (4,))
    dy.cg_checkpoint()
    dy.tanh(p).value()
    dy.square(view).value()
    dy.cg_revert()
    dy.square(dy.inputVector([100.0] * 64)).value()
    y = dy.exp(p)
    np.testing.assert_allclose(y.npvalue(), np.exp(W), rtol=1e-5)
    np.testing.assert_allclose(dy.square(view).value(), W.T.ravel() ** 2, rtol=1e-5)
    dy.sum_elems(y).backward()
    np.testing.assert_allclose(p.grad_as_array(), np.exp(W), rtol=1e-5)


@OURS
def test_revert_takes_back_decayed_parameters(dy: Any) -> None:
    """With weight decay the graph keeps a scaled copy: it must not outlive the revert either."""
    model = dy.ParameterCollection()
    p = model.parameters_from_numpy(W)
    model.set_weight_decay_lambda(0.1)
    x = dy.inputVector([1.0, 2.0])
    dy.sum_elems(p * x).backward()
    dy.SimpleSGDTrainer(model, 0.0).update()
    dy.renew_cg()
    x = dy.vecInput(2)
    x.set([1.0, 2.0])
    y = p * x
    y.value()
    dy.cg_checkpoint()
    x.set([1.0, 1.0])
    (p * x).value()
    dy.cg_revert()
    dy.esum([dy.exp(dy.inputVector([1.0] * 16)) for _ in range(4)]).value()
    np.testing.assert_allclose((p * x).value(), 0.9 * W.sum(axis=1), rtol=1e-5)


def test_node_gradient_of_a_parameter_that_is_the_root(dy: Any) -> None:
    p = matrix(dy, [3.0])
    p.backward()
    assert p.gradient() == 1.0
    p.backward()
    assert p.gradient() == 1.0
    assert p.grad_as_array() == 2.0


def test_node_gradient_of_a_table_whose_rows_are_read_too(dy: Any) -> None:
    model = dy.ParameterCollection()
    table = model.lookup_parameters_from_numpy(np.arange(6.0).reshape(3, 2))
    row = dy.lookup(table, 1)
    (dy.sum_elems(table * dy.inputVector([1.0, 2.0, 3.0])) + dy.sum_elems(row)).backward()
    np.testing.assert_allclose(table.gradient(), [[1, 2, 3], [1, 2, 3]])
    np.testing.assert_allclose(table.grad_as_array(), [[1, 1], [3, 3], [3, 3]])


@OURS
def test_parameters_that_get_a_place_while_a_mixed_launch_is_planned() -> None:
    """The planner kept a pointer into a list that grew. Freed memory is overwritten to make that show."""
    out = run_apart(
        """
        import numpy as np
        import dynet_compat as dy
        model = dy.ParameterCollection()
        ps = [model.parameters_from_numpy(np.array([1.0, 2, 3])) for _ in range(10)]
        for n in (54, 1014, 4000):
            dy.renew_cg()
            xs = [dy.inputVector([1.0, 2, 3][: 2 + i % 2]) for i in range(n)]
            es = [x + x for x in xs] + [p + dy.inputVector([1.0, 1, 1]) for p in ps]
            print(dy.esum([dy.sum_elems(e) for e in es]).value() == 9 * n + 90)
        """,
        MALLOC_PERTURB_="165",
    )
    assert out.split() == ["True"] * 3


@OURS
def test_graph_is_usable_after_running_out_of_memory() -> None:
    """Nodes whose turn had not come when memory ran out were taken for computed."""
    out = run_apart(
        """
        import numpy as np
        import dynet_compat as dy
        low = dy.sqrt(dy.inputVector([4.0, 9.0]))
        big = [dy.exp(dy.inputVector(np.ones(1000))) for _ in range(200)]
        late = dy.sqrt(dy.sum_elems(big[0]))
        total = dy.esum([dy.sum_elems(b) for b in big] + [late, dy.sum_elems(low)])
        try:
            total.value()
        except MemoryError as error:
            print(str(error).startswith("out of memory: value arena"))
        print(low.value() == [2.0, 3.0])
        print(np.allclose(dy.tanh(low).value(), np.tanh([2.0, 3.0])))
        """,
        DYNET_COMPAT_MEM="1",
    )
    assert out.split() == ["True"] * 3


@OURS
def test_gradients_do_not_depend_on_threads() -> None:
    """Members whose first argument is the second of a neighbour ran on two threads and lost sums."""
    out = run_apart(
        """
        import numpy as np
        import dynet_compat as dy
        n, size = 40, 9000
        w = dy.ParameterCollection().parameters_from_numpy(np.ones(size))
        hs = [dy.cmult(dy.inputVector(np.full(size, i + 1.0)), w) for i in range(n)]
        total = dy.esum([dy.dot_product(hs[i], hs[i + 1]) for i in range(n - 1)])
        total.backward()
        want = [0.0 + (i if i else 0) + (i + 2 if i < n - 1 else 0) for i in range(n)]
        wrong = 0
        for _ in range(150):
            total.backward()
            wrong += sum(bool((h.gradient() != g).any()) for h, g in zip(hs, want))
        print(wrong)
        """,
        DYNET_COMPAT_THREADS="4",
    )
    assert out.split() == ["0"]


@OURS
def test_memory_is_flat_over_many_backwards_of_one_graph() -> None:
    """Each one took new room for the gradients of parameters that held some already."""
    out = run_apart(
        """
        import resource
        import numpy as np
        import dynet_compat as dy
        p = dy.ParameterCollection().add_parameters((1000, 1000))  # 4 MB
        loss = dy.sum_elems(p * dy.inputVector(np.ones(1000)))
        for _ in range(3):
            loss.backward()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(20):
            loss.backward()
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024 < 12)
        """
    )
    assert out.split() == ["True"]


@OURS
def test_forward_of_an_old_node_leaves_nothing_behind(dy: Any) -> None:
    """A mark it left made a node of the next graph be computed though nobody asked for it."""
    x = dy.inputVector([1.0, 2.0])
    early = dy.tanh(x)
    dy.exp(early).value()
    early.forward()
    dy.renew_cg()
    x = dy.inputVector([1.0, 2.0])
    dy.pick(x, 5)
    np.testing.assert_allclose(dy.exp(x).value(), np.exp([1.0, 2.0]), rtol=1e-5)


@OURS
def test_dropout_masks_do_not_outlive_a_revert(dy: Any) -> None:
    """Other random nodes got the masks' numbers and were taken for them."""
    builder = dy.VanillaLSTMBuilder(1, 3, 4, dy.ParameterCollection())
    builder.set_dropout(0.5)
    x = dy.inputVector([1.0, 1.0, 1.0])
    state = builder.initial_state()
    dy.cg_checkpoint()
    state.add_input(x).output().value()
    dy.cg_revert()
    foreign = [dy.random_normal((3,)) for _ in range(2)]
    dy.squared_norm(state.add_input(x).output()).backward(full=True)
    assert not any(f.gradient().any() for f in foreign)


@OURS
def test_argument_that_renews_the_graph(dy: Any) -> None:
    """The index of the node was looked up before the argument's own code ran."""

    class Renewing:
        def __float__(self) -> float:
            dy.renew_cg()
            self.other = dy.inputVector([5.0, 6.0])
            return 777.0

    s = dy.scalarInput(1.0)
    value = Renewing()
    with pytest.raises(ValueError):
        s.set(value)
    assert value.other.value() == [5.0, 6.0]


def test_gradient_of_an_lstm_cell_counts_the_way_through_its_output(dy: Any) -> None:
    pc = dy.ParameterCollection()
    lstm = dy.LSTMBuilder(1, 3, 4, pc)
    Wx, Wh, b = pc.parameters_list()

    def own_step(x: Any, c: Any, h: Any) -> Any:
        z = dy.affine_transform([b, Wx, x, Wh, h])
        i, f, o, g = (dy.pick_range(z, 4 * k, 4 * k + 4) for k in range(4))
        f, i, o, g = dy.logistic(f + 1.0), dy.logistic(i), dy.logistic(o), dy.tanh(g)
        c = dy.cmult(f, c) + dy.cmult(i, g)
        return c, dy.cmult(o, dy.tanh(c))

    gradients = []
    for own in (True, False):
        dy.renew_cg()
        x = [dy.inputVector([0.5, -1.0, 2.0]), dy.inputVector([1.0, 0.3, -0.2])]
        if own:
            c1, h1 = own_step(x[0], dy.zeros(4), dy.zeros(4))
            c2, h2 = own_step(x[1], c1, h1)
        else:
            first = lstm.initial_state().add_input(x[0])
            second = first.add_input(x[1])
            (c1, h1), (c2, h2) = first.s(), second.s()
        dy.squared_norm(h2).backward()
        gradients.append([e.gradient() for e in (c1, h1, c2, h2)])
    for ours, theirs in zip(*gradients):
        assert np.abs(ours).max() > 0
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_unplaced_nodes_beside_do_not_change_what_a_value_costs(dy: Any) -> None:
    """A loop that reads values and keeps other expressions for later: each read looks at what it needs."""
    pc = dy.ParameterCollection()
    W, b = pc.add_parameters((4, 4)), pc.add_parameters(4)
    x, side, chain = dy.inputVector([1.0, 2.0, 3.0, 4.0]), [], []
    for _ in range(300):
        x = dy.tanh(W * x + b)
        side.append(dy.squared_norm(W * x))
        chain.append(x.npvalue())
    loss = dy.esum(side)
    loss.backward()
    w, bias, own = W.npvalue(), b.npvalue(), np.array([1.0, 2.0, 3.0, 4.0])
    for value, kept in zip(chain, side):
        own = np.tanh(w @ own + bias)
        np.testing.assert_allclose(value, own, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(kept.value(), np.sum((w @ own) ** 2), rtol=1e-4, atol=1e-6)
    assert np.isfinite(W.gradient()).all() and W.gradient().any()


def test_bad_lookup_that_was_handled_leaves_training_alone(dy: Any) -> None:
    pc = dy.ParameterCollection()
    W, table = pc.add_parameters((2, 2), init=1.0), pc.add_lookup_parameters((4, 2))
    trainer = dy.SimpleSGDTrainer(pc, 1.0)
    with pytest.raises(ValueError):
        table[9].value()
    loss = dy.sum_elems(W * dy.inputVector([1, 2]))
    loss.backward()
    assert W.grad_as_array().tolist() == [[1, 2], [1, 2]]
    trainer.update()


CHANGING = ["inputVector(v)", "vecInput(3).set(v)", "lookup_batch(L, v)", "select_rows(x, v)", "L.batch(v)"]


@pytest.mark.parametrize("call", CHANGING)
def test_list_that_changes_while_it_is_read(dy: Any, call: str) -> None:
    numbers: list = [1] * 1000

    class Clearing:
        def __float__(self) -> float:
            numbers.clear()
            return 1.0

        def __index__(self) -> int:
            numbers.clear()
            return 1

    numbers[3] = Clearing()
    table = dy.ParameterCollection().add_lookup_parameters((4, 2))
    names = {"v": numbers, "L": table, "x": dy.ones((4, 2)), "dy": dy}
    try:
        eval(call if call.startswith("L.") else "dy." + call, names)
    except (ValueError, RuntimeError, TypeError):
        pass  # any error will do; the process goes on
    assert dy.ones(1).value() == 1.0


def test_builder_without_init(dy: Any) -> None:
    class Early(dy.LSTMBuilder):  # type: ignore[misc,name-defined]
        def __init__(self, *arguments: Any) -> None:
            self.own = 3
            with pytest.raises(RuntimeError, match="super"):
                self.disable_dropout()

    assert Early(1, 2, 3, dy.ParameterCollection()).own == 3
    with pytest.raises(RuntimeError, match="super"):
        Early.__new__(Early).initial_state()


def test_classes_can_be_pickled(dy: Any) -> None:
    import pickle

    for cls in (dy.LSTMBuilder, dy.ParameterCollection, dy.AdamTrainer, dy.BiRNNBuilder, dy.Expression):
        assert pickle.loads(pickle.dumps(cls)) is cls


@OURS
def test_a_view_has_one_argument(dy: Any) -> None:
    """What no parameter reaches has no gradient. A view of a product seemed to have the product's number of
    arguments: its gradient depended on what was recorded next, or on memory beyond a buffer."""
    w = dy.ParameterCollection().add_parameters((3, 3))
    dy.renew_cg()
    k = w * dy.inputVector([1, 1, 1])
    view = dy.reshape(dy.cmult(dy.inputVector([1, 2, 3]), dy.inputVector([4, 5, 6])), (1, 3))
    y = dy.cmult(k, k)  # its arguments follow that of the view
    loss = dy.sum_elems(view * y) + dy.sum_elems(view)
    loss.backward()
    assert not np.any(view.gradient())
