"""The kernels' text and the headers it includes, as they are embedded in the compiled module."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from .. import _core

# Headers of the C++ library that the shared headers include; each of them is cuda/device/std.h for NVRTC.
STD_HEADERS = (
    "cstddef", "cstdint", "cstring", "initializer_list", "ostream", "sstream", "stdexcept", "string",
    "type_traits",
)  # fmt: skip
STD_TEXT = '#include "cuda/device/std.h"\n'

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)


@lru_cache(maxsize=1)
def embedded() -> dict[str, str]:
    """Text of each source and header, by the name that `#include` has for it."""
    return dict(_core._kernel_sources())


def closure(name: str, texts: Mapping[str, str]) -> dict[str, str]:
    """The headers that `name` includes, directly or not, and their texts.

    Raises:
        KeyError: `name` is not among the texts. A header that is missing is left to the compiler to name.
    """
    found: dict[str, str] = {}
    waiting = _INCLUDE.findall(texts[name])
    while waiting:
        header = waiting.pop()
        if header in found or header not in texts:
            continue
        found[header] = texts[header]
        waiting += _INCLUDE.findall(texts[header])
    return found
