"""Rewritten code of modules on the disk, so that a script is looked at once and not each time it starts.

As Python keeps compiled modules: one file for each module, in the user's cache (files/cache.py). It counts
only for the same text, names, Python and package; what the rewriter learned of the module's global names has
to be so again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import marshal
import os
import sys
import types
from collections.abc import Mapping
from typing import Any, Optional

from ... import __compat_version__, _core
from ...files import cache
from ..analysis import api
from .linking import FoundRegion, LinkedModule, Refusal, RewrittenCode, link
from .recording import look_up, meaning

_KIND = b"dynet_compat rewritten code 1\n"
_MOST_FILES = 500  # of scripts in temporary folders, say, nothing needs to stay

# What reading a file raises that is whole, but not of the form that write() gives it.
_OTHER_FORM = (ArithmeticError, AttributeError, EOFError, LookupError, TypeError, ValueError)


class KeptCode:
    """The file of one module.

    Args:
        source: its text.
        filename: as in its code objects.
        wanted: qualified names of the functions to rewrite; None: all.
    """

    def __init__(self, source: bytes, filename: str, wanted: Optional[set[str]]) -> None:
        functions = ["all"] if wanted is None else ["some", *sorted(wanted)]
        digest = hashlib.sha256(source).hexdigest()
        columns = has_columns(compile("None", "", "eval"))
        compiler = [str(sys.implementation.cache_tag), str(sys.flags.optimize), str(columns)]
        self.key = self.path = ""
        with contextlib.suppress(OSError):  # then nothing is kept
            self.key = cache.key_of([_rewriter(), filename, digest, *functions])
            folder = cache.own_folder("rewritten")
            name = cache.key_of([filename, *compiler])
            self.path = os.path.join(folder, name + ".code") if folder else ""

    def read(self, names: dict[str, Any]) -> Optional[LinkedModule]:
        """What was kept, if it is what the rewriter would make of a module with this dict."""
        try:
            code = RewrittenCode(*(self.fields(names) or ()))
            found, refused = [FoundRegion(*f) for f in code.found], [Refusal(*r) for r in code.refused]
            return link(code._replace(found=found, refused=refused), {})
        except _OTHER_FORM:
            return None

    def fields(self, names: dict[str, Any]) -> Any:
        """Those of RewrittenCode, if they are kept and fit; else None."""
        data = cache.read(self.path, _KIND) if self.path else None
        if data is None:
            return None
        try:
            key, meanings, fields = marshal.loads(data)
            fits = key == self.key and all(meaning(look_up(names, name)) == m for name, m in meanings.items())
            return fields if fits else None
        except _OTHER_FORM:
            return None

    def write(self, code: RewrittenCode, meanings: Mapping[str, str]) -> None:
        """Keep what the rewriter made. `meanings`: what it learned of the module's names."""
        if not self.path:
            return
        lists = {6: [tuple(f) for f in code.found], 7: [tuple(r) for r in code.refused]}
        fields = tuple(lists.get(i, field) for i, field in enumerate(code))
        try:
            data = marshal.dumps((self.key, dict(meanings), fields))
        except ValueError:  # a constant that only a running process has
            return
        if cache.write(self.path, _KIND, data):
            cache.remove_oldest(os.path.dirname(self.path), _MOST_FILES)


def exists(module: types.ModuleType, source: bytes) -> bool:
    """Was rewritten code of the module kept?"""
    names = vars(module)
    return KeptCode(source, str(names["__file__"]), None).fields(names) is not None


@functools.cache
def _rewriter() -> str:
    """Another text for each rewriter, and for each Python whose code it makes."""
    here = os.path.dirname(os.path.abspath(__file__))
    own = sorted(entry.path for entry in os.scandir(here) if entry.name.endswith(".py"))
    digests = []
    for path in [*own, str(api.__file__)]:
        with open(path, "rb") as file:  # installers may give files of all versions the same time
            digests.append(hashlib.sha256(file.read()).hexdigest())
    core = os.stat(str(_core.__file__))
    versions = [importlib.util.MAGIC_NUMBER.hex(), __compat_version__, f"{core.st_mtime_ns} {core.st_size}"]
    return cache.key_of([*versions, *digests])


def has_columns(code: types.CodeType) -> bool:
    """Does the code know columns? That which was compiled with -X no_debug_ranges does not, and differs."""
    return hasattr(code, "co_positions") and any(p[2] is not None for p in code.co_positions())
