"""Everything that can be shown on a machine with a GPU, in a quarter of an hour: `make gpu-check`.

    python tools/gpu_check.py [--device gpu] [--steps micro kernels ...] [--plan] [--json FILE]

`micro`: the constants of benchmarks/gpu_model.py, first, so that a run that is cut off reports them.
`kernels`: all of them are compiled, on all cores, so that the other parts find them in the cache.
`products`: large ones of each precision, tensor cores' too, against float64. `cases`: every case of the op
list, forward and backward, on the CPU and on the device, to 1e-5. `persistent`: ACRoBat's models, small,
with launches one by one, as steps of persistent kernels, and with weights kept on chip: equal bit for bit.
`examples`: every example trains to the same losses. `tests`: the test suite with DYNET_COMPAT_DEVICE set.
`sanitizer`: compute-sanitizer over the cases, as many as its time allows: memcheck, racecheck and
synccheck, side by side. `benchmark`: benchmarks/gpu.py, for all models side by side until their kernels
are compiled, then model by model. A table, and all of it as JSON, which is written after each part, and in
the last two whenever there is more. A part that is out of time is interrupted and reports what it has; all
of them together have 15 minutes. `--plan` says what would run here, and runs nothing. Exit status 0 if all
is well, 1 if not, 2 where there is no GPU to check.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import importlib
import json
import os
import random
import re
import shutil
import signal as signals
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
TOLERANCE = 1e-5
# Test folders in the order of their length; those that say nothing of a device are left out.
FOLDERS = ("ops", "graph", "model", "fibers", "io", "apps", "threads", "cuda")
# Seconds, a quarter of an hour together. Children are to end by themselves some seconds before: see child().
LIMITS = {"micro": 30, "kernels": 50, "products": 20, "cases": 70, "persistent": 80, "examples": 80,
          "tests": 240, "sanitizer": 90, "benchmark": 240}  # fmt: skip
WAYS = ("plain", "graph", "persistent")  # to run launches; the first is what remains without the others
SANITIZERS = ("memcheck", "racecheck", "synccheck")
COMPILING = 0.4  # the benchmark's share of its time, at most, in which kernels are compiled
SAVED_EACH = 5.0  # seconds, arrays of cases: a run that is cut off leaves them


class Step(NamedTuple):
    """What came of a part."""

    name: str
    ok: bool
    text: str
    facts: dict[str, Any] = {}


Tell = Callable[[Step], None]  # takes what a part has found so far, for the report


# ---------------------------------------------------------------- constants


def check_micro(device: str, limit: float, _: Tell) -> Step:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "micro.json"
        command = [str(ROOT / "tools" / "gpu_micro.py"), "--json", str(file), "--seconds", str(limit / 2)]
        done = child(command, device, limit)
        found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    text = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
    return Step("micro", bool(found), f"us: {text}" if found else last_line(done), found)


# ---------------------------------------------------------------- the kernels


def kernel_names() -> dict[str, list[str]]:
    """Names of kernels by file, without persistent kernels, which are made for programs."""
    core = importlib.import_module("dynet_compat._core")
    found: dict[str, list[str]] = {}
    for file, name in core._device_kernels():
        if file != "persistent":
            found.setdefault(file, []).append(name)
    return found


def compile_part(part: int, parts: int) -> int:
    """Every `parts`-th kernel of each file, from `part` on, for the device of this process."""
    devices = importlib.import_module("dynet_compat.startup.devices")
    compile_kernels = importlib.import_module("dynet_compat.cuda").compile_kernels
    told, count = devices.gpus(), 0
    architecture = told["devices"][int(devices.current().device[5:])]["architecture"]
    for file, names in kernel_names().items():
        if mine := names[part::parts]:
            compile_kernels(file, mine, architecture, told["version"])
            count += len(mine)
    return count


def check_kernels(device: str, limit: float, _: Tell) -> Step:
    if device in ("cpu", "emulation"):
        return Step("kernels", True, "left out: the device has none of NVRTC")
    parts = max(1, min(16, os.cpu_count() or 1))
    with concurrent.futures.ThreadPoolExecutor(parts) as pool:
        commands = [[__file__, "--compile", str(part), str(parts)] for part in range(parts)]
        made = list(pool.map(lambda command: child(command, device, limit), commands))
    bad = [last_line(done) for done in made if done.returncode]
    count = sum(int(done.stdout.split()[-1]) for done in made if not done.returncode)
    if not bad and not count:
        bad = ["the package names no kernels: build it by make, with the emulation"]
    return Step("kernels", not bad, f"{count} compiled by {parts} processes" if not bad else bad[0])


def check_products(device: str, limit: float, _: Tell) -> Step:
    if device == "cpu":
        return Step("products", True, "left out: the device has none that are large")
    small = ["--small"] if device == "emulation" else []
    done = child([str(ROOT / "tools" / "gpu_products.py"), *small], device, limit)
    told = done.stdout.splitlines() + ([last_line(done)] if done.stderr or not done.stdout else [])
    return Step("products", done.returncode == 0, "; ".join(told))


# ---------------------------------------------------------------- the cases, on one device


def write_cases(file: str, seconds: float) -> int:
    """Values and gradients of all cases, as far as the time allows, ops mixed; 1 if one failed."""
    sys.path.insert(0, str(TESTS))
    dy = importlib.import_module("dynet_compat")
    cases = importlib.import_module("ops.cases").CASES
    runner = importlib.import_module("support.runner")
    order = list(enumerate(cases))
    random.Random(1).shuffle(order)
    found: dict[str, np.ndarray[Any, Any]] = {}
    saved, failed = time.monotonic(), 0
    end = saved + seconds
    for at, case in order:
        now = time.monotonic()
        if now > end:
            break
        if now > saved + SAVED_EACH:
            save(file, found)
            saved = time.monotonic()
        try:
            result = runner.evaluate(dy, case)
        except Exception as error:  # noqa: BLE001 - the others are still to be looked at
            print(f"{case.id}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            failed = 1
            continue
        found[f"{at} value"] = result.value
        for n, gradient in enumerate(result.grads):
            if gradient is not None:
                found[f"{at} gradient {n}"] = gradient
    save(file, found)
    return failed


def save(file: str, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    """Whole at any time."""
    part = file + ".part.npz"
    np.savez(part, **arrays)  # type: ignore[arg-type]
    os.replace(part, file)


def distance(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    """Largest difference, relative to the largest number; inf where shapes or special values differ."""
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    a, b = a[finite].astype(np.float64), b[finite].astype(np.float64)
    if not a.size:
        return 0.0
    return float(np.abs(a - b).max() / max(1.0, np.abs(a).max()))


def child(arguments: list[str], device: str, limit: float, before: tuple[str, ...] = ()) -> Any:
    """A process of ours that computes on a device. What runs once is not worth persistent kernels; the
    benchmark has the default. After `limit` seconds it is interrupted, and some seconds later killed."""
    persistent = {"gpu.py": {}, "gpu_micro.py": {"DYNET_COMPAT_PERSISTENT": "3"}}.get(
        Path(arguments[0]).name, {"DYNET_COMPAT_PERSISTENT": "1" if "--models" in arguments else "0"}
    )
    env = {**persistent, **os.environ, "DYNET_COMPAT_DEVICE": device}
    command = [*before, sys.executable, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if stopping.is_set():
        raise KeyboardInterrupt
    # A session of its own: what it starts ends with it, and holds no pipe longer than that.
    with subprocess.Popen(command, text=True, env=env, cwd=ROOT, start_new_session=True, **pipes) as process:
        running.add(process.pid)
        for signal, patience in ((SIGINT, limit), (SIGKILL, 10.0)):  # interrupted, pytest says what it found
            try:
                out, err = process.communicate(timeout=patience)
                break
            except subprocess.TimeoutExpired:
                signal_group(process.pid, signal)
        else:
            out, err = process.communicate()
        running.discard(process.pid)
    late = "" if process.returncode >= 0 and signal == SIGINT else f"\nno end within {limit:.0f} s"
    return subprocess.CompletedProcess(command, process.returncode, out, err + late)


running: set[int] = set()  # process groups of children
stopping = threading.Event()


def signal_group(group: int, signal: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal)


def stop(number: int, _: Any) -> None:
    """Ctrl-C, and the end of a time limit: children are in sessions of their own, and end with us."""
    stopping.set()
    for group in list(running):
        signal_group(group, SIGKILL)
    raise KeyboardInterrupt if number == SIGINT else SystemExit(128 + number)


def last_line(done: Any) -> str:
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return lines[-1] if lines else f"ended with {done.returncode}"


def check_cases(device: str, limit: float, _: Tell) -> Step:
    with tempfile.TemporaryDirectory() as folder:
        files = [(name, str(Path(folder) / f"{i}.npz")) for i, name in enumerate(("cpu", device))]

        def run(job: tuple[str, str]) -> Any:
            seconds = 0.7 * limit  # the rest is for starting
            arguments = [__file__, "--cases", job[1], "--seconds", str(seconds)]
            return child(arguments, job[0], max(limit, seconds + 20))

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for (name, _file), done in zip(files, pool.map(run, files)):
                if done.returncode:
                    return Step("cases", False, f"on {name}: {last_line(done)}")
        cpu, other = (dict(np.load(file)) for _, file in files)
    distances = {key: distance(value, other[key]) for key, value in cpu.items() if key in other}
    bad = sorted((key for key, d in distances.items() if not d <= TOLERANCE), key=lambda k: -distances[k])
    worst = max(distances.values(), default=0.0)
    cases = len({key.split()[0] for key in distances})
    text = f"{len(distances)} arrays of {cases} cases, largest difference {worst:.1e}"
    if bad:
        text += f"; {len(bad)} beyond {TOLERANCE}: {', '.join(bad[:5])}"
    return Step("cases", bool(distances) and not bad, text,
                {"arrays": len(distances), "worst": worst, "beyond": bad[:100]})  # fmt: skip


# ---------------------------------------------------------------- persistent kernels


def model_names() -> list[str]:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    return [model.name for model in importlib.import_module("models").MODELS]


def model_results(name: str, persistent: bool, keep_weights: bool) -> dict[str, np.ndarray[Any, Any]]:
    """Losses and updated parameters of a model. Kernels are compiled when they are asked for."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    sys.setrecursionlimit(10000)
    gpu = importlib.import_module("gpu")
    core = importlib.import_module("dynet_compat._core")
    core._device_options(persistent=persistent, keep_weights=keep_weights, graphs=False, measured=False)
    model = next(one for one in gpu.MODELS if one.name == name)
    size = model.sizes["quick"]
    with gpu.DynetSide(model, size, False) as side:
        losses = [side.run(batch, True) for batch in gpu.minibatches(model, size, 4)[:3]]
        found = {f"{name} losses": np.array(losses)}
        for of, parameter in side.parameters.items():
            found[f"{name} {of}"] = np.array(parameter.as_array())
    print(core.timing()["device_grid_syncs"], flush=True)
    return found


def check_persistent(device: str, limit: float, _: Tell) -> Step:
    """Off; on, which runs the same tiles; on with kept weights."""
    if device == "cpu":
        return Step("persistent", True, "left out: the device has none")
    found: dict[str, dict[str, np.ndarray[Any, Any]]] = {flags: {} for flags in ("00", "10", "11")}
    jobs = [(model, flags) for model in model_names() for flags in found]
    syncs = 0
    with tempfile.TemporaryDirectory() as folder:

        def run(job: tuple[str, str]) -> tuple[str, str, Path, Any]:
            file = Path(folder) / f"{job[0]} {job[1]}.npz"
            return *job, file, child([__file__, "--models", str(file), *job], device, limit)

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for model, flags, file, done in pool.map(run, jobs):
                if done.returncode:
                    return Step("persistent", False, f"{model} with {flags}: {last_line(done)}")
                found[flags].update(np.load(file))
                syncs += int(done.stdout.split()[-1])
    return compared_models(list(found.values()), syncs)


def compared_models(found: list[dict[str, np.ndarray[Any, Any]]], syncs: int) -> Step:
    plain = found[0]
    pairs = [(way, key) for way in found[1:] for key in plain if key in way]
    unlike = [key for way, key in pairs if not np.array_equal(plain[key], way[key], equal_nan=True)]
    text = f"{len(pairs)} arrays equal bit for bit, {syncs} waits for other blocks"
    if unlike:
        text = f"{len(unlike)} of {len(pairs)} arrays differ: {', '.join(unlike[:5])}"
    return Step("persistent", bool(pairs) and syncs > 0 and not unlike, text, {"unlike": unlike})


# ---------------------------------------------------------------- the other parts


def check_examples(device: str, limit: float, _: Tell) -> Step:
    sys.path.insert(0, str(TESTS))
    examples = importlib.import_module("support.examples")

    def losses(job: tuple[str, str]) -> np.ndarray[Any, Any]:
        environment = {"DYNET_COMPAT_DEVICE": job[1]}
        done = examples.train(job[0], False, autobatch=1, environment=environment, limit=limit)
        return np.array(done["losses"])

    names = list(examples.SCRIPTS)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        found = list(pool.map(losses, [(name, where) for name in names for where in ("cpu", device)]))
    worst = {name: distance(found[2 * i], found[2 * i + 1]) for i, name in enumerate(names)}
    bad = [name for name, d in worst.items() if not d <= 1e-4]  # of ten steps of training
    return Step(
        "examples", not bad, f"{len(worst)} train alike" if not bad else f"losses differ: {bad}", worst
    )


def counted(output: str) -> dict[str, int]:
    """pytest's last line, as numbers."""
    return {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|skipped|errors?)", output)}


def check_tests(device: str, limit: float, _: Tell) -> Step:
    """Each process takes one test in so many; what has not run at the limit is left out."""
    parts = os.cpu_count() or 1
    folders = [f"tests/{folder}" for folder in FOLDERS]

    def run(part: int) -> Any:
        command = ["-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", "-m", "not slow",
                   "--every", str(parts), "--start", str(part), *folders]  # fmt: skip
        return child(command, device, limit)

    with concurrent.futures.ThreadPoolExecutor(parts) as pool:
        results = list(pool.map(run, range(parts)))
    counts = [counted(done.stdout[-2000:]) for done in results]
    total = {word: sum(c.get(word, 0) for c in counts) for word in ("passed", "failed", "skipped")}
    lines = [line for done in results for line in done.stdout.splitlines()]
    names = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    cut_off = sum(not count or "KeyboardInterrupt" in done.stdout for count, done in zip(counts, results))
    text = f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} left out"
    text += f"; {cut_off} of {parts} processes did not come to their end" if cut_off else ""
    return Step("tests", not names and total["passed"] > 0, text, {"counts": counts, "failed": names[:200]})


def check_sanitizer(device: str, limit: float, tell: Tell) -> Step:
    program = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if program is None:
        return Step("sanitizer", True, "left out: compute-sanitizer is not installed")
    step = Step("sanitizer", False, "no tool has ended")
    found: list[tuple[bool, str, str]] = []
    with concurrent.futures.ThreadPoolExecutor(len(SANITIZERS)) as pool:
        works = [pool.submit(sanitize, program, tool, device, limit) for tool in SANITIZERS]
        for work in concurrent.futures.as_completed(works):
            found.append(work.result())
            ok = len(found) == len(works) and all(well for well, _, _ in found)
            step = Step("sanitizer", ok, "; ".join(text for _, text, _ in found),
                        {"output": [output for _, _, output in found]})  # fmt: skip
            tell(step)
    return step


def sanitize(program: str, tool: str, device: str, limit: float) -> tuple[bool, str, str]:
    """Whether all is well, in words, and the end of what was printed. Arrays that were made before it was cut
    off count; without any, nothing has been looked at, whatever the tool says."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "cases.npz")
        options = (program, "--tool", tool, "--error-exitcode", "9")
        done = child([__file__, "--cases", file, "--seconds", str(limit * 0.6)], device, limit - 12, options)
        arrays = len(np.load(file).files) if os.path.exists(file) else 0
    output = done.stdout + done.stderr
    errors = re.search(r"(ERROR|RACECHECK) SUMMARY: (\d+) (error|hazard)s?", output)
    ok = arrays > 0 and done.returncode == 0 and errors is not None and errors.group(2) == "0"
    told = f"{tool}: {arrays} arrays, {errors.group(0) if errors else last_line(done)}"
    if done.returncode:
        plain = [line for line in output.splitlines() if line.strip("= ") and "SUMMARY" not in line]
        told += f", ended with {done.returncode}: {' / '.join(line.strip() for line in plain[-2:])}"
    return ok, told, output[-4000:]


BENCHMARK = ROOT / "benchmarks" / "gpu.py"


def check_benchmark(device: str, limit: float, tell: Tell) -> Step:
    end, sides = time.monotonic() + limit - 12, ["ours", "unhinted", "dynet"]
    with tempfile.TemporaryDirectory() as folder:
        if device in ("cpu", "emulation"):  # shows that it runs, not how fast
            options = ["--quick"]
        else:
            options = ["--batches", "8", "64", "--torch-batches", "8"]
            compile_models(device, COMPILING * limit, options)
            sides.append("torch")
        timed = [*options, "--seconds", "0.15", "--least", "3", "--sides", *sides]
        step = Step("benchmark", False, "no model has ended")
        names, well = model_names(), True
        results: list[dict[str, Any]] = []
        for i, name in enumerate(names):
            file = Path(folder) / f"{name}.json"
            seconds = (end - time.monotonic()) / (len(names) - i)
            command = [str(BENCHMARK), *timed, "--models", name, "--limit", str(0.75 * seconds)]
            done = child([*command, "--json", str(file)], device, max(seconds, 1.0))
            print(done.stdout if not i else done.stdout.partition("\n")[2], end="", flush=True)
            well = well and done.returncode == 0
            if file.exists():
                results.append(json.loads(file.read_text(encoding="utf-8")))
            else:
                print(f"{name}: {last_line(done)}", flush=True)
            step = benchmark_step(results, well and i + 1 == len(names))
            tell(step)
    return step


def compile_models(device: str, limit: float, options: list[str]) -> None:
    """All models side by side, so that their kernels are compiled on all cores."""
    names = model_names()

    def run(name: str) -> Any:
        command = [str(BENCHMARK), *options, "--compile", "--models", name, "--limit", str(0.7 * limit)]
        return child(command, device, limit)

    with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
        for name, done in zip(names, pool.map(run, names)):
            if done.returncode:
                print(f"{name}, compiling: {last_line(done)}", flush=True)


def benchmark_step(results: list[dict[str, Any]], ok: bool) -> Step:
    """The models' results as one."""
    sys.path.insert(0, str(BENCHMARK.parent))
    summary = importlib.import_module("gpu").summary
    rows = [row for result in results for row in result["rows"]]
    choices = {one["kernels"]: one for result in results for one in result.get("choices", [])}
    whole = {**(results[0] if results else {}), "rows": rows, "choices": list(choices.values()),
             "disagree": [wrong for result in results for wrong in result["disagree"]]}  # fmt: skip
    # JSON has no nan.
    whole["summary"] = summary([{k: v for k, v in row.items() if v is not None} for row in rows])
    told = [f"{side}: {entry['speedup']:.2f}x, least {entry['least']:.2f}x"
            for side, entry in whole["summary"].items() if isinstance(entry, dict)]  # fmt: skip
    mine = [row for row in rows if row["side"] == "ours"]
    ways = {way: sum(row.get(f"{way} products") or 0 for row in mine)
            for way in ("few", "middle", "large", "library")}  # fmt: skip
    told.append("products: " + ", ".join(f"{count:.0f} {way}" for way, count in ways.items()))
    told += fastest(whole["choices"])
    return Step("benchmark", ok, "; ".join(told), whole)


def fastest(choices: list[dict[str, Any]]) -> list[str]:
    """How often each way to run launches was the fastest; which never was, and may be removed."""
    firsts = [one["order"][0] for one in choices if one["order"]]
    if not firsts:
        return []
    counts = {way: firsts.count(way) for way in WAYS}
    told = f"fastest of {len(firsts)} sets of kernels: "
    told += ", ".join(f"{count} {way}" for way, count in counts.items())
    never = [way for way in WAYS[1:] if not counts[way]]
    return [told, *(f"never the fastest, so it may be removed: {way}" for way in never)]


STEPS: dict[str, Callable[[str, float, Tell], Step]] = {name: globals()[f"check_{name}"] for name in LIMITS}


# ---------------------------------------------------------------- command


def usable(device: str) -> tuple[str, str]:
    """What the device is, or "" and why it cannot be used."""
    code = (
        "import json; from dynet_compat import info; from dynet_compat.startup import devices; "
        "print(json.dumps([devices.current().device, info.collect()['gpu']]))"
    )
    done = child(["-c", code], device, 120)
    if done.returncode:
        return "", last_line(done)
    name, facts = json.loads(done.stdout.splitlines()[-1])
    if not name.startswith("cuda:"):
        return f"{name}, which is no GPU", ""
    listed = facts["devices"][int(name[5:])]
    return f"{listed}; driver {facts['driver']}; NVRTC {facts['nvrtc']}; cuBLAS {facts['cublas']}", ""


def plan(device: str, names: list[str], scale: float) -> None:
    """What would run."""
    about, reason = usable(device)
    print(f"device: {about or reason}")
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    sys.path.insert(0, str(TESTS))
    sys.argv = sys.argv[:1]
    os.environ["DYNET_COMPAT_DEVICE"] = "cpu"
    what = {
        "micro": "constants of benchmarks/gpu_model.py",
        "kernels": f"{sum(map(len, kernel_names().values()))} kernels, by {os.cpu_count()} processes",
        "products": "large ones in float32, tf32 and bf16",
        "cases": f"{len(importlib.import_module('ops.cases').CASES)} cases, on the CPU and on the device",
        "persistent": "seven models, three ways",
        "examples": f"{len(importlib.import_module('support.examples').SCRIPTS)} examples",
        "tests": f"tests/{{{','.join(FOLDERS)}}}",
        "sanitizer": ", ".join(SANITIZERS) if sanitizer else "left out: compute-sanitizer is not installed",
        "benchmark": "seven models, batches of 8 and 64",
    }
    for name in names:
        print(f"{name:12}{LIMITS[name] * scale:>6.0f} s  {what[name]}")
    print(f"{'at most':12}{sum(LIMITS[name] for name in names) * scale:>6.0f} s")


def write_report(file: str, about: str, rows: list[dict[str, Any]], complete: bool) -> None:
    """Whole at any time: a run that is cut off leaves the parts that ended."""
    target = Path(file)
    target.parent.mkdir(parents=True, exist_ok=True)
    ok = complete and all(row["ok"] for row in rows)
    text = json.dumps({"device": about, "ok": ok, "complete": complete, "parts": rows}, indent=1)
    part = target.with_suffix(".part")
    part.write_text(text + "\n", encoding="utf-8")
    part.replace(target)


def run(
    device: str, names: list[str], scale: float, report: Callable[[list[dict[str, Any]], bool], None]
) -> tuple[list[dict[str, Any]], bool]:
    rows: list[dict[str, Any]] = []
    for name in names:
        print(f"== {name}", flush=True)
        start = time.monotonic()

        def row(step: Step, start: float = start) -> dict[str, Any]:
            return {**step._asdict(), "seconds": round(time.monotonic() - start, 1)}

        try:
            tell = lambda part, row=row: report([*rows, row(part)], False)  # noqa: E731
            step = STEPS[name](device, LIMITS[name] * scale, tell)
        except Exception as error:  # noqa: BLE001 - the other parts are still of use
            step = Step(name, False, f"{type(error).__name__}: {error}".splitlines()[0])
        print(f"   {'ok' if step.ok else 'NOT WELL'}: {step.text}", flush=True)
        rows.append(row(step))
        report(rows, len(rows) == len(names))
    return rows, all(row["ok"] for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default=os.environ.get("DYNET_COMPAT_DEVICE") or "gpu")
    parser.add_argument("--steps", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--scale", type=float, default=1.0, help="of the time that each part may take")
    parser.add_argument("--json", metavar="FILE", default=str(ROOT / "build" / "gpu-check.json"))
    parser.add_argument("--cases", metavar="FILE", help=argparse.SUPPRESS)  # the child of check_cases
    parser.add_argument("--seconds", type=float, default=1e9, help=argparse.SUPPRESS)
    parser.add_argument("--models", nargs=3, help=argparse.SUPPRESS)  # that of check_persistent
    parser.add_argument("--plan", action="store_true", help="say what would run here, and run nothing")
    parser.add_argument("--compile", nargs=2, type=int, help=argparse.SUPPRESS)  # that of check_kernels
    args = parser.parse_args()
    if args.compile or args.cases or args.models:
        sys.argv = sys.argv[:1]
    if args.compile:
        print(compile_part(*args.compile))
        return 0
    if args.cases:
        return write_cases(args.cases, args.seconds)
    if args.models:
        file, name, (persistent, keep) = args.models
        np.savez(file, **model_results(name, persistent == "1", keep == "1"))
        return 0
    if args.plan:
        plan(args.device, args.steps, args.scale)
        return 0
    for number in (SIGINT, SIGTERM):
        signals.signal(number, stop)
    about, reason = usable(args.device)
    if reason:
        print(f"gpu-check: {reason}", file=sys.stderr)
        return 2
    print(f"gpu-check on {about}", flush=True)
    rows, ok = run(args.device, args.steps, args.scale,
                   lambda parts, complete: write_report(args.json, about, parts, complete))  # fmt: skip
    print(f"\n{'part':12}{'':10}{'seconds':>8}  result")
    for row in rows:
        print(f"{row['name']:12}{'ok' if row['ok'] else 'NOT WELL':10}{row['seconds']:>8}  {row['text']}")
    print(f"all of it: {args.json}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
