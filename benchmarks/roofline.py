"""How far each kind of launch is from what the processor can do, and what a step would gain at that bound.

    python benchmarks/roofline.py [--isa avx2] [--hidden 64 256] [--quick]

First the machine is measured, about 20 seconds: products of matrices, here and in NumPy; bandwidth of caches
and memory; exp and tanh; waking a thread. Then programs (programs.py, written/) train while profiled.
The bound of a launch is the longest of FLOPs / peak, bytes that must move / bandwidth of the memory that has
them, and transcendentals / their rate. Rows are sorted by `gain`: the part of the step that would be saved if
these launches were at their bound. What a step spends outside of launches is shown as shares; that of
`record` has the profile's own time in it, about 0.1 us per node. Figures of machines are kept beside this
file in roofline.json, one entry per processor and instruction set (--record). `--against FILE` reads what
`vs_dynet.py --programs` has written, measured here with the same instruction set, batch and one thread
(--env DYNET_COMPAT_THREADS=1), and says what its ratios would be if all launches were at their bound.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turns import machine

KEPT = Path(__file__).resolve().parent / "roofline.json"

# Transcendentals of an op, forward and backward, per float of its results or arguments, whichever is more.
ELEMENTWISE = (
    "exp",
    "log",
    "tanh",
    "logistic",
    "log_sigmoid",
    "gelu",
    "silu",
    "elu",
    "selu",
    "erf",
    "sin",
    "cos",
)
TRANSCENDENTALS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(ELEMENTWISE, (1, 0)),
    **dict.fromkeys(("pickneglogsoftmax", "log_softmax", "logsumexp", "logsumexp_dim"), (1, 1)),
    "softmax": (1, 0),
    "lstm_activate": (1, 0),
    "lstm_cell": (5 / 6, 1 / 6),
    "vanilla_lstm_h": (1 / 5, 1 / 5),
}


@dataclass
class Machine:
    """What one core can do."""

    flops: float  # per second
    bandwidth: list[tuple[float, float]]  # (bytes that are worked on, bytes per second)
    transcendentals: float  # per second
    measured: dict[str, Any]

    def bound(self, event: dict[str, Any]) -> float:
        """Seconds that a launch or kernel needs at least."""
        work = event["args"]
        size = work.get("bytes", 0)
        backward = work.get("direction") == "backward"
        special = sum(
            floats * TRANSCENDENTALS.get(op, (0, 0))[backward]
            for op, floats in zip(work.get("ops", ()), work.get("floats", ()))
        )
        speed = next((rate for most, rate in self.bandwidth if size <= most), self.bandwidth[-1][1])
        return max(work.get("flops", 0) / self.flops, size / speed, special / self.transcendentals)


def best(work: Callable[[], Any], seconds: float) -> float:
    """Least seconds of one call."""
    least, end = math.inf, time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        work()
        now = time.perf_counter()
        least = min(least, now - start)
        if now > end:
            return least


def launch_time(record: Callable[[], Any], op: str, seconds: float) -> float:
    """Least seconds of the forward launch of `op` in graphs that `record` makes."""
    import dynet_compat as dy

    least, end = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < end or least == math.inf:
        dy.renew_cg()
        roots = record()
        with dy.profile() as profile:
            dy.forward(roots)
        found = [e["dur"] for e in profile.events if e["cat"] == "launch" and e["args"]["ops"] == [op]]
        least = min(least, 1e-6 * min(found))
    return least


def measure_products(seconds: float, largest: int) -> dict[str, dict[str, float]]:
    """GFLOP per second of {n,n} by {n,n}, here and in NumPy."""
    import dynet_compat as dy
    import numpy as np

    result: dict[str, dict[str, float]] = {"own": {}, "numpy": {}}
    for n in (64, 128, 256, 512, 1024):
        if n > largest:
            break
        a = np.asfortranarray(np.random.default_rng(n).normal(size=(n, n)).astype(np.float32))
        pc = dy.ParameterCollection()
        W, x = pc.parameters_from_numpy(a), pc.parameters_from_numpy(a)
        own = launch_time(lambda W=W, x=x: [W * x], "matmul", seconds)
        out = np.empty_like(a)
        other = best(lambda a=a, out=out: np.matmul(a, a, out=out), seconds)
        result["own"][str(n)], result["numpy"][str(n)] = (2e-9 * n**3 / t for t in (own, other))
    return result


def measure_bandwidth(seconds: float, sizes: tuple[int, ...]) -> dict[str, float]:
    """GB per second that are read and written while arrays of so many bytes together are added."""
    import numpy as np

    result = {}
    for size in sizes:
        a, b, c = (np.ones(size // 12, np.float32) for _ in range(3))
        result[str(size)] = 1e-9 * size / best(lambda a=a, b=b, c=c: np.add(a, b, out=c), seconds)
    return result


def measure_functions(seconds: float) -> dict[str, float]:
    """Thousands of millions of values per second, in the cache: here and in NumPy."""
    import dynet_compat as dy
    import numpy as np

    n = 4096
    x = np.linspace(-4, 4, n, dtype=np.float32)
    out = np.empty_like(x)
    result = {}
    for name, function in (("exp", np.exp), ("tanh", np.tanh)):
        own = launch_time(lambda name=name: [getattr(dy, name)(dy.inputTensor(x))], name, seconds)
        result[name] = 1e-9 * n / own
        result["numpy " + name] = 1e-9 * n / best(lambda f=function: f(x, out=out), seconds)
    return result


def measure_waking(seconds: float) -> float:
    """Microseconds more than half of the time of one thread that two threads take, the second one asleep."""
    import dynet_compat as dy

    x = [0.5] * 65536

    def took(threads: int) -> float:
        dy._core.set_threads(threads)
        found, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end or not found:
            dy.renew_cg()
            y = dy.tanh(dy.inputVector(x))
            time.sleep(0.002)
            with dy.profile() as profile:
                y.forward()
            found += [e["dur"] for e in profile.events if e["cat"] == "launch"]
        return statistics.median(found)

    try:
        return took(2) - took(1) / 2
    finally:
        dy._core.set_threads(1)


def measure_machine(quick: bool) -> Machine:
    seconds = 0.01 if quick else 0.7
    largest_product, sizes = (
        (128, (1 << 18, 1 << 22)) if quick else (1024, (24_000, 500_000, 8_000_000, 400_000_000))
    )
    products = measure_products(seconds, largest_product)
    bandwidth = measure_bandwidth(seconds, sizes)
    functions = measure_functions(seconds)
    measured = {
        "products, GFLOP/s": products,
        "bandwidth, GB/s": bandwidth,
        "functions, G/s": functions,
        "waking, us": measure_waking(seconds) if (os.cpu_count() or 1) > 1 else None,
    }
    return Machine(
        flops=1e9 * max(max(side.values()) for side in products.values()),
        bandwidth=[(float(size), 1e9 * rate) for size, rate in bandwidth.items()],
        transcendentals=1e9 * max(functions.values()),
        measured=measured,
    )


def kinds_of(events: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """(kind, event) of the launches, and of the products of weight gradients, which follow them."""
    spans = sorted(
        (e["ts"], e["ts"] + e["dur"]) for e in events if e["cat"] == "weights"
    )  # of all deferred gradients
    found = []
    for event in events:
        work = event["args"]
        if event["cat"] in ("launch", "back_launch"):
            sign = "" if event["cat"] == "launch" else "' "
            found.append((f"{sign}{event['name']}  {work['shapes']}", event))
        elif event["cat"] == "kernel" and any(a <= event["ts"] <= b for a, b in spans):
            found.append((event["name"].split(" x ")[0].rsplit(" ", 1)[0] + "  (weights)", event))
    return found


def outside(events: list[dict[str, Any]], step: float) -> dict[str, float]:
    """Shares of what is no launch; `executor`: of forward and backward, around the launches."""

    def total(*kinds: str) -> float:
        return 1e-6 * sum(e["dur"] for e in events if e["cat"] in kinds)

    launches = total("launch", "back_launch", "weights")
    parts = {name: total(name) / step for name in ("record", "plan", "update")}
    parts["executor"] = (total("forward", "backward") - launches) / step
    parts["Python"] = 1 - sum(parts.values()) - launches / step
    return parts


def measure_program(program: str, hidden: int, batch: int, steps: int, bounds: Machine) -> dict[str, Any]:
    import dynet_compat as dy
    from worker import load_program

    side = load_program(program, hidden)
    instances, vocab = side.load()
    model, trainer = side.build(vocab, hidden)
    rng = random.Random(1)
    batches = [rng.sample(instances, batch) for _ in range(steps)]
    for chosen in batches[:3]:
        side.train_batch(model, trainer, chosen)
    # The least of three rounds for each launch: the steps are the same, other work on the machine is not.
    rounds = []
    for _ in range(3):
        with dy.profile() as profile:
            start = time.perf_counter()
            for chosen in batches:
                side.train_batch(model, trainer, chosen)
            spent = time.perf_counter() - start
        rounds.append((spent, profile.events))
    seconds, events = min(rounds, key=lambda one: one[0])
    rows: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for same in zip(*(kinds_of(events) for _, events in rounds)):
        kind, event = same[0]
        row = rows[kind]
        row["seconds"] += 1e-6 * min(one["dur"] for _, one in same)
        row["bound"] += bounds.bound(event)
        row["launches"] += 1
        row["nodes"] += event["args"].get("batch", 0)
        row["flops"] += event["args"].get("flops", 0)
        row["bytes"] += event["args"].get("bytes", 0)
    about = {"program": program, "hidden": hidden, "steps": steps, "seconds": seconds}
    return {**about, "outside": outside(events, seconds), "rows": rows}


def table(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a program by what its step would gain, as shares of its step."""
    lines = []
    for kind, row in result["rows"].items():
        lines.append(
            {
                "program": result["program"],
                "hidden": result["hidden"],
                "kind": kind,
                "launches": row["launches"] / result["steps"],
                "nodes": row["nodes"] / max(row["launches"], 1),
                "us": 1e6 * row["seconds"] / row["launches"],
                "reached": min(1.0, row["bound"] / max(row["seconds"], 1e-12)),
                "gflops": 1e-9 * row["flops"] / max(row["seconds"], 1e-12),
                "gbytes": 1e-9 * row["bytes"] / max(row["seconds"], 1e-12),
                "share": row["seconds"] / result["seconds"],
                "gain": max(0.0, row["seconds"] - row["bound"]) / result["seconds"],
            }
        )
    return sorted(lines, key=lambda line: -line["gain"])


def print_table(lines: list[dict[str, Any]], top: int) -> None:
    names = zip(("gain", "share", "reached", "GF/s", "GB/s", "n", "nodes", "us"), (6, 6, 7, 6, 6, 5, 6, 8))
    print(*(f"{name:>{width}}" for name, width in names), " launches")
    for line in lines[:top]:
        print(
            f"{line['gain']:6.1%} {line['share']:6.1%} {line['reached']:7.2f} {line['gflops']:6.1f}"
            f" {line['gbytes']:6.1f} {line['launches']:5.0f} {line['nodes']:6.1f} {line['us']:8.2f}"
            f"  {line['program']} {line['hidden']}: {line['kind'][:90]}"
        )


def report(results: list[dict[str, Any]], top: int) -> list[dict[str, Any]]:
    """Prints all rows by gain, and what all launches of each program reach together."""
    lines = sorted((line for one in results for line in table(one)), key=lambda line: -line["gain"])
    print_table(lines, top)
    shares = ("record", "plan", "executor", "update", "Python")
    head = " ".join(f"{name:>8}" for name in ("ms/step", "launches", *shares, "reached", "at bound"))
    print(f"\n{'program':22} {head}")
    for one in results:
        seconds = sum(row["seconds"] for row in one["rows"].values())
        bound = sum(row["bound"] for row in one["rows"].values())
        one["launch_share"], one["reached"] = seconds / one["seconds"], bound / seconds
        one["at_bound"] = 1 / (1 - (seconds - bound) / one["seconds"])  # so many times as fast
        title = f"{one['program']} {one['hidden']}"
        ms = 1e3 * one["seconds"] / one["steps"]
        parts = " ".join(f"{one['outside'][name]:8.1%}" for name in shares)
        reached = f"{one['reached']:8.2f} {one['at_bound']:7.2f}x"
        print(f"{title:22} {ms:8.2f} {one['launch_share']:8.1%} {parts} {reached}")
    return lines


def ratios_at_bound(results: list[dict[str, Any]], measured: dict[str, Any], batch: int) -> list[list[Any]]:
    """[program, hidden, ratio of vs_dynet.py, the same if all launches were at their bound]"""
    found = []
    for one in results:
        for row in measured["rows"]:
            same = row["example"] == one["program"] and row["hidden"] == one["hidden"]
            if same and row["batch"] == batch and row["group"] == "minibatch" and row["ratio"]:
                at_bound = row["ratio"] * one["at_bound"]
                found.append([one["program"], one["hidden"], row["ratio"], at_bound])
    return found


def print_ratios(rows: list[list[Any]]) -> None:
    print(f"\n{'times as fast as DyNet':27} {'now':>8} at bound")
    for program, hidden, now, at_bound in rows:
        print(f"{program + f' {hidden}':27} {now:8.2f} {at_bound:8.2f}")
    if rows:
        now, at_bound = (statistics.geometric_mean(row[i] for row in rows) for i in (2, 3))
        print(f"{'geometric mean':27} {now:8.2f} {at_bound:8.2f}")


def record(isa: str, bounds: Machine, results: list[dict[str, Any]], lines: list[dict[str, Any]]) -> None:
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    about = machine()

    def rounded(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: rounded(one) for key, one in value.items()}
        return float(f"{value:.3g}") if isinstance(value, float) else value

    keys = ("program", "hidden", "launch_share", "outside", "reached", "at_bound")
    kept[f"{about['cpu']}, {isa}"] = {
        "machine": rounded(bounds.measured),
        "programs": [rounded({key: one[key] for key in keys}) for one in results],
        "largest gains": [rounded(line) for line in lines[:20]],
    }
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def settings(isa: str | None) -> dict[str, str]:
    """Variables of the environment that are read when a process starts."""
    made = dict.fromkeys(("DYNET_COMPAT_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    made["DYNET_COMPAT_HINTS"] = "off"
    if isa:
        made["DYNET_COMPAT_ISA"] = isa
    if isa == "avx2":
        made["OPENBLAS_CORETYPE"] = "Haswell"
    return made


def main(argv: list[str] | None = None) -> int:
    from programs import PROGRAMS
    from worker import WRITTEN

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa", choices=("avx512", "avx2", "baseline"), help="as DYNET_COMPAT_ISA")
    written = [path.stem for path in WRITTEN.glob("*.py")]
    choices = [*PROGRAMS, *sorted(written)]
    parser.add_argument("--programs", nargs="+", choices=choices, default=list(PROGRAMS))
    parser.add_argument("--hidden", nargs="+", type=int, default=[64, 256])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=6, help="minibatches per program")
    parser.add_argument("--top", type=int, default=40, help="rows of the table")
    parser.add_argument("--quick", action="store_true", help="measure the machine in a second, for the tests")
    parser.add_argument("--record", action="store_true", help="keep the figures in roofline.json")
    parser.add_argument("--against", metavar="FILE", type=Path, help="what vs_dynet.py has written")
    parser.add_argument("--output", metavar="FILE", help="write all rows as JSON")
    args = parser.parse_args(argv)

    wanted = settings(args.isa)
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        command = [sys.executable, __file__, *(sys.argv[1:] if argv is None else argv)]
        return subprocess.run(command, env={**os.environ, **wanted}).returncode

    import dynet_compat as dy

    bounds = measure_machine(args.quick)
    isa = dy._core.isa()
    print(f"{machine()['cpu']}, {isa}, one thread")
    for name, figures in bounds.measured.items():
        print(f"  {name}: {json.dumps(figures, default=float)}")
    results = [
        measure_program(program, hidden, args.batch, args.steps, bounds)
        for hidden in args.hidden
        for program in args.programs
    ]
    lines = report(results, args.top)
    if args.against:
        measured = json.loads(args.against.read_text(encoding="utf-8"))
        print_ratios(ratios_at_bound(results, measured, args.batch))
    if args.record:
        record(isa, bounds, results, lines)
    if args.output:
        found = {"machine": bounds.measured, "isa": isa, "rows": lines}
        Path(args.output).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
