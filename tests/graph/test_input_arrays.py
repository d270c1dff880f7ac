"""inputTensor() copies arrays of the machine's own floats itself, and leaves others to NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

COUNTED = np.arange(24).reshape(2, 3, 4)


@pytest.mark.parametrize("kind", ["f4", "f8", ">f4", ">f8", "f2", "i8", "u1", "?"])
@pytest.mark.parametrize("batched", [False, True])
def test_types(dy: Any, kind: str, batched: bool) -> None:
    array = COUNTED.astype(kind)
    dy.renew_cg()
    assert np.array_equal(dy.inputTensor(array, batched).npvalue(), array.astype("f4"))


@pytest.mark.parametrize(
    "view",
    [
        COUNTED.T,
        COUNTED[:, ::-1],
        COUNTED[:, 1:, ::2],
        np.asfortranarray(COUNTED),
        np.broadcast_to(COUNTED[:1], (5, 3, 4)),
        COUNTED[0, 0],
        COUNTED[0, 0, ::-2],
    ],
)
@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_views(dy: Any, view: np.ndarray, kind: str) -> None:
    values = view.astype(kind)
    dy.renew_cg()
    for array in (view, values, np.lib.stride_tricks.as_strided(values, values.shape, values.strides)):
        assert np.array_equal(dy.inputTensor(array).npvalue(), view)


def test_fields_that_are_not_aligned(dy: Any) -> None:
    packed = np.zeros(7, dtype=np.dtype([("byte", "u1"), ("number", "f8")]))
    packed["number"] = range(7)
    dy.renew_cg()
    assert np.array_equal(dy.inputTensor(packed["number"]).npvalue(), range(7))


def test_subclasses(dy: Any) -> None:
    dy.renew_cg()
    assert np.array_equal(dy.inputTensor(np.ma.array([1.0, 2.0])).npvalue(), [1, 2])
    assert np.array_equal(dy.inputTensor(np.float64([3.0])).npvalue(), [3])


def test_later_changes_of_the_array_are_not_seen(dy: Any) -> None:
    array = np.ones(3, "f4")
    dy.renew_cg()
    x = dy.inputTensor(array)
    array[:] = 2
    assert np.array_equal(x.npvalue(), [1, 1, 1])


@pytest.mark.parametrize("kind", ["f4", "f8", "i8"])
def test_no_device(dy: Any, kind: str) -> None:
    dy.renew_cg()
    assert np.array_equal(dy.inputTensor(np.ones(3, kind), device=None).npvalue(), [1, 1, 1])
