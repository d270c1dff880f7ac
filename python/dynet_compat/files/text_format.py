"""DyNet's text files of parameters, and the methods of collections and parameters that use them.

A file is written as a whole or not at all, and loaded as a whole or not at all: what is damaged or does not
fit raises an error that names file, line, and what was expected and found.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from typing import Any, Optional, Union

from .. import _core
from .._core import LookupParameters, ParameterCollection, Parameters
from . import atomic
from .atomic import replacing

Path = Union[str, "os.PathLike[str]"]
Parameter = Union[Parameters, LookupParameters]
Pair = tuple[Parameter, "_core._FileBlock"]

_MOST_LINES = 20  # of a message


def path_of(op: str, fname: Any) -> str:
    try:
        return os.fsdecode(fname)
    except TypeError:
        raise TypeError(f"{op}: expected a file name, got {type(fname).__name__}") from None


def text_argument(op: str, name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{op}: expected a str for {name}, got {type(value).__name__}")
    if value != shown(value):
        raise ValueError(f"{op}: expected text for {name}, got {value!r}")
    return value


def shown(path: str) -> str:
    """A file name for messages; it may hold bytes that are no text."""
    return path.encode("utf-8", "backslashreplace").decode()


def check_key(op: str, key: str, rooted: bool) -> None:
    if any(c.isspace() or c in "#\0" for c in key):
        raise ValueError(f"{op}: expected a key without white space and '#', got {key!r}")
    if rooted and (not key.startswith("/") or key == "/"):
        raise ValueError(f"{op}: expected a key that starts with '/' and goes on, got {key!r}")


def write(op: str, fname: Any, pairs: list[tuple[Parameter, str]], append: bool) -> None:
    path = path_of(op, fname)
    try:
        with replacing(path, append) as new:
            _core._write_parameters(new.fd, shown(path), pairs)
    except OSError as error:
        raise RuntimeError(f"{op}: cannot write {path!r}: {error.strerror or error}") from error


def as_prefix(key: str) -> str:
    return key if key.endswith("/") else key + "/"


def named(pc: ParameterCollection, key: str = "") -> list[tuple[Parameter, str]]:
    """The parameters of a collection with their names in a file."""
    own, pairs = pc.name(), []
    for p in parameters_of(pc):
        name = p.name()
        if key:  # parameters of load_param() may have names of another collection
            inner = name[len(own) :] if name.startswith(own) else name.lstrip("/")
            name = as_prefix(key) + inner
        pairs.append((p, name))
    return pairs


def parameters_of(pc: ParameterCollection) -> list[Parameter]:
    """In the order of files, of states and of flat arrays: parameters, then tables."""
    listed = ParameterCollection.parameters_list(pc)
    return [*listed, *ParameterCollection.lookup_parameters_list(pc)]


def _dims(dims: Iterable[int]) -> str:
    return "{" + ",".join(map(str, dims)) + "}"


def kind_of(lookup: bool) -> str:
    return "LookupParameter" if lookup else "Parameter"


def _open(op: str, path: str) -> io.FileIO:
    atomic.role.before_load()
    try:
        return io.FileIO(path, "rb")
    except OSError as error:
        raise RuntimeError(f"{op}: cannot read {path!r}: {error.strerror or error}") from error


def read_blocks(
    op: str, path: str, prefix: str, others: list[Any], opened: Optional[io.FileIO] = None
) -> list[_core._FileBlock]:
    """The blocks whose keys start with the prefix; the rest, without numbers, goes to `others`."""
    with opened or _open(op, path) as file:
        try:
            return _core._read_blocks(file.fileno(), shown(path), prefix, others)
        except OSError as error:
            raise RuntimeError(f"{op}: cannot read {path!r}: {error.strerror or error}") from error
        except RuntimeError as error:
            raise RuntimeError(f"{op}: {error}. Nothing was loaded.") from None


def _read_block(op: str, path: str, lookup: bool, key: str) -> _core._FileBlock:
    """The first block of this kind and key."""
    if not key:
        raise ValueError(f"{op}: expected the key of a parameter in {path!r}, got ''")
    others: list[_core._FileBlock] = []
    with _open(op, path) as file:
        try:
            found = _core._read_block(file.fileno(), shown(path), lookup, key, others)
        except OSError as error:
            raise RuntimeError(f"{op}: cannot read {path!r}: {error.strerror or error}") from error
        except RuntimeError as error:
            raise RuntimeError(f"{op}: {error}. Nothing was loaded.") from None
    if found is not None:
        return found
    raise RuntimeError(missing(op, path, lookup, key, others))


def missing(op: str, path: str, lookup: bool, key: str, others: Sequence[_core._FileBlock]) -> str:
    message = f"{op}: {path} has no {kind_of(lookup)} with the key {key!r}"
    for block in others:
        if block.key == key:
            return f"{message}: it is a {kind_of(block.lookup)} there, line {block.line}"
    import difflib  # not at the start: the package must be imported fast

    keys = [block.key for block in others if block.lookup == lookup]
    near = difflib.get_close_matches(key, keys[:500], 5, 0.3) or keys[:5]
    return f"{message}; it has {', '.join(near)}" if near else f"{message}; it has none of this kind"


def matched(op: str, path: str, blocks: Sequence[_core._FileBlock], pc: ParameterCollection) -> list[Pair]:
    """Parameters of the collection with their blocks, by order; an error shows what does not fit."""
    ordered = [b for b in blocks if not b.lookup] + [b for b in blocks if b.lookup]
    there = [(b.lookup, b.dims) for b in ordered]
    targets = parameters_of(pc)
    described = [_core._describe(p) for p in targets]
    wanted = [(lookup, dims) for lookup, _, dims, _ in described]
    if there == wanted:
        return list(zip(targets, ordered))
    in_file = [f"{kind_of(b.lookup)} {b.key} {_dims(b.dims)}" for b in ordered]
    in_model = [f"{kind_of(lookup)} {name} {_dims(dims)}" for lookup, name, dims, _ in described]
    start = next((i for i, (x, y) in enumerate(zip(there, wanted)) if x != y), min(len(there), len(wanted)))
    where = f", line {ordered[start].line}" if start < len(ordered) else ""
    found = in_file[start] if start < len(ordered) else "no more"
    expected = in_model[start] if start < len(wanted) else "no more"
    with_lines = [f"{item}  (line {b.line})" for item, b in zip(in_file, ordered)]
    raise RuntimeError(
        f"{op}: {path}{where}: expected {expected}, found {found}. The file has {_counts(there)}, the "
        f"collection {pc.name()} {_counts(wanted)}. Nothing was loaded.\n--- {path}\n+++ {pc.name()}\n"
        + "\n".join(_difference(there, wanted, with_lines, in_model, start))
    )


def _counts(kinds: Sequence[tuple[bool, Any]]) -> str:
    tables = sum(lookup for lookup, _ in kinds)
    return f"{len(kinds) - tables} Parameters and {tables} LookupParameters"


def _difference(a: list[Any], b: list[Any], a_text: list[str], b_text: list[str], start: int) -> list[str]:
    """The first places where a and b differ, as a diff."""
    import difflib

    first = max(0, start - 2)
    lines = ["  ..."] * (first > 0) + ["  " + text for text in b_text[first:start]]
    window = slice(start, start + 4 * _MOST_LINES)  # comparing all of a large model would take long
    matcher = difflib.SequenceMatcher(None, a[window], b[window], autojunk=False)
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag == "equal":
            lines += ["  " + text for text in b_text[start + k : start + m]]
            continue
        lines += ["- " + text for text in a_text[start + i : start + j]]
        lines += ["+ " + text for text in b_text[start + k : start + m]]
    more = len(lines) > _MOST_LINES or max(len(a), len(b)) > window.stop
    return lines[:_MOST_LINES] + ["  ..."] * more


def populate_one(op: str, p: Parameter, fname: Any, key: Any) -> None:
    path = path_of(op, fname)
    lookup, name, dims, _ = _core._describe(p)
    block = _read_block(op, path, lookup, text_argument(op, "key", key))
    if block.dims != dims:
        raise RuntimeError(
            f"{op}: {path}, line {block.line}: expected sizes {_dims(dims)} for {name}, found "
            f"{kind_of(lookup)} {block.key} {_dims(block.dims)}. Nothing was loaded."
        )
    _core._restore([(p, block)])


def new_like(pc: ParameterCollection, block: _core._FileBlock) -> Parameter:
    """A parameter of the block's size and name, initialised as any new one: that draws random numbers."""
    made: Parameter
    if block.lookup:
        made = ParameterCollection.add_lookup_parameters(pc, (block.dims[-1], *block.dims[:-1]))
    else:
        made = ParameterCollection.add_parameters(pc, block.dims)
    _core._rename(made, block.key)
    return made


def load_new(op: str, pc: ParameterCollection, fname: Any, key: Any, lookup: bool) -> Any:
    block = _read_block(op, path_of(op, fname), lookup, text_argument(op, "key", key))
    mark = _core._mark(pc)
    try:
        made = new_like(pc, block)
        _core._restore([(made, block)])
    except BaseException:
        _core._roll_back(mark)
        raise
    return made


def refuse_1x(op: str, path: str) -> None:
    """An error for objects saved by DyNet 1.x, whose files cannot be read here."""
    if os.path.exists(path + ".meta") or not any(os.path.exists(path + end) for end in (".pym", ".pyk")):
        return
    raise RuntimeError(
        f"{op}: {path}.pym and {path}.pyk are files of Model.save(fname, components) of DyNet 1.x: pickles "
        "of that version's own objects, which no later version reads. Load them with DyNet 1.x, write the "
        "values with as_array(), and make the objects again"
    )
