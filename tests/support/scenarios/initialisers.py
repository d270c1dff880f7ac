# ruff: noqa: UP031
"""Initial values of parameters under given seeds."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

SEEDS = (1, 77, 4294967295)

# name, does it draw normal numbers (1 ulp allowed), how to create
RECIPES: list[tuple[str, bool, Callable[[Any, Any], Any]]] = [
    ("default-vector", False, lambda dy, pc: pc.add_parameters(6)),
    ("default-matrix", False, lambda dy, pc: pc.add_parameters((5, 7))),
    ("default-row", False, lambda dy, pc: pc.add_parameters((1, 9))),
    ("default-column", False, lambda dy, pc: pc.add_parameters((9, 1))),
    ("default-3d", False, lambda dy, pc: pc.add_parameters((2, 3, 4))),
    ("default-4d", False, lambda dy, pc: pc.add_parameters((3, 3, 2, 4))),
    ("default-lookup", False, lambda dy, pc: pc.add_lookup_parameters((6, 4))),
    ("default-lookup-3d", False, lambda dy, pc: pc.add_lookup_parameters((6, 2, 3))),
    ("default-lookup-scalar", False, lambda dy, pc: pc.add_lookup_parameters((6, 1))),
    ("glorot-string", False, lambda dy, pc: pc.add_parameters((3, 4), init="glorot")),
    ("glorot-gain", False, lambda dy, pc: pc.add_parameters((3, 4), init=dy.GlorotInitializer(gain=0.5))),
    (
        "glorot-is-lookup",
        False,
        lambda dy, pc: pc.add_lookup_parameters((6, 4), init=dy.GlorotInitializer(is_lookup=True)),
    ),
    (
        "glorot-is-lookup-gain",
        False,
        lambda dy, pc: pc.add_lookup_parameters((6, 2, 3), init=dy.GlorotInitializer(True, gain=2.0)),
    ),
    ("uniform", False, lambda dy, pc: pc.add_parameters((4, 3), init=dy.UniformInitializer(0.3))),
    ("uniform-string", False, lambda dy, pc: pc.add_parameters((4, 3), init="uniform", scale=0.7)),
    (
        "uniform-lookup",
        False,
        lambda dy, pc: pc.add_lookup_parameters((4, 3), init=dy.UniformInitializer(2.5)),
    ),
    ("normal", True, lambda dy, pc: pc.add_parameters((4, 3), init=dy.NormalInitializer())),
    ("normal-odd", True, lambda dy, pc: pc.add_parameters((3, 3), init=dy.NormalInitializer(0, 0.25))),
    ("normal-mean", True, lambda dy, pc: pc.add_parameters((4, 3), init=dy.NormalInitializer(1.5, 2.0))),
    ("normal-string", True, lambda dy, pc: pc.add_parameters(7, init="normal", mean=0.5, std=0.1)),
    ("normal-lookup", True, lambda dy, pc: pc.add_lookup_parameters((5, 3), init=dy.NormalInitializer(0, 4))),
    ("he", True, lambda dy, pc: pc.add_parameters((4, 6), init="he")),
    ("he-vector", True, lambda dy, pc: pc.add_parameters(5, init="he")),
    ("he-lookup", True, lambda dy, pc: pc.add_lookup_parameters((5, 3), init="he")),
    ("const", False, lambda dy, pc: pc.add_parameters((2, 3), init=dy.ConstInitializer(0.125))),
    ("number", False, lambda dy, pc: pc.add_parameters((2, 3), init=3)),
    ("number-float", False, lambda dy, pc: pc.add_lookup_parameters((2, 3), init=-0.3)),
    ("identity", False, lambda dy, pc: pc.add_parameters((4, 4), init=dy.IdentityInitializer())),
    ("identity-string", False, lambda dy, pc: pc.add_parameters((3, 3), init="identity")),
    ("array", False, lambda dy, pc: pc.add_parameters((2, 3), init=np.arange(6.0).reshape(2, 3))),
    (
        "numpy",
        False,
        lambda dy, pc: pc.add_parameters((2, 3), init=dy.NumpyInitializer(np.arange(6.0).reshape(2, 3))),
    ),
    ("from-numpy", False, lambda dy, pc: pc.parameters_from_numpy(np.arange(12.0).reshape(2, 3, 2))),
    (
        "lookup-from-numpy",
        False,
        lambda dy, pc: pc.lookup_parameters_from_numpy(np.arange(12.0).reshape(4, 3)),
    ),
]
NORMAL = {name for name, normal, _ in RECIPES if normal}


def one_by_one(dy: Any) -> dict[str, np.ndarray]:
    """Every recipe alone, under every seed."""
    arrays = {}
    for seed in SEEDS:
        for name, _, make in RECIPES:
            dy.reset_random_seed(seed)
            arrays["%s|%d" % (name, seed)] = make(dy, dy.ParameterCollection()).as_array().astype(np.float32)
    return arrays


def in_sequence(dy: Any) -> dict[str, np.ndarray]:
    """Several parameters of one collection: the stream goes on from one to the next."""
    dy.reset_random_seed(5)
    pc = dy.ParameterCollection()
    arrays = {}
    for name, _, make in RECIPES:
        arrays[name + "|seq"] = make(dy, pc).as_array().astype(np.float32)
    sub = pc.add_subcollection("sub")
    arrays["default-matrix|sub"] = sub.add_parameters((3, 2)).as_array().astype(np.float32)
    return arrays


def saxe(dy: Any) -> dict[str, np.ndarray]:
    """Orthogonal matrices, from a singular value decomposition."""
    dy.reset_random_seed(3)
    return {"saxe": dy.ParameterCollection().add_parameters((5, 5), init=dy.SaxeInitializer(1.5)).as_array()}


SCENARIOS = {"init-alone": one_by_one, "init-sequence": in_sequence, "init-saxe": saxe}
