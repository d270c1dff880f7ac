"""Fixtures of the tests of hints."""

from collections.abc import Iterator

import pytest
from dynet_compat import _core
from dynet_compat.hints.rewrite.walked_functions import WalkedFunctions
from support.hinted_programs import active, own_modules  # noqa: F401
from support.region_models import pair  # noqa: F401


@pytest.fixture
def without_trials() -> Iterator[None]:
    """Memos of walks are replayed however long that takes."""
    _core._approve_memos(True)
    yield
    _core._approve_memos(False)


@pytest.fixture
def only_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    """No function with loops is walked: regions record their iterations."""
    monkeypatch.setattr(WalkedFunctions, "_may_be_head", lambda self, node: node in self.graph.recursive)
