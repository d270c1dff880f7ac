"""The constants of benchmarks/gpu_model.py, measured on this machine's device: the first 20 s of gpu-check.

    python tools/gpu_micro.py --json FILE [--seconds 20]

Each is the slope, or the value, of the wall-clock time of small programs; the file is written again after
each, so that a run that is cut off leaves what it has. In microseconds.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SHORT, LONG = 20, 120  # steps of the two programs of a slope


class Micro:
    """Programs of so many steps on the device of the process."""

    def __init__(self, seconds: float) -> None:
        self.dy: Any = importlib.import_module("dynet_compat")
        self.end = time.perf_counter() + seconds
        self.dy._core._device_options(measured=False)  # each way is asked for
        pc = self.dy.ParameterCollection()
        self.W = pc.add_parameters((256, 256))
        self.x = [0.01] * 256

    def chain(self, steps: int, product: bool) -> float:
        """Seconds from the first node to the value on the host."""
        dy = self.dy
        start = time.perf_counter()
        dy.renew_cg()
        h = dy.inputVector(self.x)
        for i in range(steps):
            h = self.W * h if product else (dy.tanh(h) if i % 2 else dy.rectify(h))
        dy.sum_elems(h).value()
        return time.perf_counter() - start

    def least(self, steps: int, product: bool, times: int = 12) -> float:
        """Microseconds; the first runs compile and capture."""
        for _ in range(5):
            self.chain(steps, product)
        return 1e6 * min(self.chain(steps, product) for _ in range(times))

    def slope(self, product: bool, **options: Any) -> float:
        """Microseconds of one step more."""
        before = self.dy._core._device_options()
        self.dy._core._device_options(**options)
        try:
            return (self.least(LONG, product) - self.least(SHORT, product)) / (LONG - SHORT)
        finally:
            self.dy._core._device_options(**{name: before[name] for name in options})

    def kernel(self) -> float:
        """Of the device alone: by events around each launch."""
        core = self.dy._core
        core._device_options(persistent=False, chains=False)
        core._measure_device(True)
        core.reset_timing()
        for _ in range(5):
            self.chain(LONG, False)
        told = core.timing()
        core._measure_device(False)
        core._device_options(persistent=True, chains=True)
        return 1e6 * told["device_launch_seconds"] / max(told["device_launches"], 1)


def measurements(m: Micro) -> dict[str, Callable[[dict[str, float]], float]]:
    """In this order; each sees what was found before it."""
    alone = {"persistent": False, "graphs": False, "chains": False}
    return {
        "flush": lambda _: m.least(1, False),
        "launch": lambda _: m.slope(False, **alone),
        "kernel": lambda _: m.kernel(),
        "link": lambda _: m.slope(False, persistent=False, graphs=False),
        "graph_kernel": lambda _: m.slope(False, persistent=False, chains=False),
        "product": lambda f: max(0.0, m.slope(True, **alone) - f["launch"]),
        "step": lambda _: m.slope(False, persistent=True, chains=False),
        "kept_product": lambda f: max(0.0, m.slope(True, persistent=True) - f["step"]),
    }


def run(file: Path, seconds: float) -> dict[str, float]:
    micro = Micro(seconds)
    found: dict[str, float] = {}
    for name, measure in measurements(micro).items():
        if time.perf_counter() > micro.end:
            break
        found[name] = round(measure(found), 3)
        file.write_text(json.dumps(found) + "\n", encoding="utf-8")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", required=True)
    parser.add_argument("--seconds", type=float, default=20.0)
    args = parser.parse_args()
    sys.argv = sys.argv[:1]
    print(json.dumps(run(Path(args.json), args.seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
