"""The folders that the runs of a comparison work in, so that no run changes a file of the user's.

The files around the script are copied once. Each run gets a shadow of the file system (see `redirect.py`), in
which they are hard links to the copies; large files and everything else are symbolic links to the originals.
Every run thus finds the folder as it was before the comparison, and what it wrote is known by its inode.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from .redirect import Shadow, replace_by_copy

MOST_ENTRIES = 10_000  # files and folders that a shadow begins with; the rest become real when they are used
MOST_BYTES = 64 << 20  # copied in all, small files first
_NOT_COPIED = frozenset((".git", ".hg", ".svn", "node_modules", "site-packages", "__pycache__"))


@dataclass
class Originals:
    """Copies of the files around a script.

    Attributes:
        folders: original paths of the folders that are real in each shadow.
        copies: original path -> (its copy, inode, time of change, size).
        linked: original path -> size of the files that are too large to copy.
    """

    base: Path
    folders: list[str] = field(default_factory=list)
    copies: dict[str, tuple[str, int, int, int]] = field(default_factory=dict)
    linked: dict[str, int] = field(default_factory=dict)

    @classmethod
    def around(cls, script: str, base: Path) -> Originals:
        """Copy what is beside and below the script, and in the current folder."""
        found = cls(base)
        sizes: dict[str, int] = {}
        pending = list(
            dict.fromkeys([os.path.dirname(os.path.realpath(script)), os.path.realpath(os.curdir)])
        )
        work = os.path.realpath(base.parent)
        seen = 0
        while pending and seen < MOST_ENTRIES:
            folder = pending.pop(0)
            if folder in found.folders or folder == work:
                continue
            try:
                entries = list(os.scandir(folder))
            except OSError:
                continue
            found.folders.append(folder)
            seen += len(entries)
            for entry in entries:
                if entry.is_symlink():
                    continue
                if entry.is_file():
                    try:
                        sizes[entry.path] = entry.stat().st_size
                    except FileNotFoundError:
                        continue  # removed by another program just now
                elif entry.is_dir() and entry.name not in _NOT_COPIED:
                    if not os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):
                        pending.append(entry.path)
        most = min(MOST_BYTES, shutil.disk_usage(base.parent).free // 4)
        for path in sorted(sizes, key=lambda path: (path != os.path.realpath(script), sizes[path])):
            most -= sizes[path]
            if most < 0 or not found.copy(path):
                found.linked[path] = sizes[path]
        return found

    def copy(self, path: str) -> bool:
        """Copy a file; False if it cannot be read, or is no longer there."""
        place = f"{self.base}{path}"
        try:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            shutil.copy2(path, place)
            status = os.stat(place)
        except (PermissionError, FileNotFoundError):
            return False
        self.copies[path] = (place, status.st_ino, status.st_mtime_ns, status.st_size)
        return True

    def shadow(self, root: Path) -> Shadow:
        """A shadow of the file system for one run."""
        root.mkdir(parents=True)
        made = Shadow(str(root), [])
        linked = set(self.folders)  # folders that are filled already, or will be
        for folder in sorted(self.folders):
            place = made.of(folder)
            ways = [place]
            while ways[-1] != made.root:
                ways.append(os.path.dirname(ways[-1]))
            for way in reversed(ways):
                if os.path.islink(way):
                    os.unlink(way)
                if not os.path.isdir(way):
                    os.mkdir(way)
                if made.original(way) not in linked:
                    linked.add(made.original(way))
                    made.mirror(way, made.original(way))
        for path, (copy, *_) in self.copies.items():
            try:
                os.link(copy, made.of(path))
            except OSError:  # a file system without hard links
                shutil.copy2(copy, made.of(path))
        for folder in self.folders:
            made.mirror(made.of(folder), folder)
        return made

    def written(self, shadow: Shadow) -> dict[str, Path]:
        """Original path -> file in the shadow that the run wrote; repairs copies written in place."""
        found = {}
        for folder, _, names in os.walk(shadow.root):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.islink(path) or not os.path.isfile(path):
                    continue
                original = shadow.original(path)
                copy, inode, changed, size = self.copies.get(original, ("", 0, 0, 0))
                status = os.stat(path)
                if (status.st_mtime_ns, status.st_size) == (changed, size) and (
                    status.st_ino == inode or status.st_nlink == 1
                ):
                    continue
                found[original] = Path(path)
                if status.st_ino == inode:  # written in place by a program that Python does not see
                    replace_by_copy(path)
                    os.unlink(copy)
                    self.copy(original)
        return found

    def removed(self, shadow: Shadow) -> list[str]:
        """Original paths of the copied files that the run removed or renamed."""
        return [path for path in self.copies if not os.path.lexists(shadow.of(path))]
