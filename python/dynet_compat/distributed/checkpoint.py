"""Checkpoints of a job, and how a script that is started again catches up with one.

A script has no state that could be written down: its loops are where they are. So a script that is started
again runs from its beginning until it is where the checkpoint was written. It gets its usual shards and
records its losses; nothing is differentiated or updated, and a value is computed only if the script reads it.
What `sum()`, `gather()` and `broadcast()` returned in the run before is returned again, so that the script
takes the same decisions. Then values, trainers and random streams are restored, and it goes on with the same
bits, provided that its order of data does not depend on values that it reads elsewhere.

A checkpoint is written in the first `shard()` after an update, where no loss is left whose value is still to
be read. Gradients that are left, as of a trainer that updates more seldom, are part of it. Where an update
follows without a `shard()`, as in a loop over one shard of all data, it is written after that update.
"""

from __future__ import annotations

import io
import os
import pickle
import random
import sys
from typing import Any, Callable, NoReturn, Optional, TextIO

import numpy as np

from .. import _core
from ..files.atomic import whole
from ..files.pickle_names import Names
from ..files.text_format import parameters_of
from ..files.unpickler import load_all
from .exchange import Exchange
from .group import Group, JobError
from .kept_files import KeptFiles

_VERSION = 4


class Results:
    """What collectives have returned, in a file: a resumed script gets it again.

    Args:
        path: of the file.
        program: what messages call the checkpoint that it belongs to.
    """

    def __init__(self, path: str, program: str) -> None:
        self._path, self._program = path, program
        self._fresh: list[bytes] = []  # since the last checkpoint, pickled
        self._kept: list[list[Any]] = []  # of the run that is resumed
        self._replayed = 0

    def read(self, size: int) -> None:
        """Those of the run before, which are the first so many bytes."""
        with open(self._path, "rb") as file:
            self._kept = load_all(file.read(size), _NAMES)

    def clear(self) -> None:
        open(self._path, "wb").close()

    def truncate(self, size: int) -> None:
        os.truncate(self._path, size)

    def add(self, operation: str, result: list[Any]) -> None:
        """JobError where it could not be read again."""
        self._fresh.append(_pickled(operation, result))

    def again(self) -> list[Any]:
        """The next of the run before."""
        if self._replayed == len(self._kept):
            raise self._unlike("more")
        self._replayed += 1
        return list(self._kept[self._replayed - 1])

    def check_all_replayed(self) -> None:
        if self._replayed < len(self._kept):
            raise self._unlike("fewer")

    def _unlike(self, how_many: str) -> JobError:
        return JobError(
            f"{self._program} is of another program: this one asks for {how_many} results of sum() or "
            "gather()"
        )

    def write(self) -> int:
        """Appends what is new; the size of the file."""
        with open(self._path, "ab") as file:
            file.write(b"".join(self._fresh))
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def forget_written(self) -> None:
        self._fresh.clear()


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
        self._file = os.path.join(folder, "checkpoint")
        os.makedirs(folder, exist_ok=True)
        self._results = Results(os.path.join(folder, "results"), self._file)
        self._files = KeptFiles(folder) if group.rank == 0 else None
        self._target = self._read()
        self._run = ""  # which run this is, however often it was resumed
        self._seed = 0
        self._is_due = False
        self._output: Optional[TextIO] = None

    def begin(self) -> None:
        """The script is about to run."""
        self._run = (self._target or {}).get("run") or os.urandom(8).hex()
        if self._files:
            self._files.begin(None if self._target is None else self._name_of(self._target))
        self._group.from_rank(None, 0)  # no rank loads a file before
        if self._target is not None:
            if self._group.rank == 0:
                print(f"dynet_compat: resuming after update {self._target['updates']}", file=sys.stderr)
            self._output, sys.stdout = sys.stdout, open(os.devnull, "w")
            _core._skip_backward(True)
        elif self._group.rank == 0:
            self._results.clear()

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
        (target,) = load_all(data, _NAMES)
        if target["version"] != _VERSION or target["ranks"] != self._group.size:
            raise JobError(
                f"{self._file} is of version {target['version']}, written by {target['ranks']} ranks; this "
                f"is version {_VERSION} with {self._group.size} ranks; start as many ranks"
            )
        self._results.read(target["results"])
        return dict(target)

    def replaces(self, path: str) -> None:
        """The script saves over that file."""
        if self._files:
            self._files.keep(path)

    def replaced(self, path: str) -> None:
        """The script has saved over it."""
        if self._files:
            self._files.saved(path)

    def seed_of_run(self, seed: int, given: bool) -> int:
        """The seed of the run that is resumed, else `seed`, which checkpoints keep."""
        kept = seed if self._target is None else int(self._target["seed"])
        if given and kept != seed:
            raise JobError(f"{self._file} is of a run with seed {kept}; got {seed}: leave the seed out")
        self._seed = kept
        return kept

    # ------------------------------------------------------------------------------- catching up

    def remember(self, operation: str, collective: Callable[[], list[Any]]) -> list[Any]:
        """What a collective returns: that of the run before while catching up.

        Raises:
            JobError: the checkpoint could not be read with this result.
        """
        if self._target is not None:
            return self._results.again()
        result = collective()
        self._results.add(operation, result)
        return result

    def skip(self, trainer: Any) -> None:
        """An update of the run before."""
        exchange, target = self._exchange, self._target
        assert target is not None
        if exchange.updates == target["updates"]:
            raise JobError(
                f"{self._file} is of another program: this one asks for an update where that one called "
                "shard()"
            )
        state = exchange.state_of(trainer)
        state.updates += 1
        exchange.updates += 1
        self._group.meet(self._group.announce(f"update of trainer {state.number}", state.updates))
        for function in list(trainer.before_update):  # which may draw numbers of its own
            function(trainer)
        collection = _core._trainer_collection(trainer)
        if _core._gradient_kinds(collection).any():  # those that the script has set
            for parameter in parameters_of(collection):
                parameter.set_gradient(None)
        self._resume_at("update()")

    def _resume_at(self, place: str) -> None:
        target = self._target
        if target is None or (target["updates"], target["place"]) != (self._exchange.updates, place):
            return
        self._results.check_all_replayed()
        _core._skip_backward(False)
        _core._forward_skipped()
        self._restore(target)
        self._target = None
        if self._group.rank == 0:
            self._results.truncate(target["results"])
        self._show_output()

    def _show_output(self) -> None:
        if self._output is not None:
            sys.stdout.close()
            sys.stdout, self._output = self._output, None

    def end(self) -> None:
        """At the end of the program, which must have come as far as the checkpoint."""
        if self._target is None:
            return
        self._show_output()
        raise JobError(
            f"{self._file} was written after update {self._target['updates']}, and the program ended after "
            f"{self._exchange.updates} on its way there: it has fewer updates now"
        )

    def ended_well(self) -> None:
        """What the program has saved stays when it is started again."""
        if self._files:
            self._files.restart(None)

    def _restore(self, target: dict[str, Any]) -> None:
        trainers = self._exchange.trainers()
        if len(trainers) != len(target["trainers"]):
            raise JobError(
                f"{self._file} has {len(target['trainers'])} trainers; this program has made {len(trainers)}"
            )
        own = dict(target["ranks' own"][self._group.rank])
        every = zip(trainers, target["trainers"], own["feedback"], own["gradients"])
        for trainer, saved, rest, (vector, contents) in every:
            collection = _core._trainer_collection(trainer)
            collection.vector_to_gradients(vector, contents)
            _core._put_values(collection, saved["values"])
            _core._set_decay_factor(collection, saved["decay"])
            _core._set_trainer_state(trainer, saved["state"])
            feedback = self._exchange.state_of(trainer).feedback
            if feedback:
                feedback.rest = rest
        _core._set_random_state(own["random"])
        self._restore_streams(_as_tuples(own["python"]), _as_tuples(own["numpy"]))

    def _restore_streams(self, python: Any, numpy: Any) -> None:
        now = np.random.get_state()
        drawn = random.getstate() == python and all(np.array_equal(a, b) for a, b in zip(now, numpy))
        others = [rank for rank, as_before in enumerate(self._group.gather_objects(drawn)) if not as_before]
        if others and self._group.rank == 0:
            print(
                f"dynet_compat: on {'rank' if len(others) == 1 else 'ranks'} {', '.join(map(str, others))} "
                "Python's or NumPy's random numbers were not drawn as in the run before, because the program "
                "has changed or draws them by values that it reads; the order of the data may be another one",
                file=sys.stderr,
            )
        random.setstate(python)
        np.random.set_state(numpy)

    # ----------------------------------------------------------------------------------- writing

    def after_update(self) -> None:
        if self._is_due:  # since the update before, and no shard() came
            self._save("update()")
        elif self._exchange.updates % self._every == 0:
            self._is_due = True

    def at_shard(self) -> None:
        """The script asks for its next minibatch, or for other data."""
        if self._is_due:
            self._save("shard()")
        self._resume_at("shard()")

    def _save(self, place: str) -> None:
        self._is_due = False
        self._exchange.settle()
        self._group.meet(self._group.announce("checkpoint"))
        trainers = self._exchange.trainers()
        states = [self._exchange.state_of(trainer) for trainer in trainers]
        every = self._group.gather_at_main({
            "random": _core._random_state(), "python": random.getstate(), "numpy": np.random.get_state(),
            "feedback": [state.feedback.rest if state.feedback else {} for state in states],
            "gradients": [_gradients(_core._trainer_collection(trainer)) for trainer in trainers],
        })  # fmt: skip
        if every is not None:
            with self._group.clock.alone():
                self._write(every, place)
        self._results.forget_written()

    def _write(self, own: list[Any], place: str) -> None:
        results = self._results.write()
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
            "place": place, "results": results, "trainers": trainers, "ranks' own": own, "seed": self._seed,
            "run": self._run,
        }  # fmt: skip
        with whole(self._file) as new:
            new.write(pickle.dumps(contents, 4))
        if self._files:
            self._files.restart(self._name_of(contents))

    def _name_of(self, checkpoint: dict[str, Any]) -> list[Any]:
        return [self._run, checkpoint["updates"], checkpoint["place"]]


def _gradients(collection: Any) -> tuple[Any, list[tuple[Any, ...]]]:
    """Those that no update has used, as plain data."""
    vector, contents = collection.gradients_to_vector()
    return vector, [tuple(entry) for entry in contents]


class _PlainNames(Names):
    """A checkpoint holds plain data only."""

    def _find_elsewhere(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def hint(self, name: str) -> str:
        return "such objects are not read"


_NAMES = _PlainNames(lambda module, name: None, "", [], "distribute --checkpoint")


class _Pickler(pickle.Pickler):
    """Knows whether it has met more than numbers, text and their containers."""

    only_builtins = True

    def reducer_override(self, item: Any) -> Any:
        self.only_builtins = False
        return NotImplemented


def _pickled(operation: str, result: Any) -> bytes:
    """As it is now: the program may change it afterwards."""
    file = io.BytesIO()
    pickler = _Pickler(file, 4)
    pickler.dump(result)
    try:
        if not pickler.only_builtins:
            load_all(file.getvalue(), _NAMES)
    except pickle.UnpicklingError as error:
        raise JobError(
            f"{operation}: a checkpoint cannot hold the result ({error}); with --checkpoint pass numbers, "
            "text, arrays of numbers, and lists, tuples, dicts and sets of them"
        ) from None
    return file.getvalue()


def _as_tuples(state: Any) -> Any:
    """Random states as their modules want them: reading gives lists for some tuples."""
    return tuple(tuple(part) if isinstance(part, list) else part for part in state)
