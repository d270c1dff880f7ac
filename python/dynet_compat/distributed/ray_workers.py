"""Blocks of lines on the workers of a Ray cluster, any of which may be lost at any time.

Actors, and not Ray Data's `map_batches`, which was tried: it starts in twice the time; with the line that
ends an actor it drops what else that one was given, and stalls where there is no other; it uses a new machine
after 20 seconds or never; and it cannot stream what only the driver can read.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable, Optional

from .. import _core
from .lines import LineBlock, Result, UsageError, Worker

_TRIES = 3  # workers that a block may lose before it is halved, and a line before it is given up
_LOST_IN_A_ROW = 50  # workers, and thrice all there are; then it is not a line. None has loaded: thrice all
_LOOK = 1.0  # seconds between looks at the size of the cluster
_GIVEN_UP = "ends the worker that predicts it"

Finished = Optional[tuple[LineBlock, Result]]


class Pieces:
    """Blocks that are to be done. One that has cost workers is halved until the line is found that does.

    Args:
        blocks: of the input.
        batch: lines of one call of the predictor, which stay together as long as they can.
    """

    def __init__(self, blocks: Iterable[LineBlock], batch: int) -> None:
        self._blocks, self._batch = iter(blocks), batch
        self._again: list[tuple[LineBlock, int]] = []  # lost, with how many workers they have cost
        self._halved: dict[int, tuple[LineBlock, dict[int, Result]]] = {}  # results by first line

    def next(self) -> Optional[tuple[LineBlock, int]]:
        """A piece to be done and how many workers it has cost; None: no more for now."""
        if self._again:
            return self._again.pop()
        block = next(self._blocks, None)
        return None if block is None else (block, 0)

    def done(self, piece: LineBlock, result: Result) -> Finished:
        """The block, if this was the last piece of it."""
        if piece.number not in self._halved:
            return piece, result
        whole, parts = self._halved[piece.number]
        parts[piece.first_line] = result
        if sum(len(lines) for lines, _ in parts.values()) < len(whole.lines):
            return None
        del self._halved[piece.number]
        every: Result = [], []
        for first in sorted(parts):
            lines, wrong = parts[first]
            every[0].extend(lines)
            every[1].extend((first - whole.first_line + i, message) for i, message in wrong)
        return whole, every

    def lost(self, piece: LineBlock, losses: int) -> Finished:
        """The worker of a piece was lost, after `losses` others."""
        n = len(piece.lines)
        if losses + 1 < _TRIES:
            self._again.append((piece, losses + 1))
        elif n == 1:
            return self.done(piece, ([""], [(0, _GIVEN_UP)]))
        else:
            self._halved.setdefault(piece.number, (piece, {}))
            middle = n // 2 if n <= self._batch else max(1, n // 2 // self._batch) * self._batch
            for start, end in ((middle, n), (0, middle)):
                half = LineBlock(piece.number, piece.first_line + start, piece.lines[start:end])
                self._again.append((half, 0 if end - start == 1 else 1))
        return None


class RayWorker(Worker):
    """A worker on some machine of the cluster.

    Args:
        predictor, batch: of `Worker`.
        folder: where the job was started, as the predictor may name files without a folder; None: Ray has put
            a copy of it under each worker.
        path: where modules are looked for, too.
    """

    def __init__(self, predictor: str, batch: int, folder: Optional[str], path: Sequence[str] = ()) -> None:
        super().__init__(predictor, batch)
        self._folder, self._path = folder, path

    def load(self) -> str:
        """Makes the predictor; returns a name of this machine.

        Raises:
            UsageError: this machine does not have the folder.
        """
        if "DYNET_COMPAT_THREADS" not in os.environ:
            _core.set_threads(1)  # there is a worker for each core
        if self._folder is not None:
            try:
                os.chdir(self._folder)
            except OSError as error:
                raise UsageError(
                    f"{socket.gethostname()} cannot enter {self._folder}, where predict was started "
                    f"({error.strerror}): all machines need it, on a shared drive or by `ray job submit "
                    "--working-dir .`"
                ) from error
        sys.path += [folder for folder in self._path if folder not in sys.path]
        self.prepare()
        import ray

        return str(ray.get_runtime_context().get_node_id())


class RayWorkers:
    """Workers of the Ray cluster that this machine belongs to, or of one that is started on it.

    Blocks go to workers that have loaded the predictor. One that is lost is replaced as soon as there is room
    for another.

    Args:
        predictor, batch: of `Worker`.
        most: workers; 0: as many as the cluster has cores, which is asked for again and again.
    Attributes:
        count: of workers that there were at the same time.
        machines: names of those that they were on.
    """

    def __init__(self, predictor: str, batch: int, most: int) -> None:
        try:
            import ray
        except ImportError as error:
            raise UsageError(f"--engine ray: ray cannot be imported: pip install ray ({error})") from error
        self._ray: Any = ray
        self._batch, self._most = batch, most
        ray.init(
            ignore_reinit_error=True, include_dashboard=False, log_to_driver=False, configure_logging=False
        )
        folder = None if ray.get_runtime_context().runtime_env.get("working_dir") else os.getcwd()
        remote: Any = ray.remote(num_cpus=1)(RayWorker)
        self._new: Callable[[], Any] = lambda: remote.remote(predictor, batch, folder, sys.path)
        self._starting: dict[Any, Any] = {}  # by the reference of what load() returns
        self._idle: list[Any] = []
        self._running: dict[Any, tuple[Any, LineBlock, int]] = {}  # by that of what run() returns
        self._lost = 0  # in a row
        self._next_look = 0.0
        self.count = 0
        self.machines: set[str] = set()

    def run(self, blocks: Iterable[LineBlock]) -> Iterator[tuple[LineBlock, Result]]:
        """Blocks and their results, as they are finished."""
        pieces = Pieces(blocks, self._batch)
        try:
            piece = pieces.next()
            while piece or self._running:
                if piece and self._idle:
                    actor = self._idle.pop()
                    self._running[actor.run.remote(piece[0])] = actor, *piece
                    piece = pieces.next()
                    continue
                if piece:
                    self._hire()
                if finished := self._wait(pieces):
                    yield finished
                piece = piece or pieces.next()
        finally:
            for actor in self._actors():
                self._ray.kill(actor)

    def _actors(self) -> list[Any]:
        return [*self._starting.values(), *self._idle, *(actor for actor, *_ in self._running.values())]

    def _hire(self) -> None:
        """Starts the workers that there is or will be room for; those that wait for it hold no block."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK
        wanted = self._most or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        for _ in range(wanted - len(self._actors())):
            actor = self._new()
            self._starting[actor.load.remote()] = actor

    def _wait(self, pieces: Pieces) -> Finished:
        """For one worker that has loaded the predictor or done a piece, but not for long."""
        ready, _ = self._ray.wait([*self._starting, *self._running], num_returns=1, timeout=_LOOK)
        if not ready:
            return None
        loaded = self._starting.pop(ready[0], None)
        actor, piece, losses = self._running.pop(ready[0], (loaded, None, 0))
        try:
            result = self._ray.get(ready[0])
        except self._ray.exceptions.RayTaskError as error:  # the program's own
            raise error.cause if isinstance(error.cause, UsageError) else error from None
        except self._ray.exceptions.RayError as error:
            self._lost += 1
            self._next_look = 0.0
            if self._lost >= (_LOST_IN_A_ROW if self.count else 0) + 3 * (len(self._actors()) + 1):
                doing = "predicted a line" if self.count else "loaded the predictor"
                raise RuntimeError(f"{self._lost} workers were lost before one {doing}: {error}") from error
            return pieces.lost(piece, losses) if piece else None
        self._idle.append(actor)
        if piece is None:
            self.machines.add(result)
            self.count = max(self.count, len(self._idle) + len(self._running))
            return None
        self._lost = 0
        return pieces.done(piece, result)
