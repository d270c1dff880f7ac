"""Configuration: `dynet_config`, `DynetParams`, start-up.

The package initialises itself at import, from the command line. StartSettings made later with `set` or
`DynetParams.init` apply at once, the first time; DyNet needs them before `import dynet`.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

from .. import _core
from ..api.legacy import deprecated
from . import devices, options
from .devices import ERRMSG as ERRMSG
from .options import UNSET, StartSettings, parse_arguments

__all__ = ["DynetParams", "ERRMSG", "init", "init_from_params"]

_CONFIG_KEY = "__DYNET_CONFIG"  # keys in builtins, where DyNet keeps them too
_GPU_KEY = "__DYNET_GPU"
# The modules that stand for DyNet's own, one small file each. The folder also goes to the end of sys.path, so
# that processes started by multiprocessing find it.
SHIMS = ("dynet", "_dynet", "_gdynet", "dynet_config", "dynet_viz")
SHIMS_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shims", "modules")
# Commands whose options are a script's.
_WITH_SCRIPTS = ("run", "compare", "compile", "migrate", "distribute")


# ---------------------------------------------------------------- start-up


class _State:
    """How far the start-up of this process has come."""

    initialised = False  # by import, or on request
    requested = False  # on request: any further request is ignored
    drawing = False  # `--dynet-viz`
    by_dynet = False  # by a script's `import dynet`: as in DyNet, `set` comes too late
    weight_decay = 0.0  # of new collections
    profiling = 0
    at_exit = False  # the timing is printed when the program ends
    common_seed: Optional[int] = None  # in place of the operating system's, in a job of several processes
    conf: Optional[dict[str, Any]] = None  # what `set` stored before the import


def _os_seed() -> int:
    if _State.common_seed is not None:
        return _State.common_seed
    return int.from_bytes(os.urandom(4), "little") or 1


def use_seed(seed: Optional[int]) -> None:
    """The seed of programs that name none; None: one of the operating system."""
    _State.common_seed = seed


def _profile(level: int) -> None:
    """Time the ops from now on, and print the result when the program ends."""
    if level > 0 or _State.profiling > 0:  # this makes a graph, on the device in use
        _core._set_profiling(max(level, 0))
    _State.profiling = level
    if level > 0 and not _State.at_exit:
        import atexit

        from ..inspection.timing import print_timing

        _State.at_exit = True
        atexit.register(print_timing)


def profiling_level() -> int:
    """Level of `--dynet-profiling`."""
    return _State.profiling


def start_lines(settings: StartSettings, seed: int) -> list[str]:
    """What is printed at the start: DyNet's lines where they are true here."""
    lines = [f"[dynet] random seed: {seed}"]
    if _batches(settings):
        lines.append("[dynet] using autobatching")
    if settings.profiling:
        lines.append(f"[dynet] using profiling level {settings.profiling}")
    if settings.mem != StartSettings.mem:
        lines.append(f"[dynet] memory grows as needed: a size of {settings.mem}MB has no effect")
    return lines


def _batches(settings: StartSettings) -> bool:
    return settings.autobatch is UNSET or bool(settings.autobatch)


def device_lines(left_out: str) -> list[str]:
    """Lines about the device; none on the CPU, unless a GPU was asked for."""
    if left_out:
        return [f"[dynet] WARNING: computing on the CPU: {left_out}"]
    if not devices.is_gpu():
        return []
    number = int(devices.current().device[5:])
    return [f"[dynet] using GPU:{number}, {devices.gpus()['devices'][number]['name']}"]


def _use_device(settings: StartSettings) -> str:
    """Choose the device. Returns why a GPU that `dynet_config` asks for is left out; "" if it is not.

    DyNet ignores such a request where it was built for the CPU, and programs keep it for all machines.
    """
    wanted, reason = settings.gpus, ""
    if not wanted:
        wanted = devices.numbers_of(settings.requested_gpus, settings.gpu_mask)
        if wanted and devices.from_environment() is None:
            reason = devices.missing(wanted)
    choice = devices.choose([] if reason else wanted)
    if choice != devices.current():
        devices.use(choice)
    return reason


def _start(settings: StartSettings, loud: bool) -> None:
    """Apply the settings. `loud`: print DyNet's lines."""
    seed = int(settings.seed) % 2**32 or _os_seed()
    options.check(settings)
    left_out = _use_device(settings)
    _core.reset_random_seed(seed)
    _core.share_parameters(bool(settings.shared_params))
    _core.set_batching(_batches(settings))
    if settings.weight_decay != _State.weight_decay:
        _core.set_default_weight_decay(float(settings.weight_decay))
        _State.weight_decay = float(settings.weight_decay)
    left_out = _use_device(settings)  # before anything that computes
    _profile(settings.profiling)
    if loud:
        print("\n".join([*start_lines(settings, seed), *device_lines(left_out)]), file=sys.stderr)
    _State.initialised = True


def _request(settings: StartSettings) -> None:
    """Initialise because the program says so; once, as in DyNet."""
    if _State.requested:
        print("WARNING: dynet is initialised already: this initialisation is ignored.", file=sys.stderr)
        return
    _start(settings, loud=True)
    _State.requested = True


def _read_environment() -> None:
    scheduler = options.environment(os.environ).get("DYNET_COMPAT_SCHEDULER")
    if scheduler:
        _core.set_scheduler(scheduler)


def viz_is_asked_for() -> bool:
    """Whether the command line has `--dynet-viz`, which is taken out of `sys.argv` as DyNet does."""
    if "--dynet-viz" not in getattr(sys, "argv", []):
        return False
    sys.argv.remove("--dynet-viz")
    return True


def script_follows() -> bool:
    """Whether the program has still to import dynet, and may call `dynet_config` before it does.

    So it is in `dynet-compat run script.py` and `python -m dynet_compat run script.py`, and in our other
    commands with the options of a script, which import this package first, and when one of our modules
    `dynet_config`, `_dynet` and so on is being imported.
    """
    program, *arguments = getattr(sys, "argv", [])[:2] or [""]
    with_script = arguments[:1] != [] and arguments[0] in _WITH_SCRIPTS
    if os.path.basename(program) == "dynet-compat" and with_script:
        return True
    words = getattr(sys, "orig_argv", ["-m", "dynet_compat"])  # Python 3.9 does not tell
    if program == "-m" and with_script and "dynet_compat" in words:
        return True
    files = [getattr(sys.modules.get(name), "__file__", None) or "" for name in SHIMS]
    return any(os.path.dirname(file) == SHIMS_FOLDER for file in files)


def hints_beside(script: str) -> str:
    """The hints file that belongs to a script."""
    return os.path.splitext(os.path.realpath(script))[0] + ".dyhints"


def prepare_hints() -> None:
    """Use the hints of the script that is the main module now, where there are any; not for a drawing."""
    if _State.drawing or "--dynet-viz" in getattr(sys, "argv", []):
        return
    setting = os.environ.get("DYNET_COMPAT_HINTS")
    if setting is None:
        script = getattr(sys.modules.get("__main__"), "__file__", None)
        if not script or not script.endswith((".py", ".pyw")):
            return
        setting = hints_beside(script)
        if not os.path.exists(setting):
            return
    from ..hints import runtime

    runtime.prepare(setting)


def initialise_at_import() -> None:
    """What the import of this package does: as `import dynet` does, unless that is still to come."""
    _read_environment()
    _print_warnings(options.misspelt(os.environ))
    if not script_follows():
        initialise()
        return
    _start(StartSettings(), loud=False)
    _State.initialised = False


def initialise_drawing(namespace: dict[str, Any]) -> None:
    """What the import does with `--dynet-viz`: the functions in `namespace` draw, no option is read."""
    from ..inspection import drawing

    _start(StartSettings(), loud=False)
    _State.drawing = True
    drawing.turn_on(namespace)


def is_initialised() -> bool:
    """Whether options were read, so that the device is the one to compute on."""
    return _State.initialised


def initialise_as_dynet() -> None:
    """What a script's `import dynet` does: afterwards `set` is ignored."""
    initialise()
    _State.by_dynet = True


def initialise() -> None:
    """Once: take `dynet_config` if it was used, else the command line."""
    if _State.initialised:
        return
    arguments = sys.argv[1:] if hasattr(sys, "argv") else []
    conf = get()
    if conf is not None:
        _State.conf = conf
        _request(StartSettings.from_mapping(conf))
        return
    loud = any(argument.startswith(("--dynet-", "--dynet_")) for argument in arguments)
    _start(parse_arguments(arguments), loud)
    _print_warnings(options.doubtful(arguments))


def _print_warnings(warnings: Sequence[str]) -> None:
    for warning in warnings:
        print(f"[dynet] WARNING: {warning}", file=sys.stderr)


# ---------------------------------------------------------------- dynet_config


def set(  # noqa: A001 - DyNet's name
    mem: Union[str, int] = "512",
    random_seed: int = 0,
    autobatch: int = UNSET,
    profiling: int = 0,
    weight_decay: float = 0,
    shared_parameters: int = 0,
    requested_gpus: int = 0,
    gpu_mask: Optional[Sequence[int]] = None,
) -> None:
    """Set the configuration, instead of the command line.

    A second call replaces everything: arguments that are not repeated are defaults again. After the import
    of `dynet_compat` the first call applies at once; DyNet ignores calls after its import, and so does this
    package where it is imported as `dynet`.

    Args:
        mem: MB to reserve, checked and otherwise ignored: memory grows as it is needed.
        random_seed: seed of all random numbers; 0 takes one from the operating system.
        autobatch: 0 turns batching off; it is on by default. Results are the same.
        profiling: level of profiling.
        weight_decay: default weight decay of new collections, 0 <= weight_decay < 1.
        shared_parameters: values of new parameters are stored in memory shared with forked processes.
        requested_gpus: how many GPUs to use; one is, and where none can be, the CPU, with a warning.
        gpu_mask: 1 for each GPU that may be used, in their order; the first of them is.
    Source: DyNet 2.1 `dynet_config.set`.
    """
    conf = {
        "mem": mem,
        "seed": random_seed,
        "autobatch": autobatch,
        "profiling": profiling,
        "weight_decay": weight_decay,
        "shared_params": shared_parameters,
        "requested_gpus": requested_gpus,
        "gpu_mask": list(gpu_mask or []),
    }
    setattr(builtins, _CONFIG_KEY, conf)
    if _State.initialised and not _State.by_dynet:
        _request(StartSettings.from_mapping(conf))


def set_gpu(flag: bool = True) -> None:
    """Ask for the GPU. Where there is none a warning says why, and the CPU computes.

    Args:
        flag: kept for `gpu()`; as in DyNet the GPU is asked for in any case.
    Source: DyNet 2.1 `dynet_config.set_gpu`.
    """
    setattr(builtins, _GPU_KEY, flag)
    conf = get()
    if conf is None:
        set(requested_gpus=1)
    else:
        conf["requested_gpus"] = 1


def gpu() -> Optional[bool]:
    """The flag of `set_gpu`, or None."""
    flag: Optional[bool] = getattr(builtins, _GPU_KEY, None)
    return flag


def get() -> Optional[dict[str, Any]]:
    """The configuration that `set` stored, or None."""
    conf: Optional[dict[str, Any]] = getattr(builtins, _CONFIG_KEY, None)
    return conf


# ---------------------------------------------------------------- DynetParams


def _whole(name: str, value: Any, least: int = 0) -> int:
    """An int in 32 bits; floats are truncated."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__int__"):
        raise TypeError(f"{name}(): expected an int, got {type(value).__name__}")
    number = int(value)
    if not least <= number < 2**32:
        raise OverflowError(f"{name}(): expected {least} <= value < 2**32, got {number}")
    return number


class DynetParams:
    """StartSettings made by the program, for scripts that initialise DyNet themselves.

    Source: DyNet 2.1 `DynetParams`.
    Example:
        >>> params = dy.DynetParams()
        >>> params.set_random_seed(10)
        >>> params.set_weight_decay(1e-6)
    """

    __module__ = "_dynet"

    def __init__(self) -> None:
        self._settings = StartSettings()

    def from_args(self, shared_parameters: Optional[bool] = None) -> None:
        """Read the `--dynet-*` options of the command line.

        Args:
            shared_parameters: accepted and ignored; DyNet puts the parameters into shared memory.
        Raises:
            ValueError: an option has no value, or one that does not do.
        Source: DyNet 2.1 `DynetParams.from_args`.
        Example:
            >>> dy.DynetParams().from_args()
        """
        self._settings = parse_arguments(sys.argv[1:])
        _print_warnings(options.doubtful(sys.argv[1:]))
        if shared_parameters is not None:
            self._settings.shared_params = bool(shared_parameters)

    def from_config(self, conf: Mapping[str, Any]) -> None:
        """Take a dict as `dynet_config.get` returns it.

        Args:
            conf: the dict.
        Source: DyNet 2.1 `DynetParams.from_config`.
        Example:
            >>> dy.DynetParams().from_config({"mem": "512", "seed": 1, "weight_decay": 0})
        """
        if not isinstance(conf, Mapping):
            raise TypeError(f"from_config(): expected a dict, got {type(conf).__name__}")
        self._settings = StartSettings.from_mapping(conf)

    def init(self) -> None:
        """Apply the settings. The second initialisation of a process prints a warning and does nothing.

        Source: DyNet 2.1 `DynetParams.init`.
        Example:
            >>> dy.DynetParams().init()  # a warning: this process is initialised
        """
        _request(self._settings)

    def set_mem(self, mem: int) -> None:
        """MB to reserve; checked and otherwise ignored: memory grows as it is needed.

        Args:
            mem: MB.
        Source: DyNet 2.1 `DynetParams.set_mem`.
        Example:
            >>> dy.DynetParams().set_mem(1024)
        """
        self._settings.mem = str(_whole("set_mem", mem))

    def set_random_seed(self, random_seed: int) -> None:
        """Seed of all random numbers; 0 takes one from the operating system.

        Args:
            random_seed: 0 <= random_seed < 2**32.
        Source: DyNet 2.1 `DynetParams.set_random_seed`.
        Example:
            >>> dy.DynetParams().set_random_seed(7)
        """
        self._settings.seed = _whole("set_random_seed", random_seed)

    def set_autobatch(self, autobatch: bool) -> None:
        """Turn batching on (it is by default) or off. Results are the same.

        Args:
            autobatch: whether to batch.
        Source: DyNet 2.1 `DynetParams.set_autobatch`.
        Example:
            >>> dy.DynetParams().set_autobatch(True)
        """
        self._settings.autobatch = int(bool(autobatch))

    def set_autobatch_debug(self, autobatch_debug: bool) -> None:
        """Until DyNet 2.0.1: whether to time the ops. Now `set_profiling`.

        Args:
            autobatch_debug: True for profiling level 1, False for none.
        Source: DyNet 2.0 `DynetParams.set_autobatch_debug`.
        Example:
            >>> dy.DynetParams().set_autobatch_debug(False)
        """
        deprecated("DynetParams.set_autobatch_debug", "say set_profiling")
        self.set_profiling(int(bool(autobatch_debug)))

    def set_profiling(self, profiling: int) -> None:
        """Level of profiling.

        Args:
            profiling: 0 for none.
        Source: DyNet 2.1 `DynetParams.set_profiling`.
        Example:
            >>> dy.DynetParams().set_profiling(0)
        """
        self._settings.profiling = _whole("set_profiling", profiling, -(2**31))

    def set_weight_decay(self, weight_decay: float) -> None:
        """Default weight decay of new collections.

        Args:
            weight_decay: lambda, 0 <= lambda < 1.
        Source: DyNet 2.1 `DynetParams.set_weight_decay`.
        Example:
            >>> dy.DynetParams().set_weight_decay(1e-6)
        """
        self._settings.weight_decay = float(weight_decay)

    def set_shared_parameters(self, shared_parameters: bool) -> None:
        """Store the values of parameters made from now on in memory that processes forked later share.

        Each process has gradients, trainers and weight decay of its own; updates of several processes go into
        the same values, without a lock (Recht et al., Hogwild, 2011). A graph does not always keep
        the values it read first: what another process writes may show in what is computed afterwards.

        Args:
            shared_parameters: whether they do.
        Source: DyNet 2.1 `DynetParams.set_shared_parameters`.
        Example:
            >>> dy.DynetParams().set_shared_parameters(False)
        """
        self._settings.shared_params = bool(shared_parameters)

    def set_requested_gpus(self, requested_gpus: int) -> None:
        """Ask for GPUs; one is used. Where none can be, a warning says why, and the CPU computes.

        Args:
            requested_gpus: how many; 0: the CPU.
        Source: DyNet 2.1 `DynetParams.set_requested_gpus`.
        Example:
            >>> dy.DynetParams().set_requested_gpus(0)
        """
        self._settings.requested_gpus = _whole("set_requested_gpus", requested_gpus, -(2**31))

    def set_gpu_mask(self, gpu_mask: Sequence[int]) -> None:
        """Ask for certain GPUs, the first of which is used.

        Args:
            gpu_mask: 1 for each GPU to use, in their order, 0 for others.
        Raises:
            ValueError: an entry is neither 0 nor 1.
        Source: DyNet 2.1 `DynetParams.set_gpu_mask`.
        Example:
            >>> dy.DynetParams().set_gpu_mask([0, 1])
        """
        mask = list(gpu_mask)
        if any(entry not in (0, 1) for entry in mask):
            raise ValueError(f"set_gpu_mask(): expected entries 0 or 1, got {mask}")
        self._settings.gpu_mask = mask

    def set_cpu_mode(self) -> None:
        """Use the CPU, whatever was asked for before.

        Source: DyNet 2.1 `DynetParams.set_cpu_mode`.
        Example:
            >>> dy.DynetParams().set_cpu_mode()
        """
        self._settings.requested_gpus, self._settings.gpu_mask, self._settings.gpus = 0, [], []


def init(shared_parameters: Optional[bool] = None) -> None:
    """Initialise from the command line, for scripts that `import _dynet`.

    Args:
        shared_parameters: accepted and ignored; DyNet puts the parameters into shared memory.
    Raises:
        ValueError: an option has no value, or one that does not do.
    Source: DyNet 2.1 `init`.
    Example:
        >>> dy.init  # doctest: +ELLIPSIS
        <function init at ...>
    """
    params = DynetParams()
    params.from_args(shared_parameters)
    params.init()


def init_from_params(params: DynetParams) -> None:
    """Initialise from settings made by the program: `params.init()`.

    Args:
        params: DynetParams.
    Raises:
        TypeError: params is something else.
    Source: DyNet 2.1 `init_from_params`.
    Example:
        >>> params = dy.DynetParams()
        >>> params.set_random_seed(3)
    """
    if not isinstance(params, DynetParams):
        raise TypeError(f"init_from_params(): expected DynetParams, got {type(params).__name__}")
    params.init()
