# ruff: noqa: UP031
"""Random graphs: batched and unbatched give the same values and gradients, to 1e-5 relative.

DYNET_COMPAT_FUZZ=20000 makes the long run. A failure names the seed, the node and what it depends on.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.programs import PATTERNS, Models, Outcome, Program, run, run_again, run_in_parts
from support.subject import IS_REFERENCE, subject

COUNT = int(os.environ.get("DYNET_COMPAT_FUZZ", "0")) or 300
TOLERANCE = 1e-5
MODELS: dict[str, Models] = {}  # filled by the first test: the library may be missing when this is imported


def worst(got: np.ndarray, want: np.ndarray, floor: float) -> Optional[str]:
    """None if within 1e-5 of the largest element, or of `floor` where cancellation leaves less than that.

    Operands are of order 1; a sum of them may be near 0 and still carries their rounding.
    """
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return f"shape {got.shape}, unbatched {want.shape}"
    scale = max(float(np.abs(want).max()), floor)
    error = float(np.abs(got - want).max())
    if error <= TOLERANCE * scale:  # also false for NaN
        return None
    at = np.unravel_index(int(np.argmax(np.nan_to_num(np.abs(got - want), nan=np.inf))), want.shape)
    where = f"abs error {error:.3g} at {tuple(map(int, at))}, {error / scale:.3g} of the largest element"
    return f"{where}: got {got[at]:.9g}, unbatched {want[at]:.9g}"


def compare(program: Program, batched: Outcome, plain: Outcome) -> None:
    """Fail at the first node (in order of creation) that differs."""
    name = "Program(%d, %d, %r, random=%r)" % (program.seed, program.size, program.pattern, program.random)
    numbers = [n for n, s in enumerate(program.steps) if s.args]
    for n, got, want, got_dim, want_dim in zip(
        numbers, batched.values, plain.values, batched.dims, plain.dims
    ):
        step = program.steps[n]
        assert got_dim == want_dim == (step.dims, step.batch), (
            "%s: dim of v%d is %s batched, %s unbatched\n%s" % (name, n, got_dim, want_dim, program.text(n))
        )
        found = worst(got, want, 1.0)
        assert found is None, "%s: value of v%d (%s): %s\n%s" % (name, n, step.kind, found, program.text(n))
    assert abs(batched.loss - plain.loss) <= TOLERANCE * max(abs(plain.loss), 1.0), (
        f"{name}: loss {batched.loss:.9g}, unbatched {plain.loss:.9g}"
    )
    floor = max(0.3, 0.1 * max(float(np.abs(grad).max()) for grad in plain.grads.values()))
    for n, want in plain.grads.items():
        found = worst(batched.grads[n], want, floor)
        assert found is None, "%s: gradient of v%d (%s {%s}): %s\nthe loss:\n%s" % (
            name,
            n,
            program.steps[n].kind,
            ",".join(map(str, program.steps[n].dims)),
            found,
            "\n".join(program.text(loss) for loss in program.losses[:3]),
        )


@pytest.mark.skipif(IS_REFERENCE, reason="the reference's autobatching is wrong for several of these ops")
@settings(
    max_examples=COUNT,
    deadline=None,
    database=None,
    derandomize=True,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)
@given(
    seed=st.integers(0, 2**31 - 1),
    size=st.integers(1, 90),
    pattern=st.sampled_from(PATTERNS),
    random=st.booleans(),
)
def test_batched_is_unbatched(seed: int, size: int, pattern: str, random: bool) -> None:
    dy = subject()
    MODELS.setdefault("models", Models(dy))
    program = Program(seed, size, pattern, random)
    batched = run(dy, program, True, models=MODELS["models"])
    compare(program, batched, run(dy, program, False, models=MODELS["models"]))


@pytest.mark.skipif(IS_REFERENCE, reason="one scheduler only")
@pytest.mark.parametrize("part", range(4))
def test_values_do_not_depend_on_when_they_are_read(dy: Any, part: int) -> None:
    """Reading values while the graph is built or none gives the same loss and gradients."""
    for seed in range(40 * part, 40 * part + 40):
        program = Program(seed, 40, PATTERNS[seed % len(PATTERNS)])
        compare(program, run_in_parts(dy, program, True, 3, reads=True), run_in_parts(dy, program, True, 3))


@pytest.mark.skipif(IS_REFERENCE, reason="the reference's autobatching is wrong for several of these ops")
@pytest.mark.parametrize("pattern", PATTERNS)
def test_graph_that_grows(dy: Any, pattern: str) -> None:
    """Forward and backward after each of several pieces: what is computed stays, the rest is added."""
    for seed in range(16):
        program = Program(seed, 60, pattern, random=seed % 2 == 1)
        cuts = 2 + seed % 3
        compare(program, run_in_parts(dy, program, True, cuts), run_in_parts(dy, program, False, cuts))


@pytest.mark.parametrize("autobatching", [False] if IS_REFERENCE else [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_inputs_that_are_set(dy: Any, pattern: str, autobatching: bool) -> None:
    """After set() of the inputs the same graph gives what a new graph gives."""
    for seed in range(12):
        program = Program(seed, 50, pattern)
        again = run_again(dy, program, autobatching)
        compare(program, again, run(dy, program, False))


@pytest.mark.skipif(IS_REFERENCE, reason="one way of computing only")
@pytest.mark.parametrize("autobatching", [False, True])
def test_immediate_compute(dy: Any, autobatching: bool) -> None:
    for seed in range(20):
        program = Program(seed, 40, PATTERNS[seed % len(PATTERNS)], random=True)
        immediate = run(dy, program, autobatching, immediate_compute=True)
        compare(program, immediate, run(dy, program, False))


@pytest.mark.skipif(IS_REFERENCE, reason="ours")
def test_same_graph_twice(dy: Any) -> None:
    """A remembered plan gives the very same bits as a new one, also when other graphs came between."""

    def compare_twice() -> None:
        programs = [Program(seed, 50, PATTERNS[seed % len(PATTERNS)]) for seed in range(15)]
        for program in programs:  # the first time also teaches the recorder which sites there are
            run(dy, program, True)
        first = [run(dy, program, True) for program in programs]
        for program, before in zip(programs, first):
            after = run(dy, program, True)
            assert after.loss == before.loss, (
                f"seed {program.seed}: loss {after.loss!r}, first {before.loss!r}"
            )
            for n, want in before.grads.items():
                assert np.array_equal(after.grads[n], want), f"seed {program.seed}: gradient of v{n} differs"

    # In a thread of its own, whose tables of signatures are new: those of a graph that has seen very many are
    # given up at some point, and what is learned again may be planned in another order.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(compare_twice).result()


def test_programs_are_varied() -> None:
    """The generator reaches every kind of op it lists; otherwise the tests above say less than they seem."""
    from support.programs import CALLS

    seen = {s.kind for seed in range(150) for s in Program(seed, 80, PATTERNS[seed % 5], True).steps}
    missing = set(CALLS) - seen
    assert not missing, f"never generated: {sorted(missing)}"


@pytest.mark.parametrize("pattern", PATTERNS)
def test_shapes(dy: Any, pattern: str) -> None:
    """Dims are what the generator computes for them, and everything is finite."""
    for seed in range(12):
        program = Program(seed, 60, pattern)
        outcome = run(dy, program, False)
        for step, dim in zip([s for s in program.steps if s.args], outcome.dims):
            assert dim == (step.dims, step.batch), f"{step}: {dim}"
        assert np.isfinite(outcome.loss) and all(np.isfinite(g).all() for g in outcome.grads.values())
