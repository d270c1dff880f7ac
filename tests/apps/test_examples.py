# ruff: noqa: UP031
"""The example scripts: their first losses are the real DyNet's, under the same seed, batching off and on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import examples, oracle
from support.subject import IS_REFERENCE


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    return oracle.recorded("examples")


def test_every_example_is_listed() -> None:
    others = {"common", "data", "demo", "export_weights"}
    found = {path.stem for path in examples.EXAMPLES.glob("*.py")} - others
    assert found == set(examples.SCRIPTS), "add the example to tests/support/examples.py and record it"


@pytest.mark.parametrize("autobatch", [0, 1])
@pytest.mark.parametrize("name", sorted(examples.SCRIPTS))
def test_first_losses(name: str, autobatch: int, recorded: dict[str, np.ndarray]) -> None:
    result = examples.train(name, reference=IS_REFERENCE, autobatch=autobatch)
    got, want = np.array(result["losses"]), recorded[name]
    assert got.shape == want.shape == (examples.STEPS,)
    error = np.abs(got - want) / np.abs(want)
    assert (error <= 1e-4).all(), "%s (autobatch %d): loss %d is %.8g, DyNet's %.8g (relative error %.2g)" % (
        name,
        autobatch,
        int(error.argmax()) + 1,
        got[error.argmax()],
        want[error.argmax()],
        error.max(),
    )


@pytest.mark.oracle
@pytest.mark.parametrize("name", sorted(examples.SCRIPTS))
def test_live(name: str, oracle_python: str, recorded: dict[str, np.ndarray]) -> None:
    """The recordings are what a DyNet gives now, and another seed agrees too."""
    clean = {key: "" for key in ("PYTHONPATH", "PYTHONHOME")}
    there = examples.train(name, reference=True, command=[oracle_python], environment=clean)
    assert np.allclose(there["losses"], recorded[name], rtol=1e-6), "record again"
    other = examples.train(name, reference=True, command=[oracle_python], environment=clean, seed=12)
    ours = examples.train(name, reference=IS_REFERENCE, seed=12)
    assert np.allclose(ours["losses"], other["losses"], rtol=1e-4)


@pytest.mark.skipif(IS_REFERENCE, reason="for ours")
@pytest.mark.parametrize("name", ["bilstm_tagger", "treelstm"])
def test_losses_fall(name: str) -> None:
    result: Any = examples.train(name, reference=False, autobatch=1, steps=60)
    assert result["last"] < 0.7 * result["first"], "{}: mean loss {:.4g} -> {:.4g}".format(
        name, result["first"], result["last"]
    )
