"""`python -m dynet_compat run script.py args...`: run a DyNet script without changing it."""

from __future__ import annotations

import argparse
import builtins
import io
import os
import re
import sys
import types
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from typing import Optional

from . import __compat_version__, __version__
from .files.pickle_names import VARIABLE, check_name, trusted_by_environment
from .startup import config, shims


def run(script: str, arguments: Sequence[str], trusted: Sequence[str] = ()) -> None:
    """Run a script as the main program, as `python script.py` does; its `import dynet` gets this package.

    Args:
        script: the Python file.
        arguments: its command line.
        trusted: names that `dy.load` trusts, in addition to those of DYNET_COMPAT_TRUSTED.
    """
    shims.install()
    if trusted:
        os.environ[VARIABLE] = ",".join([*trusted_by_environment(), *trusted])
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.realpath(script))
    with io.open_code(os.path.abspath(script)) as file:
        source = file.read()
    code = compile(source, script, "exec", dont_inherit=True)
    if re.search(rb"^\s*(?:import|from)\s+dynet_compat\b", source, re.M):
        config.initialise()  # that import cannot do it: the package is imported already
    main_module = types.ModuleType("__main__")
    vars(main_module).update(
        __builtins__=builtins,
        __cached__=None,
        __file__=script,
        __loader__=SourceFileLoader("__main__", script),
    )
    sys.modules["__main__"] = main_module  # and it stays: for pickles, threads and what runs at exit
    config.prepare_hints()
    exec(code, vars(main_module))


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
    runner.add_argument("script", help="the Python file")
    runner.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments, with --dynet-* options")
    migrator = commands.add_parser("migrate", help="change a script to import dynet_compat; shows a diff")
    migrator.add_argument("script", help="the Python file")
    migrator.add_argument("--write", action="store_true", help="write the changed file")
    informer = commands.add_parser("info", help="versions, processor, GPU, settings")
    informer.add_argument("--json", action="store_true", help="as JSON")
    commands.add_parser("compare", add_help=False, help="run a script on DyNet and on this package")
    commands.add_parser("compile", add_help=False, help="read a script and write hints that make it faster")
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["compare"]:  # has a command line of its own
        from . import compare

        return compare.main(given[1:])
    if given[:1] == ["compile"]:
        from .hints import cli

        return cli.main(given[1:])
    chosen = parser.parse_args(given)
    if chosen.command is None:
        parser.print_help()
        return 2
    if chosen.command == "migrate":
        from . import migrate

        return migrate.main(chosen.script, chosen.write)
    if chosen.command == "info":
        from . import info

        return info.main(chosen.json)
    if not os.path.isfile(chosen.script):
        parser.error(f"no such file: {chosen.script}")
    try:
        trusted = [check_name("--trust", name) for name in chosen.trust]
    except ValueError as error:
        parser.error(str(error))
    run(chosen.script, chosen.arguments, trusted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
