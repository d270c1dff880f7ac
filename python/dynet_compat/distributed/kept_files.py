"""Files that a script saves over, as they were when the checkpoint was written: a job that is started again
must not load what a killed one has saved later."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from typing import Any, Optional

from ..files.atomic import whole


class KeptFiles:
    """Of rank 0. A list on the disk says which checkpoint the copies belong to; others do not need them.

    Args:
        folder: of the checkpoint, for list and copies, too.
    """

    def __init__(self, folder: str) -> None:
        self._folder, self._list = folder, os.path.join(folder, "kept")
        self._checkpoint: Any = None
        self._kept: dict[str, str] = {}  # name of the copy, by path

    def begin(self, checkpoint: Optional[list[Any]]) -> None:
        """Puts the files back that were saved since.

        Args:
            checkpoint: which one the job goes on from, as JSON has it; None: from its beginning.
        """
        with contextlib.suppress(FileNotFoundError), open(self._list, encoding="utf-8") as file:
            found = json.load(file)
            if found["checkpoint"] == checkpoint:
                self._checkpoint, self._kept = checkpoint, found["files"]
                for path, name in self._kept.items():
                    _copy(os.path.join(self._folder, name), path, shutil.copy2)
                return
        self.restart(checkpoint)

    def restart(self, checkpoint: Optional[list[Any]]) -> None:
        """That checkpoint was written: files are as they shall be."""
        self._checkpoint, self._kept = checkpoint, {}
        for name in os.listdir(self._folder):
            if name.startswith("kept"):
                os.unlink(os.path.join(self._folder, name))

    def keep(self, path: str) -> None:
        """The script is about to replace the file."""
        path = os.path.realpath(path)
        if path in self._kept or not os.path.isfile(path):
            return
        name = f"kept-{len(self._kept)}"
        _copy(path, os.path.join(self._folder, name), _second_name)
        self._kept[path] = name
        with whole(self._list) as new:
            new.write(json.dumps({"checkpoint": self._checkpoint, "files": self._kept}).encode())


def _copy(source: str, target: str, copy: Callable[[str, str], object]) -> None:
    """The old target stays until the copy is whole."""
    new = f"{target}.dynet-copy"
    with contextlib.suppress(FileNotFoundError):  # of a job that was killed
        os.unlink(new)
    copy(source, new)
    os.replace(new, target)


def _second_name(source: str, new: str) -> None:
    """Enough for a file that is about to be replaced: nobody writes into it."""
    try:
        os.link(source, new)
    except OSError:  # another file system, or one without second names
        shutil.copy2(source, new)
