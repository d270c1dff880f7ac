"""Compiled kernels on the disk, in the folder `kernels` of the cache (files/cache.py).

One folder per source text, architecture, compiler and options; in it one file per set of kernels that were
compiled together.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from typing import NamedTuple, Optional

from ..files import cache
from ..files.cache import key_of

_KIND = b"dynet_compat kernels 1\n"


class CompiledKernels(NamedTuple):
    """A cubin and the names in it of the kernels' expressions."""

    cubin: bytes
    lowered: dict[str, str]


class Cache:
    """The entries of one key; `usable` is False where nothing can be kept.

    Args:
        key: of everything that the kernels depend on, from `key_of`.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self.folder = cache.own_folder("kernels", key)
        self.usable = bool(self.folder)

    def _path(self, expressions: Sequence[str]) -> str:
        return os.path.join(self.folder, key_of(sorted(expressions)) + ".kernels")

    def entry(self, path: str) -> Optional[CompiledKernels]:
        """A file's contents, or None where it is not to be trusted."""
        data = cache.read(path, _KIND)
        return None if data is None else self._decoded(data)

    def _decoded(self, body: bytes) -> Optional[CompiledKernels]:
        head, _, cubin = body.partition(b"\n")
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            fields = json.loads(head)
            if fields["key"] == self._key:
                return CompiledKernels(cubin, {str(k): str(v) for k, v in fields["lowered"].items()})
        return None

    def find(self, expressions: Sequence[str]) -> list[CompiledKernels]:
        """Entries that have kernels among the expressions, each of them something that the others lack."""
        if not self.usable:
            return []
        exact = self.entry(self._path(expressions))
        if exact is not None and set(expressions) <= set(exact.lowered):
            return [exact]
        try:
            names = sorted(name for name in os.listdir(self.folder) if name.endswith(".kernels"))
        except OSError:
            return []
        missing, found = set(expressions), []
        read = [self.entry(os.path.join(self.folder, name)) for name in names]
        for entry in sorted(filter(None, read), key=lambda one: -len(missing & set(one.lowered))):
            if missing & set(entry.lowered):
                missing -= set(entry.lowered)
                found.append(entry)
        return found

    def keep(self, entry: CompiledKernels) -> bool:
        """Writes an entry; False where that is not possible, which is no error."""
        if not self.usable:
            return False
        head = json.dumps({"key": self._key, "lowered": entry.lowered}, sort_keys=True).encode()
        return cache.write(self._path(list(entry.lowered)), _KIND, head + b"\n" + entry.cubin)
