"""Files that a script saves over, as they were when the checkpoint was written: a job that is started again
must not load what a killed one has saved later.

A file is put back only where it is still the one that the killed job saved, and that one is kept, too. A file
that somebody else has changed is left as it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import sys
from typing import Any, NamedTuple, Optional

from ..files.atomic import NewFile, whole

_Identity = Optional[list[int]]  # None: there is no file
_COPY = re.compile(r"copy-([0-9]+)")


class _Kept(NamedTuple):
    """What is known of a file."""

    copy: Optional[str]  # its name; None: there was no file
    old: _Identity  # of the file at the checkpoint, or of the copy that was put back
    saved: _Identity  # of what the job has saved last; None: nothing yet


class KeptFiles:
    """Of rank 0. A list on the disk says which checkpoint of which run the copies belong to, and in which
    folder the script ran.

    Args:
        folder: of the checkpoint; list and copies are in a folder of their own in it.
    """

    def __init__(self, folder: str) -> None:
        self._folder = os.path.join(os.path.realpath(folder), ".dynet-kept")
        self._list = os.path.join(self._folder, "list")
        self._script_folder = os.path.realpath(os.curdir)
        self._checkpoint: Optional[list[Any]] = None
        self._kept: dict[str, _Kept] = {}  # by path from the script's folder
        self._unknown: set[str] = set()  # paths of files that could not be kept
        self._copies = 0
        self._has_warned = False

    # ------------------------------------------------------------------------------- going on

    def begin(self, checkpoint: Optional[list[Any]]) -> None:
        """Puts the files back that were saved since.

        Args:
            checkpoint: which one the job goes on from, as JSON has it; None: from its beginning.
        """
        found = self._found()
        if checkpoint is None or found is None or found["checkpoint"] != checkpoint:
            self.restart(checkpoint)
            return
        if found["folder"] != self._script_folder:
            _say(f"the killed job ran in {found['folder']}: the files that it saved are left as they are")
            self.restart(checkpoint)
            return
        self._checkpoint = checkpoint
        self._kept = {path: _Kept(*entry) for path, entry in found["files"].items()}
        self._copies = 1 + max((int(m[1]) for m in map(_COPY.fullmatch, self._names()) if m), default=-1)
        back = [path for path in list(self._kept) if self._goes_back(path)]
        if back:
            _say(f"as at the checkpoint again: {', '.join(back)} (saved later: see {self._folder})")

    def _found(self) -> Optional[dict[str, Any]]:
        try:
            with open(self._list, encoding="utf-8") as file:
                return dict(json.load(file))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _say(f"files that were saved after the checkpoint are left as they are: {error}")
            return None

    def _goes_back(self, path: str) -> bool:
        """Whether the file was put back, or, where there was none, taken away."""
        entry, real = self._kept[path], os.path.join(self._script_folder, path)
        try:
            now = _identity(real)
            if now == entry.old:
                return False
            if now is None or now != entry.saved:
                _say(f"{path} is not what the killed job has saved: it is left as it is")
                del self._kept[path]
                return False
            if entry.copy is None:
                self._move_aside(real)
                os.unlink(real)
                return True
            self._put_back(path, entry)
        except OSError as error:
            _say(f"{path} is left as it was saved after the checkpoint: {error}")
            return False
        return True

    def _put_back(self, path: str, entry: _Kept) -> None:
        assert entry.copy is not None
        new = NewFile(os.path.join(self._script_folder, path))
        try:
            with open(os.path.join(self._folder, entry.copy), "rb") as copy:
                while data := copy.read(1 << 20):
                    new.write(data)
            new.sync()
            self._kept[path] = entry._replace(old=_of(os.fstat(new.fd)))
            self._write()  # before: a job that is killed now finds either file
            self._move_aside(new.path)
            new.rename()
        finally:
            new.discard()

    def _move_aside(self, real: str) -> None:
        """Gives the later file a second name, which nothing removes."""
        name = f"later-{os.urandom(4).hex()}-{os.path.basename(real)}"
        _second_name(real, os.path.join(self._folder, name))

    def restart(self, checkpoint: Optional[list[Any]]) -> None:
        """That checkpoint was written: files are as they shall be."""
        self._checkpoint, self._kept, self._unknown, self._copies = checkpoint, {}, set(), 0
        for name in self._names():
            path = os.path.join(self._folder, name)
            if name == "list" or _COPY.fullmatch(name):
                with contextlib.suppress(OSError):
                    if stat.S_ISREG(os.lstat(path).st_mode):
                        os.unlink(path)
        with contextlib.suppress(OSError):
            os.rmdir(self._folder)  # stays while anything else is in it

    def _names(self) -> list[str]:
        """The list first: copies without it are of no use, but a list without copies is wrong."""
        try:
            return sorted(os.listdir(self._folder), key=lambda name: (name != "list", name))
        except OSError:
            return []

    # --------------------------------------------------------------------------------- saving

    def keep(self, path: str) -> None:
        """The script is about to replace the file."""
        real = os.path.realpath(path)
        path = os.path.relpath(real, self._script_folder)
        if self._checkpoint is None or path in self._kept or path in self._unknown:
            return
        try:
            old = _identity(real)
            if old is None and os.path.lexists(real):  # no plain file
                return
            os.makedirs(self._folder, exist_ok=True)
            name = None if old is None else f"copy-{self._copies}"
            if name is not None:
                self._copies += 1
                _second_name(real, os.path.join(self._folder, name))
            self._kept[path] = _Kept(name, old, None)
            self._write()
        except OSError as error:
            self._kept.pop(path, None)
            self._unknown.add(path)
            self._warn(error)

    def saved(self, path: str) -> None:
        """The script has replaced the file."""
        real = os.path.realpath(path)
        path = os.path.relpath(real, self._script_folder)
        if path not in self._kept:
            return
        try:
            self._kept[path] = self._kept[path]._replace(saved=_identity(real))
            self._write()
        except OSError as error:
            self._warn(error)

    def _write(self) -> None:
        found = {"checkpoint": self._checkpoint, "folder": self._script_folder, "files": self._kept}
        with whole(self._list) as new:
            new.write(json.dumps(found).encode())

    def _warn(self, error: OSError) -> None:
        """Once: the save goes on."""
        if not self._has_warned:
            self._has_warned = True
            _say(f"a killed job may resume with files that it saved after its checkpoint: {error}")


def _say(text: str) -> None:
    print(f"dynet_compat: {text}", file=sys.stderr)


def _identity(path: str) -> _Identity:
    """Of a plain file: saving it once more gives another."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _of(found) if stat.S_ISREG(found.st_mode) else None


def _of(found: os.stat_result) -> list[int]:
    return [found.st_ino, found.st_size, found.st_mtime_ns]


def _second_name(source: str, new: str) -> None:
    """Enough for a file that is about to be replaced: nobody writes into it."""
    with contextlib.suppress(FileNotFoundError):  # a copy that nothing lists
        os.unlink(new)
    try:
        os.link(source, new)
    except OSError:  # another file system, or one without second names
        shutil.copy2(source, new)
