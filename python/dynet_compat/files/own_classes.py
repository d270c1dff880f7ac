"""Classes of the program itself: which they are, and how their objects are made without running their code.

Own are the classes of `__main__` and of modules whose file is in the folder of the script, or in the
package that the script is a part of; never those of the standard library, of site-packages or of a virtual
environment in that folder. An object is what object.__new__ makes; its state goes to its __dict__ and its
slots directly.
"""

from __future__ import annotations

import ast
import enum
import functools
import importlib
import os
import sys
import types
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator
from importlib.machinery import PathFinder
from typing import Any, Optional

try:
    START_FOLDER = os.getcwd()  # `run` gives __main__ the path that it was given
except OSError:  # the folder is gone
    START_FOLDER = os.sep
_STANDARD_LIBRARY = os.path.realpath(os.path.dirname(os.__file__))
_FOREIGN_FOLDERS = frozenset({"site-packages", "dist-packages"})
_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
_MOST_SCRIPTS = 100  # of a folder, that are read for the packages that they import
_LONGEST_SOURCE = 1 << 20  # bytes of a module that is read before it is imported
# In code that runs at import: signs of a script.
_SCRIPT_NAMES = frozenset(
    "argv parse_args parse_known_args input raw_input exit quit system popen Popen".split()
)
# Calls at the top of modules that only set something up.
_SET_UP = frozenset(
    "sys.path.append sys.path.insert sys.setrecursionlimit random.seed np.random.seed numpy.random.seed "
    "warnings.filterwarnings warnings.simplefilter logging.basicConfig dy.reset_random_seed".split()
)

_dict_of_type = type.__dict__["__dict__"].__get__
_mro_of_type = type.__dict__["__mro__"].__get__
_name_of_type = type.__dict__["__name__"].__get__
_qualified_name_of_type = type.__dict__["__qualname__"].__get__
_flags_of_type = type.__dict__["__flags__"].__get__
_HEAP_TYPE = 1 << 9  # made by a class statement


def expect(condition: Any, message: str) -> None:
    if not condition:
        raise ValueError(message)


def is_one_of(item: Any, options: Any) -> bool:
    """By identity: `in` would call the item's __eq__."""
    return any(item is option for option in options)


def is_class(item: Any) -> bool:
    return issubclass(type(item), type)  # isinstance() would ask the item for its class


def attributes_of(cls: type) -> Any:
    """The class's own __dict__, without code of a metaclass."""
    return _dict_of_type(cls)


def bases_of(cls: type) -> tuple[type, ...]:
    """The class's __mro__, without code of a metaclass."""
    return _mro_of_type(cls)  # type: ignore[no-any-return]


def has_method(item: Any, name: str) -> bool:
    return is_class(item) and any(name in attributes_of(c) for c in bases_of(item))


def name_of(cls: type) -> str:
    return _name_of_type(cls)  # type: ignore[no-any-return]


def full_name_of(cls: type) -> str:
    module = attributes_of(cls).get("__module__")
    return f"{module if type(module) is str else '?'}.{_qualified_name_of_type(cls)}"


def module_attributes(name: str) -> Optional[dict[str, Any]]:
    """The names in an imported module, found without running code of the module; None if it is not one."""
    found: Any = sys.modules.get(name)
    if not issubclass(type(found), types.ModuleType):
        return None
    return types.ModuleType.__getattribute__(found, "__dict__")  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------- what is own


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def is_foreign(path: str, root: str) -> bool:
    """Whether a file in this folder is installed there, and no part of the program."""
    if _is_in(path, _STANDARD_LIBRARY):
        return True
    parts = os.path.relpath(os.path.dirname(path), root).split(os.sep)
    folder = root
    for part in parts if parts != ["."] else ():
        folder = os.path.join(folder, part)
        if part in _FOREIGN_FOLDERS or any(
            os.path.exists(os.path.join(folder, mark)) for mark in _ENVIRONMENT_MARKS
        ):
            return True
    return False


def _is_tool(script: str) -> bool:
    """pytest, `-m unittest` and the like: __main__ is not the program."""
    folder = os.path.dirname(script)
    return (
        _is_in(script, _STANDARD_LIBRARY)
        or not _FOREIGN_FOLDERS.isdisjoint(folder.split(os.sep))
        or any(folder == os.path.realpath(os.path.join(p, "bin")) for p in (sys.prefix, sys.base_prefix))
    )


class OwnClasses:
    """The classes of the running program that a model file may use.

    Args:
        model_folder: where the file lies. Modules in a package's folder that also holds models are not
            imported for a file: they may have come with it.
    """

    def __init__(self, model_folder: str) -> None:
        self._model_folder = os.path.realpath(model_folder)
        self._known: dict[str, bool] = {}  # modules: own?
        self._refusals: dict[str, Optional[str]] = {}
        main = module_attributes("__main__") or {}
        script, package = main.get("__file__"), main.get("__package__")
        path = os.path.realpath(os.path.join(START_FOLDER, script)) if type(script) is str else ""
        self._has_script = path != "" and not _is_tool(path)
        self._owns_main = self._has_script or path == ""
        self.folder = os.path.dirname(path) if self._has_script else os.path.realpath(".")
        self._roots = [self.folder]
        if self._has_script and type(package) is str and package:
            top = (module_attributes(package.partition(".")[0]) or {}).get("__file__")
            if type(top) is str and os.path.basename(top) == "__init__.py":
                self._roots.append(os.path.realpath(os.path.dirname(top)))

    def owns(self, found: Any) -> bool:
        """Whether it is a class that the program's own modules define."""
        if not is_class(found):
            return False
        module = attributes_of(found).get("__module__")
        return type(module) is str and self._owns_module(module)

    def _owns_module(self, name: str) -> bool:
        if name == "__main__":
            return self._owns_main
        if name not in self._known:
            file = (module_attributes(name) or {}).get("__file__")
            self._known[name] = type(file) is str and file.endswith(".py") and self._owns_file(file)
        return self._known[name]

    def _owns_file(self, path: str) -> bool:
        real = os.path.realpath(os.path.join(START_FOLDER, path))
        return any(_is_in(real, root) and not is_foreign(real, root) for root in self._roots)

    # ---- importing

    def import_for(self, module: str, name: str) -> Optional[str]:
        """Imports an own module that defines this class. Returns why it does not, or None."""
        nothing = f"is in the module {module}, which is not imported"
        path = self._file_of(module)
        if path is None:
            return nothing
        if path not in self._refusals:
            self._refusals[path] = _script_sign(path)
        sign = self._refusals[path]
        if sign is not None:
            return f"{nothing}; it is not imported for a file, as {sign}"
        if name.partition(".")[0] not in _classes_in(path):
            return f"is no class that {path} defines"
        self._known.pop(module, None)
        try:
            for package in _packages_of(module):
                importlib.import_module(package)  # which may set where its modules are
                if self._file_of(module) != path:
                    return f"{nothing} from {path}, as {package} changes where its modules are"
            importlib.import_module(module)
        except Exception as error:  # of the module: it says nothing about the file
            raise ImportError(f"{path}: {type(error).__name__}: {error}", name=module, path=path) from error
        found = (module_attributes(module) or {}).get("__file__")
        if type(found) is not str or os.path.realpath(found) != path:
            return f"{nothing} from {path}, but from elsewhere"
        return None

    def _file_of(self, module: str) -> Optional[str]:
        """The file that `import module` would run, if a model file may have it imported."""
        parts = module.split(".")
        if not self._has_script or len(module) > 200 or not all(part.isidentifier() for part in parts):
            return None
        if len(parts) == 1:
            folders, search = [self.folder], None
        else:
            search = self._folders_of(module)
            folders = [os.path.realpath(folder) for folder in search]
        for folder in folders:
            path = os.path.join(folder, parts[-1] + ".py")
            if os.path.isfile(path):
                break
        else:
            return None
        is_free = parts[0] not in sys.builtin_module_names
        return path if is_free and self._is_imported_from(path, module, search) else None

    def _folders_of(self, module: str) -> list[str]:
        """Where the modules of its package are, if the program uses that; else none."""
        search: Optional[list[str]] = None
        for package in _packages_of(module):
            found = _path_of(package)  # as it is imported
            if not found:
                start = self._start_of(package, search)
                found = [os.path.dirname(start)] if start is not None else []
            if not found or any(_is_in(self._model_folder, os.path.realpath(folder)) for folder in found):
                return []
            search = found
        return search or []

    def _start_of(self, package: str, search: Optional[list[str]]) -> Optional[str]:
        """The __init__.py of a package that is not imported yet, if a script in the folder imports it."""
        if package in sys.modules:
            return None
        name = package.rpartition(".")[2]
        starts = (os.path.join(folder, name, "__init__.py") for folder in search or [self.folder])
        path = next(filter(os.path.isfile, starts), None)
        if path is None or not self._is_imported_from(path, package, search) or _script_sign(path):
            return None
        return path if search is not None or _is_imported(package, self.folder) else None

    def _is_imported_from(self, path: str, module: str, search: Optional[list[str]]) -> bool:
        """Whether `import` finds the module in this file, an own one."""
        if os.path.realpath(path) != path or not self._owns_file(path):
            return False
        spec = PathFinder.find_spec(module, search)
        return spec is not None and spec.origin is not None and os.path.realpath(spec.origin) == path


def _packages_of(module: str) -> list[str]:
    """`a` and `a.b` of `a.b.c`."""
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def _path_of(package: str) -> list[str]:
    """The folders of an imported package; none for other modules."""
    path = (module_attributes(package) or {}).get("__path__")
    plain = type(path) is list or type(path).__module__.startswith(("_frozen_importlib", "importlib."))
    return [folder for folder in path if type(folder) is str] if path is not None and plain else []


# ------------------------------------------------------------------------------ modules and scripts


@functools.lru_cache(maxsize=64)
def _tree(path: str) -> Optional[ast.Module]:
    from ..hints.rewrite.code_objects import silently

    try:
        with open(path, "rb") as file:
            source = file.read(_LONGEST_SOURCE + 1)
        return silently(path, ast.parse, source, path) if len(source) <= _LONGEST_SOURCE else None
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _is_imported(package: str, folder: str) -> bool:
    """Whether a script of the folder imports it, at its top or in a function."""
    try:
        scripts = sorted(name for name in os.listdir(folder) if name.endswith(".py"))
    except OSError:
        return False
    for path in (os.path.join(folder, name) for name in scripts[:_MOST_SCRIPTS]):
        tree = _tree(path) if os.path.isfile(path) else None
        for node in ast.walk(tree) if tree is not None else ():
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            if any(name.partition(".")[0] == package for name in names):
                return True
    return False


def _script_sign(path: str) -> Optional[str]:
    """What makes a file look like a script, that does something when it is imported; None for a module."""
    tree = _tree(path)
    if tree is None:
        return f"{path} cannot be read"
    for statement in _top_level(tree.body):
        if not _only_defines(statement):
            return f"line {statement.lineno} of {path} does more than define something"
    return None


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        if isinstance(statement, ast.If):
            if "__name__" not in ast.dump(statement.test):
                yield from _top_level([*statement.body, *statement.orelse])
        elif isinstance(statement, ast.Try):
            handled = [inner for handler in statement.handlers for inner in handler.body]
            yield from _top_level([*statement.body, *handled, *statement.orelse, *statement.finalbody])
        else:
            yield statement


def _only_defines(statement: ast.stmt) -> bool:
    if isinstance(
        statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    ):
        return True
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return ast.unparse(statement.value.func) in _SET_UP
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if not isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Pass, ast.Raise, ast.Delete)):
        return False
    names = {
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(statement)
        if isinstance(node, (ast.Name, ast.Attribute))
    }
    return _SCRIPT_NAMES.isdisjoint(names)


def _classes_in(path: str) -> set[str]:
    """Names of classes, those of named tuples and enumerations that are assigned included."""
    tree, names = _tree(path), set()
    for statement in _top_level(tree.body) if tree is not None else ():
        if isinstance(statement, ast.ClassDef):
            names.add(statement.name)
        elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            names |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
    return names


# ------------------------------------------------------------------------------------------- objects

_DICTS = (OrderedDict, Counter, defaultdict, dict)
_BASES = (*_DICTS, list, set, frozenset, tuple, str, int, float, bytes, object)


def base_of(cls: type) -> Any:
    """The built-in type that holds the contents of the class's objects."""
    return next(c for c in bases_of(cls) if is_one_of(c, _BASES))


def refusal(cls: type) -> Optional[str]:
    """Why objects of a class cannot be made without its code; None if they can."""
    for c in bases_of(cls):
        for name in ("__setstate__", "__del__"):
            if name in attributes_of(c) and not _is_of_data_classes(attributes_of(c)[name]):
                return f"has a {name}(), which would run with what the file says"
    return None


def hashes_by_itself(cls: type) -> bool:
    """Whether hash and equality of the class's objects run no code of the program."""
    for c in bases_of(cls):
        if _flags_of_type(c) & _HEAP_TYPE == 0 or c is enum.Enum:  # written in C
            return True
        if "__hash__" in attributes_of(c) or "__eq__" in attributes_of(c):
            return False
    return False


def _is_of_data_classes(method: Any) -> bool:
    """Whether it is what `dataclass(frozen=True, slots=True)` gives a class, which only sets its fields."""
    given = (module_attributes("dataclasses") or {}).get("_dataclass_setstate")
    return given is not None and method is given


def _fields_in_state(cls: type) -> Optional[list[str]]:
    """Names of the fields of such a class, whose state is a list of their values; None of other classes."""
    if not any(_is_of_data_classes(attributes_of(c).get("__setstate__")) for c in bases_of(cls)):
        return None
    key = "__dataclass_fields__"
    fields: Any = next((attributes_of(c)[key] for c in bases_of(cls) if key in attributes_of(c)), {})
    return [name for name, field in fields.items() if repr(field._field_type) == "_FIELD"]


def fields_of(cls: type) -> tuple[str, ...]:
    """Names of the fields of a named tuple; none of other classes."""
    found = next((attributes_of(c)["_fields"] for c in bases_of(cls) if "_fields" in attributes_of(c)), ())
    return found if type(found) is tuple else ()


def _new_object(cls: Any, arguments: tuple[Any, ...]) -> Any:
    """What `cls.__new__(cls, *arguments)` of the built-in base makes."""
    base = base_of(cls)
    if base is object or is_one_of(base, (*_DICTS, list, set)):
        expect(not arguments, f"arguments for {name_of(cls)}")
        return base.__new__(cls)
    if base is tuple:
        fields = fields_of(cls)
        if fields:  # a named tuple gets its fields one by one
            expect(len(fields) == len(arguments), f"{name_of(cls)} has {len(fields)} fields")
            return tuple.__new__(cls, arguments)
    expect(len(arguments) == 1, f"{len(arguments)} arguments for {name_of(cls)}")
    expect(type(arguments[0]) is base, f"a {name_of(type(arguments[0]))} as the contents of {name_of(cls)}")
    return base.__new__(cls, arguments[0])


class CodeNeeded(Exception):
    """Arguments: name of the class, and why its objects cannot be made without its code."""


def set_state(target: Any, state: Any) -> None:
    """Puts what the file says of an object into its __dict__ and its slots.

    Classes and members of enumerations belong to the whole program and are not changed.
    """
    cls = target if is_class(target) else type(target)
    shared = is_class(target) or any(c is enum.Enum for c in bases_of(cls))
    expect(not shared, f"a state for {name_of(cls)}, which the program shares")
    fields = _fields_in_state(cls)
    if fields is not None:
        expect(type(state) is list and len(state) == len(fields), f"{name_of(cls)} has {len(fields)} fields")
        parts: tuple[dict[str, Any], dict[str, Any]] = {}, {}
        for name, value in zip(fields, state):
            parts[type(_descriptor(cls, name)) is types.MemberDescriptorType][name] = value
        state = parts
    attributes, slots = state if type(state) is tuple and len(state) == 2 else (state, None)
    for part in (attributes, slots):
        expect(part is None or type(part) is dict, "a state that is no dictionary")
        expect(all(type(name) is str for name in part or ()), "an attribute whose name is no text")
    if attributes:
        found = _descriptor(cls, "__dict__")
        expect(type(found) is types.GetSetDescriptorType, f"{name_of(cls)} has no plain __dict__")
        found.__get__(target).update((sys.intern(name), value) for name, value in attributes.items())
    for name, value in (slots or {}).items():
        found = _descriptor(cls, name)
        expect(type(found) is types.MemberDescriptorType, f"{name_of(cls)} has no slot {name:.100}")
        found.__set__(target, value)


def _descriptor(cls: type, name: str) -> Any:
    for c in bases_of(cls):
        if name in attributes_of(c):
            return None if is_one_of(c, _BASES) else attributes_of(c)[name]
    return None


def make(cls: Any, arguments: tuple[Any, ...]) -> Any:
    """An object as its built-in base makes it, without code of its class.

    Raises:
        CodeNeeded: that is not possible.
    """
    why = refusal(cls)
    if why is None:
        try:
            return _new_object(cls, arguments)
        except TypeError as error:
            why = f"cannot be made without its code: {error}"
    raise CodeNeeded(full_name_of(cls), why)
