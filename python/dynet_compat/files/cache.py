"""Files that the package keeps for later runs, below `~/.cache/dynet_compat` or DYNET_COMPAT_CACHE.

What is loaded from them runs, so a file counts only if it is in folders that nobody else may write, is the
user's own, and its checksum fits; without it the work is done again. Files appear whole, by renaming:
processes may fill a cache at the same time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterable
from typing import Optional

_DIGEST = 64  # hexadecimal digits of SHA-256
_MOST_BYTES = 1 << 30  # of one file: anything larger is not ours
_TEMPORARY = ".tmp"
_LEFT = 3600  # seconds after which nobody is still writing a temporary file


def key_of(parts: Iterable[str]) -> str:
    """A name for a list of texts; texts of other lengths in the same order have another."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
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


def own_folder(*names: str) -> str:
    """A folder of the cache, made if need be; "" where nothing can be kept.

    The cache itself may be any folder that the user has chosen; those in it are the user's alone.
    """
    try:
        folder = root()  # the working folder, to which it may be relative, can be gone
        if not folder:
            return ""
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError:
        return ""
    for name in names:
        folder = os.path.join(folder, name)
        if not _own_folder(folder):
            return ""
    return folder


def read(path: str, kind: bytes) -> Optional[bytes]:
    """What write() wrote, or None where the file is missing or not to be trusted."""
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
    start = len(kind) + _DIGEST
    body = data[start:]
    return body if data[:start] == kind + hashlib.sha256(body).hexdigest().encode() else None


def write(path: str, kind: bytes, body: bytes) -> bool:
    """Writes a file that begins with the line `kind`; False where that is not possible, which is no error."""
    temporary = f"{path}.{os.getpid()}-{os.urandom(6).hex()}{_TEMPORARY}"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(kind + hashlib.sha256(body).hexdigest().encode() + body)
        os.replace(temporary, path)  # no fsync: a file that a crash cut off has another checksum
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        return False
    _remove_leftovers(os.path.dirname(path))
    return True


def remove_oldest(folder: str, most: int) -> None:
    """Removes the files that were written first, so that so many stay."""
    files = [(age, path) for age, path in _files(folder) if not path.endswith(_TEMPORARY)]
    for _, path in sorted(files)[:-most]:
        _remove(path)


def _remove_leftovers(folder: str) -> None:
    """Removes what processes were writing when they were killed."""
    for written, path in _files(folder):
        if path.endswith(_TEMPORARY) and time.time() - written > _LEFT:
            _remove(path)


def _files(folder: str) -> list[tuple[float, str]]:
    """The files of a folder, and when each was written; other processes may remove them meanwhile."""
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                found.append((os.lstat(path).st_mtime, path))
    return found


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):  # it is gone, or not ours to remove: the others still are
        os.unlink(path)
