"""The job of this process, or None: apart from its code, which is imported for a job only."""

from __future__ import annotations

from typing import Any

job: Any = None
