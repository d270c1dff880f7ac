"""Looking at graphs: dump_cg, print_text_graphviz, checks for NaN, profiling."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="our texts")


# ---------------------------------------------------------------- dump_cg


def dumped(dy: Any, tmp_path: Path, **options: Any) -> str:
    path = tmp_path / "dump.txt"
    dy.dump_cg(str(path), **options)
    return path.read_text(encoding="utf-8")


def test_dump_has_all_nodes(dy: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In DyNet the last one is missing. What is not computed is computed."""
    y = dy.tanh(dy.inputVector([0, 1]))
    text = dumped(dy, tmp_path)
    assert (
        text == "Node 0\nValue: \n0\n1\nGradient: (not computed)\nNode 1\nValue: \n       0\n0.761594\n"
        "Gradient: (not computed)\n"
    )
    dy.cg().dump("", True, True, False)
    assert capsys.readouterr().out == text
    dy.sum_elems(y).backward(full=True)
    assert "Gradient: \n       1\n0.419974" in dumped(dy, tmp_path, show_values=False)


def test_dump_of_batches_and_tensors(dy: Any, tmp_path: Path) -> None:
    """The reference dies of these."""
    array = np.arange(12.0).reshape(2, 3, 2)
    dy.inputTensor(array)
    dy.inputTensor(array[:, 0], batched=True)
    assert dumped(dy, tmp_path, show_gradients=False) == (
        "Node 0\nValue: \n[d2=0]\n 0  2  4\n 6  8 10\n[d2=1]\n 1  3  5\n 7  9 11\n"
        "Node 1\nValue: \n[batch 0]\n0\n6\n[batch 1]\n1\n7\n"
    )


def test_dump_goes_past_a_lazy_error(dy: Any, tmp_path: Path) -> None:
    dy.pick(dy.inputVector([1, 2]), 7)
    text = dumped(dy, tmp_path, show_gradients=False, nan_check_only=True)
    assert text.startswith("Node 0\nValue: valid\nNode 1\nValue: (pick(): ")


@pytest.mark.parametrize("name", [1, 2, 0, None, 1.5])
def test_dump_wants_the_name_of_a_file(dy: Any, name: Any) -> None:
    """Not the number of an open one, which would be closed."""
    with pytest.raises(TypeError):
        dy.dump_cg(name)


def test_graphviz_names_every_edge(dy: Any, capsys: pytest.CaptureFixture[str]) -> None:
    p = dy.ParameterCollection().add_parameters((2, 2))
    x = dy.inputVector([1, 2])
    y = dy.concatenate([p * x, x])
    dy.reshape(y, (2, 2))
    dy.cg().print_graphviz()
    assert capsys.readouterr().err.splitlines() == [
        "digraph G {",
        "  rankdir=LR;",
        "  nodesep=.05;",
        '  N0 [label="v0 = constant({2})"];',
        '  N1 [label="v1 = parameters({2,2}) @ /_0"];',
        '  N2 [label="v2 = v1 * v0"];',
        "  N1 -> N2;",
        "  N0 -> N2;",
        '  N3 [label="v3 = concat({v2,v0}, 0)"];',
        "  N2 -> N3;",
        "  N0 -> N3;",
        '  N4 [label="v4 = reshape(v3 --> {2,2})"];',
        "  N3 -> N4;",
        "}",
    ]


def test_graphviz_of_equal_values(dy: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Equal expressions share a value; the drawing shows what was recorded."""
    p = dy.ParameterCollection().add_parameters((2, 2))
    a, b = dy.tanh(p), dy.tanh(p)
    dy.cmult(a, b)
    dy.print_text_graphviz()
    text = capsys.readouterr().err
    assert "v1 = tanh(v0)" in text and "v2 = tanh(v0)" in text and "v3 = v1 \\cdot v2" in text


# ---------------------------------------------------------------- NaN checks


def line_of(function: Callable[..., Any], offset: int) -> int:
    return function.__code__.co_firstlineno + offset


def checked(dy: Any, **options: Any) -> None:
    dy.renew_cg(immediate_compute=True, check_validity=True, **options)


@pytest.mark.parametrize("autobatching", [True, False])
def test_first_bad_node_is_named(dy: Any, autobatching: bool, capsys: pytest.CaptureFixture[str]) -> None:
    checked(dy, autobatching=autobatching)
    x = dy.inputVector([1, -2, 3])

    def model(v: Any) -> Any:
        h = dy.exp(v)
        return dy.log(-h) + 1

    with pytest.raises(RuntimeError) as error:
        model(x)
    text = str(error.value)
    assert text.startswith("log(): node 3, {3}, has the value")
    assert "(3 NaN, 0 infinite of 3)" in text
    assert "inputs: node 2 negate {3}: values from -20.0855 to -0.135335" in text
    assert text.endswith(f"made at {__file__}:{line_of(model, 2)}")
    assert capsys.readouterr().err.strip() == text  # DyNet prints it, too


def test_each_bad_node_is_told_by_the_call_that_made_it(dy: Any) -> None:
    checked(dy)
    x = dy.inputVector([0, 1])
    with pytest.raises(RuntimeError, match=r"^log\(\): node 1, .*-inf at element 0 \(0 NaN, 1 inf"):
        dy.log(x)
    assert dy.exp(x).value()[0] == 1.0  # the graph goes on
    with pytest.raises(RuntimeError, match=r"^cdiv\(\): node 3, .*node 0 input \{2\}: values from 0 to 1"):
        dy.cdiv(x, x)


@pytest.mark.parametrize(
    ("code", "op"),
    [
        ("dy.inputVector([float('nan')])", "input"),
        ("dy.scalarInput(float('inf'))", "input"),
        ("dy.constant(2, float('nan'))", "constant"),
        ("dy.tanh(p)", "parameter"),
        ("rnn.initial_state().add_input(dy.inputVector([1, 1]))", "parameter"),
        ("E[1]", "lookup"),
        ("dy.inputVector([1, 0])[1] / dy.scalarInput(0)", "cdiv"),
        ("dy.inputVector([1e30, 1]) ** 3", "pow_const"),
        ("dy.sqrt(dy.inputVector([-1]))", "sqrt"),
    ],
)
def test_where_it_comes_from(dy: Any, code: str, op: str) -> None:
    """Inputs, parameters and ops alike; also what a builder or a function of several ops records."""
    pc = dy.ParameterCollection()
    names = {"dy": dy, "p": pc.add_parameters(2), "rnn": dy.LSTMBuilder(1, 2, 2, pc)}
    names["E"] = pc.add_lookup_parameters((2, 2))
    for p in (*pc.parameters_list(), names["E"]):
        p.scale(float("inf"))
    checked(dy)
    with pytest.raises(RuntimeError, match=rf"^{op}\(\): node \d+") as error:
        eval(code, names)  # noqa: S307 - our own text
    assert re.search(r"; made at <string>:1$", str(error.value))


def test_only_with_both_options(dy: Any) -> None:
    for options in ({}, {"check_validity": True}, {"immediate_compute": True}):
        dy.renew_cg(**options)
        assert np.isnan(dy.log(dy.inputVector([-1, -1])).value()).all()


# ---------------------------------------------------------------- profiling

PROGRAM = """
import dynet_compat as dy
p = dy.ParameterCollection().add_parameters((3, 3))
for _ in range(2):
    dy.renew_cg()
    xs = [dy.inputVector([1, 2, i]) for i in range(4)]
    loss = dy.esum([dy.squared_norm(dy.tanh(p * x)) for x in xs])
    loss.value()
    loss.backward()
print("end", flush=True)
"""


def profile(level: int, *options: str) -> list[str]:
    command = [sys.executable, "-c", PROGRAM, "--dynet-profiling", str(level), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert f"[dynet] using profiling level {level}" in done.stderr
    return done.stdout.splitlines()


def test_times_at_exit() -> None:
    """In DyNet's form: ms, share, direction and op; from the shortest to the sum."""
    lines = profile(1)
    assert lines[:2] == ["end", "Timing Info:"]
    rows = [re.fullmatch(r" *([-.\de]+)\t([-.\de]+)%\t(.*)", line) for line in lines[2:]]
    assert all(rows)
    found = [(float(r[1]), float(r[2]), r[3]) for r in rows if r]
    assert {name for _, _, name in found} >= {
        "FWD matmul",
        "BWD matmul",
        "FWD tanh",
        "BWD tanh",
        "FWD squared_norm",
        "BWD squared_norm",
        "(total time)",
    }
    times = [ms for ms, _, _ in found[:-1]]
    assert times == sorted(times) and all(ms > 0 for ms in times)
    assert abs(sum(times) - found[-1][0]) < 0.01 * found[-1][0] + 1e-3
    assert found[-1][1:] == (100.0, "(total time)")


def test_batches_of_each_forward() -> None:
    lines = profile(2)
    assert lines.count("Forward Call") == 2
    assert lines.count("BatchSize:4 tanh") == lines.count("BatchSize:4 matmul") == 2
    alone = profile(2, "--dynet-autobatch", "0")
    assert alone.count("BatchSize:1 tanh") == 8
