"""Checkpoints of a job, and how a script that is started again catches up with one.

A script has no state that could be written down: its loops are where they are. So a script that is started
again runs from its beginning, with empty shards and without updates, until as many updates have been asked
for as the checkpoint has. What `sum()`, `gather()` and `broadcast()` returned in the run before is returned
again, so that the script takes the same decisions. Then values, trainers and random streams are restored,
and it goes on with the same bits, provided that its order of data does not depend on values that it reads
elsewhere.
"""

from __future__ import annotations

import os
import pickle
import random
import sys
from typing import Any, Callable, Optional, TextIO

import numpy as np

from .. import _core
from ..files.atomic import replacing
from ..files.pickle_names import Names
from ..files.unpickler import load_all
from .exchange import Exchange
from .group import Group, JobError

_VERSION = 2


class Checkpoints:
    """The checkpoint in a folder, and the results of collectives beside it.

    Args:
        group: the ranks; each has its Checkpoints, and rank 0 writes.
        exchange: knows the trainers.
        folder: made if it is not there. A checkpoint that is in it is resumed.
        every: updates between checkpoints.
    """

    def __init__(self, group: Group, exchange: Exchange, folder: str, every: int) -> None:
        if every < 1:
            raise ValueError(f"--every: got {every}; wanted 1 or more updates between checkpoints")
        self._group, self._exchange, self._every = group, exchange, every
        self._file, self._results = (os.path.join(folder, name) for name in ("checkpoint", "results"))
        os.makedirs(folder, exist_ok=True)
        self._target = self._read()
        self._fresh: list[Any] = []  # results since the last checkpoint
        self._replayed = 0
        self._output: Optional[TextIO] = None
        if self._target is not None:
            if group.rank == 0:
                print(f"dynet_compat: resuming after update {self._target['updates']}", file=sys.stderr)
            self._output, sys.stdout = sys.stdout, open(os.devnull, "w")
        elif group.rank == 0:
            open(self._results, "wb").close()

    @property
    def skipping(self) -> bool:
        """Whether the script is on its way to the checkpoint."""
        return self._target is not None

    def _read(self) -> Optional[dict[str, Any]]:
        try:
            with open(self._file, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            data = b""
        if len(set(self._group.gather_objects(len(data)))) > 1:
            raise JobError(f"--checkpoint: ranks see different files {self._file}; wanted a shared folder")
        if not data:
            return None
        (target,) = load_all(data, _plain())
        if target["version"] != _VERSION or target["ranks"] != self._group.size:
            raise JobError(
                f"{self._file} is of version {target['version']}, written by {target['ranks']} ranks; this "
                f"is version {_VERSION} with {self._group.size} ranks; start as many ranks"
            )
        with open(self._results, "rb") as file:
            kept = file.read(target["results"])
        target["log"] = [entry for part in load_all(kept, _plain()) for entry in part]
        return dict(target)

    # ------------------------------------------------------------------------------- catching up

    def remember(self, collective: Callable[[], list[Any]]) -> list[Any]:
        """What a collective returns: that of the run before while catching up."""
        if self._target is None:
            result = collective()
            self._fresh.append(result)
            return result
        if self._replayed == len(self._target["log"]):
            raise JobError(
                f"{self._file} is of another program: this one asks for more results of sum() or gather()"
            )
        self._replayed += 1
        return list(self._target["log"][self._replayed - 1])

    def skip(self, trainer: Any) -> None:
        """An update of the run before; the last one restores what the job had after it."""
        exchange, target = self._exchange, self._target
        assert target is not None
        exchange.state_of(trainer).updates += 1
        exchange.updates += 1
        if exchange.updates == target["updates"]:
            self._restore(target)
            self._target = None
            if self._group.rank == 0:
                os.truncate(self._results, target["results"])
            if self._output is not None:
                sys.stdout.close()
                sys.stdout = self._output

    def _restore(self, target: dict[str, Any]) -> None:
        trainers = self._exchange.trainers()
        if len(trainers) != len(target["trainers"]):
            raise JobError(
                f"{self._file} has {len(target['trainers'])} trainers; this program has made {len(trainers)}"
            )
        for trainer, saved in zip(trainers, target["trainers"]):
            collection = _core._trainer_collection(trainer)
            _core._put_values(collection, saved["values"])
            _core._set_decay_factor(collection, saved["decay"])
            _core._set_trainer_state(trainer, saved["state"])
        _core._set_random_state(target["streams"][self._group.rank])
        if random.getstate() != _as_tuples(target["python"]) and self._group.rank == 0:
            print(
                "dynet_compat: Python's random numbers were not drawn as in the run before; the order of the "
                "data may be another one", file=sys.stderr,
            )  # fmt: skip
        random.setstate(_as_tuples(target["python"]))
        np.random.set_state(_as_tuples(target["numpy"]))

    # ----------------------------------------------------------------------------------- writing

    def after_update(self, trainer: Any) -> None:
        if self._exchange.updates % self._every:
            return
        self._group.meet("checkpoint")
        streams = self._group.gather_objects(_core._random_state())
        if self._group.rank == 0:
            self._write(streams)
        self._fresh.clear()

    def _write(self, streams: list[bytes]) -> None:
        with open(self._results, "ab") as file:
            if self._fresh:
                file.write(pickle.dumps(list(self._fresh), 4))
            file.flush()
            os.fsync(file.fileno())
            results = file.tell()
        trainers = []
        for trainer in self._exchange.trainers():
            collection = _core._trainer_collection(trainer)
            trainers.append({
                "values": _core._take_values(collection),
                "decay": _core._decay_factor(collection),
                "state": _core._trainer_state(trainer, True),
            })  # fmt: skip
        contents = {
            "version": _VERSION, "ranks": self._group.size, "updates": self._exchange.updates,
            "results": results, "trainers": trainers, "streams": streams, "python": random.getstate(),
            "numpy": np.random.get_state(),
        }  # fmt: skip
        with replacing(self._file) as new:
            new.write(pickle.dumps(contents, 4))


def _plain() -> Names:
    return Names(lambda module, name: None, "from_spec", [], "distribute --checkpoint")


def _as_tuples(state: Any) -> Any:
    """Random states as their modules want them: reading gives lists for some tuples."""
    return tuple(tuple(part) if isinstance(part, list) else part for part in state)
