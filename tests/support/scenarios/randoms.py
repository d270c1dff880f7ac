# ruff: noqa: UP031
"""Random streams of nodes: order of draws, redraws, and what is left for the next graph."""

from __future__ import annotations

from typing import Any

import numpy as np

# name, expression over dy and x (a 4x3 tensor of ones), uses normal or gumbel numbers (not bit-exact)
DRAWS: list[tuple[str, str, bool]] = [
    ("normal", "dy.random_normal((5, 3))", True),
    ("normal-odd", "dy.random_normal(5, 1.0, 2.0)", True),
    ("uniform", "dy.random_uniform((5, 3), -1, 3)", False),
    ("bernoulli", "dy.random_bernoulli((5, 3), 0.35, 2.0)", False),
    ("gumbel", "dy.random_gumbel((5, 3))", True),
    ("dropout", "dy.dropout(x, 0.25)", False),
    ("dropout-dim", "dy.dropout_dim(x, 0, 0.5)", False),
    ("dropout-batch", "dy.dropout_batch(dy.concatenate_to_batch([x] * 8), 0.5)", False),
    ("block-dropout", "dy.block_dropout(x, 0.5)", False),
    ("noise", "dy.noise(x, 0.3)", True),
    ("batched", "dy.random_uniform(3, 0, 1, batch_size=4)", False),
]
INEXACT = {name for name, _, inexact in DRAWS if inexact}


def _draw(dy: Any, text: str) -> Any:
    return eval(text, {"dy": dy, "x": dy.ones((4, 3))})  # noqa: S307 - our own text


def alone(dy: Any) -> dict[str, np.ndarray]:
    """Each kind in a graph of its own, twice without reseeding: the second draw continues the stream."""
    arrays = {}
    for name, text, _ in DRAWS:
        dy.reset_random_seed(11)
        for turn in (1, 2):
            dy.renew_cg(autobatching=False)
            arrays["%s|%d" % (name, turn)] = _draw(dy, text).npvalue().astype(np.float32)
    return arrays


def together(dy: Any) -> dict[str, np.ndarray]:
    """All kinds in one graph, computed by one forward: numbers are drawn in order of creation."""
    dy.reset_random_seed(12)
    dy.renew_cg(autobatching=False)
    nodes = [(name, _draw(dy, text)) for name, text, _ in DRAWS]
    nodes[-1][1].npvalue()
    return {name + "|together": node.npvalue().astype(np.float32) for name, node in nodes}


def redraw(dy: Any) -> dict[str, np.ndarray]:
    """A random node keeps its value until it is recalculated."""
    dy.reset_random_seed(13)
    dy.renew_cg(autobatching=False)
    node = dy.random_uniform(6, 0, 1)
    first, again = node.npvalue(), node.npvalue()
    drawn = node.npvalue(recalculate=True)
    later = dy.random_uniform(6, 0, 1).npvalue()
    values = {"first": first, "again": again, "redrawn": drawn, "later": later}
    return {"uniform|" + key: value.astype(np.float32) for key, value in values.items()}


def with_parameters(dy: Any) -> dict[str, np.ndarray]:
    """Parameters draw when they are created, nodes when they are computed."""
    dy.reset_random_seed(14)
    dy.renew_cg(autobatching=False)
    pc = dy.ParameterCollection()
    node = dy.random_uniform(4, 0, 1)
    parameter = pc.add_parameters((3, 2))
    value = node.npvalue()
    second = pc.add_parameters((3, 2))
    arrays = {"node": value, "first": parameter.as_array(), "second": second.as_array()}
    return {"uniform|" + key: array.astype(np.float32) for key, array in arrays.items()}


SCENARIOS = {
    "random-alone": alone,
    "random-together": together,
    "random-redraw": redraw,
    "random-with-parameters": with_parameters,
}
