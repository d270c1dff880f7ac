"""Every test runs on both kinds of fibers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.subject import IS_REFERENCE

collect_ignore_glob = ["*"] if IS_REFERENCE else []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        import greenlet  # noqa: F401
    except ImportError:
        missing = pytest.mark.skip(reason="needs greenlet (requirements-dev.txt)")
        for item in items:
            if "greenlet" in item.name.partition("[")[2]:
                item.add_marker(missing)


@pytest.fixture(params=["greenlet", "threads"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def batch_map(dy: Any, backend: str) -> Callable[..., list[Any]]:
    """dy.batch_map on one kind of fibers, in a new graph that batches."""

    def run(function: Any, instances: Any, **options: Any) -> list[Any]:
        result: list[Any] = dy.batch_map(function, instances, backend=backend, **options)
        return result

    dy.renew_cg(autobatching=True)
    return run


@pytest.fixture
def flushes(dy: Any) -> Callable[[], int]:
    """How often something was computed since the test began."""
    core = pytest.importorskip("dynet_compat")._core
    core.reset_timing()

    def count() -> int:
        return int(core.timing()["flushes"])

    return count
