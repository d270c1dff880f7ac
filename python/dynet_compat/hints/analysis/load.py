"""The script and the modules of its own folder, parsed and hashed; nothing is imported or run."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import stat
import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from .api import DYNET_MODULES

# Modules that touch nothing of the script: Python's own, which Python can list from 3.10 on.
_USUAL = "argparse collections copy functools itertools json math numpy operator os random re sys time typing"
KNOWN_MODULES = frozenset(getattr(sys, "stdlib_module_names", ())) | frozenset(_USUAL.split())
MAX_BYTES = 4 << 20  # of one file
MAX_TOTAL = 16 << 20
MAX_MODULES = 200
MAX_ELEMENTS = 1000  # of a list of constants, a tuple, a set, a dict: of more, one of each shape is analysed
_PRINT = re.compile(rb"^[ \t]*(?:print[ \t]+[\"'\w%]|exec[ \t]+[\"'])", re.M)


class LoadError(Exception):
    """The script cannot be read at all: it does not exist, or is not a regular file."""


@dataclass
class Source:
    """One file that was read."""

    path: str  # relative to the script's folder, with forward slashes
    name: str  # as it is imported; __main__ for the script
    data: bytes
    tree: Optional[ast.Module] = None  # None: it cannot be parsed

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def is_package(self) -> bool:
        return self.path.endswith("/__init__.py")


@dataclass(frozen=True, order=True)
class Problem:
    """Something the analysis cannot see through."""

    path: str
    line: int
    text: str
    scope: str = ""  # "program": nothing can be said of any of it; "function": of the function around it

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


@dataclass
class Loaded:
    """The script, its own modules, and what was wrong with them."""

    folder: str
    sources: list[Source] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)  # of modules -> index of their source

    def module(self, name: str) -> Optional[int]:
        """Index of the source that `import name` gives, if it is one of the script's."""
        return self.names.get(name)


def load(script: str) -> Loaded:
    """Read a script and, one after another, the modules of its folder that it imports.

    Args:
        script: path of the Python file.
    Returns:
        Sources with their syntax trees, the script first, and the problems met.
    Raises:
        LoadError: the script does not exist, or is not a file, or may not be read.
    """
    folder = os.path.dirname(os.path.abspath(script))
    loaded = Loaded(folder)
    name = os.path.basename(script)
    if not name.isprintable():
        raise LoadError(f"{name!r} is no name for a script")
    data = _read(os.path.join(folder, name), script)
    if isinstance(data, str):
        loaded.sources.append(Source(name, "__main__", b""))
        loaded.problems.append(Problem(name, 1, data, "program"))
        return loaded
    total = len(data)
    loaded.sources.append(_parse(loaded, Source(name, "__main__", data)))
    at = 0
    while at < len(loaded.sources):
        source = loaded.sources[at]
        at += 1
        for wanted, line in imported_names(source):
            if loaded.module(wanted) is not None or wanted.split(".")[0] in DYNET_MODULES:
                continue
            path = find(folder, wanted)
            if path is None:
                continue
            known = next((i for i, other in enumerate(loaded.sources) if other.path == path), None)
            if known is not None:  # a second name, or the script itself
                loaded.names[wanted] = known
                continue
            if len(loaded.sources) >= MAX_MODULES or total > MAX_TOTAL:
                loaded.problems.append(Problem(source.path, line, f"too many modules: {wanted} is not read"))
                return loaded
            found = _read(os.path.join(folder, path), path)
            if isinstance(found, str):
                loaded.problems.append(Problem(source.path, line, f"{wanted}: {found}"))
                continue
            total += len(found)
            loaded.names[wanted] = len(loaded.sources)
            loaded.sources.append(_parse(loaded, Source(path, wanted, found)))
    return loaded


def _read(path: str, shown: str) -> Union[bytes, str]:
    """The file's contents; a text says why they are not used."""
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise LoadError(f"{shown} is a directory, not a script")
        if not stat.S_ISREG(status.st_mode):
            raise LoadError(f"{shown} is not a regular file")
        if status.st_size > MAX_BYTES:
            return f"too large: {status.st_size} bytes, at most {MAX_BYTES} are read"
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise LoadError(f"no such file: {shown}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise LoadError(f"cannot read {shown}: {reason}") from None
    return data if len(data) <= MAX_BYTES else f"too large: more than {MAX_BYTES} bytes"


def _parse(loaded: Loaded, source: Source) -> Source:
    """Fills in the syntax tree, or notes why there is none."""
    scope = "program" if source.name == "__main__" else ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the script's own string escapes
            source.tree = shorten(ast.parse(source.data, source.path))
    except SyntaxError as error:
        line = error.lineno or 1
        reason = f"not Python 3: {error.msg}"
        if _PRINT.search(source.data):
            reason += " (Python 2? see the page on old programs)"
        loaded.problems.append(Problem(source.path, line, reason, scope))
    except ValueError as error:  # null bytes, numbers of too many digits
        loaded.problems.append(Problem(source.path, 1, f"not a Python source: {error}", scope))
    except (RecursionError, MemoryError):
        loaded.problems.append(Problem(source.path, 1, "nested too deeply to be parsed", scope))
    return source


def shorten(tree: ast.Module) -> ast.Module:
    """Leave out what repeats in data in the source: the kinds of elements stay, not their number."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        parts = list(_elements(node))
        if len(parts) > MAX_ELEMENTS:
            shapes = [tuple(_shape(part) for part in together) for together in parts]
            if not any(None in shape for shape in shapes):
                first = {shape: at for at, shape in reversed(list(enumerate(shapes)))}
                _keep(node, sorted(first.values()))
        pending.extend(ast.iter_child_nodes(node))
    return tree


def _elements(node: ast.AST) -> Iterable[tuple[Optional[ast.expr], ...]]:
    if isinstance(node, ast.Dict):
        return zip(node.keys, node.values)
    return zip(node.elts) if isinstance(node, (ast.List, ast.Tuple, ast.Set)) else ()


def _keep(node: ast.AST, kept: list[int]) -> None:
    """Only these elements of a display."""
    if isinstance(node, ast.Dict):
        node.keys, node.values = [node.keys[i] for i in kept], [node.values[i] for i in kept]
    elif isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        node.elts = [node.elts[i] for i in kept]


def _shape(node: Optional[ast.expr]) -> Any:
    """Types in a constant or a display of constants; None for anything else."""
    if isinstance(node, ast.Constant):
        return type(node.value)
    if isinstance(node, ast.UnaryOp):
        return _shape(node.operand)
    if not isinstance(node, (ast.Dict, ast.List, ast.Tuple, ast.Set)):
        return None
    inner = [tuple(_shape(part) for part in together) for together in _elements(node)]
    if any(None in shape for shape in inner):
        return None
    return (type(node), tuple(inner) if isinstance(node, ast.Tuple) else frozenset(inner))


def imported_names(source: Source) -> list[tuple[str, int]]:
    """(absolute module name, line) of everything a module imports, in order; packages before their parts."""
    found: list[tuple[str, int]] = []
    if source.tree is None:
        return found

    def add(name: str, line: int) -> None:
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            found.append((".".join(parts[:end]), line))

    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                add(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(source, node.module, node.level)
            if base is not None:
                if base:
                    add(base, node.lineno)
                for alias in node.names:
                    if alias.name != "*":
                        add(f"{base}.{alias.name}" if base else alias.name, node.lineno)
    return list(dict.fromkeys(found))


def absolute(source: Source, module: Optional[str], level: int) -> Optional[str]:
    """The module that `from ..module import` means in a source; None where there is no such parent."""
    if not level:
        return module or ""
    package = [] if source.name == "__main__" else source.name.split(".")
    if package and not source.is_package:
        package = package[:-1]
    if level - 1 > len(package):
        return None
    package = package[: len(package) - (level - 1)]
    return ".".join(package + ([module] if module else []))


def find(folder: str, name: str) -> Optional[str]:
    """Path of a module below the folder, relative to it; None if it is not the script's own."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return None
    if parts[0] == os.path.basename(folder) and os.path.isfile(os.path.join(folder, "__init__.py")):
        parts = parts[1:]  # the script is part of a package, and imports by its name
    stem = "/".join(parts)
    for path in (f"{stem}/__init__.py", f"{stem}.py") if parts else ("__init__.py",):
        full = os.path.join(folder, path)
        try:
            if os.path.isfile(full) and _inside(folder, full):
                return path
        except (OSError, ValueError):
            return None
    return None


def _inside(folder: str, path: str) -> bool:
    """Symbolic links may not lead out of the folder."""
    root = os.path.realpath(folder)
    return os.path.commonpath([root, os.path.realpath(path)]) == root
