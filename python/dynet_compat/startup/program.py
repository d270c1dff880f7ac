"""A script as the main program of this process."""

from __future__ import annotations

import builtins
import io
import os
import re
import sys
import types
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader

from ..files.pickle_names import VARIABLE, trusted_by_environment
from . import config, shims


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
