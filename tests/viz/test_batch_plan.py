"""The batch plan: the same before and after, without effect, and its reasons."""

from __future__ import annotations

import inspect
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from support.programs import Program, build
from support.subject import IS_REFERENCE

if not IS_REFERENCE:
    from dynet_compat.inspection import batch_plan as module

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="not in DyNet")

PATTERNS = ("chain", "tree", "attend", "soup", "minibatch")


def groups(plan: Any) -> list[tuple[Any, ...]]:
    return [(g.op, g.nodes, g.operands, g.shapes, g.runs_with) for g in plan.launches]


def reasons(plan: Any) -> dict[tuple[str, str], int]:
    return {(a.op, a.kind): a.launches for a in plan.apart}


# ---------------------------------------------------------------- before and after


@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_is_planned_is_what_runs(dy: Any, pattern: str) -> None:
    for seed in range(12):
        program = Program(seed, 60, pattern, random=seed % 2 == 1)
        dy.renew_cg(autobatching=seed % 4 != 3)
        made: list[Any] = []
        build(dy, dy.ParameterCollection(), program, made, len(program.steps))
        last = made[-1]
        before = dy.cg().batch_plan()
        assert {g.flush for g in before.launches} <= {0, *range(1, len(before.flushes) + 1)}
        last.forward()
        after = dy.cg().batch_plan()
        assert groups(before) == groups(after)
        assert {g.flush for g in after.launches} == set(range(1, len(after.flushes) + 1))
        nodes = [n for g in after.launches for n in g.nodes]
        assert len(nodes) == len(set(nodes))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_looking_changes_nothing(dy: Any, pattern: str) -> None:
    """Values and gradients, random numbers, memory.

    Phases may be learned earlier, so that what is recorded after a look may be batched in another way; where
    it is not, results agree to the last bit.
    """

    def outcome(seed: int, look: bool) -> tuple[list[Any], int, Any]:
        program = Program(seed, 50, pattern, random=True)
        dy.renew_cg()
        dy.reset_random_seed(seed + 1)
        pc, made, found = dy.ParameterCollection(), [], []
        for part in (1, 2, 3):
            build(dy, pc, program, made, len(program.steps) * part // 3, reads=part == 2)
            if look:
                dy.cg().batch_plan()
                dy.cg().batch_plan(made[-1])
                dy.cg().to_svg()
        losses = dy.esum([made[n] for n in program.losses])
        if look:
            dy.cg().batch_plan(losses)
        found.append(losses.npvalue())
        losses.backward()
        if look:
            dy.cg().batch_plan(losses)
        found += [e.npvalue() for e, s in zip(made, program.steps) if s.args]
        found += [p.grad_as_array() for p in pc.parameters_list()]
        return found, dy._core.timing()["value_arena_bytes"], groups(dy.cg().batch_plan())

    same = 0
    for seed in range(10):
        (values, memory, plan), (looked, memory_looked, plan_looked) = (
            outcome(seed, False),
            outcome(seed, True),
        )
        same += plan == plan_looked
        for a, b in zip(values, looked):
            np.testing.assert_allclose(
                a, b, rtol=0 if plan == plan_looked else 1e-4, atol=1e-6 * (plan != plan_looked)
            )
        assert memory == memory_looked or plan != plan_looked
    assert same >= 5


def test_draws_are_not_made(dy: Any) -> None:
    def drawn(look: bool) -> list[Any]:
        dy.renew_cg()
        dy.reset_random_seed(5)
        x = dy.dropout(dy.inputVector([1] * 20), 0.5)
        y = dy.random_normal(3) + 1
        if look:
            dy.cg().batch_plan()
            dy.cg().batch_plan(y)
        return [x.value(), y.value(), dy.random_uniform(2, 0, 1).value()]

    assert drawn(False) == drawn(True)


def test_for_one_expression(dy: Any) -> None:
    dy.renew_cg()
    x = dy.inputVector([1, 2])
    wanted, other = dy.tanh(x), dy.exp(x)
    assert [g.op for g in dy.cg().batch_plan(wanted).launches] == ["tanh"]
    assert [g.op for g in dy.cg().batch_plan().launches] == ["tanh", "exp"]
    other.value()
    plan = dy.cg().batch_plan(wanted)
    assert [(g.op, g.flush) for g in plan.launches] == [("exp", 1), ("tanh", 0)]


def test_empty(dy: Any) -> None:
    dy.renew_cg()
    plan = dy.cg().batch_plan()
    assert plan.launches == [] and str(plan) == "0 nodes in 0 launches: 0 ran, 0 are pending"
    dy.inputVector([1])
    assert dy.cg().batch_plan().launches == []


def test_old_expression(dy: Any) -> None:
    x = dy.tanh(dy.scalarInput(1))
    dy.renew_cg()
    with pytest.raises(ValueError, match="batch_plan.*earlier"):
        dy.cg().batch_plan(x)
    with pytest.raises(TypeError, match="batch_plan.*expected an Expression, got int"):
        dy.cg().batch_plan(3)


def test_after_a_flush_that_failed(dy: Any) -> None:
    dy.renew_cg()
    bad = dy.pick(dy.tanh(dy.inputVector([1, 2])), 5)
    before = groups(dy.cg().batch_plan())
    with pytest.raises(ValueError):
        bad.value()
    plan = dy.cg().batch_plan()
    assert groups(plan) == before and plan.flushes == [] and all(g.flush == 0 for g in plan.launches)


def test_after_a_revert(dy: Any) -> None:
    dy.renew_cg()
    x = dy.tanh(dy.inputVector([1, 2]))
    dy.cg_checkpoint()
    dy.exp(x).value()
    dy.cg_revert()
    plan = dy.cg().batch_plan()
    assert [(g.op, g.flush) for g in plan.launches] == [("tanh", 1)] and len(plan.flushes) == 1


# ---------------------------------------------------------------- reasons


def test_recurrence(dy: Any) -> None:
    dy.renew_cg()
    W = dy.ParameterCollection().add_parameters((2, 2))
    for length in (3, 5):
        h = dy.inputVector([1, 2])
        for _ in range(length):
            h = dy.tanh(W * h)
    plan = dy.cg().batch_plan()
    assert reasons(plan) == {("matmul", "dependence"): 4, ("tanh", "dependence"): 4}
    assert [len(g.nodes) for g in plan.launches if g.op == "tanh"] == [2, 2, 2, 1, 1]
    assert [g.apart.earlier for g in plan.launches if g.op == "tanh" and g.apart] == [2, 4, 6, 8]


def test_values_read_in_between(dy: Any) -> None:
    def script() -> None:
        for i in range(3):
            dy.tanh(dy.inputVector([1, i])).value()

    dy.renew_cg()
    script()
    plan = dy.cg().batch_plan()
    assert reasons(plan) == {("tanh", "read"): 2} and plan.flushes == [None] * 3
    assert "run it inside profile()" in plan.apart[0].text
    dy.renew_cg()
    with dy.profile():
        script()
    plan = dy.cg().batch_plan()
    line = f"{__file__}:{inspect.getsourcelines(script)[1] + 2}"
    assert plan.flushes == [line] * 3
    assert [(a.kind, a.launches, a.line) for a in plan.apart] == [("read", 2, line)]
    assert line in str(plan) and "asked for at" in str(plan)


def test_recurrence_and_reads(dy: Any) -> None:
    """Steps of one instance need each other; those of another could have joined them."""
    dy.renew_cg()
    for instance in range(2):
        h = dy.inputVector([instance, 2])
        for _ in range(3):
            h = dy.tanh(h)
        h.value()
    assert reasons(dy.cg().batch_plan()) == {("tanh", "dependence"): 2, ("tanh", "read"): 3}


def test_kept_back_by_a_read(dy: Any) -> None:
    """Recorded before, but not needed for the value that was read."""
    dy.renew_cg()
    a = dy.tanh(dy.inputVector([1, 2]))
    b = dy.tanh(dy.inputVector([3, 4]))
    b.value()
    a.value()
    assert reasons(dy.cg().batch_plan()) == {("tanh", "read"): 1}


def test_other_parameters(dy: Any) -> None:
    dy.renew_cg()
    pc = dy.ParameterCollection()
    W, V = pc.add_parameters((2, 2), name="W"), pc.add_parameters((2, 2), name="V")
    E, F = pc.add_lookup_parameters((3, 2), name="E"), pc.add_lookup_parameters((3, 2), name="F")
    dy.esum([W * E[0], W * E[1], V * F[2]])
    plan = dy.cg().batch_plan()
    assert reasons(plan) == {("matmul", "parameter"): 1, ("lookup", "parameter"): 1}
    texts = {a.op: a.text for a in plan.apart}
    assert texts["matmul"] == "other parameters: /V, not /W"
    assert texts["lookup"] == "other parameters: /F, not /E"
    assert [g.weights for g in plan.launches if g.op == "matmul"] == [("/W",), ("/V",)]


def test_computed_weights(dy: Any) -> None:
    dy.renew_cg()
    W = dy.ParameterCollection().add_parameters((2, 2))
    x = dy.inputVector([1, 2])
    M = dy.inputTensor([[1, 2], [3, 4]])
    dy.esum([W * x, M * x, dy.tanh(W) * x])
    kinds = [(a.op, a.kind, a.text) for a in dy.cg().batch_plan().apart]
    assert [k[:2] for k in kinds] == [("matmul", "parameter")] * len(kinds) and len(kinds) == 2
    assert "a weight that is not the same for all nodes, and one that is" in {k[2] for k in kinds}


def test_other_attributes(dy: Any) -> None:
    dy.renew_cg()
    x = dy.inputVector([1, 2])
    for c in (0.5, 0.25):
        dy.pow(x, dy.scalarInput(2))
        dy.elu(x, c)
    plan = dy.cg().batch_plan()
    assert reasons(plan) == {("elu", "attributes"): 1}
    assert plan.apart[0].text == "other attributes: alpha=0.25, not alpha=0.5"


def test_products_of_another_form(dy: Any) -> None:
    """One with as many columns as the result has joins no other."""
    dy.renew_cg()
    W = dy.ParameterCollection().add_parameters((2, 2))
    dy.affine_transform([dy.inputVector([1, 2]), W, dy.inputVector([1, 2])])
    dy.affine_transform([dy.inputVector([1, 2]), W, dy.inputTensor([[1, 2], [3, 4]])])
    plan = dy.cg().batch_plan()
    assert reasons(plan) == {("affine_transform", "shapes"): 1}
    assert "{2} {2,2} {2,2}" in plan.apart[0].text


def test_batching_is_off(dy: Any) -> None:
    dy.renew_cg(autobatching=False)
    for i in range(3):
        dy.tanh(dy.inputVector([1, i]))
    assert reasons(dy.cg().batch_plan()) == {("tanh", "off"): 2}
    dy.renew_cg()


def row(**other: Any) -> dict[str, Any]:
    base = {"op": "f", "class": 1, "rule": "ragged", "weights": [], "attributes": [],
            "arguments": ["{2}"], "columns": False, "least": 1, "most": 1}  # fmt: skip
    return {**base, **other}


@pytest.mark.parametrize(
    ("first", "second", "kind", "words"),
    [
        ({}, {}, "order", "independent"),
        ({}, {"least": 2, "most": 2}, "dependence", "each needs"),
        ({"most": 2}, {"least": 2, "most": 2}, "order", "independent"),
        ({"class": 2, "arguments": ["{2}", "{2}"]}, {}, "shapes", "1 arguments, not 2"),
        ({"class": 2}, {}, "attributes", "another class"),
    ],
)  # fmt: skip
def test_reasons_that_few_programs_give(
    first: dict[str, Any], second: dict[str, Any], kind: str, words: str
) -> None:
    rows = [row(**first), row(op="g"), row(**second)]
    none, also_none, reason = module._reasons(rows, [1, 1, 1], [None], True)
    assert reason is not None and (reason.kind, reason.earlier) == (kind, 1) and words in reason.text
    assert none is also_none is None


# ---------------------------------------------------------------- as text


class Checker(HTMLParser):
    """Every element is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_html(dy: Any) -> None:
    dy.renew_cg()
    pc = dy.ParameterCollection()
    W, V = pc.add_parameters((2, 2), name="<script>&"), pc.add_parameters((2, 2))
    dy.esum([W * dy.inputVector([1, 2]), V * dy.inputVector([1, 2])]).value()
    dy.tanh(dy.scalarInput(1)).value()
    plan = dy.cg().batch_plan()
    checker = Checker()
    checker.feed(plan._repr_html_())
    checker.close()
    assert checker.open == [] and any("/<script>&" in text for text in checker.texts)
    assert "script" not in checker.get_starttag_text()


def test_long_plans_are_cut(dy: Any) -> None:
    dy.renew_cg()
    h = dy.inputVector([1, 2])
    for i in range(100):
        h = dy.tanh(h) if i % 2 else dy.exp(h)
    plan = dy.cg().batch_plan()
    assert len(plan.launches) == 100
    assert "and 40 more of 40 nodes: see .launches" in str(plan) and len(str(plan).splitlines()) < 80
    assert "and 40 more of 40 nodes" in plan._repr_html_()
    assert repr(plan).startswith("<batch plan: 100 nodes in 100 launches")


def test_launches_that_run_together(dy: Any) -> None:
    dy.renew_cg()
    for i in range(3):
        dy.tanh(dy.exp(dy.inputVector([1, i])))
    plan = dy.cg().batch_plan()
    assert [(g.op, g.number, g.runs_with) for g in plan.launches] == [("exp", 1, 1), ("tanh", 2, 1)]
    assert "with 1" in str(plan)


def test_many_nodes_are_quick(dy: Any) -> None:
    import time

    dy.renew_cg()
    W = dy.ParameterCollection().add_parameters((2, 2))
    for _ in range(300):
        h = dy.inputVector([1, 2])
        for _ in range(100):
            h = dy.tanh(W * h)
    start = time.thread_time()
    plan = dy.cg().batch_plan()
    assert len(plan.launches) == 200 and len(str(plan)) < 20000
    assert time.thread_time() - start < 2
