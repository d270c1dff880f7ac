"""Fibers: calls of a function that can be suspended, as greenlets or, without that library, as threads."""

from __future__ import annotations

import importlib
import threading
from typing import Any, Optional

from . import _core

_MOST_THREADS = 256  # at a time; instances beyond that begin when others have ended


class Stopped(BaseException):
    """Raised where an instance is suspended when batch_map gives up, so that its `finally` blocks run."""


class NoThread(Exception):
    """The system gives no more threads."""


class Task:
    """One call of the function."""

    started = False
    done = False
    closing = False  # it is unwound and must not be suspended any more
    thrown: Optional[BaseException] = None  # what to raise in it after a batch_map inside
    result: Any = None
    error: Optional[BaseException] = None
    inner: Any = None  # the batch_map inside it that it waits for
    fiber: Any = None
    switch: Any = None
    local: Optional[dict[Any, Any]] = None  # what belongs to the call, by whose it is

    def __init__(self, group: Any, index: int, number: int) -> None:
        self.group = group
        self.index = index
        self.number = number

    def run(self) -> None:
        self.started = True
        group = self.group
        scheduler = group.scheduler
        scheduler.live += 1
        try:
            self.result = _core._batch_run(
                group.scheduler.batch, self.number, group.function, group.instances[self.index]
            )
        except BaseException as error:
            passed_on: Optional[BaseException] = getattr(type(error), "passed_on", None)
            if passed_on is not None:
                self.error = passed_on
            else:
                self.error = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
        finally:
            self.done = True
            self.local = None
            scheduler.live -= 1


class _Idle(threading.local):
    """Greenlets of this thread whose call has ended, for the next ones: making one costs ten switches."""

    MOST = 1024

    def __init__(self) -> None:
        self.fibers: list[Any] = []


_idle = _Idle()


class Greenlets:
    """Fibers that are greenlets."""

    def __init__(self) -> None:
        library = importlib.import_module("greenlet")
        self._greenlet = library.greenlet
        self.current = library.getcurrent
        self._hub = library.getcurrent()
        self.hub = self._hub.switch

    def start(self, task: Task) -> None:
        fiber = None
        while _idle.fibers and not fiber:  # False: it is dead
            fiber = _idle.fibers.pop()
        if not fiber:
            fiber = self._greenlet(self._work)
        fiber.parent = self._hub
        fiber.gr_context = task.group.context.copy()
        fiber.switch(task, self.current)

    @staticmethod
    def _work(task: Task, current: Any) -> None:
        while True:
            task.run()
            del task
            if len(_idle.fibers) >= _idle.MOST:
                return
            _idle.fibers.append(current())
            task, current = current().parent.switch()

    def drop(self, task: Task) -> None:
        pass

    def resume(self, task: Task) -> None:
        task.switch()

    def pause(self, task: Task) -> None:
        task.switch = self.current().switch  # the function may have greenlets of its own
        self._hub.switch()

    def full(self) -> bool:
        return False


class Threads:
    """Fibers that are threads, of which one runs at a time.

    Python runs signal handlers in the main thread, which may be the scheduler's, at any place. What they
    raise is passed on to the thread whose turn it is. So neither side relies on having got a lock: what
    counts is `_turn`, and each lock serves for one change of turns.
    """

    hub = current = None

    def __init__(self) -> None:
        self._turn: Any = None  # the task whose it is; None: the scheduler's
        self._baton = threading.Lock()
        self._alive = 0
        self._lost = False  # an exception did not reach the function

    def start(self, task: Task) -> None:
        context = task.group.context.copy()

        def body() -> None:
            wanted = True
            try:
                switch.acquire()
                wanted = not task.closing
                if wanted:
                    context.run(task.run)
            except BaseException:  # of a signal handler, outside of the function
                self._lost = True
            if wanted:
                baton = self._baton
                self._turn = None
                baton.release()

        task.switch = switch = threading.Lock()
        switch.acquire()
        task.fiber = threading.Thread(target=body, name=f"batch_map-{task.index}", daemon=True)
        try:
            task.fiber.start()
        except RuntimeError as error:
            task.fiber = None
            raise NoThread from error
        self._alive += 1
        self._switch_to(task)

    def drop(self, task: Task) -> None:
        """The task is not wanted any more; its function was not called."""
        if task.fiber is not None and task.switch.locked():
            task.switch.release()

    def resume(self, task: Task) -> None:
        self._switch_to(task)

    def pause(self, task: Task) -> None:
        task.switch = switch = threading.Lock()
        switch.acquire()
        baton = self._baton
        error: Optional[BaseException] = None
        given = False
        while not given or self._turn is not task:
            try:
                if not given:
                    given = True
                    self._turn = None
                    baton.release()
                switch.acquire()
            except BaseException as raised:
                error = raised
        if error is not None:
            raise error

    def full(self) -> bool:
        return self._alive >= _MOST_THREADS

    def _switch_to(self, task: Task) -> None:
        """Lets the task's thread run until it gives the turn back."""
        self._baton = baton = threading.Lock()
        baton.acquire()
        interrupt: Optional[Interrupt] = None
        given = False
        self._turn = task
        while not given or (self._turn is not None and task.fiber.is_alive()):
            try:
                if not given:
                    given = True
                    task.switch.release()
                baton.acquire(timeout=0.1)
            except BaseException as error:
                interrupt = Interrupt(error)
                interrupt.raise_in(task.fiber.ident)
        self._turn = None
        if task.done or not task.started or not task.fiber.is_alive():
            task.done = True
            self._alive -= 1
            task.fiber.join()
        if interrupt is not None:
            lost, self._lost = self._lost, False
            interrupt.settle(task, lost)


class _Quiet(Exception):
    """Ends the search for an exception that was taken back."""


class Interrupt:
    """What a signal handler raised, passed on to the thread that runs."""

    def __init__(self, error: BaseException) -> None:
        self.error: Optional[BaseException] = error
        self.arrived = False
        kind = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else Stopped

        def arrive(raised: BaseException) -> None:
            self.arrived = True

        self._type = type(kind.__name__, (kind,), {"__init__": arrive, "passed_on": error})

    def raise_in(self, thread: Optional[int]) -> None:
        self._raise(thread, self._type)

    @staticmethod
    def _raise(thread: Optional[int], kind: Optional[type]) -> None:
        import ctypes

        error = None if kind is None else ctypes.py_object(kind)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread or 0), error)

    @classmethod
    def _clear_pending(cls) -> None:
        """Python goes on looking for an exception that was taken back; up to 3.11, with a profiler, for ever.

        One that does arrive, here, ends that.
        """
        try:
            cls._raise(threading.get_ident(), _Quiet)
            for _ in range(1000):
                pass
        except _Quiet:
            pass

    def settle(self, task: Task, lost: bool) -> None:
        error, self.error = self.error, None
        if lost or not self.arrived:
            self._raise(task.fiber.ident, None)
            self._clear_pending()
            assert error is not None
            raise error


BACKENDS: dict[str, Any] = {"greenlet": Greenlets, "threads": Threads}


def backend_of(backend: Optional[str]) -> Any:
    if backend is not None and backend not in BACKENDS:
        raise ValueError(
            f"batch_map(): expected backend to be None or one of {list(BACKENDS)}, got {backend!r}"
        )
    if backend is not None:
        return BACKENDS[backend]()
    try:
        return Greenlets()
    except ImportError:
        return Threads()
