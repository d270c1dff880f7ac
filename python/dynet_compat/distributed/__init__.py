"""Training and inference on several processes and machines, which compute one result together.

    for batch in batches(data):
        batch = dy.distributed.shard(batch)  # this process's part
        dy.renew_cg()
        loss = dy.esum([model.loss(x) for x in batch])
        loss.backward()
        trainer.update()                     # the gradients of all processes are summed first

`mpiexec -n 4 python -m dynet_compat distribute script.py` runs a script in this way on four processes, called
ranks. Started as `python script.py`, everything here does nothing: the whole minibatch is this process's
part.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Callable, Optional, TypeVar

from .._core import Expression
from . import state

T = TypeVar("T")

rank: int
"""Number of this process among those of the job; 0 alone."""
size: int
"""How many processes the job has; 1 alone."""
is_main: bool
"""Whether this is rank 0, which prints and saves."""


def __getattr__(name: str) -> Any:
    if name in ("rank", "size"):
        return getattr(state.job.group, name) if state.job else ["rank", "size"].index(name)
    if name == "is_main":
        return state.job is None or state.job.group.rank == 0
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def start(
    gradients: str = "sum",
    check_every: int = 100,
    compress: Optional[str] = None,
    timeout: float = 60.0,
    seed: Optional[int] = None,
    on_failure: str = "stop",
    overlap: Optional[bool] = None,
    nccl: bool = False,
) -> None:
    """Join the processes that `mpiexec` has started into a job. `distribute` calls this before the script;
    call it yourself, before parameters are made, in a script that is started as `mpiexec -n 4 python -m
    mpi4py s.py`.

    Args:
        gradients: "sum", DyNet's convention of losses that are summed over the minibatch; "mean" for losses
            that are divided by the number of instances in the shard.
        check_every: after so many updates, parameters and trainers of all ranks are compared; 0: never.
        compress: "float16" halves what gradients of parameters take on the network, with error feedback.
        timeout: seconds that a rank waits for the others before it ends the job and names who is missing.
        seed: of DyNet's, Python's and NumPy's random numbers, on all ranks; None: one that rank 0 draws.
        on_failure: "stop" ends the job when a rank is lost; "shrink" goes on with the others, which get new
            numbers. It needs Open MPI 5, started by `mpiexec --with-ft ulfm`.
        overlap: gradients are sent while the last ones are computed, and `update()` returns before all is
            done; what reads a parameter or trainer waits, and raises what the update has raised. None: where
            ranks are on several machines.
        nccl: gradients of parameters stay on the GPUs, of which each rank has its own, and are sent by CuPy's
            NCCL; rows of tables travel as without. Not with `compress` or "shrink".

    Returns:
        None. Without mpiexec nothing happens.
    Raises:
        ValueError: an argument that is none of these.
        RuntimeError: mpi4py is not installed, a job was started already, kernels are in use and differ, or
            this MPI cannot go on without a rank.
    Source: not in DyNet.

    Example:
        >>> dy.distributed.start()
        >>> dy.distributed.rank, dy.distributed.size
        (0, 1)
    """
    from . import job

    settings = job.Settings(gradients, check_every, compress, timeout, seed, on_failure)
    job.start(settings._replace(overlap=overlap, nccl=nccl))


def shard(items: Any, by: Optional[Callable[[Any], float]] = None) -> Any:
    """This rank's part of a minibatch, or of other data: every size-th item, from the rank-th on.

    Args:
        items: list, tuple, array, or anything that can be iterated; equal and in equal order on all ranks.
        by: what an item costs, such as `len`; parts then cost about the same. Without: parts have equal
        sizes.

    Returns:
        a list, or without `by` an array of an array; may be empty. `items` itself where there is one process.
    Source: not in DyNet.

    Example:
        >>> dy.distributed.shard(["a", "b", "c"])
        ['a', 'b', 'c']
    """
    if state.job is None:
        _warn_of_several()
        return items
    return state.job.shard(items, by)


@cache
def _warn_of_several() -> None:
    """Where a launcher has started processes that do not know of each other."""
    for name, count in state.several_started().items():
        print(
            f"dynet_compat: this is one of several processes ({name}={count}), and each trains on all data; "
            "let them share it by `python -m dynet_compat distribute script.py`, or by "
            "dy.distributed.start()",
            file=sys.stderr,
        )


def sum(x: Any) -> Any:
    """The sum over all ranks of a number, an array, a list of numbers, or an expression's value; for losses
    and counts.

    Args:
        x: of one type and size on all ranks. A script that gives its loss, not its `value()`, catches up
            faster when it resumes, as nothing needs to be computed then.

    Returns:
        the sum, of the type of x, or of its value; x itself, or its value, where there is one process.
    Source: not in DyNet.

    Example:
        >>> right, every = dy.distributed.sum([7, 10])
        >>> right / every
        0.7
    """
    if state.job is not None:
        return state.job.sum(x)
    return x.value() if isinstance(x, Expression) else x


def gather(part: Any, of: Any = None) -> list[Any]:
    """Lists of all ranks as one list, on all ranks.

    Args:
        part: this rank's list, of anything that can be pickled.
        of: what `shard()` returned; item i of `part` belongs to item i of it, and comes to its place in what
            was sharded. Without: rank by rank.

    Returns:
        list.
    Raises:
        ValueError: `part` and `of` differ in length.
    Source: not in DyNet.

    Example:
        >>> mine = dy.distributed.shard(["a", "b"])
        >>> dy.distributed.gather([word.upper() for word in mine], of=mine)
        ['A', 'B']
    """
    part = list(part)
    if of is not None and len(of) != len(part):
        raise ValueError(f"gather(): got {len(part)} items for a shard of {len(of)}; give one for each")
    every: list[Any] = part if state.job is None else state.job.gather(part, of)
    return every


def broadcast(item: T, root: int = 0) -> T:
    """An object of one rank, on all ranks; they wait for it.

    Args:
        item: anything that can be pickled; of other ranks it is ignored.
        root: which rank's it is.

    Returns:
        that rank's object.
    Source: not in DyNet.

    Example:
        >>> dy.distributed.broadcast({"beam": 5})
        {'beam': 5}
    """
    return item if state.job is None else state.job.broadcast(item, root)


@contextmanager
def main_only() -> Iterator[None]:
    """Around what one rank does alone and takes long, such as an evaluation: the others wait without a
    timeout.

    Source: not in DyNet.

    Example:
        >>> if dy.distributed.is_main:
        ...     with dy.distributed.main_only():
        ...         print("evaluation of the whole development set")
        evaluation of the whole development set
    """
    if state.job is None:
        yield
        return
    with state.job.group.clock.alone():
        yield


__all__ = [
    "broadcast", "gather", "is_main", "main_only", "rank", "shard", "size", "start", "sum",
]  # fmt: skip
