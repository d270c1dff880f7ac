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
AHEAD = 3072  # rows of matrices whose product keeps the device busy while the host launches a whole program


class Micro:
    """Programs of so many steps on the device of the process."""

    def __init__(self, seconds: float) -> None:
        self.dy: Any = importlib.import_module("dynet_compat")
        self.end = time.perf_counter() + seconds
        on_gpu = self.dy._core._device_options(measured=False)["device"].startswith("cuda")
        pc = self.dy.ParameterCollection()
        self.W = pc.add_parameters((256, 256))
        rows = AHEAD if on_gpu else 256  # elsewhere nothing runs ahead
        self.A = pc.add_parameters((rows, rows), init=0.0)
        self.x = [0.01] * 256

    def chain(self, steps: int, product: bool, ahead: bool) -> float:
        """Seconds from the first node to the value on the host. ahead: it begins with a long product."""
        dy = self.dy
        start = time.perf_counter()
        dy.renew_cg()
        h = dy.inputVector(self.x)
        if ahead:
            h = h + dy.pick_range(dy.pick(self.A * self.A, 0, 1), 0, 256)
        for i in range(steps):
            h = self.W * h if product else (dy.tanh(h) if i % 2 else dy.rectify(h))
        dy.sum_elems(h).value()
        return time.perf_counter() - start

    def least(self, steps: int, product: bool, ahead: bool = False, times: int = 12) -> float:
        """Microseconds; the first runs compile and capture."""
        for _ in range(5):
            self.chain(steps, product, ahead)
        return 1e6 * min(self.chain(steps, product, ahead) for _ in range(times))

    def slope(self, product: bool, ahead: bool = False, **options: Any) -> float:
        """Microseconds of one step more: of the host or of the device, whichever takes longer; with a device
        that is behind, of the device."""
        before = self.dy._core._device_options()
        self.dy._core._device_options(**options)
        try:
            long, short = (self.least(steps, product, ahead) for steps in (LONG, SHORT))
            return (long - short) / (LONG - SHORT)
        finally:
            self.dy._core._device_options(**{name: before[name] for name in options})


def measurements(m: Micro) -> dict[str, Callable[[dict[str, float]], float]]:
    """In this order; each sees what was found before it. Steps wait for no other block, kept products do."""
    alone = {"persistent": False, "graphs": False, "chains": False}
    return {
        "flush": lambda _: m.least(1, False),
        "launch": lambda _: m.slope(False, **alone),
        "kernel": lambda _: m.slope(False, ahead=True, **alone),
        "link": lambda _: m.slope(False, persistent=False, graphs=False),
        "graph_kernel": lambda _: m.slope(False, persistent=False, chains=False),
        "product": lambda f: max(0.0, m.slope(True, ahead=True, **alone) - f["kernel"]),
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
