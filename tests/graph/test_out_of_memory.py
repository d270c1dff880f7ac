"""When memory is short: a MemoryError that says what needs it, and a graph that goes on working."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.subject import IS_REFERENCE, ON_DEVICE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="our messages")
TESTS = Path(__file__).resolve().parent.parent

# Each leaves the message of the MemoryError that 16 MB of values lead to.
PROGRAMS = {
    "input": "x = dy.inputTensor(np.ones((500, 500))); y = dy.inputTensor(np.ones((2500, 2500)))",
    "constant": "x = dy.inputTensor(np.ones((500, 500))); y = dy.zeros((2500, 2500))",
    "random": "x = dy.inputTensor(np.ones((500, 500))); dy.random_normal((2500, 2500)).value()",
    "planned": "x = dy.inputTensor(np.ones((500, 500))); dy.concatenate([x] * 30).value()",
    "immediate": "dy.renew_cg(immediate_compute=True); x = dy.inputTensor(np.ones((500, 500)))\n"
    "y = x\nfor _ in range(30): y = y + x",
    "parameter": "x = dy.inputTensor(np.ones((500, 500)))\n"
    "(dy.ParameterCollection().add_parameters((2500, 2500)) + 1).value()",
    "decay": "x = dy.inputTensor(np.ones((500, 500))); pc = dy.ParameterCollection()\n"
    "pc.set_weight_decay(0.1); w = pc.add_parameters((2500, 2500)); dy.SimpleSGDTrainer(pc).update()\n"
    "(w * dy.inputVector([1.0] * 2500)).value()",
    "gradient": "x = dy.inputTensor(np.ones((500, 500)))\n"
    "w = dy.ParameterCollection().add_parameters((2500, 2500))\n"
    "v = dy.inputVector([1.0] * 2500); dy.sum_elems(w * v).backward(); dy.sum_elems(w * v).backward()",
    "thread": "import threading; x = dy.inputTensor(np.ones((500, 500))); errors = []\n"
    "def work():\n"
    "    try: a = dy.inputTensor(np.ones((500, 500))); (dy.concatenate([a] * 30) + 1).value()\n"
    "    except MemoryError as error: errors.append(error)\n"
    "t = threading.Thread(target=work); t.start(); t.join()\n"
    "raise errors[0]",
}

SCRIPT = """
import sys
import numpy as np
import dynet_compat as dy
dy.renew_cg(autobatching=True)
try:
    exec(sys.argv[1])
except MemoryError as error:
    print(error)
if sys.argv[2] != 'random':  # its node would be drawn first
    assert (x[0] + 1).npvalue().sum() == 1000
for _ in range(3):
    dy.renew_cg()
    assert (dy.inputTensor(np.ones((500, 500))) + 1).npvalue().sum() == 500000
"""


def bytes_of(text: str) -> float:
    """Of "23.8 MB"."""
    number, unit = text.split()
    return float(number) * {"MB": 2**20, "kB": 2**10, "B": 1}[unit]


def output_in_16_mb(*arguments: str) -> str:
    """What `python -c` prints where arenas may grow to 16 MB."""
    result = subprocess.run(
        [sys.executable, "-c", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=TESTS,
        env=dict(os.environ, DYNET_COMPAT_MEM="16"),
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_message(dy: Any, name: str) -> None:
    """Arena, request, what is in use, and the largest nodes with their ops, extents and sizes."""
    if ON_DEVICE and name == "decay":
        pytest.skip("decayed values are in the device's memory")
    message = output_in_16_mb(SCRIPT, PROGRAMS[name], name).strip()
    head = r"out of memory: value arena, requested ([\d.]+ [Mk]?B), in use ([\d.]+ [Mk]?B) of 16 MB; "
    found = re.match(head + r"the graph has (\d+) nodes(?:, the largest: (.*))?$", message)
    assert found, message
    requested, used, nodes = bytes_of(found[1]), bytes_of(found[2]), int(found[3])
    assert used <= 2**24 < requested + used and nodes >= 1
    listed = re.findall(r"(\w+) (\{[^}]*\}(?:X\d+)?) ([\d.]+ [Mk]?B) \(node (\d+)\)", found[4])
    sizes = [bytes_of(size) for _, _, size, _ in listed]
    assert 1 <= len(listed) <= 5 and sizes == sorted(sizes, reverse=True)
    assert ("{500,500}", "976.6 kB") in {(dim, size) for _, dim, size, _ in listed}
    if name == "planned":
        assert listed[0][:3] == ("concatenate", "{15000,500}", "28.6 MB")


def test_constant_without_memory(dy: Any) -> None:
    """A constant for which there was no memory is not taken for the node recorded after it."""
    script = (
        "import dynet_compat as dy\n"
        "dy.inputVector([7.0] * 3000000)\n"
        "for _ in range(2):\n"
        "    try: dy.ones(2000000)\n"
        "    except MemoryError: print('no memory')\n"
        "    assert dy.inputVector([1.0, 2.0]).value() == [1.0, 2.0]\n"
        "assert dy.ones(2).value() == [1.0, 1.0]"
    )
    assert output_in_16_mb(script).split("\n") == ["no memory", "no memory", ""]
