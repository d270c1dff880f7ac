"""`python -m dynet_compat run script.py args...` or `run -m module args...`: run a DyNet script as it is."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Optional

from . import __compat_version__, __version__
from .files.pickle_names import check_name
from .startup.program import run

# Commands with a command line of their own: the module whose main() they are, and what they do.
_COMMANDS = {
    "compare": (".compare", "run a script on DyNet and on this package"),
    "compile": (".hints.cli", "read a script and write hints that make it faster"),
    "predict": (".distributed.predict", "run a model over the lines of a file"),
    "distribute": (".distributed.launcher", "run a script on several processes or machines"),
}


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line of the package."""
    parser = argparse.ArgumentParser(prog="python -m dynet_compat", description="Tools for DyNet scripts.")
    version = f"dynet-compat {__compat_version__} (the API of DyNet {__version__})"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command")
    runner = commands.add_parser("run", help="run a script that says `import dynet`")
    runner.add_argument(
        "--trust", metavar="NAME", action="append", default=[],
        help="a class that dy.load may import and call: package.module.Class; may be repeated",
    )  # fmt: skip
    runner.add_argument(
        "--explain", action="store_true",
        help="with hints, made for this run where the script has none: say at the end which lines recorded "
        "ops outside regions, and why",
    )  # fmt: skip
    runner.add_argument(
        "-m", action="store_true", dest="module", help="the script is a module, as with `python -m`"
    )
    runner.add_argument("script", help="the Python file")
    runner.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments, with --dynet-* options")
    migrator = commands.add_parser("migrate", help="change a script to import dynet_compat; shows a diff")
    migrator.add_argument("script", help="the Python file")
    migrator.add_argument("--write", action="store_true", help="write the changed file")
    informer = commands.add_parser("info", help="versions, processor, GPU, settings")
    informer.add_argument("--json", action="store_true", help="as JSON")
    for name, (_, text) in _COMMANDS.items():
        commands.add_parser(name, add_help=False, help=text)
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] in _COMMANDS:
        module, _ = _COMMANDS[given[0]]
        return int(import_module(module, __package__).main(given[1:]))
    chosen = parser.parse_args(_with_m_apart(given))
    if chosen.command is None:
        parser.print_help()
        return 2
    if chosen.command == "migrate":
        from . import migrate

        return migrate.main(chosen.script, chosen.write)
    if chosen.command == "info":
        from . import info

        return info.main(chosen.json)
    if not chosen.module and not os.path.isfile(chosen.script):
        what = "not a regular file" if os.path.exists(chosen.script) else "no such file"
        parser.error(f"{what}: {chosen.script}")
    try:
        trusted = [check_name("--trust", name) for name in chosen.trust]
    except ValueError as error:
        parser.error(str(error))
    if chosen.explain:
        os.environ["DYNET_COMPAT_REPORT"] = "lines"
    run(chosen.script, chosen.arguments, trusted, chosen.module, chosen.explain)
    return 0


def _with_m_apart(given: list[str]) -> list[str]:
    """`run -mname` as `run -m name`: argparse takes the name for more flags."""
    for i, word in enumerate(given):
        if i and given[i - 1] != "--trust":
            if word == "-m" or not word.startswith("-"):
                break  # what follows is the module or the program's
            if word.startswith("-m"):
                return [*given[:i], "-m", word[2:], *given[i + 1 :]]
    return given


if __name__ == "__main__":
    sys.exit(main())
