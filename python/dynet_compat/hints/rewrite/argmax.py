"""`np.argmax(x.npvalue())` as one call that reads the index of the largest value and not the values.

The call checks each time that `np.argmax` is NumPy's and that `x` is an expression with a plain vector
(bindings/argmax.cc); otherwise it does what was written. Names are looked up in the order of the original.
"""

from __future__ import annotations

import ast
from typing import Optional

from .linking import READ_ARGMAX
from .trees import DEFINITIONS, locate, nodes_of

_METHODS = ("npvalue", "value", "vec_value")


def replace(function: ast.FunctionDef) -> int:
    """Replace such calls in the function; returns their number."""
    nodes = nodes_of(function, DEFINITIONS)
    found = [(n, _arguments(n)) for n in nodes if isinstance(n, ast.Call)]
    changed = [(n, arguments) for n, arguments in found if arguments is not None]
    for n, arguments in changed:
        new = locate(ast.Call(ast.Constant(READ_ARGMAX), arguments, []), n)
        n.func, n.args = new.func, new.args
    return len(changed)


def _arguments(node: ast.Call) -> Optional[list[ast.expr]]:
    """Arguments of the new call: function, expression, method; of `x.npvalue().argmax()` the last two."""
    f = node.func
    name = f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else ""
    if name != "argmax" or node.keywords or len(node.args) > 1:
        return None
    if node.args:
        read = _read(node.args[0])
        return None if read is None else [f, *read]
    return _read(f.value) if isinstance(f, ast.Attribute) else None


def _read(e: ast.expr) -> Optional[list[ast.expr]]:
    """The expression that is read, and the method."""
    if not isinstance(e, ast.Call) or e.args or e.keywords or not isinstance(e.func, ast.Attribute):
        return None
    return [e.func.value, ast.Constant(e.func.attr)] if e.func.attr in _METHODS else None
