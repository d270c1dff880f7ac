"""`batch_map`: a function for many instances that compute together although each reads values on its way.

Each call of the function runs on a fiber (fibers.py). Reading a value that is not computed yet suspends the
fiber. When all are suspended or done, the core (bindings/fibers.cc) computes everything that they wait for at
once, and lets them continue in their order.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable
from typing import Any, Generic, Optional, TypeVar

import numpy as np

from .. import _core
from ..distributed import state
from ..fibers import BACKENDS, Greenlets, NoThread, Stopped, Task, backend_of

MOST_FIBERS = 1024  # besides those of the outermost batch_map; those inside run one by one beyond that
T = TypeVar("T")
S = TypeVar("S")

__all__ = ["batch_map", "instance_rng"]


class Group:
    """The calls of one batch_map."""

    stopped: Optional[BaseException] = None  # KeyboardInterrupt and the like ended all

    def __init__(
        self,
        scheduler: _Scheduler,
        function: Any,
        instances: list[Any],
        parent: Optional[Task],
        unseen: bool = False,
    ) -> None:
        self.scheduler = scheduler
        self.function = function
        self.instances = instances
        self.parent = parent
        self.context = contextvars.copy_context()
        numbers: Any = _core._batch_add(len(instances), unseen)
        self.tasks = [Task(self, i, number) for i, number in enumerate(numbers)]
        self.left = len(self.tasks)

    def release(self) -> None:
        """Ends the references between this, the scheduler and the calls, of which none begins any more."""
        for task in self.tasks:
            task.done = task.closing = True
            task.group = task.result = task.error = task.fiber = task.switch = task.thrown = None
        del self.tasks, self.scheduler, self.function, self.instances, self.parent
        self.stopped = None


class _Scheduler:
    """Runs the instances of one outermost batch_map, and of those inside it.

    The core lets those that wait for values continue (`_batch_next`). Here is what happens less often: calls
    begin and end, and wait for a batch_map inside them.
    """

    def __init__(self, fibers: Any) -> None:
        self.fibers = fibers
        self.ready: list[Task] = []  # to begin, or to go on after a batch_map inside; the last is the next
        self.held: list[Task] = []  # not begun for want of threads
        self.live = 0  # calls that have begun and not ended
        self.most = MOST_FIBERS
        self.width = 0  # of the outermost batch_map
        self.turn: Any = None  # the call that ran last
        self.batch = _core._batch_begin(fibers.pause, fibers.resume, fibers.hub, fibers.current)

    def run_inside(self, task: Task, group: Group) -> None:
        """Returns when the instances of a batch_map inside `task` are done."""
        task.inner = group
        try:
            if self.full():
                self._run_in_order(task, group)
                return
            self.ready.extend(reversed(group.tasks))
            _core._batch_suspend(lambda: self.fibers.pause(task))
        finally:
            task.inner = None
        error, task.thrown = task.thrown, None
        if error is not None:
            raise error

    def full(self) -> bool:
        """Whether so many fibers live that a batch_map inside makes no more of them."""
        return self.live >= self.most and self.fibers.hub is not None

    def _turn_of(self, task: Task, closing: bool) -> None:
        self.turn = task
        _core._batch_turn(task, closing)

    def _run_in_order(self, task: Task, group: Group) -> None:
        """Runs the instances one after another on the fiber of `task`."""
        for child in group.tasks:

            def call(child: Task = child) -> None:
                self._turn_of(child, False)
                child.run()

            _core._batch_suspend(call)
            self._turn_of(task, task.closing)
            if child.error is not None and not isinstance(child.error, Exception):
                raise child.error

    # ---- the outermost caller

    def run(self, group: Group) -> None:
        self.width = len(group.tasks)
        self.most += self.width
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

    def _turn(self, task: Task) -> None:
        if task.done:
            return
        if not task.started and self.fibers.full() and _core._batch_waiting():
            self.held.append(task)  # those that wait will end, and make room
            return
        self._turn_of(task, False)
        if task.started:
            self.fibers.resume(task)
        else:
            self._start(task)
        self._left(self.turn)

    def _start(self, task: Task) -> None:
        try:
            self.fibers.start(task)
        except NoThread as error:
            if _core._batch_waiting():
                self.held.append(task)
            else:
                task.error, task.done = error.__cause__, True

    def _left(self, task: Task) -> None:
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

    def _close(self, tasks: list[Task]) -> None:
        """Unwinds the instances that are not done, the last one first."""
        for task in reversed(tasks):
            while not task.done:
                try:
                    self._unwind(task)
                except KeyboardInterrupt:  # once more; go on unwinding
                    continue

    def _unwind(self, task: Task) -> None:
        if task.inner is not None:
            self._close(task.inner.tasks)
            if task.done:  # they ran on its fiber
                return
        task.closing = True
        if not task.started:
            task.done = True
            self.fibers.drop(task)
            return
        error = Stopped()
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
    instances are half done. `function` may call `batch_map` itself: a recursion that generates a tree then
    computes once per level, not once per node. While more than 1,024 such calls live, further ones run one
    after another.

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
        if backend is not None and backend not in BACKENDS:
            backend_of(backend)
        if task.closing:
            return [function(x) for x in arguments]
        return _map(task.group.scheduler, function, arguments, task, return_exceptions)
    if state.job is not None and state.job.shards_batch_map:  # distribute --shard batch_map
        arguments = list(state.job.shard(arguments, None))
    fibers = backend_of(backend)
    try:
        return _map(_Scheduler(fibers), function, arguments, None, return_exceptions)
    finally:
        _core._batch_end()


def _map(
    scheduler: _Scheduler,
    function: Any,
    arguments: list[Any],
    task: Optional[Task],
    return_exceptions: bool,
) -> list[Any]:
    if not arguments:
        return []
    group = Group(scheduler, function, arguments, task)
    try:
        if task is None:
            scheduler.run(group)
        else:
            scheduler.run_inside(task, group)
        return _outcome(group, return_exceptions)
    finally:
        group.release()
        del scheduler, task


def map_unless_drawn(function: Callable[[Any], T], instances: list[Any]) -> Optional[list[T]]:
    """What batch_map returns, if all went well and no random numbers were drawn; those of the process are as
    they were in any case.

    In an instance the calls are parts of it: what they record is its own, and None is returned where many
    fibers live already.
    """
    task = _current_task()
    if task is not None:
        return _unless_drawn_inside(task, function, instances)
    scheduler = _Scheduler(Greenlets())
    drawn = True
    group = None
    try:
        group = Group(scheduler, function, instances, None)
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


def _unless_drawn_inside(task: Task, function: Callable[[Any], T], instances: list[Any]) -> Optional[list[T]]:
    scheduler = task.group.scheduler
    if task.closing or scheduler.full():
        return None
    draws, place = _core._batch_mark()
    group = Group(scheduler, function, instances, task, unseen=True)
    try:
        first, count = group.tasks[0].number, len(instances)
        scheduler.run_inside(task, group)
        if group.stopped is not None:
            raise group.stopped
        if draws != _core._batch_mark()[0] or any(each.error is not None for each in group.tasks):
            return None
        _core._batch_join(first, count, place)
        return [each.result for each in group.tasks]
    finally:
        group.release()


def _outcome(group: Group, return_exceptions: bool) -> list[Any]:
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


def _current_task() -> Optional[Task]:
    task: Any = _core._batch_task()
    found: Optional[Task] = task
    return found


def _local(task: Task) -> dict[Any, Any]:
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

    def _of(self, task: Task) -> S:
        local = _local(task)
        if self not in local:
            outer = task.group.parent
            before: Any = self._outside if outer is None else self._of(outer)
            local[self] = before.copy()
        state: S = local[self]
        return state
