"""Vectors whose largest value is not easily found."""

from __future__ import annotations

import numpy as np


def vectors(n: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Of n numbers: with ties, a NaN, two, infinities, zeros of both signs, ascending, falling, tiny."""
    ties = rng.integers(-3, 4, n).astype(float)
    found = [ties, rng.normal(size=n), np.sort(ties), np.sort(ties)[::-1], np.zeros(n)]
    found += [np.full(n, np.inf), np.full(n, -np.inf)]
    for value in (np.nan, np.inf, -np.inf):
        for times in (1, 2):
            found.append(ties.copy())
            found[-1][rng.integers(0, n, times)] = value
    found.append(np.where(rng.random(n) < 0.5, 0.0, -0.0))
    found.append(np.where(rng.random(n) < 0.5, np.inf, np.nan))
    found.append(rng.normal(size=n) * 1e-40)
    return found
