"""`batch_map`: a function for many instances that compute together although each reads values on its way.

Each call of the function runs on a fiber: a greenlet, or without that library a thread of its own, of which
one runs at a time. Reading a value that is not computed yet suspends the fiber. When all are suspended or done,
the scheduler has everything computed that they wait for, in one go, and lets them continue in their order.
"""

from __future__ import annotations

import contextvars
import ctypes
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


class _Task:
    """One call of the function."""

    __slots__ = (
        "number",
        "group",
        "index",
        "function",
        "argument",
        "context",
        "started",
        "done",
        "closing",
        "target",
        "thrown",
        "result",
        "error",
        "inner",
        "fiber",
        "switch",
        "local",
    )

    def __init__(self, group: _Group, index: int, number: int, function: Any, argument: Any) -> None:
        self.group: Optional[_Group] = group
        self.index = index
        self.number = number
        self.function = function
        self.argument = argument
        self.context = contextvars.copy_context()
        self.started = self.done = False
        self.closing = False  # it is unwound and must not be suspended any more
        self.target: Any = None  # the node, or list of nodes, that it waits for
        self.thrown: Optional[BaseException] = None  # what to raise in it when it continues
        self.result: Any = None
        self.error: Optional[BaseException] = None
        self.inner: Optional[_Group] = None  # the batch_map inside it that it waits for
        self.fiber: Any = None
        self.switch: Any = None
        self.local: dict[Any, Any] = {}  # what belongs to the call, by whose it is

    def run(self, scheduler: _Scheduler) -> None:
        try:
            self.result = _core._batch_run(
                scheduler.engine, scheduler.wait, self.number, self.function, self.argument
            )
        except BaseException as error:
            self.error = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
        self.function = self.argument = self.context = None  # type: ignore[assignment]
        self.local = {}
        self.done = True


class _Group:
    """The calls of one batch_map."""

    __slots__ = ("tasks", "left", "parent", "stopped")

    def __init__(self, function: Any, instances: list[Any], parent: Optional[_Task]) -> None:
        numbers = _core._batch_add(len(instances))
        self.tasks = [
            _Task(self, i, number, function, x) for i, (number, x) in enumerate(zip(numbers, instances))
        ]
        self.left = len(self.tasks)
        self.parent = parent
        self.stopped: Optional[BaseException] = None  # KeyboardInterrupt and the like ended all

    def release(self) -> None:
        for task in self.tasks:
            task.group = task.result = task.error = task.fiber = task.switch = None
        self.tasks = []
        self.parent = self.stopped = None


# ---------------------------------------------------------------- fibers


class _Greenlets:
    """Fibers that are greenlets."""

    def __init__(self) -> None:
        library = importlib.import_module("greenlet")
        self._greenlet = library.greenlet
        self._current = library.getcurrent
        self._hub = library.getcurrent()

    def start(self, task: _Task, scheduler: _Scheduler) -> None:
        task.fiber = fiber = self._greenlet(task.run, self._hub)
        fiber.gr_context = task.context
        fiber.switch(scheduler)

    def resume(self, task: _Task) -> None:
        task.switch()

    def pause(self, task: _Task) -> None:
        task.switch = self._current().switch  # the function may have greenlets of its own
        self._hub.switch()

    def room(self) -> bool:
        return True


class _Threads:
    """Fibers that are threads, of which one runs at a time."""

    def __init__(self) -> None:
        self._turn: Optional[_Task] = None  # whose it is; None: the scheduler's
        self._baton = threading.Lock()
        self._alive = 0

    def start(self, task: _Task, scheduler: _Scheduler) -> None:
        def body() -> None:
            task.context.run(task.run, scheduler)
            self._alive -= 1
            self._give_back()

        task.switch = threading.Lock()
        task.switch.acquire()
        task.fiber = threading.Thread(target=body, name=f"batch_map-{task.index}", daemon=True)
        self._alive += 1
        try:
            self._hand_over(task, task.fiber.start)
        except RuntimeError:  # no more threads
            self._alive -= 1
            raise

    def resume(self, task: _Task) -> None:
        self._hand_over(task, task.switch.release)

    def pause(self, task: _Task) -> None:
        self._give_back()
        task.switch.acquire()

    def room(self) -> bool:
        return self._alive < _MOST_THREADS

    def _give_back(self) -> None:
        self._turn = None
        self._baton.release()

    def _hand_over(self, task: _Task, go: Callable[[], None]) -> None:
        self._turn = task
        self._baton = baton = threading.Lock()
        baton.acquire()
        try:
            go()
        except BaseException:
            self._turn = None
            raise
        interrupt: Optional[_Interrupt] = None
        while self._turn is not None:
            try:
                baton.acquire()
            except BaseException as error:  # Python runs signal handlers here, in the main thread
                interrupt = _Interrupt(error)
                interrupt.raise_in(task.fiber.ident)
        if interrupt is not None:
            interrupt.settle(task)


class _Interrupt:
    """What a signal handler raised, passed on to the thread that runs."""

    def __init__(self, error: BaseException) -> None:
        self.error: Optional[BaseException] = error
        self.arrived = False
        kind = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else _Stopped

        def arrive(raised: BaseException) -> None:
            self.arrived = True

        self._type = type(kind.__name__, (kind,), {"__init__": arrive})

    def raise_in(self, thread: Optional[int]) -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread or 0), ctypes.py_object(self._type))

    def settle(self, task: _Task) -> None:
        error, self.error = self.error, None
        if isinstance(task.error, self._type):
            task.error = error  # as if it had been raised there
        elif not self.arrived:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(task.fiber.ident or 0), None)
            assert error is not None
            raise error


_BACKENDS: dict[str, Any] = {"greenlet": _Greenlets, "threads": _Threads}


def _fibers(backend: Optional[str]) -> Any:
    if backend is not None and backend not in _BACKENDS:
        raise ValueError(f"batch_map(): expected backend to be None or one of {list(_BACKENDS)}, got {backend!r}")
    if backend is not None:
        return _BACKENDS[backend]()
    try:
        return _Greenlets()
    except ImportError:
        return _Threads()


# ---------------------------------------------------------------- scheduler


class _Scheduler:
    """Runs the instances of one outermost batch_map, and of those inside it."""

    def __init__(self, fibers: Any) -> None:
        self.fibers = fibers
        self.ready: list[_Task] = []  # to run; the last is the next
        self.waiting: list[_Task] = []
        self.held: list[_Task] = []  # not started for want of threads
        self.current: Optional[_Task] = None
        self.engine = _core._batch_begin(self.wait)

    # ---- called by the instance that runs

    def wait(self, target: Any) -> None:
        """Returns when the nodes have values. The core calls it."""
        task = self.current
        assert task is not None
        if task.closing:
            return  # the core computes them at once
        task.target = target
        self.fibers.pause(task)
        if task.thrown is not None:
            self._raise_thrown(task)

    def run_inside(self, task: _Task, group: _Group) -> None:
        """Returns when the instances of a batch_map inside `task` are done."""
        task.target = None
        task.inner = group
        self.ready.extend(reversed(group.tasks))
        _core._batch_suspend(lambda: self.fibers.pause(task))
        task.inner = None
        if task.thrown is not None:
            self._raise_thrown(task)

    @staticmethod
    def _raise_thrown(task: _Task) -> None:
        error, task.thrown = task.thrown, None
        assert error is not None
        try:
            raise error
        finally:
            error = None

    # ---- the outermost caller

    def run(self, group: _Group) -> None:
        try:
            self.ready = group.tasks[::-1]
            while self._round():
                self._compute()
        except BaseException:
            self._close(group.tasks)
            raise
        finally:
            self.ready, self.waiting, self.held, self.current = [], [], [], None
            self.fibers = None
            _core._batch_end()

    def _round(self) -> bool:
        """Runs all that can; True if there is something to compute for the others."""
        while True:
            while self.ready:
                self._turn(self.ready.pop())
            self.waiting = [task for task in self.waiting if not task.done]
            if self.waiting or not self.held:
                return bool(self.waiting)
            self.ready, self.held = self.held[::-1], []

    def _turn(self, task: _Task) -> None:
        if task.done:
            return
        if not task.started and self.waiting and not self.fibers.room():
            self.held.append(task)  # those that wait will end, and make room
            return
        self._step(task)
        if task.done:
            self._ended(task)
        elif task.target is not None:
            self.waiting.append(task)

    def _step(self, task: _Task) -> None:
        self.current = task
        if task.started:
            self.fibers.resume(task)
            return
        task.started = True
        try:
            self.fibers.start(task, self)
        except RuntimeError as error:  # no more threads
            if task.done or not self.waiting:
                task.error, task.done = error, True
            else:
                task.started = False
                self.held.append(task)

    def _ended(self, task: _Task) -> None:
        group = task.group
        assert group is not None
        group.left -= 1
        if task.error is not None and not isinstance(task.error, Exception) and group.stopped is None:
            group.stopped = task.error
            self._close(group.tasks)
            group.left = 0
        if group.left == 0 and group.parent is not None:
            self.ready.append(group.parent)
        elif self.held:
            self.ready.insert(0, self.held.pop(0))

    def _compute(self) -> None:
        tasks = self.waiting
        self.waiting = []
        try:
            _core._batch_compute([task.target for task in tasks])
        except Exception:
            self._compute_each(tasks)
        for task in tasks:
            task.target = None
        self.ready = self.held[::-1] + tasks[::-1]
        self.held = []

    @staticmethod
    def _compute_each(tasks: list[_Task]) -> None:
        """An error is for the instance that waits for what cannot be computed."""
        for task in tasks:
            try:
                _core._batch_compute([task.target])
            except Exception as error:
                task.thrown = error.with_traceback(None)

    def _close(self, tasks: list[_Task]) -> None:
        """Unwinds the instances that are not done, the last one first."""
        for task in reversed(tasks):
            while not task.done:
                try:
                    if task.inner is not None:
                        self._close(task.inner.tasks)
                    task.closing, task.target = True, None
                    if not task.started:
                        task.done = True
                        break
                    task.thrown = _Stopped()
                    self.current = task
                    self.fibers.resume(task)
                except KeyboardInterrupt:  # once more; go on unwinding
                    continue


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
      stream and the instance's place in the list, not from what other instances do. (So they differ from those
      of a plain loop.) The main stream goes on by one number if any instance drew. Dropout masks that
      builders keep for a whole graph are kept for one instance here. Python's `random` and `numpy.random` are
      shared by all instances, which take from them in turns: use `instance_rng()` instead.
    - Context variables that it sets are its own.
    - Other Python objects are shared. An instance must not rely on those that others change between two reads
      of values.

    Args:
        function: called with one instance; may return anything.
        instances: any iterable; it is read to its end first.
        return_exceptions: an instance that fails gives its exception in the list, instead of a result.
        backend: "greenlet", "threads", or None for greenlets if that library is installed
            (`pip install dynet_compat[fibers]`), else threads, of which one runs at a time: slower, same
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
        scheduler = _core._batch_wait().__self__
        if task.closing:
            return [function(x) for x in arguments]
        if backend is not None and backend not in _BACKENDS:
            _fibers(backend)
        if not arguments:
            return []
        group = _Group(function, arguments, task)
    else:
        fibers = _fibers(backend)
        if not arguments:
            return []
        scheduler = _Scheduler(fibers)
        try:
            group = _Group(function, arguments, None)
        except BaseException:
            _core._batch_end()
            raise
    try:
        if task is None:
            scheduler.run(group)
        else:
            scheduler.run_inside(task, group)
        return _outcome(group, return_exceptions)
    finally:
        group.release()
        del scheduler, task


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
    if task is not None and instance_rng in task.local:
        known: np.random.Generator = task.local[instance_rng]
        return known
    generator = np.random.default_rng([_core._draw_seed() for _ in range(4)])
    if task is not None:
        task.local[instance_rng] = generator
    return generator


# ---------------------------------------------------------------- for other modules


def _current_task() -> Optional[_Task]:
    wait = _core._batch_wait()
    task: Optional[_Task] = None if wait is None else wait.__self__.current
    return task


def refuse_inside(call: str, advice: str) -> None:
    """Raises RuntimeError in the function of batch_map."""
    if _current_task() is not None:
        raise RuntimeError(
            f"{call}: not inside the function of batch_map(), whose instances share one graph; {advice}"
        )


class PerInstance(Generic[S]):
    """State (it has a method `copy`) of which each instance has its own, at first a copy of that before it."""

    def __init__(self, state: S) -> None:
        self._outside = state

    def get(self) -> S:
        """The state of the instance that runs, or that of no instance."""
        task = _current_task()
        return self._outside if task is None else self._of(task)

    def _of(self, task: _Task) -> S:
        if self not in task.local:
            outer = task.group.parent if task.group is not None else None
            before: Any = self._outside if outer is None else self._of(outer)
            task.local[self] = before.copy()
        state: S = task.local[self]
        return state
