"""benchmarks/gpu.py and `make gpu-check`, as far as they go without a GPU."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Optional

import numpy as np
import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="our tools")

ROOT = Path(__file__).resolve().parents[2]
MODELS = {"TreeLSTM", "MV-RNN", "BiRNN", "NestedRNN", "DRNN", "Berxit", "StackRNN"}


def run(*arguments: str, env: Optional[dict[str, str]] = None) -> Any:
    whole = {**os.environ, "DYNET_COMPAT_LIBCUDA": "/nowhere/libcuda.so.1", **(env or {})}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=whole, cwd=ROOT, check=False
    )


@pytest.fixture(scope="module")
def models() -> Any:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    return importlib.import_module("models")


@pytest.fixture(scope="module")
def gpu_check() -> Any:
    sys.path.insert(0, str(ROOT / "tools"))
    return importlib.import_module("gpu_check")


# ---------------------------------------------------------------- the benchmark


def test_benchmark_on_the_cpu(tmp_path: Path) -> None:
    """Tiny sizes: every model, inference and training, all of our sides, which agree on the losses."""
    file = tmp_path / "gpu.json"
    sides = ("ours", "unhinted", "dynet")
    done = run("benchmarks/gpu.py", "--quick", "--device", "cpu", "--sides", *sides, "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(file.read_text(encoding="utf-8"))
    rows = result["rows"]
    assert {row["model"] for row in rows} == MODELS and len(rows) == 7 * 2 * 3
    assert result["disagree"] == [] and result["device"] == {"name": "cpu"}
    for row in rows:
        assert row["latency"] > 0 and row["launches"] > 0 and row["flops"] > 0 and row["minibatches"] == 2
        assert row["lists"] == {}, "nothing is chosen on the CPU"
        assert {"build", "plan", "copy", "kernel", "gathered", "operands"} <= set(row)
        assert row["side"] == "ours" or row["by regions"] == 0, row
    # Not of each row: trials of what pays go on, and record some minibatches op by op.
    assert max(row["by regions"] for row in rows if row["side"] == "ours") > 0.7
    losses = {side: [row["losses"] for row in rows if row["side"] == side] for side in sides}
    assert losses["ours"] == losses["unhinted"], "hints change no bit"
    assert result["summary"]["dynet training"]["configurations"] == 7
    table = [line for line in done.stdout.splitlines() if re.match(r"[\w-]+ +quick", line)]
    assert len(table) == len(rows)


def test_benchmark_in_emulation(tmp_path: Path) -> None:
    """The kernels' text on the host gives the losses of the CPU, before and after training."""
    losses = {}
    for device in ("cpu", "emulation"):
        file = tmp_path / f"{device}.json"
        options = ["--quick", "--device", device, "--sides", "ours", "--json", str(file)]
        done = run("benchmarks/gpu.py", *options)
        assert done.returncode == 0, done.stdout + done.stderr
        rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
        losses[device] = {(row["model"], row["training"]): row["losses"] for row in rows}
        assert all(row["operations"] is None for row in rows) == (device == "cpu")
        products = [
            sum(row[f"{way} products"] or 0 for way in ("few", "middle", "large", "library")) for row in rows
        ]
        assert all(count > 0 for count in products) == any(products) == (device != "cpu")
    assert len(losses["cpu"]) == 14
    for key, wanted in losses["cpu"].items():
        np.testing.assert_allclose(losses["emulation"][key], wanted, rtol=2e-5, err_msg=str(key))


def test_sides_that_disagree_are_told() -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    gpu = importlib.import_module("gpu")
    rows = [{"losses": [1.0, 2.0]}, {"losses": [1.0, 2.0001]}]
    assert gpu.agree(rows, 1e-3) and not gpu.agree(rows, 1e-6)


def test_summary() -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    gpu = importlib.import_module("gpu")
    what = {"model": "M", "size": "small", "batch": 8, "training": False}
    rows = [{**what, "side": "ours", "latency": 1.0, "operations": 2.0, "gathered": 1.0, "operands": 100.0},
            {**what, "side": "dynet", "latency": 4.0, "operations": 8.0},
            {**what, "batch": 64, "side": "dynet", "latency": 4.0, "operations": 8.0}]  # fmt: skip
    assert gpu.summary(rows) == {
        "dynet inference": {"configurations": 1, "speedup": 4.0, "least": 4.0, "operations": 0.25},
        "gathered": 0.01,
    }


def test_sizes_are_those_of_the_paper(models: Any) -> None:
    sizes = {model.name: (model.sizes["small"], model.sizes["large"]) for model in models.MODELS}
    assert sizes == {
        "TreeLSTM": (256, 512),
        "MV-RNN": (64, 128),
        "BiRNN": (256, 512),
        "NestedRNN": (256, 512),
        "DRNN": (256, 512),
        "Berxit": (768, 1024),
        "StackRNN": (256, 512),
    }


def test_work_is_counted(models: Any) -> None:
    """A BiRNN by hand: two products of n*n per direction and token, and two of 16*n for the classes."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    gpu = importlib.import_module("gpu")
    model = next(m for m in models.MODELS if m.name == "BiRNN")
    flops, size = gpu.work(model, 256, [[[(1, 2)] * 10]], False)
    products = 10 * (2 * 2 * 2 * 256 * 256 + 2 * 2 * 16 * 256)
    assert products <= flops <= 1.02 * products
    weights = 4 * 256 * 256 + 4 * 256 + 2 * 16 * 256 + 16
    assert size == 4 * (weights + 10 * 256)
    assert gpu.work(model, 256, [[[(1, 2)] * 10]], True)[0] == 3 * flops


def test_pytorch_may_run_some_batches_only() -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    gpu = importlib.import_module("gpu")
    args = gpu.arguments(["--batches", "8", "64", "--sides", "ours", "torch", "--torch-batches", "8"])
    told = {batch: gpu.sides_of(args, batch) for batch in args.batches}
    assert told[64] == ["ours"] and told[8][0] == "ours"
    assert gpu.arguments([]).torch_batches is None


# ---------------------------------------------------------------- the check


def untold(_: Any) -> None:
    """Takes what a part has found so far, and does nothing with it."""


def test_no_gpu_is_one_line() -> None:
    done = run("tools/gpu_check.py", env={"DYNET_COMPAT_DEVICE": "gpu"})
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("gpu-check: RuntimeError: no GPU can be used: NVIDIA's driver is not installed")


def test_cases_on_the_cpu_equal_themselves(tmp_path: Path) -> None:
    file = tmp_path / "check.json"
    done = run(
        "tools/gpu_check.py", "--device", "cpu", "--steps", "cases", "--scale", "0.03", "--json", str(file)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (part,) = json.loads(file.read_text(encoding="utf-8"))["parts"]
    assert part["ok"] and part["facts"]["arrays"] > 100 and part["facts"]["worst"] == 0


def test_distance(gpu_check: Any) -> None:
    a = np.array([1.0, -4.0, np.inf, np.nan])
    assert gpu_check.distance(a, a.copy()) == 0
    assert gpu_check.distance(a, np.array([1.0, -4.4, np.inf, np.nan])) == pytest.approx(0.1)
    for other in (
        [1.0, -4.0, -np.inf, np.nan],
        [1.0, -4.0, np.inf, 0.0],
        [1.0, np.nan, np.inf, np.nan],
        [1.0],
    ):
        assert gpu_check.distance(a, np.array(other)) == float("inf")


def test_a_difference_is_found(gpu_check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's values are spoiled on their way: the check must say so."""

    def spoiled(arguments: list[str], device: str, limit: float, before: tuple[str, ...] = ()) -> Any:
        values = {"3 value": np.ones(4), "5 gradient 0": np.full(2, 1.0 if device == "cpu" else 1.0001)}
        np.savez(arguments[2], **values)
        return subprocess.CompletedProcess(arguments, 0, "", "")

    monkeypatch.setattr(gpu_check, "child", spoiled)
    step = gpu_check.check_cases("gpu", 1.0, untold)
    assert not step.ok and step.facts["beyond"] == ["5 gradient 0"] and "2 arrays of 2 cases" in step.text


def test_what_would_run_is_told_without_a_gpu() -> None:
    done = run("tools/gpu_check.py", "--plan", env={"DYNET_COMPAT_DEVICE": "gpu"})
    assert done.returncode == 0, done.stderr
    first, *lines, last = done.stdout.splitlines()
    assert first.startswith("device: RuntimeError: no GPU can be used")
    assert [line.split()[0] for line in lines] == ["micro", "kernels", "products", "cases", "persistent",
                                                   "examples", "tests", "sanitizer", "benchmark"]  # fmt: skip
    assert int(last.split()[2]) <= 900, "a quarter of an hour"


def test_products_on_the_emulation(gpu_check: Any) -> None:
    step = gpu_check.check_products("emulation", 60.0, untold)
    assert step.ok, step.text
    told = dict(re.findall(r"(\w+ by \w+): ([\d.e-]+)", step.text))
    precisions, makers = ("float32", "tf32", "bf16"), ("kernels", "emulation")
    assert told.keys() == {f"{precision} by {by}" for precision in precisions for by in makers}
    for by in makers:
        errors = [float(told[f"{precision} by {by}"]) for precision in precisions]
        assert errors[0] < errors[1] / 30 and errors[1] < errors[2] / 3, told


def test_products_that_are_wrong_are_found(gpu_check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors beyond a precision, those of a better one, and numbers that are none."""
    gpu_products = importlib.import_module("gpu_products")
    for precision, error in (("float32", 1e-6), ("tf32", 2e-4), ("bf16", 2e-3)):
        assert gpu_products.verdict(precision, "large", [error]) is None
    assert gpu_products.verdict("tf32", "large", [2e-4, 1.2e-3]) == "more than 0.0011"
    assert gpu_products.verdict("tf32", "library", [2e-4, 1.2e-3]) is None
    assert gpu_products.verdict("bf16", "large", [2e-3, 1e-6]) == "that of another precision"
    a = np.ones((2, 2), np.float32)
    assert gpu_products.error(a + a, a, a) == 0 and gpu_products.error(a * 1.5, a, a) == 0.25
    assert gpu_products.verdict("bf16", "large", [gpu_products.error(a * np.nan, a, a)]) is not None

    def wrong(arguments: list[str], *_: Any) -> Any:
        return subprocess.CompletedProcess(arguments, 1, "tf32 by kernels: 1e-1, WRONG: more\n", "")

    monkeypatch.setattr(gpu_check, "child", wrong)
    step = gpu_check.check_products("gpu", 1.0, untold)
    assert not step.ok and step.text == "tf32 by kernels: 1e-1, WRONG: more"


def test_persistent_kernels_on_the_emulation(tmp_path: Path) -> None:
    """The constants come first; a run that is cut off later has them in a whole report."""
    file = tmp_path / "check.json"
    options = ("--device", "emulation", "--steps", "micro", "persistent", "--scale", "0.3")
    done = run("tools/gpu_check.py", *options,
               "--json", str(file))  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(file.read_text(encoding="utf-8"))
    micro, persistent = report["parts"]
    assert report["complete"] and {"flush", "launch"} <= set(micro["facts"])
    assert "equal bit for bit" in persistent["text"] and persistent["facts"] == {"unlike": []}


def test_persistent_kernels_that_differ_are_found(gpu_check: Any) -> None:
    plain = {"A losses": np.array([1.0, 2.0]), "A W": np.ones(3)}
    last_bit = {**plain, "A W": np.nextafter(np.ones(3), 2)}
    assert gpu_check.compared_models([plain, plain, plain], 5).ok
    for ways in ([plain, last_bit, plain], [plain, plain, last_bit]):
        step = gpu_check.compared_models(ways, 5)
        assert not step.ok and step.facts["unlike"] == ["A W"]
    assert not gpu_check.compared_models([plain, plain, plain], 0).ok, "none ran"
    assert not gpu_check.compared_models([{}, {}, {}], 5).ok


def test_a_way_that_never_wins_is_named(gpu_check: Any) -> None:
    orders = [["graph", "plain"], ["plain"], [], ["graph", "plain"]]
    told = gpu_check.fastest([{"order": order} for order in orders])
    assert told == ["fastest of 3 sets of kernels: 1 plain, 2 graph, 0 persistent",
                    "never the fastest, so it may be removed: persistent"]  # fmt: skip
    assert gpu_check.fastest([]) == [] == gpu_check.fastest([{"order": []}])


def test_a_part_that_breaks_leaves_a_whole_report(
    gpu_check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, seen = tmp_path / "report.json", []

    def cut_off(device: str, limit: float, tell: Any) -> Any:
        tell(gpu_check.Step("tests", True, "so far"))
        seen.append(json.loads(file.read_text(encoding="utf-8")))
        raise KeyboardInterrupt

    steps = {"cases": lambda device, limit, tell: gpu_check.Step("cases", True, "fine"), "tests": cut_off}
    monkeypatch.setattr(gpu_check, "STEPS", steps)
    with pytest.raises(KeyboardInterrupt):
        report_of = lambda rows, whole: gpu_check.write_report(str(file), "a GPU", rows, whole)  # noqa: E731
        gpu_check.run("gpu", ["cases", "tests"], 1.0, report_of)
    report = json.loads(file.read_text(encoding="utf-8"))
    assert seen == [report] and not report["complete"] and not report["ok"]
    assert [(part["name"], part["text"]) for part in report["parts"]] == [
        ("cases", "fine"),
        ("tests", "so far"),
    ]


SANITIZER = """#!{python}
import os, subprocess, sys
tool, command = sys.argv[2], sys.argv[sys.argv.index("9") + 1:]
if "{runs}":
    done = subprocess.run(command)
    what = "RACECHECK SUMMARY: 0 hazards" if tool == "racecheck" else "ERROR SUMMARY: {errors} errors"
    print("=========", what)
    sys.exit(done.returncode or (9 if "{errors}" != "0" else 0))
print("========= Error: no process\\n========= ERROR SUMMARY: 0 errors")
"""


def sanitizer(folder: Path, gpu_check: Any, monkeypatch: pytest.MonkeyPatch, runs: str, errors: int) -> None:
    program = folder / "compute-sanitizer"
    program.write_text(SANITIZER.format(python=sys.executable, runs=runs, errors=errors), encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(gpu_check.shutil, "which", lambda name: str(program))


@pytest.mark.parametrize(("runs", "errors"), [("yes", 0), ("yes", 2), ("", 0)])
def test_sanitizers(
    gpu_check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: str, errors: int
) -> None:
    """One that says nothing is wrong because nothing ran is not believed."""
    sanitizer(tmp_path, gpu_check, monkeypatch, runs, errors)
    told: list[Any] = []
    step = gpu_check.check_sanitizer("cpu", 30.0 if runs else 12.5, told.append)
    assert step.ok == (runs != "" and errors == 0), step.text
    assert len(told) == 3 and told[-1] == step and not told[0].ok and not told[1].ok
    assert step.text.count(": 0 arrays") == (0 if runs else 3), step.text
    if errors:
        assert "2 errors, ended with 9" in step.text


def test_what_a_sanitizer_is_cut_off_from_counts(
    gpu_check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that does not end is interrupted with all that it started, and its arrays are there."""
    sanitizer(tmp_path, gpu_check, monkeypatch, "yes", 0)
    child = gpu_check.child
    endless = (
        "import time, gpu_check as g; g.SAVED_EACH = 0.05; g.write_cases({file!r}, 1e9); time.sleep(1e3)"
    )

    def cut_off(arguments: list[str], device: str, limit: float, before: tuple[str, ...] = ()) -> Any:
        code = endless.format(file=arguments[2])
        return child(["-c", code], device, 8.0, before)

    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tools"))
    monkeypatch.setattr(gpu_check, "child", cut_off)
    ok, told, _ = gpu_check.sanitize(str(tmp_path / "compute-sanitizer"), "memcheck", "cpu", 30.0)
    assert not ok and re.match(r"memcheck: [1-9]\d+ arrays, .*", told), told


def test_models_of_the_benchmark_are_told_as_they_end(
    gpu_check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First all are compiled, then one is timed after the other; one that fails leaves the others."""
    commands: list[list[str]] = []

    def child(arguments: list[str], device: str, limit: float, before: tuple[str, ...] = ()) -> Any:
        commands.append(arguments)
        name = arguments[arguments.index("--models") + 1]
        if "--compile" in arguments or name == "BiRNN":
            return subprocess.CompletedProcess(arguments, 1, "", "no memory")
        what = {"model": name, "size": "small", "batch": 8, "training": False, "few products": None}
        rows = [{**what, "side": "ours", "latency": 1.0}, {**what, "side": "dynet", "latency": 3.0}]
        choices = [{"kernels": "tanh", "order": ["plain"]}, {"kernels": name, "order": ["graph", "plain"]}]
        result = {"rows": rows, "disagree": [], "choices": choices, "summary": {}, "device": {}}
        Path(arguments[arguments.index("--json") + 1]).write_text(json.dumps(result), encoding="utf-8")
        return subprocess.CompletedProcess(arguments, 0, "head\nrow\n", "")

    monkeypatch.setattr(gpu_check, "child", child)
    told: list[Any] = []
    step = gpu_check.check_benchmark("cuda:0", 100.0, told.append)
    assert [("--compile" in c) for c in commands] == [True] * 7 + [False] * 7
    assert all(c[c.index("--torch-batches") + 1] == "8" for c in commands)
    assert len(told) == 7 and told[-1] == step and not step.ok
    assert [len(one.facts["rows"]) for one in told] == [2, 4, 4, 6, 8, 10, 12]
    assert step.facts["summary"]["dynet inference"] == {
        "configurations": 6,
        "speedup": pytest.approx(3.0),
        "least": 3.0,
    }
    assert "fastest of 7 sets of kernels: 1 plain, 6 graph, 0 persistent" in step.text
    json.dumps(step.facts, allow_nan=False)


def test_the_benchmark_on_the_emulation(gpu_check: Any, tmp_path: Path) -> None:
    """All models in processes of their own, as one table; the ways that lists ran are told row by row."""
    file = tmp_path / "check.json"
    options = ("--device", "emulation", "--steps", "benchmark", "--json", str(file))
    done = run("tools/gpu_check.py", *options, env={"DYNET_COMPAT_EMULATION": "times=4:2:9"})
    assert done.returncode == 0, done.stdout + done.stderr
    (part,) = json.loads(file.read_text(encoding="utf-8"))["parts"]
    rows = part["facts"]["rows"]
    assert part["ok"] and {row["model"] for row in rows} == MODELS and len(rows) == 7 * 2 * 3
    assert all(sum(row["lists"].values()) > 0 for row in rows if row["side"] == "ours"), rows
    assert len([line for line in done.stdout.splitlines() if line.startswith("model ")]) == 1
    assert "sets of kernels: " in part["text"]


def test_constants_are_kept_one_by_one(tmp_path: Path) -> None:
    """Time for one of them only."""
    file = tmp_path / "micro.json"
    done = run("tools/gpu_micro.py", "--json", str(file), "--seconds", "0.001",
               env={"DYNET_COMPAT_DEVICE": "emulation"})  # fmt: skip
    assert done.returncode == 0 and len(json.loads(done.stdout)) < 7, done.stdout + done.stderr
    done = run("tools/gpu_micro.py", "--json", str(file), "--seconds", "3",
               env={"DYNET_COMPAT_DEVICE": "emulation"})  # fmt: skip
    assert json.loads(file.read_text(encoding="utf-8")).keys() >= {"flush", "launch"}, done.stderr


def test_counts_of_pytest(gpu_check: Any) -> None:
    assert gpu_check.counted("2 failed, 41 passed, 1 skipped in 3.2s") == {
        "failed": 2,
        "passed": 41,
        "skipped": 1,
    }


def test_make_has_it() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^gpu-check: build\n\t\$\(PY\) tools/gpu_check.py", text, re.M)


def test_parts_of_the_kernels_are_all_of_them(gpu_check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process compiles its part; together they have every kernel, with names that the engine uses."""
    from dynet_compat import cuda, devices

    asked: list[tuple[str, str, int, int]] = []
    told = {"devices": [{"architecture": 90}], "version": 13000}
    monkeypatch.setattr(devices, "gpus", lambda: told)
    monkeypatch.setattr(devices, "current", lambda: devices.Choice("cuda:0", ["GPU:0"]))
    monkeypatch.setattr(
        cuda, "compile_kernels",
        lambda file, names, *device: asked.extend((file, name, *device) for name in names),
    )  # fmt: skip
    count = sum(gpu_check.compile_part(part, 3) for part in range(3))
    names = gpu_check.kernel_names()
    assert count == len(asked) == len(set(asked)) == sum(map(len, names.values())) > 200
    assert {one[:2] for one in asked} == {(file, name) for file in names for name in names[file]}
    assert {tuple(device) for _, _, *device in asked} == {(90, 13000)}


def test_a_case_that_fails_leaves_the_others(
    gpu_check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests"))
    runner, cases = (importlib.import_module(name) for name in ("support.runner", "ops.cases"))
    bad, evaluate = cases.CASES[7], runner.evaluate
    monkeypatch.setattr(cases, "CASES", cases.CASES[5:10])
    monkeypatch.setattr(runner, "evaluate", lambda dy, case: 1 / 0 if case is bad else evaluate(dy, case))
    file = tmp_path / "cases.npz"
    assert gpu_check.write_cases(str(file), 60.0) == 1
    assert {name.split()[0] for name in np.load(file).files} == {"0", "1", "3", "4"}
    assert f"{bad.id}: ZeroDivisionError" in capsys.readouterr().err
