"""Fixtures of the tests of hints."""

from collections.abc import Iterator

import pytest
from dynet_compat import _core
from dynet_compat.hints.rewrite.walked_functions import WalkedFunctions
from support.hinted_programs import active, own_modules  # noqa: F401
from support.region_models import pair  # noqa: F401


@pytest.fixture(autouse=True)
def trials(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whether hints pay is decided by the clock, so only tests marked `trials` let it. Whether operators keep
    their numbers in the nodes depends on the graphs before: in half of the tests all do, else none."""
    _core._time_hints(request.node.get_closest_marker("trials") is not None)
    _core._own_numbers(sum(request.node.name.encode()) % 2 == 1)
    yield
    _core._own_numbers(None)
    _core._time_hints(True)


@pytest.fixture
def only_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    """No function with loops is walked: regions record their iterations."""
    monkeypatch.setattr(WalkedFunctions, "_may_be_head", lambda self, node: node in self.graph.recursive)
