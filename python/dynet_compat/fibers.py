"""`batch_map`: a function for many instances that compute together although each reads values on its way.

Each call of the function runs on a fiber: a greenlet, or without that library a thread of its own, of which
one runs at a time. Reading a value that is not computed yet suspends the fiber. When all are suspended or
done, the core (bindings/fibers.cc) computes everything that they wait for, in one go, and lets them continue
in their order.
"""

from __future__ import annotations

import contextvars
import importlib
import threading
from collections.abc import Callable, Iterable
from typing import Any, Generic, Optional, TypeVar

import numpy as np

from . import _core

T = TypeVar("T")
S = TypeVar("S")

__all__ = ["batch_map", "instance_rng"]

_MOST_THREADS = 256  # at a time; instances beyond that begin when others have ended


class _Stopped(BaseException):
    """Raised where an instance is suspended when batch_map gives up, so that its `finally` blocks run."""


class _NoThread(Exception):
    """The system gives no more threads."""


class _Task:
    """One call of the function."""

    started = False
    done = False
    closing = False  # it is unwound and must not be suspended any more
    thrown: Optional[BaseException] = None  # what to raise in it after a batch_map inside
    result: Any = None
    error: Optional[BaseException] = None
    inner: Optional[_Group] = None  # the batch_map inside it that it waits for
    fiber: Any = None
    switch: Any = None
    local: Optional[dict[Any, Any]] = None  # what belongs to the call, by whose it is

    def __init__(self, group: _Group, index: int, number: int) -> None:
        self.group: Any = group
        self.index = index
        self.number = number

    def run(self) -> None:
        self.started = True
        group = self.group
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


class _Group:
    """The calls of one batch_map."""

    stopped: Optional[BaseException] = None  # KeyboardInterrupt and the like ended all

    def __init__(
        self, scheduler: _Scheduler, function: Any, instances: list[Any], parent: Optional[_Task]
    ) -> None:
        self.scheduler = scheduler
        self.function = function
        self.instances = instances
        self.parent = parent
        self.context = contextvars.copy_context()
        numbers: Any = _core._batch_add(len(instances))
        self.tasks = [_Task(self, i, number) for i, number in enumerate(numbers)]
        self.left = len(self.tasks)

    def release(self) -> None:
        """Ends the references between this, the scheduler and the calls, of which none begins any more."""
        for task in self.tasks:
            task.done = task.closing = True
            task.group = task.result = task.error = task.fiber = task.switch = task.thrown = None
        del self.tasks, self.scheduler, self.function, self.instances, self.parent
        self.stopped = None


# ---------------------------------------------------------------- fibers


class _Idle(threading.local):
    """Greenlets of this thread whose call has ended, for the next ones: making one costs ten switches."""

    MOST = 1024

    def __init__(self) -> None:
        self.fibers: list[Any] = []


_idle = _Idle()


class _Greenlets:
    """Fibers that are greenlets."""

    def __init__(self) -> None:
        library = importlib.import_module("greenlet")
        self._greenlet = library.greenlet
        self.current = library.getcurrent
        self._hub = library.getcurrent()
        self.hub = self._hub.switch

    def start(self, task: _Task) -> None:
        fiber = None
        while _idle.fibers and not fiber:  # False: it is dead
            fiber = _idle.fibers.pop()
        if not fiber:
            fiber = self._greenlet(self._work)
        fiber.parent = self._hub
        fiber.gr_context = task.group.context.copy()
        fiber.switch(task, self.current)

    @staticmethod
    def _work(task: _Task, current: Any) -> None:
        while True:
            task.run()
            del task
            if len(_idle.fibers) >= _idle.MOST:
                return
            _idle.fibers.append(current())
            task, current = current().parent.switch()

    def drop(self, task: _Task) -> None:
        pass

    def resume(self, task: _Task) -> None:
        task.switch()

    def pause(self, task: _Task) -> None:
        task.switch = self.current().switch  # the function may have greenlets of its own
        self._hub.switch()

    def full(self) -> bool:
        return False


class _Threads:
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

    def start(self, task: _Task) -> None:
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
            raise _NoThread from error
        self._alive += 1
        self._hand_over(task)

    def drop(self, task: _Task) -> None:
        """The task is not wanted any more; its function was not called."""
        if task.fiber is not None and task.switch.locked():
            task.switch.release()

    def resume(self, task: _Task) -> None:
        self._hand_over(task)

    def pause(self, task: _Task) -> None:
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

    def _hand_over(self, task: _Task) -> None:
        """Lets the task's thread run until it gives the turn back."""
        self._baton = baton = threading.Lock()
        baton.acquire()
        interrupt: Optional[_Interrupt] = None
        given = False
        self._turn = task
        while not given or (self._turn is not None and task.fiber.is_alive()):
            try:
                if not given:
                    given = True
                    task.switch.release()
                baton.acquire(timeout=0.1)
            except BaseException as error:
                interrupt = _Interrupt(error)
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


class _Interrupt:
    """What a signal handler raised, passed on to the thread that runs."""

    def __init__(self, error: BaseException) -> None:
        self.error: Optional[BaseException] = error
        self.arrived = False
        kind = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else _Stopped

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
    def _take_flag_down(cls) -> None:
        """Python goes on looking for an exception that was taken back; up to 3.11, with a profiler, for ever.

        One that does arrive, here, ends that.
        """
        try:
            cls._raise(threading.get_ident(), _Quiet)
            for _ in range(1000):
                pass
        except _Quiet:
            pass

    def settle(self, task: _Task, lost: bool) -> None:
        error, self.error = self.error, None
        if lost or not self.arrived:
            self._raise(task.fiber.ident, None)
            self._take_flag_down()
            assert error is not None
            raise error


_BACKENDS: dict[str, Any] = {"greenlet": _Greenlets, "threads": _Threads}


def _fibers(backend: Optional[str]) -> Any:
    if backend is not None and backend not in _BACKENDS:
        raise ValueError(
            f"batch_map(): expected backend to be None or one of {list(_BACKENDS)}, got {backend!r}"
        )
    if backend is not None:
        return _BACKENDS[backend]()
    try:
        return _Greenlets()
    except ImportError:
        return _Threads()


# ---------------------------------------------------------------- scheduler


class _Scheduler:
    """Runs the instances of one outermost batch_map, and of those inside it.

    The core lets those that wait for values continue (`_batch_next`). Here is what happens less often: calls
    begin and end, and wait for a batch_map inside them.
    """

    def __init__(self, fibers: Any) -> None:
        self.fibers = fibers
        self.ready: list[_Task] = []  # to begin, or to go on after a batch_map inside; the last is the next
        self.held: list[_Task] = []  # not begun for want of threads
        self.batch = _core._batch_begin(fibers.pause, fibers.resume, fibers.hub, fibers.current)

    def run_inside(self, task: _Task, group: _Group) -> None:
        """Returns when the instances of a batch_map inside `task` are done."""
        task.inner = group
        try:
            self.ready.extend(reversed(group.tasks))
            _core._batch_suspend(lambda: self.fibers.pause(task))
        finally:
            task.inner = None
        error, task.thrown = task.thrown, None
        if error is not None:
            raise error

    # ---- the outermost caller

    def run(self, group: _Group) -> None:
        try:
            self.ready = group.tasks[::-1]
            while True:
                while self.ready:
                    self._turn(self.ready.pop())
                task: Any = _core._batch_next()
                if task is not None:
                    self._left(task)
                elif not self.held:
                    break
                if not self.ready:
                    self.ready, self.held = self.held[::-1], []
            if group.left:
                lost = [task.index for task in group.tasks if not task.done]
                raise RuntimeError(f"batch_map(): instances {lost} switched to another greenlet for good")
        except BaseException:
            self._close(group.tasks)
            raise
        finally:
            self.ready, self.held = [], []

    def _turn(self, task: _Task) -> None:
        if task.done:
            return
        if not task.started and self.fibers.full() and _core._batch_waiting():
            self.held.append(task)  # those that wait will end, and make room
            return
        _core._batch_turn(task, False)
        if task.started:
            self.fibers.resume(task)
        else:
            self._start(task)
        self._left(task)

    def _start(self, task: _Task) -> None:
        try:
            self.fibers.start(task)
        except _NoThread as error:
            if _core._batch_waiting():
                self.held.append(task)
            else:
                task.error, task.done = error.__cause__, True

    def _left(self, task: _Task) -> None:
        """The task does not run any more: it waits, or has ended."""
        if not task.done:
            return
        group = task.group
        group.left -= 1
        if task.error is not None and not isinstance(task.error, Exception) and group.stopped is None:
            group.stopped = task.error
            self._close(group.tasks)
            group.left = 0
        if group.left == 0 and group.parent is not None:
            self.ready.append(group.parent)

    def _close(self, tasks: list[_Task]) -> None:
        """Unwinds the instances that are not done, the last one first."""
        for task in reversed(tasks):
            while not task.done:
                try:
                    self._unwind(task)
                except KeyboardInterrupt:  # once more; go on unwinding
                    continue

    def _unwind(self, task: _Task) -> None:
        if task.inner is not None:
            self._close(task.inner.tasks)
        task.closing = True
        if not task.started:
            task.done = True
            self.fibers.drop(task)
            return
        error = _Stopped()
        if task.inner is not None:
            task.thrown = error
            _core._batch_turn(task, True)
            self.fibers.resume(task)
        elif not _core._batch_throw(task, error):
            task.done = True  # it is where only the function knows
        _core._batch_turn(None, False)


# ---------------------------------------------------------------- the functions


def batch_map(
    function: Callable[[Any], T],
    instances: Iterable[Any],
    *,
    return_exceptions: bool = False,
    backend: Optional[str] = None,
) -> list[T]:
    """The results of `function` for each of the instances, as `[function(x) for x in instances]` gives them.

    They are computed together even if `function` reads values to decide what to do next, as greedy and beam
    search decoders, transition parsers, tree generators and early exits do. Reading a value (`value()`,
    `npvalue()`, `forward()`, ...) suspends the instance; when all are suspended or done, one pass computes
    what they wait for. So there are as many passes as the longest instance reads values, instead of as many
    as all of them read together.

    All record into the current graph: call `renew_cg()` before `batch_map`, and train by `backward()` on the
    sum of the losses that it returns. Inside `function`, `renew_cg()`, `backward()`, `update()`,
    `cg_checkpoint()`, `cg_revert()`, changes of parameters and of dropout rates are errors, because other
    instances are half done. `function` may call `batch_map` itself.

    Each instance comes out as if it alone had followed what was recorded before `batch_map`:

    - It has random numbers of its own for dropout, noise and samples. They follow from the state of the main
      stream and the instance's place in the list, not from what other instances do (so they differ from
      those of a plain loop). The main stream goes on by one number if any instance drew. `reset_random_seed`
      in an instance starts that instance's numbers again. Dropout masks that builders keep for a whole graph
      are kept for one instance here. Python's `random` and `numpy.random` are shared by all instances, which
      take from them in turns: use `instance_rng()` instead.
    - Context variables that it sets are its own.
    - Other Python objects are shared. An instance must not rely on those that others change between two reads
      of values, nor read values while it holds a lock that others take.

    Args:
        function: called with one instance; may return anything.
        instances: any iterable; it is read to its end first.
        return_exceptions: an instance that fails gives its exception in the list, instead of a result.
        backend: "greenlet", "threads", or None for greenlets if that library is installed
            (`pip install greenlet`), else threads, of which one runs at a time: slower, same
            results. Then each instance sees thread-local data of its own.
    Returns:
        A list of the results in the order of the instances.
    Raises:
        Exception: of the first instance that failed, after the others have run to their end. Its attribute
            `instance` is the index of that instance, `others` lists (index, exception) of further ones.
        BaseException: others than Exception, such as KeyboardInterrupt, end all instances at once. Their
            `finally` blocks run.
        TypeError: `function` cannot be called.
        ValueError: there is no such backend.
    Source: ours; after the fibers of ACRoBat, Fegade et al., MLSys 2024.
    Example:
        >>> def halvings(x):  # how often to halve x until it is below 1
        ...     e, n = dy.scalarInput(x), 0
        ...     while e.value() >= 1:
        ...         e, n = e * 0.5, n + 1
        ...     return n
        >>> dy.batch_map(halvings, [0.5, 10, 3])
        [0, 4, 2]
        >>> w = dy.ParameterCollection().add_parameters(1, init=2)
        >>> losses = dy.batch_map(lambda x: dy.square(w * dy.scalarInput(x) - 1), [0.5, 1.0])
        >>> loss = dy.esum(losses)
        >>> loss.backward()
        >>> w.gradient().tolist()
        [2.0]
    """
    if not callable(function):
        raise TypeError(f"batch_map(): expected a function, got {type(function).__name__}")
    arguments = list(instances)
    task = _current_task()
    if task is not None:
        if backend is not None and backend not in _BACKENDS:
            _fibers(backend)
        if task.closing:
            return [function(x) for x in arguments]
        return _map(task.group.scheduler, function, arguments, task, return_exceptions)
    fibers = _fibers(backend)
    try:
        return _map(_Scheduler(fibers), function, arguments, None, return_exceptions)
    finally:
        _core._batch_end()


def _map(
    scheduler: _Scheduler,
    function: Any,
    arguments: list[Any],
    task: Optional[_Task],
    return_exceptions: bool,
) -> list[Any]:
    if not arguments:
        return []
    group = _Group(scheduler, function, arguments, task)
    try:
        if task is None:
            scheduler.run(group)
        else:
            scheduler.run_inside(task, group)
        return _outcome(group, return_exceptions)
    finally:
        group.release()
        del scheduler, task


def _map_unless_drawn(function: Callable[[Any], T], instances: list[Any]) -> Optional[list[T]]:
    """What batch_map returns, if all went well and no random numbers were drawn; those of the process are as
    they were in any case."""
    scheduler = _Scheduler(_Greenlets())
    drawn = True
    group = None
    try:
        group = _Group(scheduler, function, instances, None)
        scheduler.run(group)
        if group.stopped is not None:
            raise group.stopped
        failed = any(task.error is not None for task in group.tasks)
        results = [task.result for task in group.tasks]
    finally:
        if group is not None:
            group.release()
        drawn = bool(_core._batch_end_undrawn())
    return None if failed or drawn else results


def _outcome(group: _Group, return_exceptions: bool) -> list[Any]:
    if group.stopped is not None:
        raise group.stopped
    if return_exceptions:
        return [task.result if task.error is None else task.error for task in group.tasks]
    failed = [(task.index, task.error) for task in group.tasks if task.error is not None]
    if not failed:
        return [task.result for task in group.tasks]
    index, error = failed.pop(0)
    try:
        error.instance, error.others = index, failed  # type: ignore[attr-defined]
        if hasattr(error, "add_note"):
            more = f"; {len(failed)} more failed" if failed else ""
            error.add_note(f"batch_map(): in the function's call for instance {index}{more}")
        raise error
    finally:
        del error, failed


def instance_rng() -> np.random.Generator:
    """A NumPy generator of random numbers that belongs to the instance of `batch_map` that calls.

    It is made at the first call in an instance and the same at later ones. Its numbers follow from the main
    stream (`--dynet-seed`, `reset_random_seed`) and the instance's place in the list.

    Returns:
        numpy.random.Generator. Outside of `batch_map`: a new one at each call, seeded by the main stream.
    Source: ours.
    Example:
        >>> dy.reset_random_seed(1)
        >>> first = dy.batch_map(lambda _: dy.instance_rng().integers(1000), range(3))
        >>> dy.reset_random_seed(1)
        >>> first == dy.batch_map(lambda _: dy.instance_rng().integers(1000), range(3))
        True
    """
    task = _current_task()
    if task is None:
        return _new_rng()
    local = _local(task)
    if instance_rng not in local:
        local[instance_rng] = _new_rng()
    generator: np.random.Generator = local[instance_rng]
    return generator


def _new_rng() -> np.random.Generator:
    return np.random.default_rng([_core._draw_seed() for _ in range(4)])


# ---------------------------------------------------------------- for other modules


def _current_task() -> Optional[_Task]:
    task: Any = _core._batch_task()
    found: Optional[_Task] = task
    return found


def _local(task: _Task) -> dict[Any, Any]:
    if task.local is None:
        task.local = {}
    return task.local


def refuse_inside(call: str, advice: str) -> None:
    """Raises RuntimeError in the function of batch_map."""
    if _current_task() is not None:
        raise RuntimeError(
            f"{call}: not inside the function of batch_map(), whose instances share one graph; {advice}"
        )


class PerInstance(Generic[S]):
    """State of which each instance has its own, at first a copy (by its method `copy`) of that before it."""

    def __init__(self, state: S) -> None:
        self._outside = state

    def get(self) -> S:
        """The state of the instance that runs, or that of no instance."""
        task = _current_task()
        return self._outside if task is None else self._of(task)

    def _of(self, task: _Task) -> S:
        local = _local(task)
        if self not in local:
            outer = task.group.parent
            before: Any = self._outside if outer is None else self._of(outer)
            local[self] = before.copy()
        state: S = local[self]
        return state
