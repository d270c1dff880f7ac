"""The process that `compile --profile` starts: runs a script with every op hooked.

The nodes that a call has recorded are those between the sizes of the graph before and after it. When the
graph is renewed, and at the end, the launches of the graph are noted by the lines that recorded their nodes.
Meanwhile the engine measures the variants that it has for them.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import types
from typing import Any, Callable, Optional

SourceLine = tuple[str, int]  # file, line


class Recorder:
    """Hooks of the package, and what they have seen."""

    def __init__(self, spec: dict[str, Any]) -> None:
        import dynet_compat

        self.package = dynet_compat
        self.core = dynet_compat._core
        self.report: str = spec["report"]
        folder = os.path.realpath(spec["folder"])
        self.files = {os.path.join(folder, *name.split("/")): name for name in spec["sources"]}
        self.known: dict[types.CodeType, Any] = {}  # code -> file name, or None
        self.lines: list[Optional[SourceLine]] = []  # that recorded each node of the graph
        self.launches: set[tuple[str, int, str, int]] = set()  # file, line, op, size
        self.graphs = 0
        self.inside = False
        self.pid = os.getpid()

    # ---- hooks

    def install(self) -> None:
        """Puts hooks in the place of functions and methods."""
        from ..compare import instrument

        for module in (self.package, self.core):
            for name, value in list(vars(module).items()):
                kind = instrument.kind_of_function(name)
                if isinstance(value, type) or isinstance(value, types.ModuleType) or not callable(value):
                    continue
                if kind in (instrument.OP, instrument.RENEW) and self._is_ours(value):
                    setattr(module, name, self._hook(value, kind == instrument.RENEW))
        classes = {value for value in vars(self.package).values() if isinstance(value, type)}
        classes |= {value for value in vars(self.core).values() if isinstance(value, type)}
        for cls in sorted(classes, key=lambda c: c.__name__):
            for name, kind in instrument.kinds_of_class(cls).items():
                function = cls.__dict__.get(name)
                if kind in (instrument.OP, instrument.RENEW) and callable(function):
                    instrument.patch(cls, name, self._hook(function, kind == instrument.RENEW))
        self.core._measure_variants(True)
        atexit.register(self.finish)

    @staticmethod
    def _is_ours(value: Any) -> bool:
        return str(getattr(value, "__module__", "") or "dynet").startswith(("dynet", "_dynet"))

    def _hook(self, original: Callable[..., Any], renews: bool) -> Callable[..., Any]:
        size = self.core.cg_size

        def hook(*args: Any, **kwargs: Any) -> Any:
            if self.inside:
                return original(*args, **kwargs)
            self.inside = True
            try:
                if renews:
                    self.collect()
                before = size()
                result = original(*args, **kwargs)
                after = size()
                if after > before and not renews:
                    line = self._line(sys._getframe(1))
                    self.lines += [None] * (before - len(self.lines))
                    self.lines += [line] * (after - len(self.lines))
                return result
            finally:
                self.inside = False

        hook.__name__ = getattr(original, "__name__", "hook")
        hook.__doc__ = getattr(original, "__doc__", None)
        return hook

    def _line(self, frame: Any) -> Optional[SourceLine]:
        """The line in the nearest frame that runs a source of the script."""
        while frame is not None:
            code = frame.f_code
            name = self.known.get(code, "")
            if name == "":
                name = self.known[code] = self.files.get(os.path.realpath(code.co_filename))
            if name is not None:
                return name, frame.f_lineno
            frame = frame.f_back
        return None

    # ---- launches

    def collect(self) -> None:
        """Notes the launches of the graph, which ends now."""
        self.graphs += 1
        for launch in self.core.plan_table():
            size = launch["members"].bit_length() - 1
            for line in {self.lines[n] for n in launch["nodes"] if n < len(self.lines)}:
                if line is not None:
                    self.launches.add((*line, launch["op"], size))
        self.lines = []

    def finish(self) -> None:
        """Writes the report; not in children that the script has forked."""
        if os.getpid() != self.pid:
            return
        self.inside = True
        self.collect()
        report = {
            "graphs": self.graphs,
            "launches": sorted(self.launches),
            "isa": self.core.isa(),
            "threads": self.core.threads(),
            "measurements": self.core._measurements(),
        }
        with open(self.report, "w", encoding="utf-8") as file:
            json.dump(report, file)


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        spec = json.load(file)
    from ..startup.program import run

    Recorder(spec).install()
    run(sys.argv[2], sys.argv[3:])


if __name__ == "__main__":
    main()
