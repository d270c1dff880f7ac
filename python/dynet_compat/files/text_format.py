"""DyNet's text files of parameters, and the methods of collections and parameters that use them.

A file is written as a whole or not at all, and loaded as a whole or not at all: what is damaged or does not
fit raises an error that names file, line, and what was expected and found.
"""

from __future__ import annotations

import functools
import io
import os
import types
from collections.abc import Iterable, Sequence
from typing import Any, Optional, Union

from .. import _core
from .._core import LookupParameters, ParameterCollection, Parameters
from ..api.legacy import deprecated
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


def _text(op: str, name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{op}: expected a str for {name}, got {type(value).__name__}")
    if value != shown(value):
        raise ValueError(f"{op}: expected text for {name}, got {value!r}")
    return value


def shown(path: str) -> str:
    """A file name for messages; it may hold bytes that are no text."""
    return path.encode("utf-8", "backslashreplace").decode()


# ------------------------------------------------------------------------------------------- writing


def _check_key(op: str, key: str, rooted: bool) -> None:
    if any(c.isspace() or c in "#\0" for c in key):
        raise ValueError(f"{op}: expected a key without white space and '#', got {key!r}")
    if rooted and (not key.startswith("/") or key == "/"):
        raise ValueError(f"{op}: expected a key that starts with '/' and goes on, got {key!r}")


def _write(op: str, fname: Any, pairs: list[tuple[Parameter, str]], append: bool) -> None:
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
    for p in _parameters_of(pc):
        name = p.name()
        if key:  # parameters of load_param() may have names of another collection
            inner = name[len(own) :] if name.startswith(own) else name.lstrip("/")
            name = as_prefix(key) + inner
        pairs.append((p, name))
    return pairs


def _parameters_of(pc: ParameterCollection) -> list[Parameter]:
    """In the order of files."""
    listed = ParameterCollection.parameters_list(pc)
    return [*listed, *ParameterCollection.lookup_parameters_list(pc)]


# ------------------------------------------------------------------------------------------- reading


def _dims(dims: Iterable[int]) -> str:
    return "{" + ",".join(map(str, dims)) + "}"


def kind_of(lookup: bool) -> str:
    return "LookupParameter" if lookup else "Parameter"


def _open(op: str, path: str) -> io.FileIO:
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
    targets = _parameters_of(pc)
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


def _populate_one(op: str, p: Parameter, fname: Any, key: Any) -> None:
    path = path_of(op, fname)
    lookup, name, dims, _ = _core._describe(p)
    block = _read_block(op, path, lookup, _text(op, "key", key))
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


def _load_new(op: str, pc: ParameterCollection, fname: Any, key: Any, lookup: bool) -> Any:
    block = _read_block(op, path_of(op, fname), lookup, _text(op, "key", key))
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


def _objects() -> Any:
    from . import objects

    return objects


# ----------------------------------------------------------------------------------- methods of types


class _CollectionMethods:
    """Methods that ParameterCollection gets."""

    def save(self: Any, fname: Path, name: Any = "", append: bool = False) -> None:
        """Write all parameters to a text file of DyNet's format.

        Args:
            fname: the file. It is replaced as a whole: a crash leaves the old one.
            name: what stands for the collection's own name in the file, such as "/model".
            append: keep what is in the file, and write after it.
        Raises:
            ValueError: the name does not start with "/", is only that, or has a blank or '#'.
            RuntimeError: the file cannot be written.
        Source: DyNet 2.1 `ParameterCollection.save`.
        Example:
            >>> import os, tempfile
            >>> fname = os.path.join(tempfile.mkdtemp(), "model.txt")
            >>> pc = dy.ParameterCollection()
            >>> W = pc.add_parameters(2, init=0.5, name="W")
            >>> pc.save(fname)
            >>> print(open(fname).read())
            #Parameter# /W {2} 33 ZERO_GRAD
            +5.00000000e-01 +5.00000000e-01
            <BLANKLINE>
        """
        op = "ParameterCollection.save()"
        if isinstance(name, (list, tuple)):
            deprecated("Model.save(fname, components)", "say dy.save(fname, components)")
            return _objects().save(fname, name)  # type: ignore[no-any-return]
        key = _text(op, "name", name)
        if key:
            _check_key(op, key, True)
        _write(op, fname, named(self, key), append)

    def write_to_textfile(self: Any, fname: Path, key: str = "", append: bool = False) -> None:
        """The older name of `save`.

        Args:
            fname, key, append: as in `save(fname, name, append)`.
        Raises:
            ValueError, RuntimeError: as by `save`.
        Source: DyNet 2.1 `ParameterCollection.write_to_textfile`.
        Example:
            >>> import os, tempfile
            >>> fname = os.path.join(tempfile.mkdtemp(), "model.txt")
            >>> pc = dy.ParameterCollection()
            >>> p = pc.add_parameters(1, init=2)
            >>> pc.write_to_textfile(fname)
            >>> open(fname).readline()
            '#Parameter# /_0 {1} 17 ZERO_GRAD\\n'
        """
        ParameterCollection.save(self, fname, key, append)

    def populate(self: Any, fname: Path, key: str = "") -> None:
        """Read the values of all parameters, and gradients if there are some, from a file of `save`.

        Parameters and LookupParameters are each assigned by order; names are not compared.

        Args:
            fname: the file.
            key: only what is stored under this key, such as "/model".
        Raises:
            RuntimeError: there is no such file, or it is damaged, or does not fit. Nothing is loaded then.
        Source: DyNet 2.1 `ParameterCollection.populate`.
        Example:
            >>> import os, tempfile
            >>> fname = os.path.join(tempfile.mkdtemp(), "model.txt")
            >>> pc = dy.ParameterCollection()
            >>> W = pc.add_parameters((2, 3))
            >>> pc.save(fname, "/model")
            >>> other = dy.ParameterCollection()
            >>> V = other.add_parameters((2, 3))
            >>> other.populate(fname, "/model")
            >>> bool((V.as_array() == W.as_array()).all())
            True
        """
        op = "ParameterCollection.populate()"
        path, prefix = path_of(op, fname), _text(op, "key", key)
        others: list[_core._FileBlock] = []
        blocks = read_blocks(op, path, as_prefix(prefix) if prefix else "", others)
        if prefix and others and not blocks and _parameters_of(self):
            keys = ", ".join(block.key for block in others[:5])
            prefix = as_prefix(prefix)
            raise RuntimeError(f"{op}: {path} has no keys that start with {prefix!r}; it has {keys}")
        _core._restore(matched(op, path, blocks, self))

    def populate_from_textfile(self: Any, fname: Path, key: str = "") -> None:
        """The older name of `populate`.

        Args:
            fname, key: as in `populate`.
        Raises:
            RuntimeError: as by `populate`.
        Source: DyNet 2.1 `ParameterCollection.populate_from_textfile`.
        Example:
            >>> import os, tempfile
            >>> fname = os.path.join(tempfile.mkdtemp(), "model.txt")
            >>> pc = dy.ParameterCollection()
            >>> p = pc.add_parameters(1, init=2)
            >>> pc.save(fname)
            >>> p.set_value([5])
            >>> pc.populate_from_textfile(fname)
            >>> p.as_array()
            array([2.])
        """
        ParameterCollection.populate(self, fname, key)

    def load_param(self: Any, fname: Path, key: str) -> Parameters:
        """New Parameters with the size, the values and the name of one in a file.

        Args:
            fname: a file of `save`.
            key: the name there.
        Raises:
            RuntimeError: no such file, no Parameters of this name, or a damaged file.
        Source: DyNet 2.1 `ParameterCollection.load_param`.
        Example:
            >>> import os, tempfile
            >>> fname = os.path.join(tempfile.mkdtemp(), "model.txt")
            >>> dy.ParameterCollection().add_parameters((2, 3)).save(fname, "/W")
            >>> W = dy.ParameterCollection().load_param(fname, "/W")
            >>> W.shape(), W.name()
            ((2, 3), '/W')
        """
        return _load_new("load_param()", self, fname, key, False)  # type: ignore[no-any-return]

    def load_lookup_param(self: Any, fname: Path, key: str) -> LookupParameters:
        """New LookupParameters with the size, the values and the name of a table in a file.

        Args:
            fname: a file of `save`.
            key: the name there.
        Raises:
            RuntimeError: no such file, no LookupParameters of this name, or a damaged file.
        Source: DyNet 2.1 `ParameterCollection.load_lookup_param`.
        Example:
            >>> import os, tempfile
            >>> fname = os.path.join(tempfile.mkdtemp(), "model.txt")
            >>> dy.ParameterCollection().add_lookup_parameters((5, 2)).save(fname, "/E")
            >>> dy.ParameterCollection().load_lookup_param(fname, "/E").shape()
            (5, 2)
        """
        return _load_new("load_lookup_param()", self, fname, key, True)  # type: ignore[no-any-return]

    def load(self: Any, fname: Path) -> Any:  # a list, or None for files of values
        """DyNet 1.x's way to read what `Model.save` wrote: objects, or values of all parameters.

        Args:
            fname: a name given to `dy.save`, or to `Model.save` with or without components.
        Returns:
            The objects, or None where the file holds values only.
        Raises:
            RuntimeError: written by DyNet 1.x itself, or damaged, or not fitting.
        Source: DyNet 1.1 `Model.load`.
        Example:
            >>> import os, tempfile
            >>> fname = os.path.join(tempfile.mkdtemp(), "model.txt")
            >>> pc = dy.ParameterCollection()
            >>> p = pc.add_parameters(1, init=2)
            >>> pc.save(fname, [p])
            >>> [q] = dy.ParameterCollection().load(fname)
            >>> q.as_array()
            array([2.])
        """
        op, path = "Model.load()", path_of("Model.load()", fname)
        deprecated("Model.load", "say dy.load(fname, model), or model.populate(fname)")
        refuse_1x(op, path)
        if os.path.exists(path + ".meta"):
            return _objects().load(path, self)
        ParameterCollection.populate(self, path)
        return None

    def save_all(self: Any, fname: Path) -> None:
        """DyNet 1.x's name of `save(fname)`.

        Args:
            fname: the file.
        Raises:
            RuntimeError: the file cannot be written.
        Source: DyNet 1.1 `Model.save_all`.
        Example:
            >>> import os, tempfile
            >>> fname = os.path.join(tempfile.mkdtemp(), "model.txt")
            >>> pc = dy.ParameterCollection()
            >>> p = pc.add_parameters(1, init=2)
            >>> pc.save_all(fname)
            >>> os.path.exists(fname)
            True
        """
        deprecated("Model.save_all", "say model.save(fname)")
        ParameterCollection.save(self, fname)

    def load_all(self: Any, fname: Path) -> None:
        """DyNet 1.x's name of `populate(fname)`.

        Args:
            fname: a file of `save` or `save_all`.
        Raises:
            RuntimeError: as by `populate`.
        Source: DyNet 1.1 `Model.load_all`.
        Example:
            >>> import os, tempfile
            >>> fname = os.path.join(tempfile.mkdtemp(), "model.txt")
            >>> pc = dy.ParameterCollection()
            >>> p = pc.add_parameters(1, init=2)
            >>> pc.save_all(fname)
            >>> p.set_value([5])
            >>> pc.load_all(fname)
            >>> p.as_array()
            array([2.])
        """
        deprecated("Model.load_all", "say model.populate(fname)")
        ParameterCollection.populate(self, fname)


class _ParameterMethods:
    """Methods that Parameters and LookupParameters get."""

    def save(self: Any, fname: Path, key: str = "", append: bool = False) -> None:
        """Write the values to a text file of DyNet's format.

        Args:
            fname: the file. It is replaced as a whole: a crash leaves the old one.
            key: the name in the file, by default the full name.
            append: keep what is in the file, and write after it.
        Raises:
            ValueError: the key has a blank or '#'.
            RuntimeError: the file cannot be written.
        Source: DyNet 2.1 `Parameters.save`.
        Example:
            >>> import os, tempfile
            >>> fname = os.path.join(tempfile.mkdtemp(), "model.txt")
            >>> p = dy.ParameterCollection().add_parameters(1, init=2)
            >>> p.save(fname, "/p")
            >>> open(fname).readline()
            '#Parameter# /p {1} 17 ZERO_GRAD\\n'
        """
        op = f"{type(self).__name__}.save()"
        _check_key(op, _text(op, "key", key), False)
        _write(op, fname, [(self, key or self.name())], append)

    def write_to_textfile(self: Any, fname: Path, key: str = "", append: bool = False) -> None:
        """The older name of `save`.

        Args:
            fname, key, append: as in `save`.
        Raises:
            ValueError, RuntimeError: as by `save`.
        Source: DyNet 2.1 `Parameters.write_to_textfile`.
        Example:
            >>> import os, tempfile
            >>> fname = os.path.join(tempfile.mkdtemp(), "model.txt")
            >>> dy.ParameterCollection().add_parameters(1, init=2).write_to_textfile(fname)
            >>> open(fname).readline()
            '#Parameter# /_0 {1} 17 ZERO_GRAD\\n'
        """
        type(self).save(self, fname, key, append)

    def populate(self: Any, fname: Path, key: str) -> None:
        """Read the values, and the gradient if there is one, from a file.

        Args:
            fname: a file of `save`.
            key: the name there.
        Raises:
            ValueError: the key is empty.
            RuntimeError: no such file or name, other sizes, or a damaged file. Nothing is loaded then.
        Source: DyNet 2.1 `Parameters.populate`.
        Example:
            >>> import os, tempfile
            >>> fname = os.path.join(tempfile.mkdtemp(), "model.txt")
            >>> pc = dy.ParameterCollection()
            >>> pc.add_parameters(1, init=2).save(fname, "/p")
            >>> q = pc.add_parameters(1)
            >>> q.populate(fname, "/p")
            >>> q.as_array()
            array([2.])
        """
        _populate_one(f"{type(self).__name__}.populate()", self, fname, key)

    def populate_from_textfile(self: Any, fname: Path, key: str = "") -> None:
        """The older name of `populate`.

        Args:
            fname, key: as in `populate`.
        Raises:
            ValueError, RuntimeError: as by `populate`.
        Source: DyNet 2.1 `Parameters.populate_from_textfile`.
        Example:
            >>> import os, tempfile
            >>> fname = os.path.join(tempfile.mkdtemp(), "model.txt")
            >>> pc = dy.ParameterCollection()
            >>> p = pc.add_parameters(1, init=2)
            >>> p.save(fname, "/p")
            >>> p.set_value([5])
            >>> p.populate_from_textfile(fname, "/p")
            >>> p.as_array()
            array([2.])
        """
        type(self).populate(self, fname, key)


class _LookupMethods:
    """What differs for LookupParameters: the key has a default, though an empty one is refused."""

    def populate(self: Any, fname: Path, key: str = "") -> None:
        """Read the table, and its gradient if there is one, from a file.

        Args:
            fname: a file of `save`.
            key: the name there.
        Raises:
            ValueError: the key is empty.
            RuntimeError: no such file or name, other sizes, or a damaged file. Nothing is loaded then.
        Source: DyNet 2.1 `LookupParameters.populate`.
        Example:
            >>> import os, tempfile
            >>> fname = os.path.join(tempfile.mkdtemp(), "model.txt")
            >>> E = dy.ParameterCollection().add_lookup_parameters((3, 1), init=2)
            >>> E.save(fname, "/E")
            >>> E.init_row(1, [5])
            >>> E.populate(fname, "/E")
            >>> E[1].value()
            2.0
        """
        _populate_one("LookupParameters.populate()", self, fname, key)


def _methods(owner: str, *classes: type) -> dict[str, Any]:
    """Copies of the functions, named after the type that gets them."""
    made = {}
    for name, item in ((name, item) for c in classes for name, item in vars(c).items()):
        if isinstance(item, types.FunctionType):
            made[name] = types.FunctionType(item.__code__, item.__globals__, name, item.__defaults__)
            functools.update_wrapper(made[name], item)
            del made[name].__wrapped__  # type: ignore[attr-defined]
            made[name].__qualname__ = f"{owner}.{name}"
            made[name].__module__ = "_dynet"
    return made


_core._add_methods(ParameterCollection, _methods("ParameterCollection", _CollectionMethods))
_core._add_methods(Parameters, _methods("Parameters", _ParameterMethods))
_core._add_methods(LookupParameters, _methods("LookupParameters", _ParameterMethods, _LookupMethods))
