"""Regions when memory is short: what a region recorded before a MemoryError is gone; it can run again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent

# 1 MB of values; draws of an instance take theirs when they are recorded, ops do not.
COMMON = """
import sys
import numpy as np
import dynet_compat as dy
from pathlib import Path
from dynet_compat.hints.rewrite import patch
from support.modules import load
SOURCE = '''
import dynet_compat as dy
def f(x, out):
    y = dy.tanh(x) + x
    out.append(y)
    w = dy.random_normal(5000)
    return y + x, w
'''
path = Path(sys.argv[2]) / f"block_{sys.argv[1]}.py"
path.write_text(SOURCE)
module = load(path)
regions = patch.rewrite_module(module, SOURCE).regions if sys.argv[1] == "regions" else {}
f = module.f
def fill():
    try:
        while True:
            dy.inputTensor(np.zeros(4000))
    except MemoryError:
        pass
def starved(x, out):
    try:
        f(x, out)
        print("recorded")
    except MemoryError:
        print("MemoryError")
"""

PROGRAMS = {
    "known buckets": """
def instance(_):
    for k in range(3):
        f(xs[k], ys)
    fill()
    starved(xs[3], ys)
for graph in range(5):
    dy.renew_cg()
    xs = [dy.inputVector([0.1 * k, 0.2, 0.3]) for k in range(4)]
    ys = []
    dy.batch_map(instance, [0])
    print(dy.esum([dy.tanh(y) for y in ys]).npvalue(), len(ys), dy._core.cg_size())
""",
    "a new variant": """
x = dy.inputVector([1, 2, 3])
dy.batch_map(lambda _: [f(x, []) for _ in range(4)], [0])
def instance(_):
    z = dy.exp(x)
    fill()
    for _ in range(3):
        starved(z, [])
    print(dy._core.cg_size())
dy.batch_map(instance, [0])
dy.renew_cg()
x = dy.inputVector([1, 2, 3])
print(f(dy.exp(x), [])[0].npvalue())
""",
}
END = """
hits = sum(t.statistics()["hits"] for t in regions.values())
assert not regions or hits > 0, [t.statistics() for t in regions.values()]
"""


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_as_without(tmp_path: Path, name: str) -> None:
    outputs = []
    for how in ("plain", "regions"):
        environment = {
            **os.environ,
            "DYNET_COMPAT_MEM": "1",
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
        }
        done = subprocess.run(
            [sys.executable, "-c", COMMON + PROGRAMS[name] + END, how, str(tmp_path)],
            capture_output=True, text=True, env=environment,
        )  # fmt: skip
        assert done.returncode == 0, f"{how}: {done.returncode}\n{done.stdout}{done.stderr}"
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    assert "MemoryError" in outputs[0]
