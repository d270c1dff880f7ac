"""`python -m dynet_compat run script.py args...`: run a DyNet script without changing it."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence
from typing import Optional

from . import shims


def run(script: str, arguments: Sequence[str]) -> None:
    """Run a script as the main program; its `import dynet` gets this package."""
    shims.install()
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line of the package."""
    parser = argparse.ArgumentParser(prog="python -m dynet_compat", description="Runs DyNet scripts.")
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run", help="run a script that says `import dynet`")
    runner.add_argument("script", help="the Python file")
    runner.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments, with --dynet-* options")
    commands.add_parser("compare", add_help=False, help="run a script on DyNet and on this package")
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["compare"]:
        from . import compare

        return compare.main(given[1:])
    chosen = parser.parse_args(given)
    if not os.path.isfile(chosen.script):
        parser.error(f"no such file: {chosen.script}")
    run(chosen.script, chosen.arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
