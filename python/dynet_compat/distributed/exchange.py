"""What `trainer.update()` does first in a job: the sum of all ranks' gradients takes the place of this
rank's."""

from __future__ import annotations

import hashlib
from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .group import Group, JobError

_ROWS = 1  # the kind of a table of which some rows have gradients
OWNERS_FROM = 6  # ranks: below, the two rounds more take longer than what they save


Named = list[tuple[str, tuple[int, ...]]]  # name and shape


def names_of(collection: Any) -> Named:
    """Name and shape of each parameter, in the order of flat arrays: parameters, then tables."""
    every = [*collection.parameters_list(), *collection.lookup_parameters_list()]
    return [(p.name(), tuple(p.shape())) for p in every]


class Float16Feedback:
    """Rounds to float16, and adds what rounding has cut off to the next values of the same place.

    Seide et al., 1-bit stochastic gradient descent and its application to data-parallel distributed training
    of speech DNNs, 2014: the errors do not add up, so that float16 is enough.

    Attributes:
        rest: what was cut off, by stage.
    """

    def __init__(self) -> None:
        self.rest: dict[str, NDArray[np.float32]] = {}

    def __call__(self, values: NDArray[np.float32], stage: str) -> NDArray[np.float32]:
        rest = self.rest.get(stage)
        wanted = values + rest if rest is not None and rest.shape == values.shape else values
        limit = np.float32(np.finfo(np.float16).max)
        rounded = np.clip(wanted, -limit, limit).astype(np.float16).astype(np.float32)
        self.rest[stage] = np.where(np.isfinite(wanted), wanted - rounded, np.float32(0))
        return np.where(np.isfinite(wanted), rounded, wanted)


class TrainerState:
    """What the job knows of one trainer."""

    def __init__(self, number: int, compress: bool) -> None:
        self.number = number
        self.updates = 0
        self.parameters = 0  # how many the ranks have compared
        self.feedback = Float16Feedback() if compress else None


class Exchange:
    """Sums gradients over ranks before each update.

    Args:
        group: the ranks.
        mean: gradients are weighted by the sizes of the shards, for losses that are means.
        check_every: after so many updates parameters and trainer states of all ranks are compared; 0: never.
        compress: dense gradients travel as float16, with error feedback.
    """

    def __init__(self, group: Group, mean: bool, check_every: int, compress: bool) -> None:
        self.group, self.mean, self.check_every, self.compress = group, mean, check_every, compress
        self.shard_size = 0  # instances of this rank in the current minibatch
        self.updates = 0  # of all trainers
        self._by_id: dict[int, tuple[Any, TrainerState]] = {}  # trainers are held, so that ids stay theirs

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
        values = self.group.complete(lambda: self._values_of_rank_0(state.number, names, collection))
        if self.group.size > 1:
            _core._put_values(collection, values)
        state.parameters = len(names)

    def _values_of_rank_0(self, number: int, names: Named, collection: Any) -> Any:
        digest = hashlib.blake2b(repr(names).encode(), digest_size=7).digest()
        self.group.meet("parameters of a trainer", number)
        every = self.group.join(np.frombuffer(digest, np.uint8))
        if any((other != every[0]).any() for other in every):
            self._refuse_names(self.group.gather_objects(names))
        if self.group.size == 1:
            return None
        values = _core._take_values(collection)
        self.group.comm.Bcast(values, 0)
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

    def check(self, trainer: Any) -> None:
        """JobError on all ranks where parameters or the trainer's state differ, with the first that does."""
        collection = _core._trainer_collection(trainer)
        hashes = np.append(_core._value_hashes(collection), np.uint64(_core._trainer_hash(trainer)))
        every = np.array(self.group.join(hashes))
        different = np.flatnonzero((every != every[0]).any(axis=0))
        if len(different):
            names = [*(name for name, _ in names_of(collection)), "the trainer's state"]
            ranks = np.flatnonzero((every != every[0]).any(axis=1)).tolist()
            raise JobError(
                f"after {self.updates} updates {names[different[0]]} differs between rank 0 and "
                f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}; parameters must be "
                "changed by all ranks alike, and kernels must be of one instruction set (DYNET_COMPAT_ISA)"
            )

    # -------------------------------------------------------------------------------- update

    def before_update(self, trainer: Any) -> None:
        state = self.state_of(trainer)
        collection = _core._trainer_collection(trainer)
        kinds = _core._gradient_kinds(collection)
        if len(kinds) != state.parameters:  # some were added after the trainer was made
            self._agree(state, collection)
        rest = dict(state.feedback.rest) if state.feedback else {}
        kinds, total, rows = self.group.complete(lambda: self._total(state, collection, kinds, dict(rest)))
        _core._put_gradients(collection, kinds, total)
        if rows:
            _core._add_rows(collection, *rows)

    def _total(
        self, state: TrainerState, collection: Any, kinds: NDArray[np.uint8], rest: dict[str, Any]
    ) -> tuple[NDArray[np.uint8], NDArray[np.float32], Any]:
        """Kinds of gradients, their sum over ranks, and the rows of tables. Changes no gradient."""
        self.group.meet(f"update of trainer {state.number}", state.updates + 1)
        if state.feedback:
            state.feedback.rest = rest
        kinds = self.group.largest(kinds)
        size = _core._gradient_size(collection, kinds)
        flat = self.group.flat(size)
        _core._take_gradients(collection, kinds, flat)
        share = self._share()
        if share is not None:
            flat *= share
        rows = self._all_rows(collection, kinds, share) if (kinds == _ROWS).any() else None
        return kinds, self.group.add_up(flat, size, state.feedback), rows

    def _all_rows(self, collection: Any, kinds: NDArray[np.uint8], share: Optional[np.float32]) -> Any:
        """Table rows of all ranks, in an order in which to add them, as messages and their sizes.

        Few ranks send each other theirs. Of many ranks each owns some rows and sums them first, in rank
        order, too: most rows are those of several ranks.
        """
        parts = self.group.size if self.group.size >= OWNERS_FROM else 1
        messages, sizes = _core._take_rows(collection, kinds, parts, 1.0 if share is None else float(share))
        if parts > 1:
            messages = _core._sum_rows(collection, *self.group.deal(messages, sizes))
        return self.group.join_bytes(messages)

    def _share(self) -> Optional[np.float32]:
        """This rank's share of the minibatch, where losses are means."""
        if not self.mean:
            return None
        sizes = np.concatenate(self.group.join(np.array([self.shard_size], np.int64)))
        return np.float32(self.shard_size / max(1, int(sizes.sum())))

    def after_update(self, trainer: Any) -> None:
        state = self.state_of(trainer)
        state.updates += 1
        self.updates += 1
        if self.check_every and self.updates % self.check_every == 0:
            self.group.complete(lambda: self.check(trainer))
