"""The modules that stand for DyNet's own, for scripts that say `import dynet`."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from typing import Optional

from .. import config
from ..config import SHIMS, SHIMS_FOLDER


class _Finder:
    """Finds SHIMS in SHIMS_FOLDER, before anything else of these names."""

    @staticmethod
    def find_spec(
        name: str, path: Optional[Sequence[str]] = None, target: Optional[types.ModuleType] = None
    ) -> Optional[ModuleSpec]:
        """As `importlib.abc.MetaPathFinder` says.

        Modules in DyNet's are not found: they would be those of this package a second time.
        """
        package = name.partition(".")[0]
        if package != name and package in SHIMS:
            raise ModuleNotFoundError(f"No module named {name!r}; {package!r} is not a package", name=name)
        if name not in SHIMS:
            return None
        return PathFinder.find_spec(name, [SHIMS_FOLDER], target)


_finder = _Finder()


def install() -> None:
    """Make `import dynet`, `_dynet`, `_gdynet`, `dynet_config` and `dynet_viz` find this package.

    In a notebook: `import dynet_compat; dynet_compat.install_as_dynet()`, then the cells as they are.

    Example:
        >>> dy.install_as_dynet()
        >>> import dynet
        >>> dynet.__version__
        '2.1'
    """
    if _finder in sys.meta_path:
        return
    for name in SHIMS:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _finder)
    sys.path.append(SHIMS_FOLDER)


def dynet() -> types.ModuleType:
    """The module `dynet`: importing it initialises; with `--dynet-viz` it draws."""
    if config.viz_is_asked_for():
        return drawing()
    config.initialise_as_dynet()
    package = native()
    vars(package)["_CONF"] = conf = config.get()
    if conf is not None:
        params = config.DynetParams()
        params.from_config(conf)
        vars(package)["_params"] = params
    return package


def drawing() -> types.ModuleType:
    """The module `dynet_viz`: the API, which draws from now on."""
    package = native()
    config.initialise_drawing(vars(package))
    return package


def native() -> types.ModuleType:
    """The module `_dynet`: importing it initialises nothing."""
    return import_module("dynet_compat")
