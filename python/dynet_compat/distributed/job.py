"""The job of this process: its group of ranks, what it does at updates, and its random streams."""

from __future__ import annotations

import atexit
import contextlib
import operator
import os
import random
import sys
import traceback
from functools import reduce
from typing import Any, Callable, NamedTuple, Optional

import numpy as np

from .. import _core
from ..files import atomic
from ..startup import config, devices
from . import places, state
from .checkpoint import Checkpoints
from .cores import share_cores
from .exchange import Exchange
from .group import Group, JobError, abort
from .saves import Saves
from .shards import Shard, cut, put_back

# Variables of the environment that launchers set.
_LAUNCHED = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALRANKID")
_ULFM = "OMPI_MCA_mpi_ft_enable"
_ISAS = ("baseline", "avx2", "avx512")  # ascending


class Settings(NamedTuple):
    """Arguments of `start()`."""

    gradients: str = "sum"
    check_every: int = 100
    compress: Optional[str] = None
    timeout: float = 60.0
    seed: Optional[int] = None
    on_failure: str = "stop"
    checkpoint: Optional[str] = None  # folder
    every: int = 1000  # updates between checkpoints
    shard_batch_map: bool = False
    overlap: Optional[bool] = None
    nccl: bool = False

    def check(self) -> None:
        """Raises ValueError where a setting has an unknown value, or two exclude each other."""
        if self.gradients not in ("sum", "mean"):
            raise ValueError(f"start(): got gradients={self.gradients!r}; wanted 'sum' or 'mean'")
        if self.compress not in (None, "float16"):
            raise ValueError(f"start(): got compress={self.compress!r}; wanted None or 'float16'")
        if self.on_failure not in ("stop", "shrink"):
            raise ValueError(f"start(): got on_failure={self.on_failure!r}; wanted 'stop' or 'shrink'")
        if self.on_failure == "shrink" and self.checkpoint is not None:
            raise ValueError("--on-failure shrink: a checkpoint is of so many ranks; leave out --checkpoint")
        if self.nccl and (self.on_failure == "shrink" or self.compress is not None):
            raise ValueError("--nccl: it can neither go on without a rank nor send float16; leave that out")


def world() -> Any:
    """mpi4py's communicator of all processes that mpiexec has started; None: this one was started alone."""
    several = state.several_started()
    if not several and not any(name in os.environ for name in _LAUNCHED):
        return None  # also in a batch step of Slurm, which has SLURM_PROCID and SLURM_NTASKS
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise RuntimeError(
            "mpiexec has started this process, and mpi4py cannot be imported: pip install mpi4py mpich "
            f"(on a cluster mpi4py alone) ({error})"
        ) from error
    if several and MPI.COMM_WORLD.Get_size() == 1:
        said = ", ".join(f"{name}={value}" for name, value in several.items())
        raise RuntimeError(
            f"this process was started as one of several ({said}), and its MPI knows of no other: start it "
            "by the mpiexec of the MPI that mpi4py uses (under Slurm `srun --mpi=pmi2` or `--mpi=pmix`)"
        )
    return MPI.COMM_WORLD


def start(settings: Settings) -> None:
    settings.check()
    if state.job is not None:
        raise RuntimeError("start(): this process is in a job already (`distribute` calls start() itself)")
    comm = world()
    if comm is None and settings.checkpoint is None:
        if settings.seed is not None:
            _seed_streams(settings.seed)
        return
    state.job = Job(comm, settings)


def _seed_streams(seed: int) -> None:
    """DyNet's, Python's and NumPy's; also if the script starts DyNet again without a seed."""
    _core.reset_random_seed(seed)
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    config.use_seed(seed)


def _compare_hashes(every: list[int]) -> None:
    if len(set(every)) > 1:
        print(
            "dynet_compat: sets of strings have another order on each rank, and so has what is numbered "
            "by them; set PYTHONHASHSEED=0, or sort them",
            file=sys.stderr,
        )


def _level_kernels(rank: int, every: list[str]) -> None:
    """Ranks of different processors round differently: all take the instruction set that all have."""
    if any(isa not in _ISAS for isa in every):
        if len(set(every)) > 1:
            raise JobError(f"ranks have different processors: {', '.join(sorted(set(every)))}")
        return
    common = min(every, key=_ISAS.index)
    os.environ["DYNET_COMPAT_ISA"] = common
    if _core.isa() != common:
        raise JobError(
            f"this rank computes with {_core.isa()} kernels already, and another has {common} at most; "
            f"set DYNET_COMPAT_ISA={common}, or call start() before anything is computed"
        )
    if len(set(every)) > 1 and rank == 0:
        print(f"dynet_compat: ranks have different processors; all use {common} kernels", file=sys.stderr)


def flush_output() -> None:
    """As Python does at its end: a script may have closed its output, or have none."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not getattr(stream, "closed", False):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()


def _leave_core() -> None:
    """Trainers and losses are those of one process again."""
    _core._set_trainer_hooks()
    _core._set_loss_share(1.0)
    _core._skip_backward(False)


class Job(atomic.Role):
    """See `dynet_compat.distributed`; alone, with a group of one, for checkpoints."""

    def __init__(self, comm: Any, settings: Settings) -> None:
        shrinks = settings.on_failure == "shrink" and comm is not None
        if shrinks and os.environ.get(_ULFM) != "1":
            raise RuntimeError(
                "on_failure='shrink': this MPI ends all ranks when one is lost; wanted Open MPI 5 or newer, "
                f"started by `mpiexec --with-ft ulfm` (which sets {_ULFM}=1)"
            )
        self.group = Group(comm, settings.timeout, self._go_on if shrinks else None)
        self._sharded_for = self.group.size  # ranks, at the last shard()
        self._parts = [1] * self.group.size  # items of each rank then; before, all have all data
        every = self.group.gather_objects(places.here())
        if comm is not None:
            share_cores(self.group.rank, [place.cores for place in every])
        places.refuse_mix(every)
        _level_kernels(self.group.rank, [place.isa for place in every])
        if self.group.rank == 0:
            _compare_hashes([place.word for place in every])
        self.shards_batch_map = settings.shard_batch_map
        self._own_stream = False
        self._means = settings.gradients == "mean"
        overlaps = self._overlaps(settings, [place.host for place in every]) and not shrinks
        compress = settings.compress is not None
        self.exchange = Exchange(self.group, settings.check_every, compress, overlaps, settings.nccl)
        self.checkpoints: Optional[Checkpoints] = None
        if settings.checkpoint is not None:
            self.checkpoints = Checkpoints(self.group, self.exchange, settings.checkpoint, settings.every)
        self.seed = self._common_seed(settings.seed)
        self._saves = Saves(self.group)
        self.has_failed = False  # the program has ended by an exception
        _core._allow_empty_sums(True)
        self._set_share()
        if self.checkpoints:
            self.checkpoints.begin()
        _core._set_trainer_hooks(**self.trainer_hooks())
        atomic.role = self
        atexit.register(self._at_exit)
        os.register_at_fork(before=self._before_fork, after_in_child=self._in_child)

    def trainer_hooks(self) -> dict[str, Callable[..., Any]]:
        """What trainers call."""
        return {
            "made": self.exchange.made, "update": self._update, "before_save": self._before_save,
            "after_save": self._after_save,
            "before_load": lambda trainer: self.before_load(),
        }  # fmt: skip

    def _overlaps(self, settings: Settings, hosts: list[str]) -> bool:
        """Whether updates go on while the script does: it pays where ranks are on several machines."""
        if hosts.count(hosts[self.group.rank]) > devices.cores():
            self.group.clock.shares_core = True
        return len(set(hosts)) > 1 if settings.overlap is None else settings.overlap

    def _common_seed(self, seed: Optional[int]) -> int:
        """Seeds streams alike on all ranks, so that they make equal parameters and shuffle alike."""
        drawn = int.from_bytes(os.urandom(4), "little") >> 1 if seed is None else seed
        common = int(self.group.from_rank(drawn, 0))
        if self.checkpoints:
            common = self.checkpoints.seed_of_run(common, given=seed is not None)
        _seed_streams(common)
        return common

    # -------------------------------------------------------------------------- data and numbers

    def shard(self, items: Any, by: Optional[Callable[[Any], float]]) -> Any:
        if not hasattr(items, "__len__"):
            items = list(items)
        self.group.meetings.note(len(items))
        self._sharded_for = self.group.size
        if not self._own_stream:  # the model is made: from here on ranks draw different dropout masks
            self._own_stream = True
            if self.group.rank:
                _core.reset_random_seed((self.seed + 0x9E3779B1 * self.group.rank) & 0x7FFFFFFF)
        if self.checkpoints and not self.group.is_forked:
            self.checkpoints.at_shard()
        part, self._parts = cut(items, self.group.rank, self.group.size, by)
        self._set_share()
        return part

    def _set_share(self) -> None:
        """What this rank's next losses count for, where they are means."""
        if self._means:
            _core._set_loss_share(self._parts[self.group.rank] / max(1, sum(self._parts)))

    def _all(self, operation: str, item: Any) -> list[Any]:
        """An object of each rank; while a resumed script catches up, what it was in the run before."""
        self.exchange.settle()
        said = self.group.announce(operation)

        def gather() -> list[Any]:
            self.group.meet(said)
            if self.checkpoints:
                return self.checkpoints.remember(operation, lambda: self.group.gather_objects(item))
            return self.group.gather_objects(item)

        return self.group.complete(gather)

    def sum(self, x: Any) -> Any:
        if isinstance(x, _core.Expression):
            x = 0.0 if self._catching_up else x.value()
        every = self._all("sum()", x)
        if isinstance(every[0], (list, tuple)):  # the value of an expression is no list while catching up
            kind = type(x) if isinstance(x, (list, tuple)) else type(every[0])
            if len({len(part) for part in every}) > 1:
                raise JobError(f"sum(): ranks gave lists of {[len(part) for part in every]} numbers")
            return kind(reduce(operator.add, column) for column in zip(*every))
        return reduce(operator.add, every)

    def gather(self, part: list[Any], of: Any) -> list[Any]:
        place: Any = None
        if isinstance(of, Shard):
            place = list(of.positions)
        elif isinstance(of, np.ndarray):
            place = [self.group.rank + i * self.group.size for i in range(len(of))]
        every = self._all("gather()", (part, place))
        if of is not None and self._sharded_for != self.group.size:
            raise JobError("gather(): a rank was lost with its part of what was sharded; shard it again")
        return put_back([items for items, _ in every], [at for _, at in every])

    def broadcast(self, item: Any, root: int) -> Any:
        if not 0 <= root < self.group.size:
            raise ValueError(f"broadcast(): got root {root}; the job has {self.group.size} ranks")
        is_root = self.group.rank == root
        every = self._all(f"broadcast() of rank {root}", (is_root, item if is_root else None))
        if not any(mine for mine, _ in every):
            raise JobError(f"broadcast(): rank {root} was lost with the object")
        return next(given for mine, given in every if mine)

    # -------------------------------------------------------------------------------------- files

    @property
    def writes(self) -> bool:
        """Rank 0 saves for all, and nobody while a resumed script catches up."""
        return self.group.rank == 0 and not self._catching_up

    def replaces(self, path: str) -> None:
        if self.checkpoints and not self.group.is_forked:
            self.checkpoints.replaces(path)

    def replaced(self, path: str) -> None:
        if self.checkpoints and not self.group.is_forked:
            self.checkpoints.replaced(path)

    def saved(self, path: str) -> None:
        if not self._catching_up and not self.group.is_forked:
            self.exchange.settle()
            self._saves.add(path)

    def _before_save(self, trainer: Any, path: Any) -> bool:
        if self.writes:
            self.replaces(os.fsdecode(path))
        else:
            self.saved(os.fsdecode(path))
        return self.writes

    def _after_save(self, trainer: Any, path: Any) -> None:
        self.replaced(os.fsdecode(path))
        self.saved(os.fsdecode(path))

    def before_load(self) -> None:
        if self.group.is_forked:
            return
        self.exchange.settle()
        self._saves.wait()

    @property
    def _catching_up(self) -> bool:
        return self.checkpoints is not None and self.checkpoints.skipping

    # ------------------------------------------------------------------------------------ updates

    def _go_on(self, lost: list[int]) -> None:
        """Ranks were lost. All files that rank 0 has saved are there: it has come as far as this rank."""
        self._saves = Saves(self.group)
        self._drop_parts(lost)
        if self.group.rank:
            return
        if 0 in lost:  # this rank prints from now on
            sys.stdout.flush()
            for stream, descriptor in ((sys.__stdout__, 1), (sys.__stderr__, 2)):
                if stream is not None:
                    os.dup2(stream.fileno(), descriptor)
        who = f"rank {lost[0]} was" if len(lost) == 1 else f"ranks {', '.join(map(str, lost))} were"
        print(f"dynet_compat: {who} lost; {self.group.size} go on", file=sys.__stderr__, flush=True)

    def _drop_parts(self, lost: list[int]) -> None:
        """Means are those of what is left, also where losses were differentiated before ranks were lost, and
        where the script does not call shard() again."""
        every = sum(self._parts)
        self._parts = [count for rank, count in enumerate(self._parts) if rank not in lost]
        self._set_share()
        if not self._means or not sum(self._parts):
            return
        collections = [_core._trainer_collection(trainer) for trainer in self.exchange.trainers()]
        gradients = [collection.gradients_to_vector() for collection in collections]
        for collection, (vector, contents) in zip(collections, gradients):  # which may share parameters
            collection.vector_to_gradients(vector * np.float32(every / sum(self._parts)), contents)

    def _update(self, trainer: Any, scale: float) -> bool:
        if self.checkpoints and self.checkpoints.skipping:
            self.checkpoints.skip(trainer)
            return False
        self.exchange.update(trainer, scale)
        if self.checkpoints:
            self.checkpoints.after_update()
        return False

    def _before_fork(self) -> None:
        self.exchange.settle(raises=False)  # what a hook of a fork raises is lost

    def _in_child(self) -> None:
        """A process that a rank has forked, to prepare data, is no rank; it has that one's number and part of
        data, and saves if that one does."""
        atexit.unregister(self._at_exit)
        self.group.is_forked = True
        if state.job is self:
            _leave_core()
            _core._set_trainer_hooks(before_save=self._before_save)
            _core._keep_products(False)

    def _at_exit(self) -> None:
        try:
            self.end()
        except BaseException:  # the interpreter would end with status 0
            traceback.print_exc()
            if self.group.size > 1:
                abort(self.group.comm, 1)
            flush_output()
            os._exit(1)
        self.leave()

    def leave(self) -> None:
        """Ends the process where ranks were lost: MPI_Finalize would wait for them."""
        if self.group.has_lost:
            flush_output()
            os._exit(int(hasattr(sys, "last_value")))  # 1 after an exception

    def end(self) -> None:
        """At the end of the program: the ranks meet once more, so that one that ends early is noticed."""
        if state.job is not self:
            return
        state.job = None
        _leave_core()
        atomic.role = atomic.Role()
        config.use_seed(None)
        _core._allow_empty_sums(False)
        try:
            self.exchange.close()
            if self.checkpoints:
                self.checkpoints.end()
            said = self.group.announce("end of program, updates:", self.exchange.updates)
            self.group.complete(lambda: self.group.meet(said))
            if self.checkpoints and not self.has_failed and not hasattr(sys, "last_value"):
                self.checkpoints.ended_well()
        finally:
            self.group.close()
