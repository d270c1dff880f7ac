"""The ranks of one job, and collectives that end in an error instead of a hang where ranks differ.

Every collective begins with a meeting: each rank says what it is about to do, and what it has noted since
the last one. Where the answers differ, all ranks raise the same error, which lists them. While a rank waits
for others, a clock runs; when it ends, the ranks that are missing are asked where they are, named on stderr,
and the job ends.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, NoReturn, Optional, TypeVar

import numpy as np
from numpy.typing import NDArray

# What a rank is about to do, a detail to agree on, meetings and notes until now, the last note, and all of
# them; then two numbers that may differ.
_MEETING, _OWN = struct.Struct("<24sqqqq"), struct.Struct("<qq")
_QUESTION, _ANSWER = 1, 2  # tags of messages between watchdogs
_SPINS = 300  # tests of a request before waiting yields the processor
_NAP, _LONGEST_NAP = 0.02, 1e-3  # between tests afterwards: a part of the time waited; seconds
_MESSAGE_TIME = 0.3  # seconds
_LOOK, _PATIENCE = 0.2, 3.0  # seconds between looks of a watchdog; that it waits for answers
_ABORT_INTERVAL = 0.2  # between those of two ranks


T = TypeVar("T")


class JobError(RuntimeError):
    """Ranks of a job differ: in what they do, in their parameters, or in their data."""


def rank_and_size(comm: Any) -> tuple[int, int]:
    """Of this process in a communicator; (0, 1) without one."""
    return (0, 1) if comm is None else (int(comm.Get_rank()), int(comm.Get_size()))


def abort(comm: Any, status: int) -> NoReturn:
    """Ends all ranks, once mpiexec has passed on what this one has said. Where several call it, one after the
    other: Open MPI's mpiexec can hang if two do so at once."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed, for one
            stream.flush()
    time.sleep(_MESSAGE_TIME + _ABORT_INTERVAL * min(comm.Get_rank(), 10))
    comm.Abort(status)
    os._exit(status)  # MPICH's returns where another rank was the first


def where_is(thread: int) -> str:
    """The innermost line of a thread that is not of this package, as "file:line"."""
    frame = sys._current_frames().get(thread)
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    lines = traceback.extract_stack(frame) if frame else []
    lines = [line for line in lines if not os.path.abspath(line.filename).startswith(package)] or lines
    return f"{lines[-1].filename}:{lines[-1].lineno}" if lines else "an unknown line"


def _name_of(said: bytes) -> str:
    return said[:24].rstrip(b"\0").decode(errors="replace")


class Wait(NamedTuple):
    """Of this rank for others.

    Attributes:
        doing: what it waits in, for the message that ends the job after the timeout.
        since: time.monotonic().
    """

    doing: str
    since: float


class Clock:
    """Whether this rank waits for others, and since when: what its watchdog looks at.

    Attributes:
        busy: how many blocks of alone() this rank is in.
        waits: None while this rank does something else.
        shares_core: while a thread waits for ranks, this process computes, or another that has the same core.
    """

    def __init__(self) -> None:
        self.busy = 0
        self.waits: Optional[Wait] = None
        self.shares_core = False

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Around what this rank does alone and may take long: the others wait without a clock."""
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1

    @contextmanager
    def waiting(self, doing: str) -> Iterator[None]:
        """Around what ends when other ranks have come as far; the watchdog looks how long it takes."""
        self.waits = Wait(doing, time.monotonic())
        try:
            yield
        finally:
            self.waits = None

    def wait(self, arrived: Callable[[], bool], doing: str, spins: int = _SPINS) -> None:
        """Wait for other ranks without holding a core that one of them may need.

        Args:
            arrived: whether the wait is over.
            doing: as in `Wait`.
            spins: how often to ask before this thread sleeps in between.
        """
        with self.waiting(doing):
            for _ in range(spins):
                if arrived():
                    return
            start = time.monotonic()
            while not arrived():
                waited = time.monotonic() - start
                time.sleep(min(max(2e-5, _NAP * waited), _LONGEST_NAP))

    def finish(self, request: Any) -> None:
        """Wait for a collective that all ranks have begun, or are about to."""
        if self.shares_core:
            self.wait(request.Test, "gradients", spins=0)
        else:
            with self.waiting("gradients"):
                request.Wait()


class Meetings:
    """What a rank has done that all ranks do, and says when they meet.

    Attributes:
        count: of meetings and notes.
    """

    def __init__(self) -> None:
        self.count = self._note = self._notes = 0

    def note(self, number: int) -> None:
        """A number on which all ranks must agree when they meet next."""
        self.count += 1
        self._note, self._notes = number, hash((self._notes, number)) >> 8

    def say(self, operation: str, detail: int) -> bytes:
        """What this rank says in its next meeting; see Group.announce()."""
        self.count += 1
        return _MEETING.pack(operation.encode()[:24], detail, self.count, self._note, self._notes)


class Group:
    """The ranks of a job.

    Args:
        comm: a communicator of mpi4py, of which the group takes copies; None: this process is alone.
        timeout: seconds that a rank waits for the others.
        on_loss: the group goes on without ranks that are lost, and this is called with their numbers when the
            others have new ones; None: it ends.
    Attributes:
        has_lost: whether the group is smaller than it was.
        is_forked: this process was forked by a rank, and is none.
    """

    def __init__(
        self, comm: Any, timeout: float, on_loss: Optional[Callable[[list[int]], None]] = None
    ) -> None:
        self.rank, self.size = rank_and_size(comm)
        self.timeout, self._on_loss = timeout, on_loss
        self.meetings, self.clock = Meetings(), Clock()
        self.has_lost = self.is_forked = False
        self._watchdog: Optional[Watchdog] = None
        self.mpi: Any = None  # mpi4py's module; communicators are there for other ranks only
        if self.size > 1:
            from mpi4py import MPI

            self.mpi = MPI
            self._use(comm.Dup())

    def _use(self, comm: Any) -> None:
        self.rank, self.size = rank_and_size(comm)
        self.comm = comm
        self._watchdog = Watchdog(self, comm.Dup())

    # ---------------------------------------------------------------------------------- losses

    def complete(self, collectives: Callable[[], T]) -> T:
        """The result of collectives, which all ranks get or none. Where one is lost, those that are left run
        them again.

        Args:
            collectives: may be run several times, so what it changes must be as before then.
        """
        if self._on_loss is None or self.size == 1:
            return collectives()
        while True:
            problem: Optional[Exception] = None
            try:
                result = collectives()
            except Exception as error:  # of any kind: what came from a lost rank may be anything
                problem = error
                self.comm.Revoke()  # so that nobody waits for this rank
            if self._all_completed(problem is None):
                return result
            if not self._shrink() and problem is not None and not self.is_loss(problem):
                raise problem
            if self.size == 1:
                return collectives()

    def is_loss(self, error: Exception) -> bool:
        """Whether it says that a rank was lost, or that another has noticed one."""
        lost = self.mpi.ERR_PROC_FAILED, self.mpi.ERR_PROC_FAILED_PENDING, self.mpi.ERR_REVOKED
        return isinstance(error, self.mpi.Exception) and error.Get_error_class() in lost

    def _all_completed(self, completed: bool) -> bool:
        """The same answer on all ranks."""
        try:
            return bool(self.comm.Agree(int(completed)))
        except self.mpi.Exception as error:
            if not self.is_loss(error):
                raise
            return False

    def _shrink(self) -> list[int]:
        """Goes on without the ranks that are lost, and returns which they were."""
        self.close()
        before = self.comm.Get_group()
        comm = self.comm.Shrink()
        lost = self.mpi.Group.Difference(before, comm.Get_group())
        ranks = sorted(lost.Translate_ranks(None, before))
        self.has_lost = self.has_lost or bool(ranks)
        comm.Set_errhandler(self.mpi.ERRORS_RETURN)
        self._use(comm)
        if ranks and self._on_loss:
            self._on_loss(ranks)
        return ranks

    # ------------------------------------------------------------------------------- meetings

    def announce(self, operation: str, detail: int = 0) -> bytes:
        """What this rank says in its next meeting.

        Args:
            operation: what comes next, at most 24 bytes.
            detail: a number on which all ranks must agree, such as a count of updates.
        Raises:
            JobError: this process is no rank.
        """
        if self.is_forked:
            raise JobError(f"{operation}: a process that rank {self.rank} has forked cannot meet the ranks")
        return self.meetings.say(operation, detail)

    def meet(self, said: bytes, own: tuple[int, int] = (0, 0)) -> list[tuple[int, int]]:
        """Wait until all ranks are about to do the same; JobError where they are not.

        Args:
            said: what `announce()` returned.
            own: what this rank tells the others.
        Returns:
            `own` of all ranks.
        """
        if self.size == 1:
            return [own]
        mine = np.frombuffer(said + _OWN.pack(*own), np.uint8)
        every = np.zeros((self.size, len(mine)), np.uint8)
        self.clock.wait(self.comm.Iallgather(mine, every).Test, _name_of(said))
        if not (every == every[0])[:, : len(said)].all():
            self._refuse([_MEETING.unpack(row[: len(said)].tobytes()) for row in every])
        return [_OWN.unpack(row[len(said) :].tobytes()) for row in every]

    def _refuse(self, every: Sequence[tuple[Any, ...]]) -> NoReturn:
        lines = []
        for rank, (operation, detail, met, note, _) in enumerate(every):
            say = _name_of(operation) + (f" {detail}" if detail else "")
            if all(other[:2] == every[0][:2] for other in every):  # so they have met otherwise before
                say = f"shard of items: {note}" if met == every[0][2] else f"{say}, after {met} calls"
            lines.append(f"rank {rank}: {say}")
        raise JobError(
            "ranks are not at the same point of the program; each must call shard(), update(), sum(), "
            "gather() and broadcast() equally often, in the same order:\n  " + "\n  ".join(lines)
        )

    # ---------------------------------------------------------------------------- collectives

    def join(self, array: NDArray[Any]) -> list[NDArray[Any]]:
        """Arrays of all ranks, of any lengths, in rank order."""
        out, sizes = self.join_bytes(np.ascontiguousarray(array).view(np.uint8).reshape(-1))
        ends = np.cumsum(sizes)
        return [out[end - size : end].view(array.dtype) for end, size in zip(ends, sizes)]

    def join_bytes(self, sent: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Bytes of all ranks, in rank order, and how many each has sent."""
        size = np.array([len(sent)], np.int64)
        if self.size == 1:
            return sent, size
        sizes: NDArray[np.int64] = np.zeros(self.size, np.int64)
        self.clock.finish(self.comm.Iallgather(size, sizes))
        out = np.empty(int(sizes.sum()), np.uint8)
        at = int(sizes[: self.rank].sum())
        out[at : at + len(sent)] = sent
        return self.join_in_place(out, sizes)

    def join_in_place(
        self, every: NDArray[np.uint8], sizes: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """As join_bytes(); this rank's bytes are in their place."""
        # Not Allgatherv(): MPICH's takes eight times as long
        self.clock.finish(self.comm.Iallgatherv(self.mpi.IN_PLACE, [every, sizes, None, self.mpi.BYTE]))
        return every, sizes

    def deal(
        self, sent: NDArray[np.uint8], sizes: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """What all ranks have sent this one, in rank order, and the sizes.

        Args:
            sent: bytes for rank 0, then for rank 1, and so on.
            sizes: how many for each.
        """
        arriving = np.zeros_like(sizes)
        self.clock.finish(self.comm.Ialltoall(sizes, arriving))
        out = np.empty(int(arriving.sum()), np.uint8)
        kind = self.mpi.BYTE
        self.clock.finish(self.comm.Ialltoallv([sent, sizes, None, kind], [out, arriving, None, kind]))
        return out, arriving

    def largest(self, kinds: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Element by element, the largest of all ranks."""
        if self.size == 1:
            return kinds
        out = np.empty_like(kinds)
        self.clock.finish(self.comm.Iallreduce(kinds, out, self.mpi.MAX))
        return out

    def gather_objects(self, item: Any) -> list[Any]:
        """An object of each rank, in rank order, on all ranks."""
        parts = self.join(np.frombuffer(pickle.dumps(item), np.uint8))
        return [pickle.loads(part.tobytes()) for part in parts]

    def gather_at_main(self, item: Any) -> Optional[list[Any]]:
        """An object of each rank, in rank order, on rank 0; None on the others."""
        if self.size == 1:
            return [item]
        with self.clock.waiting("what rank 0 gathers"):
            every: Optional[list[Any]] = self.comm.gather(item)
        return every

    def from_rank(self, item: Any, root: int) -> Any:
        """An object of that rank, on all ranks."""
        if self.size == 1:
            return item
        with self.clock.waiting(f"what rank {root} sends"):
            return self.comm.bcast(item, root)

    def values_of_rank_0(self, array: NDArray[Any]) -> None:
        """They come into the array, of which each rank has its own."""
        with self.clock.waiting("parameters of rank 0"):
            self.comm.Bcast(array, 0)

    def close(self) -> None:
        if self._watchdog:
            self._watchdog.stop()
            self._watchdog = None


class Watchdog:
    """A thread that answers other ranks while this one computes, and asks them when this one waits too
    long."""

    def __init__(self, group: Group, comm: Any) -> None:
        self._group, self._comm = group, comm
        self._main = threading.get_ident()
        self._stopped = threading.Event()
        self._answers: dict[int, tuple[str, str, bool]] = {}
        self._patient_until = 0.0
        self._thread = threading.Thread(target=self._watch, name="watchdog of the job", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        try:
            while not self._stopped.wait(_LOOK):
                self._answer_messages()
                wait, now = self._group.clock.waits, time.monotonic()
                if wait and now - max(wait.since, self._patient_until) > self._group.timeout:
                    self._look_for_others(wait)
        except self._group.mpi.Exception as error:
            if not self._group.is_loss(error):  # the group makes another watchdog
                raise

    def _answer_messages(self) -> None:
        status = self._group.mpi.Status()
        while self._comm.Iprobe(status=status):
            message = self._comm.recv(source=status.Get_source(), tag=status.Get_tag())
            if status.Get_tag() == _QUESTION:
                here = (socket.gethostname(), self._state(), bool(self._group.clock.busy))
                self._comm.isend(here, dest=status.Get_source(), tag=_ANSWER)
            else:
                self._answers[status.Get_source()] = message

    def _state(self) -> str:
        wait = self._group.clock.waits
        return f"waits in {wait.doing}" if wait else f"is at {where_is(self._main)}"

    def _look_for_others(self, wait: Wait) -> None:
        """Ends the job, unless one has said, by main_only(), that the others have to wait, or all have come
        meanwhile."""
        self._ask()
        self._patient_until = time.monotonic()
        if self._group.clock.waits is wait and not any(busy for _, _, busy in self._answers.values()):
            self._end_job(wait.doing)

    def _ask(self) -> None:
        self._answers.clear()
        others = [rank for rank in range(self._group.size) if rank != self._group.rank]
        for rank in others:
            self._comm.isend(None, dest=rank, tag=_QUESTION)
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end and len(self._answers) < len(others):
            time.sleep(0.05)
            self._answer_messages()

    def _end_job(self, doing: str) -> NoReturn:
        lines = [f"rank {self._group.rank} has waited {self._group.timeout:g} s for the others in {doing}:"]
        for rank in range(self._group.size):
            if rank != self._group.rank:
                silent = "", "does not answer: it is stopped, or its machine is lost", False
                host, state, _ = self._answers.get(rank, silent)
                lines.append(f"  rank {rank}{' on ' + host if host else ''} {state}")
        print("dynet_compat: " + "\n".join(lines), file=sys.__stderr__, flush=True)
        abort(self._group.mpi.COMM_WORLD, 1)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
