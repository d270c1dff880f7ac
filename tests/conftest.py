"""Shared fixtures. See support/library.py for how the suite runs on the real DyNet."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from support import oracle  # noqa: E402
from support import subject as chosen  # noqa: E402


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every", type=int, default=1, help="run one test in so many")
    parser.addoption("--start", type=int, default=0, help="with --every: from this one on")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    every, start = config.getoption("--every"), config.getoption("--start")
    config.hook.pytest_deselected(items=[item for i, item in enumerate(items) if i % every != start])
    items[:] = items[start::every]
    if not chosen.IS_REFERENCE and not has_emulation():
        reason = "installed from a wheel, without the emulation of a GPU: remove dist/, then make build"
        for item in items:
            if item.path.parent.name == "cuda" or "emulation" in item.name:
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Garbage is looked for among what tests make, not among fifteen thousand tests: hundreds ask for it."""
    gc.collect()
    gc.freeze()


def has_emulation() -> bool:
    return bool(importlib.import_module("dynet_compat._core")._device_kernels())


@pytest.fixture(scope="session")
def dy() -> Any:
    """The library under test."""
    return chosen.subject()


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What runs keep for later ones goes to a folder of this run of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DYNET_COMPAT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def fresh_graph(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test that uses the library starts with an empty graph and a known random stream."""
    if "dy" in request.fixturenames:
        library = request.getfixturevalue("dy")
        library.renew_cg(autobatching=False)
        library.reset_random_seed(1)
    yield


@pytest.fixture(scope="session")
def oracle_python() -> str:
    """An interpreter with the real DyNet; skips where there is none."""
    found = oracle.interpreter()
    if found is None:
        pytest.skip("no Python 3.8 with dynet 2.1.2 (set DYNET_COMPAT_ORACLE, or make .oracle/bin/python)")
    return found


@pytest.fixture(scope="session")
def fuzz_count() -> int:
    """DYNET_COMPAT_FUZZ: how many random graphs or calls the long tests make; 0 = their short default."""
    return int(os.environ.get("DYNET_COMPAT_FUZZ", "0"))
