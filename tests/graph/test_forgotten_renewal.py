"""A script that never calls renew_cg(): one warning while it trains, and advice when memory ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="the reference says nothing")

HEAD = """
import dynet_compat as dy
m = dy.ParameterCollection(); W = m.add_parameters((2, 2)); t = dy.SimpleSGDTrainer(m)
x = dy.vecInput(2)
def step(): return dy.squared_norm(W * dy.inputVector([1, 2]))
"""


def run(body: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:

    environment = {**os.environ, **environment}
    command = [sys.executable, *options, "-c", HEAD + body]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)


def test_one_warning() -> None:
    done = run("for i in range(40):\n    step().backward()\n    t.update()\nprint('trained')")
    assert done.stdout == "trained\n"
    found = re.findall(
        r"<string>:\d+: RuntimeWarning: update\(\): one graph has grown over 11 updates, to (\d+) nodes; "
        r"call renew_cg\(\) before each example",
        done.stderr,
    )
    assert len(found) == 1, done.stderr
    assert 11 < int(found[0]) < 100


def test_ten_updates_are_none() -> None:
    done = run("for i in range(10):\n    step().backward()\n    t.update()\nprint('trained')")
    assert (done.stdout, done.stderr) == ("trained\n", "")


@pytest.mark.parametrize(
    "body",
    {
        "renewed": "for i in range(40):\n    dy.renew_cg(); step().backward(); t.update()",
        "one graph, other inputs": (
            "l = dy.squared_norm(W * x)\nfor i in range(40):\n    x.set([i, 1]); l.backward(); t.update()"
        ),
        "reverted": (
            "l = step(); l.value()\nfor i in range(40):\n"
            "    dy.cg_checkpoint(); step().backward(); t.update(); dy.cg_revert()"
        ),
        "renewed now and then": (
            "for i in range(40):\n    if i % 8 == 0: dy.renew_cg()\n    step().backward(); t.update()"
        ),
    }.items(),
    ids=lambda item: item[0],
)
def test_no_warning(body: tuple[str, str]) -> None:
    done = run(body[1] + "\nprint('trained')")
    assert (done.stdout, done.stderr) == ("trained\n", ""), body[0]


def test_the_warning_can_be_an_error() -> None:
    done = run("for i in range(40):\n    step().backward()\n    t.update()", "-W", "error::RuntimeWarning")
    assert done.returncode == 1
    assert "RuntimeWarning: update(): one graph has grown" in done.stderr.splitlines()[-1]


def test_memory_error_names_renew_cg() -> None:
    done = run("for i in range(10**6): (W * dy.inputVector([1, 2])).value()", DYNET_COMPAT_MEM="2")
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("MemoryError: out of memory: value arena, requested "), last
    assert " 0 MB" not in last and "requested 0" not in last, last
    assert re.search(r"in use [\d.]+ (MB|kB) of 2 MB; the graph has \d+ nodes", last), last
    assert "renew_cg() before each example" in last, last


def test_one_large_expression_needs_no_renewal() -> None:
    done = run("dy.zeros(10**7)", DYNET_COMPAT_MEM="2")
    last = done.stderr.splitlines()[-1]
    assert "requested 38.1 MB" in last and "renew_cg" not in last, last
