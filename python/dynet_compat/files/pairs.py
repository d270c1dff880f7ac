"""Pairs of files, .data and .meta, that are replaced together and read together.

What binds a pair is in the .meta file: the size and the checksum of its .data, as a text that the first
pickle pushes and pops, so that DyNet reads the file as ever. Files without it, of DyNet or of earlier
versions, are read without the check.

Two files cannot be renamed at once. The old .data is kept under a second name, which says which .meta it
belongs to, until both are renamed. A reader that finds that name for its .meta takes that file for the .data:
old .data and old .meta, together as before. It is also what the next saver restores if this one is killed.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import time
import zlib
from collections.abc import Iterator
from typing import Any, Optional

from . import atomic
from .atomic import NewFile, remove_leftovers, sync_folder, turn, wait_for_turn

_CHUNK = 1 << 20
_PATIENCE = 20.0  # seconds of retries while savers keep replacing the files
_BINDING = re.compile(
    rb"\x80[\x02-\x05]\x8c.dynet_compat: \.data has (\d+) bytes, crc32 ([0-9a-f]{8})0", re.S
)


def _checksum(fd: int) -> tuple[int, int]:
    """Size and CRC-32 of an open file: they tell versions of a model apart, and stop no forger."""
    size = crc = 0
    while chunk := os.pread(fd, _CHUNK, size):
        crc = zlib.crc32(chunk, crc)
        size += len(chunk)
    return size, crc


def _bound(meta: bytes, data_fd: int) -> bytes:
    """The contents of .meta with what binds it to its .data."""
    if not meta:  # no objects
        return meta
    size, crc = _checksum(data_fd)
    text = f"dynet_compat: .data has {size} bytes, crc32 {crc:08x}".encode()
    return meta[:2] + b"\x8c" + bytes([len(text)]) + text + b"0" + meta[2:]  # after PROTO: push, pop


def _binding(meta: bytes) -> Optional[tuple[int, int]]:
    found = _BINDING.match(meta)
    return (int(found[1]), int(found[2], 16)) if found else None


def unbound(meta: bytes) -> bytes:
    """The contents of .meta without what binds it."""
    found = _BINDING.match(meta)
    return meta[:2] + meta[found.end() :] if found else meta


class OpenPair:
    """A .meta file's contents, and the .data file that belongs to it, open. A context manager.

    Attributes:
        meta: contents of the .meta file.
        path, file: the .data file, where there is one.
        missing: why there is none.
        is_mixed: the two were not saved together.
    Raises:
        OSError: the .meta file is missing or cannot be read.
    """

    def __init__(self, meta: str, data: str) -> None:
        atomic.role.before_load()
        self.path = data
        self.file: Optional[io.FileIO] = None
        self._meta_path, self._real = meta, os.path.realpath(data)
        deadline, pause, seen, waited = time.monotonic() + _PATIENCE, 0.001, None, False
        while True:
            state = self._open()
            if self.missing is None and not self.is_mixed:
                return
            # Savers at work change the files between two looks. What stays the same is really so.
            if (state == seen and not waited) or time.monotonic() > deadline:
                return
            seen = state
            self.close()
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
            waited = wait_for_turn(self._real)

    def _open(self) -> tuple[Any, Any]:
        """Opens the pair; returns what identifies the two files."""
        self.is_mixed = False
        self.missing: Optional[OSError] = None
        self.meta, meta_state = _contents(self._meta_path)
        kept = _kept_name(self._real, self.meta)
        try:
            try:
                self.file = io.FileIO(kept, "rb")
            except OSError:  # there is none, or no room for so long a name
                self.file = io.FileIO(self._real, "rb")
        except OSError as error:
            self.missing = error
            return meta_state, None
        fd, binding = self.file.fileno(), _binding(self.meta)
        if binding is not None:
            self.is_mixed = os.fstat(fd).st_size != binding[0] or _checksum(fd) != binding
        elif self.file.name != kept:  # without a checksum: only that no saver came between
            self.is_mixed = os.path.exists(kept) or _contents(self._meta_path)[0] != self.meta
        return meta_state, _identity(fd)

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def _contents(path: str) -> tuple[bytes, Any]:
    with open(path, "rb") as file:
        return file.read(), _identity(file.fileno())


def _identity(fd: int) -> tuple[int, int, int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _kept_name(data: str, meta: bytes) -> str:
    import hashlib  # not at the start: the package must be imported fast

    return f"{data}.of-{hashlib.sha256(meta).hexdigest()[:16]}"


def _settle(meta: str, data: str) -> Optional[bytes]:
    """Undoes what a saver that died has left of a pair. Returns the contents of .meta, if there is one."""
    contents: Optional[bytes] = None
    with contextlib.suppress(FileNotFoundError):
        contents, _ = _contents(meta)
        kept = _kept_name(data, contents)
        if os.path.exists(kept):
            os.replace(kept, data)
    folder, name = os.path.split(data)
    for other in os.listdir(folder):
        if other.startswith(name + ".of-"):
            os.unlink(os.path.join(folder, other))
    return contents


def _keep_old(data: str, meta: str, new_meta: bytes) -> Optional[str]:
    """Gives the old .data its second name; None if there is no old pair, or .meta stays the same."""
    old = _settle(meta, data)
    if old is None or old == new_meta:
        return None
    kept = _kept_name(data, old)
    try:
        os.link(data, kept)
    except OSError:  # no .data, or a file system without links
        return None
    sync_folder(data)
    return kept


@contextlib.contextmanager
def replacing_pair(data: str, meta: str, meta_contents: bytes) -> Iterator[NewFile]:
    """Replaces a .data file, which the block writes, and its .meta file, both or none."""
    if not atomic.role.writes:
        with atomic.nowhere(data) as sink:
            yield sink
        return
    path = data
    data, meta = os.path.realpath(data), os.path.realpath(meta)
    for replaced in (data, meta):
        atomic.role.replaces(replaced)
    for folder in {os.path.dirname(data), os.path.dirname(meta)}:
        remove_leftovers(folder)
    new_data = NewFile(data)
    new_meta: Optional[NewFile] = None
    try:
        yield new_data
        new_data.sync()
        if new_data.temporary is not None:
            meta_contents = _bound(meta_contents, new_data.fd)
        new_meta = NewFile(meta)
        new_meta.write(meta_contents)
        new_meta.sync()
        with turn(data):
            _rename(new_data, new_meta, meta_contents)
    finally:
        new_data.discard()
        if new_meta is not None:
            new_meta.discard()
    for replaced in (data, meta):
        atomic.role.replaced(replaced)
    atomic.role.saved(path)


def _rename(new_data: NewFile, new_meta: NewFile, meta_contents: bytes) -> None:
    data, meta = new_data.path, new_meta.path
    replaces = os.path.exists(meta)
    kept = _keep_old(data, meta, meta_contents)
    try:
        new_data.rename()
        # A crash of the machine may lose any renaming that is not on the disk. Were it one of the first two
        # steps, but not a later one, neither pair would be whole.
        if replaces:
            sync_folder(data)
        new_meta.rename()
        if replaces:
            sync_folder(meta)
    except BaseException:
        if kept is not None and new_data.temporary is None:
            os.replace(kept, data)
        elif kept is not None:
            os.unlink(kept)
        raise
    if kept is not None:
        os.unlink(kept)
