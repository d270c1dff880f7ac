"""`np.argmax(x.npvalue())` as one call, which needs the index of the largest value and not the values.

Whether `np.argmax` is NumPy's and `x` an expression with a plain vector is for that call to say, each time
(bindings/argmax.cc); if not, it does what was written. Names are looked up in the order of the original.
"""

from __future__ import annotations

import ast
from typing import Optional

from .scopes import OwnTransformer, locate

PLACEHOLDER = "\0read argmax"  # stands for the function that is called, in the code

_METHODS = ("npvalue", "value", "vec_value")


class Reads(OwnTransformer):
    """Puts such calls in the place of others in a function."""

    def __init__(self) -> None:
        self.found = 0

    def visit_Call(self, node: ast.Call) -> ast.Call:  # noqa: N802 - the name is given
        self.generic_visit(node)
        arguments = _arguments(node)
        if arguments is None:
            return node
        self.found += 1
        return locate(ast.Call(ast.Constant(PLACEHOLDER), arguments, []), node)


def _arguments(node: ast.Call) -> Optional[list[ast.expr]]:
    """Those of the new call: function, expression, method; of `x.npvalue().argmax()` the last two."""
    f = node.func
    name = f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else ""
    if name != "argmax" or node.keywords or len(node.args) > 1:
        return None
    if node.args:
        read = _read(node.args[0])
        return None if read is None else [f, *read]
    return _read(f.value) if isinstance(f, ast.Attribute) else None


def _read(e: ast.expr) -> Optional[list[ast.expr]]:
    """The expression that is read, and by which method."""
    if not isinstance(e, ast.Call) or e.args or e.keywords or not isinstance(e.func, ast.Attribute):
        return None
    return [e.func.value, ast.Constant(e.func.attr)] if e.func.attr in _METHODS else None
