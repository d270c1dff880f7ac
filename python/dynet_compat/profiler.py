"""The public path of `dynet_compat.inspection.profiler`."""

from .inspection.profiler import Profile, profile

__all__ = ["Profile", "profile"]
