"""The hints file: what it holds, writing it, and reading it with every value checked.

The file is JSON with one record per line. It holds facts about positions in source files, and no code.
Reading trusts nothing: an unknown key, a wrong type, a number out of range, a file name that leaves the
folder, or a source file that has changed are errors, and whatever reads continues without hints.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Optional, Union, get_args, get_origin, get_type_hints

from ..files.atomic import replacing
from .analysis.load import MAX_BYTES

FORMAT = "dynet_compat hints"
VERSION = 4
MAX_FILE = 64 << 20
MAX_ITEMS = 500_000
MAX_TEXT = 1000
MAX_INT = 2**31 - 1


class HintsError(Exception):
    """Why a hints file is not used, in one line."""


@dataclass(frozen=True)
class RecordingFunction:
    """A function that records ops or reads values."""

    file: str
    qualname: str


@dataclass(frozen=True)
class IndependentLoop:
    """A loop whose iterations are proved to be independent.

    renew_first: the body begins with renew_cg(). appends, sums: names that only get results, in order.
    """

    file: str
    qualname: str
    line: int
    col: int
    renew_first: bool
    appends: tuple[str, ...]
    sums: tuple[str, ...]


@dataclass(frozen=True)
class IndependentCalls:
    """Calls in neighbouring statements that are proved to be independent.

    line: of the first. last_lines, last_cols: where each ends.
    """

    file: str
    qualname: str
    line: int
    last_lines: tuple[int, ...]
    last_cols: tuple[int, ...]


@dataclass(frozen=True)
class Hints:
    """The contents of a hints file.

    Attributes:
        script: file name.
        root: the script's folder, relative to the hints file's.
        sources: file -> sha256.
    """

    script: str
    root: str
    sources: dict[str, str]
    functions: tuple[RecordingFunction, ...] = ()
    independent_loops: tuple[IndependentLoop, ...] = ()
    independent_calls: tuple[IndependentCalls, ...] = ()

    @property
    def concurrent(self) -> tuple[Union[IndependentLoop, IndependentCalls], ...]:
        """Everything whose parts may run side by side."""
        return (*self.independent_loops, *self.independent_calls)


def to_text(hints: Hints) -> str:
    """The file's text: one line per record, the same for the same hints."""
    lines = [f'{{"format": {json.dumps(FORMAT)}, "version": {VERSION}']
    for field in dataclasses.fields(hints):
        value = _plain(getattr(hints, field.name))
        if isinstance(value, list) and value and isinstance(value[0], dict):
            records = ",\n  ".join(_dump(record) for record in value)
            lines.append(f',\n"{field.name}": [\n  {records}\n]')
        else:
            lines.append(f',\n"{field.name}": {_dump(value)}')
    return "".join(lines) + "\n}\n"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(", ", ": "))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return dict(value) if isinstance(value, dict) else value


def clean(text: str) -> str:
    """A text that a hints file may hold."""
    return "".join(c if c.isprintable() else "?" for c in text)[:MAX_TEXT]


def cleaned(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(clean, texts))


def write(hints: Hints, path: str) -> None:
    """Writes a hints file; a crash leaves the old one or the new one.

    Raises:
        OSError: it cannot be written.
    """
    data = to_text(hints).encode("ascii")
    with replacing(path) as file:
        file.write(data)


def read(path: str, folder: Optional[str] = None) -> Hints:
    """Reads a hints file and checks everything in it, and that the sources are the ones it was made from.

    Args:
        path: the hints file.
        folder: the script's folder; by default what the file says, relative to its own folder.
    Returns:
        The hints.
    Raises:
        HintsError: the file is not there, foreign, damaged or stale; the reason in one line.
    """
    hints = parse(_contents(path, MAX_FILE, os.path.basename(path)))
    root = folder if folder is not None else os.path.join(os.path.dirname(os.path.abspath(path)), hints.root)
    for name, digest in hints.sources.items():
        data = _contents(os.path.join(root, name), MAX_BYTES, name)
        if hashlib.sha256(data).hexdigest() != digest:
            raise HintsError(f"stale: {name} has changed since the hints were made")
    return hints


def _contents(path: str, most: int, shown: str) -> bytes:
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise HintsError(f"{shown} is not a regular file")
        if status.st_size > most:
            raise HintsError(f"{shown} is too large")
        with open(path, "rb") as file:
            return file.read(most + 1)
    except FileNotFoundError:
        raise HintsError(f"{shown} is not there") from None
    except (OSError, ValueError) as error:
        raise HintsError(f"{shown} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def parse(data: bytes) -> Hints:
    """Checks the contents of a hints file, the sources apart.

    Raises:
        HintsError: it is foreign or damaged.
    """
    try:
        contents = json.loads(
            data.decode("utf-8"), parse_int=_integer, parse_constant=_refuse, parse_float=_refuse
        )
    except (ValueError, RecursionError, MemoryError) as error:
        raise HintsError(
            f"damaged: {str(error).splitlines()[0][:100] if str(error) else 'not JSON'}"
        ) from None
    if not isinstance(contents, dict) or contents.get("format") != FORMAT:
        raise HintsError("foreign: not a hints file of dynet_compat")
    version = contents.get("version")
    if version != VERSION or isinstance(version, bool):
        raise HintsError(f"stale: the file has format {str(version)[:20]}, this version reads {VERSION}")
    body = {key: value for key, value in contents.items() if key not in ("format", "version")}
    hints: Hints = _record(Hints, body, "file")
    _check(hints)
    return hints


def _integer(text: str) -> int:
    if len(text) > 11:
        raise ValueError("a number out of range")
    return int(text)


def _refuse(text: str) -> Any:
    raise ValueError(f"a number that no hints file has: {text[:20]}")


_fields: dict[type, dict[str, Any]] = {}


def _record(kind: type, data: Any, where: str) -> Any:
    """A record, all of its fields there and no others."""
    if not isinstance(data, dict):
        raise HintsError(f"damaged: {where} is no record")
    types = _fields.get(kind)
    if types is None:
        types = _fields[kind] = get_type_hints(kind)
    if data.keys() != types.keys():
        odd = sorted(str(key)[:40] for key in data.keys() ^ types.keys())
        raise HintsError(f"damaged: {where} has not the right fields: {odd[0]}")
    return kind(**{name: _value(form, data[name], name) for name, form in types.items()})


def _value(form: Any, data: Any, where: str) -> Any:
    """A value of a declared type. As deep as the declarations are, and no deeper."""
    origin = get_origin(form)
    if origin is tuple:
        if not isinstance(data, list) or len(data) > MAX_ITEMS:
            raise HintsError(f"damaged: {where} is no list, or too long")
        inner = get_args(form)[0]
        return tuple(_value(inner, item, where) for item in data)
    if origin is dict:
        if not isinstance(data, dict) or len(data) > 10_000:
            raise HintsError(f"damaged: {where} is no table")
        return {_value(str, key, where): _value(str, value, where) for key, value in data.items()}
    if form is str:
        if not isinstance(data, str) or len(data) > MAX_TEXT or not data.isprintable():
            raise HintsError(f"damaged: {where} is no text")
        return data
    if form is bool:
        if not isinstance(data, bool):
            raise HintsError(f"damaged: {where} is neither true nor false")
        return data
    if form is int:
        if not isinstance(data, int) or isinstance(data, bool) or not 0 <= data <= MAX_INT:
            raise HintsError(f"damaged: {where} is no number, or out of range")
        return data
    return _record(form, data, where)


def _check(hints: Hints) -> None:
    """File names stay in the folder, hashes are hashes, and records name sources."""
    for name, digest in hints.sources.items():
        parts = name.split("/")
        foreign = os.sep != "/" and ("\\" in name or ":" in name)
        if foreign or os.path.isabs(name) or any(part in ("", ".", "..") for part in parts):
            raise HintsError(f"damaged: {name[:60]} is no file of the script's folder")
        if not re.fullmatch("[0-9a-f]{64}", digest):
            raise HintsError("damaged: a hash is none")
    if hints.script not in hints.sources:
        raise HintsError("damaged: the script is not among the sources")
    if os.path.isabs(hints.root):
        raise HintsError("damaged: root is not relative")
    for name in [f.file for f in hints.functions] + [record.file for record in hints.concurrent]:
        if name not in hints.sources:
            raise HintsError(f"damaged: {name[:60]} is not among the sources")
