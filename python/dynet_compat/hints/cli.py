"""`python -m dynet_compat compile script.py`: reads a script and writes `script.dyhints` beside it."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Sequence
from typing import Optional

from ..migrate import quiet_pipe
from . import hints_file
from .analysis.load import LoadError
from .explain import Explanation
from .passes import Passes, clean

SUFFIX = ".dyhints"


def parser() -> argparse.ArgumentParser:
    """The options."""
    result = argparse.ArgumentParser(
        prog="python -m dynet_compat compile",
        description="Read a script and its own modules, and write hints that make recording and batching "
        "cheaper. The script is not run, except with --profile. Hints never change a result.",
        epilog="exit status: 0 the hints were written; 2 there is no such script, or they cannot be written.",
    )
    result.add_argument("script", help="the Python file")
    result.add_argument("-o", "--output", metavar="FILE", help="where to write (default: SCRIPT.dyhints)")
    result.add_argument("--explain", action="store_true", help="say what prevents batching, and what to do")
    result.add_argument(
        "--profile",
        metavar="ARGS",
        help="also run the script with these arguments, keep what it launched, and which ways to run that "
        "were the fastest on this computer",
    )
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
    try:
        check_output(output)
        profile_arguments = None if chosen.profile is None else shlex.split(chosen.profile)
        hints, explanation = compile_script(chosen.script, output)
        if profile_arguments is not None:
            from . import tune

            found = tune.run(chosen.script, profile_arguments, list(hints.sources))
            hints = tune.with_profile(hints, found)
            explanation += tune.explanation(found)
        hints_file.write(hints, output)
    except LoadError as error:
        return fail(str(error))
    except OSError as error:
        return fail(f"cannot write {output}: {error.strerror or error}")
    except ValueError as error:  # --profile with an open quotation, a run that failed, a foreign output
        return fail(str(error))
    for note in hints.problems:
        print(f"{note.file}:{note.line}: {note.text}", file=sys.stderr)
    try:
        print(summary(hints, output, time.perf_counter() - start))
        if chosen.explain:
            print("\n".join(explanation))
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


def compile_script(script: str, output: str) -> tuple[hints_file.Hints, list[str]]:
    """Analyse a script.

    Args:
        script: the Python file.
        output: where the hints will be; the place of the sources is kept relative to it.
    Returns:
        The hints, and the lines of --explain. A program that defeats the analysis gives empty hints.
    Raises:
        LoadError: there is no such script.
    """
    folder = os.path.dirname(os.path.abspath(script))
    home = os.path.dirname(os.path.realpath(output))
    try:
        root = os.path.relpath(os.path.realpath(folder), home)
    except ValueError:  # another drive
        root = "."
    bar = Bar(sys.stderr.isatty())
    try:
        passes = Passes(script, bar.update)
        return passes.hints(root), Explanation(passes).lines()
    except LoadError:
        raise
    except Exception as error:  # a fault of ours must not cost the user more than the hints
        return empty(script, root, f"the analysis failed ({type(error).__name__}: {error}); please report it")
    finally:
        bar.done()


def empty(script: str, root: str, why: str) -> tuple[hints_file.Hints, list[str]]:
    """Hints that say nothing, and why."""
    from .analysis.load import load

    loaded = load(script)
    name = loaded.sources[0].path
    note = hints_file.Note(name, 1, clean(why))
    sources = {source.path: source.sha256 for source in loaded.sources}
    hints = hints_file.Hints(name, root.replace(os.sep, "/"), False, sources, (note,))
    return hints, [f"{name}:1: {note.text}"]


def summary(hints: hints_file.Hints, output: str, seconds: float) -> str:
    """One line about what was written."""

    def count(number: int, what: str) -> str:
        return f"{number} {what}{'' if number == 1 else 's'}"

    recurrent = sum(loop.kind == "recurrence" for loop in hints.loops)
    parts = [
        count(len(hints.sites), "site"),
        f"{count(len(hints.loops), 'loop')} ({recurrent} recurrent)",
        count(len(hints.templates), "template"),
        count(len(hints.independent_loops), "batch_map loop"),
    ]
    if hints.profile is not None:
        parts.append(f"profile of {count(hints.profile.graphs, 'graph')}")
        parts.append(count(len(hints.profile.ways), "faster way"))
    return f"{output}: {', '.join(parts)}; {seconds:.2f} s"


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
