"""Comparing arrays, with messages that let a stranger find the fault."""

from __future__ import annotations

from typing import Optional

import numpy as np

RTOL = 1e-5
ATOL = 1e-6


def difference(got: np.ndarray, want: np.ndarray, rtol: float = RTOL, atol: float = ATOL) -> Optional[str]:
    """None if equal within rtol*|want| + atol*max(1, largest |want|), else one line that says how not."""
    got, want = np.asarray(got, dtype=np.float64), np.asarray(want, dtype=np.float64)
    if got.shape != want.shape:
        return f"shape {got.shape}, wanted {want.shape}"
    if got.size == 0:
        return None
    finite = np.isfinite(want)
    odd = (~finite & ~((got == want) | (np.isnan(got) & np.isnan(want)))) | (finite & ~np.isfinite(got))
    if odd.any():
        at = tuple(int(i) for i in np.argwhere(odd)[0])
        return f"at {at} got {float(got[at])!r}, wanted {float(want[at])!r}"
    if not finite.any():
        return None
    largest = float(np.abs(want[finite]).max())
    error = np.where(finite, np.abs(np.where(finite, got, 0) - np.where(finite, want, 0)), 0)
    allowed = rtol * np.abs(np.where(finite, want, 0)) + atol * max(1.0, largest)
    excess = error / allowed
    if excess.max() <= 1:
        return None
    at = tuple(int(i) for i in np.unravel_index(int(excess.argmax()), excess.shape))
    relative = float((error[finite] / np.maximum(np.abs(want[finite]), 1e-30)).max())
    size = f"max abs error {float(error.max()):.3g}, max rel error {relative:.3g}"
    allowance = f"(allowed rtol {rtol:.1g}, atol {atol:.1g})"
    return f"{size} {allowance}; worst at {at}: got {float(got[at]):.9g}, wanted {float(want[at]):.9g}"


def ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Distance in float32 units in the last place, element by element."""

    def ordered(array: np.ndarray) -> np.ndarray:
        bits = np.ascontiguousarray(array, dtype=np.float32).view(np.int32).astype(np.int64)
        return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)

    return np.abs(ordered(got) - ordered(want))
