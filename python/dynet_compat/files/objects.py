"""`dy.save` and `dy.load`: objects in a .data file (values, DyNet's text format) and a .meta file (pickles).

Both files are replaced together. A .meta file is read without running it: see unpickler.py.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Optional

import numpy as np

from .. import _core
from .._core import LookupParameters, ParameterCollection, Parameters
from ..api.builders import BiRNNBuilder
from . import written_here
from .own_classes import OwnClasses, has_method, is_class, is_one_of
from .pairs import OpenPair, replacing_pair, unbound
from .pickle_names import PLAIN, Names
from .text_format import (
    Pair,
    Parameter,
    Path,
    as_prefix,
    kind_of,
    matched,
    missing,
    named,
    new_like,
    path_of,
    read_blocks,
    refuse_1x,
    shown,
)
from .unpickler import load_all

__all__ = ["load", "load_generator", "save"]

_MODULES = ("_dynet", "dynet", "_gdynet", "dynet_compat")
# Functions of the API that are no part of a model: they touch files or the whole process.
_NEVER = frozenset(
    "init init_from_params install_as_dynet load load_generator profile renew_cg save Profile".split()
)
_PICKLE_PROTOCOL = 4  # of DyNet under Python 3.8
_FREE_NUMBERS = 1 << 24  # that a .meta file may ask for beyond what its .data file has
_MOST_COPIES = 16  # of the numbers in the .data file


def _own(module: str, name: str) -> Any:
    """A class or function of this package by its name in a pickle; None if the module is another one."""
    if module not in _MODULES and not module.startswith("dynet_compat."):
        return None
    found = None if name.startswith("_") else vars(sys.modules["dynet_compat"]).get(name)
    kinds = (type, types.FunctionType, types.BuiltinFunctionType)
    if isinstance(found, kinds) and name not in _NEVER and _is_own(found, name):
        return found
    raise pickle.UnpicklingError(
        f"the file names {module}.{name}, which is no class or function of dynet_compat that a model may hold"
    )


def _is_own(found: Any, name: str) -> bool:
    module = str(getattr(found, "__module__", None))
    return vars(_core).get(name) is found or module == "_dynet" or module.split(".")[0] == "dynet_compat"


def _is_plain(item: Any) -> bool:
    return (getattr(item, "__module__", None), getattr(item, "__name__", None)) in PLAIN


_BasePickler: Any = pickle._Pickler  # the one written in Python


class _Pickler(_BasePickler):  # type: ignore[misc]
    """Writes our names as DyNet does, as those of the module _dynet, which need not be there."""

    is_doubtful = False  # `load` may refuse something of it

    def save_global(self, obj: Any, name: Optional[str] = None) -> None:
        own = getattr(obj, "__name__", None)
        if isinstance(own, str) and vars(sys.modules["dynet_compat"]).get(own) is obj and _is_own(obj, own):
            self.save("_dynet")
            self.save(own)
            self.write(pickle.STACK_GLOBAL)
            self.memoize(obj)
            return
        self.is_doubtful |= not (_is_plain(obj) or has_method(obj, "from_spec"))
        super().save_global(obj, name)

    def save_reduce(self, func: Any, args: Any, state: Any = None, *rest: Any, **named: Any) -> None:
        odd = func is np.dtype and (args[0][0] not in "biufcSU" or state[1] == ">")
        self.is_doubtful |= odd or not _is_plain(func)
        super().save_reduce(func, args, state, *rest, **named)

    dispatch = {**_BasePickler.dispatch, types.FunctionType: save_global}


def _pickled(entry: tuple[Any, ...]) -> tuple[bytes, bool]:
    """A pickle, and whether `load` may refuse something of it."""
    stream = io.BytesIO()
    pickler = _Pickler(stream, _PICKLE_PROTOCOL)
    pickler.dump(entry)
    return stream.getvalue(), pickler.is_doubtful


class _OwnUnpickler(pickle.Unpickler):
    """Reads what `_Pickler` of this process wrote."""

    def find_class(self, module: str, name: str) -> Any:
        found = _own(module, name)
        if found is not None:
            return found
        try:
            return super().find_class(module, name)
        except (AttributeError, ImportError) as error:  # it is gone since
            raise pickle.UnpicklingError(str(error)) from error


def _unpickled(contents: bytes) -> list[Any]:
    """The objects of pickles that this process wrote."""
    stream = io.BytesIO(contents)
    found = []
    while stream.tell() < len(contents):
        found.append(_OwnUnpickler(stream).load())
    return found


def _names(op: str, meta: str, trusted: Iterable[Any]) -> Names:
    return Names(_own, "from_spec", trusted, op, OwnClasses(os.path.dirname(meta)))


def _warn_of_refusal(base: str, pickles: Sequence[tuple[int, bytes]]) -> None:
    """Says at once which of the pickles that were written this program could not load."""
    for place, data in pickles:
        try:
            load_all(data, _names("load()", base + ".meta", ()))
        except pickle.UnpicklingError as error:
            import warnings  # not at the start: the package must be imported fast

            message = (
                f"save(): {base}.meta is written, but load() of other programs, and in the next run of this "
                f"one, will refuse object {place}: {error}"
            )
            warnings.warn(message, UserWarning, stacklevel=3)


def _entry(item: Any, place: int) -> tuple[tuple[Any, ...], list[tuple[Parameter, str]]]:
    """What .meta says of an object, and its parameters with their names."""
    if isinstance(item, Parameters):
        return ("Parameters", item.name()), [(item, item.name())]
    if isinstance(item, LookupParameters):
        return ("LookupParameters", item.name()), [(item, item.name())]
    for needed in ("spec", "param_collection"):
        if not hasattr(item, needed):
            raise AttributeError(
                f"save(): object {place} is a {type(item).__name__}, which has no {needed}: expected "
                "Parameters, LookupParameters, a builder, or an object with spec, param_collection() and "
                "from_spec()"
            )
    pc = item.param_collection()
    if not isinstance(pc, ParameterCollection):
        raise TypeError(f"save(): object {place}: expected a ParameterCollection from {type(item).__name__}."
                        f"param_collection(), got {type(pc).__name__}")  # fmt: skip
    return (item.__class__, item.spec, pc.name()), named(pc)


def save(basename: Path, objects: Iterable[Any]) -> None:
    """Write objects to `basename.data` (values) and `basename.meta` (what they are), for `load`.

    Both files are replaced together: after a crash, and beside other processes that save or load the same
    name, `load` finds the old ones or the new ones. A UserWarning says if `load` would refuse an object in
    another process; this one reads what it wrote.

    Args:
        basename: path without the endings.
        objects: Parameters, LookupParameters, builders, and objects of classes with a `spec`, a
            `param_collection()` and a class method `from_spec(spec, pc)`.
    Raises:
        AttributeError: an object has no spec or no param_collection().
        OSError: a file cannot be written.
    Source: DyNet 2.1 `save`.
    Example:
        >>> pc = dy.ParameterCollection()
        >>> dy.save("model", [pc.add_parameters((2, 3)), dy.LSTMBuilder(1, 3, 4, pc)])
        >>> W, lstm = dy.load("model", dy.ParameterCollection())
        >>> W.shape(), lstm.spec
        ((2, 3), (1, 3, 4, False, 1.0))
    """
    op, base = "save()", path_of("save()", basename)
    if isinstance(objects, (Parameters, LookupParameters)) or hasattr(objects, "param_collection"):
        raise TypeError(f"{op}: expected a list of objects, got a {type(objects).__name__}: write [it]")
    metas: list[bytes] = []
    doubtful: list[tuple[int, bytes]] = []
    pairs: list[tuple[Parameter, str]] = []
    known: dict[tuple[bool, str], int] = {}
    for place, item in enumerate(objects, 1):
        entry, its_pairs = _entry(item, place)
        pickled, is_doubtful = _pickled(entry)
        metas.append(pickled)
        if is_doubtful:
            doubtful.append((place, pickled))
        for p, name in its_pairs:
            lookup, _, _, number = _core._describe(p)
            if known.get((lookup, name), number) != number:
                kind = kind_of(lookup)
                raise ValueError(f"{op}: two {kind}s of different collections are both named {name}")
            if (lookup, name) not in known:  # once, however often it occurs: DyNet cannot read it twice
                pairs.append((p, name))
            known[lookup, name] = number
    contents = b"".join(metas)
    with replacing_pair(base + ".data", base + ".meta", contents) as new:
        _core._write_parameters(new.fd, shown(base + ".data"), pairs)
    if doubtful:
        written_here.note(contents)
    _warn_of_refusal(base, doubtful)


class _Model:
    """The contents of a pair of files, checked as far as possible before anything is made."""

    def __init__(self, op: str, basename: Any, params: Any, trusted: Iterable[Any]) -> None:
        self.op = op
        base = path_of(op, basename)
        if not isinstance(params, ParameterCollection):
            raise TypeError(f"{op}: expected a ParameterCollection for params, got {type(params).__name__}")
        self.params = params
        self.meta = base + ".meta"
        refuse_1x(op, base)
        self.names = _names(op, self.meta, trusted)
        self.data = base + ".data"
        with contextlib.closing(OpenPair(self.meta, self.data)) as pair:
            self._read(pair)
        self.first = {(b.lookup, b.key): b for b in reversed(self.blocks)}
        self.numbers = _FREE_NUMBERS + _MOST_COPIES * sum(block.count for block in self.blocks)
        for place, entry in enumerate(self.entries, 1):
            self._check(place, entry)

    def _read(self, pair: OpenPair) -> None:
        op, data = self.op, self.data
        contents = unbound(pair.meta)
        try:
            known = written_here.has(contents)
            self.entries = _unpickled(contents) if known else load_all(pair.meta, self.names)
        except pickle.UnpicklingError as error:
            raise pickle.UnpicklingError(f"{op}: {self.meta}: {error}. Nothing was loaded.") from None
        if pair.missing is not None:
            why = pair.missing.strerror or pair.missing
            raise RuntimeError(f"{op}: cannot read {data!r}: {why}") from pair.missing
        self.blocks = self._different(read_blocks(op, data, "", [], pair.file))
        if pair.is_mixed:
            raise RuntimeError(
                f"{op}: {data} is not the file that was saved with {self.meta}: one of the two was replaced "
                "or changed later. Copy both from one place; if the .data file was changed on purpose, read "
                "its values with ParameterCollection.populate(). Nothing was loaded."
            )

    @staticmethod
    def _different(blocks: Sequence[_core._FileBlock]) -> list[_core._FileBlock]:
        """Without repetitions, which DyNet writes for an object that is saved beside a part of it."""
        kept: list[_core._FileBlock] = []
        known: dict[tuple[bool, str], list[_core._FileBlock]] = {}
        for block in blocks:
            same = known.setdefault((block.lookup, block.key), [])
            if not any(block.same(other) for other in same):
                same.append(block)
                kept.append(block)
        return kept

    def _fail(self, place: int, message: str) -> RuntimeError:
        return RuntimeError(f"{self.op}: {self.meta}, object {place}: {message}. Nothing was loaded.")

    def _check(self, place: int, entry: Any) -> None:
        kinds = ("Parameters", "LookupParameters")
        if type(entry) is tuple and len(entry) == 2 and all(type(part) is str for part in entry):
            if entry[0] not in kinds:
                expected = "'Parameters' or 'LookupParameters'"
                raise self._fail(place, f"expected {expected}, found {entry[0][:40]!r}")
            lookup, key = entry[0] == kinds[1], entry[1]
            if (lookup, key) not in self.first:
                message = missing(self.op, self.data, lookup, key, self.blocks)
                raise RuntimeError(f"{message}. Nothing was loaded.")
            self._count(place, self.first[lookup, key].count)
            return
        if not (type(entry) is tuple and len(entry) == 3 and type(entry[2]) is str):
            raise self._fail(place, "expected (class, spec, name), found a " + _shape(entry))
        cls, spec, _ = entry
        if not has_method(cls, "from_spec"):
            name = cls.__name__ if is_class(cls) else _shape(cls)
            raise self._fail(place, f"expected a class with a from_spec(), found {name}")
        blocks = self._blocks_of(entry[2])
        self._count(place, sum(block.count for block in blocks))
        if _is_own(cls, cls.__name__):
            self._check_spec(place, cls, spec, blocks)

    def _count(self, place: int, numbers: int) -> None:
        self.numbers -= numbers
        if self.numbers < 0:
            message = (
                f"the objects up to this one copy the numbers of {self.data} more than {_MOST_COPIES} times"
            )
            raise self._fail(place, message)

    def _check_spec(self, place: int, cls: type, spec: Any, blocks: Sequence[_core._FileBlock]) -> None:
        """Sizes of our own builders that the values cannot have would only fill the memory."""
        if type(spec) is not tuple:
            raise self._fail(place, f"expected a tuple as the spec of {cls.__name__}, found a {_shape(spec)}")
        stored = sum(block.count for block in blocks)
        sizes = sorted(abs(n) for n in spec if isinstance(n, (int, float)) and not isinstance(n, bool))
        if sizes and sizes[0] > 0 and _product(sizes[-2:]) > max(4 * stored, 64):
            message = f"the sizes {sizes} of {cls.__name__} do not fit the {stored} numbers stored"
            raise self._fail(place, message)
        factory = spec[3] if issubclass(cls, BiRNNBuilder) and len(spec) > 3 else cls
        if is_class(factory) and issubclass(factory, _core._RNNBuilder) and len(spec) > 2:
            layers, inputs, hidden = (abs(n) if isinstance(n, (int, float)) else 0 for n in spec[:3])
            if inputs * hidden + (layers - 1) * hidden * hidden > stored:
                raise self._fail(
                    place, f"{cls.__name__} of the sizes {spec[:3]} has more than {stored} numbers"
                )
        if issubclass(cls, BiRNNBuilder) and len(spec) > 3:
            if not has_method(spec[3], "initial_state") and not self.names.may_call(spec[3]):
                found = spec[3].__name__ if is_class(spec[3]) else f"a {_shape(spec[3])}"
                expected = "a class as the factory of BiRNNBuilder, with initial_state()"
                raise self._fail(place, f"expected {expected}, found {found}")

    def _blocks_of(self, name: str) -> list[_core._FileBlock]:
        return [block for block in self.blocks if block.key.startswith(as_prefix(name))]

    def make(self, place: int, entry: Any, pairs: list[Pair]) -> Any:
        """One object; its parameters and their values go to `pairs`."""
        if len(entry) == 2:
            block = self.first[entry[0] == "LookupParameters", entry[1]]
            made = new_like(self.params, block)
            pairs.append((made, block))
            return made
        cls, spec, name = entry
        try:
            found = cls.from_spec(spec, self.params)
        except Exception as error:
            if _is_own(cls, cls.__name__):
                message = f"{cls.__name__} cannot be made of its spec: {type(error).__name__}: {error}"
                raise self._fail(place, message) from error
            raise
        pairs += matched(self.op, self.data, self._blocks_of(name), found.param_collection())
        return found

    def all(self) -> list[Any]:
        mark = _core._mark(self.params)
        pairs: list[Pair] = []
        try:
            made = [self.make(place, entry, pairs) for place, entry in enumerate(self.entries, 1)]
            _core._restore(pairs)
        except BaseException:
            _core._roll_back(mark)
            raise
        return made

    def each(self) -> Iterator[Any]:
        for place, entry in enumerate(self.entries, 1):
            mark = _core._mark(self.params)
            pairs: list[Pair] = []
            try:
                made = self.make(place, entry, pairs)
                _core._restore(pairs)
            except BaseException:
                _core._roll_back(mark)
                raise
            yield made


def _product(sizes: Sequence[Any]) -> Any:
    result = 1
    for size in sizes:
        result *= size
    return result


def _shape(item: Any) -> str:
    """What an error says of an object of a file."""
    name = type(item).__name__
    return f"{name} of {len(item)}" if is_one_of(type(item), (tuple, list, dict, str)) else name


def load(basename: Path, params: ParameterCollection, *, trusted: Iterable[Any] = ()) -> list[Any]:
    """Read the objects that `save` wrote, here or in DyNet; their parameters are added to a collection.

    The .meta file names classes and functions. Those of this package, under all names of its modules,
    imported classes that have a `from_spec`, and classes of the program's own modules are admitted. The file
    calls nothing: objects of own classes are made of their attributes, and `from_spec(spec, params)` is
    called here, for each object. Own modules, in the folder of the script, are imported if need be.

    Args:
        basename: path without the endings.
        params: the ParameterCollection that gets the parameters.
        trusted: further names, such as "vocabulary.Vocabulary", or the classes themselves. They are imported,
            and the file may make objects of them: list only what you would let any sender of the file call.
            The variable DYNET_COMPAT_TRUSTED adds names, separated by commas.
    Returns:
        The objects, in the order in which they were saved.
    Raises:
        FileNotFoundError: there is no .meta file.
        pickle.UnpicklingError: the .meta file is damaged, names what is not admitted, or asks for much more
            memory or time than a file of its size needs.
        RuntimeError: the .data file is missing or damaged, is not the one that was saved with the .meta file,
            or does not fit. Then nothing is loaded, and the collection is as before.
        ValueError: DYNET_COMPAT_TRUSTED or trusted holds no name of a class.
    Source: DyNet 2.1 `load`.
    Example:
        >>> pc = dy.ParameterCollection()
        >>> dy.save("model", [dy.BiRNNBuilder(1, 2, 4, pc, dy.GRUBuilder)])
        >>> [birnn] = dy.load("model", dy.ParameterCollection())
        >>> birnn.whoami()
        'BiRNNBuilder'
    """
    return _Model("load()", basename, params, trusted).all()


def load_generator(
    basename: Path, params: ParameterCollection, *, trusted: Iterable[Any] = ()
) -> Iterator[Any]:
    """Read what `save` wrote, one object after the other.

    Both files are read and checked when the first object is asked for; an error in a later one leaves the
    objects before it.

    Args:
        basename, params, trusted: as in `load`.
    Source: DyNet 2.1 `load_generator`.
    Example:
        >>> pc = dy.ParameterCollection()
        >>> dy.save("model", [pc.add_parameters(2), pc.add_lookup_parameters((3, 4))])
        >>> [p.shape() for p in dy.load_generator("model", dy.ParameterCollection())]
        [(2,), (3, 4)]
    """
    yield from _Model("load_generator()", basename, params, trusted).each()
