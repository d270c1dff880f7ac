"""Fixtures of the tests of hints."""

from support.hinted_programs import active, own_modules  # noqa: F401
from support.region_models import pair  # noqa: F401
