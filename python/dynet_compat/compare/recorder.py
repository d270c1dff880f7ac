"""Runs one script with one library and writes down what happens: the part of `compare` inside the process.

Started by path, `python recorder.py spec.json`, under the interpreter of either side: Python 3.8 with the
real DyNet, or the one of dynet_compat. Uses the standard library and NumPy only. The library's own code is
not touched: its functions and methods are wrapped from outside, in the way of `instrument.py`.

Modes:
  light    times of forward, backward and update; nothing else is hooked
  profile  the time of every call of the library, too, and launches
  check    every value read, losses, gradient norms and parameters
  trace    the values of every expression of one graph, up to one event
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import runpy
import sys
import time
import traceback
import types
from importlib import abc, machinery
from typing import Any, Optional

# Python puts this folder first on sys.path. The script must find its own modules, whatever they are called.
_HERE = os.path.dirname(os.path.abspath(__file__))
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)
import event_log  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
import hooks  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
import instrument  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
import redirect  # type: ignore[import-not-found,unused-ignore]  # noqa: E402

sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != _HERE]
for _name in ("event_files", "event_log", "hooks", "instrument", "reading", "redirect"):
    del sys.modules[_name]

LIBRARY_NAMES = ("dynet", "_dynet", "_gdynet", "dynet_compat")
_CONFIG_KEY = "__DYNET_CONFIG"


class Configuration:
    """Seed and batching of the library: what the script asks for, else what `compare` was given."""

    def __init__(self, spec: dict[str, Any], log: Any) -> None:
        self.seed = int(spec["seed"])
        self.unbatched = bool(spec.get("unbatched"))
        self.log = log

    @staticmethod
    def option(name: str) -> Optional[str]:
        """Value of --dynet-NAME among the script's arguments; None without it."""
        found = None
        for position, argument in enumerate(sys.argv):
            if argument.startswith(("--dynet-" + name, "--dynet_" + name)):
                following = sys.argv[position + 1] if position + 1 < len(sys.argv) else ""
                found = argument.split("=", 1)[1] if "=" in argument else following
        return found

    def before_import(self) -> list[str]:
        """Adjusts what the library reads when it starts; returns the script's own sys.argv."""
        import builtins

        own = list(sys.argv)
        conf = getattr(builtins, _CONFIG_KEY, None)
        if conf is not None:
            conf["seed"] = conf.get("seed") or self.seed
            self.log.counts.autobatch = self.log.counts.autobatch or bool(conf.get("autobatch"))
            if self.unbatched:
                conf["autobatch"] = 0
        if not int(self.option("seed") or 0):
            sys.argv += ["--dynet-seed", str(self.seed)]
        if (self.option("autobatch") or "0") != "0":
            self.log.counts.autobatch = True
            if self.unbatched:
                self.without_batching()
        return own

    @staticmethod
    def without_batching() -> None:
        kept, skip = [], False
        for argument in sys.argv:
            if skip:
                skip = False
            elif argument.startswith(("--dynet-autobatch", "--dynet_autobatch")):
                skip = "=" not in argument
            else:
                kept.append(argument)
        sys.argv[:] = kept

    def wrap_start(self, library: Any) -> None:
        """`_dynet.init()` and `DynetParams.init()`: the same seed for scripts that start DyNet themselves."""
        chosen: dict[int, bool] = {}

        def init(original: Any) -> Any:
            def hook(*args: Any, **kwargs: Any) -> Any:
                own = self.before_import()
                try:
                    return original(*args, **kwargs)
                finally:
                    sys.argv[:] = own

            return hook

        def from_args(original: Any) -> Any:
            def hook(params: Any, *args: Any, **kwargs: Any) -> Any:
                own = self.before_import()
                chosen[id(params)] = True
                try:
                    return original(params, *args, **kwargs)
                finally:
                    sys.argv[:] = own

            return hook

        def set_seed(original: Any) -> Any:
            def hook(params: Any, seed: int) -> Any:
                chosen[id(params)] = bool(seed)
                return original(params, seed)

            return hook

        def set_autobatch(original: Any) -> Any:
            def hook(params: Any, value: Any) -> Any:
                self.log.counts.autobatch = self.log.counts.autobatch or bool(value)
                return original(params, value and not self.unbatched)

            return hook

        def init_params(original: Any) -> Any:
            def hook(params: Any) -> Any:
                if not chosen.get(id(params)):
                    params.set_random_seed(self.seed)
                return original(params)

            return hook

        params = library.DynetParams
        makers = {"from_args": from_args, "set_random_seed": set_seed, "init": init_params}
        makers["set_autobatch"] = set_autobatch
        for name, maker in makers.items():
            instrument.patch(params, name, maker(params.__dict__[name]))
        for module in {id(m): m for m in (library, sys.modules.get("_dynet", library))}.values():
            module.init = init(module.init)


class Importer(abc.Loader, abc.MetaPathFinder):
    """Finds the library for `import dynet`, `import _dynet` and `import dynet_compat` on either side.

    The library is loaded when the script first asks for it, after the script has used `dynet_config`.
    """

    def __init__(self, spec: dict[str, Any], configuration: Configuration, log: Any) -> None:
        self.spec = spec
        self.configuration = configuration
        self.log = log
        self.hooks = hooks.Hooks(log)
        self.busy = False
        self.modules: dict[str, types.ModuleType] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if self.busy:
            return None
        if name == "dynet_config" and self.spec["side"] == "ours":
            return machinery.ModuleSpec(name, self)
        return machinery.ModuleSpec(name, self) if name in LIBRARY_NAMES else None

    def adopt(self) -> None:
        """Hooks a library that is loaded before the script begins, by a sitecustomize for instance."""
        for name in LIBRARY_NAMES:
            if name in sys.modules:
                self.create_module(machinery.ModuleSpec(name, self))
                self.log.toolkit.reset_random_seed(self.configuration.seed)

    def create_module(self, spec: Any) -> types.ModuleType:
        self.busy = True
        try:
            ours = self.spec["side"] == "ours"
            module = self.load_ours(spec.name) if ours else self.load_reference(spec.name)
        finally:
            self.busy = False
        spec.loader_state = (module.__spec__, module.__loader__)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Puts back what the import system wrote over."""
        state = getattr(module.__spec__, "loader_state", None)
        if state:
            module.__spec__, module.__loader__ = state

    def load_ours(self, name: str) -> types.ModuleType:
        if name == "dynet_config":
            return self.ours_config()
        if "dynet_compat" not in self.modules:
            own = self.configuration.before_import()
            try:
                self.modules["dynet_compat"] = self.import_ours("dynet_compat")
            finally:
                sys.argv[:] = own
            self.started()
        return self.modules["dynet_compat"]

    def import_ours(self, name: str) -> types.ModuleType:
        for folder in self.spec["sys_path"]:
            if folder not in sys.path:
                sys.path.append(folder)
        return __import__(name, fromlist=["x"])

    def ours_config(self) -> types.ModuleType:
        """`dynet_config`: settings without a seed get the one of the comparison."""
        self.load_ours("dynet_compat")
        config = self.import_ours("dynet_compat.startup.shims.dynet_config")
        original = vars(config)["set"]

        def set_(*args: Any, **kwargs: Any) -> Any:
            if len(args) < 2 and not kwargs.get("random_seed"):
                kwargs["random_seed"] = self.configuration.seed
            return original(*args, **kwargs)

        vars(config)["set"] = set_
        return config

    def load_reference(self, name: str) -> types.ModuleType:
        bare = name in ("_dynet", "_gdynet")
        wanted = name if bare else "dynet"
        if wanted not in self.modules:
            own = self.configuration.before_import()
            try:
                self.modules[wanted] = __import__(wanted)
            finally:
                viz = [a for a in own if a == "--dynet-viz" and a not in sys.argv]
                sys.argv[:] = [a for a in own if a not in viz]
            self.started()
        return self.modules[wanted]

    def started(self) -> None:
        """Hooks the modules loaded so far."""
        found = list(self.modules.values())
        inner = sys.modules.get("_dynet")
        if self.spec["side"] != "ours" and inner is not None and inner not in found:
            found.insert(0, inner)
        fresh = not self.log.toolkit
        self.log.toolkit = found[0]
        if fresh:
            self.configuration.wrap_start(found[0])
        self.hooks.instrument(found, self.spec["side"])


def own_frames(frames: Any) -> list[Any]:
    """A traceback without this folder's frames and those of runpy."""
    here = os.path.dirname(os.path.abspath(__file__))
    hidden = ("<frozen importlib", "<frozen runpy", runpy.__file__)
    return [
        f
        for f in frames
        if os.path.dirname(os.path.abspath(f.filename)) != here and not f.filename.startswith(hidden)
    ]


def describe(error: BaseException, script: str) -> dict[str, Any]:
    """What a crash report needs: one line, the line of the script, the traceback."""
    frames = own_frames(traceback.extract_tb(error.__traceback__))
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
    last = traceback.format_exception_only(type(error), error)
    at = [f.lineno for f in frames if os.path.abspath(f.filename) == script]
    line = error.lineno if isinstance(error, SyntaxError) and not at else (at[-1] if at else None)
    return {"error": last[-1].strip(), "line": line, "traceback": "".join(lines + last)}


def run_script(spec: dict[str, Any], log: Any) -> tuple[str, Optional[dict[str, Any]]]:
    """Runs the script; ("done" | "cut" | "crash", description of a crash)."""
    script = spec["script"]
    sys.argv = [script, *spec["args"]]
    sys.path[0:0] = [os.path.dirname(script)]
    try:
        runpy.run_path(script, run_name="__main__")
    except event_log.LastStepReached:
        return "cut", None
    except SystemExit as end:
        if log.counts.cut:
            return "cut", None
        if end.code not in (None, 0):
            crash = describe(end, script)
            crash["error"] = f"the script ended with exit status {end.code}"
            return "crash", crash
    except BaseException as error:  # also KeyboardInterrupt: reported, nothing lost
        if log.counts.cut:
            return "cut", None
        return "crash", describe(error, script)
    return ("cut" if log.counts.cut else "done"), None


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as stream:
        spec = json.load(stream)
    faulthandler.enable()
    shadow = redirect.install(spec)
    start = time.perf_counter()
    log = event_log.EventLog(spec)
    importer = Importer(spec, Configuration(spec, log), log)
    log.shadow = shadow
    sys.meta_path.insert(0, importer)
    random.seed(spec["seed"])
    import numpy

    numpy.random.seed(spec["seed"] % 2**32)
    importer.adopt()
    log.begin()
    how, crash = run_script(spec, log)
    sys.stdout.flush()
    if os.getpid() != log.pid:  # a child that the script forked ends here, too
        return
    log.finish(how, crash, start, importer.hooks.cost)
    if how == "crash":
        sys.stderr.write(crash["traceback"] if crash else "")
        sys.stderr.flush()


if __name__ == "__main__":
    main()
