"""Compiled kernels on the disk: `~/.cache/dynet_compat/kernels`, or below DYNET_COMPAT_CACHE.

One folder per source text, architecture, compiler and options; in it one file per set of kernels that were
compiled together. What is loaded runs on the GPU, so a file counts only if it is in folders that nobody
else may write, is the user's own, and its checksum fits; any other is compiled again. Files appear whole, by
renaming: processes may fill the cache at the same time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Optional

_MAGIC = b"dynet_compat kernels 1\n"
_DIGEST = 64  # hexadecimal digits of SHA-256
_MOST_BYTES = 1 << 30  # of one entry: anything larger is not ours


class CompiledKernels(NamedTuple):
    """A cubin and the names in it of the kernels' expressions."""

    cubin: bytes
    lowered: dict[str, str]


def key_of(parts: Iterable[str]) -> str:
    """A name for a list of texts; texts of other lengths in the same order have another."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()[:32]


def root() -> Optional[str]:
    """The cache's folder; None: DYNET_COMPAT_CACHE is set to nothing, so there is no cache."""
    chosen = os.environ.get("DYNET_COMPAT_CACHE")
    if chosen is not None:
        return os.path.abspath(chosen) if chosen else None
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "dynet_compat") if os.path.isabs(base) else None


def _own(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _own_folder(path: str) -> bool:
    """Makes a folder for the user alone, if need be; False if it cannot be, or is somebody else's."""
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        if status.st_mode & 0o077:
            os.chmod(path, 0o700)  # ours, but others can look in or write: what they wrote fails its own test
        return True
    except OSError:
        return False


class Cache:
    """The entries of one key; `usable` is False where nothing can be kept.

    Args:
        key: of everything that the kernels depend on, from `key_of`.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        top = root()
        self.folder = os.path.join(top, "kernels", key) if top else ""
        self.usable = bool(top) and self._made()

    def _made(self) -> bool:
        """The two folders that are only ours; the one above them may be anything that the user has chosen."""
        kernels = os.path.dirname(self.folder)
        try:
            os.makedirs(os.path.dirname(kernels), mode=0o700, exist_ok=True)
        except OSError:
            return False
        return _own_folder(kernels) and _own_folder(self.folder)

    def _path(self, expressions: Sequence[str]) -> str:
        return os.path.join(self.folder, key_of(sorted(expressions)) + ".kernels")

    def entry(self, path: str) -> Optional[CompiledKernels]:
        """A file's contents, or None where it is not to be trusted."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or not _own(status) or status.st_size > _MOST_BYTES:
                return None
            try:
                data = file.read()
            except OSError:
                return None
        return self._decoded(data)

    def _decoded(self, data: bytes) -> Optional[CompiledKernels]:
        start = len(_MAGIC) + _DIGEST
        body = data[start:]
        if data[:start] != _MAGIC + hashlib.sha256(body).hexdigest().encode():
            return None
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
        body = head + b"\n" + entry.cubin
        data = _MAGIC + hashlib.sha256(body).hexdigest().encode() + body
        path = self._path(list(entry.lowered))
        temporary = f"{path}.{os.getpid()}-{os.urandom(6).hex()}.tmp"
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(fd)
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            return False
        return True
