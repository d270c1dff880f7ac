"""What import statements bind."""

from __future__ import annotations

import ast

from . import lattice as lat
from .api import DYNET_MODULES
from .frame import Frame
from .lattice import UNKNOWN, Value
from .load import KNOWN_MODULES, absolute
from .objects import Objects


class Imports:
    """The imports of one visit."""

    def __init__(self, frame: Frame, objects: Objects) -> None:
        self.frame = frame
        self.objects = objects

    def plain(self, node: ast.Import) -> None:
        """import a.b as c"""
        for alias in node.names:
            top = alias.name.split(".")[0]
            self.frame.store(alias.asname or top, self._module(alias.name if alias.asname else top))

    def _module(self, name: str) -> Value:
        if name.split(".")[0] in DYNET_MODULES:
            return lat.one(lat.DYNET)
        index = self.frame.program.loaded.module(name)
        return lat.one(lat.EXT, name) if index is None else lat.one(lat.MODULE, index)

    def names(self, node: ast.ImportFrom) -> None:
        """from a.b import c"""
        frame, loaded = self.frame, self.frame.program.loaded
        base = absolute(frame.program.sources[frame.function.module], node.module, node.level)
        if base == "__future__":
            return
        for alias in node.names:
            name = alias.asname or alias.name
            if base is None:
                frame.store(name, UNKNOWN)
            elif alias.name == "*":
                self._star(node, base)
            elif base.split(".")[0] in DYNET_MODULES:
                frame.store(name, lat.one(lat.DYNAME, alias.name))
            else:
                inner = loaded.module(f"{base}.{alias.name}" if base else alias.name)
                if inner is not None:
                    frame.store(name, lat.one(lat.MODULE, inner))
                else:
                    frame.store(name, self.objects.attribute(self._module(base), alias.name, node))

    def _star(self, node: ast.ImportFrom, base: str) -> None:
        """from a.b import *"""
        value = self._module(base)
        if value == lat.one(lat.EXT, base):
            value = UNKNOWN
            if base.split(".")[0] not in KNOWN_MODULES:
                text = f"from {base} import *: its names are not known, so no hints for this program"
                self.frame.program.problem(node, text, "program")
        self.frame.write(value, "star", self.frame.function.module)
