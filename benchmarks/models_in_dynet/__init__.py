"""The models of ../models as scripts for DyNet, which is what hints read.

Files, classes and parameters, which are attributes, have the names that they have there; `losses(instance)`
is what is computed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from . import berxit, birnn, drnn, mv_rnn, nested_rnn, stack_rnn, tree_lstm

MODULES = {module.__name__.rpartition(".")[2]: module
           for module in (berxit, birnn, drnn, mv_rnn, nested_rnn, stack_rnn, tree_lstm)}  # fmt: skip


def as_written(module: ModuleType) -> ModuleType:
    """The module again, which hints do not find: they look at `sys.modules`."""
    spec = importlib.util.spec_from_file_location(module.__name__, module.__file__)
    assert spec and spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def build(model: type, pc: Any, size: int, arrays: Mapping[str, Any], hinted: bool = True) -> Any:
    """The model with parameters of these values.

    Args:
        model: of ../models.
        hinted: is it to have hints, where the process has any?
    """
    module = MODULES[model.__module__.rpartition(".")[2]]
    made = getattr(module if hinted else as_written(module), model.__name__)(pc, size)
    for name, array in arrays.items():
        parameter = getattr(made, name)
        set_values = parameter.init_from_array if name.startswith("table_") else parameter.set_value
        set_values(array)
    return made
