"""A script or module as the main program of this process."""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import re
import sys
import types
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from typing import Any, NamedTuple, Optional

from ..files.pickle_names import VARIABLE, trusted_by_environment
from . import config, shims


class _Program(NamedTuple):
    """What is executed, and the names that Python gives to the module it is executed in."""

    source: str
    code: types.CodeType
    names: dict[str, Any]


def _script(path: str) -> _Program:
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    with io.open_code(os.path.abspath(path)) as file:
        source = file.read()
    code = compile(source, path, "exec", dont_inherit=True)
    names = {"__file__": path, "__loader__": SourceFileLoader("__main__", path)}
    return _Program(source.decode("utf-8", "replace"), code, names)


def _module(name: str) -> _Program:
    """As `python -m` finds it: packages of the module are imported, and a package stands for its __main__."""
    if name.startswith(".") or name in ("", "__main__"):
        sys.exit(f"{name!r} is not the full name of a module")
    spec = _spec(name)
    if spec is None:
        sys.exit(f"no module named {name}")
    if spec.submodule_search_locations is not None:
        package, name = name, f"{name}.__main__"
        spec = _spec(name)
        if spec is None or spec.submodule_search_locations is not None:
            sys.exit(f"{package} is a package without a module __main__, so it cannot be executed directly")
    if not isinstance(spec.loader, SourceFileLoader):
        sys.exit(f"{name} is not a module of Python code")
    code = spec.loader.get_code(name)
    assert code is not None  # a module of source has code
    names = {"__file__": spec.origin, "__loader__": spec.loader, "__package__": spec.parent, "__spec__": spec}
    return _Program(spec.loader.get_source(name) or "", code, names)


def _show_errors_from(program: dict[str, Any]) -> None:
    """Tracebacks begin where the program does, as those of `python script.py`; `program`: its globals."""
    show = sys.excepthook

    def from_program(kind: Any, error: BaseException, trace: Optional[types.TracebackType]) -> None:
        own = trace
        while own is not None and own.tb_frame.f_globals is not program:
            own = own.tb_next
        unread = own is None and isinstance(error, SyntaxError)  # of the program itself
        show(kind, error.with_traceback(own if own or unread else trace), own)
        if unread:
            print("(Python 2? see the page on old programs)", file=sys.stderr)

    sys.excepthook = from_program


def _spec(name: str) -> Optional[ModuleSpec]:
    """Of a module; None: there is none. Errors that its packages raise are theirs."""
    try:
        package = name.rpartition(".")[0]
        if package:
            importlib.import_module(package)
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise  # a package of the module imports what there is not
        return None


def run(
    script: str,
    arguments: Sequence[str],
    trusted: Sequence[str] = (),
    module: bool = False,
    explained: bool = False,
) -> None:
    """Run a script as the main program, as `python script.py` does; its `import dynet` gets this package.

    Args:
        script: the Python file.
        arguments: its command line.
        trusted: names that `dy.load` trusts, in addition to those of DYNET_COMPAT_TRUSTED.
        module: whether `script` is the name of a module, to be run as by `python -m`.
        explained: whether hints are made for this run where the program has none beside it.
    """
    shims.install()
    main_module = types.ModuleType("__main__")
    _show_errors_from(vars(main_module))
    if trusted:
        os.environ[VARIABLE] = ",".join([*trusted_by_environment(), *trusted])
    if module:
        sys.argv = ["-m", *arguments]  # as the package of the module meets it
        sys.path[0] = os.getcwd()
    program = _module(script) if module else _script(script)
    sys.argv = [program.names["__file__"], *arguments]
    if re.search(r"^\s*(?:import|from)\s+dynet_compat\b", program.source, re.M):
        config.initialise()  # that import cannot do it: the package is imported already
    vars(main_module).update(__builtins__=builtins, __cached__=None, **program.names)
    sys.modules["__main__"] = main_module  # and it stays: for pickles, threads and what runs at exit
    hints = os.environ.get("DYNET_COMPAT_HINTS")
    without = hints is None and not os.path.exists(config.hints_beside(program.names["__file__"]))
    if explained and (without or hints == "auto"):
        os.environ["DYNET_COMPAT_HINTS"] = "eager"  # to say what hints do from the first graph on
    config.prepare_hints()
    exec(program.code, vars(main_module))
