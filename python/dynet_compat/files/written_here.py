"""The .meta contents that this process wrote, which it reads as it wrote them, wherever they lie now.

What a .meta may do is limited because a stranger may have made it. Contents that this process pickled itself
do not come from a stranger: a training script that saves its best model and loads it at the end meets no name
that it has not pickled.
"""

from __future__ import annotations

_digests: set[bytes] = set()


def _digest(contents: bytes) -> bytes:
    import hashlib  # not at the start: the package must be imported fast

    return hashlib.sha256(contents).digest()


def note(contents: bytes) -> None:
    """This process writes these contents."""
    _digests.add(_digest(contents))


def has(contents: bytes) -> bool:
    """Whether it has written them."""
    return bool(_digests) and _digest(contents) in _digests


def forget() -> None:
    """From now on all contents may come from a stranger: for tests, which play another process."""
    _digests.clear()
