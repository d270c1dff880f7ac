"""Random programs whose control flow reads values: batch_map gives what the plain loop gives.

A program is a tree of statements, made from drawn choices without the library, and run by `Run` for each
instance. Branches and loops ask for the whole part of a value, and programs whose values come near a
boundary are not used: there a rounding difference may rightly change the path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

WIDTH = 4
Map = Callable[..., list[Any]]

OPS = ["affine", "tanh", "cmult", "sum", "softmax", "lookup", "slices", "max", "lstm", "shared", "scale"]
ops = st.tuples(st.just("op"), st.sampled_from(OPS), st.integers(0, 3), st.integers(0, 3))
reads = st.tuples(st.just("read"), st.integers(0, 4), st.integers(0, 3))
losses = st.tuples(st.just("loss"), st.integers(0, 3))
forgets = st.tuples(st.just("return if"), st.integers(0, 3))


def blocks(inner: Any) -> Any:
    body = st.lists(inner, min_size=1, max_size=4)
    return st.one_of(
        st.tuples(st.just("if"), st.integers(0, 3), body, body),
        st.tuples(st.just("while"), st.integers(0, 3), body),
        st.tuples(st.just("for generated"), st.integers(0, 3), body),
        st.tuples(st.just("recurse"), st.integers(0, 3), body),
        st.tuples(st.just("map"), st.integers(0, 3), body),
        st.tuples(st.just("try"), body),
    )


statements = st.recursive(st.one_of(ops, reads, losses, forgets), blocks, max_leaves=14)
programs = st.lists(statements, min_size=2, max_size=7)
inputs = st.lists(st.integers(-20, 20), min_size=1, max_size=6)


class Near(Exception):
    """A value lies where rounding decides."""


class Left(Exception):
    """The program ends early."""


class Model:
    def __init__(self, dy: Any, seed: int) -> None:
        rng = np.random.RandomState(seed)
        self.pc = pc = dy.ParameterCollection()
        self.w = pc.parameters_from_numpy(rng.normal(0, 0.7, (WIDTH, WIDTH)))
        self.b = pc.parameters_from_numpy(rng.normal(0, 0.5, WIDTH))
        self.table = pc.lookup_parameters_from_numpy(rng.normal(0, 1, (5, WIDTH)))
        self.lstm = dy.VanillaLSTMBuilder(1, WIDTH, WIDTH, pc)
        for p in self.lstm.get_parameters()[0]:
            p.set_value(rng.normal(0, 0.5, p.shape()))

    def gradients(self) -> list[np.ndarray]:
        return [p.grad_as_array() for p in [*self.pc.parameters_list(), *self.pc.lookup_parameters_list()]]


class Run:
    """One instance: four registers that hold vectors, the values read, the losses."""

    def __init__(self, dy: Any, model: Model, mapped: Map, x: float) -> None:
        self.dy, self.model, self.mapped = dy, model, mapped
        self.registers = [dy.inputVector([x / 10, -x / 7, 0.3, k]) for k in (0.1, 0.5, -0.4, 1.0)]
        self.seen: list[float] = []
        self.losses: list[Any] = []
        self.state = model.lstm.initial_state()
        self.budget = 60

    def copy(self, factor: float) -> Run:
        other = Run.__new__(Run)
        other.__dict__.update(self.__dict__)
        other.registers = [r * factor for r in self.registers]
        other.seen, other.losses, other.budget = [], [], 8
        return other

    def value(self, r: int) -> float:
        v = float(self.dy.sum_elems(self.registers[r]).value())
        self.seen.append(v)
        if not math.isfinite(v) or abs(v) > 1e3:
            raise Left
        return v

    def whole(self, r: int) -> int:
        v = 2 * self.value(r)
        if abs(v - round(v)) < 1e-3:
            raise Near
        return math.floor(v)

    def run(self, body: list[Any]) -> None:
        for statement in body:
            self.budget -= 1
            if self.budget < 0:
                raise Left
            getattr(self, "do_" + statement[0].replace(" ", "_"))(*statement[1:])

    def do_op(self, name: str, a: int, b: int) -> None:
        dy, m, r = self.dy, self.model, self.registers
        x, y = r[a], r[b]
        if name == "affine":
            z = dy.affine_transform([m.b, m.w, x])
        elif name == "tanh":
            z = dy.tanh(x)
        elif name == "cmult":
            z = dy.cmult(x, dy.logistic(y))
        elif name == "sum":
            z = dy.esum([x, y, m.b]) * 0.5
        elif name == "softmax":
            z = dy.softmax(x) + y
        elif name == "lookup":
            z = m.table[(a + 2 * b) % 5] + x
        elif name == "slices":
            z = dy.concatenate([x[1:4], y[0:1]])
        elif name == "max":
            z = dy.bmax(dy.tanh(x), m.b)
        elif name == "lstm":
            self.state = self.state.add_input(x)
            z = self.state.output()
        elif name == "shared":
            z = dy.tanh(m.w * m.b) + x  # partly the same for all
        else:
            z = x * 0.7 - 0.2
        r[b] = z

    def do_read(self, how: int, r: int) -> None:
        e = self.registers[r]
        vector = [
            lambda: e.value(),
            lambda: e.npvalue().tolist(),
            lambda: e.vec_value(),
            lambda: e.forward() or e.value(),
            lambda: self.dy.npvalues([e, e * 2])[0].tolist(),
        ][how]()
        self.seen += vector

    def do_loss(self, r: int) -> None:
        self.losses.append(self.dy.squared_norm(self.registers[r] - 0.1))

    def do_return_if(self, r: int) -> None:
        if self.whole(r) % 3 == 0:
            raise Left

    def do_if(self, r: int, yes: list[Any], no: list[Any]) -> None:
        self.run(yes if self.whole(r) % 2 else no)

    def do_while(self, r: int, body: list[Any]) -> None:
        for _ in range(4):
            if self.whole(r) % 2 == 0:
                break
            self.run(body)
            self.do_op("scale", r, r)

    def do_for_generated(self, r: int, body: list[Any]) -> None:
        def steps() -> Iterator[int]:
            for k in range(3):
                if self.whole(r) % 3 == k:
                    return
                yield k
                self.do_op("tanh", r, (r + 1) % 4)

        for _ in steps():
            self.run(body)

    def do_recurse(self, r: int, body: list[Any]) -> None:
        def down(depth: int) -> None:
            if depth == 3 or self.whole(r) % 3 == 0:
                return
            self.run(body)
            self.do_op("affine", r, r)
            down(depth + 1)

        down(0)

    def do_map(self, r: int, body: list[Any]) -> None:
        if self.mapped is None:
            return
        runs = [self.copy(factor) for factor in (0.6, 1.2)]

        def inner(run: Run) -> Run:
            try:
                run.run(body)
            except Left:
                pass
            return run

        for run in self.mapped(inner, runs):
            self.seen += run.seen
            self.losses += run.losses
            self.registers[r] = run.registers[r]

    def do_try(self, body: list[Any]) -> None:
        try:
            self.run(body)
        except Left:
            self.seen.append(float(self.registers[0].npvalue()[0]))


def plain(function: Callable[[Any], Any], instances: Any) -> list[Any]:
    return [function(x) for x in instances]


def outcome(dy: Any, program: list[Any], xs: list[int], mapped: Map) -> tuple[list[Any], list[np.ndarray]]:
    """The values that each instance read, and the gradients of the sum of all losses."""
    dy.renew_cg(autobatching=True)
    model = Model(dy, 1)

    def instance(x: float) -> Run:
        run = Run(dy, model, mapped, x)
        try:
            run.run(program)
        except Left:
            pass
        return run

    runs = mapped(instance, xs)
    losses = [loss for run in runs for loss in run.losses]
    if losses:
        dy.esum(losses).backward()
    return [run.seen for run in runs], model.gradients()


@pytest.mark.parametrize("backend", ["greenlet", "threads"])
def test_as_the_plain_loop(dy: Any, backend: str, fuzz_count: int) -> None:
    def mapped(function: Callable[[Any], Any], instances: Any) -> list[Any]:
        results: list[Any] = dy.batch_map(function, instances, backend=backend)
        return results

    @settings(
        max_examples=fuzz_count or (120 if backend == "greenlet" else 40),
        deadline=None,
        derandomize=not fuzz_count,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(programs, inputs)
    def check(program: list[Any], xs: list[int]) -> None:
        try:
            expected, gradients = outcome(dy, program, xs, plain)
        except Near:
            assume(False)
        seen, together = outcome(dy, program, xs, mapped)
        assert [len(s) for s in seen] == [len(s) for s in expected]
        for a, b in zip(seen, expected):
            np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)
        for a, b in zip(together, gradients):
            scale = max(1.0, float(np.abs(b).max()))
            np.testing.assert_allclose(a / scale, b / scale, rtol=1e-5, atol=1e-5)

    check()
