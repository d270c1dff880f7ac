"""Blocks of lines on the workers of a Ray cluster, any of which may be lost at any time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Callable, Optional

from .lines import LineBlock, Result, Worker

_TRIES = 3  # workers that a block may lose before it is halved, and a line before it is given up
_LOST_IN_A_ROW = 50  # workers, after which it is not the lines that end them
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


class RayWorkers:
    """Workers of the Ray cluster that this machine belongs to, or of one that is started on it.

    Args:
        predictor, batch: of `Worker`.
        count: of workers; 0: one for each core.
    """

    def __init__(self, predictor: str, batch: int, count: int) -> None:
        try:
            import ray
        except ImportError as error:
            raise ValueError(f"--engine ray: ray cannot be imported: pip install ray ({error})") from error
        self._ray: Any = ray
        self._batch = batch
        ray.init(ignore_reinit_error=True, log_to_driver=False, configure_logging=False)
        self.count = count or max(1, int(ray.cluster_resources().get("CPU", 1)))
        remote: Any = ray.remote(num_cpus=1)(Worker)
        self._new: Callable[[], Any] = lambda: remote.remote(predictor, batch)

    def run(self, blocks: Iterable[LineBlock]) -> Iterator[tuple[LineBlock, Result]]:
        """Blocks and their results, as they are finished."""
        pieces, lost = Pieces(blocks, self._batch), 0
        idle = [self._new() for _ in range(self.count)]
        running: dict[Any, tuple[Any, LineBlock, int]] = {}
        while True:
            while idle and (piece := pieces.next()):
                actor = idle.pop()
                running[actor.run.remote(piece[0])] = actor, *piece
            if not running:
                break
            (ref,), _ = self._ray.wait(list(running), num_returns=1)
            actor, block, losses = running.pop(ref)
            try:
                finished, lost = pieces.done(block, self._ray.get(ref)), 0
            except self._ray.exceptions.RayTaskError:  # the program's own
                raise
            except self._ray.exceptions.RayError as error:
                lost += 1
                if lost == _LOST_IN_A_ROW:
                    raise RuntimeError(f"{lost} workers were lost one after the other: {error}") from error
                finished, actor = pieces.lost(block, losses), self._new()
            idle.append(actor)
            if finished:
                yield finished
        for actor in idle:
            self._ray.kill(actor)
