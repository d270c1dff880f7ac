# ruff: noqa: UP031
"""Tensors: argmax, largest elements, samples. No two elements are equal and none is NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

# shape, whether the last axis is a batch
SHAPES: list[tuple[tuple[int, ...], bool]] = [
    ((1,), False),
    ((5,), False),
    ((7, 1), False),
    ((3, 4), False),
    ((3, 4), True),
    ((3, 4, 2), False),
    ((3, 4, 2), True),
    ((2, 3, 4, 2), False),
    ((2, 3, 2, 3), True),
    ((1, 6), False),
    ((40,), False),
    ((30, 5), True),
]


def _tensors(dy: Any) -> Any:
    for shape, batched in SHAPES:
        seed = sum(n * (i + 1) for i, n in enumerate(shape)) + batched
        numbers = np.random.RandomState(seed).permutation(int(np.prod(shape))).reshape(shape) / 7.0 - 2
        dy.renew_cg(autobatching=False)
        e = dy.inputTensor(numbers, batched=batched)
        yield "x".join(map(str, shape)) + ("b" if batched else ""), e, len(e.dim()[0])


def values(dy: Any) -> dict[str, np.ndarray]:
    """as_numpy, argmax and topk along every dimension and one past the last."""
    arrays = {}
    for name, e, dims in _tensors(dy):
        tensor = e.tensor_value()
        arrays[name + "|value"] = tensor.as_numpy()
        for dim in range(min(dims + 1, 4)):
            key = "%s|%d" % (name, dim)
            arrays[key + "|argmax"] = tensor.argmax(dim).as_numpy()
            extent = e.dim()[0][dim] if dim < dims else 1
            for num in sorted({1, (extent + 1) // 2, extent}):
                best, where = (t.as_numpy() for t in tensor.topk(dim=dim, num=num))
                if dim < dims:  # the reference finds the largest but leaves them in disorder
                    order = np.argsort(-best, axis=dim)
                    best, where = (np.take_along_axis(a, order, axis=dim) for a in (best, where))
                arrays["%s|top%d" % (key, num)] = best
                arrays["%s|at%d" % (key, num)] = where
    return arrays


def samples(dy: Any) -> dict[str, np.ndarray]:
    """Samples under a seed, and the number of the stream that follows."""
    arrays = {}
    dy.reset_random_seed(31)
    for name, e, dims in _tensors(dy):
        tensor = dy.log_softmax(e).tensor_value() if dims == 1 else e.tensor_value()
        for dim in range(dims):
            for turn in range(3):
                key = "%s|%d|%d" % (name, dim, turn)
                arrays[key] = tensor.categorical_sample_log_prob(dim).as_numpy()
        arrays[name + "|next"] = np.float32(dy.random_uniform(1, 0, 1).value())
    return arrays


SCENARIOS = {"tensor-values": values, "tensor-samples": samples}
