"""What the tests of regions share."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest


@pytest.fixture
def pair(tmp_path: Path) -> Callable[[str], Any]:
    """A script as it is, and with regions: see `test_regions.Pair`."""
    from test_regions import Pair

    return lambda source: Pair(tmp_path, source)
