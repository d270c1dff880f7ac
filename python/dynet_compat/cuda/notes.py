"""What was found out about a GPU, such as the fastest way to run its launches: kept beside the kernels.

A note holds for a device, a driver and the kernels' text; a file has one.
"""

from __future__ import annotations

import os
from functools import lru_cache

from ..files import cache
from . import sources

_KIND = b"dynet_compat note 1\n"
_MOST = 4096


@lru_cache(maxsize=1)
def _kernels() -> str:
    return cache.key_of(text for item in sorted(sources.embedded().items()) for text in item)


def _path(device: str, what: str) -> str:
    folder = cache.own_folder("kernels", "notes")
    return os.path.join(folder, cache.key_of([device, _kernels(), what])) if folder else ""


def recall(device: str, what: str) -> str:
    """What `keep` was given for this device; "" where nothing is known."""
    path = _path(device, what)
    found = cache.read(path, _KIND) if path else None
    return found.decode("utf-8", "replace") if found else ""


def keep(device: str, what: str, found: str) -> None:
    """Nothing is kept where that is not possible, which is no error."""
    path = _path(device, what)
    if path and cache.write(path, _KIND, found.encode()):
        cache.remove_oldest(os.path.dirname(path), _MOST)
