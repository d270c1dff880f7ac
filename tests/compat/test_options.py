"""The command line, `dynet_config` and `DynetParams`: what the real DyNet does with the same words."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Optional

import pytest
from support import oracle, surface_cases
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="our parser")

RECORDED = json.loads((oracle.DATA / "surface.json").read_text(encoding="utf-8"))["options"]


# DyNet was recorded without CUDA: it takes no notice of these, and we tell that there is no GPU.
OURS = {"--dynet-gpus=1", "--dynet-devices=GPU:0"}


def names_gpus(line: list[str]) -> bool:
    """Whether a GPU is asked for, or none in so many words."""
    return any(w.startswith("--dynet-gpu") for w in line) or any("GPU" in w for w in line)


def parsed(arguments: list[str]) -> dict[str, Any]:
    """What our parser makes of a command line, in the form of the recordings."""
    import dynet_compat.startup.config as config
    from dynet_compat.startup import options

    left = [a for a in arguments if a != "--dynet-viz"]
    viz = left != arguments
    try:
        settings = config.parse_arguments(left)
        options.check(settings)
    except (ValueError, RuntimeError) as error:
        assert str(error)
        return {"error": type(error).__name__}
    seeded = any(a.startswith(("--dynet-seed", "--dynet_seed")) for a in arguments)
    lines = [] if viz else config.start_lines(settings, settings.seed)
    if lines and not (seeded and settings.seed):
        lines[0] = "[dynet] random seed: *"
    return {"lines": lines, "out": f"{left} {-1.0 if viz else round(settings.weight_decay, 6)}"}


def shared(result: dict[str, Any]) -> dict[str, Any]:
    """Without lines that differ: here batching is the default, and no memory is allocated first."""
    differs = ("[dynet] using autobatching", "[dynet] allocating", "[dynet] memory")
    return {**result, "lines": [line for line in result.get("lines", []) if not line.startswith(differs)]}


@pytest.mark.parametrize(("arguments", "wanted"), RECORDED, ids=lambda v: " ".join(v)[:60] if v else None)
def test_as_recorded(
    arguments: list[str], wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DYNET_COMPAT_DEVICE", raising=False)
    if arguments[0] in OURS:
        wanted = {"error": "RuntimeError"}
    assert shared(parsed(arguments)) == shared(wanted)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--dynet-seed", "5"],
        ["a", "--dynet-seed=3", "--dynet_mem", "7", "b"],
        ["--dynet-weight-decay", ".25", "--dynet-autobatch", "1", "--dynet-profiling", "0"],
        ["--dynet-seed", "-1"],
        ["--dynet-mem", "1,2"],
        ["--dynet-gpu"],
        ["--dynet-viz", "--dynet-seed", "3"],
    ],
    ids=" ".join,
)
def test_whole_program(arguments: list[str], tmp_path: Path) -> None:
    """The same script, run by us: lines on stderr, sys.argv, default weight decay."""
    script = tmp_path / "script.py"
    script.write_text(surface_cases.SCRIPT, encoding="utf-8")
    command = [sys.executable, "-m", "dynet_compat", "run", str(script)]
    found = surface_cases.start(command, arguments, environment())
    wanted = parsed(arguments)
    if "--dynet-viz" in arguments:  # DyNet's drawings have no reset_random_seed(), which the script looks for
        wanted["out"] = wanted["out"].replace("-1.0", "0.0")
    assert found == wanted


def environment() -> dict[str, str]:
    return dict(os.environ)


def test_silent_without_options(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import dynet as dy\nprint(dy.inputVector([1, 2]).value())\n", encoding="utf-8")
    command = [sys.executable, "-m", "dynet_compat", "run", str(script), "--other", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert (done.stdout, done.stderr) == ("[1.0, 2.0]\n", "")


def start_of(*arguments: str) -> list[str]:
    """What a program prints on stderr when it starts with these arguments."""
    return program("import dynet\n", *arguments)[1].splitlines()


def test_start_lines_say_what_is_so() -> None:
    assert start_of("--dynet-seed", "3") == ["[dynet] random seed: 3", "[dynet] using autobatching"]
    assert start_of("--dynet-seed", "3", "--dynet-autobatch", "0") == ["[dynet] random seed: 3"]
    assert start_of("--dynet-seed", "3", "--dynet-mem=100")[2:] == [
        "[dynet] memory grows as needed: a size of 100MB has no effect"
    ]


@pytest.mark.parametrize(
    ("arguments", "warning"),
    [
        (["--dynet-sed", "1"], "--dynet-sed is no option and is ignored; did you mean --dynet-seed?"),
        (["--dynet_wieght_decay=1"], "--dynet_wieght_decay is no option and is ignored; "
                                     "did you mean --dynet-weight-decay?"),
        (["--dynet-l2", "1"], "--dynet-l2 is no longer an option of DyNet and is ignored"),
        (["--dynet-seed", "x"], "--dynet-seed x: expected a number; read as 0, as DyNet does"),
        (["--dynet-seed", "7up"], "--dynet-seed 7up: expected a number; read as 7, as DyNet does"),
        (["--dynet-weight-decay=1e-"], "--dynet-weight-decay 1e-: expected a number; "
                                       "read as 0.0, as DyNet does"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)  # fmt: skip
def test_doubtful_options_are_said(arguments: list[str], warning: str) -> None:
    assert start_of(*arguments)[-1] == f"[dynet] WARNING: {warning}"


def test_usual_options_are_not_doubtful() -> None:
    from dynet_compat.startup.options import doubtful

    usual = "--dynet-seed 1 --dynet_mem 512,1,1,1 --dynet-weight-decay=1e-3 --dynet-autobatch 1 --dynet-gpu"
    assert doubtful([*usual.split(), "--dynet-viz", "--dynet-devices=CPU", "--dynet-memory", "9"]) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("THREADS", "abc"), ("THREADS", "0"), ("ISA", "mmx"), ("MEM", "1G"), ("SCHEDULER", "fast"),
     ("PRECISION", "fp16")],  # fmt: skip
)
def test_settings_of_the_environment_are_checked(name: str, value: str) -> None:
    environment = dict(os.environ, **{"DYNET_COMPAT_" + name: value})
    command = [sys.executable, "-c", "import dynet_compat"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"ValueError: DYNET_COMPAT_{name}: expected ")
    assert done.stderr.rstrip().endswith(repr(value))


@pytest.mark.parametrize(("name", "meant"), [("HINT", "HINTS"), ("TRHEADS", "THREADS"), ("KILLS", None)])
def test_misspelt_variables_are_said(name: str, meant: str | None) -> None:
    environment = {"PATH": os.environ["PATH"], "DYNET_COMPAT_" + name: "1"}
    command = [sys.executable, "-c", "import dynet_compat"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=True)
    says = f"DYNET_COMPAT_{name} is no variable and is ignored; did you mean DYNET_COMPAT_{meant}?"
    assert done.stderr == (f"[dynet] WARNING: {says}\n" if meant else "")


# ---------------------------------------------------------------- random command lines

WORDS = [
    "--dynet-seed",
    "--dynet_seed",
    "--dynet-mem",
    "--dynet_mem",
    "--dynet-weight-decay",
    "--dynet-autobatch",
    "--dynet_weight_decay",
    "--dynet-profiling",
    "--dynet-devices",
    "--dynet-gpus",
    "--dynet-",
    "--dynet",
    "--dynet-seedling",
    "--dynet-memx",
    "--dynet_autobatch",
    "--dynet-autobatching",
    "--other",
    "-x",
    "a",
    "--dynet-weight_decay",
    "--dynet-l2",
    "--",
]
VALUES = [
    "1",
    "0",
    "-1",
    "0.5",
    "1e-3",
    "1e",
    ".",
    "512",
    "1,2,3,4",
    "1,2",
    ",",
    "CPU",
    "CPU:0",
    "GPU:0",
    "",
    " 7",
    "x",
    "99999999999999999999",
    "-99999999999",
    "0x10",
    "1=2",
    "=",
    "nan",
    "inf",
    "1.5.2",
    "+3",
    "\u0663",
    "1_000",
    "--",
]


def command_line(rng: random.Random) -> list[str]:
    line = []
    for _ in range(rng.randrange(1, 5)):
        word = rng.choice(WORDS)
        form = rng.randrange(4)
        value = rng.choice(VALUES)
        line += [word + "=" + value] if form == 0 else [word] if form == 1 else [word, value]
    return line


def test_random_command_lines(fuzz_count: int) -> None:
    """Settings within their ranges, or ValueError or RuntimeError; and nothing depends on foreign words."""
    import dynet_compat.startup.config as config

    rng = random.Random(5)
    accepted = 0
    for _ in range(max(3000, fuzz_count)):
        line = command_line(rng)
        result = parsed(line)
        if "error" in result:
            continue
        accepted += 1
        settings = config.parse_arguments(line)
        assert 0 <= settings.seed < 2**32
        assert 0.0 <= settings.weight_decay < 1.0
        assert -(2**31) <= settings.autobatch < 2**31 and -(2**31) <= settings.profiling < 2**31
        assert settings.mem
        again = config.parse_arguments([*line, "--other", "5"])
        assert again == settings
        assert config.parse_arguments(["first", "--other", *line]) == settings
    assert accepted > 300


def live(lines: list[list[str]], oracle_python: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(surface_cases.SCRIPT, encoding="utf-8")
        env = oracle.clean_environment()
        return [surface_cases.start([oracle_python, str(script)], line, env) for line in lines]


def test_random_command_lines_live(oracle_python: str, fuzz_count: int) -> None:
    """The real DyNet says the same of random command lines."""
    rng = random.Random(17)
    lines: list[list[str]] = []
    while len(lines) < max(8, fuzz_count // 100):
        line = command_line(rng)
        # not in Python's or the shell's hands, or known to differ: it dies of an index; no digits but ASCII's
        if line[-1] != "--dynet-devices" and "\u0663" not in " ".join(line) and not names_gpus(line):
            lines.append(line)
    for line, wanted in zip(lines, live(lines, oracle_python)):
        found = parsed(line)
        if "*" in found.get("lines", [""])[0]:  # a seed of 0 is drawn
            wanted["lines"][0] = found["lines"][0]
        assert shared(found) == shared(wanted), line


# ---------------------------------------------------------------- dynet_config, DynetParams


def program(text: str, *arguments: str) -> tuple[str, str]:
    """stdout and stderr of a script that we run."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "dynet_compat", "run", str(script), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_config_goes_before_the_command_line() -> None:
    out, err = program(
        "import dynet_config\n"
        "dynet_config.set(random_seed=7, mem=99)\n"
        "dynet_config.set_gpu()\n"
        "import dynet as dy\n"
        "print(dy._CONF['seed'], dy._CONF['mem'], dynet_config.gpu(), dynet_config.get()['requested_gpus'])\n"
        "print(dy._params is not None)\n",
        "--dynet-seed",
        "3",
    )
    assert out == "7 99 True 1\nTrue\n"
    assert err.splitlines()[:2] == ["[dynet] random seed: 7", "[dynet] using autobatching"]
    assert err.splitlines()[2] == "[dynet] memory grows as needed: a size of 99MB has no effect"
    assert err.count("random seed") == 1


def test_second_initialisation_warns() -> None:
    _, err = program("import dynet as dy\ndy.init()\np = dy.DynetParams()\np.init()\n", "--dynet-seed", "3")
    assert err.count("random seed: 3") == 2  # ours: the first request is still heard
    assert err.splitlines()[-1].startswith("WARNING")


def test_params_of_a_native_program() -> None:
    """`import _dynet` initialises nothing; the program does."""
    out, err = program(
        "import _dynet as dy\n"
        "p = dy.DynetParams()\n"
        "p.from_args(True)\n"
        "p.set_mem(64); p.set_random_seed(11); p.set_autobatch(True); p.set_profiling(0)\n"
        "p.set_weight_decay(0.25); p.set_shared_parameters(True); p.set_requested_gpus(0)\n"
        "p.set_gpu_mask([0, 1]); p.set_cpu_mode()\n"
        "print('before')\n"
        "dy.init_from_params(p)\n"
        "print(dy.ParameterCollection().get_weight_decay())\n",
        "--dynet-seed",
        "5",
    )
    assert out == "before\n0.25\n"
    assert err.splitlines() == [
        "[dynet] random seed: 11",
        "[dynet] using autobatching",
        "[dynet] memory grows as needed: a size of 64MB has no effect",
    ]


def outcome(code: str) -> Optional[str]:
    import dynet_compat as dy

    try:
        exec(code, {"dy": dy, "p": dy.DynetParams()})  # noqa: S102 - our own text
    except Exception as error:
        return type(error).__name__
    return None


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("p.set_gpu_mask([2])", "ValueError"),
        ("p.set_mem(-1)", "OverflowError"),
        ("p.set_mem('a')", "TypeError"),
        ("p.set_random_seed(2**32)", "OverflowError"),
        ("p.from_config(3)", "TypeError"),
        ("p.set_profiling(1.9)", None),
        ("dy.init_from_params(3)", "TypeError"),
        ("p.set_random_seed(random_seed=3)", None),
        ("p.set_autobatch_debug(True)", None),
    ],
)
def test_params_errors(code: str, wanted: Optional[str]) -> None:
    assert outcome(code) == wanted
