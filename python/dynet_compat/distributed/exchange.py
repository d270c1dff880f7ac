"""What `trainer.update()` does first in a job: the sum of all ranks' gradients takes the place of this
rank's."""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, Optional, Union

import numpy as np
from numpy.typing import NDArray

from .. import _core
from ..files.text_format import parameters_of
from ..startup import devices
from .buckets import Bucket, Float16Feedback
from .group import Group, JobError
from .nccl import DeviceBucket, Nccl
from .places import here, kind, refuse_mix

_ROWS = 1  # the kind of a table of which some rows have gradients
OWNERS_FROM = 6  # ranks: below, the two rounds more take longer than what they save
_BUCKET, _MOST_BUCKETS = 1 << 17, 32  # floats that travel together, or more
_INTERRUPTED = -1

AnyBucket = Union[Bucket, DeviceBucket]
Named = list[tuple[str, tuple[int, ...]]]  # name and shape


def names_of(collection: Any) -> Named:
    """Name and shape of each parameter, in the order of flat arrays: parameters, then tables."""
    return [(p.name(), tuple(p.shape())) for p in parameters_of(collection)]


def _ranges(sizes: list[int]) -> list[tuple[int, int]]:
    """Neighbouring parameters with so many floats together that they are worth a message."""
    out, begin, floats = [], 0, 0
    enough = max(_BUCKET, sum(sizes) // _MOST_BUCKETS)
    for i, size in enumerate(sizes):
        floats += size
        if floats >= enough or i + 1 == len(sizes):
            out.append((begin, i + 1))
            begin, floats = i + 1, 0
    return out


class TrainerState:
    """What the job knows of one trainer.

    Attributes:
        updates: that were asked for.
        parameters: how many the ranks have compared.
        ranges: of parameters whose gradients travel together.
    """

    def __init__(self, number: int, compress: bool) -> None:
        self.number = number
        self.updates = self.parameters = 0
        self.feedback = Float16Feedback() if compress else None
        self.ranges: list[tuple[int, int]] = []
        self.buckets: dict[int, AnyBucket] = {}

    def compared(self, names: Named) -> None:
        """All ranks have these parameters."""
        self.parameters = len(names)
        self.ranges = _ranges([math.prod(shape) for _, shape in names])


class Step(NamedTuple):
    """An update, while ranks sum its gradients."""

    trainer: Any
    collection: Any
    scale: float
    state: TrainerState
    number: int  # of all updates
    is_checked: bool  # whether ranks compare their parameters afterwards
    said: bytes  # to the other ranks
    kinds: NDArray[np.uint8]  # of this rank's gradients


class Exchange:
    """Sums gradients over ranks before each update.

    Args:
        group: the ranks.
        check_every: after so many updates of a trainer its state and parameters on all ranks are compared; 0:
            never.
        compress: dense gradients travel as float16, with error feedback.
        overlap: buckets travel while the last products of backward are computed, and update() returns before
            all is done; what reads or changes a parameter or trainer waits.
        on_gpus: gradients of parameters are sent by NCCL, from the memory of GPUs.
    Attributes:
        updates: of all trainers that were asked for.
    """

    def __init__(
        self, group: Group, check_every: int, compress: bool, overlap: bool, on_gpus: bool = False
    ) -> None:
        self.group, self.check_every, self.compress = group, check_every, compress
        self.on_gpus = on_gpus
        self._nccl: Optional[Nccl] = None
        self.updates = 0
        self._by_id: dict[int, tuple[Any, TrainerState]] = {}  # trainers are held, so that ids stay theirs
        self._worker: Optional[ThreadPoolExecutor] = None
        self._in_flight: Optional[Future[None]] = None
        self._memory = np.empty(0, np.uint8)
        self._final = 0  # ranges of the current step whose gradients are computed
        if overlap and group.size > 1:
            self._worker = ThreadPoolExecutor(1, "updates", initializer=_core._make_updates_here)
            group.clock.shares_core = True
        _core._keep_products(self._worker is not None)

    def state_of(self, trainer: Any) -> TrainerState:
        if id(trainer) not in self._by_id:
            self._by_id[id(trainer)] = trainer, TrainerState(len(self._by_id), self.compress)
        return self._by_id[id(trainer)][1]

    def trainers(self) -> list[Any]:
        """In the order in which they were made."""
        return [trainer for trainer, _ in self._by_id.values()]

    # ---------------------------------------------------------------------- equal parameters

    def made(self, trainer: Any) -> None:
        """A trainer was made: its parameters get the values of rank 0."""
        self._agree(self.state_of(trainer), _core._trainer_collection(trainer))

    def _agree(self, state: TrainerState, collection: Any) -> None:
        """Compare names and shapes with the other ranks', and give all ranks the values of rank 0."""
        names = names_of(collection)
        said = self.group.announce("parameters of a trainer", state.number)
        values = self.group.complete(lambda: self._values_of_rank_0(said, names, collection))
        if self.group.size > 1:
            _core._put_values(collection, values)
        state.compared(names)

    def _values_of_rank_0(self, said: bytes, names: Named, collection: Any) -> Any:
        device = kind(devices.current().device)  # which the script may have chosen after the start
        digest = hashlib.blake2b(repr((device, names)).encode(), digest_size=7).digest()
        self.group.meet(said)
        every = self.group.join(np.frombuffer(digest, np.uint8))
        if any((other != every[0]).any() for other in every):
            refuse_mix(self.group.gather_objects(here()))
            self._refuse_names(self.group.gather_objects(names))
        if self.group.size == 1:
            return None
        values = _core._take_values(collection)
        self.group.values_of_rank_0(values)
        return values

    def _refuse_names(self, every: list[Named]) -> None:
        for rank, names in enumerate(every):
            for i in range(max(len(names), len(every[0]))):
                here, there = (n[i] if i < len(n) else None for n in (names, every[0]))
                if here != there:
                    said = [f"{p[0]} {p[1]}" if p else "no parameter" for p in (there, here)]
                    raise JobError(
                        f"ranks have different parameters: number {i} is {said[0]} on rank 0 and {said[1]} "
                        f"on rank {rank}"
                    )

    def check(self, trainer: Any, updates: int) -> None:
        """JobError on all ranks where parameters or the trainer's state differ, with the first that does."""
        collection = _core._trainer_collection(trainer)
        hashes = np.append(_core._value_hashes(collection), np.uint64(_core._trainer_hash(trainer)))
        every = np.array(self.group.join(hashes))
        different = np.flatnonzero((every != every[0]).any(axis=0))
        if len(different):
            names = [*(name for name, _ in names_of(collection)), "the trainer's state"]
            ranks = np.flatnonzero((every != every[0]).any(axis=1)).tolist()
            raise JobError(
                f"after {updates} updates {names[different[0]]} differs between rank 0 and "
                f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}; parameters must be "
                "changed by all ranks alike, and kernels must be of one instruction set (DYNET_COMPAT_ISA)"
            )

    # -------------------------------------------------------------------------------- update

    def update(self, trainer: Any, scale: float) -> None:
        """The update of one process on the minibatches of all ranks."""
        functions = list(trainer.before_update)
        step = self.begin(trainer, scale)
        self._final = 0
        if self._worker is None:
            return self._run(step, functions)
        if functions:  # of the script, which run in its own thread
            self._finish_gradients(step)
            return self._run(step, functions)
        self._in_flight = self._worker.submit(self._run, step)
        _core._set_update_in_flight(self.settle)
        self._finish_gradients(step)

    def _finish_gradients(self, step: Step) -> None:
        """Completes the gradients of each range."""
        try:
            for begin, end in step.state.ranges:
                _core._finish_gradients(step.collection, begin, end)
                self._final += 1
        except BaseException:  # Ctrl-C, for one
            self._final = _INTERRUPTED
            raise

    def begin(self, trainer: Any, scale: float) -> Step:
        """An update is asked for: what the rest of it takes from the script's thread."""
        state, collection = self.state_of(trainer), _core._trainer_collection(trainer)
        kinds = _core._gradient_kinds(collection)
        if len(kinds) != state.parameters:  # some were added after the trainer was made
            self._agree(state, collection)
        self.updates += 1
        state.updates += 1
        checks = self.check_every > 0 and state.updates % self.check_every == 0
        said = self.group.announce(f"update of trainer {state.number}", state.updates)
        return Step(trainer, collection, scale, state, self.updates, checks, said, kinds)

    def settle(self, raises: bool = True) -> None:
        """Waits for the update in flight, and raises what it has raised, now or at the next read."""
        update = self._in_flight
        if update is None:
            return
        error = update.exception()
        if not raises or update is not self._in_flight:  # another thread has waited, too
            return
        self._in_flight = None
        _core._set_update_in_flight(None)
        if error:
            raise error

    def close(self) -> None:
        try:
            self.settle()
        finally:
            _core._keep_products(False)
            if self._worker:
                self._worker.shutdown()

    def _run(self, step: Step, before_update: Sequence[Callable[[Any], object]] = ()) -> None:
        self.sum_gradients(step)
        for function in before_update:
            function(step.trainer)
        try:
            _core._run_update(step.trainer, step.scale)
        except RuntimeError as error:
            raise RuntimeError(f"update {step.number}: {error}") from None
        if step.is_checked:
            self.group.complete(lambda: self.check(step.trainer, step.number))

    def sum_gradients(self, step: Step) -> None:
        """The sum of all ranks' gradients takes the place of this rank's."""
        rest = dict(step.state.feedback.rest) if step.state.feedback else {}
        found = self.group.complete(lambda: self._sums(step, dict(rest)))
        if found is None:
            return
        kinds, sums, rows = found
        for (begin, end), bucket in zip(step.state.ranges, sums):
            bucket.put(step.collection, kinds, begin, end)
        if rows:
            _core._add_rows(step.collection, *rows)

    def _sums(self, step: Step, rest: dict[str, Any]) -> Any:
        """Kinds of gradients, sums over ranks for each range, and rows of tables; None where there are no
        other ranks. Changes no gradient."""
        state, collection = step.state, step.collection
        if state.feedback:
            state.feedback.rest = rest
        own = zlib.crc32(step.kinds.tobytes()), _core._row_bytes(collection, step.kinds)
        every = self.group.meet(step.said, own)
        if self.group.size == 1:
            return None
        kinds, sizes = step.kinds, None
        if len({digest for digest, _ in every}) > 1:
            kinds = self.group.largest(kinds)
        else:
            sizes = np.array([size for _, size in every], np.int64)
        rows = self._all_rows(collection, kinds, sizes) if (kinds == _ROWS).any() else None
        return kinds, self._add_up(step, kinds), rows

    def _add_up(self, step: Step, kinds: NDArray[np.uint8]) -> list[AnyBucket]:
        """The sum of each range. A bucket is sent while the next one is computed."""
        collection = step.collection
        buckets: list[AnyBucket] = []
        for k, (begin, end) in enumerate(step.state.ranges):
            bucket = self._bucket(step.state, k, _core._gradient_size(collection, kinds, begin, end))
            if self._worker:
                self.group.clock.wait(partial(self._is_final, k, buckets), "its own gradients", spins=0)
            bucket.take(collection, kinds, begin, end)
            bucket.send()
            if buckets:
                buckets[-1].send_sum()
            buckets.append(bucket)
        if buckets:
            buckets[-1].send_sum()
        for bucket in buckets:
            bucket.finish()
        return buckets

    def _is_final(self, k: int, buckets: list[AnyBucket]) -> bool:
        """Whether the gradients of range k are computed; what is on its way goes on meanwhile."""
        if buckets:
            buckets[-1].arrived()
        if self._final == _INTERRUPTED:
            raise JobError("update(): its gradients were not completed, because it was interrupted")
        return self._final > k

    def _bucket(self, state: TrainerState, k: int, size: int) -> AnyBucket:
        bucket = state.buckets.get(k)
        if bucket is None or bucket.size != size or bucket.ranks != self.group.size:
            if self.on_gpus:
                self._nccl = self._nccl or Nccl(self.group)
                bucket = state.buckets[k] = DeviceBucket(self._nccl, size)
            else:
                bucket = state.buckets[k] = Bucket(self.group, k, size, state.feedback)
        return bucket

    def _all_rows(
        self, collection: Any, kinds: NDArray[np.uint8], sizes: Optional[NDArray[np.int64]]
    ) -> Any:
        """Table rows of all ranks, in an order in which to add them, as messages and their sizes.

        Few ranks send each other theirs, whose `sizes` they may know. Of many ranks each owns some rows and
        sums them first, in rank order, too: most rows are those of several ranks.
        """
        group = self.group
        if group.size < OWNERS_FROM:
            if sizes is None:
                sizes = np.concatenate(group.join(np.array([_core._row_bytes(collection, kinds)])))
            every = self._row_memory(int(sizes.sum()))
            _core._take_rows(collection, kinds, every[int(sizes[: group.rank].sum()) :])
            return group.join_in_place(every, sizes)
        sent = self._row_memory(_core._row_bytes(collection, kinds) + 16 * group.size)
        dealt = _core._take_rows(collection, kinds, sent, group.size)
        return group.join_bytes(_core._sum_rows(collection, *group.deal(sent, dealt)))

    def _row_memory(self, size: int) -> NDArray[np.uint8]:
        """Large arrays are slow to get and to give back, so that rows of all updates share one."""
        if len(self._memory) < size:
            self._memory = np.empty(size + size // 4, np.uint8)
        return self._memory[:size]
