"""Large products of each precision, by the package's kernels and by the library, against float64: a part of
gpu-check.

    DYNET_COMPAT_DEVICE=gpu python tools/gpu_products.py [--small]

Prints a line for each precision and way; exit status 1 if one is wrong. A GPU older than sm_80 has only
float32. --small: few and small products, for an emulation.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import Any, Optional

import numpy as np

# Largest errors, as shares of the sums of terms' magnitudes. The library rounds in ways of its own.
MOST = {"float32": 1e-5, "tf32": 1.1e-3, "bf16": 1e-2}
LIBRARY = 2.0  # times as much
LEAST = 1 / 200  # of MOST: with less, our kernels have not used it (cuBLAS may choose a better one)
SMALL = [(128, 64, 16), (130, 70, 33), (33, 40, 47)]  # m, inner, n
LARGE = [(257, 129, 100), (1000, 777, 333), (512, 2048, 512)]


def error(found: Any, a: Any, b: Any) -> float:
    """The largest, as a share; inf where a number is none."""
    if not np.isfinite(found).all():
        return float("inf")
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float((np.abs(found - a @ b) / (np.abs(a) @ np.abs(b))).max())


def verdict(precision: str, way: str, errors: list[float]) -> Optional[str]:
    """What is wrong with them."""
    most = MOST[precision] * (LIBRARY if way == "library" else 1.0)
    if not max(errors) <= most:
        return f"more than {most:g}"
    if way == "large" and precision != "float32" and min(errors) < LEAST * MOST[precision]:
        return "that of another precision"
    return None


def products(dy: Any, way: str, m: int, inner: int, n: int) -> list[float]:
    """Errors of W X and of both gradients."""
    rng = np.random.default_rng(3)
    shapes = ((m, inner), (inner, n), (m, n))
    w, x, r = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    pc = dy.ParameterCollection()
    W, X = pc.parameters_from_numpy(w), pc.parameters_from_numpy(x)
    dy.renew_cg()
    dy._core.reset_timing()
    y = W * X
    loss = dy.sum_elems(dy.cmult(y, dy.inputTensor(r)))
    value = y.npvalue()
    loss.backward()
    made = int(dy._core.timing()[way + "_products"])
    if made < 3:  # more where an inner index is cut into parts
        raise RuntimeError(f"{made} of three products were made this way")
    return [error(value, w, x), error(W.grad_as_array(), r, x.T), error(X.grad_as_array(), w.T, r)]


def alike(dy: Any) -> bool:
    """A column alone has the bits that it has beside others."""
    rng = np.random.default_rng(4)
    W = dy.ParameterCollection().parameters_from_numpy(rng.normal(size=(150, 100)).astype(np.float32))
    xs = rng.normal(size=(70, 100)).astype(np.float32)
    dy.renew_cg()
    together = [y.npvalue().tobytes() for y in [dy.tanh(W * dy.inputVector(x)) for x in xs]]
    alone = []
    for x in xs[::9]:
        dy.renew_cg()
        alone.append(dy.tanh(W * dy.inputVector(x)).npvalue().tobytes())
    return alone == together[::9]


def check(dy: Any, way: str, precision: str, shapes: list[tuple[int, int, int]]) -> bool:
    dy._core._device_options(matmul=way, precision=precision)
    errors = [e for shape in shapes for e in products(dy, way, *shape)]
    wrong = verdict(precision, way, errors)
    if way == "large" and not alike(dy):
        wrong = "columns alone and beside others differ"
    by = dy._core._device_options()["gemm_library"] if way == "library" else "kernels"
    print(f"{precision} by {by}: {max(errors):.1e}" + (f", WRONG: {wrong}" if wrong else ""), flush=True)
    return wrong is None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    os.environ["DYNET_COMPAT_PRECISION"] = "bf16"  # asks whether the device has tensor cores
    dy = importlib.import_module("dynet_compat")
    precisions = list(MOST) if dy._core._device_options()["precision"] == "bf16" else ["float32"]
    ways = ["large", "library"] if os.environ.get("DYNET_COMPAT_CUBLAS") != "0" else ["large"]
    shapes = SMALL if args.small else SMALL + LARGE
    well = [check(dy, way, precision, shapes) for precision in precisions for way in ways]
    return 0 if all(well) else 1


if __name__ == "__main__":
    sys.exit(main())
