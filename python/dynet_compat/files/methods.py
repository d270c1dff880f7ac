"""The methods of collections and parameters that read and write files."""

from __future__ import annotations

import functools
import os
import types
from typing import Any

from .. import _core
from .._core import LookupParameters, ParameterCollection, Parameters
from ..api.legacy import deprecated
from . import objects
from .text_format import (
    Path,
    as_prefix,
    check_key,
    load_new,
    matched,
    named,
    parameters_of,
    path_of,
    populate_one,
    read_blocks,
    refuse_1x,
    text_argument,
    write,
)


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
            >>> pc = dy.ParameterCollection()
            >>> W = pc.add_parameters(2, init=0.5, name="W")
            >>> pc.save("model.txt")
            >>> print(open("model.txt").read())
            #Parameter# /W {2} 33 ZERO_GRAD
            +5.00000000e-01 +5.00000000e-01
            <BLANKLINE>
        """
        op = "ParameterCollection.save()"
        if isinstance(name, (list, tuple)):
            deprecated("Model.save(fname, components)", "say dy.save(fname, components)")
            return objects.save(fname, name)
        key = text_argument(op, "name", name)
        if key:
            check_key(op, key, True)
        write(op, fname, named(self, key), append)

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
            >>> pc = dy.ParameterCollection()
            >>> W = pc.add_parameters((2, 3))
            >>> pc.save("model.txt", "/model")
            >>> other = dy.ParameterCollection()
            >>> V = other.add_parameters((2, 3))
            >>> other.populate("model.txt", "/model")
            >>> bool((V.as_array() == W.as_array()).all())
            True
        """
        op = "ParameterCollection.populate()"
        path, prefix = path_of(op, fname), text_argument(op, "key", key)
        others: list[_core._FileBlock] = []
        blocks = read_blocks(op, path, as_prefix(prefix) if prefix else "", others)
        if prefix and others and not blocks and parameters_of(self):
            keys = ", ".join(block.key for block in others[:5])
            prefix = as_prefix(prefix)
            raise RuntimeError(f"{op}: {path} has no keys that start with {prefix!r}; it has {keys}")
        _core._restore(matched(op, path, blocks, self))

    def load_param(self: Any, fname: Path, key: str) -> Parameters:
        """New Parameters with the size, the values and the name of one in a file.

        Args:
            fname: a file of `save`.
            key: the name there.
        Raises:
            RuntimeError: no such file, no Parameters of this name, or a damaged file.
        Source: DyNet 2.1 `ParameterCollection.load_param`.
        Example:
            >>> dy.ParameterCollection().add_parameters((2, 3)).save("model.txt", "/W")
            >>> W = dy.ParameterCollection().load_param("model.txt", "/W")
            >>> W.shape(), W.name()
            ((2, 3), '/W')
        """
        return load_new("load_param()", self, fname, key, False)  # type: ignore[no-any-return]

    def load_lookup_param(self: Any, fname: Path, key: str) -> LookupParameters:
        """New LookupParameters with the size, the values and the name of a table in a file.

        Args:
            fname: a file of `save`.
            key: the name there.
        Raises:
            RuntimeError: no such file, no LookupParameters of this name, or a damaged file.
        Source: DyNet 2.1 `ParameterCollection.load_lookup_param`.
        Example:
            >>> dy.ParameterCollection().add_lookup_parameters((5, 2)).save("model.txt", "/E")
            >>> dy.ParameterCollection().load_lookup_param("model.txt", "/E").shape()
            (5, 2)
        """
        return load_new("load_lookup_param()", self, fname, key, True)  # type: ignore[no-any-return]

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
            >>> pc = dy.ParameterCollection()
            >>> p = pc.add_parameters(1, init=2)
            >>> pc.save("model.txt", [p])
            >>> [q] = dy.ParameterCollection().load("model.txt")
            >>> q.as_array()
            array([2.])
        """
        op, path = "Model.load()", path_of("Model.load()", fname)
        deprecated("Model.load", "say dy.load(fname, model), or model.populate(fname)")
        refuse_1x(op, path)
        if os.path.exists(path + ".meta"):
            return objects.load(path, self)
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
            >>> import os
            >>> pc = dy.ParameterCollection()
            >>> p = pc.add_parameters(1, init=2)
            >>> pc.save_all("model.txt")
            >>> os.path.exists("model.txt")
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
            >>> pc = dy.ParameterCollection()
            >>> p = pc.add_parameters(1, init=2)
            >>> pc.save_all("model.txt")
            >>> p.set_value([5])
            >>> pc.load_all("model.txt")
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
            >>> p = dy.ParameterCollection().add_parameters(1, init=2)
            >>> p.save("model.txt", "/p")
            >>> open("model.txt").readline()
            '#Parameter# /p {1} 17 ZERO_GRAD\\n'
        """
        op = f"{type(self).__name__}.save()"
        check_key(op, text_argument(op, "key", key), False)
        write(op, fname, [(self, key or self.name())], append)

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
            >>> pc = dy.ParameterCollection()
            >>> pc.add_parameters(1, init=2).save("model.txt", "/p")
            >>> q = pc.add_parameters(1)
            >>> q.populate("model.txt", "/p")
            >>> q.as_array()
            array([2.])
        """
        populate_one(f"{type(self).__name__}.populate()", self, fname, key)


class _OlderNames:
    """Methods that all three get."""

    def write_to_textfile(self: Any, fname: Path, key: str = "", append: bool = False) -> None:
        """The older name of `save`.

        Args:
            fname, key, append: those of `save`, in this order.
        Raises:
            ValueError, RuntimeError: as by `save`.
        Source: DyNet 2.1 `write_to_textfile` of the class.
        Example:
            >>> pc = dy.ParameterCollection()
            >>> p = pc.add_parameters(1, init=2)
            >>> pc.write_to_textfile("model.txt")
            >>> open("model.txt").readline()
            '#Parameter# /_0 {1} 17 ZERO_GRAD\\n'
        """
        _own_class(self).save(self, fname, key, append)

    def populate_from_textfile(self: Any, fname: Path, key: str = "") -> None:
        """The older name of `populate`.

        Args:
            fname, key: as in `populate`.
        Raises:
            RuntimeError: as by `populate`.
        Source: DyNet 2.1 `populate_from_textfile` of the class.
        Example:
            >>> pc = dy.ParameterCollection()
            >>> p = pc.add_parameters(1, init=2)
            >>> pc.save("model.txt")
            >>> p.set_value([5])
            >>> pc.populate_from_textfile("model.txt")
            >>> p.as_array()
            array([2.])
        """
        _own_class(self).populate(self, fname, key)


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
            >>> E = dy.ParameterCollection().add_lookup_parameters((3, 1), init=2)
            >>> E.save("model.txt", "/E")
            >>> E.init_row(1, [5])
            >>> E.populate("model.txt", "/E")
            >>> E[1].value()
            2.0
        """
        populate_one("LookupParameters.populate()", self, fname, key)


def _own_class(item: Any) -> Any:
    """The class of ours that an object is of, whatever class the script has derived from it."""
    return next(c for c in (ParameterCollection, Parameters, LookupParameters) if isinstance(item, c))


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


for _type, _classes in (
    (ParameterCollection, [_CollectionMethods]),
    (Parameters, [_ParameterMethods]),
    (LookupParameters, [_ParameterMethods, _LookupMethods]),
):
    for _name, _method in _methods(_type.__name__, _OlderNames, *_classes).items():
        _core._extend(_type, _name, _method)
