"""ACRoBat's models on the emulation that looks for races (`make races`), blocks taking turns at random.

Inference and training, launches one by one and as steps of persistent kernels.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.device_nets import NETS
from support.subject import IS_REFERENCE, subject

dy = subject()

pytestmark = [
    pytest.mark.skipif(IS_REFERENCE, reason="the devices are ours"),
    pytest.mark.skipif("races" not in Path(dy.__file__).parts, reason="make races builds what this needs"),
]
SIZE = 12


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("name", ["TreeLSTM", "MV-RNN", "BiRNN", "DRNN", "StackRNN", "NestedRNN", "Berxit"])
def test_nothing_races(name: str, persistent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulation raises RuntimeError for the first race of a launch."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    assert "random" in os.environ.get("DYNET_COMPAT_EMULATION", "")
    gpu: Any = __import__("gpu")
    sys.setrecursionlimit(10000)
    model = next(one for one in gpu.MODELS if one.name == name)
    size = 8 if name in ("NestedRNN", "Berxit") else SIZE
    dy._core._device_options(persistent=persistent)
    with gpu.DynetSide(model, size, False) as side:
        batches = gpu.minibatches(model, size, 3)
        losses = [side.run(batch, True) for batch in batches[:2]]
    assert all(loss == loss for loss in losses)


@pytest.mark.parametrize("matmul", ["", "few", "middle", "large"])
@pytest.mark.parametrize("persistent", [False, True])
def test_nothing_races_in_what_follows_products(persistent: bool, matmul: str) -> None:
    """Forward and backward, with each kernel for products."""
    names: dict[str, Any] = {"np": np, "dy": dy, "SIZE": 34}
    exec(NETS, names)
    before = dy._core._device_options()
    try:
        for net in ("gru", "builders", "written", "crossed", "tree"):
            names["compute"](names[net], 5, persistent=persistent, chains=True, matmul=matmul)
    finally:
        dy._core._device_options(persistent=before["persistent"], matmul=before["matmul"])
