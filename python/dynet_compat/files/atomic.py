"""Replacing files as a whole: a crash at any moment leaves the old file or the new one.

A saver holds a lock on its temporary file (flock: the kernel releases it when the saver dies), so that the
next saver can tell what a dead one has left and removes it. Savers of one name take turns with a lock file
beside it, which exists only while somebody saves. Where locks are not offered, as on some network drives,
savers do without.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from typing import Optional

_CHUNK = 1 << 20
_OURS = re.compile(r"\.dynet-[0-9a-f-]+\.(?:tmp|lock)")
_held: set[int] = set()  # descriptors with locks


def _close_in_child() -> None:
    """A forked child must not keep the locks of a parent that dies."""
    while _held:
        with contextlib.suppress(OSError):
            os.close(_held.pop())


os.register_at_fork(after_in_child=_close_in_child)


# ------------------------------------------------------------------------------------------- locks


def _lock(fd: int, wait: bool, shared: bool = False) -> Optional[bool]:
    """Whether the lock was taken; None where the file system offers none."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_at(fd: int, path: str) -> bool:
    """Whether the open file still has this name."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False))
    except OSError:
        return False


def _release(fd: int) -> None:
    _held.discard(fd)
    with contextlib.suppress(OSError):  # closing is not enough where a forked child has the descriptor, too
        fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def _lock_path(path: str) -> str:
    import zlib  # not at the start: the package must be imported fast

    folder, name = os.path.split(path)
    return os.path.join(folder, f".dynet-{zlib.crc32(os.fsencode(name)):08x}.lock")


def _opened_lock(path: str) -> Optional[int]:
    """The lock file, which may belong to another user; None if there can be none."""
    for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):
        with contextlib.suppress(OSError):
            return os.open(path, flags, 0o666)
    return None


@contextlib.contextmanager
def turn(path: str) -> Iterator[None]:
    """Lets one saver of this name at a time run the block, of all threads and processes."""
    lock = _lock_path(path)
    while True:
        fd = _opened_lock(lock)
        if fd is None:
            yield
            return
        _held.add(fd)
        try:
            taken = _lock(fd, wait=True)
        except BaseException:  # Ctrl-C
            _release(fd)
            raise
        if not taken or _is_at(fd, lock):
            break
        _release(fd)  # the one before has removed the file
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(lock)  # while it is locked: those who wait see that it is gone, and make another
        _release(fd)


def wait_for_turn(path: str) -> bool:
    """Waits until a saver of this name is done. Returns whether there was one."""
    try:
        fd = os.open(_lock_path(path), os.O_RDONLY)
    except OSError:
        return False
    _held.add(fd)
    try:
        return _lock(fd, wait=False, shared=True) is False and bool(_lock(fd, wait=True, shared=True))
    finally:
        _release(fd)


def remove_leftovers(folder: str) -> None:
    """Removes the temporary files of savers that were killed: those that nobody has locked."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder or "."):
            if _OURS.fullmatch(name):
                _remove_unlocked(os.path.join(folder, name))


def _remove_unlocked(path: str) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0))
        try:
            if stat.S_ISREG(os.fstat(fd).st_mode) and _lock(fd, wait=False) and _is_at(fd, path):
                os.unlink(path)
        finally:
            os.close(fd)


# ------------------------------------------------------------------------------------------- files


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
        self._open_temporary(path)
        try:
            if old is not None:
                _keep_rights(self.fd, old)
                if append:
                    _copy(self.path, self.fd, old.st_size)
        except BaseException:
            self.discard()
            raise

    def _open_temporary(self, path: str) -> None:
        folder = os.path.dirname(self.path)
        while True:
            self.temporary = os.path.join(folder, f".dynet-{os.getpid()}-{os.urandom(6).hex()}.tmp")
            try:
                self.fd = os.open(self.temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            except OSError as error:  # the user has never heard of the temporary file
                raise OSError(error.errno, error.strerror, path) from None
            _held.add(self.fd)
            taken = _lock(self.fd, wait=False)
            if taken is None or (taken and _is_at(self.fd, self.temporary)):
                return
            _release(self.fd)  # a saver took it for a leftover before it was locked

    def write(self, data: bytes) -> None:
        _write_all(self.fd, data)

    def sync(self) -> None:
        """Everything is on the disk after this."""
        if self.temporary is not None:
            os.fsync(self.fd)

    def commit(self) -> None:
        """The file is the new one after this. The renaming gets to the disk when the system likes: until then
        a crash of the machine leaves the old file."""
        self.sync()
        self.rename()

    def rename(self) -> None:
        """commit() of what is on the disk."""
        if self.temporary is not None:  # still locked: until it has its name, it looks like a leftover
            os.replace(self.temporary, self.path)
            self.temporary = None
        self._close()

    def discard(self) -> None:
        """Leaves no trace."""
        if self.temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(self.temporary)
            self.temporary = None
        self._close()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            _release(self.fd)


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


class Role:
    """What this process does with files; a job of several processes sets another
    (dynet_compat/distributed/)."""

    @property
    def writes(self) -> bool:
        return True

    def replaces(self, path: str) -> None:
        """This process is about to replace a file."""

    def replaced(self, path: str) -> None:
        """It has."""

    def saved(self, path: str) -> None:
        """A file was replaced, or, where this process does not write, would have been; `path` is the
        program's."""

    def before_load(self) -> None:
        """Files are about to be read."""


role: Role = Role()


@contextlib.contextmanager
def nowhere(path: str) -> Iterator[NewFile]:
    """What a process gets that does not write."""
    sink = NewFile(os.devnull)
    try:
        yield sink
    finally:
        sink.discard()
    role.saved(path)


@contextlib.contextmanager
def whole(path: str, append: bool = False) -> Iterator[NewFile]:
    """A NewFile that is committed if the block ends without an exception."""
    real = os.path.realpath(path)
    remove_leftovers(os.path.dirname(real))
    special = os.path.exists(path) and not os.path.isfile(path)
    with turn(real) if append and not special else contextlib.nullcontext():
        new = NewFile(path, append)
        try:
            yield new
            new.commit()
        except BaseException:
            new.discard()
            raise


@contextlib.contextmanager
def replacing(path: str, append: bool = False) -> Iterator[NewFile]:
    """As whole(), of a file of the program: in a job one process writes it."""
    if not role.writes:
        with nowhere(path) as sink:
            yield sink
        return
    role.replaces(path)
    with whole(path, append) as new:
        yield new
    role.replaced(path)
    role.saved(path)
