"""The modules that stand for DyNet's own, for scripts that say `import dynet`."""

from __future__ import annotations

import sys
import types
from importlib import import_module


def install() -> None:
    """Make `import dynet`, `_dynet`, `_gdynet` and `dynet_config` find this package.

    Example:
        >>> from dynet_compat import shims
        >>> shims.install()
        >>> import dynet
        >>> dynet.__version__
        '2.1'
    """
    package: types.ModuleType = import_module("dynet_compat")
    for name in ("dynet", "_dynet", "_gdynet"):
        sys.modules[name] = package
    sys.modules["dynet_config"] = import_module("dynet_compat.shims.dynet_config")
