"""What threads share has the same bits with any number of them: products of nodes with weights of their own,
wide rows of tables, columns that repeat, and gradients that several nodes add to."""

from __future__ import annotations

from collections.abc import Callable

import dynet_compat as dy
import numpy as np
import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="threads of this package")

N = 160
Program = Callable[[dict, list], "dy.Expression"]


def matrix_vector(p: dict, rows: list[int]) -> dy.Expression:
    """Lookups of one row are one node, so gradients of its matrix are added up over several products."""
    vectors = [dy.tanh(p["E"][row]) for row in rows]
    return dy.esum([dy.sum_elems(dy.tanh(p["EM"][a] * x)) for a, x in zip(rows[::-1], vectors)])


def squares(p: dict, rows: list[int]) -> dy.Expression:
    """Each gradient is that of a weight and of an input."""
    return dy.esum([dy.sum_elems(dy.tanh(p["EM"][a] * p["EM"][a])) for a in rows])


def chains(p: dict, rows: list[int]) -> dy.Expression:
    """The input of one product is the weight of another one of the same launch."""
    matrices = [p["EM"][row] for row in rows]
    return dy.esum([dy.sum_elems(dy.tanh(a * b)) for a, b in zip(matrices, matrices[1:])])


def columns(p: dict, rows: list[int]) -> dy.Expression:
    """More columns than rows, some of which several products read."""
    matrices = [p["EM"][row] for row in rows]
    again = [dy.reshape(dy.reshape(m, (N * N,)), (N, N)) for m in matrices[::3]]
    return dy.esum([dy.sum_elems(dy.tanh(p["W"] * m)) for m in matrices[::-1] + again])


def batched(p: dict, rows: list[int]) -> dy.Expression:
    """Weights, inputs and biases of batches, and of one element for all of a batch."""
    one, all_ = p["EM"][rows[0]], dy.lookup_batch(p["EM"], rows)
    x, xs = p["E"][rows[0]], dy.lookup_batch(p["E"], rows)
    found = [
        all_ * x,
        one * xs,
        all_ * xs,
        dy.affine_transform([x, all_, xs]),
        dy.affine_transform([xs, one, x]),
    ]
    return dy.sum_batches(dy.esum([dy.sum_elems(dy.tanh(y)) for y in found]))


def train(program: Program, threads: int) -> list[np.ndarray]:
    """Loss and parameters after some updates."""
    before = dy._core.threads()
    dy._core.set_threads(threads)
    try:
        dy.reset_random_seed(3)
        pc = dy.ParameterCollection()
        p = {
            "E": pc.add_lookup_parameters((20, N)),
            "EM": pc.add_lookup_parameters((20, N, N)),
            "W": pc.add_parameters((N, N)),
        }
        trainer = dy.SimpleSGDTrainer(pc, 0.01)
        found = []
        for step in range(3):
            dy.renew_cg()
            loss = program(p, [(7 * i + step) % 20 for i in range(24)])
            found.append(np.float32(loss.value()))
            loss.backward()
            trainer.update()
        return [*found, *(one.as_array() for one in p.values())]
    finally:
        dy._core.set_threads(before)


@pytest.mark.parametrize("program", [matrix_vector, squares, chains, columns, batched])
def test_threads_change_no_bits(program: Program) -> None:
    one = train(program, 1)
    for threads in (2, 3):
        for a, b in zip(one, train(program, threads)):
            assert np.array_equal(a, b), threads
