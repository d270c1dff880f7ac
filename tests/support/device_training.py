"""Programs that train on a device, each in a process of its own, and what they tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]

# `make gpu-check` names a GPU.
ASKED = os.environ.get("DYNET_COMPAT_DEVICE", "")
DEVICE = ASKED if ASKED.startswith(("gpu", "cuda")) else "emulation"
emulated = pytest.mark.skipif(DEVICE != "emulation", reason="a GPU does not fail when asked to")

LIMIT = 1800 if "LD_PRELOAD" in os.environ else 600  # `make sanitize` is slow

START = """
import json, sys
import numpy as np
import dynet_compat as dy

def model(seed=3):
    dy.reset_random_seed(seed)
    m = dy.ParameterCollection()
    return m, m.add_parameters((5, 4)), m.add_parameters(5), m.add_lookup_parameters((9, 4))

def loss_of(W, b, E, step, whole=False, rows=7):
    losses = []
    for i in range(6):
        x = E[(i * step) % rows]
        for k in range(i % 3 + 1):
            x = dy.tanh(x + E[(i + k) % rows])
        losses.append(dy.pickneglogsoftmax(W * x + b, (i + step) % 5))
    if whole:
        losses.append(dy.sum_elems(dy.square(E)))
    return dy.esum(losses)

def train(W, b, E, trainer, first, end, whole=False):
    told = []
    for step in range(first, end):
        dy.renew_cg()
        loss = loss_of(W, b, E, step, whole)
        told.append(loss.value())
        loss.backward()
        trainer.update()
    return told

def arrays(*parameters):
    return [[float(v) for v in p.as_array().ravel()] for p in parameters]

def tell(*what):
    print(json.dumps(what))
"""


def run(text: str, settings: str = "", device: str = DEVICE, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DYNET_COMPAT_DEVICE": device, "DYNET_COMPAT_EMULATION": settings, **more}
    command = [sys.executable, "-c", START + text]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LIMIT, cwd=TESTS.parent
    )


def told(text: str, settings: str = "", **more: str) -> Any:
    """What the program tells last."""
    done = run(text, settings, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def on_host(text: str, settings: str = "") -> Any:
    """The same program, where the host makes all updates."""
    return told("dy._core._device_options(update=False)\n" + text, settings)


def flat(values: Any) -> list[float]:
    if not isinstance(values, list):
        return [float(values)]
    return [number for value in values for number in flat(value)]


def same(there: Any, here: Any, exact: bool, what: str) -> None:
    if exact and DEVICE == "emulation":
        assert there == here, what
    else:
        assert flat(there) == pytest.approx(flat(here), rel=2e-6, abs=2e-6), what
