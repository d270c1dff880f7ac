"""DyNet's module `dynet_config`. See `dynet_compat.startup.config`."""

from __future__ import annotations

from ..config import get, gpu, set, set_gpu

__all__ = ["get", "gpu", "set", "set_gpu"]
