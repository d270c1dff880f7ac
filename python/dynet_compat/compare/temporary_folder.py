"""A folder for temporary files that is removed also when this process is killed.

A second process waits at the end of a pipe, which closes when the first one ends in any way. It then ends the
program that ran last, with what that has started, and removes the folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


class TemporaryFolder:
    """A folder, in a `with` statement."""

    def __init__(self, prefix: str, parent: str | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        command = [sys.executable, "-I", "-S", os.path.abspath(__file__), str(self.path)]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True, cwd=os.sep
        )

    def runs(self, pid: int) -> None:
        """A process, the first of its group, runs now; 0: none does."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(b"%d\n" % pid)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # somebody ended the cleaner: __exit__ cleans

    def __enter__(self) -> TemporaryFolder:
        return self

    def __exit__(self, *_: Any) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait()
        shutil.rmtree(self.path, ignore_errors=True)


def main() -> None:
    """Wait for the end of the other process, then clean."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    pid = 0
    for line in sys.stdin:
        pid = int(line)
    if pid:
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
    shutil.rmtree(sys.argv[1], ignore_errors=True)


if __name__ == "__main__":
    main()
