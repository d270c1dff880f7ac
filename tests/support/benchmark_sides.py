"""Programs of benchmarks/, as tests load and train them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def importer() -> Iterator[Any]:
    """For a fixture: imports modules of benchmarks/."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module
    finally:
        sys.path.remove(str(BENCHMARKS))


def train_four(side: Any, rate: float) -> tuple[float, float, list[float]]:
    """Four instances: the sum of their losses, their loss as one batch, and those of ten updates."""
    instances, _ = side.load()
    model, trainer = side.build(None, 8)
    batch = instances[:4]
    trainer.learning_rate = 0.0
    alone = sum(side.train_batch(model, trainer, [instance]) for instance in batch)
    together = side.train_batch(model, trainer, batch)
    trainer.learning_rate = rate
    return alone, together, [side.train_batch(model, trainer, batch) for _ in range(10)]
