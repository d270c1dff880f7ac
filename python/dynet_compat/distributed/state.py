"""The job of this process, or None: apart from its code, which is imported for a job only."""

from __future__ import annotations

import os
from typing import Any

job: Any = None


def several_started() -> dict[str, str]:
    """What launchers say in the environment of a process that they have started as one of several."""
    names = "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"
    return {name: os.environ[name] for name in names if os.environ.get(name, "1") != "1"}
