"""Replacing files as a whole: a crash at any moment leaves the old file or the new one."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import Optional

_CHUNK = 1 << 20


class NewFile:
    """Contents for `path`, in a temporary file beside it until `commit()`.

    Special files, such as /dev/stdout, cannot be replaced and are written to.

    Args:
        path: the file; of a symbolic link, what it points to.
        append: start with what is there.
    """

    def __init__(self, path: str, append: bool = False) -> None:
        self.path = os.path.realpath(path)
        self.temporary: Optional[str] = None
        self._closed = False
        old = _status(path)
        if old is not None and not stat.S_ISREG(old.st_mode):
            self.fd = os.open(path, os.O_WRONLY | os.O_APPEND)
            return
        if old is not None and not os.access(self.path, os.W_OK):
            raise PermissionError(13, "Permission denied", path)
        folder = os.path.dirname(self.path)
        self.temporary = os.path.join(folder, f".dynet-{os.getpid()}-{os.urandom(6).hex()}.tmp")
        try:
            self.fd = os.open(self.temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except OSError as error:  # the user has never heard of the temporary file
            raise OSError(error.errno, error.strerror, path) from None
        try:
            if old is not None:
                _keep_rights(self.fd, old)
                if append:
                    _copy(self.path, self.fd, old.st_size)
        except BaseException:
            self.discard()
            raise

    def write(self, data: bytes) -> None:
        _write_all(self.fd, data)

    def close(self) -> None:
        """Everything is on the disk after this."""
        if self._closed:
            return
        try:
            if self.temporary is not None:
                os.fsync(self.fd)
        finally:
            self._closed = True
            os.close(self.fd)

    def commit(self) -> None:
        """The file is the new one after this."""
        self.close()
        if self.temporary is not None:
            os.replace(self.temporary, self.path)
            self.temporary = None
            sync_folder(self.path)

    def discard(self) -> None:
        """Leaves no trace."""
        if not self._closed:
            self._closed = True
            os.close(self.fd)
        if self.temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(self.temporary)
            self.temporary = None


def _status(path: str) -> Optional[os.stat_result]:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _keep_rights(fd: int, old: os.stat_result) -> None:
    with contextlib.suppress(OSError, AttributeError):
        new = os.fstat(fd)
        if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
            os.fchown(fd, old.st_uid, old.st_gid)
    with contextlib.suppress(OSError, AttributeError):
        os.fchmod(fd, stat.S_IMODE(old.st_mode))


def _copy(path: str, fd: int, size: int) -> None:
    """Copies a file; in the kernel, where blocks may be shared, if it can."""
    with open(path, "rb") as source:
        copy = getattr(os, "copy_file_range", None)
        done = 0
        with contextlib.suppress(OSError):
            while copy is not None and done < size:
                n = copy(source.fileno(), fd, size - done)
                if n == 0:
                    break
                done += n
        source.seek(done)
        while chunk := source.read(_CHUNK):
            _write_all(fd, chunk)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sync_folder(path: str) -> None:
    """Puts a renaming in the folder of `path` on the disk, where systems offer that."""
    with contextlib.suppress(OSError):
        fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@contextlib.contextmanager
def replacing(path: str, append: bool = False) -> Iterator[NewFile]:
    """A NewFile that is committed if the block ends without an exception."""
    new = NewFile(path, append)
    try:
        yield new
        new.commit()
    except BaseException:
        new.discard()
        raise


# ------------------------------------------------------------------------------------ pairs of files
#
# Two files cannot be renamed at once. If both change, the old .data is kept under a second name that says
# which .meta it belongs to, until both are renamed. Whoever finds that name beside that .meta knows that the
# saver stopped between the two, and takes it for the .data: old .data and old .meta, together as before.


def _kept_name(data: str, meta: bytes) -> str:
    import hashlib  # not at the start: the package must be imported fast

    return f"{data}.of-{hashlib.sha256(meta).hexdigest()[:16]}"


def read_meta(meta: str, data: str) -> tuple[bytes, str]:
    """The contents of the .meta file, and the path of the .data file that belongs to it."""
    with open(meta, "rb") as file:
        contents = file.read()
    kept = _kept_name(data, contents)
    return contents, kept if os.path.exists(kept) else data


def _settle(meta: str, data: str) -> Optional[bytes]:
    """Undoes what a saver that died has left of a pair. Returns the contents of .meta, if there is one."""
    contents: Optional[bytes] = None
    with contextlib.suppress(FileNotFoundError):
        contents, path = read_meta(meta, data)
        if path != data:
            os.replace(path, data)
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
    data, meta = os.path.realpath(data), os.path.realpath(meta)
    new_data = NewFile(data)
    new_meta: Optional[NewFile] = None
    kept = None
    try:
        yield new_data
        new_data.close()
        new_meta = NewFile(meta)
        new_meta.write(meta_contents)
        new_meta.close()
        kept = _keep_old(data, meta, meta_contents)
        new_data.commit()
        new_meta.commit()
    except BaseException:
        if kept is not None and new_data.temporary is None:
            os.replace(kept, data)
        elif kept is not None:
            os.unlink(kept)
        new_data.discard()
        if new_meta is not None:
            new_meta.discard()
        raise
    if kept is not None:
        os.unlink(kept)
