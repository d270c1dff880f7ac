"""What the names in a .meta file may stand for."""

from __future__ import annotations

import collections
import copyreg
import os
import pickle
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Optional

import numpy as np

from .own_classes import OwnClasses, attributes_of, has_method, is_class, is_one_of, module_attributes
from .own_enums import Members

VARIABLE = "DYNET_COMPAT_TRUSTED"

# Names of Python 2 in files of DyNet under Python 2.
_OLD_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg", "UserDict": "collections"}
_OLD_NAMES = {("builtins", "unicode"): "str", ("builtins", "long"): "int", ("builtins", "xrange"): "range"}
# Options of programs: objects of the standard library that have attributes and nothing else.
_ATTRIBUTES_ONLY = frozenset({("argparse", "Namespace"), ("optparse", "Values")})
_LONGEST_SHOWN = 200


class Helper:
    """A function of NumPy or of the standard library that pickles of plain data name."""

    def __init__(self, name: str) -> None:
        self.name = name


RECONSTRUCT, SCALAR, ENCODE = Helper("_reconstruct"), Helper("scalar"), Helper("encode")
PLAIN: dict[tuple[str, str], Any] = {
    **{
        ("builtins", t.__name__): t
        for t in (int, float, bool, str, bytes, bytearray, complex, list, tuple, dict, set, frozenset)
    },
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "Counter"): collections.Counter,
    ("collections", "defaultdict"): collections.defaultdict,
    ("_codecs", "encode"): ENCODE,
    ("builtins", "object"): object,
    ("copyreg", "_reconstructor"): copyreg._reconstructor,  # type: ignore[attr-defined]
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    **{
        (f"numpy.{core}.multiarray", helper.name): helper
        for core in ("core", "_core")
        for helper in (RECONSTRUCT, SCALAR)
    },
}


def check_name(where: str, name: str) -> str:
    """The name of a class, if it may be one."""
    if not all(name.split(".")) or "." not in name:
        raise ValueError(f"{where}: expected names such as 'package.module.Class', got {name!r}")
    return name


def trusted_by_environment() -> list[str]:
    """The names in DYNET_COMPAT_TRUSTED, which commas separate."""
    names = os.environ.get(VARIABLE, "").replace(",", " ").split()
    return [check_name(VARIABLE, name) for name in names]


class Names:
    """Looks the names up.

    Args:
        package: (module, name) -> object of this package, or None.
        protocol: methods that make a class of the user's program admissible, `from_spec`.
        trusted: names ("package.module.Class") or objects that may be imported and called, too.
        caller: function that errors name.
        own: classes of the program, which are admitted, too.
    """

    def __init__(
        self,
        package: Callable[[str, str], Any],
        protocol: str,
        trusted: Iterable[Any],
        caller: str,
        own: Optional[OwnClasses] = None,
    ) -> None:
        self._package = package
        self._protocol = protocol
        self._caller = caller
        self._own = own
        self._named: dict[int, type] = {}  # own classes
        self._members: dict[int, Members] = {}  # of enumerations among them
        self._trusted_names: set[str] = set()
        self.trusted: list[Any] = []
        if isinstance(trusted, str):
            raise TypeError(f"{caller}: expected a list of names for trusted, got the str {trusted!r}")
        for item in trusted:
            if isinstance(item, str):
                self._trusted_names.add(check_name(f"{caller}: trusted", item))
            elif callable(item):
                self.trusted.append(item)
            else:
                raise TypeError(f"{caller}: expected names or classes in trusted, got {item!r}")
        if own is not None:
            self._trusted_names.update(trusted_by_environment())

    def find(self, module: str, name: str) -> Any:
        """The object, or an UnpicklingError that says how to admit it."""
        module = _OLD_MODULES.get(module, module)
        name = _OLD_NAMES.get((module, name), name)
        if (module, name) in PLAIN:
            return PLAIN[module, name]
        if f"{module}.{name}" in self._trusted_names:
            found = _imported(module, name)
            self.trusted.append(found)
            return found
        found = self._package(module, name)
        return found if found is not None else self._find_elsewhere(module, name)

    def _find_elsewhere(self, module: str, name: str) -> Any:
        found, why = _loaded(module, name), None
        if found is None and self._own is not None and module not in sys.modules:
            if (module, name) in _ATTRIBUTES_ONLY:
                __import__(module)
            else:
                why = self._own.import_for(module, name)
            found = _loaded(module, name) if why is None else None
        if found is None:
            self._refuse(module, name, why or _missing(module))
        if self._own is not None and is_class(found):
            if (module, name) in _ATTRIBUTES_ONLY or self._own.owns(found):
                self._named[id(found)] = found
                return found
        if self.may_call(found) or has_method(found, self._protocol):
            return found
        is_function = isinstance(found, types.FunctionType)
        why = "is a function" if is_function else f"is no class with a {self._protocol}()"
        self._refuse(module, name, why)

    def may_call(self, found: Any) -> bool:
        return is_one_of(found, self.trusted)

    def is_own(self, found: Any) -> bool:
        """Whether it is a class that the file has named and whose objects are made without its code."""
        return id(found) in self._named and not self.may_call(found)

    def members_of(self, cls: Any) -> Members:
        """Those of an own enumeration."""
        if id(cls) not in self._members:
            self._members[id(cls)] = Members(cls)
        return self._members[id(cls)]

    def _refuse(self, module: str, name: str, why: str) -> NoReturn:
        full = f"{module}.{name}"
        shown = full if len(full) <= _LONGEST_SHOWN else full[:_LONGEST_SHOWN] + "..."
        folder = f" and classes in {self._own.folder}" if self._own is not None else ""
        raise pickle.UnpicklingError(
            f"the file names {shown}, which {why[: 3 * _LONGEST_SHOWN]}. Names of this package, of imported "
            f"classes with a {self._protocol}(){folder} are admitted; {self.hint(shown)}"
        )

    def hint(self, name: str) -> str:
        """What to do about a name that is refused."""
        if name.startswith("__main__.") and _loaded("__main__", name.partition(".")[2]) is None:
            return (
                "the script that saved it had the class in itself: put the class into a module that both "
                f"scripts import, or say `from that_script import {name.split('.')[1]}` here"
            )
        return (
            f"if you know the file and what it would run, say {self._caller.split('(')[0]}(..., "
            f"trusted=[{name!r}]), set {VARIABLE}={name}, or start the program with `run --trust {name}`"
        )


def _missing(module: str) -> str:
    return "does not exist" if module in sys.modules else f"is in the module {module}, which is not imported"


def _parts(name: str) -> list[str]:
    return name.split(".") if len(name) < 1000 else [name]


def _loaded(module: str, name: str) -> Any:
    """The object of this name in an imported module, found without running code; None if there is none."""
    found: Any = None
    names: Any = module_attributes(module)
    for part in _parts(name):
        if not isinstance(names, (dict, types.MappingProxyType)):
            return None
        found = names.get(part)
        names = attributes_of(found) if is_class(found) else None
    return found


def _imported(module: str, name: str) -> Any:
    __import__(module)
    found: Any = sys.modules[module]
    try:
        for part in _parts(name):
            found = getattr(found, part)
    except AttributeError as error:
        raise pickle.UnpicklingError(f"{module}.{name} is trusted, but cannot be found: {error}") from error
    return found
