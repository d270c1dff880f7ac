"""`python -m dynet_compat compile script.py`: reads a script and writes `script.dyhints` beside it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import Optional

from ..migrate import quiet_pipe
from . import hints_file
from .analysis.load import LoadError
from .compiler import compile_script

SUFFIX = ".dyhints"


def parser() -> argparse.ArgumentParser:
    """The options."""
    result = argparse.ArgumentParser(
        prog="python -m dynet_compat compile",
        description="Read a script and its own modules, and write hints that make recording and batching "
        "cheaper. The script is not run. Hints never change a result.",
        epilog="exit status: 0 the hints were written; 2 there is no such script, or they cannot be written.",
    )
    result.add_argument("script", help="the Python file")
    result.add_argument("-o", "--output", metavar="FILE", help="where to write (default: SCRIPT.dyhints)")
    result.add_argument("--explain", action="store_true", help="say what prevents batching, and what to do")
    return result


def default_output(script: str) -> str:
    """script.dyhints for script.py."""
    stem, suffix = os.path.splitext(script)
    return (stem if suffix in (".py", ".pyw") else script) + SUFFIX


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command; returns its exit status."""
    chosen = parser().parse_args(arguments)
    output = chosen.output or default_output(chosen.script)
    start = time.perf_counter()
    bar = Bar(sys.stderr.isatty())
    try:
        check_output(output)
        try:
            found = compile_script(chosen.script, output, bar.update)
        finally:
            bar.done()
        hints_file.write(found.hints, output)
    except LoadError as error:
        return fail(str(error))
    except OSError as error:
        return fail(f"cannot write {output}: {error.strerror or error}")
    except ValueError as error:  # a foreign output
        return fail(str(error))
    for problem in found.problems:
        print(problem, file=sys.stderr)
    try:
        print(f"{output}: {', '.join(found.counts)}; {time.perf_counter() - start:.2f} s")
        if chosen.explain:
            print("\n".join(found.explanation))
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has read enough
        quiet_pipe()
    return 0


def fail(text: str) -> int:
    print(f"compile: {text}", file=sys.stderr)
    return 2


def check_output(path: str) -> None:
    """Refuses to replace a file that holds no hints.

    Raises:
        ValueError: there is such a file.
    """
    if not os.path.isfile(path):
        if os.path.isdir(path):
            raise ValueError(f"{path} is a directory")
        return
    with open(path, "rb") as file:
        begin = file.read(64)
    if begin.strip() and not begin.startswith(b'{"format": "' + hints_file.FORMAT.encode() + b'"'):
        raise ValueError(f"{path} is no hints file and is not replaced")


class Bar:
    """A progress bar on a terminal, for analyses that take more than a second."""

    WIDTH = 30

    def __init__(self, terminal: bool) -> None:
        self.terminal = terminal
        self.start = time.perf_counter()
        self.next = self.start + 1.0
        self.shown = False
        self.part = 0.0

    def update(self, done: int, ahead: int) -> None:
        if not self.terminal or time.perf_counter() < self.next:
            return
        self.next = time.perf_counter() + 0.1
        self.part = max(self.part, done / max(1, done + ahead))  # what is ahead may grow: never go back
        filled = int(self.WIDTH * self.part)
        sys.stderr.write(f"\rcompile [{'#' * filled}{'.' * (self.WIDTH - filled)}] {100 * self.part:3.0f}%")
        sys.stderr.flush()
        self.shown = True

    def done(self) -> None:
        if self.shown:
            sys.stderr.write("\r" + " " * (self.WIDTH + 20) + "\r")
            sys.stderr.flush()
