"""Keeps what a script writes out of the user's folders: the part inside the process, before the script runs.

The script works in a shadow of the file system, a folder that looks like `/`: the folders around the script
are real in it, their files are hard links to copies, everything else is a symbolic link to the original
(see `shadow_folders.py`). Relative paths stay in the shadow. Python's functions for files lead absolute
paths there too, a file is copied before it is opened for writing, and a linked folder becomes real, a level
at a time, before anything in it changes. Where the kernel has Landlock (Linux 5.19 and later), it refuses
whatever else would write outside the shadow: C extensions, other programs. Runs under Python 3.8 as well.
"""

from __future__ import annotations

import builtins
import ctypes
import io
import os
import shutil
import stat
import struct
import sys
import tempfile
import threading
from typing import Any, Dict, List, Optional, Tuple  # noqa: UP035 - Python 3.8

_SYSTEM = ("/dev", "/proc", "/sys")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

# Functions of os by what they do with their first argument (of rename and replace: with the first two).
_READERS = "stat lstat access listdir scandir readlink statvfs getxattr listxattr".split()
_CHANGERS = "truncate chmod utime chown setxattr removexattr".split()
_MAKERS = "mkdir rmdir remove unlink mkfifo".split()
# The same for the audit events of calls that do not come through these functions, and for relative paths.
_FILE_EVENTS = frozenset("os.truncate os.chmod os.utime os.chown os.setxattr os.link sqlite3.connect".split())
_NAME_EVENTS = frozenset("os.mkdir os.rmdir os.remove os.rename os.symlink".split())
_FOLDER_EVENTS = frozenset("os.listdir os.scandir os.chdir shutil.rmtree".split())
_EVENTS = _FILE_EVENTS | _NAME_EVENTS | _FOLDER_EVENTS | {"open"}


class Shadow:
    """A folder that looks like the whole file system, and takes what is written.

    Args:
        root: the folder.
        free: folders that may be written as they are.
    """

    def __init__(self, root: str, free: List[str]) -> None:  # noqa: UP006
        self.root = os.path.realpath(root)
        self.free = [*_SYSTEM, *(os.path.realpath(folder) for folder in free)]
        self.work = os.path.dirname(os.path.dirname(self.root))  # has no place in a shadow
        self.local = threading.local()

    def is_inside(self, path: str) -> bool:
        """Whether a path is one of the shadow."""
        return path == self.root or path.startswith(self.root + os.sep)

    def is_free(self, path: str) -> bool:
        """Whether a path outside may be written."""
        return any(path == folder or path.startswith(folder + os.sep) for folder in self.free)

    def of(self, path: str) -> str:
        """The path's place in the shadow."""
        return path if self.is_inside(path) else self.root + os.path.normpath(path)

    def original(self, path: str) -> str:
        """The other way round."""
        return (path[len(self.root) :] or os.sep) if self.is_inside(path) else path

    def mirror(self, folder: str, original: str) -> None:
        """Fill a folder of the shadow with links to what is in the original one."""
        try:
            entries = list(os.scandir(original))
        except (PermissionError, FileNotFoundError):
            return  # a folder that only leads to others
        for entry in entries:
            target, place = entry.path, os.path.join(folder, entry.name)
            if target == self.work or os.path.lexists(place):
                continue
            if entry.is_symlink():  # the user's own: leads to the same file, in the shadow
                try:
                    target = os.readlink(target)
                except FileNotFoundError:
                    continue  # removed by another program just now
                target = self.of(target) if os.path.isabs(target) else target
            os.symlink(target, place)

    def expand(self, link: str) -> None:
        """A link to an original folder becomes a folder of links."""
        target = os.readlink(link)
        os.unlink(link)
        os.mkdir(link)
        self.mirror(link, target)

    def is_ours(self, path: str) -> bool:
        """Whether a path of the shadow is a link to an original."""
        if not os.path.islink(path):
            return False
        target = os.readlink(path)
        return os.path.isabs(target) and not self.is_inside(target)

    def follow(self, path: str) -> str:
        """Where a path of the shadow leads, with all folders on the way made real."""
        pending = self.of(path)[len(self.root) :].split(os.sep)[::-1]
        at, turns = self.root, 0
        while pending:
            name = pending.pop()
            if name in ("", "."):
                continue
            if name == "..":
                at = os.path.dirname(at) if at != self.root else at
                continue
            following = os.path.join(at, name)
            if os.path.islink(following) and turns < 40:
                if not self.is_ours(following):
                    turns += 1
                    target = os.readlink(following)
                    if os.path.isabs(target):
                        at, target = self.root, target[len(self.root) :]
                    pending += target.split(os.sep)[::-1]
                    continue
                target = os.readlink(following)
                if os.path.isdir(target) and not self.is_free(target):
                    self.expand(following)
            at = following
        return at

    def own(self, path: str, content: bool = True) -> str:
        """Make a file of the shadow one that may be written; `content` unless it is emptied anyway."""
        place = self.follow(path)
        linked = self.is_ours(place)
        if linked and self.is_free(os.readlink(place)):
            return place
        if not linked:
            try:
                status = os.lstat(place)
            except OSError:
                return place
            if not stat.S_ISREG(status.st_mode) or status.st_nlink < 2:
                return place
        if content and not os.path.isfile(place):
            return place
        replace_by_copy(place, content)
        return place

    def own_name(self, path: str) -> str:
        """Make the folder of a path one in which names may change; the path, without links in its folder."""
        folder, name = os.path.split(path.rstrip(os.sep))
        place = os.path.join(self.follow(folder), name)
        if self.is_ours(place) and os.path.isdir(place):
            self.expand(place)
        return place

    def open_folder(self, path: str) -> None:
        """Make a folder real, and those in it: programs that walk over folders do not follow links."""
        place = self.follow(path)
        if not os.path.isdir(place) or os.path.islink(place):
            return
        for name in os.listdir(place):
            inner = os.path.join(place, name)
            if self.is_ours(inner):
                target = os.readlink(inner)
                if os.path.isdir(target) and not self.is_free(target):
                    self.expand(inner)

    def to_read(self, path: str) -> str:
        """An absolute path for reading: the shadow's, unless only a link is there."""
        place = self.of(path)
        parent = os.path.dirname(place)
        while not os.path.lexists(parent):
            parent = os.path.dirname(parent)
        if os.path.realpath(parent) != parent and not self.is_inside(os.path.realpath(parent)):
            return path
        return path if self.is_ours(place) else place

    def for_library(self, path: Any, saves: bool) -> Any:
        """The name of a file, or of a pair of files, that C++ opens."""
        try:
            text = os.fsdecode(path)
        except TypeError:
            return path
        if self.is_free(os.path.abspath(text)):
            return path
        place = self.of(os.path.abspath(text))
        if saves:
            self.local.busy = True
            try:
                for ending in ("", ".data", ".meta"):
                    self.own(place + ending)
            finally:
                self.local.busy = False
        return place if os.path.isabs(text) else path

    # ------------------------------------------------------------ in the place of Python's functions

    def translate(self, path: Any, how: str) -> Any:
        """An argument that is an absolute path, as the shadow's; anything else as it is."""
        if isinstance(path, int) or getattr(self.local, "busy", False):
            return path
        try:
            text = os.fsdecode(path)
        except TypeError:
            return path
        if not os.path.isabs(text) or self.is_inside(text) or self.is_free(os.path.normpath(text)):
            return path
        self.local.busy = True
        try:
            if how == "write":
                place = self.own(self.of(text))
            elif how == "empty":
                place = self.own(self.of(text), content=False)
            elif how == "name":
                place = self.own_name(self.of(text))
            else:
                place = self.to_read(text)
        finally:
            self.local.busy = False
        return os.fsencode(place) if isinstance(path, bytes) else place

    def audit(self, event: str, args: Tuple[Any, ...]) -> None:  # noqa: UP006
        """Sees every access to a file that Python makes, and prepares the shadow for it."""
        if event == "open":
            flags = args[2] if isinstance(args[2], int) else 0
            if flags & _WRITING:
                self.prepare(args[0], "empty" if flags & os.O_TRUNC else "write")
            elif isinstance(args[0], (str, bytes)) and flags & getattr(os, "O_DIRECTORY", 0):
                self.prepare(args[0], "folder")
        elif event in _FILE_EVENTS:
            self.prepare(args[0], "write")
            if event == "os.link":
                self.prepare(args[1], "name")
        elif event in _NAME_EVENTS:
            if event != "os.symlink":
                self.prepare(args[0], "name")
            if event in ("os.rename", "os.symlink"):
                self.prepare(args[1], "name")
        elif event in _FOLDER_EVENTS:
            self.prepare(args[0], "folder")

    def prepare(self, path: Any, how: str) -> None:
        """Make a path ready for a use of it; refuse what would change the user's files."""
        if getattr(self.local, "busy", False) or isinstance(path, int) or path is None:
            return
        self.local.busy = True
        try:
            try:
                text = os.path.abspath(os.fsdecode(path))
            except (TypeError, ValueError, OSError):
                return
            if self.is_inside(text):
                if how == "name":
                    self.own_name(text)
                elif how == "folder":
                    self.open_folder(text)
                else:
                    self.own(text, content=how == "write")
            elif how != "folder" and not self.is_free(text):
                raise PermissionError(
                    13, "compare keeps the user's files unchanged, and cannot redirect", text
                )
        finally:
            self.local.busy = False

    def install(self) -> None:
        """Lead this process's paths into the shadow."""
        originals: Dict[int, Any] = {}  # noqa: UP006
        how = {**dict.fromkeys(_READERS, "read"), **dict.fromkeys(_CHANGERS, "write")}
        how.update(dict.fromkeys(_MAKERS, "name"))
        how.update({"open": "open", "chdir": "read", "rename": "two", "replace": "two", "link": "two"})
        how["symlink"] = "second"
        for name, kind in how.items():
            original = getattr(os, name, None)
            if original is not None:
                originals[id(original)] = made = Redirected(original, self, kind)
                setattr(os, name, made)
                for group in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
                    if original in group:
                        group.add(made)
        originals[id(io.open)] = builtins.open = io.open = Redirected(io.open, self, "open")
        accessor = getattr(sys.modules.get("pathlib"), "_NormalAccessor", None)  # before Python 3.11
        for name, value in list(vars(accessor).items()) if accessor else []:
            bare = value.__func__ if isinstance(value, staticmethod) else value
            if id(bare) in originals:
                setattr(accessor, name, originals[id(bare)])

        def hook(event: str, args: Tuple[Any, ...]) -> None:  # noqa: UP006
            if event in _EVENTS:  # each sys._getframe() is one, too; a method as a hook takes 0.7 us more
                self.audit(event, args)

        sys.addaudithook(hook)


def replace_by_copy(place: str, content: bool = True) -> None:
    """Put a file of its own in the place of a link, with the same content or empty.

    The name of the copy is new: a link of that name could lead to a file of the user's.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=".copied-", dir=os.path.dirname(place))
    os.close(descriptor)
    if content:
        shutil.copy2(place, temporary)
    else:
        shutil.copymode(place, temporary)
    os.replace(temporary, place)


def folder_of(descriptor: int) -> str:
    """Path of an open folder.

    Raises:
        OSError: the system does not tell.
    """
    if sys.platform == "darwin":
        import fcntl

        return os.fsdecode(fcntl.fcntl(descriptor, 50, bytes(1024)).rstrip(b"\0"))  # F_GETPATH
    return os.readlink(f"/proc/self/fd/{descriptor}")


class Redirected:
    """A function for files whose absolute paths lead into the shadow. No descriptor, as builtins are none."""

    def __init__(self, original: Any, shadow: Shadow, kind: str) -> None:
        self.original, self.shadow, self.kind = original, shadow, kind
        self.__name__, self.__doc__ = original.__name__, original.__doc__
        self.__module__ = original.__module__

    def __repr__(self) -> str:
        return repr(self.original)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = list(args)
        names = {"rename": ("src", "dst"), "replace": ("src", "dst"), "link": ("src", "dst"),
                 "symlink": ("src", "dst"), "open": ("file", "mode")}  # fmt: skip
        first, second = names.get(self.__name__, ("path", ""))
        if self.kind == "open" and self.original.__name__ == "open" and "path" in kwargs:
            first = "path"
        self._make_absolute(given, kwargs, first, second)
        how = self._how(given, kwargs) if self.kind == "open" else self.kind
        if how in ("two", "second"):
            self._lead(given, kwargs, 1, second, "name")
            how = "name" if how == "two" else ""
        if how:
            self._lead(given, kwargs, 0, first, how)
        return self.original(*given, **kwargs)

    def _make_absolute(self, given: List[Any], kwargs: Dict[str, Any], first: str, second: str) -> None:  # noqa: UP006
        """Paths relative to an open folder as absolute ones: the folder may be one of the user's."""
        at = {"dir_fd": 1 if self.__name__ == "symlink" else 0, "src_dir_fd": 0, "dst_dir_fd": 1}
        for word in [word for word in at if kwargs.get(word) is not None]:
            holder: Any = given if len(given) > at[word] else kwargs
            key: Any = at[word] if holder is given else (first, second)[at[word]]
            path = holder.get(key, 0) if holder is kwargs else holder[key]
            if isinstance(path, int):
                continue
            text = os.path.join(folder_of(kwargs.pop(word)), os.fsdecode(path))
            holder[key] = os.fsencode(text) if isinstance(path, bytes) else text

    def _how(self, given: List[Any], kwargs: Dict[str, Any]) -> str:  # noqa: UP006
        mode = given[1] if len(given) > 1 else kwargs.get("mode", kwargs.get("flags", "r"))
        if isinstance(mode, int):  # os.open
            return ("empty" if mode & os.O_TRUNC else "write") if mode & _WRITING else "read"
        writes = isinstance(mode, str) and set(mode) & set("wax+")
        return ("empty" if "w" in mode else "write") if writes else "read"

    def _lead(self, given: List[Any], kwargs: Dict[str, Any], at: int, name: str, how: str) -> None:  # noqa: UP006
        holder: Any = given if len(given) > at else kwargs
        key: Any = at if len(given) > at else name
        if holder is kwargs and key not in kwargs:
            return
        before = holder[key]
        holder[key] = self.shadow.translate(before, how)
        opener = given[7] if len(given) > 7 else kwargs.get("opener")
        if holder[key] is not before and "pathlib" in str(getattr(opener, "__module__", "")):
            kwargs.pop("opener", None)  # Python 3.8's opens the path it belongs to, whatever it is given
            del given[7:]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


# ---------------------------------------------------------------- Landlock

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # system calls, the same on every processor
_WRITE_FILE, _TRUNCATE, _REFER = 1 << 1, 1 << 14, 1 << 13
_NAMES = sum(1 << bit for bit in range(4, 13))  # make and remove files, folders, links, pipes, sockets
_NO_NEW_PRIVILEGES = 38


def landlock(writable: List[str]) -> bool:  # noqa: UP006
    """Let the kernel refuse writes of this process and its children outside some folders.

    Returns:
        Whether the kernel does. Without Landlock, or with its first version, which forbids renaming from one
        folder to another, nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        call = ctypes.CDLL(None, use_errno=True)
        call.syscall.restype = ctypes.c_long
        version = call.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(1))
        if version < 2:
            return False
        rights = _WRITE_FILE | _NAMES | _REFER | (_TRUNCATE if version > 2 else 0)
        handled = struct.pack("=Q", rights)
        ruleset = call.syscall(_CREATE, handled, ctypes.c_size_t(8), ctypes.c_uint(0))
        if ruleset < 0:
            return False
        for folder in writable:
            if os.path.isdir(folder):
                descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
                rule = struct.pack("=Qi", rights, descriptor)
                call.syscall(_ADD, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint(0))
                os.close(descriptor)
        call.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        done = call.syscall(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint(0))
        os.close(ruleset)
        return bool(done == 0)
    except (OSError, AttributeError, ValueError):
        return False


def install(spec: Dict[str, Any]) -> Optional[Shadow]:  # noqa: UP006
    """What the recorder does first: shadow and Landlock of a run."""
    if not spec.get("shadow"):
        return None
    shadow = Shadow(spec["shadow"], [*spec["free"], spec["out"]])
    landlock([shadow.root, *shadow.free])
    shadow.install()
    sys.dont_write_bytecode = True
    return shadow
