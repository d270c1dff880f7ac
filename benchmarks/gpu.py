"""ACRoBat's seven models on the GPU, in one run of all sides.

    python benchmarks/gpu.py [--device gpu] [--models TreeLSTM] [--sizes small] [--batches 8 64] [--json FILE]
    python benchmarks/gpu.py --quick      # tiny sizes, a few repetitions: does everything run?

Sides: this package with hints (`ours`; mode `eager`, or what DYNET_COMPAT_HINTS says), and without them
(`unhinted`), on the scripts of models_in_dynet/; those without hints and its kernels in DyNet's way (`dynet`:
agenda batching, one launch per batch and one per gathered operand, no fusion, one instance after the other
where values are read), which stands in for DyNet, whose CUDA code builds no more; PyTorch where it is
installed, eager (`torch`) and with the models' cells through torch.compile (`compiled`). All sides have the
same parameters and data, and must agree on the losses. A row is one configuration: medians of minibatches
that differ from each other, from the first recorded node to the loss on the host (training: to updated
parameters). `products` counts launches of matrix products by their kernel: for few columns, for middling and
for large products, and cuBLAS; those whose weights a walk keeps on chip are among the first two. `lists`
counts lists of launches by the way they ran, launch by launch, as a graph or in a persistent kernel
(exec/cuda/launch_choices.h). --compile compiles what a timed run needs, and times nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from models import MODELS, Model
from models.ops import Counter, counting_ops, initial, torch_ops

SIDES = ("ours", "unhinted", "dynet", "torch", "compiled")
PHASES = ("inference", "training")
MINIBATCHES = 4  # that differ; a run goes through them again and again
# Of matrix products on the device: by kernels for few columns, middling and large ones, and by cuBLAS.
WAYS = ("few", "middle", "large", "library")
WARM_UPS = 8  # passes over the minibatches, at most, until it is measured how to run launches
LEARNING = 4  # passes in which hints write down what they record from then on
COMPILING = 3  # passes after which all kernels are there: what is asked for meanwhile is compiled next
LISTS = ("plain", "graph", "persistent")  # ways to run lists of launches
RATE = 0.001  # of learning: with 0.01 NestedRNN diverges, and rounding with it


# ---------------------------------------------------------------- work of a configuration


def arrays_of(model: type[Model], size: int) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    return {name: initial(shape, rng) for name, shape in model.parameters(size).items()}


def minibatches(model: type[Model], size: int, batch: int) -> list[list[Any]]:
    rng = random.Random(f"{model.name} {size} {batch}")
    return [[model.instance(rng, size) for _ in range(batch)] for _ in range(MINIBATCHES)]


def work(model: type[Model], size: int, batches: Sequence[Sequence[Any]], train: bool) -> tuple[float, float]:
    """Floating-point operations and bytes that a minibatch needs at least: weights, rows looked up."""
    counter = Counter()
    shapes = {name: counter.shape(*shape) for name, shape in model.parameters(size).items()}
    made = model(counting_ops(counter), SimpleNamespace(**shapes), size)
    for instance in (instance for batch in batches for instance in batch):
        made(instance)
    weights = sum(math.prod(shape) for name, shape in shapes.items() if not name.startswith("table_"))
    floats = weights + counter.rows / len(batches)
    # Backward computes two products for each one forward; parameters and gradients are read and written.
    return counter.flops / len(batches) * (3 if train else 1), 4 * floats * (4 if train else 1)


# ---------------------------------------------------------------- sides


class DynetSide:
    """This package, or in DyNet's way. Where the process has hints, `hinted` says whether they apply."""

    def __init__(self, model: type[Model], size: int, like_dynet: bool, hinted: bool = True) -> None:
        import dynet_compat as dy
        import models_in_dynet

        self.dy, self.like_dynet, self.hinted = dy, like_dynet, hinted and not like_dynet
        self.pc = dy.ParameterCollection()
        arrays = arrays_of(model, size)
        self.model = models_in_dynet.build(model, self.pc, size, arrays, self.hinted)
        self.parameters = {name: getattr(self.model, name) for name in arrays}
        self.decides = model.decides
        self.trainer = dy.SimpleSGDTrainer(self.pc, RATE)
        self.trainer.set_clip_threshold(-1)
        self.update = 0.0

    def __enter__(self) -> DynetSide:
        set_mode(self.dy, self.like_dynet)
        return self

    def __exit__(self, *_: object) -> None:
        set_mode(self.dy, False)

    def run(self, batch: list[Any], train: bool) -> float:
        dy = self.dy
        dy.renew_cg()
        if self.decides and not self.like_dynet:
            parts = dy.batch_map(self.model.losses, batch)
        else:
            parts = [self.model.losses(instance) for instance in batch]
        loss = dy.esum([one for part in parts for one in part])
        value = float(loss.value())
        if train:
            loss.backward()
            start = time.perf_counter()
            self.trainer.update()
            next(p for name, p in self.parameters.items() if name.startswith("b")).as_array()  # waits
            self.update += time.perf_counter() - start
        return value

    def settle(self, batches: list[list[Any]], train: bool) -> None:
        """Goes on until hints have learned, and it is measured how lists of launches run the fastest, as far
        as that comes soon."""
        for passed in range(0 if self.like_dynet else WARM_UPS):
            learned = passed >= LEARNING or not self.hinted
            if learned and all(one["order"] for one in launch_choices(self.dy)):
                break
            self.run_and_compile(batches, train)

    def run_and_compile(self, batches: list[list[Any]], train: bool) -> None:
        from dynet_compat.cuda import background

        for batch in batches:
            self.run(batch, train)
        background.wait()

    def compile(self, batches: list[list[Any]], train: bool) -> None:
        """Has all kernels made that settle() and what follows ask for; no time is measured and kept."""
        options = self.dy._core._device_options
        for persistent in (True, False):  # lists that are joined need no chains
            options(measured=False, persistent=persistent)
            for _ in range(COMPILING):
                self.run_and_compile(batches, train)

    def lists(self) -> dict[str, int]:
        """Lists of launches that ran so far, by their way."""
        told = launch_choices(self.dy)
        return {way: sum(one["lists"][way] for one in told) for way in LISTS} if told else {}

    def facts(self, batches: list[list[Any]], train: bool) -> dict[str, float]:
        """Of a minibatch, from a pass of its own: seconds, launches and bytes; medians."""
        measure = getattr(self.dy._core, "_measure_device", lambda on: None)
        measure(True)
        told = [self.facts_of(batch, train) for batch in batches]
        measure(False)
        return {key: statistics.median(facts[key] for facts in told) for key in told[0]}

    def facts_of(self, batch: list[Any], train: bool) -> dict[str, float]:
        core = self.dy._core
        core.reset_timing()
        before = core.timing()
        self.update = 0.0
        start = time.perf_counter()
        self.run(batch, train)
        whole = time.perf_counter() - start
        told = {key: value - before[key] for key, value in core.timing().items()}
        engine = told["plan"] + told["forward"] + told["backward"]
        on_device = "device_launches" in told
        operations = sum(
            told.get(f"device_{what}", 0) for what in ("launches", "copies", "uploads", "downloads")
        )
        return {
            "build": whole - engine - self.update,
            "by regions": told["region_nodes"] / told["recorded_nodes"],
            "plan": told["plan"],
            "copy": told.get("device_copy_seconds", 0.0),
            # the emulation does not time its launches
            "kernel": told.get("device_launch_seconds", 0.0) or told["forward"] + told["backward"],
            "launches": told["device_launches"] if on_device else told["launches"],
            "operations": operations if on_device else math.nan,
            "gathered": told["gathered_bytes"],
            **{f"{way} products": told.get(f"{way}_products", math.nan) for way in WAYS},
            "operands": told["operand_bytes"],
        }


def launch_choices(dy: Any) -> list[dict[str, Any]]:
    """Sets of kernels, and the fastest ways to run them; not in the real DyNet."""
    return list(getattr(dy._core, "_launch_choices", list)())


def set_mode(dy: Any, like_dynet: bool) -> None:
    """Plan and run as DyNet does, or as this package does."""
    options = getattr(dy._core, "_device_options", None)  # not in the real DyNet
    if options is not None and options()["device"] != "cpu":
        options(unfused=like_dynet)
    dy._core.set_scheduler("agenda" if like_dynet else "bucket")


class TorchSide:
    """PyTorch, one instance after the other, as such models are written there."""

    def __init__(self, model: type[Model], size: int, compiled: bool, gpu: bool) -> None:
        import torch

        self.torch = torch
        self.device = "cuda" if gpu else "cpu"
        torch.backends.cuda.matmul.allow_tf32 = False
        made = {name: torch.tensor(array, device=self.device, requires_grad=True)
                for name, array in arrays_of(model, size).items()}  # fmt: skip
        self.model = model(torch_ops(torch), SimpleNamespace(**made), size)
        if compiled:
            for name in model.cells:
                setattr(self.model, name, torch.compile(getattr(self.model, name), dynamic=False))
        self.trainer = torch.optim.SGD(made.values(), RATE)

    def __enter__(self) -> TorchSide:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, batch: list[Any], train: bool) -> float:
        torch = self.torch
        with torch.set_grad_enabled(train):
            losses = [one for instance in batch for one in self.model(instance)]
            loss = torch.stack(losses).sum()
            value = float(loss.detach())
        if train:
            self.trainer.zero_grad(set_to_none=True)
            loss.backward()
            self.trainer.step()
            if self.device == "cuda":
                torch.cuda.synchronize()
        return value

    def settle(self, batches: list[list[Any]], train: bool) -> None:
        """There is nothing to choose."""

    def lists(self) -> dict[str, int]:
        return {}

    def facts(self, batches: list[list[Any]], train: bool) -> dict[str, float]:
        """What PyTorch's profiler counts on the device, for one minibatch."""
        if self.device != "cuda":
            return {}
        activities = [self.torch.profiler.ProfilerActivity.CUDA]
        with self.torch.profiler.profile(activities=activities) as profile:
            self.run(batches[0], train)
        kernels = [event for event in profile.events() if event.device_type.name == "CUDA"]
        seconds = (
            sum(getattr(event, "device_time", 0) or getattr(event, "cuda_time", 0) for event in kernels)
            * 1e-6
        )
        return {"launches": float(len(kernels)), "operations": float(len(kernels)), "kernel": seconds}


def sides_of(args: argparse.Namespace, batch: int) -> list[str]:
    """Those of the choice that this machine has, for this batch."""
    chosen = list(args.sides)
    if args.torch_batches and batch not in args.torch_batches:
        chosen = [side for side in chosen if side not in ("torch", "compiled")]
    if {"torch", "compiled"} & set(chosen):
        try:
            import torch  # noqa: F401
        except ImportError:
            chosen = [side for side in chosen if side not in ("torch", "compiled")]
    return chosen


def make_side(name: str, model: type[Model], size: int, gpu: bool) -> Any:
    if name in ("ours", "unhinted", "dynet"):
        return DynetSide(model, size, name == "dynet", name == "ours")
    return TorchSide(model, size, name == "compiled", gpu)


# ---------------------------------------------------------------- measuring


def medians(run: Callable[[int], None], seconds: float, least: int) -> tuple[float, int]:
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < least or (time.perf_counter() < end and len(times) < 200):
        start = time.perf_counter()
        run(len(times))
        times.append(time.perf_counter() - start)
    return statistics.median(times), len(times)


def measure(name: str, model: type[Model], size: int, batches: list[list[Any]], train: bool,
            args: argparse.Namespace, gpu: bool) -> dict[str, Any]:  # fmt: skip
    with make_side(name, model, size, gpu) as side:
        losses = [side.run(batch, train) for batch in batches]  # warms up, too
        side.settle(batches, train)
        before = side.lists()
        latency, count = medians(
            lambda i: side.run(batches[i % len(batches)], train), args.seconds, args.least
        )
        lists = {way: (n - before.get(way, 0)) / count for way, n in side.lists().items()}
        return {"losses": losses, "latency": latency, "minibatches": count, "lists": lists,
                **side.facts(batches, train)}  # fmt: skip


def configurations(args: argparse.Namespace) -> Iterator[tuple[type[Model], str, int, bool]]:
    for model in MODELS:
        if model.name not in args.models:
            continue
        for size in args.sizes:
            for batch in args.batches:
                for phase in args.phases:
                    yield model, size, batch, phase == "training"


def ideal(need: tuple[float, float], device: dict[str, Any]) -> float:
    """Seconds that the device would take at full speed; nan where its speed is not known."""
    if not device.get("flops") or not device.get("bandwidth"):
        return math.nan
    return max(need[0] / device["flops"], need[1] / device["bandwidth"])


def agree(rows: list[dict[str, Any]], tolerance: float) -> bool:
    first = rows[0]["losses"]
    return all(np.allclose(row["losses"], first, rtol=tolerance, atol=tolerance) for row in rows[1:])


def compile_all(args: argparse.Namespace) -> None:
    end = time.monotonic() + args.limit
    for model, label, batch, train in configurations(args):
        if time.monotonic() > end:
            print(f"stopped after {args.limit:.0f} s", flush=True)
            break
        size = model.sizes[label]
        with DynetSide(model, size, False) as side:
            side.compile(minibatches(model, size, batch), train)


def run_all(args: argparse.Namespace) -> dict[str, Any]:
    import dynet_compat as dy
    from dynet_compat.startup import devices

    gpu = devices.is_gpu()
    number = int(devices.current().device[5:]) if gpu else 0
    device = devices.gpus()["devices"][number] if gpu else {"name": devices.current().device}
    rows: list[dict[str, Any]] = []
    wrong: list[str] = []
    print(HEAD, flush=True)
    end = time.monotonic() + args.limit
    facts = {"device": device, "python": platform.python_version(), "package": dy.__compat_version__,
             "cpu": platform.processor() or platform.machine()}  # fmt: skip

    def result() -> dict[str, Any]:
        return {**facts, "rows": rows, "disagree": wrong, "summary": summary(rows),
                "choices": launch_choices(dy)}  # fmt: skip

    for model, label, batch, train in configurations(args):
        if time.monotonic() > end:
            print(f"stopped after {args.limit:.0f} s", flush=True)
            break
        size = model.sizes[label]
        batches = minibatches(model, size, batch)
        need = work(model, size, batches, train)
        group = []
        for name in sides_of(args, batch):
            what = {"model": model.name, "size": label, "batch": batch, "training": train, "side": name}
            try:
                row = {**what, **measure(name, model, size, batches, train, args, gpu)}
            except MemoryError as error:
                print(f"{describe(what)}: {error}", flush=True)
                rows.append({**what, "failed": str(error)})
                continue
            row["roofline"] = ideal(need, device) / row["latency"]
            row["flops"], row["bytes"] = need
            group.append(row)
            rows.append(row)
            print(line(row, group[0]), flush=True)
            write(result(), args.json)
        if group and not agree(group, args.tolerance):
            wrong.append(describe(group[0]))
            print(f"  losses differ: {[row['losses'] for row in group]}", flush=True)
            write(result(), args.json)
    return result()


# ---------------------------------------------------------------- report

COLUMNS = ("build", "plan", "copy", "kernel")
HEAD = (
    f"{'model':10}{'size':>6}{'batch':>6} {'phase':10}{'side':>9}{'ms':>10}{'x':>7}"
    + "".join(f"{name:>9}" for name in COLUMNS)
    + f"{'launches':>10}{'products':>17}{'lists':>12}{'dev.ops':>9}{'gathered':>11}{'of peak':>9}"
)


def describe(row: dict[str, Any]) -> str:
    return f"{row['model']} {row['size']} {row['batch']} {PHASES[row['training']]} {row['side']}"


def number(value: Optional[float], form: str) -> str:
    return "-" if value is None or math.isnan(value) else format(value, form)


def line(row: dict[str, Any], ours: dict[str, Any]) -> str:
    times = "".join(f"{number(1e3 * row[c] if c in row else None, '.2f'):>9}" for c in COLUMNS)
    share = row["gathered"] / row["operands"] if row.get("operands") else None
    return (
        f"{row['model']:10}{row['size']:>6}{row['batch']:>6} {PHASES[row['training']]:10}{row['side']:>9}"
        f"{1e3 * row['latency']:>10.2f}{row['latency'] / ours['latency']:>7.2f}{times}"
        f"{number(row.get('launches'), '.0f'):>10}"
        f"{'/'.join(number(row.get(f'{way} products'), '.0f') for way in WAYS):>17}"
        f"{'/'.join(number(row['lists'].get(way), '.0f') for way in LISTS):>12}"
        f"{number(row.get('operations'), '.0f'):>9}"
        f"{number(share, '.2%'):>11}{number(row['roofline'], '.1%'):>9}"
    )


def geometric(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How much slower each side is than ours, and DyNet's way in device operations."""
    key = lambda row: (row["model"], row["size"], row["batch"], row["training"])  # noqa: E731
    ours = {key(row): row for row in rows if row["side"] == "ours" and "latency" in row}
    told: dict[str, Any] = {}
    for side in SIDES[1:]:
        for training in (False, True):
            of_side = [row for row in rows if row["side"] == side and row["training"] == training]
            pairs = [(row, ours[key(row)]) for row in of_side if "latency" in row and key(row) in ours]
            if not pairs:
                continue
            ratios = [row["latency"] / own["latency"] for row, own in pairs]
            entry = {"configurations": len(pairs), "speedup": geometric(ratios), "least": min(ratios)}
            counted = [
                (own.get("operations", math.nan), row.get("operations", math.nan)) for row, own in pairs
            ]
            shares = [mine / other for mine, other in counted if other > 0 and mine > 0]
            if shares:
                entry["operations"] = geometric(shares)
            told[f"{side} {PHASES[training]}"] = entry
    copied = [(row["gathered"], row["operands"]) for row in ours.values() if row.get("operands")]
    if copied:
        told["gathered"] = sum(a for a, _ in copied) / sum(b for _, b in copied)
    return told


def arguments(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [model.name for model in MODELS]
    parser.add_argument("--device", help="as DYNET_COMPAT_DEVICE: gpu, cuda:1, cpu, emulation")
    parser.add_argument("--models", nargs="+", choices=names, default=names)
    parser.add_argument("--sizes", nargs="+", choices=("small", "large", "quick"))
    parser.add_argument("--batches", nargs="+", type=int)
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=list(PHASES))
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--torch-batches", nargs="+", type=int, metavar="N",
                        help="batches that PyTorch's sides run, too (default: all)")  # fmt: skip
    parser.add_argument("--seconds", type=float, help="for each side and configuration (default 1)")
    parser.add_argument("--least", type=int, help="minibatches to time at least (default 5)")
    parser.add_argument("--tolerance", type=float, default=1e-3, help="between losses of the sides, relative")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, two minibatches")
    parser.add_argument("--compile", action="store_true", help="compile the kernels, and time nothing")
    parser.add_argument(
        "--limit", type=float, default=math.inf, help="no new configuration after so many seconds"
    )
    parser.add_argument("--json", metavar="FILE", help="write everything there")
    args = parser.parse_args(argv)
    args.sizes = args.sizes or (["quick"] if args.quick else ["small", "large"])
    args.batches = args.batches or ([2] if args.quick else [8, 64, 256])
    args.seconds = args.seconds if args.seconds is not None else (0.0 if args.quick else 1.0)
    args.least = args.least or (2 if args.quick else 5)
    return args


def clean(value: Any) -> Any:
    """JSON has no nan."""
    if isinstance(value, dict):
        return {key: clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def write(result: dict[str, Any], file: Optional[str]) -> None:
    """After each configuration, so that a run that is cut off leaves those that ended."""
    if not file:
        return
    part = Path(f"{file}.part")
    part.write_text(json.dumps(clean(result), indent=1) + "\n", encoding="utf-8")
    part.replace(file)


def main(argv: Optional[Sequence[str]] = None) -> int:
    args = arguments(argv)
    if args.device:
        os.environ["DYNET_COMPAT_DEVICE"] = args.device
    os.environ.setdefault("DYNET_COMPAT_HINTS", "eager")
    sys.setrecursionlimit(10000)
    sys.argv = sys.argv[:1]  # the package reads its options there
    if args.compile:
        compile_all(args)
        return 0
    result = run_all(args)
    print(json.dumps(clean(result["summary"]), indent=1))
    write(result, args.json)
    return 1 if result["disagree"] else 0


if __name__ == "__main__":
    sys.exit(main())
