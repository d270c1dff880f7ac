"""Which regions a run of a script will have, found without running it."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union

from ..analysis.api import DYNET_MODULES
from ..analysis.load import Source, absolute
from .linking import FoundRegion, Refusal
from .recording import api, look_up
from .rewriter import Rewriter
from .trees import DEFINITIONS, WITH_NAMES_OF_THEIR_OWN, dotted, functions, may_change, nodes_of

if TYPE_CHECKING:
    from ..hints_file import IndependentCalls, IndependentLoop, RecordingFunction


@dataclass
class Listing:
    """What was found in one file.

    Attributes:
        unchanged: qualified names of functions that are never rewritten.
    """

    regions: list[FoundRegion] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    unchanged: set[str] = field(default_factory=set)


def list_regions(
    sources: Sequence[Source],
    wanted: Iterable[RecordingFunction],
    loops: Iterable[Union[IndependentLoop, IndependentCalls]],
) -> dict[str, Listing]:
    """What a run with these hints would find, by file.

    Args:
        sources: of the script and its modules.
        wanted: the functions of the hints.
        loops: those that run side by side, and calls that do.
    """
    names = _Names(sources)
    wanted, loops = list(wanted), list(loops)
    found = {}
    for source in sources:
        listing = found[source.path] = Listing()
        of_file = {f.qualname for f in wanted if f.file == source.path}
        if source.tree is None:
            continue
        listing.unchanged |= {name for name, node, _ in functions(source.tree) if not may_change(node)}
        if not of_file:
            continue
        own_loops = [(loop, None) for loop in loops if loop.file == source.path]
        rewriter = Rewriter(source.data, source.path, dict(names.of(source)), of_file, own_loops)
        rewriter.find()
        listing.regions, listing.refused = rewriter.writer.found, rewriter.writer.refused
        listing.unchanged -= {q for q, node, _ in functions(source.tree) if rewriter.may_have_regions(node)}
    return found


class _Names:
    """What the names of modules mean: DyNet's functions are known, everything else is some object."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = {source.name: source for source in sources}
        self.known: dict[str, dict[str, Any]] = {}

    def of(self, source: Source) -> dict[str, Any]:
        """Names that statements of the module itself bind; of one that is being looked at, those so far."""
        if source.path in self.known or source.tree is None:
            return self.known.get(source.path, {})
        names = self.known[source.path] = {}
        nodes = nodes_of(source.tree, (*WITH_NAMES_OF_THEIR_OWN, ast.ExceptHandler))
        for s in sorted(nodes, key=lambda n: getattr(n, "lineno", 0)):
            if isinstance(s, DEFINITIONS):
                names[s.name] = object()
            elif isinstance(s, ast.Import):
                for alias in s.names:
                    top = alias.name.split(".")[0]
                    names[alias.asname or top] = self._module(alias.name if alias.asname else top)
            elif isinstance(s, ast.ImportFrom):
                self._import_from(names, s, source)
            elif isinstance(s, ast.Name) and not isinstance(s.ctx, ast.Load):
                names[s.id] = object()
        for s in source.tree.body:
            if isinstance(s, ast.Assign) and isinstance(s.value, (ast.Name, ast.Attribute)):
                value = look_up(names, dotted(s.value))  # of another name for a known function
                names.update((t.id, value) for t in s.targets if isinstance(t, ast.Name) and value)
        return names

    def _import_from(self, names: dict[str, Any], s: ast.ImportFrom, source: Source) -> None:
        base = absolute(source, s.module, s.level) or ""
        owner = vars(self._module(base))
        for alias in s.names:
            if alias.name == "*":
                names.update({name: value for name, value in owner.items() if name[0] != "_"})
            elif f"{base}.{alias.name}" in self.sources:
                names[alias.asname or alias.name] = self._module(f"{base}.{alias.name}")
            else:
                names[alias.asname or alias.name] = owner.get(alias.name, object())

    def _module(self, name: str) -> types.ModuleType:
        if name.split(".")[0] in DYNET_MODULES:
            return api()
        module = types.ModuleType(name)
        if name in self.sources:
            vars(module).update(self.of(self.sources[name]))
        inner = (other.rpartition(".") for other in self.sources)
        vars(module).update(
            (child, self._module(f"{name}.{child}")) for package, _, child in inner if package == name
        )
        return module
