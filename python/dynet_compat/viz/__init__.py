"""DyNet's module `dynet_viz`: with `--dynet-viz` a program draws its network instead of computing it.

Every op makes an `Expression` that knows its name, its arguments and its sizes, two at most; values are None.
`print_graphviz()` prints the graph in the language of Graphviz: parameters as ellipses, ops as boxes, states
of RNNs as double boxes with dotted edges along the sequence, and nodes whose sizes do not fit in red.
"""

from __future__ import annotations

from .drawing import *  # noqa: F403
from .nodes import *  # noqa: F403
from .nodes import _add, _cadd, _cdiv, _cg, _cmul, _mul, _neg, _scalarsub  # noqa: F401
from .ops import *  # noqa: F403
from .rnn import *  # noqa: F403
from .rnn import _RNNBuilder  # noqa: F401


def names() -> dict[str, object]:
    """What `from dynet import *` gives in this mode."""
    own = {k: v for k, v in globals().items() if not k.startswith("_") and k != "names"}
    return {k: v for k, v in own.items() if getattr(v, "__module__", __name__).startswith(__name__)}
