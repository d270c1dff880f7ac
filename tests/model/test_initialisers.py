# ruff: noqa: UP031
"""Initial values: the real DyNet's random streams. Uniform kinds bit for bit, normal ones within 1 ulp."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import oracle
from support.compare import ulps
from support.scenarios import ALL, initialisers, randoms
from support.subject import IS_REFERENCE


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    return oracle.recorded("initialisers")


@pytest.fixture(scope="module")
def recorded_random() -> dict[str, np.ndarray]:
    return oracle.recorded("random")


def check(name: str, got: np.ndarray, want: np.ndarray, normal: bool) -> None:
    """Bit for bit, or for normal numbers 1 ulp of the number that was drawn (before the mean is added)."""
    assert got.shape == want.shape, f"{name}: shape {got.shape}, DyNet's {want.shape}"
    if not normal:
        wrong = int((ulps(got, want) != 0).sum())
        assert wrong == 0, "%s: %d of %d values are not DyNet's; first: got %r, wanted %r" % (
            name,
            wrong,
            want.size,
            got.ravel()[:4].tolist(),
            want.ravel()[:4].tolist(),
        )
        return
    scale = float(np.abs(want).max())
    error = np.abs(got.astype(np.float64) - want)
    allowed = (
        np.maximum(np.spacing(np.abs(want)), np.spacing(np.float32(scale)) if "mean" in name else 0) * 1.01
    )
    assert (error <= allowed).all(), "%s: %d values differ by more than 1 ulp; worst by %g ulps" % (
        name,
        int((error > allowed).sum()),
        float((error / np.spacing(np.abs(want))).max()),
    )


@pytest.mark.parametrize("scenario", ["init-alone", "init-sequence"])
def test_initial_values(dy: Any, scenario: str, recorded: dict[str, np.ndarray]) -> None:
    for key, got in ALL[scenario](dy).items():
        name = key.split("|")[0]
        check(key, got, recorded[scenario + "|" + key], name in initialisers.NORMAL)


def test_saxe(dy: Any, recorded: dict[str, np.ndarray]) -> None:
    got, want = ALL["init-saxe"](dy)["saxe"], recorded["init-saxe|saxe"]
    assert np.allclose(got.T @ got, np.eye(5) * 1.5**2, atol=1e-5)
    assert np.allclose(got, want, atol=1e-4), "columns or their signs are not DyNet's"


@pytest.mark.parametrize(
    "scenario", ["random-alone", "random-together", "random-redraw", "random-with-parameters"]
)
def test_random_streams(dy: Any, scenario: str, recorded_random: dict[str, np.ndarray]) -> None:
    """Masks, noise and random_* draw what the real DyNet draws, in the same order."""
    for key, got in ALL[scenario](dy).items():
        want = recorded_random[scenario + "|" + key]
        if key.split("|")[0] in randoms.INEXACT:
            assert np.allclose(got, want, rtol=3e-6, atol=3e-7), f"{key}: got {got!r}, DyNet {want!r}"
        else:
            check(key, got, want, False)


@pytest.mark.skipif(IS_REFERENCE, reason="the reference batches in another order of draws")
def test_batching_draws_the_same_numbers(dy: Any) -> None:
    draws = []
    for flag in (False, True):
        dy.reset_random_seed(3)
        dy.renew_cg(autobatching=flag)
        xs = [dy.dropout(dy.ones(5), 0.5) for _ in range(6)] + [dy.random_normal(3) for _ in range(3)]
        draws.append(np.concatenate([np.ravel(v) for v in dy.npvalues(xs)]))
    assert np.array_equal(draws[0], draws[1])


def test_distributions(dy: Any) -> None:
    """Ranges and moments, independent of any recording."""
    dy.reset_random_seed(8)
    pc = dy.ParameterCollection()
    glorot = pc.add_parameters((60, 90)).as_array()
    limit = np.sqrt(6 / 150)
    assert np.abs(glorot).max() <= limit and np.abs(glorot).max() > 0.99 * limit
    normal = pc.add_parameters((100, 100), init=dy.NormalInitializer(1.0, 4.0)).as_array()
    assert abs(normal.mean() - 1) < 0.1 and abs(normal.std() - 2) < 0.1
    uniform = pc.add_lookup_parameters((100, 50), init=dy.UniformInitializer(0.25)).as_array()
    assert np.abs(uniform).max() <= 0.25 and abs(uniform.mean()) < 0.01
    dy.renew_cg()
    kept = dy.dropout(dy.ones((100, 100)), 0.2).npvalue()
    assert set(np.unique(kept)) <= {0.0, float(np.float32(1.25))} and abs((kept == 0).mean() - 0.2) < 0.03
    gumbel = dy.random_gumbel((100, 100)).npvalue()
    assert abs(gumbel.mean() - 0.5772) < 0.06


def test_seed_gives_the_same_numbers(dy: Any) -> None:
    pc = dy.ParameterCollection()
    dy.reset_random_seed(42)
    first = pc.add_parameters((4, 4)).as_array()
    second = pc.add_parameters((4, 4)).as_array()
    dy.reset_random_seed(42)
    assert np.array_equal(pc.add_parameters((4, 4)).as_array(), first) and not np.array_equal(first, second)


def test_from_file(dy: Any, tmp_path: Any) -> None:
    path = tmp_path / "values.txt"
    path.write_text("1 2 3\n4 5 6.5\n")
    name = str(path).encode() if IS_REFERENCE else str(path)
    p = dy.ParameterCollection().add_parameters((2, 3), init=dy.FromFileInitializer(name))
    assert p.as_array().tolist() == [[1, 3, 5], [2, 4, 6.5]]
