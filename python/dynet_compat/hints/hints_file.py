"""Pass 12: the hints file. What it holds, writing it, and reading it with every value checked.

The file is JSON with one record per line. It holds facts about positions in source files, and no code.
Reading trusts nothing: an unknown key, a wrong type, a number out of range, a file name that leaves the
folder, or a source file that has changed are errors, and whoever reads goes on without hints.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import stat
from dataclasses import dataclass
from typing import Any, Optional, Union, get_args, get_origin, get_type_hints

from ..files.atomic import replacing
from .analysis.load import MAX_BYTES

FORMAT = "dynet_compat hints"
VERSION = 2
MAX_FILE = 64 << 20
MAX_ITEMS = 500_000
MAX_TEXT = 1000
MAX_INT = 2**31 - 1


class HintsError(Exception):
    """Why a hints file is not used, in one line."""


@dataclass(frozen=True)
class Place:
    """Where something is: columns count bytes of UTF-8, as in syntax trees and `co_positions`."""

    file: str
    qualname: str
    line: int
    col: int
    end_line: int
    end_col: int


@dataclass(frozen=True)
class Site:
    """A place that records an op.

    loops: the loops around, outermost first, those of the callers included where they agree.
    vector: position, loop, position, ..., position: what nested loops are ordered by.
    phase: smaller phases feed larger ones; equal on a cycle.
    role: before, within or after a recurrence, or apart.
    """

    place: Place
    op: str
    kinds: tuple[str, ...]
    loops: tuple[int, ...]
    vector: tuple[int, ...]
    phase: int
    role: str


@dataclass(frozen=True)
class Loop:
    """A loop that records ops.

    form: for, while, comprehension. kind: recurrence, map, graph (graphs begin in its iterations).
    carried: what goes from one iteration to the next; sums, collects: what is only added or appended to.
    path: loops around it, and itself.
    """

    place: Place
    form: str
    kind: str
    carried: tuple[str, ...]
    sums: tuple[str, ...]
    collects: tuple[str, ...]
    path: tuple[int, ...]


@dataclass(frozen=True)
class Branch:
    """A branch. kind: tensor (the test reads numbers of the graph) or structure. arms: ops, if fixed."""

    place: Place
    kind: str
    arms: tuple[Optional[int], ...]


@dataclass(frozen=True)
class BlockOp:
    """An op of a block; args are numbers of ops of the block, -1 for values from elsewhere."""

    site: int
    args: tuple[int, ...]


@dataclass(frozen=True)
class Block:
    """Ops that are recorded one after another whenever the first is."""

    place: Place
    ops: tuple[BlockOp, ...]


@dataclass(frozen=True)
class Template:
    """A function that records the same ops in each call: a candidate, to be verified when it runs."""

    file: str
    qualname: str
    line: int
    col: int
    ops: int
    random: bool


@dataclass(frozen=True)
class Helper:
    """A function that meets different weights from different calls."""

    file: str
    qualname: str
    line: int
    calls: tuple[Place, ...]


@dataclass(frozen=True)
class Weight:
    """A parameter: as it is written, where it was made, and its key if one call made several."""

    name: str
    file: str
    line: int
    col: int
    key: Optional[str]


@dataclass(frozen=True)
class ParamGroup:
    """Weights that are applied to one input."""

    file: str
    qualname: str
    line: int
    input: str
    params: tuple[Weight, ...]


@dataclass(frozen=True)
class Recursion:
    """A function that calls itself; siblings are calls that do not need each other's results."""

    file: str
    qualname: str
    line: int
    siblings: tuple[tuple[Place, ...], ...]


@dataclass(frozen=True)
class InstanceLoop:
    """The loop over instances. kind: batch (several in a graph) or online (a graph for each)."""

    loop: int
    file: str
    qualname: str
    line: int
    col: int
    kind: str
    training: bool


@dataclass(frozen=True)
class SyncPoint:
    """A place where numbers are read from the graph."""

    place: Place
    method: str


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
class Note:
    """Something that the analysis could not see through."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class LaunchCount:
    """How many launches with 2**size to 2**(size+1)-1 members had a node of this place; col -1: not known."""

    file: str
    line: int
    col: int
    op: str
    size: int
    launches: int


@dataclass(frozen=True)
class Way:
    """A way to run some work that was faster than the rule; the engine checks that it knows all of it.

    choice, ops, extents: which work. size: of 2**size to 2**(size+1)-1 members, or columns of a product.
    percent: time of the rule in percent of this way's. rounds: how often both were measured.
    """

    choice: str
    ops: tuple[str, ...]
    extents: tuple[int, ...]
    size: int
    way: str
    percent: int
    rounds: int


@dataclass(frozen=True)
class Profile:
    """What a run with --profile counted, and what it measured with these instructions and threads."""

    arguments: str
    graphs: int
    nodes: int
    launches: tuple[LaunchCount, ...]
    isa: str
    threads: int
    ways: tuple[Way, ...]


@dataclass(frozen=True)
class Hints:
    """The contents of a hints file."""

    script: str
    root: str  # the script's folder, relative to the hints file's
    complete: bool
    sources: dict[str, str]  # file -> sha256
    problems: tuple[Note, ...] = ()
    sites: tuple[Site, ...] = ()
    loops: tuple[Loop, ...] = ()
    branches: tuple[Branch, ...] = ()
    blocks: tuple[Block, ...] = ()
    templates: tuple[Template, ...] = ()
    helpers: tuple[Helper, ...] = ()
    param_groups: tuple[ParamGroup, ...] = ()
    recursion: tuple[Recursion, ...] = ()
    instance_loop: Optional[InstanceLoop] = None
    instance_loops: tuple[InstanceLoop, ...] = ()
    sync_points: tuple[SyncPoint, ...] = ()
    phases: tuple[int, ...] = ()  # of each site
    independent_loops: tuple[IndependentLoop, ...] = ()
    profile: Optional[Profile] = None


# ---------------------------------------------------------------- writing


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


def write(hints: Hints, path: str) -> None:
    """Writes a hints file; a crash leaves the old one or the new one.

    Raises:
        OSError: it cannot be written.
    """
    data = to_text(hints).encode("ascii")
    with replacing(path) as file:
        file.write(data)


# ---------------------------------------------------------------- reading


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
    if contents.get("version") != VERSION or isinstance(contents.get("version"), bool):
        raise HintsError(
            f"foreign: version {str(contents.get('version'))[:20]}, this is for version {VERSION}"
        )
    body = {key: value for key, value in contents.items() if key not in ("format", "version")}
    hints: Hints = _record(Hints, body, "file")
    _check_references(hints)
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
    if origin is Union:
        return None if data is None else _value(get_args(form)[0], data, where)
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
        if not isinstance(data, int) or isinstance(data, bool) or not -1 <= data <= MAX_INT:
            raise HintsError(f"damaged: {where} is no number, or out of range")
        return data
    return _record(form, data, where)


def _check_references(hints: Hints) -> None:
    """File names stay in the folder, hashes are hashes, numbers of sites and loops exist."""
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
    n_sites, n_loops = len(hints.sites), len(hints.loops)
    for record in _all_records(hints):
        file = getattr(record, "file", None)
        if file is not None and file not in hints.sources:
            raise HintsError(f"damaged: {file[:60]} is not among the sources")
    loops = [i for site in hints.sites for i in (*site.loops, *site.vector[1::2])]
    loops += [i for loop in hints.loops for i in loop.path] + [i.loop for i in hints.instance_loops]
    loops += [hints.instance_loop.loop] if hints.instance_loop is not None else []
    if any(not 0 <= i < n_loops for i in loops):
        raise HintsError("damaged: there is no such loop")
    for block in hints.blocks:
        for number, op in enumerate(block.ops):
            if not 0 <= op.site < n_sites or any(arg >= number for arg in op.args):
                raise HintsError("damaged: a block refers to what comes after it")
    if len(hints.phases) != n_sites:
        raise HintsError("damaged: not a phase for every site")


def _all_records(hints: Hints) -> list[Any]:
    """Every record that names a file."""
    found: list[Any] = []
    stack: list[Any] = [hints]
    while stack:
        value = stack.pop()
        if isinstance(value, tuple):
            stack.extend(value)
        elif dataclasses.is_dataclass(value):
            found.append(value)
            stack.extend(getattr(value, field.name) for field in dataclasses.fields(value))
    return found
